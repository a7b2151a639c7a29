"""Make a restored or copied database this cluster's own (DESIGN 2.2 rule 6). Runs inside the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pillarbox.errors import Refused
from pillarbox.routing import compile_match

Run = Callable[..., list[tuple[Any, ...]]]
STARTS = ("cursor", "unread", "now")


def adopt(run: Run, start: str, environment: str) -> dict[str, int]:
    """What becomes of how many messages."""
    if start not in STARTS:
        raise Refused(f"{start!r} is no place to go on from.", f"Say one of {', '.join(STARTS)}.")
    run("adopt_roll_lock")
    run("adopt_still")
    fate = "never to be delivered" if start == "now" else "to be delivered"
    counts = {f"unread by {route}, {fate}": int(number) for route, number in run("adopt_beyond")}
    if start == "cursor":
        _same_transaction_ids(run)
    else:
        counts |= _with_foreign_ids(run, start)
    run("adopt_identity", environment)
    return counts


def _same_transaction_ids(run: Run) -> None:
    foreign = [route for (route,) in run("adopt_ahead_of_cluster")]
    if foreign:
        raise Refused(
            f"The cursors of {', '.join(foreign)} know transactions that this cluster has never had.",
            "This is a logical restore: say `--from unread` (or `now`).",
        )


def _with_foreign_ids(run: Run, start: str) -> dict[str, int]:
    if start == "unread":
        counts = {"unread below a cursor, to be delivered from hold": _hold_unread(run)}
    else:
        counts = {"held, to be skipped": sum(number for (number,) in run("adopt_skip_held"))}
    range_ = run("adopt_range")[0][0]
    if range_ is None:
        raise Refused("No unused range of ids is attached.", "Run `pillarbox upkeep` first.")
    run("adopt_setval", range_)
    run("adopt_close", range_)
    run(*(("adopt_seen",) if start == "unread" else ("adopt_now", range_)))
    return counts


def _hold_unread(run: Run) -> int:
    tests = {route: compile_match(definition) for route, definition, _lane, _last in run("adopt_cursors")}
    runs: dict[tuple[str, int, str | int], list[int]] = {}
    for route, id, lane, key, message_id, aggregate, type_, topic, headers in run("adopt_unread"):
        more = json.dumps({"topic": topic, "headers": headers})
        test = tests[route]
        if test is None or test((id, lane, key, message_id.bytes, aggregate, type_, b"", more)):
            runs.setdefault((route, lane, id if key is None else key), []).append(id)
    if runs:
        places = list(runs)
        run(
            "adopt_hold",
            [route for route, _lane, _key in places],
            [lane for _route, lane, _key in places],
            ["{" + ",".join(map(str, ids)) + "}" for ids in runs.values()],
            [key if isinstance(key, str) else None for _route, _lane, key in places],
        )
    return sum(map(len, runs.values()))
