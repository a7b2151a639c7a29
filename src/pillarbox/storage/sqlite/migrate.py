"""Bring a file's tables up to this release, inside the caller's transaction if there is one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from pillarbox.errors import NotInstalled, SchemaMismatch
from pillarbox.storage.sqlite import migrations
from pillarbox.storage.sqlite.connection import MIGRATE, Database, typed
from pillarbox.storage.sqlite.sql import SQL

OLDEST = (3, 35, 0)  # RETURNING


class Migrated(NamedTuple):
    """What a migration did."""

    version: int
    applied: list[str]
    notes: list[str]  # what a person should know


class Installation(NamedTuple):
    """What the file says of itself."""

    version: int
    lanes: int
    environment: str


def steps() -> list[tuple[int, str, str]]:
    """Number, name and text of every migration, in order."""
    found = [file for file in files(migrations).iterdir() if file.name.endswith(".sql")]
    named = sorted((file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in found)
    return [(int(name.partition("_")[0]), name, text) for name, text in named]


def newest() -> int:
    return steps()[-1][0]


def migrate(conn: sqlite3.Connection, *, environment: str = "production") -> Migrated:
    """Safe to run twice and by several at once. In an open transaction it commits nothing and cannot set WAL."""
    path = Path(conn.execute("PRAGMA database_list").fetchone()[2] or ":memory:")
    if sqlite3.sqlite_version_info < OLDEST:
        raise SchemaMismatch(f"This Python brings SQLite {sqlite3.sqlite_version}; 3.35 or newer is needed.")
    try:
        if conn.in_transaction:
            applied = _apply(conn, environment)
            note = "The caller's transaction decides; WAL cannot be set inside it: run `pillarbox migrate up` once."
            return Migrated(newest(), applied, [] if _mode(conn) == "wal" else [note])
        notes = _set_wal(conn)
        conn.execute("BEGIN IMMEDIATE")
        try:
            applied = _apply(conn, environment)
        except BaseException:
            conn.execute("ROLLBACK")
            raise
        conn.execute("COMMIT")
    except sqlite3.Error as error:
        raise typed(error, path) from error
    return Migrated(newest(), applied, notes)


def migrate_file(path: Path, *, environment: str = "production") -> Migrated:
    """The same for a file, which is made if it is missing."""
    try:
        conn = sqlite3.connect(path, timeout=10, isolation_level=None)
    except sqlite3.Error as error:
        raise typed(error, path) from error
    with closing(conn):
        return migrate(conn, environment=environment)


def installation(database: Database) -> Installation:
    """What is installed; refuses what this release cannot work with."""
    rows = database.all(SQL["installation"])
    if not rows:
        raise NotInstalled(f"{database.path} has no installation row.", MIGRATE)
    found = Installation(*rows[0])
    if found.version > newest():
        raise _too_new(found.version)
    if found.version < newest():
        raise SchemaMismatch(f"{database.path} has schema version {found.version} of {newest()}.", MIGRATE)
    return found


def check(conn: sqlite3.Connection, *, schema: str = "pillarbox") -> list[str]:
    """What differs from what this release expects, a sentence each; empty when all is well."""
    del schema  # SQLite has none; the tables' prefix is fixed
    path = Path(conn.execute("PRAGMA database_list").fetchone()[2] or ":memory:")
    try:
        if not conn.execute(SQL["is_installed"]).fetchone()[0]:
            return [f"{path} has no Pillarbox tables: run `pillarbox migrate up`."]
        version, found = conn.execute(SQL["installation"]).fetchone()[0], _objects(conn)
        if version != newest():
            return [f"The schema has version {version}, and this release knows {newest()}."]
        expected = _expected()
        findings = [f"{name} is missing." for name in expected.keys() - found.keys()]
        findings += [f"{name} differs." for name in expected.keys() & found.keys() if expected[name] != found[name]]
        findings += [f"{name} is unknown." for name in found.keys() - expected.keys()]
        if _mode(conn) not in ("wal", "memory"):
            findings.append(f"The journal mode is {_mode(conn)}, not WAL: readers and the writer block each other.")
    except sqlite3.Error as error:
        raise typed(error, path) from error
    return sorted(findings)


def check_file(path: Path) -> list[str]:
    """The same for a file, which is not made if it is missing."""
    try:
        with closing(sqlite3.connect(path.absolute().as_uri() + "?mode=rw", uri=True)) as conn:
            return check(conn)
    except sqlite3.Error as error:
        raise typed(error, path) from error


def statements(text: str) -> Iterator[str]:
    """One by one, because `executescript` would commit the caller's transaction."""
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _apply(conn: sqlite3.Connection, environment: str) -> list[str]:
    here = conn.execute(SQL["is_installed"]).fetchone()[0]
    version = conn.execute(SQL["installation"]).fetchone()[0] if here else 0
    if version > newest():
        raise _too_new(version)
    wanted = [(number, name, text) for number, name, text in steps() if number > version]
    for _, _, text in wanted:
        for statement in statements(text):
            conn.execute(statement)
    if wanted:
        conn.execute(SQL["installed"], (environment, newest()))
    return [name for _, name, _ in wanted]


def _expected() -> dict[str, str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        _apply(conn, "check")
        return _objects(conn)


def _objects(conn: sqlite3.Connection) -> dict[str, str]:
    """Our tables, indexes, triggers and views, as they were made."""
    return dict(conn.execute(SQL["objects"]).fetchall())


def _too_new(version: int) -> SchemaMismatch:
    return SchemaMismatch(
        f"The database has schema version {version}; this release knows {newest()}.", "Install a newer pillarbox."
    )


def _mode(conn: sqlite3.Connection) -> str:
    return str(conn.execute("PRAGMA journal_mode").fetchone()[0])


def _set_wal(conn: sqlite3.Connection) -> list[str]:
    before = _mode(conn)
    if before == "wal":
        return []
    now = str(conn.execute("PRAGMA journal_mode = WAL").fetchone()[0])
    if now == "wal":
        return [
            f"The file's journal mode is WAL now ({before} before): readers and the writer no longer block each other."
        ]
    return [f"The file's journal mode stays {now}: readers and the writer block each other. WAL needs a local disk."]
