"""Where the play takes place: a folder, a database with its tables, a configuration, a destination."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pillarbox.config import load
from pillarbox.testing.readback import FileReadback, KafkaReadback, Readback
from pillarbox.wiring import storage_of

CONFIG = """\
[database]
url = "{url}"

[relay]
listen = "off"
lease = 0.5       # a relay that dies is replaced within half a second

[sinks.out]
{sink}

[routes.orders]
sink = "out"
topic = "{topic}"
"""


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    url: str
    kafka: str | None  # host:port; None: a file
    topic: str  # of this run alone: what others left in it would look like ghosts

    @property
    def config(self) -> Path:
        return self.folder / "pillarbox.toml"

    @property
    def outline(self) -> str:
        names = "SQLite", "a file" if self.kafka is None else "Kafka"
        return " → ".join(names if self.url.startswith("sqlite") else ("PostgreSQL", names[1]))

    def build(self) -> None:
        path = self.folder / "orders.jsonl"
        sink = f'kind = "file"\npath = "{path}"'
        if self.kafka is not None:
            sink = f'kind = "kafka"\nbootstrap_servers = "{self.kafka}"'
            _create_topic(self.kafka, self.topic)
        self.config.write_text(CONFIG.format(url=self.url, sink=sink, topic=self.topic))
        self.config.chmod(0o600)
        storage_of(load(self.config)).migrate(lanes=16, dry_run=False)

    def readback(self) -> Readback:
        if self.kafka is not None:
            return KafkaReadback(self.kafka, self.topic)
        return FileReadback(self.folder / "orders.jsonl")


@contextlib.contextmanager
def stage(postgres: str | None = None, kafka: str | None = None) -> Iterator[Stage]:
    """Built, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pillarbox-demo-") as name:
        folder = Path(name)
        url = postgres or f"sqlite:///{folder / 'shop.db'}"
        built = Stage(folder, url, kafka, topic=f"shop-{secrets.token_hex(4)}" if kafka else "orders")
        built.build()
        yield built


def _create_topic(bootstrap_servers: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])[topic].result(30.0)
