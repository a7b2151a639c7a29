"""Installations for the crash gate: SQLite to a file, PostgreSQL to Kafka."""

import contextlib
import random
import secrets
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from devtools.servers.kafka import Kafka
from pillarbox.brokers.filelock import FileLock
from pillarbox.clock import SystemClock
from pillarbox.config import load
from pillarbox.testing.crash import House
from pillarbox.testing.process import RelayProcess
from pillarbox.testing.readback import FileReadback, KafkaReadback
from pillarbox.testing.writers import Manners, furnish
from pillarbox.wiring import Storage, storage_of

clock = SystemClock()
SQLITE_CONFIG = """
[database]
url = "{url}"
[relay]
listen = "off"
lease = 0.5
[log]
retention = "1 hour"
[sinks.out]
kind = "file"
path = "{out}"
rotate_bytes = 200_000
[routes.orders]
sink = "out"
match = {{ aggregate = ["order"] }}
"""
POSTGRES_CONFIG = """
[database]
url = "{relay_url}"
maintenance_url = "{url}"
[relay]
listen = "off"
lease = 0.5
attempts = 2
backoff_max = "0.2s"
[log]
retention = "1 hour"
[sinks.out]
kind = "kafka"
bootstrap_servers = "{kafka}"
[routes.orders]
sink = "out"
topic = "{topic}"
match = {{ aggregate = ["order"] }}
"""


def terminate(relay: RelayProcess) -> None:
    """Ask it to stop once it has lanes: it gives them back. Asked twice it would end at once."""
    said = relay.said()
    if "lanes_taken" in said and "stopping" not in said:
        relay.signal(signal.SIGTERM)


def sqlite_house(folder: Path) -> House:
    """To a file in a folder that can be hidden for a moment."""
    database, out = folder / "gate.db", folder / "out" / "events.jsonl"
    out.parent.mkdir()
    url = f"sqlite:///{database}"
    config = folder / "pillarbox.toml"
    config.write_text(SQLITE_CONFIG.format(url=url, out=out))
    storage_of(load(config)).migrate(lanes=1, dry_run=False)
    furnish(url)

    def hide_the_folder(_relay: RelayProcess) -> None:
        hidden = out.parent.rename(folder / "hidden")
        clock.sleep(0.1)
        hidden.rename(out.parent)

    def let_it_age() -> None:
        """All but the last hundred seem to be two hours old."""
        with contextlib.closing(sqlite3.connect(database, timeout=30)) as conn:
            conn.execute(
                "UPDATE pillarbox_message SET created_at = created_at - 7200 "
                "WHERE id < (SELECT max(id) - 100 FROM pillarbox_message)"
            )
            conn.commit()

    def slow_disk(draw: random.Random) -> None:
        """Somebody else has the file for longer and longer moments."""
        with contextlib.suppress(OSError):  # the folder may be hidden just now
            lock = FileLock(out.with_name(f"{out.name}.lock"))
            with contextlib.suppress(TimeoutError), lock.held(5.0):
                clock.sleep(draw.uniform(0.02, 0.4))
            lock.close()

    return House(
        url,
        url,
        config,
        folder,
        FileReadback(out),
        stirs={"hangup": hide_the_folder, "giveback": terminate},
        before={"prune": let_it_age},
        weather=slow_disk,
        writers=2,
    )


@contextlib.contextmanager
def roles(admin_url: str, url: str, storage: Storage) -> Iterator[tuple[str, str]]:
    """URLs of a writer and a relay with the rights of DESIGN 3 and no more."""
    names = {kind: f"{kind}_{secrets.token_hex(4)}" for kind in ("writer", "relay")}
    parts = urlsplit(url)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        for name in names.values():
            admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    storage.grant(**names, viewer=None, dry_run=False)
    writer, relay = (f"postgresql://{name}:x@{parts.hostname}:{parts.port}{parts.path}" for name in names.values())
    yield writer, relay
    inside = urlsplit(admin_url)._replace(path=parts.path).geturl()
    with psycopg.connect(inside, autocommit=True) as admin:
        for name in names.values():
            admin.execute(f"DROP OWNED BY {name}")
            admin.execute(f"DROP ROLE {name}")


@contextlib.contextmanager
def postgres_house(folder: Path, admin_url: str, url: str, kafka: Kafka) -> Iterator[House]:
    """To a broker that is frozen for moments, with a topic that refuses large messages."""
    topic, poison = f"gate-{secrets.token_hex(4)}", f"small-{secrets.token_hex(4)}"
    kafka.create_topic(topic, 3)
    kafka.create_topic(poison, 1, {"max.message.bytes": "4000"})
    config = folder / "pillarbox.toml"
    wishes = {"url": url, "kafka": kafka.bootstrap, "topic": topic}
    config.write_text(POSTGRES_CONFIG.format(**wishes, relay_url=url))
    storage = storage_of(load(config))
    storage.migrate(lanes=16, dry_run=False)
    furnish(url)
    with roles(admin_url, url, storage) as (writer_url, relay_url):
        config.write_text(POSTGRES_CONFIG.format(**wishes, relay_url=relay_url))
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(
                "GRANT SELECT, INSERT, UPDATE ON gate_key, gate_done TO " + str(urlsplit(writer_url).username)
            )
        hands = _Hands(admin_url, url, str(urlsplit(relay_url).username), storage, kafka)
        readback = KafkaReadback(kafka.bootstrap, topic)
        yield House(
            url,
            writer_url,
            config,
            folder,
            readback,
            stirs={"recover": hands.cut_connections, "giveback": terminate},
            before={"roll": hands.let_it_age, "attach": hands.roll, "prune": hands.roll_and_age},
            weather=hands.freeze_the_broker,
            manners=Manners(pause=0.06, poison_topic=poison),
            company=0.3,
            arrives_late=0.2,
        )
        readback.close()


class _Hands:
    """What the gate does to PostgreSQL and Kafka."""

    def __init__(self, admin_url: str, url: str, relay: str, storage: Storage, kafka: Kafka) -> None:
        self._admin_url, self._url, self._relay = admin_url, url, relay
        self._storage, self._kafka = storage, kafka

    def cut_connections(self, relay: RelayProcess) -> None:
        if "lanes_taken" in relay.said():
            with psycopg.connect(self._admin_url) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [self._relay]
                )

    def let_it_age(self) -> None:
        with psycopg.connect(self._url) as owner:
            owner.execute(
                "UPDATE pillarbox.segment SET opened_at = opened_at - interval '3 days', "
                "closed_at = closed_at - interval '3 days'"
            )

    def roll(self) -> None:
        upkeep = self._storage.upkeep()
        upkeep.roll(0.0, None)
        upkeep.close()

    def roll_and_age(self) -> None:
        self.roll()
        self.let_it_age()

    def freeze_the_broker(self, draw: random.Random) -> None:
        self._kafka.freeze()
        clock.sleep(draw.uniform(0.02, 0.3))
        self._kafka.thaw()
        clock.sleep(draw.uniform(0.1, 1.0))
