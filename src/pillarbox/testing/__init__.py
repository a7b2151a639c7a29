"""For your own tests, and ours: contract suites, the history checker, faults."""
