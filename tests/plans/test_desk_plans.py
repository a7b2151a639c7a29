"""The desk's statements stay on their indexes, whatever lies in the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pillarbox.storage.postgres.connection import PLAN
from pillarbox.storage.postgres.desk import PostgresDesk
from pillarbox.storage.sql import load
from tests.integration.desk_stage import Stage

SQL = load("pillarbox.storage.postgres.sql", '"pillarbox"')
BIG = ("message_0", "hold")
ROWS = 300_000
OPTIONS = " ".join(f"-c {name}={value}" for name, value in PLAN.items())  # as the desk connects


@pytest.fixture
def stage(pg_url: str) -> Iterator[Stage]:
    """300,000 messages unread, and as many hold rows, half of them dead."""
    stage = Stage(pg_url, lanes=16)
    stage.ask(
        "INSERT INTO pillarbox.message (key, aggregate, type, payload) SELECT (g % 5000)::text, 'a', 't', ''"
        f" FROM generate_series(1, {ROWS}) g"
    )
    stage.ask(
        "INSERT INTO pillarbox.hold (route, lane, ids, key, state, error) SELECT 'all', lane, ARRAY[id], key,"
        " CASE WHEN id %% 2 = 0 THEN 'dead' ELSE 'retry' END, 'boom' FROM pillarbox.message".replace("%%", "%")
    )
    stage.ask("ANALYZE")
    yield stage
    stage.close()


def scans(plan: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Every node that reads a table: (kind, table, rows it really yielded)."""
    if "Relation Name" in plan:
        yield plan["Node Type"], plan["Relation Name"], plan["Actual Rows"] * plan["Actual Loops"]
    for part in plan.get("Plans", []):
        yield from scans(part)


def explained(stage: Stage, statement: str, *parameters: object) -> dict[str, Any]:
    with psycopg.connect(stage.url, options=OPTIONS) as c:
        text = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {SQL[statement]}"
        row = psycopg.RawCursor(c).execute(text.encode(), parameters).fetchone()
        assert row is not None
        plan: dict[str, Any] = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]
        return plan


def judged(stage: Stage, statement: str, *parameters: object, most: int) -> None:
    plan = explained(stage, statement, *parameters)
    found = [scan for scan in scans(plan["Plan"]) if scan[1] in BIG]
    assert found, "the statement reads no big table: this test proves nothing"
    assert [scan for scan in found if "Seq" in scan[0]] == []
    assert sum(scan[2] for scan in found) <= most, found
    # An index that is walked from end to end yields few rows, too: what it read gives it away.
    blocks = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    assert blocks <= 400 + 8 * most, (blocks, found)


@pytest.mark.slow
def test_no_question_walks_a_big_table(stage: Stage) -> None:
    """With 300,000 unread messages and hold rows each statement reads a bounded number of rows, by index."""
    ids, lanes, keys = [1000], [stage.lane_of(1000)], ["1000"]
    message_id = stage.desk.find(["1000"])[0].message_id
    judged(stage, "desk_lanes", most=16 * 1001)
    judged(stage, "desk_segments", 16, most=16)
    judged(stage, "desk_counts", most=40_000)
    judged(stage, "desk_troubles", most=30_000 + 60)
    judged(stage, "desk_find", [message_id], [1000], most=4)
    judged(stage, "desk_standings", ids, lanes, most=1001)
    judged(stage, "desk_lines_of", ids, lanes, keys, most=200)
    judged(stage, "desk_heads", lanes, keys, most=200)
    judged(stage, "desk_held_of_key", "1000", 50, most=200)
    judged(stage, "desk_of_key", "1000", None, 50, most=100_000)
    judged(stage, "desk_holds", ["dead"], 0, *[None] * 6, 100, most=200)
    judged(stage, "desk_holds", ["retry", "blocked"], 0, "all", "a", None, None, "boom", None, 100, most=400)
    stage.settle(last=1000)
    stage.ask("UPDATE pillarbox.lane SET cursor = jsonb_set(cursor::jsonb, '{seen}', '\"700:700:\"')::json")
    judged(stage, "desk_late", most=2100)
    stage.settle()
    judged(stage, "desk_moved", ["all"] * 16, list(range(16)), [0] * 16, most=ROWS)
    judged(stage, "desk_late", most=10)


@pytest.mark.slow
def test_a_look_at_everything_is_quick(stage: Stage) -> None:
    """status answers over 300,000 unread and 300,000 held messages within the patience of a person."""
    assert sum(line.pending for line in PostgresDesk.overview(stage.desk).lanes) > ROWS * 0.9
