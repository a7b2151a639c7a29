"""Stored routes on PostgreSQL: where a new one begins, and what happens to relays that serve one that changes (R17)."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pillarbox.errors import Refused
from pillarbox.ports import Changes, RowTuple
from pillarbox.storage.postgres.routes import PostgresRoutes
from pillarbox.storage.postgres.source import BUDGET, PostgresSource
from tests.contract.postgres_harness import NOTE, PostgresHarness
from tests.integration.test_postgres_settle import Relay, forward

ORDERS = {"match": {"aggregate": ["order"]}}


@pytest.fixture
def harness(quiet_url: str) -> Iterator[PostgresHarness]:
    made = PostgresHarness(quiet_url, lanes=4)
    yield made
    made.close()


@pytest.fixture
def routes(harness: PostgresHarness) -> PostgresRoutes:
    return PostgresRoutes(harness.database())


def add(conn: psycopg.Connection[Any], label: str, aggregate: str = "order") -> None:
    conn.execute(
        "INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES (%s, %s, 't', %s)",
        (label, aggregate, label.encode()),
    )


def take(relay: Relay, route: str) -> dict[int, Changes]:
    taken = relay.leases.take(relay.id, route, 4)
    return {each.lane: Changes(each.lane, each.term, each.position) for each in taken}


def drain(relay: Relay, route: str) -> list[str]:
    positions = {lane: change.position for lane, change in take(relay, route).items()}
    rows: list[RowTuple] = []
    for _ in range(3):
        pages = relay.source.read(route, positions, 100)
        positions |= {page.lane: page.after for page in pages}
        rows += [row for page in pages for row in page.rows]
    return sorted(row[6].decode() for row in rows)


def audit(harness: PostgresHarness) -> list[tuple[Any, ...]]:
    return harness.conn.execute("SELECT action, detail, who FROM pillarbox.audit ORDER BY id").fetchall()


def test_the_file_proposes_once(harness: PostgresHarness, routes: PostgresRoutes) -> None:
    """Its routes are stored while there is none, all of them or none, and never again."""
    assert routes.store_first({"a": ({}, "beginning"), "b": (ORDERS, "now")}, NOTE)
    assert not routes.store_first({"c": ({}, "beginning")}, NOTE)
    stored = harness.conn.execute("SELECT name, start, definition FROM pillarbox.route ORDER BY name").fetchall()
    assert stored == [("a", "beginning", {}), ("b", "now", ORDERS)]


def test_many_that_start_at_once_store_once(harness: PostgresHarness) -> None:
    """Pods of one deployment bring the same file."""
    done: list[bool] = []
    stores = [PostgresRoutes(harness.database()) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda store=store: done.append(store.store_first({"a": ({}, "now")}, NOTE)))  # type: ignore[misc]
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]


@pytest.mark.parametrize(("start", "seen"), [("beginning", ["late", "new", "old"]), ("now", ["late", "new"])])
def test_where_a_new_route_begins(
    harness: PostgresHarness, routes: PostgresRoutes, start: str, seen: list[str]
) -> None:
    """From now: without what is committed, with what commits later, however early its id was drawn."""
    with psycopg.connect(harness.url) as slow:
        add(slow, "late")
        add(harness.conn, "old")
        routes.store("r", {}, start, NOTE)
        add(harness.conn, "new")
        slow.commit()
    assert drain(Relay(harness), "r") == seen
    ((action, detail, who),) = audit(harness)
    assert (action, detail["route"], detail["start"], who) == ("route store", "r", start, "test")


def test_a_name_is_taken_once_and_one_is_reserved(routes: PostgresRoutes) -> None:
    """Each refusal says what to do instead."""
    routes.store("r", {}, "now", NOTE)
    routes.store("s", {}, "now", NOTE)
    for act in (
        lambda: routes.store("r", {}, "now", NOTE),
        lambda: routes.rename("r", "s", NOTE),
        lambda: routes.rename("r", "unrouted", NOTE),
        lambda: routes.store("unrouted", {}, "now", NOTE),
        lambda: routes.apply("nobody", {}, NOTE),
        lambda: routes.pause("nobody", NOTE),
        lambda: routes.rename("nobody", "x", NOTE),
        lambda: routes.remove("nobody", NOTE),
    ):
        with pytest.raises(Refused) as refused:
            act()
        assert refused.value.hint


def test_a_definition_is_applied_paused_and_resumed(harness: PostgresHarness, routes: PostgresRoutes) -> None:
    """A survey shows it to every relay, and the audit who did it."""
    routes.store("r", {}, "now", NOTE)
    relay = Relay(harness)
    routes.apply("r", ORDERS, NOTE)
    routes.pause("r", NOTE)
    (state,) = relay.leases.survey().routes
    assert (state.definition, state.state) == (ORDERS, "paused")
    routes.resume("r", NOTE)
    assert relay.leases.survey().routes[0].state == "running"
    assert [row[0] for row in audit(harness)] == ["route store", "route apply", "route pause", "route resume"]


def test_a_renamed_route_keeps_its_cursors_and_deposes_its_relays(
    harness: PostgresHarness, routes: PostgresRoutes
) -> None:
    """Nothing is sent again, nothing on its way under the old name is written, and the lanes are free at once."""
    add(harness.conn, "a")
    routes.store("old", {}, "beginning", NOTE)
    relay = Relay(harness)
    mine = take(relay, "old")
    pages = relay.source.read("old", {lane: change.position for lane, change in mine.items()}, 10)
    relay.source.settle("old", [mine[page.lane]._replace(position=page.after) for page in pages])
    routes.rename("old", "new", NOTE)
    assert relay.source.settle("old", [forward(change) for change in mine.values()]) == {}
    assert relay.source.settle("new", [forward(change) for change in mine.values()]) == {}
    assert drain(relay, "new") == []


def test_a_removed_route_says_what_it_leaves(harness: PostgresHarness, routes: PostgresRoutes) -> None:
    """How many, where its cursor stood, what was held; a route of the same name later has higher terms."""
    routes.store("r", {}, "beginning", NOTE)
    relay = Relay(harness)
    mine = take(relay, "r")
    with psycopg.connect(harness.url) as slow:
        add(slow, "late")
        add(harness.conn, "a")
        pages = relay.source.read("r", {lane: change.position for lane, change in mine.items()}, 10)
        relay.source.settle("r", [mine[page.lane]._replace(position=page.after) for page in pages])
        slow.commit()
    add(harness.conn, "b")
    add(harness.conn, "c")
    harness.conn.execute("INSERT INTO pillarbox.hold (route, lane, ids, state) VALUES ('r', 0, '{2,7}', 'waiting')")
    assert routes.remove("r", NOTE) == 5, "late, b, c, and two held"
    action, detail, _ = audit(harness)[-1]
    assert (action, detail["undelivered"], detail["held"]) == ("route remove", 5, [2, 7])
    assert harness.holds("r") == []
    routes.store("r", {}, "now", NOTE)
    assert relay.source.settle("r", [forward(change) for change in mine.values()]) == {}
    assert min(change.term for change in take(relay, "r").values()) > max(change.term for change in mine.values())


def test_a_new_route_resolves_what_nobody_wanted(harness: PostgresHarness, routes: PostgresRoutes) -> None:
    """From the beginning it reads them itself; what it does not match stays dead."""
    routes.store("orders", ORDERS, "beginning", NOTE)
    for label in ("cart", "ghost"):
        add(harness.conn, label, label)
    store = harness.connect()
    for _ in range(3):
        store.chores.judge_unrouted(store.leases.survey().routes, True)
    assert [row.state for row in harness.holds("unrouted")] == ["dead", "dead"]
    routes.store("carts", {"match": {"aggregate": ["cart"]}}, "beginning", NOTE)
    assert sorted((row.ids[0], row.state) for row in harness.holds("unrouted")) == [(1, "resolved"), (2, "dead")]
    assert json.loads(json.dumps(audit(harness)[-1][1]))["resolved"] == 1


def test_a_route_from_now_hides_nothing_it_came_too_late_for(harness: PostgresHarness, routes: PostgresRoutes) -> None:
    """What nobody wanted and the chore had not come to stays visible, and what commits later is read: each is once."""
    routes.store("orders", ORDERS, "beginning", NOTE)
    with psycopg.connect(harness.url) as slow:
        add(slow, "late", "cart")
        for label, aggregate in (("missed", "cart"), ("wanted", "order"), ("ghost", "ghost")):
            add(harness.conn, label, aggregate)
        routes.store("carts", {"match": {"aggregate": ["cart"]}}, "now", NOTE)
        slow.commit()
    store = harness.connect()
    for _ in range(3):
        store.chores.judge_unrouted(store.leases.survey().routes, True)
    dead = store.source.fetch([row.ids[0] for row in harness.holds("unrouted")])
    assert sorted(row[6].decode() for row in dead) == ["ghost", "missed"]
    relay = Relay(harness)
    positions = {lane: change.position for lane, change in take(relay, "carts").items()}
    pages = relay.source.read("carts", positions, 100)
    assert [row[6] for page in pages for row in page.rows] == [b"late"]


def test_a_read_is_bounded_by_bytes_too(harness: PostgresHarness) -> None:
    """Large messages come few at a time, small ones in pages as asked for; none is forgotten."""
    harness.conn.execute("INSERT INTO pillarbox.boot DEFAULT VALUES")
    harness.store_route("r", {})
    harness.conn.execute(
        "INSERT INTO pillarbox.message (key, aggregate, type, payload)"
        " SELECT 'k' || g % 7, 'a', 't', convert_to(repeat('x', 400000), 'UTF8') FROM generate_series(1, 400) g"
    )
    harness.conn.execute(
        "INSERT INTO pillarbox.message (key, aggregate, type, payload)"
        " SELECT 'k' || g, 'a', 't', 'x' FROM generate_series(1, 3000) g"
    )
    relay = Relay(harness)
    positions = {lane: change.position for lane, change in take(relay, "r").items()}
    source, sizes, rows = PostgresSource(relay.db), [], []
    while not sizes or sizes[-1]:
        pages = source.read("r", positions, 1000)
        positions |= {page.lane: page.after for page in pages}
        rows.append([row[0] for page in pages for row in page.rows])
        sizes.append(sum(len(row[6]) for page in pages for row in page.rows))
    assert max(sizes[1:]) <= 2 * BUDGET
    assert max(map(len, rows)) > 1000
    assert sorted(id for page in rows for id in page) == list(range(1, 3401))
