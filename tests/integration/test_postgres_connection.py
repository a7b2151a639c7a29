"""One connection: it never waits without end, never sends twice, names no secret, and works through a pooler."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from devtools.servers.pgbouncer import PgBouncer
from devtools.servers.postgres import Postgres
from pillarbox.errors import (
    ConfigError,
    DatabaseUnavailable,
    NotInstalled,
    NotPermitted,
    PillarboxError,
    Retryable,
    SchemaMismatch,
)
from pillarbox.storage.postgres.connection import PLAN, Database
from pillarbox.storage.postgres.upkeep import PostgresUpkeep
from tests.contract.postgres_harness import PostgresHarness
from tests.integration.test_postgres_settle import Relay


@pytest.fixture
def database(pg_url: str) -> Iterator[Database]:
    made = Database(pg_url)
    yield made
    made.close()


def test_the_plan_settings_are_in_force(database: Database) -> None:
    """Index scans and generic plans, no JIT, synchronous commits: given as options when connecting."""
    names = [*PLAN, "synchronous_commit", "idle_in_transaction_session_timeout"]
    rows = [database.execute("SELECT current_setting($1)", name)[0][0] for name in names]
    assert rows == [*PLAN.values(), "on", "5s"]
    assert not database.pooled


def test_a_slow_answer_is_not_waited_for(database: Database) -> None:
    """The client's own deadline ends it, and the next statement has a new connection."""
    database.execute("SELECT 1")
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match=r"no answer within 0.3 s"):
        database.execute("SELECT pg_sleep($1::float8)", 20, limit=0.3)
    assert time.monotonic() - began < 2
    assert database.execute("SELECT 1") == [(1,)]


@pytest.mark.serial
def test_a_black_hole_is_noticed(private_postgres: Callable[..., Postgres]) -> None:
    """A server that answers nothing, not even a cancel: connected or connecting, the error comes in time."""
    server = private_postgres()
    database = Database(server.url, lease=0.5)
    database.execute("SELECT 1")
    server.freeze()
    try:
        for longest in (2.0, 8.0):
            began = time.monotonic()
            with pytest.raises(DatabaseUnavailable):
                database.execute("SELECT 1")
            assert time.monotonic() - began < longest
    finally:
        server.thaw()
    assert database.execute("SELECT 1") == [(1,)]
    database.close()


def test_a_lost_connection_is_told_once(database: Database, pg_url: str) -> None:
    """The statement that meets it is not sent again by itself: whether it happened is not known (R12)."""
    with psycopg.connect(pg_url, autocommit=True) as other:
        database.execute("SELECT 1")
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pillarbox'")
        with pytest.raises(DatabaseUnavailable):
            database.execute("SELECT 2")
        assert database.execute("SELECT 3") == [(3,)]


def test_a_transaction_that_loses_its_connection_says_so(database: Database) -> None:
    """Not that its ROLLBACK failed."""
    with pytest.raises(DatabaseUnavailable), database.transaction():
        database.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(ZeroDivisionError), database.transaction():
        raise ZeroDivisionError
    assert database.execute("SELECT 1") == [(1,)]


ERRORS: list[tuple[str, type[PillarboxError]]] = [
    ("SELECT * FROM pillarbox.nothing", NotInstalled),
    ("SELECT pillarbox.nothing()", NotInstalled),
    ("SELECT * FROM pg_authid", NotPermitted),
    ("SELECT nothing FROM pg_class", SchemaMismatch),
    ("DO $$ BEGIN RAISE deadlock_detected; END $$", Retryable),
    ("DO $$ BEGIN RAISE serialization_failure; END $$", Retryable),
    ("DO $$ BEGIN RAISE too_many_connections; END $$", DatabaseUnavailable),
    ("DO $$ BEGIN RAISE read_only_sql_transaction; END $$", DatabaseUnavailable),
    ("DO $$ BEGIN RAISE disk_full; END $$", DatabaseUnavailable),
]


@pytest.mark.parametrize(("statement", "expected"), ERRORS)
def test_errors_are_ours_and_say_why(database: Database, statement: str, expected: type[PillarboxError]) -> None:
    """No psycopg error leaves this package, and the cause is chained."""
    with pytest.raises(expected) as caught:
        database.execute(statement)
    assert isinstance(caught.value.__cause__, psycopg.Error)
    assert database.execute("SELECT 1") == [(1,)]


CANARY = "kanari3nvogel"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{CANARY}@127.0.0.1:1/x",
        f"postgresql://u:{CANARY}@[::1:1/x",
        f"postgresql://u:{CANARY}@nowhere.invalid/{CANARY}",
        f"postgres//u:{CANARY}@h/x",
        f"host=127.0.0.1 port=1 password={CANARY} nonsense={CANARY}",
        f"postgresql://u:{CANARY}@127.0.0.1:{CANARY}/x",
    ],
)
def test_no_password_in_an_error(url: str) -> None:
    """Neither in ours nor in anything chained to it."""
    with pytest.raises((DatabaseUnavailable, ConfigError)) as caught:
        Database(url).execute("SELECT 1")
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_a_remote_server_must_prove_itself() -> None:
    """TLS is verified unless the host is this machine or an explicit word says no."""

    def sslmode(url: str) -> tuple[Any, Any]:
        settings = Database(url)._settings()
        return settings.get("sslmode"), settings.get("sslrootcert")

    assert sslmode("postgresql://db.example/x") == ("verify-full", "system")
    assert sslmode("postgresql://db.example/x?sslrootcert=/ca.pem") == ("verify-full", "/ca.pem")
    assert sslmode("postgresql://db.example/x?sslmode=require") == ("require", None)
    assert sslmode("postgresql://127.0.0.1,db.example/x") == ("verify-full", "system")
    for here in ("postgresql://localhost/x", "postgresql:///x?host=/run", "dbname=x", "postgresql://[::1]/x"):
        assert sslmode(here) == (None, None)


@pytest.mark.serial
def test_a_standby_is_refused(private_postgres: Callable[..., Postgres]) -> None:
    """Its snapshots have no list of running transactions; the error says what it is."""
    server = private_postgres()
    server.stop()
    (server.data / "standby.signal").touch()
    server.start_again()
    with pytest.raises(DatabaseUnavailable, match="standby"):
        Database(server.url).execute("SELECT 1")


@pytest.fixture
def pooled(pg_url: str, pgbouncer: PgBouncer) -> Iterator[PostgresHarness]:
    made = PostgresHarness(pg_url, relay_url=pgbouncer.through(pg_url), lanes=4)
    made.store_route("r", {})
    yield made
    made.close()


def test_a_pooler_is_noticed_and_the_read_keeps_its_plan(pooled: PostgresHarness) -> None:
    """PgBouncer takes no options: the settings go in front of the read, and nowhere else."""
    relay = Relay(pooled)
    assert relay.db.pooled
    relay.db._sql = {**relay.db._sql, "told": "SELECT current_setting('enable_seqscan'), $1::int"}
    assert relay.db.read("told", 1) == [("off", 1)]
    assert relay.db.run("told", 1) == [("on", 1)]
    relay.db._sql = {**relay.db._sql, "fails": "SELECT 1 / $1::int"}
    with pytest.raises(SchemaMismatch):
        relay.db.read("fails", 0)
    assert relay.db.read("told", 2) == [("off", 2)]


def test_a_relay_works_through_a_pooler(pooled: PostgresHarness) -> None:
    """Take, read, settle, take anew; each statement may be another session's."""
    relays = [Relay(pooled) for _ in range(3)]
    mine = {lane: (relay, change) for relay in relays for lane, change in relay.take(2).items()}
    assert set(mine) == {0, 1, 2, 3}
    pending = pooled.begin()
    for n in range(20):
        pending.add(f"{n}", key=f"k{n}")
    pending.commit()
    read = 0
    for lane, (relay, change) in mine.items():
        (page,) = relay.source.read("r", {lane: change.position}, 100)
        read += len(page.rows)
        assert relay.source.settle("r", [change._replace(position=page.after)]).keys() == {lane}
    assert read == 20
    for relay in relays:
        assert relay.leases.renew(relay.id, ["r"], 60)


def test_upkeep_refuses_a_pooler(pooled: PostgresHarness) -> None:
    """Its session lock and DETACH need a session; the error names the setting."""
    with pytest.raises(NotPermitted, match="maintenance_url"):
        PostgresUpkeep(pooled.database()).attach_ahead()


def test_a_crash_behind_a_pooler_is_noticed(private_postgres: Callable[..., Postgres], private_folder: Any) -> None:
    """The pooler reconnects to the new life of the server and nobody is told; the token is another."""
    server = private_postgres()
    pooler = PgBouncer.start(private_folder, admin_url=server.url)
    url = server.fresh_database()
    harness = PostgresHarness(url, relay_url=pooler.through(url), lanes=2)
    try:
        harness.store_route("r", {})
        relay = Relay(harness)
        mine = relay.take(2)
        server.kill()
        server.start_again()
        told: list[str] = []
        for _ in range(20):
            try:
                relay.source.read("r", {lane: change.position for lane, change in mine.items()}, 10)
            except DatabaseUnavailable:
                told.append("unavailable")
                time.sleep(0.1)
            except Exception as error:
                told.append(type(error).__name__)
                break
        assert told[-1] == "InDoubt"
        assert len(relay.leases.retake(relay.id, [])) == 2
    finally:
        harness.close()
        pooler.stop()
