"""The private servers the other tests stand on do what their fixtures say."""

from collections.abc import Callable

import psycopg
import pytest

from devtools.servers.pgbouncer import PgBouncer
from devtools.servers.postgres import Postgres


def test_a_fresh_database_is_owned_by_a_plain_role(pg_url: str) -> None:
    """What tests run with is never a superuser, and may create its own schema."""
    with psycopg.connect(pg_url) as conn:
        rights = (
            "SELECT rolsuper, rolcreaterole, rolcreatedb, rolreplication FROM pg_roles WHERE rolname = current_user"
        )
        assert conn.execute(rights).fetchone() == (False, False, False, False)
        conn.execute("CREATE SCHEMA mine")


def test_a_private_postgres_survives_kill_and_freeze(private_postgres: Callable[..., Postgres]) -> None:
    """Committed rows outlive a SIGKILL; a frozen instance answers nothing until it is thawed."""
    server = private_postgres()
    url = server.fresh_database()
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 1 AS n")
    server.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=2)
    server.start_again()
    server.freeze()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=2)
    server.thaw()
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT n FROM kept").fetchone() == (1,)


def test_pgbouncer_pools_by_transaction(pg_url: str, pgbouncer: PgBouncer) -> None:
    """Two clients that take turns share one backend."""
    url = pgbouncer.through(pg_url)
    with psycopg.connect(url, autocommit=True) as one, psycopg.connect(url, autocommit=True) as other:
        pids = {conn.execute("SELECT pg_backend_pid()").fetchone() for conn in (one, other)}
        assert len(pids) == 1


@pytest.mark.parametrize("version", ["16", "17", "18"])
def test_newer_versions_start(version: str, private_postgres: Callable[..., Postgres]) -> None:
    """The versions that Debian does not bring run beside the one it does."""
    with psycopg.connect(private_postgres(version=version).fresh_database()) as conn:
        assert str(conn.info.server_version).startswith(version)
