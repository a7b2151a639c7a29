"""Callers' connections: which kind is this, and how is a flow of statements run on it?

An adapter is chosen by type and imported only if its driver is loaded already: a connection cannot come from one that
is not.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from pillarbox.errors import ConfigError, UnsupportedConnection
from pillarbox.storage.connections.adapter import Adapter, drive
from pillarbox.storage.connections.dialects import Dialect
from pillarbox.storage.sql import identifier
from pillarbox.storage.statement import Flow

__all__ = ["Adapter", "Dialect", "Flow", "adapter_of", "check_schema", "drive"]

# module of the driver, its class, our module, our class
_KINDS = (
    ("psycopg", "Connection", "psycopg3", "Psycopg"),
    ("psycopg", "AsyncConnection", "psycopg3", "AsyncPsycopg"),
    ("psycopg2.extensions", "connection", "psycopg2", "Psycopg2"),
    ("asyncpg.connection", "Connection", "asyncpg", "Asyncpg"),
    ("asyncpg.pool", "PoolConnectionProxy", "asyncpg", "Asyncpg"),
    ("sqlalchemy.engine", "Connection", "sqlalchemy", "SQLAlchemy"),
    ("sqlalchemy.orm", "Session", "sqlalchemy", "SQLAlchemy"),
    ("sqlalchemy.orm", "scoped_session", "sqlalchemy", "SQLAlchemy"),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", "sqlalchemy", "AsyncSQLAlchemy"),
    ("sqlalchemy.ext.asyncio", "AsyncSession", "sqlalchemy", "AsyncSQLAlchemy"),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", "sqlalchemy", "AsyncSQLAlchemy"),
    ("django.db.backends.base.base", "BaseDatabaseWrapper", "django", "Django"),
    ("django.utils.connection", "ConnectionProxy", "django", "Django"),
    ("sqlite3", "Connection", "sqlite", "SQLite"),
    ("aiosqlite", "Connection", "sqlite", "Aiosqlite"),
)
_known: dict[type, Adapter] = {}


def adapter_of(conn: Any, *, is_async: bool) -> Adapter:
    """The adapter for this connection, if it is of the kind that is awaited or not, as asked."""
    adapter = _known.get(conn.__class__) or _find(conn)
    if adapter.is_async is not is_async:
        kind, cure = ("an async", "AsyncOutbox") if adapter.is_async else ("a blocking", "Outbox")
        raise UnsupportedConnection(f"{_name(conn)} is {kind} connection.", f"Use {cure} for it.")
    return adapter


def check_schema(name: object) -> None:
    """Raises `ConfigError` for what cannot be the name of a schema."""
    if not isinstance(name, str):
        raise ConfigError(f"`schema` must be a str, not {_name(name)}.")
    identifier(name)


def _find(conn: Any) -> Adapter:
    for driver, class_name, module, adapter in _KINDS:
        loaded = sys.modules.get(driver)
        if loaded is not None and isinstance(conn, getattr(loaded, class_name)):
            found: Adapter = getattr(import_module(f"{__name__}.{module}"), adapter)()
            return _known.setdefault(type(conn), found)
    raise UnsupportedConnection(f"{_name(conn)} is no connection Pillarbox knows.", _cure(conn))


def _name(conn: Any) -> str:
    return "None" if conn is None else f"{type(conn).__module__}.{type(conn).__qualname__}"


def _cure(conn: Any) -> str:
    kind = type(conn).__name__.lower()
    if kind.endswith(("engine", "sessionmaker")):
        return "Pass a connection or a session of it, the one that does your own writing."
    if kind.endswith("pool"):
        return "Pass a connection from the pool, the one that does your own writing."
    if "cursor" in kind:
        return "Pass the cursor's connection."
    return (
        "Pass a connection of psycopg, psycopg2, asyncpg, sqlite3 or aiosqlite, a connection or session of SQLAlchemy"
        " 2, or Django's `connection`."
    )
