"""From the configuration to librdkafka's settings: defaults, nested tables, secrets, and what must not be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self

from confluent_kafka import KafkaException, Producer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pillarbox.brokers.kafka.partition import PARTITIONERS
from pillarbox.config.secrets import MASK, callable_of, secret
from pillarbox.errors import ConfigError

FAIL_STOP: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,
    "enable.gapless.guarantee": True,
}
DEFAULTS: dict[str, Any] = FAIL_STOP | {
    # Java's, so that a producer in Java and this one agree where a key lives.
    "partitioner": "murmur2_random",
    "linger.ms": 1,
    "message.max.bytes": 1_000_000,
    "queue.buffering.max.kbytes": 32_768,
    "queue.buffering.max.messages": 100_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 1_000,
    # A message that fails here before its topic is known leaves no gap that the guarantee would see: never let it.
    # (Over 2,147,483 it overflows in librdkafka's microseconds and means the opposite.)
    "topic.metadata.propagation.max.ms": 2_000_000,
    # What librdkafka has to say goes to our logger; outages are told by metrics and reasons, not by a line a second.
    "log_level": 0,
}
OURS = {
    "bootstrap.servers",
    "transactional.id",
    "on_delivery",
    "error_cb",
    "logger",
    "delivery.report.only.error",
    "dr_cb",
    "dr_msg_cb",
}
ALIASES = {
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
}
SECRET = re.compile(r"(?i)passw|secret|token|credential|jaas|\.pem$|private")
RECORD_OVERHEAD = 512  # what a record's envelope takes at the very most, beside its key, value and headers


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """TOML makes tables of dotted names: `sasl.username = …` comes as `{"sasl": {"username": …}}`."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[ALIASES.get(prefix + name, prefix + name)] = value
    return found


def _servers(value: Any) -> Any:
    return ",".join(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


class Settings(BaseModel):
    """`kind = "kafka"`"""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap_servers: Annotated[str, BeforeValidator(_servers)] = Field(
        min_length=1, description="Where the cluster is found: `host:port`, several in a list or with commas."
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of librdkafka by their own names, passed through (TLS, SASL, compression, …). "
        '`oauth_cb = "call:package.module:function"` gives tokens as confluent-kafka describes it.',
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        problem = problem_of(self.bootstrap_servers, self.settings)
        if problem:
            raise ValueError(problem)
        return self


def problem_of(servers: str, settings: Mapping[str, Any]) -> str:
    """What librdkafka would refuse of these settings, or nothing. Connects to nobody."""
    given = flat(settings)
    taken = sorted(OURS & given.keys())
    if taken:
        return f"{taken[0]} is set by Pillarbox; remove it from `settings`"
    for name, value in FAIL_STOP.items():
        if str(given.get(name, value)).lower() not in (str(value).lower(), *(["-1"] if name == "acks" else [])):
            return f"{name} must stay {value}: otherwise later messages may pass one that failed"
    if given.get("partitioner", "murmur2_random") not in PARTITIONERS:
        return f"partitioner must be one of {', '.join(sorted(PARTITIONERS))}"
    try:
        conf = Conf(servers, settings).read()
    except ConfigError as error:
        return str(error)
    shown = Redactor(conf)
    for name in ("bootstrap.servers", "oauth_cb"):  # else it would connect, and ask for a token
        conf.pop(name, None)
    try:
        Producer(conf)
    except (KafkaException, TypeError, ValueError) as error:
        return shown(_text(error))
    return ""


class Redactor:
    """Hides the secrets of one reading of the settings in any text."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        values = (value for name, value in conf.items() if SECRET.search(name) and isinstance(value, str))
        self._secrets = sorted({value for value in values if len(value) > 1}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for value in self._secrets:
            text = text.replace(value, MASK)
        return text


class Tokens:
    """Asks for the first token before a client is made: confluent-kafka's clients would block for ten seconds on a
    function that fails."""

    def __init__(self, function: Callable[[str], Any], config: str) -> None:
        self._function = function
        try:
            self._first = function(config)
        except Exception as error:  # its text may hold the very secret
            raise ConfigError(f"oauth_cb raised {type(error).__name__}.", "Call it by hand to see why.") from None

    def __call__(self, config: str) -> Any:
        first, self._first = self._first, None
        return self._function(config) if first is None else first


class Conf:
    """The settings of one sink. Reading them reads every secret again, since passwords rotate."""

    def __init__(self, servers: str, settings: Mapping[str, Any]) -> None:
        self._given = DEFAULTS | flat(settings) | {"bootstrap.servers": servers}

    def read(self) -> dict[str, Any]:
        return {name: _read(name, value) for name, value in self._given.items()}

    def for_client(self) -> dict[str, Any]:
        """The same, for one client that will log in."""
        conf = self.read()
        if "oauth_cb" in conf:
            conf["oauth_cb"] = Tokens(conf["oauth_cb"], str(conf.get("sasl.oauthbearer.config", "")))
        return conf

    def get(self, name: str) -> Any:
        return self._given.get(name)

    @property
    def max_bytes(self) -> int:
        return int(self._given["message.max.bytes"]) - RECORD_OVERHEAD


def _read(name: str, value: Any) -> Any:
    if name == "oauth_cb" and isinstance(value, str):
        return callable_of(value)
    if callable(value) and not name.endswith("_cb"):
        return value()
    return secret(value) if isinstance(value, str) else value


def _text(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(error, KafkaException) and hasattr(cause, "str") else str(cause)
