"""What a payload becomes: the caller's own bytes, or one dialect of JSON."""

import dataclasses
import json
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel

from pillarbox import InvalidPayload, content_key
from pillarbox.prepare import prepare
from pillarbox.prepare.payload import encode


@dataclasses.dataclass
class Line:
    sku: str
    n: int


class Order(BaseModel):
    id: UUID
    at: datetime
    lines: list[Line]
    total: Decimal


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, '{"b":1,"a":[true,null,1.5]}'),
        ("é", "é"),
        (["é\u2028"], '["é\u2028"]'),
        (10**40, str(10**40)),
        (None, "null"),
        ([datetime(2024, 1, 2, 3, 4, 5, 6, UTC)], '["2024-01-02T03:04:05.000006+00:00"]'),
        ([datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=2)))], '["2024-01-02T00:00:00+02:00"]'),
        ([datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=3208)))], '["1899-12-31T23:06:32+00:00"]'),
        ([date(2024, 1, 2)], '["2024-01-02"]'),
        ([UUID(int=1), Decimal("1.10")], '["00000000-0000-0000-0000-000000000001","1.10"]'),
        ([Colour.RED], '["red"]'),
        (Line("a", 2), '{"sku":"a","n":2}'),
        (
            Order(id=UUID(int=1), at=datetime(2024, 1, 2, tzinfo=UTC), lines=[Line("a", 2)], total=Decimal("1.10")),
            (
                '{"id":"00000000-0000-0000-0000-000000000001","at":"2024-01-02T00:00:00+00:00",'
                '"lines":[{"sku":"a","n":2}],"total":"1.10"}'
            ),
        ),
        ((1, 2), "[1,2]"),
        ({1: 2}, '{"1":2}'),
    ],
)
def test_objects_become_json(payload: Any, text: str) -> None:
    """UTF-8, no spaces, and RFC 3339, strings for what JSON has no type for."""
    assert encode(payload, None)[0] == text.encode()


circle: list[Any] = []
circle.append(circle)
deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]


@pytest.mark.parametrize(
    "payload",
    [float("nan"), {"a": float("inf")}, Decimal("NaN"), Decimal("-Infinity"), {1}, [b"x"], datetime(2024, 1, 1),
     {"a": [datetime(2024, 1, 1)]}, "\ud800", ["\udfff"], {"\ud800": 1}, circle, deep, object(), {(1, 2): 3},
     {UUID(int=1): 1}, [10**5000], timedelta(1), 1j, Line, iter([1]), range(3)],
    ids=repr if sys.flags.verbose else lambda value: type(value).__name__,
)  # fmt: skip
def test_what_json_cannot_say_is_a_typed_error(payload: Any) -> None:
    """Never half a payload, never an error of the encoder's own."""
    with pytest.raises(InvalidPayload):
        encode(payload, None)


def test_a_model_that_raises_is_a_typed_error() -> None:
    """A payload's own code may fail; the caller learns it as a refusal."""

    @dataclasses.dataclass
    class Broken:
        a: int = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "a":
                raise ZeroDivisionError
            return super().__getattribute__(name)

    with pytest.raises(InvalidPayload):
        encode(Broken(), None)


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b'{"a": 1}', None),
        ('{"a": 1}', None),
        (b" [1, 2.5e3, -0]\n", None),
        (b"NaN", "application/octet-stream"),
        ("NaN", "text/plain; charset=utf-8"),
        (b"\xef\xbb\xbf{}", "application/octet-stream"),
        (b"", "application/octet-stream"),
        (b"\0\xff", "application/octet-stream"),
        ("hello", "text/plain; charset=utf-8"),
        (b"1" * 5000, None),
        (b"[" * 100_000 + b"]" * 100_000, "application/octet-stream"),
    ],
)
def test_bytes_and_text_pass_untouched(payload: Any, content_type: str | None) -> None:
    """Not a byte is changed; JSON is what parses as JSON, and what does not is said."""
    raw, said = encode(payload, None)
    assert raw == (payload if isinstance(payload, bytes) else payload.encode())
    assert said == content_type


def test_the_callers_content_type_wins() -> None:
    """Their word is not checked: who needs speed says it. JSON is stored as nothing."""
    assert prepare(aggregate="a", type="t", payload=b"{", content_type="application/json").content_type is None
    assert prepare(aggregate="a", type="t", payload=b"{}", content_type="x/y").content_type == "x/y"
    assert prepare(aggregate="a", type="t", payload={}, content_type="application/a+json").content_type is not None


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_buffers_are_bytes(kind: Any) -> None:
    """What drivers hand out as bytes is taken as bytes, and copied."""
    raw, _ = encode(kind(b"\0\1"), None)
    assert (raw, type(raw)) == (b"\0\1", bytes)
    gone = memoryview(b"x")
    gone.release()
    with pytest.raises(InvalidPayload):
        encode(gone, None)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(plain)
def test_what_went_in_comes_out(value: Any) -> None:
    """A consumer that reads the JSON has the same value, whatever text is in it."""
    try:
        raw, _ = encode([value], None)
    except InvalidPayload:
        assert "\\ud" in json.dumps([value])  # a lone surrogate
        return
    assert json.loads(raw) == [value]


def test_the_current_span_travels_along() -> None:
    """Inside a span of OpenTelemetry its W3C context is in the headers; outside there is none."""
    tracer = TracerProvider().get_tracer("test")
    with tracer.start_as_current_span("order") as span:
        context = span.get_span_context()
        headers = json.loads(prepare(aggregate="a", type="t", payload=1, headers={"x": "y"}).headers or "")
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert headers == {"x": "y", "traceparent": expected}
    assert prepare(aggregate="a", type="t", payload=1).headers is None


def test_a_content_key_is_the_same_for_the_same_content() -> None:
    """Whatever the order of its keys; and another for anything else, however the parts run together."""
    key = content_key(aggregate="a", type="t", key=1, payload={"x": 1, "y": [2]})
    assert key == content_key(aggregate="a", type="t", key="1", payload={"y": [2], "x": 1})
    others = [
        content_key(aggregate="at", type="t", key=1, payload={"x": 1, "y": [2]}),
        content_key(aggregate="a", type="t", payload={"x": 1, "y": [2]}),
        content_key(aggregate="a", type="t", key="", payload={"x": 1, "y": [2]}),
        content_key(aggregate="a", type="t", key=1, payload=b'{"x": 1, "y": [2]}'),
        content_key(aggregate="a", type="t", key=1, payload={1: 1, "y": [2]}),
    ]
    assert len({key, *others}) == 6
    assert prepare(aggregate="a", type="t", payload=1, unique_key=key).unique_key == key
