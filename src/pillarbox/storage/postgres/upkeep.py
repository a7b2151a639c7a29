"""Segments of the log and what has expired (see `ports.Upkeep`; DESIGN 2.1, R16), as the owner, on a direct connection.

Why each step is where it is: `attach` first makes a table and then attaches it, because `PARTITION OF` waits behind
every open producer; `roll` draws no transaction id before `setval`; a range goes by `DETACH … CONCURRENTLY`, because a
DROP that waits makes every producer wait behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pillarbox import crashpoints
from pillarbox.errors import NotPermitted, Retryable
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.sql import identifier

AHEAD = 3  # ranges beyond the open one
WIDTH = 10_000_000_000
BATCH = 1000
PATIENCE = 60.0  # seconds for the longest step; the server gives up sooner
TIMEOUTS = "SET statement_timeout = '50s'; SET lock_timeout = '2s'"
DETACH_WITHIN = "5s"


class Range(NamedTuple):
    """One range of ids: what the catalog knows of it, and what is noted."""

    n: int
    attached: bool | None
    pending: bool  # its detach was begun
    state: str | None
    open_n: int
    exists: bool


class PostgresUpkeep:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._db.limit = max(self._db.limit, PATIENCE)

    def attach_ahead(self) -> int:
        with self._alone() as alone:
            if not alone:
                return 0
            ranges = {each.n: each for each in self._ranges()}
            for each in ranges.values():
                if each.attached and each.state is None:  # a crash after its attach
                    self._db.run("segment_noted", each.n)
            start = next(iter(ranges.values())).open_n
            missing = [n for n in range(start, start + AHEAD + 1) if n not in ranges or not ranges[n].attached]
            for n in missing:
                self._attach(n, leftover=n in ranges and ranges[n].exists)
            return len(missing)

    def roll(self, period: float, rows: int | None) -> bool:
        with self._alone() as alone:
            if not alone:
                return False
            with self._db.transaction():
                self._db.run("roll_lock")
                due = self._db.run("roll_due", period, rows)
                for (n,) in due:
                    self._db.run("roll_ids", n)
                    crashpoints.here("roll.after_setval")
                if due or self._db.run("roll_unfinished")[0][0]:
                    self._db.run("roll_close")
            crashpoints.here("roll.after")
            return bool(due)

    def prune(self, retention: float) -> list[str]:
        with self._alone() as alone:
            if not alone:
                return []
            gone: list[str] = []
            while (n := self._next(retention)) is not None:
                (each,) = (each for each in self._ranges() if each.n == n)
                if not self._drop(each):
                    break  # a detach that is pending lets no other one begin
                gone.append(f"message_{n}")
            return gone

    def expire(self, retention: float, unique_window: float) -> int:
        with self._alone() as alone:
            if not alone:
                return 0
            return (
                self._in_batches("expire_unique_keys", unique_window)
                + self._in_batches("expire_audit", retention)
                + self._in_batches("expire_hold", retention)
                + self._in_batches("expire_kept")
            )

    def close(self) -> None:
        self._db.close()

    # ------------------------------------------------------------------ steps

    def _attach(self, n: int, *, leftover: bool) -> None:
        if leftover:  # made, never attached: a crash between
            self._ddl("segment_dropped", n)
        self._ddl("segment_made", n)
        self._ddl("segment_checked", n)
        crashpoints.here("attach.after_create")
        self._ddl("segment_attached", n)
        crashpoints.here("attach.after_attach")
        self._db.run("segment_noted", n)

    def _mark(self, retention: float) -> int | None:
        """Decide, behind the fence: a route that is being stored either holds this range or begins behind it."""
        with self._db.transaction():
            self._db.run("routes_fence")
            marked = self._db.run("prune_mark", retention)
        crashpoints.here("prune.marked")
        return marked[0][0] if marked else None

    def _next(self, retention: float) -> int | None:
        """What a crash, or a producer in the way, left half dropped; else what may go now."""
        going = [each.n for each in self._ranges() if each.state == "dropping"]
        return going[0] if going else self._mark(retention)

    def _drop(self, each: Range) -> bool:
        """Keep, detach, drop; each may have been done before a crash. False: somebody is in the way, later then."""
        try:
            if each.attached and not each.pending:
                self._db.run("prune_keep", each.n)
                crashpoints.here("prune.kept")
                self._detach(each.n)
            elif each.attached:
                self._ddl("segment_detach_finished", each.n)
            crashpoints.here("prune.detached")
            if each.exists:
                self._ddl("segment_dropped", each.n)
        except Retryable:
            return False
        crashpoints.here("prune.dropped")
        self._db.run("prune_forget", each.n)
        return True

    def _detach(self, n: int) -> None:
        """A writer that stays open for days is not waited for: what it leaves pending can be finalized beside it."""
        self._db.execute(f"SET statement_timeout = '{DETACH_WITHIN}'")
        try:
            self._ddl("segment_detached", n)
        except Retryable:
            self._ddl("segment_detach_finished", n)
        finally:
            if self._db.connected:
                self._db.execute(TIMEOUTS)

    def _ddl(self, statement: str, n: int) -> None:
        """DDL takes no parameters: the numbers of a range stand in its text."""
        text = self._db.text(statement)
        for name, number in (("n", n), ("first", n * WIDTH), ("end", (n + 1) * WIDTH)):
            text = text.replace(f"{{{name}}}", f"{number:d}")
        self._db.execute(text)

    def _in_batches(self, statement: str, *parameters: float) -> int:
        total, gone = 0, BATCH
        while gone == BATCH:
            gone = len(self._db.run(statement, *parameters, BATCH))
            total += gone
        return total

    def _ranges(self) -> list[Range]:
        return [Range(*row) for row in self._db.run("segments")]

    # ------------------------------------------------------------------ who may

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether we are the one who keeps the segments now; as their owner."""
        self._become_owner()
        alone = bool(self._db.run("upkeep_lock")[0][0])
        try:
            yield alone
        finally:
            if alone and self._db.connected:  # a lost connection has let go of it
                self._db.run("upkeep_unlock")

    def _become_owner(self) -> None:
        ((owner, may),) = self._db.run("upkeep_owner")
        if self._db.pooled:
            raise NotPermitted(
                "Upkeep of segments cannot run through a pooler.",
                "Give a direct connection as `[database] maintenance_url`, or run `pillarbox upkeep` from cron.",
            )
        if not may:
            raise NotPermitted(
                f"Upkeep of segments must run as {owner!r}, who owns the log, and this role is not a member of it.",
                "Give that role's URL as `[database] maintenance_url`, or run `pillarbox upkeep` from cron.",
            )
        self._db.execute(f"SET ROLE {identifier(owner)}; {TIMEOUTS}")
