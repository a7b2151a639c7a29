"""What one relay does for all, and retention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pillarbox.ports import Held, RouteState, RowTuple
from pillarbox.routing import compile_match
from pillarbox.storage.memory.log import OVER, UNROUTED, LogLane, MemoryLog


class MemoryChores:
    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def move_due(self, limit: int) -> int:
        with self._log.lock:
            now = self._log.clock.mono()
            ready = sorted((each for each in self._log.due if each[0] <= now), key=lambda each: each[:2])[:limit]
            transaction = self._log.begin()
            for each in ready:
                transaction.add(**each[2])
                self._log.due.remove(each)
            if ready:
                transaction.commit()
            return len(ready)

    def judge_unrouted(self, routes: Sequence[RouteState], bury: bool) -> int:
        with self._log.lock:
            if not routes or {r.name: r.definition for r in routes} != self._log.definitions():
                return 0  # a route came or went since the caller looked; it will look again
            tests = [compile_match(route.definition) for route in routes]
            some = [test for test in tests if test is not None]
            looks = bury and len(some) == len(tests)
            return sum(self._judge(lane, some, looks=looks) for lane in self._log.lanes)

    def _judge(self, lane: LogLane, tests: Sequence[Any], *, looks: bool) -> int:
        rows = lane.rows[max(0, lane.judged - lane.base) :] if looks else []
        lane.judged = lane.end
        unwanted = [row for row in rows if not any(test(row) for test in tests)]
        for row in unwanted:
            error = "unrouted: no stored route matches"
            self._log.put(0, UNROUTED, Held(row[1], 0, 0, row[2], [row[0]], 0, "dead", error=error))
        return len(unwanted)


class MemoryUpkeep:
    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def attach_ahead(self) -> int:
        return 0

    def roll(self, period: float, rows: int | None) -> bool:
        return False

    def prune(self, retention: float) -> list[str]:
        with self._log.lock:
            cutoff = self._log.clock.mono() - retention
            gone = [row for n in range(len(self._log.lanes)) for row in self._prune(n, cutoff)]
            needed = self._log.needed()
            self._log.kept.update({row[0]: row for row in gone if row[0] in needed})
            return [f"{min(gone)[0]}-{max(gone)[0]}"] if gone else []

    def _prune(self, number: int, cutoff: float) -> list[RowTuple]:
        lane, routes = self._log.lanes[number], self._log.routes.values()
        passed = min([route.cursors[number] for route in routes], default=0)
        old = sum(born <= cutoff for born in lane.born)
        count = max(0, min(passed - lane.base, lane.judged - lane.base, old))
        gone, lane.rows, lane.born = lane.rows[:count], lane.rows[count:], lane.born[count:]
        lane.base += count
        return gone

    def expire(self, retention: float, unique_window: float) -> int:
        with self._log.lock:
            cutoff, holds, kept = self._log.clock.mono() - retention, self._log.holds, self._log.kept
            over = [
                seq for seq, h in holds.items() if h.held.state in OVER and not h.held.ahead and h.changed <= cutoff
            ]
            for seq in over:
                del holds[seq]
            unneeded = kept.keys() - self._log.needed()
            for id in unneeded:
                del kept[id]
            return len(over) + len(unneeded)

    def close(self) -> None:
        return None
