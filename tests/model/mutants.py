"""Each rule of the relay broken in the real code: what the simulator must catch."""

from collections.abc import Callable
from typing import Any

import pytest

from pillarbox.outcome import Failed, Outcome
from pillarbox.ports import Changes
from pillarbox.relay.flight import Flight
from pillarbox.relay.judge import Judge
from pillarbox.relay.lane import plan as plans
from pillarbox.relay.lane.holds import Entry, Stopped
from pillarbox.relay.lane.window import Window
from pillarbox.relay.publish import Publisher
from pillarbox.relay.read import Reader
from pillarbox.relay.turns import Turns

Break = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Break] = {}


def mutant(broken: Break) -> Break:
    MUTANTS[broken.__name__] = broken
    return broken


def wrap(patch: pytest.MonkeyPatch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """`around(original, self, …)` in place of the method."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *words, **named: around(original, *words, **named))


# ------------------------------------------------------------------ the cut (R10)


@mutant
def settle_before_send(patch: pytest.MonkeyPatch) -> None:
    """What is read counts as delivered."""

    def admit(original: Any, window: Window, page: Any, wanted: Any) -> None:
        original(window, page, wanted)
        window.done.update(row[0] for row in page.rows)

    wrap(patch, Window, "admit", admit)


@mutant
def wire_is_passed(patch: pytest.MonkeyPatch) -> None:
    """The cursor passes what is not answered yet, if it is on the wire."""

    def passes(original: Any, p: Any, row: Any) -> bool:
        stopped = p.window.stopped.get(p.window.order_key(row))
        return original(p, row) or (stopped is None and row not in p.window.ready)

    wrap(patch, plans, "_passes", passes)


@mutant
def failed_on_the_wire_is_passed(patch: pytest.MonkeyPatch) -> None:
    """A message that failed before is set aside while it is on the wire again."""
    patch.setattr(Entry, "may_be_passed", property(lambda e: e.tries > 0 or e.failed == "!" or e.verdict != ""))


@mutant
def nothing_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    """Only the finished prefix is settled."""
    patch.setattr(plans, "_passes", lambda p, row: row[0] in p.window.done)


@mutant
def only_refused_is_set_aside(patch: pytest.MonkeyPatch) -> None:
    """A destination that is away holds its lane."""
    patch.setattr(Entry, "may_be_passed", property(lambda e: not e.sent and (e.tries > 0 or e.verdict != "")))


@mutant
def one_failure_sets_aside(patch: pytest.MonkeyPatch) -> None:
    """An outage moves everything into `hold`."""
    patch.setattr(Entry, "fail_once_more", lambda e: setattr(e, "failed", "!"))


@mutant
def no_second_failure(patch: pytest.MonkeyPatch) -> None:
    """Set aside as soon as the sink is well, without being sent again."""
    patch.setattr(
        Entry, "may_be_passed", property(lambda e: not e.sent and (e.tries > 0 or e.failed in "+!" != "" or e.verdict))
    )


@mutant
def any_second_failure(patch: pytest.MonkeyPatch) -> None:
    """An acceptance heard together with the failing answer proves it."""
    patch.setattr(Entry, "fail_once_more", lambda e: setattr(e, "failed", "!" if e.failed == "+" else e.failed or "?"))


@mutant
def any_acceptance(patch: pytest.MonkeyPatch) -> None:
    """What was on the wire when it failed proves that the sink is well."""

    def well(_original: Any, judge: Judge, _handles: Any) -> None:
        for entry in judge.failing.values():
            entry.failed = "+"
        judge.failing.clear()

    wrap(patch, Judge, "_sink_is_well", well)


@mutant
def two_statements(patch: pytest.MonkeyPatch) -> None:
    """The cursor moves first, its hold rows are written later."""
    patch.setattr(plans.Plan, "changes", lambda p: Changes(p.window.lane, p.window.term, p.position()))
    wrap(patch, plans, "apply", _cursor_only)
    patch.setattr("pillarbox.relay.settle.apply", plans.apply)


def _cursor_only(original: Any, p: Any, settled: Any) -> int:
    p.births, p.changed = [], []
    return int(original(p, settled))


# ------------------------------------------------------------------ order (R5, R6, R9)


@mutant
def followers_are_sent(patch: pytest.MonkeyPatch) -> None:
    """Nothing waits behind a stopped key."""
    patch.setattr(Window, "follows", lambda _window, _row: False)


@mutant
def later_pages_pass_a_stopped_key(patch: pytest.MonkeyPatch) -> None:
    """What is read while its key is stopped goes at once."""

    def admit(original: Any, window: Window, page: Any, wanted: Any) -> None:
        stopped, window.stopped = window.stopped, {}
        original(window, page, wanted)
        window.stopped = stopped

    wrap(patch, Window, "admit", admit)


@mutant
def pipelines_into_any_sink(patch: pytest.MonkeyPatch) -> None:
    """Several of a key are in flight although the sink does not stop at a failure."""
    wrap(patch, Flight, "__init__", lambda original, f, sink: (original(f, sink), setattr(f, "pipelined", True))[0])


@mutant
def turns_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A key that is on the wire is not busy."""
    wrap(patch, Turns, "take", lambda original, t, *words: (t.busy.clear(), original(t, *words))[1])


@mutant
def buried_in_memory(patch: pytest.MonkeyPatch) -> None:
    """Followers go before the burial is committed."""

    def sendable(original: Any, window: Window, now: float, *, pipelined: bool) -> list[Entry]:
        buried = [(s, e) for s in window.stopped.values() for e in list(s.live)[:1] if e.verdict == "bury"]
        for stopped, _ in buried:
            stopped.live.popleft()
        found = list(original(window, now, pipelined=pipelined))
        for stopped, entry in buried:
            stopped.live.appendleft(entry)
        return found

    wrap(patch, Window, "sendable", sendable)


@mutant
def burial_waits_for_the_cut(patch: pytest.MonkeyPatch) -> None:
    """A message is buried only when the cursor comes by."""

    def bury(original: Any, p: Any, now: float) -> None:
        late = [e for e in plans._verdicts(p.window) if e.run is None and plans._is_above(p, e.id)]
        verdicts = [e.verdict for e in late]
        for entry in late:
            entry.verdict = ""
        original(p, now)
        for entry, verdict in zip(late, verdicts, strict=True):
            entry.verdict = verdict

    wrap(patch, plans, "_bury", bury)


@mutant
def rows_ahead_are_not_read(patch: pytest.MonkeyPatch) -> None:
    """A hold row above the cursor does not speak for its message."""

    def load(original: Any, window: Window, held: Any, now: float) -> None:
        original(window, [h._replace(ahead=False) for h in held if not (h.ahead and h.state == "dead")], now)

    wrap(patch, Window, "load", load)


@mutant
def hold_is_not_loaded(patch: pytest.MonkeyPatch) -> None:
    """A new owner begins with the log."""
    patch.setattr(Window, "load", lambda _window, _held, _now: None)


@mutant
def blocked_is_not_loaded(patch: pytest.MonkeyPatch) -> None:
    """A blocked key goes on with its next owner."""
    wrap(patch, Window, "load",
         lambda original, w, held, now: original(w, [h for h in held if h.state != "blocked"], now))  # fmt: skip


@mutant
def hold_is_loaded_backwards(patch: pytest.MonkeyPatch) -> None:
    """A key's rows are not taken in their order."""
    wrap(patch, Window, "load", lambda original, w, held, now: original(w, list(held)[::-1], now))


@mutant
def stopped_counts_as_held(patch: pytest.MonkeyPatch) -> None:
    """Followers are set aside behind a message that no answer allows to set aside."""
    patch.setattr(Stopped, "is_held", property(lambda s: bool(s.live) or bool(s.runs)))


# ------------------------------------------------------------------ counting (R8)


@mutant
def outage_counts(patch: pytest.MonkeyPatch) -> None:
    """Unavailable is an attempt."""
    wrap(patch, Judge, "_missed", lambda _original, judge, entry, _answer, now: judge._refused(entry, now))


@mutant
def unknown_counts(patch: pytest.MonkeyPatch) -> None:
    """Unknown is an attempt."""

    def missed(original: Any, judge: Judge, entry: Entry, answer: Failed, now: float) -> None:
        if answer.outcome is Outcome.UNKNOWN:
            judge._refused(entry, now)
        else:
            original(judge, entry, answer, now)

    wrap(patch, Judge, "_missed", missed)


@mutant
def one_attempt_less(patch: pytest.MonkeyPatch) -> None:
    """A message is given up before its last attempt."""
    patch.setattr("pillarbox.retry.Policy.is_last", lambda policy, tries: tries >= policy.attempts - 1)


@mutant
def counted_in_both_batches(patch: pytest.MonkeyPatch) -> None:
    """A message that was sent again is charged for each batch it went with."""

    def in_order(_original: Any, f: Flight, and_also: Any = None) -> list[Any]:
        also = and_also or {}
        return [i for b in f.batches for h, i in b.items.items() if f.wire.get(h) is b or h in also]

    wrap(patch, Flight, "in_order", in_order)
    patch.setattr(Flight, "_forget_answered", lambda _f: None)


# ------------------------------------------------------------------ sessions (R7)


@mutant
def unknown_is_done(patch: pytest.MonkeyPatch) -> None:
    """What was unanswered counts as accepted."""

    def hang_up(original: Any, f: Flight, and_also: Any = None) -> list[Any]:
        items = original(f, and_also)
        return [i for i in items if isinstance(i, Entry)]

    wrap(patch, Flight, "hang_up", hang_up)


@mutant
def no_slow_start(patch: pytest.MonkeyPatch) -> None:
    """A session after one that ended begins at full pace, and no breaker helps: the killer is never alone."""
    patch.setattr(Judge, "note_failure", lambda _judge, _now, _reason: None)
    wrap(patch, Flight, "hang_up", lambda original, f, *words: (original(f, *words), setattr(f, "pace", f.most))[0])


@mutant
def no_back_off_for_killers(patch: pytest.MonkeyPatch) -> None:
    """A message that ends its session alone is sent again before all others."""

    def missed(original: Any, judge: Judge, entry: Entry, answer: Failed, now: float) -> None:
        original(judge, entry, answer, now)
        if answer.outcome is Outcome.UNKNOWN:
            entry.next_at = 0.0
            judge.flight.first.appendleft(entry)

    wrap(patch, Judge, "_missed", missed)


@mutant
def fail_stop_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A failure does not end a fail-stop session: what was behind it is waited for."""

    def failed(original: Any, judge: Judge, answers: Any, now: float) -> None:
        pipelined, judge.flight.pipelined = judge.flight.pipelined, False
        original(judge, answers, now)
        judge.flight.pipelined = pipelined

    wrap(patch, Judge, "failed", failed)


@mutant
def no_send_timeout(patch: pytest.MonkeyPatch) -> None:
    """An answer that never comes is waited for."""
    patch.setattr(Publisher, "check_deadline", lambda _p, _now: None)


@mutant
def first_is_put_among_the_ready(patch: pytest.MonkeyPatch) -> None:
    """What a session left is sent after what is ready."""

    def abandon(original: Any, judge: Judge, *words: Any) -> None:
        original(judge, *words)
        for item in list(judge.flight.first):
            window = judge.window_of(item)
            if window is not None and not isinstance(item, Entry):
                window.ready.append(item)
        judge.flight.first.clear()

    wrap(patch, Judge, "abandon", abandon)


@mutant
def probes_with_new_messages_only(patch: pytest.MonkeyPatch) -> None:
    """An open breaker never tries what has failed."""

    def take(original: Any, p: Publisher, room: int, now: float) -> list[Any]:
        return [] if p.judge.breaker.is_open else original(p, room, now)

    wrap(patch, Publisher, "_take_entries", take)


@mutant
def stopped_keys_fill_the_window(patch: pytest.MonkeyPatch) -> None:
    """What failed and its followers leave no place to others."""
    patch.setattr(Window, "room", lambda window, most: most - window.unpassed)
    patch.setattr(Reader, "_has_room", lambda reader, window: window.room(reader.config.window) > 0)
