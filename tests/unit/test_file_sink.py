"""The file sink's own promises: whole lines, on the disk, shared by several, rotated."""

import json
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pillarbox.brokers import file, jsonline, registry
from pillarbox.errors import ConfigError, SinkUnavailable
from pillarbox.outcome import Failed, Handle, Outcome, Record
from pillarbox.ports import Sink
from pillarbox.testing.contracts.sink import collect, deliver, record

Open = Callable[..., Sink]

# Sends batches of ten as fast as it can and says how far the answers came, until it is killed.
WRITER = """
import sys
from pillarbox.brokers import registry
from pillarbox.testing.contracts.sink import collect, record
path, name, rotate = sys.argv[1:]
sink = registry.make("file", name, {"path": path, "rotate_bytes": int(rotate)})
sink.open()
n = 0
while True:
    batch = [record(i, name, b'{"n":%d}' % i) for i in range(n, n + 10)]
    sink.send(batch)
    answers = collect(sink, range(n, n + 10))
    assert not any(answers.values()), answers
    n += 10
    print(n, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    """Opens sinks on `path` and closes them in the end."""
    sinks: list[Sink] = []

    def begin(**config: object) -> Sink:
        sink = registry.make("file", "events", {"path": str(path), **config})
        sinks.append(sink)
        sink.open()
        return sink

    yield begin
    for sink in sinks:
        sink.close()


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["payload"]["n"] for line in path.read_bytes().splitlines()]


def test_a_line_has_these_fields_in_this_order(opened: Open, path: Path) -> None:
    """The line is a contract: names, order, types, and the record's headers as they are."""
    deliver(opened(), [record((7, 2), "k", b'{"total": 42}', "orders", x_city="Bern")])
    assert path.read_text() == (
        '{"id":"018f0000-0000-7000-8000-000000000007","generation":2,"topic":"orders","key":"k","aggregate":"order",'
        '"type":"order.paid","headers":{"id":"018f0000-0000-7000-8000-000000000007","type":"order.paid",'
        '"aggregate":"order","content-type":"application/json","generation":"2","x-city":"Bern"},'
        '"payload":{"total": 42}}\n'
    )


@pytest.mark.parametrize(
    ("payload", "content_type", "embedded"),
    [
        (b'{"a":1.50, "a":2}', "application/json", True),
        (b" [1e999, -0, 12345678901234567890] \t", "application/json; charset=utf-8", True),
        (b'"\\ud800 \\u0000"', "application/cloudevents+json", True),
        ('"\u2028\ufeff"'.encode(), "Application/JSON", True),
        (b"1" * 5000, "application/json", True),
        (b"{}", "text/plain", False),
        (b"{}", "application/octet-stream", False),
        (b"", "application/json", False),
        (b"\xef\xbb\xbf{}", "application/json", False),
        (b'{"a":\n1}', "application/json", False),
        (b"{}\r", "application/json", False),
        (b'"\xff"', "application/json", False),
        (b'"\xed\xa0\x80"', "application/json", False),
        (b'"\x01"', "application/json", False),
        (b"[NaN]", "application/json", False),
        (b"[Infinity, -Infinity]", "application/json", False),
        (b"01", "application/json", False),
        (b"{} {}", "application/json", False),
        (b"{'a':1}", "application/json", False),
        (b"\xc2\xa0{}", "application/json", False),
        (b"[" * 100_000 + b"]" * 100_000, "application/json", False),
    ],
)
def test_only_json_stands_as_it_is(payload: bytes, content_type: str, embedded: bool) -> None:
    """Valid JSON of a JSON content type is embedded byte for byte, everything else as base64; both read back."""
    headers = [("id", b"x"), ("content-type", content_type.encode())]
    line = jsonline.encode((1, "t", None, payload, headers))
    assert ((b'"payload":' + payload + b"}\n") in line, b'"payload_base64":"' in line) == (embedded, not embedded)
    assert (jsonline.payload_of(line), line.count(b"\n")) == (payload, 1)


def test_a_header_that_looks_like_a_payload_fools_nobody() -> None:
    """The payload is found behind the last field's name, whatever the other texts contain."""
    line = jsonline.encode((1, 'x},"payload":', b'},"payload":1}', b"[1]", [("content-type", b"application/json")]))
    assert jsonline.payload_of(line) == b"[1]"


@pytest.mark.parametrize("torn", [b'{"id":"018f', b"x" * 200_000, b'{"id":"a"}\n{"id', b"\0" * 5000])
def test_a_torn_line_is_cut_off_on_opening(torn: bytes, opened: Open, path: Path) -> None:
    """What a killed process left behind the last newline goes before anything is written."""
    deliver(opened(), [record(1)])
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    sink = opened()
    kept = whole + torn[: torn.rfind(b"\n") + 1]
    assert path.read_bytes() == kept
    deliver(sink, [record(2)])
    assert path.read_bytes() == kept + jsonline.encode(record(2))


def test_a_file_without_any_newline_is_one_torn_line(opened: Open, path: Path) -> None:
    """A first line that was never finished is cut to nothing."""
    path.write_bytes(b"{" * 70_000)
    opened()
    assert path.read_bytes() == b""


def test_a_strangers_torn_line_is_cut_while_we_are_open(opened: Open, path: Path) -> None:
    """A second relay may be killed in the middle of its write: the next batch of ours does not stick to it."""
    sink = opened()
    deliver(sink, [record(1)])
    with path.open("ab") as other:
        other.write(jsonline.encode(record(2)) + b'{"id":"to')
    deliver(sink, [record(3)])
    assert numbers(path) == [1, 2, 3]


def test_it_rotates_by_size(opened: Open, path: Path) -> None:
    """No message is split, lost or moved; the old files are in order under numbers."""
    sink = opened(rotate_bytes=1000)
    for start in range(0, 40, 4):
        deliver(sink, [record(n) for n in range(start, start + 4)])
    parts = [*file.rotated(path), path]
    assert [number for part in parts for number in numbers(part)] == list(range(40))
    assert parts[0].name == "events.jsonl.000001"
    assert all(1000 <= part.stat().st_size < 2500 for part in parts[:-1])


def test_a_number_is_not_used_again_while_its_file_is_there(opened: Open, path: Path) -> None:
    """Somebody compressed an old one: the next number is still free."""
    path.with_name("events.jsonl.000009.gz").write_bytes(b"")
    sink = opened(rotate_bytes=1)
    deliver(sink, [record(1)])
    deliver(sink, [record(2)])
    assert [part.name for part in file.rotated(path)] == ["events.jsonl.000009.gz", "events.jsonl.000010"]


def test_it_goes_on_after_anothers_rotation(opened: Open, path: Path) -> None:
    """A file that was moved or deleted under us is not written any more."""
    sink = opened()
    deliver(sink, [record(1)])
    path.rename(path.with_name("moved"))
    deliver(sink, [record(2)])
    path.unlink()
    deliver(sink, [record(3)])
    assert (numbers(path), numbers(path.with_name("moved"))) == ([3], [1])


def start_writer(path: Path, name: str, rotate: int = 0, crash: str = "") -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, str(path), name, str(rotate)]
    return subprocess.Popen(words, env={**os.environ, "PILLARBOX_CRASH": crash}, stdout=subprocess.PIPE, text=True)


def told(writer: subprocess.Popen[str], before: int = 0) -> int:
    """How many messages it said were accepted before it died."""
    assert writer.stdout is not None
    with writer.stdout as out:
        said = [int(line) for line in out if line.endswith("\n")]
    assert writer.wait(10) == -signal.SIGKILL
    return said[-1] if said else before


def every_line(path: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for part in [*file.rotated(path), path]:
        for line in part.read_bytes().splitlines():
            fields = json.loads(line)
            found.setdefault(fields["key"], []).append(fields["payload"]["n"])
    return found


def test_several_processes_share_a_file(path: Path) -> None:
    """Killed at any moment, rotating all the while: whole lines only, each writer's in order, nothing accepted lost."""
    writers = {name: start_writer(path, name, rotate=20_000) for name in ("a", "b", "c")}
    for writer in writers.values():
        assert writer.stdout is not None
        for _ in range(30):
            assert writer.stdout.readline()
    for writer in writers.values():
        writer.kill()
    accepted = {name: told(writer, before=300) for name, writer in writers.items()}
    registry.make("file", "cut", {"path": str(path)}).open()
    found = every_line(path)
    assert len(file.rotated(path)) > 1
    for name, count in accepted.items():
        assert found[name][:count] == list(range(count))
        assert len(found[name]) <= count + 20


@pytest.mark.parametrize(
    ("point", "accepted", "lines"),
    [("file.before_sync:3", 20, 30), ("file.torn:3", 20, 25), ("file.rotated:2", 20, 20)],
)
def test_killed_at(point: str, accepted: int, lines: int, path: Path) -> None:
    """At each crash point: what was accepted is there, what is torn goes, and the next session goes on."""
    assert told(start_writer(path, "a", rotate=1000, crash=point)) == accepted
    sink = registry.make("file", "next", {"path": str(path)})
    sink.open()
    found = every_line(path).get("a", [])
    assert found[:accepted] == list(range(accepted))
    assert lines - 1 <= len(found) <= lines
    deliver(sink, [record(99, "a")])
    assert every_line(path)["a"][-1] == 99
    sink.close()


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """Every file of this process may only grow so far; a write beyond it is short, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def failures(sink: Sink, handles: list[Handle]) -> list[Failed]:
    return [failed for failed in collect(sink, handles).values() if failed]


def test_a_full_disk_is_an_outage(opened: Open, path: Path, small_disk: Callable[[int], None]) -> None:
    """A batch that does not fit leaves no trace, is unavailable, nothing behind it is taken; space heals it."""
    sink = opened()
    deliver(sink, [record(1)])
    before = path.read_bytes()
    small_disk(len(before) + 500)
    big: list[Record] = [record(n, payload=b'{"n":%d}' % n) for n in range(2, 20)]
    sink.send(big)
    sink.send([record(20)])
    said = failures(sink, [one[0] for one in big])
    assert {failed.outcome for failed in said} == {Outcome.UNAVAILABLE}
    assert str(path) in said[0].error
    assert (path.read_bytes(), sink.answers(0.05)) == (before, ([], []))
    small_disk(1_000_000)
    sink.hang_up()
    sink.open()
    deliver(sink, [*big, record(20)])
    assert numbers(path) == list(range(1, 21))


def test_a_failed_fsync_is_unknown(opened: Open, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines may be on the disk or not: neither accepted nor merely unavailable."""
    sink = opened()

    def fails(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file.os, "fsync", fails)
    sink.send([record(1)])
    assert [(failed.outcome, "fsync" in failed.error) for failed in failures(sink, [1])] == [(Outcome.UNKNOWN, True)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "no regular file"),
        (os.mkfifo, "no regular file"),
        (lambda path: path.parent.rmdir(), "cannot append to"),
    ],
)
def test_what_cannot_be_appended_to_says_why(make: Callable[[Path], None], words: str, path: Path) -> None:
    """A folder, a pipe, a missing folder: unavailable, with the path and a next step."""
    make(path)
    with pytest.raises(SinkUnavailable, match=words) as caught:
        registry.make("file", "events", {"path": str(path)}).open()
    assert str(path) in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "sinks.out.path"),
        ({"path": "x", "rotate_bytes": -1}, "sinks.out.rotate_bytes"),
        ({"path": "x", "pth": uuid.uuid4().hex}, "sinks.out.pth"),
    ],
)
def test_wrong_settings_are_named_by_their_path(config: dict[str, object], words: str) -> None:
    """The problem names the key and never shows a value."""
    assert [problem.partition(":")[0] for problem in registry.problems("out", "file", config)] == [words]
    with pytest.raises(ConfigError, match=words) as caught:
        registry.make("file", "out", config)
    assert str(config.get("pth")) not in str(caught.value)


def test_an_unknown_kind_names_those_there_are() -> None:
    """A typing error is found with the list beside it."""
    with pytest.raises(ConfigError, match="console, file, kafka"):
        registry.make("fil", "out", {})
