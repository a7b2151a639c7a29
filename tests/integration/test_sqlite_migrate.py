"""Installing in a file: by itself, inside a caller's transaction, twice, by several, and by other releases."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from pillarbox.errors import ConfigError, NotInstalled, SchemaMismatch
from pillarbox.storage.sqlite import migrate as module
from pillarbox.storage.sqlite.connection import Database, path_of
from pillarbox.storage.sqlite.leases import SqliteLeases
from pillarbox.storage.sqlite.migrate import check, check_file, installation, migrate, migrate_file, newest, steps
from pillarbox.testing.contracts.storage import at_once
from tests.integration.sqlite_file import add, plain


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def conn(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(plain(path)) as conn:
        yield conn


def tables(conn: sqlite3.Connection) -> set[str]:
    return {name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE name LIKE 'pillarbox%'")}


def test_a_file_is_installed_and_wal_is_said(path: Path) -> None:
    """A new file gets its tables, WAL is set and the person is told."""
    done = migrate_file(path, environment="staging")
    assert done.applied == [name for _, name, _ in steps()]
    assert "WAL" in done.notes[0]
    with closing(Database(path)) as database:
        assert installation(database) == (newest(), 1, "staging")
        assert database.all("PRAGMA journal_mode") == [("wal",)]


def test_migrating_twice_changes_nothing(path: Path) -> None:
    """A second run applies nothing, has nothing to say and keeps the environment's name."""
    migrate_file(path, environment="staging")
    assert migrate_file(path) == (newest(), [], [])
    with closing(Database(path)) as database:
        assert installation(database).environment == "staging"


def test_several_migrate_at_once(path: Path) -> None:
    """Of several that start together one installs, the others find it done."""
    done = at_once(*[lambda: migrate_file(path)] * 4)
    assert sorted(len(each.applied) for each in done) == [0, 0, 0, len(steps())]


def test_a_callers_transaction_decides(conn: sqlite3.Connection) -> None:
    """Inside an open transaction nothing is committed; rolled back, nothing was installed, and WAL is asked for."""
    conn.execute("BEGIN")
    conn.execute("CREATE TABLE orders (id)")
    done = migrate(conn)
    assert conn.in_transaction
    add(conn)
    assert "WAL" in done.notes[0]
    conn.execute("ROLLBACK")
    assert tables(conn) == set()
    assert conn.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def test_a_memory_database_is_for_tests() -> None:
    """A connection to `:memory:` can be installed too, for tests that only add."""
    with closing(sqlite3.connect(":memory:")) as conn:
        assert migrate(conn).applied
        add(conn)


def test_a_plain_insert_gets_a_uuid7(path: Path, conn: sqlite3.Connection) -> None:
    """Any language may leave out the message id; it is a UUIDv7 of now."""
    migrate_file(path)
    for _ in range(200):
        add(conn)
    rows = conn.execute("SELECT message_id, now FROM pillarbox_message, pillarbox_clock").fetchall()
    ids = [UUID(bytes=id) for id, _ in rows]
    assert len(set(ids)) == 200
    assert {(id.version, id.variant) for id in ids} == {(7, "specified in RFC 4122")}
    assert all(abs((id.int >> 80) / 1000 - now) < 60 for id, (_, now) in zip(ids, rows, strict=True))


@pytest.mark.parametrize(
    ("column", "value"),
    [("key", b"k"), ("message_id", "text"), ("message_id", b"short"), ("headers", "{"), ("version", "one"), ("type", None)],
)  # fmt: skip
def test_what_could_not_be_read_back_is_refused(
    path: Path, conn: sqlite3.Connection, column: str, value: object
) -> None:
    """A plain INSERT that no relay could deliver fails at once, in its own transaction."""
    migrate_file(path)
    row = {"aggregate": "order", "type": "made", "payload": b"{}", column: value}
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute(f"INSERT INTO pillarbox_message ({', '.join(row)}) VALUES (?, ?, ?{', ?' * (len(row) - 3)})", [*row.values()])  # fmt: skip


def test_ids_never_come_back(path: Path, conn: sqlite3.Connection) -> None:
    """After everything was pruned the next id is higher than any before: cursors stay true."""
    migrate_file(path)
    add(conn)
    add(conn)
    conn.execute("DELETE FROM pillarbox_message")
    add(conn)
    assert conn.execute("SELECT id FROM pillarbox_message").fetchall() == [(3,)]


def test_a_newer_schema_is_refused(path: Path, conn: sqlite3.Connection) -> None:
    """A file of a later release is refused in one sentence, by migration and relay alike."""
    migrate_file(path)
    conn.execute("UPDATE pillarbox_installation SET schema_version = 999")
    with pytest.raises(SchemaMismatch, match=r"999.*newer pillarbox"):
        migrate_file(path)
    with closing(Database(path)) as database, pytest.raises(SchemaMismatch, match="999"):
        SqliteLeases(database).take(UUID(int=1), "all", 1)


def test_an_older_schema_asks_for_migration(path: Path, conn: sqlite3.Connection) -> None:
    """A file of an earlier release says which command is missing."""
    migrate_file(path)
    conn.execute("UPDATE pillarbox_installation SET schema_version = 0")
    with closing(Database(path)) as database, pytest.raises(SchemaMismatch, match="migrate up"):
        installation(database)


def test_an_empty_installation_is_not_one(path: Path, conn: sqlite3.Connection) -> None:
    """A file whose installation row is gone is not installed."""
    migrate_file(path)
    conn.execute("DELETE FROM pillarbox_installation")
    with closing(Database(path)) as database, pytest.raises(NotInstalled, match="migrate up"):
        installation(database)


def test_a_failed_step_leaves_nothing(path: Path, conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that fails in the middle is rolled back whole, with a typed error."""
    monkeypatch.setattr(
        module, "steps", lambda: [(1, "0001_broken", "CREATE TABLE pillarbox_a (id);\nSELECT wrong;\n")]
    )
    with pytest.raises(SchemaMismatch, match="no such column"):
        migrate(conn)
    assert not conn.in_transaction
    assert tables(conn) == set()


def test_an_old_library_is_refused(conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """An SQLite that lacks RETURNING is named with its version."""
    monkeypatch.setattr(module, "OLDEST", (99, 0, 0))
    with pytest.raises(SchemaMismatch, match=sqlite3.sqlite_version):
        migrate(conn)


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    """A path in a folder that does not exist is an error with that path."""
    with pytest.raises(NotInstalled, match=r"nowhere.shop\.db"):
        migrate_file(tmp_path / "nowhere" / "shop.db")


def test_urls_are_read_as_sqlalchemy_reads_them() -> None:
    """Three slashes are relative, four absolute; escapes are decoded."""
    assert path_of("sqlite:///shop.db") == Path("shop.db")
    assert path_of("sqlite:////var/lib/my%20shop.db") == Path("/var/lib/my shop.db")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "shop.db", "sqlite:///a.db?mode=ro"])
def test_urls_that_name_no_shared_file_are_refused(url: str) -> None:
    """What several processes cannot open together is a configuration error that shows the right form."""
    with pytest.raises(ConfigError, match="sqlite"):
        path_of(url)


def test_a_sound_installation_has_no_findings(path: Path, conn: sqlite3.Connection) -> None:
    """Fresh from `migrate`, nothing differs; before it, one sentence says what to run."""
    assert "migrate up" in check_file(path)[0]
    migrate_file(path)
    assert check_file(path) == []
    conn.execute("UPDATE pillarbox_installation SET schema_version = 7")
    assert "version 7" in check(conn)[0]


def test_what_was_changed_by_hand_is_found(path: Path, conn: sqlite3.Connection) -> None:
    """A missing index, a changed table, a stranger and another journal mode: a sentence each."""
    migrate_file(path)
    conn.execute("DROP INDEX pillarbox_hold_key")
    conn.execute("ALTER TABLE pillarbox_relay ADD COLUMN colour TEXT")
    conn.execute("CREATE TRIGGER pillarbox_own AFTER INSERT ON pillarbox_message BEGIN SELECT 1; END")
    conn.execute("PRAGMA journal_mode = DELETE")
    findings = " ".join(check(conn))
    for part in (
        "pillarbox_hold_key is missing",
        "pillarbox_relay differs",
        "pillarbox_own is unknown",
        "delete, not WAL",
    ):
        assert part in findings


def test_a_missing_or_damaged_file_is_not_checked(tmp_path: Path) -> None:
    """Looking makes no file, and what is no database is said to be none."""
    with pytest.raises(NotInstalled, match="does not exist"):
        check_file(tmp_path / "none.db")
    (tmp_path / "garbage.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(SchemaMismatch, match="not a database"):
        check_file(tmp_path / "garbage.db")
