"""Read the log behind a place, settle in one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pillarbox.ports import Changes, InDoubt, Page, RowTuple, Settled
from pillarbox.storage.memory.log import MemoryLog

LOOKS = 20  # how often `wait` looks whether somebody has committed


@dataclass(slots=True)
class PlacePage:
    """Rows of one lane behind a place in its log."""

    lane: int
    rows: list[RowTuple]
    start: int

    @property
    def after(self) -> int:
        return self.start + len(self.rows)

    def cut(self, done: int) -> int:
        return self.start + done


class Token:
    """What one connection knows of the log's crash token; its source and its leases share it."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.value = log.token

    def check(self) -> None:
        if self.value != self.log.token:
            raise InDoubt


class MemorySource:
    def __init__(self, token: Token) -> None:
        self._token = token
        self._log = token.log
        self._seen: int | None = None  # the log's version before the first read since the last wait

    def read(self, route: str, positions: Mapping[int, int], limit: int) -> list[Page]:
        with self._log.lock:
            self._token.check()
            if self._seen is None:
                self._seen = self._log.version
            return [
                self._page(lane, max(start, self._log.lanes[lane].base), limit) for lane, start in positions.items()
            ]

    def _page(self, number: int, start: int, limit: int) -> PlacePage:
        lane = self._log.lanes[number]
        return PlacePage(number, lane.rows[start - lane.base : start - lane.base + limit], start)

    def fetch(self, ids: Sequence[int]) -> list[RowTuple]:
        with self._log.lock:
            wanted = set(ids)
            found = {row[0]: row for lane in self._log.lanes for row in lane.rows if row[0] in wanted} | self._log.kept
            return [found[id] for id in ids if id in found]

    def settle(self, route: str, changes: Sequence[Changes]) -> dict[int, Settled]:
        with self._log.lock:
            self._token.check()
            stored = self._log.routes.get(route)
            own = [c for c in changes if stored and stored.terms[c.lane] == c.term]
            return {change.lane: self._settle(route, change) for change in own}

    def _settle(self, route: str, change: Changes) -> Settled:
        log = self._log
        log.routes[route].cursors[change.lane] = change.position
        own = {seq: h.held for seq, h in log.holds.items() if (h.route, h.held.lane) == (route, change.lane)}
        for held in change.done:
            if held.seq in own and own[held.seq].state != "skipped":
                del log.holds[held.seq], own[held.seq]
        fresh = [h for h in change.changed if h.seq in own and own[h.seq].edition == h.edition]
        for held in fresh:
            log.put(held.seq, route, held)
        seqs = [log.put(0, route, held._replace(lane=change.lane, edition=0)) for held in change.added]
        return Settled(seqs, stale=len(fresh) < len(change.changed))

    def wait(self, timeout: float) -> None:
        clock, seen = self._log.clock, self._seen if self._seen is not None else self._log.version
        self._seen = None
        give_up = clock.mono() + timeout
        while (left := give_up - clock.mono()) > 0 and self._log.version == seen:
            clock.sleep(min(timeout / LOOKS, left))
