"""Rolling, attaching and dropping ranges of the log under open transactions and crashes (DESIGN 2.1, R16)."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pillarbox import crashpoints
from pillarbox.ports import Changes, Held, Position
from pillarbox.storage.postgres import upkeep
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.upkeep import WIDTH, PostgresUpkeep
from tests.contract.postgres_harness import PostgresHarness

DAY = 86_400.0


@pytest.fixture
def harness(quiet_url: str) -> Iterator[PostgresHarness]:
    made = PostgresHarness(quiet_url, lanes=2)
    yield made
    made.close()


class Relay:
    """Reads everything and settles it; judges too, so that segments may go."""

    def __init__(self, harness: PostgresHarness, route: str = "r") -> None:
        self.route, self.store = route, harness.connect()
        self.store.leases.join(uuid4(), [route], 60)
        self.terms: dict[int, int] = {}
        self.at: dict[int, Position] = {}
        for taken in self.store.leases.take(uuid4(), route, 2):
            self.terms[taken.lane], self.at[taken.lane] = taken.term, taken.position

    def work(self, added: dict[int, list[Held]] | None = None) -> list[Any]:
        found = []
        for _ in range(4):
            pages = self.store.source.read(self.route, self.at, 100)
            found += [row for page in pages for row in page.rows]
            self.at |= {page.lane: page.after for page in pages}
        holds = added or {}
        self.store.source.settle(
            self.route, [Changes(n, self.terms[n], at, added=holds.get(n, ())) for n, at in self.at.items()]
        )
        for _ in range(3):
            self.store.chores.judge_unrouted(self.store.leases.survey().routes, True)
        return found


def add(conn: psycopg.Connection[Any], key: str = "k") -> int:
    row = conn.execute(
        "INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES (%s, 'a', 't', 'x') RETURNING id", (key,)
    ).fetchone()
    assert row is not None
    return int(row[0])


def roll(harness: PostgresHarness) -> bool:
    add(harness.conn)  # an empty range is not rolled
    return PostgresUpkeep(harness.database()).roll(0.0, None)


def segments(harness: PostgresHarness) -> dict[int, str]:
    return dict(harness.conn.execute("SELECT n, state FROM pillarbox.segment ORDER BY n").fetchall())


def attached(harness: PostgresHarness) -> list[str]:
    rows = harness.conn.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'pillarbox.message'::regclass ORDER BY inhrelid"
    )
    return [row[0].removeprefix("pillarbox.message_") for row in rows]


def test_a_roll_moves_ids_and_nobody_waits(harness: PostgresHarness) -> None:
    """An open producer goes on in the next range; ids keep rising."""
    with psycopg.connect(harness.url) as producer:
        before = add(producer)
        assert roll(harness)
        after = add(producer)
        producer.commit()
    assert before < WIDTH <= after
    assert segments(harness) == {0: "closed", 1: "open", 2: "ahead", 3: "ahead"}


def test_nothing_is_rolled_before_its_time(harness: PostgresHarness) -> None:
    """By time, by rows, never an empty range."""
    keeper = PostgresUpkeep(harness.database())
    assert not keeper.roll(0.0, None), "nothing was drawn in it"
    for _ in range(3):
        add(harness.conn)
    assert not keeper.roll(DAY, None)
    assert not keeper.roll(DAY, 4)
    assert keeper.roll(DAY, 3)


PASSED = (
    "SELECT pg_snapshot_xmin(pg_current_snapshot()) > closed_by, last_value >= 10000000000"
    " FROM pillarbox.segment, pillarbox.message_id_seq WHERE n = 0"
)


@pytest.mark.parametrize("lock", ["the rule", "SELECT FROM pillarbox.segment WHERE n = 0 FOR UPDATE"])
def test_closed_by_is_drawn_after_the_ids_moved(harness: PostgresHarness, lock: str) -> None:
    """Who drew an id of the old range is older than `closed_by`; a row lock would draw it too early."""
    add(harness.conn)
    database = harness.database()
    with psycopg.connect(harness.url) as producer:
        with database.transaction():
            if lock == "the rule":
                database.run("roll_lock")
            else:
                database.execute(lock)
            assert add(producer) < WIDTH
            database.run("roll_ids", 0)
            database.run("roll_close")
        passed = harness.conn.execute(PASSED).fetchone()
        producer.commit()
    assert passed == (lock != "the rule", True), "a cursor may pass the range while a producer is open in it"


@pytest.mark.parametrize("noted", [True, False])
def test_no_roll_into_a_range_somebody_does_not_know(harness: PostgresHarness, noted: bool) -> None:
    """A transaction that planned before the attach keeps the old list of ranges: it is waited for (seen: psycopg)."""
    roll(harness)
    with psycopg.connect(harness.url, prepare_threshold=0) as producer:
        for n in range(8):  # its INSERT is prepared, its plan kept
            add(producer, f"{n}")
        assert PostgresUpkeep(harness.database()).attach_ahead() == 1
        if not noted:
            harness.conn.execute("UPDATE pillarbox.segment SET lockers = '{}'")
        assert roll(harness)
        assert roll(harness)
        assert roll(harness) is not noted
        if noted:
            assert add(producer) > 0
        else:
            with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
                add(producer)
            producer.rollback()
        producer.commit()
    assert roll(harness) is noted  # nobody is left; without the rule it is there already and the next is not


def test_a_range_found_attached_is_noted(harness: PostgresHarness) -> None:
    """A crash between the attach and its note is made good, with the lockers as of then."""
    harness.conn.execute("DELETE FROM pillarbox.segment WHERE n = 3")
    with psycopg.connect(harness.url) as producer:
        add(producer)
        PostgresUpkeep(harness.database()).attach_ahead()
        lockers = harness.conn.execute("SELECT cardinality(lockers) FROM pillarbox.segment WHERE n = 3").fetchone()
    assert lockers == (1,)


def wait_until(done: Callable[[], bool]) -> None:
    for _ in range(100):
        if done():
            return
        threading.Event().wait(0.05)
    raise AssertionError("not within five seconds")


class Crash(BaseException):
    pass


def crash_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(reached: str) -> None:
        if reached == point:
            raise Crash

    monkeypatch.setattr(crashpoints, "here", here)


@pytest.mark.parametrize("point", ["attach.after_create", "attach.after_attach"])
def test_an_attach_that_crashed_is_finished(
    harness: PostgresHarness, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next round attaches what was made, and notes what was attached."""
    roll(harness)
    with monkeypatch.context() as patched, pytest.raises(Crash):
        crash_at(point, patched)
        PostgresUpkeep(harness.database()).attach_ahead()
    PostgresUpkeep(harness.database()).attach_ahead()
    assert attached(harness) == ["0", "1", "2", "3", "4"]
    assert segments(harness)[4] == "ahead"


def test_a_roll_that_crashed_after_setval_is_made_good(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids have moved for good, the closing was rolled back: the next roll closes."""
    with monkeypatch.context() as patched, pytest.raises(Crash):
        crash_at("roll.after_setval", patched)
        roll(harness)
    assert segments(harness)[0] == "open"
    assert not PostgresUpkeep(harness.database()).roll(DAY, None)
    assert segments(harness) == {0: "closed", 1: "open", 2: "ahead", 3: "ahead"}


def rolled_and_passed(harness: PostgresHarness) -> tuple[Relay, int]:
    """A closed range that may go, with one message a dead row needs."""
    harness.store_route("r", {})
    relay = Relay(harness)
    needed = add(harness.conn, "dead")
    roll(harness)
    rows = relay.work()
    lane = next(row[1] for row in rows if row[0] == needed)
    relay.work({lane: [Held(lane, 0, 0, "dead", [needed], 0, "dead", 5)]})
    harness.advance(2 * DAY)
    return relay, needed


@pytest.mark.parametrize("point", ["prune.marked", "prune.kept", "prune.detached", "prune.dropped", "nowhere"])
def test_a_prune_that_crashed_is_finished(
    harness: PostgresHarness, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it died: the next round, which attaches first, finishes it; what a hold row needs is still there."""
    relay, needed = rolled_and_passed(harness)
    if point != "nowhere":
        with monkeypatch.context() as patched, pytest.raises(Crash):
            crash_at(point, patched)
            PostgresUpkeep(harness.database()).prune(DAY)
    keeper = PostgresUpkeep(harness.database())
    keeper.attach_ahead()
    keeper.prune(DAY)
    assert attached(harness) == ["1", "2", "3", "4"]
    assert 0 not in segments(harness)
    assert harness.conn.execute("SELECT to_regclass('pillarbox.message_0')").fetchone() == (None,)
    (row,) = relay.store.source.fetch([needed])
    assert (row[0], row[2], row[6]) == (needed, "dead", b"x")


XMIN = "\n       OR NOT pg_snapshot_xmin((l.cursor ->> 'seen')::pg_snapshot) > s.closed_by"


@pytest.mark.parametrize("looks_at_xmin", [True, False])
def test_an_open_transaction_holds_its_range(harness: PostgresHarness, looks_at_xmin: bool) -> None:
    """A transaction from before the roll may still commit a row there: `xmin(seen) > closed_by`, or it is lost."""
    harness.store_route("r", {})
    relay = Relay(harness)
    with psycopg.connect(harness.url) as producer:
        late = add(producer, "late")
        roll(harness)
        relay.work()
        harness.conn.execute("UPDATE pillarbox.chore SET judged = 10000000000 WHERE name = 'unrouted'")
        harness.advance(2 * DAY)
        keeper = PostgresUpkeep(harness.database())
        if not looks_at_xmin:
            assert XMIN in keeper._db._sql["prune_mark"]
            keeper._db._sql = {**keeper._db._sql, "prune_mark": keeper._db._sql["prune_mark"].replace(XMIN, "")}
        marked = keeper._mark(DAY)
        producer.commit()
    assert marked == (None if looks_at_xmin else 0)
    assert [row[0] for row in relay.work()] == [late]


@pytest.mark.parametrize("state", ["catching up", "behind", "unjudged"])
def test_a_range_that_is_not_passed_stays(harness: PostgresHarness, state: str) -> None:
    """Every cursor of every route, and the chore that finds what no route wants."""
    rolled_and_passed(harness)
    harness.conn.execute(
        {
            "catching up": "UPDATE pillarbox.lane SET cursor = jsonb_set(cursor::jsonb, '{due}', to_jsonb('5:5:'::text))::json"
            " WHERE lane = 1",
            "behind": "UPDATE pillarbox.lane SET cursor = jsonb_set(cursor::jsonb, '{last}', '9999999998')::json WHERE lane = 0",
            "unjudged": "UPDATE pillarbox.chore SET judged = 9999999998",
        }[state]
    )
    assert PostgresUpkeep(harness.database()).prune(DAY) == []
    assert segments(harness)[0] == "closed"


def test_a_route_from_the_beginning_begins_behind_what_is_going(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never reads a range that is being dropped: its hold rows would point to nothing (R17)."""
    rolled_and_passed(harness)
    kept = add(harness.conn, "kept")
    with monkeypatch.context() as patched, pytest.raises(Crash):
        crash_at("prune.marked", patched)
        PostgresUpkeep(harness.database()).prune(DAY)
    harness.store_route("second", {})
    second = Relay(harness, "second")
    assert {position.last for position in second.at.values()} == {WIDTH}
    assert [row[0] for row in second.work()] == [kept]


@pytest.mark.parametrize("parameters", [(), ("k",)])
def test_a_producer_open_for_days_makes_nobody_wait(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch, parameters: tuple[str, ...]
) -> None:
    """A detach it blocks is left pending, other producers go on, ranges are attached; it is finished when it can be."""
    monkeypatch.setattr(upkeep, "DETACH_WITHIN", "1s")
    relay, _ = rolled_and_passed(harness)
    keeper = PostgresUpkeep(harness.database())
    with psycopg.connect(harness.url) as producer, psycopg.connect(harness.url, autocommit=True) as other:
        # With parameters the portal of a RETURNING stays open, and with it a snapshot that a FINALIZE waits for.
        key = "%s" if parameters else "'k'"
        producer.execute(
            f"INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES ({key}, 'a', 't', '') RETURNING id",
            parameters or None,
        )
        pruned: list[str] = []
        thread = threading.Thread(target=lambda: pruned.extend(keeper.prune(DAY)))
        thread.start()
        other.execute("SET lock_timeout = '500ms'")
        while thread.is_alive():
            add(other)
            relay.work()
            thread.join(0.05)
        assert roll(harness)
        assert keeper.attach_ahead() == 2
        assert keeper.prune(DAY) == []
        assert pruned == ([] if parameters else ["message_0"])
        producer.commit()
    assert pruned + keeper.prune(DAY) == ["message_0"]


def test_the_log_is_bounded_at_ten_messages_a_day(harness: PostgresHarness) -> None:
    """Seven days of retention are seven days, however little is added (P10)."""
    harness.store_route("r", {})
    relay, most = Relay(harness), 0
    for _ in range(12):
        for n in range(10):
            add(harness.conn, f"{n}")
        harness.advance(DAY)
        relay.store.upkeep.attach_ahead()
        assert relay.store.upkeep.roll(DAY, None)
        assert len(relay.work()) == 10
        relay.store.upkeep.prune(7 * DAY)
        most = max(most, len(attached(harness)))
    assert most <= 7 + 1 + 1 + upkeep.AHEAD
    assert harness.conn.execute("SELECT count(*) FROM pillarbox.message").fetchone() == (70,)


def test_two_keepers_do_not_meet(harness: PostgresHarness) -> None:
    """While one keeps the segments, the other has nothing to do."""
    first: Database = harness.database()
    first.run("upkeep_lock")
    second = PostgresUpkeep(harness.database())
    add(harness.conn)
    assert (second.attach_ahead(), second.roll(0.0, None), second.prune(DAY), second.expire(DAY, DAY)) == (
        0,
        False,
        [],
        0,
    )
    first.close()
    wait_until(lambda: second.roll(0.0, None))  # its session ends a moment later
