"""Time that moves only when the world says so."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime

BIRTH = 1_700_000_000.0


class SimClock:
    """The clock of everything in a simulated world, the database's and every relay's."""

    def __init__(self) -> None:
        self.time = 0.0

    def mono(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime.fromtimestamp(BIRTH + self.time, UTC)

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"the engine slept for {seconds} s inside a step")


class Dice:
    """Chance that hangs on names, not on the order of asking: what a shrunk schedule leaves out changes nothing else."""

    def __init__(self, seed: int) -> None:
        self._salt = str(seed)
        self._count: dict[str, int] = {}

    def throw(self, name: str) -> float:
        """A number in [0, 1): another one each time this name is asked."""
        n = self._count[name] = self._count.get(name, 0) + 1
        return zlib.crc32(f"{self._salt}:{name}:{n}".encode()) / 2**32

    def between(self, name: str, low: float, high: float) -> float:
        return low + (high - low) * self.throw(name)
