"""Lag over time with the kills marked: as text for the terminal, as PNG on request."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.text import Text

from pillarbox.errors import Refused

EIGHTHS = " ▁▂▃▄▅▆▇█"
MARGIN = 7  # columns left of the axis


def columns(times: Sequence[float], values: Sequence[float], width: int, end: float) -> list[float]:
    """The highest value in each of `width` equal stretches of time; a stretch without one keeps its neighbour's."""
    highest: list[float | None] = [None] * width
    for time, value in zip(times, values, strict=True):
        place = min(width - 1, int(time / end * width)) if end else 0
        highest[place] = max(highest[place] or 0.0, value)
    found: list[float] = []
    for value_or_none in highest:
        found.append((found[-1] if found else 0.0) if value_or_none is None else value_or_none)
    return found


def bars(values: Sequence[float], height: int, top: float) -> list[str]:
    """Columns of eighths, the highest row first."""
    eighths = [round(value / top * height * 8) if top else 0 for value in values]
    # What is there must be seen: the smallest lag is an eighth, not nothing.
    eighths = [max(1, count) if value > 0 else count for count, value in zip(eighths, values, strict=True)]
    return ["".join(EIGHTHS[min(8, max(0, count - 8 * row))] for count in eighths) for row in reversed(range(height))]


def lag_plot(times: Sequence[float], lags: Sequence[float], kills: Sequence[float], width: int, height: int) -> Text:
    end = times[-1] if times else 1.0
    inner = width - MARGIN - 1
    top = max([0.1, *lags])
    text = Text()
    text.append("oldest undelivered order, seconds\n", "bold")
    for number, row in enumerate(bars(columns(times, lags, inner, end), height, top)):
        label = f"{top * (height - number) / height:6.2f}" if number % 2 == 0 else ""
        text.append(f"{label:>{MARGIN}}", "dim").append("┤" if label else "│", "dim").append(row, "cyan").append("\n")
    text.append(" " * MARGIN + "└" + "─" * inner + "\n", "dim")
    text.append(f"{'killed':>{MARGIN}} ", "red").append(_marks(kills, inner, end), "bold red").append("\n")
    text.append(" " * (MARGIN + 1) + _seconds(inner, end), "dim")
    return text


def _marks(kills: Sequence[float], width: int, end: float) -> str:
    places = {min(width - 1, int(kill / end * width)) for kill in kills}
    return "".join("✗" if place in places else " " for place in range(width))


def _seconds(width: int, end: float) -> str:
    step = next(step for step in (1, 2, 5, 10, 20, 60, 600) if end / step <= 10)
    line = ""
    for second in range(0, int(end) + 1, step):
        place = int(second / end * width)
        label = f"{second} s"
        if place + len(label) <= width:
            line = line.ljust(place) + label
    return line


def can_draw() -> None:
    """Raises where a PNG could not be made: to be asked before there is something to draw."""
    if find_spec("matplotlib") is None:
        raise Refused("A PNG needs matplotlib.", "pip install 'pillarbox[demo]'")


def lag_png(path: Path, times: Sequence[float], lags: Sequence[float], kills: Sequence[float], outline: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4), dpi=120, layout="constrained")
    axes.fill_between(times, lags, color="#2a6f97", alpha=0.25, linewidth=0)
    axes.plot(times, lags, color="#2a6f97", linewidth=1.5)
    for number, kill in enumerate(kills):
        axes.axvline(kill, color="#c1121f", linewidth=1, linestyle="--", label=None if number else "relay killed")
    axes.set(
        xlabel="seconds",
        ylabel="oldest undelivered order (s)",
        title=f"{outline}: delivery resumes by itself after every kill",
        xlim=(0, times[-1] if times else 1),
    )
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if kills:
        axes.legend(loc="upper right", frameon=False)
    figure.savefig(path)
    plt.close(figure)
