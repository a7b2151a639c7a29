"""What a route has on the wire: the session to its sink, from opening to hanging up (R3, R6, R7).

Only this file and `publish.py` speak to a sink.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from pillarbox import crashpoints
from pillarbox.errors import SinkUnavailable
from pillarbox.outcome import Handle, Record, SinkClass
from pillarbox.ports import RowTuple, Sink
from pillarbox.relay.lane.holds import Entry

Item = RowTuple | Entry


class Batch:
    """What was handed over in one call, and when."""

    __slots__ = ("items", "sent_at")

    def __init__(self, items: Mapping[Handle, Item], sent_at: float) -> None:
        self.items = items
        self.sent_at = sent_at


class Flight:
    """The messages on the wire, in the order of sending, and how many more may go."""

    def __init__(self, sink: Sink, opened: Callable[[], None] = lambda: None) -> None:
        self.sink = sink
        self._opened = opened
        self.traits = sink.traits
        self.pipelined = sink.traits.delivery is SinkClass.FAIL_STOP
        self.most = sink.traits.max_in_flight
        self.pace = self.most
        self.wire: dict[Handle, Batch] = {}
        self.batches: deque[Batch] = deque()
        self.entries: dict[Handle, Entry] = {}  # second gear on the wire
        self.first: deque[Item] = deque()  # left unanswered by the last session: sent before all others
        self.is_open = False
        self.has_clients = False  # a sink may keep what one session has opened for the next one

    def open(self) -> None:
        """Begin a session if there is none. Raises `SinkUnavailable`."""
        if not self.is_open:
            self.has_clients = True
            self.sink.open()
            self.is_open = True
            self._opened()

    def room(self) -> int:
        """How many more may be handed over."""
        return self.pace - len(self.wire)

    def send(self, records: Sequence[Record], items: Sequence[Item], now: float) -> None:
        """Hand over; each will have one answer, or none if the session ends."""
        batch = Batch(dict(zip([r[0] for r in records], items, strict=True)), now)
        self._forget_answered()
        self.batches.append(batch)
        self.wire.update(dict.fromkeys(batch.items, batch))
        for item in items:
            if isinstance(item, Entry):
                item.sent = True
                item.goes_out()
                self.entries[item.handle] = item
        crashpoints.here("send.before")
        self.sink.send(records)
        crashpoints.here("send.after")

    def landed(self, accepted: Iterable[Handle]) -> tuple[list[Handle], list[Entry]]:
        """Take what was accepted off the wire: the handles that were on it, and the entries among them."""
        pop, entries = self.wire.pop, self.entries
        handles = [h for h in accepted if pop(h, None) is not None]
        found = []
        if entries:
            found = [entries.pop(h) for h in handles if h in entries]
            for entry in found:
                entry.sent = False
        if not self.wire:
            self._window_answered()
        return handles, found

    def take_off(self, handle: Handle) -> tuple[Item, Batch] | None:
        """Take one that failed off the wire, and the batch it went with; None if it is not on it (an answer from
        before)."""
        batch = self.wire.pop(handle, None)
        if batch is None:
            return None
        entry = self.entries.pop(handle, None)
        if entry is not None:
            entry.sent = False
            return entry, batch
        return batch.items[handle], batch

    def _forget_answered(self) -> None:
        """Batches before the oldest one that has anything on the wire; a busy wire is never empty."""
        oldest = next(iter(self.wire.values()), None)
        while self.batches and self.batches[0] is not oldest:
            self.batches.popleft()

    def _window_answered(self) -> None:
        self.batches.clear()
        if self.pace < self.most:
            self.pace = min(2 * self.pace, self.most)

    def oldest_since(self) -> float | None:
        """When the oldest unanswered message was handed over."""
        batch = next(iter(self.wire.values()), None)
        return None if batch is None else batch.sent_at

    def in_order(self, and_also: Mapping[Handle, Batch] | None = None) -> list[Item]:
        """What is on the wire, and these of these batches, in the order of sending. A message that was sent again is
        in an earlier batch, too: only the one it went with last counts."""
        flying = {**self.wire, **(and_also or {})}
        return [item for batch in self.batches for handle, item in batch.items.items() if flying.get(handle) is batch]

    def hang_up(self, and_also: Mapping[Handle, Batch] | None = None) -> list[Item]:
        """End the session (R7): what was unanswered, in its order. The next one starts with one in flight."""
        crashpoints.here("hangup.before")
        if self.is_open:
            self.sink.hang_up()
        self.is_open = False
        crashpoints.here("hangup.after")
        items = self.in_order(and_also)
        for entry in self.entries.values():
            entry.sent = False
        self.wire.clear()
        self.entries.clear()
        self.batches.clear()
        if items:
            self.pace = 1
        return items

    def close(self) -> None:
        """End the session in good order, and let go of whatever the sink has open; nothing is on the wire."""
        if self.has_clients:
            self.is_open = self.has_clients = False
            self.sink.close()


def try_open(flight: Flight) -> str:
    """Open; why not, or nothing."""
    try:
        flight.open()
    except SinkUnavailable as e:
        return str(e)
    return ""
