"""One lease a process: which lanes are mine, and until when I may work them (R1–R3, R12, R13, R15)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Iterable, Sequence

from pillarbox import crashpoints
from pillarbox import events as ev
from pillarbox.clock import Clock
from pillarbox.ports import Leases, RouteState, Survey, Taken
from pillarbox.relay.sharing import Orphans, share

DRIFT = 0.05  # how much slower our clock may run than the database's
TICKS = 5  # a lease


class Tenure:
    """The process's place among the relays of one installation."""

    def __init__(
        self, leases: Leases, clock: Clock, lease: float, emit: ev.Emit,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:  # fmt: skip
        self.leases = leases
        self.clock = clock
        self.lease = lease
        self.emit = emit
        self._new_id = new_id
        self.id = new_id()
        self.joined = False
        self.deadline = float("-inf")
        self.next_tick = float("-inf")
        self.orphans = Orphans()
        self._orphaned: set[str] = set()

    @property
    def tick(self) -> float:
        """Seconds between two renewals."""
        return self.lease / TICKS

    def may_send(self) -> bool:
        """R3: whether the lease surely holds now. Asked immediately before anything is handed over."""
        return self.clock.mono() < self.deadline

    def renew(self, serves: Sequence[str], says: Sequence[str]) -> bool:
        """Prolong the lease. False: expelled; everything is to be forgotten, and a new id joins at the next tick."""
        t0 = self.clock.mono()
        self.next_tick = t0 + self.tick
        crashpoints.here("renew.before")
        if not self.joined:
            self.leases.join(self.id, serves, self.lease)
            self.joined = True
        elif not self.leases.renew(self.id, serves, self.lease, says):
            self.expelled()
            return False
        crashpoints.here("renew.after")
        self.deadline = t0 + self.lease * (1 - DRIFT)
        return True

    def expelled(self) -> None:
        """Somebody deleted our row: what comes back is a new relay."""
        self.emit(ev.LeaseLost("expelled"))
        self.id = self._new_id()
        self.joined = False
        self.deadline = float("-inf")
        self.next_tick = float("-inf")

    def look(self) -> Survey:
        """Expel who is dead, before anyone takes; then see who does what."""
        gone = self.leases.expel()
        if gone:
            self.emit(ev.RelaysExpelled(gone))
            crashpoints.here("expel.after")
        return self.leases.survey()

    def wanted(self, survey: Survey, route: RouteState, held: int) -> tuple[int, int]:
        """How many lanes of a route to take, and how many to give back."""
        lanes = [x for x in survey.lanes if x.route == route.name]
        mine = share(self.id, route.name, lanes, survey.relays, self.lease)
        if mine.take == 0 and route.name in self._orphaned:
            return 1, 0
        return mine.take, min(mine.give_back, held)

    def unknown(self, survey: Survey, route: str, known: Container[int]) -> list[tuple[str, int]]:
        """Lanes of a route that are ours although we know nothing of them: the reply to a take or to a giving back
        was lost. They are in doubt like any other (R12)."""
        return [(route, x.lane) for x in survey.lanes if x.route == route and x.owner == self.id and x.lane not in known]

    def after_look(self, survey: Survey) -> None:
        """Count for how long lanes have been without an owner."""
        self._orphaned = self.orphans.after_tick(survey.lanes, survey.relays)

    def take(self, route: str, wanted: int) -> list[Taken]:
        """R1: raise the term; the caller fences the sink and loads hold rows in a later statement."""
        crashpoints.here("take.before")
        taken = self.leases.take(self.id, route, wanted)
        if taken:
            crashpoints.here("take.after_claim")
        return taken

    def retake(self, lanes: Iterable[tuple[str, int]]) -> list[Taken]:
        """R12: after a doubt, one's own lanes anew under higher terms."""
        crashpoints.here("recover.before")
        taken = self.leases.retake(self.id, list(lanes))
        crashpoints.here("recover.after")
        return taken

    def give_back(self, route: str, lanes: Sequence[tuple[int, int]]) -> None:
        """R13: let these (lane, term) go."""
        crashpoints.here("giveback.before")
        self.leases.give_back(self.id, route, lanes)
        crashpoints.here("giveback.after")
        self.emit(ev.LanesGivenBack(route, tuple(lane for lane, _ in lanes)))

    def give_back_unserved(self, survey: Survey, served: Container[str]) -> None:
        """Let go of lanes that are ours of routes that we do not serve: nobody else may take them."""
        mine: dict[str, list[tuple[int, int]]] = {}
        for lane in survey.lanes:
            if lane.owner == self.id and lane.route not in served:
                mine.setdefault(lane.route, []).append((lane.lane, lane.term))
        for route, lanes in mine.items():
            self.give_back(route, lanes)
