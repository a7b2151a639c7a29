"""Second gear: what a lane remembers of messages that were not accepted at once, and of what waits behind them.

A *stopped* key has a queue: first what is in `hold` (`runs`, below the cursor, or written above it), then what is only
in the log (`behind`). A few messages of its front are *live*: loaded, and sent when their turn comes. Everything here
is a value in memory; only a settle writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pillarbox.outcome import Handle
from pillarbox.ports import Held, RowTuple

OrderKey = str | int  # a message without order is alone under its id
NEVER = float("inf")
LIVE_STATES = ("retry", "waiting", "blocked")


class Run:
    """One row of `hold`, and how much of it is still to be delivered."""

    __slots__ = ("dirty", "held", "left")

    def __init__(self, held: Held) -> None:
        self.held = held  # as last seen or written
        self.left = deque(held.ids)
        self.dirty = False


class Entry:
    """One message that has an answer other than accepted, or whose turn comes behind one that had."""

    __slots__ = ("before", "error", "failed", "generation", "id", "key", "lane", "misses", "next_at", "row",
                 "run", "sent", "since", "tries", "unknowns", "verdict")  # fmt: skip

    def __init__(self, lane: int, id_: int, key: OrderKey, row: RowTuple | None, run: Run | None = None) -> None:
        self.lane = lane
        self.id = id_
        self.generation = 0
        self.key = key
        self.row = row
        self.run = run
        self.tries = 0  # refusals counted (R8)
        self.misses = 0  # failing answers that are no refusals
        self.unknowns = 0
        self.failed = ""  # "" | ? failed, not by itself refused | + the sink was well since | ! and it failed again
        self.before: frozenset[Handle] = frozenset()  # on the wire when it failed: their acceptance proves nothing
        self.since = False  # it was sent (or its destination asked for) when it was `+` already
        self.next_at = 0.0
        self.error = ""
        self.verdict = ""  # bury | block: to be written, or written and waiting for a person
        self.sent = False

    @property
    def handle(self) -> Handle:
        """What its answer comes back with."""
        return (self.id, self.generation) if self.generation else self.id

    @property
    def has_failed(self) -> bool:
        """Whether an answer has taken it out of the stream."""
        return self.tries > 0 or self.failed != "" or self.verdict != ""

    @property
    def may_be_passed(self) -> bool:
        """R10: only an answer sets a message aside, and never while it is on the wire."""
        return not self.sent and (self.tries > 0 or self.failed == "!" or self.verdict != "")

    def may_send(self, now: float) -> bool:
        """Whether its own time has come; its place in the queue is its key's business."""
        return not self.sent and not self.verdict and self.next_at <= now

    def fail_once_more(self) -> None:
        """R10: a failing answer that is no refusal. `!` only if the sink was well, and it was sent again since: an
        acceptance heard together with this answer proves nothing."""
        self.failed = "!" if self.failed == "+" and self.since else self.failed or "?"

    def goes_out(self) -> None:
        """It is sent, or would be if its destination were there."""
        self.since = self.failed == "+"


class Stopped:
    """The queue of one key."""

    __slots__ = ("behind", "is_stale", "key", "live", "runs")

    def __init__(self, key: OrderKey) -> None:
        self.key = key
        self.live: deque[Entry] = deque()
        self.runs: deque[Run] = deque()
        self.behind: deque[int] = deque()
        self.is_stale = False  # an operator was here while one of it was on the wire: nothing goes before a look

    @property
    def head(self) -> Entry | None:
        """The message everything else of this key waits for, if it is loaded."""
        return self.live[0] if self.live else None

    @property
    def is_empty(self) -> bool:
        """Whether the key may go on in first gear."""
        return not (self.live or self.runs or self.behind)

    @property
    def is_held(self) -> bool:
        """Whether an earlier message of the key waits in `hold`, so that later ones may wait there too. One that the
        next settle buries waits for nothing."""
        head = self.head
        if len(self.runs) == 1 and head is not None and head.verdict == "bury" and head.run is self.runs[0]:
            return len(self.runs[0].left) > 1
        return bool(self.runs)

    @property
    def unpassed(self) -> int:
        """How many of its messages are above the cursor, in the log only."""
        return len(self.behind) + sum(e.run is None for e in self.live)

    @property
    def count(self) -> int:
        """How many messages wait in it, its head included."""
        return self.unpassed + sum(len(run.left) for run in self.runs)

    def next_ids(self, most: int) -> tuple[Run | None, list[int]]:
        """What is to be loaded next, from the front of the queue: of one row of `hold`, or of the log."""
        if self.live:
            return None, []
        if self.runs:
            run = self.runs[0]
            return run, [run.left[i] for i in range(min(most, len(run.left)))]
        return None, [self.behind[i] for i in range(min(most, len(self.behind)))]

    def make_live(self, entries: Iterable[Entry]) -> None:
        """These are loaded; they were the front of the queue."""
        for entry in entries:
            self.live.append(entry)
            if entry.run is None:
                self.behind.popleft()


def revive(run: Run, id_: int, row: RowTuple | None, now: float) -> Entry:
    """The entry of a message in `hold`. Only the head of a row carries the row's attempts and back-off."""
    held = run.held
    key: OrderKey = held.key if held.key is not None else id_
    entry = Entry(held.lane, id_, key, row, run)
    entry.generation = held.generation
    if id_ == held.ids[0]:
        entry.tries, entry.unknowns, entry.error = held.attempts, held.unknowns, held.error
        entry.verdict = "block" if held.state == "blocked" else ""
        entry.next_at = now + held.due_in if held.due_in > 0 else 0.0
    return entry
