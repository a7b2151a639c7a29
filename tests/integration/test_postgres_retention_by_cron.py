"""Retention where no relay lives for long: `run --until-idle` and `upkeep` from cron are all there is."""

import psycopg
import pytest

from pillarbox import Config, Outbox, Relay
from pillarbox.wiring import keep, storage_of

pytestmark = pytest.mark.slow


def shop_of(url: str) -> Config:
    config = Config.model_validate(
        {
            "database": {"url": url},
            "log": {"retention": "1h", "period": "hour", "period_rows": 1000},
            "sinks": {"out": {"kind": "null"}},
            "routes": {"all": {"sink": "out"}},
        }
    )
    storage_of(config).migrate(lanes=16, dry_run=False)
    return config


def segments(conn: psycopg.Connection) -> list[int]:
    return [n for (n,) in conn.execute("SELECT n FROM pillarbox.segment WHERE state <> 'ahead' ORDER BY n")]


def test_segments_go_though_no_relay_lives_for_a_minute(pg_url: str) -> None:
    """Lanes whose keys are silent say how far they have looked when they are given back, so that nothing stays."""
    config = shop_of(pg_url)
    with psycopg.connect(pg_url, autocommit=True) as conn:
        for _ in range(3):
            with conn.transaction():
                Outbox().add_many(conn, [{"aggregate": "a", "type": "t", "key": "one", "payload": b""}] * 1001)
            assert Relay(config).run_until_idle() == 1001
            conn.execute("UPDATE pillarbox.segment SET closed_at = closed_at - interval '2 hours'")
        for _ in range(2):  # what the chore for unrouted messages has looked at is final one run later
            Relay(config).run_until_idle()
        upkeep = storage_of(config).upkeep()
        keep(upkeep, config.log)
        upkeep.close()
        assert segments(conn) == [3]
