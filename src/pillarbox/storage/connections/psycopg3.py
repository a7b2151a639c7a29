"""psycopg 3, blocking and async."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, cast

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from pillarbox.storage.connections.adapter import (
    Adapter,
    already_open,
    as_psycopg,
    not_in_transaction,
    transaction_failed,
)
from pillarbox.storage.statement import Statement

IDLE, ACTIVE, FAILED = TransactionStatus.IDLE, TransactionStatus.ACTIVE, TransactionStatus.INERROR
CURE = "Wrap the work in `with conn.transaction():`."


def check(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """ACTIVE is a pipeline: with autocommit its next `sync()` would commit the message, unless a `transaction()` is
    around it, which no status shows then."""
    status = conn.pgconn.transaction_status
    if status == FAILED:
        raise transaction_failed()
    inside = status == ACTIVE and getattr(conn, "_num_transactions", 0) > 0
    if conn.autocommit and status in (IDLE, ACTIVE) and not inside:
        raise not_in_transaction(CURE)


class Psycopg(Adapter):
    def begin(self, conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
        check(conn)
        return conn

    def execute(self, target: psycopg.Connection[Any], statement: Statement) -> Any:
        # A cursor of our own: the connection's factory may be a server-side one, its rows anything.
        cursor = psycopg.Cursor(target, row_factory=tuple_row)
        cursor.execute(cast("Any", as_psycopg(statement.sql)), statement.parameters or None)
        return cursor.fetchall() if statement.rows else cursor.rowcount

    def transaction(self, conn: psycopg.Connection[Any]) -> AbstractContextManager[Any]:
        if conn.pgconn.transaction_status != IDLE:
            raise already_open()
        return conn.transaction()


class AsyncPsycopg(Adapter):
    is_async = True

    def begin(self, conn: psycopg.AsyncConnection[Any]) -> psycopg.AsyncConnection[Any]:
        check(conn)
        return conn

    async def execute(self, target: psycopg.AsyncConnection[Any], statement: Statement) -> Any:
        cursor = psycopg.AsyncCursor(target, row_factory=tuple_row)
        await cursor.execute(cast("Any", as_psycopg(statement.sql)), statement.parameters or None)
        return await cursor.fetchall() if statement.rows else cursor.rowcount

    def transaction(self, conn: psycopg.AsyncConnection[Any]) -> AbstractAsyncContextManager[Any]:
        if conn.pgconn.transaction_status != IDLE:
            raise already_open()
        return conn.transaction()
