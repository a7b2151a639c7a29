"""Checks of what becomes text in the database: a NUL or a lone surrogate there would end the caller's transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from uuid import UUID

from pillarbox.errors import InvalidHeader, InvalidMessage
from pillarbox.message import NO_KEY

LONGEST_NAME = 1_000  # bytes of aggregate, type, topic, content type: they travel as headers and name topics
LONGEST_KEY = 2_000  # bytes of key and unique key: an entry of a B-tree must stay below a third of a page
RESERVED = frozenset(
    {
        "id", "type", "aggregate", "content-type", "version", "sequence", "content-encoding", "generation",
        "traceparent", "tracestate",
    }
)  # fmt: skip
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch  # RFC 9110: the least that every broker takes
_BREAKS = re.compile(r"[\r\n\0]").search


def name(field: str, value: object) -> str:
    """Text that must say something, on one line: it is a header's value somewhere."""
    # The usual case, in a tenth of a microsecond.
    if value.__class__ is str and value.isascii() and value.isprintable() and 0 < len(value) <= LONGEST_NAME:
        return value
    text = _said(field, value, LONGEST_NAME)
    if found := _BREAKS(text):
        raise InvalidMessage(f"`{field}` has a {_CONTROL[found[0]]} (position {found.start()}).")
    return text


def unique_key_text(value: object) -> str:
    return _said("unique_key", value, LONGEST_KEY)


def _said(field: str, value: object, longest: int) -> str:
    if not isinstance(value, str):
        raise InvalidMessage(f"`{field}` must be a str, not {_kind(value)}.")
    text = plain(field, value)
    if not text:
        raise InvalidMessage(f"`{field}` is empty.")
    return _short(field, text, longest)


def plain(field: str, value: str) -> str:
    """An exact str (a driver may have own ideas about subclasses, enums for one) that the database can store."""
    text = str.__str__(value)
    if "\0" in text:
        raise InvalidMessage(f"`{field}` has a NUL character (position {text.index(chr(0))}).")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"`{field}` has a lone surrogate (position {error.start}): it is no text.") from error
    return text


def _short(field: str, text: str, longest: int) -> str:
    size = len(text.encode())
    if size > longest:
        raise InvalidMessage(f"`{field}` has {size:,} bytes; at most {longest:,} are possible.")
    return text


def key_text(value: object) -> str | None:
    """The key as text; None only for a key that was left out."""
    if value is NO_KEY:
        return None
    if value.__class__ is UUID:
        return str(value)
    if isinstance(value, str):
        return _short("key", plain("key", value), LONGEST_KEY)
    if isinstance(value, UUID):
        return str(UUID(int=value.int))
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return _short("key", int.__repr__(value), LONGEST_KEY)
        except ValueError as error:
            raise InvalidMessage(f"`key` is an int that cannot become text: {error}.") from error
    if value is None:
        raise InvalidMessage(
            "`key` is None: the messages of this thing would have no order.",
            "An ORM sets the id at flush: call session.flush() first. Leave `key` out if there is no order to keep.",
        )
    raise InvalidMessage(f"`key` must be a str, an int or a UUID, not {_kind(value)}.")


def whole(field: str, value: object, bits: int) -> int:
    """An int that fits its column."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidMessage(f"`{field}` must be an int, not {_kind(value)}.")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise InvalidMessage(f"`{field}` does not fit in {bits} bits.")
    return int.__index__(value)


def header_value(field: str, value: str) -> str:
    text = str.__str__(value)
    if found := _BREAKS(text):
        raise InvalidHeader(f"{field} has a {_CONTROL[found[0]]} (position {found.start()}).")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidHeader(f"{field} has a lone surrogate (position {error.start}).") from error
    return text


_CONTROL = {"\r": "carriage return", "\n": "line feed", "\0": "NUL"}


def headers_of(given: object) -> dict[str, str]:
    """Checked headers, names and values."""
    if not isinstance(given, Mapping):
        raise InvalidHeader(f"`headers` must be a mapping of str to str, not {_kind(given)}.")
    try:
        return dict(_header(name, value) for name, value in given.items())
    except InvalidHeader:
        raise
    except Exception as error:  # a mapping of the caller's own making
        raise InvalidHeader(f"`headers` cannot be read: {error}.") from error


def _header(name: object, value: object) -> tuple[str, str]:
    if not isinstance(name, str) or not isinstance(value, str):
        raise InvalidHeader(f"A header is a str with a str, not {_kind(name)} with {_kind(value)}.")
    word = str.__str__(name)
    if not _TOKEN(word):
        raise InvalidHeader(
            f"{word!a} cannot be the name of a header.", "Use letters, digits and !#$%&'*+-.^_`|~, as HTTP does."
        )
    if word.lower() in RESERVED or word.lower().startswith("pillarbox-"):
        raise InvalidHeader(f"The header {word!r} is the record's own.", "Give it another name.")
    return word, header_value(f"The header {word!r}", value)


def header_json(headers: Mapping[str, str]) -> str:
    """ASCII, so that no client encoding can spoil it."""
    return json.dumps(headers, separators=(",", ":"))


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
