"""Everything a database could refuse is refused before, with a type and a cure."""

import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pillarbox import InvalidHeader, InvalidMessage, Message, MessageTooLarge, PillarboxError
from pillarbox.prepare import Prepared, from_message, prepare, uuid7

LEAST: dict[str, Any] = {"aggregate": "order", "type": "order.created", "payload": {"a": 1}}


class Kind(StrEnum):
    CREATED = "order.created"


class Old(str, Enum):  # noqa: UP042 - what people wrote before StrEnum, and str() shows it otherwise
    CREATED = "order.created"


class Number(IntEnum):
    SEVEN = 7


class Odd:
    """Equal to everything, and cannot be shown."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _other: object) -> bool:
        raise ZeroDivisionError

    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_the_least_is_three_things() -> None:
    """Without anything else there is no key, and JSON is not even said."""
    made = prepare(**LEAST)
    assert made[1:] == (
        None,
        "order",
        "order.created",
        b'{"a":1}',
        None,
        None,
        None,
        None,
        None,
        None,
        False,
        None,
        False,
    )


@pytest.mark.parametrize(
    ("key", "text"),
    [("k", "k"), ("", ""), (17, "17"), (-1, "-1"), (Number.SEVEN, "7"), (Kind.CREATED, "order.created"),
     (UUID(int=1), "00000000-0000-0000-0000-000000000001"), ("Zoë", "Zoë"), ("\n", "\n")],
)  # fmt: skip
def test_keys_become_text(key: Any, text: str) -> None:
    """str, int and UUID, and what derives from them, as exact strings."""
    made = prepare(**LEAST, key=key)
    assert made.key == text
    assert type(made.key) is str


def test_an_enum_is_its_value_in_every_text() -> None:
    """Drivers dump enums by their own rules; they never see one."""
    for kind in (Kind.CREATED, Old.CREATED):
        made = prepare(aggregate=kind, type=kind, payload=kind, topic=kind, unique_key=kind, content_type="a/b")
        assert {type(each) for each in (made.aggregate, made.type, made.topic, made.unique_key)} == {str}
        assert made.type == "order.created"
        assert made.payload == b"order.created"


WRONG: list[tuple[str, Any]] = [
    *[(field, value) for field in ("aggregate", "type", "topic", "unique_key", "content_type")
      for value in (1, b"x", "", "a\0b", "\ud800", ["x"], "x" * 3000, Odd())],
    ("aggregate", None), ("type", None),
    ("key", None), ("key", True), ("key", 1.5), ("key", b"k"), ("key", "a\0"), ("key", "\udfff"), ("key", "k" * 2001),
    ("key", 10**5000), ("key", Odd()), ("key", object),
    ("version", "1"), ("version", True), ("version", 2**31), ("version", -(2**31) - 1), ("version", 1.0),
    ("sequence", 2**63), ("sequence", "1"), ("sequence", False), ("sequence", Odd()),
    ("id", "a"), ("id", str(UUID(int=1))), ("id", 1), ("id", b"x" * 16), ("id", Odd()),
    ("on_duplicate", "error"), ("on_duplicate", None), ("on_duplicate", 1), ("on_duplicate", Odd()),
    ("deliver_at", "2030-01-01"), ("deliver_at", datetime(2030, 1, 1)), ("deliver_at", 5), ("deliver_at", Odd()),
    ("deliver_at", datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))),
    *[(field, value) for field in ("aggregate", "type", "topic", "content_type") for value in ("a\nb", "é\r\n")],
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), WRONG, ids=[f"{n}-{field}" for n, (field, _) in enumerate(WRONG)])
def test_wrong_values_are_typed_errors(field: str, value: Any) -> None:
    """Whatever is wrong with an argument, it is one of ours that names it."""
    with pytest.raises(PillarboxError) as caught:
        prepare(**{**LEAST, field: value})
    assert isinstance(caught.value, InvalidMessage)
    assert field in str(caught.value)


@pytest.mark.parametrize(
    "headers",
    [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}, {"": "x"}, {"a b": "x"}, {"a:b": "x"}, {"ä": "x"}, {"a\n": "x"},
     {"a\0": "x"}, {"a": "x\r"}, {"a": "x\ny"}, {"a": "x\0"}, {"a": "\ud800"}, {"id": "x"}, {"ID": "x"},
     {"Content-Type": "x"}, {"traceparent": "x"}, {"generation": "1"}, {"Pillarbox-Id": "x"}, [("a", "b")], "a", 1,
     Odd(), {"a": Odd()}],
)  # fmt: skip
def test_bad_headers_are_typed_errors(headers: Any) -> None:
    """Names are HTTP's tokens and not the record's own; values are text without line breaks."""
    with pytest.raises(InvalidHeader):
        prepare(**LEAST, headers=headers)


def test_a_mapping_that_raises_is_a_typed_error() -> None:
    """A mapping of the caller's making may do anything; the transaction is not harmed by it."""

    class Broken(Mapping[str, str]):
        def __getitem__(self, _key: str) -> str:
            raise ZeroDivisionError

        def __iter__(self) -> Any:
            return iter(["a"])

        def __len__(self) -> int:
            return 1

    with pytest.raises(InvalidHeader):
        prepare(**LEAST, headers=Broken())


def test_headers_are_json_in_ascii() -> None:
    """No client encoding can spoil them; none are no column at all."""
    assert prepare(**LEAST, headers={"city": "Köln"}).headers == '{"city":"K\\u00f6ln"}'
    assert prepare(**LEAST, headers={}).headers is None
    assert prepare(**LEAST, headers=None).headers is None


def test_only_an_unknown_name_is_a_type_error() -> None:
    """A misspelt argument is a mistake of the program, as everywhere in Python."""
    with pytest.raises(TypeError, match="hedaers"):
        prepare(**LEAST, hedaers={})


@pytest.mark.parametrize("over", [0, 1])
def test_the_limit_counts_payload_key_and_headers(over: int) -> None:
    """Exactly the limit passes, one byte more does not; the error says what to do."""
    fields = {**LEAST, "payload": b"x" * 90, "key": "é", "headers": {"a": "é" * 3}, "content_type": "a/b"}
    size = 90 + 2 + 1 + 6
    made: Callable[[], Prepared] = lambda: prepare(**fields, limit=size - over)  # noqa: E731
    if over:
        with pytest.raises(MessageTooLarge, match="reference"):
            made()
    else:
        assert made().key == "é"


def test_the_default_limit_stays_below_kafkas() -> None:
    """900,000 bytes."""
    assert len(prepare(**{**LEAST, "payload": b"x" * 900_000}).payload) == 900_000
    with pytest.raises(MessageTooLarge):
        prepare(**{**LEAST, "payload": b"x" * 900_001})


def test_messages_come_as_objects_or_mappings() -> None:
    """Both forms give the same; a missing or unknown field is named."""
    both = [from_message(each)[1:] for each in (Message(**LEAST, key=1), {**LEAST, "key": 1})]
    assert both[0] == both[1]
    for wrong, word in (({**LEAST, "keys": 1}, "keys"), ({"type": "t"}, "aggregate"), (5, "int"), (None, "NoneType"),
                        ({**LEAST, "limit": 5}, "limit")):  # fmt: skip
        with pytest.raises(InvalidMessage, match=word):
            from_message(wrong)


def test_a_time_that_is_over_is_now() -> None:
    """`deliver_at` in the past is an ordinary add; in the future it is kept in UTC."""
    assert prepare(**LEAST, deliver_at=datetime.now(UTC)).due is None
    due = datetime.now(timezone(timedelta(hours=-5))) + timedelta(hours=1)
    made = prepare(**LEAST, deliver_at=due).due
    assert made == due
    assert made is not None
    assert made.tzinfo is UTC


def test_a_given_id_is_kept_and_known_as_given() -> None:
    """Also one of a driver's own class."""

    class DriversOwn(UUID):
        pass

    mine = uuid4()
    made = prepare(**LEAST, id=DriversOwn(int=mine.int))
    assert (made.message_id, made.own_id, type(made.message_id)) == (mine, True, UUID)


def test_ids_are_uuids_of_version_7_in_order() -> None:
    """They begin with the time, rise within a thread, and never repeat, across threads and forks too."""
    before = datetime.now(UTC).timestamp() * 1000
    drawn = [uuid7() for _ in range(5000)]
    assert all(each.version == 7 and each.variant == "specified in RFC 4122" for each in drawn)
    assert abs((drawn[0].int >> 80) - before) < 1000
    assert drawn == sorted(drawn)
    threads = [threading.Thread(target=lambda: drawn.extend(uuid7() for _ in range(5000))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(set(drawn)) == 25_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_draws_other_ids() -> None:
    """Parent and child continue from the same place and still never meet."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(uuid7().bytes for _ in range(200)))
        os._exit(0)
    mine = {uuid7().bytes for _ in range(200)}
    os.waitpid(child, 0)
    theirs = os.read(reader, 3200)
    os.close(reader)
    os.close(writer)
    assert mine.isdisjoint(theirs[n : n + 16] for n in range(0, 3200, 16))


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(Message.__dataclass_fields__, anything)))
def test_anything_is_prepared_or_a_typed_error(fields: dict[str, Any]) -> None:
    """No value of any argument raises anything but a PillarboxError."""
    try:
        made = prepare(**{**LEAST, **fields})
    except PillarboxError:
        return
    assert all("\0" not in each for each in made if isinstance(each, str))
