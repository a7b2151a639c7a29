"""`pillarbox demo`: real processes, real kills, and a verdict read from the destination."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pillarbox.demo.picture import can_draw, lag_plot, lag_png
from pillarbox.demo.play import Play
from pillarbox.demo.stage import Stage, stage
from pillarbox.demo.view import view_of
from pillarbox.testing.history import Verdict


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks for. Without `postgres` and `kafka`: SQLite and a file."""

    seconds: float = 14.0
    kills: int = 5
    seed: int = 1
    postgres: str | None = None
    kafka: str | None = None
    png: Path | None = None
    as_json: bool = False


def run(wishes: Wishes) -> int:
    """0 if every promise was kept, 1 if not."""
    if wishes.png is not None:
        can_draw()
    # A pipe gets plain text, whatever the environment says of colours.
    console = Console(stderr=wishes.as_json, no_color=None if sys.stdout.isatty() else True, highlight=False)
    with stage(wishes.postgres, wishes.kafka) as built:
        play = Play(built, seconds=wishes.seconds, kills=wishes.kills, seed=wishes.seed)
        with view_of(console, built.outline) as view:
            for progress in play.perform():
                view.show(progress, play.lag)
        verdict = play.verdict()
        if wishes.png is not None:
            lag_png(wishes.png, play.lag.times, play.lag.lags, play.progress.kills, built.outline)
        _tell(console, play, built, verdict, wishes)
    return 0 if verdict.ok else 1


def _tell(console: Console, play: Play, built: Stage, verdict: Verdict, wishes: Wishes) -> None:
    lag = play.lag
    if not console.is_terminal and not wishes.as_json:
        console.print(lag_plot(lag.times, lag.lags, play.progress.kills, 80, 8))
    if wishes.png is not None:
        console.print(f"The picture is in {wishes.png}.", soft_wrap=True)
    console.print(
        f"Read back from {'Kafka' if built.kafka else 'the file'}: {verdict.copies} copies of {verdict.messages} "
        f"committed orders; longest wait {max(lag.lags, default=0.0):.2f} s.",
        soft_wrap=True,
    )
    for name, found in verdict.breaches.items():
        console.print(f"BREACH {name} {len(found)}: {', '.join(found[:5])}", style="bold red", soft_wrap=True)
    if wishes.as_json:
        print(json.dumps(_figures(play, verdict)))
        return
    style = "bold green" if verdict.ok else "bold red"
    console.print(f"lost {len(verdict.lost)}", style=style)
    console.print(f"reordered {verdict.reordered}", style=style)
    console.print(f"duplicates {verdict.duplicates} (allowed: {verdict.allowed})", style=style)


def _figures(play: Play, verdict: Verdict) -> dict[str, object]:
    return {
        "ok": verdict.ok,
        "messages": verdict.messages,
        "lost": len(verdict.lost),
        "reordered": verdict.reordered,
        "duplicates": verdict.duplicates,
        "allowed": verdict.allowed,
        "breaches": verdict.breaches,
        "kills": [round(kill, 2) for kill in play.progress.kills],
        "longest_wait": round(max(play.lag.lags, default=0.0), 3),
    }
