"""What the cluster says of our destinations: are they there, may we write, how large may a record be.

Asked without blocking, through an admin client of its own, before a topic's first message and every few seconds
after: a producer alone would wait for ever for a topic that is missing or that it may not write to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ConfigResource,
    TopicDescription,
)

from pillarbox.brokers.kafka.verdicts import explained
from pillarbox.clock import SystemClock

mono = SystemClock.mono
ASK_WITHIN = 2.0  # seconds a cluster has for its answer
FIRST_LOOK = 0.2  # seconds a new destination may hold up its caller, once
LOOK_AGAIN = 10.0  # seconds between looks at what is fine
TRY_AGAIN = 0.5  # and at what is not
SINGLE_BROKER = 1


class Topic(NamedTuple):
    """A destination that takes messages."""

    id: str
    partitions: int
    replicas: int
    max_bytes: int | None = None
    min_in_sync: int | None = None


class Question:
    """One look under way."""

    def __init__(self, admin: AdminClient, names: Sequence[str]) -> None:
        self.names = list(names)
        described = admin.describe_topics(
            TopicCollection(self.names), include_authorized_operations=True, request_timeout=ASK_WITHIN
        )
        self.described: dict[str, Future[TopicDescription]] = described
        resources = {name: ConfigResource(ConfigResource.Type.TOPIC, name) for name in self.names}
        configs = admin.describe_configs(list(resources.values()), request_timeout=ASK_WITHIN)
        self.configs: dict[str, Future[Any]] = {name: configs[resource] for name, resource in resources.items()}

    def futures(self) -> list[Future[Any]]:
        return [*self.described.values(), *self.configs.values()]

    def done(self) -> bool:
        return all(future.done() for future in self.futures())


class Topics:
    """Destinations by name, fine or away with the reason and its cure."""

    def __init__(self, admin: AdminClient, trouble: Callable[[], str]) -> None:
        self.fine: dict[str, Topic] = {}
        self.gone: dict[str, str] = {}
        self._admin = admin
        self._trouble = trouble
        self._question: Question | None = None
        self._look_at = 0.0
        self._doubted = False
        self._patient = False

    def away(self, names: Sequence[str]) -> dict[str, str]:
        """Those that take nothing now. Waits only for the first look at something new, and shortly."""
        now = mono()
        if now < self._look_at and self._question is None and all(name in self.fine for name in names):
            return {}
        new = [name for name in names if name not in self.fine and name not in self.gone]
        self._collect(now)
        if self._question is None and (new or now >= self._look_at):
            question = self._ask(dict.fromkeys([*self.fine, *self.gone, *names]))
            if (new or self._patient) and question:
                self._patient = False
                wait(question.futures(), FIRST_LOOK)
                self._collect(now)
        asked = "its metadata is awaited"
        return {name: self.gone.get(name, asked) for name in names if name not in self.fine or self._doubted}

    def ask_through(self, admin: AdminClient) -> None:
        """Another client: passwords and certificates rotate."""
        self._admin, self._question = admin, None

    def doubt(self) -> None:
        """A session ended badly: what was fine is looked at again before anything is sent."""
        self._doubted = self._patient = True
        self._look_at = 0.0
        self._question = None
        self.gone |= dict.fromkeys(self.fine, "its brokers did not answer")

    def refuse(self, name: str, reason: str) -> None:
        """The cluster refused what its own description had promised."""
        self.fine.pop(name, None)
        self.gone[name] = reason
        self._look_at = mono() + LOOK_AGAIN

    def warnings(self) -> list[str]:
        found = []
        for name, topic in sorted(self.fine.items()):
            if topic.replicas <= SINGLE_BROKER:
                found.append(f"topic {name} has one replica: what was accepted is lost with its broker; use 3")
            elif topic.min_in_sync is not None and topic.min_in_sync < 2:
                found.append(f"topic {name}: min.insync.replicas = {topic.min_in_sync}, use 2 of {topic.replicas}")
        return found

    def _ask(self, names: Mapping[str, None]) -> Question | None:
        self._look_at = mono() + TRY_AGAIN
        try:
            self._question = Question(self._admin, list(names))
        except (KafkaException, ValueError) as error:  # an empty name, a name with NUL
            self.gone |= dict.fromkeys((n for n in names if n not in self.fine), f"it cannot be asked for: {error}")
        return self._question

    def _collect(self, now: float) -> None:
        self._admin.poll(0)  # its complaints come no other way
        question = self._question
        if question is None or not question.done():
            return
        self._question = None
        answered = [self._judge(name, question) for name in question.names]
        if any(answered):
            self._doubted = False
        bad = self.gone.keys() & set(question.names)
        self._look_at = now + (TRY_AGAIN if bad or self._doubted else LOOK_AGAIN)

    def _judge(self, name: str, question: Question) -> bool:
        """Whether the cluster answered at all."""
        try:
            described = question.described[name].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code in UNREACHED:
                if name not in self.fine or self._doubted:
                    self.gone[name] = self._trouble() or "no broker answers"
                return False
            self.fine.pop(name, None)
            self.gone[name] = f"topic {name}: {explained(code)}"
            return True
        allowed = described.authorized_operations
        if allowed is not None and AclOperation.WRITE not in allowed:
            self.fine.pop(name, None)
            self.gone[name] = f"topic {name}: no right to write to the topic: grant WRITE"
            return True
        self.gone.pop(name, None)
        self.fine[name] = _topic(described, question.configs[name])
        return True


def _topic(described: TopicDescription, config: Future[Any]) -> Topic:
    partitions = described.partitions
    replicas = min((len(partition.replicas) for partition in partitions), default=0)
    topic = Topic(str(described.topic_id), len(partitions), replicas)
    try:
        entries = config.result()
        return topic._replace(
            max_bytes=int(entries["max.message.bytes"].value),
            min_in_sync=int(entries["min.insync.replicas"].value),
        )
    except (KafkaException, KeyError, ValueError, TypeError):  # no right to look at it: the broker will tell
        return topic


# Answers of our own client: the cluster has said nothing. -195 transport, -185 and 7 timed out, -187 all down.
UNREACHED = frozenset({-195, -185, 7, -187, -193, -169, -181, -197, -196, -172})
