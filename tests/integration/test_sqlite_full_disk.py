"""A disk that is really full under an SQLite file and its WAL (FAULTS D14), where one of its own can be mounted."""

import errno
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from pillarbox.errors import DatabaseUnavailable
from pillarbox.ports import Changes, Held
from pillarbox.storage.sqlite.connection import Database
from pillarbox.storage.sqlite.leases import SqliteLeases
from pillarbox.storage.sqlite.source import SqliteSource
from tests.integration.sqlite_file import add, installed, plain


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system of one's own can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> Path:
    """Take what room there is."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError) as full:
        while file.write(b"x" * 4096):
            pass
    assert full.value.errno == errno.ENOSPC
    return filler


def test_a_full_disk_delays_and_harms_nothing(disk: Path) -> None:
    """With the disk full adding, settling and renewing fail and change nothing; with room again all go on."""
    path = disk / "shop.db"
    with closing(installed(path, "all")) as database, closing(plain(path)) as conn:
        leases, source, me = SqliteLeases(database), SqliteSource(database), uuid4()
        for _ in range(10):
            add(conn)
        leases.join(me, ["all"], 60.0)
        (lane,) = leases.take(me, "all", 1)
        (page,) = source.read("all", {0: lane.position}, 7)
        change = Changes(0, lane.term, page.after, added=[Held(0, 0, 0, "k", list(range(8, 90_000)), 0, "waiting")])
        filler = fill(disk)
        with pytest.raises(DatabaseUnavailable, match="Make room"):
            source.settle("all", [change])
        with pytest.raises(sqlite3.OperationalError, match="full"):
            add(conn, payload="x" * 500_000)
        assert source.read("all", {0: 0}, 100)[0].after == 10
        assert leases.load("all", [0]) == []

        filler.unlink()
        assert leases.renew(me, ["all"], 60.0)
        (again,) = leases.retake(me, [("all", 0)])
        assert again.position == lane.position
        assert source.settle("all", [change._replace(term=again.term)])[0].seqs
        add(conn)
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with closing(Database(path)) as reopened:
        assert SqliteSource(reopened).read("all", {0: page.after}, 100)[0].after == 11
