"""One lease a process, one lane a route."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any
from uuid import UUID

from pillarbox.errors import IdentityDiffers
from pillarbox.ports import Held, LaneState, RelayState, RouteState, Survey, Taken
from pillarbox.storage.sqlite.connection import Database, execute, fetch
from pillarbox.storage.sqlite.migrate import installation
from pillarbox.storage.sqlite.sql import SQL


class SqliteLeases:
    """The leases port over one file. A crash cannot take back what was committed here, so there is no crash token."""

    def __init__(self, database: Database, *, environment: str = "production") -> None:
        self._database = database
        self._environment = environment

    def join(self, relay: UUID, serves: Sequence[str], lease: float) -> None:
        installation(self._database)
        with self._database.writing() as conn:
            known = (str(relay), lease, _names(serves), version("pillarbox"), socket.gethostname())
            conn.execute(SQL["join"], known)

    def renew(self, relay: UUID, serves: Sequence[str], lease: float, says: Sequence[str] = ()) -> bool:
        given = (lease, _names(serves), str(relay), json.dumps(list(says)))
        with self._database.writing() as conn:
            return execute(conn, SQL["renew"], given).rowcount == 1

    def expel(self) -> int:
        if not self._database.all(SQL["any_expired"])[0][0]:
            return 0
        with self._database.writing() as conn:
            return conn.execute(SQL["expel"]).rowcount

    def survey(self) -> Survey:
        with self._database.reading() as conn:
            relays, lanes, routes = (conn.execute(SQL[name]).fetchall() for name in ("relays", "lanes", "routes"))
        return Survey(
            [RelayState(UUID(id), tuple(json.loads(serves)), settled_for) for id, serves, settled_for in relays],
            [LaneState(route, lane, UUID(owner) if owner else None, term) for route, lane, owner, term in lanes],
            [RouteState(name, json.loads(text), state, nudge) for name, text, state, nudge in routes],
        )

    def take(self, relay: UUID, route: str, wanted: int) -> list[Taken]:
        self._is_ours()
        if not self._database.all(SQL["any_free"], (route,))[0][0]:
            return []
        with self._database.writing() as conn:
            return [Taken(*row) for row in fetch(conn, SQL["take"], (str(relay), route, wanted))]

    def retake(self, relay: UUID, lanes: Sequence[tuple[str, int]]) -> list[Taken]:
        self._is_ours()
        taken: list[Taken] = []
        with self._database.writing() as conn:
            for route, lane in lanes:
                taken += [Taken(*row) for row in conn.execute(SQL["retake"], (route, lane, str(relay))).fetchall()]
        return taken

    def load(self, route: str, lanes: Sequence[int]) -> list[Held]:
        return [_held(row) for row in self._database.all(SQL["load"], (route, json.dumps(list(lanes))))]

    def give_back(self, relay: UUID, route: str, lanes: Sequence[tuple[int, int]]) -> None:
        with self._database.writing() as conn:
            conn.executemany(SQL["give_back"], [(str(relay), route, lane, term) for lane, term in lanes])

    def _is_ours(self) -> None:
        found = installation(self._database).environment
        if found != self._environment:
            raise IdentityDiffers(
                f"{self._database.path} belongs to the environment {found!r}; this relay works for"
                f" {self._environment!r}, so the file may be a copy.",
                "Decide with `pillarbox adopt` (it prints the counts first); until then nothing is delivered.",
            )


def _names(serves: Sequence[str]) -> str:
    return json.dumps(sorted(serves))  # compared as text: the same routes must be the same text


def _held(row: tuple[Any, ...]) -> Held:
    held = Held(*row)
    return held._replace(ids=json.loads(row[4]), ahead=bool(held.ahead))
