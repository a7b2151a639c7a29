"""The hot statements stay on their indexes, whatever the statistics say and whatever was left open (DESIGN 2.2 rule 10)."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from devtools.servers.postgres import Postgres, drop_database
from pillarbox.ports import Changes, Held
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.cursor import Position
from pillarbox.storage.postgres.source import _settle, question
from tests.contract.postgres_harness import PostgresHarness

ROWS = 300_000
LIMIT = 50
LANES = range(16)
LOAD = (
    "INSERT INTO pillarbox.message (key, aggregate, type, payload)"
    " SELECT 'k' || g % 5000, 'order', 'created', convert_to(repeat('x', 200), 'UTF8') FROM generate_series(1, {}) g"
)


class Plan:
    """What an EXPLAIN (ANALYZE, BUFFERS) tells."""

    def __init__(self, database: Database, statement: str, parameters: tuple[object, ...]) -> None:
        values = sql.SQL(", ").join(map(sql.Literal, map(str, parameters))).as_string()
        database.execute(f"PREPARE asked AS {database._sql[statement]}")
        ((told,),) = database.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked ({values})")
        (self.told,) = told if isinstance(told, list) else json.loads(told)
        database.execute("DEALLOCATE asked")
        root = self.told["Plan"]
        self.buffers: int = root["Shared Hit Blocks"] + root["Shared Read Blocks"]
        self.rows: int = root["Actual Rows"]
        self.milliseconds: float = self.told["Execution Time"]

    def nodes(self, node: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        node = node or self.told["Plan"]
        yield node
        for child in node.get("Plans", ()):
            yield from self.nodes(child)

    def scans(self) -> list[str]:
        """Scans of the log that are not on an index."""
        return [
            f"{node['Node Type']} of {node['Relation Name']}"
            for node in self.nodes()
            if node.get("Relation Name", "").startswith("message_") and node["Relation Name"] != "message_id_seq"
            if node["Node Type"] not in ("Index Scan", "Index Only Scan") and node.get("Actual Loops", 1)
        ]

    def touched(self) -> set[str]:
        """Segments that were looked into at all."""
        return {
            node["Relation Name"]
            for node in self.nodes()
            if node.get("Relation Name", "").startswith("message_") and node["Node Type"].startswith("Index")
            if node.get("Actual Loops", 0)
        }


@pytest.fixture(scope="module", params=["no", "stale", "fresh"])
def stage(quiet_postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[PostgresHarness]:
    """A backlog, and what the planner believes of it: nothing, ten rows, or the truth."""
    url = quiet_postgres.fresh_database()
    harness = PostgresHarness(url)
    harness.store_route("r", {})
    for table in ("message_0", "hold"):
        harness.conn.execute(f"ALTER TABLE pillarbox.{table} SET (autovacuum_enabled = off)")
    harness.conn.execute("INSERT INTO pillarbox.boot DEFAULT VALUES")
    load(harness, 10)
    if request.param == "stale":
        harness.conn.execute("ANALYZE pillarbox.message, pillarbox.hold")
    load(harness, ROWS)
    harness.conn.execute(
        "INSERT INTO pillarbox.hold (route, lane, key, ids, state)"
        " SELECT 'r', g % 16, 'k' || g, ARRAY[g], 'dead' FROM generate_series(1, 100000) g"
    )
    if request.param == "fresh":
        harness.conn.execute("ANALYZE pillarbox.message, pillarbox.hold")
    yield harness
    harness.close()
    drop_database(quiet_postgres.url, url)


def load(harness: PostgresHarness, rows: int) -> None:
    harness.conn.execute(LOAD.format(rows))


def snapshot(stage: PostgresHarness) -> str:
    row = stage.conn.execute("SELECT pg_current_snapshot()::text").fetchone()
    assert row is not None
    return str(row[0])


def read(stage: PostgresHarness, positions: dict[int, Position], late: int = 1000) -> Plan:
    return Plan(stage.database(), "read", (*question(positions), LIMIT, late))


def everywhere(stage: PostgresHarness, last: int, seen: str | None = None) -> dict[int, Position]:
    return dict.fromkeys(LANES, Position(last, seen or snapshot(stage)))


def test_a_page_costs_what_it_holds(stage: PostgresHarness) -> None:
    """At the beginning, in the middle and near the end of a backlog."""
    for last in (0, ROWS // 2, ROWS - 100_000):
        plan = read(stage, everywhere(stage, last))
        assert plan.scans() == []
        assert plan.rows == 1 + LIMIT * len(LANES)
        assert plan.buffers < 3 * plan.rows + 200


def test_an_idle_poll_costs_next_to_nothing(stage: PostgresHarness) -> None:
    """A few index pages a lane."""
    drawn = stage.conn.execute("SELECT last_value FROM pillarbox.message_id_seq").fetchone()
    plan = read(stage, everywhere(stage, drawn[0] if drawn else 0))
    assert plan.scans() == []
    assert plan.rows == 1
    assert plan.buffers < 8 * len(LANES) + 40


def test_what_was_committed_beside_an_open_transaction_is_not_walked_again(stage: PostgresHarness) -> None:
    """200,000 rows committed since an open transaction began: pages cost what they hold, late rows are found by index."""
    with psycopg.connect(stage.url) as slow:
        slow.execute(LOAD.format(20))
        seen = snapshot(stage)
        stage.conn.execute(LOAD.format(200_000))
        drawn = stage.conn.execute("SELECT last_value FROM pillarbox.message_id_seq").fetchone()
        assert drawn is not None
        here = snapshot(stage)
        idle = read(stage, everywhere(stage, drawn[0], here))
        assert (idle.rows, idle.scans()) == (1, [])
        assert idle.buffers < 8 * len(LANES) + 40
        slow.commit()
        late = read(stage, everywhere(stage, drawn[0], here))
        assert (late.rows, late.scans()) == (21, [])
        assert late.buffers < 400
        # And the worst there is: all of them came late. One page of them, by index.
        full = read(stage, everywhere(stage, drawn[0], seen))
        assert (full.rows, full.scans()) == (1001, [])


def test_rows_that_are_not_committed_yet_are_passed(stage: PostgresHarness) -> None:
    """100,000 uncommitted rows cost an idle poll nothing: `last` is beyond them (rule 4)."""
    with psycopg.connect(stage.url) as slow:
        slow.execute(LOAD.format(100_000))
        drawn = slow.execute("SELECT last_value FROM pillarbox.message_id_seq").fetchone()
        assert drawn is not None
        beyond = read(stage, everywhere(stage, drawn[0]))
        assert beyond.buffers < 8 * len(LANES) + 40
        slow.rollback()


def test_settled_segments_are_not_looked_into(stage: PostgresHarness) -> None:
    """`lo` and `last` prune old ranges: an idle poll after a roll touches the open one and those ahead."""
    stage.conn.execute("SELECT setval('pillarbox.message_id_seq', 10000000001, false)")
    stage.conn.execute("UPDATE pillarbox.segment SET closed_by = pg_current_xact_id(), state = 'closed' WHERE n = 0")
    try:
        assert "message_0" not in read(stage, everywhere(stage, 10_000_000_000)).touched()
    finally:
        stage.conn.execute("UPDATE pillarbox.segment SET closed_by = NULL, state = 'open' WHERE n = 0")


def test_fetch_finds_by_index(stage: PostgresHarness) -> None:
    """A hundred ids cost a hundred times a probe in each lane."""
    plan = Plan(stage.database(), "fetch", ("{" + ",".join(str(n * 1000) for n in range(1, 101)) + "}",))
    assert plan.rows == 100
    assert plan.scans() == []
    assert plan.buffers < 100 * len(LANES) * 5


def test_settle_and_take_cost_what_they_change(stage: PostgresHarness) -> None:
    """With a hundred thousand hold rows beside them."""
    token = stage.conn.execute("SELECT token::text FROM pillarbox.boot").fetchone()

    def held(lane: int, seq: int) -> list[Held]:
        return [Held(lane, seq, 1, "k", [seq], 0, "dead")]

    changes = [
        Changes(lane, 0, Position(), held(lane, lane + 16), held(lane, lane + 32), held(lane, 0)) for lane in LANES
    ]
    settle = Plan(stage.database(), "settle", tuple(_settle("r", changes, token[0] if token else "")))
    assert settle.rows == len(LANES) * 3
    assert settle.buffers < 3000
    assert settle.milliseconds < 100
    load = Plan(stage.database(), "load", ("r", "{0,1,2,3}"))
    assert load.buffers < 200
    take = Plan(stage.database(), "take", (uuid4(), "r", 4, "production"))
    assert take.buffers < 500
