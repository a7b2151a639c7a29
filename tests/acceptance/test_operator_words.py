"""A day of an operator, with the real command and real relays, on both databases: poison, blocked keys, unrouted, pauses."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pillarbox import Outbox
from tests.acceptance.command import Command, lines_of, until

SHOP = """
import json
import time
from pathlib import Path
from pillarbox.errors import Reject

def deliver(message):
    what = json.loads(message.payload or b'{"n": "blank"}')
    if Path("away").exists():
        raise ConnectionError("the shop is closed")
    while Path("frozen").exists():
        time.sleep(0.02)
    if what.get("poison") and not Path("healed").exists():
        raise Reject("the shop cannot read this")
    with open("messages.jsonl", "a") as file:
        file.write(json.dumps({"n": what["n"], "generation": int(dict(message.headers).get("generation", 0))}) + "\\n")
"""
CONFIG = """
[database]
url = "{url}"
environment = "test"
[relay]
listen = "off"
lease = 1
attempts = 2
backoff_max = "10ms"
[sinks.out]
kind = "python"
callable = "shop:deliver"
[routes.all]
sink = "out"
after_last_attempt = "{after}"
match = {{ aggregate = ["order*"] }}
"""


class Shop:
    """The command, and a connection that adds."""

    def __init__(self, folder: Path, url: str, conn: Any, after: str = "bury") -> None:
        (folder / "shop.py").write_text(SHOP)
        (folder / "pillarbox.toml").write_text(CONFIG.format(url=url, after=after))
        self.folder, self.command, self.conn = folder, Command(folder, PILLARBOX_OPERATOR="ann"), conn
        self.command("migrate", "up")

    def add(self, n: int, key: str = "k", *, poison: bool = False, aggregate: str = "order", **more: Any) -> str:
        payload = {"n": n, "poison": poison}
        id = Outbox().add(self.conn, aggregate=aggregate, key=key, type="order.created", payload=payload, **more)
        self.conn.commit()
        return str(id)

    def run(self) -> None:
        self.command("run", "--until-idle")

    def delivered(self) -> list[tuple[int, int]]:
        return [(line["n"], line["generation"]) for line in lines_of(self.folder / "messages.jsonl")]

    def explained(self, id: str) -> str:
        routes = self.command.json("explain", id)[0]["routes"]
        return " ".join(route["sentence"] for route in routes)

    def heal(self) -> None:
        (self.folder / "healed").touch()

    def rewrite(self, old: str, new: str) -> None:
        path = self.folder / "pillarbox.toml"
        path.write_text(path.read_text().replace(old, new))


Open = Callable[..., Shop]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    conns: list[Any] = []

    def shop(**wishes: str) -> Shop:
        if request.param == "sqlite":
            url = "sqlite:///shop.db"
            conns.append(sqlite3.connect(tmp_path / "shop.db", timeout=10))
        else:
            url = request.getfixturevalue("pg_url")
            conns.append(psycopg.connect(url))
        return Shop(tmp_path, url, conns[-1], **wishes)

    yield shop
    for conn in conns:
        conn.close()


def test_a_poison_message_is_buried_explained_and_replayed(opened: Open) -> None:
    """Its key goes on; dead list shows it with its error; a replay delivers it once more as generation 1."""
    shop = opened()
    poison = shop.add(1, poison=True)
    shop.add(2)
    shop.run()
    assert shop.delivered() == [(2, 0)]
    [dead] = shop.command.json("dead", "list")
    assert (dead["id"], dead["attempts"], dead["route"]) == (poison, 2, "all")
    assert "the shop cannot read this" in dead["error"]
    assert "given up" in shop.explained(poison)
    assert "refused twice" in shop.explained(poison)
    assert shop.command.json("health")["dead"] == 1
    assert shop.command.json("status", "--sample", "0")["routes"][0]["dead"] == 1
    shop.heal()
    answer = shop.command.json("dead", "replay", "--error", "cannot read", "--yes", "--why", "shop fixed")
    assert len(answer["changed"]) == 1
    assert "Replay 1 is under way" in shop.explained(poison)
    shop.run()
    assert shop.delivered() == [(2, 0), (1, 1)]
    assert shop.command.json("dead", "list") == []


def test_a_blocked_key_waits_for_a_person(opened: Open) -> None:
    """after_last_attempt = block: what is behind waits and says for what; skip lets it go, and is final."""
    shop = opened(after="block")
    poison, waiting = shop.add(1, poison=True), shop.add(2)
    other = shop.add(3, key="else")
    shop.run()
    assert shop.delivered() == [(3, 0)]
    held = shop.command.json("held", "list")
    assert [(row["id"], row["state"]) for row in held if row["state"] == "blocked"] == [(poison, "blocked")]
    assert f"waits behind order.created {poison}" in shop.explained(waiting)
    assert "blocked until a person decides" in shop.explained(waiting)
    assert "delivered" in shop.explained(other)
    chain = shop.command.json("explain", "--key", "k")
    assert [one["id"] for one in chain] == [poison, waiting]
    assert shop.command.json("held", "skip", "--key", "k", "--dry-run")["would_change"][0]["id"] == poison
    shop.command("held", "skip", poison, code=5)  # nobody said yes
    shop.command("held", "skip", poison, "--yes")
    shop.heal()
    shop.run()
    assert shop.delivered() == [(3, 0), (2, 0)]
    assert "skipped by an operator" in shop.explained(poison)


def test_a_retry_gives_a_blocked_message_its_attempts_back(opened: Open) -> None:
    """held retry sends the head again, and then what waits behind it, in order."""
    shop = opened(after="block")
    shop.add(1, poison=True)
    shop.add(2)
    shop.run()
    shop.heal()
    shop.command("held", "retry", "--route", "all", "--yes")
    shop.run()
    assert shop.delivered() == [(1, 0), (2, 0)]
    assert shop.command.json("held", "list") == []


def test_an_outage_buries_nothing_and_ends_by_itself(opened: Open) -> None:
    """While the sink is away nothing is held or dead and no attempt is counted; health tells by the age; then it goes on."""
    shop = opened()
    (shop.folder / "away").touch()
    ids = [shop.add(n) for n in range(3)]
    with shop.command.running("run"):
        until(lambda: "on its way" in shop.explained(ids[0]), "a relay owns the lane")
        time.sleep(1)
        assert shop.command.json("held", "list") == shop.command.json("dead", "list") == []
        assert "waits since" in str(shop.command.json("health", "--max-age", "0.5", code=1)["reasons"])
        (shop.folder / "away").unlink()
        until(lambda: len(shop.delivered()) == 3, "delivered without anybody's help")
    assert shop.delivered() == [(0, 0), (1, 0), (2, 0)]


def test_a_running_relay_notices_an_operator(opened: Open) -> None:
    """skip takes effect in a relay that is running, within its ticks, and without losing what waits behind."""
    shop = opened(after="block")
    with shop.command.running("run"):
        poison = shop.add(1, poison=True)
        until(lambda: [r["state"] for r in shop.command.json("held", "list", poison)] == ["blocked"], "blocked")
        shop.add(2)
        shop.command("held", "skip", poison, "--yes")
        until(lambda: shop.delivered() == [(2, 0)], "the next one is delivered")


def test_an_unrouted_message_is_seen_and_sent_by_hand(opened: Open) -> None:
    """A message no route wants is dead and visible; it is replayed to a route that is named."""
    shop = opened()
    id = shop.add(1, aggregate="basket")
    shop.add(2)
    shop.run()
    with shop.command.running("run"):
        until(lambda: shop.command.json("status", "--sample", "0")["unrouted"] == 1, "judged as unrouted")
        assert "No route wants it" in shop.explained(id)
        shop.command("dead", "replay", id, "--yes", code=5)
        shop.command("dead", "replay", id, "--to", "all", "--yes")
        until(lambda: (1, 1) in shop.delivered(), "delivered by hand")
        shop.add(3, aggregate="basket")
        until(lambda: shop.command.json("status", "--sample", "0")["unrouted"] == 1, "judged as unrouted")
    route = '[routes.baskets]\nsink = "out"\nstart = "beginning"\nmatch = { aggregate = ["basket"], type = ["*"] }\n'
    with (shop.folder / "pillarbox.toml").open("a") as file:
        file.write(route)
    assert shop.command.json("route", "apply", "--yes")["applied"] == ["baskets"]
    shop.run()
    assert (3, 0) in shop.delivered()
    assert shop.command.json("status", "--sample", "0")["unrouted"] == 0


def test_a_paused_route_delivers_nothing_until_it_is_resumed(opened: Open) -> None:
    """pause says so in explain and status; resume goes on where it stood."""
    shop = opened()
    shop.add(1)
    shop.run()
    shop.command("route", "pause", "all", "--why", "maintenance")
    id = shop.add(2)
    shop.run()
    assert shop.delivered() == [(1, 0)]
    assert "route is paused" in shop.explained(id)
    assert shop.command.json("status", "--sample", "0")["routes"][0]["state"] == "paused"
    shop.command("route", "resume", "all")
    shop.run()
    assert shop.delivered() == [(1, 0), (2, 0)]


def test_an_erased_message_is_not_delivered(opened: Open) -> None:
    """Neither an unread one nor one that waits behind another; the others of its key are, and ids stay explained."""
    shop = opened(after="block")
    shop.add(1, poison=True)
    waiting = shop.add(2)
    shop.add(3)
    shop.run()
    unread = shop.add(4)
    shop.add(5)
    assert shop.command.json("erase", waiting, unread, "--yes", "--why", "asked to")["erased"] == 2
    assert "erased" in shop.explained(waiting)
    shop.heal()
    shop.command("held", "retry", "--route", "all", "--yes")
    shop.run()
    assert shop.delivered() == [(1, 0), (3, 0), (5, 0)]


def test_what_a_relay_has_read_already_is_erased(opened: Open) -> None:
    """A message that waits in a relay's memory behind one on the wire is not sent once it is erased."""
    shop = opened()
    (shop.folder / "frozen").touch()
    with shop.command.running("run"):
        shop.add(1)
        until(lambda: "on its way" in shop.explained(shop.add(2)), "a relay owns the lane")
        last = shop.add(3)
        unread = [one["id"] for one in shop.command.json("explain", "--key", "k")]
        shop.command("erase", *unread[1:-1], "--yes")
        time.sleep(1.0)  # a tick: relays look again because of the nudge; there is no signal for it to wait for
        (shop.folder / "frozen").unlink()
        until(lambda: "delivered" in shop.explained(last), "the last one is delivered")
    assert shop.delivered() == [(1, 0), (3, 0)]


def test_everything_of_a_key_is_erased(opened: Open) -> None:
    """--aggregate and --key find what was delivered, too; the ids stay."""
    shop = opened()
    ids = [shop.add(n) for n in range(3)]
    other = shop.add(9, key="else")
    shop.run()
    assert shop.command.json("erase", "--aggregate", "order", "--key", "k", "--dry-run")["would_erase"] == ids
    shop.command("erase", "--aggregate", "order", "--key", "k", "--yes")
    shop.command("erase", code=5)
    assert "delivered" in shop.explained(ids[0])
    assert "delivered" in shop.explained(other)


def test_scheduled_messages_are_cancelled(opened: Open) -> None:
    """A delayed message is listed, explained and cancelled; afterwards explain knows that."""
    import datetime as dt

    shop = opened()
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    id = shop.add(1, deliver_at=later)
    assert [row["id"] for row in shop.command.json("scheduled", "list")] == [id]
    assert "scheduled" in shop.command.json("explain", id)[0]["sentence"]
    assert shop.command.json("scheduled", "cancel", id, "--yes")["cancelled"] == [id]
    assert "cancelled by an operator" in shop.command.json("explain", id)[0]["sentence"]


def test_routes_are_applied_renamed_and_removed(opened: Open) -> None:
    """The file proposes, apply switches; a rename sends nothing again; a removal says what it leaves undelivered."""
    shop = opened()
    shop.add(1)
    shop.run()
    shop.rewrite('["order*"]', '["order*", "basket"]')
    assert shop.command.json("route", "list")[0]["file"] == "differs"
    assert "basket" in shop.command("route", "apply", "--dry-run").stdout
    assert shop.command.json("route", "apply", "--yes")["applied"] == ["all"]
    assert shop.command.json("route", "list")[0]["file"] == "same"
    shop.add(2, aggregate="basket")
    shop.run()
    shop.command("route", "rename", "all", "every")
    shop.rewrite("[routes.all]", "[routes.every]")
    shop.run()
    assert shop.delivered() == [(1, 0), (2, 0)]
    shop.add(3)
    assert shop.command.json("route", "remove", "every", "--dry-run")["unread"] == 1
    assert shop.command.json("route", "remove", "every", "--yes")["undelivered"] == 1
    assert shop.command.json("route", "list")[0]["state"] == "not stored"


def test_health_tells_by_its_exit_code(opened: Open) -> None:
    """0 while all is well, 1 when the oldest message is older than it may be, 2 when the database cannot be asked."""
    shop = opened()
    shop.add(1)
    shop.run()
    shop.add(2)
    assert shop.command.json("health")["health"] == "healthy"
    assert "waits since" in str(shop.command.json("health", "--max-age", "0", code=1)["reasons"])
    shop.rewrite("url = ", 'url = "sqlite:///nowhere/x.db" # ')
    assert shop.command.json("health", code=2)["health"] == "unknown"


def test_words_that_miss_say_what_to_do(opened: Open) -> None:
    """Wrong ids, no selection, unknown routes and times end with a sentence and an exit code, never a traceback."""
    shop = opened()
    assert "no message id" in shop.command("explain", "order-17", code=5).stderr
    assert "Give ids or filters" in shop.command("held", "retry", "--yes", code=5).stderr
    assert "route list" in shop.command("route", "pause", "nowhere", code=5).stderr
    for words in (("held", "list"), ("dead", "list"), ("held", "skip", "--yes")):
        assert "route list" in shop.command(*words, "--route", "nowhere", code=5).stderr
    assert "is no time" in shop.command("dead", "list", "--since", "yesterday", code=2).stderr
    assert shop.command.json("explain", "01890000-0000-7000-8000-000000000000", code=1)[0]["place"] == "nowhere"
    plain = shop.command("status", "--sample", "0").stdout
    assert plain.startswith("oldest undelivered: none")
    assert "\x1b" not in plain
    json.loads(shop.command("dead", "list", "--json").stdout)


def test_a_hostile_key_steers_no_terminal(opened: Open) -> None:
    """Escape sequences in keys come out escaped, in lists and sentences; JSON carries them as they are."""
    shop = opened()
    key = "a\x1b[2Jb\u202ec"
    id = shop.add(1, key=key, poison=True)
    shop.run()
    for said in (shop.command("dead", "list"), shop.command("explain", id), shop.command("explain", "--key", key)):
        assert not set("\x1b\u202e") & set(said.stdout)
    assert shop.command.json("dead", "list")[0]["key"] == key
