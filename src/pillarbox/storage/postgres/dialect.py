"""What a caller's connection to PostgreSQL is told. Returns statements, executes none, knows no driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pillarbox.errors import Retryable
from pillarbox.message import Message
from pillarbox.prepare import Prepared
from pillarbox.storage.sql import identifier, load
from pillarbox.storage.statement import Flow, Statement, as_message, claims, duplicate, id_key, without_twins

SAVEPOINT = Statement("SAVEPOINT pillarbox_add")
UNDO = Statement("ROLLBACK TO SAVEPOINT pillarbox_add")
RELEASE = Statement("RELEASE SAVEPOINT pillarbox_add")
NOTHING_MORE = (None, None, None, None, None)
PLAIN = (None, False, None)
ROUNDS = 3  # a claim that vanishes between two statements (it expired) is tried again
PORTION = 16_000_000  # bytes of payload in one statement; a gigabyte would end the connection
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgresDialect:
    name = "postgresql"

    def __init__(self, schema: str) -> None:
        self._sql: Mapping[str, str] = load("pillarbox.storage.postgres.sql", identifier(schema))
        self._add = self._sql["add"]

    def add(self, messages: Sequence[Prepared]) -> Flow[list[UUID]]:
        if len(messages) == 1 and messages[0][10:13] == PLAIN:
            yield self._add_one(messages[0])
        elif any(message[10:13] != PLAIN for message in messages):
            return (yield from self._add_claiming(messages))
        else:
            for start, end in _portions(messages):
                yield Statement(self._sql["add_many"], _columns(messages[start:end]))
        return [message.message_id for message in messages]

    def _add_one(self, message: Prepared) -> Statement:
        if message[5:10] == NOTHING_MORE:
            return Statement(self._add, (f"{message[0].int:032x}", *message[1:5]))
        return Statement(self._sql["add_full"], _texts(message))

    def _add_claiming(self, messages: Sequence[Prepared]) -> Flow[list[UUID]]:
        distinct, places = without_twins(messages)
        ids: list[UUID | None] = [None] * len(distinct)
        waiting = list(range(len(distinct)))
        for _ in range(ROUNDS):
            taken = yield from self._claim([distinct[place] for place in waiting])
            claimed = set(taken)
            for n, place in enumerate(waiting):
                if n not in claimed:
                    ids[place] = distinct[place].message_id
            waiting = [waiting[n] for n in taken]
            if waiting:
                found = yield from self._claimed([distinct[place] for place in waiting])
                for place in waiting:
                    ids[place] = _first(distinct[place], found)
            waiting = [place for place in waiting if ids[place] is None]
            if not waiting:
                return [ident for place in places if (ident := ids[place])]
        raise Retryable("A unique key is claimed and given up again at this moment.", "Run the transaction again.")

    def _claim(self, messages: Sequence[Prepared]) -> Flow[list[int]]:
        """The places of those that were claimed before. Where one of these is to be told of, nothing is left behind:
        a key claimed without its message would swallow the next one."""
        careful = any(each.raises for each in messages) and sum(len(claims(each)) for each in messages) > 1
        if careful:
            yield SAVEPOINT
        taken: list[int] = []
        for start, end in _portions(messages):
            rows = yield Statement(self._sql["add_claiming"], _claiming_columns(messages[start:end]), rows=True)
            taken += [start + int(row[0]) for row in rows]
        told = [messages[n] for n in taken if messages[n].raises]
        if careful:
            if told:
                yield UNDO
            yield RELEASE
        if told:
            raise duplicate(told)
        return taken

    def _claimed(self, messages: Sequence[Prepared]) -> Flow[dict[str, UUID]]:
        keys = [key for message in messages for key in claims(message)]
        rows = yield Statement(self._sql["claimed"], (keys,), rows=True)
        return {row[0]: UUID(row[1]) for row in rows}

    def delayed(self, limit: int) -> Flow[list[Message]]:
        rows = yield Statement(self._sql["delayed"], (str(limit),), rows=True)
        return [as_message(row[:10], due=EPOCH + timedelta(microseconds=int(row[10]))) for row in rows]

    def cancel(self, message_id: UUID) -> Flow[bool]:
        return bool((yield Statement(self._sql["cancel_delayed"], (str(message_id),))))

    def messages(self, _after: int = 0) -> Flow[list[Message]]:
        rows = yield Statement(self._sql["messages_of_transaction"], (), rows=True)
        return [as_message(row) for row in rows]

    def file(self) -> Flow[str]:
        yield from ()
        return ""


def _portions(messages: Sequence[Prepared]) -> Iterator[tuple[int, int]]:
    """Usually the whole in one piece."""
    start = size = 0
    for n, message in enumerate(messages):
        if size > PORTION:
            yield start, n
            start, size = n, 0
        size += len(message.payload)
    if messages:
        yield start, len(messages)


def _first(message: Prepared, found: Mapping[str, UUID]) -> UUID | None:
    for key in claims(message):
        if key in found:
            return found[key]
    return None


def _texts(message: Prepared) -> list[Any]:
    """The ten columns as text, but for the payload."""
    ident, *middle, version, sequence, content_type, headers = message[:10]
    return [
        f"{ident.int:032x}",
        *middle,
        None if version is None else str(version),
        None if sequence is None else str(sequence),
        content_type,
        headers,
    ]


def _columns(messages: Sequence[Prepared]) -> list[Any]:
    """An array for each column; no array at all for one that nobody uses, which costs nothing to send."""
    columns = [list(column) for column in zip(*map(_texts, messages), strict=True)]
    return [_or_none(column) for column in columns]


def _claiming_columns(messages: Sequence[Prepared]) -> list[Any]:
    more = [
        [message.unique_key for message in messages],
        [id_key(message.message_id) if message.own_id else None for message in messages],
        [message.due.isoformat() if message.due else None for message in messages],
    ]
    return _columns(messages) + [_or_none(column) for column in more]


def _or_none(column: list[Any]) -> list[Any] | None:
    return column if any(each is not None for each in column) else None
