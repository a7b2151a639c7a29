"""An async add that nobody awaits is never lost in silence."""

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import PendingRollbackError

from devtools.servers.postgres import SharedPostgres
from pillarbox import InvalidMessage, NotAwaited, PillarboxError
from tests.integration.callers import ORDER, POSTGRES, SQLITE, Caller
from tests.integration.logs import installed_postgres, installed_sqlite, log, logged

ASYNC = [kind for kind in {**POSTGRES, **SQLITE} if "async" in kind or kind == "aiosqlite"]
WATCHED = [kind for kind in ASYNC if kind.startswith("async-")]


@pytest.fixture(scope="module")
def postgres_log(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return installed_sqlite(Path(tmp_path_factory.mktemp("awaited")))


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("postgres_log" if kind in POSTGRES else "sqlite_log"))


@pytest.fixture
def caller(kind: str, url: str) -> Iterator[Caller]:
    with {**POSTGRES, **SQLITE}[kind](url) as opened:
        yield opened


def forget(caller: Caller) -> None:
    caller.outbox.add(caller.conn, **ORDER)
    gc.collect()


@pytest.mark.parametrize("kind", ASYNC)
def test_a_dropped_add_is_logged_with_its_place(caller: Caller, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The error names the file and the line of the call."""
    before = len(log(url))
    forget(caller)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert f"{Path(__file__).name}:{forget.__code__.co_firstlineno + 1}" in record.getMessage()
    caller.rollback()
    assert len(log(url)) == before


@pytest.mark.parametrize("kind", WATCHED)
def test_a_dropped_add_stops_the_commit(caller: Caller, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """SQLAlchemy's commit fails until the transaction is rolled back; then all is well again."""
    first = caller.add()
    forget(caller)
    with pytest.raises(NotAwaited, match=Path(__file__).name):
        caller.commit()
    with pytest.raises((NotAwaited, PendingRollbackError)):
        caller.commit()
    caller.rollback()
    assert logged(url, first) == []
    second = caller.add()
    caller.commit()
    assert len(logged(url, second)) == 1
    caplog.clear()


@pytest.mark.parametrize("kind", [kind for kind in WATCHED if "session" in kind])
def test_a_dropped_add_stops_a_commit_of_nothing_else(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """Also where the session has done nothing yet, so that its commit would have had nothing to do."""
    forget(caller)
    with pytest.raises(NotAwaited):
        caller.commit()
    caller.rollback()
    caller.commit()
    caplog.clear()


@pytest.mark.parametrize("kind", [kind for kind in WATCHED if "session" in kind])
def test_an_add_that_still_waits_stops_the_commit(caller: Caller, url: str) -> None:
    """Kept for later is not awaited either; once awaited, the commit goes through."""
    pending = caller.outbox.add(caller.conn, **ORDER)
    with pytest.raises(NotAwaited):
        caller.commit()
    ident = caller.wait(pending)
    caller.commit()
    assert len(logged(url, ident)) == 1


@pytest.mark.parametrize("kind", ["psycopg-async"])
def test_many_are_awaited_too(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """A dropped batch is logged as a dropped add is."""
    caller.outbox.add_many(caller.conn, [ORDER])
    gc.collect()
    assert "never awaited" in caplog.text


@pytest.mark.parametrize("kind", ["asyncpg"])
def test_a_message_is_checked_at_the_call(caller: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """What is wrong with a message is raised where it was written, before any await."""
    with pytest.raises(InvalidMessage):
        caller.outbox.add(caller.conn, **{**ORDER, "aggregate": ""})
    gc.collect()
    assert caplog.records == []


@pytest.mark.parametrize("kind", ["asyncpg"])
def test_an_add_is_awaited_once(caller: Caller) -> None:
    """A second await is an error, not a second message."""
    pending = caller.outbox.add(caller.conn, **ORDER)
    caller.wait(pending)
    with pytest.raises(PillarboxError, match="awaited before"):
        caller.wait(pending)
