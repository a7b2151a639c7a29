"""Named statements, read from the .sql files that lie in a package.

A file holds statements one after the other, each introduced by its name and, on the next line, its intent:

    -- name: settle
    -- Move the cursors of all lanes and write what an answer has set aside.
    UPDATE …

`{schema}` stands for the validated, quoted name of the schema (SQLite: for the prefix of the tables) and is the only
thing ever replaced: values are parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from pillarbox.errors import ConfigError

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")


def identifier(name: str) -> str:
    """The quoted form of a schema's (or role's) name. Only plain names: they stand in text that is never escaped."""
    if not _IDENTIFIER.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be a name in the database.",
            "Use letters, digits and underscores, at most 48 of them, not beginning with a digit.",
        )
    return f'"{name}"'


def load(package: str, schema: str) -> Mapping[str, str]:
    """The statements of all .sql files in this package, by name. `schema` is text as `identifier` returns it."""
    return {name: text.replace("{schema}", schema) for name, text in _statements(package).items()}


@cache
def _statements(package: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted(files(package).iterdir(), key=lambda each: each.name):
        if file.name.endswith(".sql"):
            for name, text in split(file.read_text(encoding="utf-8")).items():
                if name in found:
                    raise ValueError(f"{package}: two statements are named {name}")
                found[name] = text
    return found


def split(text: str) -> dict[str, str]:
    """The named statements of one file; each without its name, its closing semicolon and the space around it."""
    _, *parts = _NAME.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[::2], parts[1::2], strict=True)}
