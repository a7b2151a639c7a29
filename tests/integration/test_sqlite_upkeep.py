"""Retention in one file: windows of ids, batches, and routes that come while it works."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pillarbox.storage.sqlite import upkeep as module
from pillarbox.storage.sqlite.connection import Database
from pillarbox.storage.sqlite.routes import SqliteRoutes
from pillarbox.storage.sqlite.upkeep import SqliteUpkeep
from tests.integration.sqlite_file import NOTE, add, installed, plain

OLD, YOUNG = 0.0, 1e12


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with closing(installed(tmp_path / "shop.db", "all")) as database:
        yield database


@pytest.fixture
def conn(database: Database) -> Iterator[sqlite3.Connection]:
    with closing(plain(database.path)) as conn:
        yield conn


def fill(conn: sqlite3.Connection, *born: float) -> None:
    """Messages that everybody has passed, made at these times."""
    for number, time in enumerate(born, 1):
        add(conn)
        conn.execute("UPDATE pillarbox_message SET created_at = ? WHERE id = ?", (time, number))
    conn.execute("UPDATE pillarbox_lane SET cursor = ?", (len(born),))
    conn.execute("UPDATE pillarbox_chore SET judged = ?", (len(born),))


def left(conn: sqlite3.Connection) -> list[int]:
    return [id for (id,) in conn.execute("SELECT id FROM pillarbox_message ORDER BY id")]


def test_the_young_stay_among_the_old(database: Database, conn: sqlite3.Connection) -> None:
    """A message with a later time than its neighbours' stays, and holds none of them."""
    fill(conn, OLD, YOUNG, OLD, YOUNG, OLD)
    assert SqliteUpkeep(database).prune(60.0) == ["1-5"]
    assert left(conn) == [2, 4]
    assert SqliteUpkeep(database).prune(60.0) == []


def test_many_batches_are_one_prune(
    database: Database, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on batch by batch to the first window in which nothing is old."""
    monkeypatch.setattr(module, "BATCH", 2)
    fill(conn, OLD, OLD, OLD, YOUNG, OLD, YOUNG, YOUNG, OLD)
    assert SqliteUpkeep(database).prune(60.0) == ["1-8"]
    assert left(conn) == [4, 6, 7]
    fill(conn)
    conn.execute(
        "INSERT INTO pillarbox_unique_key VALUES ('a', x'', 0), ('b', x'', 0), ('c', x'', 0), ('d', x'', 1e12)"
    )
    assert SqliteUpkeep(database).expire(60.0, 60.0) == 3


def test_a_route_from_the_beginning_stops_a_prune(
    database: Database, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored between looking and deleting, it keeps everything that is still there."""
    fill(conn, OLD, OLD)
    upkeep, look = SqliteUpkeep(database), SqliteUpkeep._window

    def slowly(self: SqliteUpkeep, cutoff: float, start: int) -> list[tuple[int, int]]:
        window = look(self, cutoff, start)
        SqliteRoutes(database).store("new", {}, "beginning", NOTE)
        return window

    monkeypatch.setattr(SqliteUpkeep, "_window", slowly)
    assert upkeep.prune(60.0) == []
    assert left(conn) == [1, 2]
    upkeep.close()
