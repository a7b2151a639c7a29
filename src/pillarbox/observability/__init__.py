"""What is seen of a relay from outside: log lines, metrics and probes. Subscribers of the engine's typed events."""

from __future__ import annotations

from collections.abc import Callable

from pillarbox.events import Emit, Event


def fan_out(*subscribers: Callable[[Event], None]) -> Emit:
    """One emit for all of them."""

    def emit(event: Event) -> None:
        for subscriber in subscribers:
            subscriber(event)

    return emit
