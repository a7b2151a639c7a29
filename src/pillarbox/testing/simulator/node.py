"""One relay process of a world: the real engine, and what may happen to its process."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from uuid import UUID

from pillarbox.ports import Sink
from pillarbox.relay.engine import Engine
from pillarbox.testing.simulator.broker import SimSink
from pillarbox.testing.simulator.database import Connection
from pillarbox.testing.simulator.ledger import Broken, Copy

if TYPE_CHECKING:
    from pillarbox.testing.simulator.world import World

FEWEST_LOOKS = 4  # surveys after which a relay must know what a person did
GRAIN, COARSEST = 0.004, 0.12  # seconds between two steps in which nothing happens


class Killed(BaseException):
    """The process ends here and now."""


class Node:
    """A place where one relay process after another lives."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.engine: Engine | None = None
        self.sinks: list[SimSink] = []
        self.in_step = False
        self.doomed = False  # to be killed as soon as it comes to itself
        self.crash_at = ""  # a crash point
        self.paused_until = 0.0
        self.pause_at: tuple[str, float] | None = None  # before which statement, or its reply; for how long
        self.lose: dict[str, str] = {}  # statement -> before | after | late | dying
        self.ambush = ""  # what a person does just before the next settle that changes a hold row
        self.alive_until = float("-inf")
        self.jumped_until = float("-inf")  # until then it may be expelled and not know it
        self.surveys: deque[float] = deque(maxlen=FEWEST_LOOKS)
        self.stop_by: float | None = None
        self.again = False  # to be started when its end has come
        self._wake = float("inf")
        self._grain = GRAIN

    def __str__(self) -> str:
        return f"r{self.number}"

    # ---------------------------------------------------------------- its life

    def start(self) -> None:
        """A new process, as soon as the old one is gone."""
        if self.engine is not None:
            self.again = self.again or self.doomed or self.stop_by is not None
            return
        self.again = False
        world = self.world
        self.alive_until, self.stop_by = float("-inf"), None
        self.surveys.clear()
        connection, lacks = Connection(self), world.schedule.lacks
        self.engine = Engine(
            connection.source, connection.leases, connection.chores,
            {f"s{n}": _Maker(self, n) for n in range(len(world.brokers)) if (self.number, f"s{n}") not in lacks},
            config=world.config, clock=world.clock, emit=lambda event: world.tell("event", self, event),
            new_id=self._new_id,
        )  # fmt: skip
        world.tell("starts", self)
        self.wake_at(world.clock.time)

    def _new_id(self) -> UUID:
        return UUID(int=(self.world.ledger.next() << 16) + self.number)

    def sink_of(self, number: int, route: str) -> Sink:
        sink = SimSink(self, self.world.brokers[number], route)
        self.sinks.append(sink)
        return sink

    def die(self) -> None:
        """The process is gone, and with it everything it knew."""
        if self.in_step:
            self.doomed = True
            return
        self.world.tell("dies", self)
        self.world.ledger.faults = True
        self._end()

    def _end(self) -> None:
        for sink in self.sinks:
            sink.hang_up()
        self.sinks.clear()
        self.engine, self.doomed, self.crash_at, self.pause_at = None, False, "", None
        self.paused_until, self._wake = 0.0, float("inf")
        self.lose.clear()
        self.ambush = ""
        if self.again:
            self.start()

    def leave(self, grace: float) -> None:
        """Drain and end in good order."""
        if self.engine is not None and self.stop_by is None:
            self.stop_by = self.world.clock.time + grace
            self.wake_at(self.world.clock.time)

    # ---------------------------------------------------------------- its time

    def wake_at(self, time: float) -> None:
        """Take a step then, if not earlier."""
        if time < self._wake:
            self._wake = time
            self.world.at(time, self._due)

    def _due(self) -> None:
        now = self.world.clock.time
        if self.engine is None or now < self._wake:
            return
        self._wake = float("inf")
        if self.in_step:
            return
        if now < self.paused_until:
            self.wake_at(self.paused_until)
            return
        self.step()

    def step(self) -> None:
        engine = self.engine
        assert engine is not None
        activity, started = self.world.activity, self.world.clock.time
        self.in_step = True
        try:
            sleep = self._work(engine)
        except Killed:
            self.in_step = False
            self.die()
            return
        finally:
            self.in_step = False
        if self.doomed:
            self.die()
        elif self.engine is not None:
            self._check_hung_up(started)
            self._grain = GRAIN if self.world.activity != activity else min(COARSEST, 1.5 * self._grain)
            self.wake_at(self.world.clock.time + max(sleep, self._grain))

    def _work(self, engine: Engine) -> float:
        """A step as `Relay` takes it, the end included."""
        world = self.world
        world.active.append(self)
        try:
            if self.stop_by is None:
                return engine.step()
            if not engine.stopping:
                engine.begin_stop("simulated")
            if not engine.is_drained and world.clock.time < self.stop_by:
                return engine.step()
            if not engine.is_drained:
                world.ledger.faults = True
            engine.end()
            world.tell("left", self)
            self._end()
            return 0.0
        finally:
            world.active.pop()

    def pause_or_die(self, where: str) -> None:
        """Called at every statement and every opening: time may go by here, and the process may end."""
        self.world.statements += 1
        if self.doomed:
            raise Killed
        seconds = 0.0
        if self.pause_at is not None and self._pauses(where, self.pause_at[0]):
            seconds = self.pause_at[1]
            self.pause_at = None
            self.world.ledger.faults = True
            self.world.tell("pauses", self, where, round(seconds, 3))
        elif self.world.slow and self.world.dice.throw(f"slow {self}") < self.world.slow:
            seconds = self.world.dice.between(f"how slow {self}", 0.0005, 0.02)
        if seconds:
            self.world.run_until(self.world.clock.time + seconds)
            if self.doomed:
                raise Killed

    def _pauses(self, where: str, wanted: str) -> bool:
        """A pause before a take is for a take that takes something."""
        return wanted in (where, "any") and (wanted != "take" or self.world.has_free_lane())

    def reaches(self, point: str) -> None:
        """A crash point of the engine."""
        if self.crash_at == point or self.doomed:
            self.world.tell("crashes", self, point)
            raise Killed

    def pause(self, seconds: float) -> None:
        """It takes no step for so long."""
        self.paused_until = self.world.clock.time + seconds

    # ---------------------------------------------------------------- what it may do

    def granted(self, relay: UUID, lease: float) -> None:
        """The database has prolonged its lease."""
        assert self.engine is not None
        self.alive_until = self.world.clock.time + lease

    def check_may_send(self, route: str) -> None:
        """R3: nothing is handed over once the lease is over."""
        if self.world.clock.time >= self.alive_until:
            raise Broken(f"DEADLINE: {self} handed over on {route}, its lease had ended at {self.alive_until:.3f}")

    def _check_hung_up(self, started: float) -> None:
        """R3: a step that begins after the deadline leaves nothing unanswered, unless the lease is renewed."""
        assert self.engine is not None
        if started >= self.alive_until and any(s.flight.wire for s in self.engine.services.values()):
            raise Broken(f"DEADLINE: {self} has not hung up, its lease had ended at {self.alive_until:.3f}")

    def check_not_given_up(self, copy: Copy) -> None:
        """R9, R11: what is given up is not sent again by who must know it."""
        book = self.world.ledger.books[copy.route]
        state = book.states.get(copy.what)
        if state not in ("dead", "blocked", "skipped", "resolved") or not self.owns(copy):
            return
        by_person = book.by_person.get(copy.what)
        if by_person is None:
            raise Broken(f"GIVEN UP: {copy} is {state} and was sent again by the owner of its lane")
        if len(self.surveys) == FEWEST_LOOKS and self.surveys[0] > by_person:
            raise Broken(f"GIVEN UP: {copy} was sent long after a person made it {state}")

    def owns(self, copy: Copy) -> bool:
        engine, stored = self.engine, self.world.log.routes.get(copy.route)
        service = engine.services.get(copy.route) if engine is not None else None
        window = service.windows.get(copy.known.lane) if service is not None else None
        return window is not None and stored is not None and stored.terms[copy.known.lane] == window.term


class _Maker:
    """Makes a sink for the route whose service is being made."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number

    def __call__(self) -> Sink:
        engine = self.node.engine
        assert engine is not None
        name = f"s{self.number}"
        missing = [r.name for r in engine.routes if r.definition["sink"] == name
                   and r.state == "running" and r.name not in engine.services]  # fmt: skip
        return self.node.sink_of(self.number, missing[0])
