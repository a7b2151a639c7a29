"""Databases that are restored, cloned, upgraded and failed over, with PostgreSQL's own tools: what the runbook says."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from devtools.servers import process
from devtools.servers.postgres import Postgres
from pillarbox import Outbox
from tests.acceptance.command import Command, configured, lines_of, until

pytestmark = [pytest.mark.slow, pytest.mark.serial]
Start = Callable[..., Postgres]


def tool(server: Postgres, name: str, *words: object, password: str = "") -> None:
    """One of the programs that come with the server, as the server's user."""
    program = server.bin / name
    if not program.exists():
        pytest.skip(f"no {name}: it comes with Debian's postgresql-15")
    env = {**server.environment(), "PGPASSWORD": password}
    done = subprocess.run(
        [str(word) for word in (program, *words)], capture_output=True, text=True, timeout=150, check=False,
        cwd=server.folder, env=env, **({"user": server.user, "group": server.user, "extra_groups": []} if server.user else {}),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def add(url: str, *numbers: int) -> None:
    with psycopg.connect(url) as conn:
        for n in numbers:
            Outbox().add(conn, aggregate="order", key="k", type="order.created", payload={"n": n})


def numbers(pillarbox: Command) -> list[int]:
    return [line["payload"]["n"] for line in lines_of(pillarbox.folder / "messages.jsonl")]


def point_at(pillarbox: Command, url: str, more: str = "") -> None:
    """The same folder, another database."""
    said = {word: value for word, value in pillarbox.environ.items() if word != "SHOP_URL"}
    pillarbox.environ = {**said, "SHOP_URL": url}
    path = pillarbox.folder / "pillarbox.toml"
    path.write_text(path.read_text().replace("[relay]", f"{more}\n[relay]"))


def password_of(url: str) -> str:
    return str(urlsplit(url).password)


@pytest.fixture
def first(private_postgres: Start) -> Iterator[Postgres]:
    return private_postgres()


@pytest.fixture
def shop(tmp_path: Path, first: Postgres) -> Command:
    """Three messages delivered, two not yet."""
    url = first.url_of("postgres")
    pillarbox = configured(tmp_path, "${SHOP_URL}", {"SHOP_URL": url})
    pillarbox("migrate", "up")
    add(url, 1, 2, 3)
    pillarbox("run", "--until-idle")
    add(url, 4, 5)
    return pillarbox


def stands_still(pillarbox: Command) -> None:
    """Nobody takes a lane, and both status and health say what to do."""
    before = numbers(pillarbox)
    with pillarbox.running("run") as relay:
        until(lambda: "adopt" in pillarbox("status", "--sample", "0").stdout, "status names the cure")
        pillarbox("health", code=1)
        _code, said = relay.terminate()
    assert "adopt" in said
    assert numbers(pillarbox) == before


def test_a_dump_restored_into_another_cluster(shop: Command, first: Postgres, private_postgres: Start) -> None:
    """Nothing is delivered before adopt --from unread; then what the dump had not settled arrives, and what is new."""
    late = psycopg.connect(first.url)
    Outbox().add(late, aggregate="order", key="k", type="order.created", payload={"n": 6})
    add(first.url, 7)
    shop("run", "--until-idle")
    late.commit()  # below the cursors by now, and not read
    late.close()
    assert numbers(shop) == [1, 2, 3, 4, 5, 7]
    dump = first.folder / "shop.dump"
    add(first.url, 9)
    tool(first, "pg_dump", "--format=custom", f"--file={dump}", "--schema=pillarbox", first.url)
    shop("run", "--until-idle")  # delivers 9 after the dump was taken: it will come again
    second = private_postgres()
    tool(second, "pg_restore", f"--dbname={second.url}", dump)
    point_at(shop, second.url)
    stands_still(shop)
    counts = shop.json("adopt", "--from", "unread", "--dry-run")["counts"]
    assert counts == {"unread by all, to be delivered": 1, "unread below a cursor, to be delivered from hold": 1}
    shop("adopt", "--from", "unread", "--yes", "--why", "restored the night's dump")
    add(second.url, 8)
    shop("run", "--until-idle")
    assert sorted(numbers(shop)) == [1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 9]
    shop("health")


def test_a_clone_of_production_delivers_nothing_by_itself(shop: Command, first: Postgres) -> None:
    """Started as staging it stands still; adopted from now on it delivers only what is new in it."""
    with psycopg.connect(first.url_of("template1"), autocommit=True) as admin:
        admin.execute("CREATE DATABASE staging TEMPLATE postgres")
    clone = first.url_of("staging")
    path = shop.folder / "pillarbox.toml"
    path.write_text(path.read_text().replace("[relay]", 'environment = "staging"\n[relay]'))
    shop.environ["SHOP_URL"] = clone
    stands_still(shop)
    counts = shop.json("adopt", "--from", "now", "--yes")["counts"]
    assert counts["unread by all, never to be delivered"] == 2
    add(clone, 100)
    shop("run", "--until-idle")
    assert numbers(shop) == [1, 2, 3, 100]


def test_a_cluster_moved_by_pg_upgrade(shop: Command, first: Postgres, private_folder: Path) -> None:
    """Transaction ids live on, so adopt --from cursor goes on where the cursors stood; nothing comes twice."""
    folder = private_folder / "upgraded"
    folder.mkdir(mode=0o755)
    process.give_to(first.user, folder)
    words = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "--no-sync"]
    tool(first, "initdb", "--pgdata", folder / "data", *words)
    (first.data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    first.stop()
    upgrade = ["--old-datadir", first.data, "--new-datadir", folder / "data", "--old-bindir", first.bin]
    tool(first, "pg_upgrade", *upgrade, "--new-bindir", first.bin, "--username=postgres", f"--socketdir={first.folder}")
    second = Postgres(folder, first.bin, first.version, process.free_port(), "unused", ours=False)
    second.configure({"port": second.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""})
    process.give_to(second.user, folder)
    second.start_again()
    try:
        point_at(shop, second.url)
        stands_still(shop)
        shop("adopt", "--from", "cursor", "--yes", "--why", "pg_upgrade")
        add(second.url, 6)
        shop("run", "--until-idle")
        assert numbers(shop) == [1, 2, 3, 4, 5, 6]
    finally:
        second.stop("immediate")


def test_a_promoted_standby_goes_on_by_itself(shop: Command, first: Postgres, private_folder: Path) -> None:
    """With both hosts in the URL a running relay goes over to the promoted standby; no operator is needed."""
    folder = private_folder / "standby"
    folder.mkdir(mode=0o755)
    process.give_to(first.user, folder)
    admin: dict[str, Any] = {"password": password_of(first.url)}
    tool(first, "pg_basebackup", "--pgdata", folder / "data", "--write-recovery-conf", f"--dbname={first.url}", **admin)
    standby = Postgres(folder, first.bin, first.version, process.free_port(), password_of(first.url), ours=False)
    standby.configure({"port": standby.port})
    process.give_to(standby.user, folder)
    standby.start_again()
    both = first.url.replace(f":{first.port}/", f":{first.port},127.0.0.1:{standby.port}/")
    try:
        point_at(shop, both)
        with shop.running("run"):
            until(lambda: numbers(shop) == [1, 2, 3, 4, 5], "what was left")
            with psycopg.connect(standby.url, autocommit=True) as there, psycopg.connect(first.url) as here:
                end = here.execute("SELECT pg_current_wal_lsn()").fetchone()
                until(lambda: _replayed(there, end), "the standby has it all")
            first.kill()
            with psycopg.connect(standby.url, autocommit=True) as there:
                there.execute("SELECT pg_promote()")
            add(standby.url, 6)
            until(lambda: 6 in numbers(shop), "delivered by the promoted standby")
        assert set(numbers(shop)) == {1, 2, 3, 4, 5, 6}
    finally:
        standby.stop("immediate")


def _replayed(there: psycopg.Connection[Any], end: Any) -> bool:
    row = there.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", end).fetchone()
    return bool(row and row[0])
