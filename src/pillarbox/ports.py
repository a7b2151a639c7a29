"""Every seam of the house. Engine and adapters share this page and nothing else.

A *source* yields messages, a *sink* accepts them, the relay stands between and knows neither. All of it is blocking
and is called by one thread, but for `Desk` and `Upkeep`, which each have a connection of their own.

Storage raises `pillarbox.errors.DatabaseUnavailable` when the database cannot be reached (the reply of the statement
under way is then unknown: rule R12), `InDoubt` when the crash token changed, and `SchemaMismatch` when a table is not
as this release knows it. It retries nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from pillarbox.outcome import Answers, Record, Traits
from pillarbox.views import Found, HoldLine, LaneLine, Note, Overview, Pick, Standing

Position = Any  # where a lane's reading stands; only its source looks inside
RowTuple = tuple[Any, ...]  # outcome.Row's fields, as a plain tuple


class InDoubt(Exception):
    """The server crashed or was promoted behind our back: nothing in memory is trusted (DESIGN 2.2 rule 5)."""


# ------------------------------------------------------------------ values


class Page(Protocol):
    """Rows of one lane, in read order, and the positions behind them."""

    lane: int
    rows: list[RowTuple]

    @property
    def after(self) -> Position:
        """The position once every row is done. Equal to `cut(len(rows))`."""

    def cut(self, done: int) -> Position:
        """The position once the first `done` rows are done; `cut(0)` is where this page began."""


class Held(NamedTuple):
    """One row of `hold`: a message an answer has set aside, a run that waits behind it, or one given up.

    The live rows of a key, in `seq` order, are its queue; the first id of the first row is the key's head.
    """

    lane: int
    seq: int  # append number and identity; 0 in a row that is still to be written
    edition: int  # raised by every write; a relay changes a row only if it is as it last saw it (R11)
    key: str | None
    ids: list[int]
    generation: int
    state: str  # retry | waiting | blocked | dead | skipped | resolved
    attempts: int = 0
    unknowns: int = 0
    due_in: float = 0.0  # seconds from now until the next attempt, by the database's clock
    error: str = ""
    ahead: bool = False  # written above the cursor (R9): the cursor has not passed it yet


class Changes(NamedTuple):
    """What one settle does to one lane. Every part of it happens or none."""

    lane: int
    term: int
    position: Position  # the cut
    done: Sequence[Held] = ()  # delivered: deleted, unless an operator made it `skipped`
    changed: Sequence[Held] = ()  # as it is to be; its `edition` is the one last seen
    added: Sequence[Held] = ()


class Settled(NamedTuple):
    """What became of one lane's changes. A lane that is missing from the answer is deposed."""

    seqs: list[int]  # of the added rows, in their order
    stale: bool  # a `changed` row was not as last seen: an operator was there, look again


class Taken(NamedTuple):
    """A lane taken under a new term, and where its cursor stands."""

    route: str
    lane: int
    term: int
    position: Position


class LaneState(NamedTuple):
    """A lane row as a survey shows it."""

    route: str
    lane: int
    owner: UUID | None
    term: int


class RelayState(NamedTuple):
    """A live process as a survey shows it."""

    id: UUID
    serves: tuple[str, ...]
    settled_for: float  # seconds since its list of routes last changed


class RouteState(NamedTuple):
    """A stored route. `definition` is what every relay executes; `nudge` rises when an operator changed its holds."""

    name: str
    definition: dict[str, Any]
    state: str  # running | paused
    nudge: int


class Survey(NamedTuple):
    """One look at who does what; from one snapshot."""

    relays: list[RelayState]
    lanes: list[LaneState]
    routes: list[RouteState]


# ------------------------------------------------------------------ what the relay asks of a database


class Source(Protocol):
    """Where messages are read, and where what became of them is written."""

    def read(self, route: str, positions: Mapping[int, Position], limit: int) -> list[Page]:
        """At most `limit` fresh rows a lane, and late ones, of all these lanes: one statement, one snapshot.

        A row is yielded once for one chain of positions, whatever commits late. A lane with nothing new may be
        missing or have an empty page; an empty page's `after` may be ahead of where it began. Ids that a hold row
        has are not left out: the engine knows them (`ahead`)."""

    def fetch(self, ids: Sequence[int]) -> list[RowTuple]:
        """These messages again, wherever they lie now (log or `kept`), in the order asked for; erased ones with an
        empty payload; what is nowhere to be found is missing from the answer."""

    def settle(self, route: str, changes: Sequence[Changes]) -> dict[int, Settled]:
        """One statement for all lanes: each cursor moves with its hold rows if the term and the crash token are
        still its own (R2, R10). A missing lane is deposed. Raises `InDoubt` if the token is another."""

    def wait(self, timeout: float) -> None:
        """Return when something may have been added, at the latest after `timeout` seconds."""


class Leases(Protocol):
    """One lease a process; lanes with an owner and a term (R1–R3, R12–R15)."""

    def join(self, relay: UUID, serves: Sequence[str], lease: float) -> None:
        """Make this process known; it owns nothing yet. `relay` is a fresh id for each start."""

    def renew(self, relay: UUID, serves: Sequence[str], lease: float, says: Sequence[str] = ()) -> bool:
        """One statement by itself; `says` is what keeps this process from delivering, for `status` to show. A lease
        of 0 ends at once. False: expelled; forget everything and join with a new id."""

    def expel(self) -> int:
        """Delete the rows of processes whose lease ran out; before anyone takes their lanes."""

    def survey(self) -> Survey:
        """Who lives, who owns what, which routes are stored."""

    def take(self, relay: UUID, route: str, wanted: int) -> list[Taken]:
        """Raise the term of at most `wanted` free lanes, picked at random, and own them (R1). Never a lane that
        changed since the statement's snapshot."""

    def retake(self, relay: UUID, lanes: Sequence[tuple[str, int]]) -> list[Taken]:
        """R12: take one's own lanes anew, at once, after a doubt. Heals the crash token first; with another token
        than before all lanes owned are taken, asked for or not. What does not come back is lost."""

    def load(self, route: str, lanes: Sequence[int]) -> list[Held]:
        """The live hold rows (retry, waiting, blocked) of these lanes in `seq` order, and those `ahead` in any
        state. A statement after the take that owns them (R4)."""

    def give_back(self, relay: UUID, route: str, lanes: Sequence[tuple[int, int]]) -> None:
        """Own these (lane, term) no longer."""


class Chores(Protocol):
    """Work that one relay does for all; each call is one short transaction under a row lock (R18)."""

    def move_due(self, limit: int) -> int:
        """Move scheduled messages that are due into the log, in (due, id) order; how many."""

    def judge_unrouted(self, routes: Sequence[RouteState], bury: bool) -> int:
        """Give a `dead` row to each final message that no stored route matches; how many. Reads no message while
        a route matches everything or `bury` is false, and only moves its mark."""


class Upkeep(Protocol):
    """Segments and what has expired, as the owner, on a connection of its own. Safe to call at any time, by many."""

    def attach_ahead(self) -> int:
        """Have three ranges ready beyond the open one; how many were made."""

    def roll(self, period: float, rows: int | None) -> bool:
        """End the open segment if its time or its number of rows is over."""

    def prune(self, retention: float) -> list[str]:
        """Drop the segments that every cursor has passed and that are older than `retention` (R16); their names."""

    def expire(self, retention: float, unique_window: float) -> int:
        """Delete expired unique keys, audit rows, `skipped` and `resolved` hold rows, and `kept` rows nobody needs."""

    def close(self) -> None:
        """Hang up."""


# ------------------------------------------------------------------ what the relay asks of a broker


class Sink(Protocol):
    """Where messages go. One *session* lasts from `open` to `hang_up` or `close`.

    Nothing here may block for long: `send` hands over, `answers` waits at most its timeout. A sink that is slow or
    blocking by nature runs a thread of its own.
    """

    traits: Traits

    def open(self) -> None:
        """Begin a session. Raises `SinkUnavailable` with the reason; it is called again later."""

    def away(self, topics: Sequence[str]) -> dict[str, str]:
        """Which of these destinations can take nothing now, with the reason and its cure. Cheap when all is well."""

    def send(self, batch: Sequence[Record]) -> None:
        """Hand over in this order and return at once. Each record gets exactly one answer in this session, or none
        if the session ends. Into a `fail-stop` sink nothing behind a failure is accepted in this session."""

    def answers(self, timeout: float) -> Answers:
        """What has been answered since the last call; waits up to `timeout` seconds for the first."""

    def hang_up(self) -> None:
        """End the session: whatever is unanswered is unknown, and nothing more of it is handed to the network by
        us. Never blocks. The next `send` is preceded by `open`."""

    def fence(self, route: str, lane: int, term: int) -> None:
        """From now on take nothing from older owners of this lane, if the traits say `fenced`; else nothing."""

    def warnings(self) -> list[str]:
        """What makes an acceptance worth less than it should be, as far as is known now: shown, never acted on."""

    def close(self) -> None:
        """End in good order, after all answers have come."""


# ------------------------------------------------------------------ what people ask of an installation


class Desk(Protocol):
    """Questions of people. Nothing is written, nobody waits for it; a connection of its own."""

    def overview(self) -> Overview:
        """One look at everything."""

    def moved(self, lanes: Sequence[LaneLine]) -> dict[str, int]:
        """How many messages each route's cursors have passed since these lines were looked at, up to 100,000 a lane."""

    def find(self, ids: Sequence[str]) -> list[Found]:
        """These messages, by message id or by id in the log, wherever they lie."""

    def of_key(self, key: str, aggregate: str | None, limit: int) -> list[Found]:
        """What some route has not finished of this key, in the key's order."""

    def standings(self, found: Sequence[Found]) -> list[Standing]:
        """How each route stands to each of these messages of the log; from one snapshot."""

    def holds(self, pick: Pick) -> list[HoldLine]:
        """The rows of `hold` that fit, in `seq` order."""

    def scheduled(self, ids: Sequence[str], aggregate: str | None, key: str | None, limit: int) -> list[Found]:
        """Messages that are to be added later, the next one first."""

    def all_of(self, aggregate: str, key: str) -> Iterator[list[Found]]:
        """Every message of this key, wherever it lies, a page at a time: this one walks a lane's whole log."""

    def close(self) -> None:
        """Hang up."""


class Actions(Protocol):
    """What people change: hold rows only, never a cursor, never a lane row (R11). Each call is one transaction with
    its audit row. What is no longer as the person saw it stays as it is and is missing from the answer."""

    def change(self, verb: str, lines: Sequence[HoldLine], note: Note) -> list[int]:
        """`retry`, `bury` or `skip` these messages; their ids. What waits behind one stays in its key's order."""

    def replay(self, lines: Sequence[HoldLine], to: str | None, note: Note) -> list[int]:
        """Resolve these dead rows and add each message once more with a higher generation (R14); their ids."""

    def erase(self, found: Sequence[Found], skip: Sequence[tuple[str, int]], note: Note) -> int:
        """Blank payload and headers wherever they lie, cancel what is scheduled, and skip these (route, id)s."""

    def cancel(self, found: Sequence[Found], note: Note) -> list[UUID]:
        """Take these out of `scheduled`."""

    def adopt(self, start: str, environment: str, note: Note, *, dry_run: bool) -> dict[str, int]:
        """Make this cluster the installation's own, going on from `cursor`, `unread` or `now`; what becomes of how many."""

    def close(self) -> None:
        """Hang up."""
