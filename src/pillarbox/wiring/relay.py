"""The public relay: an engine, its loop, and its end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from importlib.metadata import version
from types import TracebackType
from typing import Self

from pillarbox import events
from pillarbox.clock import Clock, SystemClock
from pillarbox.config import Config, load
from pillarbox.config.load import told
from pillarbox.errors import ConfigError, DatabaseUnavailable, IdentityDiffers, PillarboxError
from pillarbox.events import Event
from pillarbox.observability import fan_out
from pillarbox.observability.health import Pulse
from pillarbox.observability.log import log
from pillarbox.observability.metrics import Metrics
from pillarbox.ports import Sink
from pillarbox.relay.engine import Engine, awaits_retry
from pillarbox.wiring.loop import LONGEST_SLEEP, Loop
from pillarbox.wiring.maintenance import Maintenance
from pillarbox.wiring.proposal import Proposal
from pillarbox.wiring.sinks import sink_of, sink_problems
from pillarbox.wiring.storage import Working, storage_of
from pillarbox.wiring.watch import Watch

IN_VAIN = 10.0  # seconds without a delivery while a sink or a destination is away: as long as P11 lets healing take
SETTLED_TWICE = 2  # a look that finds nothing to do may fall between a chore and the next read


def _begun(trouble: PillarboxError) -> Event:
    if isinstance(trouble, IdentityDiffers):
        return events.Warned("identity_differs", str(trouble))
    return events.DatabaseLost(str(trouble))


def _over(trouble: PillarboxError, seconds: float) -> Event:
    if isinstance(trouble, IdentityDiffers):
        return events.Warned("identity_differs", "the installation is ours", active=False)
    return events.DatabaseBack(seconds)


def _compares(proposal: Proposal) -> Callable[[Engine], None]:
    return lambda engine: proposal.tell_differences(engine.routes)


class Relay:
    """Carries messages on from a thread of this process. Installs no signal handler and opens no port.

        with Relay("pillarbox.toml"):
            serve()

    A fatal error (a configuration or a schema that cannot work) is raised from `stop()`.
    """

    def __init__(
        self,
        config: Config | str | os.PathLike[str] | None = None,
        *,
        subscribers: tuple[Callable[[Event], None], ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self.config = config if isinstance(config, Config) else load(config)
        self.clock = clock or SystemClock()
        self.storage = storage_of(self.config)
        self.watch = Watch(self.storage.desk, self.clock)
        self.metrics = Metrics(version("pillarbox"), self.watch.look)
        self.pulse = Pulse(self.clock)
        self.delivered = 0
        self.emit = fan_out(self._count, self.pulse, self.metrics, log, *subscribers)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._fatal: BaseException | None = None

    # ---------------------------------------------------------------- in a thread

    def start(self) -> None:
        """Begin to work in a thread."""
        if self._thread is not None:
            raise RuntimeError("this relay has been started already")
        self._check()
        self._thread = threading.Thread(target=self._run_in_thread, name="pillarbox-relay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Drain, within `[relay] grace`, and end. Raises what ended the relay before, if anything did."""
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join()
        if self._fatal is not None:
            raise self._fatal

    def ask_to_stop(self) -> None:
        """Begin to drain; returns at once. Safe in a signal handler."""
        self._stop.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
            return
        self.ask_to_stop()  # the caller's own error is the one to be seen
        if self._thread is not None:
            self._thread.join()

    def _run_in_thread(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._fatal = error

    # ---------------------------------------------------------------- in this thread

    def run(self) -> int:
        """Work in this thread until `ask_to_stop`; how many were delivered."""
        self._check()
        return self._work()

    def run_once(self) -> int:
        """Deliver what can be delivered now by this process, and end; how many were."""
        self._check()
        return self._work(self._twice(lambda engine: engine.is_idle))

    def run_until_idle(self) -> int:
        """The same, and wait for the back-off of what was refused, and for lanes that another process owns, until it
        has emptied them or its lease has ended."""
        self._check()
        return self._work(self._twice(self._nothing_will_come))

    def _nothing_will_come(self, engine: Engine) -> bool:
        return engine.is_idle and not awaits_retry(engine) and not self._others_have_work(engine)

    def _check(self) -> None:
        errors = [problem for problem in sink_problems(self.config) if problem.level == "error"]
        if errors:
            raise ConfigError(told(errors), "`pillarbox config check` shows them all.")

    # ---------------------------------------------------------------- the loop

    def _work(self, is_done: Callable[[Engine], bool] | None = None) -> int:
        """Until it is done, or without `is_done` until it is asked to stop."""
        working = self.storage.working()
        maintenance = Maintenance(self.storage.upkeep, self.config.log, self.emit)
        try:
            self._shake_hands(working, patient=is_done is None)
            proposal = Proposal(self.config, working.routes, self.emit)
            engine = self._engine(working, proposal)
            grace = self.config.relay.grace
            loop = Loop(engine, working.source, self._stop, grace, tell=self, look=_compares(proposal))
            if is_done is None:
                maintenance.start()
                loop.run(lambda _engine: False)
            else:
                loop.run(is_done)
                if engine.lost_since is not None:
                    raise DatabaseUnavailable(engine.lost_reason)
                maintenance.round()  # where cron is all there is, retention must not stand still
        finally:
            maintenance.stop(timeout=1.0)
            working.close()
            self.watch.close()
        self.emit(events.Stopped(self.delivered))
        return self.delivered

    def _shake_hands(self, working: Working, *, patient: bool) -> None:
        """What is wrong with the tables at the start ends the relay; a database that is away is waited for."""
        waits_for: PillarboxError | None = None
        since = self.clock.mono()
        while not self._stop.is_set():
            self.pulse.beat()
            try:
                working.shake_hands()
            except (DatabaseUnavailable, IdentityDiffers) as error:
                if not patient:
                    raise
                if str(error) != str(waits_for):  # the cause may come after the first complaint
                    self.emit(_begun(error))
                waits_for = error
                self._stop.wait(1.0)
            else:
                if waits_for is not None:
                    self.emit(_over(waits_for, self.clock.mono() - since))
                return

    def _engine(self, working: Working, proposal: Proposal) -> Engine:
        return Engine(
            working.source,
            working.leases,
            working.chores,
            {name: self._maker(name) for name in self.config.sinks},
            config=self.config.relay,
            clock=self.clock,
            emit=self.emit,
            propose=proposal,
        )

    def _maker(self, name: str) -> Callable[[], Sink]:
        return lambda: sink_of(name, self.config.sinks[name])

    # ---------------------------------------------------------------- counting

    def _count(self, event: Event) -> None:
        if isinstance(event, events.Delivered):
            self.delivered += event.count

    def _twice(self, done: Callable[[Engine], bool]) -> Callable[[Engine], bool]:
        found = 0

        def twice(engine: Engine) -> bool:
            nonlocal found
            found = found + 1 if done(engine) else 0
            return found >= SETTLED_TWICE or in_vain(engine)

        in_vain = self._in_vain()
        return twice

    def _in_vain(self) -> Callable[[Engine], bool]:
        """The database, a sink or a destination is away, and nothing moves: what cannot wait for ever has waited long
        enough."""
        delivered, since = self.delivered, self.clock.mono()

        def in_vain(engine: Engine) -> bool:
            nonlocal delivered, since
            moves = self.delivered > delivered or any(service.flight.wire for service in engine.services.values())
            if moves or not (self.pulse.away or engine.lost_since is not None):
                delivered, since = self.delivered, self.clock.mono()
            return self.clock.mono() - since >= IN_VAIN

        return in_vain

    def _others_have_work(self, engine: Engine) -> bool:
        ours = {(name, lane) for name, service in engine.services.items() for lane in service.windows}
        seen = self.watch.look(older_than=LONGEST_SLEEP)
        return seen is None or any(
            lane.oldest is not None and lane.route in engine.services and (lane.route, lane.lane) not in ours
            for lane in seen.lanes
        )


class AsyncRelay:
    """The same for an asyncio program: the relay works in a thread, and nothing here blocks the loop.

    async with AsyncRelay("pillarbox.toml"):
        await serve()
    """

    def __init__(
        self,
        config: Config | str | os.PathLike[str] | None = None,
        *,
        subscribers: tuple[Callable[[Event], None], ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self.relay = Relay(config, subscribers=subscribers, clock=clock)

    @property
    def delivered(self) -> int:
        """How many messages have been acknowledged since the start."""
        return self.relay.delivered

    async def start(self) -> None:
        await asyncio.to_thread(self.relay.start)

    async def stop(self) -> None:
        self.relay.ask_to_stop()
        await asyncio.to_thread(self.relay.stop)

    async def run_once(self) -> int:
        return await asyncio.to_thread(self.relay.run_once)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.relay.__exit__, kind, error, trace)
