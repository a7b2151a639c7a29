"""What psycopg raises, in our words: cause and next step, never a secret."""

from __future__ import annotations

import psycopg

from pillarbox.errors import (
    DatabaseUnavailable,
    NotInstalled,
    NotPermitted,
    PillarboxError,
    Retryable,
    SchemaMismatch,
)

MISSING = ("42P01", "3F000", "42883")  # table, schema, function
AGAIN = ("40001", "40P01", "55P03", "57014", "55006")  # serialisation, deadlock, lock time-out, cancelled, in use
AWAY = ("08", "53", "57", "58", "28", "25", "3D")  # classes: connection, resources, shutdown, system, login, read-only

# By what libpq and the server say; both speak English to us unless `lc_messages` says otherwise.
CURES = {
    "password authentication failed": "Check user and password: `database.url`, `database.password`.",
    "no password supplied": "Give the password in `database.password`, best as a reference.",
    "pg_hba.conf": "The server's pg_hba.conf does not let this user in from this host.",
    "does not exist": "Check the name in `database.url`, or create it.",
    "resolve host": "Check the host in `database.url`.",
    "refused": "Check host and port in `database.url`, and that the server runs.",
    "timeout": "Check host, port and firewalls between here and `database.url`.",
}


def named(error: psycopg.Error, schema: str) -> PillarboxError:
    """Our error for one of psycopg's."""
    state, text = error.sqlstate or "", told(error)
    if state in MISSING:
        return NotInstalled(f"Schema {schema!r} is not what was expected: {text}.", "Run `pillarbox migrate up`.")
    if state == "42501":
        return NotPermitted(f"The role lacks a right in schema {schema!r}: {text}.", _right(text, schema))
    if state == "42704" and text.startswith("role "):
        return NotPermitted(f"Not every right was given: {text}.", "Create the role (CREATE ROLE …) and run it again.")
    if state in AGAIN:
        return Retryable(f"The database asks to try again: {text}.")
    if not state or state[:2] in AWAY:
        return DatabaseUnavailable(f"PostgreSQL did not answer: {text}.", cure(text))
    return SchemaMismatch(
        f"A statement failed in schema {schema!r} ({state}): {text}.", "`pillarbox migrate check` compares the schema."
    )


def told(error: psycopg.Error, password: object = None) -> str:
    """The first line of what the server or the library said, without the password."""
    primary = error.diag.message_primary or str(error).strip() or type(error).__name__
    line = primary.splitlines()[0].rstrip(".")
    return line.replace(str(password), "***") if password else line


def _right(text: str, schema: str) -> str:
    if "for database" in text:  # the schema is not there, and this role may not make it
        return f"Let a role run it that may create schemas, or make a schema {schema!r} first that this one owns."
    return "`pillarbox migrate grants`, run as the owner of the tables, gives it."


def cure(text: str) -> str:
    """What to do about a connection that cannot be had. A relay tries again whatever it is."""
    if "read-only" in text or "recovery" in text or "standby" in text:
        return "This server is a standby: the relay reads from the primary only."
    if "certificate" in text or "SSL" in text:
        return "Give `sslrootcert=…`, or say `sslmode=disable` in the URL if the network is trusted."
    return next((step for sign, step in CURES.items() if sign in text), "Check that the server runs.")
