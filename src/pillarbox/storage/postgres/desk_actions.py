"""What operators change in PostgreSQL: hold rows, the nudge of their routes, and the audit, in one transaction (R11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar
from uuid import UUID

from pillarbox.clock import Clock, SystemClock
from pillarbox.errors import Refused, Retryable
from pillarbox.storage.asked import brief, told
from pillarbox.storage.holds import HoldRow, Plan, change, replay
from pillarbox.storage.postgres.connection import Database, Rows
from pillarbox.storage.postgres.desk_adopt import adopt
from pillarbox.views import Found, HoldLine, Note

T = TypeVar("T")

PATIENCE = 30.0
TRIES = 20  # of half a second each: a relay's settle keeps a row for milliseconds


class _OnlyLooking(Exception):
    """Everything was done to be counted; now it is undone."""


class PostgresActions:
    """The `Actions` port."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._db = database
        self._clock = clock or SystemClock()

    def close(self) -> None:
        self._db.close()

    def change(self, verb: str, lines: Sequence[HoldLine], note: Note) -> list[int]:
        wanted = {(line.seq, line.id) for line in lines}

        def act() -> list[int]:
            return self._apply(change(verb, self._lock({seq for seq, _id in wanted}), wanted), verb, lines, note)

        return self._patiently(act)

    def replay(self, lines: Sequence[HoldLine], to: str | None, note: Note) -> list[int]:
        wanted = {(line.seq, line.id) for line in lines}

        def act() -> list[int]:
            if to is not None and not self._run("act_route", to):
                raise Refused(f"There is no stored route {to!r}.", "`pillarbox route list` names them.")
            rows = self._lock({seq for seq, _id in wanted})
            highest: dict[int, int] = dict(self._run("act_generations", [row.ids[0] for row in rows]))
            plan = replay(rows, wanted, to, highest)
            return self._apply(plan, "replay", lines, note, to=to)

        return self._patiently(act)

    def erase(self, found: Sequence[Found], skip: Sequence[tuple[str, int]], note: Note) -> int:
        logged = [f for f in found if f.place in ("log", "kept")]
        later = [f for f in found if f.place == "scheduled"]
        detail = {"messages": [brief(f) for f in found], "skipped": [list(pair) for pair in skip]}

        def act() -> int:
            self._run("act_blank_log", [f.id for f in logged], [f.lane for f in logged])
            self._run("act_blank_kept", [f.id for f in logged])
            self._run("act_cancel", [f.message_id for f in later])
            self._skip_held(logged)
            self._skip_ahead(logged, skip)
            self._audit("erase", note, detail)
            return len(found)

        done = self._patiently(act)
        # A settle may have written a row of one of them between our look and our commit: nothing blank is delivered.
        self._patiently(lambda: self._skip_held(logged))
        return done

    def _skip_held(self, found: Sequence[Found]) -> None:
        columns = [f.id for f in found], [f.lane for f in found], [f.key for f in found]
        rows = self._lock({seq for (seq,) in self._run("act_unfinished", *columns)})
        ids = {f.id for f in found}
        self._write(change("skip", rows, {(row.seq, id) for row in rows for id in row.ids if id in ids}, "erased"))

    def _skip_ahead(self, found: Sequence[Found], skip: Sequence[tuple[str, int]]) -> None:
        known = {f.id: f for f in found}
        pairs = [(route, known[id]) for route, id in skip if id in known]
        self._run(
            "act_skip_ahead",
            [route for route, _ in pairs],
            [f.lane for _, f in pairs],
            [f.id for _, f in pairs],
            [f.key for _, f in pairs],
            ["erased"] * len(pairs),
        )
        self._run("act_nudge", sorted({route for route, _ in pairs}))

    def cancel(self, found: Sequence[Found], note: Note) -> list[UUID]:
        def act() -> list[UUID]:
            rows = self._run("act_cancel", [f.message_id for f in found if f.place == "scheduled"])
            names = ("id", "aggregate", "type", "key")
            gone = [dict(zip(names, (str(id), *rest), strict=True)) for id, *rest in rows]
            if gone:
                self._audit("scheduled cancel", note, {"messages": gone})
            return [row[0] for row in rows]

        return self._patiently(act)

    def adopt(self, start: str, environment: str, note: Note, *, dry_run: bool) -> dict[str, int]:
        counts: dict[str, int] = {}
        with suppress(_OnlyLooking), self._db.transaction():
            counts |= adopt(self._run, start, environment)
            self._audit("adopt", note, {"from": start, "environment": environment, **counts})
            if dry_run:
                raise _OnlyLooking
        return counts

    # ---------------------------------------------------------------- one transaction

    def _lock(self, seqs: set[int]) -> list[HoldRow]:
        return [HoldRow._make(row) for row in self._run("act_lock", sorted(seqs))]

    def _apply(
        self, plan: Plan, verb: str, lines: Sequence[HoldLine], note: Note, *, to: str | None = None
    ) -> list[int]:
        self._write(plan)
        if plan.done:
            done = set(plan.done)
            chosen = [line for line in lines if line.id in done]
            detail = {"count": len(chosen), "messages": [told(line) for line in chosen]}
            self._audit(verb, note, {**detail, **({"to": to} if to else {})})
        return plan.done

    def _write(self, plan: Plan) -> None:
        for row_statement, rows in (("act_rewrite", plan.rewritten), ("act_insert", plan.added)):
            if rows:
                self._run(row_statement, *columns(rows, with_seq=row_statement == "act_rewrite"))
        if plan.routes:
            self._run("act_nudge", plan.routes)

    def _audit(self, action: str, note: Note, detail: object) -> None:
        self._run("act_audit", note.who, note.host, action, note.why, json.dumps(detail))

    def _patiently(self, act: Callable[[], T]) -> T:
        """A lock that does not come within half a second: let go of everything and try again."""
        left = TRIES
        while True:
            try:
                with self._begun():
                    return act()
            except Retryable:
                left -= 1
                if not left:
                    raise
            self._clock.sleep(0.05)

    @contextmanager
    def _begun(self) -> Iterator[None]:
        with self._db.transaction():
            self._run("act_patience")
            yield

    def _run(self, statement: str, *parameters: object) -> Rows:
        return self._db.run(statement, *parameters, limit=PATIENCE)


def columns(rows: Sequence[HoldRow], *, with_seq: bool) -> list[list[object]]:
    """The fields of these rows, one list a column, as `act_rewrite` (by `seq`) or `act_insert` takes them."""
    written = [(array(r.ids), r.state, r.attempts, r.unknowns, r.error) for r in rows]
    if with_seq:
        return [[r.seq for r in rows], *map(list, zip(*written, strict=True))]
    ids, states, attempts, unknowns, errors = map(list, zip(*written, strict=True))
    first: list[list[object]] = [[r.route for r in rows], [r.lane for r in rows], ids, [r.generation for r in rows]]
    return [*first, [r.key for r in rows], states, attempts, unknowns, errors, [r.ahead for r in rows]]


def array(ids: Sequence[int]) -> str:
    """PostgreSQL's text form, so that rows with arrays of any length go into one statement."""
    return "{" + ",".join(map(str, ids)) + "}"
