"""Stored routes: what relays execute (R17). Every change is one transaction with its audit row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pillarbox import crashpoints
from pillarbox.errors import Refused
from pillarbox.routing import compile_match
from pillarbox.storage.postgres.connection import Database, Rows
from pillarbox.storage.postgres.sql import array
from pillarbox.views import Note

RESERVED = "unrouted"  # the route name of messages that no route wants
PAGE = 1000

Definition = Mapping[str, Any]


class PostgresRoutes:
    """Stores, changes, renames, pauses and removes the routes of one installation."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def in_log(self) -> int:
        """How many messages a new route from the beginning would read, counted up to a million and one."""
        return int(self._db.run("in_log")[0][0])

    def store_first(self, routes: Mapping[str, tuple[Definition, str]], note: Note) -> bool:
        """Store these (definition, start) while the installation has no route at all; whether it was so."""
        with self._db.transaction():
            self._db.run("routes_fence")
            if self._db.run("routes_any"):
                return False
            for name, (definition, start) in routes.items():
                self._store(name, definition, start, note)
        crashpoints.here("route.stored")
        return True

    def store(self, name: str, definition: Definition, start: str, note: Note) -> None:
        """A new route from the `beginning` of the log or from `now` on."""
        with self._db.transaction():
            self._db.run("routes_fence")
            self._store(name, definition, start, note)
        crashpoints.here("route.stored")

    def apply(self, name: str, definition: Definition, note: Note) -> None:
        """From now on every relay executes this, each from its next empty window."""
        with self._db.transaction():
            self._change(name, "route_defined", json.dumps(definition))
            self._audit(note, "route apply", route=name, definition=definition)

    def pause(self, name: str, note: Note) -> None:
        self._become(name, "paused", "route pause", note)

    def resume(self, name: str, note: Note) -> None:
        self._become(name, "running", "route resume", note)

    def rename(self, old: str, new: str, note: Note) -> None:
        """Cursors and hold rows keep their places; relays take the lanes anew under the new name."""
        _refuse_reserved(new)
        with self._db.transaction():
            if self._db.run("route_named", new):
                raise Refused(f"A route {new!r} is stored already.", "Choose another name.")
            self._change(old, "route_renamed", new)
            self._db.run("lanes_let_go", new)
            self._db.run("holds_renamed", old, new)
            self._audit(note, "route rename", route=old, to=new)

    def remove(self, name: str, note: Note) -> int:
        """Give up what this route has not delivered; how many messages, with their ids in the audit row."""
        with self._db.transaction():
            ((term,),) = self._db.run("lanes_let_go", name)
            ((above, cursor),) = self._db.run("route_unread", name)
            held = [id for (id,) in self._db.run("holds_removed", name)]
            if not self._db.run("route_removed", name):
                raise _unknown(name)
            undelivered = int(above) + len(held)
            detail = {"route": name, "above": cursor, "held": held, "undelivered": undelivered, "term": term}
            self._audit(note, "route remove", **detail)
        return undelivered

    def _store(self, name: str, definition: Definition, start: str, note: Note) -> None:
        _refuse_reserved(name)
        if not self._db.run("route_stored", name, json.dumps(definition), start):
            raise Refused(f"A route {name!r} is stored already.", "Change it with `pillarbox route apply`.")
        others = [json.loads(each) for other, each in self._db.run("routes_stored") if other != name]
        last, seen = self._db.run("lanes_stored", name, start)[0]
        resolved = self._resolve_unrouted(definition) if start == "beginning" else 0
        if start == "now" and others:
            self._bury_unseen(definition, others, last, seen)
        detail = {"definition": definition, "start": start, "above": last, "resolved": resolved}
        self._audit(note, "route store", route=name, **detail)

    def _resolve_unrouted(self, definition: Definition) -> int:
        """What retention has taken from the log stays dead: this route will not read it."""
        match, seq, resolved = compile_match(definition), 0, 0
        while rows := self._db.run("unrouted_in_log", seq, PAGE):
            wanted = [row[0] for row in rows if match is None or match(row[1:])]
            self._db.run("unrouted_resolved", array(wanted))
            seq, resolved = rows[-1][0], resolved + len(wanted)
        return resolved

    def _bury_unseen(self, definition: Definition, others: Sequence[Definition], last: int, seen: str) -> None:
        """What no route wanted so far and this one would want, had it not come too late for it: else the chore, which
        has not judged it yet, would take it for wanted."""
        match, tests = compile_match(definition), [compile_match(other) for other in others]
        rows: Rows = [] if None in tests else [(0,)]
        while rows:
            rows = self._db.run("not_judged_yet", rows[-1][0], last, seen, PAGE)
            unwanted = [row for row in rows if not any(test(row) for test in tests if test)]
            missed = [row for row in unwanted if match is None or match(row)]
            if missed:
                self._db.run("judge_bury", *(array(row[n] for row in missed) for n in (0, 1, 2)))

    def _become(self, name: str, state: str, action: str, note: Note) -> None:
        with self._db.transaction():
            self._change(name, "route_state", state)
            self._audit(note, action, route=name)

    def _change(self, name: str, statement: str, value: str) -> None:
        if not self._db.run(statement, name, value):
            raise _unknown(name)

    def _audit(self, note: Note, action: str, **detail: object) -> None:
        self._db.run("audited", note.who, note.host, action, note.why, json.dumps(detail))


def _unknown(name: str) -> Refused:
    return Refused(f"No route {name!r} is stored.", "See `pillarbox route list`.")


def _refuse_reserved(name: str) -> None:
    if name == RESERVED:
        raise Refused(f"The name {RESERVED!r} belongs to messages that no route wants.", "Choose another name.")
