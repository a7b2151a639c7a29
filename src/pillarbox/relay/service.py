"""One route at work: owns nothing but the order of the calls. `step() -> seconds to sleep`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from pillarbox import crashpoints
from pillarbox import events as ev
from pillarbox.clock import Clock
from pillarbox.config import RelayConfig
from pillarbox.outcome import Handle
from pillarbox.ports import Leases, Sink, Source, Survey, Taken
from pillarbox.relay.encode import encoder
from pillarbox.relay.flight import Flight
from pillarbox.relay.judge import Judge
from pillarbox.relay.lane.holds import NEVER, Entry
from pillarbox.relay.lane.look import look
from pillarbox.relay.lane.plan import plan
from pillarbox.relay.lane.window import Window
from pillarbox.relay.publish import Publisher
from pillarbox.relay.read import Reader
from pillarbox.relay.settle import Settler
from pillarbox.retry import Policy
from pillarbox.routing import compile_match, literal_topics

MOST_SAID, MOST_TOPICS = 300, 10  # characters, and destinations that are named
ANSWER_POLL = 0.002  # seconds between two looks for answers while something is on the wire


class RouteService:
    """The lanes of one route that are ours, and the session to its sink."""

    def __init__(
        self, route: str, definition: dict[str, Any], source: Source, leases: Leases, sink: Sink,
        *, config: RelayConfig, clock: Clock, emit: ev.Emit, lease_holds: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.route = route
        self.leases = leases
        self.sink = sink
        self.sink_name: str = definition["sink"]
        self.config = config
        self.clock = clock
        self.emit = emit
        self.lease_holds = lease_holds
        self.windows: dict[int, Window] = {}
        self.done: set[Handle] = set()
        self.flight = Flight(sink, lambda: emit(ev.SessionOpened(route, definition["sink"])))
        self.judge = Judge(route, definition["sink"], self.flight, self.windows, self.done, emit=emit)
        self.nudge: int | None = None
        self.warned: list[str] = []
        self.reader = Reader(route, source, self.windows, config, lambda: bool(self.flight.wire))
        self.settler = Settler(source, self.judge, clock)
        self.next_definition: dict[str, Any] | None = None
        self._execute(definition)

    def _execute(self, definition: dict[str, Any]) -> None:
        c = self.config
        self.definition = definition
        self.next_definition = None
        self.reader.wanted = compile_match(definition)
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
        self.reader.next_at = 0.0

    def lose(self, lanes: Iterable[int], reason: str, now: float) -> None:
        """These lanes are not ours any more, or in doubt: hang up on what is on the wire, then forget them."""
        windows = [self.windows[lane] for lane in lanes if lane in self.windows]
        if not windows:
            return
        if self.flight.wire:
            self.judge.abandon(f"lane lost: {reason}", now)
        for window in windows:
            self.judge.forget(window)
        self.emit(ev.LanesLost(self.route, tuple(w.lane for w in windows), reason))

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
                self.judge.turns.drop(given_up)
                self.judge.forget_failing(self.windows[lane])
        self._tend_session()

    def _tend_session(self) -> None:
        """Topics that stand in the definition are looked at before there is a message for them, so that a missing one
        is told at the start; without a lane there is nothing to keep a session for."""
        if not self.windows and not self.flight.wire:
            self.flight.close()
            self.publisher.destinations.forget()
        elif not self.judge.breaker.is_open:
            self.publisher.destinations.look_at(literal_topics(self.definition))

    def says(self) -> list[str]:
        """What keeps this route from delivering, for people who look from elsewhere."""
        breaker = self.judge.breaker
        found = [f"{self.route}: sink {self.sink_name} is away: {breaker.reason}"] if breaker.is_open else []
        away = self.publisher.destinations.away.items()
        return found + [self._says_away(topic, reason) for topic, reason in [*away][:MOST_TOPICS]]

    def _says_away(self, topic: str, reason: str) -> str:
        """By name, with how many of what was read wait for it, and the first of them."""
        waiting = [
            s for w in self.windows.values() for s in w.stopped.values() if s.head and _waits_for(s.head, topic, reason)
        ]
        heads = [s.head for s in waiting if s.head is not None]
        named = reason if topic in reason else f"{topic}: {reason}"
        if not heads:
            return f"{self.route}: {named}"[:MOST_SAID]
        count = sum(s.count for s in waiting)
        first = min(heads, key=lambda head: head.id)
        name = UUID(bytes=first.row[3]) if first.row else first.id
        return f"{self.route}: {count} read so far wait for {named}"[:MOST_SAID] + f" (first {name})"

    def warn(self) -> None:
        """Say once what makes this sink's acceptance worth less than it should be, and when that has ended."""
        said = self.sink.warnings() if self.flight.is_open else self.warned
        if said != self.warned:
            self.warned = said
            self.emit(ev.Warned("sink_durability", "; ".join(said) or f"sink {self.sink_name} is well", bool(said)))

    def give_back(self, count: int) -> None:
        """R13: stop reading so many lanes in all, those that leave already among them; `released` tells when they can
        go. A lane that need not leave any more is worked on."""
        for place, window in enumerate(sorted(self.windows.values(), key=lambda w: (not w.leaving, w.unpassed))):
            window.leaving = place < count

    def released(self) -> list[tuple[int, int]]:
        """Leaving lanes with nothing more to wait for; they are forgotten here, to be given back."""
        lanes = []
        for window in [w for w in self.windows.values() if w.leaving]:
            if self._nothing_moves(window):
                lanes.append((window.lane, window.term))
                self.judge.forget(window)
        return lanes

    def _nothing_moves(self, window: Window) -> bool:
        if (
            window.ready
            or window.gone
            or any(not e.has_failed and e.row is not None for e in window.sendable(NEVER, pipelined=True))
        ):
            return False
        mine = [*self.flight.in_order(), *self.flight.first, *self.judge.turns.parked()]
        if any(self.judge.window_of(item) is window for item in mine):
            return False
        return all(s.runs for s in window.hungry()) and not self.settler.is_due(window, 0.0)

    # ---------------------------------------------------------------- a step

    def step(self, now: float, may_send: bool) -> float:
        """Collect answers, settle, read, load, send; how long nothing will happen."""
        publisher = self.publisher
        worked = publisher.collect(now)
        publisher.check_deadline(now)
        if now >= self.settler.next_at:
            self.settle(now)
        if may_send:
            if now >= self.reader.next_at and self.next_definition is None:
                worked += self.reader.read(now)
            self.reader.load_hungry(now)
            if self.next_definition is None:
                worked += self._send(now)
        if worked:
            return 0.0
        return max(0.0, min(self.reader.next_at - now, ANSWER_POLL if self.flight.wire else self.reader.poll))

    def _send(self, now: float) -> int:
        count = sent = self.publisher.send_some(now, self.lease_holds)
        while sent:
            sent = self.publisher.send_some(now, self.lease_holds)
            count += sent
        return count

    def settle(self, now: float) -> None:
        """Move the cursors; a lane that turns out not to be ours is forgotten."""
        self.lose(self.settler.settle(now), "deposed", now)

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
        if self.flight.wire or not (self.reader.is_caught_up or not self.windows):
            return False
        waits_for_sink = self.judge.breaker.is_open
        return waits_for_sink or all(
            not w.ready and plan(w, 0.0) is None and not any(e.misses or e.tries == 0 for e in _unproven(w))
            for w in self.windows.values()
        )

    @property
    def awaits_retry(self) -> bool:
        """A refused message will be tried again by itself, when its back-off is over."""
        return any(e.tries > 0 for w in self.windows.values() for e in [*_unproven(w), *w.replays.values()])

    def close(self) -> None:
        """End the session; nothing is waited for any more."""
        if self.flight.wire:
            self.flight.sink.hang_up()
        else:
            self.flight.close()


def _unproven(window: Window) -> Iterable[Entry]:
    """Loaded messages that may still be delivered without waiting for a back-off of a refusal."""
    return (e for s in window.stopped.values() for e in s.live if not e.verdict)


def _waits_for(head: Entry, topic: str, reason: str) -> bool:
    """Its own last answer may be an earlier reason of the same destination."""
    return head.error == reason or f"topic {topic}:" in head.error
