"""What both databases make of a person's words and of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from pillarbox.errors import Refused
from pillarbox.views import Found, HoldLine, Pick, RouteLine, Standing

LIVE = ("retry", "waiting", "blocked")
COUNTED = (*LIVE, "dead")


class Count(NamedTuple):
    """Rows of a route in a state, the messages in them, and the age of the oldest."""

    rows: int
    messages: int
    oldest: float | None


def route_line(
    name: str, definition: dict[str, Any], paused: object, start: str, counts: Mapping[str, Count]
) -> RouteLine:
    """A route with its exceptions, from what is counted in each state."""
    live = [counts[state] for state in LIVE if state in counts]
    held = sum(counts[state].rows for state in ("retry", "blocked") if state in counts)
    return RouteLine(
        name=name,
        definition=definition,
        paused=bool(paused),
        start=start,
        held=held,
        waiting=sum(each.messages for each in live) - held,
        dead=counts["dead"].rows if "dead" in counts else 0,
        oldest_held=max((each.oldest for each in live if each.oldest is not None), default=None),
    )


def standing(row: Sequence[Any], lines: Iterable[HoldLine], head: HoldLine | None) -> Standing:
    """How a route stands to a message: from the route's row, the hold rows of the message, and its key's head."""
    own = tuple(line for line in lines if (line.route, line.id) == (row[0], row[3]))
    name, definition, paused, id, read, *rest = row
    return Standing._make((name, definition, bool(paused), id, bool(read), rest[0], own, head, *rest[1:]))


def split_ids(ids: Sequence[str]) -> tuple[list[UUID], list[int]]:
    """Message ids, and ids in the log."""
    uuids, numbers = [], []
    for text in ids:
        if text.isascii() and text.isdigit() and len(text) <= 18:
            numbers.append(int(text))
            continue
        try:
            uuids.append(UUID(text))
        except ValueError:
            raise Refused(
                f"{text!r} is no message id.", "Give a UUID as `add` returned it, or a number as `held list` shows it."
            ) from None
    return uuids, numbers


def found_from(row: Sequence[Any]) -> Found:
    """A message from a row of its columns; its headers may be JSON text, or damaged."""
    headers = row[8]
    if isinstance(headers, str):
        with suppress(ValueError, RecursionError):
            headers = json.loads(headers)
    return Found._make([*row[:8], headers if isinstance(headers, dict) else {}, *row[9:]])


def named(line: HoldLine, found: Found) -> HoldLine:
    """The line with what its message says of itself."""
    return line._replace(message_id=found.message_id, aggregate=found.aggregate, type=found.type)


def fitting(lines: Iterable[HoldLine], pick: Pick) -> list[HoldLine]:
    """Those of these lines that a person means."""
    exact = {name: getattr(pick, name) for name in ("route", "aggregate", "key", "type")}
    wanted = {name: value for name, value in exact.items() if value is not None}
    return [
        line
        for line in lines
        if line.state in pick.states
        and all(getattr(line, name) == value for name, value in wanted.items())
        and (pick.error is None or pick.error.lower() in line.error.lower())
        and (pick.since is None or line.held_for <= pick.since)
    ][: pick.limit]


def brief(found: Found) -> dict[str, str | None]:
    """What stays of a message in the audit."""
    return {"id": str(found.message_id), "aggregate": found.aggregate, "type": found.type, "key": found.key}


def told(line: HoldLine) -> dict[str, object]:
    """What the audit says of a hold row that was acted on."""
    message = str(line.message_id) if line.message_id else None
    return {"id": message, "log": line.id, "route": line.route, "was": line.state, "generation": line.generation}
