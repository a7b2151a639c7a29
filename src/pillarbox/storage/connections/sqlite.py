"""The standard library's sqlite3, and aiosqlite over it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

from pillarbox.storage.connections.adapter import SQLITE, Adapter, already_open, not_in_transaction
from pillarbox.storage.statement import Statement

BEGIN = "BEGIN IMMEDIATE"  # a transaction that read first fails when it comes to write and another has committed
CURE = f'Begin one with `conn.execute("{BEGIN}")`.'


def commits_by_itself(conn: Any) -> bool:
    """`autocommit` decides from Python 3.12 on, unless it is left at the older way (a number, not a bool)."""
    mode = getattr(conn, "autocommit", None)
    return bool(mode if isinstance(mode, bool) else conn.isolation_level is None)


def check(conn: Any) -> None:
    if commits_by_itself(conn) and not conn.in_transaction:
        raise not_in_transaction(CURE)


def is_open(conn: Any) -> bool:
    """Whether a transaction is open that is not just the one Python 3.12 always keeps with `autocommit=False`."""
    return bool(conn.in_transaction and getattr(conn, "autocommit", None) is not False)


class SQLite(Adapter):
    def begin(self, conn: sqlite3.Connection) -> sqlite3.Connection:
        check(conn)
        return conn

    def dialect(self, _target: Any) -> str:
        return SQLITE

    def execute(self, target: sqlite3.Connection, statement: Statement) -> Any:
        cursor = sqlite3.Cursor(target)  # not target.cursor(): its rows may be anything
        run = cursor.executemany if statement.many else cursor.execute
        run(statement.sql, statement.parameters)
        return cursor.fetchall() if statement.rows else cursor.rowcount

    def transaction(self, conn: sqlite3.Connection) -> AbstractContextManager[Any]:
        if is_open(conn):
            raise already_open()
        return _immediate(conn)


@contextmanager
def _immediate(conn: sqlite3.Connection) -> Iterator[None]:
    if not conn.in_transaction:
        conn.execute(BEGIN)
    try:
        yield
        conn.commit()
    except BaseException:
        conn.rollback()
        raise


class Aiosqlite(Adapter):
    is_async = True

    def begin(self, conn: Any) -> Any:
        check(conn)
        return conn

    def dialect(self, _target: Any) -> str:
        return SQLITE

    async def execute(self, target: Any, statement: Statement) -> Any:
        cursor = await target.cursor()
        try:
            cursor.row_factory = None
            run = cursor.executemany if statement.many else cursor.execute
            await run(statement.sql, statement.parameters)
            return await cursor.fetchall() if statement.rows else cursor.rowcount
        finally:
            await cursor.close()

    def transaction(self, conn: Any) -> AbstractAsyncContextManager[Any]:
        if is_open(conn):
            raise already_open()
        return _async_immediate(conn)


@asynccontextmanager
async def _async_immediate(conn: Any) -> AsyncIterator[None]:
    if not conn.in_transaction:
        await conn.execute(BEGIN)
    try:
        yield
        await conn.commit()
    except BaseException:
        await conn.rollback()
        raise
