"""One lane in memory: what was read, what waits, where the cursor may go. Pure: no clock, no thread, no database."""
