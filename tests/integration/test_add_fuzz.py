"""Anything may be given to add: it arrives byte for byte, or it is refused with a type, and the transaction lives on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from devtools.servers.postgres import SharedPostgres
from pillarbox import PillarboxError
from tests.conftest import SEED
from tests.integration.callers import POSTGRES, SQLITE, Caller
from tests.integration.logs import installed_postgres, installed_sqlite

KINDS = ["psycopg", "psycopg2", "asyncpg", "session-psycopg2", "async-connection-asyncpg", "django-postgresql",
         "sqlite3", "django-sqlite"]  # fmt: skip
texts = st.text(st.characters(), max_size=40) | st.sampled_from(
    ["%s", "$1", "?1", "\\", "'", '"', "{}", "E'\\n'", "\ufeff"]
)
fields = st.fixed_dictionaries(
    {
        "payload": st.binary() | texts,
        "key": texts | st.integers(),
        "headers": st.dictionaries(texts, texts, max_size=3),
    },
    optional={
        "topic": texts,
        "type": texts,
        "version": st.integers(),
        "sequence": st.integers(),
        "content_type": texts,
        "unique_key": st.uuids().map(str) | texts,
    },
)


@pytest.fixture(scope="module")
def postgres_log(postgres: SharedPostgres) -> Iterator[str]:
    yield from installed_postgres(postgres)


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return installed_sqlite(Path(tmp_path_factory.mktemp("fuzz")))


@pytest.fixture(params=KINDS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    url = request.getfixturevalue("postgres_log" if request.param in POSTGRES else "sqlite_log")
    with {**POSTGRES, **SQLITE}[request.param](url) as opened:
        yield opened


@seed(SEED)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(given_fields=fields, together=st.booleans())
def test_it_arrives_or_is_refused(caller: Caller, given_fields: dict[str, Any], together: bool) -> None:
    """Byte-identical payload, key and headers, alone and in a batch; after a refusal the next add works."""
    try:
        if together:
            shape = {"aggregate": "a", "type": "t", **given_fields}
            [ident, _] = caller.add_many([shape, {"aggregate": "a", "type": "t", "payload": 1}])
        else:
            ident = caller.add(**given_fields)
    except PillarboxError:
        ident = None
    after = caller.add()
    found = {each.id: each for each in caller.messages()}
    assert after in found
    if ident is not None:
        payload = given_fields["payload"]
        back = found[ident]
        assert back.payload == (payload.encode() if isinstance(payload, str) else payload)
        assert back.key == str(given_fields["key"])
        assert json.dumps(dict(back.headers)) == json.dumps(given_fields["headers"])
        for name in ("topic", "version", "sequence"):
            assert getattr(back, name) == given_fields.get(name)
    caller.rollback()
