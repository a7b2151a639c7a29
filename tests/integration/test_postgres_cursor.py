"""The read statement on a real server: every row once, in order, whatever commits late (DESIGN 2.2)."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from uuid import uuid4

import psycopg
import pytest

from pillarbox.ports import Changes, InDoubt, RowTuple
from pillarbox.storage.postgres.cursor import Position
from pillarbox.storage.postgres.source import PostgresSource
from tests.contract.postgres_harness import PostgresHarness
from tests.integration.postgres_writers import Writers, prepare

START = Position()


@pytest.fixture
def harness(pg_url: str) -> Iterator[PostgresHarness]:
    made = PostgresHarness(pg_url, lanes=4)
    made.conn.execute("INSERT INTO pillarbox.boot DEFAULT VALUES")
    yield made
    made.close()


class Reader:
    """Reads any of the lanes with any limit, is done with any part of a page, and sometimes forgets the rest."""

    def __init__(self, harness: PostgresHarness, rng: random.Random, late: int = 7) -> None:
        self.source = PostgresSource(harness.database(), late=late)
        self.rng = rng
        self.settled = dict.fromkeys(range(4), START)
        self.rows: list[RowTuple] = []
        self.caught_up = 0

    def step(self, *, whole: bool = False) -> int:
        rng, settled = self.rng, self.settled
        lanes = [lane for lane in settled if whole or rng.random() < 0.8]
        found = 0
        for page in self.source.read("r", {lane: settled[lane] for lane in lanes}, rng.choice([1, 5, 50])):
            done = len(page.rows) if whole or rng.random() < 0.6 else rng.randint(0, len(page.rows))
            self.rows += page.rows[:done]
            settled[page.lane] = Position.of(page.cut(done)._asdict())
            self.caught_up += page.cut(done).due is not None
            found += len(page.rows)
        return found

    def drain(self) -> None:
        quiet = 0
        while quiet < 3:
            quiet = 0 if self.step(whole=True) else quiet + 1


def test_hostile_writers_lose_and_double_nothing(harness: PostgresHarness, seed: int, full: bool) -> None:
    """Held transactions, savepoints, early ids, two-phase commits; pages too small: each row once, each key in order."""
    rng = random.Random(seed)
    prepare(harness.conn)
    reader = Reader(harness, rng)
    with Writers(harness.url, rng, 6):
        end = time.monotonic() + (60 if full else 6)
        while time.monotonic() < end:
            reader.step()
    reader.drain()
    committed = {row[0] for row in harness.conn.execute("SELECT id FROM pillarbox.message")}
    read = Counter(row[0] for row in reader.rows)
    assert len(committed) > 500
    assert reader.caught_up > 20, "late rows never filled a page: this test did not test"
    assert committed - read.keys() == set(), "lost"
    assert read.keys() - committed == set(), "read before they were committed"
    assert [id for id, times in read.items() if times > 1] == [], "read twice"
    numbers: dict[str, list[int]] = {}
    numbered = dict(harness.conn.execute("SELECT id, sequence FROM pillarbox.message WHERE key LIKE 'k%'").fetchall())
    for row in reader.rows:
        if row[0] in numbered:
            numbers.setdefault(row[2], []).append(numbered[row[0]])
    assert [key for key, seen in numbers.items() if any(a >= b for a, b in pairwise(seen))] == [], "overtaken"


def add(conn: psycopg.Connection[tuple[object, ...]], *keys: str) -> None:
    for key in keys:
        conn.execute("INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES (%s, 'a', 't', '')", (key,))


def keys_of(reader: Reader) -> list[str]:
    found, reader.rows = [str(row[2]) for row in reader.rows], []
    return found


def test_a_transaction_held_open_delays_nobody(harness: PostgresHarness, seed: int) -> None:
    """Rows behind it are read at once, its own when it commits."""
    reader = Reader(harness, random.Random(seed))
    with psycopg.connect(harness.url) as slow:
        add(slow, "slow")
        add(harness.conn, "quick")
        reader.drain()
        assert keys_of(reader) == ["quick"]
        slow.commit()
        reader.drain()
        assert keys_of(reader) == ["slow"]


def test_a_row_inside_a_savepoint_has_its_transactions_id(harness: PostgresHarness, seed: int) -> None:
    """The system's own xmin is the subtransaction's, and would be looked for in vain (rule 7)."""
    reader = Reader(harness, random.Random(seed))
    with psycopg.connect(harness.url) as conn:
        add(conn, "before")
        conn.execute("SAVEPOINT s")
        add(conn, "inside")
        conn.execute("RELEASE SAVEPOINT s")
        xids = conn.execute("SELECT DISTINCT xid::text FROM pillarbox.message").fetchall()
        assert xids == conn.execute("SELECT pg_current_xact_id()::text").fetchall()
        reader.drain()
        conn.commit()
    reader.drain()
    assert sorted(keys_of(reader)) == ["before", "inside"]


def test_a_prepared_transaction_is_read_when_it_is_committed(harness: PostgresHarness, seed: int) -> None:
    """However long it was forgotten."""
    reader = Reader(harness, random.Random(seed))
    with psycopg.connect(harness.url) as conn:
        add(conn, "two phases")
        conn.execute("PREPARE TRANSACTION 'forgotten'")
        conn.commit()
    add(harness.conn, *"abcdef")
    reader.drain()
    assert sorted(keys_of(reader)) == [*"abcdef"]
    harness.conn.execute("COMMIT PREPARED 'forgotten'")
    reader.drain()
    assert keys_of(reader) == ["two phases"]


def test_an_empty_page_passes_what_is_being_written(harness: PostgresHarness, seed: int) -> None:
    """`last` moves to the sequence's value, so a large open transaction is not walked at each poll (rule 4)."""
    reader = Reader(harness, random.Random(seed))
    with psycopg.connect(harness.url) as slow:
        add(slow, *(f"k{n}" for n in range(20)))
        reader.drain()
        assert {position.last for position in reader.settled.values()} == {20}


def test_the_id_is_drawn_after_the_transaction_id(harness: PostgresHarness) -> None:
    """The default draws both, in this order, else `closed_by` would prove nothing (rule 1)."""
    (default,) = harness.conn.execute(
        "SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid"
        " AND a.attnum = d.adnum WHERE d.adrelid = 'pillarbox.message'::regclass AND a.attname = 'id'"
    ).fetchone() or ("",)
    order = f"SELECT {default.replace('pg_current_xact_id()', 'pg_temp.told()')}"
    with psycopg.connect(harness.url) as conn:
        notices: list[str] = []
        conn.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        conn.execute(
            "CREATE FUNCTION pg_temp.told() RETURNS xid8 LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE NOTICE '%', (SELECT is_called FROM pillarbox.message_id_seq); RETURN pg_current_xact_id(); END $$"
        )
        assert conn.execute(order).fetchone() == (1,)
        assert notices == ["f"], "an id had been drawn before the transaction id"


@pytest.mark.parametrize(("lo", "times"), [("greatest(t.at, lo.id)", 1), ("t.at", 2)])
def test_foreign_transaction_ids_in_closed_segments_do_not_come_back(
    harness: PostgresHarness, seed: int, lo: str, times: int
) -> None:
    """Rows restored with ids of another cluster look late once ours pass them; nothing up to `lo` is late (rule 8)."""
    add(harness.conn, "restored")
    harness.conn.execute(
        "UPDATE pillarbox.message SET xid = (pg_current_xact_id()::text::int8 + 20)::text::xid8;"
        " SELECT setval('pillarbox.message_id_seq', 10000000001, false);"
        " UPDATE pillarbox.segment SET state = 'closed', closed_by = '3' WHERE n = 0"
    )
    reader = Reader(harness, random.Random(seed))
    database = reader.source._db
    database._sql = {**database._sql, "read": database._sql["read"].replace("greatest(t.at, lo.id)", lo)}
    reader.drain()
    for n in range(30):
        add(harness.conn, f"later {n}")
    reader.drain()
    assert keys_of(reader).count("restored") == times


@pytest.mark.parametrize("first", ["read", "settle"])
def test_a_crash_nobody_told_us_of_is_noticed(harness: PostgresHarness, first: str) -> None:
    """Behind a pooler the first statement after it, whichever it is, finds another token and changes nothing (rule 5)."""
    harness.store_route("r", {})
    store, me = harness.connect(), uuid4()
    store.leases.join(me, ["r"], 60)
    taken = store.leases.take(me, "r", 4)
    add(harness.conn, "a")
    pages = store.source.read("r", {each.lane: each.position for each in taken}, 10)
    harness.conn.execute("TRUNCATE pillarbox.boot")  # what a crash does to it
    before = harness.conn.execute("SELECT lane, cursor::text FROM pillarbox.lane ORDER BY lane").fetchall()
    for healed in (False, True):
        if healed:
            harness.conn.execute("INSERT INTO pillarbox.boot DEFAULT VALUES")
        with pytest.raises(InDoubt):
            if first == "read":
                store.source.read("r", {each.lane: each.position for each in taken}, 10)
            else:
                terms = {each.lane: each.term for each in taken}
                store.source.settle("r", [Changes(page.lane, terms[page.lane], page.after) for page in pages])
    assert harness.conn.execute("SELECT lane, cursor::text FROM pillarbox.lane ORDER BY lane").fetchall() == before
    anew = store.leases.retake(me, [("r", 0)])
    assert len(anew) == 4, "with another token all lanes are in doubt"
    assert {each.term for each in anew} == {2}
    assert sum(len(page.rows) for page in store.source.read("r", {e.lane: e.position for e in anew}, 10)) == 1


@pytest.mark.parametrize("waits", [True, False])
def test_what_is_read_has_been_flushed_when_asked_for(harness: PostgresHarness, waits: bool) -> None:
    """A commit of ours follows the read, so an asynchronous commit it saw is durable before it is sent (P1)."""
    source = PostgresSource(harness.database(), wait_for_flush=waits)
    here = "SELECT pg_current_wal_insert_lsn()"
    empty = source.read("r", dict.fromkeys(range(4), START), 5)
    add(harness.conn, "a")
    before = harness.conn.execute(here).fetchone()
    pages = source.read("r", {page.lane: page.after for page in empty}, 5)
    assert sum(len(page.rows) for page in pages) == 1
    flushed = harness.conn.execute("SELECT pg_current_wal_flush_lsn() > %s::pg_lsn", before or ()).fetchone()
    assert flushed == (waits,)
