"""R11: what an operator did to the hold rows, taken into a lane's memory. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from pillarbox.ports import Held
from pillarbox.relay.lane.holds import LIVE_STATES, OrderKey, Run, Stopped, revive
from pillarbox.relay.lane.window import Window


def look(window: Window, rows: Sequence[Held], now: float) -> set[int]:
    """Make memory agree with the lane's hold rows as they are now. What is on the wire is looked at again later.
    Returns the ids that a person has given up above the cursor: they are not to be sent any more."""
    window.nudged = False
    settling = {held.seq for held in window.gone}
    for row in rows:
        if row.ahead:
            window.ahead[row.ids[0]] = row
    for id_ in window.to_catch - {row.ids[0] for row in rows if row.ahead}:  # it was written after all
        window.to_catch.discard(id_)
        window.ahead.pop(id_, None)
    given_up = {row.ids[0] for row in rows if row.ahead and row.state not in LIVE_STATES}
    _drop(window, given_up)
    live = [row for row in rows if row.state in LIVE_STATES and row.seq not in settling]
    by_key: defaultdict[OrderKey, list[Held]] = defaultdict(list)
    queued = {run.held.seq: key for key, stopped in window.stopped.items() for run in stopped.runs}
    for row in live:
        if row.generation == 0:
            key: OrderKey = row.key if window.ordered and row.key is not None else row.ids[0]
            by_key[queued.get(row.seq, key)].append(row)
    for key in dict.fromkeys((*by_key, *window.stopped)):
        _look_at_key(window, key, by_key[key])
    _look_at_replays(window, [row for row in live if row.generation], now)
    return given_up


def _drop(window: Window, ids: set[int]) -> None:
    """What a person has given up (erase) while it was read and not sent yet is not sent; its hold row speaks for it."""
    if not ids:
        return
    window.ready = deque(row for row in window.ready if row[0] not in ids)
    for stopped in window.stopped.values():
        stopped.behind = deque(id_ for id_ in stopped.behind if id_ not in ids)
        stopped.live = deque(entry for entry in stopped.live if entry.sent or entry.run or entry.id not in ids)


def _look_at_key(window: Window, key: OrderKey, rows: list[Held]) -> None:
    stopped = window.stopped.setdefault(key, Stopped(key))
    known = [(run.held.seq, run.held.edition) for run in stopped.runs]
    if known == [(row.seq, row.edition) for row in rows]:
        stopped.is_stale = False
        if stopped.is_empty:
            del window.stopped[key]
        return
    if any(entry.sent for entry in stopped.live):
        window.nudged = stopped.is_stale = True
        return
    stopped.is_stale = False
    in_log = [entry.id for entry in stopped.live if entry.run is None and not entry.has_failed]
    failed = [entry for entry in stopped.live if entry.run is None and entry.has_failed]
    stopped.live.clear()
    stopped.live.extend(failed)
    stopped.behind.extendleft(reversed(in_log))
    _look_at_runs(window, stopped, rows)
    if any(run.dirty for run in stopped.runs) or any(entry.verdict for entry in failed):
        window.touched[key] = stopped
    else:
        window.touched.pop(key, None)
    if stopped.is_empty:
        del window.stopped[key]


def _look_at_runs(window: Window, stopped: Stopped, rows: list[Held]) -> None:
    """The rows as they are, but for what is delivered or buried already and could not be written: the operator's
    change came between."""
    over = {run.held.seq: set(run.held.ids) - set(run.left) for run in stopped.runs}
    stopped.runs.clear()
    for row in rows:
        run = Run(row)
        run.left = deque(id_ for id_ in row.ids if id_ not in over.get(row.seq, ()))
        run.dirty = len(run.left) < len(row.ids)
        if run.left:
            stopped.runs.append(run)
        else:
            window.gone.append(row)


def _look_at_replays(window: Window, rows: list[Held], now: float) -> None:
    seen = {(row.ids[0], row.generation): row for row in rows}
    for handle, entry in list(window.replays.items()):
        if handle not in seen and not entry.sent:
            del window.replays[handle]
    for handle, row in seen.items():
        known = window.replays.get(handle)
        is_same = known is not None and known.run is not None and known.run.held.edition == row.edition
        if known is not None and (known.sent or is_same):
            window.nudged = window.nudged or not is_same
            continue
        window.replays[handle] = revive(Run(row), row.ids[0], None, now)
