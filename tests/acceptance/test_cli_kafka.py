"""`pillarbox run` from PostgreSQL to a real Kafka broker."""

import uuid
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pillarbox import Outbox
from tests.acceptance.command import Command, free_port, until

COUNT = 200


def created(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})  # ends what is under way when nobody holds it
    for future in admin.create_topics([NewTopic(topic, 3, 1)]).values():
        future.result(30)


def read_back(servers: str, topic: str) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, n, 0) for n in range(3)])
    found = []
    while len(found) < COUNT:
        message = consumer.poll(10)
        assert message is not None, f"{len(found)} of {COUNT} messages in the topic"
        assert message.error() is None
        found.append((message.key(), message.value(), dict(message.headers())))
    assert consumer.poll(0.5) is None
    consumer.close()
    return found


def shop_of(folder: Path, url: str, kafka: str, topic: str) -> Command:
    (folder / "pillarbox.toml").write_text(
        f'[database]\nurl = "${{SHOP_URL}}"\n[relay]\nlisten = "off"\n'
        f'[sinks.main]\nkind = "kafka"\nbootstrap_servers = "{kafka}"\n'
        f'[sinks.main.settings]\nlinger.ms = 2\n[routes.all]\nsink = "main"\ntopic = "{topic}"\n'
    )
    pillarbox = Command(folder, SHOP_URL=url)
    pillarbox("migrate", "up")
    return pillarbox


def test_from_postgres_to_kafka(tmp_path: Path, pg_url: str, kafka: str) -> None:
    """What was added is in the topic once, each key in its order, with the record's headers."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    created(kafka, topic)
    pillarbox = shop_of(tmp_path, pg_url, kafka, topic)
    assert [each["path"] for each in pillarbox.json("config", "check")] == ["relay.listen"]
    with psycopg.connect(pg_url) as conn:
        outbox = Outbox()
        for n in range(COUNT):
            outbox.add(conn, aggregate="order", key=f"k{n % 7}", type="order.created", payload={"n": n})
    assert pillarbox.json("run", "--until-idle") == {"delivered": COUNT}
    found = read_back(kafka, topic)
    for key in {key for key, _, _ in found}:
        numbers = [int(value[5:-1]) for each, value, _ in found if each == key]
        assert numbers == sorted(numbers)
    assert {value for _, value, _ in found} == {b'{"n":%d}' % n for n in range(COUNT)}
    assert all(headers["type"] == b"order.created" and "id" in headers for _, _, headers in found)


def test_a_broker_that_is_not_there_is_named(tmp_path: Path, pg_url: str) -> None:
    """With --until-idle the command gives up after a while, with 1, and has said what is wrong; nothing is lost."""
    pillarbox = shop_of(tmp_path, pg_url, f"127.0.0.1:{free_port()}", "orders")
    with psycopg.connect(pg_url) as conn:
        Outbox().add(conn, aggregate="order", key=1, type="order.created", payload={})
    said = pillarbox("run", "--until-idle", code=1).stderr
    assert "Connection refused" in said
    assert said.count("destination_away") <= 3
    assert pillarbox.json("dead", "list") == []


def test_a_missing_topic_ends_a_command(tmp_path: Path, pg_url: str, kafka: str) -> None:
    """With --once as well: a topic nobody has created is named with its cure, and the command ends with 1."""
    pillarbox = shop_of(tmp_path, pg_url, kafka, f"missing-{uuid.uuid4().hex[:8]}")
    with psycopg.connect(pg_url) as conn:
        Outbox().add(conn, aggregate="order", key=1, type="order.created", payload={})
    assert "the topic is missing: create it" in pillarbox("run", "--once", code=1).stderr


def test_status_counts_what_waits_for_a_missing_topic(tmp_path: Path, pg_url: str, kafka: str) -> None:
    """A missing topic is told by name, with how many messages wait for it and the first one's id."""
    topic = f"missing-{uuid.uuid4().hex[:8]}"
    pillarbox = shop_of(tmp_path, pg_url, kafka, topic)
    with psycopg.connect(pg_url) as conn:
        mappings = [{"aggregate": "order", "key": n % 3, "type": "order.created", "payload": {}} for n in range(7)]
        first = Outbox().add_many(conn, mappings)[0]
    wanted = (
        f"7 read so far wait for topic {topic}: UNKNOWN_TOPIC_OR_PART: the topic is missing: create it (first {first})"
    )
    with pillarbox.running("run"):
        until(lambda: wanted in pillarbox("status", "--sample", "0").stdout, wanted)
