"""What a sink is. Subclass `SinkContract` in a test module and give it a `harness` fixture:

class TestMySink(SinkContract):
    @pytest.fixture
    def harness(self) -> SinkHarness: ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import pytest

from pillarbox.clock import SystemClock
from pillarbox.errors import SinkUnavailable
from pillarbox.outcome import Answers, Failed, Handle, Outcome, Record, SinkClass
from pillarbox.ports import Sink

clock = SystemClock()
PATIENCE = 30.0  # seconds; a real broker on a busy machine


class Arrived(NamedTuple):
    """A message as the destination has it."""

    topic: str
    key: bytes | None
    payload: bytes
    headers: dict[str, bytes]


class SinkHarness:
    """One destination of its own. Override what yours can do; what returns None is skipped."""

    topics: Sequence[str] = ("orders",)  # these exist

    def make(self) -> Sink:
        """Another sink on this destination, not opened."""
        raise NotImplementedError

    def arrived(self) -> list[Arrived]:
        """Everything the destination has, each key in order."""
        raise NotImplementedError

    def away(self) -> AbstractContextManager[object] | None:
        """While it is entered the destination takes nothing."""
        return None

    def stalled(self) -> AbstractContextManager[object] | None:
        """While it is entered the destination answers nothing, but does not say no either."""
        return None

    def poison(self, record: Record) -> Record | None:
        """This record, changed into one that the destination refuses."""
        return None


def record(
    handle: Handle, key: str | None = "k", payload: bytes | None = None, topic: str = "orders", **headers: str
) -> Record:
    """A record as the relay makes it."""
    number = handle[0] if isinstance(handle, tuple) else handle
    pairs = [
        ("id", f"018f0000-0000-7000-8000-{number:012x}".encode()),
        ("type", b"order.paid"),
        ("aggregate", b"order"),
        ("content-type", b"application/json"),
    ]
    if isinstance(handle, tuple) and handle[1]:
        pairs.append(("generation", str(handle[1]).encode()))
    pairs += [(name.replace("_", "-"), value.encode()) for name, value in headers.items()]
    body = b'{"n":%d}' % number if payload is None else payload
    return handle, topic, None if key is None else key.encode(), body, pairs


def collect(sink: Sink, handles: Iterable[Handle], within: float = PATIENCE) -> dict[Handle, Failed | None]:
    """Wait for the answers to these; None is accepted. A second answer to one of them fails."""
    wanted = set(handles)
    got: dict[Handle, Failed | None] = {}
    until = clock.mono() + within
    while wanted - set(got):
        assert clock.mono() < until, f"no answer within {within} s for {len(wanted - set(got))} of {len(wanted)}"
        _note(sink.answers(0.05), got, wanted)
    _note(sink.answers(0.05), got, wanted)
    return got


def _note(answers: Answers, got: dict[Handle, Failed | None], wanted: set[Handle]) -> None:
    for handle in answers.accepted:
        assert handle in wanted, f"an answer to {handle}, which was not sent in this session"
        assert handle not in got, f"a second answer to {handle}"
        got[handle] = None
    for failed in answers.failed:
        assert failed.handle in wanted, f"an answer to {failed.handle}, which was not sent in this session"
        assert failed.handle not in got, f"a second answer to {failed.handle}"
        got[failed.handle] = failed


def deliver(sink: Sink, records: Sequence[Record]) -> None:
    """Send as the relay would, and expect every message to be accepted."""
    for wave in _waves(sink, records):
        sink.send(wave)
        answers = collect(sink, [one[0] for one in wave])
        assert [failed for failed in answers.values() if failed] == []


def _waves(sink: Sink, records: Sequence[Record]) -> Iterable[Sequence[Record]]:
    """Never more than the sink takes at once, and one of a key unless it is fail-stop (PROTOCOL R5, R6)."""
    wave: list[Record] = []
    keys: set[bytes] = set()
    for one in records:
        blocked = one[2] in keys and sink.traits.delivery is not SinkClass.FAIL_STOP
        if blocked or len(wave) == sink.traits.max_in_flight:
            yield wave
            wave, keys = [], set()
        wave.append(one)
        if one[2] is not None:
            keys.add(one[2])
    yield wave


def wait_for(condition: Callable[[], bool]) -> None:
    until = clock.mono() + PATIENCE
    while not condition():
        assert clock.mono() < until, "it did not happen"
        clock.sleep(0.02)


class SinkContract:
    """Each test is a sentence of the port `Sink`."""

    @pytest.fixture
    def sink(self, harness: SinkHarness) -> Iterable[Sink]:
        sink = harness.make()
        sink.open()
        yield sink
        sink.close()

    def test_what_is_accepted_has_arrived_as_it_was(self, sink: Sink, harness: SinkHarness) -> None:
        """Topic, key, payload and headers come out as they went in, byte for byte."""
        sent = [
            record(1, "key", b'{"total":42}'),
            record(2, None, b"{}"),
            record(3, "Zürich 🏔 \"'\\", "{}\u2028é".encode(), x_city="Zürich"),
            record(4, "binary", bytes(range(256))),
            record(5, "empty", b""),
            record(6, "lines", b'{"a":\n1}\r\n'),
            record(7, "", b"{}"),
        ]
        deliver(sink, [(one[0], harness.topics[0], *one[2:]) for one in sent])
        arrived = {one.headers["id"]: one for one in harness.arrived()}
        for _, _, key, payload, headers in sent:
            assert arrived[dict(headers)["id"]] == Arrived(harness.topics[0], key, payload, dict(headers))
        assert len(arrived) == len(sent)

    def test_a_key_keeps_its_order(self, sink: Sink, harness: SinkHarness) -> None:
        """What is sent first of a key arrives first, several keys and topics in one batch."""
        topics = harness.topics
        count = 600 if sink.traits.delivery is SinkClass.FAIL_STOP else 60
        deliver(sink, [record(n, f"k{n % 7}", topic=topics[n % 7 % len(topics)]) for n in range(1, count)])
        seen: dict[bytes | None, list[bytes]] = {}
        for one in harness.arrived():
            seen.setdefault(one.key, []).append(one.headers["id"])
        assert sum(map(len, seen.values())) == count - 1
        assert all(ids == sorted(ids) for ids in seen.values())

    def test_each_message_gets_one_answer(self, sink: Sink, harness: SinkHarness) -> None:
        """As many as the sink takes at once: one answer each, and one copy at the destination."""
        count = min(sink.traits.max_in_flight, 20_000)
        topic = harness.topics[0]
        sink.send([record(n, f"k{n}", topic=topic) for n in range(count)])
        assert set(collect(sink, range(count)).values()) == {None}
        assert Counter(one.headers["id"] for one in harness.arrived()).most_common(1)[0][1] == 1

    def test_a_replay_is_answered_under_its_generation(self, sink: Sink, harness: SinkHarness) -> None:
        """(id, generation) is a handle of its own beside the id, and the record says so."""
        topic = harness.topics[0]
        handles: list[Handle] = [5, (5, 1), (5, 2)]
        for handle in handles:
            deliver(sink, [record(handle, "k", topic=topic)])
        generations = [one.headers.get("generation") for one in harness.arrived()]
        assert generations == [None, b"1", b"2"]

    def test_no_answer_without_a_message(self, sink: Sink) -> None:
        """Asking costs at most the time it was given, and brings nothing."""
        before = clock.mono()
        assert sink.answers(0.0) == sink.answers(0.05) == ([], [])
        assert clock.mono() - before < 2.0

    def test_hanging_up_silences_the_session(self, sink: Sink, harness: SinkHarness) -> None:
        """After it no answer of that session comes, also not in the next one; what was sent may be sent again."""
        topic = harness.topics[0]
        old = [record(n, f"k{n}", topic=topic) for n in range(50)]
        sink.send(old)
        sink.hang_up()
        assert sink.answers(0.05) == ([], [])
        sink.open()
        deliver(sink, [record(n, "new", topic=topic) for n in range(100, 105)])
        deliver(sink, old)
        assert {one[4][0][1] for one in old} <= {one.headers["id"] for one in harness.arrived()}

    def test_ending_is_safe_at_any_time(self, harness: SinkHarness) -> None:
        """Hang up and close before open, twice, and open again afterwards."""
        sink = harness.make()
        sink.hang_up()
        sink.close()
        sink.open()
        sink.hang_up()
        sink.hang_up()
        sink.open()
        deliver(sink, [record(1, topic=harness.topics[0])])
        sink.close()
        sink.close()

    def test_a_fence_can_always_be_raised(self, sink: Sink, harness: SinkHarness) -> None:
        """A sink without fences takes it in silence."""
        sink.fence("route", 0, 1)
        deliver(sink, [record(1, topic=harness.topics[0])])

    def test_nothing_is_away_when_all_is_well(self, sink: Sink, harness: SinkHarness) -> None:
        """Known destinations, none at all, and the same question again."""
        assert [sink.away(topics) for topics in ([], harness.topics, harness.topics)] == [{}, {}, {}]

    def test_too_large_is_refused(self, sink: Sink, harness: SinkHarness) -> None:
        """A message over `max_bytes` harms nobody else: it alone is refused."""
        if sink.traits.max_bytes is None:
            pytest.skip("this sink knows no largest message")
        topic = harness.topics[0]
        large = record(2, "large", b"x" * (sink.traits.max_bytes + 1), topic=topic)
        self._expect_refusal(sink, [record(1, "a", topic=topic), large, record(3, "b", topic=topic)], harness)

    def test_a_poisonous_message_is_refused(self, sink: Sink, harness: SinkHarness) -> None:
        """Its neighbours get through, in this session or, behind a failure of a fail-stop sink, in the next."""
        topic = harness.topics[0]
        poison = harness.poison(record(2, "poison", topic=topic))
        if poison is None:
            pytest.skip("this destination refuses nothing")
        self._expect_refusal(sink, [record(1, "a", topic=topic), poison, record(3, "b", topic=topic)], harness)

    def _expect_refusal(self, sink: Sink, three: list[Record], harness: SinkHarness) -> None:
        sink.send(three)
        fail_stop = sink.traits.delivery is SinkClass.FAIL_STOP
        got = collect(sink, [1, 2] if fail_stop else [1, 2, 3])
        refusal = got[2]
        assert (got[1], refusal and refusal.outcome) == (None, Outcome.REFUSED)
        assert refusal is not None
        assert refusal.error
        arrived = {one.key for one in harness.arrived()}
        assert arrived == ({b"a"} if fail_stop else {b"a", b"b"})
        if fail_stop:
            sink.hang_up()
            sink.open()
            deliver(sink, [three[2]])
            assert b"b" in {one.key for one in harness.arrived()}

    def test_an_outage_is_no_refusal(self, harness: SinkHarness) -> None:
        """A destination that is away refuses nothing; when it is back, a new session delivers."""
        outage = harness.away()
        if outage is None:
            pytest.skip("this destination cannot be taken away")
        sink = harness.make()
        topic = harness.topics[0]
        with outage:
            assert self._try(sink, record(1, topic=topic)) in ("closed", "away", "unavailable", "unknown", "silent")
            sink.hang_up()

        def opens() -> bool:
            try:
                sink.open()
            except SinkUnavailable:
                return False
            return not sink.away([topic])

        wait_for(opens)
        deliver(sink, [record(2, topic=topic)])
        sink.close()
        assert [one.headers["id"][-1:] for one in harness.arrived()][-1] == b"2"

    def _try(self, sink: Sink, one: Record) -> str:
        try:
            sink.open()
        except SinkUnavailable as error:
            return "closed" if error.what else "closed without a reason"
        if sink.away([one[1]]):
            return "away"
        sink.send([one])
        until = clock.mono() + 3.0
        while clock.mono() < until:
            answers = sink.answers(0.1)
            assert answers.accepted == []
            for failed in answers.failed:
                return str(failed.outcome)
        return "silent"

    def test_a_destination_that_is_silent_blocks_nobody(self, sink: Sink, harness: SinkHarness) -> None:
        """Sending, asking and hanging up return at once, whatever the destination does."""
        stall = harness.stalled()
        if stall is None:
            pytest.skip("this destination cannot be stalled")
        with stall:
            before = clock.mono()
            sink.send([record(n, f"k{n}", topic=harness.topics[0]) for n in range(20)])
            assert sink.answers(0.05) == ([], [])
            sink.hang_up()
            assert clock.mono() - before < 2.0
