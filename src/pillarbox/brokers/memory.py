"""Keeps what it accepts in a list, and fails as it is told to: for tests of applications and of the relay itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from pillarbox.errors import SinkUnavailable
from pillarbox.outcome import Answers, Failed, Handle, Outcome, Record, SinkClass, Traits

Script = Callable[[Record], Outcome | None]
PIPELINED = Traits(delivery=SinkClass.FAIL_STOP)
_BY_NAME: dict[str, MemorySink] = {}


class Settings(BaseModel):
    """`kind = "memory"`"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    delivery: SinkClass = Field(default=SinkClass.FAIL_STOP, description="The class of sink it plays.")
    max_bytes: int | None = Field(default=None, ge=1, description="Refuse a larger message.")


def make(name: str, settings: Settings) -> MemorySink:
    traits = Traits(delivery=settings.delivery, max_bytes=settings.max_bytes)
    _BY_NAME[name] = MemorySink(traits)
    return _BY_NAME[name]


def named(name: str) -> MemorySink:
    """The sink that a relay in this process made last under this name."""
    return _BY_NAME[name]


def always_accept(_record: Record) -> Outcome | None:
    return Outcome.ACCEPTED


class MemorySink:
    """`records` is what arrived, in order. `script` answers each message; None leaves it without an answer.

    A message that was left or answered `unknown` arrived nevertheless if `unknown_arrives`. `down` is the reason why
    no session opens; `topics_away` those destinations that take nothing.
    """

    def __init__(self, traits: Traits = PIPELINED, script: Script = always_accept) -> None:
        self.traits = traits
        self.script = script
        self.records: list[Record] = []
        self.down: str | None = None
        self.topics_away: dict[str, str] = {}
        self.unknown_arrives = False
        self.sessions = 0
        self.fences: dict[tuple[str, int], int] = {}
        self._accepted: list[Handle] = []
        self._failed: list[Failed] = []
        self._stopped = False

    def open(self) -> None:
        self.hang_up()
        if self.down is not None:
            raise SinkUnavailable(self.down)
        self.sessions += 1
        self._stopped = False

    def away(self, topics: Sequence[str]) -> dict[str, str]:
        return {topic: self.topics_away[topic] for topic in topics if topic in self.topics_away}

    def send(self, batch: Sequence[Record]) -> None:
        for record in batch:
            if not self._stopped:
                self._take(record)

    def _take(self, record: Record) -> None:
        outcome = self._judge(record)
        if outcome is Outcome.ACCEPTED or (outcome in (None, Outcome.UNKNOWN) and self.unknown_arrives):
            self.records.append(record)
        if outcome is Outcome.ACCEPTED:
            self._accepted.append(record[0])
        elif outcome is not None:
            self._failed.append(Failed(record[0], outcome, f"scripted: {outcome}"))
        if outcome is not Outcome.ACCEPTED and self.traits.delivery is SinkClass.FAIL_STOP:
            self._stopped = True  # nothing behind the first failure is accepted, nor answered

    def _judge(self, record: Record) -> Outcome | None:
        _, topic, key, payload, headers = record
        size = len(payload) + len(key or b"") + sum(len(name) + len(value) for name, value in headers)
        if self.traits.max_bytes is not None and size > self.traits.max_bytes:
            return Outcome.REFUSED
        if topic in self.topics_away:
            return Outcome.UNAVAILABLE
        return self.script(record)

    def answers(self, timeout: float) -> Answers:
        answers = Answers(self._accepted, self._failed)
        self._accepted, self._failed = [], []
        return answers

    def hang_up(self) -> None:
        self._accepted, self._failed = [], []
        self._stopped = True

    def fence(self, route: str, lane: int, term: int) -> None:
        self.fences[route, lane] = term

    def warnings(self) -> list[str]:
        return []

    def close(self) -> None:
        self.hang_up()
