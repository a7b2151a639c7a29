"""What people ask of a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from pillarbox.errors import NotInstalled, Refused
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.desk import PostgresDesk
from pillarbox.views import Pick
from tests.integration.desk_stage import LIVE, Stage


@pytest.fixture
def stage(pg_url: str) -> Iterator[Stage]:
    stage = Stage(pg_url)
    yield stage
    stage.close()


def test_an_empty_installation_has_nothing_to_tell(stage: Stage) -> None:
    """No message, no hold row, no relay: every figure is zero or unknown, and nothing fails."""
    seen = stage.desk.overview()
    assert (seen.environment, seen.same_system, seen.relays, seen.troubles) == ("production", True, [], [])
    assert (seen.unrouted, seen.scheduled, seen.overdue, seen.segments, seen.segments_ahead) == (0, 0, None, 1, 3)
    assert [(line.lane, line.pending, line.counted, line.oldest) for line in seen.lanes] == [
        (lane, 0, True, None) for lane in range(4)
    ]


def test_pending_and_age_start_at_the_cursor(stage: Stage) -> None:
    """What the cursor has passed is not pending; the oldest of what is left gives the age."""
    stage.add("k")
    stage.settle()
    stage.ask("SELECT pg_sleep(0.2)")
    late, _ = stage.add("k")
    stage.add("k")
    [line] = [line for line in stage.desk.overview().lanes if line.pending]
    assert (line.lane, line.pending, line.counted) == (stage.lane_of(late), 2, True)
    assert 0 <= (line.oldest or 9) < 0.2


def test_a_row_that_commits_late_is_pending_below_the_cursor(stage: Stage) -> None:
    """A message whose transaction was open when the cursor passed its id counts as undelivered, with its age."""
    with psycopg.connect(stage.url) as slow:
        slow.execute("INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES ('late', 'a', 't', '')")
        stage.add("k")
        stage.settle()
        slow.commit()
    lanes = [line for line in stage.desk.overview().lanes if line.pending]
    [found] = stage.desk.find(["1"])
    assert [(line.lane, line.pending) for line in lanes] == [(found.lane, 1)]
    assert lanes[0].oldest is not None
    [standing] = stage.desk.standings([found])
    assert not standing.read


def test_estimates_do_not_count_the_gap_between_segments(stage: Stage) -> None:
    """After a roll the ids jump by ten thousand million; the pending estimate does not."""
    insert = (
        "INSERT INTO pillarbox.message (key, aggregate, type, payload) SELECT (g % 100)::text, 'a', 't', ''"
        " FROM generate_series(1, 8000) g"
    )
    stage.ask(insert)
    stage.ask("SELECT setval('pillarbox.message_id_seq', 10000000000, false)")
    stage.ask("UPDATE pillarbox.segment SET state = CASE n WHEN 0 THEN 'closed' ELSE 'open' END WHERE n < 2")
    stage.ask(insert)
    pending = sum(line.pending for line in stage.desk.overview().lanes)
    assert 12_000 < pending < 20_000


def test_cursors_that_moved_tell_how_much_was_passed(stage: Stage) -> None:
    """Two looks give the rate: the messages that cursors passed between them."""
    for number in range(20):
        stage.add(str(number))
    before = stage.desk.overview()
    stage.settle(last=15)
    assert stage.desk.moved(before.lanes) == {"all": 15}


def test_held_and_dead_are_counted_a_route(stage: Stage) -> None:
    """Heads, what waits behind them, and dead messages are told apart; troubles name the first message."""
    ids = [stage.add("a")[0] for _ in range(5)]
    dead, message_id = stage.add("b")
    stage.settle()
    stage.hold("retry", *ids[:3])
    stage.hold("waiting", *ids[3:])
    stage.hold("dead", dead, error="topic shop.orders is missing")
    stage.hold("dead", dead, route="unrouted", error="unrouted")
    seen = stage.desk.overview()
    assert [(r.name, r.held, r.waiting, r.dead) for r in seen.routes] == [("all", 1, 4, 1)]
    assert seen.routes[0].oldest_held is not None
    assert seen.unrouted == 1
    assert ("all", "dead", "topic shop.orders is missing", 1, message_id) in seen.troubles


def test_a_message_is_found_by_either_id_wherever_it_lies(stage: Stage) -> None:
    """find knows the log, what was kept and what is scheduled; an unknown id is missing, not an error."""
    id, message_id = stage.add(key="k", type="order.created")
    stage.ask("INSERT INTO pillarbox.kept (id, xid, message_id, key, aggregate, type, payload, created_at)"
              " VALUES (7, '3', gen_random_uuid(), 'z', 'a', 't', '', now())")  # fmt: skip
    assert [(f.place, f.id, f.message_id) for f in stage.desk.find([str(message_id)])] == [("log", id, message_id)]
    assert [(f.place, f.type) for f in stage.desk.find([str(id)])] == [("log", "order.created")]
    assert [(f.place, f.key) for f in stage.desk.find(["7"])] == [("kept", "z")]
    assert stage.desk.find([str(uuid4())]) == []
    with pytest.raises(Refused, match="no message id"):
        stage.desk.find(["order-17"])


def test_a_standing_tells_cursor_rows_head_and_owner(stage: Stage) -> None:
    """A waiting message knows whether it was read, its own rows, the head of its key and who owns the lane."""
    ids = [stage.add("k")[0] for _ in range(3)]
    stage.settle(last=ids[1])
    stage.hold("retry", ids[0], ids[1], error="refused")
    relay = uuid4()
    stage.ask("INSERT INTO pillarbox.relay (id, alive_until, serves, version, host)"
              " VALUES (%s, now() + '5 s', '{all}', '0', 'box1')", relay)  # fmt: skip
    stage.ask("UPDATE pillarbox.lane SET owner = %s, term = 7", relay)
    found = stage.desk.find([str(id) for id in ids])
    first, second, third = sorted(stage.desk.standings(found), key=lambda s: s.id)
    assert (first.read, second.read, third.read) == (True, True, False)
    assert [(line.state, line.behind) for line in first.lines] == [("retry", 1)]
    assert [(line.state, line.behind) for line in second.lines] == [("waiting", 0)]
    assert third.lines == ()
    assert third.head is not None
    assert (third.head.id, third.head.error, third.owner, third.term) == (ids[0], "refused", "box1", 7)


def test_a_keys_chain_is_what_is_held_and_what_is_unread(stage: Stage) -> None:
    """of_key gives the key's unfinished messages in order and nothing of other keys or of what was delivered."""
    ids = [stage.add("k")[0] for _ in range(4)]
    stage.add("else")
    stage.settle(last=ids[2])
    stage.hold("retry", ids[1])
    assert [f.id for f in stage.desk.of_key("k", None, 10)] == [ids[1], ids[3]]
    assert stage.desk.of_key("k", "another", 10) == []


def test_filters_of_holds_must_all_fit(stage: Stage) -> None:
    """route, aggregate, key, type, error, since and limit narrow the list together."""
    one, _ = stage.add("k1", type="order.created")
    two, _ = stage.add("k2", type="order.paid", aggregate="b")
    stage.hold("retry", one, error="Broker said NO")
    stage.hold("dead", two)
    ids = {"one": one, "two": two}

    def found(**wishes: object) -> list[str]:
        lines = stage.desk.holds(Pick(**{"states": (*LIVE, "dead"), **wishes}))  # type: ignore[arg-type]
        return [name for line in lines for name, id in ids.items() if id == line.id]

    assert found() == ["one", "two"]
    assert found(states=("dead",)) == ["two"]
    assert found(type="order.created") == found(error="said no") == found(key="k1") == found(aggregate="a") == ["one"]
    assert found(type="order.created", key="k2") == found(route="other") == []
    assert found(since=60.0) == ["one", "two"]
    assert found(limit=1) == ["one"]
    assert found(ids=(str(two),)) == ["two"]
    assert found(ids=(str(two),), states=("retry",)) == []
    stage.ask("UPDATE pillarbox.hold SET held_at = now() - interval '1 hour' WHERE id = %s", one)
    assert found(since=60.0) == ["two"]


def test_every_message_of_a_key_is_found_for_erasing(stage: Stage) -> None:
    """all_of walks the key's lane and finds delivered messages too."""
    ids = [stage.add("k")[0] for _ in range(3)]
    stage.add("k", aggregate="b")
    stage.settle()
    assert [f.id for page in stage.desk.all_of("a", "k") for f in page] == ids


def test_a_database_without_installation_says_so(pg_url: str) -> None:
    """The desk names the missing schema and the command that makes it."""
    with closing(PostgresDesk(Database(pg_url))) as desk, pytest.raises(NotInstalled, match="migrate up"):
        desk.overview()
