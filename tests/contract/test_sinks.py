"""Every sink that needs no server passes the suite that ships with the package."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.brokers import console, file, jsonline, memory, null, registry
from pillarbox.brokers.delivery import Delivery
from pillarbox.brokers.publishing import PublishSink
from pillarbox.errors import Reject
from pillarbox.outcome import Record, SinkClass, Traits
from pillarbox.ports import Sink
from pillarbox.testing.contracts.sink import Arrived, SinkContract, SinkHarness


def read_lines(path: Path) -> list[Arrived]:
    return [arrived(line) for line in path.read_bytes().splitlines(keepends=True)] if path.exists() else []


def arrived(line: bytes) -> Arrived:
    fields = json.loads(line)
    key = None if fields["key"] is None else fields["key"].encode()
    headers = {name: value.encode() for name, value in fields["headers"].items()}
    return Arrived(fields["topic"], key, jsonline.payload_of(line), headers)


class FileHarness(SinkHarness):
    topics = ("orders", "Zürich/bestellungen")

    def __init__(self, folder: Path) -> None:
        self.path = folder / "out" / "events.jsonl"
        self.path.parent.mkdir()

    def make(self) -> Sink:
        return registry.make("file", "events", {"path": str(self.path)})

    def arrived(self) -> list[Arrived]:
        return read_lines(self.path)

    def poison(self, record: Record) -> Record:
        return (*record[:2], b"\xff not UTF-8", *record[3:])  # type: ignore[return-value]

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Its folder is gone."""
        hidden = self.path.parent.rename(self.path.parent.with_name("hidden"))
        yield
        hidden.rename(self.path.parent)

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        """Another process was frozen while it had the lock."""
        lock = file.FileLock(self.path.with_name(f"{self.path.name}.lock"))
        with lock.held(5.0):
            yield
        lock.close()


class MemoryHarness(SinkHarness):
    def __init__(self, delivery: SinkClass) -> None:
        self.sink = memory.MemorySink(Traits(delivery=delivery, max_bytes=100_000, max_in_flight=5_000))

    def make(self) -> Sink:
        return self.sink

    def arrived(self) -> list[Arrived]:
        return [Arrived(topic, key, payload, dict(headers)) for _, topic, key, payload, headers in self.sink.records]

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.sink.down = "switched off by the test"
        yield
        self.sink.down = None


class CallableHarness(SinkHarness):
    """A callable that writes down what it gets, and refuses, breaks or waits when it is told to."""

    def __init__(self, *, batch: bool = False, asynchronous: bool = False) -> None:
        self.got: list[Arrived] = []
        self.broken = False
        self.open = threading.Event()
        self.open.set()
        self.settings = {"callable": self.later if asynchronous else self.take, "batch": batch, "concurrency": 5}

    def make(self) -> Sink:
        return registry.make("python", "mine", self.settings)

    def take(self, given: Delivery | list[Delivery]) -> None:
        self.open.wait()
        if self.broken:
            raise ConnectionRefusedError("nobody there")
        several = given if isinstance(given, list) else [given]
        if any(one.payload == b"poison" for one in several):
            raise Reject("poison")
        for one in several:
            headers = {name: value.encode() for name, value in one.headers.items()}
            self.got.append(Arrived(one.topic, None if one.key is None else one.key.encode(), one.payload, headers))

    async def later(self, given: Delivery | list[Delivery]) -> None:
        self.take(given)

    def arrived(self) -> list[Arrived]:
        return self.got

    def poison(self, record: Record) -> Record:
        return (*record[:3], b"poison", record[4])

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.broken = True
        yield
        self.broken = False

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        self.open.clear()
        yield
        self.open.set()


class ConsoleHarness(SinkHarness):
    """A file in place of the terminal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out = path.open("wb")

    def make(self) -> Sink:
        return PublishSink(lambda: console.ConsoleWriter(self.out), name="console", traits=console.TRAITS)

    def arrived(self) -> list[Arrived]:
        return read_lines(self.path)

    def poison(self, record: Record) -> Record:
        return (*record[:2], b"\xff not UTF-8", *record[3:])  # type: ignore[return-value]


class TestFileSink(SinkContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SinkHarness:
        return FileHarness(tmp_path)


@pytest.mark.parametrize("delivery", list(SinkClass), scope="class")
class TestMemorySink(SinkContract):
    @pytest.fixture
    def harness(self, delivery: SinkClass) -> SinkHarness:
        return MemoryHarness(delivery)


class TestCallable(SinkContract):
    @pytest.fixture
    def harness(self) -> SinkHarness:
        return CallableHarness()


class TestAsyncCallable(SinkContract):
    @pytest.fixture
    def harness(self) -> SinkHarness:
        return CallableHarness(asynchronous=True)


class TestBatchCallable(SinkContract):
    @pytest.fixture
    def harness(self) -> SinkHarness:
        return CallableHarness(batch=True)


class TestConsole(SinkContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[SinkHarness]:
        harness = ConsoleHarness(tmp_path / "out")
        yield harness
        harness.out.close()


def test_the_null_sink_accepts_everything_once() -> None:
    """It has no destination to read back: only its answers can be looked at."""
    sink = null.NullSink()
    sink.open()
    sink.send([(n, "t", None, b"", []) for n in range(1000)])
    assert (sink.answers(0), sink.answers(0)) == ((list(range(1000)), []), ([], []))
    sink.send([(1, "t", None, b"", [])])
    sink.hang_up()
    assert sink.answers(0) == ([], [])
    sink.close()
