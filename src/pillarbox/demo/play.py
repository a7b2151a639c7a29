"""The play: a shop sells, a relay delivers and is killed, somebody watches the destination. Then the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pillarbox.clock import SystemClock
from pillarbox.demo.lag import Lag
from pillarbox.demo.shop import Shop
from pillarbox.demo.stage import Stage
from pillarbox.errors import PillarboxError
from pillarbox.testing.history import History, Verdict, judge, read_log
from pillarbox.testing.installation import Installation
from pillarbox.testing.process import RelayProcess

TICK = 0.05
DEAD_FOR = 0.3  # seconds between a kill and the next start, as a supervisor would take
DRAIN_WITHIN = 10.0
CAUGHT_UP = 0.5  # seconds of lag
SETTLES_WITHIN = 1.0  # what was delivered longer ago does not come again


@dataclass(slots=True)
class Progress:
    """What can be seen at a moment; times in seconds since the beginning."""

    seconds: float  # how long the shop is open
    now: float = 0.0
    sold: int = 0
    declined: int = 0
    delivered: int = 0
    lag: float = 0.0
    relay: str = "starting"
    kills: list[float] = field(default_factory=list)
    news: list[tuple[float, str]] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.news.append((self.now, text))


class Play:
    """`perform` yields at every tick, so that somebody may draw; afterwards `verdict` judges."""

    def __init__(self, stage: Stage, *, seconds: float, kills: int, seed: int) -> None:
        self._stage = stage
        self._clock = SystemClock()
        self._log = stage.folder / "producer.jsonl"
        self._shop = Shop(stage.url, self._log, seed)
        self._relay = RelayProcess(stage.config, stage.folder / "relay.log")
        self._installation = Installation(stage.url)
        self._again: Counter[str] = Counter()
        # Not at the very ends: a kill before the first delivery and one after the last show nothing.
        self._kills_at = [seconds * (number + 1) / (kills + 1) for number in range(kills)]
        self.progress = Progress(seconds)
        self.lag = Lag()

    def perform(self) -> Iterator[Progress]:
        self._shop.furnish()
        self._readback = self._stage.readback()
        self._began = self._clock.mono()
        self._relay.start()
        self._shop.begin()
        try:
            yield from self._sell_and_kill()
            self._shop.close()
            self.progress.say(f"the shop closes: {self._shop.sold} orders, {self._shop.declined} cards declined")
            yield from self._until(lambda: not self.lag.waiting, DRAIN_WITHIN)
            self._stop()
            yield self._look()
        finally:
            self._relay.kill()
            self._readback.close()

    def _sell_and_kill(self) -> Iterator[Progress]:
        progress = self.progress
        for at in self._kills_at:
            before = progress.delivered
            yield from self._until(lambda at=at: progress.now >= at - SETTLES_WITHIN, at)  # type: ignore[misc]
            # On a slow machine a life may not have begun by now; killing what delivered nothing would show nothing.
            left = progress.seconds - progress.now if progress.kills else DRAIN_WITHIN
            yield from self._until(
                lambda before=before: progress.delivered > before and progress.lag < CAUGHT_UP,  # type: ignore[misc]
                left,
            )
            if progress.delivered == before:
                break
            yield from self._until(lambda: False, SETTLES_WITHIN)
            self._kill()
            yield from self._until(lambda: False, DEAD_FOR)
            self._relay.start()
            progress.relay = f"life {self._relay.lives}"
        yield from self._until(lambda: progress.now >= progress.seconds, progress.seconds)

    def _until(self, condition: Callable[[], bool], within: float) -> Iterator[Progress]:
        until = self._clock.mono() + within
        while self._clock.mono() < until:
            yield self._look()
            if condition():
                return
            self._clock.sleep(TICK)

    def _look(self) -> Progress:
        if self._shop.failure is not None:
            raise self._shop.failure
        if self.progress.relay not in ("killed", "stopped") and self._relay.ended is not None:
            raise PillarboxError(f"The relay ended by itself ({self._relay.ended}).", self._relay.tail())
        while self._shop.news:
            id, at = self._shop.news.popleft()
            self.lag.committed(id, at - self._began)
        self.lag.arrived(self._readback.more())
        progress = self.progress
        progress.now = self._clock.mono() - self._began
        progress.lag = self.lag.sample(progress.now)
        progress.sold, progress.declined = self._shop.sold, self._shop.declined
        if self.lag.seen and not progress.delivered:
            progress.relay = f"life {self._relay.lives}"
        progress.delivered = len(self.lag.seen)
        return progress

    def _kill(self) -> None:
        self._relay.kill()
        self.progress.relay = "killed"
        self.lag.arrived(self._readback.everything())
        # What was delivered and not settled may come once more; nothing else may.
        again = self._installation.unsettled() & self.lag.seen
        self._again.update(again)
        self.progress.kills.append(self.progress.now)
        self.progress.say(f"relay killed (pid {self._relay.pid}); delivered and not settled yet: {len(again)}")

    def _stop(self) -> None:
        status = self._relay.stop()
        self.progress.relay = "stopped"
        self.lag.arrived(self._readback.everything())
        if status:
            raise PillarboxError(f"The relay ended with {status} when it was asked to stop.", self._relay.tail())

    def verdict(self) -> Verdict:
        return judge(
            History(
                added=read_log(self._log),
                arrived=self.lag.copies,
                states=self._installation.states(),
                committed=self._shop.committed(),
                again=self._again,
                hits={"kill": len(self.progress.kills)} if self._kills_at else {},
            )
        )

    @property
    def relay_log(self) -> Path:
        return self._relay.log
