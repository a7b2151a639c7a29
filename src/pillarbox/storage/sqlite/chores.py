"""Work that one relay does for all: move what is due, judge what no route wants. The write lock decides which relay."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from pillarbox.ports import RouteState
from pillarbox.routing import compile_match
from pillarbox.storage.sqlite.connection import Database, fetch, storable
from pillarbox.storage.sqlite.sql import SQL

PAGE = 1000  # messages judged in one transaction, so that no writer waits long


class SqliteChores:
    """The chores port over one file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def move_due(self, limit: int) -> int:
        if not self._database.all(SQL["any_due"])[0][0]:
            return 0
        with self._database.writing() as conn:
            due = conn.execute(SQL["due"], (limit,)).fetchall()
            conn.executemany(SQL["due_added"], due)
            conn.executemany(SQL["due_gone"], due)
        return len(due)

    def judge_unrouted(self, routes: Sequence[RouteState], bury: bool) -> int:
        """One writer: whatever is committed is final, so the mark may move to the end."""
        judged, last = (self._database.all(SQL[name])[0][0] for name in ("judged", "end_of_log"))
        if judged >= last or not routes:
            return 0
        with self._database.writing() as conn:
            if _stored(conn) != {route.name: route.definition for route in routes}:
                return 0  # a route came or went since the caller looked; it will look again
            return self._judge(conn, routes, bury)

    @staticmethod
    def _judge(conn: sqlite3.Connection, routes: Sequence[RouteState], bury: bool) -> int:
        tests = [compile_match(route.definition) for route in routes]
        some = [test for test in tests if test is not None]
        if not bury or len(some) < len(tests):
            conn.execute(SQL["judged_up_to"], conn.execute(SQL["end_of_log"]).fetchone())
            return 0
        judged = conn.execute(SQL["judged"]).fetchone()[0]
        rows = fetch(conn, SQL["read"], (judged, PAGE))
        unwanted = [(row[0], storable(row[2])) for row in rows if not any(test(row) for test in some)]
        conn.executemany(SQL["bury_unrouted"], unwanted)
        if rows:
            conn.execute(SQL["judged_up_to"], (rows[-1][0],))
        else:
            conn.execute(SQL["judged_up_to"], conn.execute(SQL["end_of_log"]).fetchone())
        return len(unwanted)


def _stored(conn: sqlite3.Connection) -> dict[str, object]:
    return {name: json.loads(definition) for name, definition, _, _ in conn.execute(SQL["routes"])}
