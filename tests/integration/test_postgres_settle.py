"""Why the settle and the take are written as they are: each rule broken in the real statement, and what then happens."""

import threading
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from pillarbox.errors import IdentityDiffers, NotInstalled
from pillarbox.ports import Changes, Held, InDoubt
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.leases import PostgresLeases
from pillarbox.storage.postgres.source import PostgresSource
from tests.contract.postgres_harness import PostgresHarness


@pytest.fixture
def harness(pg_url: str) -> Iterator[PostgresHarness]:
    made = PostgresHarness(pg_url, lanes=4)
    made.store_route("r", {})
    yield made
    made.close()


class Relay:
    def __init__(self, harness: PostgresHarness) -> None:
        self.db: Database = harness.database()
        self.source, self.leases = PostgresSource(self.db), PostgresLeases(self.db)
        self.id: UUID = uuid4()
        self.leases.join(self.id, ["r"], 60)

    def break_rule(self, statement: str, rule: str, broken: str) -> None:
        text = self.db._sql[statement]
        assert rule in text, "the statement has changed: this test tests nothing"
        self.db._sql = {**self.db._sql, statement: text.replace(rule, broken)}

    def take(self, wanted: int = 4) -> dict[int, Changes]:
        return {
            each.lane: Changes(each.lane, each.term, each.position) for each in self.leases.take(self.id, "r", wanted)
        }


def cursors(harness: PostgresHarness) -> dict[int, int]:
    return dict(harness.conn.execute("SELECT lane, (cursor ->> 'last')::int FROM pillarbox.lane").fetchall())


def forward(changes: Changes, **parts: object) -> Changes:
    return changes._replace(position=changes.position._replace(last=77), **parts)


RULES = {
    "the rule": ("", "", True),
    "the term": (" AND l.term = v.term", "", False),
    "the token": ("boot.token = $5::uuid", "$5::uuid IS NOT NULL", True),
}


@pytest.mark.parametrize(("rule", "broken", "safe"), RULES.values(), ids=RULES)
def test_a_deposed_relay_moves_no_cursor(harness: PostgresHarness, rule: str, broken: str, safe: bool) -> None:
    """A delayed settle of an older owner changes nothing, because it names its term (R2)."""
    old, new = Relay(harness), Relay(harness)
    mine = old.take()
    old.leases.give_back(old.id, "r", [(lane, change.term) for lane, change in mine.items()])
    assert len(new.take()) == 4
    if rule:
        old.break_rule("settle", rule, broken)
    old.source.settle("r", [forward(change) for change in mine.values()])
    assert (set(cursors(harness).values()) == {0}) is safe


@pytest.mark.parametrize("keeps", [True, False])
def test_a_settle_after_a_hidden_crash_moves_no_cursor(harness: PostgresHarness, keeps: bool) -> None:
    """A crash may have undone the take, and the same term is then somebody else's: the token tells (rule 5)."""
    relay = Relay(harness)
    mine = relay.take()
    if not keeps:
        relay.break_rule("settle", "boot.token = $5::uuid", "$5::uuid IS NOT NULL")
    harness.conn.execute("TRUNCATE pillarbox.boot; INSERT INTO pillarbox.boot DEFAULT VALUES")
    with pytest.raises(InDoubt):
        relay.source.settle("r", [forward(change) for change in mine.values()])
    assert (set(cursors(harness).values()) == {0}) is keeps


HELD = Held(0, 0, 0, "k", [5], 0, "retry", 1)
JOINED = {
    "done": (
        "d.lane = moved.lane AND ",
        "",
        "FROM {schema}.hold h USING moved, unnest",
        "FROM {schema}.hold h USING unnest",
    ),
    "changed": ("c.lane = moved.lane AND ", "", "FROM moved, unnest($8", "FROM unnest($8"),
    "added": ("JOIN moved USING (lane) ORDER BY a.n", "ORDER BY a.n", "", ""),
}


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("part", JOINED)
def test_hold_rows_of_a_deposed_lane_stay_as_they_are(harness: PostgresHarness, part: str, joined: bool) -> None:
    """Every write is joined to the lanes that moved (R10)."""
    old, new = Relay(harness), Relay(harness)
    mine = old.take()
    old.source.settle("r", [mine[0]._replace(added=[HELD])])
    (held,) = old.leases.load("r", [0])
    old.leases.give_back(old.id, "r", [(lane, change.term) for lane, change in mine.items()])
    new.take()
    if not joined:
        for rule, broken in (JOINED[part][:2], JOINED[part][2:]):
            if rule:
                old.break_rule(
                    "settle", rule.replace("{schema}", '"pillarbox"'), broken.replace("{schema}", '"pillarbox"')
                )
    change = {"done": [held], "changed": [held._replace(state="dead")], "added": [HELD]}[part]
    assert old.source.settle("r", [forward(mine[0], **{part: change})]) == {}
    assert ([row._replace(due_in=0.0) for row in harness.holds("r")] == [held._replace(due_in=0.0)]) is joined


def test_all_lanes_settle_in_one_order(harness: PostgresHarness) -> None:
    """Two processes that think they own the same lanes never lock each other out for good."""
    relays = [Relay(harness) for _ in range(2)]
    mine = relays[0].take()
    relays[1].db.token = relays[0].db.token

    def settle(relay: Relay, lanes: list[int]) -> None:
        for _ in range(150):
            relay.source.settle("r", [mine[lane] for lane in lanes])

    threads = [
        threading.Thread(target=settle, args=(relay, lanes))
        for relay, lanes in zip(relays, ([0, 1, 2, 3], [3, 2, 1, 0]), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert harness.conn.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    ).fetchone() == (0,)


SLOWED = "FROM {schema}.lane l, (SELECT pg_sleep(1) OFFSET 0) slow\n  WHERE l.route = $2 AND (SELECT"
AGAIN = "\n    AND l.term = (SELECT o.term FROM {schema}.lane o WHERE o.route = l.route AND o.lane = l.lane)"


@pytest.mark.parametrize("looks_again", [True, False])
def test_a_take_older_than_a_newborn_steals_nothing(harness: PostgresHarness, looks_again: bool) -> None:
    """A take whose snapshot is older than a relay does not see it alive, but it sees that its lanes have changed."""
    slow, newborn = Relay(harness), Relay(harness)
    stranger = uuid4()  # owned them, and was expelled
    harness.conn.execute("UPDATE pillarbox.lane SET owner = %s", (stranger,))
    harness.conn.execute("DELETE FROM pillarbox.relay WHERE id = %s", (newborn.id,))
    rule = "FROM {schema}.lane l\n  WHERE l.route = $2 AND (SELECT".replace("{schema}", '"pillarbox"')
    slow.break_rule("take", rule, SLOWED.replace("{schema}", '"pillarbox"'))
    if not looks_again:
        slow.break_rule("take", AGAIN.replace("{schema}", '"pillarbox"'), "")
    stolen: list[object] = []
    thread = threading.Thread(target=lambda: stolen.extend(slow.leases.take(slow.id, "r", 4)))
    thread.start()
    threading.Event().wait(0.3)  # its statement has begun
    newborn.leases.join(newborn.id, ["r"], 60)
    assert len(newborn.take()) == 4
    thread.join()
    assert (stolen == []) is looks_again


def test_a_frozen_settle_leaves_no_lane_locked(harness: PostgresHarness) -> None:
    """Cut between its first byte and its Sync it holds nothing for longer than a lease: the server ends the session."""
    database = harness.database(lease=0.5)
    database.execute("BEGIN")
    database.execute("SELECT FROM pillarbox.lane WHERE lane = 0 FOR UPDATE")
    threading.Event().wait(1.0)
    free = harness.conn.execute("SELECT FROM pillarbox.lane WHERE lane = 0 FOR UPDATE SKIP LOCKED").fetchall()
    assert len(free) == 1


@pytest.mark.parametrize("column", ["environment", "system_identifier"])
def test_a_clone_is_worked_on_by_nobody(harness: PostgresHarness, column: str) -> None:
    """With another environment's or cluster's name in it no relay takes a lane, and it says what to do (rule 6)."""
    relay = Relay(harness)
    (mine, *_) = relay.take(1).values()
    harness.conn.execute(f"UPDATE pillarbox.installation SET {column} = 'another'")
    for act in (relay.take, lambda: relay.leases.retake(relay.id, [("r", mine.lane)])):
        with pytest.raises(IdentityDiffers, match="pillarbox adopt"):
            act()
    terms = harness.conn.execute("SELECT max(term), count(owner) FROM pillarbox.lane").fetchone()
    assert terms == (1, 1)


def test_leases_say_what_is_missing(harness: PostgresHarness) -> None:
    """No token: in doubt. No installation: which command makes one. And a process that ends leaves no row."""
    relay = Relay(harness)
    harness.conn.execute("TRUNCATE pillarbox.boot")
    with pytest.raises(InDoubt):
        relay.take(1)
    assert relay.leases.renew(relay.id, ["r"], 0.0)
    assert relay.leases.expel() == 1
    assert not relay.leases.renew(relay.id, ["r"], 5)
    harness.conn.execute("DELETE FROM pillarbox.installation")
    for act in (relay.take, lambda: relay.leases.join(uuid4(), [], 5)):
        with pytest.raises(NotInstalled, match="migrate up"):
            act()
