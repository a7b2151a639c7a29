"""What really happened in a world, and the promises that are judged the moment they could break.

The relays know nothing of it. `Broken` names the promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from pillarbox.outcome import SinkClass
from pillarbox.ports import Held
from pillarbox.storage.memory.log import LIVE

GIVEN_UP = ("dead", "skipped", "resolved")
Copied = tuple[int, int]  # (id in the log, generation)


class Broken(Exception):
    """A promise does not hold."""


class Known(NamedTuple):
    """A committed message."""

    id: int
    lane: int
    place: int  # in its lane's log: the read order
    key: str | None
    label: int
    nature: str
    topic: str


class Applied(NamedTuple):
    """What one lane's settle did to the database."""

    lane: int
    passed: list[Known]
    removed: list[Copied]  # from hold rows that were deleted or shortened
    written: list[tuple[Held | None, Held]]


class Copy:
    """One handing-over of a message to a sink."""

    __slots__ = ("arrive_at", "fence", "heard", "known", "outage", "outcome", "owned", "ready_at", "route", "sent",
                 "session", "since", "what")  # fmt: skip

    def __init__(self, route: str, what: Copied, known: Known) -> None:
        self.route = route
        self.what = what
        self.known = known
        self.session: object = None
        self.sent = 0  # its number among all copies
        self.outcome = ""
        self.heard = False
        self.arrive_at = self.ready_at = 0.0
        self.outage = 0  # number of the sink's outage it was sent in
        self.since = False  # R10: sent again since the acceptance that counts
        self.fence = 0
        self.owned = True  # False: by a relay that cannot know yet that the database's clock has jumped over its lease

    def __str__(self) -> str:
        generation = "'" * self.what[1]
        return f"{self.route}/{self.known.label}{generation} (key {self.known.key}, id {self.known.id})"


class Failing:
    """R10 as it really was: failing answers to one message, whoever heard them."""

    __slots__ = ("at", "outages", "state")

    def __init__(self) -> None:
        self.state = ""
        self.at = 0
        self.outages: set[int] = set()


class Book:
    """One route's history."""

    def __init__(self, name: str, *, ordered: bool) -> None:
        self.name = name
        self.ordered = ordered  # under every definition it ever had
        self.loosened = False  # it was ordered once
        self.wanted: dict[int, Known] = {}
        self.optional: set[int] = set()  # wanted under some of its definitions only
        self.keys: dict[str, list[Known]] = {}
        self.places: dict[int, int] = {}  # id -> place in its key's order
        self.finished_until: dict[str, int] = {}
        self.highest: dict[str, int] = {}
        self.got: dict[Copied, float] = {}
        self.copies = 0
        self.refusals: Counter[Copied] = Counter()
        self.failing: dict[int, Failing] = {}
        self.open: dict[Copied, Copy] = {}  # sent, and nothing excuses sending it again
        self.unsettled: defaultdict[int, dict[Copied, Copy]] = defaultdict(dict)  # lane -> sent, not settled
        self.states: dict[Copied, str] = {}  # hold rows
        self.by_person: dict[Copied, float] = {}  # when a person gave it up


class Ledger:
    """Every route's book."""

    def __init__(self) -> None:
        self.books: dict[str, Book] = {}
        self.known: dict[int, Known] = {}
        self.counter = 0
        self.alive_until: dict[object, float] = {}
        self.attempts = 1
        self.delivered_at = 0.0  # when a message arrived that had not arrived before
        self.arrived_at = 0.0  # when any copy did
        self.faults = False  # whether anything has happened yet that excuses a second copy

    def next(self) -> int:
        self.counter += 1
        return self.counter

    # ---------------------------------------------------------------- producers

    def committed(self, known: Known, wanted_by: Iterable[str], optional_for: Iterable[str]) -> None:
        self.known[known.id] = known
        for name in wanted_by:
            book = self.books[name]
            book.wanted[known.id] = known
            if known.key is not None and book.ordered:
                line = book.keys.setdefault(known.key, [])
                book.places[known.id] = len(line)
                line.append(known)
        for name in optional_for:
            book = self.books[name]
            book.optional.add(known.id)
            book.wanted[known.id] = known

    # ---------------------------------------------------------------- sending

    def sends(self, copy: Copy, delivery: SinkClass) -> None:
        """R5, R6, R9 and P3, judged as it is handed over."""
        book, what = self.books[copy.route], copy.what
        if what[0] not in book.wanted:
            raise Broken(f"GHOST: {copy} was sent on a route that does not want it")
        before = book.open.get(what)
        if before is not None and before.owned and copy.owned:
            raise Broken(f"DUPLICATE: {copy} was sent again, and nothing excuses it (before: {before.outcome or '?'})")
        if what[1] == 0 and copy.owned:
            self._in_turn(book, copy, delivery)
        copy.sent = self.next()
        failing = book.failing.get(what[0])
        copy.since = failing is not None and failing.state == "+"
        if copy.owned:
            book.open[what] = book.unsettled[copy.known.lane][what] = copy

    def _in_turn(self, book: Book, copy: Copy, delivery: SinkClass) -> None:
        key, place = copy.known.key, book.places.get(copy.what[0])
        if key is None or place is None:
            return
        for earlier in book.keys[key][self._finished(book, key) : place]:
            if self._is_finished(book, earlier):
                continue
            flying = book.open.get((earlier.id, 0))
            behind = flying is not None and flying.session is copy.session and not flying.heard
            if not (behind and delivery is SinkClass.FAIL_STOP):
                state = book.states.get((earlier.id, 0), "no hold row")
                raise Broken(f"TURN: {copy} was sent before {earlier.label} of its key was done with ({state})")

    def _finished(self, book: Book, key: str) -> int:
        """How many of the key's first messages are accepted or given up."""
        line, n = book.keys[key], book.finished_until.get(key, 0)
        while n < len(line) and self._is_finished(book, line[n]):
            n += 1
        book.finished_until[key] = n
        return n

    def _is_finished(self, book: Book, known: Known) -> bool:
        what = (known.id, 0)
        return what in book.got or known.id in book.optional or book.states.get(what) in GIVEN_UP

    # ---------------------------------------------------------------- the sink

    def accepts(self, copy: Copy, now: float) -> None:
        """The sink stores it. P5 is judged here, where it is promised."""
        book, what = self.books[copy.route], copy.what
        book.copies += 1
        self.arrived_at = now
        if what in book.got:
            return
        if what[1] == 0:
            self._in_order(book, copy)
        book.got[what] = self.delivered_at = now
        book.failing.pop(what[0], None)

    def _in_order(self, book: Book, copy: Copy) -> None:
        known = copy.known
        place = book.places.get(known.id)
        if place is None or known.key is None:
            return
        if self._finished(book, known.key) < place:
            for earlier in book.keys[known.key][:place]:
                if not self._is_finished(book, earlier):
                    raise Broken(f"ORDER: {copy} was delivered before {earlier.label}, which nobody gave up")
        if place < book.highest.get(known.key, -1) and book.states.get(copy.what) not in GIVEN_UP:
            raise Broken(f"ORDER: {copy} was delivered after a later one of its key, and not as a replay")
        book.highest[known.key] = max(place, book.highest.get(known.key, -1))

    def refuses(self, copy: Copy) -> None:
        self.books[copy.route].refusals[copy.what] += 1

    def fails(self, route: str, id_: int, *, since: bool, outage: int) -> None:
        """R10: a failing answer to this message alone."""
        book = self.books[route]
        if (id_, 0) in book.got:
            return
        failing = book.failing.setdefault(id_, Failing())
        if not failing.state:
            failing.state, failing.at = "?", self.next()
        elif failing.state == "+" and since:
            failing.state = "!"
        failing.outages.add(outage)

    def hears_accepted(self, copy: Copy) -> None:
        """Something sent after their failing answers was accepted: the sink is well."""
        for failing in self.books[copy.route].failing.values():
            if failing.state == "?" and failing.at < copy.sent:
                failing.state = "+"

    # ---------------------------------------------------------------- excuses

    def excuse(self, copy: Copy) -> None:
        """A failing answer, or a session that ended without one: it may be sent again."""
        book = self.books[copy.route]
        if book.open.get(copy.what) is copy:
            del book.open[copy.what]
            book.unsettled[copy.known.lane].pop(copy.what, None)

    def taken_anew(self, route: str, lane: int) -> None:
        """The lane has a new term: what was delivered and not settled may be delivered again."""
        book = self.books[route]
        for what in book.unsettled.pop(lane, {}):
            book.open.pop(what, None)

    # ---------------------------------------------------------------- settling

    def has_cause(self, book: Book, known: Known) -> bool:
        """R10, by what the sink really did: what allows that a message waits in `hold`."""
        id_ = known.id
        failing = book.failing.get(id_)
        if (id_, 0) in book.got or book.refusals[id_, 0] or known.nature == "unencodable":
            return True
        if failing is not None and failing.state == "!" and (0 in failing.outages or len(failing.outages) > 1):
            return True
        place = book.places.get(id_)
        if place is None or known.key is None:
            return book.loosened
        ahead = [(e.id, 0) for e in book.keys[known.key][:place]]
        return any(book.states.get(what) in LIVE or what in book.by_person for what in ahead)

    def settles(self, route: str, settled: Applied) -> None:
        """One lane's settle has been applied. `states` is as it is now."""
        book = self.books[route]
        for known in settled.passed:
            self._passed(book, known)
        for what in settled.removed:
            if what not in book.states:
                if what not in book.got:
                    raise Broken(f"LOST: {route}/{self.known[what[0]].label} left hold without being delivered")
                book.unsettled[settled.lane].pop(what, None)
        for before, held in settled.written:
            self._row_written(book, before, held)

    def _passed(self, book: Book, known: Known) -> None:
        what = (known.id, 0)
        flying = book.open.get(what)
        if flying is not None and not flying.heard:
            raise Broken(f"WIRE: {flying} was passed by the cursor before it was answered")
        if what in book.states:
            return
        if known.id in book.wanted and what not in book.got and known.id not in book.optional:
            raise Broken(f"LOST: {book.name}/{known.label} was passed, not delivered and not held")
        book.unsettled[known.lane].pop(what, None)

    def _row_written(self, book: Book, before: Held | None, held: Held) -> None:
        head = self.known[held.ids[0]]
        if before is not None and before.state == "skipped" != held.state:
            raise Broken(f"SKIP: {book.name}/{head.label} was undone")
        if before is None and held.state in LIVE and not held.generation:
            for id_ in held.ids:
                if not self.has_cause(book, self.known[id_]):
                    raise Broken(f"ASIDE: {book.name}/{self.known[id_].label} without an answer that allows it")
        if head.nature == "unencodable":
            return
        if held.attempts > book.refusals[head.id, held.generation]:
            raise Broken(f"ATTEMPTS: {book.name}/{head.label} was charged {held.attempts}, refused less often")
        ends = held.state in ("dead", "blocked") and (before is None or before.state != held.state)
        if ends and held.attempts < self.attempts:
            raise Broken(f"ATTEMPTS: {book.name}/{head.label} was given up after {held.attempts}")
