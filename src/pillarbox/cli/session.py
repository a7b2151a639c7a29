"""What every command has at hand: the configuration, a way to speak, and exit codes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import typer

from pillarbox.cli.output import Output
from pillarbox.config import SECTIONS, Config, Problem, examine, load
from pillarbox.errors import (
    ConfigError,
    DatabaseUnavailable,
    IdentityDiffers,
    NotInstalled,
    NotPermitted,
    PillarboxError,
    Refused,
    Retryable,
    SchemaMismatch,
)


class Exit(IntEnum):
    """Every code a command can end with."""

    DONE = 0
    FAILED = 1  # something went wrong, or what was looked at is not well
    USAGE = 2  # the command line itself
    CONFIG = 3  # the configuration
    DATABASE = 4  # unreachable, not installed, not permitted, of another version or environment
    REFUSED = 5  # nothing was changed: refused, or not confirmed
    INTERRUPTED = 130


_DATABASE = (DatabaseUnavailable, NotInstalled, NotPermitted, SchemaMismatch, IdentityDiffers, Retryable)


def code_of(error: PillarboxError) -> Exit:
    if isinstance(error, ConfigError):
        return Exit.CONFIG
    if isinstance(error, _DATABASE):
        return Exit.DATABASE
    return Exit.REFUSED if isinstance(error, Refused) else Exit.FAILED


@dataclass(frozen=True)
class Session:
    """One call of the command."""

    out: Output
    path: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    def config(self, *only: str, more: dict[str, dict[str, Any]] | None = None) -> Config:
        """The configuration. Only errors in the sections named stop it; without a name all are needed. `more` are a
        command's own options, by section."""
        tree = dict(self.overrides)
        for section, values in (more or {}).items():
            tree[section] = {**tree.get(section, {}), **values}
        return load(self.path, overrides=tree, only=only or SECTIONS)

    def examined(self) -> tuple[Config, list[Problem]]:
        """The configuration as far as it can be read, and every problem in it."""
        return examine(self.path, overrides=self.overrides)


def session_of(ctx: typer.Context) -> Session:
    found = ctx.find_root().obj
    assert isinstance(found, Session)
    return found


def tree_of(settings: list[str]) -> dict[str, Any]:
    """`--set relay.batch=500` as a tree; the last one of a name wins."""
    tree: dict[str, Any] = {}
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not all(path.split(".")):
            raise typer.BadParameter(f"{setting.partition('=')[0]!r} is not SECTION.NAME=VALUE", param_hint="--set")
        place = tree
        *above, name = path.split(".")
        for part in above:
            place = place.setdefault(part, {})
        place[name] = value
    return tree
