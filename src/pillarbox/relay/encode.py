"""Row to record: what a message looks like on the wire (DESIGN 4). Made once a route; hot: see `bench kafka`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pillarbox.outcome import Handle, Headers, Record
from pillarbox.ports import RowTuple
from pillarbox.routing import UNREADABLE, extras, topic_and_rule

JSON = b"application/json"
Encode = Callable[[RowTuple, int], Record]
MOST_CACHED = 4096  # pairs of aggregate and type whose headers are kept ready


class CannotEncode(Exception):
    """This row cannot become a record; it is refused like any other poison."""


def _uuid_text(raw: bytes) -> bytes:
    h = raw.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}".encode()


def _extra_headers(more: Mapping[str, Any], generation: int) -> Headers:
    headers: Headers = []
    for name, field in (("version", "version"), ("sequence", "sequence"), ("content-encoding", "encoding")):
        if more.get(field) is not None:
            headers.append((name, str(more[field]).encode()))
    if generation:
        headers.append(("generation", b"%d" % generation))
    for name, value in (more.get("headers") or {}).items():
        if value is None:
            continue
        if not isinstance(value, str):
            raise CannotEncode(f"header {name!r} is not a string")
        headers.append((name, value.encode()))
    return headers


def _renamed(headers: Headers, renames: Mapping[str, str]) -> Headers:
    """`{eventType = "type"}`: the value of `type` also goes under the name `eventType`."""
    known = dict(headers)
    return headers + [(new, known[old]) for new, old in renames.items() if old in known]


def encoder(definition: Mapping[str, Any]) -> Encode:
    """The function that makes this route's records."""
    renames: Mapping[str, str] = definition.get("headers") or {}
    template = definition.get("force_topic") or definition.get("topic") or ""
    by_key = "{key}" in template
    ready: dict[tuple[str, str], tuple[str, Headers]] = {}

    def slow(row: RowTuple, generation: int) -> Record:
        try:
            more = extras(row)
            content_type = (more.get("content_type") or "application/json").encode()
            headers: Headers = [("id", _uuid_text(row[3])), ("type", row[5].encode()), ("aggregate", row[4].encode()),
                                ("content-type", content_type)]  # fmt: skip
            headers += _extra_headers(more, generation)
            topic, _rule = topic_and_rule(definition, row)
            handle: Handle = (row[0], generation) if generation else row[0]
            key = None if row[2] is None else row[2].encode()
            return handle, topic, key, bytes(row[6]), _renamed(headers, renames)
        except UNREADABLE as e:
            raise CannotEncode(f"the row cannot be encoded: {e}") from e

    def encode(row: RowTuple, generation: int = 0) -> Record:
        if row[7] is not None or generation or renames or by_key:
            return slow(row, generation)
        pair = (row[4], row[5])
        known = ready.get(pair)
        if known is None:
            _handle, topic, _key, _payload, headers = slow(row, 0)
            if len(ready) >= MOST_CACHED:
                ready.clear()
            known = ready[pair] = (topic, headers[1:])
        key = row[2]
        h = row[3].hex()
        try:
            return (row[0], known[0], None if key is None else key.encode(), row[6],
                    [("id", f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}".encode()), *known[1]])  # fmt: skip
        except UnicodeEncodeError as e:  # SQLite keeps any bytes as text
            raise CannotEncode(f"the row cannot be encoded: {e}") from e

    return encode
