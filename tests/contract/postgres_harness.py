"""PostgreSQL as the storage suites see it: an installation in a database of its own."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg

from pillarbox.ports import Held
from pillarbox.storage.migrate import migrate
from pillarbox.storage.postgres.chores import PostgresChores
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.leases import PostgresLeases
from pillarbox.storage.postgres.routes import PostgresRoutes
from pillarbox.storage.postgres.source import PostgresSource
from pillarbox.storage.postgres.upkeep import PostgresUpkeep
from pillarbox.views import Note

NOTE = Note("test", "here")
TIMES = {
    "relay": ("alive_until", "started", "serves_since"),
    "hold": ("next_attempt_at", "held_at", "changed_at"),
    "message": ("created_at",),
    "segment": ("opened_at", "closed_at"),
    "unique_key": ("created_at",),
    "audit": ("at",),
}


class PostgresStore(NamedTuple):
    source: PostgresSource
    leases: PostgresLeases
    chores: PostgresChores
    upkeep: PostgresUpkeep


class PostgresPending:
    def __init__(self, url: str) -> None:
        self.conn = psycopg.connect(url)

    def add(self, label: str, key: str | None = None, **fields: Any) -> None:
        row = {"aggregate": "order", "type": "created", "payload": label.encode(), "key": key} | fields
        marks = ", ".join(["%s"] * len(row))
        self.conn.execute(f"INSERT INTO pillarbox.message ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def commit(self) -> None:
        self.conn.commit()
        self.conn.close()

    def rollback(self) -> None:
        self.conn.rollback()
        self.conn.close()


class PostgresHarness:
    many_writers = True

    def __init__(self, url: str, *, lanes: int = 16, relay_url: str | None = None, late: int = 1000) -> None:
        self.url, self.relay_url, self.late = url, relay_url or url, late
        self.open: list[Database] = []
        self.conn = psycopg.connect(url, autocommit=True)
        migrate(self.conn, lanes=lanes)

    def database(self, url: str | None = None, **options: Any) -> Database:
        self.open.append(Database(url or self.relay_url, **options))
        return self.open[-1]

    def connect(self) -> PostgresStore:
        database = self.database()
        source = PostgresSource(database, late=self.late)
        upkeep = PostgresUpkeep(self.database(self.url))
        return PostgresStore(source, PostgresLeases(database), PostgresChores(database), upkeep)

    def begin(self) -> PostgresPending:
        return PostgresPending(self.url)

    def schedule(self, label: str, delay: float, key: str | None = None) -> None:
        self.conn.execute(
            "INSERT INTO pillarbox.scheduled (due, message_id, key, aggregate, type, payload)"
            " VALUES (now() + %s * interval '1 second', gen_random_uuid(), %s, 'order', 'created', %s)",
            (delay, key, label.encode()),
        )

    def store_route(self, name: str, definition: Mapping[str, Any], start: str = "beginning") -> None:
        PostgresRoutes(self.database()).store(name, definition, start, NOTE)

    def change_hold(self, seq: int, state: str) -> None:
        self.conn.execute(
            "UPDATE pillarbox.hold SET state = %s, edition = edition + 1, changed_at = now() WHERE seq = %s",
            (state, seq),
        )

    def holds(self, route: str) -> list[Held]:
        rows = self.conn.execute(
            "SELECT lane, seq, edition, key, ids, generation, state, attempts, unknowns, 0.0, error, ahead"
            " FROM pillarbox.hold WHERE route = %s ORDER BY seq",
            (route,),
        )
        return [Held(*row) for row in rows]

    def advance(self, seconds: float) -> None:
        """The server's clock is the machine's: what is written in it becomes older instead."""
        for table, columns in TIMES.items():
            older = ", ".join(f"{column} = {column} - interval '{seconds} seconds'" for column in columns)
            self.conn.execute(f"UPDATE pillarbox.{table} SET {older}")
        # Its primary key begins with the time: all at once, from the oldest on.
        self.conn.execute(f"UPDATE pillarbox.scheduled SET due = due - interval '{seconds} seconds'")

    def close(self) -> None:
        for database in self.open:
            database.close()
        self.conn.close()
