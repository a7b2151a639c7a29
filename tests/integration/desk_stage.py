"""An installation in PostgreSQL with routes, messages and hold rows as a test wants them, written straight into its tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.desk import PostgresDesk
from pillarbox.storage.postgres.desk_actions import PostgresActions
from pillarbox.storage.postgres.migrate import migrate
from pillarbox.views import Note, Pick

NOTE = Note("ann", "host1", "a test")
LIVE = ("retry", "waiting", "blocked")


class Stage:
    """`conn` commits by itself; `desk` and `actions` are what is tested."""

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
