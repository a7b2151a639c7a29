"""Producers as hostile as we can be to a snapshot cursor: late commits, early transaction ids, savepoints, two phases."""

import contextlib
import random
import threading
import time
from typing import Any, Self

import psycopg

KEYS = 12
INSERT = "INSERT INTO pillarbox.message (key, sequence, aggregate, type, payload) VALUES (%s, %s, 'a', 't', '')"
Connection = psycopg.Connection[Any]


def prepare(conn: Connection) -> None:
    """The table whose row locks make each key's order known: its `n` is the number of the key's last message."""
    conn.execute("CREATE TABLE account (key text PRIMARY KEY, n bigint NOT NULL)")
    conn.execute("INSERT INTO account SELECT 'k' || g, 0 FROM generate_series(0, %s) g", (KEYS - 1,))


class Writers:
    """Threads that write until told to stop; `with Writers(url, rng, count):` waits for all of them."""

    def __init__(self, url: str, rng: random.Random, count: int) -> None:
        self.url, self.over = url, threading.Event()
        self.failed: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._write, args=(random.Random(rng.random()), n)) for n in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def _write(self, rng: random.Random, number: int) -> None:
        try:
            with psycopg.connect(self.url, options="-c lock_timeout=3s") as conn:
                turn = 0
                while not self.over.is_set():
                    turn += 1
                    with contextlib.suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                        _transaction(conn, rng, f"w{number}_{turn}")
                    conn.rollback()
        except BaseException as error:
            self.failed.append(error)


def _transaction(conn: Connection, rng: random.Random, name: str) -> None:
    if rng.random() < 0.3:
        conn.execute("SELECT pg_current_xact_id()")  # early: its id is old when its rows come
        _nap(rng, 0.05)
    for key in sorted(rng.sample(range(KEYS), rng.choice([1, 1, 2, 3]))):
        savepoint = rng.random() < 0.25
        if savepoint:
            conn.execute("SAVEPOINT s")
        for _ in range(rng.choice([1, 1, 1, 2, 30])):
            _add(conn, f"k{key}")
        if savepoint:
            conn.execute("ROLLBACK TO SAVEPOINT s" if rng.random() < 0.3 else "RELEASE SAVEPOINT s")
    if rng.random() < 0.1:  # nobody waits for these rows: many of them are late at once
        keys = f"u{name}"
        conn.cursor().executemany(
            INSERT,
            [
                (
                    f"{keys}_{n % 5}",
                    n,
                )
                for n in range(rng.choice([20, 90]))
            ],
        )
    if rng.random() < 0.2:
        _nap(rng, 0.3)
    _end(conn, rng, name)


def _add(conn: Connection, key: str) -> None:
    row = conn.execute("UPDATE account SET n = n + 1 WHERE key = %s RETURNING n", (key,)).fetchone()
    assert row is not None
    conn.execute(INSERT, (key, row[0]))


def _end(conn: Connection, rng: random.Random, name: str) -> None:
    chance = rng.random()
    if chance < 0.12:
        conn.rollback()
    elif chance < 0.2:
        conn.execute(f"PREPARE TRANSACTION '{name}'")
        conn.commit()
        _nap(rng, 0.2)
        conn.autocommit = True
        conn.execute(f"{'COMMIT' if rng.random() < 0.8 else 'ROLLBACK'} PREPARED '{name}'")
        conn.autocommit = False
    else:
        conn.commit()


def _nap(rng: random.Random, longest: float) -> None:
    time.sleep(rng.random() * longest)
