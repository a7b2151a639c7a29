"""PostgreSQL: one append-only log, cursors that are snapshots, lanes with leases."""
