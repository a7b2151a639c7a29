"""What people ask of an installation in PostgreSQL: every statement starts at the cursors or at an index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pillarbox.storage.asked import Count, fitting, found_from, named, route_line, split_ids, standing
from pillarbox.storage.estimate import Segment, pending
from pillarbox.storage.postgres.connection import Database, Rows
from pillarbox.views import Found, HoldLine, LaneLine, Overview, Pick, RelayLine, Standing, Trouble

LOGGED = ("log", "kept")
PATIENCE = 30.0  # seconds; a person waits longer than a relay, a stuck server longer still
LOOK = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    *(f"SET LOCAL {setting} = off" for setting in ("jit", "enable_seqscan", "enable_bitmapscan")),
)


class PostgresDesk:
    """The `Desk` port. Reads from the primary, in one snapshot a question, and never a payload."""

    def __init__(self, database: Database, *, environment: str | None = None) -> None:
        self._db = database
        self._environment = environment  # what the configuration calls it; None: whatever it is

    def close(self) -> None:
        self._db.close()

    def overview(self) -> Overview:
        with self._snapshot():
            environment, same, version, lanes, top = self._one("desk_installation")
            segments = [Segment(*row) for row in self._run("desk_segments", lanes)]
            scheduled, overdue, log_bytes = self._one("desk_rest")
            counts = self._counts(self._run("desk_counts"))
            return Overview(
                environment=environment,
                same_system=same and self._environment in (None, environment),
                schema_version=version,
                relays=[
                    RelayLine(id, host, release, tuple(serves), tuple(says), lanes)
                    for id, host, release, serves, says, lanes in self._run("desk_relays")
                ],
                routes=[
                    route_line(name, definition, paused, start, counts.get(name, {}))
                    for name, definition, paused, start in self._run("desk_routes")
                ],
                lanes=self._lanes(segments, top),
                troubles=[Trouble(*row) for row in self._run("desk_troubles")],
                unrouted=counts.get("unrouted", {}).get("dead", Count(0, 0, None)).rows,
                scheduled=scheduled,
                overdue=overdue,
                log_bytes=log_bytes,
                segments=len([s for s in segments if s.state != "ahead"]),
                segments_ahead=len([s for s in segments if s.state == "ahead"]),
                oldest_transaction=next(iter(self._run("desk_transaction")), None),
            )

    def _counts(self, rows: Rows) -> dict[str, dict[str, Count]]:
        """By route and state."""
        found: dict[str, dict[str, Count]] = {}
        for route, state, number, messages, lane, first in rows:
            age = self._one("desk_age", lane, first)
            found.setdefault(route, {})[state] = Count(number, int(messages), age[0] if age else None)
        return found

    def _lanes(self, segments: Sequence[Segment], top: int) -> list[LaneLine]:
        late = {(route, lane): (number, age) for route, lane, number, age in self._run("desk_late")}
        lines = []
        for route, lane, owner, term, settled, cursor, counted, last, oldest in self._run("desk_lanes"):
            number, exact = pending(segments, int(cursor["last"]), counted, last, top)
            more, older = late.get((route, lane), (0, None))
            ages = [age for age in (oldest, older) if age is not None]
            lines.append(
                LaneLine(route, lane, owner, term, settled, number + more, exact, max(ages, default=None), cursor)
            )
        return lines

    def moved(self, lanes: Sequence[LaneLine]) -> dict[str, int]:
        lasts = [int(line.position["last"]) for line in lanes]
        rows = self._run("desk_moved", [line.route for line in lanes], [line.lane for line in lanes], lasts)
        return {route: int(number) for route, number in rows}

    def find(self, ids: Sequence[str]) -> list[Found]:
        uuids, numbers = split_ids(ids)
        rows = self._run("desk_find", uuids, numbers)
        unknown = list({*uuids} - {row[3] for row in rows})
        rows += self._run("desk_cancelled", unknown) if unknown else []
        return sorted(map(found_from, rows), key=lambda found: (found.place == "scheduled", found.id))

    def of_key(self, key: str, aggregate: str | None, limit: int) -> list[Found]:
        held = [str(row[0]) for row in self._run("desk_held_of_key", key, limit)]
        unread = [found_from(row) for row in self._run("desk_of_key", key, aggregate, limit)]
        known = {found.id for found in unread}
        first = [
            f for f in self.find(list(dict.fromkeys(held))) if f.id not in known and aggregate in (None, f.aggregate)
        ]
        return sorted([*first, *unread], key=lambda found: found.id)[:limit]

    def standings(self, found: Sequence[Found]) -> list[Standing]:
        logged = [f for f in found if f.place in LOGGED]
        ids, lanes, keys = [f.id for f in logged], [f.lane for f in logged], [f.key for f in logged]
        with self._snapshot():
            rows = self._run("desk_standings", ids, lanes)
            lines = self._lines(logged)
            heads = {(h.route, h.lane, h.key): h for h in map(HoldLine._make, self._run("desk_heads", lanes, keys))}
        where = {f.id: (f.lane, f.key) for f in logged}
        return [standing(row, lines, heads.get((row[0], *where[row[3]]))) for row in rows]

    def _lines(self, found: Sequence[Found]) -> list[HoldLine]:
        """The hold rows of these messages, each with what the message says of itself."""
        known = {f.id: f for f in found}
        rows = self._run("desk_lines_of", [f.id for f in found], [f.lane for f in found], [f.key for f in found])
        lines = map(HoldLine._make, rows)
        return [named(line, known[line.id]) for line in lines]

    def holds(self, pick: Pick) -> list[HoldLine]:
        if pick.ids:
            return fitting(self._lines([f for f in self.find(pick.ids) if f.place in LOGGED]), pick)
        filters = (pick.route, pick.aggregate, pick.key, pick.type, pick.error, pick.since)
        rows = self._run("desk_holds", list(pick.states), pick.after, *filters, pick.limit)
        return [HoldLine._make(row) for row in rows]

    def scheduled(self, ids: Sequence[str], aggregate: str | None, key: str | None, limit: int) -> list[Found]:
        if ids:
            return [found for found in self.find(ids) if found.place == "scheduled"][:limit]
        return [found_from(row) for row in self._run("desk_scheduled", aggregate, key, limit)]

    def all_of(self, aggregate: str, key: str) -> Iterator[list[Found]]:
        """Every message of a key, a page of its lane at a time; for `erase`."""
        kept = [str(id) for (id,) in self._run("desk_kept_of_key", key, aggregate)]
        yield [*self.find(kept), *self.scheduled((), aggregate, key, 10_000)]
        after = 0
        while page := self._run("desk_all_of_key", key, aggregate, after):
            after = page[-1][0]
            yield self.find([str(id) for id, fits in page if fits])

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        with self._db.transaction():
            for setting in LOOK:
                self._db.execute(setting)
            yield

    def _run(self, statement: str, *parameters: object) -> Rows:
        return self._db.run(statement, *parameters, limit=PATIENCE)

    def _one(self, statement: str, *parameters: object) -> tuple[Any, ...]:
        return next(iter(self._run(statement, *parameters)), ())
