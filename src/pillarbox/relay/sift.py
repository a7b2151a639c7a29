"""Set apart what cannot be sent: what cannot be encoded, and what has nowhere to go."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pillarbox import events as ev
from pillarbox.outcome import Failed, Handle, Outcome, Record
from pillarbox.relay.flight import Item, try_open
from pillarbox.relay.judge import Judge
from pillarbox.relay.lane.holds import Entry, OrderKey

if TYPE_CHECKING:
    from pillarbox.relay.publish import Publisher

# The first is often "asked, not answered yet", and the cause comes later; a client library can go on naming others.
MOST_REASONS = 3


class Destinations:
    """Which of a route's destinations are away."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.flight = judge.flight
        self.away: dict[str, str] = {}
        self._said: dict[str, set[str]] = {}

    def ask(self, records: Iterable[Record]) -> dict[str, str]:
        """Those of these records that can take nothing now, with the reason. Nothing if there is no session."""
        return self.look_at({record[1] for record in records})

    def look_at(self, topics: Collection[str]) -> dict[str, str]:
        """The same, of topics that are known before any message is."""
        if not topics or try_open(self.flight):
            return {}
        away = self.flight.sink.away(list(topics))
        emit, route, sink = self.judge.emit, self.judge.route, self.judge.sink
        for topic, why in away.items():
            said = self._said.setdefault(topic, set())
            if why not in said and len(said) < MOST_REASONS:
                said.add(why)
                emit(ev.DestinationAway(route, sink, topic, why))
        for topic in [t for t in self.away if t in topics and t not in away]:
            del self.away[topic], self._said[topic]
            emit(ev.DestinationBack(route, sink, topic))
        self.away.update(away)
        return away

    def forget(self) -> None:
        """Whoever has lanes now knows better."""
        for topic in self.away:
            self.judge.emit(ev.DestinationBack(self.judge.route, self.judge.sink, topic))
        self.away.clear()
        self._said.clear()


class Sifting:
    """One pass over items of which some cannot go: order is kept for every key, also against what is on the wire."""

    def __init__(self, publisher: Publisher, now: float) -> None:
        self.p = publisher
        self.away: dict[str, str] = {}
        self.now = now
        self.items: list[Item] = []
        self.records: list[Record] = []
        self.back: list[Item] = []
        self.judged: list[tuple[Item, Failed]] = []
        self.moving: set[OrderKey] | None = None  # keys on the wire or going now, or that must wait
        self.waiting: set[OrderKey] = set()

    def take(self, item: Item, record: Record | None, problem: str) -> None:
        """Decide on one."""
        judge = self.p.judge
        key = judge.key_of(item)
        window = judge.window_of(item)
        if window is None:
            return
        if key in self.waiting:
            self.back.append(item)
        elif record is not None and record[1] not in self.away:
            self.items.append(item)
            self.records.append(record)
            self._keys().add(key)
        elif key in self._keys():
            self._wait(key, item)
        elif record is None:
            self._judge(item, key, Failed(_handle(item), Outcome.REFUSED, problem))
        else:  # a failing answer like any other: it leaves its place in the window to what may prove something (R10)
            self._judge(item, key, Failed(_handle(item), Outcome.UNAVAILABLE, self.away[record[1]]))

    def _keys(self) -> set[OrderKey]:
        if self.moving is None:
            judge, wire = self.p.judge, self.p.flight.wire
            self.moving = {judge.key_of(batch.items[handle]) for handle, batch in wire.items()}
        return self.moving

    def _wait(self, key: OrderKey, item: Item) -> None:
        self.waiting.add(key)
        self.back.append(item)

    def _judge(self, item: Item, key: OrderKey, failed: Failed) -> None:
        self.waiting.add(key)
        if isinstance(item, Entry):
            item.goes_out()
        self.judged.append((item, failed))

    def finish(self) -> tuple[list[Item], list[Record]]:
        """Put back what must wait, stop the keys of what failed."""
        p = self.p
        p.put_back([*self.back, *p.take_behind(self.back)])
        for item, failed in self.judged:
            p.judge.free_key(item)  # what was parked behind it is swept behind it
            p.judge.one_failed(item, failed, self.now, sent=False)
        if self.judged:
            p.judge.sweep()
        return self.items, self.records


def _handle(item: Item) -> Handle:
    return item.handle if isinstance(item, Entry) else item[0]
