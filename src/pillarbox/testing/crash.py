"""Cycles of a relay that kills itself at a named place while hostile writers go on, and the verdict over all of them."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pillarbox.clock import SystemClock
from pillarbox.testing.history import History, Sighting, Verdict, judge, read_log
from pillarbox.testing.installation import Installation
from pillarbox.testing.process import RelayProcess
from pillarbox.testing.readback import Readback
from pillarbox.testing.writers import Manners, Writer, committed

T = TypeVar("T")
Stir = Callable[[RelayProcess], None]  # makes a place come up that would not by itself

POLITE = Manners()
REACH_WITHIN = 8.0  # seconds until a relay must have died at its place
UPKEEP_WITHIN = 30.0
TRIES = 4  # some places need what a life before has settled
DRAIN_WITHIN = 60.0
STIR_EACH = 0.3
UPKEEP = ("roll.", "attach.", "prune.")  # once a minute in a relay, or as often as one likes by a command
DOUBTS = "recover."  # the stir itself makes a relay take its lanes anew
OFTEN = ("read", "send", "answer", "settle", "renew", "file.before_sync", "file.torn")


@dataclass(frozen=True, slots=True)
class House:
    """One installation under test, furnished, with its route stored or not."""

    url: str  # of the owner, for looking
    writer_url: str
    config: Path
    folder: Path
    readback: Readback
    stirs: Mapping[str, Stir] = field(default_factory=dict)  # by the first word of a point, or the whole
    before: Mapping[str, Callable[[], None]] = field(default_factory=dict)  # what must be so when the relay starts
    weather: Callable[[random.Random], None] | None = None  # over and over, in a thread: makes the destination slow
    manners: Manners = POLITE
    writers: int = 3
    company: float = 0.0  # the share of cycles with a second relay; it needs lanes to share
    arrives_late: float = 0.0  # how long the destination may take in what a dead process had handed over


@dataclass(slots=True)
class Report:
    seed: int
    cycles: int
    fired: Counter[str]
    armed: Counter[str]
    seconds: Mapping[str, float]
    verdict: Verdict

    @property
    def never_fired(self) -> list[str]:
        return [point for point in self.armed if not self.fired[point]]

    @property
    def ok(self) -> bool:
        return self.verdict.ok and not self.never_fired

    def __str__(self) -> str:
        rows = [
            f"{point:<22} {self.fired[point]:>5} of {count}  {self.seconds[point] / count:5.1f} s"
            for point, count in sorted(self.armed.items())
        ]
        return "\n".join([f"{self.cycles} crash cycles, seed {self.seed}", *rows, str(self.verdict)])


def _of(by_point: Mapping[str, T], point: str) -> T | None:
    """What is meant for this point, or else for all points of its first word."""
    return by_point.get(point) or by_point.get(point.partition(".")[0])


class CrashGate:
    """`run` arms each point in turn, lets everything drain, and judges."""

    def __init__(self, house: House, seed: int) -> None:
        self._house, self._seed = house, seed
        self._draw = random.Random(seed)
        self._clock = SystemClock()
        self._crashes = house.folder / "crashes.log"
        self._producers = house.folder / "producers.jsonl"
        self._relay = RelayProcess(house.config, house.folder / "relay.log")
        self._peer = RelayProcess(house.config, house.folder / "peer.log")
        self._upkeep = RelayProcess(house.config, house.folder / "upkeep.log", word="upkeep")
        self._installation = Installation(house.url)
        self._arrived: list[Sighting] = []
        self._again: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._window = 0
        self._before_life = 0
        self._armed: Counter[str] = Counter()

    def run(self, points: Sequence[str]) -> Report:
        house = self._house
        writers = [
            Writer(house.writer_url, self._producers, f"w{number}", str(self._seed), house.manners)
            for number in range(house.writers)
        ]
        over = threading.Event()
        weather = threading.Thread(target=self._weather, args=(over,), daemon=True)
        weather.start()
        try:
            for point in points:
                self._cycle(point)
        finally:
            failures = [self._close(writer) for writer in writers]
            self._peer.kill()
            over.set()
            weather.join()
        for failure in filter(None, failures):
            raise failure
        return self._finish(len(points))

    def _weather(self, over: threading.Event) -> None:
        """Without it a fast destination hides a cursor that runs ahead: what it passed is accepted a moment later."""
        draw = random.Random(f"{self._seed}:weather")
        while self._house.weather is not None and not over.wait(draw.uniform(0.0, 0.3)):
            self._house.weather(draw)

    def _close(self, writer: Writer) -> BaseException | None:
        try:
            writer.close()
        except BaseException as error:
            return error
        return None

    def _cycle(self, point: str) -> None:
        self._armed[point] += 1
        began = self._clock.mono()
        self._lives(point)
        self._seconds[point] += self._clock.mono() - began

    def _lives(self, point: str) -> None:
        for _ in range(TRIES):
            fired = self._fired()[point]
            self._life(point)
            if self._fired()[point] > fired:
                return

    def _life(self, point: str) -> None:
        self._before_life = len(self._arrived)
        if point.startswith(UPKEEP):
            self._upkeep_life(point)
            return
        often = point.startswith(OFTEN)
        count = self._draw.randrange(1, 12) if often else 1
        company = often and self._draw.random() < self._house.company
        if company:
            self._peer.start()
        self._relay.start(PILLARBOX_CRASH=f"{point}:{count}", PILLARBOX_CRASH_LOG=str(self._crashes))
        self._await_death(point)
        self._note_end(self._relay)
        if company:
            # Its end is as hard as the other's, or in good order.
            self._peer.kill() if self._draw.random() < 0.5 else self._peer.stop()
            self._note_end(self._peer)

    def _upkeep_life(self, point: str) -> None:
        """A relay delivers, so that segments are passed; the upkeep beside it dies."""
        self._relay.start()
        until = self._clock.mono() + UPKEEP_WITHIN
        prepare = _of(self._house.before, point)
        while self._upkeep.ended != -9 and self._clock.mono() < until:
            if prepare is not None:
                prepare()
            self._clock.sleep(STIR_EACH)
            self._upkeep.start(PILLARBOX_CRASH=point, PILLARBOX_CRASH_LOG=str(self._crashes))
            self._upkeep.wait(60.0)
            self._arrived += self._house.readback.more()
        self._upkeep.forget()
        self._relay.kill()
        self._note_end(self._relay)

    def _await_death(self, point: str) -> None:
        stir = _of(self._house.stirs, point)
        until = self._clock.mono() + REACH_WITHIN
        stirred = self._clock.mono() + STIR_EACH  # it must be up before it is disturbed
        while self._relay.ended is None and self._clock.mono() < until:
            if stir is not None and self._clock.mono() >= stirred:
                unsettled = self._installation.unsettled() if point.startswith(DOUBTS) else set()
                stir(self._relay)
                self._expect_again(unsettled & self._seen())
                stirred = self._clock.mono() + STIR_EACH
            self._arrived += self._house.readback.more()
            self._clock.sleep(0.02)
        status = self._relay.ended
        if status not in (None, 0, -9, 143):
            raise AssertionError(f"the relay ended with {status} before {point}:\n{self._relay.tail(30)}")
        self._relay.kill()

    def _note_end(self, process: RelayProcess) -> None:
        """What was delivered and is not settled now may come once more; so may what an abandoned session left."""
        self._clock.sleep(self._house.arrives_late)
        self._expect_again(self._installation.unsettled() & self._seen())
        said = process.said()
        unanswered = [int(count) for count in re.findall(r" session_abandoned .*unanswered=(\d+)", said)]
        # By second: one loss is told by each of its routes. What was in doubt after a cut has been counted there.
        losses = len(
            set(re.findall(r"(?m)^(\S{19}).* (?:lease_lost|lanes_lost .*reason=(?!stopped|\"in doubt\"))", said))
        )
        of_this_life = {seen.id for seen in self._arrived[self._before_life :]}
        for _ in range(len(unanswered) + losses):
            self._again.update(of_this_life)
        self._window += sum(unanswered) + losses * len(of_this_life)

    def _seen(self) -> set[str]:
        self._arrived += self._house.readback.everything()
        return {seen.id for seen in self._arrived}

    def _expect_again(self, ids: set[str]) -> None:
        self._again.update(ids)
        self._window += len(ids)

    def _finish(self, cycles: int) -> Report:
        business = committed(self._house.url)
        self._before_life = len(self._arrived)
        self._relay.start()
        until = self._clock.mono() + DRAIN_WITHIN
        while self._clock.mono() < until and not self._drained(business):
            self._clock.sleep(0.2)
        status = self._relay.stop()
        self._note_end(self._relay)
        if status:
            raise AssertionError(f"the relay ended with {status} when it was asked to:\n{self._relay.tail(30)}")
        history = History(
            added=read_log(self._producers),
            arrived=self._arrived,
            states=self._installation.states(),
            committed=business,
            again=self._again,
            window=self._window,
        )
        verdict = judge(history)
        verdict.unfinished += sorted(self._installation.unsettled())
        return Report(self._seed, cycles, self._fired(), self._armed, self._seconds, verdict)

    def _drained(self, business: set[str]) -> bool:
        self._arrived += self._house.readback.more()
        missing = business - {seen.id for seen in self._arrived}
        if missing:
            states = self._installation.states()
            missing = {id for id in missing if id not in states or states[id].state not in ("dead", "skipped")}
        return not missing and not self._installation.unsettled()

    def _fired(self) -> Counter[str]:
        return Counter(self._crashes.read_text().split()) if self._crashes.exists() else Counter()
