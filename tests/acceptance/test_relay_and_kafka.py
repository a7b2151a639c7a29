"""What a relay has open to Kafka and to the database, and when it looks at its topics."""

import sys
import uuid
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.acceptance.command import Command, free_port, get, until

pytestmark = pytest.mark.slow

CONNECTIONS = """SELECT application_name FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'pillarbox %'"""


class Shop:
    """A shop with one lane and one topic."""

    def __init__(self, folder: Path, url: str, kafka: str) -> None:
        self.kafka, self.port = kafka, free_port()
        self.topic = f"named-{uuid.uuid4().hex[:8]}"
        (folder / "pillarbox.toml").write_text(
            f'[relay]\nlisten = "127.0.0.1:{self.port}"\nlease = 1\n[sinks.main]\nkind = "kafka"\n'
            f'bootstrap_servers = "{kafka}"\n[routes.all]\nsink = "main"\ntopic = "{self.topic}"\n'
        )
        self.pillarbox = Command(folder, PILLARBOX_DATABASE__URL=url)
        self.pillarbox("migrate", "up", "--lanes", "1")

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka})
        admin.create_topics([NewTopic(self.topic, 1)])[self.topic].result()

    def ready(self) -> str:
        return get(self.port, "/readyz")[1]


@pytest.fixture
def shop(tmp_path: Path, pg_url: str, kafka: str) -> Shop:
    return Shop(tmp_path, pg_url, kafka)


def test_a_topic_that_is_named_is_looked_at_at_the_start(shop: Shop) -> None:
    """A missing one is told before there is a message for it, and that it is there once somebody has created it."""
    with shop.pillarbox.running("run") as relay:
        until(lambda: "the topic is missing: create it" in shop.ready(), "the missing topic is told")
        shop.create_topic()
        until(lambda: "is missing" not in shop.ready(), "the topic is there")
        code, said = relay.terminate()
    assert (code, said.count("destination_away"), said.count("destination_back")) == (0, 1, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have names to look at in /proc only")
def test_without_a_lane_nothing_is_open(shop: Shop, pg_url: str) -> None:
    """A relay whose lanes are gone has no client of the broker, and one connection to the database."""
    shop.create_topic()
    with shop.pillarbox.running("run") as relay, psycopg.connect(pg_url, autocommit=True) as conn:

        def clients() -> list[str]:
            names = [path.read_text() for path in Path(f"/proc/{relay.process.pid}/task").glob("*/comm")]
            return [name for name in names if name.startswith("rdk:")]

        def connections() -> list[str]:
            return [name.split()[1] for (name,) in conn.execute(CONNECTIONS)]

        until(clients, "a producer")
        shop.pillarbox("route", "pause", "all")
        until(lambda: not clients(), "no producer")
        assert get(shop.port, "/healthz")[0] == 200
        until(lambda: connections() == ["relay"], "one connection, though somebody looks at it")
