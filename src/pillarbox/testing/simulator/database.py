"""The ports of storage in memory, with everything that a network and a clock may do to a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from pillarbox.errors import DatabaseUnavailable
from pillarbox.ports import Changes, Held, Page, RouteState, RowTuple, Settled, Survey, Taken
from pillarbox.storage.memory import MemorySource, MemoryStore, Token
from pillarbox.storage.memory.log import MemoryLog
from pillarbox.testing.simulator.ledger import Applied, Broken, Known

if TYPE_CHECKING:
    from pillarbox.testing.simulator.node import Node
    from pillarbox.testing.simulator.world import World

T = TypeVar("T")


class SimLog(MemoryLog):
    """The database of a world: tells the ledger what was committed."""

    world: World

    def append(self, rows: Iterable[RowTuple]) -> None:
        rows = list(rows)
        places = [len(self.lanes[row[1]].rows) + self.lanes[row[1]].base for row in rows]
        super().append(rows)
        seen: dict[int, int] = {}
        for row, place in zip(rows, places, strict=True):
            n = seen[row[1]] = seen.get(row[1], -1) + 1
            self.world.committed(row, place + n)


class Connection:
    """One relay's connection: each statement may be slow, fail, or lose its reply."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.world = node.world
        self.store = MemoryStore(node.world.log)
        self.source = SimSource(self)
        self.leases = SimLeases(self)
        self.chores = SimChores(self)

    def ask(self, name: str, call: Callable[[], T], late: Callable[[], object] | None = None) -> T:
        """Run a statement."""
        self.node.pause_or_die(name)
        self.world.tell("asks", self.node, name)
        if self.world.database_away:
            raise DatabaseUnavailable("simulated: away")
        fault = self.node.lose.pop(name, "")
        if fault == "before":
            raise DatabaseUnavailable("simulated: lost before")
        if fault in ("late", "dying") and late is not None:
            self._later(name, late, dies=fault == "dying")
            raise DatabaseUnavailable("simulated: lost, applies later")
        result = call()
        if self.node.pause_at is not None and self.node.pause_at[0] == f"{name} reply":
            self.node.pause_or_die(f"{name} reply")
        if fault:
            raise DatabaseUnavailable("simulated: reply lost")
        return result

    def _later(self, name: str, late: Callable[[], object], *, dies: bool) -> None:
        """The statement is under way still; its relay may not live to see it applied."""
        low, high = (2.2, 3.8) if dies else (0.01, 3.0)  # about when its lease ends
        self.world.after(self.world.dice.between(f"late {name}", low, high), late)
        if dies:
            self.node.doomed = True
            self.world.after(6.0, self.node.start)


class SimSource:
    """`Source`, and what each settle really did."""

    def __init__(self, connection: Connection) -> None:
        self.c = connection
        self.world = connection.world

    def read(self, route: str, positions: Mapping[int, int], limit: int) -> list[Page]:
        return self.c.ask("read", lambda: self.c.store.source.read(route, positions, limit))

    def fetch(self, ids: Sequence[int]) -> list[RowTuple]:
        return self.c.ask("fetch", lambda: self.c.store.source.fetch(ids))

    def settle(self, route: str, changes: Sequence[Changes]) -> dict[int, Settled]:
        token = Token(self.world.log)
        token.value = self.c.store.source._token.value  # noqa: SLF001 - as the statement was sent

        def late() -> None:
            if token.value == self.world.log.token:
                self.apply(MemorySource(token), route, changes)

        dying = self.c.node.lose.get("settle") == "dying"
        if dying and not any(change.done or change.changed or change.added for change in changes):
            return self.apply(self.c.store.source, route, changes)  # it waits for one that matters to the next owner
        return self.c.ask("settle", lambda: self.apply(self.c.store.source, route, changes), late)

    def wait(self, timeout: float) -> None:
        raise AssertionError("the engine waits by itself")

    def apply(self, source: MemorySource, route: str, changes: Sequence[Changes]) -> dict[int, Settled]:
        """Settle, and judge it."""
        world, log, node = self.world, self.world.log, self.c.node
        world.advance()
        changed = [held.seq for change in changes for held in change.changed]
        if node.ambush and changed:
            verb, node.ambush = node.ambush, ""
            world.operate(route, verb, changed)
        stored = log.routes.get(route)
        before = list(stored.cursors) if stored else []
        rows = {seq: h.held for seq, h in log.holds.items() if h.route == route}
        settled = source.settle(route, changes)
        world.note_holds(route)
        for change in changes:
            if change.lane in settled and stored is not None:
                if change.position < before[change.lane]:
                    raise Broken(f"CURSOR: {route} lane {change.lane} went back")
                world.ledger.settles(route, self._applied(route, change, before[change.lane], rows))
                world.progress()
        world.tell("settles", self.c.node, route, changes, sorted(settled))
        return settled

    def _applied(self, route: str, change: Changes, start: int, rows: dict[int, Held]) -> Applied:
        passed = self.world.order[change.lane][start : change.position]
        after = {seq: h.held for seq, h in self.world.log.holds.items() if h.route == route}
        removed = []
        for seq in {h.seq for h in (*change.done, *change.changed)}:
            was, now = rows.get(seq), after.get(seq)
            if was is not None:
                left = set(now.ids) if now is not None else set()
                removed += [(id_, was.generation) for id_ in was.ids if id_ not in left]
        written: list[tuple[Held | None, Held]] = [
            (rows[h.seq], after[h.seq]) for h in change.changed
            if h.seq in after and rows[h.seq].edition != after[h.seq].edition
        ]  # fmt: skip
        written += [(None, held) for seq, held in after.items() if seq not in rows and held.lane == change.lane]
        return Applied(change.lane, passed, removed, written)


class SimLeases:
    """`Leases`, and who was granted what."""

    def __init__(self, connection: Connection) -> None:
        self.c = connection
        self.world = connection.world
        self.real = connection.store.leases

    def join(self, relay: UUID, serves: Sequence[str], lease: float) -> None:
        def call() -> None:
            self.real.join(relay, serves, lease)
            self.c.node.granted(relay, lease)

        self.c.ask("join", call)

    def renew(self, relay: UUID, serves: Sequence[str], lease: float, says: Sequence[str] = ()) -> bool:
        def call() -> bool:
            alive = self.real.renew(relay, serves, lease, says)
            if alive:
                self.c.node.granted(relay, lease)
            return alive

        return self.c.ask("renew", call)

    def expel(self) -> int:
        return self.c.ask("expel", self.real.expel)

    def survey(self) -> Survey:
        survey = self.c.ask("survey", self.real.survey)
        self.c.node.surveys.append(self.world.clock.time)
        return survey

    def take(self, relay: UUID, route: str, wanted: int) -> list[Taken]:
        return self.c.ask("take", lambda: self._noted(self.real.take(relay, route, wanted)))

    def retake(self, relay: UUID, lanes: Sequence[tuple[str, int]]) -> list[Taken]:
        return self.c.ask("retake", lambda: self._noted(self.real.retake(relay, lanes)))

    def _noted(self, taken: list[Taken]) -> list[Taken]:
        for each in taken:
            self.world.taken(each, self.c.node)
        return taken

    def load(self, route: str, lanes: Sequence[int]) -> list[Held]:
        return self.c.ask("load", lambda: self.real.load(route, lanes))

    def give_back(self, relay: UUID, route: str, lanes: Sequence[tuple[int, int]]) -> None:
        def call() -> None:
            self.world.given_back(route, [lane for lane, _ in lanes], self.c.node)
            self.real.give_back(relay, route, lanes)

        self.c.ask("give_back", call)


class SimChores:
    """`Chores`."""

    def __init__(self, connection: Connection) -> None:
        self.c = connection

    def move_due(self, limit: int) -> int:
        return self.c.ask("move_due", lambda: self.c.store.chores.move_due(limit))

    def judge_unrouted(self, routes: Sequence[RouteState], bury: bool) -> int:
        return self.c.ask("judge_unrouted", lambda: self.c.store.chores.judge_unrouted(routes, bury))


def known_of(row: RowTuple, place: int, topic: str, nature: str) -> Known:
    """What the ledger keeps of a committed row."""
    return Known(row[0], row[1], place, row[2], int(row[6]), nature, topic)
