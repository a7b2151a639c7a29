"""A caller on every kind of connection we know, all with the same few blocking words."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import aiosqlite
import asyncpg
import django
import django.conf
import psycopg
import psycopg2
import sqlalchemy
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pillarbox import AsyncOutbox, Message, Outbox
from pillarbox.testing import async_messages, messages

ORDER = {"aggregate": "order", "type": "order.created", "payload": {"total": 42}}


@dataclass
class Caller:
    """What a service does with its connection."""

    conn: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    outbox: Any = field(default_factory=Outbox)
    wait: Callable[[Any], Any] = lambda value: value
    idle: Callable[[], Any] = lambda: None  # have no transaction open

    @property
    def is_async(self) -> bool:
        return isinstance(self.outbox, AsyncOutbox)

    def add(self, **fields: Any) -> UUID:
        return self.wait(self.outbox.add(self.conn, **{**ORDER, **fields}))

    def add_many(self, given: Any) -> list[UUID]:
        return self.wait(self.outbox.add_many(self.conn, given))

    def delayed(self) -> list[Message]:
        return self.wait(self.outbox.delayed(self.conn))

    def cancel(self, ident: UUID) -> bool:
        return self.wait(self.outbox.cancel(self.conn, ident))

    def messages(self) -> list[Message]:
        return self.wait((async_messages if self.is_async else messages)(self.conn))

    def with_transaction(self, operation: Callable[..., Any]) -> Any:
        """`operation` is blocking; async connections get it as a coroutine function."""

        async def run(conn: Any, events: Any) -> Any:
            return operation(conn, events)

        return self.wait(self.outbox.with_transaction(self.conn, run if self.is_async else operation))


class Loop(ExitStack):
    """An event loop that a test talks to from outside."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = self.enter_context(asyncio.Runner())

    def wait(self, work: Awaitable[Any]) -> Any:
        async def go() -> Any:
            return await work

        return self._runner.run(go())

    def enter_async(self, context: Any) -> Any:
        value = self.wait(context.__aenter__())
        self.push(lambda *error: self.wait(context.__aexit__(None, None, None)))
        return value

    def caller(self, conn: Any, execute: Any, commit: Any, rollback: Any, idle: Any = None) -> Caller:
        return Caller(
            conn,
            lambda text: self.wait(execute(text)),
            lambda: self.wait(commit()),
            lambda: self.wait(rollback()),
            AsyncOutbox(),
            self.wait,
            lambda: self.wait((idle or rollback)()),
        )


def with_driver(url: str, driver: str) -> str:
    if url.startswith("sqlite:"):
        return url.replace("sqlite:", f"sqlite+{driver}:") + "?timeout=0"  # a lock is met at once
    return url.replace("postgresql://", f"postgresql+{driver}://")


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


@contextmanager
def by_psycopg(url: str) -> Iterator[Caller]:
    with psycopg.connect(url) as conn:
        yield Caller(conn, conn.execute, conn.commit, conn.rollback)


@contextmanager
def by_psycopg2(url: str) -> Iterator[Caller]:
    conn = psycopg2.connect(url)
    try:
        yield Caller(conn, lambda text: conn.cursor().execute(text), conn.commit, conn.rollback)
    finally:
        conn.close()


@contextmanager
def by_sqlite3(url: str) -> Iterator[Caller]:
    conn = sqlite3.connect(file_of(url), timeout=0)
    try:
        yield Caller(conn, conn.execute, conn.commit, conn.rollback)
    finally:
        conn.close()


def by_sqlalchemy(driver: str) -> Callable[[str], Any]:
    @contextmanager
    def open_it(url: str) -> Iterator[Caller]:
        engine = sqlalchemy.create_engine(with_driver(url, driver))
        try:
            with engine.connect() as conn:
                yield Caller(conn, lambda text: conn.execute(sqlalchemy.text(text)), conn.commit, conn.rollback)
        finally:
            engine.dispose()

    return open_it


def by_session(driver: str) -> Callable[[str], Any]:
    @contextmanager
    def open_it(url: str) -> Iterator[Caller]:
        engine = sqlalchemy.create_engine(with_driver(url, driver))
        try:
            with Session(engine) as conn:
                yield Caller(conn, lambda text: conn.execute(sqlalchemy.text(text)), conn.commit, conn.rollback)
        finally:
            engine.dispose()

    return open_it


@contextmanager
def by_async_psycopg(url: str) -> Iterator[Caller]:
    with Loop() as loop:
        conn = loop.wait(psycopg.AsyncConnection.connect(url))
        loop.callback(lambda: loop.wait(conn.close()))
        yield loop.caller(conn, conn.execute, conn.commit, conn.rollback)


class AsyncpgTransaction:
    """asyncpg commits transactions, not connections: always have one open."""

    def __init__(self, loop: Loop, conn: Any) -> None:
        self._conn = conn
        self._open: Any = None
        loop.wait(self.begin())

    async def begin(self) -> None:
        self._open = self._conn.transaction()
        await self._open.start()

    async def commit(self) -> None:
        await self._open.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self._open.rollback()
        await self.begin()

    async def idle(self) -> None:
        await self._open.rollback()


@contextmanager
def by_asyncpg(url: str) -> Iterator[Caller]:
    with Loop() as loop:
        conn = loop.wait(asyncpg.connect(url))
        loop.callback(lambda: loop.wait(conn.close()))
        open_one = AsyncpgTransaction(loop, conn)
        yield loop.caller(conn, conn.execute, open_one.commit, open_one.rollback, open_one.idle)


@contextmanager
def by_asyncpg_pool(url: str) -> Iterator[Caller]:
    with Loop() as loop:
        pool = loop.enter_async(asyncpg.create_pool(url, min_size=1, max_size=1))
        conn = loop.enter_async(pool.acquire())
        open_one = AsyncpgTransaction(loop, conn)
        yield loop.caller(conn, conn.execute, open_one.commit, open_one.rollback, open_one.idle)


@contextmanager
def by_aiosqlite(url: str) -> Iterator[Caller]:
    with Loop() as loop:
        conn = loop.enter_async(aiosqlite.connect(file_of(url), timeout=0))
        yield loop.caller(conn, conn.execute, conn.commit, conn.rollback)


def by_async_sqlalchemy(driver: str, *, session: bool = False) -> Callable[[str], Any]:
    @contextmanager
    def open_it(url: str) -> Iterator[Caller]:
        with Loop() as loop:
            engine = create_async_engine(with_driver(url, driver))
            loop.callback(lambda: loop.wait(engine.dispose()))
            conn = loop.enter_async(AsyncSession(engine) if session else engine.connect())
            yield loop.caller(conn, lambda text: conn.execute(sqlalchemy.text(text)), conn.commit, conn.rollback)

    return open_it


def django_alias(url: str) -> str:
    """A Django database for this URL, beside those of other tests."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    parts = sqlalchemy.engine.make_url(url)
    kind = "sqlite3" if parts.drivername == "sqlite" else "postgresql"
    server = {"USER": parts.username, "PASSWORD": parts.password, "HOST": parts.host, "PORT": parts.port}
    more: dict[str, Any] = server if parts.host else {"OPTIONS": {"timeout": 0}}
    made = {"ENGINE": f"django.db.backends.{kind}", "NAME": parts.database, **more}
    alias = f"db{len(connections.settings)}"
    connections.settings.update(connections.configure_settings({"default": {}, alias: made}))
    return alias


@contextmanager
def by_django(url: str) -> Iterator[Caller]:
    alias = django_alias(url)
    conn = connections[alias]
    blocks = [transaction.atomic(using=alias)]
    blocks[0].__enter__()

    def end(*, commit: bool) -> None:
        transaction.set_rollback(not commit or conn.needs_rollback, using=alias)
        blocks.pop().__exit__(None, None, None)
        blocks.append(transaction.atomic(using=alias))
        blocks[0].__enter__()

    def execute(text: str) -> None:
        with conn.cursor() as cursor:
            cursor.execute(text)

    try:
        yield Caller(conn, execute, lambda: end(commit=True), lambda: end(commit=False))
    finally:
        end(commit=False)
        blocks.pop().__exit__(None, None, None)
        conn.close()


POSTGRES: dict[str, Callable[[str], Any]] = {
    "psycopg": by_psycopg,
    "psycopg-async": by_async_psycopg,
    "psycopg2": by_psycopg2,
    "asyncpg": by_asyncpg,
    "asyncpg-pool": by_asyncpg_pool,
    "connection-psycopg": by_sqlalchemy("psycopg"),
    "connection-psycopg2": by_sqlalchemy("psycopg2"),
    "session-psycopg": by_session("psycopg"),
    "session-psycopg2": by_session("psycopg2"),
    "async-connection-psycopg": by_async_sqlalchemy("psycopg"),
    "async-connection-asyncpg": by_async_sqlalchemy("asyncpg"),
    "async-session-psycopg": by_async_sqlalchemy("psycopg", session=True),
    "async-session-asyncpg": by_async_sqlalchemy("asyncpg", session=True),
    "django-postgresql": by_django,
}
SQLITE: dict[str, Callable[[str], Any]] = {
    "sqlite3": by_sqlite3,
    "aiosqlite": by_aiosqlite,
    "connection-pysqlite": by_sqlalchemy("pysqlite"),
    "session-pysqlite": by_session("pysqlite"),
    "async-connection-aiosqlite": by_async_sqlalchemy("aiosqlite"),
    "async-session-aiosqlite": by_async_sqlalchemy("aiosqlite", session=True),
    "django-sqlite": by_django,
}
