"""Writers that do whatever a database allows: what a relay must cope with, and what it must not deliver."""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pillarbox.clock import SystemClock
from pillarbox.message import NO_KEY
from pillarbox.outbox import Outbox
from pillarbox.testing.history import FAILED, OK, Added, ProducerLog, digest
from pillarbox.testing.installation import connected, is_sqlite, statements

KEYS = [f"k{number}" for number in range(24)]
AGGREGATE, UNROUTED = "order", "nobody"  # a route of the harness takes the first and not the second


class Manners(NamedTuple):
    """How a writer behaves; times in seconds."""

    pause: float = 0.03  # between two transactions, on the average
    held: float = 0.3  # how long a transaction is kept open at most
    poison_topic: str | None = None  # a topic whose broker refuses `poison_bytes`
    poison_bytes: int = 20_000


class Undo(Exception):
    """Raised inside a transaction to have it rolled back."""


def furnish(url: str) -> None:
    """The business tables. As the owner, before any writer begins."""
    sql = statements("pillarbox.testing", url)
    with connected(url) as conn:
        conn.execute(sql["create_key"])
        conn.execute(sql["create_done"])
        for key in KEYS:
            conn.execute(sql["add_key"], (key,))
        conn.commit()


def committed(url: str) -> set[str]:
    """What the business says, whatever anybody was told."""
    with connected(url) as conn:
        return {id for (id,) in conn.execute(statements("pillarbox.testing", url)["done"])}


class Writer:
    """One thread with a connection of its own, until it is closed."""

    def __init__(self, url: str, log: Path, name: str, seed: str, manners: Manners) -> None:
        self._url, self._name, self._manners = url, name, manners
        self._sql = statements("pillarbox.testing", url)
        self._draw = random.Random(f"{seed}:{name}")
        self._log = ProducerLog(log, 0)
        self._outbox = Outbox()
        self._clock = SystemClock()
        self._number = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"writer-{name}", daemon=True)
        self.failure: BaseException | None = None
        self._thread.start()

    def close(self) -> None:
        """The transaction under way is finished. Raises what ended the writer, if anything did."""
        self._over.set()
        self._thread.join()
        self._log.close()
        if self.failure is not None:
            raise self.failure

    def _work(self) -> None:
        acts: list[tuple[Callable[[Any], list[Added]], float]] = [
            (self._plain, 8), (self._several, 4), (self._many_keys, 3), (self._rolled_back, 2), (self._savepoint, 2),
            (self._early, 2), (self._held, 2), (self._without_key, 2), (self._delayed, 1), (self._unrouted, 1),
        ]  # fmt: skip
        if self._manners.poison_topic is not None:
            acts.append((self._poison, 0.2))  # each one costs a fail-stop sink its session
        weights = [weight for _, weight in acts]
        try:
            with connected(self._url) as conn:
                while not self._over.wait(self._draw.expovariate(1 / self._manners.pause)):
                    ((act, _),) = self._draw.choices(acts, weights)
                    self._transaction(conn, act)
        except BaseException as error:  # told by close: a writer that stopped proves nothing
            self.failure = error

    def _transaction(self, conn: Any, act: Callable[[Any], list[Added]]) -> None:
        name = self._next_name()
        try:
            added = act(conn)
        except Undo as undone:
            conn.rollback()
            self._note_failed(name, undone.args[0])
            return
        self._log.begin(name, added)
        conn.commit()
        self._log.end(name, OK)

    def _note_failed(self, name: str, added: Sequence[Added]) -> None:
        self._log.begin(name, added)
        self._log.end(name, FAILED)

    def _next_name(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    # ---------------------------------------------------------------- what may stand in a transaction

    def _plain(self, conn: Any) -> list[Added]:
        return [self._add(conn, self._draw.choice(KEYS))]

    def _several(self, conn: Any) -> list[Added]:
        key = self._draw.choice(KEYS)
        return [self._add(conn, key) for _ in range(self._draw.randrange(2, 12))]

    def _many_keys(self, conn: Any) -> list[Added]:
        """In the keys' own order: two writers would else wait for each other for ever."""
        return [self._add(conn, key) for key in sorted(self._draw.sample(KEYS, 4)) for _ in range(2)]

    def _rolled_back(self, conn: Any) -> list[Added]:
        raise Undo([*self._several(conn), *self._without_key(conn)])

    def _savepoint(self, conn: Any) -> list[Added]:
        """Messages of a savepoint that is rolled back never existed; their numbers are taken again."""
        first, second = sorted(self._draw.sample(KEYS, 2))
        before = self._add(conn, first)
        conn.execute("SAVEPOINT here")
        undone = [self._add(conn, second), self._add(conn, second)]
        conn.execute("ROLLBACK TO SAVEPOINT here")
        self._note_failed(self._next_name(), undone)
        return [before, self._add(conn, second)]

    def _early(self, conn: Any) -> list[Added]:
        """A transaction id far older than the message."""
        conn.execute(self._sql["draw"])
        self._linger()
        return self._several(conn)

    def _held(self, conn: Any) -> list[Added]:
        """An id far older than its commit."""
        added = self._several(conn)
        self._linger()
        return added

    def _linger(self) -> None:
        # SQLite's one write lock is everybody's: a long wait there tests only the others' patience.
        longest = self._manners.held / 10 if is_sqlite(self._url) else self._manners.held
        self._clock.sleep(self._draw.uniform(0, longest))

    def _without_key(self, conn: Any) -> list[Added]:
        return [self._add(conn, None) for _ in range(3)]

    def _delayed(self, conn: Any) -> list[Added]:
        due = self._clock.now() + timedelta(seconds=self._draw.uniform(0.1, 1.0))
        return [self._add(conn, self._draw.choice(KEYS), deliver_at=due)._replace(delayed=True)]

    def _unrouted(self, conn: Any) -> list[Added]:
        return [self._add(conn, None, aggregate=UNROUTED)]

    def _poison(self, conn: Any) -> list[Added]:
        key = self._draw.choice(KEYS)
        poison = self._add(conn, key, topic=self._manners.poison_topic, size=self._manners.poison_bytes)
        return [poison, self._add(conn, key)]

    def _add(self, conn: Any, key: str | None, *, aggregate: str = AGGREGATE, size: int = 0, **more: Any) -> Added:
        n = 0 if key is None or "deliver_at" in more else self._count(conn, key)
        payload = json.dumps({"n": n, "by": self._name, "fill": self._draw.randbytes(size // 2).hex()}).encode()
        if key is not None and not more and self._draw.random() < 0.3:
            id = self._by_hand(conn, key, payload)
        else:
            named = NO_KEY if key is None else key
            id = str(self._outbox.add(conn, aggregate=aggregate, key=named, type="order.paid", payload=payload, **more))
        conn.execute(self._sql["do"], (id,))
        return Added(id, key, n, "", digest(payload))

    def _by_hand(self, conn: Any, key: str, payload: bytes) -> str:
        id = uuid.UUID(bytes=self._draw.randbytes(16), version=4)
        given = id.bytes if is_sqlite(self._url) else id
        conn.execute(self._sql["by_hand"], (given, key, AGGREGATE, "order.paid", payload))
        return str(id)

    def _count(self, conn: Any, key: str) -> int:
        conn.execute(self._sql["count_up"], (key,))
        ((n,),) = conn.execute(self._sql["number"], (key,))
        return int(n)
