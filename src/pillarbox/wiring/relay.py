"""The public relay: an engine, its loop, and its end."""

from __future__ import annotations

import asyncio
import os
import socket
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
from pillarbox.ports import Sink, Source
from pillarbox.relay.engine import Engine
from pillarbox.wiring.maintenance import Maintenance
from pillarbox.wiring.proposal import Proposal
from pillarbox.wiring.sinks import sink_of, sink_problems
from pillarbox.wiring.storage import Working, storage_of
from pillarbox.wiring.watch import Watch

LONGEST_SLEEP = 0.1  # seconds until a stop is noticed
COUNT_EACH = 0.25  # seconds between two counts of what is in flight
SETTLED_TWICE = 2  # a look that finds nothing to do may fall between a chore and the next read


def _never(_engine: Engine) -> bool:
    return False


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
            self._work(_never)
        except BaseException as error:
            self._fatal = error

    # ---------------------------------------------------------------- in this thread

    def run(self) -> int:
        """Work in this thread until `ask_to_stop`; how many were delivered."""
        self._check()
        return self._work(_never)

    def run_once(self) -> int:
        """Deliver what can be delivered now by this process, and end; how many were."""
        self._check()
        return self._work(self._twice(lambda engine: engine.is_idle))

    def run_until_idle(self) -> int:
        """The same, and wait for lanes that another process owns, until it has emptied them or its lease has ended."""
        self._check()
        return self._work(self._twice(lambda engine: engine.is_idle and not self._others_have_work(engine)))

    def _check(self) -> None:
        errors = [problem for problem in sink_problems(self.config) if problem.level == "error"]
        if errors:
            raise ConfigError(told(errors), "`pillarbox config check` shows them all.")

    # ---------------------------------------------------------------- the loop

    def _work(self, is_done: Callable[[Engine], bool]) -> int:
        working = self.storage.working()
        maintenance = Maintenance(self.storage.upkeep, self.config.log, self.emit)
        try:
            self._shake_hands(working)
            engine = self._engine(working)
            maintenance.start()
            self._loop(engine, is_done, working.source)
        finally:
            maintenance.stop(timeout=1.0)
            working.close()
            self.watch.close()
        self.emit(events.Stopped(self.delivered))
        return self.delivered

    def _shake_hands(self, working: Working) -> None:
        """What is wrong with the tables at the start ends the relay; a database that is away is waited for."""
        lost = False
        while not self._stop.is_set():
            self.pulse.beat()
            try:
                working.shake_hands()
            except (DatabaseUnavailable, IdentityDiffers) as error:
                if not lost:
                    self._tell_waiting(error)
                lost = True
                self._stop.wait(1.0)
            else:
                if lost:
                    self.emit(events.Warned("identity_differs", "it is ours", active=False))
                return

    def _tell_waiting(self, error: PillarboxError) -> None:
        if isinstance(error, IdentityDiffers):
            self.emit(events.Warned("identity_differs", str(error)))
        else:
            self.emit(events.DatabaseLost(str(error)))

    def _engine(self, working: Working) -> Engine:
        return Engine(
            working.source,
            working.leases,
            working.chores,
            {name: self._maker(name) for name in self.config.sinks},
            config=self.config.relay,
            clock=self.clock,
            emit=self.emit,
            propose=Proposal(self.config, working.routes, self.emit),
        )

    def _maker(self, name: str) -> Callable[[], Sink]:
        return lambda: sink_of(name, self.config.sinks[name])

    def _loop(self, engine: Engine, is_done: Callable[[Engine], bool], source: Source) -> None:
        try:
            self._work_on(engine, is_done, source)
        except BaseException:
            engine.end()  # what is ours is free for others at once
            raise
        self._drain(engine)

    def _work_on(self, engine: Engine, is_done: Callable[[Engine], bool], source: Source) -> None:
        started, count_at = False, self.clock.mono()
        while not self._stop.is_set():
            sleep = self._step(engine)
            if engine.looked and not started:
                started = True
                self._tell_started(engine)
            if is_done(engine):
                return
            if self.clock.mono() >= count_at:
                self._take_counts(engine)
                count_at = self.clock.mono() + COUNT_EACH
            self._rest(engine, source, min(sleep, LONGEST_SLEEP))

    def _tell_started(self, engine: Engine) -> None:
        names = tuple(sorted(engine.services))
        self.emit(events.Started(str(engine.tenure.id), socket.gethostname(), version("pillarbox"), names))

    def _step(self, engine: Engine) -> float:
        self.pulse.beat()
        return engine.step()

    def _rest(self, engine: Engine, source: Source, seconds: float) -> None:
        if seconds <= 0:
            return
        if engine.lost_since is not None:
            self.clock.sleep(seconds)
            return
        try:
            source.wait(seconds)
        except PillarboxError:
            self.clock.sleep(seconds)  # the next step meets the same, and tells it

    def _drain(self, engine: Engine) -> None:
        """R13: within the grace period."""
        engine.begin_stop("asked to" if self._stop.is_set() else "nothing is left to do")
        until = self.clock.mono() + self.config.relay.grace
        while not engine.is_drained and self.clock.mono() < until:
            if (sleep := self._step(engine)) > 0:
                self.clock.sleep(min(sleep, LONGEST_SLEEP))
        engine.end()
        self._take_counts(engine)

    # ---------------------------------------------------------------- counting

    def _count(self, event: Event) -> None:
        if isinstance(event, events.Delivered):
            self.delivered += event.count

    def _take_counts(self, engine: Engine) -> None:
        self.metrics.count(
            [
                (name, service.sink_name, len(service.windows), len(service.flight.wire))
                for name, service in engine.services.items()
            ]
        )

    def _twice(self, done: Callable[[Engine], bool]) -> Callable[[Engine], bool]:
        found = 0

        def twice(engine: Engine) -> bool:
            nonlocal found
            found = found + 1 if done(engine) else 0
            return found >= SETTLED_TWICE

        return twice

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

    def __init__(self, config: Config | str | os.PathLike[str] | None = None, **options: object) -> None:
        self.relay = Relay(config, **options)  # type: ignore[arg-type]

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
