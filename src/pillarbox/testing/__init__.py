"""For your own tests, and ours: contract suites, the history checker, faults."""

from pillarbox.testing.recorded import async_messages, messages

__all__ = ["async_messages", "messages"]
