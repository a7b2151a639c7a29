"""One line of JSON a message on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from pydantic import BaseModel, ConfigDict

from pillarbox.brokers import jsonline
from pillarbox.brokers.publishing import PublishSink
from pillarbox.errors import SinkUnavailable
from pillarbox.outcome import Answers, Failed, Outcome, Record, SinkClass, Traits

TRAITS = Traits(delivery=SinkClass.FAIL_STOP, max_in_flight=1_000)


class Settings(BaseModel):
    """`kind = "console"`"""

    model_config = ConfigDict(frozen=True, extra="forbid")


def make(name: str, _settings: Settings) -> PublishSink:
    return PublishSink(ConsoleWriter, name=name, traits=TRAITS)


class ConsoleWriter:
    """Accepted means written to the pipe or terminal; a reader that is slow or gone is an outage."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdout.buffer
        self._broken = False
        self._over = False

    def open(self) -> None:
        if self._stream.closed:
            raise SinkUnavailable("standard output is closed")

    def publish(self, batch: Sequence[Record]) -> Iterator[Answers]:
        for record in batch:
            if self._broken or self._over:
                return
            failed = self._print(record)
            self._broken = failed is not None
            yield Answers([], [failed]) if failed else Answers([record[0]], [])

    def _print(self, record: Record) -> Failed | None:
        try:
            line = jsonline.encode(record)
        except (ValueError, TypeError, AttributeError) as error:
            return Failed(record[0], Outcome.REFUSED, f"cannot be written as JSON: {error}")
        try:
            self._stream.write(line)
            self._stream.flush()
        except (OSError, ValueError) as error:
            return Failed(record[0], Outcome.UNAVAILABLE, f"standard output takes nothing: {error}")
        return None

    def interrupt(self) -> None:
        self._over = True

    def close(self) -> None:
        """Standard output belongs to the process."""
