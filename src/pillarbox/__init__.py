"""Pillarbox: the transactional outbox for Python."""

from __future__ import annotations

from pillarbox.errors import (
    ConfigError,
    ConnectionRefused,
    DatabaseUnavailable,
    DuplicateMessage,
    IdentityDiffers,
    InvalidHeader,
    InvalidMessage,
    InvalidPayload,
    MessageTooLarge,
    NotAwaited,
    NotInstalled,
    NotInTransaction,
    NotPermitted,
    PillarboxError,
    Refused,
    Reject,
    Retryable,
    SchemaMismatch,
    SinkUnavailable,
    TransactionFailed,
    UnsupportedConnection,
)
from pillarbox.message import NO_KEY, Message
from pillarbox.outbox import AsyncOutbox, Events, Outbox
from pillarbox.storage.migrate import migrate

__all__ = [
    "NO_KEY",
    "AsyncOutbox",
    "ConfigError",
    "ConnectionRefused",
    "DatabaseUnavailable",
    "DuplicateMessage",
    "Events",
    "IdentityDiffers",
    "InvalidHeader",
    "InvalidMessage",
    "InvalidPayload",
    "Message",
    "MessageTooLarge",
    "NotAwaited",
    "NotInTransaction",
    "NotInstalled",
    "NotPermitted",
    "Outbox",
    "PillarboxError",
    "Refused",
    "Reject",
    "Retryable",
    "SchemaMismatch",
    "SinkUnavailable",
    "TransactionFailed",
    "UnsupportedConnection",
    "migrate",
]
