"""What upkeep is: what all have passed goes in its time, and nothing that anybody still needs."""

from __future__ import annotations

from pillarbox.ports import Held
from pillarbox.testing.contracts.chores import judge
from pillarbox.testing.contracts.storage import ROUTE, Process, StorageHarness, commit, labels, owner

RETENTION = 3600.0


def everything_passed(process: Process) -> None:
    """Roll what can be rolled, and let every cursor pass it."""
    process.store.upkeep.attach_ahead()
    process.store.upkeep.roll(0.0, None)
    process.drain()
    process.settle()
    judge(process.store)


def prune(process: Process) -> list[str]:
    """As often as a store needs to see that it may."""
    return [name for _ in range(3) for name in process.store.upkeep.prune(RETENTION)]


def settle_with_hold(process: Process, *rows: Held) -> None:
    lane = rows[0].lane
    process.store.source.settle(ROUTE, [process.change(lane, added=rows)])


class UpkeepContract:
    """Give it a `harness` fixture."""

    def test_what_is_old_and_passed_goes(self, harness: StorageHarness) -> None:
        """After its retention a message everybody has passed is gone, and its going has a name."""
        process = owner(harness)
        commit(harness, "a", "b")
        rows = process.drain()
        harness.advance(RETENTION + 60)
        everything_passed(process)
        harness.advance(RETENTION + 60)
        assert prune(process)
        assert process.store.source.fetch([row[0] for row in rows]) == []
        assert prune(process) == []

    def test_what_is_young_stays(self, harness: StorageHarness) -> None:
        """Within its retention nothing goes."""
        process = owner(harness)
        commit(harness, "a")
        rows = process.drain()
        everything_passed(process)
        assert prune(process) == []
        assert process.store.source.fetch([rows[0][0]]) == rows

    def test_the_unread_never_goes(self, harness: StorageHarness) -> None:
        """However old: what a cursor has not passed stays, and is read afterwards."""
        process = owner(harness)
        commit(harness, *(f"{n}" for n in range(20)))
        process.store.upkeep.roll(0.0, None)
        judge(process.store)
        harness.advance(RETENTION * 10)
        process.store.upkeep.roll(0.0, None)
        assert prune(process) == []
        assert len(process.drain()) == 20

    def test_one_slow_route_holds_all(self, harness: StorageHarness) -> None:
        """A route that has passed nothing keeps everything, whatever the others have passed."""
        process = owner(harness)
        harness.store_route("slow", {})
        commit(harness, "a")
        everything_passed(process)
        harness.advance(RETENTION * 2)
        assert prune(process) == []
        slow = Process(harness, "slow")
        slow.take()
        assert labels(slow.drain()) == ["a"]

    def test_nothing_goes_while_no_route_is_stored(self, harness: StorageHarness) -> None:
        """Before the first route everything waits for it."""
        store = harness.connect()
        commit(harness, "a")
        store.upkeep.roll(0.0, None)
        harness.advance(RETENTION * 2)
        assert [store.upkeep.prune(RETENTION) for _ in range(3)] == [[], [], []]
        assert labels(owner(harness).drain()) == ["a"]

    def test_nothing_goes_unjudged(self, harness: StorageHarness) -> None:
        """What the chore `unrouted` has not judged stays."""
        process = owner(harness)
        commit(harness, "a")
        rows = process.drain()
        process.store.upkeep.roll(0.0, None)
        process.drain()
        process.settle()
        harness.advance(RETENTION * 2)
        assert prune(process) == []
        assert process.store.source.fetch([rows[0][0]]) == rows

    def test_what_a_hold_row_needs_is_kept(self, harness: StorageHarness) -> None:
        """Messages set aside, waiting or dead outlive the log, and are fetched as before."""
        process = owner(harness)
        commit(harness, "gone", "retry", "waiting", "dead", key="k")
        rows = process.drain()
        lane, needed = rows[0][1], rows[1:]
        states = ["retry", "waiting", "dead"]
        holds = [Held(lane, 0, 0, "k", [row[0]], 0, state) for row, state in zip(needed, states, strict=True)]
        settle_with_hold(process, *holds)
        harness.advance(RETENTION + 60)
        everything_passed(process)
        harness.advance(RETENTION + 60)
        assert prune(process)
        assert process.store.source.fetch([row[0] for row in rows]) == needed

    def test_what_nobody_needs_any_more_expires(self, harness: StorageHarness) -> None:
        """Skipped and resolved rows go after the retention, then what was kept for them; live and dead rows stay."""
        process = owner(harness)
        commit(harness, "s", "d", key="k")
        rows = process.drain()
        lane = rows[0][1]
        settle_with_hold(process, *(Held(lane, 0, 0, "k", [row[0]], 0, "dead") for row in rows))
        harness.advance(RETENTION + 60)
        everything_passed(process)
        harness.advance(RETENTION + 60)
        assert prune(process)
        first = harness.holds(ROUTE)[0]
        harness.change_hold(first.seq, "skipped")
        process.store.upkeep.expire(RETENTION, RETENTION)
        assert len(harness.holds(ROUTE)) == 2
        harness.advance(RETENTION + 60)
        assert process.store.upkeep.expire(RETENTION, RETENTION) > 0
        assert [row.ids for row in harness.holds(ROUTE)] == [[rows[1][0]]]
        process.store.upkeep.expire(RETENTION, RETENTION)
        assert process.store.source.fetch([row[0] for row in rows]) == rows[1:]

    def test_reading_goes_on_after_a_prune(self, harness: StorageHarness) -> None:
        """Cursors and ids go on where they were, also when nothing at all is left in the log."""
        process = owner(harness)
        commit(harness, "old", key="k")
        (old,) = process.drain()
        harness.advance(RETENTION + 60)
        everything_passed(process)
        harness.advance(RETENTION + 60)
        prune(process)
        commit(harness, "new", key="k")
        (new,) = process.drain()
        assert new[6] == b"new"
        assert new[0] > old[0]

    def test_upkeep_may_be_called_at_any_time(self, harness: StorageHarness) -> None:
        """On an empty installation every step is harmless, also twice."""
        upkeep = harness.connect().upkeep
        for _ in range(2):
            upkeep.attach_ahead()
            upkeep.roll(3600.0, 10**9)
            assert upkeep.prune(RETENTION) == []
            assert upkeep.expire(RETENTION, RETENTION) == 0
        upkeep.close()
