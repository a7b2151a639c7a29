"""`route …`, `adopt`: what relays execute, and whose database this is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from pillarbox.admin.audit import note
from pillarbox.admin.words import messages
from pillarbox.cli import selection as s
from pillarbox.cli.app import EPILOG, app
from pillarbox.cli.output import Output
from pillarbox.cli.session import session_of
from pillarbox.config import Config
from pillarbox.errors import Refused
from pillarbox.views import RouteLine
from pillarbox.wiring import storage_of
from pillarbox.wiring.storage import Routes

route_app = typer.Typer(help="The routes that every relay executes.", no_args_is_help=True, epilog=EPILOG)
app.add_typer(route_app, name="route")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A stored route.")]


@contextmanager
def _routes(ctx: typer.Context) -> Iterator[tuple[Output, Routes]]:
    session = session_of(ctx)
    yield session.out, storage_of(session.config("database")).routes()


@route_app.command("list", epilog=EPILOG)
def route_list(ctx: typer.Context) -> None:
    """List stored routes, and how the file differs from them."""
    config, _problems = session_of(ctx).examined()
    with s.at_the_desk(ctx) as at:
        found = [_shown(line, config) for line in at.desk.overview().routes]
        found += [
            {"name": name, "state": "not stored", "sink": route.sink, "start": route.start, "file": "only there"}
            for name, route in config.routes.items()
            if name not in {each["name"] for each in found}
        ]
        columns = ("name", "state", "sink", "start", "file")
        at.out.answer(found, lambda: at.out.table(columns, [[each[c] for c in columns] for each in found]))


def _shown(line: RouteLine, config: Config) -> dict[str, Any]:
    file = "missing there"
    if line.name in config.routes:
        file = "same" if config.routes[line.name].definition() == line.definition else "differs"
    return {
        "name": line.name,
        "state": "paused" if line.paused else "running",
        "sink": line.definition.get("sink"),
        "start": line.start,
        "file": file,
        "definition": line.definition,
    }


@route_app.command("apply", epilog=EPILOG)
def route_apply(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="All of the file by default.")] = None,
    *,
    dry_run: s.DryRun = False,
    yes: s.Yes = False,
    why: s.Why = "",
) -> None:
    """Store the file's definitions; every relay takes them up at its next empty window. A new one needs `start`."""
    with s.at_the_desk(ctx, "database", "routes") as at:
        stored = {line.name: line.definition for line in at.desk.overview().routes}
        wanted = _wanted(at.config, names, stored)
        if dry_run or not wanted:
            would = {"action": "apply", "dry_run": dry_run, "would_apply": wanted}
            at.out.answer(would, lambda: _say_changes(at.out, wanted))
            return
        if not at.out.as_json:
            _say_changes(at.out, wanted)
        at.out.confirm(f"{len(wanted)} route(s) will change for every relay. Go on?", yes=yes)
        routes = storage_of(at.config).routes()
        for name, change in wanted.items():
            if change["start"] is None:
                routes.apply(name, change["definition"], note(why))
            else:
                routes.store(name, change["definition"], change["start"], note(why))
        at.out.answer(
            {"action": "apply", "applied": list(wanted)}, lambda: at.out.line(f"Applied {', '.join(wanted)}.")
        )


def _wanted(config: Config, names: list[str] | None, stored: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    wanted: dict[str, dict[str, Any]] = {}
    for name in names or config.routes:
        if name not in config.routes:
            raise Refused(f"The configuration has no [routes.{name}].", "`pillarbox route list` shows both sides.")
        ours = config.routes[name]
        if stored.get(name) == ours.definition():
            continue
        if name not in stored and ours.start is None:
            raise Refused(
                f"Route {name!r} is new: nothing says where it begins.",
                f'Set routes.{name}.start to "beginning" or "now", or use `route rename` if it only has a new name.',
            )
        wanted[name] = {
            "definition": ours.definition(),
            "was": stored.get(name),
            "start": None if name in stored else ours.start,
        }
    return wanted


def _say_changes(out: Output, wanted: dict[str, dict[str, Any]]) -> None:
    if not wanted:
        out.line("Nothing to do: the stored routes are those of the file.")
    for name, change in wanted.items():
        if change["was"] is None:
            out.line(f"{name}: new, from {'the beginning of the log' if change['start'] == 'beginning' else 'now'} on")
            continue
        for field, value in change["definition"].items():
            if change["was"].get(field) != value:
                out.line(f"{name}.{field}: {change['was'].get(field)!r} → {value!r}")


def _one(ctx: typer.Context, action: str, name: str, act: Callable[[Routes], None], said: str) -> None:
    with _routes(ctx) as (out, routes):
        act(routes)
        out.answer({"action": action, "route": name}, lambda: out.line(said))


@route_app.command("rename", epilog=EPILOG)
def route_rename(
    ctx: typer.Context,
    old: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name; the file must have it too.")],
    *,
    why: s.Why = "",
) -> None:
    """Rename a route and keep its cursors: nothing is sent again."""
    _one(ctx, "rename", new, lambda routes: routes.rename(old, new, note(why)), f"{old} is {new} now.")


@route_app.command("pause", epilog=EPILOG)
def route_pause(ctx: typer.Context, name: Name, *, why: s.Why = "") -> None:
    """Deliver nothing by this route until it is resumed. Retention waits for it: the log grows."""
    _one(ctx, "pause", name, lambda routes: routes.pause(name, note(why)), f"{name} is paused.")


@route_app.command("resume", epilog=EPILOG)
def route_resume(ctx: typer.Context, name: Name, *, why: s.Why = "") -> None:
    """Go on with a paused route where it stood."""
    _one(ctx, "resume", name, lambda routes: routes.resume(name, note(why)), f"{name} goes on.")


@route_app.command("remove", epilog=EPILOG)
def route_remove(
    ctx: typer.Context, name: Name, *, dry_run: s.DryRun = False, yes: s.Yes = False, why: s.Why = ""
) -> None:
    """Forget a route, its cursors and what it has not delivered; the audit keeps which messages these were."""
    with s.at_the_desk(ctx) as at:
        seen = at.desk.overview()
        line = next((line for line in seen.routes if line.name == name), None)
        if line is None:
            raise Refused(f"There is no stored route {name!r}.", "`pillarbox route list` names them.")
        unread = sum(lane.pending for lane in seen.lanes if lane.route == name)
        held = line.held + line.waiting
        facts = f"{messages(unread)} unread (estimated), {held} held, {line.dead} dead"
        if dry_run:
            would = {
                "action": "remove",
                "dry_run": True,
                "route": name,
                "unread": unread,
                "held": held,
                "dead": line.dead,
            }
            at.out.answer(would, lambda: at.out.line(f"{name} would be removed with {facts}."))
            return
        at.out.confirm(f"{name} will be removed with {facts}; {name} delivers none of them. Go on?", yes=yes)
        undelivered = storage_of(at.config).routes().remove(name, note(why))
        answer = {"action": "remove", "route": name, "undelivered": undelivered}
        at.out.answer(
            answer, lambda: at.out.line(f"{name} is removed; {messages(undelivered)} undelivered, see the audit.")
        )


@app.command(epilog=EPILOG)
def adopt(
    ctx: typer.Context,
    start: Annotated[str, typer.Option("--from", metavar="cursor|unread|now", help="Where the routes go on.")],
    *,
    dry_run: s.DryRun = False,
    yes: s.Yes = False,
    why: s.Why = "",
) -> None:
    """Make a restored or copied database this cluster's own. `cursor`: it was moved or upgraded with its transaction
    ids (pg_upgrade, physical copy). `unread`: it was restored from a dump. `now`: deliver nothing that is in it."""
    with s.at_the_desk(ctx) as at:
        environment = at.config.database.environment
        with at.out.waiting("counting"):
            counts = at.actions.adopt(start, environment, note(why), dry_run=True)

        def say() -> None:
            for what, number in counts.items():
                at.out.line(f"{what}: {number}")

        if dry_run:
            at.out.answer({"action": "adopt", "dry_run": True, "from": start, "counts": counts}, say)
            return
        if not at.out.as_json:
            say()
        at.out.confirm(f"This becomes the installation {environment!r} and goes on from {start}. Go on?", yes=yes)
        counts = at.actions.adopt(start, environment, note(why), dry_run=False)
        answer = {"action": "adopt", "from": start, "environment": environment, "counts": counts}
        at.out.answer(answer, lambda: at.out.line("Adopted: relays take the lanes by themselves."))
