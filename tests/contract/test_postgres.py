"""PostgreSQL passes the storage suites."""

from collections.abc import Iterator

import pytest

from pillarbox.testing.contracts.chores import ChoresContract
from pillarbox.testing.contracts.leases import LeasesContract
from pillarbox.testing.contracts.settle import SettleContract
from pillarbox.testing.contracts.source import SourceContract
from pillarbox.testing.contracts.upkeep import UpkeepContract
from tests.contract.postgres_harness import PostgresHarness


@pytest.fixture
def harness(quiet_url: str) -> Iterator[PostgresHarness]:
    made = PostgresHarness(quiet_url)
    yield made
    made.close()


class TestSource(SourceContract):
    pass


class TestSettle(SettleContract):
    pass


class TestLeases(LeasesContract):
    pass


class TestChores(ChoresContract):
    pass


class TestUpkeep(UpkeepContract):
    pass
