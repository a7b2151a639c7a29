"""What both databases make of a person's words and of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from pillarbox.errors import Refused
from pillarbox.views import Found, HoldLine, Pick


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
