"""What people do: choose, count, and change in small transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from pillarbox.errors import Refused
from pillarbox.ports import Actions, Desk
from pillarbox.routing import compile_match
from pillarbox.views import Found, HoldLine, Note, Pick

BATCH = 500  # messages a transaction: a relay's settle waits for one at most for milliseconds
STATES = {
    "retry": ("retry", "blocked"),
    "bury": ("retry", "blocked"),
    "skip": ("retry", "blocked"),
    "replay": ("dead",),
    "skip dead": ("dead",),
}
PAGE = 1000


@dataclass(frozen=True)
class Done:
    """What became of an action. `changed` are ids in the log; `left` were no longer as they had been seen."""

    action: str
    changed: tuple[int, ...]
    left: int


@dataclass(frozen=True)
class Erasure:
    """Messages to be blanked, and the (route, log id)s that will not be delivered any more."""

    found: tuple[Found, ...]
    skip: tuple[tuple[str, int], ...]


def choose(desk: Desk, verb: str, pick: Pick) -> list[HoldLine]:
    """The messages that a person means, page by page. By id a message that waits inside a run can be skipped too."""
    states = STATES[verb]
    if verb == "skip" and pick.ids:
        states = (*states, "waiting")
    chosen: list[HoldLine] = []
    after = pick.after
    while len(chosen) < pick.limit:
        most = min(PAGE, pick.limit - len(chosen))
        page = desk.holds(pick._replace(states=states, after=after, limit=most))
        chosen += page
        if pick.ids or len(page) < most:
            break
        after = page[-1].seq
    return chosen


def change(actions: Actions, verb: str, lines: Sequence[HoldLine], note: Note) -> Done:
    """`retry`, `bury` or `skip`."""
    return _in_batches(verb, lines, lambda batch: actions.change(verb, batch, note))


def replay(actions: Actions, lines: Sequence[HoldLine], to: str | None, note: Note) -> Done:
    """Deliver dead messages again, to their own route or another."""
    return _in_batches("replay", lines, lambda batch: actions.replay(batch, to, note))


def _in_batches(verb: str, lines: Sequence[HoldLine], act: Callable[[Sequence[HoldLine]], list[int]]) -> Done:
    changed: list[int] = []
    for begin in range(0, len(lines), BATCH):
        changed += act(lines[begin : begin + BATCH])
    return Done(verb, tuple(changed), len(lines) - len(changed))


def to_erase(desk: Desk, ids: Sequence[str], aggregate: str | None, key: str | None) -> Iterator[Erasure]:
    """What is to be erased, a page at a time: by ids, or everything of a key of an aggregate."""
    if ids:
        yield _erasure(desk, desk.find(ids))
        return
    if aggregate is None or key is None:
        raise Refused("Nothing says what to erase.", "Give message ids, or both --aggregate and --key.")
    for page in desk.all_of(aggregate, key):
        for begin in range(0, len(page), BATCH):
            yield _erasure(desk, page[begin : begin + BATCH])


def _erasure(desk: Desk, found: Sequence[Found]) -> Erasure:
    logged = [f for f in found if f.place in ("log", "kept")]
    rows = {f.id: _row(f) for f in logged}
    skip = []
    for standing in desk.standings(logged) if logged else ():
        test = compile_match(standing.definition)
        if not standing.read and not standing.lines and (test is None or test(rows[standing.id])):
            skip.append((standing.route, standing.id))
    return Erasure(tuple(f for f in found if f.place not in ("cancelled", "erased")), tuple(skip))


def _row(found: Found) -> tuple[object, ...]:
    more = json.dumps({"topic": found.topic, "headers": found.headers})
    return (found.id, found.lane, found.key, found.message_id.bytes, found.aggregate, found.type, b"", more)


def erase(actions: Actions, what: Erasure, note: Note) -> int:
    """Blank them; how many."""
    return actions.erase(what.found, what.skip, note) if what.found else 0


def cancel(actions: Actions, found: Sequence[Found], note: Note) -> list[UUID]:
    """Take messages out of `scheduled`; which were still there."""
    gone: list[UUID] = []
    for begin in range(0, len(found), BATCH):
        gone += actions.cancel(found[begin : begin + BATCH], note)
    return gone
