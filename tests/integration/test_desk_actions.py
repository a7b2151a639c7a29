"""What an operator's words do to the tables, in PostgreSQL and in SQLite."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillarbox.errors import Refused
from tests.integration.desk_stage import NOTE, SqliteStage, Stage


@pytest.fixture(params=["postgres", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """The same on both databases."""
    if request.param == "sqlite":
        stage: Stage = SqliteStage(tmp_path / "shop.db", routes=("all", "other"))
    else:
        stage = Stage(request.getfixturevalue("pg_url"), routes=("all", "other"))
    yield stage
    stage.close()


def test_retry_makes_a_blocked_message_due_now_with_all_its_attempts(stage: Stage) -> None:
    """retry resets the attempts, raises the edition and nudges the relays of the route."""
    id, _ = stage.add()
    stage.hold("blocked", id, attempts=5)
    assert stage.actions.change("retry", stage.picked(), NOTE) == [id]
    assert stage.rows("state", "attempts", "edition") == [("retry", 0, 2)]
    [line] = stage.picked()
    assert (line.due_in or 0) <= 0
    assert (stage.nudge("all"), stage.nudge("other")) == (1, 0)


def test_burying_a_head_leaves_its_followers_in_their_place(stage: Stage) -> None:
    """The row of a run keeps its seq and its followers; only the head becomes dead, in a row of its own."""
    ids = [stage.add()[0] for _ in range(4)]
    first = stage.hold("retry", *ids[:3])
    second = stage.hold("waiting", ids[3])
    stage.actions.change("bury", stage.picked("retry"), NOTE)
    assert stage.rows("seq", "ids", "state", where="state <> 'dead'") == [
        (first, ids[1:3], "retry"), (second, [ids[3]], "waiting"),
    ]  # fmt: skip
    assert stage.rows("ids", "state", "error", where="state = 'dead'") == [([ids[0]], "dead", "boom")]


def test_a_row_of_one_message_is_buried_where_it_is(stage: Stage) -> None:
    """No second row is written for a message that has a row to itself."""
    id, _ = stage.add()
    seq = stage.hold("retry", id)
    stage.actions.change("bury", stage.picked(), NOTE)
    assert stage.rows("seq", "state", "edition") == [(seq, "dead", 2)]


def test_a_message_inside_a_run_is_skipped_by_its_id(stage: Stage) -> None:
    """skip takes a waiting message out of the middle of a run; the rest stays in order."""
    added = [stage.add() for _ in range(3)]
    ids = [id for id, _ in added]
    seq = stage.hold("waiting", *ids)
    lines = stage.picked(ids=[added[1][1]])
    assert [(line.id, line.state, line.behind) for line in lines] == [(ids[1], "waiting", 1)]
    stage.actions.change("skip", lines, NOTE)
    assert stage.rows("seq", "ids", "state", where="state = 'waiting'") == [(seq, [ids[0], ids[2]], "waiting")]
    assert stage.rows("ids", "state", where="state = 'skipped'") == [([ids[1]], "skipped")]


def test_a_skip_above_the_cursor_stays_above_it(stage: Stage) -> None:
    """A row written above the cursor keeps saying so, else the relay would read its message again (R9)."""
    id, _ = stage.add()
    stage.hold("blocked", id, ahead=True)
    stage.actions.change("skip", stage.picked(), NOTE)
    assert stage.rows("state", "ahead") == [("skipped", True)]


def test_a_replay_resolves_the_dead_row_and_adds_a_generation(stage: Stage) -> None:
    """replay marks the dead row resolved and adds the message once more, due now, with the next generation."""
    id, _ = stage.add()
    stage.hold("dead", id)
    assert stage.actions.replay(stage.picked("dead"), None, NOTE) == [id]
    assert stage.rows("route", "ids", "state", "generation") == [
        ("all", [id], "resolved", 0), ("all", [id], "retry", 1),
    ]  # fmt: skip


def test_a_replay_to_another_route_goes_to_its_lane_and_a_higher_generation(stage: Stage) -> None:
    """replay --to counts generations over all routes and nudges the route that is to deliver."""
    id, _ = stage.add()
    stage.hold("resolved", id)
    stage.hold("dead", id, generation=1)
    stage.actions.replay(stage.picked("dead"), "other", NOTE)
    assert stage.rows("route", "lane", "generation", "state", where="route = 'other'") == [
        ("other", stage.lane_of(id), 2, "retry")
    ]
    assert stage.nudge("other") == 1


def test_two_operators_replay_the_same_message_once(stage: Stage) -> None:
    """Of 20 replays of one dead message at the same time one finds it dead; the others change nothing."""
    id, _ = stage.add()
    stage.hold("dead", id)
    lines = stage.picked("dead")
    done: list[list[int]] = []

    def replay() -> None:
        actions = stage.more_actions()
        done.append(actions.replay(lines, None, NOTE))
        actions.close()

    threads = [threading.Thread(target=replay) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [[]] * 19 + [[id]]
    assert len(stage.rows("seq", where="generation = 1")) == 1
    assert len(stage.audited()) == 1


def test_an_unrouted_message_is_replayed_only_to_a_named_route(stage: Stage) -> None:
    """Nobody delivers the reserved route, so a replay without --to would lose the message again: it is refused."""
    id, _ = stage.add()
    stage.hold("dead", id, route="unrouted")
    with pytest.raises(Refused, match="--to"):
        stage.actions.replay(stage.picked("dead"), None, NOTE)
    with pytest.raises(Refused, match="nowhere"):
        stage.actions.replay(stage.picked("dead"), "nowhere", NOTE)
    assert stage.actions.replay(stage.picked("dead"), "other", NOTE) == [id]


def test_what_changed_since_it_was_looked_at_is_left_alone(stage: Stage) -> None:
    """A message that was delivered or buried meanwhile is missing from the answer, and nothing is written for it."""
    gone, _ = stage.add("x")
    dead, _ = stage.add("y")
    stage.hold("retry", gone)
    stage.hold("retry", dead)
    lines = stage.picked()
    stage.deliver(gone)
    stage.become(dead, "dead")
    assert stage.actions.change("retry", lines, NOTE) == []
    assert stage.rows("state", "edition") == [("dead", 1)]
    assert stage.audited() == []


def test_every_action_is_audited_with_who_where_why_and_which(stage: Stage) -> None:
    """The audit row names the operator, the host, the reason and each message."""
    id, message_id = stage.add()
    stage.hold("retry", id)
    stage.actions.change("skip", stage.picked(), NOTE)
    [(who, host, action, why, detail)] = stage.audited()
    assert (who, host, action, why) == ("ann", "host1", "skip", "a test")
    assert detail["messages"] == [
        {"id": str(message_id), "log": id, "route": "all", "was": "retry", "generation": 0}
    ]  # fmt: skip


def test_erase_blanks_the_log_and_skips_what_is_undelivered(stage: Stage) -> None:
    """The payload goes; id, type and key stay; routes that have not read it get a final row above their cursors."""
    id, message_id = stage.add(payload=b'{"name": "Ann"}')
    [found] = stage.desk.find([str(message_id)])
    assert stage.actions.erase([found], [("other", id)], NOTE) == 1
    assert stage.stored() == [(b"", "k", "t")]
    assert stage.rows("route", "ids", "state", "ahead") == [("other", [id], "skipped", True)]
    assert stage.nudge("other") == 1
    assert "Ann" not in str(stage.audited())


def test_erase_takes_a_message_out_of_its_run_and_out_of_the_dead(stage: Stage) -> None:
    """Held and dead rows of an erased message become skipped; what waits with it goes on."""
    ids = [stage.add()[0] for _ in range(3)]
    stage.hold("retry", *ids)
    stage.hold("dead", ids[1], route="other")
    found = stage.desk.find([str(ids[1])])
    stage.actions.erase(found, [], NOTE)
    assert stage.rows("route", "ids", "state") == [
        ("all", [ids[0], ids[2]], "retry"), ("other", [ids[1]], "skipped"), ("all", [ids[1]], "skipped"),
    ]  # fmt: skip


def test_scheduled_messages_are_listed_and_cancelled(stage: Stage) -> None:
    """cancel takes a message out of `scheduled` and records what it was."""
    id = stage.schedule(3600)
    [found] = stage.desk.scheduled((), None, None, 10)
    assert (found.place, found.message_id) == ("scheduled", id)
    assert 3590 < (found.due_in or 0) <= 3600
    assert stage.actions.cancel([found], NOTE) == [found.message_id]
    assert stage.actions.cancel([found], NOTE) == []
    assert stage.desk.scheduled((), None, None, 10) == []
    assert [f.place for f in stage.desk.find([str(id)])] == ["cancelled"]
    assert stage.audited()[0][4]["messages"][0]["key"] == "k"


def test_a_scheduled_message_that_is_erased_is_cancelled(stage: Stage) -> None:
    """What is not in the log yet would be delivered blank: erase takes it out, and the audit knows what it was."""
    id = stage.schedule(3600)
    stage.actions.erase(stage.desk.find([str(id)]), [], NOTE)
    assert stage.desk.scheduled((), None, None, 10) == []
    assert stage.audited()[0][4]["messages"] == [{"id": str(id), "aggregate": "a", "type": "t", "key": "k"}]
    assert [f.place for f in stage.desk.find([str(id)])] == ["erased"]


def test_a_kept_message_is_erased_too(stage: Stage) -> None:
    """A dead message whose segment has gone lies in `kept`: it is blanked there, and becomes skipped."""
    id, _ = stage.add(payload=b"secret")
    stage.hold("dead", id)
    stage.keep(id)
    [found] = stage.desk.find([str(id)])
    assert found.place == "kept"
    stage.actions.erase([found], [], NOTE)
    assert stage.rows("state") == [("skipped",)]


def test_adopt_now_leaves_nothing_to_deliver(stage: Stage) -> None:
    """A clone adopted from now on delivers nothing that was in it; the dry run counts and changes nothing."""
    for key in ("x", "y", "z"):
        stage.add(key)
    stage.settle(last=1)
    stage.hold("retry", 1)
    counts = stage.actions.adopt("now", "staging", NOTE, dry_run=True)
    assert counts["unread by all, never to be delivered"] == 2
    assert counts["held, to be skipped"] == 1
    assert stage.desk.overview().environment == "production"
    assert stage.audited() == []
    assert stage.actions.adopt("now", "staging", NOTE, dry_run=False) == counts
    seen = stage.desk.overview()
    assert seen.environment == "staging"
    assert sum(line.pending for line in seen.lanes) == 0
    assert stage.rows("state") == [("skipped",)]
    new, _ = stage.add("x")
    assert sum(line.pending for line in stage.desk.overview().lanes) == 2, "both routes get what is new"
    assert not any(standing.read for standing in stage.desk.standings(stage.desk.find([str(new)])))


def test_adopt_from_the_cursor_keeps_everything(stage: Stage) -> None:
    """A moved installation goes on where it stood, under its new name."""
    stage.add("x")
    stage.add("y")
    stage.settle(last=1)
    stage.actions.adopt("cursor", "moved", NOTE, dry_run=False)
    seen = stage.desk.overview()
    assert (seen.environment, sum(line.pending for line in seen.lanes if line.route == "all")) == ("moved", 1)
    with pytest.raises(Refused, match="cursor, unread, now"):
        stage.actions.adopt("yesterday", "moved", NOTE, dry_run=True)
