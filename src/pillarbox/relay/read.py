"""The next pages of a route's lanes, and what waits behind stopped keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pillarbox import crashpoints
from pillarbox.config import RelayConfig
from pillarbox.ports import RowTuple, Source
from pillarbox.relay.lane.holds import Entry, Stopped, revive
from pillarbox.relay.lane.window import Window

LOADED_AT_ONCE = 64  # messages of one stopped key
FRESH_A_LANE = 250  # rows of one read, at least; a lane may go over its window by so many
POLL_GROWTH = 1.5


class Reader:
    """Reads as long as there is room: often while messages keep coming, seldom when the log is idle."""

    def __init__(
        self, route: str, source: Source, windows: Mapping[int, Window], config: RelayConfig,
        is_sending: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.route = route
        self.source = source
        self.windows = windows
        self.config = config
        self.is_sending = is_sending
        self.wanted: Callable[[RowTuple], bool] | None = None  # the route's match; None: everything
        self.next_at = 0.0
        self.poll = config.poll_min
        self.is_caught_up = False  # the last read found nothing

    def read(self, now: float) -> int:
        """The next page of every lane that has room; how many rows came."""
        c = self.config
        windows = self.windows.values()
        reading = [w for w in windows if not w.leaving and len(w.stopped) < c.held_keys and self._has_room(w)]
        if not reading or sum(w.bytes for w in windows) >= c.buffer_bytes:
            self.next_at = now + c.poll_min
            return 0
        limit = min(c.batch, c.window, max(FRESH_A_LANE, c.batch // len(reading)))
        pages = self.source.read(self.route, {w.lane: w.reading for w in reading}, limit)
        crashpoints.here("read.after")
        count = 0
        for page in pages:
            self.windows[page.lane].admit(page, self.wanted)
            count += len(page.rows)
        for window in reading:
            window.looked(found=count > 0)
        self.is_caught_up = not count and len(reading) == len(self.windows)
        self.poll = c.poll_min if count else min(c.poll_max, self.poll * POLL_GROWTH)
        self.next_at = now if count >= limit else now + self.poll
        return count

    def _has_room(self, window: Window) -> bool:
        """W, or else a lane that waits for proof (R10) and has nothing left to send: only something new can show that
        the sink is well, and what is accepted above the unproven failure must not keep it out."""
        if window.room(self.config.window) > 0:
            return True
        unproven = any(entry.failed == "?" for stopped in window.stopped.values() for entry in stopped.live)
        return unproven and not window.ready and not self.is_sending()

    def load_hungry(self, now: float) -> None:
        """Fetch the messages whose turn has come behind stopped keys, and replays."""
        wanted: list[Entry] = []
        for window in self.windows.values():
            for stopped in window.hungry():
                if not (window.leaving and stopped.runs):  # what is in `hold` waits for the next owner
                    wanted += self._make_live(window, stopped, now)
            if not window.leaving:
                wanted += [e for e in window.replays.values() if e.row is None and e.may_send(now)]
        if wanted:
            rows = {row[0]: row for row in self.source.fetch(sorted({entry.id for entry in wanted}))}
            for entry in wanted:
                entry.row = rows.get(entry.id, ())  # (): it is gone, and will be refused

    def _make_live(self, window: Window, stopped: Stopped, now: float) -> list[Entry]:
        run, ids = stopped.next_ids(LOADED_AT_ONCE)
        if run is None:
            entries = [Entry(window.lane, i, stopped.key, None) for i in ids]
        else:
            entries = [revive(run, i, None, now) for i in ids]
        for entry in entries:
            entry.key = stopped.key
        stopped.make_live(entries)
        return entries
