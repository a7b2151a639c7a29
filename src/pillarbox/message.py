"""A message, as people give it and get it. Inside the relay messages are plain tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal
from uuid import UUID

OnDuplicate = Literal["ignore", "raise"]


class NoKey(Enum):
    """The type of `NO_KEY`, so that `None` (an ORM's id before its flush) is never taken for it."""

    NO_KEY = "no key"

    def __repr__(self) -> str:
        return "<no key>"


NO_KEY: Final = NoKey.NO_KEY
Key = str | int | UUID
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What happened, to which thing, and how it is to be carried.

    To be added: `key` may be left out (no order), `payload` may be anything that becomes JSON. As read back: `payload`
    is bytes, `id` is set, and `key` is a string, or None where there is none.
    """

    aggregate: str
    type: str
    payload: object
    key: Key | NoKey | None = NO_KEY
    version: int | None = None
    sequence: int | None = None
    topic: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    content_type: str | None = None
    id: UUID | None = None
    unique_key: str | None = None
    on_duplicate: OnDuplicate = "ignore"
    deliver_at: datetime | None = None
