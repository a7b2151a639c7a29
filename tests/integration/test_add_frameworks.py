"""The tables come with other people's migrations, and the pages' code does what it says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from alembic.migration import MigrationContext
from alembic.operations import Operations
from django.db import connections, migrations, transaction
from django.db.migrations.state import ProjectState

import pillarbox
from devtools.servers.postgres import SharedPostgres
from devtools.wheel import ROOT
from tests.integration.callers import ORDER, django_alias, with_driver
from tests.integration.logs import ask, installed_postgres

ADDING, CONTRACT = ROOT / "docs" / "adding.md", ROOT / "docs" / "sql-contract.md"


@pytest.fixture(scope="module")
def postgres_log(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


@pytest.fixture(params=["postgresql", "sqlite"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    return str(request.getfixturevalue("pg_url"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def block_with(word: str) -> dict[str, Any]:
    """The names that the one block of docs/adding.md with this word defines."""
    [text] = [each for each in blocks(ADDING, "python") if word in each]
    names: dict[str, Any] = {}
    exec(compile(text, ADDING.name, "exec"), names)
    return names


def engine_for(url: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(with_driver(url, "pysqlite" if url.startswith("sqlite") else "psycopg"))


def test_alembic_installs_in_its_transaction(empty_url: str) -> None:
    """The documented `upgrade` leaves working tables, in the transaction that Alembic commits."""
    engine = engine_for(empty_url)
    upgrade = block_with("op.get_bind")["upgrade"]
    with engine.connect() as conn, conn.begin():
        with Operations.context(MigrationContext.configure(conn)):
            upgrade()
        pillarbox.Outbox().add(conn, **ORDER)
    engine.dispose()
    assert ask(empty_url, "SELECT count(*) FROM pillarbox.message") == [(1,)]


def test_django_installs_in_its_transaction(empty_url: str) -> None:
    """The documented `RunPython` leaves working tables."""
    alias = django_alias(empty_url)
    operation = migrations.RunPython(block_with("schema_editor")["install"], migrations.RunPython.noop)
    with connections[alias].schema_editor() as editor:
        operation.database_forwards("shop", editor, ProjectState(), ProjectState())
    with transaction.atomic(using=alias):
        pillarbox.Outbox().add(connections[alias], **ORDER)
    connections[alias].close()
    assert ask(empty_url, "SELECT count(*) FROM pillarbox.message") == [(1,)]


def test_a_plain_engine_commits_what_was_migrated(empty_url: str) -> None:
    """A connection of SQLAlchemy's that has done nothing yet is begun, so that its commit means the tables too."""
    engine = engine_for(empty_url)
    with engine.connect() as conn:
        pillarbox.migrate(conn)
        conn.commit()
    engine.dispose()
    assert ask(empty_url, "SELECT count(*) FROM pillarbox.message") == [(0,)]


def test_django_commits_with_its_outermost_block(postgres_log: str) -> None:
    """`with_transaction` opens `atomic()`; alone it commits, inside another it is a savepoint of that."""

    def place(_conn: Any, events: Any) -> None:
        events.add(aggregate="django", type="t", payload=1)

    def count() -> int:
        return int(ask(postgres_log, "SELECT count(*) FROM pillarbox.message WHERE aggregate = 'django'")[0][0])

    alias = django_alias(postgres_log)
    with closing(connections[alias]) as conn:
        pillarbox.Outbox().with_transaction(conn, place)
        assert count() == 1
        with transaction.atomic(using=alias):
            pillarbox.Outbox().with_transaction(conn, place)
            transaction.set_rollback(True, using=alias)
        assert count() == 1


def test_the_page_on_adding_runs(postgres_log: str, tmp_path: Path) -> None:
    """Every Python block of docs/adding.md, one after the other, its test included."""
    page = tmp_path / "test_page.py"
    page.write_text("\n".join(blocks(ADDING, "python")), encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", page]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": postgres_log},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    with psycopg.connect(postgres_log) as conn:
        found = conn.execute("SELECT type FROM pillarbox.message WHERE key IN ('17', '18', 'sku-1') ORDER BY id")
        assert [row[0] for row in found] == [
            "order.created", "order.paid", "stock.reserved", "order.created", "order.paid", "order.created"
        ]  # fmt: skip


def test_the_page_on_sql_runs(postgres_log: str) -> None:
    """Every statement of docs/sql-contract.md adds what it says."""
    with psycopg.connect(postgres_log) as conn:
        before = conn.execute("SELECT count(*) FROM pillarbox.message").fetchone()
        for text in blocks(CONTRACT, "sql"):
            conn.execute(text)
        after = conn.execute("SELECT count(*) FROM pillarbox.message").fetchone()
    assert before is not None
    assert after is not None
    assert after[0] - before[0] == 1 + 3 + 1
