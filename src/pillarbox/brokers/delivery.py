"""A message as user code sees it on its way out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pillarbox.outcome import Record


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a callable is given. `id` is the same whenever the message comes again: remember it to act once."""

    id: UUID
    generation: int
    topic: str
    key: str | None
    aggregate: str
    type: str
    payload: bytes
    headers: Mapping[str, str]  # those of the record, the names above among them

    @classmethod
    def of(cls, record: Record) -> Delivery:
        _, topic, key, payload, pairs = record
        headers = {name: value.decode() for name, value in pairs}
        return cls(
            id=UUID(headers["id"]),
            generation=int(headers.get("generation", 0)),
            topic=topic,
            key=None if key is None else key.decode(),
            aggregate=headers["aggregate"],
            type=headers["type"],
            payload=payload,
            headers=MappingProxyType(headers),
        )

    def json(self) -> Any:
        """The payload, parsed."""
        return json.loads(self.payload)
