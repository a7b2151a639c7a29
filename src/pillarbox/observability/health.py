"""Three questions: does the loop tick, can this process work, does the installation deliver."""

from __future__ import annotations

from typing import Any, NamedTuple

from pillarbox import events
from pillarbox.clock import Clock
from pillarbox.events import Event
from pillarbox.views import Overview

OLD = 300.0  # seconds an undelivered message may wait
LIVE_WITHIN = 60.0  # a tick may wait for the database's connect and statement limits, never for so long
READY_TROUBLES = ("identity_differs", "database")


class Verdict(NamedTuple):
    """An answer for machines and its reasons for people. `code` is what a command ends with: 0, 1 or 2."""

    code: int
    reasons: list[str]
    facts: dict[str, Any]


def judged(seen: Overview | None, max_age: float = OLD) -> Verdict:
    """The installation's health follows progress: 0 it delivers, 1 something waits too long, 2 nobody can tell."""
    if seen is None:
        return Verdict(2, ["the database cannot be asked"], {})
    oldest = oldest_undelivered(seen)
    reasons = []
    if not seen.same_system:
        reasons.append("this is another cluster than the installation's own: nobody delivers before `pillarbox adopt`")
    if oldest > max_age:
        reasons.append(f"the oldest undelivered message waits since {oldest:.0f} s, longer than {max_age:.0f} s")
    if not seen.routes:
        reasons.append("no route is stored")
    facts = {
        "oldest_undelivered_seconds": round(oldest, 3),
        "max_age_seconds": max_age,
        "relays": len(seen.relays),
        "held": sum(route.held + route.waiting for route in seen.routes),
        "dead": sum(route.dead for route in seen.routes),
        "unrouted": seen.unrouted,
    }
    return Verdict(1 if reasons else 0, reasons, facts)


def oldest_undelivered(seen: Overview) -> float:
    """Seconds the oldest message waits: unread, set aside, or scheduled and overdue. A paused route was paused by a
    person, who knows."""
    running = {route.name for route in seen.routes if not route.paused}
    unread = [lane.oldest for lane in seen.lanes if lane.route in running and lane.oldest is not None]
    held = [route.oldest_held for route in seen.routes if route.name in running and route.oldest_held is not None]
    return max([*unread, *held, seen.overdue or 0.0])


class Pulse:
    """A subscriber of events that knows how this process is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.mono()
        self._started = False
        self._database = "not reached yet"
        self._away: dict[str, str] = {}  # sinks and destinations, which make nobody unready
        self._warnings: dict[str, str] = {}

    @property
    def away(self) -> dict[str, str]:
        """The sinks and destinations that take nothing now, and why."""
        return dict(self._away)

    def beat(self) -> None:
        """The loop has come round."""
        self._last = self._clock.mono()

    def __call__(self, event: Event) -> None:
        match event:
            case events.Started():
                self._started, self._database = True, ""
            case events.DatabaseLost(reason):
                self._database = reason
            case events.DatabaseBack():
                self._database = ""
                self._warnings.pop("database", None)
            case events.Warned(reason, detail, active):
                self._warnings.pop(reason, None)
                if active:
                    self._warnings[reason] = detail
            case _:
                self._on_sink(event)

    def _on_sink(self, event: Event) -> None:
        match event:
            case events.SinkDown(_, sink, reason):
                self._away[sink] = reason
            case events.SinkUp(_, sink) | events.SessionOpened(_, sink):
                self._away.pop(sink, None)
            case events.DestinationAway(_, sink, destination, reason):
                self._away[f"{sink}: {destination}"] = reason
            case events.DestinationBack(_, sink, destination):
                self._away.pop(f"{sink}: {destination}", None)

    def live(self) -> Verdict:
        """Does the loop tick? Never the database, never a sink: restarting mends neither."""
        silent = self._clock.mono() - self._last
        if silent > LIVE_WITHIN:
            return Verdict(1, [f"the loop has not come round for {silent:.0f} s"], {})
        return Verdict(0, [], {})

    def ready(self) -> Verdict:
        """Can this process work? One broker's outage must not take every pod out of service: it is only told."""
        troubles = [] if self._started else ["starting"]
        if self._database:
            troubles.append(f"database: {self._database}")
        troubles += [f"{name}: {self._warnings[name]}" for name in READY_TROUBLES if name in self._warnings]
        told = [f"sink {name} is away: {reason}" for name, reason in sorted(self._away.items())]
        told += [f"{name}: {detail}" for name, detail in sorted(self._warnings.items()) if name not in READY_TROUBLES]
        return Verdict(1 if troubles else 0, troubles + told, {})
