"""Databases: where messages are recorded, read and settled."""
