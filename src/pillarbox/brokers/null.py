"""Accepts everything and keeps nothing: for benchmarks, and for a route that is to be drained unread."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from pillarbox.outcome import NO_ANSWERS, Answers, Handle, Record, SinkClass, Traits


class Settings(BaseModel):
    """`kind = "null"`"""

    model_config = ConfigDict(frozen=True, extra="forbid")


def make(_name: str, _settings: Settings) -> NullSink:
    return NullSink()


class NullSink:
    traits = Traits(delivery=SinkClass.FAIL_STOP, max_in_flight=100_000)

    def __init__(self) -> None:
        self._accepted: list[Handle] = []

    def open(self) -> None:
        self._accepted = []

    def away(self, _topics: Sequence[str]) -> dict[str, str]:
        return {}

    def send(self, batch: Sequence[Record]) -> None:
        self._accepted += [record[0] for record in batch]

    def answers(self, timeout: float) -> Answers:
        if not self._accepted:
            return NO_ANSWERS
        accepted, self._accepted = self._accepted, []
        return Answers(accepted, [])

    def hang_up(self) -> None:
        self._accepted = []

    def fence(self, route: str, lane: int, term: int) -> None:
        """There is nothing to fence."""

    def warnings(self) -> list[str]:
        return []

    def close(self) -> None:
        self._accepted = []
