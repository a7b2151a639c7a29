"""The Kafka sink passes the suite that ships with the package, on a real broker."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from devtools.servers import process
from devtools.servers.kafka import Kafka
from pillarbox.brokers import registry
from pillarbox.outcome import Record
from pillarbox.ports import Sink
from pillarbox.testing.contracts.sink import Arrived, SinkContract, SinkHarness

serial = count()


class KafkaHarness(SinkHarness):
    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        number = next(serial)
        self.topics = (f"orders-{number}", f"parcels-{number}")
        # One partition where the suite looks at what lies behind a failure: Kafka stops a partition, not a topic.
        for topic, partitions in zip(self.topics, (1, 3), strict=True):
            kafka.create_topic(topic, partitions)

    def make(self) -> Sink:
        return registry.make("kafka", "events", {"bootstrap_servers": self.kafka.bootstrap})

    def arrived(self) -> list[Arrived]:
        found = [(topic, record) for topic in self.topics for record in self.kafka.read_all(topic)]
        return [Arrived(topic, record.key, record.value, dict(record.headers)) for topic, record in found]

    def poison(self, record: Record) -> Record:
        """Compacted topics take no record without a key, and the whole request fails with it."""
        self.kafka.configure_topic(self.topics[0], {"cleanup.policy": "compact"})
        return (*record[:2], None, *record[3:])  # type: ignore[return-value]

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.kafka.stop()
        yield
        self.kafka.start_again()

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        self.kafka.freeze()
        yield
        self.kafka.thaw()


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    """One that these tests may stop and freeze."""
    folder: Path = process.temporary_folder("kafka-contract")
    with Kafka.start(folder) as kafka:
        yield kafka


class TestKafkaSink(SinkContract):
    @pytest.fixture
    def harness(self, broker: Kafka) -> Callable[[], SinkHarness] | SinkHarness:
        return KafkaHarness(broker)
