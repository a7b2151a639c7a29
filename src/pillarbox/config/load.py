"""From file, environment and flags to one value, with every problem at once."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pillarbox.config.model import (
    Config,
    DatabaseConfig,
    LogConfig,
    MatchConfig,
    RelayConfig,
    RouteConfig,
    SinkConfig,
    flattened,
)
from pillarbox.config.problems import problems
from pillarbox.config.secrets import masked, secret
from pillarbox.config.values import Problem
from pillarbox.errors import ConfigError

DEFAULT_FILE = "pillarbox.toml"
PREFIX = "PILLARBOX_"
SECTIONS = tuple(Config.model_fields)
# Resolved anew at each connect, and so kept as references; every other string is resolved while loading.
_LATE = {("database", "url"), ("database", "password"), ("database", "maintenance_url")}

Tree = dict[str, Any]


def load(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: tuple[str, ...] = SECTIONS,
) -> Config:
    """The configuration: flags over environment over file. Raises `ConfigError` with every error in the sections
    that are needed; a warning stops nobody."""
    config, found = examine(path, environ, overrides)
    errors = [problem for problem in found if problem.level == "error" and _concerns(problem, only)]
    if errors:
        raise ConfigError(told(errors), "`pillarbox config check` shows them all.")
    return config


def _concerns(problem: Problem, only: tuple[str, ...]) -> bool:
    section = problem.path.removeprefix(PREFIX).lower().replace("__", ".").partition(".")[0]
    return section in only or section not in SECTIONS


def examine(
    path: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[Config, list[Problem]]:
    """The configuration as far as it can be read, and every problem. What is malformed is left out, so that what
    stands beside it is judged too."""
    env = os.environ if environ is None else environ
    found: list[Problem] = []
    tree = _merged(_from_file(file_of(path, env)), _from_environ(env, found))
    tree = _merged(tree, dict(overrides or {}))
    tree = _resolved(tree, env, found)
    while True:
        try:
            config = Config.model_validate(tree)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)
            known = {problem.path for problem in found}  # what was dropped is missing the next time
            found += [problem for problem in map(told_of, details) if problem.path not in known]
            for detail in details:
                _drop(tree, detail["loc"])
        else:
            known = {problem.path for problem in found}
            return config, found + [problem for problem in problems(config, env) if problem.path not in known]


def file_of(path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> Path | None:
    """The file that is read: the one named, else PILLARBOX_CONFIG, else ./pillarbox.toml if it is there."""
    named = path or environ.get("PILLARBOX_CONFIG")
    if named:
        return Path(named)
    return Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def told(found: list[Problem]) -> str:
    """Findings as one text, a line each when there are several."""
    lines = [f"{problem.path}: {problem.what}{' ' + problem.cure if problem.cure else ''}" for problem in found]
    return lines[0] if len(lines) == 1 else f"{len(lines)} problems:\n  " + "\n  ".join(lines)


# ------------------------------------------------------------------ reading


def _from_file(path: Path | None) -> Tree:
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}.", "`pillarbox init` writes one.") from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {why}.", "Check the path and its rights.") from None
    tree = _yaml(path, text) if path.suffix in {".yaml", ".yml"} else _toml(path, text)
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} is not a table of settings.", "Begin with a section such as [database].")
    return _flat_settings(tree)


def _toml(path: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # its text names line and column, never the line itself
        raise ConfigError(f"{path} is no TOML: {error}.", "Correct that line.") from None


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigError(f"{path} needs PyYAML.", "pip install 'pillarbox[yaml]', or write TOML.") from None
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:  # its own text quotes the line, which may hold a secret
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ConfigError(f"{path} is no YAML{where}.", "Correct that line.") from None


def _from_environ(environ: Mapping[str, str], found: list[Problem]) -> Tree:
    """PILLARBOX_SECTION__NAME=value. A list or a table is written as JSON."""
    tree: Tree = {}
    for variable in sorted(environ):
        upper = variable.upper()
        if not upper.startswith(PREFIX) or "__" not in upper:
            continue
        section, *names = upper.removeprefix(PREFIX).lower().split("__")
        if section not in SECTIONS or not all(names):
            found.append(Problem(variable, "names no section.", f"Sections are {', '.join(SECTIONS)}."))
            continue
        place = tree
        for name in [section, *names[:-1]]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                found.append(Problem(variable, "stands inside a value that another variable gives.", "Set one."))
                break
        else:
            place[names[-1]] = _decoded(environ[variable])
    return _flat_settings(tree)


def _decoded(value: str) -> Any:
    # Only what can be nothing else is JSON: a password `1e5` or `true` stays what it is.
    if value[:1] in {"[", "{"}:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _flat_settings(tree: Tree) -> Tree:
    """Before merging, so that the environment's `SASL__PASSWORD` and the file's `"sasl.password"` are one name."""
    sinks = tree.get("sinks")
    for sink in sinks.values() if isinstance(sinks, dict) else ():
        if isinstance(sink, dict) and isinstance(sink.get("settings"), dict):
            sink["settings"] = dict(flattened(sink["settings"]))
    return tree


def _merged(under: Tree, over: Mapping[str, Any]) -> Tree:
    """`over` wins, name by name. Names of the environment have lost their case and their hyphens."""
    known = {_loose(name): name for name in under}
    merged = dict(under)
    for name, value in over.items():
        place = name if name in under else known.get(_loose(name), name)
        below = merged.get(place)
        merged[place] = _merged(below, value) if isinstance(below, dict) and isinstance(value, Mapping) else value
    return merged


def _loose(name: Any) -> str:
    return str(name).casefold().replace("-", "_")


def _resolved(tree: Tree, environ: Mapping[str, str], found: list[Problem]) -> Tree:
    def walk(value: Any, path: tuple[str, ...]) -> Any:
        if path in _LATE or (path[:1] == ("sinks",) and len(path) >= 3 and path[2] != "kind"):
            return value
        if isinstance(value, dict):
            return {name: walk(item, (*path, str(name))) for name, item in value.items()}
        if isinstance(value, list):
            return [walk(item, path) for item in value]
        if not isinstance(value, str):
            return value
        try:
            return secret(value, environ)
        except ConfigError as error:
            found.append(Problem(".".join(path), error.what, error.hint))
            return value

    resolved: Tree = walk(tree, ())
    return resolved


# ------------------------------------------------------------------ what is wrong in form


_WORDS = {
    "string_pattern_mismatch": "has characters it cannot have, or is too long",
    "dict_type": "should be a table",
    "model_type": "should be a table",
    "tuple_type": "should be a string or a list of strings",
}


def told_of(detail: ErrorDetails, model: type[BaseModel] | None = None) -> Problem:
    """A finding of pydantic's with the exact key path and our own cure; never the value itself."""
    loc = detail["loc"]
    names = dict(_names(model or _section_of(loc)))
    path = ".".join(str(part) for part in loc if part != "[key]")
    meaning = names.get(str(loc[-1]), "") if loc else ""
    if detail["type"] == "extra_forbidden":
        return Problem(path, "is not a known setting.", _meant(str(loc[-1]), list(names)))
    if detail["type"] == "missing":
        return Problem(path, "is missing.", meaning)
    what = masked(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return Problem(path, f"{_WORDS.get(detail['type'], what).rstrip('.')}.", meaning)


def _section_of(loc: tuple[int | str, ...]) -> type[BaseModel]:
    sections: dict[str, type[BaseModel]] = {"database": DatabaseConfig, "relay": RelayConfig, "log": LogConfig}
    match loc[:-1]:
        case ("sinks", _, *_):
            return SinkConfig
        case ("routes", _, "match", *_):
            return MatchConfig
        case ("routes", _, *_):
            return RouteConfig
        case (str(name), *_) if name in sections:
            return sections[name]
    return Config


def _names(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field.description or ""


def _meant(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean `{near[0]}`?" if near else f"Known here: {', '.join(known) or 'none'}."


def _drop(tree: Tree, loc: tuple[int | str, ...]) -> None:
    """Take the malformed part out; what lacks a part is malformed itself."""
    above: dict[Any, Any] = tree
    name = loc[0]
    for depth, part in enumerate(loc[1:], 2):
        place = above.get(name)
        if not isinstance(place, dict) or part == "[key]":
            break
        if part not in place:
            if depth < len(loc):
                return  # gone already, with the table around it
            break
        above, name = place, part
    above.pop(name, None)
