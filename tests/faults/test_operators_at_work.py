"""Operators and relays at the same rows at the same time: nothing is lost, nothing leaves its key's order by itself."""

import random
import threading
import time
from collections import defaultdict

import psycopg
import pytest

from pillarbox import Outbox, Reject, Relay
from pillarbox.config import Config
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.desk import PostgresDesk
from pillarbox.storage.postgres.desk_actions import PostgresActions
from pillarbox.storage.postgres.migrate import migrate
from pillarbox.views import Note, Pick

KEYS, EACH, SECONDS = 8, 60, 8.0
HELD = ("retry", "blocked", "waiting")


class Broker:
    """Refuses at random until it is told to be well; remembers what it accepted, in order."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.lock, self.well = dice, threading.Lock(), False
        self.accepted: list[tuple[str, int, int]] = []

    def __call__(self, message: object) -> None:
        with self.lock:
            if not self.well and self.dice.random() < 0.4:
                raise Reject("not in the mood")
            n = int(message.json()["n"])  # type: ignore[attr-defined]
            self.accepted.append((str(message.key), n, message.generation))  # type: ignore[attr-defined]


def configuration(url: str, broker: Broker) -> Config:
    return Config.model_validate(
        {
            "database": {"url": url},
            "relay": {"listen": "off", "lease": 1, "attempts": 2, "backoff_max": 0.02},
            "sinks": {"out": {"kind": "python", "callable": broker, "in_flight": 20}},
            "routes": {"all": {"sink": "out", "after_last_attempt": "block"}},
        }
    )


class Operator(threading.Thread):
    """Takes any word at any row until the time is over; an error of it fails the test."""

    def __init__(self, url: str, seed: int, until: float) -> None:
        super().__init__()
        self.desk, self.actions = PostgresDesk(Database(url)), PostgresActions(Database(url))
        self.dice, self.until = random.Random(seed), until
        self.done: defaultdict[str, int] = defaultdict(int)
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while time.monotonic() < self.until:
                self.act()
                time.sleep(self.dice.random() * 0.02)
        except BaseException as error:
            self.error = error
        finally:
            self.desk.close()
            self.actions.close()

    def act(self) -> None:
        verb = self.dice.choice(["retry", "retry", "bury", "skip", "replay", "inside"])
        states = {"replay": ("dead",), "inside": HELD}.get(verb, ("retry", "blocked"))
        lines = self.desk.holds(Pick(states, limit=200))
        if verb == "inside" and lines:  # a message in the middle of a run, by its id
            [(ids,)] = self.desk._db.execute("SELECT ids FROM pillarbox.hold WHERE seq = $1", lines[0].seq) or [([],)]
            lines = [x for x in self.desk.holds(Pick(HELD, ids=tuple(map(str, ids)))) if x.generation == 0]
        if not lines:
            return
        chosen = self.dice.sample(lines, min(len(lines), 1 if verb in ("skip", "inside") else 3))
        note = Note("ann", "here", "stress")
        if verb == "replay":
            self.done[verb] += len(self.actions.replay(chosen, None, note))
        else:
            self.done[verb] += len(self.actions.change("skip" if verb == "inside" else verb, chosen, note))


@pytest.mark.slow
def test_operators_and_relays_lose_nothing_together(pg_url: str, seed: int) -> None:
    """Two relays and three operators work on the same hold rows: in the end each message was delivered, is dead, or was
    skipped by a named operator, and first deliveries of a key are in order."""
    broker = Broker(random.Random(seed))
    with psycopg.connect(pg_url, autocommit=True) as conn:
        migrate(conn, lanes=4)
    config = configuration(pg_url, broker)
    operators = [Operator(pg_url, seed + n, time.monotonic() + SECONDS) for n in range(3)]
    with Relay(config), Relay(config), psycopg.connect(pg_url) as conn:
        for operator in operators:
            operator.start()
        for n in range(EACH):
            for key in range(KEYS):
                Outbox().add(conn, aggregate="a", key=str(key), type="t", payload={"n": n})
            conn.commit()
            time.sleep(SECONDS / EACH / 2)
        for operator in operators:
            operator.join()
        assert [operator.error for operator in operators] == [None] * 3
        broker.well = True
        settle_down(pg_url)
    judge(pg_url, broker)
    used = {verb for operator in operators for verb, count in operator.done.items() if count}
    assert used >= {"retry", "bury", "skip", "replay"}, f"the stress met too little: {used}"


def settle_down(url: str) -> None:
    """Retry what is blocked until nothing is held and every cursor is at the end."""
    desk, actions = PostgresDesk(Database(url)), PostgresActions(Database(url))
    end = time.monotonic() + 60
    while True:
        held = desk.holds(Pick(HELD, limit=10_000))
        actions.change("retry", [line for line in held if line.state == "blocked"], Note("ann", "here"))
        if not held and sum(line.pending for line in desk.overview().lanes) == 0:
            break
        assert time.monotonic() < end, (held[:3], desk.overview().lanes)
        time.sleep(0.05)
    desk.close()
    actions.close()


def judge(url: str, broker: Broker) -> None:
    with psycopg.connect(url) as conn:
        every = {id: (key, n) for id, key, n in conn.execute(
            "SELECT id, key, (convert_from(payload, 'UTF8')::json->>'n')::int FROM pillarbox.message")}  # fmt: skip
        rows = conn.execute("SELECT ids[1], cardinality(ids), state, generation FROM pillarbox.hold").fetchall()
        resolved_by = conn.execute("SELECT count(*) FROM pillarbox.audit WHERE who = 'ann'").fetchone()
    assert all(size == 1 for _id, size, _state, _generation in rows)
    final = {every[id] for id, _size, state, _generation in rows if state in ("dead", "skipped")}
    delivered = {(key, n) for key, n, _generation in broker.accepted}
    assert set(every.values()) - delivered - final == set(), "lost"
    assert resolved_by is not None
    assert resolved_by[0] > 20
    first: dict[str, list[int]] = defaultdict(list)
    for key, n, generation in broker.accepted:
        if generation == 0 and n not in first[key]:
            first[key].append(n)
    assert {key: numbers for key, numbers in first.items() if numbers != sorted(numbers)} == {}, "reordered"
