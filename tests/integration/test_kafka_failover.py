"""Three brokers, and the leader killed while messages are on their way (B7)."""

import time
from collections.abc import Iterator

import pytest

from devtools.servers import process
from devtools.servers.kafka import Kafka
from pillarbox.brokers.kafka.settings import Settings
from pillarbox.brokers.kafka.sink import make
from pillarbox.outcome import Handle

pytestmark = [pytest.mark.slow, pytest.mark.serial]

KEYS = 20


@pytest.fixture
def cluster() -> Iterator[Kafka]:
    with Kafka.start(process.temporary_folder("kafka-failover"), brokers=3) as running:
        yield running


def test_a_killed_leader_loses_nothing_and_turns_nothing_round(cluster: Kafka, full: bool) -> None:
    """A broker dies under load, in a full round each of them: nothing fails, each key stays in order, no message is there twice."""
    cluster.create_topic("orders", 4, {"min.insync.replicas": "2"})
    sink = make("events", Settings(bootstrap_servers=cluster.bootstrap))
    sink.open()
    process.wait_until(lambda: not sink.away(["orders"]), seconds=15, what="the topic is there")
    assert sink.warnings() == []
    accepted: list[Handle] = []
    sent = 0

    def work(seconds: float) -> None:
        nonlocal sent
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if sent - len(accepted) < 2000:
                sink.send([(n, "orders", b"k%d" % (n % KEYS), b"%d" % n, []) for n in range(sent, sent + 100)])
                sent += 100
            answers = sink.answers(0.02)
            assert answers.failed == []
            accepted.extend(answers.accepted)

    work(1)
    for node in cluster.nodes if full else cluster.nodes[:1]:
        before = len(accepted)
        node.kill()
        work(2)
        cluster.start_again()
        deadline = time.monotonic() + 30
        while len(accepted) < before + 3000 and time.monotonic() < deadline:
            work(0.2)
        assert len(accepted) >= before + 3000
    process.wait_until(
        lambda: accepted.extend(sink.answers(0.1).accepted) or len(accepted) == sent, seconds=20, what="all"
    )
    sink.close()
    stored: dict[bytes | None, list[int]] = {}
    for record in cluster.read_all("orders"):
        stored.setdefault(record.key, []).append(int(record.value))
    assert all(numbers == list(range(numbers[0], sent, KEYS)) for numbers in stored.values())
    assert sum(map(len, stored.values())) == sent
