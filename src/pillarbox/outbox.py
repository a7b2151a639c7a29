"""Add messages in the caller's own transaction, on the caller's own connection."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Required, TypedDict, TypeVar, Unpack
from uuid import UUID
from weakref import WeakKeyDictionary

from pillarbox.errors import ConfigError, InvalidMessage, NotAwaited, PillarboxError
from pillarbox.message import Key, Message, NoKey, OnDuplicate
from pillarbox.prepare import MAX_MESSAGE, Prepared, from_message, prepare
from pillarbox.storage.connections import Dialect, Flow, adapter_of, check_schema, drive

C = TypeVar("C")
T = TypeVar("T")
log = logging.getLogger("pillarbox.outbox")


class Fields(TypedDict, total=False):
    """What `add` takes beside the connection."""

    aggregate: Required[str]  # what kind of thing changed
    type: Required[str]  # what happened to it
    payload: Required[object]  # bytes and str as they are; everything else becomes JSON
    key: Key | NoKey  # which thing; messages with one key stay in order. Left out: no order
    version: int | None  # of the event's schema
    sequence: int | None  # a number per key, for consumers that reorder
    topic: str | None  # instead of the route's
    headers: Mapping[str, str] | None
    content_type: str | None
    id: UUID | None  # else a new UUIDv7; given a second time it adds nothing
    unique_key: str | None  # given a second time it adds nothing, and the first message's id is returned
    on_duplicate: OnDuplicate  # "raise": DuplicateMessage instead
    deliver_at: datetime | None  # not before


class Events:
    """Collects what an operation wants to tell; checked at once, added when the operation is done."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.collected: list[Prepared] = []

    def add(self, **fields: Unpack[Fields]) -> None:
        self.collected.append(prepare(**fields, limit=self._limit))


class _Settings:
    """What both kinds of outbox are made of."""

    def __init__(self, *, schema: str = "pillarbox", max_message: int = MAX_MESSAGE) -> None:
        check_schema(schema)
        if not isinstance(max_message, int) or isinstance(max_message, bool) or max_message < 1:
            raise ConfigError("`max_message` must be a number of bytes, at least 1.")
        self._schema = schema
        self._limit = max_message

    def _prepare_all(self, messages: Iterable[Message | Mapping[str, Any]]) -> list[Prepared]:
        if isinstance(messages, (Mapping, str, bytes, Message)) or not isinstance(messages, Iterable):
            raise InvalidMessage(
                f"`messages` must be several Message objects or mappings, not a {type(messages).__name__}.",
                "Put a single one into a list.",
            )
        return [from_message(message, self._limit) for message in messages]


class Outbox(_Settings):
    """For blocking connections. One a process is enough; any thread may use it, each on its own connection."""

    def add(self, conn: Any, **fields: Unpack[Fields]) -> UUID:
        """Record a message with the caller's transaction; its id. Raises `PillarboxError` only, before the database
        has seen anything where the message or the connection is at fault."""
        prepared = prepare(**fields, limit=self._limit)
        return self._run(conn, lambda dialect: dialect.add((prepared,)))[0]

    def add_many(self, conn: Any, messages: Iterable[Message | Mapping[str, Any]]) -> list[UUID]:
        """Record them in this order with one statement; their ids. All are checked before the first is added."""
        prepared = self._prepare_all(messages)
        return self._run(conn, lambda dialect: dialect.add(prepared))

    def with_transaction(self, conn: C, operation: Callable[[C, Events], T]) -> T:
        """Open a transaction, run `operation(conn, events)`, add its events, commit; what the operation returned.
        An exception rolls all of it back."""
        events = Events(self._limit)
        with adapter_of(conn, is_async=False).transaction(conn):  # type: ignore[union-attr]
            result = operation(conn, events)
            self._run(conn, lambda dialect: dialect.add(events.collected))
        return result

    def delayed(self, conn: Any, *, limit: int = 100) -> list[Message]:
        """The messages that wait for their `deliver_at`, the next one first."""
        return self._run(conn, lambda dialect: dialect.delayed(limit))

    def cancel(self, conn: Any, id: UUID) -> bool:
        """Take back a delayed message; False if there is none, or it is in the log already."""
        return self._run(conn, lambda dialect: dialect.cancel(id))

    def _run(self, conn: Any, make: Callable[[Dialect], Flow[T]]) -> T:
        return drive(adapter_of(conn, is_async=False), conn, self._schema, make)


class AsyncOutbox(_Settings):
    """For async connections. Messages are checked at the call; the awaitable it returns adds them."""

    def add(self, conn: Any, **fields: Unpack[Fields]) -> Awaitable[UUID]:
        """As `Outbox.add`. Without `await` nothing is added: that is logged, and fails a SQLAlchemy commit."""
        prepared = prepare(**fields, limit=self._limit)

        async def run() -> UUID:
            return (await self._run(conn, lambda dialect: dialect.add((prepared,))))[0]

        return _Pending(run, _ledger(conn))

    def add_many(self, conn: Any, messages: Iterable[Message | Mapping[str, Any]]) -> Awaitable[list[UUID]]:
        """As `Outbox.add_many`. Without `await` nothing is added."""
        prepared = self._prepare_all(messages)
        return _Pending(lambda: self._run(conn, lambda dialect: dialect.add(prepared)), _ledger(conn))

    async def with_transaction(self, conn: C, operation: Callable[[C, Events], Awaitable[T]]) -> T:
        """As `Outbox.with_transaction`, with an async operation."""
        events = Events(self._limit)
        async with adapter_of(conn, is_async=True).transaction(conn):  # type: ignore[union-attr]
            result = await operation(conn, events)
            await self._run(conn, lambda dialect: dialect.add(events.collected))
        return result

    async def delayed(self, conn: Any, *, limit: int = 100) -> list[Message]:
        """As `Outbox.delayed`."""
        return await self._run(conn, lambda dialect: dialect.delayed(limit))

    async def cancel(self, conn: Any, id: UUID) -> bool:
        """As `Outbox.cancel`."""
        return await self._run(conn, lambda dialect: dialect.cancel(id))

    def _run(self, conn: Any, make: Callable[[Dialect], Flow[T]]) -> Coroutine[Any, Any, T]:
        return adapter_of(conn, is_async=True).adrive(conn, self._schema, make)


class _Ledger:
    """What was asked for on one SQLAlchemy connection or session and not awaited yet."""

    def __init__(self) -> None:
        self.open: dict[object, str] = {}

    def refuse(self) -> None:
        if self.open:
            places = ", ".join(self.open.values())
            raise NotAwaited(
                f"The message of {places} was never awaited, so it is not in this transaction.",
                "Write `await outbox.add(…)`. Roll back; nothing was committed.",
            )


_ledgers: WeakKeyDictionary[Any, _Ledger] = WeakKeyDictionary()


def _ledger(conn: Any) -> _Ledger | None:
    """The ledger of a connection whose commit can be stopped; also the check that this is a connection at all."""
    adapter = adapter_of(conn, is_async=True)
    watched = adapter.watched(conn)
    if watched is None:
        return None
    found = _ledgers.get(watched)
    if found is None:
        found = _ledgers[watched] = _Ledger()
        adapter.watch(watched, found.refuse, found.open.clear)
    return found


class _Pending(Awaitable[T], Generic[T]):
    """An add that waits for its `await`, and complains when it is dropped."""

    __slots__ = ("_ledger", "_run", "_token", "_where")

    def __init__(self, run: Callable[[], Coroutine[Any, Any, T]], ledger: _Ledger | None) -> None:
        caller = sys._getframe(2)  # noqa: SLF001 - the documented way is forty times slower
        self._where = (caller.f_code.co_filename, caller.f_lineno)
        self._run: Callable[[], Coroutine[Any, Any, T]] | None = run
        self._ledger = ledger
        self._token = object()
        if ledger is not None:
            ledger.open[self._token] = "{}:{}".format(*self._where)

    def __await__(self) -> Generator[Any, None, T]:
        run, self._run = self._run, None
        if run is None:
            raise PillarboxError("This add was awaited before.", "Call add again for another message.")
        if self._ledger is not None:
            self._ledger.open.pop(self._token, None)
        return run().__await__()

    def __del__(self) -> None:
        if getattr(self, "_run", None) is not None:
            log.error("%s:%d: an add was never awaited, so its message was not recorded", *self._where)
