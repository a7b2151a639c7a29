"""What librdkafka and a real broker do when something fails: the facts on which the Kafka sink is built.

The producer here is librdkafka's own, with the gapless guarantee and none of the sink's care.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from devtools.servers import process
from devtools.servers.kafka import Kafka

pytestmark = pytest.mark.slow

SILENT = logging.getLogger("tests.librdkafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
GAPLESS = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,
    "enable.gapless.guarantee": True,
    "linger.ms": 0,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
    "logger": SILENT,
}


class Probe:
    """A producer and everything it said."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.complaints: list[str] = []
        complain = {"error_cb": lambda error: self.complaints.append(error.name())}
        self.producer = Producer(GAPLESS | {"bootstrap.servers": bootstrap} | complain | given)
        self.codes: dict[bytes, str] = {}
        self.fatal = ""

    def send(self, topic: str, *values: bytes, **more: Any) -> None:
        for value in values:
            self.producer.produce(topic, value, on_delivery=self._heard, **more)

    def _heard(self, error: KafkaError | None, message: Any) -> None:
        self.codes[message.value()[:3]] = error.name() if error else "ok"

    def listen(self, until: Callable[[], object], seconds: float = 15) -> bool:
        deadline = time.monotonic() + seconds
        while not until() and time.monotonic() < deadline:
            try:
                self.producer.poll(0.05)
            except KafkaException as error:
                self.fatal = error.args[0].name()
        return bool(until())

    def warm(self, topic: str, partition: int = 0) -> None:
        self.send(topic, b"w", key=b"w", partition=partition)
        assert self.listen(lambda: self.codes.get(b"w") == "ok")
        self.codes.clear()

    def refuses_more(self, topic: str) -> str:
        try:
            self.producer.produce(topic, b"zzz")
        except KafkaException as error:
            return str(error.args[0].name())
        return ""


def numbered(count: int) -> list[bytes]:
    return [b"%03d" % n for n in range(count)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka.start(process.temporary_folder("kafka-proofs"), secure=True) as running:
        yield running


def trickle_into_a_frozen_broker(kafka: Kafka, probe: Probe, topic: str) -> None:
    """Five requests of one record each are on the wire together; the first is poison."""
    kafka.freeze()
    for value in numbered(8):
        probe.send(topic, value + (b"x" * 5000 if value == b"000" else b""), partition=0)
        time.sleep(0.02)  # librdkafka puts what it finds into one request
    kafka.thaw()


@pytest.mark.parametrize("in_flight", [5, 1])
def test_the_guarantee_alone_lets_followers_of_a_first_request_pass(kafka: Kafka, in_flight: int) -> None:
    """A broker that has not seen the producer in a partition takes any sequence number (KAFKA-15591)."""
    topic = f"hole-{in_flight}"
    kafka.create_topic(topic, 2, {"max.message.bytes": "2000"})
    probe = Probe(kafka.bootstrap, max_in_flight=in_flight)
    probe.warm(topic, partition=1)
    trickle_into_a_frozen_broker(kafka, probe, topic)
    assert probe.listen(lambda: probe.fatal)
    probe.listen(lambda: len(probe.codes) >= in_flight, 2)
    passed = [record.value for record in kafka.read_all(topic) if record.partition == 0]
    assert probe.codes[b"000"] == "MSG_SIZE_TOO_LARGE"
    assert passed == numbered(8)[1 : max(2, in_flight)]


def test_behind_an_accepted_record_nothing_passes_a_failure(kafka: Kafka) -> None:
    """Once a partition has taken one record of the producer, the broker refuses what does not follow."""
    kafka.create_topic("primed", 1, {"max.message.bytes": "2000"})
    probe = Probe(kafka.bootstrap)
    probe.warm("primed")
    trickle_into_a_frozen_broker(kafka, probe, "primed")
    assert probe.listen(lambda: probe.fatal == "_GAPLESS_GUARANTEE")
    probe.producer.purge()
    assert probe.listen(lambda: len(probe.codes) == 8)
    assert probe.codes.pop(b"000") == "MSG_SIZE_TOO_LARGE"
    # Four of them had been sent and were refused: the code tells nothing of whether a message was on the wire.
    assert set(probe.codes.values()) <= {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}
    assert [record.value for record in kafka.read_all("primed")] == [b"w"]


@pytest.mark.parametrize(
    ("code", "config", "poison"),
    [
        ("MSG_SIZE_TOO_LARGE", {"max.message.bytes": "2000"}, {"value": b"007" + b"x" * 3000}),
        ("INVALID_RECORD", {"cleanup.policy": "compact"}, {"key": None}),
        ("INVALID_TIMESTAMP", {"message.timestamp.after.max.ms": "1000"}, {"timestamp": 4_000_000_000_000}),
    ],
)
def test_poison_fails_its_request_and_ends_the_producer(
    kafka: Kafka, code: str, config: dict[str, str], poison: dict[str, Any]
) -> None:
    """All records of the request get the same code, none of them is written, nothing goes after it."""
    topic = f"poison-{code.lower()}"
    kafka.create_topic(topic, 1, config)
    probe = Probe(kafka.bootstrap, linger_ms=50, batch_num_messages=20)
    probe.warm(topic)
    for value in numbered(40):
        special = poison if value == b"007" else {}
        probe.send(
            topic, special.get("value", value), **{"key": b"k"} | {n: v for n, v in special.items() if n != "value"}
        )
    assert probe.listen(lambda: probe.fatal == "_GAPLESS_GUARANTEE")
    probe.producer.purge()
    assert probe.listen(lambda: len(probe.codes) == 40)
    assert Counter(probe.codes.values()) == {code: 20, "_PURGE_QUEUE": 20}
    assert probe.refuses_more(topic) == "_FATAL"
    assert [record.value for record in kafka.read_all(topic)] == [b"w"]


def test_without_the_guarantee_a_producer_lives_on_after_a_refusal(kafka: Kafka) -> None:
    """What the sink's second producer needs."""
    kafka.create_topic("solo", 1, {"max.message.bytes": "2000"})
    probe = Probe(kafka.bootstrap, enable_gapless_guarantee=False, max_in_flight=1)
    for value in (b"001", b"002" + b"x" * 3000, b"003"):
        probe.send("solo", value)
        assert probe.listen(lambda value=value: value[:3] in probe.codes)
    assert list(probe.codes.values()) == ["ok", "MSG_SIZE_TOO_LARGE", "ok"]
    assert probe.fatal == ""


def test_a_topic_made_late_loses_nothing(kafka: Kafka) -> None:
    """Nothing fails while it is missing, if `topic.metadata.propagation.max.ms` is long; else it fails locally."""
    patient = Probe(kafka.bootstrap, topic_metadata_propagation_max_ms=2_000_000)
    patient.send("late", *numbered(3))
    hasty = Probe(kafka.bootstrap, topic_metadata_propagation_max_ms=100)
    hasty.send("never", b"000")
    assert hasty.listen(lambda: hasty.codes)
    assert not patient.listen(lambda: patient.codes, 0.5)
    kafka.create_topic("late")
    assert patient.listen(lambda: len(patient.codes) == 3)
    assert hasty.codes == {b"000": "UNKNOWN_TOPIC_OR_PART"}
    assert (hasty.fatal, hasty.refuses_more("late")) == ("", "")  # a local failure leaves no gap behind: beware
    assert [record.value for record in kafka.read_all("late")][:3] == numbered(3)


def test_too_long_a_patience_is_none(kafka: Kafka) -> None:
    """An hour, the longest that librdkafka takes, overflows: the record of an unknown topic fails at once."""
    probe = Probe(kafka.bootstrap, topic_metadata_propagation_max_ms=3_600_000)
    probe.send("unknown", b"000")
    assert probe.listen(lambda: probe.codes == {b"000": "UNKNOWN_TOPIC_OR_PART"})


def test_a_topic_deleted_in_use_is_silence(kafka: Kafka) -> None:
    """No error comes; the records stay queued, and go out in order when the topic is made again."""
    kafka.create_topic("gone")
    probe = Probe(kafka.bootstrap)
    probe.warm("gone")
    kafka.delete_topic("gone")
    probe.send("gone", *numbered(3))
    assert not probe.listen(lambda: probe.codes or probe.fatal, 3)
    kafka.create_topic("gone")
    assert probe.listen(lambda: len(probe.codes) == 3)
    assert [record.value for record in kafka.read_all("gone")] == numbered(3)


def test_wrong_password_is_silence_and_a_complaint(kafka: Kafka) -> None:
    """No message fails for it; the error callback tells."""
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "writer"}
    probe = Probe(kafka.secured, **sasl, sasl_password="wrong")
    probe.send("any", b"000")
    assert probe.listen(lambda: "_AUTHENTICATION" in probe.complaints)
    assert (probe.codes, probe.fatal) == ({}, "")


def test_a_missing_right_fails_the_message(kafka: Kafka) -> None:
    """And, to a user who may write nowhere, the producer itself."""
    kafka.create_topic("closed")
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "writer"}
    probe = Probe(kafka.secured, **sasl, sasl_password="writer-canary")
    probe.send("closed", b"000")
    assert probe.listen(lambda: probe.codes and probe.fatal)
    assert (probe.codes, probe.fatal) == ({b"000": "TOPIC_AUTHORIZATION_FAILED"}, "CLUSTER_AUTHORIZATION_FAILED")


def test_a_frozen_broker_and_the_two_codes_of_a_purge(kafka: Kafka) -> None:
    """What was in flight may arrive after all, or not. Letting go blocks nobody."""
    kafka.create_topic("frozen")
    probe = Probe(kafka.bootstrap)
    probe.warm("frozen")
    kafka.freeze()
    probe.send("frozen", *numbered(6))
    time.sleep(0.2)
    probe.send("frozen", b"009")
    began = time.monotonic()
    probe.producer.purge(blocking=False)
    assert probe.listen(lambda: len(probe.codes) == 7)
    del probe.producer
    assert time.monotonic() - began < 1.0
    assert set(probe.codes.values()) == {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}
    sent = {value for value, code in probe.codes.items() if code == "_PURGE_INFLIGHT"}
    kafka.thaw()
    assert {record.value for record in kafka.read_all("frozen")} - {b"w"} <= sent


def test_a_stopped_broker_fails_nothing(kafka: Kafka) -> None:
    """Without a message time-out records wait, and go out in order when it is back."""
    kafka.create_topic("stopped")
    probe = Probe(kafka.bootstrap)
    probe.warm("stopped")
    kafka.stop()
    probe.send("stopped", *numbered(5))
    assert not probe.listen(lambda: probe.codes or probe.fatal, 1)
    kafka.start_again()
    assert probe.listen(lambda: len(probe.codes) == 5)
    assert [record.value for record in kafka.read_all("stopped")] == [b"w", *numbered(5)]
