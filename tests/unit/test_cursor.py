"""The arithmetic of snapshot cursors, against a small model of a database: every row read once, in order (DESIGN 2.2)."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.storage.postgres import cursor
from pillarbox.storage.postgres.cursor import FROM_HERE, Look, Page, Position

LANES = 3
FRESH, LATE = 2, 3  # so small that pages are full all the time


def visible(xid: int, snapshot: str) -> bool:
    """`pg_visible_in_snapshot`."""
    xmin, xmax, running = snapshot.split(":")
    return xid < int(xmin) or (xid < int(xmax) and str(xid) not in running.split(","))


class World:
    """Transactions that draw ids and commit when they like; a row is (id, lane) with the xid beside it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.next_xid, self.drawn = 5, 0
        self.open: dict[int, list[int]] = {}
        self.rows: dict[int, tuple[int, int]] = {}  # id -> (lane, xid), committed
        self.known_before: dict[int, set[int]] = {}  # id -> the ids committed when it was drawn

    def step(self) -> None:
        act = self.rng.random()
        if act < 0.25:
            self.open[self.next_xid] = []
            self.next_xid += 1
        elif self.open and act < 0.75:
            self.drawn += 1
            self.known_before[self.drawn] = set(self.rows)
            self.open[self.rng.choice(list(self.open))].append(self.drawn)
        elif self.open:
            self.end(self.rng.choice(list(self.open)))

    def end(self, xid: int) -> None:
        ids = self.open.pop(xid)
        if self.rng.random() < 0.85:
            self.rows |= {id: (self.rng.randrange(LANES), xid) for id in ids}

    def snapshot(self) -> str:
        running = sorted(self.open)
        return f"{min([*running, self.next_xid])}:{self.next_xid}:{','.join(map(str, running))}"

    def read(self, positions: dict[int, Position]) -> list[Page]:
        """What the read statement yields."""
        now = self.snapshot()
        rows = [*self._late(positions, now), *self._fresh(positions, now)]
        return cursor.pages(positions, rows, Look(now, self.drawn, FRESH, LATE))

    def _late(self, positions: dict[int, Position], now: str) -> Iterator[tuple[int, int]]:
        for group in cursor.groups(positions):
            found_in = group.due or now
            late = [
                (id, lane)
                for id, (lane, xid) in sorted(self.rows.items())
                if lane in group.lanes and group.at < id <= group.lanes[lane]
                if visible(xid, found_in) and not visible(xid, group.seen)
            ]
            yield from late[:LATE]

    def _fresh(self, positions: dict[int, Position], now: str) -> Iterator[tuple[int, int]]:
        for lane, position in positions.items():
            if position.due is None:
                fresh = [id for id, (of, xid) in sorted(self.rows.items()) if of == lane and visible(xid, now)]
                yield from [(id, lane) for id in fresh if id > position.last][:FRESH]


def is_read(id: int, xid: int, position: Position) -> bool:
    """What a position claims."""
    last, seen, due, at = position
    return (id <= last and visible(xid, seen)) or (due is not None and id <= min(at, last) and visible(xid, due))


class Reader:
    """Settles random cuts of random lanes' pages, and notes what it was given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.positions = {lane: Position() for lane in range(LANES)}
        self.read: list[int] = []

    def step(self, *, whole: bool = False) -> None:
        lanes = [lane for lane in self.positions if whole or self.world.rng.random() < 0.7]
        for page in self.world.read({lane: self.positions[lane] for lane in lanes}):
            assert page.cut(0) == self.positions[page.lane] == page.before or not page.rows
            assert page.cut(len(page.rows)) == page.after
            done = len(page.rows) if whole else self.world.rng.randint(0, len(page.rows))
            self.read += [row[0] for row in page.rows[:done]]
            self.positions[page.lane] = page.cut(done)

    def claims(self) -> set[int]:
        return {id for id, (lane, xid) in self.world.rows.items() if is_read(id, xid, self.positions[lane])}


@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_every_row_is_read_once_in_order_whatever_commits_late(rng: random.Random) -> None:
    """Random histories, limits that are always too small, every kind of cut: nothing lost, doubled or overtaken."""
    check_history(rng)


def seen_moves(page: Page) -> Position:
    """Rule 3 broken: a page full of late rows is taken for all of them."""
    return Position(page.before.last, page.after.due) if page.after.due else page.after


def fresh_page_forgets_its_limit(page: Page) -> Position:
    """A full page taken for the last one."""
    return page.after._replace(last=max(page.after.last, 10**6)) if page.rows and not page.after.due else page.after


def at_is_forgotten(page: Page) -> Position:
    return page.after._replace(at=0)


def only_the_last_id(page: Page) -> Position:
    """The cursor of others: everything above the last id."""
    return page.after._replace(seen=f"{10**9}:{10**9}:")


@pytest.mark.parametrize("mutant", [seen_moves, fresh_page_forgets_its_limit, at_is_forgotten, only_the_last_id])
def test_each_rule_is_needed(mutant: Callable[[Page], Position], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rule broken some history loses, doubles or overtakes: the check above can fail."""
    right = cursor.pages

    def broken(*asked: Any) -> list[Page]:
        pages = right(*asked)
        for page in pages:
            page.after = mutant(page)
        return pages

    monkeypatch.setattr(cursor, "pages", broken)
    with pytest.raises(AssertionError):
        for n in range(300):
            check_history(random.Random(n))


@pytest.mark.parametrize("cut", ["whole", "seen_moves"])
def test_a_cut_inside_late_rows_keeps_seen(cut: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settle that ends among late rows must save where it ended, in the snapshot that found them (rule 3)."""

    def broken(page: Page, done: int) -> Position:
        if done in (0, len(page.rows)):
            return page.after if done else page.before
        reached = page.rows[done - 1][0]
        if cut == "whole" or reached > page.before.last:
            return Position(max(reached, page.before.last), page._found_in)
        return Position(page.before.last, page._found_in, page._found_in, reached)

    monkeypatch.setattr(Page, "cut", broken)
    with pytest.raises(AssertionError):
        for n in range(300):
            check_history(random.Random(n))


def check_history(rng: random.Random) -> None:
    world = World(rng)
    reader = Reader(world)
    for _ in range(rng.randint(10, 60)):
        world.step()
        if rng.random() < 0.4:
            reader.step()
            assert reader.claims() == set(reader.read)
    for xid in list(world.open):
        world.end(xid)
    for _ in range(len(world.rows) + 4):
        reader.step(whole=True)
    assert [id for id, times in Counter(reader.read).items() if times > 1] == []
    assert set(reader.read) == set(world.rows)
    place = {id: n for n, id in enumerate(reader.read)}
    for id, (lane, _) in world.rows.items():
        earlier = [one for one in world.known_before[id] if world.rows.get(one, (None, 0))[0] == lane]
        assert all(place[one] < place[id] for one in earlier), "what was committed before it was added came after it"


def test_a_position_survives_its_json() -> None:
    """What a settle saves is what the next owner reads from."""
    position = Position(7, "10:20:11,12", "10:30:12", 5)
    assert Position.of(json.loads(position.dump())) == position
    assert Position.of(json.loads(Position().dump())) == Position(0, FROM_HERE, None, 0)


def row(id: int, lane: int = 0) -> tuple[int, int]:
    return (id, lane)


def test_a_page_that_was_not_full_moves_to_the_last_id_drawn() -> None:
    """Else each poll would walk the rows of a large open transaction again (rule 4)."""
    (page,) = cursor.pages({0: Position(5, "10:10:")}, [row(6)], Look("20:30:25", 900, FRESH, LATE))
    assert page.after == Position(900, "20:30:25")


def test_a_full_page_moves_to_its_last_row() -> None:
    """More may follow it."""
    (page,) = cursor.pages({0: Position(5, "10:10:")}, [row(6), row(9)], Look("20:30:25", 900, FRESH, LATE))
    assert page.after == Position(9, "20:30:25")


def test_late_rows_that_fill_the_page_freeze_what_is_due() -> None:
    """Then `seen` stays, the fresh rows are dropped, and the snapshot that found them is kept (rule 3)."""
    before = Position(50, "10:20:11")
    rows = [row(3), row(4), row(9), row(60)]
    (page,) = cursor.pages({0: before}, rows, Look("30:30:", 900, FRESH, LATE))
    assert page.rows == rows[:3]
    assert page.after == Position(50, "10:20:11", "30:30:", 9)
    assert page.cut(1) == Position(50, "10:20:11", "30:30:", 3)
    assert page.cut(0) == before


def test_while_catching_up_the_frozen_snapshot_decides() -> None:
    """Later snapshots do not move `due`; the read that finds less than a page ends it."""
    catching_up = Position(50, "10:20:11", "30:30:", 9)
    (full,) = cursor.pages({0: catching_up}, [row(10), row(12), row(40)], Look("77:77:", 900, FRESH, LATE))
    assert full.after == Position(50, "10:20:11", "30:30:", 40)
    (rest,) = cursor.pages({0: full.after}, [row(41)], Look("78:78:", 900, FRESH, LATE))
    assert rest.after == Position(50, "30:30:")
    assert rest.cut(0) == full.after


def test_a_cut_among_fresh_rows_has_passed_every_late_one() -> None:
    """Late rows come first, so one fresh row done means all late ones are."""
    (page,) = cursor.pages({0: Position(5, "10:20:11")}, [row(2), row(8), row(9)], Look("30:30:", 900, 5, LATE))
    assert page.cut(2) == Position(8, "30:30:")


def test_late_rows_are_put_in_the_order_of_their_ids() -> None:
    """Whatever order the server's plan gave them."""
    (page,) = cursor.pages({0: Position(50, "10:20:11")}, [row(9), row(4), row(60)], Look("30:30:", 900, 5, LATE))
    assert page.rows == [row(4), row(9), row(60)]
    assert page.cut(1) == Position(50, "10:20:11", "30:30:", 4)
    assert page.cut(2) == Position(50, "10:20:11", "30:30:", 9)


def test_lanes_that_look_for_the_same_rows_are_one_group() -> None:
    """One read merges them: equal (seen, due, at), whatever their `last`."""
    positions = {
        0: Position(5, "1:1:"),
        1: Position(9, "1:1:"),
        2: Position(5, "1:2:"),
        3: Position(5, "1:1:", "2:2:", 4),
    }
    assert [list(group.lanes) for group in cursor.groups(positions)] == [[0, 1], [2], [3]]


@pytest.mark.parametrize("late_in", [0, 1])
def test_a_group_fills_its_page_together(late_in: int) -> None:
    """The limit is the group's: a lane without late rows of its own catches up with the others."""
    positions = {0: Position(50, "10:20:11"), 1: Position(50, "10:20:11")}
    rows = [row(1, late_in), row(2, late_in), row(3, late_in), row(60, 1 - late_in)]
    pages = {page.lane: page for page in cursor.pages(positions, rows, Look("30:30:", 900, 5, LATE))}
    assert pages[1 - late_in].rows == []
    assert {page.after for page in pages.values()} == {Position(50, "10:20:11", "30:30:", 3)}
