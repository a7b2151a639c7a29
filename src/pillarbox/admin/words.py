"""How figures are said to people."""

from __future__ import annotations

_UNITS = (("d", 86400), ("h", 3600), ("min", 60))


def span(seconds: float) -> str:
    """`0.4 s`, `12 s`, `5 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 0:
        seconds = 0.0
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    parts: list[str] = []
    left = int(seconds)
    for unit, size in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts)


def times(number: int) -> str:
    """`once`, `twice`, `5 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def messages(number: int) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} message" if number == 1 else f"{number} messages"


def volume(count: int) -> str:
    """Bytes as a person reads them."""
    size, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, bigger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
