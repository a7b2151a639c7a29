"""The second producer: one record at a time, and it lives on after a refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from pillarbox.outcome import Record

Done = Callable[[Record, KafkaError | None], None]
ATTENTION = 0.01  # seconds


class Solo:
    """A refusal here is of one record that was alone in its request (R8)."""

    def __init__(self, producer: Callable[[], Producer]) -> None:
        self._make = producer
        self._producer: Producer | None = None
        self.busy = False

    def send(self, record: Record, done: Done) -> None:
        """Its answer comes from `poll`."""
        if self._producer is None:
            self._producer = self._make()
        _, topic, key, payload, headers = record
        produce: Callable[..., None] = self._producer.produce
        self.busy = True
        produce(topic, payload, key, on_delivery=partial(self._answered, record, done), headers=headers)

    def _answered(self, record: Record, done: Done, error: KafkaError | None, _message: Message) -> None:
        self.busy = False
        done(record, error)

    def poll(self, timeout: float) -> None:
        if self._producer is not None:
            self._producer.poll(min(timeout, ATTENTION))

    def leave(self) -> list[Producer]:
        """Let go of it."""
        left, self._producer, self.busy = self._producer, None, False
        return [] if left is None else [left]
