"""A lane on a stage: a window over a database in memory, and a sink that is played by the test."""

from collections.abc import Sequence
from typing import Any

from pillarbox import events as ev
from pillarbox.outcome import Failed, Outcome, Record, SinkClass, Traits
from pillarbox.ports import Held
from pillarbox.relay.flight import Flight
from pillarbox.relay.judge import Judge
from pillarbox.relay.lane.holds import Entry, revive
from pillarbox.relay.lane.plan import Plan, apply, plan
from pillarbox.relay.lane.window import Window
from pillarbox.storage.memory import MemoryLog, MemoryStore


class SilentSink:
    """Takes everything and says nothing: the test answers."""

    def __init__(self, delivery: SinkClass = SinkClass.FAIL_STOP) -> None:
        self.traits = Traits(delivery)
        self.hung_up = 0

    def open(self) -> None: ...

    def send(self, batch: Sequence[Record]) -> None: ...

    def hang_up(self) -> None:
        self.hung_up += 1


class Stage:
    """One lane of one route."""

    def __init__(self, *, ordered: bool = True, delivery: SinkClass = SinkClass.FAIL_STOP) -> None:
        self.log = MemoryLog()
        self.log.store_route("main", {"sink": "s"})
        self.store = MemoryStore(self.log)
        self.log.routes["main"].terms[0] = 1
        self.window = Window(0, 1, 0, set(), ordered=ordered)
        self.sink = SilentSink(delivery)
        self.flight = Flight(self.sink)  # type: ignore[arg-type]
        self.events: list[ev.Event] = []
        self.judge = Judge("main", "s", self.flight, {0: self.window}, self.window.done, emit=self.events.append)

    def add(self, *keys: str | None) -> list[int]:
        return [self.log.add(key=key) for key in keys]

    def read(self, limit: int = 100) -> None:
        for page in self.store.source.read("main", {0: self.window.reading}, limit):
            self.window.admit(page, None)

    def send(self, *ids: int, now: float = 0.0) -> None:
        """Hand these over in one batch: from what is ready, or from the stopped keys."""
        entries = {e.id: e for e in self.window.sendable(now, pipelined=True)}
        rows: dict[int, Any] = {row[0]: row for row in (*self.window.ready, *self.flight.first)}
        items: list[Any] = [entries.get(id_) or rows[id_] for id_ in ids]
        self.window.ready = type(self.window.ready)(row for row in self.window.ready if row[0] not in ids)
        self.flight.first = type(self.flight.first)(item for item in self.flight.first if item not in items)
        self.flight.open()
        self.flight.send([(id_, "t", None, b"", []) for id_ in ids], items, now)

    def accept(self, *ids: int, now: float = 0.0) -> None:
        self.judge.accepted(ids, now)

    def fail(self, *ids: int, outcome: Outcome = Outcome.REFUSED, now: float = 0.0) -> None:
        self.judge.failed([Failed(id_, outcome, "played") for id_ in ids], now)

    def plan(self, now: float = 0.0) -> Plan | None:
        return plan(self.window, now)

    def settle(self, now: float = 0.0) -> Plan | None:
        """Plan, write, apply."""
        p = plan(self.window, now)
        if p is not None:
            apply(p, self.store.source.settle("main", [p.changes()])[0])
        return p

    def load_live(self) -> None:
        """What waits in stopped keys becomes live, as the reader does it."""
        for stopped in self.window.hungry():
            run, ids = stopped.next_ids(64)
            rows = {row[0]: row for row in self.store.source.fetch(ids)}
            made = [revive(run, i, rows[i], 0.0) if run else Entry(0, i, stopped.key, rows[i]) for i in ids]
            for entry in made:
                entry.key = stopped.key
            stopped.make_live(made)

    @property
    def cursor(self) -> int:
        return self.log.routes["main"].cursors[0]

    def rows(self) -> list[tuple[str, list[int], int]]:
        """What `hold` says: (state, ids, attempts)."""
        return [(h.held.state, list(h.held.ids), h.held.attempts) for _, h in sorted(self.log.holds.items())]

    def held(self) -> list[Held]:
        return [h.held for _, h in sorted(self.log.holds.items())]
