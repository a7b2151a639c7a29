"""Where a lane's reading stands, as arithmetic on snapshots (DESIGN 2.2). Pure: no database, no clock.

What has been read is exactly  {id <= last, visible in seen}  and, while catching up,  {id <= min(at, last), visible in
due}. One read sees the snapshot `now` and yields the late rows (id <= last, visible now, not read), then the fresh ones
(id > last). `after` and `Page.cut` say what has been read once all of it, or the first rows of it, are done.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from pillarbox.outcome import Row
from pillarbox.ports import RowTuple

_id = itemgetter(0)
FROM_HERE = "3:3:"  # the snapshot that sees nothing; no transaction id is below 3


class Position(NamedTuple):
    last: int = 0  # the highest id read
    seen: str = FROM_HERE  # the snapshot it was read in, as PostgreSQL writes one
    due: str | None = None  # while more late rows wait than a page holds: the snapshot in which they were found
    at: int = 0  # how far they have been read

    def dump(self) -> str:
        """The lane row's `cursor`, as JSON text."""
        return json.dumps(self._asdict())

    @classmethod
    def of(cls, cursor: Mapping[str, object]) -> Position:
        """From the lane row's `cursor`."""
        return cls(**{name: cursor[name] for name in cls._fields})  # type: ignore[arg-type]


class Page:
    """Rows of one lane in read order, and the positions behind them (see `ports.Page`)."""

    __slots__ = ("_found_in", "after", "before", "lane", "rows")

    def __init__(self, lane: int, before: Position, after: Position, rows: list[RowTuple], found_in: str) -> None:
        self.lane = lane
        self.before = before
        self.after = after
        self.rows = rows
        self._found_in = found_in  # the snapshot that decided which rows there are

    def cut(self, done: int) -> Position:
        if done == len(self.rows):
            return self.after
        if done == 0:
            return self.before
        last, seen, _, _ = self.before
        reached = self.rows[done - 1][0]
        if reached > last:  # every late row is among those that are done
            return Position(reached, self._found_in)
        return Position(last, seen, self._found_in, reached)


class Group(NamedTuple):
    """Lanes that look for the same late rows: equal `seen`, `due` and `at`."""

    seen: str
    due: str | None
    at: int
    lanes: dict[int, int]  # `last` of each


def groups(positions: Mapping[int, Position]) -> list[Group]:
    found: dict[tuple[str, str | None, int], Group] = {}
    for lane, (last, seen, due, at) in positions.items():
        key = (seen, due, at)
        if key not in found:
            found[key] = Group(seen, due, at, {})
        found[key].lanes[lane] = last
    return list(found.values())


class Look(NamedTuple):
    """What one read saw beside its rows."""

    now: str  # its snapshot
    drawn: int  # the highest id drawn, read in the same statement
    fresh_limit: int  # a lane
    late_limit: int  # a group


def pages(positions: Mapping[int, Position], rows: Sequence[RowTuple], look: Look) -> list[Page]:
    """The rows of one read as a page for each lane; a lane that found nothing has an empty one."""
    by_lane: dict[int, list[RowTuple]] = {lane: [] for lane in positions}
    for row in rows:
        by_lane[row[LANE]].append(row)
    return [page for group in groups(positions) for page in _pages(group, by_lane, look)]


def _pages(group: Group, by_lane: Mapping[int, list[RowTuple]], look: Look) -> list[Page]:
    late = {lane: _late(by_lane[lane], last) for lane, last in group.lanes.items()}
    if sum(late.values()) < look.late_limit:
        return [_page(group, lane, by_lane[lane], late[lane], look) for lane in group.lanes]
    # Late rows filled the page: there may be more, so fresh ones must wait, and `seen` stays (rule 3).
    due = group.due or look.now
    reached = max(by_lane[lane][count - 1][0] for lane, count in late.items() if count)
    return [
        Page(
            lane,
            Position(last, group.seen, group.due, group.at),
            Position(last, group.seen, due, max(group.at, reached)),
            by_lane[lane][: late[lane]],
            due,
        )
        for lane, last in group.lanes.items()
    ]


def _page(group: Group, lane: int, rows: list[RowTuple], late: int, look: Look) -> Page:
    before = Position(group.lanes[lane], group.seen, group.due, group.at)
    if group.due is not None:
        return Page(lane, before, Position(before.last, group.due), rows, group.due)  # caught up
    if len(rows) - late >= look.fresh_limit:
        last = rows[-1][0]
    else:
        last = max(before.last, look.drawn)  # else each poll would walk a large open transaction again (rule 4)
    return Page(lane, before, Position(last, look.now), rows, look.now)


def _late(rows: list[RowTuple], last: int) -> int:
    """How many rows are late. They are put in front, in the order of their ids."""
    if not rows or rows[0][0] > last:
        return 0
    rows.sort(key=_id)
    return bisect_right(rows, last, key=_id)


LANE = Row._fields.index("lane")
