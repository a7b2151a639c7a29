"""An SQLite file passes the storage suites."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from pillarbox.ports import Held
from pillarbox.storage.sqlite.chores import SqliteChores
from pillarbox.storage.sqlite.connection import Database
from pillarbox.storage.sqlite.leases import SqliteLeases
from pillarbox.storage.sqlite.migrate import migrate_file
from pillarbox.storage.sqlite.routes import SqliteRoutes
from pillarbox.storage.sqlite.source import SqliteSource
from pillarbox.storage.sqlite.upkeep import SqliteUpkeep
from pillarbox.testing.contracts.chores import ChoresContract
from pillarbox.testing.contracts.leases import LeasesContract
from pillarbox.testing.contracts.settle import SettleContract
from pillarbox.testing.contracts.source import SourceContract
from pillarbox.testing.contracts.upkeep import UpkeepContract
from pillarbox.views import Note

TIMES = {
    "relay": ("alive_until", "started", "serves_since"),
    "hold": ("next_attempt_at", "held_at", "changed_at"),
    "message": ("created_at",),
    "scheduled": ("due",),
    "unique_key": ("created_at",),
    "audit": ("at",),
}


class SqliteStore(NamedTuple):
    source: SqliteSource
    leases: SqliteLeases
    chores: SqliteChores
    upkeep: SqliteUpkeep


class SqlitePending:
    def __init__(self, path: Path) -> None:
        self._conn = sqlite3.connect(path, isolation_level=None)
        self._rows: list[dict[str, Any]] = []

    def add(self, label: str, key: str | None = None, **fields: Any) -> None:
        if not self._conn.in_transaction:
            self._conn.execute("BEGIN IMMEDIATE")
        row = {"aggregate": "order", "type": "created", "payload": label.encode(), "key": key} | fields
        marks = ", ".join("?" * len(row))
        self._conn.execute(f"INSERT INTO pillarbox_message ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def commit(self) -> None:
        self._conn.commit()
        self._conn.close()

    def rollback(self) -> None:
        self._conn.rollback()
        self._conn.close()


class SqliteHarness:
    many_writers = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open: list[Database] = []
        migrate_file(path)
        self._conn = sqlite3.connect(path, isolation_level=None)

    def database(self) -> Database:
        self.open.append(Database(self.path))
        return self.open[-1]

    def connect(self) -> SqliteStore:
        database = self.database()
        ports = (SqliteSource(database), SqliteLeases(database), SqliteChores(database))
        return SqliteStore(*ports, SqliteUpkeep(self.database()))

    def begin(self) -> SqlitePending:
        return SqlitePending(self.path)

    def schedule(self, label: str, delay: float, key: str | None = None) -> None:
        self._conn.execute(
            "INSERT INTO pillarbox_scheduled (due, message_id, key, aggregate, type, payload)"
            " SELECT now + ?, ?, ?, 'order', 'created', ? FROM pillarbox_clock",
            (delay, uuid4().bytes, key, label.encode()),
        )

    def store_route(self, name: str, definition: Mapping[str, Any], start: str = "beginning") -> None:
        SqliteRoutes(self.database()).store(name, definition, start, Note("test", "here"))

    def change_hold(self, seq: int, state: str) -> None:
        self._conn.execute(
            "UPDATE pillarbox_hold SET state = ?, edition = edition + 1,"
            " changed_at = (SELECT now FROM pillarbox_clock) WHERE seq = ?",
            (state, seq),
        )

    def holds(self, route: str) -> list[Held]:
        rows = self._conn.execute(
            "SELECT lane, seq, edition, key, ids, generation, state, attempts, unknowns, 0.0, error, ahead"
            " FROM pillarbox_hold WHERE route = ? ORDER BY seq",
            (route,),
        )
        return [Held(*row[:4], json.loads(row[4]), *row[5:]) for row in rows]

    def advance(self, seconds: float) -> None:
        """The file's clock is the machine's: what is written in it becomes older instead."""
        for table, columns in TIMES.items():
            older = ", ".join(f"{column} = {column} - {seconds}" for column in columns)
            self._conn.execute(f"UPDATE pillarbox_{table} SET {older}")

    def close(self) -> None:
        for database in self.open:
            database.close()
        self._conn.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "shop.db")
    yield harness
    harness.close()


class TestSqliteSource(SourceContract):
    pass


class TestSqliteSettle(SettleContract):
    pass


class TestSqliteLeases(LeasesContract):
    pass


class TestSqliteChores(ChoresContract):
    pass


class TestSqliteUpkeep(UpkeepContract):
    pass
