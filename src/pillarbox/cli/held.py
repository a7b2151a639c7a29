"""`held …` and `dead …`: messages that an answer has set aside, and messages given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from pillarbox.admin import actions, reads
from pillarbox.admin.actions import Done
from pillarbox.admin.audit import note
from pillarbox.admin.words import messages
from pillarbox.cli import selection as s
from pillarbox.cli.app import EPILOG, app
from pillarbox.errors import Refused
from pillarbox.views import HoldLine, Pick

held_app = typer.Typer(help="Messages that wait for another attempt.", no_args_is_help=True, epilog=EPILOG)
dead_app = typer.Typer(help="Messages that were given up.", no_args_is_help=True, epilog=EPILOG)
app.add_typer(held_app, name="held")
app.add_typer(dead_app, name="dead")

SAID = {
    "retry": ("sent again now, with all their attempts", "to be sent again"),
    "bury": ("given up; their keys go on", "buried"),
    "skip": ("skipped for good; their keys go on", "skipped"),
    "replay": ("sent again, outside their keys' order", "to be sent again"),
    "skip dead": ("skipped for good", "skipped"),
}


def _list_command(group: typer.Typer, states: tuple[str, ...], nothing: str, about: str) -> None:
    @group.command("list", help=about, epilog=EPILOG)
    def command(
        ctx: typer.Context,
        ids: s.Ids = None,
        *,
        route: s.RouteOf = None,
        aggregate: s.AggregateOf = None,
        key: s.KeyOf = None,
        type: s.TypeOf = None,
        error: s.ErrorOf = None,
        since: s.Since = None,
        limit: s.Limit = 100,
    ) -> None:
        pick = s.picked(ids, since, limit, route=route, aggregate=aggregate, key=key, type=type, error=error)
        _list(ctx, pick._replace(states=states), nothing)


def _list(ctx: typer.Context, pick: Pick, nothing: str) -> None:
    with s.at_the_desk(ctx) as at:
        found = reads.held(at.desk, pick)
        if not found:
            _must_be_known(at, pick.route)

        def say() -> None:
            if not found:
                at.out.note(nothing)
                return
            at.out.table(s.HELD_COLUMNS, map(s.held_row, found))
            if len(found) == pick.limit:
                at.out.note(f"These are the first {pick.limit}; --limit shows more.")

        at.out.answer(found, say)


def _must_be_known(at: s.At, route: str | None) -> None:
    """Nothing found under a name that is misspelt is no good news."""
    if route not in (None, "unrouted") and route not in {line.name for line in at.desk.overview().routes}:
        raise Refused(f"There is no stored route {route!r}.", "`pillarbox route list` names them.")


def _act(
    ctx: typer.Context,
    verb: str,
    pick: Pick,
    act: Callable[[s.At, Sequence[HoldLine]], Done],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    with s.at_the_desk(ctx) as at:
        lines = actions.choose(at.desk, verb, pick)
        if not lines:
            _must_be_known(at, pick.route)
        shown = [reads.shown(line) for line in lines]
        what, became = SAID[verb]
        if dry_run or not lines:
            found = {"action": verb, "dry_run": dry_run, "would_change": shown}
            at.out.answer(found, lambda: at.out.line(f"{messages(len(lines))} would be {what}."))
            return
        if len(lines) == pick.limit:
            at.out.note(f"Only the first {pick.limit} are meant; --limit takes more.")
        at.out.confirm(f"{messages(len(lines))} will be {what}. Go on?", yes=yes)
        with at.out.waiting(f"{verb}: {messages(len(lines))}"):
            done = act(at, lines)

        def say() -> None:
            at.out.line(f"{messages(len(done.changed))} {became}.")
            if done.left:
                at.out.line(f"{messages(done.left)} had changed since and stayed as they are.")

        at.out.answer(done, say)


def _changing(verb: str, why: str) -> Callable[[s.At, Sequence[HoldLine]], Done]:
    return lambda at, lines: actions.change(at.actions, verb, lines, note(why))


def _meant(pick: Pick) -> Pick:
    if not any((pick.ids, pick.route, pick.aggregate, pick.key, pick.type, pick.error, pick.since)):
        raise Refused(
            "Nothing says which messages are meant.", "Give ids or filters; `--route NAME` takes a whole route."
        )
    return pick


def _verb_command(group: typer.Typer, name: str, verb: str, about: str) -> None:
    @group.command(name, help=about, epilog=EPILOG)
    def command(
        ctx: typer.Context,
        ids: s.Ids = None,
        *,
        route: s.RouteOf = None,
        aggregate: s.AggregateOf = None,
        key: s.KeyOf = None,
        type: s.TypeOf = None,
        error: s.ErrorOf = None,
        since: s.Since = None,
        limit: s.Limit = s.MANY,
        dry_run: s.DryRun = False,
        yes: s.Yes = False,
        why: s.Why = "",
    ) -> None:
        pick = _meant(s.picked(ids, since, limit, route=route, aggregate=aggregate, key=key, type=type, error=error))
        _act(ctx, verb, pick, _changing(name, why), dry_run=dry_run, yes=yes)


_list_command(
    held_app,
    ("retry", "blocked", "waiting"),
    "Nothing is held.",
    "List messages that wait: for their next attempt, for a person (blocked), or behind one of these.",
)
_verb_command(
    held_app, "retry", "retry", "Send messages again now, with all their attempts before them. Blocked ones go on too."
)
_verb_command(
    held_app,
    "bury",
    "bury",
    "Give up messages that hold their keys back; they can be replayed, what waits behind them goes on.",
)
_verb_command(
    held_app,
    "skip",
    "skip",
    "Never deliver these messages: final. Filters find those that hold a key back, ids waiting ones as well.",
)
_list_command(
    dead_app,
    ("dead",),
    "Nothing is dead.",
    "List messages that were given up; those that no route wanted have the route `unrouted`.",
)


@dead_app.command("replay", epilog=EPILOG)
def dead_replay(
    ctx: typer.Context,
    ids: s.Ids = None,
    *,
    to: Annotated[str | None, typer.Option("--to", metavar="ROUTE", help="Deliver through this route.")] = None,
    route: s.RouteOf = None,
    aggregate: s.AggregateOf = None,
    key: s.KeyOf = None,
    type: s.TypeOf = None,
    error: s.ErrorOf = None,
    since: s.Since = None,
    limit: s.Limit = s.MANY,
    dry_run: s.DryRun = False,
    yes: s.Yes = False,
    why: s.Why = "",
) -> None:
    """Deliver dead messages again: same id, next generation, outside their keys' order."""
    pick = _meant(s.picked(ids, since, limit, route=route, aggregate=aggregate, key=key, type=type, error=error))
    act: Callable[[s.At, Sequence[HoldLine]], Done] = lambda at, lines: actions.replay(at.actions, lines, to, note(why))  # noqa: E731
    _act(ctx, "replay", pick, act, dry_run=dry_run, yes=yes)


_verb_command(
    dead_app, "skip", "skip dead", "Take messages off the list of the dead: final, they will not be replayed."
)
