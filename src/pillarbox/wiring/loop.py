"""The one place that loops: steps the engine, rests, counts, and drains at the end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import Protocol

from pillarbox import events
from pillarbox.clock import Clock
from pillarbox.errors import PillarboxError
from pillarbox.events import Emit
from pillarbox.observability.health import Pulse
from pillarbox.observability.metrics import Metrics
from pillarbox.ports import Source
from pillarbox.relay.engine import Engine

LONGEST_SLEEP = 0.1  # seconds until a stop is noticed
COUNT_EACH = 0.25  # seconds between two counts of what is in flight


class Told(Protocol):
    """Who is told how the loop goes."""

    clock: Clock
    emit: Emit
    pulse: Pulse
    metrics: Metrics


Look = Callable[[Engine], None]


class Loop:
    """An engine at work until it is done or asked to stop."""

    def __init__(
        self, engine: Engine, source: Source, stop: threading.Event, grace: float, *, tell: Told, look: Look
    ) -> None:
        self._engine, self._source, self._stop, self._grace = engine, source, stop, grace
        self._tell, self._look = tell, look
        self._clock = tell.clock
        self._started = False
        self._count_at = float("-inf")

    def run(self, is_done: Callable[[Engine], bool]) -> None:
        """Until `is_done`, or until somebody asked to stop; then drain."""
        try:
            while not self._stop.is_set():
                sleep = self._step()
                if is_done(self._engine):
                    break
                self._rest(min(sleep, LONGEST_SLEEP))
        except BaseException:
            self._engine.end()  # what is ours is free for others at once
            raise
        self._drain()

    def _step(self) -> float:
        self._tell.pulse.beat()
        sleep = self._engine.step()
        if self._engine.looked and not self._started:
            self._started = True
            names = tuple(sorted(self._engine.services))
            relay = str(self._engine.tenure.id)
            self._tell.emit(events.Started(relay, socket.gethostname(), version("pillarbox"), names))
        if (now := self._clock.mono()) >= self._count_at:
            self._count_at = now + COUNT_EACH
            self._count()
            self._look(self._engine)
        return sleep

    def _rest(self, seconds: float) -> None:
        if seconds <= 0:
            return
        if self._engine.lost_since is not None:
            self._clock.sleep(seconds)
            return
        try:
            self._source.wait(seconds)
        except PillarboxError:
            self._clock.sleep(seconds)  # the next step meets the same, and tells it

    def _drain(self) -> None:
        """R13: within the grace period."""
        engine, clock = self._engine, self._clock
        engine.begin_stop("asked to" if self._stop.is_set() else "nothing is left to do")
        until = clock.mono() + self._grace
        while not engine.is_drained and clock.mono() < until:
            if (sleep := self._step()) > 0:
                clock.sleep(min(sleep, LONGEST_SLEEP))
        engine.end()
        self._count()

    def _count(self) -> None:
        services = self._engine.services.items()
        self._tell.metrics.count([(name, s.sink_name, len(s.windows), len(s.flight.wire)) for name, s in services])
