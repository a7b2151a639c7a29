"""Unique keys when several transactions want the same one at once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import pytest

from devtools.servers import process
from devtools.servers.postgres import SharedPostgres
from pillarbox import DuplicateMessage, Outbox
from tests.integration.callers import ORDER
from tests.integration.logs import ask, installed_postgres, logged

outbox = Outbox()


@pytest.fixture(scope="module")
def url(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


def blocked(url: str) -> bool:
    return ask(url, "SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)]


@pytest.mark.parametrize("told", ["ignore", "raise"])
def test_a_twin_waits_and_learns_the_first_id(url: str, told: str) -> None:
    """The second transaction waits for the first one's commit and then has its id, or is told."""
    key, second = str(uuid4()), []

    def twin() -> None:
        with psycopg.connect(url) as conn:
            try:
                second.append(outbox.add(conn, **ORDER, unique_key=key, on_duplicate=told))  # type: ignore[typeddict-item]
            except DuplicateMessage as error:
                second.append(error)
            outbox.add(conn, **ORDER, key=key)  # the transaction is as good as before

    with psycopg.connect(url) as conn:
        first = outbox.add(conn, **ORDER, unique_key=key)
        thread = threading.Thread(target=twin)
        thread.start()
        process.wait_until(lambda: blocked(url), seconds=10, what="the twin waits")
    thread.join(10)
    assert second == [first] if told == "ignore" else isinstance(second[0], DuplicateMessage)
    assert len(logged(url, first)) == 1
    assert ask(url, f"SELECT count(*) FROM pillarbox.message WHERE key = '{key}'") == [(1,)]


def test_a_twin_of_a_rolled_back_one_is_the_first(url: str) -> None:
    """If the first rolls back, the one that waited adds its own."""
    key, second = str(uuid4()), []

    def twin() -> None:
        with psycopg.connect(url) as conn:
            second.append(outbox.add(conn, **ORDER, unique_key=key))

    with psycopg.connect(url) as conn:
        first = outbox.add(conn, **ORDER, unique_key=key)
        thread = threading.Thread(target=twin)
        thread.start()
        process.wait_until(lambda: blocked(url), seconds=10, what="the twin waits")
        conn.rollback()
    thread.join(10)
    assert second != [first]
    assert len(logged(url, *second)) == 1


def test_batches_in_any_order_do_not_lock_each_other_out(url: str) -> None:
    """Eight writers add the same keys in different orders: no deadlock, every key once, all agree on its id."""
    keys = [f"{uuid4()}" for _ in range(60)]

    def write(n: int) -> dict[str, UUID]:
        mine = keys[n * 7 :] + keys[: n * 7]
        with psycopg.connect(url) as conn:
            idents = outbox.add_many(conn, [{**ORDER, "unique_key": key} for key in (mine[::-1] if n % 2 else mine)])
        return dict(zip(mine[::-1] if n % 2 else mine, idents, strict=True))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert len(logged(url, *answers[0].values())) == 60


def test_a_thousand_messages_are_one_statement(url: str) -> None:
    """However many, they are sent at once: all rows of the batch were written by one command."""
    with psycopg.connect(url) as conn:
        outbox.add_many(conn, [{**ORDER, "key": n} for n in range(1000)])
        found = conn.execute(
            "SELECT count(*), count(DISTINCT cmin::text) FROM pillarbox.message"
            " WHERE xid = pg_current_xact_id_if_assigned()"
        ).fetchone()
    assert found == (1000, 1)
