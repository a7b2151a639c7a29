"""What an adapter knows of one kind of connection, and the two loops that drive a flow through it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

from pillarbox.errors import ConnectionRefused, NotInTransaction, PillarboxError, TransactionFailed
from pillarbox.storage.connections.dialects import Dialect, dialect
from pillarbox.storage.connections.failure import typed
from pillarbox.storage.statement import Flow, Statement

T = TypeVar("T")
POSTGRES = "postgresql"
SQLITE = "sqlite"
_PLACEHOLDER = re.compile(r"\$\d+|\?")
_BINARY = re.compile(r"\$\d+(?=::(?:bytea|\w+\[\]))")


class Adapter:
    """One kind of connection. Stateless: one instance serves all connections of its kind."""

    is_async = False

    def flush(self, conn: Any) -> Any:
        """The connection behind a session, after the session's own rows: their errors are not ours."""
        return conn

    def begin(self, conn: Any) -> Any:
        """What statements are to be run on, once it is sure that an INSERT there would not commit by itself."""
        raise NotImplementedError

    def dialect(self, _target: Any) -> str:
        return POSTGRES

    def execute(self, target: Any, statement: Statement) -> Any:
        """The rows, or how many were written; of an async connection an awaitable of them."""
        raise NotImplementedError

    def transaction(self, conn: Any) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        """Opens a transaction and commits it, or rolls it back when an exception passes."""
        raise NotImplementedError

    async def adrive(self, conn: Any, schema: str, make: Callable[[Dialect], Flow[T]]) -> T:
        target = _begin(self, self.flush(conn), schema)
        flow = make(dialect(self.dialect(target), schema))
        try:
            statement = next(flow)
            while True:
                statement = flow.send(await self._areply(target, statement, schema))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def _areply(self, target: Any, statement: Statement, schema: str) -> Any:
        reply: Awaitable[Any] = self.execute(target, statement)
        try:
            return await reply
        except Exception as error:
            raise typed(error, schema) from error

    def watched(self, _conn: Any) -> Any | None:
        """What can be told of its commit before it happens, or None."""
        return None

    def watch(self, watched: Any, refuse: Callable[[], None], forget: Callable[[], None]) -> None:
        """Call `refuse` before this commits, and `forget` when it has rolled back."""


def drive(adapter: Adapter, conn: Any, schema: str, make: Callable[[Dialect], Flow[T]]) -> T:
    """Run a flow on a blocking connection."""
    target = _begin(adapter, adapter.flush(conn), schema)
    flow = make(dialect(adapter.dialect(target), schema))
    try:
        statement = next(flow)
        while True:
            try:
                reply = adapter.execute(target, statement)
            except Exception as error:
                raise typed(error, schema) from error
            statement = flow.send(reply)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _begin(adapter: Adapter, conn: Any, schema: str) -> Any:
    try:
        return adapter.begin(conn)
    except PillarboxError:
        raise
    except Exception as error:  # a connection that is closed, or back in its pool
        raise typed(error, schema) from error


@lru_cache(256)
def as_psycopg(sql: str) -> str:
    """With `%b` for bytes and arrays: their text form takes twice the time, and bytes as text arrive escaped twice
    where `standard_conforming_strings` is off."""
    return as_format(_BINARY.sub("%b", sql)).replace("%%b", "%b")


@lru_cache(256)
def as_format(sql: str) -> str:
    """With `%s` for each parameter; ours are numbered in their order, and each is used once."""
    return _PLACEHOLDER.sub("%s", sql.replace("%", "%%"))


def not_in_transaction(cure: str) -> NotInTransaction:
    return NotInTransaction(
        "The connection is in autocommit mode and no transaction is open: the message would commit by itself.", cure
    )


def transaction_failed() -> TransactionFailed:
    return TransactionFailed(
        "A statement before this one has failed, so the transaction can only be rolled back.",
        "Look for the first error; roll back and run the transaction again.",
    )


def already_open() -> ConnectionRefused:
    return ConnectionRefused(
        "A transaction is open on this connection already, and this call would commit what is not its own.",
        "Commit or roll back first, or call add() in the open transaction.",
    )
