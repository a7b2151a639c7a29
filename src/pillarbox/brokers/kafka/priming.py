"""Why the first record to each partition goes alone.

A broker that has never seen a producer in a partition takes whatever sequence number comes first (KAFKA-15591, and
tests/integration/test_kafka_proofs.py). So if the first request fails while a second one is on the wire, the second
is accepted: order is broken; and if the first failed for a passing reason, librdkafka takes the second one's success
for the first one's too, and it is lost. One accepted record closes that door for the session: from then on the broker
knows the producer there, and refuses what does not follow.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

from pillarbox.brokers.kafka.partition import Partitioner
from pillarbox.outcome import Record

REMEMBERED = 65_536


class Priming:
    """The partitions of one topic in one session, until each has accepted a record."""

    def __init__(self, partitions: int, partitioner: Partitioner) -> None:
        self.partitions = partitions
        self.primed: set[int] = set()
        self.behind: dict[int, deque[Record]] = {}  # a partition's first record is on the wire: what comes after it
        self._partitioner = partitioner
        self._of_key: dict[bytes, int] = {}  # few keys that reach few partitions must not cost a hash each for ever

    @property
    def done(self) -> bool:
        return len(self.primed) == self.partitions

    def partition(self, key: bytes | None) -> int:
        if key is None:
            return random.choice(tuple(self.primed)) if self.primed else 0
        found = self._of_key.get(key)
        if found is None:
            if len(self._of_key) >= REMEMBERED:
                self._of_key.clear()
            found = self._of_key[key] = self._partitioner(key) % self.partitions
        return found

    def accepted(self, partition: int) -> deque[Record]:
        self.primed.add(partition)
        return self.behind.pop(partition, deque())


class Primer:
    """All topics of one producer."""

    def __init__(self, partitioner: Partitioner) -> None:
        self.ready: set[str] = set()  # every partition is primed
        self.topics: dict[str, Priming] = {}
        self._partitioner = partitioner

    def knows(self, topic: str, partitions: int | None) -> bool:
        known = self.topics.get(topic)
        return known is not None and partitions in (None, known.partitions)

    def learn(self, topic: str, partitions: int) -> None:
        """A topic is about to be used, or has grown: then its new partitions are to be primed."""
        fresh = Priming(partitions, self._partitioner)
        known = self.topics.get(topic)
        if known is not None:
            fresh.primed, fresh.behind = known.primed, known.behind
        self.topics[topic] = fresh
        self.ready.discard(topic)

    def accepted(self, topic: str, partition: int, priming: Priming) -> deque[Record]:
        """A partition's first record is there: what waited behind it."""
        behind = priming.accepted(partition)
        current = self.topics.get(topic)
        if current is not None and current.done:
            self.ready.add(topic)
        return behind

    def behind(self) -> Iterator[Record]:
        """Everything that waits for a first record."""
        for priming in self.topics.values():
            for records in priming.behind.values():
                yield from records

    def start_over(self) -> None:
        for priming in self.topics.values():
            priming.behind.clear()


def size_of(record: Record) -> int:
    """Payload, key and headers together, as `Traits.max_bytes` counts."""
    _, _, key, payload, headers = record
    return len(payload) + len(key or b"") + sum(len(name.encode()) + len(value) for name, value in headers)


def wire_size(record: Record) -> int:
    """The bytes of a request's batch that holds this record alone, not compressed: what the broker measures."""
    _, _, key, payload, headers = record
    body = 3 + _varint(len(payload)) + len(payload) + _varint(len(headers))
    body += 1 if key is None else _varint(len(key)) + len(key)
    for name, value in headers:
        letters = len(name.encode())
        body += _varint(letters) + letters + _varint(len(value)) + len(value)
    return 61 + _varint(body) + body


def _varint(length: int) -> int:
    """Bytes of a length as a zigzag varint."""
    return max(1, (length.bit_length() + 7) // 7)
