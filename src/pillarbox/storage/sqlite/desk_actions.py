"""What operators change in an SQLite file: hold rows, the nudge of their routes, and the audit, in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from uuid import UUID

from pillarbox.errors import Refused
from pillarbox.storage.asked import brief, told
from pillarbox.storage.holds import HoldRow, Plan, change, replay
from pillarbox.storage.sqlite.connection import Database, execute, storable
from pillarbox.storage.sqlite.desk import run
from pillarbox.storage.sqlite.sql import SQL
from pillarbox.views import Found, HoldLine, Note

STARTS = ("cursor", "unread", "now")


class _OnlyLooking(Exception):
    """Everything was done to be counted; now it is undone."""


class SqliteActions:
    """The `Actions` port. The write lock is held from the beginning: what an action reads, nobody changes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        self._database.close()

    def change(self, verb: str, lines: Sequence[HoldLine], note: Note) -> list[int]:
        wanted = {(line.seq, line.id) for line in lines}
        with self._database.writing() as conn:
            plan = change(verb, _rows(conn, {line.seq for line in lines}), wanted)
            _apply(conn, plan, verb, lines, note)
        return plan.done

    def replay(self, lines: Sequence[HoldLine], to: str | None, note: Note) -> list[int]:
        wanted = {(line.seq, line.id) for line in lines}
        with self._database.writing() as conn:
            if to is not None and to not in {row[0] for row in run(conn, "desk_routes")}:
                raise Refused(f"There is no stored route {to!r}.", "`pillarbox route list` names them.")
            rows = _rows(conn, {line.seq for line in lines})
            highest = {id: run(conn, "act_generation", id)[0][0] for id in {row.ids[0] for row in rows}}
            plan = replay(rows, wanted, to, highest)
            _apply(conn, plan, "replay", lines, note, **({"to": to} if to else {}))
        return plan.done

    def erase(self, found: Sequence[Found], skip: Sequence[tuple[str, int]], note: Note) -> int:
        known = {f.id: f for f in found if f.place in ("log", "kept")}
        with self._database.writing() as conn:
            for one in found:
                if one.place == "scheduled":
                    conn.execute(SQL["act_cancel"], (one.message_id.bytes,))
            for one in known.values():
                conn.execute(SQL["act_blank_log"], (one.id,))
                conn.execute(SQL["act_blank_kept"], (one.id,))
                _skip_held(conn, one)
            for route, id in skip:
                if id in known:
                    execute(conn, SQL["act_skip_ahead"], (route, id, storable(known[id].key)))
            _nudge(conn, {route for route, _id in skip})
            detail = {"messages": [brief(one) for one in found], "skipped": [list(pair) for pair in skip]}
            _audit(conn, "erase", note, detail)
        return len(found)

    def cancel(self, found: Sequence[Found], note: Note) -> list[UUID]:
        names = ("id", "aggregate", "type", "key")
        with self._database.writing() as conn:
            ids = [one.message_id.bytes for one in found if one.place == "scheduled"]
            rows = [row for id in ids for row in run(conn, "act_cancel", id)]
            gone = [(UUID(bytes=row[0]), *row[1:]) for row in rows]
            if gone:
                told_of = [dict(zip(names, (str(row[0]), *row[1:]), strict=True)) for row in gone]
                _audit(conn, "scheduled cancel", note, {"messages": told_of})
        return [row[0] for row in gone]

    def adopt(self, start: str, environment: str, note: Note, *, dry_run: bool) -> dict[str, int]:
        """Ids live on in a copied file, so `cursor` and `unread` are the same here."""
        if start not in STARTS:
            raise Refused(f"{start!r} is no place to go on from.", f"Say one of {', '.join(STARTS)}.")
        fate = "never to be delivered" if start == "now" else "to be delivered"
        counts: dict[str, int] = {}
        with suppress(_OnlyLooking), self._database.writing() as conn:
            counts |= {f"unread by {route}, {fate}": number for route, number in run(conn, "adopt_beyond")}
            if start == "now":
                counts["held, to be skipped"] = sum(number for (number,) in run(conn, "adopt_skip_held"))
                conn.execute(SQL["adopt_now"], run(conn, "end_of_log")[0])
            conn.execute(SQL["adopt_identity"], (environment,))
            conn.execute(SQL["adopt_lanes"])
            _audit(conn, "adopt", note, {"from": start, "environment": environment, **counts})
            if dry_run:
                raise _OnlyLooking
        return counts


def _rows(conn: sqlite3.Connection, seqs: Iterable[int]) -> list[HoldRow]:
    found = [row for seq in sorted(seqs) for row in run(conn, "act_row", seq)]
    return [HoldRow._make((*row[:3], json.loads(row[3]), *row[4:7], bool(row[7]), *row[8:])) for row in found]


def _skip_held(conn: sqlite3.Connection, found: Found) -> None:
    lines = run(conn, "desk_lines_of", found.id, storable(found.key))
    rows = _rows(conn, {row[0] for row in lines})
    _write(conn, change("skip", rows, {(row.seq, found.id) for row in rows}, "erased"))


def _apply(
    conn: sqlite3.Connection, plan: Plan, verb: str, lines: Sequence[HoldLine], note: Note, **more: object
) -> None:
    _write(conn, plan)
    if plan.done:
        chosen = [line for line in lines if line.id in set(plan.done)]
        _audit(conn, verb, note, {"count": len(chosen), "messages": [told(line) for line in chosen], **more})


def _write(conn: sqlite3.Connection, plan: Plan) -> None:
    for row in plan.rewritten:
        what = (row.seq, json.dumps(row.ids), row.state, row.attempts, row.unknowns, storable(row.error))
        execute(conn, SQL["act_rewrite"], what)
    for row in plan.added:
        place = (row.route, row.lane, json.dumps(row.ids), row.generation, storable(row.key), row.state, row.ahead)
        execute(conn, SQL["act_insert"], (*place, storable(row.error), row.attempts, row.unknowns))
    _nudge(conn, plan.routes)


def _nudge(conn: sqlite3.Connection, routes: Iterable[str]) -> None:
    for route in routes:
        conn.execute(SQL["act_nudge"], (route,))


def _audit(conn: sqlite3.Connection, action: str, note: Note, detail: object) -> None:
    conn.execute(SQL["audited"], (note.who, note.host, note.why, action, json.dumps(detail)))
