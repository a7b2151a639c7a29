"""Write down how far a route's lanes have come: one statement for all of them (R10)."""

from __future__ import annotations

from collections.abc import Mapping

from pillarbox import crashpoints
from pillarbox import events as ev
from pillarbox.clock import Clock
from pillarbox.ports import Source
from pillarbox.relay.judge import Judge
from pillarbox.relay.lane.plan import Plan, apply, plan
from pillarbox.relay.lane.window import Window

PAUSE, SHARE, LONGEST_PAUSE = 0.1, 20, 1.0  # seconds; between two settles twenty times what the last one took
LOOK_AGAIN = PAUSE / 4  # when there was nothing to settle
IDLE_SAVE = 60.0  # a lane with nothing to settle saves how far it has looked, so that segments can go


class Settler:
    """Settles as rarely as the promises allow."""

    def __init__(self, source: Source, judge: Judge, clock: Clock) -> None:
        self.source = source
        self.judge = judge
        self.clock = clock
        self.windows: Mapping[int, Window] = judge.windows
        self.next_at = 0.0

    def settle(self, now: float) -> list[int]:
        """Move the cursors of all lanes that have something finished; the lanes that turn out not to be ours."""
        plans = [p for p in (self._plan(w, now) for w in self.windows.values()) if p is not None]
        if not plans:
            self.next_at = now + LOOK_AGAIN
            return []
        burials = any(p.buried for p in plans)
        started = self.clock.mono()
        crashpoints.here("bury.before" if burials else "settle.before")
        settled = self.source.settle(self.judge.route, [p.changes() for p in plans])
        crashpoints.here("bury.after" if burials else "settle.after")
        took = self.clock.mono() - started
        self.next_at = now + min(LONGEST_PAUSE, max(PAUSE, SHARE * took))
        passed = 0
        for p in plans:
            if p.window.lane in settled:
                self._tell(p)
                passed += apply(p, settled[p.window.lane])
                p.window.settled_at = now
        self.judge.emit(ev.Settled(self.judge.route, len(plans), passed, took))
        return [p.window.lane for p in plans if p.window.lane not in settled]

    def _plan(self, window: Window, now: float) -> Plan | None:
        p = plan(window, now)
        return Plan(window) if p is None and self._saves(window, now) else p

    def _saves(self, window: Window, now: float) -> bool:
        """Whether to write down how far an idle lane has looked. A lane that leaves is not looked after any more: under
        relays that live for less than a minute (cron's) segments would never go."""
        if window.pages or window.reading == window.saved:
            return False
        return window.leaving or now - window.settled_at >= IDLE_SAVE

    def is_due(self, window: Window, now: float) -> bool:
        """Whether this lane has something to settle."""
        return self._plan(window, now) is not None

    def _tell(self, p: Plan) -> None:
        """Emit what this settle has made durable."""
        emit, route = self.judge.emit, self.judge.route
        for entry in p.buried:
            self.judge.failing.pop(entry.handle, None)
            emit(ev.MessageBuried(route, entry.id, entry.tries, entry.error))
        for birth in p.births:
            for entry in birth.entries:
                if birth.held.state == "blocked":
                    emit(ev.MessageBlocked(route, entry.id, entry.tries, entry.error))
                elif birth.held.state == "retry" and entry.failed == "!":
                    emit(ev.MessageSetAside(route, entry.id, entry.error))
