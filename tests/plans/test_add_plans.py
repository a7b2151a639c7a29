"""Adding costs the same whatever lies undelivered in the log (P12)."""

import psycopg

import pillarbox
from pillarbox import Outbox

BACKLOG = 50_000


def blocks_of_an_insert(conn: psycopg.Connection) -> int:
    """Pages of table, indexes and sequence that one message costs; the least of a few, for pages do fill up."""
    found = []
    for _ in range(5):
        ((told,),) = conn.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
            " INSERT INTO pillarbox.message (aggregate, key, type, payload) VALUES ('order', '17', 'created', '{}')"
        )
        plan = told[0]["Plan"]
        found.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return min(found)


def test_adding_reads_nothing_of_the_backlog(pg_url: str) -> None:
    """With no relay and 50,000 messages waiting an INSERT touches as many pages as in an empty log, but for the
    levels by which its indexes have grown."""
    with psycopg.connect(pg_url) as conn:
        pillarbox.migrate(conn)
        empty = blocks_of_an_insert(conn)
        messages = (
            {"aggregate": "order", "key": str(n), "type": "created", "payload": {"n": n}} for n in range(BACKLOG)
        )
        Outbox().add_many(conn, messages)
        assert blocks_of_an_insert(conn) <= empty + 2 * 3
