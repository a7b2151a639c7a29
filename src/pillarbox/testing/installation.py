"""What an installation says of its messages, asked with a connection of one's own while no relay answers."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID

from pillarbox.storage.sql import split
from pillarbox.testing.history import FINAL, State


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:")


def statements(package: str, url: str) -> dict[str, str]:
    """The statements of `sqlite.sql` or `postgres.sql` in this package."""
    name = "sqlite.sql" if is_sqlite(url) else "postgres.sql"
    return split(files(package).joinpath(name).read_text(encoding="utf-8"))


def connect(url: str) -> Any:
    """A plain connection of sqlite3 or psycopg, as an application would open one."""
    if is_sqlite(url):
        # IMMEDIATE: a deferred transaction that read first fails when another connection commits meanwhile.
        return sqlite3.connect(sqlite_path(url), timeout=30.0, isolation_level="IMMEDIATE")
    import psycopg

    return psycopg.connect(url)


def sqlite_path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


@contextlib.contextmanager
def connected(url: str) -> Iterator[Any]:
    conn = connect(url)
    try:
        yield conn
    finally:
        conn.close()


class Installation:
    """Read by ids of messages as text."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sql = statements("pillarbox.testing", url)

    def _ask(self, name: str) -> list[tuple[Any, ...]]:
        with connected(self._url) as conn:
            return list(conn.execute(self._sql[name]))

    def states(self) -> dict[str, State]:
        """The messages that have a `hold` row, and how it stands."""
        return {_text(id): State(*rest) for id, *rest in self._ask("held")}

    def unsettled(self) -> set[str]:
        """What may be delivered again when its relay is dead: not passed by a cursor, or held and not at its end."""
        held = {id for id, state in self.states().items() if state.state not in FINAL}
        return held | {_text(id) for (id,) in self._ask("unsettled")}


def _text(id: object) -> str:
    return str(UUID(bytes=id)) if isinstance(id, bytes) else str(id)
