"""What any driver raises, in our words. Only the first line of what the server said: the rest may show a row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from pillarbox.errors import (
    ConnectionRefused,
    DatabaseUnavailable,
    InvalidMessage,
    NotInstalled,
    NotPermitted,
    PillarboxError,
    Retryable,
    SchemaMismatch,
    TransactionFailed,
)

MISSING = ("42P01", "3F000", "42883")  # table, schema, function
AGAIN = ("40001", "40P01", "55P03", "57014")  # serialisation, deadlock, lock time-out, statement time-out
AWAY = ("08", "53", "57", "58")  # classes: connection, resources, shutdown, system
UP = "Run `pillarbox migrate up`."


def typed(error: BaseException, schema: str) -> PillarboxError:
    """Our error for one that a statement of ours raised on a caller's connection."""
    for each in _causes(error):
        if isinstance(each, PillarboxError):
            return each
        if isinstance(each, sqlite3.Error):
            return _sqlite(each)
        state = _sqlstate(each)
        if state:
            return _postgres(state, _told(each), schema)
        if isinstance(each, UnicodeError):
            return InvalidMessage(f"The connection's client_encoding cannot say this text: {each}.", "Use UTF8.")
    text = _told(error)
    if "closed" in text or "released" in text:
        return ConnectionRefused(f"The connection cannot be used: {text}.", "Open a new one.")
    if "another operation" in text or "in progress" in text:
        return ConnectionRefused(f"The connection is busy: {text}.", "Await one call before the next.")
    return DatabaseUnavailable(f"The message could not be added: {text}.", "Roll back and try again.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What SQLAlchemy and Django wrapped, outermost first."""
    seen = 0
    each: BaseException | None = error
    while each is not None and seen < 5:
        yield each
        seen += 1
        each = getattr(each, "orig", None) or each.__cause__


def _sqlstate(error: BaseException) -> str:
    found = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return found if isinstance(found, str) else ""


def _told(error: BaseException) -> str:
    diagnosis = getattr(error, "diag", None)
    primary = getattr(diagnosis, "message_primary", None) or str(error).strip() or type(error).__name__
    return str(primary).splitlines()[0].rstrip(".")


def _postgres(state: str, text: str, schema: str) -> PillarboxError:
    if state in MISSING:
        return NotInstalled(f"Schema {schema!r} has no tables of Pillarbox: {text}.", UP)
    if state == "42501":
        return NotPermitted(
            f"The role may not add messages in schema {schema!r}: {text}.",
            "`pillarbox migrate grants` prints the statements that give it the right.",
        )
    if state in AGAIN:
        return Retryable(f"The database asks to run the transaction again: {text}.", "Roll back, then run it again.")
    if state == "25P02":
        return TransactionFailed(f"The transaction has failed already: {text}.", "Look for the first error; roll back.")
    if state in ("25006", "42804", "42703"):
        return _unfit(state, text, schema)
    if state[:2] in AWAY:
        return DatabaseUnavailable(f"The database did not take the message: {text}.", "Roll back and try again.")
    return PillarboxError(f"The database refused the message ({state}): {text}.", "Roll back.")


def _unfit(state: str, text: str, schema: str) -> PillarboxError:
    if state == "25006":
        return NotPermitted(f"Nothing can be added here: {text}.", "Use a transaction that may write, on the primary.")
    return SchemaMismatch(f"The tables in schema {schema!r} are not as this release knows them: {text}.", UP)


def _sqlite(error: sqlite3.Error) -> PillarboxError:
    text = str(error)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if "no such table" in text:
        return NotInstalled(f"The file has no tables of Pillarbox (`pillarbox_…`): {text}.", UP)
    if "no such column" in text or "has no column" in text:
        return SchemaMismatch(f"The tables `pillarbox_…` are not as this release knows them: {text}.", UP)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Retryable(
            f"Another connection has the write lock: {text}.",
            "Roll back and run the transaction again. Begin it with BEGIN IMMEDIATE: one that has read first fails at"
            " once when another connection commits.",
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return NotPermitted(f"Nothing can be added here: {text}.", "The file and its folder must be writable.")
    if isinstance(error, sqlite3.ProgrammingError):
        return ConnectionRefused(f"The connection cannot be used: {text}.", "Use it where it was opened, until closed.")
    return DatabaseUnavailable(
        f"The message could not be added: {text}.", "See whether the file and its disk are well."
    )
