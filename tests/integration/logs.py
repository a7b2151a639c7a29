"""Installed databases for a whole module, and what lies in their logs, read past the library."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

import pillarbox
from devtools.servers.postgres import SharedPostgres, drop_database

PG_COLUMNS = "message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers::text"
COLUMNS = PG_COLUMNS.replace("::text", "")


def installed_postgres(postgres: SharedPostgres) -> Iterator[str]:
    url = postgres.fresh_database()
    with psycopg.connect(url) as conn:
        pillarbox.migrate(conn)
        conn.execute("CREATE TABLE business (id text PRIMARY KEY)")
    yield url
    drop_database(postgres.url, url)


def installed_sqlite(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "shop.db")) as conn:
        pillarbox.migrate(conn)
        conn.execute("CREATE TABLE business (id text PRIMARY KEY)")
        conn.commit()
    return f"sqlite:///{folder / 'shop.db'}"


def ask(url: str, text: str) -> list[tuple[Any, ...]]:
    """Rows as another connection sees them. Texts are written for PostgreSQL."""
    if url.startswith("sqlite"):
        plain = text.replace(PG_COLUMNS, COLUMNS).replace("pillarbox.", "pillarbox_")
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn:
            return conn.execute(plain).fetchall()
    with psycopg.connect(url) as conn:
        return conn.execute(text).fetchall()  # type: ignore[call-overload]


def log(url: str, table: str = "message") -> list[tuple[Any, ...]]:
    """Every message in its order, ids as UUID bytes."""
    rows = ask(url, f"SELECT {PG_COLUMNS} FROM pillarbox.{table} ORDER BY id")
    return [(getattr(row[0], "bytes", row[0]), *row[1:]) for row in rows]


def logged(url: str, *idents: Any) -> list[tuple[Any, ...]]:
    wanted = [ident.bytes for ident in idents]
    return [row for row in log(url) if row[0] in wanted]
