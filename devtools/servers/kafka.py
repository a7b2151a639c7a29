"""Real Apache Kafka for tests: KRaft brokers on free loopback ports, from Maven's jars.

    with Kafka.start(folder) as kafka:
        kafka.create_topic("orders", partitions=3)
        ...
        kafka.read_all("orders")

Every process is stopped by its own pid and dies with the process that started it.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicMetadata,
)

from devtools.servers.process import (
    ServerError,
    cache_folder,
    free_port,
    freeze,
    install_debian,
    run,
    say,
    spawn,
    stop_process,
    tail,
    thaw,
    wait_until,
)

VERSION = "4.1.0"
DEBIAN = {"java": "openjdk-17-jre-headless", "mvn": "maven"}
USERS = {"admin": "admin-canary", "writer": "writer-canary"}
BROKER_JVM = ["-Xmx512m", "-Xms256m", "-XX:+UseSerialGC"]
TOOL_JVM = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>pillarbox</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""


class Stored(NamedTuple):
    """A record as it lies in a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]
    timestamp: int


def jars() -> Path:
    """The folder with Kafka's jars; Maven fetches them once for this machine."""
    home = cache_folder("kafka") / VERSION
    with (home.parent / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            missing = [package for program, package in DEBIAN.items() if not shutil.which(program)]
            if missing:
                install_debian(*missing)
            _fetch(home)
    return home


def _fetch(home: Path) -> None:
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        work = Path(scratch)
        (work / "pom.xml").write_text(POM.format(version=VERSION))
        say(f"fetching Apache Kafka {VERSION} with Maven")
        into = f"-DoutputDirectory={work / 'jars'}"
        run(["mvn", "-q", "-B", "-f", work / "pom.xml", "dependency:copy-dependencies", into], seconds=600)
        (work / "jars").rename(home)  # whole or not at all, however this ends


def _java(jvm: list[str], main: str, *arguments: str) -> list[str]:
    quiet = ["-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return ["java", *jvm, *quiet, "-cp", f"{jars()}/*", main, *arguments]


class Node:
    """One process, broker and controller at once."""

    def __init__(self, number: int, folder: Path, settings: Mapping[str, str]) -> None:
        self.number = number
        self.folder = folder
        folder.mkdir(parents=True)
        self.properties = folder / "server.properties"
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.process: subprocess.Popen[bytes] | None = None

    def format(self, cluster: str) -> None:
        run(_java(TOOL_JVM, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties)))

    def start(self) -> None:
        if self.process is None:
            self.process = spawn(_java(BROKER_JVM, "kafka.Kafka", str(self.properties)), log=self.folder / "log")

    @property
    def pid(self) -> int:
        """The running process's; a broker that ended by itself says why."""
        if self.process is None or self.process.poll() is not None:
            raise ServerError(f"Kafka's node {self.number} is not running:\n{tail(self.folder / 'log')}")
        return self.process.pid

    def stop(self) -> None:
        if self.process is not None:
            stop_process(self.process)
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            stop_process(self.process, signal.SIGKILL)
            self.process = None

    def freeze(self) -> None:
        freeze(self.pid)

    def thaw(self) -> None:
        thaw(self.pid)


class Kafka:
    """A cluster of one or more nodes."""

    def __init__(self, nodes: list[Node], ports: list[int], secured: list[int]) -> None:
        self.nodes = nodes
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.secured = ",".join(f"127.0.0.1:{port}" for port in secured)

    @classmethod
    def start(
        cls, folder: Path, *, brokers: int = 1, settings: Mapping[str, str] | None = None, secure: bool = False
    ) -> Self:
        """Start a fresh cluster; `secure` adds `.secured`, a listener with SASL and rights for `USERS`."""
        ports = _free_ports(3 * brokers)
        plain, control, secured = ports[:brokers], ports[brokers : 2 * brokers], ports[2 * brokers :]
        voters = ",".join(f"{n + 1}@127.0.0.1:{port}" for n, port in enumerate(control))
        nodes = []
        for n in range(brokers):
            home = folder / f"kafka-{n + 1}"
            listen = (plain[n], control[n], secured[n] if secure else None)
            nodes.append(Node(n + 1, home, _settings(n + 1, voters, home, listen, brokers) | dict(settings or {})))
            nodes[-1].format("MkU3OEVBNTcwNTJENDM2Qg")
        kafka = cls(nodes, plain, secured if secure else [])
        try:
            kafka.start_again()
        except BaseException:
            kafka.stop()
            raise
        return kafka

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()  # nobody needs the data, and a cluster that shuts down in good order takes ten seconds

    def start_again(self, timeout: float = 60) -> None:
        """Start the nodes that are down and wait until all of them serve."""
        for node in self.nodes:
            node.start()
        wait_until(self._complete, seconds=timeout, what=f"Kafka in {self.nodes[0].folder.parent} serves")

    def _complete(self) -> bool:
        for node in self.nodes:
            node.pid  # noqa: B018 - raises if it has ended
        try:
            seen = self.admin().list_topics(timeout=1)
        except KafkaException:
            return False
        return len(seen.brokers) == len(self.nodes)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def freeze(self) -> None:
        for node in self.nodes:
            node.freeze()

    def thaw(self) -> None:
        for node in self.nodes:
            node.thaw()

    def admin(self) -> AdminClient:
        # A client of its own for each question: one that lived through an outage sits out its back-off first.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, replication_factor=len(self.nodes), config=dict(config or {}))
        admin = self.admin()
        admin.create_topics([topic])[name].result(30)
        wait_until(
            lambda: _led(admin.list_topics(timeout=5).topics.get(name)), seconds=30, what=f"topic {name} is made"
        )

    def configure_topic(self, name: str, config: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in config.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(30)

    def add_partitions(self, name: str, total: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(name, total)])[name].result(30)

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(30)
        wait_until(lambda: name not in admin.list_topics(timeout=5).topics, seconds=30, what=f"topic {name} is gone")

    def read_all(self, topic: str, timeout: float = 30) -> list[Stored]:
        """Every committed record of a topic from offset 0, partition by partition."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False}
        reader = Consumer(
            settings | {"enable.partition.eof": True, "isolation.level": "read_committed", "log_level": 0}
        )
        try:
            partitions = reader.list_topics(topic, timeout=timeout).topics[topic].partitions
            reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
            return _drain(reader, set(partitions), time.monotonic() + timeout)
        finally:
            reader.close()


def _drain(reader: Consumer, open_partitions: set[int | None], deadline: float) -> list[Stored]:
    found: list[Stored] = []
    while open_partitions and time.monotonic() < deadline:
        for message in reader.consume(1000, 0.2):
            error = message.error()
            if error is None:
                stamp = message.timestamp()[1]
                headers = [(name, _bytes(value)) for name, value in message.headers() or []]
                where = (message.partition() or 0, message.offset() or 0)
                found.append(Stored(*where, _key(message.key()), _bytes(message.value()), headers, stamp))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())  # a broker that came back says it again
            elif error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise KafkaException(error)
    if open_partitions:
        raise ServerError("Kafka did not hand out all its records in time")
    return sorted(found, key=lambda record: record[:2])


def _free_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _key(value: str | bytes | None) -> bytes | None:
    return None if value is None else _bytes(value)


def _led(topic: TopicMetadata | None) -> bool:
    return topic is not None and all(partition.leader >= 0 for partition in topic.partitions.values())


def _settings(
    number: int, voters: str, home: Path, listen: tuple[int, int, int | None], brokers: int
) -> dict[str, str]:
    plain, control, secured = listen
    replicas = str(min(brokers, 3))
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(home / "data"),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # A cluster smaller than the defaults of these never gets a coordinator.
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(brokers, 2)),
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min(brokers, 2)),
        "default.replication.factor": replicas,
        # A killed broker may register again only once its old session has ended (9 s by default).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    if secured is not None:
        settings |= _secured(settings, secured)
    return settings


def _secured(settings: Mapping[str, str], port: int) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    return {
        "listeners": f"{settings['listeners']},SECURED://127.0.0.1:{port}",
        "advertised.listeners": f"{settings['advertised.listeners']},SECURED://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
