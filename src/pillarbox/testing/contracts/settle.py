"""What a settle is: for each lane the cut and its hold rows together, or nothing."""

from __future__ import annotations

from typing import Any

from pillarbox.ports import Held
from pillarbox.testing.contracts.storage import ROUTE, Process, StorageHarness, commit, labels, owner


def held(lane: int, ids: list[int], state: str = "retry", **fields: Any) -> Held:
    return Held(lane, 0, 0, "k", ids, 0, state)._replace(**fields)


def with_one_lane_read(harness: StorageHarness) -> tuple[Process, int, list[int]]:
    """A process that has read three messages of one key: it, the lane and their ids."""
    process = owner(harness)
    commit(harness, "a", "b", "c", key="k")
    (page,) = [page for page in process.read() if page.rows]
    return process, page.lane, [row[0] for row in page.rows]


def add(process: Process, lane: int, *rows: Held) -> list[Held]:
    """Write these hold rows, and give them back as they are stored now."""
    settled = process.store.source.settle(process.route, [process.change(lane, added=rows)])
    return [row._replace(seq=seq, edition=1) for row, seq in zip(rows, settled[lane].seqs, strict=True)]


class SettleContract:
    """Give it a `harness` fixture."""

    def test_added_rows_are_stored_as_they_are(self, harness: StorageHarness) -> None:
        """Every field of an added hold row comes back, and its seqs are answered in the order of the rows."""
        process, lane, ids = with_one_lane_read(harness)
        head = held(lane, ids[:1], attempts=2, unknowns=1, due_in=30.0, error="no such topic: ü")
        rows = add(process, lane, head, held(lane, ids[1:], "waiting", key="kö"))
        assert rows[0].seq < rows[1].seq
        loaded = process.store.leases.load(ROUTE, [lane])
        assert 0 < loaded[0].due_in <= 30.0
        assert [row._replace(due_in=0.0, edition=1) for row in loaded] == [row._replace(due_in=0.0) for row in rows]

    def test_replays_and_messages_without_a_key_are_stored(self, harness: StorageHarness) -> None:
        """A generation above 0 and a missing key come back as they were."""
        process, lane, ids = with_one_lane_read(harness)
        add(process, lane, held(lane, ids[:1], generation=3, key=None))
        assert [(row.generation, row.key) for row in process.store.leases.load(ROUTE, [lane])] == [(3, None)]

    def test_done_rows_are_deleted(self, harness: StorageHarness) -> None:
        """A delivered row is gone."""
        process, lane, ids = with_one_lane_read(harness)
        first, second = add(process, lane, held(lane, ids[:1]), held(lane, ids[1:], "waiting"))
        answer = process.store.source.settle(ROUTE, [process.change(lane, done=[first])])
        assert not answer[lane].stale
        assert [row.seq for row in harness.holds(ROUTE)] == [second.seq]

    def test_skipped_survives_done(self, harness: StorageHarness) -> None:
        """What an operator skipped while it was on the wire stays skipped."""
        process, lane, ids = with_one_lane_read(harness)
        (row,) = add(process, lane, held(lane, ids[:1]))
        harness.change_hold(row.seq, "skipped")
        process.store.source.settle(ROUTE, [process.change(lane, done=[row])])
        assert [kept.state for kept in harness.holds(ROUTE)] == ["skipped"]

    def test_changed_rows_are_written(self, harness: StorageHarness) -> None:
        """A changed row is stored with its new fields under a higher edition."""
        process, lane, ids = with_one_lane_read(harness)
        add(process, lane, held(lane, ids))
        (seen,) = process.store.leases.load(ROUTE, [lane])
        wanted = seen._replace(ids=ids[1:], attempts=4, unknowns=2, state="blocked", error="e", due_in=0.0)
        answer = process.store.source.settle(ROUTE, [process.change(lane, changed=[wanted])])
        assert not answer[lane].stale
        (row,) = process.store.leases.load(ROUTE, [lane])
        assert row.edition > seen.edition
        assert row._replace(edition=seen.edition) == wanted

    def test_a_row_an_operator_changed_is_left_alone(self, harness: StorageHarness) -> None:
        """A change from an older edition does nothing, says `stale`, and the rest of the settle happens."""
        process, lane, ids = with_one_lane_read(harness)
        add(process, lane, held(lane, ids[:1]))
        (seen,) = process.store.leases.load(ROUTE, [lane])
        harness.change_hold(seen.seq, "dead")
        parts = {"changed": [seen._replace(attempts=9)], "added": [held(lane, ids[1:2])]}
        answer = process.store.source.settle(ROUTE, [process.change(lane, **parts)])
        assert answer[lane].stale
        assert [(row.state, row.attempts) for row in harness.holds(ROUTE)] == [("dead", 0), ("retry", 0)]

    def test_a_stale_term_changes_nothing(self, harness: StorageHarness) -> None:
        """A deposed process moves no cursor and touches no hold row, and its lane is missing from the answer."""
        old, lane, ids = with_one_lane_read(harness)
        first, second = add(old, lane, held(lane, ids[:1]), held(lane, ids[1:2], "waiting"))
        old.positions[lane] = old.lanes[lane].position
        old.settle()
        before = harness.holds(ROUTE)
        old.store.leases.retake(old.id, [(ROUTE, lane)])
        old.drain()
        parts = {"done": [first], "changed": [second._replace(attempts=5)], "added": [held(lane, ids[2:])]}
        assert old.store.source.settle(ROUTE, [old.change(lane, **parts)]) == {}
        assert harness.holds(ROUTE) == before
        (again,) = old.store.leases.retake(old.id, [(ROUTE, lane)])
        old.positions[lane] = again.position
        assert labels(old.drain()) == ["a", "b", "c"]

    def test_a_deposed_lane_drops_only_its_own(self, harness: StorageHarness) -> None:
        """Beside a lane whose term is stale the others of the same settle move."""
        process = owner(harness)
        commit(harness, *(f"{n}" for n in range(40)))
        process.drain()
        lost = min(process.lanes)
        process.store.leases.retake(process.id, [(ROUTE, lost)])
        changes = [process.change(lane, added=[held(lane, [1])]) for lane in process.lanes]
        answer = process.store.source.settle(ROUTE, changes)
        assert answer.keys() == process.lanes.keys() - {lost}
        assert {row.lane for row in harness.holds(ROUTE)} == answer.keys()

    def test_only_its_own_lane_is_touched(self, harness: StorageHarness) -> None:
        """A seq of another route's row changes nothing there."""
        process, lane, ids = with_one_lane_read(harness)
        (row,) = add(process, lane, held(lane, ids[:1]))
        other = owner(harness, "other")
        change = other.change(lane, done=[row], changed=[row._replace(attempts=7)])
        assert other.store.source.settle("other", [change])[lane].stale
        assert [(found.seq, found.attempts) for found in harness.holds(ROUTE)] == [(row.seq, 0)]

    def test_rows_written_ahead_are_loaded_in_any_state(self, harness: StorageHarness) -> None:
        """What was given up above the cursor is loaded until a settle says that the cursor has passed it."""
        process, lane, ids = with_one_lane_read(harness)
        add(process, lane, held(lane, ids[1:2], "dead", ahead=True), held(lane, ids[:1], "dead"))
        (seen,) = process.store.leases.load(ROUTE, [lane])
        assert (seen.ids, seen.ahead) == (ids[1:2], True)
        process.store.source.settle(ROUTE, [process.change(lane, changed=[seen._replace(ahead=False)])])
        assert process.store.leases.load(ROUTE, [lane]) == []
        assert [row.state for row in harness.holds(ROUTE)] == ["dead", "dead"]

    def test_a_long_run_is_one_row(self, harness: StorageHarness) -> None:
        """Ten thousand messages that wait behind one are one row, and come back in order."""
        process, lane, ids = with_one_lane_read(harness)
        run = list(range(ids[-1], ids[-1] + 10_000))
        add(process, lane, held(lane, run, "waiting"))
        assert [row.ids for row in process.store.leases.load(ROUTE, [lane])] == [run]

    def test_settling_nothing_is_harmless(self, harness: StorageHarness) -> None:
        """No changes, no answer; a route nobody stored, no answer."""
        process, lane, _ = with_one_lane_read(harness)
        assert process.store.source.settle(ROUTE, []) == {}
        assert process.store.source.settle("nobody", [process.change(lane)]) == {}
