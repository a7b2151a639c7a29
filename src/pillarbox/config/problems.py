"""What is wrong or questionable in a configuration whose every single value is right."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pillarbox.config.model import PERIODS, Config, DatabaseConfig, RouteConfig
from pillarbox.config.secrets import callable_of, is_reference, secret
from pillarbox.config.values import Problem, spoken
from pillarbox.errors import ConfigError

# About 36 segments may be attached before reading slows down (DESIGN 2.1); three of them lie ahead, one is open.
MOST_SEGMENTS = 32
TOPIC_FIELDS = ("aggregate", "type", "key")
_FIELD = re.compile(r"\{(\w+)\}")
_POOLER = re.compile(r":6432\b|port\s*=\s*'?6432\b|pgbouncer|pooler|pgcat|odyssey", re.IGNORECASE)
_KNOWN_URL = re.compile(r"^(postgres(ql)?://|sqlite:///)", re.IGNORECASE)
_CONNINFO = re.compile(r"^\s*\w+\s*=")


def problems(config: Config, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Every finding across settings at once. Nothing is connected to."""
    env = os.environ if environ is None else environ
    return [problem for finder in _FINDERS for problem in finder(config, env)]


Finder = Callable[[Config, Mapping[str, str]], Iterator[Problem]]


def _references(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Whether what a reference stands for can be had; functions are found, not called."""
    for path, value in _strings(config.model_dump(by_alias=True)):
        try:
            if value.startswith("call:"):
                callable_of(value)
            elif "$" in value or value.startswith("file:"):
                secret(value, environ)
        except ConfigError as error:
            yield Problem(path, error.what, error.hint)


def _strings(tree: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _strings(value, f"{path}.{name}" if path else str(name))
    elif isinstance(tree, str) and path.startswith(("database.", "sinks.")):
        yield path, tree  # everything else was resolved while loading


def _database(config: Config, environ: Mapping[str, str]) -> Iterator[Problem]:
    url = _now(config.database.url, environ)
    if url is None:
        return
    if not url:
        yield Problem(
            "database.url", "is missing.", "Set it, or PILLARBOX_DATABASE__URL; `pillarbox init` writes a file."
        )
    elif re.match(r"(?i)^postgres(ql)?\+", url):
        yield Problem("database.url", "names a driver as SQLAlchemy does.", "Write postgresql://…")
    elif not _KNOWN_URL.match(url) and not _CONNINFO.match(url):
        yield Problem("database.url", "is no database we know.", "Write postgresql://… or sqlite:///…")
    elif url.startswith("sqlite:"):
        yield from _sqlite(config.database)
    elif _POOLER.search(url) and not config.database.maintenance_url:
        yield Problem(
            "database.maintenance_url",
            "is missing, and `database.url` looks like a pooler: retention would stop.",
            "Give a direct connection as the owner of the tables, or run `pillarbox upkeep` from cron.",
            "warning",
        )


def _sqlite(database: DatabaseConfig) -> Iterator[Problem]:
    for name in ("password", "maintenance_url"):
        if getattr(database, name):
            yield Problem(f"database.{name}", "means nothing to SQLite.", "Remove it.", "warning")


def _now(value: str, environ: Mapping[str, str]) -> str | None:
    """What a reference stands for; None if that was already found to be a problem, or must not be called."""
    try:
        return None if value.startswith("call:") else secret(value, environ)
    except ConfigError:
        return None


def _segments(config: Config, _: Mapping[str, str]) -> Iterator[Problem]:
    log = config.log
    segments = log.retention / log.period_seconds
    if segments > MOST_SEGMENTS:
        fit = next((name for name in ("day", "month") if log.retention <= MOST_SEGMENTS * PERIODS[name]), "month")
        yield Problem(
            "log.period",
            f"cuts {spoken(log.retention)} of retention into {segments:.0f} segments; more than {MOST_SEGMENTS} slow "
            "every read down.",
            f'Set log.period = "{fit}", or log.retention to at most {spoken(MOST_SEGMENTS * log.period_seconds)}.',
        )
    if log.unique_window is not None and log.unique_window > log.retention:
        yield Problem(
            "log.unique_window",
            "is longer than log.retention: a repeated key may return the id of a message that is gone.",
            "Raise log.retention if that matters.",
            "warning",
        )


def _routes(config: Config, _: Mapping[str, str]) -> Iterator[Problem]:
    for name, route in config.routes.items():
        if name == "unrouted":
            yield Problem(f"routes.{name}", "is a reserved name.", "Choose another.")
        if route.sink not in config.sinks:
            near = difflib.get_close_matches(route.sink, config.sinks, n=1)
            cure = f"Did you mean `{near[0]}`?" if near else f"Add [sinks.{route.sink}]."
            yield Problem(f"routes.{name}.sink", f"names no sink: there is no [sinks.{route.sink}].", cure)
        yield from _topics(name, route)
    unused = set(config.sinks) - {route.sink for route in config.routes.values()}
    for name in sorted(unused):
        yield Problem(f"sinks.{name}", "is used by no route.", f'Add a route with sink = "{name}".', "warning")
    if not config.routes:
        yield Problem("routes", "is empty: `run` delivers what stored routes say.", "Add [routes.NAME].", "warning")


def _topics(name: str, route: RouteConfig) -> Iterator[Problem]:
    for field in ("topic", "force_topic"):
        fields = _FIELD.findall(getattr(route, field) or "")
        for unknown in sorted(set(fields) - set(TOPIC_FIELDS)):
            yield Problem(
                f"routes.{name}.{field}",
                f"has {{{unknown}}}, which no message has.",
                f"Known are {', '.join(f'{{{known}}}' for known in TOPIC_FIELDS)}.",
            )
        if route.order == "key" and "type" in fields:
            yield Problem(
                f"routes.{name}.{field}",
                "has {type} on an ordered route: nothing orders messages of one key across topics.",
                'Leave {type} out, or set order = "none".',
                "warning",
            )


def _times(config: Config, _: Mapping[str, str]) -> Iterator[Problem]:
    relay = config.relay
    if relay.poll_min > relay.poll_max:
        yield Problem("relay.poll_min", "is above relay.poll_max.", "Lower it, or raise relay.poll_max.")
    for name, usual, fault in (
        ("lease", 5.0, "after a relay is killed or its database comes back"),
        ("send_timeout", 30.0, "after a broker fell silent without hanging up"),
    ):
        value = getattr(relay, name)
        if value > usual:
            promised = 10 + value - (usual if name == "lease" else 0)
            yield Problem(
                f"relay.{name}",
                f"is {spoken(value)}: {fault} delivery may take {spoken(promised)} to resume, "
                f"{spoken(value - usual)} longer than with the default.",
                f"Set it to {spoken(usual)} if that matters.",
                "warning",
            )
    if relay.poll_max > 1:
        yield Problem(
            "relay.poll_max",
            f"is {spoken(relay.poll_max)}: a message may wait that long in an idle log.",
            "Polling each 0.1 s costs next to nothing.",
            "warning",
        )


def _listen(config: Config, _: Mapping[str, str]) -> Iterator[Problem]:
    if config.relay.address is None:
        yield Problem("relay.listen", "is off: no probe and no metrics.", "Set 127.0.0.1:9464.", "warning")


def _plain_passwords(config: Config, _: Mapping[str, str]) -> Iterator[Problem]:
    password = config.database.password
    if password and not is_reference(password):
        yield Problem(
            "database.password",
            "stands in the configuration itself.",
            "Write ${ENV}, file:/path or call:package.module:function.",
            "warning",
        )


_FINDERS: tuple[Finder, ...] = (_references, _database, _segments, _routes, _times, _listen, _plain_passwords)
