"""One lane in memory: what was read and not settled yet. Pure: no clock, no thread, no database.

First gear: a page is in flight as a page; an accepted id goes into the route's set `done`, and the cut moves over it.
Only a message that was not accepted at once gets an entry of its own (`holds.py`), and its key a place in `stopped`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pillarbox.outcome import Handle
from pillarbox.ports import Held, Page, Position, RowTuple
from pillarbox.relay.lane.holds import LIVE_STATES, Entry, OrderKey, Run, Stopped, revive

Done = set[Handle]
OVERHEAD = 600  # bytes a row takes beside its payload
MOST_FOLLOWERS = 20_000  # ids above the cursor that may wait behind stopped keys


class InPage:
    """A page on its way: `passed` rows are settled, `finished` rows are known to be passable."""

    __slots__ = ("bytes", "finished", "page", "passed")

    def __init__(self, page: Page) -> None:
        self.page = page
        self.passed = 0
        self.finished = 0
        self.bytes = sum([len(row[6]) for row in page.rows]) + OVERHEAD * len(page.rows)


class Window:
    """What one relay knows of one lane it owns."""

    def __init__(self, lane: int, term: int, position: Position, done: Done, *, ordered: bool = True) -> None:
        self.lane = lane
        self.term = term
        self.saved = position
        self.reading = position
        self.done = done  # shared by the lanes of a route
        self.ordered = ordered
        self.pages: deque[InPage] = deque()
        self.ready: deque[RowTuple] = deque()  # may go now, in read order
        self.stopped: dict[OrderKey, Stopped] = {}
        self.replays: dict[Handle, Entry] = {}
        self.ahead: dict[int, Held] = {}  # ids above the cursor whose hold row speaks for them
        self.early: set[int] = set()  # ids that are delivered though they are not read yet: a hold row was there first
        self.to_catch: set[int] = set()  # ids the cursor has passed whose hold row may still say that it has not
        self.touched: dict[OrderKey, Stopped] = {}  # keys with something to write
        self.gone: list[Held] = []  # hold rows whose messages are all delivered
        self.empty_reads = 0
        self.unpassed = 0
        self.bytes = 0
        self.leaving = False
        self.nudged = False  # an operator was here: look at the hold rows again
        self.settled_at = 0.0

    # ---------------------------------------------------------------- reading

    def order_key(self, row: Sequence[object]) -> OrderKey:
        """What this row must stay in order with; its own id if with nothing."""
        key = row[2]
        return key if self.ordered and isinstance(key, str) else row[0]  # type: ignore[return-value]

    def load(self, held: Iterable[Held], now: float) -> None:
        """R4: the lane's hold rows, in `seq` order, before anything is read."""
        for row in held:
            if row.ahead:
                self.ahead[row.ids[0]] = row
            if row.state in LIVE_STATES:
                self._enqueue(Run(row), now)

    def _enqueue(self, run: Run, now: float) -> None:
        held = run.held
        if held.generation:
            entry = revive(run, held.ids[0], None, now)
            self.replays[entry.handle] = entry
            return
        key: OrderKey = held.key if self.ordered and held.key is not None else held.ids[0]
        self.stopped.setdefault(key, Stopped(key)).runs.append(run)

    def room(self, most: int) -> int:
        """How many more to read: what is stopped leaves its place to others (R10)."""
        if not self.stopped:
            return most - self.unpassed
        waiting = sum(s.unpassed for s in self.stopped.values())
        return 0 if waiting > MOST_FOLLOWERS else most - self.unpassed + waiting

    def admit(self, page: Page, wanted: Callable[[RowTuple], bool] | None) -> None:
        """Take a page in: what may go now becomes `ready`, what is stopped waits, what nobody wants is done."""
        self.reading = page.after
        if not page.rows:
            return
        inpage = InPage(page)
        self.pages.append(inpage)
        self.unpassed += len(page.rows)
        if self.stopped or self.ahead or self.early:
            self._admit_slowly(inpage, wanted)
        elif wanted is None:
            self.ready.extend(page.rows)
        else:
            fits = [row for row in page.rows if wanted(row)]
            self.ready.extend(fits)
            if len(fits) < len(page.rows):
                self.done.update({row[0] for row in page.rows} - {row[0] for row in fits})
        self.bytes += inpage.bytes

    def _admit_slowly(self, inpage: InPage, wanted: Callable[[RowTuple], bool] | None) -> None:
        rows = inpage.page.rows
        for place, row in enumerate(rows):
            if row[0] in self.ahead:
                continue
            if row[0] in self.early or (wanted is not None and not wanted(row)):
                self.early.discard(row[0])
                self.done.add(row[0])
                continue
            stopped = self.stopped.get(self.order_key(row))
            if stopped is None:
                self.ready.append(row)
            else:  # its payload is fetched again when its turn comes
                stopped.behind.append(row[0])
                inpage.bytes -= len(row[6])
                rows[place] = row[:3]

    def looked(self, *, found: bool) -> None:
        """A read has found something in some lane, or nothing in any. After two that found nothing everything there is
        has been read (the first may have been of late rows only): what no page has, the cursor has passed, whatever a
        hold row says that an operator and a crash left as it was."""
        self.empty_reads = 0 if found else self.empty_reads + 1
        if self.empty_reads > 1 and not self.pages:
            self.to_catch.update(self.ahead)
            self.early.clear()

    # ---------------------------------------------------------------- stopping and going on

    def stop(self, row: RowTuple) -> Entry:
        """This row was not accepted: its key is stopped, with the row as its head."""
        key = self.order_key(row)
        entry = Entry(self.lane, row[0], key, row)
        stopped = self.stopped.setdefault(key, Stopped(key))
        stopped.live.append(entry)
        return entry

    def follows(self, row: RowTuple) -> bool:
        """Put this row behind its key if that is stopped; whether it was."""
        stopped = self.stopped.get(self.order_key(row))
        if stopped is None:
            return False
        stopped.behind.append(row[0])
        return True

    def sweep(self) -> None:
        """Put what is ready but stopped now behind its key, in read order."""
        self.ready = deque(row for row in self.ready if not self.follows(row))

    def finished(self, entry: Entry) -> None:
        """It was accepted, or given up and that is committed: its key goes on."""
        if entry.generation:
            self.replays.pop(entry.handle, None)
            if entry.run is not None:
                self.gone.append(entry.run.held)
            return
        stopped = self.stopped.get(entry.key)
        if stopped is None or entry not in stopped.live:
            return  # an operator's change took it out while it was on the wire
        stopped.live.remove(entry)
        if entry.run is None:
            self.done.add(entry.id)
        else:
            self._finished_in_run(stopped, entry, entry.run)
        self._release(stopped)

    def _finished_in_run(self, stopped: Stopped, entry: Entry, run: Run) -> None:
        if entry.id in run.left:
            run.left.remove(entry.id)
        if entry.id in self.ahead:
            del self.ahead[entry.id]
            self._accepted_ahead(entry.id)
        if run.left:
            run.dirty = True
            self.touched[stopped.key] = stopped
        else:
            self.gone.append(run.held)
            if run in stopped.runs:
                stopped.runs.remove(run)

    def _accepted_ahead(self, id_: int) -> None:
        """Its hold row goes, so the cursor must know: now, or as soon as the message is read."""
        if id_ in self.to_catch:  # the cursor has passed it already
            self.to_catch.discard(id_)
        elif any(row[0] == id_ for inpage in self.pages for row in inpage.page.rows):
            self.done.add(id_)
        else:
            self.early.add(id_)

    def _release(self, stopped: Stopped) -> None:
        if stopped.is_empty:
            self.stopped.pop(stopped.key, None)
            self.touched.pop(stopped.key, None)

    def touch(self, entry: Entry) -> None:
        """Its hold row, if it has one or is to have one, must be written."""
        if entry.generation == 0:
            self.touched[entry.key] = self.stopped[entry.key]
        if entry.run is not None:
            entry.run.dirty = True

    # ---------------------------------------------------------------- questions

    def sendable(self, now: float, *, pipelined: bool) -> Iterable[Entry]:
        """Entries whose turn and time have come, a key's in order; behind one that has failed nothing of its key."""
        for stopped in self.stopped.values():
            for entry in stopped.live if not stopped.is_stale else ():
                if entry.may_send(now):
                    yield entry
                elif not entry.sent:
                    break
                if entry.has_failed or not pipelined:
                    break
        for entry in self.replays.values():
            if entry.may_send(now):
                yield entry

    def hungry(self) -> list[Stopped]:
        """Stopped keys whose next messages must be loaded."""
        return [s for s in self.stopped.values() if not s.live and (s.runs or s.behind)]

    @property
    def is_idle(self) -> bool:
        """Nothing is read and unsettled."""
        return not (self.pages or self.gone or self.touched)

    def forgotten(self) -> set[Handle]:
        """The ids of this lane in the route's `done`, to be taken out when the lane is lost."""
        return {row[0] for inpage in self.pages for row in inpage.page.rows}
