"""One session, from opening to hanging up: fail-stop by librdkafka's gapless guarantee, and by what it lacks.

The guarantee ends the producer at the first permanent failure. Beside it: the first record to each partition goes
alone (`priming`), a record known to be refused goes alone through a second producer (`solo`), and after a failure
nothing is handed over any more while what is on the wire is still answered, so that hanging up makes no duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pillarbox.brokers.kafka.aftermath import Aftermath
from pillarbox.brokers.kafka.outgoing import Known, Outgoing
from pillarbox.brokers.kafka.solo import Solo
from pillarbox.brokers.kafka.verdicts import PURGED, verdict
from pillarbox.outcome import Answers, Failed, Handle, Outcome, Record

REMEMBERED = 10_000
Producers = Callable[[bool], Producer]  # gapless or not


class Session:
    """What is handed to librdkafka, and what it answers."""

    def __init__(self, producers: Producers, known: Known) -> None:
        self._producers = producers
        self._known = known
        self.gone: Callable[[str, str], None] = lambda _topic, _reason: None
        self._solo = Solo(lambda: producers(False))
        self._accepted: list[Handle] = []
        self._failed: list[Failed] = []
        self.answered = self._answered_by()
        self._over = False
        self._begin()

    def _begin(self) -> None:
        """A new producer; everything before it is answered."""
        self._out = Outgoing(self._producers(True), self._known, self)
        self.dead = False  # the producer will write nothing any more
        self._unharmed()

    def _unharmed(self) -> None:
        self._stopped = False
        self._told = False
        self._aftermath = Aftermath()

    def start_over(self) -> None:
        """Another session with the same producer: the last one ended with nothing on the wire."""
        self._accepted.clear()
        self._failed.clear()
        self._out.start_over()
        self._unharmed()

    def learn(self, topic: str, partitions: int) -> bool:
        self._renew_if_empty()
        return bool(self._out.learn(topic, partitions))

    def renew_when_empty(self) -> None:
        """Secrets or limits have changed: another producer, as soon as this one has no more to say."""
        self._out.renew = True

    def _renew_if_empty(self) -> None:
        if not self._out.is_old() or self._stopped:
            return
        self._poll(0)  # complaints count as on the wire until they are heard
        if not self.on_the_wire:
            waiting = self._out.waiting
            self._begin()
            self._out.waiting = waiting

    def send(self, batch: Sequence[Record]) -> None:
        # What failed in the client itself leaves no gap that the guarantee would see: hear of it before going on.
        self._poll(0)
        self._renew_if_empty()
        out = self._out
        records = iter(batch)
        if not (self._stopped or out.renew or out.waiting or self._solo.busy):
            out.send(records)
        if self._stopped:
            self._aftermath.casualty(records)
        else:
            out.waiting.extend(records)

    def alone(self, record: Record) -> bool:
        self._solo.send(record, self._solo_answered)
        return False

    # ------------------------------------------------------------------ answers

    def answers(self, timeout: float) -> Answers:
        self._poll(timeout)
        if self._stopped:
            self._conclude()
        elif self._out.waiting and not self._solo.busy:
            self._go_on()
        accepted, failed = self._accepted[:], self._failed[:]
        self._accepted.clear()
        self._failed.clear()
        return Answers(accepted, failed)

    def _go_on(self) -> None:
        self._renew_if_empty()
        if self._out.renew:
            return
        self._out.send_waiting()
        if self._stopped:
            self._aftermath.casualty(self._out.waiting)

    def _poll(self, timeout: float) -> None:
        try:
            if self._solo.busy:
                self._solo.poll(timeout)
                timeout = 0
            self._out.producer.poll(timeout)
        except KafkaException as error:  # the producer's end; messages tell of it as well, but perhaps none is there
            self.dead = True
            cause = error.args[0]
            self.stop(verdict(cause.code()), cause.str())

    def _answered_by(self) -> Callable[[Record, KafkaError | None, Message], None]:
        """The delivery callback: a plain function, since it is called for each message."""
        accept, failure = self._accepted.append, self._failure

        def answered(record: Record, error: KafkaError | None, _message: Message) -> None:
            if error is None:
                accept(record[0])
            else:
                failure(record, error)

        return answered

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
            self.stop(Outcome.UNKNOWN, f"in one request with a refused one: {error.str()}")
            return
        if outcome is Outcome.UNAVAILABLE:
            self.gone(record[1], error.str())
        self.stop(outcome, error.str(), record)

    def _solo_answered(self, record: Record, error: KafkaError | None) -> None:
        if self._over:
            return
        if error is None:
            self._known.refused.pop(record[0], None)
            self._accepted.append(record[0])
            self._try_next()
        elif verdict(error.code()) is Outcome.REFUSED:
            self.refuse(record, error.str())
        else:
            self.stop(verdict(error.code()), error.str(), record)

    def _try_next(self) -> bool:
        suspect = self._aftermath.next_suspect() if self._stopped else None
        if suspect is not None:
            self._solo.send(suspect, self._solo_answered)
        return suspect is not None

    def refuse(self, record: Record, reason: str) -> bool:
        """Refused alone. Told when all before it is answered; what is behind it is not handed over."""
        refused = self._known.refused
        if len(refused) >= REMEMBERED:
            refused.pop(next(iter(refused)))
        refused[record[0]] = None
        return self.stop(Outcome.REFUSED, reason, record)

    def stop(self, outcome: Outcome, reason: str, record: Record | None = None) -> bool:
        """Hand over nothing more in this session."""
        if record is not None:
            self._aftermath.tell(Failed(record[0], outcome, reason))
        if not self._stopped:
            self._stopped = True
            self._aftermath.cause = (Outcome.UNKNOWN if outcome is Outcome.REFUSED else outcome, reason)
        return False

    def _conclude(self) -> None:
        """Tell of the failure once what is on the wire has been answered."""
        if self.dead:
            # Again and again: a request that the broker refused behind the failed one comes back into the queue.
            self._out.producer.purge(in_queue=True, in_flight=False, blocking=False)
            self._poll(0)
        if self._told or self.on_the_wire or self._try_next():
            return
        self._aftermath.casualty(self._out.left())
        said = self._aftermath.conclusion()
        self._failed += said
        self._told = bool(said)
        if self.dead and not said:
            self._begin()  # nobody is without an answer: the next message goes on with a new producer

    # ------------------------------------------------------------------ the end

    def is_clean(self) -> bool:
        """Whether the next session can go on with this producer. Takes what was answered and not asked for."""
        self._poll(0)
        return not self.dead and not self.on_the_wire

    @property
    def on_the_wire(self) -> int:
        return len(self._out.producer) + self._solo.busy

    def hang_up(self) -> list[Producer]:
        """Nothing more goes out. The producers that are left to be emptied and forgotten."""
        self._over = True
        left = [self._out.producer, *self._solo.leave()]
        for producer in left:
            producer.purge(in_queue=True, in_flight=True, blocking=False)
        return left

    def flush(self, timeout: float) -> None:
        try:
            self._out.producer.flush(timeout)
        except KafkaException:  # it has failed for good, and nothing of it is left to wait for
            self.dead = True


def settings_of(conf: Mapping[str, Any], *, gapless: bool) -> dict[str, Any]:
    """The first producer's settings, or the second's, which must live on after a refusal."""
    if gapless:
        return dict(conf)
    return dict(conf) | {"enable.gapless.guarantee": False, "max.in.flight.requests.per.connection": 1, "linger.ms": 0}
