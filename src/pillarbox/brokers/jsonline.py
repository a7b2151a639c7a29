"""One record as one line of JSON: what the file and the console sink write, and how it is read back."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring  # type: ignore[attr-defined,unused-ignore]
from typing import Any

from pillarbox.outcome import Record

# Numbers stay text: nothing is computed, and an integer of 5,000 digits is valid JSON. NaN and Infinity are not, and
# `int` says so of their names.
_STRICT = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=int)
text = encode_basestring  # quoted, UTF-8 kept


def embeddable(payload: bytes, content_type: str) -> bool:
    """Whether the payload's own bytes can stand in a line of JSON and be read back from there, byte for byte."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in ("application/json", "text/json") and not kind.endswith("+json"):
        return False
    if b"\n" in payload or b"\r" in payload or payload.startswith(b"\xef\xbb\xbf"):
        return False
    try:
        # Not `raw_decode`: it would not see what stands behind the value.
        _STRICT.decode(payload.decode())
    except (ValueError, RecursionError):  # too deep for Python's parser is too deep for a reader of the line
        return False
    return True


def encode(record: Record) -> bytes:
    """Ends with a newline and holds no other. Raises `UnicodeError` for a key or header that is no UTF-8."""
    handle, topic, key, payload, pairs = record
    headers = {name: value.decode() for name, value in pairs}
    generation = handle[1] if isinstance(handle, tuple) else int(headers.get("generation", 0))
    start = (
        f'{{"id":{_or_null(headers.get("id"))},"generation":{generation},"topic":{text(topic)},'
        f'"key":{_or_null(None if key is None else key.decode())},"aggregate":{_or_null(headers.get("aggregate"))},'
        f'"type":{_or_null(headers.get("type"))},"headers":{_object(headers)},'
    ).encode()
    if embeddable(payload, headers.get("content-type", "")):
        return b'%b"payload":%b}\n' % (start, payload)
    return b'%b"payload_base64":"%b"}\n' % (start, base64.b64encode(payload))


def _or_null(value: str | None) -> str:
    return "null" if value is None else text(value)


def _object(headers: dict[str, str]) -> str:
    return "{" + ",".join([f"{text(name)}:{text(value)}" for name, value in headers.items()]) + "}"


def payload_of(line: bytes) -> bytes:
    """The payload's own bytes, from a line as `encode` wrote it."""
    fields: dict[str, Any] = _STRICT.decode(line.decode())
    if "payload_base64" in fields:
        return base64.b64decode(fields["payload_base64"])
    # The payload is the last field and no other field's text can hold an unescaped quote: the first match is it.
    return line.partition(b'},"payload":')[2].rstrip(b"\n")[:-1]
