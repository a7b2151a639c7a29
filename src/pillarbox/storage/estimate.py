"""How many messages lie beyond a cursor, without counting them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SEGMENT = 10**10  # ids in a range
COUNTED = 1000  # rows of a lane that are counted before we estimate


class Segment(NamedTuple):
    """A range of ids and the highest one used in it."""

    n: int
    state: str
    highest: int | None


def used_between(segments: Sequence[Segment], low: int, high: int) -> int:
    """Ids drawn in (low, high]: the gap behind the last one of a closed range is none of them."""
    total = 0
    for n, state, highest in segments:
        if state == "ahead":
            continue
        end = high if state == "open" else highest
        begin = n * SEGMENT - 1
        if end is not None:
            total += max(0, min(end, high) - max(begin, low))
    return total


def pending(
    segments: Sequence[Segment], last: int, counted: int, last_counted: int | None, top: int
) -> tuple[int, bool]:
    """Messages of a lane beyond `last`, and whether that is exact: the counted ones tell how dense the rest is."""
    if counted < COUNTED or last_counted is None:
        return counted, True
    span = max(1, used_between(segments, last, last_counted))
    rest = used_between(segments, last_counted, top)
    return counted + round(rest * min(1.0, counted / span)), False
