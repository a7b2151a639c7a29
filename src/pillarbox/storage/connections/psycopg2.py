"""psycopg2."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from psycopg2 import extensions

from pillarbox.errors import UnsupportedConnection
from pillarbox.storage.connections.adapter import (
    Adapter,
    already_open,
    as_format,
    not_in_transaction,
    transaction_failed,
)
from pillarbox.storage.statement import Statement

IDLE, FAILED = extensions.TRANSACTION_STATUS_IDLE, extensions.TRANSACTION_STATUS_INERROR
CURE = "Set `conn.autocommit = False`, or wrap the work in `with conn:`."


def check(conn: Any) -> None:
    status = conn.get_transaction_status()
    if status == FAILED:
        raise transaction_failed()
    if conn.autocommit and status == IDLE and not conn.closed and not _opens_transaction(conn):
        raise not_in_transaction(CURE)


def _opens_transaction(conn: Any) -> bool:
    """Inside `with conn:` an autocommit connection begins a transaction with its next statement, and shows it only
    then. An empty statement tells; it harms nothing outside, and is met in this corner only."""
    cursor = conn.cursor(cursor_factory=extensions.cursor)
    cursor.execute("SELECT")
    return bool(conn.get_transaction_status() != IDLE)


class Psycopg2(Adapter):
    def begin(self, conn: Any) -> Any:
        if conn.async_:
            raise UnsupportedConnection("A psycopg2 connection in asynchronous mode has no transactions.")
        check(conn)
        return conn

    def execute(self, target: Any, statement: Statement) -> Any:
        with target.cursor(cursor_factory=extensions.cursor) as cursor:
            cursor.execute(as_format(statement.sql), statement.parameters or None)
            return cursor.fetchall() if statement.rows else cursor.rowcount

    def transaction(self, conn: Any) -> AbstractContextManager[Any]:
        if conn.get_transaction_status() != IDLE:
            raise already_open()
        return conn  # type: ignore[no-any-return]  # `with conn:` begins, commits and rolls back, and closes nothing
