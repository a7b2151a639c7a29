"""Stored routes of a file: begun, changed, renamed, removed, each with its audit row; and text that is no UTF-8."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from pillarbox.errors import IdentityDiffers, Refused
from pillarbox.ports import Changes, Held
from pillarbox.storage.sqlite.chores import SqliteChores
from pillarbox.storage.sqlite.connection import Database
from pillarbox.storage.sqlite.leases import SqliteLeases
from pillarbox.storage.sqlite.routes import SqliteRoutes
from pillarbox.storage.sqlite.source import SqliteSource
from pillarbox.storage.sqlite.upkeep import SqliteUpkeep
from tests.integration.sqlite_file import NOTE, add, installed, plain

GHOSTS = {"match": {"aggregate": ["ghost*"]}}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(installed(tmp_path / "shop.db")) as database:
        yield database


@pytest.fixture
def conn(database: Database) -> Iterator[sqlite3.Connection]:
    with closing(plain(database.path)) as conn:
        yield conn


@pytest.fixture
def routes(database: Database) -> SqliteRoutes:
    return SqliteRoutes(database)


def audit(conn: sqlite3.Connection) -> list[tuple[str, dict[str, Any]]]:
    rows = conn.execute("SELECT action, detail, who FROM pillarbox_audit ORDER BY id").fetchall()
    assert {who for _, _, who in rows} == {"test"}
    return [(action, json.loads(detail)) for action, detail, _ in rows]


def take(database: Database, route: str) -> Changes:
    """Own the route's lane; a settle at its beginning."""
    (lane,) = SqliteLeases(database).take(uuid4(), route, 1)
    return Changes(0, lane.term, lane.position)


def test_the_files_routes_are_stored_while_there_is_none(routes: SqliteRoutes, conn: sqlite3.Connection) -> None:
    """The first `run` stores its routes; a second one finds some and stores nothing."""
    add(conn)
    assert routes.store_first({"a": ({}, "beginning"), "b": (GHOSTS, "now")}, NOTE)
    assert not routes.store_first({"c": ({}, "beginning")}, NOTE)
    assert conn.execute("SELECT route, cursor FROM pillarbox_lane").fetchall() == [("a", 0), ("b", 1)]
    assert [action for action, _ in audit(conn)] == ["route store", "route store"]


def test_names_are_taken_once(routes: SqliteRoutes) -> None:
    """A stored name, a reserved one and one nobody stored are refused."""
    routes.store("a", {}, "beginning", NOTE)
    routes.store("b", {}, "beginning", NOTE)
    for wrong in (
        lambda: routes.store("a", {}, "now", NOTE),
        lambda: routes.store("unrouted", {}, "now", NOTE),
        lambda: routes.rename("a", "b", NOTE),
        lambda: routes.rename("a", "unrouted", NOTE),
        lambda: routes.rename("x", "y", NOTE),
        lambda: routes.apply("x", {}, NOTE),
        lambda: routes.pause("x", NOTE),
        lambda: routes.remove("x", NOTE),
    ):
        with pytest.raises(Refused):
            wrong()


def test_a_route_is_changed_paused_and_resumed(
    routes: SqliteRoutes, database: Database, conn: sqlite3.Connection
) -> None:
    """What relays see follows every change, and each leaves its audit row."""
    routes.store("a", {}, "beginning", NOTE)
    routes.apply("a", GHOSTS, NOTE)
    routes.pause("a", NOTE)
    (route,) = SqliteLeases(database).survey().routes
    assert (route.definition, route.state) == (GHOSTS, "paused")
    routes.resume("a", NOTE)
    assert SqliteLeases(database).survey().routes[0].state == "running"
    assert [action for action, _ in audit(conn)][1:] == ["route apply", "route pause", "route resume"]


def test_a_renamed_route_keeps_its_place(routes: SqliteRoutes, database: Database, conn: sqlite3.Connection) -> None:
    """Cursor and hold rows go with the new name, and who worked under the old one is deposed."""
    routes.store("old", {}, "beginning", NOTE)
    add(conn)
    source, change = SqliteSource(database), take(database, "old")
    held = Held(0, 0, 0, "k", [1], 0, "dead", ahead=True)
    assert source.settle("old", [change._replace(position=1, added=[held])])
    routes.rename("old", "new", NOTE)
    assert source.settle("old", [change]) == {}
    assert source.settle("new", [change]) == {}
    assert take(database, "new").position == 1
    assert len(SqliteLeases(database).load("new", [0])) == 1


def test_a_name_used_again_meets_no_old_term(routes: SqliteRoutes, database: Database) -> None:
    """After a removal or a rename a route of the old name goes on with higher terms: a late settle changes nothing."""
    routes.store("a", {}, "beginning", NOTE)
    first = take(database, "a")
    routes.remove("a", NOTE)
    routes.store("a", {}, "beginning", NOTE)
    second = take(database, "a")
    assert second.term > first.term
    routes.rename("a", "b", NOTE)
    routes.store("a", {}, "beginning", NOTE)
    assert take(database, "a").term > second.term
    assert SqliteSource(database).settle("a", [first, second]) == {}


def test_a_removed_route_leaves_its_account(routes: SqliteRoutes, database: Database, conn: sqlite3.Connection) -> None:
    """What it had not delivered is counted, and stands with range and ids in the audit row."""
    routes.store("a", {}, "beginning", NOTE)
    for _ in range(5):
        add(conn)
    change = take(database, "a")
    holds = [Held(0, 0, 0, "k", [1, 2], 0, "waiting"), Held(0, 0, 0, "k", [3], 0, "skipped")]
    SqliteSource(database).settle("a", [change._replace(position=3, added=holds)])
    assert routes.remove("a", NOTE) == 4
    action, detail = audit(conn)[-1]
    assert action == "route remove"
    assert (detail["above"], detail["to"], detail["held"], detail["undelivered"]) == (3, 5, [1, 2], 4)
    assert [conn.execute(f"SELECT count(*) FROM pillarbox_{t}").fetchone()[0] for t in ("route", "lane", "hold")] == [
        0
    ] * 3


def test_a_new_route_resolves_what_it_wants(routes: SqliteRoutes, database: Database, conn: sqlite3.Connection) -> None:
    """From the beginning it takes over the unrouted messages it matches, but for those no longer in the log."""
    routes.store("orders", {"match": {"aggregate": ["order"]}}, "beginning", NOTE)
    for aggregate in ("ghost", "ghost2", "other", "order"):
        conn.execute("INSERT INTO pillarbox_message (aggregate, type, payload) VALUES (?, 't', '')", (aggregate,))
    assert SqliteChores(database).judge_unrouted(SqliteLeases(database).survey().routes, bury=True) == 3
    conn.execute("UPDATE pillarbox_lane SET cursor = 4")
    conn.execute("UPDATE pillarbox_message SET created_at = 0 WHERE id = 1")
    assert SqliteUpkeep(database).prune(60.0) == ["1-1"]
    routes.store("late", GHOSTS, "now", NOTE)
    assert [row[0] for row in conn.execute("SELECT state FROM pillarbox_hold ORDER BY seq")] == ["dead"] * 3
    routes.store("ghosts", GHOSTS, "beginning", NOTE)
    states = conn.execute("SELECT id, state FROM pillarbox_hold ORDER BY seq").fetchall()
    assert states == [(1, "dead"), (2, "resolved"), (3, "dead")]


def test_a_copy_of_another_environment_is_not_worked_on(database: Database) -> None:
    """A file that was copied to staging delivers nothing there until an operator decides."""
    SqliteRoutes(database).store("a", {}, "beginning", NOTE)
    leases = SqliteLeases(database, environment="staging")
    for call in (lambda: leases.take(uuid4(), "a", 1), lambda: leases.retake(uuid4(), [("a", 0)])):
        with pytest.raises(IdentityDiffers, match=r"production.*staging.*adopt"):
            call()


def test_text_that_is_no_utf8_harms_only_its_own_message(database: Database, conn: sqlite3.Connection) -> None:
    """It is read with surrogates, matched, set aside and loaded again under the same key; its neighbours are as ever."""
    SqliteRoutes(database).store("orders", {"match": {"aggregate": ["order"]}}, "beginning", NOTE)
    conn.execute(
        "INSERT INTO pillarbox_message (aggregate, key, type, payload) VALUES ('ghost', CAST(x'6bff' AS TEXT), 't', 'p')"
    )
    add(conn)
    source, leases = SqliteSource(database), SqliteLeases(database)
    (page,) = source.read("orders", {0: 0}, 10)
    assert [row[2] for row in page.rows] == ["k\udcff", "k"]
    change = take(database, "orders")
    held = Held(0, 0, 0, "k\udcff", [1], 0, "retry", error="no \udcff \ud800")
    source.settle("orders", [change._replace(added=[held])])
    (loaded,) = leases.load("orders", [0])
    assert (loaded.key, loaded.error) == ("k\udcff", "no ? ?")
    source.settle("orders", [change._replace(changed=[loaded._replace(error="still \ud800")])])
    assert leases.load("orders", [0])[0].error == "still ?"
    assert SqliteChores(database).judge_unrouted(leases.survey().routes, bury=True) == 1
    assert source.fetch([1]) == page.rows[:1]


def test_text_payloads_are_read_as_bytes(database: Database, conn: sqlite3.Connection) -> None:
    """A payload that plain SQL wrote as text is its UTF-8 bytes; a NUL in it does not end it."""
    conn.execute("INSERT INTO pillarbox_message (aggregate, type, payload) VALUES ('o', 't', ?)", ("ü\x00\\n",))
    (page,) = SqliteSource(database).read("a", {0: 0}, 10)
    assert page.rows[0][6] == "ü\x00\\n".encode()
