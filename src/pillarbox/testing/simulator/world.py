"""A simulated world: relays on one database, their sinks, producers, people, and time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from heapq import heappop, heappush
from random import Random
from typing import Any

from pillarbox import crashpoints
from pillarbox.config import RelayConfig
from pillarbox.ports import RowTuple, Taken
from pillarbox.routing import compile_match, topic_and_rule
from pillarbox.testing.simulator.acts import ACTS, act_on_hold
from pillarbox.testing.simulator.broker import Broker
from pillarbox.testing.simulator.clock import Dice, SimClock
from pillarbox.testing.simulator.database import SimLog, known_of
from pillarbox.testing.simulator.ledger import Book, Broken, Known, Ledger
from pillarbox.testing.simulator.node import Node
from pillarbox.testing.simulator.schedule import Act, Schedule

DEFAULTS: Mapping[str, Any] = {
    "lease": 2.0, "attempts": 3, "backoff_max": 2.0, "send_timeout": 2.0, "batch": 10, "window": 10, "poll_max": 0.2,
}  # fmt: skip
MOST_STEPS = 200_000


class World:
    """Everything a schedule needs to happen."""

    def __init__(self, schedule: Schedule, *, trace: Callable[[str], None] | None = None) -> None:
        self.schedule = schedule
        self.clock = SimClock()
        self.dice = Dice(schedule.seed)
        self.config = RelayConfig(**{**DEFAULTS, **schedule.config})
        self.slow = 0.1 if schedule.seed % 2 else 0.0  # share of the statements that take time
        self.ledger = Ledger()
        self.ledger.attempts = self.config.attempts
        self.log = SimLog(schedule.lanes, clock=self.clock, random=Random(schedule.seed))
        self.log.world = self
        self.order: list[list[Known]] = [[] for _ in range(schedule.lanes)]
        self.natures: dict[int, str] = {}
        self.definitions: dict[str, list[Mapping[str, Any]]] = {}
        self.brokers = [Broker(self, n, spec) for n, spec in enumerate(schedule.sinks)]
        self.nodes = [Node(self, n) for n in range(schedule.relays)]
        self.active: list[Node] = []
        self.database_away = False
        self.held_ever = False
        self.statements = 0
        self.activity = 0
        self.moved_at = 0.0  # when a cursor moved last
        self.trace = trace
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0
        self._prepare()

    def _prepare(self) -> None:
        schedule = self.schedule
        for name, definition in schedule.routes.items():
            self.define(name, definition)
            self.log.store_route(name, dict(definition))
        for act in schedule.acts:
            self.natures.update({message.label: message.nature for message in act.messages})
            self.at(act.at, self._doing(act))
        for node in self.nodes:
            node.start()

    def define(self, route: str, definition: Mapping[str, Any]) -> None:
        """From now on the route may have this definition."""
        self.definitions.setdefault(route, []).append(definition)
        ordered = definition.get("order", "key") == "key"
        book = self.ledger.books.get(route)
        if book is None:
            self.ledger.books[route] = Book(route, ordered=ordered)
        elif not ordered:
            book.places.clear()
            book.loosened = book.loosened or book.ordered
            book.ordered = False

    def _doing(self, act: Act) -> Callable[[], None]:
        return lambda: self._do(act)

    def _do(self, act: Act) -> None:
        self.tell("world", act)
        if act.is_fault:
            self.ledger.faults = True
        ACTS[act.what](self, act)

    # ---------------------------------------------------------------- time

    def at(self, time: float, what: Callable[[], None]) -> None:
        self._n += 1
        heappush(self._events, (time, self._n, what))

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        self.at(self.clock.time + seconds, lambda: (what(), None)[1])

    def run_until(self, time: float) -> None:
        """Let everything happen that happens until then; a relay inside a statement is in here, too."""
        while self._events and self._events[0][0] <= time:
            at, n, what = heappop(self._events)
            if n > MOST_STEPS:
                raise Broken("LIVELOCK: too many steps")
            self.clock.time = max(self.clock.time, at)
            what()
        self.clock.time = max(self.clock.time, time)

    # ---------------------------------------------------------------- what happened

    def tell(self, *words: object) -> None:
        """Count it as activity, and tell it if somebody listens."""
        if words[0] not in ("event", "asks"):
            self.activity += 1
        if self.trace is not None:
            self.trace(f"{self.clock.time:9.4f}  " + " ".join(map(str, words)))

    def advance(self) -> None:
        for broker in self.brokers:
            broker.advance()

    def progress(self) -> None:
        self.moved_at = self.clock.time

    def committed(self, row: RowTuple, place: int) -> None:
        """A row has become visible."""
        label = int(row[6])
        wanted, optional, topic = [], [], ""
        for name, definitions in self.definitions.items():
            tests = [compile_match(definition) for definition in definitions]
            fits = [test is None or test(row) for test in tests]
            if all(fits):
                wanted.append(name)
            elif any(fits):
                optional.append(name)
            topic = topic or topic_and_rule(definitions[-1], row)[0]
        known = known_of(row, place, topic, self.natures.get(label, ""))
        self.order[row[1]].append(known)
        self.ledger.committed(known, wanted, optional)

    @property
    def commits_end(self) -> float:
        """When the last transaction ends."""
        return max((act.at + act.seconds for act in self.schedule.acts if act.what in ("add", "later")), default=0.0)

    def is_away(self, route: str, known: Known) -> bool:
        """Whether this message's destination is away."""
        broker = self.brokers[int(self.definitions[route][-1]["sink"][1:])]
        return known.topic in broker.topics_away or known.key in broker.keys_away

    def note_holds(self, route: str) -> None:
        """Look at the hold rows of a route."""
        states = {}
        for hold in self.log.holds.values():
            if hold.route == route:
                for id_ in hold.held.ids:
                    states[id_, hold.held.generation] = hold.held.state
        self.ledger.books[route].states = states
        self.held_ever = self.held_ever or bool(states)

    def operate(self, route: str, verb: str, seqs: list[int]) -> None:
        """A person comes at the worst moment."""
        act_on_hold(self, route, verb, seqs)

    def has_free_lane(self) -> bool:
        owners = [owner for route in self.log.routes.values() for owner in route.owners]
        return any(owner is None or owner not in self.log.processes for owner in owners)

    def taken(self, taken: Taken, node: Node) -> None:
        self.tell("takes", node, taken.route, taken.lane, "term", taken.term)
        self.ledger.taken_anew(taken.route, taken.lane)

    def given_back(self, route: str, lanes: list[int], node: Node) -> None:
        self.tell("gives back", node, route, lanes)

    @contextmanager
    def crash_points(self) -> Iterator[None]:
        """The engine's crash points lead here."""
        before = crashpoints.here

        def here(point: str) -> None:
            if self.active:
                self.active[-1].reaches(point)

        crashpoints.here = here
        try:
            yield
        finally:
            crashpoints.here = before
