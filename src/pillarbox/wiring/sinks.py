"""From `[sinks.NAME]` to sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pillarbox.brokers import registry
from pillarbox.config import Config, Problem, SinkConfig, secret
from pillarbox.errors import ConfigError
from pillarbox.ports import Sink


def sink_of(name: str, sink: SinkConfig) -> Sink:
    """A sink that is not opened yet."""
    return registry.make(sink.kind, name, _given(sink))


def sink_problems(config: Config) -> list[Problem]:
    """What is wrong with the settings that only a sink's kind knows."""
    found = []
    for name, sink in config.sinks.items():
        try:
            for text in registry.problems(name, sink.kind, _given(sink)):
                path, _, what = text.partition(": ")
                found.append(Problem(path, what) if what else Problem(f"sinks.{name}", text))
        except ConfigError as error:
            found.append(Problem(f"sinks.{name}", error.what, error.hint))
    return found


def _given(sink: SinkConfig) -> dict[str, Any]:
    """What the kind's own model takes. Kafka resolves its references itself, at each session."""
    given = {**sink.options, **({"settings": sink.settings} if sink.settings else {})}
    return given if sink.kind == "kafka" else _resolved(given)


def _resolved(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _resolved(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    return secret(value) if isinstance(value, str) and not value.startswith("call:") else value
