"""What the chores are: scheduled messages join the log in order, and what no route wants becomes visible."""

from __future__ import annotations

from pillarbox.testing.contracts.storage import (
    ROUTE,
    Process,
    StorageHarness,
    Store,
    at_once,
    commit,
    labels,
    need_many_writers,
    owner,
    until_done,
)

UNROUTED = "unrouted"


def judge(store: Store, *, bury: bool = True) -> int:
    """Until nothing is left to judge."""
    return until_done(lambda: store.chores.judge_unrouted(store.leases.survey().routes, bury))


def unrouted(harness: StorageHarness, process: Process) -> list[str]:
    ids = [id for row in harness.holds(UNROUTED) for id in row.ids]
    return sorted(labels(process.store.source.fetch(ids)))


class ChoresContract:
    """Give it a `harness` fixture."""

    def test_nothing_is_moved_before_it_is_due(self, harness: StorageHarness) -> None:
        """A delayed message joins the log when its time has come, not before, and once."""
        process = owner(harness)
        harness.schedule("a", 60.0, key="k")
        assert process.store.chores.move_due(10) == 0
        assert process.drain() == []
        harness.advance(61.0)
        assert process.store.chores.move_due(10) == 1
        assert process.store.chores.move_due(10) == 0
        (row,) = process.drain()
        assert (row[2], row[6]) == ("k", b"a")

    def test_messages_are_moved_in_the_order_they_are_due(self, harness: StorageHarness) -> None:
        """By time, then as they were scheduled; never more than asked for, and nothing that is not due."""
        process = owner(harness)
        for label, delay in (("e", 600.0), ("c", 30.0), ("a", 10.0), ("d", 30.0), ("b", 20.0)):
            harness.schedule(label, delay, key="k")
        harness.advance(60.0)
        assert process.store.chores.move_due(3) == 3
        assert labels(process.drain()) == ["a", "b", "c"]
        assert process.store.chores.move_due(3) == 1
        assert labels(process.drain()) == ["d"]
        assert process.store.chores.move_due(3) == 0

    def test_two_movers_keep_the_order(self, harness: StorageHarness) -> None:
        """Relays that move at the same time move each message once, and a key's in order."""
        process = owner(harness)
        for n in range(20):
            harness.schedule(f"{n}", n / 10, key="k")
        harness.advance(10.0)
        stores = [harness.connect() for _ in range(2)]
        for _ in range(10):
            at_once(*(lambda store=store: store.chores.move_due(3) for store in stores))
        assert labels(process.drain()) == [f"{n}" for n in range(20)]

    def test_what_no_route_wants_is_buried(self, harness: StorageHarness) -> None:
        """A message that matches no stored route gets one dead row; the others none."""
        process = owner_of_orders(harness)
        commit(harness, "wanted")
        commit(harness, "lost", key="k", aggregate="ghost")
        assert judge(process.store) == 1
        assert judge(process.store) == 0
        (row,) = harness.holds(UNROUTED)
        assert (row.state, row.key, row.generation) == ("dead", "k", 0)
        assert "unrouted" in row.error
        assert unrouted(harness, process) == ["lost"]

    def test_a_route_that_wants_everything_leaves_nothing_unrouted(self, harness: StorageHarness) -> None:
        """While such a route is stored only the mark moves: its messages are not judged later either."""
        process = owner_of_orders(harness)
        harness.store_route("everything", {})
        commit(harness, "ghost", aggregate="ghost")
        assert judge(process.store) == 0
        assert harness.holds(UNROUTED) == []

    def test_nothing_is_buried_when_told_so(self, harness: StorageHarness) -> None:
        """With `bury` off only the mark moves."""
        process = owner_of_orders(harness)
        commit(harness, "old", aggregate="ghost")
        assert judge(process.store, bury=False) == 0
        commit(harness, "new", aggregate="ghost")
        assert judge(process.store) == 1
        assert unrouted(harness, process) == ["new"]

    def test_nothing_is_judged_while_no_route_is_stored(self, harness: StorageHarness) -> None:
        """An installation without routes buries nothing: they are still to come."""
        store = harness.connect()
        commit(harness, "early", aggregate="ghost")
        assert judge(store) == 0
        process = owner_of_orders(harness)
        assert judge(process.store) == 1

    def test_a_new_route_takes_over_what_it_wants(self, harness: StorageHarness) -> None:
        """A route from the beginning resolves the unrouted messages it matches and reads them; the others stay dead."""
        process = owner_of_orders(harness)
        commit(harness, "wanted", aggregate="ghost")
        commit(harness, "not", aggregate="other")
        assert judge(process.store) == 2
        ghosts = {"match": {"aggregate": ["ghost"]}}
        harness.store_route("late", ghosts, "now")
        assert {row.state for row in harness.holds(UNROUTED)} == {"dead"}
        harness.store_route("ghosts", ghosts)
        states = {row.ids[0]: row.state for row in harness.holds(UNROUTED)}
        reader = Process(harness, "ghosts")
        reader.take()
        ids = {row[6]: row[0] for row in reader.drain()}
        assert states == {ids[b"wanted"]: "resolved", ids[b"not"]: "dead"}

    def test_a_message_is_judged_after_its_commit(self, harness: StorageHarness) -> None:
        """One that commits late is judged all the same."""
        need_many_writers(harness)
        process = owner_of_orders(harness)
        late = harness.begin()
        late.add("late", aggregate="ghost")
        commit(harness, "quick", aggregate="ghost")
        early_count = judge(process.store)
        late.commit()
        assert early_count + judge(process.store) == 2
        assert unrouted(harness, process) == ["late", "quick"]

    def test_judges_do_not_judge_twice(self, harness: StorageHarness) -> None:
        """Relays that judge at the same time write one row a message."""
        process = owner_of_orders(harness)
        commit(harness, *(f"{n}" for n in range(30)), aggregate="ghost")
        stores = [harness.connect() for _ in range(2)]
        at_once(*(lambda store=store: judge(store) for store in stores))
        judge(process.store)
        assert len(harness.holds(UNROUTED)) == 30

    def test_routes_that_changed_since_are_looked_at_again(self, harness: StorageHarness) -> None:
        """Judging with routes that are no longer what is stored buries nothing that a new route wants."""
        process = owner_of_orders(harness)
        before = process.store.leases.survey().routes
        harness.store_route("everything", {})
        commit(harness, "ghost", aggregate="ghost")
        assert until_done(lambda: process.store.chores.judge_unrouted(before, bury=True)) == 0
        assert harness.holds(UNROUTED) == []


def owner_of_orders(harness: StorageHarness) -> Process:
    harness.store_route(ROUTE, {"match": {"aggregate": ["order"]}})
    process = Process(harness)
    process.take()
    return process
