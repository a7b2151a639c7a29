"""A PostgreSQL installation with a relay process and a Kafka topic, to be disturbed by one fault at a time."""

import contextlib
import json
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from confluent_kafka import KafkaException

import pillarbox
from devtools.servers.kafka import Kafka
from devtools.servers.process import ServerError
from pillarbox.testing.process import RelayProcess

CONFIG = """
[database]
url = "{url}"
[relay]
listen = "off"
lease = {lease}
attempts = 2
backoff_max = "0.3s"
send_timeout = {send_timeout}
[sinks.out]
kind = "kafka"
bootstrap_servers = "{kafka}"
[routes.all]
sink = "out"
topic = "{topic}"
"""
HEALED = 30.0  # three times the ten seconds of P11


class Stage:
    """What a fault test needs: add, run relays, look at the tables, read the topic back."""

    def __init__(self, folder: Path, url: str, kafka: Kafka, *, lease: float = 1.0, send_timeout: float = 2.0) -> None:
        self.folder, self.url, self.kafka = folder, url, kafka
        self.topic = f"t{time.monotonic_ns()}"
        self.outbox = pillarbox.Outbox()
        self.keys: dict[str, list[str]] = defaultdict(list)
        self.relays: list[RelayProcess] = []
        self.config = folder / "pillarbox.toml"
        self.settings = {"url": url, "lease": lease, "send_timeout": send_timeout, "kafka": kafka.bootstrap}
        self.write_config(url)
        with psycopg.connect(url) as conn:
            pillarbox.migrate(conn)

    def write_config(self, url: str) -> None:
        """The relays' way to the database is `url`."""
        self.config.write_text(CONFIG.format(**{**self.settings, "url": url}, topic=self.topic))

    def start(self, **environ: str) -> RelayProcess:
        relay = RelayProcess(self.config, self.folder / f"relay{len(self.relays)}.log")
        self.relays.append(relay)
        relay.start(**environ)
        return relay

    def add(self, count: int, keys: int = 12, **fields: Any) -> list[str]:
        """So many messages in one transaction, over so many keys in turn; their ids."""
        wanted = [
            {"aggregate": "order", "type": "order.changed", "payload": {"n": n}, "key": f"k{n % keys}", **fields}
            for n in range(count)
        ]
        with psycopg.connect(self.url) as conn:
            ids = [str(i) for i in self.outbox.add_many(conn, wanted)]
        for fields_of, message_id in zip(wanted, ids, strict=True):
            self.keys[fields_of["key"]].append(message_id)
        return ids

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            return conn.execute(query, values).fetchall()

    def hold(self) -> list[tuple[Any, ...]]:
        """Every row of `hold`: key, state, attempts, cardinality."""
        return self.ask("SELECT key, state, attempts, cardinality(ids) FROM pillarbox.hold ORDER BY seq")

    def arrived(self) -> dict[str, list[str]]:
        """The ids of each key in the order in which they first arrived."""
        found: dict[str, list[str]] = defaultdict(list)
        try:
            records = self.kafka.read_all(self.topic)
        except (KafkaException, ServerError):  # a broker that has only just come back
            return found
        for stored in records:
            message_id = dict(stored.headers)["id"].decode()
            key = (stored.key or b"").decode()
            if message_id not in found[key]:
                found[key].append(message_id)
        return found

    def until(self, true: Callable[[], object], within: float = HEALED, what: str = "it") -> None:
        """Wait for it, or fail with what the relays said."""
        end = time.monotonic() + within
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not happen within {within} s\n{self.said()}")
            time.sleep(0.1)

    def until_delivered(self, but: Iterable[str] = (), within: float = HEALED) -> None:
        """Everything that was added, but these, has arrived; each key in its order."""
        apart = set(but)
        wanted = {k: [i for i in ids if i not in apart] for k, ids in self.keys.items()}
        wanted = {k: ids for k, ids in wanted.items() if ids}
        self.until(lambda: sum(map(len, self.arrived().values())) >= sum(map(len, wanted.values())), within, "delivery")
        assert {k: ids for k, ids in self.arrived().items() if ids} == wanted

    def said(self) -> str:
        return "\n".join(relay.tail(15) for relay in self.relays)

    def close(self) -> None:
        for relay in self.relays:
            relay.signal(signal.SIGCONT)
            relay.kill()


@contextlib.contextmanager
def staged(folder: Path, url: str, kafka: Kafka, **settings: float) -> Iterator[Stage]:
    stage = Stage(folder, url, kafka, **settings)
    try:
        kafka.create_topic(stage.topic, 3)
        yield stage
    finally:
        stage.close()


def unwritten(stage: Stage, message_id: str, headers: object) -> None:
    """A message that plain SQL put into the log with headers no relay can encode."""
    with psycopg.connect(stage.url) as conn:
        conn.execute(
            "INSERT INTO pillarbox.message (message_id, key, aggregate, type, payload, headers) "
            "VALUES (%s, 'k0', 'order', 'order.changed', '{}', %s)",
            (UUID(message_id), json.dumps(headers)),
        )
    stage.keys["k0"].append(message_id)
