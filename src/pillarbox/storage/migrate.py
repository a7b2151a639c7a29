"""Installing and upgrading the tables, on a connection the caller gives: their migration tool may own the step."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from pillarbox.errors import UnsupportedConnection


def migrate(conn: Any, *, schema: str = "pillarbox", lanes: int = 16, environment: str = "production") -> list[str]:
    """Bring the installation up to this release; the names of what was applied.

    On an autocommitting connection each step is a transaction of its own, and a run that was killed is resumed by the
    next. On any other, all of it happens in the caller's transaction, and the caller commits.
    """
    module, driver = _dialect(conn)
    if module.__name__.endswith("sqlite.migrate"):  # one lane, and a prefix in place of the schema
        return list(module.migrate(driver, environment=environment).applied)
    applied: list[str] = module.migrate(driver, schema=schema, lanes=lanes, environment=environment)
    return applied


def check(conn: Any, *, schema: str = "pillarbox") -> list[str]:
    """What differs from what this release expects, a sentence each; empty when all is well."""
    module, driver = _dialect(conn)
    findings: list[str] = module.check(driver, schema=schema)
    return findings


def _dialect(conn: Any) -> tuple[ModuleType, Any]:
    driver = _driver(conn)
    family = type(driver).__module__.partition(".")[0]
    # Subclasses of the drivers' connections live in other people's modules.
    families = {family, *(base.__module__.partition(".")[0] for base in type(driver).__mro__)}
    if families & {"psycopg", "psycopg2"}:
        return importlib.import_module("pillarbox.storage.postgres.migrate"), driver
    if "sqlite3" in families or "_sqlite3" in families:
        return importlib.import_module("pillarbox.storage.sqlite.migrate"), driver
    raise UnsupportedConnection(
        f"migrate does not know a {type(conn).__module__}.{type(conn).__qualname__}.",
        "Give a connection of psycopg, psycopg2 or sqlite3, or one of SQLAlchemy or Django over these.",
    )


def _driver(conn: Any) -> Any:
    """The driver's own connection under SQLAlchemy's and Django's."""
    family = type(conn).__module__
    if family.startswith("sqlalchemy.orm"):
        conn = conn.connection()
    if family.startswith("sqlalchemy."):
        if not conn.in_transaction():
            conn.begin()  # it does not see what its driver is told: without this its commit would mean nothing
        return conn.connection.driver_connection
    if family.startswith("django."):
        conn.ensure_connection()
        return conn.connection
    return conn
