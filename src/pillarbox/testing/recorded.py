"""What the code under test has added, read in its own transaction, which may then be rolled back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from pillarbox.message import Message
from pillarbox.storage.connections import Dialect, Flow, adapter_of, drive
from pillarbox.storage.sqlite.sql import SQL


def messages(conn: Any, *, schema: str = "pillarbox") -> list[Message]:
    """This transaction's messages, in their order. Delayed ones are in `Outbox.delayed`.

    A database in memory cannot be looked at from outside: there it is all messages, also those committed before."""
    return drive(adapter_of(conn, is_async=False), conn, schema, _own)


async def async_messages(conn: Any, *, schema: str = "pillarbox") -> list[Message]:
    """The same on an async connection."""
    return await adapter_of(conn, is_async=True).adrive(conn, schema, _own)


def _own(dialect: Dialect) -> Flow[list[Message]]:
    file = yield from dialect.file()
    return (yield from dialect.messages(_committed(file) if file else 0))


def _committed(file: str) -> int:
    """The end of the log as others see it: SQLite's rows do not tell whose they are."""
    with closing(sqlite3.connect(f"{Path(file).as_uri()}?mode=ro", uri=True)) as other:
        try:
            return int(other.execute(SQL["last_id"]).fetchone()[0])
        except sqlite3.OperationalError:  # the tables are this transaction's own
            return 0
