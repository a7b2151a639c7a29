"""An SQLite file as storage."""

from __future__ import annotations

from pillarbox.config import Config, secret
from pillarbox.errors import IdentityDiffers, NotInstalled, Refused, SchemaMismatch
from pillarbox.ports import Actions, Desk, Upkeep
from pillarbox.storage.sqlite import migrate
from pillarbox.storage.sqlite.chores import SqliteChores
from pillarbox.storage.sqlite.connection import Database, path_of
from pillarbox.storage.sqlite.leases import SqliteLeases
from pillarbox.storage.sqlite.routes import SqliteRoutes
from pillarbox.storage.sqlite.source import SqliteSource
from pillarbox.storage.sqlite.upkeep import SqliteUpkeep
from pillarbox.wiring.storage import Migrated, Routes, Storage, Working


class SqliteStorage:
    """One file; every part opens it for itself."""

    def __init__(self, config: Config) -> None:
        self._path = path_of(secret(config.database.url))
        self._environment = config.database.environment

    def working(self) -> Working:
        database = self._open()
        return Working(
            SqliteSource(database),
            SqliteLeases(database, environment=self._environment),
            SqliteChores(database),
            SqliteRoutes(database),
            lambda: self._shake_hands(database),
            database.close,
        )

    def routes(self) -> Routes:
        return SqliteRoutes(self._open())

    def upkeep(self) -> Upkeep:
        return SqliteUpkeep(self._open())

    def desk(self) -> Desk:
        from pillarbox.storage.sqlite.desk import SqliteDesk

        return SqliteDesk(self._open(), environment=self._environment)

    def actions(self) -> Actions:
        from pillarbox.storage.sqlite.desk_actions import SqliteActions

        return SqliteActions(self._open())

    def migrate(self, *, lanes: int, dry_run: bool) -> Migrated:
        notes = [] if lanes in {1, 16} else ["SQLite has one lane; --lanes means nothing to it."]
        if dry_run:
            return Migrated(self._pending(), notes)
        done = migrate.migrate_file(self._path, environment=self._environment)
        return Migrated(done.applied, notes + done.notes)

    def script(self, *, lanes: int) -> str:
        del lanes
        return "\n".join(f"-- {name}\n{text}" for _, name, text in migrate.steps())

    def check(self) -> list[str]:
        found = migrate.installation(self._open())
        if found.environment != self._environment:
            return [f"the installation is of the environment {found.environment!r}, not {self._environment!r}"]
        return migrate.check_file(self._path)

    def grant(self, *, writer: str | None, relay: str | None, viewer: str | None, dry_run: bool) -> list[str]:
        raise Refused("SQLite has no roles.", "The rights of the file decide.")

    def _shake_hands(self, database: Database) -> None:
        found = migrate.installation(database)
        if found.environment != self._environment:
            raise IdentityDiffers(
                f"The installation belongs to the environment {found.environment!r}; this relay is set up for "
                f"{self._environment!r}.",
                "Set [database] environment, or decide with `pillarbox adopt`; until then nothing is delivered.",
            )

    def _pending(self) -> list[str]:
        try:
            migrate.installation(self._open())
        except NotInstalled:
            return [name for _, name, _ in migrate.steps()]
        except SchemaMismatch:
            return [migrate.steps()[-1][1]]
        return []

    def _open(self) -> Database:
        return Database(self._path)


def storage(config: Config) -> Storage:
    return SqliteStorage(config)
