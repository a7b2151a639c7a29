"""Kinds of values a setting can have, as people write them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
SECONDS |= {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
BYTES = {"": 1, "B": 1, "kB": 1000, "KB": 1000, "KiB": 1024, "MB": 10**6, "MiB": 1024**2, "GB": 10**9, "GiB": 1024**3}

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


class Problem(NamedTuple):
    """One finding in a configuration: where, what, and what to do about it."""

    path: str
    what: str
    cure: str = ""
    level: Literal["error", "warning"] = "error"


def seconds(value: Any) -> Any:
    """`300`, `"5m"`, `"7 days"`: seconds. Anything else goes on to pydantic, which refuses it with its own words."""
    if not isinstance(value, str) or not (found := _NUMBER_AND_UNIT.fullmatch(value)):
        return value
    number, unit = found.groups()
    factor = SECONDS.get(unit) or SECONDS.get(unit.rstrip("s") or "s")
    if factor is None:
        raise ValueError(f"no unit of time is called {unit!r}; write ms, s, m, h or d")
    return float(number) * factor


def size(value: Any) -> Any:
    """`1048576`, `"32 MiB"`: bytes."""
    if not isinstance(value, str) or not (found := _NUMBER_AND_UNIT.fullmatch(value)):
        return value
    number, unit = found.groups()
    if unit not in BYTES:
        raise ValueError(f"no unit of size is called {unit!r}; write kB, KiB, MB, MiB, GB or GiB")
    return int(float(number) * BYTES[unit])


def listed(value: Any) -> Any:
    """A single string may stand for a list of one."""
    return [value] if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(seconds)]
Size = Annotated[int, BeforeValidator(size)]
Globs = Annotated[tuple[str, ...], BeforeValidator(listed)]
# Names stand in SQL, labels of metrics and headers of files: nothing that would need quoting there.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]


def spoken(value: float) -> str:
    """Seconds as a person says them: `7 days`, `1 hour`, `5 s`."""
    for unit, factor in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if value >= factor and value % factor == 0:
            return f"{value / factor:g} {unit}{'s' if value > factor else ''}"
    return f"{value:g} s"
