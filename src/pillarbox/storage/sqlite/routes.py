"""Stored routes: what relays execute. Every change is one transaction with its audit row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from pillarbox import crashpoints
from pillarbox.errors import Refused
from pillarbox.routing import compile_match
from pillarbox.storage.sqlite.connection import Database, fetch
from pillarbox.storage.sqlite.sql import SQL
from pillarbox.views import Note

RESERVED = "unrouted"  # the route name of messages that no route wants
PAGE = 1000

Definition = Mapping[str, Any]


class SqliteRoutes:
    """Stores, changes, renames, pauses and removes routes of one file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def in_log(self) -> int:
        """How many messages a new route from the beginning would read, counted up to a million and one."""
        return int(self._database.all(SQL["in_log"])[0][0])

    def store_first(self, routes: Mapping[str, tuple[Definition, str]], note: Note) -> bool:
        """Store these (definition, start) while the installation has no route at all; whether it was so."""
        with self._database.writing() as conn:
            if conn.execute(SQL["routes"]).fetchone():
                return False
            for name, (definition, start) in routes.items():
                _store(conn, name, definition, start, note)
        crashpoints.here("route.stored")
        return True

    def store(self, name: str, definition: Definition, start: str, note: Note) -> None:
        """A new route from the `beginning` of the log or from `now` on."""
        with self._database.writing() as conn:
            _store(conn, name, definition, start, note)
        crashpoints.here("route.stored")

    def apply(self, name: str, definition: Definition, note: Note) -> None:
        """From now on every relay executes this, each from its next empty window."""
        with self._database.writing() as conn:
            _changed(conn, "route_defined", json.dumps(definition), name)
            _audit(conn, note, "route apply", route=name, definition=definition)

    def pause(self, name: str, note: Note) -> None:
        self._become(name, "paused", "route pause", note)

    def resume(self, name: str, note: Note) -> None:
        self._become(name, "running", "route resume", note)

    def rename(self, old: str, new: str, note: Note) -> None:
        """Cursors and hold rows keep their places; relays take the lanes anew under the new name."""
        _refuse_reserved(new)
        with self._database.writing() as conn:
            if any(row[0] == new for row in conn.execute(SQL["routes"])):
                raise Refused(f"A route {new!r} is stored already.", "Choose another name.")
            _changed(conn, "route_renamed", new, old)
            conn.execute(SQL["lane_renamed"], (new, old))
            conn.execute(SQL["hold_renamed"], (new, old))
            term = conn.execute(SQL["highest_term"], (new,)).fetchone()[0]
            _audit(conn, note, "route rename", route=old, to=new, term=term)

    def remove(self, name: str, note: Note) -> int:
        """Give up what this route has not delivered; how many messages, with their ids in the audit row."""
        with self._database.writing() as conn:
            row = conn.execute(SQL["route_undelivered"], (name,)).fetchone()
            if row is None:
                raise _unknown(name)
            cursor, term, held = row[0], row[1], [id for ids in json.loads(row[2]) for id in ids]
            above = conn.execute(SQL["pending"], (cursor,)).fetchone()[0]
            last = conn.execute(SQL["end_of_log"]).fetchone()[0]
            for statement in ("lane_removed", "hold_removed", "route_removed"):
                conn.execute(SQL[statement], (name,))
            detail = {"above": cursor, "to": last, "held": held, "undelivered": above + len(held), "term": term}
            _audit(conn, note, "route remove", route=name, **detail)
        return int(above) + len(held)

    def _become(self, name: str, state: str, action: str, note: Note) -> None:
        with self._database.writing() as conn:
            _changed(conn, "route_state", state, name)
            _audit(conn, note, action, route=name)


def _store(conn: sqlite3.Connection, name: str, definition: Definition, start: str, note: Note) -> None:
    _refuse_reserved(name)
    if not conn.execute(SQL["route_stored"], (name, json.dumps(definition), start)).rowcount:
        raise Refused(f"A route {name!r} is stored already.", "Change it with `pillarbox route apply`.")
    cursor = 0 if start == "beginning" else conn.execute(SQL["end_of_log"]).fetchone()[0]
    conn.execute(SQL["lane_stored"], (name, cursor, name))
    resolved = _resolve_unrouted(conn, definition) if start == "beginning" else 0
    _audit(conn, note, "route store", route=name, definition=definition, start=start, above=cursor, resolved=resolved)


def _resolve_unrouted(conn: sqlite3.Connection, definition: Definition) -> int:
    """What retention has taken from the log stays dead: this route will not read it."""
    match, seq, resolved = compile_match(definition), 0, 0
    while rows := fetch(conn, SQL["unrouted_in_log"], (seq, PAGE)):
        wanted = [(row[0],) for row in rows if match is None or match(row[1:])]
        conn.executemany(SQL["unrouted_resolved"], wanted)
        seq, resolved = rows[-1][0], resolved + len(wanted)
    return resolved


def _changed(conn: sqlite3.Connection, statement: str, value: str, name: str) -> None:
    if not conn.execute(SQL[statement], (value, name)).rowcount:
        raise _unknown(name)


def _unknown(name: str) -> Refused:
    return Refused(f"No route {name!r} is stored.", "See `pillarbox route list`.")


def _refuse_reserved(name: str) -> None:
    if name == RESERVED:
        raise Refused(f"The name {RESERVED!r} belongs to messages that no route wants.", "Choose another name.")


def _audit(conn: sqlite3.Connection, note: Note, action: str, **detail: object) -> None:
    conn.execute(SQL["audited"], (note.who, note.host, note.why, action, json.dumps(detail)))
