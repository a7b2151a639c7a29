"""The Kafka sink on a real broker: what it adds to librdkafka."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from devtools.servers import process
from devtools.servers.kafka import USERS, Kafka
from pillarbox.brokers.kafka import session as sessions
from pillarbox.brokers.kafka.partition import PARTITIONERS
from pillarbox.brokers.kafka.priming import wire_size
from pillarbox.brokers.kafka.settings import Settings
from pillarbox.brokers.kafka.sink import KafkaSink, make
from pillarbox.outcome import Failed, Handle, Outcome, Record

pytestmark = pytest.mark.slow

HEADERS = [("id", b"0" * 36), ("type", b"paid"), ("aggregate", b"order"), ("content-type", b"application/json")]
serial = count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka.start(process.temporary_folder("kafka-sink"), secure=True) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic-{next(serial)}"


@pytest.fixture
def open_sink(kafka: Kafka) -> Iterator[Callable[..., KafkaSink]]:
    with contextlib.ExitStack() as stack:

        def begin(servers: str = "", **settings: Any) -> KafkaSink:
            given = {name.replace("_", "."): value for name, value in settings.items()}
            sink = make("events", Settings(bootstrap_servers=servers or kafka.bootstrap, settings=given))
            stack.callback(sink.close)
            sink.open()
            return sink

        yield begin


def record(number: int, topic: str, key: bytes | None = b"k", payload: bytes | None = None) -> Record:
    return number, topic, key, b"%d" % number if payload is None else payload, HEADERS


def hear(sink: KafkaSink, wanted: int, seconds: float = 15) -> tuple[list[Handle], list[Failed]]:
    """Answers until so many were accepted or one failed."""
    accepted: list[Handle] = []
    failed: list[Failed] = []
    deadline = time.monotonic() + seconds
    while len(accepted) < wanted and not failed and time.monotonic() < deadline:
        answers = sink.answers(0.05)
        accepted += answers.accepted
        failed += answers.failed
    return accepted, failed


def until_there(sink: KafkaSink, *topics: str, seconds: float = 15) -> None:
    process.wait_until(lambda: not sink.away(topics), seconds=seconds, what="the destination is there", every=0.1)


def as_the_relay(sink: KafkaSink, records: Sequence[Record]) -> tuple[dict[Handle, Failed], int]:
    """Deliver all: after a failure hang up, send what is unanswered again, in order, beginning with one (R7)."""
    left, refused, sessions_used, pace = list(records), {}, 1, len(records)
    while left:
        until_there(sink, *{one[1] for one in left})
        window = left[:pace]
        sink.send(window)
        accepted, failed = hear(sink, len(window))
        for one in failed:
            if one.outcome is Outcome.REFUSED:
                refused[one.handle] = one
        done = {*accepted, *refused}
        left = [one for one in left if one[0] not in done]
        pace = 1 if failed else pace * 2
        if failed:
            sink.hang_up()
            sink.open()
            sessions_used += 1
    return refused, sessions_used


def numbers(kafka: Kafka, topic: str) -> list[int]:
    return [int(one.value.split(b" ")[0]) for one in kafka.read_all(topic)]


def in_order(kafka: Kafka, topic: str) -> bool:
    seen: dict[bytes | None, list[int]] = {}
    for one in kafka.read_all(topic):
        seen.setdefault(one.key, []).append(int(one.value))
    return all(found == sorted(found) for found in seen.values())


@pytest.mark.parametrize("partitioner", sorted(set(PARTITIONERS) - {"random"}))
def test_partitions_are_those_of_librdkafka(
    kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str, partitioner: str
) -> None:
    """A key goes where librdkafka's partitioner of that name, and Java for murmur2, would put it: from the first on."""
    kafka.create_topic(topic, 7)
    keys = [b"k" * n + b"%d" % n for n in range(1, 40)]
    theirs = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": partitioner, "log_level": 0})
    for key in keys:
        theirs.produce(topic, b"0", key)
    assert theirs.flush(15) == 0
    sink = open_sink(partitioner=partitioner)
    sink.send([record(n, topic, key) for n, key in enumerate(keys, 1)])
    sink.send([record(n + 100, topic, key) for n, key in enumerate(keys, 1)])
    assert len(hear(sink, 2 * len(keys))[0]) == 2 * len(keys)
    places: dict[bytes | None, set[int]] = {}
    for one in kafka.read_all(topic):
        places.setdefault(one.key, set()).add(one.partition)
    assert all(len(found) == 1 for found in places.values())


def test_order_holds_while_priming_and_when_the_queue_is_full(
    kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str
) -> None:
    """Far more than librdkafka's queue takes at once, over all keys, into partitions not seen before."""
    kafka.create_topic(topic, 6)
    sink = open_sink(queue_buffering_max_messages=50)
    for start in range(0, 6000, 1000):
        sink.send([record(n, topic, b"k%d" % (n % 41)) for n in range(start, start + 1000)])
    accepted, failed = hear(sink, 6000)
    assert (len(set(accepted)), len(accepted), failed) == (6000, 6000, [])
    assert in_order(kafka, topic)
    assert len(numbers(kafka, topic)) == 6000


def test_a_producer_is_renewed_in_mid_stream(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """Before a broker could forget it; nothing is lost, doubled or turned round."""
    kafka.create_topic(topic, 3)
    sink = open_sink()
    accepted: list[Handle] = []
    for start in range(0, 5000, 500):
        assert sink._session is not None
        sink._session.renew_when_empty()
        sink.send([record(n, topic, b"k%d" % (n % 5)) for n in range(start, start + 500)])
        sink.away([topic])
        accepted += hear(sink, 100, 0.2)[0]
    accepted += hear(sink, 5000 - len(accepted))[0]
    assert sorted(accepted) == sorted(numbers(kafka, topic)) == list(range(5000))
    assert in_order(kafka, topic)


def test_followers_of_a_first_request_do_not_pass_it(
    kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str
) -> None:
    """The hole of the proofs is closed: the first record to a partition goes alone."""
    kafka.create_topic(topic, 2)
    sink = open_sink(linger_ms=0)
    until_there(sink, topic)
    sink.send([record(99, topic, b"a")])
    assert hear(sink, 1) == ([99], [])
    first = PARTITIONERS["murmur2"](b"a") % 2
    other = next(b"%d" % n for n in range(99) if PARTITIONERS["murmur2"](b"%d" % n) % 2 != first)
    kafka.configure_topic(topic, {"max.message.bytes": "2000"})  # behind the sink's back
    kafka.freeze()
    for number in range(8):
        sink.send([record(number, topic, other, b"x" * 5000 if number == 0 else None)])
        sink.answers(0.02)
    kafka.thaw()
    accepted, failed = hear(sink, 8)
    assert (accepted, [(one.handle, one.outcome) for one in failed]) == ([], [(0, Outcome.REFUSED)])
    assert numbers(kafka, topic) == [99]


def test_poison_stops_only_itself(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """Three among two thousand, which only the broker can see: refused alone, each neighbour delivered once."""
    kafka.create_topic(topic, 2, {"cleanup.policy": "compact"})
    sink = open_sink(linger_ms=20)
    poison = {7, 700, 1999}
    refused, used = as_the_relay(
        sink, [record(n, topic, None if n in poison else b"k%d" % (n % 13)) for n in range(2000)]
    )
    assert set(refused) == poison
    assert all("failed to validate record" in one.error for one in refused.values())
    assert sorted(numbers(kafka, topic)) == sorted(set(range(2000)) - poison)
    assert in_order(kafka, topic)
    assert used < 30


def test_a_message_refused_before_goes_alone(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """Its second attempt ends no producer, and what follows waits for it."""
    kafka.create_topic(topic, 1, {"cleanup.policy": "compact"})
    sink = open_sink()
    sink.send([record(1, topic), record(2, topic, None)])
    assert [one.outcome for one in hear(sink, 9)[1]] == [Outcome.REFUSED]
    sink.hang_up()
    sink.open()
    kafka.configure_topic(topic, {"cleanup.policy": "delete"})
    time.sleep(0.3)
    sink.send([record(3, topic), record(2, topic, None), record(4, topic)])
    assert hear(sink, 3) == ([3, 2, 4], []) or numbers(kafka, topic) == [1, 3, 2, 4]
    assert sorted(numbers(kafka, topic)) == [1, 2, 3, 4]


@pytest.mark.parametrize("limit", [3000, 70_000])
def test_sizes_are_measured_as_the_broker_measures(
    kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str, limit: int
) -> None:
    """The largest that fits is accepted, one byte more is refused unsent; small ones never add up to too much."""
    kafka.create_topic(topic, 1, {"max.message.bytes": str(limit)})
    sink = open_sink(linger_ms=20)
    until_there(sink, topic)
    small = [record(n, topic, b"s", b"%d " % n + b"x" * (limit // 10)) for n in range(100)]
    sink.send(small)
    assert len(hear(sink, 100)[0]) == 100
    fits = limit - wire_size(record(1, topic, b"k", b"x" * 10_000)) + 10_000 if limit > 10_000 else 0
    fits = fits or limit - wire_size(record(1, topic, b"k", b"x" * 2_000)) + 2_000
    sink.send([record(200, topic, b"k", b"200 ".ljust(fits, b"x"))])
    assert hear(sink, 1) == ([200], [])
    sink.send([record(201, topic, b"k", b"201 ".ljust(fits + 1, b"x")), record(202, topic, b"k")])
    accepted, failed = hear(sink, 2)
    assert (accepted, [(one.handle, one.outcome) for one in failed]) == ([], [(201, Outcome.REFUSED)])
    assert str(limit) in failed[0].error
    assert numbers(kafka, topic) == [*range(100), 200]


def test_a_missing_topic_names_the_cure_and_is_found_when_made(
    kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str
) -> None:
    """Others are not concerned; nothing is sent before it is there."""
    kafka.create_topic(f"{topic}-there")
    sink = open_sink()
    away = sink.away([topic, f"{topic}-there"])
    assert list(away) == [topic]
    assert "create it" in away[topic]
    sink.send([record(1, f"{topic}-there")])
    assert hear(sink, 1) == ([1], [])
    kafka.create_topic(topic)
    until_there(sink, topic, seconds=5)
    sink.send([record(2, topic)])
    assert hear(sink, 1) == ([2], [])


def test_a_topic_that_grows_keeps_all_messages(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """New partitions are primed like the first ones."""
    kafka.create_topic(topic, 1)
    sink = open_sink()
    until_there(sink, topic)
    sink.send([record(n, topic, b"k%d" % n) for n in range(50)])
    assert len(hear(sink, 50)[0]) == 50
    kafka.add_partitions(topic, 4)
    assert sink._topics is not None
    sink._topics._look_at = 0.0
    sink.away([topic])
    process.wait_until(
        lambda: not sink.away([topic]) and sink._known.partitions[topic] == 4, seconds=10, what="it is noticed"
    )
    sink.send([record(n, topic, b"k%d" % n) for n in range(50, 150)])
    assert len(hear(sink, 100)[0]) == 100
    assert {one.partition for one in kafka.read_all(topic)} == {0, 1, 2, 3}


def test_a_stopped_broker_refuses_nothing(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """Short outages are sat out in the session; after hanging up the destination is away until it is back."""
    kafka.create_topic(topic, 2)
    sink = open_sink()
    until_there(sink, topic)
    sink.send([record(n, topic, b"k%d" % n) for n in range(10)])
    assert len(hear(sink, 10)[0]) == 10
    kafka.stop()
    sink.send([record(n, topic, b"k%d" % n) for n in range(10, 20)])
    assert hear(sink, 1, 1) == ([], [])
    kafka.start_again()
    assert len(hear(sink, 10)[0]) == 10
    kafka.stop()
    sink.send([record(20, topic)])
    assert hear(sink, 1, 0.5) == ([], [])
    sink.hang_up()
    sink.open()
    assert sink.away([topic])
    kafka.start_again()
    began = time.monotonic()
    until_there(sink, topic)
    assert time.monotonic() - began < 10
    sink.send([record(20, topic)])
    assert hear(sink, 1) == ([20], [])
    assert sorted(numbers(kafka, topic)) == list(range(21))


def test_a_frozen_broker_holds_nobody_up(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """Every call returns soon, nothing is refused, and it goes on when the broker does."""
    kafka.create_topic(topic)
    sink = open_sink()
    until_there(sink, topic)
    sink.send([record(0, topic)])
    assert hear(sink, 1) == ([0], [])
    kafka.freeze()
    slowest = 0.0

    def timed(call: Callable[[], Any]) -> Any:
        nonlocal slowest
        began = time.monotonic()
        answer = call()
        slowest = max(slowest, time.monotonic() - began)
        return answer

    for number in range(1, 50):
        timed(lambda number=number: sink.send([record(number, topic)]))
        assert timed(lambda: sink.answers(0)) == ([], [])
    for _ in range(3):
        timed(sink.hang_up)
        timed(sink.open)
        assert timed(lambda: sink.away([topic]))
    assert slowest < 0.5
    kafka.thaw()
    until_there(sink, topic)
    sink.send([record(number, topic) for number in range(1, 50)])
    assert len(hear(sink, 49)[0]) == 49
    assert sorted(set(numbers(kafka, topic))) == list(range(50))


def writer(password: Any) -> dict[str, Any]:
    user = {"sasl_username": "writer", "sasl_password": password}
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **user}


def test_a_producer_that_failed_for_good_can_be_closed(kafka: Kafka, open_sink: Callable[..., KafkaSink]) -> None:
    """Without any right it gets no id of its own, which ends it; the relay still ends in good order."""
    sink, younger = (open_sink(kafka.secured, **writer(USERS["writer"])) for _ in range(2))
    assert younger._session is not None
    # A producer tells of its end once: the younger one tells when the older one has something to tell, too.
    producer = younger._session._out.producer

    def failed_for_good() -> bool:
        try:
            producer.flush(0.1)
        except KafkaException:
            return True
        return False

    process.wait_until(failed_for_good, seconds=15, what="no right to write idempotently", every=0.1)
    sink.close()


def test_a_missing_right_makes_one_topic_away(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """The cure is named; once granted it is used; the topics we may write to are not concerned."""
    kafka.create_topic(topic)
    kafka.create_topic(f"{topic}-open")

    def grant(name: str) -> None:
        admin = kafka.admin()
        rule = AclBinding(
            ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:writer", "*", AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        admin.create_acls([rule])[rule].result(15)

    grant(f"{topic}-open")
    sink = open_sink(kafka.secured, **writer(USERS["writer"]))
    until_there(sink, f"{topic}-open")
    assert "grant WRITE" in sink.away([topic, f"{topic}-open"])[topic]
    sink.send([record(1, f"{topic}-open")])
    assert hear(sink, 1) == ([1], [])
    grant(topic)
    until_there(sink, topic)
    sink.send([record(2, topic)])
    assert hear(sink, 1) == ([2], [])


def test_a_wrong_password_is_an_outage_and_stays_secret(
    kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read again until it is right; it stands in no text."""
    caplog.set_level(logging.DEBUG)
    kafka.create_topic(topic)
    current = ["wrong-canary"]
    sink = open_sink(kafka.secured, **(writer(lambda: current[0]) | {"sasl_username": "admin"}))
    said: list[str] = []

    def login_failed() -> bool:
        said.extend(sink.away([topic]).values())
        return any("uthentication" in text for text in said)

    process.wait_until(login_failed, seconds=10, what="the reason is told", every=0.1)
    sink.hang_up()
    sink.open()
    current[0] = USERS["admin"]
    until_there(sink, topic)
    sink.hang_up()
    sink.open()
    until_there(sink, topic)
    sink.send([record(1, topic)])
    assert hear(sink, 1) == ([1], [])
    assert "canary" not in repr(said) + caplog.text + repr(vars(sink)["_redact"]("x" + current[0]))


def test_what_weakens_an_acknowledgement_is_told(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """One replica is nothing that a person should find out after a fire."""
    kafka.create_topic(topic)
    sink = open_sink()
    until_there(sink, topic)
    assert [text for text in sink.warnings() if topic in text and "one replica" in text]


def test_a_clean_session_keeps_its_producer(kafka: Kafka, open_sink: Callable[..., KafkaSink], topic: str) -> None:
    """Hanging up with nothing on the wire costs no new connection."""
    kafka.create_topic(topic)
    sink = open_sink()
    sink.send([record(1, topic)])
    assert hear(sink, 1) == ([1], [])
    before = sink._session
    sink.hang_up()
    sink.open()
    assert isinstance(before, sessions.Session)
    assert sink._session is before
