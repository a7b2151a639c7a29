"""One producer, from opening to hanging up: fail-stop by librdkafka's gapless guarantee, and by what it lacks.

The guarantee ends the producer at the first permanent failure. This file adds: the first record to each partition
goes alone (`priming`), a record known to be refused goes alone through a second producer, and after a failure nothing
is handed over any more while what is on the wire is still answered, so that hanging up then makes no duplicates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pillarbox.brokers.kafka.partition import Partitioner
from pillarbox.brokers.kafka.priming import Priming, wire_size
from pillarbox.brokers.kafka.verdicts import PURGED, verdict
from pillarbox.clock import SystemClock
from pillarbox.outcome import Answers, Failed, Handle, Outcome, Record

mono = SystemClock.mono
RENEW_AFTER = 6 * 3600.0  # seconds; a broker forgets a producer that was silent in a partition for a day
LIMIT = 1_000_000
LARGE = 16_384  # how far from the limit a payload must stay for its record not to be measured
REMEMBERED = 10_000
Producers = Callable[[bool], Producer]  # gapless or not


class Session:
    """What is handed to librdkafka, and what it answers."""

    def __init__(
        self, producers: Producers, partitioner: Partitioner, limits: Mapping[str, int], partitions: dict[str, int]
    ) -> None:
        self._producers = producers
        self._partitioner = partitioner
        self._limits = limits  # by topic; these two are the sink's, and outlive the session
        self._partitions = partitions
        self.refused: dict[Handle, None] = {}  # refused before: alone through the second producer
        self.gone: Callable[[str, str], None] = lambda _topic, _reason: None
        self._solo: Producer | None = None
        self._accepted: list[Handle] = []
        self._failed: list[Failed] = []
        self._answered = self._answered_by()
        self._begin()

    def _begin(self) -> None:
        """A new producer; everything before it is answered."""
        self._main = self._producers(True)
        self._hand_over: Callable[..., None] = self._main.produce
        self._born = mono()
        self._ready: set[str] = set()
        self._priming: dict[str, Priming] = {}
        self.renew = False
        self.dead = False  # the producer will write nothing any more
        self._over = False
        self.start_over()

    def start_over(self) -> None:
        """Another session with the same producer: the last one ended with nothing in it."""
        self.stopped = False
        self._solo_busy = False
        for priming in self._priming.values():
            priming.behind.clear()
        self._waiting: deque[Record] = deque()
        self._suspects: list[Failed] = []
        self._words: list[Failed] = []
        self._casualty: Handle | None = None
        self._cause = (Outcome.UNKNOWN, "the session ended")

    # ------------------------------------------------------------------ handing over

    def learn(self, topic: str, partitions: int | None = None) -> bool:
        """A topic is about to be used, or has grown; whether this producer knows it."""
        known = self._priming.get(topic)
        if known is not None and known.partitions == partitions:
            return True
        try:
            found = self._main.list_topics(topic, timeout=0.5).topics[topic]
        except KafkaException:
            return False
        if found.error is not None or not found.partitions or len(found.partitions) < (partitions or 0):
            return False
        self._ready.discard(topic)
        fresh = self._priming[topic] = Priming(len(found.partitions), self._partitioner)
        self._partitions[topic] = fresh.partitions
        if known is not None:
            fresh.primed, fresh.behind = known.primed, known.behind
        return True

    def send(self, batch: Iterable[Record]) -> None:
        """Hot: `python -m benchmarks.kafka_sink` tells what a line costs here."""
        if self.stopped:
            return
        if self._waiting or self._solo_busy or self._is_old():
            self._waiting.extend(batch)
            return
        produce, ready, answered, refused = self._hand_over, self._ready, self._answered, self.refused
        roomy = min(self._limits.values(), default=LIMIT) - LARGE
        records = iter(batch)
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
                if not self.stopped:
                    self._waiting.extend(records)
                return

    def _is_old(self) -> bool:
        if not self.renew and mono() - self._born < RENEW_AFTER:
            return False
        self.renew = True
        if len(self._main):
            return True
        self._begin()
        return False

    def _with_care(self, record: Record) -> bool:
        """Measure it, send it alone, or send its partition's first record; whether more may follow."""
        handle, topic, key, _, _ = record
        limit = self._limits.get(topic)
        if limit is not None and (size := wire_size(record)) > limit:
            self._refuse(Failed(handle, Outcome.REFUSED, f"{size} bytes are over topic {topic}'s limit of {limit}"))
            return False
        if handle in self.refused:
            return self._alone(record)
        if topic in self._ready:
            return self._produce(record, -1, partial(self._answered, record))
        priming = self._priming.get(topic)
        if priming is None:  # nobody asked about it, or the producer is a new one
            if not self.learn(topic, self._partitions.get(topic)):
                self._stop(Outcome.UNAVAILABLE, f"topic {topic}: its metadata is awaited", handle)
                return False
            priming = self._priming[topic]
        partition = priming.partition(key)
        if partition in priming.primed:
            return self._produce(record, partition, partial(self._answered, record))
        if partition in priming.behind:
            priming.behind[partition].append(record)
            return True
        priming.behind[partition] = deque()
        if self._produce(record, partition, partial(self._first_answered, priming, partition, record)):
            return True
        del priming.behind[partition]
        return False

    def _produce(self, record: Record, partition: int, on_delivery: Callable[..., None]) -> bool:
        _, topic, key, payload, headers = record
        try:
            self._hand_over(topic, payload, key, partition, on_delivery=on_delivery, headers=headers)
        except (BufferError, KafkaException) as error:
            return self._not_taken(record, error)
        return True

    def _not_taken(self, record: Record, error: BufferError | KafkaException) -> bool:
        """librdkafka's queue is full, or it sees at once that this cannot be sent."""
        if isinstance(error, BufferError):
            self._waiting.append(record)
            return False
        cause = error.args[0]
        outcome = verdict(cause.code())
        if outcome is Outcome.REFUSED:
            self._refuse(Failed(record[0], outcome, cause.str()))
        else:
            self._stop(outcome, cause.str(), record[0])
        return False

    def _alone(self, record: Record) -> bool:
        """Through the second producer, which goes on after a refusal; what follows waits for its answer."""
        _, topic, key, payload, headers = record
        if self._solo is None:
            self._solo = self._producers(False)
        self._solo_busy = True
        alone: Callable[..., None] = self._solo.produce
        alone(topic, payload, key, on_delivery=partial(self._solo_answered, record), headers=headers)
        return False

    # ------------------------------------------------------------------ answers

    def answers(self, timeout: float) -> Answers:
        self._poll(timeout)
        if self.stopped:
            self._conclude()
        elif self._waiting and not self._solo_busy:
            again, self._waiting = self._waiting, deque()
            self.send(again)
        accepted, failed = self._accepted[:], self._failed[:]
        self._accepted.clear()
        self._failed.clear()
        return Answers(accepted, failed)

    def _poll(self, timeout: float) -> None:
        try:
            if self._solo_busy and self._solo is not None:
                self._solo.poll(min(timeout, 0.01))
                timeout = 0
            self._main.poll(timeout)
        except KafkaException as error:  # the producer's end; messages tell of it as well, but perhaps none is there
            self.dead = True
            cause = error.args[0]
            self._stop(verdict(cause.code()), cause.str())

    def _answered_by(self) -> Callable[[Record, KafkaError | None, Message], None]:
        """The delivery callback: a plain function, since it is called for each message."""
        accept, failure = self._accepted.append, self._failure

        def answered(record: Record, error: KafkaError | None, _message: Message) -> None:
            if error is None:
                accept(record[0])
            else:
                failure(record, error)

        return answered

    def _first_answered(
        self, priming: Priming, partition: int, record: Record, error: KafkaError | None, message: Message
    ) -> None:
        self._answered(record, error, message)
        if error is not None or self._over:
            return
        behind = priming.accepted(partition)
        if priming.done:
            self._ready.add(record[1])
        while behind and not self.stopped:
            follower = behind.popleft()
            if not self._produce(follower, partition, partial(self._answered, follower)) and not self.stopped:
                # The queue is full and it went to the end of those that wait: they all came after what is left here.
                self._waiting.pop()
                self._waiting.extendleft(reversed([follower, *behind]))
                return

    def _failure(self, record: Record, error: KafkaError) -> None:
        code = error.code()
        if self._over:
            return
        if code in PURGED:
            self._casualty = record[0] if self._casualty is None else self._casualty
            return
        self.dead = True
        outcome = verdict(code)
        if outcome is Outcome.REFUSED:
            self._suspects.append(Failed(record[0], outcome, error.str()))
            self._stop(outcome, error.str())
            return
        if outcome is Outcome.UNAVAILABLE:
            self.gone(record[1], error.str())
        self._stop(outcome, error.str(), record[0])

    def _solo_answered(self, record: Record, error: KafkaError | None, _message: Message) -> None:
        if self._over:
            return
        self._solo_busy = False
        if error is None:
            self.refused.pop(record[0], None)
            self._accepted.append(record[0])
        elif verdict(error.code()) is Outcome.REFUSED:
            self._refuse(Failed(record[0], Outcome.REFUSED, error.str()))
        else:
            self._stop(verdict(error.code()), error.str(), record[0])

    def _refuse(self, failed: Failed) -> None:
        """Refused alone. Told when all before it is answered; what is behind it is not handed over."""
        if len(self.refused) >= REMEMBERED:
            self.refused.pop(next(iter(self.refused)))
        self.refused[failed.handle] = None
        self._words.append(failed)
        self.stopped = True
        self._waiting.clear()

    def _stop(self, outcome: Outcome, reason: str, handle: Handle | None = None) -> None:
        if not self.stopped:
            self.stopped = True
            self._cause = (outcome, reason)
            self._waiting.clear()
        if handle is not None:
            self._words.append(Failed(handle, outcome, reason))

    def _conclude(self) -> None:
        """Tell of the failure once what is on the wire has been answered."""
        if self.dead:
            # Again and again: a request that the broker refused behind the failed one comes back into the queue.
            self._main.purge(in_queue=True, in_flight=False, blocking=False)
            self._main.poll(0)
        if len(self._main) or self._solo_busy:
            return
        if len(self._suspects) == 1:
            self._refuse(self._suspects[0])
        elif self._suspects:
            first = self._suspects[0]
            text = f"refused in one request with {len(self._suspects) - 1} others: {first.error}"
            self._words.append(Failed(first.handle, Outcome.UNKNOWN, text))
        elif not self._words and self._casualty is not None:
            self._words.append(Failed(self._casualty, *self._cause))
        self._failed += self._words
        self._words, self._suspects, self._casualty = [], [], None

    # ------------------------------------------------------------------ the end

    @property
    def on_the_wire(self) -> int:
        return len(self._main) + self._solo_busy

    def hang_up(self) -> list[Producer]:
        """Nothing more goes out. The producers that are left to be emptied and forgotten."""
        self._over = True
        left = [producer for producer in (self._main, self._solo) if producer is not None]
        for producer in left:
            producer.purge(in_queue=True, in_flight=True, blocking=False)
        return left

    def flush(self, timeout: float) -> None:
        self._main.flush(timeout)


def settings_of(conf: Mapping[str, Any], *, gapless: bool) -> dict[str, Any]:
    """The first producer's settings, or the second's, which must live on after a refusal."""
    if gapless:
        return dict(conf)
    return dict(conf) | {"enable.gapless.guarantee": False, "max.in.flight.requests.per.connection": 1, "linger.ms": 0}
