"""Installing, upgrading and comparing the tables, on whatever connection a team's migration tool has."""

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import psycopg2
import pytest
from psycopg.rows import dict_row

from devtools.servers.postgres import Postgres, SharedPostgres
from pillarbox.errors import ConfigError, NotInstalled, Retryable, SchemaMismatch, UnsupportedConnection
from pillarbox.storage.migrate import check
from pillarbox.storage.migrate import migrate as migrate_any
from pillarbox.storage.postgres import migrate
from tests.contract.postgres_harness import PostgresHarness


def columns(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('pillarbox')").fetchone()
    assert row is not None
    return int(row[0])


def test_it_may_be_run_twice(pg_url: str) -> None:
    """The second run applies nothing."""
    with psycopg.connect(pg_url, autocommit=True) as conn:
        assert migrate_any(conn) == list(migrate.migrations())
        assert migrate_any(conn) == []
        assert check(conn) == []


def test_the_package_knows_what_a_fresh_installation_looks_like(pg_url: str) -> None:
    """`catalog.txt` is `catalog` of a fresh installation; a new migration brings it up to date."""
    with psycopg.connect(pg_url, autocommit=True) as conn:
        migrate_any(conn, schema="other_box", lanes=64)
        found = migrate.catalog(migrate.asker(conn), "other_box")
    assert found == migrate.expected(), "write it anew: one line a name, `name<TAB>detail`, as `catalog` orders them"


def test_the_first_installation_belongs_to_the_callers_transaction(pg_url: str) -> None:
    """Rolled back, nothing is left; their lock_timeout is theirs again."""
    with psycopg.connect(pg_url, row_factory=dict_row) as conn:
        conn.execute("SET lock_timeout = '7s'")
        assert migrate_any(conn)
        assert conn.execute("SHOW lock_timeout").fetchone() == {"lock_timeout": "7s"}
        conn.rollback()
        assert conn.execute("SELECT to_regnamespace('pillarbox') AS n").fetchone() == {"n": None}


def test_a_schema_that_is_there_is_used(pg_url: str) -> None:
    """Who may not create schemas is given one."""
    with psycopg.connect(pg_url, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA mine")
        assert migrate_any(conn, schema="mine", environment="staging")
        assert conn.execute("SELECT environment FROM mine.installation").fetchone() == ("staging",)


@pytest.mark.parametrize("kind", ["psycopg2", "sqlalchemy", "session"])
def test_other_tools_own_the_step(pg_url: str, kind: str) -> None:
    """psycopg2, and SQLAlchemy's connections and sessions as Alembic hands them out."""
    if kind == "psycopg2":
        conn = psycopg2.connect(pg_url)
        assert migrate_any(conn)
        conn.commit()
        conn.close()
    else:
        sqlalchemy = pytest.importorskip("sqlalchemy")
        orm = pytest.importorskip("sqlalchemy.orm")
        engine = sqlalchemy.create_engine(pg_url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() if kind == "sqlalchemy" else orm.Session(engine) as connection:
            assert migrate_any(connection)
            connection.commit()
        engine.dispose()
    with psycopg.connect(pg_url) as conn:
        assert check(conn) == []


def test_several_at_once_install_once(pg_url: str) -> None:
    """Pods that start together: each step is applied by one, and found done by the others."""
    applied: list[list[str]] = []

    def run() -> None:
        with psycopg.connect(pg_url, autocommit=True) as conn:
            applied.append(migrate_any(conn))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for names in applied for name in names) == list(migrate.migrations())


def test_a_run_that_was_killed_is_resumed(pg_url: str) -> None:
    """Each step and its note are one transaction: what is noted is there, the rest is done by the next run."""
    with psycopg.connect(pg_url, autocommit=True) as conn:
        names = list(migrate.migrations())
        assert migrate._apply(migrate.asker(conn), names[0], migrate._values("pillarbox", 16, "production"), own=True)
        assert check(conn) == [f"schema 'pillarbox' has version 1 of {len(names)}: run `pillarbox migrate up`"]
        assert migrate_any(conn) == names[1:]


def test_a_lock_that_cannot_be_had_is_asked_for_again(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step waits for its lock in short tries, so that nobody queues behind it, and says so when it gives up."""
    monkeypatch.setattr(migrate, "TRIES", 1)
    with psycopg.connect(pg_url, autocommit=True) as conn, psycopg.connect(pg_url) as other:
        other.execute("""SELECT pg_advisory_xact_lock(hashtextextended('pillarbox migrate "pillarbox"', 0))""")
        with pytest.raises(Retryable, match="pg_stat_activity"):
            migrate_any(conn)
        other.rollback()
        monkeypatch.setattr(migrate, "TRIES", 2)
        monkeypatch.setattr(migrate, "PAUSE", 0.01)
        assert migrate_any(conn)


def test_a_newer_schema_is_refused_in_one_sentence(pg_url: str) -> None:
    """By migrate, by check, and by a relay that starts (P13)."""
    harness = PostgresHarness(pg_url)
    harness.conn.execute("UPDATE pillarbox.installation SET schema_version = 999")
    store = harness.connect()
    for act in (
        lambda: migrate_any(harness.conn),
        lambda: check(harness.conn),
        lambda: store.leases.join(uuid4(), [], 5),
    ):
        with pytest.raises(SchemaMismatch, match="has version 999, and this release knows versions up to"):
            act()
    harness.conn.execute("UPDATE pillarbox.installation SET schema_version = 1")
    with pytest.raises(SchemaMismatch, match="migrate up"):
        store.leases.join(uuid4(), [], 5)
    harness.close()


DRIFT = {
    "DROP INDEX pillarbox.hold_live": "index hold_live is missing",
    "ALTER TABLE pillarbox.hold DROP COLUMN error": "column hold.error is missing",
    "ALTER TABLE pillarbox.message ALTER COLUMN type DROP NOT NULL": "column message.type is 'text'",
    "ALTER SEQUENCE pillarbox.message_id_seq CACHE 20": "sequence message_id_seq is 'cache 20 increment 1'",
    "ALTER SEQUENCE pillarbox.message_id_seq INCREMENT 2": "sequence message_id_seq is 'cache 1 increment 2'",
    "DROP FUNCTION pillarbox.uuid7() CASCADE": "function uuid7() is missing",
}


@pytest.mark.parametrize("damage", DRIFT)
def test_drift_is_found(pg_url: str, damage: str) -> None:
    """What is missing or changed is named; what was added is nobody's business."""
    with psycopg.connect(pg_url, autocommit=True) as conn:
        migrate_any(conn)
        conn.execute(
            "ALTER TABLE pillarbox.audit ADD COLUMN theirs int; CREATE INDEX theirs ON pillarbox.audit (theirs)"
        )
        assert check(conn) == []
        conn.execute(damage)
        assert [finding for finding in check(conn) if finding.startswith(DRIFT[damage])]


def test_the_script_installs_the_same(pg_url: str) -> None:
    """For those who run SQL themselves: `migrate sql` is what `migrate up` does."""
    with psycopg.connect(pg_url, autocommit=True) as conn:
        conn.execute(migrate.sql(lanes=32).encode())
        assert check(conn) == []
        assert conn.execute("SELECT lanes, schema_version FROM pillarbox.installation").fetchone() == (
            32,
            migrate.newest(),
        )


def test_what_cannot_be_is_refused_before_anything_is_done(pg_url: str) -> None:
    """Lanes, names, and connections nobody knows."""
    with psycopg.connect(pg_url, autocommit=True) as conn:
        for wrong in ({"lanes": 12}, {"lanes": 512}, {"schema": 'x"; DROP'}, {"environment": "it's"}):
            with pytest.raises(ConfigError):
                migrate_any(conn, **wrong)  # type: ignore[arg-type]
        with pytest.raises(NotInstalled):
            check(conn)
        assert columns(conn) == 0
    with pytest.raises(UnsupportedConnection, match="does not know"):
        migrate_any(object())


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_keep_all_text_is_refused(postgres: SharedPostgres, encoding: str) -> None:
    """SQL_ASCII stores any bytes as text, and one such message would stop every read; another encoding lacks
    characters, and one such key would fail its transaction."""
    name = f"encoded_{encoding.lower()}"
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
        try:
            with (
                psycopg.connect(urlsplit(postgres.url)._replace(path=f"/{name}").geturl(), autocommit=True) as conn,
                pytest.raises(SchemaMismatch, match=f"{encoding}.*UTF8"),
            ):
                migrate_any(conn)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_connections_own_encoding_does_not_matter(pg_url: str) -> None:
    """A connection that speaks another encoding than the database can migrate it."""
    with psycopg.connect(pg_url, autocommit=True, client_encoding="latin1") as conn:
        migrate_any(conn)
        assert check(conn) == []


@pytest.mark.parametrize("version", ["16", "17", "18"])
@pytest.mark.full
def test_other_versions_have_the_same_catalog(private_postgres: Callable[..., Postgres], version: str) -> None:
    """A drift check that passes on one server passes on all."""
    server = private_postgres(version=version)
    with psycopg.connect(server.fresh_database(), autocommit=True) as conn:
        migrate_any(conn)
        assert check(conn) == []
