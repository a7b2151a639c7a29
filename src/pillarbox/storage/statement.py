"""What is said on a caller's connection: statements as values, and flows of them. Nothing here executes."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from pillarbox.errors import DuplicateMessage
from pillarbox.message import Message
from pillarbox.prepare import JSON, Prepared

T = TypeVar("T")


class Statement(NamedTuple):
    """SQL and its parameters, each a str, bytes, int, float, None or a list of them."""

    sql: str
    parameters: Sequence[Any] = ()
    rows: bool = False  # whether the reply is the rows; else it is their number
    many: bool = False  # whether `parameters` is a list of them, to be run one after the other


# Yields statements, is sent the reply of each, returns what came of it. One blocking and one async loop drive it.
Flow = Generator[Statement, Any, T]


class Dialect(Protocol):
    """What one kind of database has to be told."""

    name: str

    def add(self, messages: Sequence[Prepared]) -> Flow[list[UUID]]:
        """Append these, in their order, or schedule those that are due later; the ids, the first one's where a unique
        key or an id was taken. Raises `DuplicateMessage`, with nothing added, where the message asks for it."""

    def delayed(self, limit: int) -> Flow[list[Message]]:
        """The messages that wait for their time, the next one first."""

    def cancel(self, message_id: UUID) -> Flow[bool]:
        """Take back a message that waits for its time; False if there is none (any more)."""

    def messages(self, after: int = 0) -> Flow[list[Message]]:
        """What this transaction has added so far; where rows do not tell, what is behind this place in the log."""

    def file(self) -> Flow[str]:
        """The file others can look into, where rows do not tell whose they are; else empty."""


def as_message(row: Sequence[Any], *, due: datetime | None = None) -> Message:
    """From the ten columns of `Prepared`, with numbers as text and an id as text or bytes."""
    ident, key, aggregate, kind, payload, topic, version, sequence, content_type, headers = row
    return Message(
        id=UUID(bytes=bytes(ident)) if isinstance(ident, bytes) else UUID(ident),
        key=key,
        aggregate=aggregate,
        type=kind,
        payload=bytes(payload),
        topic=topic,
        version=None if version is None else int(version),
        sequence=None if sequence is None else int(sequence),
        content_type=content_type or JSON,
        headers=json.loads(headers) if headers else {},
        deliver_at=due,
    )


def id_key(message_id: UUID) -> str:
    """The unique key of a message whose id the caller gave."""
    return f"id:{message_id}"


class Batch(NamedTuple):
    """Messages without twins among themselves, and for each given message the place of the one that stands for it."""

    distinct: list[Prepared]
    places: list[int]


def without_twins(messages: Sequence[Prepared]) -> Batch:
    """The first of those that share a unique key or an id stands for all of them."""
    batch = Batch([], [])
    seen: dict[str, int] = {}
    for message in messages:
        keys = claims(message)
        place = next((seen[key] for key in keys if key in seen), len(batch.distinct))
        if place == len(batch.distinct):
            batch.distinct.append(message)
            seen.update(dict.fromkeys(keys, place))
        elif message.raises:
            raise duplicate([message])
        batch.places.append(place)
    return batch


def claims(message: Prepared) -> list[str]:
    """The unique keys that must be free for this message to be added."""
    found = [] if message.unique_key is None else [message.unique_key]
    return [*found, id_key(message.message_id)] if message.own_id else found


def duplicate(messages: Sequence[Prepared]) -> DuplicateMessage:
    names = ", ".join(claims(each)[0] for each in messages[:5])
    return DuplicateMessage(
        f"Added before: {names}. Nothing was added now; the transaction goes on.",
        "Leave out on_duplicate to get the first message's id instead.",
    )
