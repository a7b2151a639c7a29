"""The relay of one process: its lease, its routes, the chores. `step() -> seconds to sleep`; owns no thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID, uuid4

from pillarbox import events as ev
from pillarbox.clock import Clock
from pillarbox.config import RelayConfig
from pillarbox.errors import DatabaseUnavailable, PillarboxError, Retryable
from pillarbox.ports import Chores, InDoubt, Leases, RouteState, Sink, Source, Survey, Taken
from pillarbox.relay.chores import ChoreWork
from pillarbox.relay.service import RouteService
from pillarbox.relay.tenure import Tenure
from pillarbox.retry import backoff

Propose = Callable[[Survey], None]
RECONNECT_FIRST, RECONNECT_LONGEST = 0.05, 1.0


class Engine:
    """Reads, sends and settles whatever lanes this process owns."""

    def __init__(
        self, source: Source, leases: Leases, chores: Chores, sinks: Mapping[str, Callable[[], Sink]],
        *, config: RelayConfig, clock: Clock, emit: ev.Emit, propose: Propose | None = None,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:  # fmt: skip
        self.source = source
        self.leases = leases
        self.chores = ChoreWork(chores, config, emit)
        self.sinks = sinks
        self.config = config
        self.clock = clock
        self.emit = emit
        self.propose = propose
        self.tenure = Tenure(leases, clock, config.lease, emit, new_id)
        self.services: dict[str, RouteService] = {}
        self.in_doubt: set[tuple[str, int]] = set()
        self.recovering = False
        self.stopping = False
        self.lost_since: float | None = None
        self.lost_reason = ""
        self._failures = 0
        self._retry_at = float("-inf")
        self.routes: list[RouteState] = []
        self.looked = False

    # ---------------------------------------------------------------- a step

    def step(self) -> float:
        """Do what is due; how long nothing will be."""
        now = self.clock.mono()
        if now < self._retry_at:
            self._check_deadline(now)
            return min(self._retry_at - now, RECONNECT_FIRST)
        try:
            sleep = self._step(now)
        except InDoubt:
            self._doubt_all("another crash token", now)
            return 0.0
        except Retryable:
            self._doubt_all("the database asked to try again", now)
            return RECONNECT_FIRST
        except PillarboxError as e:
            self._database_lost(e, now)
            return RECONNECT_FIRST
        if self.lost_since is not None:
            self.emit(ev.DatabaseBack(now - self.lost_since))
            self.lost_since, self.lost_reason, self._failures = None, "", 0
        return sleep

    def _step(self, now: float) -> float:
        if now >= self.tenure.next_tick or self.recovering:
            self._tick(now)
        self._check_deadline(now)
        sleep = max(0.0, self.tenure.next_tick - now)
        for service in list(self.services.values()):
            sleep = min(sleep, service.step(now, self.tenure.may_send()))
            released = service.released()
            if released:
                self.tenure.give_back(service.route, released)
        if not self.stopping and self.tenure.may_send():
            self.chores.step(now, self.routes)
        return sleep

    def _check_deadline(self, now: float) -> None:
        """R3: past the deadline nothing may be unanswered; the lanes are taken anew when the lease is renewed."""
        if self.tenure.joined and not self.tenure.may_send():
            self._doubt_all("deadline", now)

    def _doubt_all(self, reason: str, now: float) -> None:
        """R12: nothing in memory is trusted."""
        for service in self.services.values():
            self.in_doubt.update((service.route, lane) for lane in service.lose_all(reason, now))
        self.recovering = True

    def _database_lost(self, error: PillarboxError, now: float) -> None:
        self._doubt_all("in doubt", now)
        self._failures += 1
        self._retry_at = now + backoff(self._failures, RECONNECT_FIRST, 2.0, RECONNECT_LONGEST)
        told, self.lost_reason = self.lost_reason, str(error)
        self.lost_since = now if self.lost_since is None else self.lost_since
        if self.lost_reason != told:  # the cause often comes after "the connection was closed"
            self.emit(ev.DatabaseLost(self.lost_reason))
            if not isinstance(error, DatabaseUnavailable):
                self.emit(ev.Warned("database", self.lost_reason))

    # ---------------------------------------------------------------- a tick

    def _tick(self, now: float) -> None:
        """Renew, expel, see who does what, share the lanes."""
        if not self.looked:
            self._first_look()
        says = [text for service in self.services.values() for text in service.says()]
        if not self.tenure.renew(sorted(r.name for r in self.routes if self._serves(r)), says):
            self.in_doubt.clear()
            for service in self.services.values():
                service.lose_all("expelled", now)
            return
        if self.recovering:
            self._recover(now)
        survey = self.tenure.look()
        self.tenure.after_look(survey)
        self._take_up_routes(survey, now)
        self.tenure.give_back_unserved(survey, self.services)
        for service in self.services.values():
            service.look(survey, now)
            service.warn()
            if not self.stopping:
                self._share(service, survey, now)

    def _first_look(self) -> None:
        survey = self.leases.survey()
        if self.propose is not None:
            self.propose(survey)
            survey = self.leases.survey()
        self.routes = survey.routes
        self.looked = True

    def _serves(self, route: RouteState) -> bool:
        return route.state == "running" and _sink_of(route) in self.sinks

    def _recover(self, now: float) -> None:
        taken = self.tenure.retake(self.in_doubt)
        self.in_doubt.clear()
        self.recovering = False
        if not self.stopping:
            self._take_in(taken, now)

    def _take_in(self, taken: list[Taken], now: float) -> None:
        for service in self.services.values():
            mine = [t for t in taken if t.route == service.route]
            if mine:
                service.take_in(mine, now)
                self.emit(ev.LanesTaken(service.route, tuple(sorted(t.lane for t in mine))))

    def _take_up_routes(self, survey: Survey, now: float) -> None:
        """What the database says is what is executed; a sink we lack is another relay's business."""
        self.routes = survey.routes
        stored = {r.name: r for r in survey.routes}
        for name in [n for n, s in self.services.items() if n not in stored or s.sink_name != _sink_of(stored[n])]:
            self._drop_service(name, now)
        for route in survey.routes:
            service = self.services.get(route.name)
            if service is None and self._serves(route):
                self.services[route.name] = RouteService(
                    route.name, route.definition, self.source, self.leases, self.sinks[_sink_of(route)](),
                    config=self.config, clock=self.clock, emit=self.emit, lease_holds=self.tenure.may_send,
                )  # fmt: skip
            elif service is not None and service.take_up(route.definition):
                self.in_doubt.update((service.route, lane) for lane in service.change(now))
                self.recovering = True

    def _drop_service(self, name: str, now: float) -> None:
        """Its route is gone, or goes to another sink: its lanes are taken anew if they are still there."""
        service = self.services[name]
        try:
            service.settle(now)
        finally:  # whatever became of that: nothing of it stays on a wire
            del self.services[name]
            self.in_doubt.update((name, lane) for lane in service.lose_all("route changed", now))
            self.recovering = True
            service.close()

    def _share(self, service: RouteService, survey: Survey, now: float) -> None:
        route = next(r for r in survey.routes if r.name == service.route)
        if not self._serves(route):
            service.give_back(len(service.windows))
            return
        take, give = self.tenure.wanted(survey, route, len(service.windows))
        unknown = self.tenure.unknown(survey, service.route, service.windows)
        service.give_back(give)
        if unknown:
            self._take_in(self.tenure.retake(unknown), now)
        elif take:
            self._take_in(self.tenure.take(service.route, take), now)

    # ---------------------------------------------------------------- the end

    def begin_stop(self, reason: str) -> None:
        """R13: read nothing more; send what was read, settle, give the lanes back."""
        self.stopping = True
        self.emit(ev.Stopping(reason))
        for service in self.services.values():
            service.give_back(len(service.windows))

    @property
    def is_drained(self) -> bool:
        """Nothing is owned any more."""
        return not any(s.windows for s in self.services.values())

    def end(self) -> None:
        """Drained or out of time: settle what is finished, let everything go, close every session."""
        now = self.clock.mono()
        try:
            for service in self.services.values():
                service.settle(now)
                lanes = [(w.lane, w.term) for w in service.windows.values()]
                service.lose_all("stopped", now)
                if lanes:
                    self.tenure.give_back(service.route, lanes)
            if self.tenure.joined:
                self.leases.renew(self.tenure.id, [], 0.0)  # our share is free at once
                self.leases.expel()
        except (PillarboxError, InDoubt):
            pass  # the lease ends by itself
        for service in self.services.values():
            service.close()

    @property
    def is_idle(self) -> bool:
        """Nothing more can be delivered now: the log is read to its end, and what is left waits for a sink, a
        back-off or a person."""
        return self.looked and not self.recovering and all(s.is_idle for s in self.services.values())


def awaits_retry(engine: Engine) -> bool:
    """Whether a refused message will be tried again by itself."""
    return any(service.awaits_retry for service in engine.services.values())


def _sink_of(route: RouteState) -> str:
    return str(route.definition.get("sink", ""))
