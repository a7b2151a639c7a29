"""Simulated sinks: what they do is scripted by the schedule, what arrives is written in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from pillarbox.errors import SinkUnavailable
from pillarbox.outcome import NO_ANSWERS, Answers, Failed, Handle, Outcome, Record, SinkClass, Traits
from pillarbox.testing.simulator.ledger import Broken, Copy
from pillarbox.testing.simulator.schedule import SinkSpec

if TYPE_CHECKING:
    from pillarbox.testing.simulator.node import Node
    from pillarbox.testing.simulator.world import World

LATE = 8.0  # how late what an ended session has left may still arrive


class Session:
    """From opening to hanging up."""

    __slots__ = ("busy_until", "inbox", "is_dead", "is_open", "stopped", "told", "unanswered")

    def __init__(self) -> None:
        self.is_open = True
        self.stopped = False  # fail-stop: nothing behind the first failure is accepted
        self.is_dead = False  # a message has killed it, or the sink went away
        self.told = False
        self.busy_until = 0.0
        self.unanswered: dict[Handle, Copy] = {}
        self.inbox: list[tuple[float, int, Copy, str]] = []  # answers under way


class Broker:
    """One destination system, shared by all relays."""

    def __init__(self, world: World, number: int, spec: SinkSpec) -> None:
        self.world = world
        self.name = f"s{number}"
        self.spec = spec
        self.sessions: set[Session] = set()
        self.flying: list[tuple[float, int, Copy, Session]] = []
        self.outage = ""  # closed | unavailable | silent
        self.outages = 0
        self.topics_away: set[str] = set()
        self.keys_away: set[str] = set()
        self.fences: dict[tuple[str, int], int] = {}
        self.tried: dict[tuple[int, int], int] = {}
        self._n = 0

    @property
    def in_outage(self) -> int:
        """The number of the outage of the whole sink; 0 while there is none."""
        return self.outages if self.outage else 0

    def begin_outage(self, kind: str) -> None:
        self.advance()
        self.outage = kind
        self.outages += 1
        if kind == "closed":
            for session in list(self.sessions):
                self.break_session(session, "the sink went away")

    def end_outage(self) -> None:
        self.advance()
        self.outage = ""

    def comes_back(self, away: set[str], what: str) -> None:
        self.advance()
        away.discard(what)

    # ---------------------------------------------------------------- messages under way

    def launch(self, copy: Copy, session: Session) -> None:
        """It is on its way."""
        dice, now = self.world.dice, self.world.clock.time
        name = f"fly {copy.route} {copy.known.label}"
        arrive = now + dice.between(name, 0.001, self.spec.delay)
        if self.spec.delivery is not SinkClass.SINGLE:
            arrive = session.busy_until = max(arrive, session.busy_until)
        copy.arrive_at = arrive
        copy.ready_at = arrive + dice.between(name, 0.001, self.spec.delay)
        copy.outage = self.in_outage
        session.unanswered[self.handle(copy)] = copy
        self._push(copy, session)

    @staticmethod
    def handle(copy: Copy) -> Handle:
        id_, generation = copy.what
        return copy.what if generation else id_

    def _push(self, copy: Copy, session: Session) -> None:
        self._n += 1
        heappush(self.flying, (copy.arrive_at, self._n, copy, session))

    def advance(self) -> None:
        """Let everything arrive that has been long enough on its way."""
        now = self.world.clock.time
        while self.flying and self.flying[0][0] <= now:
            at, _, copy, session = heappop(self.flying)
            if not session.stopped and not session.is_dead:
                self._arrives(copy, session, at)

    def _arrives(self, copy: Copy, session: Session, at: float) -> None:
        if self.spec.fenced and copy.fence < self.fences.get((copy.route, copy.known.lane), 0):
            return
        outcome = self._outcome(copy)
        if outcome != "accepted":
            self.world.ledger.faults = True
        if outcome in ("accepted", "unheard"):
            self.world.tell("arrives", copy)
            copy.outcome = "accepted"
            self.world.ledger.accepts(copy, at)
        elif outcome == "killed":
            self.break_session(session, f"killed by {copy.known.label}", copy)
            return
        else:
            copy.outcome = copy.outcome or outcome
        if outcome not in ("accepted", "unheard") and self.spec.delivery is SinkClass.FAIL_STOP:
            session.stopped = True
        if outcome not in ("unheard", "silent") and session.is_open:
            self._n += 1
            heappush(session.inbox, (copy.ready_at, self._n, copy, outcome))

    def _outcome(self, copy: Copy) -> str:
        if self.outage == "silent":
            return "unheard" if self.world.dice.throw(f"silent {copy}") < 0.5 else "silent"
        if self.outage == "closed":
            return "silent"
        known = copy.known
        if self.outage or known.topic in self.topics_away or known.key in self.keys_away:
            return "unavailable"
        return self._nature(copy)

    def _nature(self, copy: Copy) -> str:
        nature, _, number = copy.known.nature.partition(":")
        n = self.tried[copy.what] = self.tried.get(copy.what, 0) + 1
        mended = copy.what[1] > 0 and self.world.dice.throw(f"mended {copy}") < 0.6  # why somebody replays it
        if not nature or nature == "unencodable" or (number and n > int(number)) or mended:
            return "accepted"
        if nature == "unknown":
            return "unheard" if self.world.dice.throw(f"unknown {copy}") < 0.3 else "unknown"
        return {"poison": "refused", "refuse": "refused", "kill": "killed"}[nature]

    # ---------------------------------------------------------------- sessions

    def break_session(self, session: Session, why: str, killer: Copy | None = None) -> None:
        """The connection is lost: whoever listens hears `unknown` for all that is unanswered, or for one, or nothing."""
        if session.is_dead:
            return
        session.is_dead = True
        self.world.tell("session breaks", why)
        ready = self.world.clock.time + 0.001
        told = [c for c in session.unanswered.values() if not any(c is x[2] for x in session.inbox)]
        how = self.world.dice.throw(f"breaks {why}")
        if how < 0.25:
            told = told[:1] if killer is None else [killer]
        elif how < 0.35:
            told = []
        for copy in told:
            self._n += 1
            heappush(session.inbox, (ready, self._n, copy, "unknown"))

    def leave_behind(self, session: Session) -> None:
        """A session has ended: what it had on the wire may still arrive, later."""
        self.advance()
        session.is_open = False
        self.sessions.discard(session)
        left = sorted(x for x in self.flying if x[3] is session)
        if not left:
            return
        self.flying = sorted(x for x in self.flying if x[3] is not session)
        dice = self.world.dice
        how, at = dice.throw(f"left {left[0][2]}"), self.world.clock.time
        for _, _, copy, _ in left:
            if how < 0.4 or (how < 0.7 and dice.throw(f"lost {copy}") < 0.3):
                if self.spec.delivery is SinkClass.FAIL_STOP:
                    break
                continue
            at = max(at, self.world.clock.time) + dice.between(f"late {copy}", 0.0, LATE if how < 0.85 else 0.1)
            copy.arrive_at = at
            self._push(copy, session)


class SimSink:
    """The port, as one relay's route has it."""

    def __init__(self, node: Node, broker: Broker, route: str) -> None:
        spec = broker.spec
        self.traits = Traits(spec.delivery, fenced=spec.fenced, max_in_flight=spec.max_in_flight)
        self.node = node
        self.broker = broker
        self.route = route
        self.world = node.world
        self.session: Session | None = None
        self.fences: dict[int, int] = {}

    def open(self) -> None:
        self.node.pause_or_die("open")
        self.broker.advance()
        if self.broker.outage == "closed":
            raise SinkUnavailable("simulated: the sink is away")
        self.session = Session()
        self.broker.sessions.add(self.session)

    def away(self, topics: Sequence[str]) -> dict[str, str]:
        broker = self.broker
        if not broker.spec.asks_topics or not broker.topics_away:
            return {}
        found = {topic: "simulated: no such topic" for topic in topics if topic in broker.topics_away}
        for id_, known in self.world.ledger.books[self.route].wanted.items() if found else ():
            if known.topic in found:
                failing = self.world.ledger.books[self.route].failing.get(id_)
                self.world.ledger.fails(self.route, id_, since=failing is not None and failing.state == "+", outage=0)
        return found

    def send(self, batch: Sequence[Record]) -> None:
        session, broker = self.session, self.broker
        if session is None or not session.is_open:
            raise Broken("SESSION: something was handed over without an open session")
        broker.advance()
        self.node.check_may_send(self.route)
        if len(session.unanswered) + len(batch) > self.traits.max_in_flight:
            raise Broken(f"FLIGHT: more than {self.traits.max_in_flight} in flight")
        copies = [self._copy(record, session) for record in batch]
        for copy in copies:
            self.world.ledger.sends(copy, self.traits.delivery)
            self.world.tell("send", self.node, copy)
            broker.launch(copy, session)
        self.node.wake_at(min(copy.ready_at for copy in copies))
        self.node.wake_at(max(copy.ready_at for copy in copies))

    def _copy(self, record: Record, session: Session) -> Copy:
        handle, topic, key, payload, _headers = record
        what = handle if isinstance(handle, tuple) else (handle, 0)
        known = self.world.ledger.known.get(what[0])
        if known is None:
            raise Broken(f"GHOST: id {what} was never committed")
        if (key, payload) != (None if known.key is None else known.key.encode(), b"%d" % known.label):
            raise Broken(f"IDENTITY: {known.label} was sent as {key!r} {payload!r} to {topic!r}")
        copy = Copy(self.route, what, known)
        copy.session, copy.fence = session, self.fences.get(known.lane, 0)
        copy.owned = self.node.owns(copy) or self.world.clock.time > self.node.jumped_until
        self.node.check_not_given_up(copy)
        return copy

    def answers(self, timeout: float) -> Answers:
        session = self.session
        if session is None:
            return NO_ANSWERS
        self.broker.advance()
        accepted: list[Handle] = []
        failed: list[Failed] = []
        now = self.world.clock.time
        while session.inbox and session.inbox[0][0] <= now:
            _, _, copy, outcome = heappop(session.inbox)
            self._hear(session, copy, outcome, accepted, failed)
        for answer in failed:
            if answer.outcome is Outcome.UNKNOWN and len(failed) == 1 and not session.unanswered:
                self._fails_alone(answer.handle)
        return Answers(accepted, failed)

    def _hear(self, session: Session, copy: Copy, outcome: str, accepted: list[Handle], failed: list[Failed]) -> None:
        ledger, handle = self.world.ledger, self.broker.handle(copy)
        del session.unanswered[handle]
        copy.heard = True
        self.world.tell("hears", self.node, outcome, copy)
        if outcome == "accepted":
            accepted.append(handle)
            ledger.hears_accepted(copy)
            return
        failed.append(Failed(handle, Outcome(outcome), f"simulated: {outcome}"))
        ledger.excuse(copy)
        if outcome == "refused":
            ledger.refuses(copy)
        elif outcome == "unavailable":
            ledger.fails(self.route, copy.what[0], since=copy.since, outage=copy.outage or self.broker.in_outage)

    def _fails_alone(self, handle: Handle) -> None:
        id_ = handle if isinstance(handle, int) else handle[0]
        failing = self.world.ledger.books[self.route].failing.get(id_)
        since = failing is not None and failing.state == "+"
        self.world.ledger.fails(self.route, id_, since=since, outage=self.broker.in_outage)

    def hang_up(self) -> None:
        session, self.session = self.session, None
        if session is None:
            return
        self.broker.leave_behind(session)
        left = list(session.unanswered.values())
        for copy in left:
            self.world.ledger.excuse(copy)
        if left and not self.world.ledger.faults:
            raise Broken(f"HANG UP: {len(left)} were unanswered, and nothing had failed")
        if len(left) == 1:
            self._fails_alone(self.broker.handle(left[0]))

    def fence(self, route: str, lane: int, term: int) -> None:
        self.broker.advance()
        self.fences[lane] = term
        at = (route, lane)
        self.broker.fences[at] = max(term, self.broker.fences.get(at, 0))

    def warnings(self) -> list[str]:
        return []

    def close(self) -> None:
        if self.session is not None and self.session.unanswered:
            raise Broken("CLOSE: a session was closed with messages unanswered")
        self.hang_up()
