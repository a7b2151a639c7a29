"""What people ask of an installation in an SQLite file: every statement starts at a cursor or at an index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from pillarbox.storage.asked import COUNTED, Count, fitting, found_from, named, route_line, split_ids, standing
from pillarbox.storage.sqlite.connection import Database, fetch, storable
from pillarbox.storage.sqlite.sql import SQL
from pillarbox.views import Found, HoldLine, LaneLine, Overview, Pick, RelayLine, Standing, Trouble

LOGGED = ("log", "kept")
Rows = list[tuple[Any, ...]]


class SqliteDesk:
    """The `Desk` port; each question sees one snapshot of the file."""

    def __init__(self, database: Database, *, environment: str | None = None) -> None:
        self._database = database
        self._environment = environment  # what the configuration calls it; None: whatever it is

    def close(self) -> None:
        self._database.close()

    def overview(self) -> Overview:
        with self._database.reading() as conn:
            environment, version, size = run(conn, "desk_installation")[0]
            scheduled, overdue = run(conn, "desk_rest")[0]
            counts = self._counts(conn)
            routes = run(conn, "desk_routes")
            return Overview(
                environment=environment,
                same_system=self._environment in (None, environment),  # the only way to tell a copied file
                schema_version=version,
                relays=[
                    RelayLine(UUID(id), host, release, tuple(json.loads(serves)), tuple(json.loads(says)), lanes)
                    for id, host, release, serves, says, lanes in run(conn, "desk_relays")
                ],
                routes=[
                    route_line(name, json.loads(definition), paused, start, counts.get(name, {}))
                    for name, definition, paused, start in routes
                ],
                lanes=_lanes(conn),
                troubles=_troubles(conn),
                unrouted=counts.get("unrouted", {}).get("dead", Count(0, 0, None)).rows,
                scheduled=scheduled,
                overdue=overdue,
                log_bytes=size,
                segments=0,
                segments_ahead=0,
                oldest_transaction=None,
            )

    @staticmethod
    def _counts(conn: sqlite3.Connection) -> dict[str, dict[str, Count]]:
        """By route and state."""
        found: dict[str, dict[str, Count]] = {}
        for state in COUNTED:
            for route, *figures in run(conn, "desk_counts", state):
                found.setdefault(route, {})[state] = Count(*figures)
        return found

    def moved(self, lanes: Sequence[LaneLine]) -> dict[str, int]:
        with self._database.reading() as conn:
            return {line.route: run(conn, "desk_moved", line.position, line.route)[0][0] for line in lanes}

    def find(self, ids: Sequence[str]) -> list[Found]:
        with self._database.reading() as conn:
            return _find(conn, ids)

    def of_key(self, key: str, aggregate: str | None, limit: int) -> list[Found]:
        with self._database.reading() as conn:
            unread = [_found(row) for row in run(conn, "desk_of_key", storable(key), aggregate, limit)]
            known = {found.id for found in unread}
            held = [str(id) for (id,) in run(conn, "desk_held_of_key", storable(key), limit) if id not in known]
            first = [found for found in _find(conn, held) if aggregate in (None, found.aggregate)]
        return sorted([*first, *unread], key=lambda found: found.id)[:limit]

    def standings(self, found: Sequence[Found]) -> list[Standing]:
        told: list[Standing] = []
        with self._database.reading() as conn:
            for one in found:
                if one.place in LOGGED:
                    lines = _lines(conn, one)
                    heads = {line.route: line for line in map(_line, run(conn, "desk_heads", storable(one.key)))}
                    rows = run(conn, "desk_standings", one.id)
                    told += [standing((r[0], json.loads(r[1]), *r[2:]), lines, heads.get(r[0])) for r in rows]
        return told

    def holds(self, pick: Pick) -> list[HoldLine]:
        with self._database.reading() as conn:
            if pick.ids:
                found = [one for one in _find(conn, pick.ids) if one.place in LOGGED]
                return fitting([line for one in found for line in _lines(conn, one)], pick)
            filters = (pick.route, pick.aggregate, pick.key, pick.type, pick.error, pick.since)
            rows = [row for s in pick.states for row in run(conn, "desk_holds", s, pick.after, *filters, pick.limit)]
        return sorted(map(_line, rows), key=lambda line: line.seq)[: pick.limit]

    def scheduled(self, ids: Sequence[str], aggregate: str | None, key: str | None, limit: int) -> list[Found]:
        with self._database.reading() as conn:
            if ids:
                return [found for found in _find(conn, ids) if found.place == "scheduled"][:limit]
            return [_found(row) for row in run(conn, "desk_scheduled", aggregate, key, limit)]

    def all_of(self, aggregate: str, key: str) -> Iterator[list[Found]]:
        with self._database.reading() as conn:
            kept = _find(conn, [str(id) for (id,) in run(conn, "desk_kept_of_key", key, aggregate)])
            later = [_found(row) for row in run(conn, "desk_scheduled", aggregate, key, 10_000)]
        yield kept + later
        after = 0
        while page := self._page_of_key(key, aggregate, after):
            after, found = page
            yield found

    def _page_of_key(self, key: str, aggregate: str, after: int) -> tuple[int, list[Found]] | None:
        with self._database.reading() as conn:
            page = run(conn, "desk_all_of_key", key, aggregate, after)
            return (page[-1][0], _find(conn, [str(id) for id, fits in page if fits])) if page else None


def run(conn: sqlite3.Connection, statement: str, *parameters: object) -> Rows:
    return fetch(conn, SQL[statement], parameters)


def _find(conn: sqlite3.Connection, ids: Sequence[str]) -> list[Found]:
    uuids, numbers = split_ids(ids)
    rows: Rows = []
    for uuid in dict.fromkeys(uuids):
        found = run(conn, "desk_find_uuid", uuid.bytes) or run(conn, "desk_cancelled", uuid.bytes, str(uuid))
        rows += found
    for number in dict.fromkeys(numbers):
        rows += run(conn, "desk_find_id", number)
    unique = {(row[0], row[1]): row for row in rows}
    return sorted(map(_found, unique.values()), key=lambda found: (found.place == "scheduled", found.id))


def _found(row: Sequence[Any]) -> Found:
    return found_from((*row[:3], UUID(bytes=row[3]), *row[4:]))


def _line(row: Sequence[Any]) -> HoldLine:
    return HoldLine._make((*row[:4], None if row[4] is None else UUID(bytes=row[4]), *row[5:]))


def _lines(conn: sqlite3.Connection, found: Found) -> list[HoldLine]:
    return [named(_line(row), found) for row in run(conn, "desk_lines_of", found.id, storable(found.key))]


def _lanes(conn: sqlite3.Connection) -> list[LaneLine]:
    top = run(conn, "end_of_log")[0][0]
    return [
        LaneLine(
            route=route,
            lane=lane,
            owner=owner,
            term=term,
            settled_for=settled,
            # Beyond what was counted ids stand for messages: one writer leaves no gaps but where it rolled back.
            pending=counted + (top - last if counted == 1000 else 0),
            counted=counted < 1000,
            oldest=oldest,
            position=cursor,
        )
        for route, lane, owner, term, settled, cursor, counted, last, oldest in run(conn, "desk_lanes")
    ]


def _troubles(conn: sqlite3.Connection) -> list[Trouble]:
    rows = [row for state in ("retry", "blocked", "dead") for row in run(conn, "desk_troubles", state)]
    found = [Trouble._make((*row[:4], None if row[4] is None else UUID(bytes=row[4]))) for row in rows]
    return sorted(found, key=lambda trouble: -trouble.messages)[:20]
