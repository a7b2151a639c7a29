"""Relays killed at every named place, under writers that do whatever a database allows: nothing lost, nothing invented,
no key out of order, no copy that a crash does not explain."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.servers.kafka import Kafka
from devtools.servers.postgres import SharedPostgres
from pillarbox.crashpoints import POINTS
from pillarbox.testing.crash import CrashGate, Report
from tests.faults.houses import postgres_house, sqlite_house

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]

ENGINE = [
    "take.before", "take.after_claim", "take.after_load", "read.after", "send.before", "send.after", "answer.after",
    "settle.before", "settle.after", "hangup.before", "hangup.after", "renew.before", "renew.after", "expel.after",
    "giveback.before", "giveback.after",
]  # fmt: skip
ONCE = "route.stored"  # only the first relay of an installation comes there
SQLITE = [*ENGINE, "settle.sent", "prune.kept", "prune.dropped", "file.before_sync", "file.torn", "file.rotated"]
POSTGRES = [
    *ENGINE, "scheduled.before", "scheduled.after", "unrouted.after", "recover.before", "recover.after", "bury.before", "bury.after", "roll.after_setval", "roll.after",
    "attach.after_create", "attach.after_attach", "prune.marked", "prune.kept", "prune.detached", "prune.dropped",
]  # fmt: skip


def points(of: list[str], count: int, seed: int) -> list[str]:
    """Each at least once, in any order; the rest drawn."""
    draw = random.Random(seed)
    drawn = [*of, *draw.choices(of, k=max(0, count - len(of) - 1))]
    draw.shuffle(drawn)
    return [ONCE, *drawn]


def passed(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{report}")
    assert report.verdict.breaches == {}
    assert report.never_fired == []


def test_sqlite_to_a_file(tmp_path: Path, seed: int, full: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Every place of the engine, the file sink and retention; what may come twice is known exactly."""
    chosen = points(SQLITE, 40 if full else 0, seed)
    passed(CrashGate(sqlite_house(tmp_path), seed).run(chosen), capsys)


def test_postgres_to_kafka(
    tmp_path: Path,
    postgres: SharedPostgres,
    pg_url: str,
    private_kafka: Callable[..., Kafka],
    seed: int,
    full: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every place of the engine, the chores and the segments, with a relay and writers that have few rights."""
    chosen = points(POSTGRES, 64 if full else 0, seed)
    with postgres_house(tmp_path, postgres.url, pg_url, private_kafka()) as house:
        passed(CrashGate(house, seed).run(chosen), capsys)


def test_no_named_place_is_left_out() -> None:
    """A crash point that is added must be met by one of the two gates."""
    assert set(POINTS) == {ONCE, *SQLITE, *POSTGRES}
