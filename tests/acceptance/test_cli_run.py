"""`migrate`, `run` and `upkeep` as real processes, from a database to a file."""

import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo

from pillarbox import Outbox
from tests.acceptance.command import Command, configured, free_port, get, lines_of, until

Add = Callable[[int], None]


def _adds(conn: Any) -> Add:
    outbox = Outbox()
    total = 0

    def add(count: int) -> None:
        nonlocal total
        for n in range(total, total + count):
            outbox.add(conn, aggregate="order", key=f"k{n % 7}", type="order.created", payload={"n": n})
        conn.commit()
        total += count

    return add


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[tuple[Command, Add]]:
    pillarbox = configured(tmp_path, "sqlite:///shop.db")
    pillarbox("migrate", "up")
    conn = sqlite3.connect(tmp_path / "shop.db", timeout=10)
    yield pillarbox, _adds(conn)
    conn.close()


@pytest.fixture
def postgres_shop(tmp_path: Path, pg_url: str) -> Iterator[tuple[Command, Add]]:
    folder = tmp_path / "postgres"
    folder.mkdir()
    password = conninfo.conninfo_to_dict(pg_url)["password"]
    (folder / "password").write_text(f"{password}\n")
    wrong = pg_url.replace(f":{password}@", ":wrong@")  # [database] password overrides it
    pillarbox = configured(folder, "${SHOP_URL}", {"SHOP_URL": wrong, "PILLARBOX_DATABASE__PASSWORD": "file:password"})
    pillarbox("migrate", "up")
    with psycopg.connect(pg_url) as conn:
        yield pillarbox, _adds(conn)


def numbers(pillarbox: Command) -> list[int]:
    return [line["payload"]["n"] for line in lines_of(pillarbox.folder / "messages.jsonl")]


def delivers(pillarbox: Command, add: Add) -> None:
    add(300)
    assert pillarbox.json("run", "--until-idle") == {"delivered": 300}
    assert sorted(numbers(pillarbox)) == list(range(300))
    assert pillarbox.json("run", "--once") == {"delivered": 0}
    add(2)
    assert pillarbox.json("run", "--once") == {"delivered": 2}


def test_until_idle_from_sqlite(sqlite: tuple[Command, Add]) -> None:
    """What was added is in the file, once, and a second run delivers nothing again."""
    delivers(*sqlite)


def test_until_idle_from_postgres(postgres_shop: tuple[Command, Add]) -> None:
    """What was added is in the file, once, and a second run delivers nothing again."""
    delivers(*postgres_shop)


def drains(pillarbox: Command, add: Add) -> None:
    with pillarbox.running("run") as relay:
        add(50)
        until(lambda: len(numbers(pillarbox)) == 50, "50 messages in the file")
        code, said = relay.terminate()
    assert code == 0, said
    assert "stopped delivered=50" in said
    assert pillarbox.json("run", "--until-idle") == {"delivered": 0}


def test_sigterm_drains_sqlite(sqlite: tuple[Command, Add]) -> None:
    """SIGTERM settles what was delivered, ends with 0, and nothing is delivered again."""
    drains(*sqlite)


def test_sigterm_drains_postgres(postgres_shop: tuple[Command, Add]) -> None:
    """SIGTERM settles what was delivered, ends with 0, and nothing is delivered again."""
    drains(*postgres_shop)


def takes_over(pillarbox: Command, add: Add) -> None:
    with pillarbox.running("run") as relay:
        add(5)
        until(lambda: len(numbers(pillarbox)) == 5, "5 messages in the file")
        os.kill(relay.process.pid, signal.SIGKILL)
        relay.process.wait()
    add(5)
    pillarbox("run", "--until-idle")
    assert set(numbers(pillarbox)) == set(range(10))


def test_until_idle_waits_for_a_dead_relay_sqlite(sqlite: tuple[Command, Add]) -> None:
    """Lanes of a relay that was killed are taken over when its lease has ended, and what it left is delivered."""
    takes_over(*sqlite)


def test_until_idle_waits_for_a_dead_relay_postgres(postgres_shop: tuple[Command, Add]) -> None:
    """Lanes of a relay that was killed are taken over when its lease has ended, and what it left is delivered."""
    takes_over(*postgres_shop)


def test_a_second_signal_ends_at_once(sqlite: tuple[Command, Add], tmp_path: Path) -> None:
    """Whoever cannot wait for the drain says so twice."""
    pillarbox, add = sqlite
    (tmp_path / "stuck.py").write_text("import time\ndef forever(message):\n    time.sleep(600)\n")
    text = (tmp_path / "pillarbox.toml").read_text()
    text = text.replace('kind = "file"\npath = "messages.jsonl"', 'kind = "python"\ncallable = "stuck:forever"')
    (tmp_path / "pillarbox.toml").write_text(text.replace("[relay]", "[relay]\ngrace = 600\nsend_timeout = 600"))
    port = free_port()
    with pillarbox.running("run", "--listen", f"127.0.0.1:{port}") as relay:
        add(1)
        until(lambda: 'pillarbox_in_flight{route="all",sink="out"} 1.0' in get(port, "/metrics")[1], "one in flight")
        relay.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            relay.process.wait(timeout=1)
        relay.process.send_signal(signal.SIGTERM)
        assert relay.process.wait(timeout=10) == 128 + signal.SIGTERM


def test_probes_and_metrics(postgres_shop: tuple[Command, Add]) -> None:
    """A running relay answers on its port: it lives, is ready, the installation is healthy, and the counters count."""
    pillarbox, add = postgres_shop
    port = free_port()
    with pillarbox.running("run", "--listen", f"127.0.0.1:{port}") as relay:
        until(lambda: get(port, "/readyz")[0] == 200, "ready")
        add(20)
        until(lambda: 'pillarbox_delivered_total{route="all",sink="out"} 20.0' in get(port, "/metrics")[1], "delivered")
        assert get(port, "/livez")[0] == get(port, "/healthz")[0] == 200
        text = get(port, "/metrics")[1]
        for name in ("lanes_owned", "oldest_undelivered_seconds", "held", "dead"):
            assert f'pillarbox_{name}{{route="all"}}' in text
        for name in ("unrouted", "log_bytes", "segments_ahead", "oldest_transaction_seconds", "build_info"):
            assert f"\npillarbox_{name}" in text
        assert relay.terminate()[0] == 0


def test_a_database_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """A relay whose database is not there lives, is not ready and says why, and ends when asked to."""
    port = free_port()
    pillarbox = configured(tmp_path, f"postgresql://app:canary-7f3a@127.0.0.1:{free_port()}/shop")
    with pillarbox.running("run", "--listen", f"127.0.0.1:{port}") as relay:
        until(lambda: "PostgreSQL cannot be reached" in get(port, "/readyz")[1], "the reason on /readyz")
        assert get(port, "/readyz")[0] == 503
        assert get(port, "/livez")[0] == 200
        assert get(port, "/healthz")[0] == 503
        code, said = relay.terminate()
    assert code == 0
    assert "canary-7f3a" not in said


def test_a_taken_port_does_not_end_a_relay(sqlite: tuple[Command, Add]) -> None:
    """Two relays with one port: the second says so and works."""
    pillarbox, add = sqlite
    port = free_port()
    with pillarbox.running("run", "--listen", f"127.0.0.1:{port}") as first:
        until(lambda: get(port, "/livez")[0] == 200, "the first listens")
        with pillarbox.running("run", "--listen", f"127.0.0.1:{port}") as second:
            assert second.process.stdout
            assert "port_taken" in second.process.stdout.readline()
            add(1)
            until(lambda: numbers(pillarbox) == [0], "delivered")
            assert second.terminate()[0] == 0
        assert first.terminate()[0] == 0


def test_a_new_route_must_say_where_it_starts(sqlite: tuple[Command, Add], tmp_path: Path) -> None:
    """Beside stored routes a new one without `start` stays off, with a sentence; the others go on."""
    pillarbox, add = sqlite
    add(3)
    pillarbox("run", "--once")
    renamed = (tmp_path / "pillarbox.toml").read_text().replace("[routes.all]", "[routes.every]")
    (tmp_path / "pillarbox.toml").write_text(renamed)
    said = pillarbox("run", "--once").stderr
    assert "route_idle route=every" in said
    assert "it would send at most 3 messages" in said
    assert "pillarbox route rename all every" in said
    assert len(numbers(pillarbox)) == 3
    (tmp_path / "pillarbox.toml").write_text(renamed + 'start = "beginning"\n')
    assert pillarbox.json("run", "--once") == {"delivered": 3}


def test_a_file_that_differs_is_told(sqlite: tuple[Command, Add], tmp_path: Path) -> None:
    """The stored definition is executed; a file that says otherwise is a warning."""
    pillarbox, add = sqlite
    pillarbox("run", "--once")
    with (tmp_path / "pillarbox.toml").open("a") as file:
        file.write('topic = "elsewhere"\n')
    add(1)
    assert "warned reason=route_differs" in pillarbox("run", "--once").stderr
    assert [line["topic"] for line in lines_of(tmp_path / "messages.jsonl")] == ["order"]
    port = free_port()
    with pillarbox.running("run", "--listen", f"127.0.0.1:{port}") as relay:
        warned = 'pillarbox_warning{reason="route_differs"}'
        until(lambda: f"{warned} 1.0" in get(port, "/metrics")[1], "the warning")
        pillarbox("route", "apply", "--yes")
        until(lambda: f"{warned} 0.0" in get(port, "/metrics")[1], "the warning's end")
        assert relay.terminate()[0] == 0


def test_another_environment_delivers_nothing(sqlite: tuple[Command, Add]) -> None:
    """A clone that is started under another name waits, and says why."""
    pillarbox, add = sqlite
    add(1)
    port = free_port()
    set_to = ("--set", "database.environment=staging", "--listen", f"127.0.0.1:{port}")
    with pillarbox.running("run", *set_to) as relay:
        until(lambda: "identity_differs" in get(port, "/readyz")[1], "the reason on /readyz")
        assert get(port, "/readyz")[0] == 503
        assert relay.terminate()[0] == 0
    assert numbers(pillarbox) == []


def test_another_environment_ends_a_command(sqlite: tuple[Command, Add], postgres_shop: tuple[Command, Add]) -> None:
    """With --once and --until-idle nobody is there to wait for: the command says why, and ends with 4."""
    for pillarbox, add in (sqlite, postgres_shop):
        add(1)
        for how in ("--once", "--until-idle"):
            said = pillarbox("run", how, "--set", "database.environment=staging", code=4).stderr
            assert "pillarbox adopt" in said


def test_migrate_is_safe_to_repeat(sqlite: tuple[Command, Add], postgres_shop: tuple[Command, Add]) -> None:
    """A second `migrate up` applies nothing, and the check finds nothing."""
    for pillarbox, _ in (sqlite, postgres_shop):
        assert pillarbox.json("migrate", "up")["applied"] == []
        assert pillarbox.json("migrate", "up", "--dry-run")["applied"] == []
        assert pillarbox.json("migrate", "check") == []
        assert "CREATE TABLE" in pillarbox("migrate", "sql").stdout


def test_upkeep_says_what_it_did(postgres_shop: tuple[Command, Add], sqlite: tuple[Command, Add]) -> None:
    """`upkeep --json` tells what was made ahead, rolled, dropped and expired."""
    for pillarbox, _ in (postgres_shop, sqlite):
        assert pillarbox.json("upkeep") == {"attached": 0, "rolled": False, "dropped": [], "expired": 0}


def test_cron_is_not_kept_waiting(pillarbox_nowhere: Command) -> None:
    """With --once a database that is away is an error at once, with its own exit code."""
    done = pillarbox_nowhere("run", "--once", code=4)
    assert "PostgreSQL cannot be reached" in done.stderr


@pytest.fixture
def pillarbox_nowhere(tmp_path: Path) -> Command:
    return configured(tmp_path, f"postgresql://app@127.0.0.1:{free_port()}/shop")


def test_a_sink_that_is_away_is_an_exit_code(sqlite: tuple[Command, Add]) -> None:
    """With --until-idle and a sink that takes nothing the command ends, with 1, and loses nothing."""
    pillarbox, add = sqlite
    add(1)
    (pillarbox.folder / "messages.jsonl").mkdir()
    assert "sink_down" in pillarbox("run", "--until-idle", code=1).stderr
    (pillarbox.folder / "messages.jsonl").rmdir()
    assert pillarbox.json("run", "--until-idle") == {"delivered": 1}


def test_through_a_pooler(tmp_path: Path, pg_url: str, pgbouncer: Any) -> None:
    """Through PgBouncer messages get on; that retention stands still without a direct connection is a metric."""
    port = free_port()
    environ = {"DIRECT": pg_url, "POOLED": pgbouncer.through(pg_url)}
    pillarbox = configured(tmp_path, "${POOLED}", environ)
    pillarbox("migrate", "up", "--set", "database.url=${DIRECT}")
    with psycopg.connect(pg_url) as conn, pillarbox.running("run", "--listen", f"127.0.0.1:{port}") as relay:
        _adds(conn)(10)
        until(lambda: len(numbers(pillarbox)) == 10, "10 messages through the pooler")
        warned = 'pillarbox_warning{reason="no_maintenance_connection"} 1.0'
        until(lambda: warned in get(port, "/metrics")[1], "the warning")
        assert get(port, "/readyz")[0] == 200
        assert relay.terminate()[0] == 0
    direct = pillarbox.json("upkeep", "--set", "database.maintenance_url=${DIRECT}")
    assert direct["dropped"] == []
    assert "maintenance_url" in pillarbox("upkeep", code=4).stderr
