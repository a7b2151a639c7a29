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


def named(error: psycopg.Error, schema: str) -> PillarboxError:
    """Our error for one of psycopg's."""
    state, text = error.sqlstate or "", told(error)
    if state in MISSING:
        return NotInstalled(f"Schema {schema!r} is not what was expected: {text}.", "Run `pillarbox migrate up`.")
    if state == "42501":
        return NotPermitted(
            f"The role lacks a right in schema {schema!r}: {text}.", "`pillarbox migrate grants` prints the statements."
        )
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


def cure(text: str) -> str:
    """What to do about a connection that cannot be had."""
    if "read-only" in text or "recovery" in text or "standby" in text:
        return "This server is a standby: the relay reads from the primary only."
    if "certificate" in text or "SSL" in text:
        return "Give `sslrootcert=…`, or say `sslmode=disable` in the URL if the network is trusted."
    return "It is tried again."
