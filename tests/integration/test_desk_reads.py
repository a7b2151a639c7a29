"""What people ask, of PostgreSQL and of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from pillarbox.errors import Refused
from pillarbox.views import Pick
from tests.integration.desk_stage import LIVE, NOTE, SqliteStage, Stage


@pytest.fixture(params=["postgres", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """The same on both databases."""
    if request.param == "sqlite":
        stage: Stage = SqliteStage(tmp_path / "shop.db")
    else:
        stage = Stage(request.getfixturevalue("pg_url"))
    yield stage
    stage.close()


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
    gone, _ = stage.add(key="z")
    stage.keep(gone)
    assert [(f.place, f.id, f.message_id) for f in stage.desk.find([str(message_id)])] == [("log", id, message_id)]
    assert [(f.place, f.type) for f in stage.desk.find([str(id)])] == [("log", "order.created")]
    assert [(f.place, f.key) for f in stage.desk.find([str(gone)])] == [("kept", "z")]
    assert stage.desk.find([str(uuid4())]) == []
    with pytest.raises(Refused, match="no message id"):
        stage.desk.find(["order-17"])


def test_a_standing_tells_cursor_rows_head_and_owner(stage: Stage) -> None:
    """A waiting message knows whether it was read, its own rows, the head of its key and who owns the lane."""
    ids = [stage.add("k")[0] for _ in range(3)]
    stage.settle(last=ids[1])
    stage.hold("retry", ids[0], ids[1], error="refused")
    stage.live("box1", 7)
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
    stage.age(one, 3600)
    assert found(since=60.0) == ["two"]


def test_every_message_of_a_key_is_found_for_erasing(stage: Stage) -> None:
    """all_of walks the key's lane and finds delivered messages too."""
    ids = [stage.add("k")[0] for _ in range(3)]
    stage.add("k", aggregate="b")
    stage.settle()
    assert [f.id for page in stage.desk.all_of("a", "k") for f in page] == ids


def test_a_key_that_is_no_utf8_is_explained_and_skipped(tmp_path: Path) -> None:
    """SQLite stores whatever bytes somebody writes: such a message is found, its row is split, nothing else suffers."""
    stage = SqliteStage(tmp_path / "shop.db")
    for _ in range(2):
        stage.ask(
            "INSERT INTO pillarbox_message (key, aggregate, type, payload) VALUES (CAST(x'6bff' AS TEXT), 'é', 't', x'')"
        )
    stage.ask(
        "INSERT INTO pillarbox_hold (route, lane, ids, key, state, error)"
        " VALUES ('all', 0, '[1,2]', CAST(x'6bff' AS TEXT), 'retry', CAST(x'ff' AS TEXT))"
    )
    [first, second] = stage.desk.find(["1", "2"])
    assert (first.key, first.aggregate) == ("k\udcff", "é")
    assert [s.head.id for s in stage.desk.standings([second]) if s.head] == [1]
    assert [f.id for f in stage.desk.of_key("k\udcff", "é", 5)] == [1, 2]
    assert stage.actions.change("skip", stage.picked("retry"), NOTE) == [1]
    assert stage.ask("SELECT hex(key), state FROM pillarbox_hold ORDER BY seq") == [
        ("6BFF", "retry"),
        ("6BFF", "skipped"),
    ]
    stage.close()


def test_relays_of_one_host_are_told_apart(stage: Stage) -> None:
    """Each relay has the lanes that it owns itself, whoever else lives on its host."""
    stage.live("vm", 1)
    stage.live("vm", 2)  # takes all lanes from the first
    lanes = len(stage.desk.overview().lanes)
    assert sorted(relay.lanes for relay in stage.desk.overview().relays) == [0, lanes]
