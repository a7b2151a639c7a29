"""The model of the configuration: every parameter with its type, range, default and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pillarbox.config.secrets import masked_tree, secret
from pillarbox.config.values import Duration, Globs, Name, Size

HOUR, DAY = 3600.0, 86400.0
PERIODS = {"hour": HOUR, "day": DAY, "month": 30 * DAY}
_DRIVER = re.compile(r"^(postgres(?:ql)?)\+\w+://", re.IGNORECASE)
_LISTEN = re.compile(r"^(\[[0-9A-Fa-f:]+\]|[^:\s\[\]]+):(\d{1,5})$")


class Section(BaseModel):
    """A frozen part of the configuration. It never shows a secret."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True, populate_by_name=True
    )

    def shown(self) -> dict[str, Any]:
        """Its values by their names in the file, secrets masked."""
        tree: dict[str, Any] = masked_tree(self.model_dump(by_alias=True))
        return tree

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from self.shown().items()

    __str__ = BaseModel.__repr__


class DatabaseConfig(Section):
    """Where the log is."""

    url: str = Field(
        default="",
        description="A PostgreSQL URL or conninfo as psycopg takes it, or `sqlite:///relative`, `sqlite:////absolute`.",
    )
    password: str | None = Field(
        default=None, description="Overrides the URL's password and needs no quoting; usually a reference."
    )
    schema_name: str = Field(
        default="pillarbox",
        alias="schema",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$",
        description="The schema of Pillarbox's tables (PostgreSQL). `Outbox(schema=…)` must say the same.",
    )
    environment: str = Field(
        default="production",
        pattern=r"^[A-Za-z0-9_.-]{1,60}$",
        description="The installation's name, stored by `migrate`: a clone of production that is started as `staging` "
        "delivers nothing.",
    )
    maintenance_url: str | None = Field(
        default=None,
        description="A direct connection (no pooler) as the owner of the tables, for upkeep. Without it upkeep uses "
        "`url`.",
    )

    @field_validator("url", "maintenance_url")
    @classmethod
    def _no_driver(cls, value: str | None) -> str | None:
        if value and _DRIVER.match(value):
            corrected = masked_tree(_DRIVER.sub(r"postgresql://", value))
            raise ValueError(f"names a driver as SQLAlchemy does; write {corrected}")
        return value

    @property
    def is_sqlite(self) -> bool:
        return secret(self.url).startswith("sqlite:")


class RelayConfig(Section):
    """How a relay process works."""

    listen: str = Field(
        default="127.0.0.1:9464",
        description="host:port of `/livez /readyz /healthz /metrics`; `off` for none. Containers set 0.0.0.0:9464.",
    )
    logs: Literal["text", "json"] = Field(default="text", description="The form of the log lines on stderr.")
    lease: Duration = Field(
        default=5.0, ge=0.2, le=60, description="How long lanes stay with a relay that is not heard of any more."
    )
    unrouted: Literal["dead", "ignore"] = Field(
        default="dead", description="A message that no route matches: shown and alarmed as dead, or passed over."
    )
    wait_for_flush: bool = Field(
        default=False, description="Deliver only what is durable, even of transactions with `synchronous_commit = off`."
    )
    batch: int = Field(default=1000, ge=10, le=5000, description="Rows of one read.")
    poll_min: Duration = Field(
        default=0.002, ge=0.002, le=10, description="Pause between two reads while messages keep coming."
    )
    poll_max: Duration = Field(default=0.1, ge=0.002, le=10, description="Pause between two reads of an idle log.")
    attempts: int = Field(default=5, ge=1, le=20, description="How often a message is refused before it is given up.")
    backoff_base: float = Field(
        default=2.0, ge=1, le=10, description="Delay n is backoff_base^(n-1) seconds, at most `backoff_max`."
    )
    backoff_max: Duration = Field(
        default=300.0, ge=0.01, le=86400, description="The longest delay between two attempts."
    )
    jitter: float = Field(default=0.1, ge=0, le=1, description="Share by which a delay varies at random.")
    send_timeout: Duration = Field(
        default=30.0, ge=0.1, le=3600, description="How long an answer may take before the relay hangs up."
    )
    grace: Duration = Field(default=10.0, ge=0, le=3600, description="How long a stopping relay drains.")
    window: int = Field(
        default=4000, ge=10, le=1_000_000, description="Messages read and not yet settled, in each lane."
    )
    held_keys: int = Field(
        default=1000, ge=1, le=100_000, description="Keys whose head keeps failing, in each lane, before reading stops."
    )
    buffer_bytes: Size = Field(
        default=32 * 1024**2, ge=1024**2, description="Memory for messages read and not settled, in one process."
    )

    @field_validator("listen")
    @classmethod
    def _address(cls, value: str) -> str:
        found = _LISTEN.match(value)
        if value not in {"", "off"} and (not found or int(found[2]) > 65535):
            raise ValueError("is not host:port; write 127.0.0.1:9464, [::1]:9464, or off")
        return value

    @property
    def address(self) -> tuple[str, int] | None:
        """Where to listen; None when switched off."""
        found = _LISTEN.match(self.listen)
        return (found[1].strip("[]"), int(found[2])) if found else None


class LogConfig(Section):
    """How long the log is kept, and how it is cut into segments."""

    retention: Duration = Field(
        default=7 * DAY, ge=HOUR, le=30 * DAY, description="Delivered messages stay readable for so long."
    )
    period: Literal["hour", "day", "month"] = Field(default="day", description="A segment ends after this time.")
    period_rows: int | None = Field(
        default=None, ge=1000, description="A segment also ends after so many rows (PostgreSQL)."
    )
    unique_window: Duration | None = Field(
        default=None, ge=1, description="How long a unique key is remembered; as long as messages by default."
    )

    @property
    def period_seconds(self) -> float:
        return PERIODS[self.period]

    @property
    def unique_seconds(self) -> float:
        return self.retention if self.unique_window is None else self.unique_window


class SinkConfig(Section):
    """A destination. What else it takes depends on its kind."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(description="`kafka`, `file`, `console`, `python`, `memory`, `null`.")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Settings of the client library, under its own names."
    )

    @field_validator("settings", mode="before")
    @classmethod
    def _dotted(cls, value: Any) -> Any:
        return dict(flattened(value)) if isinstance(value, dict) else value

    @property
    def options(self) -> dict[str, Any]:
        """What stands beside `kind` and `settings`; the kind knows what it means. References are unresolved."""
        return dict(self.model_extra or {})


def flattened(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`sasl.password = …` is a nested table to TOML, and one name to a client library."""
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


class MatchConfig(Section):
    """Which messages a route wants: lists of globs. Several conditions must all hold; none at all is everything."""

    aggregate: Globs = Field(default=(), description="Globs of the aggregate, such as `order*`.")
    type: Globs = Field(default=(), description="Globs of the type.")
    topic: Globs = Field(default=(), description="Globs of the message's own topic.")
    key: Globs = Field(default=(), description="Globs of the key.")
    header: dict[str, Globs] = Field(default_factory=dict, description="Globs by the name of a header.")


class RouteConfig(Section):
    """A filter, a sink and a delivery policy. The database stores it; the file proposes."""

    sink: Name = Field(description="The name of a sink.")
    topic: str | None = Field(
        default=None,
        description="Where messages without a topic of their own go: literal, or with `{aggregate}`, `{type}`. "
        "Default `{aggregate}`.",
    )
    force_topic: str | None = Field(default=None, description="Where all go, whatever the message says.")
    start: Literal["beginning", "now"] | None = Field(
        default=None, description="Where a route that is new beside stored ones begins."
    )
    order: Literal["key", "none"] = Field(default="key", description="Keep each key's order, or not.")
    after_last_attempt: Literal["bury", "block"] = Field(
        default="bury", description="A message that was refused for the last time: its key goes on, or waits."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description='Headers added or renamed: `{ eventType = "type" }`.'
    )
    match: MatchConfig = Field(default_factory=MatchConfig, description="Which messages; everything by default.")

    def definition(self) -> dict[str, Any]:
        """The part the database stores and every relay executes: never servers, credentials or tuning."""
        match = {name: value for name, value in self.match.model_dump(mode="json").items() if value}
        names = ("sink", "topic", "force_topic", "order", "after_last_attempt", "headers")
        return {"match": match, **{name: getattr(self, name) for name in names}}


class Config(BaseSettings):
    """The whole configuration. Made by `load()`; made by hand it reads no file and no environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    database: DatabaseConfig = Field(default_factory=DatabaseConfig, description="Where the log is.")
    relay: RelayConfig = Field(default_factory=RelayConfig, description="How a relay process works.")
    log: LogConfig = Field(default_factory=LogConfig, description="How long the log is kept.")
    sinks: dict[Name, SinkConfig] = Field(default_factory=dict, description="Destinations by name.")
    routes: dict[Name, RouteConfig] = Field(default_factory=dict, description="Routes by name.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        *_: PydanticBaseSettingsSource,
        **__: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # load() reads file and environment itself: pydantic-settings' own reader decodes JSON wherever it does not
        # know the type (a sink's password `1e5` would become a number) and shows values in its errors.
        return (init_settings,)

    def shown(self) -> dict[str, Any]:
        """Every value by its name, secrets masked."""
        tree: dict[str, Any] = masked_tree(self.model_dump(by_alias=True))
        return tree

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from self.shown().items()

    __str__ = BaseModel.__repr__
