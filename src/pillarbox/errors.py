"""What can go wrong, as types.

    PillarboxError                      code, what happened, what to do about it
    ├── InvalidMessage                  something in the message itself is refused, before anything reaches the database
    │   ├── InvalidPayload              cannot be encoded, or is not what its content type says
    │   ├── InvalidHeader               a name or a value of a header
    │   └── MessageTooLarge             over the limit; send a reference instead
    ├── DuplicateMessage                the unique key is taken and the caller asked to be told
    ├── ConnectionRefused               this connection cannot be used for an add
    │   ├── UnsupportedConnection       not a connection we know
    │   ├── NotInTransaction            the INSERT would commit by itself
    │   └── TransactionFailed           the transaction has failed already
    ├── NotAwaited                      an `AsyncOutbox.add` was dropped without `await`
    ├── NotInstalled                    schema or table is missing
    ├── NotPermitted                    a right is missing
    ├── Retryable                       deadlock, serialisation failure, lock time-out: run the transaction again
    ├── DatabaseUnavailable             the database cannot be reached, or this server must not be used
    ├── SchemaMismatch                  the installation is newer or older than this release, or damaged
    ├── IdentityDiffers                 the database was cloned or restored: an operator must adopt it first
    ├── ConfigError                     the configuration, with every problem found
    ├── SinkUnavailable                 the sink cannot be opened now; raised by a callable: this is an outage
    ├── Reject                          raised by a callable that is a sink: this one message cannot be accepted
    └── Refused                         an operator's request that cannot be done as asked
"""

from __future__ import annotations


class PillarboxError(Exception):
    """Something went wrong in Pillarbox."""

    code = "pillarbox"

    def __init__(self, what: str = "", hint: str = "") -> None:
        self.what = what or (self.__doc__ or "").strip()
        self.hint = hint
        super().__init__(f"{self.what} {hint}".strip())


class InvalidMessage(PillarboxError):
    """The message is refused."""

    code = "invalid_message"


class InvalidPayload(InvalidMessage):
    """The payload cannot be encoded."""

    code = "invalid_payload"


class InvalidHeader(InvalidMessage):
    """A header is refused."""

    code = "invalid_header"


class MessageTooLarge(InvalidMessage):
    """The message is over the limit."""

    code = "message_too_large"


class DuplicateMessage(PillarboxError):
    """The unique key is taken."""

    code = "duplicate_message"


class ConnectionRefused(PillarboxError):
    """This connection cannot be used for an add."""

    code = "connection_refused"


class UnsupportedConnection(ConnectionRefused):
    """This is not a connection Pillarbox knows."""

    code = "unsupported_connection"


class NotInTransaction(ConnectionRefused):
    """No transaction is open: the INSERT would commit by itself."""

    code = "not_in_transaction"


class TransactionFailed(ConnectionRefused):
    """The transaction has failed already; only ROLLBACK ends it."""

    code = "transaction_failed"


class NotAwaited(PillarboxError):
    """An `AsyncOutbox.add` was dropped without `await`; its message would be lost."""

    code = "not_awaited"


class NotInstalled(PillarboxError):
    """Pillarbox's tables are missing."""

    code = "not_installed"


class NotPermitted(PillarboxError):
    """The database role lacks a right."""

    code = "not_permitted"


class Retryable(PillarboxError):
    """The database asks to run the transaction again."""

    code = "retryable"


class DatabaseUnavailable(PillarboxError):
    """The database cannot be reached, or this server must not be used."""

    code = "database_unavailable"


class SchemaMismatch(PillarboxError):
    """The installation in the database does not fit this release."""

    code = "schema_mismatch"


class IdentityDiffers(PillarboxError):
    """The installation belongs to another cluster or environment."""

    code = "identity_differs"


class ConfigError(PillarboxError):
    """The configuration has problems."""

    code = "config"


class SinkUnavailable(PillarboxError):
    """The sink cannot be opened now."""

    code = "sink_unavailable"


class Reject(PillarboxError):
    """This message cannot be accepted."""

    code = "reject"


class Refused(PillarboxError):
    """The request cannot be done as asked."""

    code = "refused"
