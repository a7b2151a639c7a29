"""What people look at: the installation as a whole, and its lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pillarbox.admin.words import messages, span
from pillarbox.clock import Clock
from pillarbox.ports import Desk
from pillarbox.views import Found, HoldLine, LaneLine, Overview, Pick, RouteLine

OLD_TRANSACTION = 3600.0  # seconds; from then on it is worth a word


@dataclass(frozen=True)
class Lane:
    """A lane of a route: who owns it, and what its cursor has not passed."""

    lane: int
    owner: str | None
    term: int
    settled_ago: float | None
    pending: int
    counted: bool
    oldest: float | None


@dataclass(frozen=True)
class Route:
    """A route's progress. `rate` is what it passed a second between two looks; `lag` the age of its oldest message."""

    name: str
    state: str
    sink: str
    pending: int
    counted: bool
    rate: float | None
    lag: float | None
    held: int
    waiting: int
    dead: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Relay:
    """A process whose lease holds."""

    id: UUID
    host: str
    version: str
    serves: tuple[str, ...]
    lanes: int


@dataclass(frozen=True)
class Trouble:
    """Messages of one route that share an error."""

    route: str
    state: str
    error: str
    messages: int
    first: UUID | None


@dataclass(frozen=True)
class Status:
    """Everything at a glance, the oldest undelivered message first."""

    oldest_undelivered: float
    environment: str
    schema_version: int
    routes: tuple[Route, ...]
    relays: tuple[Relay, ...]
    troubles: tuple[Trouble, ...]
    unrouted: int
    scheduled: int
    overdue: float | None
    log_bytes: int
    segments: int
    segments_ahead: int
    oldest_transaction: float | None
    oldest_transaction_of: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class HeldMessage:
    """A message in `hold`; `log_id` and `id` both name it in every command."""

    id: UUID | None
    log_id: int
    route: str
    lane: int
    aggregate: str | None
    type: str | None
    key: str | None
    generation: int
    state: str
    attempts: int
    unknowns: int
    next_attempt_in: float | None
    held_for: float
    behind: int
    error: str


@dataclass(frozen=True)
class ScheduledMessage:
    """A message that is to be added later."""

    id: UUID
    aggregate: str
    type: str
    key: str | None
    due_in: float | None
    age: float


def status(
    desk: Desk, clock: Clock, *, between: float = 1.0, proposed: Mapping[str, Mapping[str, Any]] | None = None
) -> Status:
    """Two looks, `between` seconds apart, tell the rates; none without a pause. `proposed` is the file's routes."""
    seen = desk.overview()
    rates: dict[str, float] = {}
    if between > 0 and seen.routes:
        began = clock.mono()
        clock.sleep(between)
        passed = desk.moved(seen.lanes)
        rates = {route: number / max(clock.mono() - began, 0.001) for route, number in passed.items()}
        seen = desk.overview()
    return _status(seen, rates if between > 0 else None, proposed or {})


def _status(seen: Overview, rates: Mapping[str, float] | None, proposed: Mapping[str, Mapping[str, Any]]) -> Status:
    routes = tuple(
        _route(line, [lane for lane in seen.lanes if lane.route == line.name], rates) for line in seen.routes
    )
    age, who = seen.oldest_transaction or (None, None)
    ages = [route.lag for route in routes if route.lag is not None and route.state == "running"]
    return Status(
        oldest_undelivered=max([*ages, seen.overdue or 0.0]),
        environment=seen.environment,
        schema_version=seen.schema_version,
        routes=routes,
        relays=tuple(
            Relay(each.id, each.host, each.version, each.serves, each.lanes)
            for each in seen.relays
        ),
        troubles=tuple(Trouble(*each) for each in seen.troubles),
        unrouted=seen.unrouted,
        scheduled=seen.scheduled,
        overdue=seen.overdue,
        log_bytes=seen.log_bytes,
        segments=seen.segments,
        segments_ahead=seen.segments_ahead,
        oldest_transaction=age,
        oldest_transaction_of=who,
        warnings=tuple(_warnings(seen, proposed)),
    )


def _route(line: RouteLine, lanes: Sequence[LaneLine], rates: Mapping[str, float] | None) -> Route:
    ages = [age for age in (*(lane.oldest for lane in lanes), line.oldest_held) if age is not None]
    return Route(
        name=line.name,
        state="paused" if line.paused else "running",
        sink=str(line.definition.get("sink", "")),
        pending=sum(lane.pending for lane in lanes),
        counted=all(lane.counted for lane in lanes),
        rate=None if rates is None else rates.get(line.name, 0.0),
        lag=max(ages, default=None),
        held=line.held,
        waiting=line.waiting,
        dead=line.dead,
        lanes=tuple(
            Lane(lane.lane, lane.owner, lane.term, lane.settled_for, lane.pending, lane.counted, lane.oldest)
            for lane in lanes
        ),
    )


def _warnings(seen: Overview, proposed: Mapping[str, Mapping[str, Any]]) -> list[str]:
    age, who = seen.oldest_transaction or (0.0, "")
    ownerless = {line.route for line in seen.lanes if line.owner is None}
    running = [route.name for route in seen.routes if not route.paused and route.name in ownerless]
    differs = [r.name for r in seen.routes if r.name in proposed and dict(proposed[r.name]) != r.definition]
    found = [
        (
            not seen.same_system,
            f"this database was restored or copied, or belongs to another environment ({seen.environment}): nobody delivers before `pillarbox adopt`",
        ),
        (not seen.routes, "no route is stored: `pillarbox run` stores those of the configuration"),
        (bool(seen.routes) and not seen.relays, "no relay lives"),
        (bool(running) and bool(seen.relays), f"some lanes of {', '.join(running)} have no owner"),
        (bool(differs), f"the file's definition of {', '.join(differs)} differs from the stored one: `route apply`"),
        (seen.unrouted > 0, f"{messages(seen.unrouted)} that no route wants: `pillarbox dead list --route unrouted`"),
        (seen.segments > 0 and seen.segments_ahead < 2, f"{seen.segments_ahead} segments ahead: is `upkeep` running?"),
        (age > OLD_TRANSACTION, f"a transaction open for {span(age)} holds retention back: {who}"),
        ((seen.overdue or 0) > 60, f"scheduled messages are {span(seen.overdue or 0)} late"),
    ]
    said = [f"{text} (relay on {each.host})" for each in seen.relays for text in each.says]
    return [text for is_so, text in found if is_so] + said


def held(desk: Desk, pick: Pick) -> list[HeldMessage]:
    """The rows of `hold` that fit."""
    return [shown(line) for line in desk.holds(pick)]


def shown(line: HoldLine) -> HeldMessage:
    """A hold line as it is shown."""
    return HeldMessage(
        id=line.message_id,
        log_id=line.id,
        route=line.route,
        lane=line.lane,
        aggregate=line.aggregate,
        type=line.type,
        key=line.key,
        generation=line.generation,
        state=line.state,
        attempts=line.attempts,
        unknowns=line.unknowns,
        next_attempt_in=line.due_in,
        held_for=line.held_for,
        behind=line.behind,
        error=line.error,
    )


def scheduled(found: Sequence[Found]) -> list[ScheduledMessage]:
    """Scheduled messages as they are shown."""
    return [ScheduledMessage(f.message_id, f.aggregate, f.type, f.key, f.due_in, f.age) for f in found]
