"""Where a lane's cursor may go, and what is written with it."""

from pillarbox.outcome import Failed, Outcome, SinkClass
from pillarbox.ports import Held, Settled
from pillarbox.relay.lane.look import look
from pillarbox.relay.lane.plan import LONGEST_RUN, UNKNOWN, apply
from pillarbox.retry import Policy
from tests.unit.relay.stage import Stage


def test_the_cursor_passes_the_finished_prefix() -> None:
    """What is accepted behind something unanswered is settled later."""
    stage = Stage()
    a, b, c = stage.add("a", "b", "c")
    stage.read()
    stage.send(a, b, c)
    stage.accept(a, c)
    stage.settle()
    assert stage.cursor == 1
    stage.accept(b)
    stage.settle()
    assert (stage.cursor, stage.window.done, stage.window.unpassed, stage.window.bytes) == (3, set(), 0, 0)
    assert stage.plan() is None


def test_a_cut_inside_a_page_is_taken_up_again() -> None:
    """A page that is settled in parts ends where it ends."""
    stage = Stage()
    ids = stage.add(*"abcdef")
    stage.read(4)
    stage.read(4)
    stage.send(*ids)
    for done in ids:
        stage.accept(done)
        stage.settle()
        assert stage.cursor == ids.index(done) + 1


def test_a_refused_message_is_set_aside_with_what_waits_behind_it() -> None:
    """One row for the head, one for the run; other keys go on."""
    stage = Stage()
    a1, b1, a2, a3 = stage.add("a", "b", "a", "a")
    stage.read()
    stage.send(a1, b1, a2, a3)
    stage.fail(a1)
    assert stage.sink.hung_up == 1
    stage.send(b1)
    stage.accept(b1)
    stage.settle()
    assert stage.cursor == 4
    assert stage.rows() == [("retry", [a1], 1), ("waiting", [a2, a3], 0)]


def test_nothing_on_the_wire_is_passed() -> None:
    """A message that failed and is sent again holds the cursor."""
    stage = Stage()
    (a1,) = stage.add("a")
    stage.read()
    stage.send(a1)
    stage.fail(a1)
    stage.send(a1, now=10.0)
    assert stage.plan(10.0) is None
    stage.accept(a1)
    stage.settle()
    assert (stage.cursor, stage.rows()) == (1, [])


def test_an_outage_sets_nothing_aside() -> None:
    """Unavailable twice, and nothing accepted between: the cursor stays."""
    stage = Stage(delivery=SinkClass.GAPS)
    a, b = stage.add("a", "b")
    stage.read()
    for now in (0.0, 10.0, 20.0):
        stage.send(a, b, now=now)
        stage.fail(a, b, outcome=Outcome.UNAVAILABLE, now=now)
    assert stage.plan(20.0) is None
    assert not stage.window.stopped["a"].live[0].may_be_passed


def test_one_destination_away_is_set_aside_after_proof() -> None:
    """Failed, then something sent later accepted, then failed again."""
    stage = Stage(delivery=SinkClass.GAPS)
    a, b, c = stage.add("a", "b", "c")
    stage.read()
    stage.send(a, b)
    stage.fail(a, outcome=Outcome.UNAVAILABLE)
    stage.accept(b)
    assert stage.window.stopped["a"].live[0].failed == "?", "b was on the wire when a failed"
    stage.send(c)
    stage.accept(c)
    assert stage.window.stopped["a"].live[0].failed == "+"
    assert stage.plan(5.0) is None
    stage.send(a, now=5.0)
    stage.fail(a, outcome=Outcome.UNAVAILABLE, now=5.0)
    stage.settle(5.0)
    assert (stage.cursor, stage.rows()) == (3, [("retry", [a], 0)])


def test_an_acceptance_heard_with_the_failing_answer_proves_nothing() -> None:
    """What fails must have been sent again since the sink was known to be well."""
    stage = Stage(delivery=SinkClass.GAPS)
    a, b = stage.add("a", "b")
    stage.read()
    stage.send(a)
    stage.fail(a, outcome=Outcome.UNAVAILABLE)
    stage.send(a, b, now=5.0)
    stage.accept(b, now=5.0)
    stage.fail(a, outcome=Outcome.UNAVAILABLE, now=5.0)
    assert stage.window.stopped["a"].live[0].failed == "+"
    stage.send(a, now=10.0)
    stage.fail(a, outcome=Outcome.UNAVAILABLE, now=10.0)
    assert stage.window.stopped["a"].live[0].failed == "!"


def test_a_burial_is_written_above_the_cursor_and_its_key_goes_on() -> None:
    """The dead row is ahead until the cursor comes by; the follower is free after the commit."""
    stage = Stage(delivery=SinkClass.GAPS)
    stage.judge.policy = Policy(attempts=1)
    slow, a1, a2 = stage.add("slow", "a", "a")
    stage.read()
    stage.send(slow, a1)
    stage.fail(a1)
    assert not list(stage.window.sendable(99.0, pipelined=True))
    stage.settle()
    assert stage.cursor == 0
    assert [(h.state, h.ahead) for h in stage.held()] == [("dead", True)]
    stage.load_live()
    assert [e.id for e in stage.window.sendable(99.0, pipelined=True)] == [a2]
    stage.accept(slow)
    stage.settle()
    assert stage.cursor == 2
    assert [(h.state, h.ahead) for h in stage.held()] == [("dead", False)]
    assert stage.window.ahead == {}


def test_a_block_above_the_cursor_keeps_its_key() -> None:
    """Blocked is written at once, and what follows waits for a person."""
    stage = Stage(delivery=SinkClass.GAPS)
    stage.judge.policy, stage.judge.blocks = Policy(attempts=1), True
    slow, a1, _a2 = stage.add("slow", "a", "a")
    stage.read()
    stage.send(slow, a1)
    stage.fail(a1)
    stage.settle()
    assert stage.rows() == [("blocked", [a1], 1)]
    stage.accept(slow)
    stage.settle()
    assert stage.cursor == 3
    assert [row[0] for row in stage.rows()] == ["blocked", "waiting"]
    assert not list(stage.window.sendable(99.0, pipelined=True))


def test_nothing_waits_behind_a_message_that_the_same_settle_buries() -> None:
    """The last refusal of a held head and a new follower meet in one settle: the follower stays in the log."""
    stage = Stage()
    stage.judge.policy = Policy(attempts=2)
    (a1,) = stage.add("a")
    stage.read()
    stage.send(a1)
    stage.fail(a1)
    stage.settle()
    stage.add("a")
    stage.read()
    stage.send(a1, now=10.0)
    stage.fail(a1, now=10.0)
    stage.settle(10.0)
    assert stage.rows() == [("dead", [a1], 2)]
    assert stage.cursor == 1


def test_a_long_queue_is_written_in_runs() -> None:
    """A row of `hold` holds at most so many ids."""
    stage = Stage()
    ids = stage.add(*["a"] * (LONGEST_RUN + 6))
    stage.read(5000)
    stage.send(ids[0])
    stage.fail(ids[0])
    stage.settle()
    assert [len(ids) for _, ids, _ in stage.rows()] == [1, LONGEST_RUN, 5]


def test_a_held_run_shrinks_as_it_is_delivered() -> None:
    """Each settle writes what is left of it; at the end the rows are gone."""
    stage = Stage()
    ids = stage.add(*"aaaa")
    stage.read()
    stage.send(ids[0])
    stage.fail(ids[0])
    stage.settle()
    stage.send(ids[0], now=5.0)
    stage.accept(ids[0])
    stage.load_live()
    stage.settle()
    assert stage.rows() == [("waiting", ids[1:], 0)]
    stage.send(ids[1], ids[2])
    stage.accept(ids[1])
    stage.fail(ids[2], now=5.0)
    stage.settle(5.0)
    assert stage.rows() == [("retry", ids[2:], 1)]
    stage.send(ids[2], now=9.0)
    stage.accept(ids[2])
    stage.send(ids[3], now=9.0)
    stage.accept(ids[3])
    stage.settle(9.0)
    assert (stage.rows(), stage.window.stopped, stage.window.touched) == ([], {}, {})


def test_after_a_stale_settle_no_edition_is_believed() -> None:
    """The operator's change had the number that the relay's would have had: only a look tells."""
    stage = Stage()
    stage.judge.policy, stage.judge.blocks = Policy(attempts=2), True
    a1, a2 = stage.add("a", "a")
    stage.read()
    stage.send(a1)
    stage.fail(a1)
    stage.settle()
    (seq, _) = sorted(stage.log.holds)
    stage.send(a1, now=5.0)
    stage.fail(a1, now=5.0)
    stage.log.change_hold(seq, state="skipped")
    stage.settle(5.0)
    stopped = stage.window.stopped["a"]
    assert stage.window.nudged
    assert stopped.is_stale
    assert UNKNOWN in {run.held.edition for run in stopped.runs}
    assert not list(stage.window.sendable(99.0, pipelined=True))
    look(stage.window, [h for h in stage.held() if h.state != "skipped"], 5.0)
    stage.load_live()
    assert [e.id for e in stage.window.sendable(99.0, pipelined=True)] == [a2]


def test_what_was_delivered_before_a_stale_settle_is_not_sent_again() -> None:
    """A row that an operator shortened still lists what is delivered; the look leaves it out and writes it."""
    stage = Stage()
    ids = stage.add(*"aaaa")
    stage.read()
    stage.send(ids[0])
    stage.fail(ids[0])
    stage.settle()
    stage.send(ids[0], now=5.0)
    stage.accept(ids[0])
    stage.load_live()
    stage.send(ids[1])
    stage.accept(ids[1])
    waiting = next(h for h in stage.held() if h.state == "waiting")
    stage.log.change_hold(waiting.seq, ids=ids[1:3])
    stage.settle(5.0)
    look(stage.window, stage.held(), 5.0)
    stage.load_live()
    assert [e.id for e in stage.window.sendable(9.0, pipelined=True)] == [ids[2]]
    stage.settle(5.0)
    assert stage.rows() == [("waiting", [ids[2]], 0)]


def test_rows_of_several_ids_survive_a_change_to_no_order() -> None:
    """The queue of such a row has a name that the row loses; its edition is counted all the same."""
    stage = Stage()
    ids = stage.add(*"aaa")
    stage.read()
    stage.send(ids[0])
    stage.fail(ids[0])
    stage.settle()
    held = stage.held()
    after = Stage(ordered=False)
    after.log, after.store = stage.log, stage.store
    after.window.saved = after.window.reading = 3
    after.window.load(held, 0.0)
    after.load_live()
    for done in ids[1:]:
        after.send(done)
        after.accept(done)
        p = after.settle()
        assert p is not None
        look(after.window, after.held(), 0.0)
        assert sum(len(s.runs) for s in after.window.stopped.values()) == len(after.rows())
    assert after.rows() == [("retry", [ids[0]], 1)]


def test_a_replay_that_is_refused_to_the_end_is_buried_alone() -> None:
    """Generations above 0 neither wait nor hold anything back."""
    stage = Stage()
    stage.judge.policy, stage.judge.blocks = Policy(attempts=1), True
    (a1,) = stage.add("a")
    stage.log.put(0, "main", _replay(a1))
    stage.window.load(stage.held(), 0.0)
    (entry,) = stage.window.replays.values()
    entry.row = stage.store.source.fetch([a1])[0]
    stage.flight.open()
    stage.flight.send([((a1, 1), "t", None, b"", [])], [entry], 0.0)
    stage.judge.failed([Failed((a1, 1), Outcome.REFUSED, "played")], 0.0)
    stage.settle()
    assert stage.rows() == [("dead", [a1], 1)]
    assert stage.window.replays == {}


def _replay(id_: int) -> Held:
    return Held(0, 0, 0, "a", [id_], 1, "retry")


def test_a_stale_catch_up_is_tried_again() -> None:
    """A row written ahead that an operator touched is caught by the next settle."""
    stage = Stage(delivery=SinkClass.GAPS)
    stage.judge.policy = Policy(attempts=1)
    slow, a1 = stage.add("slow", "a")
    stage.read()
    stage.send(slow, a1)
    stage.fail(a1)
    stage.settle()
    stage.log.change_hold(stage.held()[0].seq, state="skipped")
    stage.accept(slow)
    stage.settle()
    assert (stage.cursor, stage.held()[0].ahead) == (2, True)
    look(stage.window, stage.held(), 0.0)
    stage.settle()
    assert stage.held()[0].ahead is False
    assert stage.window.ahead == {}


def test_apply_counts_what_was_passed() -> None:
    """For the event that tells of it."""
    stage = Stage()
    ids = stage.add(*"abc")
    stage.read()
    stage.send(*ids)
    stage.accept(*ids)
    p = stage.plan()
    assert p is not None
    assert p.moves
    assert apply(p, Settled([], stale=False)) == 3


def _blocked_ahead() -> tuple[Stage, int, int]:
    """A message that is blocked above the cursor, which waits for another one."""
    stage = Stage(delivery=SinkClass.GAPS)
    stage.judge.policy, stage.judge.blocks = Policy(attempts=1), True
    slow, a1 = stage.add("slow", "a")
    stage.read()
    stage.send(slow, a1)
    stage.fail(a1)
    stage.settle()
    return stage, slow, a1


def test_a_catch_up_that_met_an_operator_leaves_nothing_behind() -> None:
    """Whether the row was written or not is seen at the look; a plan that is only asked for changes nothing."""
    stage, slow, a1 = _blocked_ahead()
    stage.accept(slow)
    stage.log.change_hold(stage.held()[0].seq, state="retry", attempts=0)
    stage.settle()
    assert stage.window.to_catch == {a1}
    assert stage.plan() is not None
    assert stage.plan() is not None, "asking twice gives the same answer"
    look(stage.window, stage.held(), 0.0)
    stage.load_live()
    stage.send(a1, now=1.0)
    stage.accept(a1)
    stage.settle(1.0)
    assert (stage.rows(), stage.window.done, stage.window.ahead, stage.window.to_catch) == ([], set(), {}, set())


def test_a_row_that_was_written_in_a_stale_settle_is_caught() -> None:
    """Another row was the operator's: this one is not ahead any more."""
    stage, slow, _a1 = _blocked_ahead()
    stage.accept(slow)
    p = stage.plan()
    assert p is not None
    written = stage.store.source.settle("main", [p.changes()])[0]
    apply(p, written._replace(stale=True))
    look(stage.window, stage.held(), 0.0)
    assert (stage.window.ahead, stage.window.to_catch) == ({}, set())
    assert stage.plan() is None


def test_what_is_delivered_before_it_is_read_is_not_sent_again() -> None:
    """A blocked row above the cursor, retried by a person, goes before the log comes to it."""
    before, slow, a1 = _blocked_ahead()
    before.log.change_hold(before.held()[0].seq, state="retry", attempts=0)
    stage = Stage(delivery=SinkClass.GAPS)
    stage.log, stage.store = before.log, before.store
    stage.window.load(stage.held(), 0.0)
    stage.load_live()
    stage.send(a1)
    stage.accept(a1)
    stage.settle()
    assert stage.rows() == []
    stage.read()
    assert [row[0] for row in stage.window.ready] == [slow]
    stage.send(slow)
    stage.accept(slow)
    stage.settle()
    assert (stage.cursor, stage.window.done, stage.window.early) == (2, set(), set())
