"""What a destination has, read from its beginning, a little more with every call."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from pillarbox.brokers.file import rotated
from pillarbox.brokers.jsonline import payload_of
from pillarbox.clock import SystemClock
from pillarbox.testing.history import Sighting, digest


class Readback(Protocol):
    """Copies of one key come in the destination's order."""

    def more(self) -> list[Sighting]:
        """What has arrived since the last call."""

    def everything(self) -> list[Sighting]:
        """As `more`, and it is sure that what had arrived before the call is among it."""

    def close(self) -> None:
        """Hang up."""


class FileReadback:
    """Follows a file of the file sink through its rotations. A line without its newline has not arrived."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: dict[int, int] = {}  # how far each file has been read, by inode: names change

    def more(self) -> list[Sighting]:
        older = rotated(self._path)
        found = [seen for path in older for seen in self._rest_of(path)]
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as current:
            # If it was rotated meanwhile, this may be the next file already, and its turn comes with the next call.
            if rotated(self._path) == older:
                found += self._rest_of_file(current)
        return found

    def everything(self) -> list[Sighting]:
        found = self.more()
        while more := self.more():
            found += more
        return found

    def _rest_of(self, path: Path) -> list[Sighting]:
        with path.open("rb") as file:
            return self._rest_of_file(file)

    def _rest_of_file(self, file: BinaryIO) -> list[Sighting]:
        inode = os.fstat(file.fileno()).st_ino
        offset = self._read.get(inode, 0)
        file.seek(offset)
        whole, newline, _torn = file.read().rpartition(b"\n")
        self._read[inode] = offset + len(whole) + len(newline)
        return [_sighting(line) for line in whole.split(b"\n") if line]

    def close(self) -> None:
        """Nothing is open between two calls."""


def _sighting(line: bytes) -> Sighting:
    fields = json.loads(line)
    return Sighting(fields["id"], fields["key"], fields["generation"], digest(payload_of(line)))


class KafkaReadback:
    """Reads every partition of a topic from offset 0, as a consumer that trusts nobody."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "pillarbox-readback",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        partitions = self._consumer.list_topics(topic, timeout=30.0).topics[topic].partitions
        self._partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        self._consumer.assign(self._partitions)
        self._next: dict[int, int] = dict.fromkeys(partitions, 0)

    def more(self) -> list[Sighting]:
        return [self._note(record) for record in self._consumer.consume(10_000, timeout=0.02)]

    def everything(self) -> list[Sighting]:
        clock = SystemClock()
        found = self.more()
        ends = {one.partition: self._consumer.get_watermark_offsets(one, timeout=30.0)[1] for one in self._partitions}
        until = clock.mono() + 60.0
        while any(self._next[number] < end for number, end in ends.items()):
            if clock.mono() > until:
                raise TimeoutError("the topic could not be read to its end")
            found += self.more()
        return found

    def _note(self, record: Any) -> Sighting:
        if record.error():
            raise RuntimeError(str(record.error()))
        self._next[record.partition()] = record.offset() + 1
        headers = dict(record.headers())
        key = record.key()
        return Sighting(
            headers["id"].decode(),
            None if key is None else key.decode(),
            int(headers.get("generation", 0)),
            digest(record.value() or b""),
        )

    def close(self) -> None:
        self._consumer.close()
