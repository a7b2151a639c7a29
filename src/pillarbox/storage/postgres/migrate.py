"""Numbered migrations, drift, and the rights of the four identities (DESIGN 3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.resources import files
from typing import Any

from pillarbox.clock import SystemClock
from pillarbox.errors import ConfigError, NotInstalled, Retryable, SchemaMismatch
from pillarbox.storage.sql import identifier, load

Ask = Callable[[str], list[tuple[Any, ...]]]

PACKAGE = "pillarbox.storage.postgres"
OLDEST_SERVER = 15
LOCKED = "55P03"
TRIES, PAUSE = 10, 1.0  # a step that cannot have its lock lets everybody pass before it asks again
_ENVIRONMENT = re.compile(r"[\w.-]{1,60}", re.ASCII)


@cache
def migrations() -> dict[str, str]:
    """The text of each migration by its name, in order."""
    found = (each for each in files(f"{PACKAGE}.migrations").iterdir() if each.name.endswith(".sql"))
    return {each.name[:-4]: each.read_text(encoding="utf-8") for each in sorted(found, key=lambda each: each.name)}


def newest() -> int:
    """The schema version this release brings."""
    return number(list(migrations())[-1])


def number(name: str) -> int:
    return int(name[:4])


def migrate(conn: Any, *, schema: str = "pillarbox", lanes: int = 16, environment: str = "production") -> list[str]:
    """See `pillarbox.storage.migrate.migrate`; on a connection of psycopg or psycopg2."""
    values = _values(schema, lanes, environment)
    ask = asker(conn)
    _refuse_unfit_server(ask)
    own = _commits_by_itself(conn)
    done = []
    for name in migrations():
        step = partial(_apply, ask, name, values, own)
        if _patiently(step) if own else step():
            done.append(name)
    return done


def version(ask: Ask, schema: str) -> int:
    """The installed schema version, 0 where nothing is installed; a newer one than ours is refused."""
    name = identifier(schema)
    if ask(f"SELECT to_regclass('{name}.installation') IS NULL")[0][0]:
        return 0
    installed = int(ask(_texts(name)["schema_version"])[0][0])
    refuse_newer(schema, installed)
    return installed


def refuse_newer(schema: str, installed: int) -> None:
    if installed > newest():
        raise SchemaMismatch(
            f"Schema {schema!r} has version {installed}, and this release knows versions up to {newest()}.",
            "Upgrade Pillarbox here to at least the release that migrated the database.",
        )


def _patiently(step: Callable[[], bool]) -> bool:
    left = TRIES
    while True:
        try:
            return step()
        except Exception as error:
            left -= 1
            if LOCKED not in (getattr(error, "sqlstate", None), getattr(error, "pgcode", None)):
                raise
            if not left:
                raise Retryable(
                    f"A lock could not be had in {TRIES} tries; nothing was changed by this step.",
                    "Look in pg_stat_activity for a transaction that has been open for long, then run it again.",
                ) from error
        SystemClock.sleep(PAUSE)


def _apply(ask: Ask, name: str, values: Mapping[str, str], own: bool) -> bool:
    with _transaction(ask, own):
        before = ask("SELECT current_setting('lock_timeout')")[0][0]
        ask("SET LOCAL lock_timeout = '3s'")
        # One migrates, the others wait here and then find it done.
        ask(f"SELECT pg_advisory_xact_lock(hashtextextended('pillarbox migrate {values['schema']}', 0))")
        installed = version(ask, values["schema"].strip('"'))
        if installed < number(name):
            if not installed and not ask(f"SELECT to_regnamespace('{values['schema']}') IS NOT NULL")[0][0]:
                ask(_texts(values["schema"])["create_schema"])
            ask(_script(name, values))
        ask(f"SELECT set_config('lock_timeout', '{before}', true)")
        return installed < number(name)


@contextmanager
def _transaction(ask: Ask, own: bool) -> Iterator[None]:
    if not own:
        yield
        return
    ask("BEGIN")
    try:
        yield
    except BaseException:
        ask("ROLLBACK")
        raise
    ask("COMMIT")


def _script(name: str, values: Mapping[str, str]) -> str:
    """A migration and the note that it was applied."""
    note = _texts(values["schema"])["note_installed" if number(name) == 1 else "note_migrated"]
    script = f"{migrations()[name]}\n{note};\n"
    for key, value in {**values, "number": str(number(name))}.items():
        script = script.replace(f"{{{key}}}", value)
    return script


def sql(*, schema: str = "pillarbox", lanes: int = 16, environment: str = "production") -> str:
    """The whole installation as text, for those who run it themselves."""
    values = _values(schema, lanes, environment)
    steps = "".join(f"\n-- {name}\nBEGIN;\n{_script(name, values)}COMMIT;\n" for name in migrations())
    return f"{_texts(values['schema'])['create_schema']};\n{steps}"


def _texts(schema: str) -> Mapping[str, str]:
    return load(f"{PACKAGE}.sql", schema)


def _values(schema: str, lanes: int, environment: str) -> dict[str, str]:
    if lanes not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        raise ConfigError(f"{lanes} lanes cannot be.", "Give a power of two from 1 to 256.")
    if not _ENVIRONMENT.fullmatch(environment):
        raise ConfigError(f"{environment!r} cannot name an environment.", "Use letters, digits, '_', '.' and '-'.")
    return {"schema": identifier(schema), "lanes": str(lanes), "environment": environment}


# ------------------------------------------------------------------ drift


def check(conn: Any, *, schema: str = "pillarbox") -> list[str]:
    """What is missing or changed; more than we need is nobody's business."""
    ask = asker(conn)
    installed = version(ask, schema)
    if not installed:
        raise NotInstalled(f"There is no installation in schema {schema!r}.", "Run `pillarbox migrate up`.")
    if installed < newest():
        return [f"schema {schema!r} has version {installed} of {newest()}: run `pillarbox migrate up`"]
    return compare(expected(), catalog(ask, schema))


def catalog(ask: Ask, schema: str) -> dict[str, str]:
    """What there is, by name: `column message.lane` → `smallint not null`."""
    text = _texts(identifier(schema))["catalog"]
    return dict(ask(text.replace("{name}", schema)))


def expected() -> dict[str, str]:
    """`catalog` of a fresh installation of this release, as it lies in the package."""
    text = files(PACKAGE).joinpath("catalog.txt").read_text(encoding="utf-8")
    return dict(line.split("\t", 1) for line in text.splitlines())


def compare(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is missing" if name not in found else f"{name} is {found[name]!r} and should be {detail!r}"
        for name, detail in wanted.items()
        if found.get(name) != detail
    ]


# ------------------------------------------------------------------ rights


def grants(
    *, schema: str = "pillarbox", writer: str | None = None, relay: str | None = None, viewer: str | None = None
) -> list[str]:
    """Statements that give existing roles the least they need (DESIGN 3). The owner needs none."""
    texts = _texts(identifier(schema))
    roles = {"grants_writer": writer, "grants_relay": relay, "grants_viewer": viewer}
    found = []
    for name, role in roles.items():
        if role is not None:
            _, _, body = texts[name].partition("\n")
            found += [each.strip() for each in body.replace("{role}", identifier(role)).split(";")]
    return found


# ------------------------------------------------------------------ the caller's connection


def asker(conn: Any) -> Ask:
    """Runs text without parameters on a psycopg or psycopg2 connection, whatever rows it is set up to give."""
    if any(base.__module__.startswith("psycopg2") for base in type(conn).__mro__):
        from psycopg2.extensions import cursor as plain

        options: dict[str, Any] = {"cursor_factory": plain}
    else:
        from psycopg.rows import tuple_row

        options = {"row_factory": tuple_row}

    def ask(text: str) -> list[tuple[Any, ...]]:
        with conn.cursor(**options) as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

    return ask


def _commits_by_itself(conn: Any) -> bool:
    """Would a statement on this connection be a transaction of its own?"""
    idle = conn.info.transaction_status == 0
    return bool(conn.autocommit and idle)


def _refuse_unfit_server(ask: Ask) -> None:
    # SQL_ASCII would store text that nobody can read any more (psycopg gives its own text there as bytes); in any other
    # a key or a name that it cannot say would fail the caller's transaction.
    encoding = ask("SHOW server_encoding")[0][0]
    if encoding not in ("UTF8", b"UTF8"):
        name = encoding.decode() if isinstance(encoding, bytes) else encoding
        raise SchemaMismatch(f"The database's encoding is {name}.", "Create it with ENCODING 'UTF8'.")
    found = int(ask("SHOW server_version_num")[0][0]) // 10000
    if found < OLDEST_SERVER:
        raise SchemaMismatch(f"This is PostgreSQL {found}; {OLDEST_SERVER} is the oldest that will do.")
