"""From the database's URL to what stands on it. Each part has a connection of its own but for the relay's, which
share one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from pillarbox.config import Config
from pillarbox.errors import ConfigError
from pillarbox.ports import Actions, Chores, Desk, Leases, Source, Upkeep
from pillarbox.views import Note


class Routes(Protocol):
    """Stored routes; every change leaves an audit row."""

    def in_log(self) -> int: ...
    def store_first(self, routes: Mapping[str, tuple[Mapping[str, Any], str]], note: Note) -> bool: ...
    def store(self, name: str, definition: Mapping[str, Any], start: str, note: Note) -> None: ...
    def apply(self, name: str, definition: Mapping[str, Any], note: Note) -> None: ...
    def pause(self, name: str, note: Note) -> None: ...
    def resume(self, name: str, note: Note) -> None: ...
    def rename(self, old: str, new: str, note: Note) -> None: ...
    def remove(self, name: str, note: Note) -> int: ...


class Working(NamedTuple):
    """What a relay works with, on one connection."""

    source: Source
    leases: Leases
    chores: Chores
    routes: Routes
    shake_hands: Callable[[], None]  # raises what makes this release and these tables unfit for each other
    close: Callable[[], None]


class Migrated(NamedTuple):
    """What a migration did or would do, and what a person should know."""

    applied: list[str]
    notes: list[str]


class Storage(Protocol):
    """An installation's database, whatever its kind."""

    def working(self) -> Working: ...
    def routes(self) -> Routes: ...
    def upkeep(self) -> Upkeep: ...
    def desk(self) -> Desk: ...
    def actions(self) -> Actions: ...
    def migrate(self, *, lanes: int, dry_run: bool) -> Migrated: ...
    def script(self, *, lanes: int) -> str: ...
    def check(self) -> list[str]: ...
    def grant(self, *, writer: str | None, relay: str | None, viewer: str | None, dry_run: bool) -> list[str]: ...


def storage_of(config: Config) -> Storage:
    """The storage of this configuration; nothing is connected yet."""
    module = "sqlite" if config.database.is_sqlite else "postgres"
    try:
        found = importlib.import_module(f"pillarbox.wiring.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pillarbox"):
            raise
        raise ConfigError(
            f"This database needs {error.name}, which is not installed.", f"pip install 'pillarbox[{module}]'"
        ) from error
    storage: Storage = found.storage(config)
    return storage
