"""Kafka as a sink: sessions, destinations, and the port between them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pillarbox.brokers.kafka.outgoing import Known
from pillarbox.brokers.kafka.partition import PARTITIONERS
from pillarbox.brokers.kafka.session import Session, settings_of
from pillarbox.brokers.kafka.settings import Conf, Redactor, Settings
from pillarbox.brokers.kafka.topics import Topics
from pillarbox.clock import SystemClock
from pillarbox.errors import ConfigError, SinkUnavailable
from pillarbox.outcome import NO_ANSWERS, Answers, Failed, Record, SinkClass, Traits

mono = SystemClock.mono
LOGIN_AGAIN = 2.0  # seconds between attempts with credentials read anew
LOGIN_TOLD = 5.0  # seconds for which a failed login outshines other complaints
TROUBLE_LASTS = 30.0  # seconds for which librdkafka's last complaint explains an outage
LOGIN = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})  # noqa: SLF001 - they are librdkafka's public codes

# librdkafka's own log; silent unless somebody who looks for a fault adds a handler and sets `log_level` or `debug`.
log = logging.getLogger("pillarbox.librdkafka")
log.addHandler(logging.NullHandler())
log.propagate = False


def make(name: str, settings: Settings) -> KafkaSink:
    return KafkaSink(name, settings.bootstrap_servers, settings.settings)


class KafkaSink:
    """One idempotent producer a session; see `session` for what makes it fail-stop."""

    def __init__(self, name: str, bootstrap_servers: str, settings: Mapping[str, Any]) -> None:
        self._name = name
        self._conf = Conf(bootstrap_servers, settings)
        self.traits = Traits(delivery=SinkClass.FAIL_STOP, max_bytes=self._conf.max_bytes, max_in_flight=10_000)
        self._redact = Redactor({})
        self._trouble: tuple[float, int, str] | None = None
        self._known = Known(PARTITIONERS[str(self._conf.get("partitioner"))], self._conf.max_bytes)
        self._ids: dict[str, str] = {}
        self._topics: Topics | None = None
        self._logged_in = 0.0
        self._session: Session | None = None
        self._resting: Session | None = None  # ended with nothing in it: its producer serves the next session
        self._left: list[Producer] = []

    # ------------------------------------------------------------------ the port

    def open(self) -> None:
        self._forget_left()
        if self._resting is not None:
            self._session, self._resting = self._resting, None
            self._session.start_over()
            return
        try:
            session = Session(self._producer, self._known)
            session.gone = self._gone
            self._destinations()
        except (KafkaException, ConfigError) as error:
            raise SinkUnavailable(f"sink {self._name}: {self._redact(str(error))}") from None
        self._session = session

    def away(self, topics: Sequence[str]) -> dict[str, str]:
        try:
            known = self._destinations()
        except (KafkaException, ConfigError) as error:
            return dict.fromkeys(topics, self._redact(str(error)))
        away = known.away(topics)
        if away:
            self._log_in_again(known)
        session = self._session
        if session is not None:
            away |= self._learn(session, known, [topic for topic in topics if topic not in away])
        return away

    def send(self, batch: Sequence[Record]) -> None:
        assert self._session is not None, "send comes after open"
        self._session.send(batch)

    def answers(self, timeout: float) -> Answers:
        if self._session is None:
            return NO_ANSWERS
        answers = self._session.answers(timeout)
        if answers.failed:
            return Answers(
                answers.accepted, [Failed(f.handle, f.outcome, self._redact(f.error)) for f in answers.failed]
            )
        return answers

    def hang_up(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if session.is_clean() and not self._lately_troubled():
            self._resting = session
            return
        if session.on_the_wire and self._topics is not None:
            self._topics.doubt()
        self._left += session.hang_up()

    def fence(self, route: str, lane: int, term: int) -> None:
        """A producer cannot be told from another one: what an older owner queued may still arrive."""

    def close(self) -> None:
        for session in (self._session, self._resting):
            if session is not None:
                session.flush(1.0)
                self._left += session.hang_up()
        self._session = self._resting = None
        self._forget_left()
        self._left.clear()
        self._topics = None

    def warnings(self) -> list[str]:
        """What makes an acknowledgement worth less than it should be: replicas, min.insync.replicas."""
        return self._topics.warnings() if self._topics is not None else []

    # ------------------------------------------------------------------ clients

    def _read(self) -> dict[str, Any]:
        conf = self._conf.for_client()
        self._redact = Redactor(conf)
        return conf | {"error_cb": self._complaint, "logger": log}

    def _producer(self, gapless: bool) -> Producer:
        conf = settings_of(self._read(), gapless=gapless)
        smallest = min(self._known.limits.values(), default=0)
        if smallest and smallest < int(conf.get("batch.size", 1_000_000)):
            conf["batch.size"] = smallest  # else many small records make one request that the broker refuses
        return Producer(conf)

    def _admin(self) -> AdminClient:
        self._logged_in = mono()
        return AdminClient(self._read() | {"enable.gapless.guarantee": False, "enable.idempotence": False})

    def _destinations(self) -> Topics:
        if self._topics is None:
            self._topics = Topics(self._admin(), self._reason)
        return self._topics

    def _learn(self, session: Session, known: Topics, names: Sequence[str]) -> dict[str, str]:
        away = {}
        for name in names:
            topic = known.fine[name]
            if not session.learn(name, topic.partitions):
                away[name] = f"topic {name}: its metadata is awaited"
            if self._ids.setdefault(name, topic.id) != topic.id:  # made anew: its brokers know no producer any more
                self._ids[name] = topic.id
                session.renew_when_empty()
            limit = topic.max_bytes
            if limit is not None and self._known.limits.get(name) != limit and not self._conf.get("compression.type"):
                self._known.limits[name] = limit
                if limit < int(self._conf.get("batch.size") or 1_000_000):
                    session.renew_when_empty()
        return away

    def _forget_left(self) -> None:
        """Producers that were hung up: take their last words, which nobody asked for, until they are empty."""
        for producer in self._left:
            try:
                producer.poll(0)
            except KafkaException:
                continue
        self._left = [producer for producer in self._left if len(producer)]

    # ------------------------------------------------------------------ trouble

    def _complaint(self, error: KafkaError) -> None:
        """librdkafka calls this from other threads too."""
        known = self._trouble
        if known is not None and known[1] in LOGIN and error.code() not in LOGIN and mono() - known[0] < LOGIN_TOLD:
            return  # "all brokers are down" always follows, and explains less
        self._trouble = (mono(), error.code(), self._redact(error.str()))

    def _lately_troubled(self) -> bool:
        return self._trouble is not None and mono() - self._trouble[0] < TROUBLE_LASTS

    def _reason(self) -> str:
        return self._trouble[2] if self._trouble is not None and self._lately_troubled() else ""

    def _gone(self, topic: str, reason: str) -> None:
        if self._topics is not None:
            self._topics.refuse(topic, f"topic {topic}: {reason}")

    def _log_in_again(self, known: Topics) -> None:
        trouble = self._trouble
        if trouble is None or trouble[1] not in LOGIN or mono() - self._logged_in < LOGIN_AGAIN:
            return
        try:
            known.ask_through(self._admin())
        except (KafkaException, ConfigError) as error:
            self._trouble = (mono(), trouble[1], self._redact(str(error)))
            return
        if self._session is not None:
            self._session.renew_when_empty()
