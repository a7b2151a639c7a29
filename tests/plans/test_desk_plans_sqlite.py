"""The desk's statements on SQLite go along an index, too."""

import re
import sqlite3
from pathlib import Path

import pytest

from pillarbox.storage.sqlite.migrate import migrate_file
from pillarbox.storage.sqlite.sql import SQL

BIG = ("message", "hold")


@pytest.mark.parametrize("name", sorted(name for name in SQL if name.startswith(("desk_", "act_"))))
def test_no_statement_scans_a_big_table(name: str, tmp_path: Path) -> None:
    """SQLite's planner searches log and hold rows by a key or an index; ranges begin at a cursor."""
    migrate_file(tmp_path / "shop.db")
    conn = sqlite3.connect(tmp_path / "shop.db")
    parameters = [None] * max([int(n) for n in re.findall(r"\?(\d+)", SQL[name])] or [SQL[name].count("?")])
    plan = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", parameters)]
    conn.close()
    aliases = dict(re.findall(r"pillarbox_(\w+) (?:AS )?(\w)\b", SQL[name]))
    names = {f"pillarbox_{table}" for table in BIG} | {aliases[table] for table in BIG if table in aliases}
    scans = [line for line in plan if (found := re.match(r"SCAN (\w+)", line)) and found[1] in names]
    assert scans == []
