"""Installations with routes, messages and hold rows as a test wants them, written straight into their tables."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.desk import PostgresDesk
from pillarbox.storage.postgres.desk_actions import PostgresActions
from pillarbox.storage.postgres.migrate import migrate
from pillarbox.storage.sqlite import connection as sqlite_connection
from pillarbox.storage.sqlite.desk import SqliteDesk
from pillarbox.storage.sqlite.desk_actions import SqliteActions
from pillarbox.storage.sqlite.migrate import migrate_file
from pillarbox.views import Note, Pick

NOTE = Note("ann", "host1", "a test")
LIVE = ("retry", "waiting", "blocked")


class Stage:
    """PostgreSQL. `conn` commits by itself; `desk` and `actions` are what is tested."""

    def __init__(self, url: str, *, lanes: int = 4, routes: Sequence[str] = ("all",)) -> None:
        self.url = url
        self.conn = psycopg.connect(url, autocommit=True)
        migrate(self.conn, lanes=lanes)
        self.desk = PostgresDesk(Database(url, name="desk"))
        self.actions = PostgresActions(Database(url, name="actions"))
        self.lanes = lanes
        for route in routes:
            self.route(route)

    def close(self) -> None:
        self.desk.close()
        self.actions.close()
        self.conn.close()

    def ask(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(text, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def route(self, name: str, definition: object = None) -> None:
        self.ask(
            "INSERT INTO pillarbox.route (name, definition, start) VALUES (%s, %s::json, 'beginning')",
            name, json.dumps(definition or {"sink": "file"}),
        )  # fmt: skip
        self.ask(
            "INSERT INTO pillarbox.lane (route, lane, cursor) SELECT %s, g, %s::json FROM generate_series(0, %s) g",
            name, json.dumps({"last": 0, "seen": "3:3:", "due": None, "at": 0}), self.lanes - 1,
        )  # fmt: skip

    def add(
        self, key: str | None = "k", type: str = "t", aggregate: str = "a", payload: bytes = b"{}"
    ) -> tuple[int, UUID]:
        """The id in the log and the message id."""
        row = self.ask(
            "INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES (%s, %s, %s, %s)"
            " RETURNING id, message_id",
            key, aggregate, type, payload,
        )[0]  # fmt: skip
        return row[0], row[1]

    def lane_of(self, id: int) -> int:
        return int(self.ask("SELECT lane FROM pillarbox.message WHERE id = %s", id)[0][0])

    def settle(self, route: str = "all", last: int | None = None) -> None:
        """Every cursor of the route stands behind what is there now, or at `last`."""
        self.ask(
            "UPDATE pillarbox.lane SET settled_at = now(), cursor = json_build_object('last', coalesce(%s,"
            " (SELECT last_value FROM pillarbox.message_id_seq)), 'seen', pg_current_snapshot()::text, 'due', NULL,"
            " 'at', 0) WHERE route = %s",
            last, route,
        )  # fmt: skip

    def hold(self, state: str, *ids: int, route: str = "all", **more: object) -> int:
        """A hold row as a settle would write it; its `seq`."""
        fields = {"error": "boom", "attempts": 1, "generation": 0, "ahead": False, **more}
        lane, key = self.ask("SELECT lane, key FROM pillarbox.message WHERE id = %s", ids[0])[0]
        return int(
            self.ask(
                "INSERT INTO pillarbox.hold (route, lane, ids, key, state, error, attempts, generation, ahead,"
                " next_attempt_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, now() + '1 minute') RETURNING seq",
                route, lane, list(ids), key, state,
                fields["error"], fields["attempts"], fields["generation"], fields["ahead"],
            )[0][0]
        )  # fmt: skip

    def rows(self, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        return self.ask(f"SELECT {', '.join(columns)} FROM pillarbox.hold WHERE {where} ORDER BY seq")

    def audited(self) -> list[tuple[Any, ...]]:
        return self.ask("SELECT who, host, action, why, detail FROM pillarbox.audit ORDER BY id")

    def nudge(self, route: str = "all") -> int:
        return int(self.ask("SELECT nudge FROM pillarbox.route WHERE name = %s", route)[0][0])

    def picked(self, *states: str, ids: Sequence[object] = ()) -> Any:
        return self.desk.holds(Pick(states=states or LIVE, ids=tuple(map(str, ids))))

    def more_actions(self) -> PostgresActions:
        """Another operator's."""
        return PostgresActions(Database(self.url, name="other"))

    def stored(self) -> list[tuple[Any, ...]]:
        """(payload, key, type) of every message in the log."""
        return [
            (bytes(p), k, t) for p, k, t in self.ask("SELECT payload, key, type FROM pillarbox.message ORDER BY id")
        ]

    def schedule(self, due_in: float) -> UUID:
        id = uuid4()
        self.ask(
            "INSERT INTO pillarbox.scheduled (due, message_id, key, aggregate, type, payload)"
            " VALUES (now() + make_interval(secs => %s), %s, 'k', 'a', 't', 'x')", due_in, id,
        )  # fmt: skip
        return id

    def keep(self, id: int) -> None:
        """As retention does it: out of the log, into `kept`."""
        self.ask("INSERT INTO pillarbox.kept (id, xid, message_id, key, aggregate, type, payload, created_at)"
                 " SELECT id, xid, message_id, key, aggregate, type, payload, created_at FROM pillarbox.message"
                 " WHERE id = %s", id)  # fmt: skip
        self.ask("DELETE FROM pillarbox.message WHERE id = %s", id)

    def live(self, host: str, term: int) -> None:
        """A relay that owns every lane."""
        relay = uuid4()
        self.ask("INSERT INTO pillarbox.relay (id, alive_until, serves, version, host)"
                 " VALUES (%s, now() + '5 s', '{all}', '0', %s)", relay, host)  # fmt: skip
        self.ask("UPDATE pillarbox.lane SET owner = %s, term = %s", relay, term)

    def age(self, id: int, seconds: float) -> None:
        """The hold row of this message is so old."""
        self.ask("UPDATE pillarbox.hold SET held_at = now() - make_interval(secs => %s) WHERE id = %s", seconds, id)

    def deliver(self, id: int) -> None:
        self.ask("DELETE FROM pillarbox.hold WHERE id = %s", id)

    def become(self, id: int, state: str) -> None:
        self.ask("UPDATE pillarbox.hold SET state = %s WHERE id = %s", state, id)


class SqliteStage(Stage):
    """An SQLite file; what a test asks is translated where the two differ."""

    def __init__(self, path: Path, *, routes: Sequence[str] = ("all",)) -> None:
        migrate_file(path)
        self.path = path
        self.lite = sqlite3.connect(path, isolation_level=None)
        self.desk = SqliteDesk(sqlite_connection.Database(path))  # type: ignore[assignment]
        self.actions = self.more_actions()  # type: ignore[assignment]
        for route in routes:
            self.route(route)

    def close(self) -> None:
        self.desk.close()
        self.actions.close()
        self.lite.close()

    def more_actions(self) -> SqliteActions:  # type: ignore[override]
        return SqliteActions(sqlite_connection.Database(self.path, patience=10))

    def ask(self, text: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.lite.execute(text, parameters).fetchall()

    def route(self, name: str, definition: object = None) -> None:
        text = json.dumps(definition or {"sink": "file"})
        self.ask("INSERT INTO pillarbox_route (name, definition, start) VALUES (?, ?, 'beginning')", name, text)
        self.ask("INSERT INTO pillarbox_lane (route, lane, cursor) VALUES (?, 0, 0)", name)

    def add(
        self, key: str | None = "k", type: str = "t", aggregate: str = "a", payload: bytes = b"{}"
    ) -> tuple[int, UUID]:
        fields = (key, aggregate, type, payload)
        row = self.ask(
            "INSERT INTO pillarbox_message (key, aggregate, type, payload) VALUES (?, ?, ?, ?) RETURNING id, message_id",
            *fields,
        )[0]
        return row[0], UUID(bytes=row[1])

    def lane_of(self, id: int) -> int:
        return 0

    def settle(self, route: str = "all", last: int | None = None) -> None:
        self.ask(
            "UPDATE pillarbox_lane SET settled_at = (SELECT now FROM pillarbox_clock),"
            " cursor = coalesce(?, (SELECT max(id) FROM pillarbox_message), 0) WHERE route = ?", last, route,
        )  # fmt: skip

    def hold(self, state: str, *ids: int, route: str = "all", **more: object) -> int:
        fields = {"error": "boom", "attempts": 1, "generation": 0, "ahead": False, **more}
        key = self.ask("SELECT key FROM pillarbox_message WHERE id = ?", ids[0])[0][0]
        return int(
            self.ask(
                "INSERT INTO pillarbox_hold (route, lane, ids, key, state, error, attempts, generation, ahead,"
                " next_attempt_at) VALUES (?, 0, ?, ?, ?, ?, ?, ?, ?, (SELECT now + 60 FROM pillarbox_clock))"
                " RETURNING seq",
                route, json.dumps(ids), key, state,
                fields["error"], fields["attempts"], fields["generation"], fields["ahead"],
            )[0][0]
        )  # fmt: skip

    def rows(self, *columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        found = self.ask(f"SELECT {', '.join(columns)} FROM pillarbox_hold WHERE {where} ORDER BY seq")
        read = {"ids": json.loads, "ahead": bool}
        return [tuple(read.get(c, lambda v: v)(v) for c, v in zip(columns, row, strict=True)) for row in found]

    def audited(self) -> list[tuple[Any, ...]]:
        rows = self.ask("SELECT who, host, action, why, detail FROM pillarbox_audit ORDER BY id")
        return [(*row[:4], json.loads(row[4])) for row in rows]

    def nudge(self, route: str = "all") -> int:
        return int(self.ask("SELECT nudge FROM pillarbox_route WHERE name = ?", route)[0][0])

    def stored(self) -> list[tuple[Any, ...]]:
        return self.ask("SELECT payload, key, type FROM pillarbox_message ORDER BY id")

    def schedule(self, due_in: float) -> UUID:
        id = uuid4()
        self.ask("INSERT INTO pillarbox_scheduled (due, message_id, key, aggregate, type, payload)"
                 " VALUES ((SELECT now + ? FROM pillarbox_clock), ?, 'k', 'a', 't', x'78')", due_in, id.bytes)  # fmt: skip
        return id

    def keep(self, id: int) -> None:
        names = "id, message_id, key, aggregate, type, payload, created_at"
        self.ask(f"INSERT INTO pillarbox_kept ({names}) SELECT {names} FROM pillarbox_message WHERE id = ?", id)
        self.ask("DELETE FROM pillarbox_message WHERE id = ?", id)

    def live(self, host: str, term: int) -> None:
        self.ask("INSERT INTO pillarbox_relay (id, alive_until, serves, version, host)"
                 " VALUES (?, (SELECT now + 5 FROM pillarbox_clock), '[\"all\"]', '0', ?)", str(uuid4()), host)  # fmt: skip
        self.ask("UPDATE pillarbox_lane SET owner = (SELECT id FROM pillarbox_relay), term = ?", term)

    def age(self, id: int, seconds: float) -> None:
        self.ask("UPDATE pillarbox_hold SET held_at = held_at - ? WHERE id = ?", seconds, id)

    def deliver(self, id: int) -> None:
        self.ask("DELETE FROM pillarbox_hold WHERE id = ?", id)

    def become(self, id: int, state: str) -> None:
        self.ask("UPDATE pillarbox_hold SET state = ? WHERE id = ?", state, id)
