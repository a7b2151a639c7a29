"""A sink's answers, and what the relay makes of them (R7–R10). No I/O but hanging up, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from pillarbox import events as ev
from pillarbox.outcome import Failed, Handle, Outcome
from pillarbox.relay.flight import Batch, Flight, Item
from pillarbox.relay.lane.holds import Entry, OrderKey
from pillarbox.relay.lane.window import Done, Window
from pillarbox.relay.turns import Turns
from pillarbox.retry import Breaker, Policy, backoff, spread

FIRST_MISS, LONGEST_MISS = 0.2, 4.0  # seconds before a message that failed without a refusal is tried again


class Judge:
    """What each answer means for a route's lanes."""

    def __init__(
        self, route: str, sink: str, flight: Flight, windows: dict[int, Window], done: Done, *, emit: ev.Emit
    ) -> None:
        self.route = route
        self.sink = sink
        self.flight = flight
        self.windows = windows
        self.done = done
        self.emit = emit
        self.rnd = Random(0)
        self.policy = Policy()
        self.blocks = False  # after_last_attempt = "block"
        self.breaker = Breaker(self.rnd)
        self.failing: dict[Handle, Entry] = {}  # `?`: failed, and nothing sent after that was accepted yet
        self.turns = Turns()

    # ---------------------------------------------------------------- accepted

    def accepted(self, answers: Sequence[Handle], now: float) -> int:
        """They are delivered; how many were really asked."""
        flight = self.flight
        if not flight.pipelined:
            self._free_keys(answers)
        handles, entries = flight.landed(answers)
        if not handles:
            return 0
        self.done.update(handles)
        if self.failing:
            self._sink_is_well(handles)
        for entry in entries:
            self.done.discard(entry.handle)
            self.failing.pop(entry.handle, None)
            window = self.windows.get(entry.lane)
            if window is not None:
                window.finished(entry)
        self.breaker_closes()
        return len(handles)

    def breaker_closes(self) -> None:
        """Something came back from the sink: it is there."""
        if self.breaker.accepted():
            self.emit(ev.SinkUp(self.route, self.sink))

    def _sink_is_well(self, handles: Sequence[Handle]) -> None:
        """R10: something sent after their failing answer was accepted."""
        for handle, entry in list(self.failing.items()):
            if not entry.before.issuperset(handles):
                entry.failed = "+"
                del self.failing[handle]

    def _free_keys(self, handles: Sequence[Handle]) -> None:
        wire = self.flight.wire
        for handle in handles:
            batch = wire.get(handle)
            if batch is not None:
                self.free_key(batch.items[handle])

    def free_key(self, item: Item) -> None:
        """Its key is not on the wire any more: the next one of it that was parked may go."""
        window = self.window_of(item)
        if window is None or self.flight.pipelined:
            return
        self.turns.free(window, self.key_of(item))

    # ---------------------------------------------------------------- failed

    def failed(self, answers: Sequence[Failed], now: float) -> None:
        """Judge what failed; end the session if the sink is fail-stop or an outcome is unknown (R7)."""
        flight = self.flight
        found: dict[int, Failed] = {}
        batches: dict[Handle, Batch] = {}
        for answer in answers:
            taken = flight.take_off(answer.handle)
            if taken is not None:
                item, batches[answer.handle] = taken
                found[id(item)] = answer
        if not found:
            return
        outcomes = {a.outcome for a in found.values()}
        unknown = Outcome.UNKNOWN in outcomes
        if Outcome.REFUSED in outcomes:
            self.breaker_closes()
        reason = next(iter(found.values())).error
        if flight.pipelined or unknown:
            self.abandon(reason, now, batches, found)
        else:
            for item in flight.in_order(batches):
                answer_of = found.get(id(item))
                if answer_of is not None:
                    self.one_failed(item, answer_of, now)
                    self.free_key(item)
            self.sweep()

    def abandon(
        self, reason: str, now: float, batches: Mapping[Handle, Batch] | None = None,
        found: Mapping[int, Failed] | None = None,
    ) -> None:  # fmt: skip
        """The session is over. What failed is judged unless an earlier one of its key is unanswered; what is
        unanswered goes first in the next session, or, if it was alone, waits with a back-off, others first."""
        found = found or {}
        was_open = self.flight.is_open
        items = self.flight.hang_up(batches)
        for entry in self.failing.values():
            entry.before = frozenset()
        self.turns.end(self.windows)
        rest: list[Item] = []
        unanswered_keys: set[OrderKey] = set()
        judged = []
        for item in items:
            answer, key = found.get(id(item)), self.key_of(item)
            if answer is None or answer.outcome is Outcome.UNKNOWN or key in unanswered_keys:
                rest.append(item)
                unanswered_keys.add(key)
            else:
                judged.append((item, answer))
        if was_open and (rest or not judged):
            self.emit(ev.SessionAbandoned(self.route, self.sink, len(rest), reason))
        if len(rest) == 1 and not judged:
            judged.append((rest.pop(), Failed(0, Outcome.UNKNOWN, reason)))
        elif rest and not judged:
            self.note_failure(now, reason)
        for item, answer in judged:
            self.one_failed(item, answer, now)
        self.flight.first.extendleft(reversed(rest))
        self.sweep()

    def one_failed(self, item: Item, answer: Failed, now: float, *, sent: bool = True) -> None:
        """One message was not accepted: it gets an entry, and its key stops. What was not even sent, because its
        destination is known to be away, says nothing about the sink."""
        window = self.window_of(item)
        if window is None:
            return
        entry = item if isinstance(item, Entry) else window.stop(item)
        entry.error = answer.error
        if answer.outcome is Outcome.REFUSED:
            self._refused(entry, now)
        else:
            self._missed(entry, answer, now)
            if sent:
                self.note_failure(now, answer.error)
        if entry.run is not None or entry.verdict:
            window.touch(entry)

    def _refused(self, entry: Entry, now: float) -> None:
        entry.tries += 1
        self.failing.pop(entry.handle, None)
        if not self.policy.is_last(entry.tries):
            pause = self.policy.delay(entry.tries, self.rnd)
            entry.next_at = now + pause
            self.emit(ev.MessageRefused(self.route, entry.id, entry.tries, pause, entry.error))
        else:
            entry.verdict = "block" if self.blocks and not entry.generation else "bury"
            self.emit(ev.MessageRefused(self.route, entry.id, entry.tries, None, entry.error))

    def _missed(self, entry: Entry, answer: Failed, now: float) -> None:
        """Unavailable, or unknown while alone: nothing is counted (P8)."""
        if answer.outcome is Outcome.UNKNOWN:
            entry.unknowns += 1
            self.emit(ev.AnswerUnknown(self.route, 1, answer.error))
        entry.misses += 1
        entry.next_at = now + spread(backoff(entry.misses, FIRST_MISS, 2.0, LONGEST_MISS), 0.2, self.rnd)
        entry.fail_once_more()
        if entry.failed == "?":
            entry.before = frozenset(self.flight.wire)
            self.failing[entry.handle] = entry

    def note_failure(self, now: float, reason: str) -> None:
        """One more failing answer of the sink, nothing accepted between."""
        was_open = self.breaker.is_open
        self.breaker.failed(now, reason)
        if self.breaker.is_open and not was_open:
            self.emit(ev.SinkDown(self.route, self.sink, reason))

    # ---------------------------------------------------------------- queues

    def window_of(self, item: Item) -> Window | None:
        """Its lane, if that is still ours."""
        return self.windows.get(item.lane if isinstance(item, Entry) else item[1])

    def key_of(self, item: Item) -> OrderKey:
        """What it stays in order with; a replay with nothing."""
        if isinstance(item, Entry):
            return item.key if not item.generation else -item.id
        window = self.windows.get(item[1])
        return item[0] if window is None else window.order_key(item)

    def sweep(self) -> None:
        """Put what is stopped now behind its key: first what was left unanswered, then what is ready."""
        first = self.flight.first
        kept = []
        for item in first:
            window = self.window_of(item)
            if window is not None and (isinstance(item, Entry) or not window.follows(item)):
                kept.append(item)
        first.clear()
        first.extend(kept)
        for window in self.windows.values():
            if window.stopped:
                window.sweep()

    def forget_failing(self, window: Window) -> None:
        """An operator may have taken messages out of a lane's queues."""
        queued = {id(e) for s in window.stopped.values() for e in s.live} | {id(e) for e in window.replays.values()}
        self.failing = {h: e for h, e in self.failing.items() if e.lane != window.lane or e.sent or id(e) in queued}

    def forget(self, window: Window) -> None:
        """The lane is lost, and the session has been hung up: nothing of it is trusted or sent again."""
        self.done.difference_update(window.forgotten())
        self.flight.first = type(self.flight.first)(i for i in self.flight.first if self.window_of(i) is not window)
        self.failing = {h: e for h, e in self.failing.items() if e.lane != window.lane}
        self.windows.pop(window.lane, None)
