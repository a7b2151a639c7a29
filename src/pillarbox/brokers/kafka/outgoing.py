"""The way into one gapless producer, in order: what goes now, what goes first and alone, what waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pillarbox.brokers.kafka.partition import Partitioner
from pillarbox.brokers.kafka.priming import Primer, Priming, size_of, wire_size
from pillarbox.brokers.kafka.verdicts import verdict
from pillarbox.clock import SystemClock
from pillarbox.outcome import Handle, Outcome, Record

mono = SystemClock.mono
RENEW_AFTER = 6 * 3600.0  # seconds; a broker forgets a producer that was silent in a partition for a day
LARGE = 16_384  # how far from the limit a payload must stay for its record not to be measured
ASK_AGAIN = 1.0  # seconds
METADATA_WITHIN = 0.2  # seconds a producer has, once a topic, to know it


@dataclass(slots=True)
class Known:
    """What a sink has learnt; it outlives the sessions."""

    partitioner: Partitioner
    max_bytes: int
    limits: dict[str, int] = field(default_factory=dict)  # a topic's largest batch, where we may know it
    partitions: dict[str, int] = field(default_factory=dict)  # how many a topic has
    refused: dict[Handle, None] = field(default_factory=dict)  # refused before: they go alone


class Judging(Protocol):
    """Who decides what failures mean. The two verdicts answer False: nothing more goes out."""

    answered: Callable[[Record, KafkaError | None, Message], None]

    def refuse(self, record: Record, reason: str) -> bool:
        """This record alone."""

    def stop(self, outcome: Outcome, reason: str, record: Record | None = None) -> bool:
        """The session is over."""

    def alone(self, record: Record) -> bool:
        """Send it through the second producer."""


class Outgoing:
    """One producer's input. A session that is stopped sends nothing more through it."""

    def __init__(self, producer: Producer, known: Known, judge: Judging) -> None:
        self.producer = producer
        self.primer = Primer(known.partitioner)
        self.waiting: deque[Record] = deque()
        self.renew = False
        self._produce: Callable[..., None] = producer.produce
        self._known = known
        self._judge = judge
        self._born = mono()
        self._ask_again_at = 0.0

    def start_over(self) -> None:
        """Another session, with nothing in it yet."""
        self.waiting.clear()
        self.primer.start_over()
        self._ask_again_at = 0.0

    def is_old(self) -> bool:
        """Whether a new producer must take over once this one is empty."""
        self.renew = self.renew or mono() - self._born > RENEW_AFTER
        return self.renew

    def learn(self, topic: str, partitions: int | None = None) -> bool | None:
        """A topic is about to be used, or has grown; whether this producer knows it, None while nobody answers."""
        if self.primer.knows(topic, partitions):
            return True
        try:
            found = self.producer.list_topics(topic, timeout=METADATA_WITHIN).topics[topic]
        except KafkaException:
            self._ask_again_at = mono() + ASK_AGAIN
            return None
        if found.error is not None or not found.partitions or len(found.partitions) < (partitions or 0):
            return False
        self.primer.learn(topic, len(found.partitions))
        self._known.partitions[topic] = len(found.partitions)
        return True

    def send(self, records: Iterator[Record]) -> None:
        """Hot: a line here costs each message. What could not go is left in `records`."""
        produce, answered = self._produce, self._judge.answered
        ready, refused = self.primer.ready, self._known.refused
        roomy = min([self._known.max_bytes, *self._known.limits.values()]) - LARGE
        for record in records:
            handle, topic, key, payload, headers = record
            if topic in ready and len(payload) < roomy and handle not in refused:
                try:
                    produce(topic, payload, key, on_delivery=partial(answered, record), headers=headers)
                    continue
                except (BufferError, KafkaException) as error:
                    goes_on = self._not_taken(record, error)
            else:
                goes_on = self._with_care(record)
            if not goes_on:
                return

    def send_waiting(self) -> None:
        """What was held back goes before anything newer."""
        if mono() < self._ask_again_at:
            return
        again, self.waiting = self.waiting, deque()
        records = iter(again)
        self.send(records)
        self.waiting.extend(records)

    def _with_care(self, record: Record) -> bool:
        """Measure it, send it alone, or as its partition's first; whether more may follow."""
        topic, known = record[1], self._known
        if (size := size_of(record)) > known.max_bytes:
            return self._judge.refuse(record, f"{size} bytes are over the sink's limit of {known.max_bytes}")
        limit = known.limits.get(topic)
        if limit is not None and (size := wire_size(record)) > limit:
            return self._judge.refuse(record, f"{size} bytes are over the limit of topic {topic}, {limit}")
        if record[0] in known.refused:
            return self._judge.alone(record)
        if topic in self.primer.ready:
            return self._hand_over(record, -1, partial(self._judge.answered, record))
        there = self.learn(topic, known.partitions.get(topic))
        if there is None:
            self.waiting.append(record)
            return False
        if not there:
            return self._judge.stop(Outcome.UNAVAILABLE, f"topic {topic} is not there", record)
        return self._prime(record, self.primer.topics[topic])

    def _prime(self, record: Record, priming: Priming) -> bool:
        partition = priming.partition(record[2])
        if partition in priming.primed:
            return self._hand_over(record, partition, partial(self._judge.answered, record))
        if partition in priming.behind:
            priming.behind[partition].append(record)
            return True
        if self._hand_over(record, partition, partial(self._first_answered, priming, partition, record)):
            priming.behind[partition] = deque()
            return True
        return False

    def _hand_over(self, record: Record, partition: int, on_delivery: Callable[..., None]) -> bool:
        _, topic, key, payload, headers = record
        try:
            self._produce(topic, payload, key, partition, on_delivery=on_delivery, headers=headers)
        except (BufferError, KafkaException) as error:
            return self._not_taken(record, error)
        return True

    def _not_taken(self, record: Record, error: BufferError | KafkaException) -> bool:
        """librdkafka's queue is full, or it sees at once that this cannot be sent."""
        if isinstance(error, BufferError):
            self.waiting.append(record)
            return False
        cause = error.args[0]
        if verdict(cause.code()) is Outcome.REFUSED:
            return self._judge.refuse(record, cause.str())
        return self._judge.stop(verdict(cause.code()), cause.str(), record)

    def _first_answered(
        self, priming: Priming, partition: int, record: Record, error: KafkaError | None, message: Message
    ) -> None:
        self._judge.answered(record, error, message)
        if error is None:
            self._let_through(self.primer.accepted(record[1], partition, priming), partition)

    def _let_through(self, behind: deque[Record], partition: int) -> None:
        """What waited behind a partition's first record goes, before all that waits for room."""
        before = len(self.waiting)
        while behind:
            record = behind.popleft()
            if not self._hand_over(record, partition, partial(self._judge.answered, record)):
                if len(self.waiting) > before:
                    behind.appendleft(self.waiting.pop())
                self.waiting.extendleft(reversed(behind))
                return

    def left(self) -> Iterable[Record]:
        """What was given to this session and not to the producer."""
        yield from self.primer.behind()
        yield from self.waiting
