"""What is seen of a relay from outside: log lines, metrics and probes. Subscribers of the engine's typed events."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pillarbox.events import Emit, Event

LOGGER = logging.getLogger("pillarbox.relay")


def fan_out(*subscribers: Callable[[Event], None]) -> Emit:
    """One emit for all of them. One that fails is told of, and harms neither the others nor the relay."""

    def emit(event: Event) -> None:
        for subscriber in subscribers:
            try:
                subscriber(event)
            except Exception:
                LOGGER.exception("a subscriber failed at %s", type(event).__name__)

    return emit
