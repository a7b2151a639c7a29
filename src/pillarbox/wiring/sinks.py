"""From `[sinks.NAME]` to sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from pillarbox.brokers import registry
from pillarbox.config import Config, Problem, SinkConfig, secret, told_of
from pillarbox.errors import ConfigError
from pillarbox.ports import Sink
from pillarbox.prepare import MAX_MESSAGE


def sink_of(name: str, sink: SinkConfig) -> Sink:
    """A sink that is not opened yet."""
    return registry.make(sink.kind, name, _given(sink))


def sink_problems(config: Config) -> list[Problem]:
    """What is wrong with the settings that only a sink's kind knows. Nothing is connected to."""
    return [problem for name, sink in config.sinks.items() for problem in _problems(name, sink)]


def _problems(name: str, sink: SinkConfig) -> Iterator[Problem]:
    path = f"sinks.{name}"
    try:
        model = registry.settings_of(sink.kind)
        model.model_validate(_given(sink))
        limit = sink_of(name, sink).traits.max_bytes
    except ConfigError as error:
        yield Problem(f"{path}.kind" if sink.kind not in registry.KINDS else path, error.what, error.hint)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            told = told_of(detail, model)
            yield told._replace(path=f"{path}.{told.path}" if told.path else path)
    else:
        if limit is not None and limit < MAX_MESSAGE:
            yield Problem(
                path,
                f"takes messages of at most {limit:,} bytes, and `add` takes {MAX_MESSAGE:,}: a larger one would die.",
                f"Raise the sink's limit, or add with Outbox(max_message={limit}).",
                "warning",
            )


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
