from __future__ import annotations

import pytest

from pillarbox.errors import ConfigError
from pillarbox.storage import sql


def test_a_file_is_split_at_its_names() -> None:
    """Each statement keeps its intent line and loses its name and its semicolon."""
    text = "-- licence\n\n-- name: one\n-- Ask.\nSELECT 1;\n\n-- name: two\n-- Ask again.\nSELECT\n  2;\n"
    assert sql.split(text) == {"one": "-- Ask.\nSELECT 1", "two": "-- Ask again.\nSELECT\n  2"}


def test_only_the_schema_is_replaced() -> None:
    """Braces of PostgreSQL's arrays stay as they are."""
    statements = sql.load("pillarbox.storage.postgres.sql", sql.identifier("box"))
    assert statements
    assert not [name for name, text in statements.items() if "{schema}" in text]
    assert any('"box".' in text for text in statements.values())


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "1a", "a;drop", "a" * 49, "ä", "a\n"])
def test_a_name_that_would_need_escaping_is_refused(name: str) -> None:
    """A schema's name can never carry SQL."""
    with pytest.raises(ConfigError, match="cannot be a name"):
        sql.identifier(name)


def test_every_statement_says_its_intent() -> None:
    """The line after the name is a comment."""
    for text in sql.load("pillarbox.storage.postgres.sql", "x").values():
        assert text.startswith("-- ")
