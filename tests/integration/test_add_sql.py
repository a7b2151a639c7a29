"""The contract for other languages: the SQL functions, as psql and a second driver call them."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg
import psycopg2
import pytest

from devtools.servers.postgres import SharedPostgres
from pillarbox import Outbox
from tests.integration.logs import ask, installed_postgres, log, logged

HOSTILE = ['{"a": "back\\\\slash"}', '{"a": "quo\\"te\'s"}', '{"a": "new\\nline"}', '{"a": "\\u00e9 é"}',
           '{ "b" : 1.0,\n"a":12345678901234567890 }']  # fmt: skip


@pytest.fixture(scope="module")
def url(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


def psql(url: str, text: str, *, fails: bool = False) -> str:
    """What a person's psql answers; its last line, or its complaint."""
    program = shutil.which("psql")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("psql is not on the path")
    assert program is not None
    words = [program, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url]
    done = subprocess.run(words, input=text, text=True, capture_output=True, check=False)
    assert bool(done.returncode) is fails, done.stderr
    return done.stderr if fails else done.stdout.strip()


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("payload", HOSTILE)
def test_json_text_from_psql_arrives_as_written(url: str, payload: str) -> None:
    """Backslash, quotes, line breaks and escapes: byte for byte, known as JSON."""
    call = f"SELECT pillarbox.add(aggregate => 'a', key => 'k', type => 't', payload => {quoted(payload)})"
    [row] = logged(url, UUID(psql(url, call)))
    assert row[1:] == ("k", "a", "t", payload.encode(), None, None, None, None, None)


@pytest.mark.parametrize("form", ["text", "jsonb", "bytea"])
@pytest.mark.parametrize("payload", HOSTILE)
def test_a_second_driver_has_all_forms(url: str, form: str, payload: str) -> None:
    """Text and bytes are kept as they are; jsonb as PostgreSQL writes it, the same value."""
    given: Any = payload.encode() if form == "bytea" else payload
    with psycopg.connect(url) as conn:
        found = conn.execute(
            f"SELECT pillarbox.add(aggregate => 'a', type => 't', payload => %s::{form}, key => %s)", (given, "k")
        ).fetchone()
    assert found is not None
    [row] = logged(url, found[0])
    if form == "jsonb":
        assert json.loads(row[4]) == json.loads(payload)
    else:
        assert row[4] == payload.encode()
    assert row[8] is None


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [("'hello'", "text/plain; charset=utf-8"), ("'\\x00ff'::bytea", "application/octet-stream"),
     ("'{}'::bytea", None), ("'1'", None), ("'hello', content_type => 'text/csv'", "text/csv"),
     ("'{}', content_type => 'application/json'", None)],
)  # fmt: skip
def test_the_content_type_is_as_in_python(url: str, payload: str, content_type: str | None) -> None:
    """JSON is what parses; the caller's word wins."""
    ident = psql(url, f"SELECT pillarbox.add(aggregate => 'a', type => 't', payload => {payload})")
    assert logged(url, UUID(ident))[0][8] == content_type


def test_every_argument_arrives(url: str) -> None:
    """All columns by name, as `Outbox.add` writes them."""
    mine = uuid4()
    text = psql(
        url,
        f"""SELECT pillarbox.add(aggregate => 'a', type => 't', payload => '\\x00'::bytea, key => 'Zoë', topic => 'x',
            version => 2, sequence => 9000000000, headers => '{{"city": "Köln"}}', content_type => 'a/b',
            id => '{mine}')""",
    )
    assert text == str(mine)
    [row] = logged(url, mine)
    assert row[1:9] == ("Zoë", "a", "t", b"\0", "x", 2, 9000000000, "a/b")
    assert json.loads(row[9]) == {"city": "Köln"}


def test_keys_are_shared_with_python(url: str) -> None:
    """A unique key or an id that one language took, the other finds."""
    key, mine = str(uuid4()), uuid4()
    with psycopg.connect(url) as conn:
        first = Outbox().add(conn, aggregate="a", type="t", payload=1, unique_key=key)
        Outbox().add(conn, aggregate="a", type="t", payload=1, id=mine)
    call = "SELECT pillarbox.add(aggregate => 'a', type => 't', payload => '1', {})"
    assert psql(url, call.format(f"unique_key => '{key}'")) == str(first)
    assert psql(url, call.format(f"id => '{str(mine).upper()}'")) == str(mine)
    assert "added before" in psql(url, call.format(f"unique_key => '{key}', on_duplicate => 'raise'"), fails=True)
    other = psql(url, call.format(f"unique_key => '{key}2'"))
    with psycopg.connect(url) as conn:
        assert Outbox().add(conn, aggregate="a", type="t", payload=1, unique_key=f"{key}2") == UUID(other)
    assert len(logged(url, first, mine, UUID(other))) == 3


def test_a_delay_from_sql(url: str) -> None:
    """`deliver_at` puts it where delayed messages wait; a time that is over is now."""
    call = "SELECT pillarbox.add(aggregate => 'a', type => 't', payload => '1', deliver_at => now() {} interval '1 h')"
    later, now = UUID(psql(url, call.format("+"))), UUID(psql(url, call.format("-")))
    assert [row[0] for row in log(url, "scheduled")] == [later.bytes]
    assert len(logged(url, now)) == 1
    assert logged(url, later) == []


def test_a_batch_from_sql(url: str) -> None:
    """An array of objects: JSON kept as written, text and bytes by their own names, ids in order."""
    key = str(uuid4())
    batch = [
        '{"aggregate": "a", "type": "t", "payload": {"b":  1.0, "a": "\\u00e9"}, "key": "k", "version": 2}',
        f'{{"aggregate": "a", "type": "t", "payload": null, "unique_key": "{key}"}}',
        '{"aggregate": "a", "type": "t", "payload_text": "hi", "headers": {"x": "y"}}',
        f'{{"aggregate": "a", "type": "t", "payload_base64": "AP8=", "unique_key": "{key}"}}',
        '{"aggregate": "a", "type": "t", "payload_base64": "AP8="}',
    ]
    answer = psql(url, f"SELECT pillarbox.add_many({quoted('[' + ', '.join(batch) + ']')})")
    idents = [UUID(each) for each in answer.split()]
    assert idents[3] == idents[1]
    rows = logged(url, *idents)
    assert [row[0] for row in rows] == [each.bytes for each in (idents[0], idents[1], idents[2], idents[4])]
    assert [row[4] for row in rows] == [b'{"b":  1.0, "a": "\\u00e9"}', b"null", b"hi", b"\0\xff"]
    assert [row[8] for row in rows] == [None, None, "text/plain; charset=utf-8", "application/octet-stream"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("payload => '1', aggregate => '', type => 't'", "aggregate is empty"),
        ("payload => NULL::text, aggregate => 'a', type => 't'", "must not be null"),
        ("payload => '1', aggregate => 'a', type => 't', unique_key => ''", "unique_key is empty"),
        ("payload => '1', aggregate => 'a', type => 't', key => repeat('k', 2001)", "at most 2000"),
        ("payload => '1', aggregate => 'a', type => 't', headers => '{\"id\": \"x\"}'", "record's own"),
        ("payload => '1', aggregate => 'a', type => 't', headers => '{\"a b\": \"x\"}'", "name of a header"),
        ("payload => '1', aggregate => 'a', type => 't', headers => '{\"a\": \"x\\ny\"}'", "without line breaks"),
        ("payload => '1', aggregate => 'a', type => 't', headers => '{\"a\": 1}'", "must be a string"),
        ("payload => '1', aggregate => 'a', type => 't', headers => '[]'", "must be a JSON object"),
        ("payload => '1', aggregate => 'a', type => 't', content_type => E'a\\nb'", "line break"),
        ("payload => '1', aggregate => 'a', type => E'a\\rb'", "type has a line break"),
        ("payload => '1', aggregate => 'a', type => 't', on_duplicate => 'x'", "'ignore' or 'raise'"),
        ("payload => repeat('x', 900001), aggregate => 'a', type => 't'", "limit is 900000"),
        ("payload => '123', aggregate => 'a', type => 't', max_message => 2", "limit is 2"),
    ],
)
def test_what_python_refuses_sql_refuses(url: str, arguments: str, complaint: str) -> None:
    """The same limits, as errors of the statement."""
    assert complaint in psql(url, f"SELECT pillarbox.add({arguments})", fails=True)


def test_an_unknown_field_of_a_batch_is_named(url: str) -> None:
    """A misspelt name is no silent loss."""
    call = """SELECT pillarbox.add_many('[{"aggregate": "a", "type": "t", "payload": 1, "keys": 1}]')"""
    assert "no 'keys'" in psql(url, call, fails=True)


def test_the_bare_insert_is_possible(url: str) -> None:
    """The documented columns, with the payload through convert_to; ids, order and time come by default."""
    with psycopg2.connect(url) as conn, conn.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pillarbox.message (aggregate, key, type, payload) VALUES (%s, %s, %s, convert_to(%s, 'UTF8'))",
            ("bare", "k", "t", HOSTILE[0]),
        )
    conn.close()
    assert ask(url, "SELECT payload FROM pillarbox.message WHERE aggregate = 'bare'") == [(HOSTILE[0].encode(),)]


@pytest.mark.parametrize("table", ["message", "scheduled"])
def test_a_key_that_cannot_be_held_is_refused_at_the_insert(url: str, table: str) -> None:
    """Not at the settle that would set it aside, where it would stop its lane."""
    due = ("due, ", "now(), ") if table == "scheduled" else ("", "")
    text = (
        f"INSERT INTO pillarbox.{table} ({due[0]}message_id, aggregate, key, type, payload)"
        f" VALUES ({due[1]}gen_random_uuid(), 'a', repeat('k', {{}}), 't', 'x')"
    )
    assert "key_length" in psql(url, text.format(2001), fails=True)
    psql(url, text.format(2000))
