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

from pillarbox.brokers.kafka.aftermath import Aftermath
from pillarbox.brokers.kafka.partition import Partitioner
from pillarbox.brokers.kafka.priming import Primer, Priming, size_of, wire_size
from pillarbox.brokers.kafka.solo import Solo
from pillarbox.brokers.kafka.verdicts import PURGED, verdict
from pillarbox.clock import SystemClock
from pillarbox.outcome import Answers, Failed, Handle, Outcome, Record

mono = SystemClock.mono
RENEW_AFTER = 6 * 3600.0  # seconds; a broker forgets a producer that was silent in a partition for a day
LARGE = 16_384  # how far from the limit a payload must stay for its record not to be measured
REMEMBERED = 10_000
ASK_AGAIN = 1.0  # seconds
METADATA_WITHIN = 0.2  # seconds a producer has, once a topic, to know it
Producers = Callable[[bool], Producer]  # gapless or not


class Session:
    """What is handed to librdkafka, and what it answers."""

    def __init__(
        self,
        producers: Producers,
        partitioner: Partitioner,
        max_bytes: int,
        limits: Mapping[str, int],
        partitions: dict[str, int],
    ) -> None:
        self._producers = producers
        self._partitioner = partitioner
        self._max_bytes = max_bytes
        self._limits = limits  # by topic; these two are the sink's, and outlive the session
        self._partitions = partitions
        self.refused: dict[Handle, None] = {}  # refused before: alone through the second producer
        self.gone: Callable[[str, str], None] = lambda _topic, _reason: None
        self._solo = Solo(lambda: producers(False))
        self._accepted: list[Handle] = []
        self._failed: list[Failed] = []
        self._answered = self._answered_by()
        self._over = False
        self._begin()

    def _begin(self) -> None:
        """A new producer; everything before it is answered."""
        self._main = self._producers(True)
        self._hand_over: Callable[..., None] = self._main.produce
        self._born = mono()
        self._primer = Primer(self._partitioner)
        self.renew = False
        self.dead = False  # the producer will write nothing any more
        self.start_over()

    def start_over(self) -> None:
        """Another session with the same producer: the last one ended with nothing in it."""
        self._ask_again_at = 0.0
        self._stopped = False
        self._told = False
        self._primer.start_over()
        self._waiting: deque[Record] = deque()
        self._aftermath = Aftermath()

    # ------------------------------------------------------------------ handing over

    def learn(self, topic: str, partitions: int | None = None) -> bool | None:
        """A topic is about to be used, or has grown; whether this producer knows it, None while nobody answers."""
        if self._primer.knows(topic, partitions):
            return True
        try:
            found = self._main.list_topics(topic, timeout=METADATA_WITHIN).topics[topic]
        except KafkaException:
            self._ask_again_at = mono() + ASK_AGAIN
            return None
        if found.error is not None or not found.partitions or len(found.partitions) < (partitions or 0):
            return False
        self._primer.learn(topic, len(found.partitions))
        self._partitions[topic] = len(found.partitions)
        return True

    def send(self, batch: Iterable[Record]) -> None:
        """Hot: a line here costs each message; `benchmarks/kafka_sink.py` tells how much."""
        records = iter(batch)
        if self._waiting or self._solo.busy or self._stopped or self._is_old():
            self._hold_back(records)
            return
        produce, ready, answered, refused = self._hand_over, self._primer.ready, self._answered, self.refused
        roomy = min([self._max_bytes, *self._limits.values()]) - LARGE
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
                self._hold_back(records)
                return

    def _hold_back(self, records: Iterable[Record]) -> None:
        if self._stopped:
            self._aftermath.casualty(records)
        else:
            self._waiting.extend(records)

    def _is_old(self) -> bool:
        if not self.renew and mono() - self._born < RENEW_AFTER:
            return False
        self.renew = True
        if len(self._main):
            return True
        self._begin()
        return False

    def _with_care(self, record: Record) -> bool:
        """Measure it, send it alone, or as its partition's first; whether more may follow."""
        topic = record[1]
        if (size := size_of(record)) > self._max_bytes:
            return self._refuse(record, f"{size} bytes are over the sink's limit of {self._max_bytes}")
        limit = self._limits.get(topic)
        if limit is not None and (size := wire_size(record)) > limit:
            return self._refuse(record, f"{size} bytes are over the limit of topic {topic}, {limit}")
        if record[0] in self.refused:
            self._solo.send(record, self._solo_answered)
            return False
        if topic in self._primer.ready:
            return self._produce(record, -1, partial(self._answered, record))
        known = self.learn(topic, self._partitions.get(topic))
        if known is None:
            self._waiting.append(record)
            return False
        if not known:
            return self._stop(Outcome.UNAVAILABLE, f"topic {topic} is not there", record)
        return self._prime(record, self._primer.topics[topic])

    def _prime(self, record: Record, priming: Priming) -> bool:
        partition = priming.partition(record[2])
        if partition in priming.primed:
            return self._produce(record, partition, partial(self._answered, record))
        if partition in priming.behind:
            priming.behind[partition].append(record)
            return True
        if self._produce(record, partition, partial(self._first_answered, priming, partition, record)):
            priming.behind[partition] = deque()
            return True
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
        if verdict(cause.code()) is Outcome.REFUSED:
            return self._refuse(record, cause.str())
        return self._stop(verdict(cause.code()), cause.str(), record)

    # ------------------------------------------------------------------ answers

    def answers(self, timeout: float) -> Answers:
        self._poll(timeout)
        if self._stopped:
            self._conclude()
        elif self._waiting and not self._solo.busy and mono() >= self._ask_again_at:
            again, self._waiting = self._waiting, deque()
            self.send(again)
        accepted, failed = self._accepted[:], self._failed[:]
        self._accepted.clear()
        self._failed.clear()
        return Answers(accepted, failed)

    def _poll(self, timeout: float) -> None:
        try:
            if self._solo.busy:
                self._solo.poll(timeout)
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
        behind = self._primer.accepted(record[1], partition, priming)
        while behind and not self._stopped:
            follower = behind.popleft()
            if not self._produce(follower, partition, partial(self._answered, follower)) and not self._stopped:
                # The queue is full and it went to the end of those that wait: they all came after what is left here.
                self._waiting.pop()
                self._waiting.extendleft(reversed([follower, *behind]))
                return
        self._aftermath.casualty(behind)

    def _failure(self, record: Record, error: KafkaError) -> None:
        code = error.code()
        if self._over:
            return
        if code in PURGED:
            self._aftermath.casualty([record])
            return
        self.dead = True
        outcome = verdict(code)
        if outcome is Outcome.REFUSED:
            self._aftermath.suspect(record)
            self._stop(Outcome.UNKNOWN, f"in one request with a refused one: {error.str()}")
            return
        if outcome is Outcome.UNAVAILABLE:
            self.gone(record[1], error.str())
        self._stop(outcome, error.str(), record)

    def _solo_answered(self, record: Record, error: KafkaError | None) -> None:
        if self._over:
            return
        if error is None:
            self.refused.pop(record[0], None)
            self._accepted.append(record[0])
            self._try_next()
        elif verdict(error.code()) is Outcome.REFUSED:
            self._refuse(record, error.str())
        else:
            self._stop(verdict(error.code()), error.str(), record)

    def _try_next(self) -> bool:
        suspect = self._aftermath.next_suspect() if self._stopped else None
        if suspect is not None:
            self._solo.send(suspect, self._solo_answered)
        return suspect is not None

    def _refuse(self, record: Record, reason: str) -> bool:
        """Refused alone. Told when all before it is answered; what is behind it is not handed over."""
        if len(self.refused) >= REMEMBERED:
            self.refused.pop(next(iter(self.refused)))
        self.refused[record[0]] = None
        return self._stop(Outcome.REFUSED, reason, record)

    def _stop(self, outcome: Outcome, reason: str, record: Record | None = None) -> bool:
        """Hand over nothing more in this session."""
        if record is not None:
            self._aftermath.tell(Failed(record[0], outcome, reason))
        if not self._stopped:
            self._stopped = True
            self._aftermath.cause = (Outcome.UNKNOWN if outcome is Outcome.REFUSED else outcome, reason)
            self._aftermath.casualty(self._waiting)
            self._waiting.clear()
        return False

    def _conclude(self) -> None:
        """Tell of the failure once what is on the wire has been answered."""
        if self.dead:
            # Again and again: a request that the broker refused behind the failed one comes back into the queue.
            self._main.purge(in_queue=True, in_flight=False, blocking=False)
            self._poll(0)
        if len(self._main) or self._solo.busy or self._try_next():
            return
        self._aftermath.casualty(self._primer.behind())
        said = self._aftermath.conclusion()
        self._failed += said
        self._told = self._told or bool(said)
        if self.dead and not self._told:
            self._begin()  # nobody is without an answer: the next message goes on with a new producer

    # ------------------------------------------------------------------ the end

    @property
    def on_the_wire(self) -> int:
        return len(self._main) + self._solo.busy

    def hang_up(self) -> list[Producer]:
        """Nothing more goes out. The producers that are left to be emptied and forgotten."""
        self._over = True
        left = [self._main, *self._solo.leave()]
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
