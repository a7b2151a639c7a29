"""Django's connection, inside `atomic()`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from django.db import transaction

from pillarbox.errors import UnsupportedConnection
from pillarbox.storage.connections.adapter import (
    POSTGRES,
    SQLITE,
    Adapter,
    as_format,
    not_in_transaction,
    transaction_failed,
)
from pillarbox.storage.statement import Statement

CURE = "Wrap the work in `with transaction.atomic():`."


class Django(Adapter):
    def begin(self, conn: Any) -> Any:
        if getattr(conn, "vendor", None) not in (POSTGRES, SQLITE):
            raise UnsupportedConnection(
                f"Django's {getattr(conn, 'vendor', 'cache')!r} connection is no database Pillarbox knows.",
                "It knows PostgreSQL and SQLite.",
            )
        if conn.needs_rollback:
            raise transaction_failed()
        if not conn.in_atomic_block and conn.get_autocommit():
            raise not_in_transaction(CURE)
        return conn

    def dialect(self, target: Any) -> str:
        return str(target.vendor)

    def execute(self, target: Any, statement: Statement) -> Any:
        with target.cursor() as cursor:
            run = cursor.executemany if statement.many else cursor.execute
            run(as_format(statement.sql), statement.parameters or None)
            return cursor.fetchall() if statement.rows else cursor.rowcount

    def transaction(self, conn: Any) -> AbstractContextManager[Any]:
        # Nesting is the way of Django: the outermost block commits.
        return transaction.atomic(using=conn.alias)  # type: ignore[no-any-return]
