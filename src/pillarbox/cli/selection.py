"""Options by which people say which messages they mean, and how an action is said, asked for and done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pillarbox.admin.reads import HeldMessage
from pillarbox.admin.words import span
from pillarbox.cli.output import Output
from pillarbox.cli.session import session_of
from pillarbox.config import Config
from pillarbox.config.values import seconds
from pillarbox.ports import Actions, Desk
from pillarbox.views import Pick
from pillarbox.wiring import storage_of

MANY = 10_000  # messages one action takes at most unless --limit says otherwise

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Message ids, or ids in the log.")]
RouteOf = Annotated[str | None, typer.Option("--route", metavar="NAME", help="Only of this route.")]
AggregateOf = Annotated[str | None, typer.Option("--aggregate", help="Only of this aggregate.")]
KeyOf = Annotated[str | None, typer.Option("--key", help="Only of this key.")]
TypeOf = Annotated[str | None, typer.Option("--type", help="Only of this type.")]
ErrorOf = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Only if the error contains this.")]
Since = Annotated[str | None, typer.Option("--since", metavar="2h", help="Only what was held within this time.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="At most so many.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason; it is kept in the audit.")]

HELD_COLUMNS = ("id", "route", "state", "key", "type", "attempts", "next", "behind", "held", "error")


def duration(text: str | None, option: str) -> float | None:
    """`2h`, `30 min`, `90`: seconds."""
    if text is None:
        return None
    try:
        found = seconds(text)
        return float(found)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time; write 90, 30m, 2h or 7d", param_hint=option) from None


def picked(ids: Sequence[str] | None, since: str | None, limit: int, **filters: str | None) -> Pick:
    """What the options say; the states are the command's own."""
    route, aggregate, key, type, error = (filters[name] for name in ("route", "aggregate", "key", "type", "error"))
    return Pick((), tuple(ids or ()), route, aggregate, key, type, error, duration(since, "--since"), limit)


@dataclass(frozen=True)
class At:
    """What a command for operators has at hand."""

    out: Output
    config: Config
    desk: Desk
    actions: Actions


@contextmanager
def at_the_desk(ctx: typer.Context, *sections: str) -> Iterator[At]:
    """The desk of the configured installation, closed at the end. Needs only [database] unless more is named."""
    session = session_of(ctx)
    config = session.config(*(sections or ("database",)))
    storage = storage_of(config)
    desk, actions = storage.desk(), storage.actions()
    try:
        yield At(session.out, config, desk, actions)
    finally:
        desk.close()
        actions.close()


def held_row(one: HeldMessage) -> Sequence[Any]:
    """A line of a list."""
    due = one.next_attempt_in
    return (
        one.id or one.log_id,
        one.route,
        one.state if not one.generation else f"{one.state} (replay {one.generation})",
        one.key,
        one.type,
        one.attempts,
        "" if due is None or one.state != "retry" else "now" if due <= 0 else span(due),
        one.behind or "",
        span(one.held_for),
        one.error[:200],
    )
