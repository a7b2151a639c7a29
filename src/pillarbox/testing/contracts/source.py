"""What a source's reading is: every committed row once along a chain of positions, each key in its order."""

from __future__ import annotations

import json
import random
from collections import Counter

from pillarbox.ports import Position, RowTuple
from pillarbox.testing.contracts.storage import (
    ENDLESS,
    ROUTE,
    Pending,
    Process,
    StorageHarness,
    commit,
    labels,
    need_many_writers,
    owner,
)


class SourceContract:
    """Give it a `harness` fixture."""

    def test_rows_carry_what_was_added(self, harness: StorageHarness) -> None:
        """A row has the message's own bytes and names, and what is rarely there as JSON."""
        commit(harness, "plain")
        commit(harness, "ü", key="k1", aggregate="cart", type="emptied", topic="t", version=2, headers='{"a":"é"}')
        plain, full = sorted(owner(harness).drain())
        assert plain[2] is None
        assert plain[7] is None
        assert (full[2], full[4], full[5], full[6]) == ("k1", "cart", "emptied", "ü".encode())
        said = {name: value for name, value in json.loads(full[7]).items() if value is not None}
        assert said == {"topic": "t", "version": 2, "headers": {"a": "é"}}
        assert [type(row[3]) for row in (plain, full)] == [bytes, bytes]
        assert {len(row[3]) for row in (plain, full)} == {16}
        assert plain[3] != full[3]

    def test_rolled_back_rows_are_never_read(self, harness: StorageHarness) -> None:
        """What was rolled back is not read, and what comes after it is."""
        process = owner(harness)
        commit(harness, "a")
        pending = harness.begin()
        pending.add("ghost")
        pending.rollback()
        commit(harness, "b")
        assert sorted(labels(process.drain())) == ["a", "b"]

    def test_uncommitted_rows_are_read_after_their_commit(self, harness: StorageHarness) -> None:
        """A row is invisible before its commit and read once after it."""
        process = owner(harness)
        pending = harness.begin()
        pending.add("late")
        assert process.drain() == []
        pending.commit()
        assert labels(process.drain()) == ["late"]
        assert process.drain() == []

    def test_rows_that_commit_late_are_read_once(self, harness: StorageHarness) -> None:
        """A row added before and committed after others that were read already is neither lost nor doubled."""
        need_many_writers(harness)
        process = owner(harness)
        early, other = harness.begin(), harness.begin()
        early.add("early", "k")
        other.add("other", "k")
        commit(harness, "quick", key="k")
        assert labels(process.drain()) == ["quick"]
        early.commit()
        assert labels(process.drain()) == ["early"]
        commit(harness, "next", key="k")
        other.commit()
        assert sorted(labels(process.drain())) == ["next", "other"]
        assert process.drain() == []

    def test_a_key_is_read_in_commit_order(self, harness: StorageHarness) -> None:
        """What was added after a commit, or later in the same transaction, is read later."""
        process = owner(harness)
        commit(harness, "0", "1", key="k")
        commit(harness, "2", key="k")
        commit(harness, "other")
        commit(harness, "3", "4", key="k")
        assert [row[6].decode() for row in process.drain(limit=2) if row[2] == "k"] == list("01234")

    def test_a_key_has_one_lane(self, harness: StorageHarness) -> None:
        """Messages of one key share a lane, and a page's rows are of the page's lane."""
        process = owner(harness)
        for n in range(40):
            commit(harness, f"{n}", f"{n}", key=f"key {n % 20}")
        pages = process.read()
        assert all(row[1] == page.lane for page in pages for row in page.rows)
        pairs = {(row[2], row[1]) for page in pages for row in page.rows}
        assert len(pairs) == 20

    def test_no_lane_gets_more_than_the_limit(self, harness: StorageHarness) -> None:
        """A read yields at most `limit` fresh rows a lane."""
        process = owner(harness)
        commit(harness, *(f"{n}" for n in range(10)), key="k")
        assert [labels(page.rows) for page in process.read(limit=3) if page.rows] == [["0", "1", "2"]]
        assert labels(process.drain(limit=4)) == [f"{n}" for n in range(3, 10)]

    def test_a_read_goes_on_from_any_cut(self, harness: StorageHarness) -> None:
        """Cut after any number of rows, a page's remaining rows are read again, and only they."""
        process = owner(harness)
        for n in range(12):
            commit(harness, f"{n}", key=f"k{n % 3}")
        began = dict(process.positions)
        for page in process.read(limit=5):
            everything = read_on(process, page.lane, began[page.lane])
            assert page.cut(len(page.rows)) == page.after
            for done in range(len(page.rows) + 1):
                assert read_on(process, page.lane, page.cut(done)) == everything[done:]

    def test_a_cut_inside_late_rows_goes_on(self, harness: StorageHarness) -> None:
        """A page may be cut between late rows, and between them and fresh ones: nothing is lost or doubled."""
        need_many_writers(harness)
        process = owner(harness)
        open_ones = [harness.begin() for _ in range(4)]
        for n, pending in enumerate(open_ones):
            pending.add(f"late {n}", "k")
            pending.add(f"late {n} too", "k")
        commit(harness, "first", key="k")
        process.drain()
        for pending in open_ones:
            pending.commit()
        commit(harness, "fresh", key="k")
        (page,) = [page for page in process.read() if page.rows]
        everything = read_on(process, page.lane, page.cut(0))
        assert len(everything) == 9
        for done in range(len(page.rows) + 1):
            assert read_on(process, page.lane, page.cut(done)) == everything[done:]

    def test_positions_outlive_their_process(self, harness: StorageHarness) -> None:
        """The next owner of a lane goes on where the cursor was settled, not where reading was."""
        first = owner(harness)
        commit(harness, "a", "b", key="k")
        (page,) = [page for page in first.read() if page.rows]
        first.positions[page.lane] = page.cut(1)
        first.settle()
        first.give_back()
        second = Process(harness)
        second.take()
        assert labels(second.drain()) == ["b"]

    def test_a_route_from_now_reads_what_comes(self, harness: StorageHarness) -> None:
        """A route that starts now reads nothing older."""
        commit(harness, "old")
        harness.store_route(ROUTE, {}, "now")
        process = Process(harness)
        process.take()
        commit(harness, "new")
        assert labels(process.drain()) == ["new"]

    def test_messages_are_fetched_by_id(self, harness: StorageHarness) -> None:
        """`fetch` answers in the order asked for and leaves out what is nowhere."""
        process = owner(harness)
        commit(harness, "a", "b", "c")
        rows = process.drain()
        wanted = [rows[2][0], rows[0][0]]
        assert process.store.source.fetch([wanted[0], max(wanted) + 10**6, wanted[1]]) == [rows[2], rows[0]]
        assert process.store.source.fetch([]) == []

    def test_waiting_ends(self, harness: StorageHarness) -> None:
        """`wait` returns, with and without a commit since the last read."""
        process = owner(harness)
        process.read()
        process.store.source.wait(0.01)
        process.read()
        commit(harness, "a")
        process.store.source.wait(0.01)
        assert labels(process.drain()) == ["a"]

    def test_any_history_is_read_exactly_once(self, harness: StorageHarness) -> None:
        """Whatever commits, rolls back and overlaps, with pages of any size and cuts anywhere: each row once."""
        chance = random.Random(harness.__class__.__name__)
        process = owner(harness)
        history = History(harness, chance)
        rows: list[RowTuple] = []
        for _ in range(60):
            history.step()
            for page in process.read(limit=chance.randint(1, 5)):
                done = chance.randint(0, len(page.rows))
                rows += page.rows[:done]
                process.positions[page.lane] = page.cut(done)
        history.end()
        rows += process.drain(limit=3)
        assert Counter(labels(rows)) == Counter(history.committed)


class History:
    """Producers that open, add, commit and roll back at random."""

    def __init__(self, harness: StorageHarness, chance: random.Random) -> None:
        self.committed: list[str] = []
        self._harness = harness
        self._chance = chance
        self._open: list[tuple[Pending, list[str]]] = []
        self._number = 0

    def step(self) -> None:
        if len(self._open) < (4 if self._harness.many_writers else 1):
            self._open.append((self._harness.begin(), []))
        pending, added = self._chance.choice(self._open)
        for _ in range(self._chance.randint(1, 3)):
            self._number += 1
            added.append(f"{self._number}")
            pending.add(added[-1], self._chance.choice(["k1", "k2", None]))
        if self._chance.random() < 0.6:
            self._finish(pending, added)

    def _finish(self, pending: Pending, added: list[str]) -> None:
        self._open.remove((pending, added))
        if self._chance.random() < 0.7:
            pending.commit()
            self.committed += added
        else:
            pending.rollback()

    def end(self) -> None:
        for pending, added in list(self._open):
            self._finish(pending, added)


def read_on(process: Process, lane: int, position: Position) -> list[RowTuple]:
    """Everything of one lane from here; the process stays where it is."""
    rows: list[RowTuple] = []
    quiet = 0
    while quiet < 2:
        quiet += 1
        for page in process.store.source.read(process.route, {lane: position}, 2):
            position = page.after
            rows += page.rows
            quiet = 0 if page.rows else quiet
            assert len(rows) < ENDLESS, "a source that never comes to its end"
    return rows
