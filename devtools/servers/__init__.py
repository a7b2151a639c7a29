"""Private servers for tests and `./dev with`: on loopback, a free port, data in a temporary folder, stopped by pid."""
