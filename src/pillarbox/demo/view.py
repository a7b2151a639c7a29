"""What is seen while the play runs: a live panel in a terminal, a line now and then in a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pillarbox.demo.lag import Lag
from pillarbox.demo.picture import lag_plot
from pillarbox.demo.play import Progress

NEWS = 6


class View(Protocol):
    def show(self, progress: Progress, lag: Lag) -> None:
        """Called at every tick."""


@contextlib.contextmanager
def view_of(console: Console, outline: str) -> Iterator[View]:
    if console.is_terminal:
        # Not the alternate screen: the last picture stays above the verdict.
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield _Panel(live, outline)
    else:
        said = f"Pillarbox demo: a shop's orders, {outline}; the relay is killed several times on purpose."
        console.print(said, soft_wrap=True)
        yield _Lines(console)


class _Lines:
    """Whatever is new, one line each."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = 0

    def show(self, progress: Progress, lag: Lag) -> None:
        for at, text in progress.news[self._told :]:
            line = f"{at:5.1f} s  sold {progress.sold}, delivered {progress.delivered}: {text}"
            self._console.print(line, soft_wrap=True)
        self._told = len(progress.news)


class _Panel:
    def __init__(self, live: Live, outline: str) -> None:
        self._live = live
        self._outline = outline

    def show(self, progress: Progress, lag: Lag) -> None:
        width = min(100, self._live.console.width)
        content = Group(
            _figures(progress, width - 4),
            Text(),
            lag_plot(lag.times, lag.lags, progress.kills, width - 4, 8),
            Text(),
            _news(progress),
        )
        title = f"[bold]Pillarbox[/bold]  a shop's orders: {self._outline}"
        self._live.update(Panel(content, title=title, title_align="left", width=width), refresh=True)


def _figures(progress: Progress, width: int) -> Table:
    table = Table.grid(expand=False, padding=(0, 3, 0, 0))
    for style in ("dim", "bold", "dim", "bold", "dim", "bold"):
        table.add_column(style=style)
    alive = progress.relay.startswith("life")
    relay = Text(progress.relay, "green" if alive else "bold red" if progress.relay == "killed" else "yellow")
    table.add_row("orders sold", str(progress.sold), "delivered", str(progress.delivered), "relay", relay)
    table.add_row(
        "cards declined", str(progress.declined), "lag", f"{progress.lag:.2f} s", "kills", str(len(progress.kills))
    )
    bar = ProgressBar(total=progress.seconds, completed=min(progress.now, progress.seconds), width=max(10, width - 24))
    outer = Table.grid(padding=(0, 1, 1, 0))
    outer.add_row(Text(f"shop open {min(progress.now, progress.seconds):4.1f} of {progress.seconds:g} s"), bar)
    whole = Table.grid()
    whole.add_row(outer)
    whole.add_row(table)
    return whole


def _news(progress: Progress) -> Text:
    text = Text()
    for at, news in progress.news[-NEWS:]:
        text.append(f"{at:5.1f} s  ", "dim").append(f"{news}\n")
    return text
