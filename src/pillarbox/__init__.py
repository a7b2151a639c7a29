"""Pillarbox: the transactional outbox for Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from pillarbox.prepare import content_key
from pillarbox.storage.migrate import migrate

if TYPE_CHECKING:
    from pillarbox.config import Config
    from pillarbox.wiring import AsyncRelay, Relay

__all__ = [
    "NO_KEY",
    "AsyncOutbox",
    "AsyncRelay",
    "Config",
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
    "Relay",
    "Retryable",
    "SchemaMismatch",
    "SinkUnavailable",
    "TransactionFailed",
    "UnsupportedConnection",
    "content_key",
    "migrate",
]


def __getattr__(name: str) -> Any:
    # A service that only adds needs neither pydantic nor Prometheus' client: they are loaded with their first user.
    if name == "Config":
        from pillarbox.config import Config

        return Config
    if name in {"AsyncRelay", "Relay"}:
        from pillarbox import wiring

        return getattr(wiring, name)
    raise AttributeError(f"module 'pillarbox' has no attribute {name!r}")
