"""Retention: old messages that everyone has passed are deleted in small batches, so that no writer waits long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pillarbox import crashpoints
from pillarbox.clock import Clock, SystemClock
from pillarbox.storage.sqlite.connection import Database, execute
from pillarbox.storage.sqlite.sql import SQL

BATCH = 500


class SqliteUpkeep:
    """The upkeep port over one file, on a connection of its own. There are no segments to attach or to roll."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()

    def attach_ahead(self) -> int:
        return 0

    def roll(self, period: float, rows: int | None) -> bool:
        return False

    def prune(self, retention: float) -> list[str]:
        cutoff = self._cutoff(retention)
        start, first, last = 0, None, None
        while (window := self._window(cutoff, start)) and any(old for _, old in window):
            gone = self._prune(cutoff, [id for id, old in window if old])
            if not gone:
                break
            start, first, last = window[-1][0], first or gone[0], gone[-1]
        return [f"{first}-{last}"] if first else []

    def expire(self, retention: float, unique_window: float) -> int:
        before = self._cutoff(retention)
        expired = self._in_batches("expire_unique_keys", self._cutoff(unique_window))
        expired += self._in_batches("expire_audit", before) + self._in_batches("expire_hold", before)
        return expired + self._in_batches("expire_kept")

    def close(self) -> None:
        self._database.close()

    def _cutoff(self, seconds: float) -> float:
        return float(self._database.all(SQL["cutoff"], (seconds,))[0][0])

    def _window(self, cutoff: float, start: int) -> list[tuple[int, int]]:
        passed = self._database.all(SQL["passed"])[0][0]
        if passed is None:
            return []
        return [(id, old) for id, old in self._database.all(SQL["oldest"], (cutoff, start, passed, BATCH))]

    def _prune(self, cutoff: float, ids: list[int]) -> list[int]:
        with self._politely():
            with self._database.writing() as conn:
                # Looked at again under the lock: a route from the beginning may have come since.
                passed = conn.execute(SQL["passed"]).fetchone()[0]
                ids = [id for id in ids if id <= (passed or 0)]
                if ids:
                    execute(conn, SQL["keep"], (ids[0], ids[-1], cutoff))
                    crashpoints.here("prune.kept")
                    conn.execute(SQL["prune"], (ids[0], ids[-1], cutoff))
            crashpoints.here("prune.dropped")
        return ids

    def _in_batches(self, statement: str, *parameters: float) -> int:
        total, gone = 0, BATCH
        while gone == BATCH:
            with self._politely(), self._database.writing() as conn:
                gone = conn.execute(SQL[statement], (*parameters, BATCH)).rowcount
            total += gone
        return total

    @contextmanager
    def _politely(self) -> Iterator[None]:
        """Leave the write lock to others for as long as we had it."""
        began = self._clock.mono()
        yield
        self._clock.sleep(self._clock.mono() - began)
