"""The dialects by name, each made when it is first needed."""

from __future__ import annotations

from functools import cache

from pillarbox.storage.statement import Dialect

__all__ = ["Dialect", "dialect"]


@cache
def dialect(name: str, schema: str) -> Dialect:
    if name == "sqlite":
        from pillarbox.storage.sqlite.dialect import SQLiteDialect

        return SQLiteDialect()
    from pillarbox.storage.postgres.dialect import PostgresDialect

    return PostgresDialect(schema)
