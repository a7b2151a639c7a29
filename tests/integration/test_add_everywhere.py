"""What add promises, on every kind of connection."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from devtools.servers.postgres import SharedPostgres
from pillarbox import DuplicateMessage, InvalidPayload, Message
from tests.integration.callers import POSTGRES, SQLITE, Caller
from tests.integration.logs import ask, installed_postgres, installed_sqlite, log, logged

KINDS = {**POSTGRES, **SQLITE}


@pytest.fixture(scope="module")
def postgres_log(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return installed_sqlite(Path(tmp_path_factory.mktemp("log")))


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres_log" if kind in POSTGRES else "sqlite_log"))


@pytest.fixture
def caller(kind: str, url: str) -> Iterator[Caller]:
    with KINDS[kind](url) as opened:
        yield opened


def test_a_message_is_there_when_its_transaction_committed(caller: Caller, url: str) -> None:
    """What was committed is in the log together with the business row."""
    row = str(uuid4())
    caller.execute(f"INSERT INTO business VALUES ('{row}')")
    ident = caller.add(key=row)
    assert logged(url, ident) == []
    caller.commit()
    assert [found[:5] for found in logged(url, ident)] == [
        (ident.bytes, row, "order", "order.created", b'{"total":42}')
    ]
    assert ask(url, f"SELECT count(*) FROM business WHERE id = '{row}'") == [(1,)]


def test_a_message_is_gone_with_its_transaction(caller: Caller, url: str) -> None:
    """What was rolled back was never there."""
    ident = caller.add()
    caller.rollback()
    caller.commit()
    assert logged(url, ident) == []


def test_add_may_be_the_first_statement(caller: Caller, url: str) -> None:
    """A fresh connection needs no statement before the add for commit to mean it."""
    ident = caller.add()
    caller.commit()
    assert len(logged(url, ident)) == 1


FULL: dict[str, Any] = {
    "key": "Zoë/\u20ac \U0001f600 'q' \"d\" %s $1 \\",
    "aggregate": "órder",
    "type": "x",
    "payload": bytes(range(256)),
    "topic": "topic.of.its.own",
    "version": 3,
    "sequence": 2**62,
    "content_type": "application/octet-stream",
    "headers": {"city": "Köln", "note": 'a"b\\c'},
}


def test_every_field_arrives_as_it_was_given(caller: Caller, url: str) -> None:
    """All ten columns, with text that quoting, placeholders and encodings could spoil."""
    ident = caller.add(**FULL)
    [back] = caller.messages()
    assert back == Message(**FULL, id=ident)
    caller.commit()
    [row] = logged(url, ident)
    assert row[1:9] == tuple(FULL[name] for name in ("key", "aggregate", "type", "payload", "topic", "version",
                                                     "sequence", "content_type"))  # fmt: skip


def test_many_are_added_in_their_order(caller: Caller, url: str) -> None:
    """Two hundred of all shapes keep their order, in the answer and in the log."""
    given: list[Any] = [
        {"aggregate": "a", "type": "t", "payload": {"n": n}, **({"key": n} if n % 3 else {})} for n in range(198)
    ]
    given += [Message(**FULL), Message(aggregate="a", type="t", payload=b"\0")]
    idents = caller.add_many(given)
    caller.commit()
    assert [row[0] for row in logged(url, *idents)] == [ident.bytes for ident in idents]
    assert idents == sorted(idents)
    assert [row[1] for row in logged(url, *idents)][:4] == [None, "1", "2", None]


def test_no_messages_are_no_work(caller: Caller) -> None:
    """An empty batch adds nothing and asks for nothing."""
    assert caller.add_many([]) == []


def test_a_unique_key_is_added_once(caller: Caller, url: str) -> None:
    """The second add with a key returns the first one's id, in the same transaction and in the next."""
    key = str(uuid4())
    first = caller.add(unique_key=key)
    assert caller.add(unique_key=key) == first
    caller.commit()
    assert caller.add(unique_key=key) == first
    caller.commit()
    assert len(logged(url, first)) == 1


def test_a_duplicate_can_be_told(caller: Caller, url: str) -> None:
    """`on_duplicate="raise"` raises, and the transaction goes on with everything else in it."""
    key = str(uuid4())
    before = caller.add(unique_key=key)
    with pytest.raises(DuplicateMessage, match=key):
        caller.add(unique_key=key, on_duplicate="raise")
    after = caller.add()
    caller.commit()
    assert len(logged(url, before, after)) == 2


def test_a_batch_with_a_duplicate_adds_all_or_nothing(caller: Caller, url: str) -> None:
    """If one of a batch is to be told of, none of it was added, and no key of it is taken."""
    key, other = str(uuid4()), str(uuid4())
    caller.add(unique_key=key)
    shape = {"aggregate": "a", "type": "t", "payload": 1}
    told = {"on_duplicate": "raise"}
    with pytest.raises(DuplicateMessage):
        caller.add_many([shape, {**shape, "unique_key": other}, {**shape, "unique_key": key, **told}])
    again = caller.add(unique_key=other)
    caller.commit()
    assert len(logged(url, again)) == 1


def test_a_batch_adds_what_is_new(caller: Caller, url: str) -> None:
    """Twins within a batch and before it are added once; every place has the id of the first."""
    key, other = str(uuid4()), str(uuid4())
    first = caller.add(unique_key=key)
    shape = {"aggregate": "a", "type": "t", "payload": 1}
    keys = [other, key, None, other]
    idents = caller.add_many([{**shape, "unique_key": each} for each in keys])
    caller.commit()
    assert idents[1] == first
    assert idents[0] == idents[3]
    assert len(logged(url, *idents)) == 3


def test_an_id_of_the_callers_own_is_added_once(caller: Caller, url: str) -> None:
    """A given id is kept, and adds nothing the second time."""
    mine = uuid4()
    assert caller.add(id=mine) == mine
    assert caller.add(id=mine) == mine
    with pytest.raises(DuplicateMessage):
        caller.add(id=mine, on_duplicate="raise")
    caller.commit()
    assert len(logged(url, mine)) == 1


def test_a_refused_twin_claims_nothing(caller: Caller, url: str) -> None:
    """An id whose message was not added, because its key was taken, is free for the next."""
    key, mine = str(uuid4()), uuid4()
    first = caller.add(unique_key=key)
    assert caller.add(unique_key=key, id=mine) == first
    assert caller.add(id=mine) == mine
    fresh = str(uuid4())
    with pytest.raises(DuplicateMessage):
        caller.add(id=mine, unique_key=fresh, on_duplicate="raise")
    later = caller.add(unique_key=fresh)
    caller.commit()
    assert later != mine
    assert len(logged(url, first, mine, later)) == 3


def test_a_delayed_message_waits(caller: Caller, url: str) -> None:
    """Until its time it is in the list of delayed ones and not in the log; it can be cancelled."""
    due = datetime.now(UTC) + timedelta(days=1)
    ident = caller.add(**FULL, deliver_at=due)
    caller.commit()
    assert logged(url, ident) == []
    [waiting] = [each for each in caller.delayed() if each.id == ident]
    assert waiting.deliver_at is not None
    assert abs(waiting.deliver_at - due) < timedelta(milliseconds=1)
    assert (waiting.key, waiting.payload, waiting.headers) == (FULL["key"], FULL["payload"], FULL["headers"])
    assert caller.cancel(ident) is True
    assert caller.cancel(ident) is False
    caller.commit()
    assert [each for each in log(url, "scheduled") if each[0] == ident.bytes] == []


def test_what_is_due_already_is_not_delayed(caller: Caller, url: str) -> None:
    """A time that is over means now."""
    ident = caller.add(deliver_at=datetime.now(UTC) - timedelta(seconds=1))
    caller.commit()
    assert len(logged(url, ident)) == 1


def test_a_refused_message_leaves_the_transaction_alone(caller: Caller, url: str) -> None:
    """After a typed error everything before and after it is committed as if nothing had been asked."""
    before = caller.add()
    with pytest.raises(InvalidPayload):
        caller.add(payload={"n": float("nan")})
    with pytest.raises(InvalidPayload):
        caller.add_many(
            [{"aggregate": "a", "type": "t", "payload": 1}, {"aggregate": "a", "type": "t", "payload": {1}}]
        )
    after = caller.add()
    caller.commit()
    assert len(logged(url, before, after)) == 2


def test_messages_are_those_of_this_transaction(caller: Caller) -> None:
    """`testing.messages` shows what this transaction added and nothing that was committed before."""
    caller.add()
    caller.commit()
    idents = [caller.add(key=1), caller.add(key=UUID(int=5))]
    assert [(each.id, each.key) for each in caller.messages()] == list(
        zip(idents, ["1", str(UUID(int=5))], strict=True)
    )


def test_an_operation_and_its_events_are_one_transaction(caller: Caller, kind: str, url: str) -> None:
    """The helper commits the operation with its events, and rolls both back when it raises."""
    caller.idle()

    def place(_conn: Any, events: Any) -> str:
        events.add(aggregate="a", type="t", payload=1, unique_key=key)
        return "done"

    def fail(conn: Any, events: Any) -> None:
        place(conn, events)
        raise ZeroDivisionError

    key = str(uuid4())
    with pytest.raises(ZeroDivisionError):
        caller.with_transaction(fail)
    assert ask(url, f"SELECT count(*) FROM pillarbox.unique_key WHERE key = '{key}'") == [(0,)]
    assert caller.with_transaction(place) == "done"
    if "django" in kind:  # inside another atomic() block it is a savepoint, and that block commits
        caller.commit()
    assert ask(url, f"SELECT count(*) FROM pillarbox.unique_key WHERE key = '{key}'") == [(1,)]
