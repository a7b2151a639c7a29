"""Every kind of sink there is: a new one is a module and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, ValidationError

from pillarbox.errors import ConfigError
from pillarbox.ports import Sink


class Kind(NamedTuple):
    """A module with `Settings` (a pydantic model of the configuration's keys) and `make(name, settings) -> Sink`."""

    module: str
    extra: str | None = None  # what to install with the package


KINDS = {
    "console": Kind("pillarbox.brokers.console"),
    "file": Kind("pillarbox.brokers.file"),
    "kafka": Kind("pillarbox.brokers.kafka.sink", extra="kafka"),
    "memory": Kind("pillarbox.brokers.memory"),
    "null": Kind("pillarbox.brokers.null"),
    "python": Kind("pillarbox.brokers.python"),
}


def settings_of(kind: str) -> type[BaseModel]:
    """The model of what may stand under `[sinks.NAME]` beside `kind`."""
    return cast("type[BaseModel]", _module(kind).Settings)


def problems(name: str, kind: str, config: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a sink's settings, each with its key path. Values are not shown: one may be
    a secret."""
    try:
        settings_of(kind).model_validate(dict(config))
    except ConfigError as error:
        return [str(error)]
    except ValidationError as error:
        return [f"{_path(name, problem['loc'])}: {problem['msg']}" for problem in error.errors(include_input=False)]
    return []


def make(kind: str, name: str, config: Mapping[str, Any]) -> Sink:
    """A sink that is not opened yet. `config` is what stands under `[sinks.NAME]`, without `kind`."""
    found = problems(name, kind, config)
    if found:
        raise ConfigError("; ".join(found))
    module = _module(kind)
    return cast("Sink", module.make(name, module.Settings.model_validate(dict(config))))


def _module(kind: str) -> Any:
    if kind not in KINDS:
        raise ConfigError(f"there is no sink of kind {kind!r}.", f"Known are {', '.join(sorted(KINDS))}.")
    entry = KINDS[kind]
    try:
        return importlib.import_module(entry.module)
    except ModuleNotFoundError as error:
        if entry.extra is None:
            raise
        raise ConfigError(
            f"a sink of kind {kind!r} needs a library that is not installed ({error.name}).",
            f"pip install 'pillarbox[{entry.extra}]'",
        ) from error


def _path(name: str, location: tuple[int | str, ...]) -> str:
    return ".".join(["sinks", name, *map(str, location)])
