"""Headers are JSON to PostgreSQL, and a bare INSERT may write any."""

from typing import Any

import psycopg

from pillarbox import Config, Outbox, Relay
from pillarbox.wiring import storage_of

# PostgreSQL takes these as `json` and cannot read them: a function that looks inside raises.
UNREADABLE = ['{"city": "\\ud800"}', '{"city": "a\\u0000b"}']
OTHERS = ['["city"]', '"city"', "5", "null", '{"city": null}', '{"city": ["Rome"]}']


def test_what_no_function_can_read_stops_nobody(pg_url: str) -> None:
    """A read takes headers as they are; only their own messages are set aside, whatever the routes ask for."""
    got: list[Any] = []
    config = Config.model_validate(
        {
            "database": {"url": pg_url},
            "relay": {"attempts": 1},
            "sinks": {"out": {"kind": "python", "callable": lambda message: got.append(message.key)}},
            "routes": {"all": {"sink": "out"}, "some": {"sink": "out", "match": {"header": {"city": ["R*"]}}}},
        }
    )
    storage_of(config).migrate(lanes=2, dry_run=False)
    with psycopg.connect(pg_url) as conn:
        for headers in (*UNREADABLE, *OTHERS):
            conn.execute(
                "INSERT INTO pillarbox.message (aggregate, type, payload, key, headers) "
                "VALUES ('order', 'order.created', '', 'hostile', %s::json)",
                [headers],
            )
        Outbox().add(conn, aggregate="order", key="good", type="order.created", payload={}, headers={"city": "Rome"})
    Relay(config).run_until_idle()
    assert got.count("good") == 2
    with psycopg.connect(pg_url) as conn:
        held = conn.execute("SELECT DISTINCT state FROM pillarbox.hold").fetchall()
    assert held == [("dead",)]
    desk = storage_of(config).desk()
    assert len(desk.find([str(n) for n in range(1, 10)])) == 9
    desk.close()
