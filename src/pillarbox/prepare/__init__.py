"""Validate, encode, draw the id. Pure but for clock, chance and the current span; raises typed errors only.

Everything that a database could refuse is refused here, where nothing has happened yet: a statement that fails would
take the caller's transaction with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from pillarbox.clock import SystemClock
from pillarbox.errors import InvalidMessage, MessageTooLarge
from pillarbox.message import NO_HEADERS, NO_KEY, Key, Message, NoKey
from pillarbox.prepare import trace
from pillarbox.prepare.identity import uuid7
from pillarbox.prepare.payload import canonical, encode
from pillarbox.prepare.text import header_json, headers_of, key_text, name, unique_key_text, whole

__all__ = ["MAX_MESSAGE", "Prepared", "content_key", "from_message", "prepare", "uuid7"]

MAX_MESSAGE = 900_000  # bytes; Kafka's client refuses a record at 1,000,000
JSON = "application/json"
_FIELDS = [each.name for each in fields(Message)]
_REQUIRED = ("aggregate", "type", "payload")
_ON_DUPLICATE = ("ignore", "raise")
_NO_HEAD: tuple[str | None, int] = (None, 0)


class Prepared(NamedTuple):
    """A message as the tables take it. The first ten are columns, in the order the statements name them."""

    message_id: UUID
    key: str | None
    aggregate: str
    type: str
    payload: bytes
    topic: str | None
    version: int | None
    sequence: int | None
    content_type: str | None  # None: JSON
    headers: str | None  # a JSON object
    unique_key: str | None = None
    own_id: bool = False  # given by the caller, so it may be there already
    due: datetime | None = None
    raises: bool = False  # on_duplicate="raise"


def prepare(
    *,
    aggregate: object,
    type: object,
    payload: object,
    key: object = NO_KEY,
    version: object = None,
    sequence: object = None,
    topic: object = None,
    headers: object = NO_HEADERS,
    content_type: object = None,
    id: object = None,
    unique_key: object = None,
    on_duplicate: object = "ignore",
    deliver_at: object = None,
    limit: int = MAX_MESSAGE,
) -> Prepared:
    """Everything checked, in about four microseconds of which two are JSON and the id's randomness."""
    key = None if key is NO_KEY else key_text(key)
    content_type = None if content_type is None else name("content_type", content_type)
    body, content_type = encode(payload, content_type)
    head, head_size = _NO_HEAD if headers is NO_HEADERS and not trace.is_on() else _headers(headers)
    if len(body) + 4 * len(key or "") + head_size > limit:  # four bytes a character at most
        _measure(len(body), len((key or "").encode()), head_size, limit)
    return Prepared(
        uuid7() if id is None else _own_id(id),
        key,
        name("aggregate", aggregate),
        name("type", type),
        body,
        None if topic is None else name("topic", topic),
        None if version is None else whole("version", version, 32),
        None if sequence is None else whole("sequence", sequence, 64),
        None if content_type == JSON else content_type,
        head,
        None if unique_key is None else unique_key_text(unique_key),
        id is not None,
        None if deliver_at is None else _due(deliver_at),
        _raises(on_duplicate),
    )


def from_message(message: object, limit: int = MAX_MESSAGE) -> Prepared:
    """The same, from a `Message` or a mapping with the names of its fields."""
    if isinstance(message, Message):
        return prepare(**{each: getattr(message, each) for each in _FIELDS}, limit=limit)
    if not isinstance(message, Mapping):
        raise InvalidMessage(f"A message is a Message or a mapping, not a {message.__class__.__name__}.")
    given: dict[str, Any] = dict(message)
    unknown = [each for each in given if each not in _FIELDS]
    if unknown:
        raise InvalidMessage(f"A message has no {unknown[0]!r}.", f"Its fields are {', '.join(_FIELDS)}.")
    missing = [each for each in _REQUIRED if each not in given]
    if missing:
        raise InvalidMessage(f"A message needs {' and '.join(f'`{each}`' for each in missing)}.")
    return prepare(**given, limit=limit)


def content_key(*, aggregate: str, type: str, payload: object, key: Key | NoKey = NO_KEY) -> str:
    """A `unique_key` from what the message says: equal messages are added once, whoever adds them.

    Each part goes into the hash behind its length, so that no two messages run into one text."""
    of_key = key_text(key)
    parts = [name("aggregate", aggregate).encode(), name("type", type).encode()]
    parts += [b"" if of_key is None else b"=" + of_key.encode(), canonical(payload)]
    digest = sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts))
    return f"content:{digest.hexdigest()}"


def _headers(given: object) -> tuple[str | None, int]:
    """The headers as a JSON object, and the bytes they will have on the wire."""
    found = {} if given is None else headers_of(given)
    found.update(trace.context())
    if not found:
        return _NO_HEAD
    return header_json(found), sum(len(word) + len(value.encode()) for word, value in found.items())


def _measure(body: int, key: int, head: int, limit: int) -> None:
    size = body + key + head
    if size > limit:
        raise MessageTooLarge(
            f"The message has {size:,} bytes ({body:,} of payload, {key:,} of key, {head:,} of headers);"
            f" the limit is {limit:,}.",
            "Store what is large elsewhere and send a reference to it, or raise Outbox(max_message=…) together with"
            " the broker's own limit.",
        )


def _own_id(given: object) -> UUID:
    if not isinstance(given, UUID):
        raise InvalidMessage(f"`id` must be a uuid.UUID, not a {given.__class__.__name__}.", "Use uuid.UUID(text).")
    return UUID(int=given.int)  # asyncpg has a class of its own, which other drivers do not know


def _due(given: object) -> datetime | None:
    """When, in UTC; None if that is over already."""
    if not isinstance(given, datetime):
        raise InvalidMessage(f"`deliver_at` must be a datetime, not a {given.__class__.__name__}.")
    if given.utcoffset() is None:
        raise InvalidMessage("`deliver_at` is a datetime without a time zone.", "Use datetime.now(UTC) + timedelta(…).")
    try:
        due = given.astimezone(UTC)
    except OverflowError as error:
        raise InvalidMessage("`deliver_at` is outside of what UTC can say.") from error
    return due if due > SystemClock.now() else None


def _raises(given: object) -> bool:
    if isinstance(given, str) and str.__str__(given) in _ON_DUPLICATE:
        return str.__str__(given) == "raise"
    shown = repr(given[:40]) if isinstance(given, str) else f"a {given.__class__.__name__}"
    raise InvalidMessage(f"`on_duplicate` must be 'ignore' or 'raise', not {shown}.")
