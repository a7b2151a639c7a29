"""What only the database, the driver or the caller's settings can tell becomes typed; nothing else is raised."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from devtools.servers.postgres import SharedPostgres
from pillarbox import (
    AsyncOutbox,
    ConfigError,
    ConnectionRefused,
    DatabaseUnavailable,
    NotInstalled,
    NotPermitted,
    Outbox,
    PillarboxError,
    Retryable,
    TransactionFailed,
    UnsupportedConnection,
)
from pillarbox.storage.postgres.migrate import grants
from tests.integration.callers import ORDER, POSTGRES, SQLITE, Caller, Loop, file_of, with_driver
from tests.integration.logs import ask, installed_postgres, installed_sqlite, logged

KINDS = {**POSTGRES, **SQLITE}


@pytest.fixture(scope="module")
def postgres_log(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return installed_sqlite(Path(tmp_path_factory.mktemp("errors")))


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> str:
    return str(request.getfixturevalue("pg_url")) if kind in POSTGRES else f"sqlite:///{tmp_path / 'empty.db'}"


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("kind", ["psycopg", "psycopg2", "asyncpg", "session-psycopg", "async-session-asyncpg",
                                  "django-postgresql", "sqlite3", "aiosqlite", "session-pysqlite"])  # fmt: skip
def test_missing_tables_name_the_command(kind: str, empty_url: str) -> None:
    """Without an installation the error says what to run."""
    with KINDS[kind](empty_url) as caller, pytest.raises(NotInstalled, match=r"pillarbox.*`pillarbox migrate up`"):
        caller.add()


@pytest.mark.parametrize("kind", ["psycopg", "psycopg2", "asyncpg", "connection-psycopg", "async-session-psycopg",
                                  "django-postgresql"])  # fmt: skip
def test_missing_rights_name_the_command(kind: str, postgres_log: str, postgres: SharedPostgres) -> None:
    """A role without rights is told which statements would give them."""
    role = f"r{uuid4().hex[:12]}"
    name = postgres_log.rpartition("/")[2]
    with psycopg.connect(postgres.url_of(name), autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    url = postgres_log.replace(urlsplit(postgres_log).netloc.partition("@")[0], f"{role}:x")
    try:
        with KINDS[kind](url) as caller, pytest.raises(NotPermitted, match=r"pillarbox.*`pillarbox migrate grants`"):
            caller.add()
    finally:
        with psycopg.connect(postgres.url_of(name), autocommit=True) as admin:
            admin.execute(f"DROP ROLE {role}")


def test_a_writers_rights_are_enough(postgres_log: str, postgres: SharedPostgres) -> None:
    """Every form of add, from Python and from SQL, works with what `migrate grants --writer` gives and nothing more."""
    role = f"r{uuid4().hex[:12]}"
    key, mine = str(uuid4()), uuid4()
    admin_url = postgres.url_of(postgres_log.rpartition("/")[2])
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        for statement in grants(writer=role):
            admin.execute(statement)
    try:
        with psycopg.connect(
            postgres_log.replace(urlsplit(postgres_log).netloc.partition("@")[0], f"{role}:x")
        ) as conn:
            outbox = Outbox()
            first = outbox.add(conn, **ORDER, unique_key=key, id=mine, headers={"a": "b"})
            assert outbox.add(conn, **ORDER, unique_key=key) == first == mine
            outbox.add_many(conn, [ORDER, {**ORDER, "version": 2}])
            outbox.add(conn, **ORDER, deliver_at=datetime.now(UTC) + timedelta(days=1))
            conn.execute("SELECT pillarbox.add(aggregate => 'a', type => 't', payload => '1', unique_key => 'w')")
            conn.execute("SELECT pillarbox.add(aggregate => 'a', type => 't', payload => '1', id => gen_random_uuid(),"
                         " deliver_at => now() + interval '1 day')")  # fmt: skip
            conn.execute("""SELECT pillarbox.add_many('[{"aggregate": "a", "type": "t", "payload": 1}]')""")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("SELECT payload FROM pillarbox.message")
    finally:
        with psycopg.connect(admin_url, autocommit=True) as admin:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize("kind", POSTGRES)
def test_a_failed_transaction_has_its_own_error(kind: str, postgres_log: str) -> None:
    """After a failed statement of the caller's an add says so, and works again after the rollback."""
    with KINDS[kind](postgres_log) as caller:
        caller.add()
        with pytest.raises(Exception, match="zero"):
            caller.execute("SELECT 1/0")
        with pytest.raises(TransactionFailed):
            caller.add()
        caller.rollback()
        caller.add()


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg", "session-psycopg2", "async-connection-asyncpg"])
def test_a_lock_time_out_is_retryable(kind: str, postgres_log: str) -> None:
    """A twin that cannot wait any longer is told to run its transaction again."""
    key = str(uuid4())
    with KINDS[kind](postgres_log) as caller, psycopg.connect(postgres_log) as other:
        Outbox().add(other, **ORDER, unique_key=key)
        caller.execute("SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(Retryable):
            caller.add(unique_key=key)
        caller.rollback()


def test_a_serialisation_failure_is_retryable(postgres_log: str) -> None:
    """Under REPEATABLE READ a key that another transaction has taken since is a reason to run again."""
    key = str(uuid4())
    with psycopg.connect(postgres_log) as mine, psycopg.connect(postgres_log) as other:
        mine.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        mine.execute("SELECT 1 FROM business")
        Outbox().add(other, **ORDER, unique_key=key)
        other.commit()
        with pytest.raises(Retryable):
            Outbox().add(mine, **ORDER, unique_key=key)


@pytest.mark.parametrize("kind", SQLITE)
def test_a_locked_file_is_retryable(kind: str, sqlite_log: str) -> None:
    """While another connection writes, the error says so and how to begin."""
    with KINDS[kind](sqlite_log) as caller, closing(sqlite3.connect(file_of(sqlite_log))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retryable, match="BEGIN IMMEDIATE"):
            caller.add()
        other.rollback()
        caller.add()


def test_a_read_only_transaction_may_not_add(postgres_log: str) -> None:
    """A transaction that only reads is told so."""
    with psycopg.connect(postgres_log) as conn:
        conn.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(NotPermitted, match="may write"):
            Outbox().add(conn, **ORDER)


@pytest.mark.parametrize("kind", ["psycopg", "psycopg2", "asyncpg", "psycopg-async", "sqlite3"])
def test_a_closed_connection_is_an_error_of_ours(kind: str, request: pytest.FixtureRequest) -> None:
    """Whatever the driver says about a closed connection, it comes as ours."""
    url = request.getfixturevalue("postgres_log" if kind in POSTGRES else "sqlite_log")
    with KINDS[kind](url) as caller:
        caller.wait(caller.conn.close())
        with pytest.raises((ConnectionRefused, DatabaseUnavailable)):
            caller.add()


def test_a_killed_session_is_an_outage(postgres_log: str, postgres: SharedPostgres) -> None:
    """A backend that was ended by the server is a database that is not there."""
    with psycopg.connect(postgres_log) as conn:
        conn.execute("SELECT 1")
        with psycopg.connect(postgres.url, autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s)", (conn.info.backend_pid,))
        with pytest.raises(DatabaseUnavailable):
            Outbox().add(conn, **ORDER)


def test_nothing_of_the_message_is_in_an_error(postgres_log: str) -> None:
    """The detail of a failed row would show the payload; an error carries the first line only."""
    with psycopg.connect(postgres_log) as conn:
        conn.execute("ALTER TABLE pillarbox.message ADD CONSTRAINT never CHECK (type <> 'secret.type') NOT VALID")
        with pytest.raises(PillarboxError, match="never") as caught:
            Outbox().add(conn, aggregate="a", type="secret.type", payload="the secret payload")
        conn.rollback()
    assert "the secret payload" not in str(caught.value)


# ------------------------------------------------------------------ what is no connection


def test_what_is_no_connection_is_named(postgres_log: str) -> None:
    """Engines, pools, cursors and anything else are refused with what to pass instead."""
    engine = sqlalchemy.create_engine(with_driver(postgres_log, "psycopg"))
    with psycopg.connect(postgres_log) as conn:
        for wrong, cure in ((engine, "connection or a session"), (conn.cursor(), "cursor's"), (None, "psycopg"),
                            ("url", "psycopg"), (sessionmaker(engine), "connection or a session")):  # fmt: skip
            with pytest.raises(UnsupportedConnection, match=cure):
                Outbox().add(wrong, **ORDER)
            with pytest.raises(UnsupportedConnection, match=cure):
                AsyncOutbox().add(wrong, **ORDER)
    engine.dispose()


@pytest.mark.parametrize("kind", KINDS)
def test_blocking_and_async_are_told_apart(kind: str, request: pytest.FixtureRequest) -> None:
    """The outbox of the wrong colour names the right one."""
    url = request.getfixturevalue("postgres_log" if kind in POSTGRES else "sqlite_log")
    with KINDS[kind](url) as caller:
        wrong, right = (Outbox(), "AsyncOutbox") if caller.is_async else (AsyncOutbox(), "Use Outbox")
        with pytest.raises(UnsupportedConnection, match=right):
            wrong.add(caller.conn, **ORDER)


def test_other_databases_are_refused() -> None:
    """A driver SQLAlchemy has and we do not know is named."""
    with closing(sqlite3.connect(":memory:")) as raw:
        strange = sqlalchemy.create_engine("sqlite://", creator=lambda: raw)
        strange.dialect.driver = "pysqlcipher"
        with strange.connect() as conn, pytest.raises(UnsupportedConnection, match="pysqlcipher"):
            Outbox().add(conn, **ORDER)
        strange.dispose()


@pytest.mark.parametrize("wrong", [{"schema": 1}, {"schema": "a b"}, {"schema": ""}, {"max_message": 0},
                                   {"max_message": "1"}, {"max_message": True}])  # fmt: skip
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    """An outbox that could not work is refused when it is made."""
    with pytest.raises(ConfigError):
        Outbox(**wrong)


# ------------------------------------------------------------------ whatever they configured


def test_psycopg_with_everything_changed(postgres_log: str) -> None:
    """Row factory, cursor factory, client-side binding, dumpers and server settings of the caller's own."""
    factories = [psycopg.ClientCursor, psycopg.RawCursor]
    for factory in factories:
        with psycopg.connect(postgres_log, row_factory=dict_row, cursor_factory=factory) as conn:
            conn.execute("SET standard_conforming_strings = off")
            conn.execute("SET bytea_output = 'escape'")
            conn.execute("SET DateStyle = 'German'")
            conn.prepare_threshold = 0
            key = str(uuid4())
            ident = Outbox().add(conn, **{**ORDER, "payload": b"\\x00\\'\0"}, unique_key=key)
            assert Outbox().add(conn, **ORDER, unique_key=key) == ident
            conn.commit()
        assert logged(postgres_log, ident)[0][4] == b"\\x00\\'\0"


def test_psycopg2_with_everything_changed(postgres_log: str) -> None:
    """Dictionary rows, old string literals and another client encoding change nothing."""
    with closing(psycopg2.connect(postgres_log, cursor_factory=psycopg2.extras.RealDictCursor)) as conn:
        conn.cursor().execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
        conn.set_client_encoding("LATIN1")
        key = str(uuid4())
        ident = Outbox().add(conn, aggregate="a", type="t", payload=b"\\\0'", key="Z\u00fcrich", unique_key=key)
        assert Outbox().add(conn, **ORDER, unique_key=key) == ident
        conn.commit()
        with pytest.raises(PillarboxError, match="client_encoding"):
            Outbox().add(conn, **ORDER, key="\u20ac")
        Outbox().add(conn, **ORDER, key="e")
        conn.commit()
    assert logged(postgres_log, ident)[0][1:5] == ("Z\u00fcrich", "a", "t", b"\\\0'")


def test_asyncpg_with_codecs(postgres_log: str) -> None:
    """A connection that encodes JSON and UUIDs its own way stores headers once, not twice."""
    with Loop() as loop:
        conn = loop.wait(asyncpg.connect(postgres_log))
        loop.callback(lambda: loop.wait(conn.close()))

        async def go() -> Any:
            for name in ("json", "jsonb", "uuid"):
                await conn.set_type_codec(name, encoder=repr, decoder=repr, schema="pg_catalog")
            async with conn.transaction():
                return await AsyncOutbox().add(conn, **ORDER, headers={"a": "b"}, unique_key=str(uuid4()))

        ident = loop.wait(go())
    assert logged(postgres_log, ident)[0][9] == '{"a":"b"}'


class Base(DeclarativeBase):
    pass


class Business(Base):
    __tablename__ = "business"
    id: Mapped[str] = mapped_column(primary_key=True)


def test_a_session_is_flushed_first(postgres_log: str) -> None:
    """What the message speaks of is written before it; what is wrong with that row is raised as it is."""
    engine = sqlalchemy.create_engine(with_driver(postgres_log, "psycopg"))
    row = str(uuid4())
    with Session(engine) as session, session.begin():
        session.add(Business(id=row))
        Outbox().add(session, **ORDER, key=row)
        assert not session.new
    with Session(engine) as session:
        session.add(Business(id=row))
        with pytest.raises(sqlalchemy.exc.IntegrityError):
            Outbox().add(session, **ORDER, key=row)
        with pytest.raises(TransactionFailed):
            Outbox().add(session, **ORDER, key=row)
    engine.dispose()
    assert ask(postgres_log, f"SELECT count(*) FROM pillarbox.message WHERE key = '{row}'") == [(1,)]


def test_a_scoped_session_is_its_session(postgres_log: str) -> None:
    """The proxy that web frameworks hand out works as the session behind it."""
    engine = sqlalchemy.create_engine(with_driver(postgres_log, "psycopg"))
    session = scoped_session(sessionmaker(engine))
    ident = Outbox().add(session, **ORDER)
    session.commit()
    session.remove()
    engine.dispose()
    assert len(logged(postgres_log, ident)) == 1


def test_a_savepoint_takes_its_messages_along(postgres_log: str) -> None:
    """What a savepoint rolled back is gone, what came before stays."""
    with psycopg.connect(postgres_log) as conn:
        kept = Outbox().add(conn, **ORDER)
        with conn.transaction(force_rollback=True):
            gone = Outbox().add(conn, **ORDER)
    assert len(logged(postgres_log, kept)) == 1
    assert logged(postgres_log, gone) == []


def test_the_caller_is_silent(caplog: pytest.LogCaptureFixture, postgres_log: str) -> None:
    """An add that works logs nothing."""
    with caplog.at_level(logging.DEBUG, "pillarbox"), KINDS["psycopg"](postgres_log) as caller:
        assert isinstance(caller, Caller)
        caller.add()
    assert caplog.records == []
