"""Each rule of the SQLite statements, broken, and the contract test that notices: a suite that passes a mutant is broken."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pillarbox.storage.sqlite.sql import SQL
from pillarbox.testing.contracts.chores import ChoresContract
from pillarbox.testing.contracts.leases import LeasesContract
from pillarbox.testing.contracts.settle import SettleContract
from pillarbox.testing.contracts.source import SourceContract
from pillarbox.testing.contracts.upkeep import UpkeepContract
from tests.contract.test_sqlite import SqliteHarness

MUTANTS: list[tuple[str, str, str, type, str]] = [
    ("read", "WHERE id > ?", "WHERE id >= ?", SourceContract, "test_any_history_is_read_exactly_once"),
    ("read", "WHERE id > ?", "WHERE id > ? + 1", SourceContract, "test_any_history_is_read_exactly_once"),
    ("read", "ORDER BY id", "ORDER BY id DESC", SourceContract, "test_a_key_is_read_in_commit_order"),
    ("move_cursor", "AND term = ?", "AND term <= ? + 99", SettleContract, "test_a_stale_term_changes_nothing"),
    ("move_cursor", "SET cursor = ?", "SET cursor = 0 * ?", SourceContract, "test_positions_outlive_their_process"),
    ("hold_done", " AND state <> 'skipped'", "", SettleContract, "test_skipped_survives_done"),
    ("hold_done", "route = ?", "route > '' || substr(?, 99)", SettleContract, "test_only_its_own_lane_is_touched"),
    ("hold_changed", "edition = ?", "edition >= ?", SettleContract, "test_a_row_an_operator_changed_is_left_alone"),
    ("hold_changed", "edition = edition + 1,", "", SettleContract, "test_changed_rows_are_written"),
    ("load", " OR ahead", "", SettleContract, "test_rows_written_ahead_are_loaded_in_any_state"),
    ("load", "'waiting', ", "", LeasesContract, "test_hold_rows_are_loaded_in_order"),
    ("load", "ORDER BY seq", "ORDER BY seq DESC", LeasesContract, "test_hold_rows_are_loaded_in_order"),
    ("renew", "WHERE id = ?3", "WHERE id > '' || substr(?3, 99)", LeasesContract, "test_only_the_dead_are_expelled"),
    ("expel", "alive_until <= (", "alive_until > (", LeasesContract, "test_only_the_dead_are_expelled"),
    ("any_expired", " OR alive_until > now + 150", "", LeasesContract, "test_a_lease_from_the_future_is_over"),
    ("take", "term = term + 1", "term = term", LeasesContract, "test_a_take_raises_the_term"),
    ("take", "(owner IS NULL OR owner NOT IN", "(1 OR owner NOT IN", LeasesContract, "test_a_live_lane_is_never_taken"),
    ("retake", "term = term + 1", "term = term", LeasesContract, "test_lanes_are_taken_anew"),
    ("retake", " AND owner = ?", " AND owner <> ?", LeasesContract, "test_a_lost_lane_does_not_come_back"),
    ("give_back", " AND term = ?", " AND term >= ?", LeasesContract, "test_a_lane_given_back_is_free"),
    ("give_back", "owner = ? AND", "length(?) AND", LeasesContract, "test_a_lane_given_back_is_free"),
    ("due", "ORDER BY due, id", "ORDER BY id", ChoresContract, "test_messages_are_moved_in_the_order_they_are_due"),
    ("due", "due <= (", "due <= 9000 + (", ChoresContract, "test_messages_are_moved_in_the_order_they_are_due"),
    ("due_gone", "WHERE id = ?", "WHERE id = -?", ChoresContract, "test_nothing_is_moved_before_it_is_due"),
    ("judged_up_to", "max(judged, ?)", "judged + 0 * ?", ChoresContract, "test_what_no_route_wants_is_buried"),
    ("passed", "min((SELECT min(cursor)", "max((SELECT min(cursor)", UpkeepContract, "test_nothing_goes_unjudged"),
    ("passed", "SELECT min(cursor)", "SELECT max(cursor)", UpkeepContract, "test_one_slow_route_holds_all"),
    ("keep", "h.state NOT IN ('skipped', 'resolved') AND", "h.state = 'retry' AND", UpkeepContract,
     "test_what_a_hold_row_needs_is_kept"),
    ("expire_hold", "changed_at <= ?", "changed_at + ?", UpkeepContract, "test_what_nobody_needs_any_more_expires"),
    ("expire_hold", "('skipped', 'resolved')", "('dead', 'skipped')", UpkeepContract, "test_what_nobody_needs_any_more_expires"),
    ("expire_kept", "id NOT IN", "1 OR id NOT IN", UpkeepContract, "test_what_nobody_needs_any_more_expires"),
]  # fmt: skip


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path / "shop.db")
    yield harness
    harness.close()


@pytest.mark.parametrize(("name", "old", "new", "contract", "test"), MUTANTS)
def test_a_broken_rule_is_noticed(
    harness: SqliteHarness, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str, contract: Any, test: str
) -> None:
    """The contract test passes on the real statement and fails on the broken one."""
    assert old in SQL[name]
    # It only saves a lock: what is free is decided by `take`.
    monkeypatch.setitem(SQL, "any_free", "SELECT 1 WHERE ? > ''")
    monkeypatch.setitem(SQL, name, SQL[name].replace(old, new, 1))
    with pytest.raises((AssertionError, ValueError, KeyError, IndexError)):
        getattr(contract(), test)(harness)
