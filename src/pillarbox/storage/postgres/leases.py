"""Leases of processes and terms of lanes (see `ports.Leases`); the database's clock grants, its rows decide."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from importlib import metadata
from uuid import UUID

from pillarbox.errors import IdentityDiffers, NotInstalled, SchemaMismatch
from pillarbox.ports import Held, InDoubt, LaneState, RelayState, RouteState, Survey, Taken
from pillarbox.storage.postgres import migrate
from pillarbox.storage.postgres.connection import Database, Rows
from pillarbox.storage.postgres.cursor import Position
from pillarbox.storage.postgres.sql import array, storable


class PostgresLeases:
    """`environment` is what the configuration calls the installation: a clone of another one is never worked on."""

    def __init__(self, database: Database, *, environment: str = "production") -> None:
        self._db = database
        self._environment = environment

    def join(self, relay: UUID, serves: Sequence[str], lease: float) -> None:
        self._shake_hands()
        self._heal()
        self._db.run("join", str(relay), lease, array(serves), metadata.version("pillarbox"), socket.gethostname())

    def renew(self, relay: UUID, serves: Sequence[str], lease: float, says: Sequence[str] = ()) -> bool:
        texts = array(storable(text) for text in says)
        return bool(self._db.run("renew", str(relay), lease, array(serves), texts))

    def expel(self) -> int:
        return len(self._db.run("expel"))

    def survey(self) -> Survey:
        found = json.loads(self._db.run("survey")[0][0])
        return Survey(
            [RelayState(UUID(id), tuple(serves), float(since)) for id, serves, since in found["relays"]],
            [LaneState(route, lane, owner and UUID(owner), term) for route, lane, owner, term in found["lanes"]],
            [RouteState(*fields) for fields in found["routes"]],
        )

    def take(self, relay: UUID, route: str, wanted: int) -> list[Taken]:
        rows = self._db.run("take", str(relay), route, wanted, self._environment)
        taken = self._taken(rows)
        if taken:
            self._db.trust(rows[0][2])
        return taken

    def retake(self, relay: UUID, lanes: Sequence[tuple[str, int]]) -> list[Taken]:
        self._heal()
        asked = (array(route for route, _ in lanes), array(lane for _, lane in lanes))
        rows = self._db.run("retake", str(relay), self._environment, self._db.token, *asked)
        taken = self._taken(rows)
        self._db.token = None
        self._db.trust(rows[0][2])
        return taken

    def load(self, route: str, lanes: Sequence[int]) -> list[Held]:
        rows = self._db.run("load", route, array(lanes))
        return [Held(*row) for row in rows]

    def give_back(self, relay: UUID, route: str, lanes: Sequence[tuple[int, int]]) -> None:
        columns = (array(lane for lane, _ in lanes), array(term for _, term in lanes))
        self._db.run("give_back", str(relay), route, *columns)

    def _heal(self) -> None:
        """By itself, before anything looks at the token: in one statement it would not see what it wrote."""
        self._db.run("heal")

    def _shake_hands(self) -> None:
        """Two releases share one database; a schema newer than this one knows is refused (P13)."""
        ((_, _, version, _),) = self._db.run("installation") or [(None, None, None, None)]
        if version is None:
            raise NotInstalled(f"Schema {self._db.schema!r} holds no installation.", "Run `pillarbox migrate up`.")
        migrate.refuse_newer(self._db.schema, version)
        if version < migrate.newest():
            raise SchemaMismatch(
                f"Schema {self._db.schema!r} has version {version} of {migrate.newest()}.",
                "Run `pillarbox migrate up`.",
            )

    def _taken(self, rows: Rows) -> list[Taken]:
        if not rows:
            raise NotInstalled(f"Schema {self._db.schema!r} holds no installation.", "Run `pillarbox migrate up`.")
        ours, environment, token, *_ = rows[0]
        if not ours:
            raise identity_differs(environment, self._environment)
        if token is None:
            raise InDoubt
        return [
            Taken(route, lane, term, Position.of(json.loads(cursor)))
            for _, _, _, route, lane, term, cursor in rows
            if route is not None
        ]


def identity_differs(theirs: str, ours: str) -> IdentityDiffers:
    """Nobody works on a clone, nor on what was restored elsewhere, before a person has decided (DESIGN 2.2 rule 6)."""
    return IdentityDiffers(
        f"The installation belongs to the environment {theirs!r} and a cluster; this relay is set up for {ours!r}, or "
        "the database was restored or copied into another cluster.",
        "Decide with `pillarbox adopt` (it prints the counts first); until then nothing is delivered.",
    )
