"""The log in memory passes the storage suites, with one lane and with many."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from pillarbox.errors import Refused
from pillarbox.ports import Held, InDoubt
from pillarbox.storage.memory import MemoryLog, MemoryStore, MemoryTransaction
from pillarbox.testing.contracts.chores import ChoresContract
from pillarbox.testing.contracts.leases import LeasesContract
from pillarbox.testing.contracts.settle import SettleContract
from pillarbox.testing.contracts.source import SourceContract
from pillarbox.testing.contracts.storage import Process, commit, labels, owner
from pillarbox.testing.contracts.upkeep import UpkeepContract


class CrankedClock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.time = 1000.0

    def mono(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


class MemoryPending:
    def __init__(self, transaction: MemoryTransaction) -> None:
        self._transaction = transaction
        self.commit = transaction.commit
        self.rollback = transaction.rollback

    def add(self, label: str, key: str | None = None, **fields: Any) -> None:
        if "headers" in fields:
            fields["headers"] = {"a": "é"}
        self._transaction.add(payload=label.encode(), key=key, **fields)


class MemoryHarness:
    many_writers = True

    def __init__(self, lanes: int) -> None:
        self.clock = CrankedClock()
        self.log = MemoryLog(lanes, clock=self.clock, random=Random(7))  # type: ignore[arg-type]

    def connect(self) -> MemoryStore:
        return MemoryStore(self.log)

    def begin(self) -> MemoryPending:
        return MemoryPending(self.log.begin())

    def schedule(self, label: str, delay: float, key: str | None = None) -> None:
        self.log.schedule(delay, payload=label.encode(), key=key)

    def store_route(self, name: str, definition: Mapping[str, Any], start: str = "beginning") -> None:
        self.log.store_route(name, dict(definition), start)

    def change_hold(self, seq: int, state: str) -> None:
        self.log.change_hold(seq, state=state)

    def holds(self, route: str) -> list[Held]:
        return [hold.held for _, hold in sorted(self.log.holds.items()) if hold.route == route]

    def advance(self, seconds: float) -> None:
        self.clock.time += seconds


@pytest.fixture(params=[1, 16])
def harness(request: pytest.FixtureRequest) -> MemoryHarness:
    return MemoryHarness(request.param)


class TestMemorySource(SourceContract):
    pass


class TestMemorySettle(SettleContract):
    pass


class TestMemoryLeases(LeasesContract):
    pass


class TestMemoryChores(ChoresContract):
    pass


class TestMemoryUpkeep(UpkeepContract):
    pass


def test_a_crash_is_noticed_by_whoever_names_a_term(harness: MemoryHarness) -> None:
    """After a crash reads and settles are in doubt until the lanes are taken anew, all of them."""
    process = owner(harness)
    commit(harness, "a")
    harness.log.crash()
    with pytest.raises(InDoubt):
        process.read()
    with pytest.raises(InDoubt):
        process.settle()
    again = process.store.leases.retake(process.id, [])
    assert {taken.lane for taken in again} == process.lanes.keys()
    assert labels(process.drain()) == ["a"]


def test_a_run_is_repeatable(seed: int) -> None:
    """The same seed takes the same lanes in the same order."""

    def lanes() -> list[int]:
        harness = MemoryHarness(64)
        harness.log.random = Random(seed)
        harness.log.store_route("all", {})
        return [taken.lane for taken in Process(harness).take(10)]

    assert lanes() == lanes()


def test_a_route_is_stored_once(harness: MemoryHarness) -> None:
    """A second route of the same name is refused, and a stored one is changed by name."""
    harness.store_route("all", {})
    with pytest.raises(Refused):
        harness.store_route("all", {})
    harness.log.change_route("all", state="paused")
    assert harness.connect().leases.survey().routes[0].state == "paused"
