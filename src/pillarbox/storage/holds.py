"""What an operator's word makes of a hold row. Pure; both databases apply it (PROTOCOL: R9, R11, R14)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from pillarbox.errors import Refused

LIVE = ("retry", "waiting", "blocked")
HEADS = ("retry", "blocked")
FINAL = {"bury": "dead", "skip": "skipped"}


class HoldRow(NamedTuple):
    """A hold row as it is locked or to be written; `seq` 0 in one that is still to be written."""

    seq: int
    route: str
    lane: int
    ids: list[int]
    generation: int
    key: str | None
    state: str
    ahead: bool
    error: str = ""
    attempts: int = 0
    unknowns: int = 0


class Plan(NamedTuple):
    """What one transaction writes. `done` are the ids it concerns."""

    rewritten: list[HoldRow]
    added: list[HoldRow]
    done: list[int]

    @property
    def routes(self) -> list[str]:
        """Whose relays must look again."""
        return sorted({row.route for row in (*self.rewritten, *self.added)})


def change(verb: str, rows: Sequence[HoldRow], wanted: Collection[tuple[int, int]], reason: str | None = None) -> Plan:
    """`retry`, `bury` or `skip` the wanted (seq, id)s; what no longer fits is left as it is. A reason replaces the
    error of what is given up."""
    plan = Plan([], [], [])
    for row in rows:
        hit = [id for id in row.ids if (row.seq, id) in wanted]
        if verb == "retry":
            _retry(row, hit, plan)
        else:
            final = row._replace(state=FINAL[verb], error=reason or row.error)
            _give_up(row, _may_go(verb, row, hit), final, plan)
    return plan


def _retry(row: HoldRow, hit: Sequence[int], plan: Plan) -> None:
    if row.state in HEADS and row.ids[0] in hit:
        plan.rewritten.append(row._replace(state="retry", attempts=0, unknowns=0))
        plan.done.append(row.ids[0])


def _may_go(verb: str, row: HoldRow, hit: list[int]) -> list[int]:
    if verb == "skip":
        return hit if row.state in (*LIVE, "dead") else []
    return [id for id in hit[:1] if row.state in HEADS and id == row.ids[0]]


def _give_up(row: HoldRow, gone: list[int], final: HoldRow, plan: Plan) -> None:
    """The rest keeps the row, and with its `seq` its place in the key's queue."""
    if not gone:
        return
    rest = [id for id in row.ids if id not in gone]
    finals = [final._replace(seq=0, ids=[id]) for id in gone]
    if rest:
        headless = row.ids[0] in gone and row.state != "waiting"
        fresh = row._replace(ids=rest, state="retry", attempts=0, unknowns=0, error="")
        plan.rewritten.append(fresh if headless else row._replace(ids=rest))
    else:
        plan.rewritten.append(finals.pop(0)._replace(seq=row.seq))
    plan.added.extend(finals)
    plan.done.extend(gone)


def replay(
    rows: Sequence[HoldRow], wanted: Collection[tuple[int, int]], to: str | None, highest: Mapping[int, int]
) -> Plan:
    """Resolve the wanted dead rows and add each message once more; `highest` is each id's last generation."""
    plan = Plan([], [], [])
    last = dict(highest)
    for row in rows:
        id = row.ids[0]
        if row.state != "dead" or (row.seq, id) not in wanted:
            continue
        if to is None and row.route == "unrouted":
            raise Refused("No route wanted this message.", "Name one: `dead replay --to ROUTE`.")
        last[id] = max(last.get(id, 0), row.generation) + 1
        plan.rewritten.append(row._replace(state="resolved"))
        plan.added.append(HoldRow(0, to or row.route, row.lane, [id], last[id], row.key, "retry", ahead=False))
        plan.done.append(id)
    return plan
