"""From what the caller gave to the bytes that are stored: one dialect of JSON, or the caller's own bytes."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

from pillarbox.errors import InvalidPayload

BINARY = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
_WHOLE_MINUTES = 60
_BY_BYTES = "Encode it yourself and pass bytes."


def encode(payload: object, content_type: str | None) -> tuple[bytes, str | None]:
    """The bytes, and the content type with None for JSON. Bytes and text pass untouched."""
    if isinstance(payload, str):
        raw = _utf8(payload)
        return raw, content_type or (None if _is_json(payload) else TEXT)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        raw = _bytes(payload)
        return raw, content_type or (None if _bytes_are_json(raw) else BINARY)
    return _json(payload), content_type


def _bytes(given: bytes | bytearray | memoryview) -> bytes:
    try:
        return given if given.__class__ is bytes else bytes(memoryview(given))
    except ValueError as error:
        raise InvalidPayload(f"The payload's memory cannot be read: {error}.") from error


def _utf8(text: str) -> bytes:
    try:
        return str.encode(text)
    except UnicodeEncodeError as error:
        raise InvalidPayload(
            f"The payload has a lone surrogate (position {error.start}), which UTF-8 cannot say.", _BY_BYTES
        ) from error


def _json(payload: object) -> bytes:
    try:
        return _ENCODE(payload).encode()
    except InvalidPayload:
        raise
    except UnicodeEncodeError as error:
        raise InvalidPayload("The payload has a text with a lone surrogate, which UTF-8 cannot say.") from error
    except RecursionError as error:
        raise InvalidPayload("The payload is nested too deep, or contains itself.") from error
    except ValueError as error:
        if "JSON compliant" in str(error):
            raise InvalidPayload("The payload has a NaN or an infinity, which JSON cannot say.") from error
        raise InvalidPayload(f"The payload cannot become JSON: {error}.", _BY_BYTES) from error
    except Exception as error:  # a model's own code may raise anything; the transaction is not harmed by it
        raise InvalidPayload(f"The payload cannot become JSON: {error}.", _BY_BYTES) from error


def _plain(value: object) -> object:
    """What the encoder does not know, in terms of what it knows."""
    if isinstance(value, datetime):
        return _rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise InvalidPayload(f"The payload has a Decimal {value}, which JSON cannot say.")
        return str(value)
    if isinstance(value, Enum):
        return value.value
    return _fields(value)


def _fields(value: object) -> object:
    if not isinstance(value, type):
        if dataclasses.is_dataclass(value):
            return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        dump = getattr(value, "model_dump", None)
        if dump is not None:
            return dump()  # pydantic, as Python values: they follow the rules of this file, not the model's
    raise InvalidPayload(
        f"The payload has a {type(value).__name__}, which has no form in JSON here.",
        "Turn it into a list, a dict, a string or a number.",
    )


def _rfc3339(moment: datetime) -> str:
    offset = moment.utcoffset()
    if offset is None:
        raise InvalidPayload(
            f"The payload has a datetime without a time zone ({moment.isoformat()}).", "Use datetime.now(UTC)."
        )
    if offset.total_seconds() % _WHOLE_MINUTES:  # local mean times: RFC 3339 knows no seconds in an offset
        moment = moment.astimezone(UTC)
    return moment.isoformat()


def canonical(payload: object) -> bytes:
    """The same bytes for the same content: bytes and text as they are, everything else as JSON with sorted keys."""
    if isinstance(payload, (str, bytes, bytearray, memoryview)):
        return encode(payload, BINARY)[0]
    # Through the encoder once: keys of one dictionary may be of kinds that have no order among themselves.
    return json.dumps(json.loads(_json(payload)), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


# Without a check for circles: they end as RecursionError, and everything else is a third faster.
_ENCODE = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode
# float for whole numbers: int() refuses more than 4300 digits, and the values are thrown away.
_DECODE = json.JSONDecoder(parse_int=float, parse_constant=_refuse_constant).decode


def _is_json(text: str) -> bool:
    try:
        _DECODE(text)
    except (ValueError, RecursionError):
        return False
    return True


def _bytes_are_json(raw: bytes) -> bool:
    try:
        return _is_json(raw.decode())
    except UnicodeDecodeError:
        return False
