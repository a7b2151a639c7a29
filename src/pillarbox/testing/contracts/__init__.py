"""Suites that *are* the definition of a source, a sink, a store: a backend is right if it passes them."""
