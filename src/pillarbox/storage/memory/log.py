"""What all connections to a log in memory share: the database itself."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from json import dumps
from random import Random
from typing import Any
from uuid import UUID

from pillarbox.clock import Clock, SystemClock
from pillarbox.errors import Refused
from pillarbox.ports import Held, RouteState, RowTuple
from pillarbox.routing import compile_match

LIVE = ("retry", "waiting", "blocked")
OVER = ("skipped", "resolved")
UNROUTED = "unrouted"  # the route name of messages that no route wants


@dataclass(slots=True)
class LogLane:
    """One lane of the log, in commit order; `base` rows of it are pruned."""

    rows: list[RowTuple] = field(default_factory=list)
    born: list[float] = field(default_factory=list)
    base: int = 0
    judged: int = 0

    @property
    def end(self) -> int:
        return self.base + len(self.rows)


@dataclass(slots=True)
class Route:
    state: RouteState
    cursors: list[int]
    owners: list[UUID | None]
    terms: list[int]


@dataclass(slots=True)
class Process:
    serves: tuple[str, ...]
    since: float
    alive_until: float


@dataclass(slots=True)
class Hold:
    route: str
    held: Held
    due: float
    changed: float


class MemoryTransaction:
    """Rows that nobody sees before `commit`."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._rows: list[RowTuple] = []

    def add(
        self, aggregate: str = "order", type: str = "created", payload: bytes = b"{}", *, key: str | None = None,
        message_id: UUID | None = None, **more: object,
    ) -> int:  # fmt: skip
        """The id in the log, drawn now."""
        id = self._log.draw()
        name = (message_id or UUID(int=id)).bytes
        lane = self._log.lane_of(name.hex() if key is None else key)
        self._rows.append((id, lane, key, name, aggregate, type, payload, dumps(more) if more else None))
        return id

    def commit(self) -> None:
        self._log.append(self._rows)
        self._rows = []

    def rollback(self) -> None:
        self._rows = []


class MemoryLog:
    """What all connections share: the database itself."""

    def __init__(self, lanes: int = 1, *, clock: Clock | None = None, random: Random | None = None) -> None:
        self.clock = clock or SystemClock()
        self.random = random or Random(0)
        self.lock = threading.RLock()
        self.lanes = [LogLane() for _ in range(lanes)]
        self.routes: dict[str, Route] = {}
        self.processes: dict[UUID, Process] = {}
        self.holds: dict[int, Hold] = {}
        self.kept: dict[int, RowTuple] = {}
        self.due: list[tuple[float, int, dict[str, Any]]] = []
        self.token = 1
        self.version = 0
        self._last_id = 0
        self._last_seq = 0

    def begin(self) -> MemoryTransaction:
        return MemoryTransaction(self)

    def add(self, *fields: Any, **more: Any) -> int:
        """A transaction of one message."""
        transaction = self.begin()
        id = transaction.add(*fields, **more)
        transaction.commit()
        return id

    def schedule(self, delay: float, **fields: Any) -> None:
        """Add this when `delay` seconds are over, by `move_due`."""
        with self.lock:
            self._last_seq += 1
            self.due.append((self.clock.mono() + delay, self._last_seq, fields))

    def store_route(self, name: str, definition: dict[str, Any], start: str = "beginning") -> None:
        with self.lock:
            if name in self.routes:
                raise Refused(f"A route {name!r} is stored already.")
            lanes = len(self.lanes)
            cursors = [lane.base if start == "beginning" else lane.end for lane in self.lanes]
            state = RouteState(name, definition, "running", 0)
            self.routes[name] = Route(state, cursors, [None] * lanes, [0] * lanes)
            if start == "beginning":
                self._resolve_unrouted(definition)

    def _resolve_unrouted(self, definition: dict[str, Any]) -> None:
        """What retention has taken from the log stays dead: this route will not read it."""
        match = compile_match(definition)
        wanted = {row[0] for lane in self.lanes for row in lane.rows if match is None or match(row)}
        for seq, hold in list(self.holds.items()):
            if (hold.route, hold.held.state) == (UNROUTED, "dead") and hold.held.ids[0] in wanted:
                self.put(seq, UNROUTED, hold.held._replace(state="resolved"))

    def change_route(self, name: str, **fields: Any) -> None:
        """`definition`, `state` or `nudge`, as an operator changes them."""
        with self.lock:
            self.routes[name].state = self.routes[name].state._replace(**fields)

    def change_hold(self, seq: int, **fields: Any) -> None:
        """As an operator does it: a new edition, and a nudge to the route's relays."""
        with self.lock:
            self.put(seq, self.holds[seq].route, self.holds[seq].held._replace(**fields))
            route = self.routes.get(self.holds[seq].route)
            if route:
                route.state = route.state._replace(nudge=route.state.nudge + 1)

    def crash(self) -> None:
        """The server starts again: whoever names a term learns of it."""
        with self.lock:
            self.token += 1

    # ------------------------------------------------------------ one step each, under the lock

    def draw(self) -> int:
        with self.lock:
            self._last_id += 1
            return self._last_id

    def lane_of(self, text: str) -> int:
        return zlib.crc32(text.encode()) % len(self.lanes)

    def append(self, rows: Iterable[RowTuple]) -> None:
        with self.lock:
            for row in rows:
                self.lanes[row[1]].rows.append(row)
                self.lanes[row[1]].born.append(self.clock.mono())
            self.version += 1

    def put(self, seq: int, route: str, held: Held) -> int:
        """Write a hold row; a new one for `seq` 0."""
        if not seq:
            self._last_seq += 1
            seq = self._last_seq
        now = self.clock.mono()
        written = held._replace(seq=seq, edition=held.edition + 1, ids=list(held.ids))
        self.holds[seq] = Hold(route, written, now + held.due_in, now)
        return seq

    def definitions(self) -> dict[str, dict[str, Any]]:
        return {name: route.state.definition for name, route in self.routes.items()}

    def needed(self) -> set[int]:
        """Ids that a hold row still points to."""
        return {id for hold in self.holds.values() if hold.held.state not in OVER for id in hold.held.ids}
