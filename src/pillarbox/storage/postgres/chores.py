"""Work that one relay does for all (see `ports.Chores`); a row lock that is not waited for decides which relay."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pillarbox import crashpoints
from pillarbox.ports import RouteState
from pillarbox.routing import Test, compile_match
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.sql import array

PAGE = 1000  # messages judged in one transaction


class PostgresChores:
    def __init__(self, database: Database) -> None:
        self._db = database

    def move_due(self, limit: int) -> int:
        crashpoints.here("scheduled.before")
        moved = int(self._db.run("move_due", limit)[0][0])
        crashpoints.here("scheduled.after")
        return moved

    def judge_unrouted(self, routes: Sequence[RouteState], bury: bool) -> int:
        if not routes:
            return 0  # they are still to come
        with self._db.transaction():
            self._db.run("routes_fence")  # a route that is being stored resolves what it will read itself
            if self._stored() != {route.name: route.definition for route in routes}:
                return 0  # a route came or went since the caller looked; it will look again
            ((drawn,),) = self._db.run("judge_value")
            for judged, value, final in self._db.run("judge_begin"):
                tests = [compile_match(route.definition) for route in routes]
                some = [] if None in tests or not bury else [test for test in tests if test is not None]
                buried = self._judge(judged, value, drawn, some) if final else self._await(judged, value, drawn)
                crashpoints.here("unrouted.after")
                return buried
        return 0

    def _await(self, judged: int, value: int | None, drawn: int) -> int:
        """Ids up to `value` are not final yet, or there is none to wait for."""
        if value is None and drawn > judged:
            self._db.run("judge_end", judged, drawn)
        return 0

    def _judge(self, judged: int, value: int, drawn: int, tests: Sequence[Test]) -> int:
        rows = self._db.run("judge_page", judged, value, PAGE) if tests else []
        unwanted = [row for row in rows if not any(test(row) for test in tests)]
        if unwanted:
            self._db.run("judge_bury", *(array(row[n] for row in unwanted) for n in (0, 1, 2)))
        if len(rows) == PAGE:
            self._db.run("judge_end", rows[-1][0], value)
        else:
            self._db.run("judge_end", value, drawn if drawn > value else None)
        return len(unwanted)

    def _stored(self) -> dict[str, object]:
        return {name: json.loads(definition) for name, definition in self._db.run("routes_stored")}
