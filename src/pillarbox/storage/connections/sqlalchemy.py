"""SQLAlchemy 2: connections and sessions, blocking and async, over the drivers we know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

from sqlalchemy import event, exc
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.ext.asyncio.exc import AsyncContextNotStarted
from sqlalchemy.orm import Session, scoped_session

from pillarbox.errors import ConnectionRefused, NotInTransaction, UnsupportedConnection
from pillarbox.storage.connections import sqlite
from pillarbox.storage.connections.adapter import (
    POSTGRES,
    SQLITE,
    Adapter,
    already_open,
    as_format,
    as_psycopg,
    drive,
    not_in_transaction,
    transaction_failed,
)
from pillarbox.storage.connections.dialects import Dialect
from pillarbox.storage.statement import Flow, Statement

T = TypeVar("T")
DRIVERS = ("psycopg", "psycopg_async", "psycopg2", "asyncpg", "pysqlite", "aiosqlite")
CURE = 'Leave out isolation_level="AUTOCOMMIT" for connections that add messages.'


_SPELLED = {"psycopg": as_psycopg, "psycopg_async": as_psycopg, "psycopg2": as_format}


def check(conn: Connection) -> None:
    """By the driver's connection: `in_transaction()` is true under AUTOCOMMIT too, and false before the first use."""
    driver = conn.dialect.driver
    if driver not in DRIVERS or conn.dialect.name not in (POSTGRES, SQLITE):
        raise UnsupportedConnection(
            f"Pillarbox does not know SQLAlchemy's {conn.dialect.name}+{driver}.",
            f"It knows postgresql and sqlite over {', '.join(DRIVERS)}.",
        )
    fairy = conn.connection
    if driver == "asyncpg":
        # SQLAlchemy begins with the first statement here, so asyncpg's own answer would be no.
        if getattr(fairy.dbapi_connection, "isolation_level", None) == "autocommit":
            raise not_in_transaction(CURE)
    elif driver == "psycopg2":
        from pillarbox.storage.connections import psycopg2

        psycopg2.check(fairy.driver_connection)
    elif conn.dialect.name == SQLITE:
        sqlite.check(fairy.driver_connection)
    else:
        from pillarbox.storage.connections import psycopg3

        psycopg3.check(fairy.driver_connection)  # type: ignore[arg-type]


def _connection(session: Session) -> Connection:
    """The session's, after a flush: what the message speaks of must be there before it. What is wrong with the
    caller's own rows is raised as it is."""
    try:
        session.flush()
        return session.connection()
    except exc.PendingRollbackError as error:
        raise transaction_failed() from error
    except exc.UnboundExecutionError as error:
        raise UnsupportedConnection(
            "This session has several databases.",
            "Pass session.connection(bind_arguments={…}) of the one that has Pillarbox's tables.",
        ) from error
    except exc.InvalidRequestError as error:
        if "utobegin" not in str(error):
            raise
        raise NotInTransaction(
            "This session begins no transaction by itself.", "Call session.begin() first."
        ) from error


class SQLAlchemy(Adapter):
    def flush(self, conn: Connection | Session | scoped_session[Any]) -> Connection:
        plain = conn.registry() if isinstance(conn, scoped_session) else conn
        return _connection(plain) if isinstance(plain, Session) else plain

    def begin(self, conn: Connection) -> Connection:
        try:
            # Now, not with the statement: what a "begin" listener does (BEGIN for SQLite) counts.
            mine = None if conn.in_transaction() else conn.begin()
            try:
                check(conn)
            except ConnectionRefused:
                if mine is not None:
                    mine.rollback()
                raise
        except exc.PendingRollbackError as error:
            raise transaction_failed() from error
        except exc.ResourceClosedError as error:
            raise ConnectionRefused("The connection is closed.", "Open a new one.") from error
        return conn

    def dialect(self, target: Connection) -> str:
        return target.dialect.name

    def execute(self, target: Connection, statement: Statement) -> Any:
        sql = _SPELLED.get(target.dialect.driver, str)(statement.sql)
        # A list would mean many sets of parameters.
        parameters: Any = statement.parameters if statement.many else tuple(statement.parameters)
        result = target.exec_driver_sql(sql, parameters or None)
        return result.fetchall() if statement.rows else result.rowcount

    def transaction(self, conn: Any) -> AbstractContextManager[Any]:
        if conn.in_transaction():
            raise already_open()
        return conn.begin()  # type: ignore[no-any-return]


BLOCKING = SQLAlchemy()


class AsyncSQLAlchemy(Adapter):
    """The blocking one, run where SQLAlchemy turns its waiting into awaiting."""

    is_async = True

    async def adrive(self, conn: Any, schema: str, make: Callable[[Dialect], Flow[T]]) -> T:
        plain = conn.registry() if isinstance(conn, async_scoped_session) else conn
        try:
            return await plain.run_sync(lambda sync: drive(BLOCKING, sync, schema, make))  # type: ignore[no-any-return]
        except AsyncContextNotStarted as error:
            raise ConnectionRefused("The connection is not open yet.", "Use `async with engine.connect()`.") from error

    def transaction(self, conn: Any) -> AbstractAsyncContextManager[Any]:
        if conn.in_transaction():
            raise already_open()
        return conn.begin()  # type: ignore[no-any-return]

    def watched(self, conn: Any) -> Session | Connection | None:
        plain = conn.registry() if isinstance(conn, async_scoped_session) else conn
        return plain.sync_session if isinstance(plain, AsyncSession) else plain.sync_connection

    def watch(self, watched: Any, refuse: Callable[[], None], forget: Callable[[], None]) -> None:
        if isinstance(watched, Session):
            event.listen(watched, "before_commit", lambda _session: refuse())
            event.listen(watched, "after_rollback", lambda _session: forget())
            return

        def before_commit(_connection: Connection) -> None:
            try:
                refuse()
            finally:
                forget()  # the transaction is invalid from here on, and its rollback is told to nobody

        event.listen(watched, "commit", before_commit)
        event.listen(watched, "rollback", lambda _connection: forget())
