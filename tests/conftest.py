"""Services, seeds and time limits for every test. A missing service skips at home and fails in CI."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from devtools.servers import postgres as postgres_server
from devtools.servers import process, registry
from devtools.servers.pgbouncer import PgBouncer

# Fixtures that start a server: what uses them is no part of --fast.
SERVICES = {"postgres", "pg_url", "kafka", "pgbouncer", "private_postgres", "private_kafka"}

CI = os.environ.get("CI") == "true"
FULL = bool(os.environ.get("PILLARBOX_FULL"))
FAST = bool(os.environ.get("PILLARBOX_FAST"))
SEED = int(os.environ.get("PILLARBOX_SEED") or random.SystemRandom().randrange(10**9))
os.environ["PILLARBOX_SEED"] = str(SEED)  # xdist's workers draw from the same one


def pytest_report_header() -> str:
    return f"seed: {SEED} (PILLARBOX_SEED={SEED} draws the same)" + (", full" if FULL else "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if FAST:
        left_out = [
            item
            for item in items
            if item.get_closest_marker("slow") or SERVICES & set(getattr(item, "fixturenames", ()))
        ]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        if item.get_closest_marker("full") and not FULL:
            item.add_marker(pytest.mark.skip(reason="part of ./dev test --full"))
        if item.get_closest_marker("serial"):
            item.add_marker(pytest.mark.xdist_group("serial"))


def missing(service: str, why: Exception) -> NoReturn:
    if CI:
        pytest.fail(f"{service} is needed in CI: {why}", pytrace=False)
    pytest.skip(f"no {service}: {why}")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The session's seed mixed with the test's name: repeatable alone and in any order."""
    return random.Random(f"{SEED}:{request.node.nodeid}").randrange(2**32)


@pytest.fixture(scope="session")
def full() -> bool:
    """Is this `./dev test --full`: every round instead of the everyday share?"""
    return FULL


def _shared(variable: str, service: str) -> Iterator[dict[str, str]]:
    """Where `./dev test` started one for all, or else one of this process's own, until the session's end."""
    if variable in os.environ:
        yield dict(os.environ)
        return
    try:
        running = registry.start(service)
    except Exception as error:
        missing(service, error)
    yield dict(running.variables)
    running.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.SharedPostgres]:
    """The session's PostgreSQL: `.url` is the superuser's, `.fresh_database()` gives an empty one with its own owner."""
    for variables in _shared("PILLARBOX_TEST_POSTGRES_ADMIN_URL", "postgres"):
        yield postgres_server.SharedPostgres(variables["PILLARBOX_TEST_POSTGRES_ADMIN_URL"])


@pytest.fixture
def pg_url(postgres: postgres_server.SharedPostgres) -> Iterator[str]:
    """A new empty database, owned by a plain role, for this test alone."""
    url = postgres.fresh_database()
    yield url
    postgres_server.drop_database(postgres.url, url)


@pytest.fixture(scope="session")
def quiet_postgres() -> Iterator[postgres_server.Postgres]:
    """This worker's own: no other test's open transaction holds back what waits for all older ones to end."""
    try:
        running = postgres_server.Postgres.start()
    except Exception as error:
        missing("postgres", error)
    yield running
    running.close()


@pytest.fixture
def quiet_url(quiet_postgres: postgres_server.Postgres) -> Iterator[str]:
    """As `pg_url`, there."""
    url = quiet_postgres.fresh_database()
    yield url
    postgres_server.drop_database(quiet_postgres.url, url)


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """`host:port` of the session's real Kafka broker; topics are created by the test that needs them."""
    for variables in _shared("PILLARBOX_TEST_KAFKA_URL", "kafka"):
        yield variables["PILLARBOX_TEST_KAFKA_URL"].removeprefix("kafka://")


@pytest.fixture
def private_folder() -> Iterator[Path]:
    """A folder that a server's unprivileged user can reach (pytest's own is closed to others)."""
    folder = process.temporary_folder("test")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _private(service: str, folder: Path, start: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    running: list[Any] = []

    def begin(**wishes: Any) -> Any:
        place = folder / f"{service}{len(running)}"
        place.mkdir(mode=0o755)
        try:
            running.append(start(place, **wishes))
        except (RuntimeError, OSError) as error:
            missing(service, error)
        return running[-1]

    yield begin
    for server in reversed(running):
        server.stop()


@pytest.fixture
def private_postgres(private_folder: Path) -> Iterator[Callable[..., postgres_server.Postgres]]:
    """Starts instances this test may kill, freeze and restart: `private_postgres(version="16", settings={…})`."""
    yield from _private("postgres", private_folder, postgres_server.Postgres.start)


@pytest.fixture
def pgbouncer(postgres: postgres_server.SharedPostgres, private_folder: Path) -> Iterator[PgBouncer]:
    """A pooler of this test's own in transaction mode before the session's PostgreSQL: `pgbouncer.through(pg_url)`."""
    for begin in _private("pgbouncer", private_folder, PgBouncer.start):
        yield begin(admin_url=postgres.url)


@pytest.fixture
def private_kafka(private_folder: Path) -> Iterator[Callable[..., Any]]:
    """Starts brokers this test may kill, freeze and restart."""
    from devtools.servers.kafka import Kafka

    yield from _private("kafka", private_folder, Kafka.start)
