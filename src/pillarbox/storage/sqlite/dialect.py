"""What a caller's connection to SQLite is told. Returns statements, executes none.

The first INSERT takes the only write lock there is, so what it found no other connection changes: the flow decides in
Python what PostgreSQL is asked to decide in one statement, and a round trip costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pillarbox.message import Message
from pillarbox.prepare import Prepared
from pillarbox.storage.sqlite.sql import SQL
from pillarbox.storage.statement import Flow, Statement, as_message, claims, duplicate, without_twins

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SQLiteDialect:
    name = "sqlite"

    def add(self, messages: Sequence[Prepared]) -> Flow[list[UUID]]:
        if not any(claims(message) for message in messages):
            yield from _write(messages)
            return [message.message_id for message in messages]
        distinct, places = without_twins(messages)
        ids = yield from _claim(distinct)
        yield from _write([message for message, first in zip(distinct, ids, strict=True) if first is None])
        return [ids[place] or distinct[place].message_id for place in places]

    def delayed(self, limit: int) -> Flow[list[Message]]:
        rows = yield Statement(SQL["delayed"], (limit,), rows=True)
        return [as_message(row[:10], due=EPOCH + timedelta(seconds=row[10])) for row in rows]

    def cancel(self, message_id: UUID) -> Flow[bool]:
        return bool((yield Statement(SQL["cancel_delayed"], (message_id.bytes,))))

    def messages(self, after: int = 0) -> Flow[list[Message]]:
        rows = yield Statement(SQL["messages_after"], (after,), rows=True)
        return [as_message(row) for row in rows]

    def file(self) -> Flow[str]:
        rows = yield Statement(SQL["file"], (), rows=True)
        return str(rows[0][0] or "") if rows else ""


def _claim(messages: Sequence[Prepared]) -> Flow[list[UUID | None]]:
    """For each message the id of the one that was there first, or None. All claims are given back before an error."""
    made: list[str] = []
    ids: list[UUID | None] = []
    for message in messages:
        first: UUID | None = None
        for key in claims(message):
            if (yield Statement(SQL["claim"], (key, message.message_id.bytes))):
                made.append(key)
                continue
            if message.raises:
                for mine in made:
                    yield Statement(SQL["unclaim"], (mine,))
                raise duplicate([message])
            rows = yield Statement(SQL["claimed"], (key,), rows=True)
            first = UUID(bytes=bytes(rows[0][0]))
            break
        ids.append(first)
    return ids


def _write(messages: Sequence[Prepared]) -> Flow[None]:
    now = [_row(message) for message in messages if message.due is None]
    later = [(*_row(message), _seconds(message.due)) for message in messages if message.due is not None]
    if len(now) == 1:
        yield Statement(SQL["add"], now[0])
    elif now:
        yield Statement(SQL["add"], now, many=True)
    if later:
        yield Statement(SQL["schedule"], later, many=True)


def _row(message: Prepared) -> tuple[Any, ...]:
    return (message.message_id.bytes, *message[1:10])


def _seconds(due: datetime) -> float:
    return (due - EPOCH).total_seconds()
