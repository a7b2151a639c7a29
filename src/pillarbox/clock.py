"""The only file that reads time or sleeps."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

unix_ns = time.time_ns  # for ids that begin with the time


class Clock(Protocol):
    """Time as the relay sees it. A simulator passes its own."""

    def mono(self) -> float:
        """Seconds that never go back; only differences mean something."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC; never used for leases."""

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""


class SystemClock:
    """The machine's own clocks."""

    mono = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)
