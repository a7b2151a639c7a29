"""SQLite: the embedded store. One writer, so commit order is id order and a cursor is a number; one lane, number 0."""
