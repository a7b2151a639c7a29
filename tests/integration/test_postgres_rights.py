"""The four identities of DESIGN 3: each can do its work and nothing else; nobody is superuser."""

import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

from devtools.servers.postgres import SharedPostgres
from pillarbox.errors import NotPermitted
from pillarbox.storage.postgres import migrate
from pillarbox.storage.postgres.upkeep import PostgresUpkeep
from tests.contract.postgres_harness import PostgresHarness
from tests.integration.test_postgres_settle import HELD, Relay

ADD = "INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES ('k', 'a', 't', 'x')"
DENIED = psycopg.errors.InsufficientPrivilege


class Roles(NamedTuple):
    writer: str
    relay: str
    viewer: str


@pytest.fixture
def roles(postgres: SharedPostgres, pg_url: str) -> Iterator[Roles]:
    """URLs of three plain roles in this test's database."""
    names = [f"{kind}_{secrets.token_hex(4)}" for kind in Roles._fields]
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        for name in names:
            admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
        parts = urlsplit(pg_url)
        yield Roles(*(f"postgresql://{name}:x@{parts.hostname}:{parts.port}{parts.path}" for name in names))
        with psycopg.connect(urlsplit(postgres.url)._replace(path=parts.path).geturl(), autocommit=True) as inside:
            for name in names:
                inside.execute(f"DROP OWNED BY {name}")
                admin.execute(f"DROP ROLE {name}")


@pytest.fixture
def harness(pg_url: str, roles: Roles) -> Iterator[PostgresHarness]:
    made = PostgresHarness(pg_url, relay_url=roles.relay, lanes=4)
    names = {kind: urlsplit(url).username for kind, url in zip(Roles._fields, roles, strict=True)}
    for statement in migrate.grants(**names):
        made.conn.execute(statement)
    yield made
    made.close()


def denied(conn: psycopg.Connection[Any], *statements: str) -> list[str]:
    """Those of the statements that were not refused."""
    done = []
    for statement in statements:
        try:
            conn.execute(statement)
            done.append(statement)
        except DENIED:
            pass
    return done


def test_a_writer_adds_and_does_nothing_else(harness: PostgresHarness, roles: Roles) -> None:
    """It can neither read what others added nor choose an id, a lane or a transaction id."""
    with psycopg.connect(roles.writer, autocommit=True) as writer:
        writer.execute(ADD)
        writer.execute("SELECT pillarbox.add(aggregate => 'a', key => 'k', type => 't', payload => '{}'::jsonb)")
        writer.execute(
            "SELECT pillarbox.add(aggregate => 'a', key => 'k', type => 't', payload => '{}'::jsonb, unique_key => 'u')"
        )
        writer.execute("SELECT id, message_id FROM pillarbox.message")
        assert denied(
            writer,
            "SELECT payload FROM pillarbox.message",
            "SELECT * FROM pillarbox.hold",
            "INSERT INTO pillarbox.message (id, aggregate, type, payload) VALUES (1, 'a', 't', '')",
            "INSERT INTO pillarbox.message (xid, aggregate, type, payload) VALUES ('3', 'a', 't', '')",
            "UPDATE pillarbox.message SET payload = ''",
            "DELETE FROM pillarbox.message",
            "SELECT setval('pillarbox.message_id_seq', 1)",
            "UPDATE pillarbox.lane SET term = 9",
            "CREATE TABLE pillarbox.x ()",
        ) == []  # fmt: skip
    assert harness.conn.execute("SELECT count(*) FROM pillarbox.message").fetchone() == (3,)


def test_a_relay_does_all_its_work_with_its_own_rights(harness: PostgresHarness) -> None:
    """Join, take, read, settle, load, chores, routes: without owning a table."""
    store = harness.connect()
    harness.store_route("r", {})
    relay = Relay(harness)
    mine = relay.take()
    harness.conn.execute(ADD)
    harness.schedule("later", -1)
    assert store.chores.move_due(10) == 1
    pages = relay.source.read("r", {lane: change.position for lane, change in mine.items()}, 10)
    rows = [row for page in pages for row in page.rows]
    assert len(rows) == 2
    changes = [mine[page.lane]._replace(position=page.after) for page in pages]
    relay.source.settle("r", changes)
    relay.source.settle("r", [changes[0]._replace(added=[HELD._replace(lane=changes[0].lane)])])
    (held,) = relay.leases.load("r", list(mine))
    relay.source.settle("r", [changes[0]._replace(changed=[held])])
    assert len(relay.source.fetch([row[0] for row in rows])) == 2
    assert len(relay.leases.retake(relay.id, [("r", lane) for lane in mine])) == 4
    for _ in range(3):
        store.chores.judge_unrouted(relay.leases.survey().routes, True)
    relay.leases.expel()
    with psycopg.connect(harness.relay_url, autocommit=True) as conn:
        assert denied(
            conn,
            "UPDATE pillarbox.message SET payload = ''",
            "DELETE FROM pillarbox.message",
            "UPDATE pillarbox.segment SET closed_by = '3'",
            "UPDATE pillarbox.installation SET environment = 'x'",
            "DELETE FROM pillarbox.audit",
            "DROP TABLE pillarbox.message_0",
        ) == []  # fmt: skip


def test_upkeep_as_a_relay_says_what_it_needs(harness: PostgresHarness, roles: Roles, postgres: SharedPostgres) -> None:
    """ATTACH, DETACH and DROP need the owner: a member of it acts as it, another role is told so."""
    with pytest.raises(NotPermitted, match="maintenance_url"):
        PostgresUpkeep(harness.database(roles.relay)).attach_ahead()
    owner, relay = urlsplit(harness.url).username, urlsplit(roles.relay).username
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"GRANT {owner} TO {relay}")
    keeper = PostgresUpkeep(harness.database(roles.relay))
    harness.conn.execute(ADD)
    assert keeper.roll(0.0, None)
    assert keeper.attach_ahead() == 1
    owners = harness.conn.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'pillarbox'").fetchall()
    assert owners == [(owner,)]


def test_a_viewer_sees_everything_but_payloads(harness: PostgresHarness, roles: Roles) -> None:
    """And changes nothing."""
    harness.conn.execute(ADD)
    with psycopg.connect(roles.viewer, autocommit=True) as viewer:
        viewer.execute("SELECT id, key, type, headers FROM pillarbox.message")
        viewer.execute("SELECT * FROM pillarbox.hold, pillarbox.lane, pillarbox.route, pillarbox.audit")
        assert denied(
            viewer,
            "SELECT payload FROM pillarbox.message",
            "SELECT payload FROM pillarbox.kept",
            "SELECT payload FROM pillarbox.scheduled",
            ADD,
            "UPDATE pillarbox.hold SET state = 'skipped'",
            "DELETE FROM pillarbox.relay",
        ) == []  # fmt: skip


def test_a_missing_right_is_named(harness: PostgresHarness, roles: Roles) -> None:
    """Which command helps stands in the error."""
    database = harness.database(roles.writer)
    with pytest.raises(NotPermitted, match="migrate grants"):
        database.run("survey")
