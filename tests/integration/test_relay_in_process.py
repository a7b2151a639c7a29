"""`Relay` and `AsyncRelay` in one's own program: a thread, no signal handlers, no port, errors from `stop()`."""

import asyncio
import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pillarbox import AsyncRelay, Config, ConfigError, NotInstalled, Outbox, Relay, events
from pillarbox.clock import SystemClock
from pillarbox.events import Event
from pillarbox.wiring import Watch, storage_of
from tests.acceptance.command import until

Add = Callable[[int], None]


class Shop:
    """A database file, a configuration whose sink is a list, and a way to add."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self.got: list[Any] = []
        self.url = f"sqlite:///{folder / 'shop.db'}"
        sink = {"kind": "python", "callable": lambda message: self.got.append(message.payload)}
        self.config = Config.model_validate(
            {
                "database": {"url": self.url},
                "relay": {"lease": 1},
                "sinks": {"out": sink},
                "routes": {"all": {"sink": "out"}},
                **sections,
            }
        )
        storage_of(self.config).migrate(lanes=1, dry_run=False)
        self.path = folder / "shop.db"

    def add(self, count: int) -> None:
        conn = sqlite3.connect(self.path, timeout=10)
        outbox = Outbox()
        for n in range(count):
            outbox.add(conn, aggregate="order", key=str(n), type="order.created", payload={"n": n})
        conn.commit()
        conn.close()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_readiness_tells_why_the_database_is_away_now(pg_url: str) -> None:
    """A closed connection is told first; once the login fails, that is what readiness says."""
    sections = {"sinks": {"out": {"kind": "null"}}, "routes": {"all": {"sink": "out"}}}
    config = Config.model_validate({"database": {"url": pg_url}, **sections})
    storage_of(config).migrate(lanes=1, dry_run=False)
    password = psycopg.conninfo.conninfo_to_dict(pg_url)["password"]
    relay = Relay(config)
    with psycopg.connect(pg_url, autocommit=True) as conn, relay:
        until(lambda: relay.pulse.ready().code == 0, "ready")
        conn.execute("ALTER ROLE CURRENT_USER PASSWORD 'rotated'")
        conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = CURRENT_USER AND pid <> pg_backend_pid()"
        )
        until(lambda: "password authentication failed" in str(relay.pulse.ready()), "the cause")
        assert relay.pulse.ready().code == 1
        conn.execute(psycopg.sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(str(password)))
        until(lambda: relay.pulse.ready().code == 0, "ready again")


def test_as_a_context_manager(shop: Shop) -> None:
    """While the block runs messages are carried on; after it nothing of ours is left running."""
    before = signal.getsignal(signal.SIGTERM)
    with Relay(shop.config) as relay:
        shop.add(3)
        until(lambda: len(shop.got) == 3, "3 messages")
        assert signal.getsignal(signal.SIGTERM) is before
    assert relay.delivered == 3
    assert not [thread.name for thread in threading.enumerate() if thread.name == "pillarbox-relay"]


def test_run_once_says_how_many(shop: Shop) -> None:
    """run_once delivers in the calling thread what there is."""
    shop.add(2)
    assert Relay(shop.config).run_once() == 2
    assert Relay(shop.config).run_once() == 0


def test_a_fatal_error_comes_from_stop(tmp_path: Path) -> None:
    """A relay whose tables are missing ends, and stop() raises why."""
    config = Config.model_validate({"database": {"url": f"sqlite:///{tmp_path / 'none.db'}"}})
    relay = Relay(config)
    relay.start()
    with pytest.raises(NotInstalled):
        relay.stop()


def test_the_callers_error_is_the_one_to_be_seen(tmp_path: Path) -> None:
    """An exception inside the block is not replaced by the relay's own."""
    config = Config.model_validate({"database": {"url": f"sqlite:///{tmp_path / 'none.db'}"}})
    with pytest.raises(ZeroDivisionError), Relay(config):
        raise ZeroDivisionError


def test_a_wrong_sink_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """What only a sink's kind knows to be wrong is a ConfigError with the key path."""
    shop = Shop(tmp_path, sinks={"out": {"kind": "file"}})
    with pytest.raises(ConfigError, match=r"sinks\.out\.path"):
        Relay(shop.config).start()


def test_started_twice_is_refused(shop: Shop) -> None:
    """One relay is one thread."""
    with Relay(shop.config) as relay, pytest.raises(RuntimeError):
        relay.start()


def test_in_asyncio(shop: Shop) -> None:
    """AsyncRelay does the same without blocking the loop."""

    async def serve() -> int:
        async with AsyncRelay(shop.config) as relay:
            await asyncio.to_thread(shop.add, 2)
            while len(shop.got) < 2:
                await asyncio.sleep(0.01)
        shop.add(1)
        assert await AsyncRelay(shop.config).run_once() == 1
        return relay.delivered

    assert asyncio.run(asyncio.wait_for(serve(), 30)) == 2


def test_subscribers_see_the_transitions(shop: Shop) -> None:
    """A program's own subscriber gets every event, from the start to the end."""
    seen: list[Event] = []
    shop.add(1)
    Relay(shop.config, subscribers=(seen.append,)).run_once()
    kinds = [type(event) for event in seen]
    assert kinds.index(events.Started) < kinds.index(events.Delivered) < kinds.index(events.Stopped)


class Broken(SystemClock):
    """A clock that fails once something was delivered: an error of our own, in the middle of the loop."""

    relay: Relay | None = None

    def mono(self) -> float:  # type: ignore[override]
        if self.relay is not None and self.relay.delivered:
            self.relay = None
            raise ZeroDivisionError
        return SystemClock.mono()


def test_what_kills_the_loop_gives_the_lanes_back(shop: Shop) -> None:
    """Whatever ends a relay from within, its lanes are free for the next one at once."""
    shop.add(1)
    clock = Broken()
    relay = clock.relay = Relay(shop.config, clock=clock)
    with pytest.raises(ZeroDivisionError):
        relay.run_once()
    shop.add(1)
    assert Relay(shop.config).run_once() >= 1
    assert len(shop.got) >= 2


def test_a_subscriber_that_fails_harms_nobody(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """A program's own subscriber may fail: that is a line in the log, and the message is delivered."""

    def fails(_event: Event) -> None:
        raise ZeroDivisionError

    shop.add(1)
    assert Relay(shop.config, subscribers=(fails,)).run_once() == 1
    assert "a subscriber failed at Delivered" in caplog.text


def test_a_watch_asks_once_for_many(shop: Shop) -> None:
    """Many scrapes in a row cost the database one look; a database that is away is an answer too."""
    asked: list[int] = []

    def desk() -> Any:
        asked.append(1)
        return storage_of(shop.config).desk()

    relay = Relay(shop.config)
    watch = Watch(desk, relay.clock)
    first = watch.look()
    assert first is not None
    assert watch.look() is first
    watch.close()
    shop.path.unlink()
    assert watch.look(older_than=0) is None
    assert len(asked) == 2
    watch.close()
