"""What a person sees of an installation: the values of the `Desk` and `Actions` ports."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID


class Note(NamedTuple):
    """Who acts, from where, and why; each action leaves it in `audit`, in its own transaction."""

    who: str
    host: str
    why: str = ""


class Pick(NamedTuple):
    """Which rows of `hold` a person means: everything given must fit. The filters look at a row's first message."""

    states: tuple[str, ...]
    ids: tuple[str, ...] = ()  # message ids, or ids in the log; these find a message inside a run as well
    route: str | None = None
    aggregate: str | None = None
    key: str | None = None
    type: str | None = None
    error: str | None = None  # a part of it, whatever the case
    since: float | None = None  # held within the last so many seconds
    limit: int = 100
    after: int = 0  # only rows with a higher `seq`


class HoldLine(NamedTuple):
    """One message of `hold` as a person sees it; what waits behind it in the same row is only counted."""

    seq: int
    route: str
    lane: int
    id: int
    message_id: UUID | None  # None: the message is nowhere to be found
    aggregate: str | None
    type: str | None
    key: str | None
    generation: int
    state: str
    attempts: int
    unknowns: int
    due_in: float | None
    error: str
    held_for: float
    behind: int
    edition: int


class Found(NamedTuple):
    """A message wherever it lies. Its payload is never read here: a viewer has no right to it."""

    place: str  # log | kept | scheduled
    id: int  # in the log; in `scheduled` the number there
    lane: int
    message_id: UUID
    key: str | None
    aggregate: str
    type: str
    topic: str | None
    headers: dict[str, str]
    age: float  # seconds since it was added
    due_in: float | None = None  # scheduled only


class Standing(NamedTuple):
    """How one route stands to one message of the log."""

    route: str
    definition: dict[str, Any]
    paused: bool
    id: int
    read: bool  # the cursor has passed it
    before: int  # unread messages of its lane before it, counted up to 1000
    lines: tuple[HoldLine, ...]  # this message's own rows, newest last
    head: HoldLine | None  # what its key waits for in this route
    owner: str | None  # host of the process that owns its lane
    term: int
    settled_for: float | None  # seconds since the cursor last moved


class LaneLine(NamedTuple):
    """A lane of a route, and what its cursor has not passed."""

    route: str
    lane: int
    owner: str | None
    term: int
    settled_for: float | None
    pending: int
    counted: bool  # False: `pending` is an estimate
    oldest: float | None  # age in seconds of the oldest message not read
    position: Any  # only the desk looks inside


class RouteLine(NamedTuple):
    """A stored route and its exceptions; counts stop at 10,000."""

    name: str
    definition: dict[str, Any]
    paused: bool
    start: str
    held: int
    waiting: int
    dead: int
    oldest_held: float | None


class Trouble(NamedTuple):
    """Live or dead rows of one route that share an error."""

    route: str
    state: str
    error: str
    messages: int
    first: UUID | None


class RelayLine(NamedTuple):
    """A process whose lease holds."""

    id: UUID
    host: str
    version: str
    serves: tuple[str, ...]
    says: tuple[str, ...]  # what keeps it from delivering
    lanes: int  # it owns, of all routes


class Overview(NamedTuple):
    """One look at an installation; every statement starts at the cursors."""

    environment: str
    same_system: bool  # False: another cluster, or another environment than ours; nobody takes a lane before `adopt`
    schema_version: int
    relays: list[RelayLine]
    routes: list[RouteLine]
    lanes: list[LaneLine]
    troubles: list[Trouble]
    unrouted: int
    scheduled: int
    overdue: float | None  # seconds the oldest scheduled message is late
    log_bytes: int
    segments: int
    segments_ahead: int
    oldest_transaction: tuple[float, str] | None  # age and who, as far as our rights let us see
