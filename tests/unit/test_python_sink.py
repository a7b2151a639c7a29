"""A callable as a sink: what its exceptions mean, and that it cannot harm anybody by being slow."""

import asyncio
import functools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox.brokers import console, registry
from pillarbox.brokers.delivery import Delivery
from pillarbox.brokers.publishing import PublishSink
from pillarbox.clock import SystemClock
from pillarbox.errors import Reject, SinkUnavailable
from pillarbox.outcome import Answers, Failed, Outcome, Record, Traits
from pillarbox.ports import Sink
from pillarbox.testing.contracts.sink import collect, deliver, record

Open = Callable[..., Sink]
mono = SystemClock.mono


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens sinks over a callable and closes them in the end."""
    sinks: list[Sink] = []

    def begin(function: object, **config: object) -> Sink:
        sink = registry.make("python", "mine", {"callable": function, **config})
        sinks.append(sink)
        sink.open()
        return sink

    yield begin
    for sink in sinks:
        sink.close()


def outcomes(sink: Sink, count: int) -> list[str]:
    sink.send([record(n, f"k{n}") for n in range(count)])
    got = collect(sink, range(count))
    return [str(failed.outcome) if failed else "accepted" for _, failed in sorted(got.items())]


class Unreachable(Exception):
    """What a client library raises that derives from nothing of the standard library."""


@pytest.mark.parametrize(
    ("error", "outcome", "text"),
    [
        (Reject("no such customer"), "refused", "no such customer"),
        (ValueError("bad"), "refused", "ValueError: bad"),
        (SystemExit(1), "refused", "SystemExit: 1"),
        (ConnectionResetError("gone"), "unavailable", "ConnectionResetError: gone"),
        (TimeoutError("slow"), "unavailable", "TimeoutError: slow"),
        (SinkUnavailable("closed on Sundays"), "unavailable", "closed on Sundays"),
        (Unreachable("no route"), "unavailable", "Unreachable: no route"),
    ],
)
def test_what_an_exception_means(error: BaseException, outcome: str, text: str, opened: Open, monkeypatch: Any) -> None:
    """About this message: refused; about the way there: unavailable, and nothing is counted."""

    def fails(_message: Delivery) -> None:
        raise error

    monkeypatch.setitem(sys.modules, "their_client", types.SimpleNamespace(Unreachable=Unreachable))
    sink = opened(fails, unavailable=["their_client:Unreachable"])
    sink.send([record(1)])
    assert collect(sink, [1])[1] == Failed(1, Outcome(outcome), text)


def test_it_is_given_the_whole_message(opened: Open) -> None:
    """Identity, generation, topic, key, headers and the payload's bytes."""
    got: list[Delivery] = []
    deliver(opened(got.append), [record((9, 3), None, b'{"a": 1}', x_city="Bern")])
    one = got[0]
    assert (str(one.id)[-1], one.generation, one.topic, one.key, one.aggregate, one.type) == (
        "9", 3, "orders", None, "order", "order.paid")  # fmt: skip
    assert (one.payload, one.json(), one.headers["x-city"]) == (b'{"a": 1}', {"a": 1}, "Bern")
    with pytest.raises(TypeError):
        one.headers["x-city"] = "Basel"  # type: ignore[index]


def test_a_refused_batch_is_tried_one_by_one(opened: Open) -> None:
    """Only a message that was alone in its request is refused (PROTOCOL R8)."""
    sizes: list[int] = []

    def take(messages: list[Delivery]) -> None:
        sizes.append(len(messages))
        if any(message.key == "k3" for message in messages):
            raise Reject("k3")

    sink = opened(take, batch=True, batch_size=5)
    assert outcomes(sink, 7) == ["accepted"] * 3 + ["refused"] + ["accepted"] * 3
    assert sizes == [5, 1, 1, 1, 1, 1, 2]


def test_a_batch_callable_may_answer_for_each(opened: Open) -> None:
    """None, or the exception it would have raised for that message alone; nothing is called twice then."""
    calls: list[int] = []

    def take(messages: list[Delivery]) -> list[Exception | None]:
        calls.append(len(messages))
        return [None, Reject("no"), ConnectionRefusedError("away"), None]

    assert outcomes(opened(take, batch=True), 4) == ["accepted", "refused", "unavailable", "accepted"]
    assert calls == [4]


def test_a_batch_answer_of_the_wrong_length_is_refused(opened: Open) -> None:
    """A callable that answers for three of two messages is not believed."""
    assert outcomes(opened(lambda _messages: [None] * 3, batch=True), 2) == ["refused", "refused"]


def test_an_outage_of_a_batch_is_one_for_all(opened: Open) -> None:
    """Nothing is tried one by one while nobody answers."""
    calls: list[int] = []

    def take(messages: list[Delivery]) -> None:
        calls.append(len(messages))
        raise ConnectionRefusedError

    assert (outcomes(opened(take, batch=True), 4), calls) == (["unavailable"] * 4, [4])


def test_async_calls_run_side_by_side(opened: Open) -> None:
    """As many as `concurrency` says, in one loop for the sink's whole life."""
    running, most, loops = 0, 0, set()

    async def take(_message: Delivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        running -= 1

    sink = opened(take, concurrency=8)
    assert outcomes(sink, 40) == ["accepted"] * 40
    sink.hang_up()
    sink.open()
    assert outcomes(sink, 1) == ["accepted"]
    assert (most, len(loops)) == (8, 1)


def test_async_calls_are_cancelled_by_hanging_up(opened: Open) -> None:
    """What is under way ends, what has not begun never does."""
    begun: list[str | None] = []
    cancelled = threading.Event()

    async def take(message: Delivery) -> None:
        begun.append(message.key)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    sink = opened(take)
    sink.send([record(n, f"k{n}") for n in range(5)])
    while not begun:
        assert sink.answers(0.01) == ([], [])
    sink.hang_up()
    assert cancelled.wait(5)
    sink.open()
    assert begun == ["k0"]


def test_a_coroutine_from_a_plain_function_is_awaited(opened: Open) -> None:
    """A lambda or a wrapper around an async function would otherwise lose every message in silence."""
    got: list[str | None] = []

    async def take(message: Delivery) -> None:
        got.append(message.key)

    def plain(message: Delivery) -> object:
        return take(message)

    assert outcomes(opened(plain), 2) == ["accepted"] * 2
    assert outcomes(opened(functools.partial(take)), 1) == ["accepted"]
    assert got == ["k0", "k1", "k0"]


def test_a_callable_that_hangs_is_left_behind(opened: Open) -> None:
    """The next session has a thread of its own; after five that hang the sink waits for one of them, and says so."""
    stop = threading.Event()
    hangs = True

    def take(_message: Delivery) -> None:
        if hangs:
            stop.wait()

    sink = opened(take)
    for n in range(5):
        sink.send([record(n)])
        before = mono()
        assert sink.answers(0.05) == ([], [])
        sink.hang_up()
        assert mono() - before < 1
        if n < 4:
            sink.open()
    with pytest.raises(SinkUnavailable, match="has not returned"):
        sink.open()
    hangs = False
    stop.set()
    sink.open()
    assert outcomes(sink, 3) == ["accepted"] * 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module_of_ours:f", "No module named"),
        ("json:no_such", "no attribute"),
        ("json:JSONDecoder.nope", "no attribute"),
    ],
)
def test_a_callable_that_is_not_there_is_an_outage_with_a_reason(name: str, words: str, opened: Open) -> None:
    """A deployment that lacks a module harms this sink alone, and heals without a restart."""
    with pytest.raises(SinkUnavailable, match=words):
        opened(name)


@pytest.mark.parametrize("wrong", ["json", "json:", ":loads", 5, None])
def test_what_is_no_callable_is_a_problem_of_the_configuration(wrong: object) -> None:
    """It is found before anything runs."""
    assert [text.partition(":")[0] for text in registry.problems("m", "python", {"callable": wrong})] == [
        "sinks.m.callable"
    ]


def test_the_current_folder_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open) -> None:
    """`pillarbox run` finds the module beside the configuration, as `python -m` would."""
    (tmp_path / "my_handlers_here.py").write_text("seen = []\nclass Box:\n    take = staticmethod(seen.append)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path)])
    assert outcomes(opened("my_handlers_here:Box.take"), 1) == ["accepted"]
    assert len(sys.modules["my_handlers_here"].seen) == 1


class Breaks:
    """A publisher that breaks its word in the middle of a batch."""

    def open(self) -> None: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...

    def publish(self, batch: list[Record]) -> Iterator[Answers]:
        yield Answers([batch[0][0]], [])
        raise RuntimeError("bug")


def test_a_publisher_that_raises_leaves_nobody_without_an_answer() -> None:
    """What it had not answered is unknown: it may have been delivered."""
    sink = PublishSink(Breaks, name="breaks", traits=Traits())
    sink.open()
    assert outcomes(sink, 3) == ["accepted", "unknown", "unknown"]
    sink.close()


def test_opening_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that never gets ready blocks nobody for longer than a connection may take."""
    monkeypatch.setattr("pillarbox.brokers.publishing.OPEN_WITHIN", 0.1)
    stop = threading.Event()
    hangs = type("Hangs", (Breaks,), {"open": lambda _self: stop.wait()})
    sink = PublishSink(hangs, name="hangs", traits=Traits())
    with pytest.raises(SinkUnavailable, match="not ready within"):
        sink.open()
    with pytest.raises(SinkUnavailable, match="has not returned"):
        sink.open()
    stop.set()
    sink.open()
    sink.close()


def test_a_reader_that_is_gone_is_an_outage_of_the_console() -> None:
    """A broken pipe refuses nothing, and nothing behind it is taken."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as out:
        sink = PublishSink(lambda: console.ConsoleWriter(out), name="console", traits=console.TRAITS)
        sink.open()
        sink.send([record(1), record(2)])
        got = collect(sink, [1])
        assert got[1] is not None
        assert got[1].outcome is Outcome.UNAVAILABLE
        assert sink.answers(0.05) == ([], [])
        sink.close()
