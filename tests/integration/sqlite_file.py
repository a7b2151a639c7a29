"""A file with tables and one route, and processes that work on it."""

import os
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

from pillarbox.storage.sqlite.connection import Database
from pillarbox.storage.sqlite.migrate import migrate_file
from pillarbox.storage.sqlite.routes import SqliteRoutes
from pillarbox.views import Note

NOTE = Note("test", "here")


def installed(path: Path, *routes: str) -> Database:
    """Migrated, with these routes from the beginning."""
    migrate_file(path)
    database = Database(path)
    for route in routes:
        SqliteRoutes(database).store(route, {}, "beginning", NOTE)
    return database


def plain(path: Path) -> sqlite3.Connection:
    """A user's own connection, as Python opens it."""
    return sqlite3.connect(path, isolation_level=None)


def add(conn: sqlite3.Connection, payload: str = "{}", key: str | None = "k") -> None:
    conn.execute(
        "INSERT INTO pillarbox_message (aggregate, key, type, payload) VALUES ('order', ?, 'made', ?)", (key, payload)
    )


class Processes:
    """Other processes of a test, each writing into a file of its own; killed at the test's end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, code: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
        with self._output(len(self._running)).open("wb") as output:
            self._running.append(subprocess.Popen(command, stdout=output, env={**os.environ, **environment}))
        return self._running[-1]

    def lines(self, process: subprocess.Popen[bytes]) -> list[str]:
        """Whole lines that it has written until now."""
        text = self._output(self._running.index(process)).read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def _output(self, number: int) -> Path:
        return self._folder / f"process{number}.out"
