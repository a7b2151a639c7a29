"""What a sink answers, and what the relay makes of it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """A sink's answer to one message."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # this message, alone in its request: counts an attempt
    UNAVAILABLE = "unavailable"  # its destination: nothing is counted
    UNKNOWN = "unknown"  # it may have arrived: hang up, send again


class SinkClass(StrEnum):
    """What a failure inside a session does to the messages behind it (PROTOCOL: R6)."""

    SINGLE = "single"  # answers come in any order; one per key in flight
    GAPS = "gaps"  # later ones may pass a failed one; one per key in flight
    FAIL_STOP = "fail-stop"  # nothing behind the first failure is accepted; keys are pipelined


class Traits(NamedTuple):
    """What a sink declares; the relay obeys it, the contract suite tests it."""

    delivery: SinkClass = SinkClass.SINGLE
    fenced: bool = False
    dedupes: bool = False
    max_bytes: int | None = None  # payload, key and headers together
    max_in_flight: int = 10_000


class Row(NamedTuple):
    """A message as a source yields it. A NamedTuple for its field names only: sources yield plain tuples of this shape."""

    id: int
    lane: int
    key: str | None
    message_id: bytes  # the sixteen bytes of the UUID
    aggregate: str
    type: str
    payload: bytes
    more: str | None  # JSON object of what is rarely there: topic, version, sequence, content_type, encoding, headers


# A message on its way to a sink, as a plain tuple: (handle, topic, key, payload, headers).
# A handle is what answers come back with: the message's id in the log, or (id, generation) for a replay.
Handle = int | tuple[int, int]
Headers = list[tuple[str, bytes]]
Record = tuple[Handle, str, bytes | None, bytes, Headers]


class Failed(NamedTuple):
    """An answer other than accepted."""

    handle: Handle
    outcome: Outcome
    error: str = ""


class Answers(NamedTuple):
    """What has come back from a session since the last time: each message sent is in exactly one of the two, once."""

    accepted: list[Handle]
    failed: list[Failed]


NO_ANSWERS = Answers([], [])
