"""What the storage suites need of a backend, and a few steps they share.

Subclass the contracts of `source`, `settle`, `leases`, `chores` and `upkeep` in a test module, give each a `harness`
fixture that yields a `StorageHarness` on an empty installation, and the backend is right if they pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

import pytest

from pillarbox.ports import Changes, Chores, Held, Leases, Page, Position, RowTuple, Source, Taken, Upkeep

T = TypeVar("T")
ROUTE = "all"
LEASE = 60.0
ENDLESS = 100_000
ENOUGH = 50  # calls after which a chore must have come to its end


class Store(Protocol):
    """One process's connection to the installation."""

    @property
    def source(self) -> Source: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def chores(self) -> Chores: ...
    @property
    def upkeep(self) -> Upkeep: ...


class Pending(Protocol):
    """An open transaction of a producer."""

    def add(self, label: str, key: str | None = None, **fields: Any) -> None:
        """Record a message whose payload is this label; `fields` are columns: aggregate, type, topic, headers …"""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class StorageHarness(Protocol):
    """One empty installation of its own."""

    many_writers: bool  # may two transactions be open that have both added?

    def connect(self) -> Store:
        """Another process."""

    def begin(self) -> Pending:
        """Another producer's transaction."""

    def schedule(self, label: str, delay: float, key: str | None = None) -> None:
        """Commit a message that is to be added after `delay` seconds."""

    def store_route(self, name: str, definition: Mapping[str, Any], start: str = "beginning") -> None:
        """Commit a route."""

    def change_hold(self, seq: int, state: str) -> None:
        """What an operator does: another state, a higher edition."""

    def holds(self, route: str) -> list[Held]:
        """Every hold row of this route in any state, in `seq` order."""

    def advance(self, seconds: float) -> None:
        """Let this much time pass for the database."""


class Process:
    """A relay reduced to its statements: it owns the lanes it could take, and knows where each stands."""

    def __init__(self, harness: StorageHarness, route: str = ROUTE, *, serves: tuple[str, ...] = ()) -> None:
        self.id: UUID = uuid4()
        self.route = route
        self.serves = serves or (route,)
        self.store = harness.connect()
        self.store.leases.join(self.id, self.serves, LEASE)
        self.lanes: dict[int, Taken] = {}
        self.positions: dict[int, Position] = {}

    def take(self, wanted: int = 256) -> list[Taken]:
        taken = self.store.leases.take(self.id, self.route, wanted)
        self.lanes |= {each.lane: each for each in taken}
        self.positions |= {each.lane: each.position for each in taken}
        return taken

    def read(self, limit: int = 100) -> list[Page]:
        """A page of every lane; the positions move behind them."""
        pages = self.store.source.read(self.route, self.positions, limit)
        self.positions |= {page.lane: page.after for page in pages}
        return pages

    def drain(self, limit: int = 100) -> list[RowTuple]:
        """Everything there is now, lane by lane in read order."""
        rows: list[RowTuple] = []
        quiet = 0
        while quiet < 2:  # one empty read may only have moved a position
            found = [row for page in self.read(limit) for row in page.rows]
            quiet = 0 if found else quiet + 1
            rows += found
            assert len(rows) < ENDLESS, "a source that never comes to its end"
        return rows

    def change(self, lane: int, **parts: Any) -> Changes:
        return Changes(lane, self.lanes[lane].term, self.positions[lane], **parts)

    def settle(self) -> None:
        """All lanes, where they stand."""
        settled = self.store.source.settle(self.route, [self.change(lane) for lane in self.lanes])
        assert settled.keys() == self.lanes.keys(), "a lane was deposed"

    def give_back(self) -> None:
        terms = [(lane, taken.term) for lane, taken in self.lanes.items()]
        self.store.leases.give_back(self.id, self.route, terms)


def commit(harness: StorageHarness, *labels: str, key: str | None = None, **fields: Any) -> None:
    """One transaction with these messages."""
    pending = harness.begin()
    for label in labels:
        pending.add(label, key, **fields)
    pending.commit()


def labels(rows: list[RowTuple]) -> list[str]:
    return [row[6].decode() for row in rows]


def owner(harness: StorageHarness, route: str = ROUTE) -> Process:
    """A process that owns every lane of a route from the beginning that wants everything."""
    harness.store_route(route, {})
    process = Process(harness, route)
    process.take()
    return process


def until_done(call: Callable[[], int]) -> int:
    """Call a chore until it finds nothing to do any more; what it did in all."""
    return sum(call() for _ in range(ENOUGH))


def need_many_writers(harness: StorageHarness) -> None:
    if not harness.many_writers:
        pytest.skip("this store has one writer at a time: nothing commits late")


def at_once(*calls: Callable[[], T]) -> list[T]:
    """All of them in threads; their answers in order."""
    answers: dict[int, T] = {}
    threads = [Thread(target=lambda n=n, call=call: answers.update({n: call()})) for n, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[n] for n in range(len(calls))]
