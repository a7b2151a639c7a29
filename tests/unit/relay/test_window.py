"""One lane in memory: what may go, what waits, what leaves its place to others."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pillarbox.outcome import Outcome, SinkClass
from pillarbox.ports import Held
from pillarbox.relay.lane.look import look
from pillarbox.relay.lane.window import MOST_FOLLOWERS, Window
from pillarbox.retry import Policy
from tests.unit.relay.stage import Stage


def test_what_nobody_wants_is_done() -> None:
    """A route's match leaves out rows, which the cursor passes."""
    stage = Stage()
    a, b = stage.add("a", "b")
    (page,) = stage.store.source.read("main", {0: 0}, 10)
    stage.window.admit(page, lambda row: row[2] == "b")
    assert [row[0] for row in stage.window.ready] == [b]
    assert stage.window.done == {a}


def test_unwanted_rows_behind_a_stopped_key_are_done_too() -> None:
    """The slow way of reading knows the match as well."""
    stage = Stage()
    (a,) = stage.add("a")
    stage.read()
    stage.send(a)
    stage.fail(a)
    b, a2, c = stage.add("b", "a", "c")
    (page,) = stage.store.source.read("main", {0: 1}, 10)
    stage.window.admit(page, lambda row: row[2] != "c")
    assert [row[0] for row in stage.window.ready] == [b]
    assert list(stage.window.stopped["a"].behind) == [a2]
    assert c in stage.window.done


def test_what_is_stopped_leaves_its_place() -> None:
    """W counts what may go, so that one bad key never stops a lane."""
    stage = Stage()
    a, *_ = stage.add(*"aaaa")
    stage.read()
    assert stage.window.room(4) == 0
    stage.send(a)
    stage.fail(a)
    stage.window.sweep()
    assert stage.window.room(4) == 4


def test_followers_have_a_bound() -> None:
    """Ids that wait behind stopped keys are few bytes, but not for ever."""
    stage = Stage()
    (a,) = stage.add("a")
    stage.read()
    stage.send(a)
    stage.fail(a)
    stage.window.stopped["a"].behind.extend(range(MOST_FOLLOWERS + 1))
    assert stage.window.room(10**9) == 0


def test_a_key_in_hold_stops_what_is_read_later() -> None:
    """Hold rows come before the log (R4)."""
    window = Window(0, 1, 0, set())
    window.load([Held(0, 5, 1, "a", [1, 2], 0, "waiting"), Held(0, 6, 1, None, [3], 0, "retry", due_in=4.0)], 10.0)
    assert set(window.stopped) == {"a", 3}
    assert not window.is_idle or window.stopped
    assert window.stopped["a"].is_held
    assert window.stopped["a"].head is None
    assert [s.key for s in window.hungry()] == ["a", 3]


def test_what_is_written_ahead_is_not_sent() -> None:
    """A dead row above the cursor speaks for its message."""
    stage = Stage()
    a, b = stage.add("a", "b")
    stage.log.put(0, "main", Held(0, 0, 0, "a", [a], 0, "dead", ahead=True))
    stage.window.load(stage.held(), 0.0)
    stage.read()
    assert [row[0] for row in stage.window.ready] == [b]


def test_one_in_flight_per_key_unless_the_sink_stops_at_a_failure() -> None:
    """Entries of a key go one by one, or one behind the other."""
    stage = Stage()
    a1, a2, a3 = stage.add("a", "a", "a")
    stage.read()
    stage.send(a1)
    stage.fail(a1)
    stage.settle()
    stage.send(a1, now=5.0)
    stage.accept(a1)
    stage.load_live()
    assert [e.id for e in stage.window.sendable(5.0, pipelined=True)] == [a2, a3]
    assert [e.id for e in stage.window.sendable(5.0, pipelined=False)] == [a2]
    stage.send(a2, now=5.0)
    assert [e.id for e in stage.window.sendable(5.0, pipelined=True)] == [a3]
    assert not list(stage.window.sendable(5.0, pipelined=False))


def test_an_operator_takes_the_head_away() -> None:
    """A skipped head is forgotten, and its key goes on."""
    stage = Stage()
    a1, a2 = stage.add("a", "a")
    stage.read()
    stage.send(a1)
    stage.fail(a1)
    stage.settle()
    head, _ = stage.held()
    stage.log.change_hold(head.seq, state="skipped")
    look(stage.window, [h for h in stage.held() if h.state != "skipped"], 0.0)
    stage.load_live()
    assert [e.id for e in stage.window.sendable(0.0, pipelined=True)] == [a2]


def test_a_key_waits_for_the_look_while_one_of_it_is_on_the_wire() -> None:
    """What a person changed is looked at when the answer is there, and nothing of the key goes before."""
    stage = Stage()
    (a1,) = stage.add("a")
    stage.read()
    stage.send(a1)
    stage.fail(a1)
    stage.settle()
    stage.send(a1, now=5.0)
    stage.log.change_hold(stage.held()[0].seq, state="skipped")
    look(stage.window, [], 5.0)
    assert stage.window.nudged
    stage.fail(a1, now=5.0)
    assert not list(stage.window.sendable(99.0, pipelined=True))
    look(stage.window, [], 6.0)
    assert (stage.window.nudged, stage.window.stopped) == (False, {})


def test_replays_come_and_go_with_their_rows() -> None:
    """A new row is a new replay; a row that went takes it away; an equal one changes nothing."""
    stage = Stage()
    (a,) = stage.add("a")
    row = Held(0, 7, 1, "a", [a], 1, "retry")
    look(stage.window, [row], 0.0)
    (entry,) = stage.window.replays.values()
    look(stage.window, [row], 0.0)
    assert list(stage.window.replays.values()) == [entry]
    entry.sent = True
    look(stage.window, [row._replace(edition=2)], 0.0)
    assert stage.window.nudged
    entry.sent = False
    look(stage.window, [], 0.0)
    assert stage.window.replays == {}


def test_an_operator_gives_up_what_was_only_read() -> None:
    """A message that is erased before it is sent is not sent."""
    stage = Stage()
    a, b = stage.add("a", "b")
    stage.read()
    assert look(stage.window, [Held(0, 7, 1, "a", [a], 0, "skipped", ahead=True)], 0.0) == {a}
    assert [row[0] for row in stage.window.ready] == [b]


def test_one_refusal_is_charged_once() -> None:
    """A message that was sent before is in an earlier batch, too: its last answer is one answer."""
    stage = Stage(delivery=SinkClass.GAPS)
    other, a = stage.add("other", "a")
    stage.read()
    stage.send(other, a)
    for n in range(1, 4):
        stage.fail(a, now=10.0 * n)
        assert stage.window.stopped["a"].live[0].tries == n
        stage.send(a, now=10.0 * n + 9)


def test_a_busy_wire_forgets_answered_batches() -> None:
    """The wire is never empty under load, and the list of batches does not grow."""
    stage = Stage()
    ids = stage.add(*[f"k{n}" for n in range(100)])
    stage.read(1000)
    for before, id_ in zip([None, *ids], ids, strict=False):
        stage.send(id_)
        if before is not None:
            stage.accept(before)
    assert len(stage.flight.batches) <= 2


def test_unknown_answers_of_a_company_go_first_again() -> None:
    """Only a message alone in its session can be the cause (R7)."""
    stage = Stage()
    a, b = stage.add("a", "b")
    stage.read()
    stage.send(a, b)
    stage.fail(a, outcome=Outcome.UNKNOWN)
    assert [item[0] for item in stage.flight.first] == [a, b]
    assert stage.flight.pace == 1
    assert stage.window.stopped == {}
    stage.send(a)
    stage.fail(a, outcome=Outcome.UNKNOWN)
    assert stage.window.stopped["a"].live[0].failed == "?"
    assert [item[0] for item in stage.flight.first] == [b]


KEYS = st.sampled_from(["a", "b", "c", None])
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "read", "send", "accept", "refuse", "lose", "settle", "load"]), KEYS), max_size=60
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 3), st.booleans())
def test_whatever_happens_nothing_is_passed_unaccounted(
    steps: list[tuple[str, str | None]], attempts: int, blocks: bool
) -> None:
    """After every settle each passed message is accepted, or `hold` has it; memory knows the rows as they are."""
    stage = Stage(delivery=SinkClass.GAPS)
    stage.judge.policy, stage.judge.blocks = Policy(attempts=attempts), blocks
    accepted: set[int] = set()
    now = 0.0
    for what, key in steps:
        now += 10.0
        if what == "add":
            stage.add(key, key)
        elif what == "read":
            stage.read(3)
        elif what == "load":
            stage.load_live()
        elif what == "send":
            _send_one(stage, key, now)
        elif what == "settle":
            stage.settle(now)
            _accounted(stage, accepted)
        elif stage.flight.wire:
            _answer(stage, what, accepted, now)


def _send_one(stage: Stage, key: str | None, now: float) -> None:
    """What may go of this key: a stopped one, or the first that is ready and not on the wire."""
    stage.window.sweep()
    flying = {stage.judge.key_of(batch.items[h]) for h, batch in stage.flight.wire.items()}
    entries = [e for e in stage.window.sendable(now, pipelined=False) if e.row]
    ready = [*(i for i in stage.flight.first if isinstance(i, tuple)), *stage.window.ready]
    rows = [row for row in ready if row[2] == key and stage.window.order_key(row) not in flying]
    chosen = [e.id for e in entries if e.key == key] or [row[0] for row in rows]
    if chosen:
        stage.send(chosen[0], now=now)


def _answer(stage: Stage, what: str, accepted: set[int], now: float) -> None:
    handle = next(iter(stage.flight.wire))
    assert isinstance(handle, int)
    if what == "accept":
        accepted.add(handle)
        stage.accept(handle, now=now)
    else:
        stage.fail(handle, outcome=Outcome.REFUSED if what == "refuse" else Outcome.UNKNOWN, now=now)


def _accounted(stage: Stage, accepted: set[int]) -> None:
    held = {id_ for _, ids, _ in stage.rows() for id_ in ids}
    passed = {row[0] for row in stage.log.lanes[0].rows[: stage.cursor]}
    assert passed <= accepted | held
    known = {run.held.seq: run.held for s in stage.window.stopped.values() for run in s.runs}
    live = {h.seq: h for h in stage.held() if h.state in ("retry", "waiting", "blocked")}
    assert {seq: (h.edition, h.ids, h.state) for seq, h in known.items()} == {
        seq: (h.edition, h.ids, h.state) for seq, h in live.items()
    }


def test_a_row_that_still_says_ahead_is_caught_at_the_end_of_the_log() -> None:
    """An operator's change came before the relay's, and then the relay died: the next one mends it."""
    stage = Stage()
    (a,) = stage.add("a")
    stage.log.put(0, "main", Held(0, 0, 0, "a", [a], 0, "resolved", ahead=True))
    stage.window = Window(0, 1, 1, set())
    stage.window.load(stage.held(), 0.0)
    assert stage.plan() is None
    for found in (False, True, False):
        stage.window.looked(found=found)
        assert stage.plan() is None
    stage.window.looked(found=False)
    stage.settle()
    assert [held.ahead for held in stage.held()] == [False]
    assert (stage.window.ahead, stage.window.to_catch) == ({}, set())
