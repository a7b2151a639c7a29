"""asyncpg, from a pool or not."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from pillarbox.storage.connections.adapter import Adapter, already_open, not_in_transaction
from pillarbox.storage.statement import Statement

CURE = "Wrap the work in `async with conn.transaction():`."


class Asyncpg(Adapter):
    is_async = True

    def begin(self, conn: Any) -> Any:
        if not conn.is_in_transaction():
            raise not_in_transaction(CURE)
        return conn

    async def execute(self, target: Any, statement: Statement) -> Any:
        if statement.rows:
            return await target.fetch(statement.sql, *statement.parameters)
        told = await target.execute(statement.sql, *statement.parameters)
        last = told.rpartition(" ")[2]
        return int(last) if last.isdigit() else -1

    def transaction(self, conn: Any) -> AbstractAsyncContextManager[Any]:
        if conn.is_in_transaction():
            raise already_open()
        return conn.transaction()  # type: ignore[no-any-return]
