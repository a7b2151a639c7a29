"""One look at the installation for all who ask: metrics, probes, a route's proposal."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pillarbox.clock import Clock
from pillarbox.errors import PillarboxError
from pillarbox.ports import Desk
from pillarbox.views import Overview

FRESH = 5.0  # seconds a look stays good: scrapes and probes of many must not load the database


class Watch:
    """Looks on a connection of its own, which who asks seldom does not keep; one thread at a time. None while the
    database cannot be asked."""

    def __init__(self, desk: Callable[[], Desk], clock: Clock) -> None:
        self._make, self._clock = desk, clock
        self._lock = threading.Lock()
        self._desk: Desk | None = None
        self._seen: Overview | None = None
        self._seen_at = float("-inf")

    def look(self, older_than: float = FRESH) -> Overview | None:
        with self._lock:
            if self._clock.mono() - self._seen_at >= older_than:
                self._seen = self._ask()
                self._seen_at = self._clock.mono()
                if older_than >= FRESH:  # a relay without lanes keeps one connection, its own
                    self._hang_up()
            return self._seen

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def _hang_up(self) -> None:
        desk, self._desk = self._desk, None
        if desk is not None:
            desk.close()

    def _ask(self) -> Overview | None:
        try:
            if self._desk is None:
                self._desk = self._make()
            return self._desk.overview()
        except PillarboxError:
            return None
