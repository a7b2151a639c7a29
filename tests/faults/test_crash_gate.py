"""Relays killed at every named place, under writers that do whatever a database allows: nothing lost, nothing invented,
no key out of order, no copy that a crash does not explain."""

import contextlib
import random
import signal
import sqlite3
from pathlib import Path

import pytest

from pillarbox.brokers.filelock import FileLock
from pillarbox.clock import SystemClock
from pillarbox.config import load
from pillarbox.testing.crash import CrashGate, House, Report
from pillarbox.testing.process import RelayProcess
from pillarbox.testing.readback import FileReadback
from pillarbox.testing.writers import Manners, furnish
from pillarbox.wiring import storage_of

clock = SystemClock()
pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]

ENGINE = [
    "take.before", "take.after_claim", "take.after_load", "read.after", "send.before", "send.after", "answer.after",
    "settle.before", "settle.after", "hangup.before", "hangup.after", "renew.before", "renew.after", "expel.after",
    "giveback.before", "giveback.after",
]  # fmt: skip
ONCE = "route.stored"  # only the first relay of an installation comes there
SQLITE = [*ENGINE, "settle.sent", "prune.kept", "prune.dropped", "file.before_sync", "file.torn", "file.rotated"]


def points(of: list[str], count: int, seed: int) -> list[str]:
    """Each at least once, in any order; the rest drawn."""
    draw = random.Random(seed)
    drawn = [*of, *draw.choices(of, k=max(0, count - len(of) - 1))]
    draw.shuffle(drawn)
    return [ONCE, *drawn]


def terminate(relay: RelayProcess) -> None:
    """Ask it to stop once it has lanes: it gives them back."""
    if "lanes_taken" in relay.said():
        relay.signal(signal.SIGTERM)


def passed(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{report}")
    assert report.verdict.breaches == {}
    assert report.never_fired == []


SQLITE_CONFIG = """
[database]
url = "{url}"
[relay]
listen = "off"
lease = 0.5
[log]
retention = "1 hour"
[sinks.out]
kind = "file"
path = "{out}"
rotate_bytes = 200_000
[routes.orders]
sink = "out"
match = {{ aggregate = ["order"] }}
"""


@pytest.fixture
def sqlite_house(tmp_path: Path) -> House:
    """SQLite to a file in a folder that can be hidden for a moment."""
    database, out = tmp_path / "gate.db", tmp_path / "out" / "events.jsonl"
    out.parent.mkdir()
    url = f"sqlite:///{database}"
    config = tmp_path / "pillarbox.toml"
    config.write_text(SQLITE_CONFIG.format(url=url, out=out))
    storage_of(load(config)).migrate(lanes=1, dry_run=False)
    furnish(url)

    def hide_the_folder(_relay: RelayProcess) -> None:
        hidden = out.parent.rename(tmp_path / "hidden")
        clock.sleep(0.1)
        hidden.rename(out.parent)

    def let_it_age(_relay: RelayProcess) -> None:
        """Half of what there is seems to be two hours old."""
        with contextlib.closing(sqlite3.connect(database, timeout=30)) as conn:
            conn.execute("UPDATE pillarbox_message SET created_at = created_at - 7200 WHERE id % 2 AND id < "
                         "(SELECT max(id) FROM pillarbox_message)")  # fmt: skip
            conn.commit()

    def slow_disk(draw: random.Random) -> None:
        """Somebody else has the file for longer and longer moments."""
        with contextlib.suppress(OSError):  # the folder may be hidden just now
            lock = FileLock(out.with_name(f"{out.name}.lock"))
            with contextlib.suppress(TimeoutError), lock.held(5.0):
                clock.sleep(draw.uniform(0.02, 0.4))
            lock.close()

    stirs = {"hangup": hide_the_folder, "giveback": terminate, "prune": let_it_age}
    manners = Manners(pause=0.03)
    return House(url, url, config, tmp_path, FileReadback(out), stirs, slow_disk, manners, writers=2)


def test_sqlite_to_a_file(sqlite_house: House, seed: int, full: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Every place of the engine, the file sink and retention, and an exact allowance for duplicates."""
    chosen = points(SQLITE, 34 if full else 0, seed)
    passed(CrashGate(sqlite_house, seed).run(chosen), capsys)
