"""Where a lane's cursor may be moved to, and what must be written with it (R9, R10). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from pillarbox.ports import Changes, Held, Position, Settled
from pillarbox.relay.lane.holds import Entry, OrderKey, Run, Stopped
from pillarbox.relay.lane.window import Window

LONGEST_RUN = 1_000  # ids in one row of `hold`
LONGEST_ERROR = 2_000  # characters
UNKNOWN = -1  # an edition that no row has


class Birth(NamedTuple):
    """A row of `hold` that a settle writes, and whom it is for."""

    held: Held
    entries: Sequence[Entry] = ()  # live ones that it holds from then on
    key: OrderKey | None = None  # its queue; None: it was given up


class Plan:
    """One lane's settle as data, and how memory is to look once it is committed."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.pages = 0  # passed whole
        self.rows = 0  # of the page after those
        self.aside: dict[OrderKey, list[int]] = {}  # what the cut passes though it was not accepted, in read order
        self.caught: list[int] = []  # ids whose hold row was written ahead of the cursor and is not any more
        self.births: list[Birth] = []
        self.changed: list[Held] = []
        self.buried: list[Entry] = []

    def position(self) -> Position:
        """The cut."""
        w = self.window
        if self.pages == len(w.pages):
            return w.reading
        inpage = w.pages[self.pages]
        done = max(self.rows, inpage.passed)
        return inpage.page.cut(done)

    @property
    def moves(self) -> bool:
        """Whether the cursor passes anything."""
        w = self.window
        return self.pages > 0 or bool(w.pages and self.rows > w.pages[0].passed)

    def changes(self) -> Changes:
        """What is asked of the source."""
        w = self.window
        return Changes(w.lane, w.term, self.position(), tuple(w.gone), tuple(self.changed),
                       tuple(b.held for b in self.births))  # fmt: skip


def plan(window: Window, now: float) -> Plan | None:
    """What there is to settle in this lane; None if nothing."""
    p = Plan(window)
    _walk(p)
    _bury(p, now)
    _set_aside(p, now)
    _update_runs(p, now)
    _catch_up(p)
    if p.moves or window.gone or p.changed or p.births:
        return p
    return None


# ------------------------------------------------------------------ the cut


def _walk(p: Plan) -> None:
    """Move the cut over what is finished, and on over what an answer has set aside and its followers."""
    w = p.window
    done = w.done
    for inpage in w.pages:
        rows = inpage.page.rows
        i, n = inpage.finished, len(rows)
        while i < n and rows[i][0] in done:
            i += 1
        inpage.finished = i
        while i < n and _passes(p, rows[i]):
            i += 1
        p.rows = i
        if i < n:
            return
        p.pages += 1
        p.rows = 0


def _passes(p: Plan, row: Sequence[object]) -> bool:
    w, id_ = p.window, row[0]
    assert isinstance(id_, int)
    if id_ in w.done:
        return True
    if id_ in w.ahead:
        p.caught.append(id_)
        return True
    key = w.order_key(row)
    stopped = w.stopped.get(key)
    if stopped is None:
        return False
    entry = next((e for e in stopped.live if e.id == id_), None)
    follows = stopped.is_held or key in p.aside
    if entry is None:
        passes = follows
    elif entry.verdict == "bury":
        return True  # its dead row is in this settle
    else:
        passes = entry.may_be_passed or (follows and not entry.sent)
    if passes:
        p.aside.setdefault(key, []).append(id_)
    return passes


# ------------------------------------------------------------------ what is written with it


def _held(entry: Entry, ids: list[int], state: str, now: float) -> Held:
    key = entry.key if isinstance(entry.key, str) else None
    return Held(entry.lane, 0, 0, key, ids, entry.generation, state, entry.tries, entry.unknowns,
                max(0.0, entry.next_at - now), entry.error[:LONGEST_ERROR])  # fmt: skip


def _is_above(p: Plan, id_: int) -> bool:
    """Whether the cut does not pass this message of the log."""
    w = p.window
    for at, inpage in enumerate(w.pages):
        if at < p.pages:
            ids = [row[0] for row in inpage.page.rows]
        elif at == p.pages:
            ids = [row[0] for row in inpage.page.rows[: p.rows]]
        else:
            return True
        if id_ in ids:
            return False
    return True


def _verdicts(w: Window) -> list[Entry]:
    heads = [s.head for s in w.touched.values() if s.head is not None and not s.is_stale]
    replays = list(w.replays.values())
    return [e for e in heads + replays if e.verdict and not e.sent]


def _bury(p: Plan, now: float) -> None:
    """R9: a burial or a block is written at once, wherever the cursor is."""
    w = p.window
    for entry in _verdicts(w):
        run = entry.run
        if entry.verdict == "bury":
            p.buried.append(entry)
            if run is not None and len(run.left) <= 1:
                p.changed.append(_as_seen(run, _held(entry, [entry.id], "dead", now)))
                continue
            dead = _held(entry, [entry.id], "dead", now)
            p.births.append(Birth(dead._replace(ahead=run is None and _is_above(p, entry.id)), [entry]))
        elif run is None and not (entry.key in p.aside and entry.id in p.aside[entry.key]):
            blocked = _held(entry, [entry.id], "blocked", now)._replace(ahead=True)
            p.births.append(Birth(blocked, [entry], entry.key))


def _as_seen(run: Run, new: Held) -> Held:
    return new._replace(seq=run.held.seq, edition=run.held.edition, ahead=run.held.ahead, key=run.held.key)


def _set_aside(p: Plan, now: float) -> None:
    """Rows for what the cut passes: a head of its own, what waits behind it in runs."""
    for key, ids in p.aside.items():
        stopped = p.window.stopped[key]
        by_id = {e.id: e for e in stopped.live}
        waiting: list[int] = []
        for id_ in ids:
            entry = by_id.get(id_)
            if entry is None or not entry.has_failed:
                waiting.append(id_)
                continue
            _waiting_runs(p, key, waiting, by_id)
            waiting = []
            state = "blocked" if entry.verdict == "block" else "retry"
            p.births.append(Birth(_held(entry, [id_], state, now), [entry], key))
        _waiting_runs(p, key, waiting, by_id)


def _waiting_runs(p: Plan, key: OrderKey, waiting: list[int], by_id: dict[int, Entry]) -> None:
    for start in range(0, len(waiting), LONGEST_RUN):
        chunk = waiting[start : start + LONGEST_RUN]
        held = Held(p.window.lane, 0, 0, key if isinstance(key, str) else None, chunk, 0, "waiting")
        p.births.append(Birth(held, [by_id[i] for i in chunk if i in by_id], key))


def _update_runs(p: Plan, now: float) -> None:
    """Rows that are partly delivered, or whose head was tried again."""
    buried = {id(e.run) for e in p.buried if e.run is not None and len(e.run.left) <= 1}
    for stopped in p.window.touched.values():
        for run in stopped.runs if not stopped.is_stale else ():
            if run.dirty and id(run) not in buried:
                p.changed.append(_new_state(p, stopped, run, now))
    for entry in p.window.replays.values():
        if entry.run is not None and entry.run.dirty and id(entry.run) not in buried:
            p.changed.append(_as_seen(entry.run, _held(entry, [entry.id], "retry", now)))


def _new_state(p: Plan, stopped: Stopped, run: Run, now: float) -> Held:
    ids = [i for i in run.left if not any(e.run is run and e.id == i for e in p.buried)]
    head = next((e for e in stopped.live if e.run is run and e.id == ids[0]), None)
    if head is None or not head.has_failed:
        return run.held._replace(ids=ids, state="waiting", attempts=0, unknowns=0, due_in=0.0, error="")
    return _as_seen(run, _held(head, ids, "blocked" if head.verdict == "block" else "retry", now))


def _catch_up(p: Plan) -> None:
    """The cursor passes what was written ahead of it."""
    w = p.window
    p.caught += [id_ for id_ in w.to_catch if id_ in w.ahead and id_ not in p.caught]
    changing = {h.seq for h in p.changed}
    for id_ in p.caught:
        held = w.ahead[id_]
        if held.seq in changing:
            p.changed = [h._replace(ahead=False) if h.seq == held.seq else h for h in p.changed]
        else:
            p.changed.append(held._replace(ahead=False))


# ------------------------------------------------------------------ once it is committed


def apply(p: Plan, settled: Settled) -> int:
    """Memory as it is after the settle; how many messages the cursor passed."""
    w = p.window
    w.gone = []
    for birth, seq in zip(p.births, settled.seqs, strict=True):
        _born(w, birth, seq)
    w.to_catch.difference_update(p.caught)
    if settled.stale:
        _unsure(p)
    else:
        runs = _runs_by_seq(w) if p.changed else {}
        for held in p.changed:
            _rewritten(w, held, runs.get(held.seq))
    for entry in p.buried:
        _now_dead(w, entry)
    w.saved = p.position()
    passed = _forget_passed(p)
    for id_ in p.caught:
        if id_ not in w.to_catch:
            w.ahead.pop(id_, None)
    w.touched = {k: s for k, s in w.touched.items() if _still_touched(s)}
    return passed


def _unsure(p: Plan) -> None:
    """An operator was there: some changed row is his and was left as it is, and nobody says which. What was inserted
    is there. The keys of all of them wait for a look; until then no row of theirs is known."""
    w = p.window
    w.nudged = True
    unknown = {held.seq for held in p.changed}
    for stopped in w.stopped.values():
        for run in stopped.runs:
            if run.held.seq in unknown:
                run.held, run.dirty = run.held._replace(edition=UNKNOWN), False
                stopped.is_stale = True
    for entry in w.replays.values():
        if entry.run is not None and entry.run.held.seq in unknown:
            entry.run.held, entry.run.dirty = entry.run.held._replace(edition=UNKNOWN), False
    born = {id(e) for birth in p.births for e in birth.entries}
    p.buried = [e for e in p.buried if e.generation or id(e) in born]
    w.to_catch.update(id_ for id_ in p.caught if w.ahead[id_].seq in unknown)


def _still_touched(stopped: Stopped) -> bool:
    head = stopped.head
    return any(r.dirty for r in stopped.runs) or (head is not None and head.verdict == "bury")


def _born(w: Window, birth: Birth, seq: int) -> None:
    held = birth.held._replace(seq=seq, edition=1)
    if held.ahead:
        w.ahead[held.ids[0]] = held
    if birth.key is None:
        return
    run = Run(held)
    stopped = w.stopped[birth.key]
    stopped.runs.append(run)
    for entry in birth.entries:
        entry.run = run
    live = {e.id for e in birth.entries}
    for id_ in held.ids:
        if id_ not in live and stopped.behind and stopped.behind[0] == id_:
            stopped.behind.popleft()


def _runs_by_seq(w: Window) -> dict[int, Run]:
    """By the row's identity: under `order = "none"` a row of several ids is queued under an id it may have no more."""
    replays = [e.run for e in w.replays.values() if e.run is not None]
    return {run.held.seq: run for run in (*(r for s in w.stopped.values() for r in s.runs), *replays)}


def _rewritten(w: Window, held: Held, run: Run | None) -> None:
    new = held._replace(edition=held.edition + 1)
    for id_ in [i for i, h in w.ahead.items() if h.seq == held.seq]:
        w.ahead[id_] = new
    if run is not None:
        run.held, run.dirty = new, False


def _now_dead(w: Window, entry: Entry) -> None:
    """R9: its burial is committed, so its key goes on."""
    run, w_ahead = entry.run, entry.id in w.ahead
    entry.verdict = ""
    if entry.generation:
        w.replays.pop(entry.handle, None)
        return
    stopped = w.stopped[entry.key]
    stopped.live.remove(entry)
    if run is None:
        if not w_ahead:
            w.done.add(entry.id)
    else:
        run.left.remove(entry.id)
        if not run.left:
            stopped.runs.remove(run)
    if stopped.is_empty:
        del w.stopped[entry.key]


def _forget_passed(p: Plan) -> int:
    w, passed = p.window, 0
    for _ in range(p.pages):
        inpage = w.pages.popleft()
        rows = inpage.page.rows
        w.done.difference_update([row[0] for row in islice(rows, inpage.passed, None)])
        passed += len(rows) - inpage.passed
        w.bytes -= inpage.bytes
    if p.rows and w.pages:
        inpage = w.pages[0]
        if p.rows > inpage.passed:
            w.done.difference_update([row[0] for row in inpage.page.rows[inpage.passed : p.rows]])
            passed += p.rows - inpage.passed
            inpage.passed = p.rows
            inpage.finished = max(inpage.finished, p.rows)
    w.unpassed -= passed
    return passed
