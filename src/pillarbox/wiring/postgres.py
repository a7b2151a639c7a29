"""PostgreSQL as storage. Every connection resolves its references anew: passwords rotate."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo

from pillarbox.config import Config, secret
from pillarbox.errors import ConfigError, NotInstalled, SchemaMismatch
from pillarbox.ports import Actions, Desk, Upkeep
from pillarbox.storage.postgres import failure, migrate
from pillarbox.storage.postgres.connection import URL_HINT, Database
from pillarbox.storage.postgres.leases import PostgresLeases, identity_differs
from pillarbox.storage.postgres.routes import PostgresRoutes
from pillarbox.storage.postgres.source import PostgresSource
from pillarbox.wiring.storage import Migrated, Routes, Storage, Working

PATIENCE = 30.0  # seconds a statement of people and of upkeep may take


class PostgresStorage:
    """One installation; every part has a connection of its own."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def working(self) -> Working:
        from pillarbox.storage.postgres.chores import PostgresChores

        database, ours = self._open("relay", limit=None), self._config
        return Working(
            PostgresSource(database, wait_for_flush=ours.relay.wait_for_flush),
            PostgresLeases(database, environment=ours.database.environment),
            PostgresChores(database),
            PostgresRoutes(database),
            lambda: self._shake_hands(database),
            database.close,
        )

    def routes(self) -> Routes:
        return PostgresRoutes(self._open("routes"))

    def upkeep(self) -> Upkeep:
        from pillarbox.storage.postgres.upkeep import PostgresUpkeep

        return PostgresUpkeep(self._open("upkeep", maintenance=True))

    def desk(self) -> Desk:
        from pillarbox.storage.postgres.desk import PostgresDesk

        return PostgresDesk(self._open("desk"), environment=self._config.database.environment)

    def actions(self) -> Actions:
        from pillarbox.storage.postgres.desk_actions import PostgresActions

        return PostgresActions(self._open("desk"))

    def migrate(self, *, lanes: int, dry_run: bool) -> Migrated:
        ours = self._config.database
        with self._connected() as conn:
            if dry_run:
                installed = migrate.version(migrate.asker(conn), ours.schema_name)
                return Migrated([name for name in migrate.migrations() if migrate.number(name) > installed], [])
            done = migrate.migrate(conn, schema=ours.schema_name, lanes=lanes, environment=ours.environment)
            return Migrated(done, [])

    def script(self, *, lanes: int) -> str:
        ours = self._config.database
        return migrate.sql(schema=ours.schema_name, lanes=lanes, environment=ours.environment)

    def check(self) -> list[str]:
        with self._connected() as conn:
            return migrate.check(conn, schema=self._config.database.schema_name)

    def grant(self, *, writer: str | None, relay: str | None, viewer: str | None, dry_run: bool) -> list[str]:
        statements = migrate.grants(schema=self._config.database.schema_name, writer=writer, relay=relay, viewer=viewer)
        if not dry_run:
            with self._connected() as conn:
                ask = migrate.asker(conn)
                for statement in statements:
                    ask(statement)
        return statements

    def _shake_hands(self, database: Database) -> None:
        schema = self._config.database.schema_name
        try:
            installed = migrate.version(migrate.asker(database.direct()), schema)
        except psycopg.Error as error:
            raise failure.named(error, schema) from error
        if not installed:
            raise NotInstalled(f"Schema {schema!r} holds no installation.", "Run `pillarbox migrate up`.")
        if installed < migrate.newest():
            raise SchemaMismatch(
                f"Schema {schema!r} has version {installed} of {migrate.newest()}.", "Run `pillarbox migrate up`."
            )
        ((_, environment, _, is_same_system),) = database.run("installation")
        if not is_same_system or environment != self._config.database.environment:
            raise identity_differs(environment, self._config.database.environment)

    def _open(self, purpose: str, *, maintenance: bool = False, limit: float | None = PATIENCE) -> Database:
        ours = self._config
        return Database(
            lambda: self._conninfo(maintenance=maintenance),
            schema=ours.database.schema_name,
            name=f"pillarbox {purpose} {socket.gethostname()}"[:63],
            lease=ours.relay.lease,
            limit=limit,
        )

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection of psycopg itself, as the owner, for migrations."""
        database = self._open("migrate", maintenance=True)
        try:
            conn = database.direct()
            conn.prepare_threshold = None  # a migration is many commands in one text
            yield conn
        except psycopg.Error as error:
            raise failure.named(error, self._config.database.schema_name) from error
        finally:
            database.close()

    def _conninfo(self, *, maintenance: bool) -> str:
        ours = self._config.database
        url = secret(ours.maintenance_url if maintenance and ours.maintenance_url else ours.url)
        # The password belongs to `url`; a maintenance_url logs in as somebody else and brings its own.
        if ours.password is None or (maintenance and ours.maintenance_url):
            return url
        try:
            return conninfo.make_conninfo(url, password=secret(ours.password))
        except psycopg.Error:  # its text quotes the URL
            raise ConfigError("The database's URL is not one PostgreSQL understands.", URL_HINT) from None


def storage(config: Config) -> Storage:
    return PostgresStorage(config)
