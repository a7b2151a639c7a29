"""One route at work: owns nothing but the order of the calls. `step() -> seconds to sleep`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pillarbox import crashpoints
from pillarbox import events as ev
from pillarbox.clock import Clock
from pillarbox.config import RelayConfig
from pillarbox.outcome import Handle
from pillarbox.ports import Leases, Sink, Source, Survey, Taken
from pillarbox.relay.encode import encoder
from pillarbox.relay.flight import Flight
from pillarbox.relay.holds import NEVER, Entry, revive
from pillarbox.relay.judge import Judge
from pillarbox.relay.lanes import Window
from pillarbox.relay.look import look
from pillarbox.relay.publish import Publisher
from pillarbox.relay.settle import Plan, apply, plan
from pillarbox.retry import Policy
from pillarbox.routing import compile_match

SETTLE_PAUSE, SETTLE_SHARE, LONGEST_SETTLE_PAUSE = 0.1, 20, 1.0  # a pause of twenty times the last settle
IDLE_SAVE = 60.0  # a lane with nothing to settle saves how far it has looked, so that segments can go
LOADED_AT_ONCE = 64  # messages of one stopped key
FRESH_A_LANE = 250


class RouteService:
    """The lanes of one route that are ours, and the session to its sink."""

    def __init__(
        self, route: str, definition: dict[str, Any], source: Source, leases: Leases, sink: Sink,
        *, config: RelayConfig, clock: Clock, emit: ev.Emit, lease_holds: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.route = route
        self.source = source
        self.leases = leases
        self.sink = sink
        self.sink_name: str = definition["sink"]
        self.config = config
        self.clock = clock
        self.emit = emit
        self.lease_holds = lease_holds
        self.windows: dict[int, Window] = {}
        self.done: set[Handle] = set()
        self.flight = Flight(sink)
        self.judge = Judge(route, definition["sink"], self.flight, self.windows, self.done, emit=emit)
        self.nudge: int | None = None
        self.warned: list[str] = []
        self.next_settle = 0.0
        self.next_read = 0.0
        self.poll = config.poll_min
        self.next_definition: dict[str, Any] | None = None
        self.is_caught_up = False  # the last read found nothing
        self._execute(definition)

    def _execute(self, definition: dict[str, Any]) -> None:
        c = self.config
        self.definition = definition
        self.next_definition = None
        self.wanted = compile_match(definition)
        self.ordered = definition.get("order", "key") == "key"
        self.judge.policy = Policy(c.attempts, c.backoff_base, c.backoff_max, c.jitter)
        self.judge.blocks = definition.get("after_last_attempt") == "block"
        self.publisher = Publisher(
            self.judge, encoder(definition), self.clock, batch=c.batch, send_timeout=c.send_timeout
        )
        for window in self.windows.values():
            window.ordered = self.ordered
        self.emit(ev.RouteTakenUp(self.route))

    # ---------------------------------------------------------------- lanes

    def take_in(self, taken: Sequence[Taken], now: float) -> None:
        """R1, R4: these lanes are ours under their new terms: fence, then load hold rows, then read."""
        self.lose([t.lane for t in taken], "taken anew", now)  # another crash token takes more than was asked for
        for lane in taken:
            self.sink.fence(self.route, lane.lane, lane.term)
        held = self.leases.load(self.route, [t.lane for t in taken])
        crashpoints.here("take.after_load")
        for t in taken:
            window = Window(t.lane, t.term, t.position, self.done, ordered=self.ordered)
            window.settled_at = now
            window.load([h for h in held if h.lane == t.lane], now)
            self.windows[t.lane] = window
        self.next_read = 0.0

    def lose(self, lanes: Iterable[int], reason: str, now: float) -> None:
        """These lanes are not ours any more, or in doubt: hang up on what is on the wire, then forget them."""
        windows = [self.windows[lane] for lane in lanes if lane in self.windows]
        if not windows:
            return
        if self.flight.wire:
            self.judge.abandon(f"lane lost: {reason}", now)
        for window in windows:
            self.judge.forget(window)
            self.emit(ev.LaneLost(self.route, window.lane, reason))

    def lose_all(self, reason: str, now: float) -> list[int]:
        """Every lane; which they were."""
        lanes = list(self.windows)
        self.lose(lanes, reason, now)
        return lanes

    def look(self, survey: Survey, now: float) -> None:
        """R11: if an operator was here, see what the hold rows say now."""
        nudge = next((r.nudge for r in survey.routes if r.name == self.route), None)
        changed = self.nudge is not None and nudge != self.nudge
        self.nudge = nudge
        lanes = [w.lane for w in self.windows.values() if w.nudged or changed]
        if lanes:
            held = self.leases.load(self.route, lanes)
            for lane in lanes:
                given_up = look(self.windows[lane], [h for h in held if h.lane == lane], now)
                self.judge.drop_parked(given_up)
                self.judge.forget_failing(self.windows[lane])

    def warn(self) -> None:
        """Say once what makes this sink's acceptance worth less than it should be, and when that has ended."""
        said = self.sink.warnings() if self.flight.is_open else self.warned
        if said != self.warned:
            self.warned = said
            self.emit(ev.Warned("sink_durability", "; ".join(said) or f"sink {self.sink_name} is well", bool(said)))

    def give_back(self, count: int) -> None:
        """R13: stop reading so many lanes; `released` tells when they can go."""
        for window in sorted(self.windows.values(), key=lambda w: w.unpassed):
            if count > 0 and not window.leaving:
                window.leaving = True
                count -= 1

    def released(self) -> list[tuple[int, int]]:
        """Leaving lanes with nothing more to wait for; they are forgotten here, to be given back."""
        lanes = []
        for window in [w for w in self.windows.values() if w.leaving]:
            if self._nothing_moves(window):
                lanes.append((window.lane, window.term))
                self.judge.forget(window)
        return lanes

    def _nothing_moves(self, window: Window) -> bool:
        if window.ready or window.gone or any(not e.has_failed for e in window.sendable(NEVER, pipelined=True)):
            return False
        mine = [*self.flight.in_order(), *self.flight.first, *(i for rows in self.judge.parked.values() for i in rows)]
        if any(self.judge.window_of(item) is window for item in mine):
            return False
        return all(s.runs for s in window.hungry()) and plan(window, 0.0) is None

    # ---------------------------------------------------------------- a step

    def step(self, now: float, may_send: bool) -> float:
        """Collect answers, settle, read, load, send; how long nothing will happen."""
        publisher = self.publisher
        worked = publisher.collect(now)
        publisher.check_deadline(now)
        if now >= self.next_settle:
            self.settle(now)
        if may_send:
            if now >= self.next_read:
                worked += self.read(now)
            self._load_hungry(now)
            if self.next_definition is None:
                worked += self._send(now)
        if worked:
            return 0.0
        return max(0.0, min(self.next_read - now, 0.002 if self.flight.wire else self.poll))

    def _send(self, now: float) -> int:
        count = sent = self.publisher.send_some(now, self.lease_holds)
        while sent:
            sent = self.publisher.send_some(now, self.lease_holds)
            count += sent
        return count

    def read(self, now: float) -> int:
        """The next page of every lane that has room."""
        c = self.config
        if self.next_definition is not None:
            return 0
        reading = [w for w in self.windows.values() if not w.leaving and w.room(c.window) > 0 and self._keys_fit(w)]
        if not reading or sum(w.bytes for w in self.windows.values()) >= c.buffer_bytes:
            self.next_read = now + self.config.poll_min
            return 0
        limit = min(c.batch, c.window, max(FRESH_A_LANE, c.batch // len(reading)))
        pages = self.source.read(self.route, {w.lane: w.reading for w in reading}, limit)
        crashpoints.here("read.after")
        count = 0
        for page in pages:
            self.windows[page.lane].admit(page, self.wanted)
            count += len(page.rows)
        self.is_caught_up = not count and len(reading) == len(self.windows)
        self.poll = c.poll_min if count else min(c.poll_max, self.poll * 1.5)
        self.next_read = now if count >= limit else now + self.poll
        return count

    def _keys_fit(self, window: Window) -> bool:
        return len(window.stopped) < self.config.held_keys

    def _load_hungry(self, now: float) -> None:
        """Fetch the messages whose turn has come behind stopped keys, and replays."""
        wanted: list[tuple[Window, Entry]] = []
        for window in self.windows.values():
            for stopped in window.hungry():
                if window.leaving and stopped.runs:
                    continue  # what is in `hold` waits for the next owner
                run, ids = stopped.next_ids(LOADED_AT_ONCE)
                if run is None:
                    entries = [Entry(window.lane, i, stopped.key, None) for i in ids]
                else:
                    entries = [revive(run, i, None, now) for i in ids]
                for entry in entries:
                    entry.key = stopped.key
                stopped.make_live(entries)
                wanted += [(window, e) for e in entries]
            if not window.leaving:
                wanted += [(window, e) for e in window.replays.values() if e.row is None and e.may_send(now)]
        if wanted:
            rows = {row[0]: row for row in self.source.fetch(sorted({e.id for _, e in wanted}))}
            for _, entry in wanted:
                entry.row = rows.get(entry.id, ())  # (): it is gone, and will be refused

    # ---------------------------------------------------------------- settling

    def settle(self, now: float) -> int:
        """Move the cursors of all lanes that have something finished, in one statement; how many were passed."""
        plans = [p for p in (plan(w, now) for w in self.windows.values()) if p is not None]
        idle = [Plan(w) for w in self.windows.values() if self._may_save_idle(w, now)]
        covered = {p.window.lane for p in plans}
        plans += [p for p in idle if p.window.lane not in covered]
        if not plans:
            self.next_settle = now + SETTLE_PAUSE / 4
            return 0
        burials = any(p.buried for p in plans)
        started = self.clock.mono()
        crashpoints.here("bury.before" if burials else "settle.before")
        settled = self.source.settle(self.route, [p.changes() for p in plans])
        crashpoints.here("bury.after" if burials else "settle.after")
        took = self.clock.mono() - started
        self.next_settle = now + min(LONGEST_SETTLE_PAUSE, max(SETTLE_PAUSE, SETTLE_SHARE * took))
        passed = 0
        for p in plans:
            window = p.window
            if window.lane in settled:
                self._told(p)
                passed += apply(p, settled[window.lane])
                window.settled_at = now
        self.lose([p.window.lane for p in plans if p.window.lane not in settled], "deposed", now)
        self.emit(ev.Settled(self.route, len(plans), passed, took))
        return passed

    def _may_save_idle(self, w: Window, now: float) -> bool:
        return not w.pages and w.reading != w.saved and now - w.settled_at >= IDLE_SAVE

    def _told(self, p: Plan) -> None:
        """Emit what this settle makes durable."""
        for entry in p.buried:
            self.judge.failing.pop(entry.handle, None)
            self.emit(ev.MessageBuried(self.route, entry.id, entry.tries, entry.error))
        for birth in p.births:
            for entry in birth.entries:
                if birth.held.state == "blocked":
                    self.emit(ev.MessageBlocked(self.route, entry.id, entry.tries, entry.error))
                elif birth.held.state == "retry" and entry.failed == "!":
                    self.emit(ev.MessageSetAside(self.route, entry.id, entry.error))

    # ---------------------------------------------------------------- change and end

    def take_up(self, definition: dict[str, Any]) -> bool:
        """R17: a stored definition that differs. From now on nothing is read or sent; whether the wire is answered,
        so that `change` may follow."""
        self.next_definition = None if definition == self.definition else definition
        return self.next_definition is not None and not self.flight.wire

    def change(self, now: float) -> list[int]:
        """Settle what is finished, forget the rest, execute the new definition; the lanes to be taken anew."""
        self.settle(now)
        lanes = self.lose_all("route changed", now)
        assert self.next_definition is not None
        self._execute(self.next_definition)
        return lanes

    @property
    def is_idle(self) -> bool:
        """The log is read to its end, nothing is on the wire, and nothing is ready to be sent or settled."""
        if self.flight.wire or not (self.is_caught_up or not self.windows):
            return False
        waits_for_sink = self.judge.breaker.is_open
        return waits_for_sink or all(
            not w.ready and plan(w, 0.0) is None and not any(e.misses or e.tries == 0 for e in _unproven(w))
            for w in self.windows.values()
        )

    def close(self) -> None:
        """End the session; nothing is waited for any more."""
        if self.flight.wire:
            self.flight.sink.hang_up()
        else:
            self.flight.close()


def _unproven(window: Window) -> Iterable[Entry]:
    """Loaded messages that may still be delivered without waiting for a back-off of a refusal."""
    return (e for s in window.stopped.values() for e in s.live if not e.verdict)
