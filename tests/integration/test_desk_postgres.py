"""What only PostgreSQL asks of the desk: late rows, gaps between segments, locks, foreign transaction ids."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from devtools.servers.pgbouncer import PgBouncer
from devtools.servers.postgres import SharedPostgres
from pillarbox.errors import NotInstalled, NotPermitted, Refused
from pillarbox.storage.postgres.connection import Database
from pillarbox.storage.postgres.desk import PostgresDesk
from pillarbox.storage.postgres.desk_actions import PostgresActions
from pillarbox.storage.postgres.migrate import grants
from pillarbox.views import Pick
from tests.integration.desk_stage import NOTE, Stage


@pytest.fixture
def stage(pg_url: str) -> Iterator[Stage]:
    stage = Stage(pg_url)
    yield stage
    stage.close()


def test_an_empty_installation_has_nothing_to_tell(stage: Stage) -> None:
    """No message, no hold row, no relay: every figure is zero or unknown, and nothing fails."""
    seen = stage.desk.overview()
    assert (seen.environment, seen.same_system, seen.relays, seen.troubles) == ("production", True, [], [])
    assert (seen.unrouted, seen.scheduled, seen.overdue, seen.segments, seen.segments_ahead) == (0, 0, None, 1, 3)
    assert [(line.lane, line.pending, line.counted, line.oldest) for line in seen.lanes] == [
        (lane, 0, True, None) for lane in range(4)
    ]


def test_pending_and_age_start_at_the_cursor(stage: Stage) -> None:
    """What the cursor has passed is not pending; the oldest of what is left gives the age."""
    stage.add("k")
    stage.settle()
    stage.ask("SELECT pg_sleep(0.2)")
    late, _ = stage.add("k")
    stage.add("k")
    [line] = [line for line in stage.desk.overview().lanes if line.pending]
    assert (line.lane, line.pending, line.counted) == (stage.lane_of(late), 2, True)
    assert 0 <= (line.oldest or 9) < 0.2


def test_a_row_that_commits_late_is_pending_below_the_cursor(stage: Stage) -> None:
    """A message whose transaction was open when the cursor passed its id counts as undelivered, with its age."""
    with psycopg.connect(stage.url) as slow:
        slow.execute("INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES ('late', 'a', 't', '')")
        stage.add("k")
        stage.settle()
        slow.commit()
    lanes = [line for line in stage.desk.overview().lanes if line.pending]
    [found] = stage.desk.find(["1"])
    assert [(line.lane, line.pending) for line in lanes] == [(found.lane, 1)]
    assert lanes[0].oldest is not None
    [standing] = stage.desk.standings([found])
    assert not standing.read


def test_estimates_do_not_count_the_gap_between_segments(stage: Stage) -> None:
    """After a roll the ids jump by ten thousand million; the pending estimate does not."""
    insert = (
        "INSERT INTO pillarbox.message (key, aggregate, type, payload) SELECT (g % 100)::text, 'a', 't', ''"
        " FROM generate_series(1, 8000) g"
    )
    stage.ask(insert)
    stage.ask("SELECT setval('pillarbox.message_id_seq', 10000000000, false)")
    stage.ask("UPDATE pillarbox.segment SET state = CASE n WHEN 0 THEN 'closed' ELSE 'open' END WHERE n < 2")
    stage.ask(insert)
    pending = sum(line.pending for line in stage.desk.overview().lanes)
    assert 12_000 < pending < 20_000


def test_a_database_without_installation_says_so(pg_url: str) -> None:
    """The desk names the missing schema and the command that makes it."""
    with closing(PostgresDesk(Database(pg_url))) as desk, pytest.raises(NotInstalled, match="migrate up"):
        desk.overview()


def test_an_operator_waits_for_a_settle_and_not_longer(stage: Stage) -> None:
    """A row that a settle has locked is waited for; then the action applies to what the settle left."""
    id, _ = stage.add()
    stage.hold("retry", id)
    lines = stage.picked()
    with psycopg.connect(stage.url) as other:
        other.execute("UPDATE pillarbox.hold SET attempts = 3, edition = edition + 1")
        timer = threading.Timer(0.8, other.commit)
        timer.start()
        assert stage.actions.change("bury", lines, NOTE) == [id]
        timer.join()
    assert stage.rows("state", "attempts") == [("dead", 3)]


def test_a_restored_dump_goes_on_with_what_its_cursors_had_not_read(stage: Stage) -> None:
    """adopt --from unread: rows below a cursor that it had not seen go on from hold, in their key's order, and only
    those its route wants; rows beyond it are read; nothing is ever late in the old segments (DESIGN 2.2 rule 6)."""
    with psycopg.connect(stage.url) as open_then:
        for type in ("t", "unwanted", "t"):
            open_then.execute(
                "INSERT INTO pillarbox.message (key, aggregate, type, payload) VALUES ('late', 'a', %s, '')", (type,)
            )
        stage.add("k")
        stage.ask('UPDATE pillarbox.route SET definition = \'{"sink": "file", "match": {"type": ["t"]}}\'')
        stage.settle()
        open_then.commit()
    beyond, _ = stage.add("k")
    # What a logical restore does to the ids of transactions: they mean nothing here, and some lie far ahead.
    stage.ask("UPDATE pillarbox.message SET xid = (xid::text::bigint + 1000000)::text::xid8")
    seen = stage.ask("SELECT cursor->>'seen' FROM pillarbox.lane LIMIT 1")[0][0]
    low, high, running = seen.split(":")
    moved = ":".join(
        (str(int(low) + 10**6), str(int(high) + 10**6), ",".join(str(int(x) + 10**6) for x in running.split(",") if x))
    )
    stage.ask("UPDATE pillarbox.lane SET cursor = jsonb_set(cursor::jsonb, '{seen}', to_jsonb(%s::text))::json", moved)
    with pytest.raises(Refused, match="unread"):
        stage.actions.adopt("cursor", "production", NOTE, dry_run=True)
    counts = stage.actions.adopt("unread", "restored", NOTE, dry_run=False)
    assert counts == {"unread by all, to be delivered": 1, "unread below a cursor, to be delivered from hold": 2}
    assert stage.rows("ids", "state", "key") == [([1, 3], "retry", "late")]
    [line] = [line for line in stage.desk.overview().lanes if line.pending]
    assert (line.lane, line.pending) == (stage.lane_of(beyond), 1)
    assert stage.ask("SELECT n, state, closed_by::text FROM pillarbox.segment ORDER BY n LIMIT 2") == [
        (0, "closed", "3"),
        (1, "open", None),
    ]
    new, _ = stage.add("k")
    assert new >= 10**10


def test_the_oldest_transaction_is_named(stage: Stage) -> None:
    """What holds retention back is shown with its age and its process; a transaction that only reads is not."""
    with psycopg.connect(stage.url, application_name="report") as reader:
        reader.execute("SELECT count(*) FROM pillarbox.message")
        assert stage.desk.overview().oldest_transaction is None
        with psycopg.connect(stage.url, application_name="import") as writer:
            writer.execute("SELECT pg_current_xact_id()")
            found = stage.desk.overview().oldest_transaction
            assert found is not None
            assert found[0] >= 0
            assert f"pid {writer.info.backend_pid} " in found[1]
            assert "import" in found[1]


def test_a_viewer_may_look_and_not_act(stage: Stage, postgres: SharedPostgres) -> None:
    """With the rights of `migrate grants --viewer` every question is answered; an action names the missing right."""
    id, _ = stage.add()
    stage.hold("retry", id)
    viewer = f"viewer_{stage.conn.info.dbname}"
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {viewer} LOGIN PASSWORD 'canary'")
    try:
        for statement in grants(viewer=viewer):
            stage.ask(statement)
        url = stage.url.replace(stage.url.split("//")[1].split("@")[0], f"{viewer}:canary")
        with closing(PostgresDesk(Database(url))) as desk, closing(PostgresActions(Database(url))) as actions:
            assert desk.overview().routes[0].held == 1
            found = desk.find([str(id)])
            assert desk.standings(found)[0].lines
            assert desk.of_key("k", None, 5)
            assert desk.scheduled((), None, None, 5) == []
            lines = desk.holds(Pick(("retry",)))
            with pytest.raises(NotPermitted, match="migrate grants"):
                actions.change("skip", lines, NOTE)
    finally:
        with psycopg.connect(postgres.url_of(stage.conn.info.dbname), autocommit=True) as admin:
            admin.execute(f"DROP OWNED BY {viewer}")
            admin.execute(f"DROP ROLE {viewer}")


def test_the_desk_works_through_a_pooler(stage: Stage, pgbouncer: PgBouncer) -> None:
    """Through PgBouncer in transaction mode every question is one snapshot and every action one transaction."""
    id, _ = stage.add()
    stage.hold("blocked", id)
    url = pgbouncer.through(stage.url)
    with closing(PostgresDesk(Database(url))) as desk, closing(PostgresActions(Database(url))) as actions:
        assert desk.overview().routes[0].held == 1
        assert desk.standings(desk.find([str(id)]))[0].lines
        assert actions.change("retry", desk.holds(Pick(("blocked",))), NOTE) == [id]
    assert stage.rows("state") == [("retry",)]
