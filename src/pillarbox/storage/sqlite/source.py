"""Read the log above a number, settle in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pillarbox import crashpoints
from pillarbox.clock import Clock, SystemClock
from pillarbox.ports import Changes, Held, Page, RowTuple, Settled
from pillarbox.storage.sqlite.connection import Database, storable
from pillarbox.storage.sqlite.sql import SQL

LOOKS = 20  # how often `wait` looks whether somebody has committed
SHORTEST_LOOK = 0.001


@dataclass(slots=True)
class NumberPage:
    """Rows above an id, in id order."""

    lane: int
    rows: list[RowTuple]
    start: int

    @property
    def after(self) -> int:
        return self.cut(len(self.rows))

    def cut(self, done: int) -> int:
        return int(self.rows[done - 1][0]) if done else self.start


class SqliteSource:
    """The source port over one file."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._seen: int | None = None  # the file's version before the first read since the last wait

    def read(self, route: str, positions: Mapping[int, int], limit: int) -> list[Page]:
        if self._seen is None:
            self._seen = self._version()
        ask = self._database.all
        return [NumberPage(lane, ask(SQL["read"], (start, limit)), start) for lane, start in positions.items()]

    def fetch(self, ids: Sequence[int]) -> list[RowTuple]:
        found = {row[0]: row for row in self._database.all(SQL["fetch"], (json.dumps(list(ids)),))}
        return [found[id] for id in ids if id in found]

    def settle(self, route: str, changes: Sequence[Changes]) -> dict[int, Settled]:
        settled: dict[int, Settled] = {}
        with self._database.writing() as conn:
            for change in changes:
                cursor = (change.position, route, change.lane, change.term)
                if conn.execute(SQL["move_cursor"], cursor).rowcount:
                    settled[change.lane] = _write_holds(conn, route, change)
            crashpoints.here("settle.sent")
        return settled

    def wait(self, timeout: float) -> None:
        clock, give_up = self._clock, self._clock.mono() + timeout
        look = max(timeout / LOOKS, SHORTEST_LOOK)
        seen = self._version() if self._seen is None else self._seen
        self._seen = None
        while (left := give_up - clock.mono()) > 0 and self._version() == seen:
            clock.sleep(min(look, left))

    def _version(self) -> int:
        return int(self._database.all(SQL["data_version"])[0][0])


def _write_holds(conn: sqlite3.Connection, route: str, change: Changes) -> Settled:
    lane = change.lane
    for held in change.done:
        conn.execute(SQL["hold_done"], (held.seq, route, lane))
    written = [conn.execute(SQL["hold_changed"], _as_changed(route, lane, held)).rowcount for held in change.changed]
    seqs = [conn.execute(SQL["hold_added"], _as_added(route, lane, held)).lastrowid or 0 for held in change.added]
    return Settled(seqs, stale=0 in written)


def _as_changed(route: str, lane: int, held: Held) -> tuple[object, ...]:
    ids = json.dumps(held.ids)
    values = (ids, held.state, held.attempts, held.unknowns, _due_in(held), _plain(held.error), held.ahead)
    return (*values, held.seq, route, lane, held.edition)


def _as_added(route: str, lane: int, held: Held) -> tuple[object, ...]:
    head = (route, lane, json.dumps(held.ids), held.generation, storable(held.key), held.state)
    return (*head, held.attempts, held.unknowns, _due_in(held), _plain(held.error), held.ahead)


def _due_in(held: Held) -> float | None:
    return held.due_in if held.state == "retry" else None


def _plain(error: str) -> str:
    return error.encode("utf-8", "replace").decode()  # a sink's words may hold surrogates; SQLite stores none
