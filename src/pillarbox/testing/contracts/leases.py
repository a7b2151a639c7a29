"""What leases and lanes are: one lease a process, one owner a lane, a term that only rises."""

from __future__ import annotations

from uuid import uuid4

import pytest

from pillarbox.ports import Held
from pillarbox.testing.contracts.storage import (
    LEASE,
    ROUTE,
    Process,
    StorageHarness,
    at_once,
    commit,
    labels,
    owner,
)


class LeasesContract:
    """Give it a `harness` fixture."""

    def test_a_take_raises_the_term(self, harness: StorageHarness) -> None:
        """A free lane is owned under a higher term than ever before, with the cursor that was settled."""
        first = owner(harness)
        commit(harness, "a", key="k")
        first.drain()
        first.settle()
        before = {lane: taken.term for lane, taken in first.lanes.items()}
        first.give_back()
        second = Process(harness)
        taken = second.take()
        assert {each.lane for each in taken} == before.keys()
        assert all(each.term > before[each.lane] for each in taken)
        assert second.drain() == []

    def test_a_take_is_at_most_what_is_wanted(self, harness: StorageHarness) -> None:
        """Asked for one lane, one is taken; asked for none, none."""
        harness.store_route(ROUTE, {})
        process = Process(harness)
        assert process.take(0) == []
        assert len(process.take(1)) == 1

    def test_nothing_is_taken_of_a_route_nobody_stored(self, harness: StorageHarness) -> None:
        """A missing route has no lanes."""
        assert Process(harness, "nobody").take() == []

    def test_a_live_lane_is_never_taken(self, harness: StorageHarness) -> None:
        """Nobody takes a lane whose owner lives, not even when its lease is over but it was not expelled."""
        owner(harness)
        thief = Process(harness)
        assert thief.take() == []
        harness.advance(LEASE + 1)
        assert thief.take() == []

    def test_an_expelled_process_loses_its_lanes(self, harness: StorageHarness) -> None:
        """Once a lease is over: expel, then take; the old owner's settle moves nothing."""
        old = owner(harness)
        commit(harness, "a")
        old.drain()
        harness.advance(LEASE + 1)
        new = Process(harness)
        assert new.store.leases.expel() == 1
        assert {each.lane for each in new.take()} == old.lanes.keys()
        assert old.store.source.settle(ROUTE, [old.change(lane) for lane in old.lanes]) == {}
        assert labels(new.drain()) == ["a"]

    def test_nobody_with_a_lease_is_expelled(self, harness: StorageHarness) -> None:
        """A lease that runs is left alone, and so is one that was renewed."""
        process = owner(harness)
        harness.advance(LEASE / 2)
        assert process.store.leases.expel() == 0
        assert process.store.leases.renew(process.id, process.serves, LEASE, ["the sink is away: \x00 'why'"])
        harness.advance(LEASE * 0.75)
        assert process.store.leases.expel() == 0

    def test_only_the_dead_are_expelled(self, harness: StorageHarness) -> None:
        """Beside a process whose lease is over the others keep their rows; renewing prolongs one's own lease only."""
        dead, alive = owner(harness), Process(harness)
        harness.advance(LEASE * 0.75)
        assert alive.store.leases.renew(alive.id, alive.serves, LEASE)
        harness.advance(LEASE * 0.5)
        assert alive.store.leases.expel() == 1
        assert [relay.id for relay in alive.store.leases.survey().relays] == [alive.id]
        assert {each.lane for each in alive.take()} == dead.lanes.keys()

    def test_a_lease_from_the_future_is_over(self, harness: StorageHarness) -> None:
        """A lease longer than any there is was granted before the clock went back: it is over."""
        process = owner(harness)
        assert process.store.leases.renew(process.id, process.serves, 3600.0)
        assert process.store.leases.expel() == 1

    def test_an_expelled_process_learns_of_it(self, harness: StorageHarness) -> None:
        """After being expelled a renewal says False, for ever."""
        process = owner(harness)
        harness.advance(LEASE + 1)
        harness.connect().leases.expel()
        assert not process.store.leases.renew(process.id, process.serves, LEASE)
        assert not process.store.leases.renew(process.id, process.serves, LEASE)

    def test_lanes_are_taken_anew(self, harness: StorageHarness) -> None:
        """A retake raises the term of the lanes asked for, and settles of the old term change nothing."""
        process = owner(harness)
        lane = min(process.lanes)
        (again,) = process.store.leases.retake(process.id, [(ROUTE, lane)])
        assert again.term > process.lanes[lane].term
        assert again.position == process.lanes[lane].position
        answer = process.store.source.settle(ROUTE, [process.change(each) for each in process.lanes])
        assert answer.keys() == process.lanes.keys() - {lane}

    def test_a_lost_lane_does_not_come_back(self, harness: StorageHarness) -> None:
        """A retake leaves alone what another process owns."""
        old = owner(harness)
        harness.advance(LEASE + 1)
        new = Process(harness)
        new.store.leases.expel()
        new.take()
        assert old.store.leases.retake(old.id, [(ROUTE, lane) for lane in old.lanes]) == []
        new.drain()
        new.settle()

    def test_a_lane_given_back_is_free(self, harness: StorageHarness) -> None:
        """Given back under its own term a lane can be taken at once; under another nothing happens."""
        first = owner(harness)
        second = Process(harness)
        wrong = [(lane, taken.term - 1) for lane, taken in first.lanes.items()]
        first.store.leases.give_back(first.id, ROUTE, wrong)
        second.store.leases.give_back(second.id, ROUTE, [(lane, t.term) for lane, t in first.lanes.items()])
        assert second.take() == []
        first.give_back()
        assert {each.lane for each in second.take()} == first.lanes.keys()

    def test_each_lane_goes_to_one_taker(self, harness: StorageHarness) -> None:
        """Processes that take at the same time never own a lane twice."""
        harness.store_route(ROUTE, {})
        processes = [Process(harness) for _ in range(4)]
        taken = [each for lot in at_once(*(process.take for process in processes)) for each in lot]
        assert len({each.lane for each in taken}) == len(taken) > 0

    def test_a_survey_shows_who_does_what(self, harness: StorageHarness) -> None:
        """Live processes with what they serve, lanes with owner and term, stored routes."""
        harness.store_route("other", {"match": {"type": ["x*"]}, "sink": "s"})
        process = owner(harness)
        survey = process.store.leases.survey()
        (relay,) = survey.relays
        assert (relay.id, relay.serves) == (process.id, (ROUTE,))
        mine = {(lane.lane, lane.term) for lane in survey.lanes if lane.owner == process.id}
        assert mine == {(each.lane, each.term) for each in process.lanes.values()}
        assert all(lane.owner is None for lane in survey.lanes if lane.route == "other")
        assert {route.name: route.definition for route in survey.routes} == {
            ROUTE: {},
            "other": {"match": {"type": ["x*"]}, "sink": "s"},
        }
        assert {route.state for route in survey.routes} == {"running"}

    def test_a_changed_list_of_routes_begins_anew(self, harness: StorageHarness) -> None:
        """`settled_for` grows while a process serves the same routes, and starts again when they change."""
        process = owner(harness)
        harness.advance(20.0)
        leases = process.store.leases
        assert leases.renew(process.id, (ROUTE,), LEASE)
        assert leases.survey().relays[0].settled_for == pytest.approx(20.0, abs=5)
        assert leases.renew(process.id, (ROUTE, "more"), LEASE)
        assert leases.survey().relays[0].settled_for < 5.0
        assert set(leases.survey().relays[0].serves) == {ROUTE, "more"}

    def test_hold_rows_are_loaded_in_order(self, harness: StorageHarness) -> None:
        """`load` gives the live rows of these lanes of this route by seq, and none that is over."""
        process = owner(harness)
        lane = min(process.lanes)
        states = ["retry", "waiting", "dead", "blocked", "skipped", "resolved", "waiting"]
        rows = [Held(lane, 0, 0, "k", [n + 1], 0, state) for n, state in enumerate(states)]
        process.store.source.settle(ROUTE, [process.change(lane, added=rows)])
        loaded = process.store.leases.load(ROUTE, [lane])
        assert [(row.state, row.ids) for row in loaded] == [
            ("retry", [1]), ("waiting", [2]), ("blocked", [4]), ("waiting", [7]),
        ]  # fmt: skip
        assert [row.seq for row in loaded] == sorted(row.seq for row in loaded)
        assert process.store.leases.load(ROUTE, []) == []
        assert process.store.leases.load(ROUTE, [lane + 1]) == []
        assert process.store.leases.load("other", [lane]) == []

    def test_a_retry_comes_nearer(self, harness: StorageHarness) -> None:
        """`due_in` counts by the database's clock, from where it was written, down to nothing."""
        process = owner(harness)
        lane = min(process.lanes)
        row = Held(lane, 0, 0, "k", [1], 0, "retry", due_in=100.0)
        process.store.source.settle(ROUTE, [process.change(lane, added=[row])])
        harness.advance(60.0)
        assert process.store.leases.load(ROUTE, [lane])[0].due_in == pytest.approx(40.0, abs=5)
        harness.advance(60.0)
        assert process.store.leases.load(ROUTE, [lane])[0].due_in == 0.0

    def test_a_process_begins_once(self, harness: StorageHarness) -> None:
        """Two processes that joined are two, however alike."""
        store = harness.connect()
        for _ in range(2):
            store.leases.join(uuid4(), [ROUTE], LEASE)
        assert len(store.leases.survey().relays) == 2
