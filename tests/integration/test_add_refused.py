"""An add is refused exactly where its INSERT would commit by itself; each cell of DESIGN 3, both ways."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from django.db import connections, transaction
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from devtools.servers.postgres import SharedPostgres
from pillarbox import AsyncOutbox, NotInTransaction, Outbox, PillarboxError
from tests.integration.callers import ORDER, Loop, django_alias, file_of, with_driver
from tests.integration.logs import ask, installed_postgres, installed_sqlite

FINE, REFUSED = True, False
outbox, async_outbox = Outbox(), AsyncOutbox()


@pytest.fixture(scope="module")
def postgres_log(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return installed_sqlite(Path(tmp_path_factory.mktemp("refused")))


def add(conn: Any) -> None:
    outbox.add(conn, **ORDER)


# ------------------------------------------------------------------ blocking cells


def psycopg_fresh(url: str) -> None:
    with psycopg.connect(url) as conn:
        add(conn)


def psycopg_autocommit(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        add(conn)


def psycopg_autocommit_after_work(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SELECT 1")
        add(conn)


def psycopg_autocommit_in_transaction(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn, conn.transaction():
        add(conn)


def psycopg_autocommit_begun_by_hand(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("BEGIN")
        add(conn)
        conn.execute("COMMIT")


def psycopg_pipeline(url: str) -> None:
    with psycopg.connect(url) as conn, conn.pipeline():
        conn.execute("SELECT 1")
        add(conn)


def psycopg_autocommit_pipeline(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn, conn.pipeline():
        add(conn)


def psycopg_autocommit_pipeline_active(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn, conn.pipeline():
        conn.execute("SELECT 1")
        add(conn)


def psycopg_autocommit_pipeline_in_transaction(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn, conn.pipeline(), conn.transaction():
        conn.execute("SELECT 1")
        add(conn)


@contextmanager
def old_psycopg(url: str, *, autocommit: bool) -> Iterator[Any]:
    conn = psycopg2.connect(url)
    try:
        conn.autocommit = autocommit
        yield conn
        if not autocommit:
            conn.commit()
    finally:
        conn.close()


def psycopg2_fresh(url: str) -> None:
    with old_psycopg(url, autocommit=False) as conn:
        add(conn)


def psycopg2_autocommit(url: str) -> None:
    with old_psycopg(url, autocommit=True) as conn:
        add(conn)


def psycopg2_autocommit_begun_by_hand(url: str) -> None:
    with old_psycopg(url, autocommit=True) as conn, conn.cursor() as cursor:
        cursor.execute("BEGIN")
        add(conn)
        cursor.execute("COMMIT")


def psycopg2_autocommit_in_with(url: str) -> None:
    with old_psycopg(url, autocommit=True) as conn, conn:
        add(conn)


def in_engine(**options: Any) -> Callable[[str], None]:
    driver = options.pop("driver")
    begin = options.pop("begin", False)

    def cell(url: str) -> None:
        engine = sqlalchemy.create_engine(with_driver(url, driver), **options)
        try:
            with engine.connect() as conn:
                if begin:
                    conn.begin()
                add(conn)
                conn.commit()
        finally:
            engine.dispose()

    return cell


def in_session(**options: Any) -> Callable[[str], None]:
    driver = options.pop("driver")

    def cell(url: str) -> None:
        engine = sqlalchemy.create_engine(with_driver(url, driver), **options)
        try:
            with Session(engine) as session, session.begin():
                add(session)
        finally:
            engine.dispose()

    return cell


def session_without_autobegin(url: str) -> None:
    engine = sqlalchemy.create_engine(with_driver(url, "psycopg"))
    try:
        with Session(engine, autobegin=False) as session:
            add(session)
    finally:
        engine.dispose()


def django_plain(url: str) -> None:
    conn = connections[django_alias(url)]
    try:
        add(conn)
    finally:
        conn.close()


def django_atomic(url: str) -> None:
    alias = django_alias(url)
    try:
        with transaction.atomic(using=alias):
            add(connections[alias])
    finally:
        connections[alias].close()


def django_managed_by_hand(url: str) -> None:
    conn = connections[django_alias(url)]
    try:
        conn.set_autocommit(False)
        add(conn)
        conn.commit()
    finally:
        conn.close()


@contextmanager
def opened(url: str, **options: Any) -> Iterator[sqlite3.Connection]:
    conn = sqlite3.connect(file_of(url), **options)
    try:
        yield conn
        conn.commit()
    finally:
        conn.close()


def sqlite3_fresh(url: str) -> None:
    with opened(url) as conn:
        add(conn)


def sqlite3_no_isolation(url: str) -> None:
    with opened(url, isolation_level=None) as conn:
        add(conn)


def sqlite3_no_isolation_begun_by_hand(url: str) -> None:
    with opened(url, isolation_level=None) as conn:
        conn.execute("BEGIN IMMEDIATE")
        add(conn)


def sqlite3_autocommit(url: str) -> None:
    with opened(url, autocommit=True) as conn:
        add(conn)


def sqlite3_autocommit_begun_by_hand(url: str) -> None:
    with opened(url, autocommit=True) as conn:
        conn.execute("BEGIN IMMEDIATE")
        add(conn)
        conn.execute("COMMIT")


def sqlite3_no_autocommit(url: str) -> None:
    with opened(url, autocommit=False) as conn:
        add(conn)


def pysqlite_with_begin_listener(url: str) -> None:
    """SQLAlchemy's own recipe for transactions that SQLite really begins."""
    engine = sqlalchemy.create_engine(url)
    event.listen(engine, "connect", lambda raw, _record: setattr(raw, "isolation_level", None))
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    try:
        with engine.connect() as conn:
            add(conn)
            conn.commit()
    finally:
        engine.dispose()


# ------------------------------------------------------------------ async cells


def awaited(work: Callable[[Loop, str], None]) -> Callable[[str], None]:
    def cell(url: str) -> None:
        with Loop() as loop:
            work(loop, url)

    return cell


@awaited
def asyncpg_plain(loop: Loop, url: str) -> None:
    conn = loop.wait(asyncpg.connect(url))
    loop.callback(lambda: loop.wait(conn.close()))
    loop.wait(async_outbox.add(conn, **ORDER))


@awaited
def asyncpg_in_transaction(loop: Loop, url: str) -> None:
    async def go() -> None:
        async with conn.transaction():
            await async_outbox.add(conn, **ORDER)

    conn = loop.wait(asyncpg.connect(url))
    loop.callback(lambda: loop.wait(conn.close()))
    loop.wait(go())


def async_psycopg(*, autocommit: bool, begin: bool = False) -> Callable[[str], None]:
    @awaited
    def cell(loop: Loop, url: str) -> None:
        async def go() -> None:
            async with await psycopg.AsyncConnection.connect(url, autocommit=autocommit) as conn:
                if begin:
                    async with conn.transaction():
                        await async_outbox.add(conn, **ORDER)
                else:
                    await async_outbox.add(conn, **ORDER)

        loop.wait(go())

    return cell


def in_async_engine(*, session: bool = False, **options: Any) -> Callable[[str], None]:
    driver = options.pop("driver")

    @awaited
    def cell(loop: Loop, url: str) -> None:
        async def go() -> None:
            engine = create_async_engine(with_driver(url, driver), **options)
            try:
                async with AsyncSession(engine) if session else engine.connect() as conn:
                    await async_outbox.add(conn, **ORDER)
                    await conn.commit()
            finally:
                await engine.dispose()

        loop.wait(go())

    return cell


def in_aiosqlite(*, begin: bool = False, **options: Any) -> Callable[[str], None]:
    @awaited
    def cell(loop: Loop, url: str) -> None:
        async def go() -> None:
            async with aiosqlite.connect(file_of(url), **options) as conn:
                if begin:
                    await conn.execute("BEGIN IMMEDIATE")
                await async_outbox.add(conn, **ORDER)
                await conn.commit()

        loop.wait(go())

    return cell


AUTO = {"isolation_level": "AUTOCOMMIT"}
POSTGRES_CELLS: dict[str, tuple[Callable[[str], None], bool]] = {
    "psycopg fresh": (psycopg_fresh, FINE),
    "psycopg autocommit": (psycopg_autocommit, REFUSED),
    "psycopg autocommit, after work": (psycopg_autocommit_after_work, REFUSED),
    "psycopg autocommit, in transaction()": (psycopg_autocommit_in_transaction, FINE),
    "psycopg autocommit, BEGIN by hand": (psycopg_autocommit_begun_by_hand, FINE),
    "psycopg pipeline": (psycopg_pipeline, FINE),
    "psycopg autocommit, pipeline": (psycopg_autocommit_pipeline, REFUSED),
    "psycopg autocommit, active pipeline": (psycopg_autocommit_pipeline_active, REFUSED),
    "psycopg autocommit, pipeline in transaction()": (psycopg_autocommit_pipeline_in_transaction, FINE),
    "psycopg async fresh": (async_psycopg(autocommit=False), FINE),
    "psycopg async autocommit": (async_psycopg(autocommit=True), REFUSED),
    "psycopg async autocommit, in transaction()": (async_psycopg(autocommit=True, begin=True), FINE),
    "psycopg2 fresh": (psycopg2_fresh, FINE),
    "psycopg2 autocommit": (psycopg2_autocommit, REFUSED),
    "psycopg2 autocommit, BEGIN by hand": (psycopg2_autocommit_begun_by_hand, FINE),
    "psycopg2 autocommit, with conn": (psycopg2_autocommit_in_with, FINE),
    "asyncpg": (asyncpg_plain, REFUSED),
    "asyncpg in transaction()": (asyncpg_in_transaction, FINE),
    "django": (django_plain, REFUSED),
    "django in atomic()": (django_atomic, FINE),
    "django, transactions by hand": (django_managed_by_hand, FINE),
    "session without autobegin": (session_without_autobegin, REFUSED),
    **{
        f"{what} over {driver}{', AUTOCOMMIT' * bool(options)}": (make(driver=driver, **options), not options)
        for what, make in {"connection": in_engine, "session": in_session}.items()
        for driver in ("psycopg", "psycopg2")
        for options in ({}, AUTO)
    },
    "connection over psycopg, AUTOCOMMIT, begin()": (in_engine(driver="psycopg", begin=True, **AUTO), REFUSED),
    "connection over psycopg2, AUTOCOMMIT, begin()": (in_engine(driver="psycopg2", begin=True, **AUTO), REFUSED),
    **{
        f"async {'session' if session else 'connection'} over {driver}{', AUTOCOMMIT' * bool(options)}": (
            in_async_engine(session=session, driver=driver, **options),
            not options,
        )
        for session in (False, True)
        for driver in ("psycopg", "asyncpg")
        for options in ({}, AUTO)
    },
}
SQLITE_CELLS: dict[str, tuple[Callable[[str], None], bool]] = {
    "sqlite3 fresh": (sqlite3_fresh, FINE),
    "sqlite3 isolation_level=None": (sqlite3_no_isolation, REFUSED),
    "sqlite3 isolation_level=None, BEGIN by hand": (sqlite3_no_isolation_begun_by_hand, FINE),
    "aiosqlite fresh": (in_aiosqlite(), FINE),
    "aiosqlite isolation_level=None": (in_aiosqlite(isolation_level=None), REFUSED),
    "aiosqlite isolation_level=None, BEGIN by hand": (in_aiosqlite(isolation_level=None, begin=True), FINE),
    "connection over pysqlite": (in_engine(driver="pysqlite"), FINE),
    "connection over pysqlite, AUTOCOMMIT": (in_engine(driver="pysqlite", **AUTO), REFUSED),
    "connection over pysqlite, BEGIN by a listener": (pysqlite_with_begin_listener, FINE),
    "session over pysqlite": (in_session(driver="pysqlite"), FINE),
    "async connection over aiosqlite": (in_async_engine(driver="aiosqlite"), FINE),
    "async connection over aiosqlite, AUTOCOMMIT": (in_async_engine(driver="aiosqlite", **AUTO), REFUSED),
    "async session over aiosqlite": (in_async_engine(driver="aiosqlite", session=True), FINE),
    "django sqlite": (django_plain, REFUSED),
    "django sqlite in atomic()": (django_atomic, FINE),
}
if sys.version_info >= (3, 12):
    SQLITE_CELLS |= {
        "sqlite3 autocommit=True": (sqlite3_autocommit, REFUSED),
        "sqlite3 autocommit=True, BEGIN by hand": (sqlite3_autocommit_begun_by_hand, FINE),
        "sqlite3 autocommit=False": (sqlite3_no_autocommit, FINE),
    }


@pytest.mark.parametrize("cell", [*POSTGRES_CELLS, *SQLITE_CELLS])
def test_what_would_commit_by_itself_is_refused(cell: str, request: pytest.FixtureRequest) -> None:
    """Refused before anything is in the log where the INSERT would commit alone; added everywhere else."""
    run, fine = {**POSTGRES_CELLS, **SQLITE_CELLS}[cell]
    url = request.getfixturevalue("postgres_log" if cell in POSTGRES_CELLS else "sqlite_log")
    before = ask(url, "SELECT count(*) FROM pillarbox.message")[0][0]
    raised: PillarboxError | None = None
    try:
        run(url)
    except NotInTransaction as error:
        raised = error
    assert (raised is None) is fine
    assert raised is None or raised.hint
    assert ask(url, "SELECT count(*) FROM pillarbox.message")[0][0] == before + fine
