"""References that stand for secrets, and what may be shown of a configuration."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pillarbox.errors import ConfigError

MASK = "***"

_REFERENCE = re.compile(r"\$(?:\$|\{([^}]*)\})")
_ONLY_REFERENCES = re.compile(r"(\$\{[^}]*\})+")
_USERINFO = re.compile(r"(?<=://)([^/?#\s]*)@")
_WORD = r"(?:ssl)?pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key"
_PAIR = re.compile(rf"(?i)\b({_WORD})(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&;,]+)")
_SECRET_KEY = re.compile(
    r"(?i)pass(word|wd|phrase)?\b|passw|secret|token|credential|jaas|(api|access|private|ssl)[._-]?key\b|\.pem$"
)


def secret(value: str, environ: Mapping[str, str] | None = None) -> str:
    """What a string of the configuration stands for now. Nothing is remembered: passwords rotate."""
    env = os.environ if environ is None else environ
    if value.startswith("file:"):
        return _content(_expanded(value.removeprefix("file:"), env))
    if value.startswith("call:"):
        answer = called(value)
        if not isinstance(answer, str):
            raise ConfigError(f"`{value}` returned {type(answer).__name__}, not a string.", "Let it return a str.")
        return answer
    return _expanded(value, env)


def called(reference: str) -> Any:
    """The answer of `call:package.module:function`, whatever its type."""
    function = callable_of(reference)
    try:
        return function()
    except Exception as error:  # its text may hold the very secret
        raise ConfigError(f"`{reference}` raised {type(error).__name__}.", "Call it by hand to see why.") from None


def callable_of(reference: str) -> Any:
    """The function that `call:package.module:function` names; it is not called."""
    module, _, name = reference.removeprefix("call:").partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"`{reference}` cannot be found: {error}.", "Write `call:package.module:function`, importable from here."
        ) from error
    if not callable(found):
        raise ConfigError(f"`{reference}` is no function.", "Write `call:package.module:function`.")
    return found


def _content(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"`file:{path}` cannot be read: {why}.", "Check the path and its rights.") from None
    return text.removesuffix("\n").removesuffix("\r")


def _expanded(value: str, environ: Mapping[str, str]) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found[1] not in environ:
            raise ConfigError(f"The environment variable {found[1]} is not set.", f"Set it, or replace {found[0]}.")
        return environ[found[1]]

    return _REFERENCE.sub(replace, value)


def is_reference(value: str) -> bool:
    """Whether the string is nothing but references, which are safe to show."""
    return value.startswith(("file:", "call:")) or bool(_ONLY_REFERENCES.fullmatch(value))


def masked(text: str) -> str:
    """The same text with every password in a URL, a query or a `password=…` pair hidden; references stay."""
    return _PAIR.sub(_mask_pair, _USERINFO.sub(_mask_userinfo, text))


def _mask_userinfo(found: re.Match[str]) -> str:
    user, colon, password = found[1].partition(":")
    return f"{user}{colon}{_shown(password)}@" if colon else found[0]


def _mask_pair(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{_shown(found[3])}"


def _shown(value: str) -> str:
    return value if not value or is_reference(unquote(value)) else MASK


def masked_tree(value: Any, key: str = "") -> Any:
    """A configuration's tree as it may be shown: what a key calls secret is hidden unless it is a reference."""
    if isinstance(value, Mapping):
        return {name: masked_tree(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_tree(item, key) for item in value]
    if _SECRET_KEY.search(key) and value not in (None, ""):
        return _shown(str(value))
    if isinstance(value, str):
        return masked(value)
    # In one's own process a sink may be given the very function.
    return value if value is None or isinstance(value, int | float) else getattr(value, "__qualname__", MASK)
