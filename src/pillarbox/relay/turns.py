"""One message of a key at a time, for sinks that do not promise to stop at a failure (R6)."""

from __future__ import annotations

from collections.abc import Iterator

from pillarbox.ports import RowTuple
from pillarbox.relay.lane.holds import OrderKey
from pillarbox.relay.lane.window import Window


class Turns:
    """Which keys are on the wire, and what of theirs is parked until the answer comes. Empty for fail-stop sinks."""

    def __init__(self) -> None:
        self.busy: set[OrderKey] = set()
        self._parked: dict[OrderKey, list[RowTuple]] = {}

    def take(self, window: Window, rows: list[RowTuple], room: int) -> None:
        """Move what may go from the lane's ready rows to `rows`; the rest of a key is parked."""
        ready = window.ready
        while ready and len(rows) < room:
            row = ready.popleft()
            key = window.order_key(row)
            if key in self.busy:
                self._parked.setdefault(key, []).append(row)
            else:
                self.busy.add(key)
                rows.append(row)

    def free(self, window: Window, key: OrderKey) -> None:
        """The key is not on the wire any more: the next one of it may go."""
        self.busy.discard(key)
        window.ready.extendleft(reversed(self._parked.pop(key, [])))

    def put_back(self, window: Window, row: RowTuple) -> None:
        """It was not handed over after all; it stays in front of what was parked behind it."""
        self.free(window, window.order_key(row))
        window.ready.appendleft(row)

    def drop(self, ids: set[int]) -> None:
        """A person has given these up while they waited for another's answer."""
        if ids:
            left = {key: [row for row in rows if row[0] not in ids] for key, rows in self._parked.items()}
            self._parked = {key: rows for key, rows in left.items() if rows}

    def end(self, windows: dict[int, Window]) -> None:
        """The session is over: nothing is on the wire, what was parked is ready again."""
        for rows in self._parked.values():
            window = windows.get(rows[0][1])
            if window is not None:
                window.ready.extendleft(reversed(rows))
        self._parked.clear()
        self.busy.clear()

    def parked(self) -> Iterator[RowTuple]:
        """Everything that waits for its turn."""
        for rows in self._parked.values():
            yield from rows
