"""One dataclass per transition. The engine emits them; logs, metrics and traces are subscribers.

An event never carries a payload, a header or a secret; a key and an id only where a person must find one message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """Something has happened."""


Emit = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Started(Event):
    relay: str
    host: str
    version: str
    routes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped(Event):
    delivered: int


@dataclass(frozen=True, slots=True)
class Delivered(Event):
    """A handful of acknowledgements. `waits` and `publishes` are samples in seconds, not one a message."""

    route: str
    sink: str
    count: int
    waits: list[float] = field(default_factory=list)  # added -> acknowledged
    publishes: list[float] = field(default_factory=list)  # handed over -> acknowledged


@dataclass(frozen=True, slots=True)
class Settled(Event):
    route: str
    lanes: int
    passed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MessageRefused(Event):
    route: str
    id: int
    attempts: int
    next_in: float | None  # None: that was the last attempt
    error: str


@dataclass(frozen=True, slots=True)
class MessageBuried(Event):
    route: str
    id: int
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class MessageBlocked(Event):
    route: str
    id: int
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class MessageSetAside(Event):
    """Unavailable or unknown, and proven to be so alone (R10)."""

    route: str
    id: int
    error: str


@dataclass(frozen=True, slots=True)
class AnswerUnknown(Event):
    route: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class SessionOpened(Event):
    route: str
    sink: str


@dataclass(frozen=True, slots=True)
class SessionAbandoned(Event):
    route: str
    sink: str
    unanswered: int
    reason: str


@dataclass(frozen=True, slots=True)
class SinkDown(Event):
    route: str
    sink: str
    reason: str


@dataclass(frozen=True, slots=True)
class SinkUp(Event):
    route: str
    sink: str


@dataclass(frozen=True, slots=True)
class DestinationAway(Event):
    route: str
    sink: str
    destination: str
    reason: str


@dataclass(frozen=True, slots=True)
class DestinationBack(Event):
    route: str
    sink: str
    destination: str


@dataclass(frozen=True, slots=True)
class LanesTaken(Event):
    route: str
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LanesGivenBack(Event):
    route: str
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LanesLost(Event):
    route: str
    lanes: tuple[int, ...]
    reason: str  # deposed | in doubt | deadline | expelled


@dataclass(frozen=True, slots=True)
class LeaseLost(Event):
    reason: str  # expelled | deadline


@dataclass(frozen=True, slots=True)
class RelaysExpelled(Event):
    count: int


@dataclass(frozen=True, slots=True)
class DatabaseLost(Event):
    reason: str


@dataclass(frozen=True, slots=True)
class DatabaseBack(Event):
    seconds: float  # how long it was away


@dataclass(frozen=True, slots=True)
class RouteTakenUp(Event):
    """A stored definition is executed from now on."""

    route: str


@dataclass(frozen=True, slots=True)
class RouteIdle(Event):
    """A route of the file is not executed here, and why."""

    route: str
    reason: str


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """A state that lasts: shown in `status`, in a metric and in a log line. `active=False` ends it."""

    reason: str  # port_taken | route_differs | no_maintenance_connection | identity_differs | ...
    detail: str
    active: bool = True


@dataclass(frozen=True, slots=True)
class ScheduledMoved(Event):
    count: int


@dataclass(frozen=True, slots=True)
class UnroutedFound(Event):
    count: int


@dataclass(frozen=True, slots=True)
class SegmentRolled(Event):
    pass


@dataclass(frozen=True, slots=True)
class SegmentsDropped(Event):
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChoreFailed(Event):
    chore: str
    error: str
