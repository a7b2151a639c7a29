"""What an operator's words do to the tables of a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from pillarbox.errors import Refused
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.desk_actions import PostgresActions
from tests.integration.desk_stage import NOTE, Stage


@pytest.fixture
def stage(pg_url: str) -> Iterator[Stage]:
    stage = Stage(pg_url, routes=("all", "other"))
    yield stage
    stage.close()


def test_retry_makes_a_blocked_message_due_now_with_all_its_attempts(stage: Stage) -> None:
    """retry resets the attempts, raises the edition and nudges the relays of the route."""
    id, _ = stage.add()
    stage.hold("blocked", id, attempts=5)
    assert stage.actions.change("retry", stage.picked(), NOTE) == [id]
    [(state, attempts, due, edition)] = stage.rows("state", "attempts", "next_attempt_at <= now()", "edition")
    assert (state, attempts, due, edition) == ("retry", 0, True, 2)
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
        actions = PostgresActions(Database(stage.url))
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
    stage.ask("DELETE FROM pillarbox.hold WHERE id = %s", gone)
    stage.ask("UPDATE pillarbox.hold SET state = 'dead' WHERE id = %s", dead)
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


def test_an_operator_waits_for_a_settle_and_not_longer(stage: Stage) -> None:
    """A row that a settle has locked is waited for; then the action applies to what the settle left."""
    id, _ = stage.add()
    stage.hold("retry", id)
    lines = stage.picked()
    with psycopg.connect(stage.url) as other:
        other.execute("UPDATE pillarbox.hold SET attempts = 3, edition = edition + 1")
        timer = threading.Timer(0.8, other.commit)
        timer.start()
        assert stage.actions.change("bury", lines, NOTE) == [id]
        timer.join()
    assert stage.rows("state", "attempts") == [("dead", 3)]


def test_erase_blanks_the_log_and_skips_what_is_undelivered(stage: Stage) -> None:
    """The payload goes; id, type and key stay; routes that have not read it get a final row above their cursors."""
    id, message_id = stage.add(payload=b'{"name": "Ann"}')
    [found] = stage.desk.find([str(message_id)])
    assert stage.actions.erase([found], [("other", id)], NOTE) == 1
    assert stage.ask("SELECT payload, key, type FROM pillarbox.message") == [(b"", "k", "t")]
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
    stage.ask(
        "INSERT INTO pillarbox.scheduled (due, message_id, key, aggregate, type, payload)"
        " VALUES (now() + '1 hour', pillarbox.uuid7(), 'k', 'a', 't', '')"
    )
    [found] = stage.desk.scheduled((), None, None, 10)
    assert found.place == "scheduled"
    assert 3590 < (found.due_in or 0) <= 3600
    assert stage.actions.cancel([found], NOTE) == [found.message_id]
    assert stage.actions.cancel([found], NOTE) == []
    assert stage.ask("SELECT count(*) FROM pillarbox.scheduled") == [(0,)]
    assert stage.audited()[0][4]["messages"][0]["key"] == "k"
