"""One connection to an SQLite file, as the relay uses it: short statements, own patience with locks, typed errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from pillarbox.clock import Clock, SystemClock
from pillarbox.errors import (
    ConfigError,
    DatabaseUnavailable,
    NotInstalled,
    NotPermitted,
    PillarboxError,
    SchemaMismatch,
)

T = TypeVar("T")
PREFIX = "sqlite:///"
PAUSE = 0.0004  # between two tries to get the write lock; SQLite's own busy handler sleeps up to 100 ms and starves
MIGRATE = "Run `pillarbox migrate up`."


def path_of(url: str) -> Path:
    """The file of `sqlite:///relative` or `sqlite:////absolute`, as SQLAlchemy reads them."""
    name = unquote(url.removeprefix(PREFIX))
    if not url.startswith(PREFIX) or not name or name.startswith(":memory:"):
        raise ConfigError(
            f"{url!r} names no SQLite file that several processes can open.",
            "Write sqlite:///relative/path.db or sqlite:////absolute/path.db.",
        )
    if "?" in name:
        raise ConfigError(f"{url!r} has parameters; an SQLite URL takes none.", "Leave out what follows the `?`.")
    return Path(name)


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extended part; 1 where the module itself complains."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def is_lock(error: sqlite3.Error) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def typed(error: sqlite3.Error, path: Path) -> PillarboxError:
    """What happened to this file, as one of our own errors."""
    code, text = primary_code(error), str(error)
    if "no such table" in text:
        return NotInstalled(f"{path}: {text}.", MIGRATE)
    if code == sqlite3.SQLITE_ERROR:  # a statement that does not fit: another schema, or a library built without JSON
        return SchemaMismatch(f"{path}: {text} (SQLite {sqlite3.sqlite_version}).", MIGRATE)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return SchemaMismatch(f"{path}: {text}.", "Restore the file from a backup; see `PRAGMA integrity_check`.")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return NotPermitted(f"{path}: {text}.", "The file and its folder must be writable for this process.")
    if code == sqlite3.SQLITE_CANTOPEN and not path.exists():
        return NotInstalled(f"{path} does not exist.", MIGRATE)
    if is_lock(error):
        return DatabaseUnavailable(
            f"{path}: another connection has kept the write lock.", "Keep write transactions short."
        )
    if code == sqlite3.SQLITE_FULL:
        return DatabaseUnavailable(f"{path}: {text}.", "Make room on the disk; work goes on by itself then.")
    return DatabaseUnavailable(f"{path}: {text}.", "See whether the file and its disk are well.")


class Database:
    """Opens the file when it is needed, and again after a failure. Used by one thread at a time."""

    def __init__(self, path: Path, *, patience: float = 2.0, clock: Clock | None = None) -> None:
        self.path = path
        self._patience = patience
        self._clock = clock or SystemClock()
        self._conn: sqlite3.Connection | None = None

    def all(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Every row of one statement outside any transaction."""
        with self._typed():
            conn = self._open()
            return self._patiently(lambda: fetch(conn, sql, parameters))

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Several statements that see one snapshot."""
        with self._transaction("BEGIN") as conn:
            yield conn

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its beginning: what it reads, nobody changes."""
        with self._transaction("BEGIN IMMEDIATE") as conn:
            yield conn

    def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._typed():
            conn = self._open()
            self._patiently(lambda: conn.execute(begin))
            try:
                yield conn
                self._patiently(lambda: conn.execute("COMMIT"))
            except BaseException:
                if conn.in_transaction:
                    conn.execute("ROLLBACK")
                raise

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self.close()  # what state it is in is unknown; the next statement opens the file anew
            raise typed(error, self.path) from error

    def _open(self) -> sqlite3.Connection:
        if self._conn is None:
            # mode=rw: a mistyped path is an error, not a new empty file.
            uri = self.path.absolute().as_uri() + "?mode=rw"
            conn = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
            self._conn = conn
            # A settled cursor must not be lost with the machine's power: messages would be delivered again.
            self._patiently(lambda: conn.execute("PRAGMA synchronous = FULL"))
        return self._conn

    def _patiently(self, action: Callable[[], T]) -> T:
        give_up = self._clock.mono() + self._patience
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if not is_lock(error) or self._clock.mono() >= give_up:
                    raise
            self._clock.sleep(PAUSE)


def storable(text: str | None) -> str | bytes | None:
    """Text as it may be bound to `CAST(? AS TEXT)`; with surrogates in it, the bytes it was read from."""
    return text if text is None or text.isascii() else text.encode("utf-8", "surrogateescape")


def execute(conn: sqlite3.Connection, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
    """One statement. `?1` is a name to newer Pythons, which take names from a mapping only."""
    named = {f"{number}": value for number, value in enumerate(parameters, 1)} if "?1" in sql else parameters
    return conn.execute(sql, named)


def fetch(conn: sqlite3.Connection, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Every row; text that is no UTF-8 comes with surrogates."""
    try:
        return execute(conn, sql, parameters).fetchall()
    except sqlite3.OperationalError as error:
        if "Could not decode" not in str(error):
            raise
    # Only the row of whoever wrote it may suffer: its surrogates are refused when it is encoded.
    before = conn.text_factory
    conn.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    try:
        return execute(conn, sql, parameters).fetchall()
    finally:
        conn.text_factory = before
