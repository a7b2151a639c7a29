"""The log read by lanes, and what became of its messages written back (see `ports.Source`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pillarbox.clock import Clock, SystemClock
from pillarbox.outcome import Row
from pillarbox.ports import Changes, Held, InDoubt, Page, Position, RowTuple, Settled
from pillarbox.storage.postgres import cursor
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.sql import array, storable

LATE = 1000  # rows of one page; more of them are caught up page by page
BUDGET = 16 * 2**20  # bytes of payload one read should bring; a limit in rows says nothing of them
PAYLOAD = Row._fields.index("payload")
FIRST = 256  # rows of the first read, before anything is known of their size


class PostgresSource:
    """Reads with the statement of DESIGN 2.2, settles with the one of PROTOCOL's R10."""

    def __init__(
        self, database: Database, *, wait_for_flush: bool = False, late: int = LATE, clock: Clock | None = None
    ) -> None:
        self._db = database
        self._wait_for_flush = wait_for_flush
        self._late = late
        self._clock = clock or SystemClock()
        self._rows = FIRST

    def read(self, route: str, positions: Mapping[int, Position], limit: int) -> list[Page]:
        if not positions:
            return []
        limit, late = max(1, min(limit, self._rows // len(positions))), min(self._late, self._rows)
        head, *rows = self._db.read("read", *question(positions), limit, late)
        drawn, _, now, token, *_ = head
        self._db.trust(token)
        self._weigh(rows)
        if rows and self._wait_for_flush:
            self._db.run("flush")
        return [*cursor.pages(positions, rows, cursor.Look(now, drawn, limit, late))]

    def _weigh(self, rows: Sequence[RowTuple]) -> None:
        """How many rows the next read may bring: as many as fit if they are like these, and never a sudden crowd."""
        sample = rows[:: max(1, len(rows) // 32)]
        if sample:
            average = 1 + sum(len(row[PAYLOAD]) for row in sample) // len(sample)
            self._rows = max(1, min(BUDGET // average, self._rows * 4))

    def fetch(self, ids: Sequence[int]) -> list[RowTuple]:
        found = {row[0]: row for row in self._db.read("fetch", array(ids))} if ids else {}
        return [found[id] for id in ids if id in found]

    def settle(self, route: str, changes: Sequence[Changes]) -> dict[int, Settled]:
        if not changes:
            return {}
        rows = self._db.run("settle", *_settle(route, changes, self._db.token))
        seqs: dict[str, dict[int, list[int]]] = {"moved": {}, "changed": {}, "added": {}}
        for what, lane, seq in rows:
            if what == "token":
                raise InDoubt
            seqs[what].setdefault(lane, []).append(seq)
        return {
            each.lane: Settled(
                # Drawn in the order the rows were inserted, so this is their order.
                sorted(seqs["added"].get(each.lane, ())),
                len(seqs["changed"].get(each.lane, ())) < len(each.changed),
            )
            for each in changes
            if each.lane in seqs["moved"]
        }

    def wait(self, timeout: float) -> None:
        self._clock.sleep(timeout)


def question(positions: Mapping[int, cursor.Position]) -> list[str]:
    """The first six parameters of the read statement."""
    width = max(positions) + 1
    groups = cursor.groups(positions)
    fresh = [positions[lane].last if lane in positions and not positions[lane].due else None for lane in range(width)]
    return [
        array(fresh),
        array(group.seen for group in groups),
        array(group.at for group in groups),
        array(max(group.lanes.values()) for group in groups),
        array(array(map(group.lanes.get, range(width))) for group in groups),
        array(group.due for group in groups),
    ]


def _settle(route: str, changes: Sequence[Changes], token: str | None) -> list[str | None]:
    done = [(each.lane, held.seq) for each in changes for held in each.done]
    changed = [
        (each.lane, held.seq, held.edition, array(held.ids), *_state(held)) for each in changes for held in each.changed
    ]
    added = [
        (each.lane, held.key, array(held.ids), held.generation, *_state(held))
        for each in changes
        for held in each.added
    ]
    moved = [(each.lane, each.term, each.position.dump()) for each in changes]
    return [route, *_columns(moved, 3), token, *_columns(done, 2), *_columns(changed, 10), *_columns(added, 10)]


def _state(held: Held) -> tuple[object, ...]:
    return (held.state, held.attempts, held.unknowns, held.due_in, storable(held.error), held.ahead)


def _columns(rows: Iterable[tuple[object, ...]], width: int) -> list[str]:
    rows = list(rows)
    return [array(row[n] for row in rows) for n in range(width)]
