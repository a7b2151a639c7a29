"""SQLite under pressure: hot writers, two relays, kills in the middle of a write, a full disk, damage (FAULTS D14)."""

import random
import signal
import sqlite3
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from uuid import UUID, uuid4

import pytest

from pillarbox.errors import DatabaseUnavailable, NotInstalled, NotPermitted, SchemaMismatch
from pillarbox.ports import Changes, Held
from pillarbox.storage.sqlite.chores import SqliteChores
from pillarbox.storage.sqlite.connection import Database
from pillarbox.storage.sqlite.leases import SqliteLeases
from pillarbox.storage.sqlite.source import SqliteSource
from pillarbox.storage.sqlite.upkeep import SqliteUpkeep
from tests.integration.sqlite_file import Processes, add, installed, plain

PAGE = 100
LEASE = 5.0

WRITER = """
    import sqlite3, sys, time
    conn = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    print("begun", flush=True)
    count, until = 0, time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        conn.execute("BEGIN IMMEDIATE")
        for _ in range(20):
            count += 1
            conn.execute("INSERT INTO pillarbox_message (aggregate, key, type, payload) VALUES ('o', 'k', 't', ?)",
                         (f"{sys.argv[3]} {count}",))
        conn.execute("COMMIT")
        time.sleep(float(sys.argv[4]))
    print(count)
"""

# Reads, settles and writes down what it has settled, in this order, until it is killed.
RELAY = """
    import os, sys, uuid
    from pathlib import Path
    from pillarbox.ports import Changes
    from pillarbox.storage.sqlite.connection import Database
    from pillarbox.storage.sqlite.leases import SqliteLeases
    from pillarbox.storage.sqlite.source import SqliteSource

    database, me = Database(Path(sys.argv[1]), patience=30.0), uuid.UUID(int=os.getpid())
    source, leases = SqliteSource(database), SqliteLeases(database)
    leases.join(me, ["all"], 60.0)
    while not (taken := leases.take(me, "all", 1)):
        leases.expel()
    (lane,) = taken
    position = lane.position
    while True:
        (page,) = source.read("all", {0: position}, int(sys.argv[2]))
        if page.rows:
            print(*(row[0] for row in page.rows), sep="\\n", flush=True)
            assert source.settle("all", [Changes(0, lane.term, page.after)])
            position = page.after
        source.wait(0.01)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with closing(Processes(tmp_path)) as processes:
        yield processes


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with closing(installed(path, "all")) as database:
        yield database


def test_a_hot_writer_does_not_starve_the_relay(path: Path, database: Database, processes: Processes) -> None:
    """Beside a writer that never pauses every settle gets its turn within the lease, most at once."""
    leases, source, me = SqliteLeases(database), SqliteSource(database), uuid4()
    leases.join(me, ["all"], 60.0)
    (lane,) = leases.take(me, "all", 1)
    position, waits = lane.position, []
    writers = [processes.start(WRITER, str(path), "3", name, "0") for name in "ab"]
    for writer in writers:
        wait_for(lambda writer=writer: processes.lines(writer) == ["begun"])
    while any(writer.poll() is None for writer in writers):
        (page,) = source.read("all", {0: position}, 1000)
        began = time.monotonic()
        source.settle("all", [Changes(0, lane.term, page.after)])
        waits.append(time.monotonic() - began)
        position = page.after
        time.sleep(0.02)
    added = sum(int(processes.lines(writer)[-1]) for writer in writers)
    (page,) = source.read("all", {0: position}, added)
    assert page.after == added
    assert statistics.median(waits) < LEASE / 10
    assert max(waits) < LEASE


def test_two_relays_share_one_file(path: Path, database: Database, processes: Processes) -> None:
    """Of two relays one owns the lane; when it is killed the other takes it and goes on from the cursor."""
    relays = {relay.pid: relay for relay in (processes.start(RELAY, str(path), "7") for _ in range(2))}
    with closing(plain(path)) as conn:
        for _ in range(50):
            add(conn)
        wait_for(lambda: cursor(conn) == 50)
        assert terms(conn) == [1]
        owner, other = sorted(relays.values(), key=lambda relay: relay.pid != owner_of_lane(conn))
        owner.kill()
        # Its lease would run for another minute.
        conn.execute("UPDATE pillarbox_relay SET alive_until = 0 WHERE id IN (SELECT owner FROM pillarbox_lane)")
        for _ in range(50):
            add(conn)
        wait_for(lambda: cursor(conn) == 100)
        assert terms(conn) == [2]
        assert owner_of_lane(conn) == other.pid
    other.kill()
    other.wait()
    assert [int(line) for line in processes.lines(owner)] == list(range(1, 51))
    assert [int(line) for line in processes.lines(other)] == list(range(51, 101))


@pytest.mark.parametrize("when", [3, 9])
def test_a_kill_inside_a_settle_leaves_it_undone(
    path: Path, database: Database, when: int, processes: Processes
) -> None:
    """Killed between the statements and their COMMIT, the cursor stands where it stood, and the file is sound."""
    with closing(plain(path)) as conn:
        for _ in range(100):
            add(conn)
        relay = processes.start(RELAY, str(path), "7", PILLARBOX_CRASH=f"settle.sent:{when}")
        assert relay.wait(30) == -signal.SIGKILL
        seen = processes.lines(relay)
        assert cursor(conn) == (when - 1) * 7
        assert len(seen) == when * 7
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_kills_at_any_time_lose_nothing(path: Path, database: Database, seed: int, processes: Processes) -> None:
    """Relays and their writer killed at random: every message is read, and again only what was not settled."""
    chance = random.Random(seed)
    writer = processes.start(WRITER, str(path), "600", "w", "0.01")
    seen: list[str] = []
    with closing(plain(path)) as conn:
        for _ in range(8):
            seen += processes.lines(killed_in_time(database, processes, chance.uniform(0.0, 0.2)))
        writer.kill()
        writer.wait()
        added = len(ids(conn, "message"))
        forget_relays(database)
        relay = processes.start(RELAY, str(path), f"{PAGE}")
        wait_for(lambda: cursor(conn) == added)
        relay.kill()
        relay.wait()
        seen += processes.lines(relay)
    counts = Counter(seen)
    assert counts.keys() == {f"{n}" for n in range(1, added + 1)}
    assert sum(counts.values()) - added <= 8 * PAGE


def test_a_kill_inside_a_prune_keeps_what_is_held(path: Path, database: Database, processes: Processes) -> None:
    """Killed between keeping and deleting, nothing has happened; the next prune does both."""
    with closing(plain(path)) as conn:
        for _ in range(3):
            add(conn)
        conn.execute("UPDATE pillarbox_message SET created_at = 0")
        conn.execute("UPDATE pillarbox_lane SET cursor = 3")
        conn.execute("UPDATE pillarbox_chore SET judged = 3")
        conn.execute("INSERT INTO pillarbox_hold (route, lane, ids, state) VALUES ('all', 0, '[2]', 'retry')")
        code = """
            import sys
            from pathlib import Path
            from pillarbox.storage.sqlite.connection import Database
            from pillarbox.storage.sqlite.upkeep import SqliteUpkeep
            SqliteUpkeep(Database(Path(sys.argv[1]))).prune(60.0)
        """
        assert processes.start(code, str(path), PILLARBOX_CRASH="prune.kept").wait(30) == -signal.SIGKILL
        assert ids(conn, "message") == [1, 2, 3]
        assert ids(conn, "kept") == []
        assert processes.start(code, str(path)).wait(30) == 0
        assert ids(conn, "message") == []
        assert ids(conn, "kept") == [2]


def test_upkeep_leaves_room_for_writers(path: Path, database: Database, processes: Processes) -> None:
    """While a large backlog is pruned a writer's transactions wait for at most a few batches."""
    with closing(plain(path)) as conn:
        conn.execute("BEGIN")
        for _ in range(20_000):
            add(conn)
        conn.execute("UPDATE pillarbox_message SET created_at = 0")
        conn.execute("UPDATE pillarbox_lane SET cursor = 20000")
        conn.execute("UPDATE pillarbox_chore SET judged = 20000")
        conn.execute("COMMIT")
        code = """
            import sys
            from pathlib import Path
            from pillarbox.storage.sqlite.connection import Database
            from pillarbox.storage.sqlite.upkeep import SqliteUpkeep
            print(SqliteUpkeep(Database(Path(sys.argv[1]), patience=30.0)).prune(60.0))
        """
        pruning, waits = processes.start(code, str(path)), []
        while pruning.poll() is None:
            began = time.monotonic()
            add(conn)
            waits.append(time.monotonic() - began)
        assert processes.lines(pruning) == ["['1-20000']"]
        assert len(waits) > 10
        assert max(waits) < LEASE
        assert SqliteSource(database).read("all", {0: 20_000}, 1)[0].rows


def test_a_lock_that_never_ends_is_a_typed_error(path: Path, database: Database) -> None:
    """When somebody keeps the write lock a settle ends with cause and cure, and works again afterwards."""
    leases, source, me = SqliteLeases(database), SqliteSource(database), uuid4()
    with closing(plain(path)) as conn:
        conn.execute("BEGIN IMMEDIATE")
        hurried = Database(path, patience=0.05)
        with pytest.raises(DatabaseUnavailable, match=r"write lock.*short"):
            SqliteLeases(hurried).join(me, ["all"], 5.0)
        assert source.read("all", {0: 0}, 10)[0].rows == []
        conn.execute("ROLLBACK")
    leases.join(me, ["all"], 5.0)
    assert len(leases.take(me, "all", 1)) == 1


def test_a_full_disk_is_unavailable_and_heals(path: Path, database: Database) -> None:
    """With no room for the write a settle changes nothing; with room again the same settle succeeds."""
    leases, source, me = SqliteLeases(database), SqliteSource(database), uuid4()
    leases.join(me, ["all"], 60.0)
    (lane,) = leases.take(me, "all", 1)
    run = Held(0, 0, 0, "k", list(range(1, 200_000)), 0, "waiting")
    change = Changes(0, lane.term, 5, added=[run])
    # The module's connection is asked for here, because a limit on pages belongs to one connection.
    with database.reading() as conn:
        conn.execute("SELECT 1")
    conn.execute(f"PRAGMA max_page_count = {conn.execute('PRAGMA page_count').fetchone()[0] + 1}")
    with pytest.raises(DatabaseUnavailable, match="Make room"):
        source.settle("all", [change])
    assert leases.load("all", [0]) == []
    assert leases.retake(me, [("all", 0)])[0].position == 0
    assert source.settle("all", [change._replace(term=lane.term + 1)])[0].seqs


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    """A mistyped path is `NotInstalled` and leaves no empty file behind."""
    missing = tmp_path / "shpo.db"
    with pytest.raises(NotInstalled, match=r"does not exist.*migrate up"):
        SqliteLeases(Database(missing)).expel()
    assert not missing.exists()


def test_a_file_without_tables_says_what_to_do(path: Path) -> None:
    """A database without our tables is `NotInstalled`."""
    plain(path).execute("CREATE TABLE orders (id)").connection.close()
    with pytest.raises(NotInstalled, match="migrate up"):
        SqliteChores(Database(path)).move_due(1)


def test_a_damaged_file_is_told_apart(tmp_path: Path) -> None:
    """A file that is no database is `SchemaMismatch`, not an outage."""
    path = tmp_path / "garbage.db"
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(SchemaMismatch, match="not a database"):
        SqliteUpkeep(Database(path)).expire(1.0, 1.0)


def test_a_read_only_database_is_a_missing_right(path: Path, database: Database) -> None:
    """What SQLite calls read-only is `NotPermitted`, with the cure."""
    with database.reading() as conn:
        conn.execute("SELECT 1")
    conn.execute("PRAGMA query_only = 1")
    with pytest.raises(NotPermitted, match="writable"):
        SqliteLeases(database).join(uuid4(), [], 5.0)


def killed_in_time(database: Database, processes: Processes, seconds: float) -> Popen[bytes]:
    """A relay that was killed so long after its first page."""
    forget_relays(database)
    relay = processes.start(RELAY, str(database.path), f"{PAGE}")
    wait_for(lambda: bool(processes.lines(relay)))
    time.sleep(seconds)
    relay.kill()
    relay.wait()
    return relay


def forget_relays(database: Database) -> None:
    """As if their leases had run out."""
    with database.writing() as conn:
        conn.execute("DELETE FROM pillarbox_relay")


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def owner_of_lane(conn: sqlite3.Connection) -> int:
    """The relay's process id, which it took for its own."""
    return UUID(conn.execute("SELECT owner FROM pillarbox_lane").fetchone()[0]).int


def terms(conn: sqlite3.Connection) -> list[int]:
    return [term for (term,) in conn.execute("SELECT term FROM pillarbox_lane")]


def cursor(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT cursor FROM pillarbox_lane").fetchone()[0])


def ids(conn: sqlite3.Connection, table: str) -> list[int]:
    return [id for (id,) in conn.execute(f"SELECT id FROM pillarbox_{table} ORDER BY id")]
