"""Hand messages to the sink and collect its answers: the only place that waits for a broker.

Hot: `send_some` and `collect` run once a batch, and nothing in them is done per message but encoding (bench `kafka`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pillarbox import crashpoints
from pillarbox import events as ev
from pillarbox.clock import Clock
from pillarbox.outcome import Record
from pillarbox.ports import RowTuple
from pillarbox.relay.encode import CannotEncode, Encode
from pillarbox.relay.flight import Flight, Item, try_open
from pillarbox.relay.judge import Judge
from pillarbox.relay.lane.holds import Entry, OrderKey
from pillarbox.relay.lane.window import Window
from pillarbox.relay.sift import Destinations, Sifting

MANY_FAILING = 8  # from so many on each second probe is one of them, not a message that was never tried
LOOK_PAUSE = 0.01  # seconds between two looks through the stopped keys


class Publisher:
    """One route's way to its sink."""

    def __init__(self, judge: Judge, encode: Encode, clock: Clock, *, batch: int, send_timeout: float) -> None:
        self.clock = clock
        self.judge = judge
        self.flight: Flight = judge.flight
        self.windows: dict[int, Window] = judge.windows
        self.encode = encode
        self.batch = batch
        self.send_timeout = send_timeout
        self._look_at = 0.0
        self.destinations = Destinations(judge)
        self._turn = 0
        self._first_lane = 0

    # ---------------------------------------------------------------- answers

    def collect(self, now: float, timeout: float = 0.0) -> int:
        """Take what the sink has answered; how many were accepted."""
        flight = self.flight
        if not flight.wire:
            return 0
        batch = next(iter(flight.wire.values()))
        accepted, failed = flight.sink.answers(timeout)
        count = 0
        if accepted:
            count = self.judge.accepted(accepted, now)
            self._report(count, batch.sent_at, next(iter(batch.items.values())), now)
            crashpoints.here("answer.after")
        if failed:
            self.judge.failed(failed, now)
        if accepted or failed:
            self._look_at = 0.0
        return count

    def _report(self, count: int, sent_at: float, sample: Item, now: float) -> None:
        row = sample.row if isinstance(sample, Entry) else sample
        waits = [] if row is None or len(row) < 4 else self._age(row[3])
        self.judge.emit(ev.Delivered(self.judge.route, self.judge.sink, count, waits, [now - sent_at]))

    def _age(self, message_id: bytes) -> list[float]:
        """Seconds since a UUIDv7 was drawn; a sample for the histogram, by the wall clocks of two machines."""
        if len(message_id) != 16 or message_id[6] >> 4 != 7:
            return []
        return [max(0.0, self.clock.now().timestamp() - int.from_bytes(message_id[:6], "big") / 1000)]

    def check_deadline(self, now: float) -> None:
        """Hang up on what has been unanswered for too long (R3)."""
        since = self.flight.oldest_since()
        if since is not None and now - since >= self.send_timeout:
            self.judge.abandon(f"no answer within {self.send_timeout:g} s", now)

    # ---------------------------------------------------------------- sending

    def send_some(self, now: float, deadline: Callable[[], bool]) -> int:
        """Hand over what may go now; how many. Nothing is handed over once `deadline()` says no."""
        flight, breaker = self.flight, self.judge.breaker
        room = min(flight.room(), self.batch)
        if room <= 0 or not breaker.allows(len(flight.wire), now):
            return 0
        if breaker.is_open:
            room = 1
        were_first = bool(flight.first)
        items, records = self._choose(room, now)
        if not items:
            return 0
        reason = try_open(flight)
        if reason or not deadline():
            if were_first:  # more of their keys may still be there
                flight.first.extendleft(reversed(items))
            else:
                self.put_back(items)
            if reason:
                self.sink_is_away(now, reason)
            return 0
        flight.send(records, items, now)
        if not flight.pipelined:
            self.judge.turns.busy.update(self.judge.key_of(item) for item in items)
        return len(items)

    def _choose(self, room: int, now: float) -> tuple[list[Item], list[Record]]:
        """What goes next: what an ended session left first, then what failed and is due, then what is ready."""
        if self.flight.first:
            return self._sift([self._take_first(room, now)], now)
        fresh_first = self.judge.breaker.is_open and (len(self.judge.failing) < MANY_FAILING or self._turn % 2 == 0)
        self._turn += 1
        entries: list[Item] = [] if fresh_first else self._take_entries(room, now)
        chosen = self._sift(self._chunks(entries, room), now) if entries or self.destinations.away else self._fresh(room, now)
        if fresh_first and not chosen[0]:
            return self._sift([self._take_entries(room, now)], now)
        return chosen

    def _fresh(self, room: int, now: float) -> tuple[list[Item], list[Record]]:
        rows = self._take_ready(room)
        try:
            return self._unless_away(rows, [self.encode(row, 0) for row in rows], now)
        except CannotEncode:  # which one it is is found row by row
            return self._sift([rows], now)

    def _chunks(self, entries: list[Item], room: int) -> Iterator[Sequence[Item]]:
        """The entries with rows to fill the room; then, while nothing can go, all that is ready."""
        rows = self._take_ready(room - len(entries)) if len(entries) < room else []
        yield [*entries, *rows]
        while rows:
            rows = self._take_ready(room)
            yield rows

    def _take_first(self, room: int, now: float) -> list[Item]:
        first = self.flight.first
        items: list[Item] = []
        while first and len(items) < room:
            item = first.popleft()
            if not isinstance(item, Entry) or self._is_due(item, now):
                items.append(item)
        return items

    def _is_due(self, entry: Entry, now: float) -> bool:
        window = self.windows.get(entry.lane)
        return window is not None and any(e is entry for e in window.sendable(now, pipelined=self.flight.pipelined))

    def _take_entries(self, room: int, now: float) -> list[Item]:
        if now < self._look_at:
            return []
        items: list[Item] = []
        for window in self.windows.values():
            if window.stopped or window.replays:
                items += [e for e in window.sendable(now, pipelined=self.flight.pipelined)
                          if e.row is not None and not (window.leaving and e.has_failed)]  # fmt: skip
        if len(items) < room:
            self._look_at = now + LOOK_PAUSE
        return items if len(items) <= room else _longest_due(items)[:room]

    def _take_ready(self, room: int) -> list[RowTuple]:
        """Rows from the lanes in turn, each lane's in read order."""
        rows: list[RowTuple] = []
        windows = list(self.windows.values())
        self._first_lane += 1
        for at in range(len(windows)):
            window = windows[(at + self._first_lane) % len(windows)]
            ready = window.ready
            if not ready:
                continue
            if not self.flight.pipelined:
                self.judge.turns.take(window, rows, room)
            elif len(ready) <= room - len(rows):
                rows.extend(ready)
                ready.clear()
            else:
                pop = ready.popleft
                rows.extend([pop() for _ in range(room - len(rows))])
            if len(rows) >= room:
                break
        return rows

    def put_back(self, items: Iterable[Item]) -> None:
        """They were not handed over; entries stay in their queues by themselves."""
        for item in reversed(list(items)):
            window = self.judge.window_of(item)
            if window is None or isinstance(item, Entry):
                continue
            if self.flight.pipelined:
                window.ready.appendleft(item)
            else:
                self.judge.turns.put_back(window, item)

    def take_behind(self, items: Sequence[Item]) -> list[Item]:
        """What an ended session left of the keys of these, which wait now: nothing of a key may pass another."""
        first = self.flight.first
        if not first or not items:
            return []
        keys = {self.judge.key_of(item) for item in items}
        behind = [item for item in first if self.judge.key_of(item) in keys]
        rest = [item for item in first if self.judge.key_of(item) not in keys]
        first.clear()
        first.extend(rest)
        return behind

    # ---------------------------------------------------------------- what cannot be sent

    def _unless_away(self, rows: list[RowTuple], records: list[Record], now: float) -> tuple[list[Item], list[Record]]:
        """The fast path's question to the sink: are these destinations there?"""
        if not rows or not self.destinations.ask(records):
            return list(rows), records
        return self._sift([rows], now)

    def _sift(self, chunks: Iterable[Sequence[Item]], now: float) -> tuple[list[Item], list[Record]]:
        """Slow path: item by item, set apart what cannot be encoded and what has nowhere to go."""
        sifting = Sifting(self, now)
        for chunk in chunks:
            pairs = [self._encoded(item) for item in chunk]
            sifting.away = self.destinations.ask([r for _, r, _ in pairs if r is not None])
            for item, record, problem in pairs:
                sifting.take(item, record, problem)
            if sifting.items:
                break
        return sifting.finish()

    def _encoded(self, item: Item) -> tuple[Item, Record | None, str]:
        row, generation = (item.row, item.generation) if isinstance(item, Entry) else (item, 0)
        if not row:
            return item, None, "the message is gone from the log"
        try:
            return item, self.encode(row, generation), ""
        except CannotEncode as e:
            return item, None, str(e)

    def sink_is_away(self, now: float, reason: str) -> None:
        breaker = self.judge.breaker
        was_open = breaker.is_open
        breaker.is_away(now, reason)
        if not was_open:
            self.judge.emit(ev.SinkDown(self.judge.route, self.judge.sink, reason))


def _longest_due(entries: list[Item]) -> list[Item]:
    """A key's together and in order. First those whose destination has not failed them, then whose head has been due
    for longest: one probe at a time must reach them all."""
    heads: dict[tuple[int, OrderKey, int], tuple[bool, float]] = {}
    places = [(e.lane, e.key, e.generation and e.id) for e in entries if isinstance(e, Entry)]
    for place, entry in zip(places, entries, strict=True):
        if isinstance(entry, Entry):
            heads.setdefault(place, (entry.failed != "", entry.next_at))
    order = sorted(range(len(entries)), key=lambda at: heads[places[at]])
    return [entries[at] for at in order]
