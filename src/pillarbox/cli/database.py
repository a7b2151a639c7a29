"""`migrate up|sql|check|grants`: the tables. Needs only [database], never asks, is safe to run twice."""

from __future__ import annotations

from typing import Annotated

import typer

from pillarbox.cli.app import EPILOG, app
from pillarbox.cli.session import Exit, session_of
from pillarbox.errors import Refused
from pillarbox.wiring import Storage, storage_of

migrate_app = typer.Typer(help="Install and upgrade the tables.", no_args_is_help=True, epilog=EPILOG)
app.add_typer(migrate_app, name="migrate")

Lanes = Annotated[int, typer.Option("--lanes", help="How many lanes a new installation has: a power of two to 256.")]
Role = Annotated[str | None, typer.Option(metavar="ROLE")]


def _storage(ctx: typer.Context) -> Storage:
    return storage_of(session_of(ctx).config("database"))


@migrate_app.command(epilog=EPILOG)
def up(
    ctx: typer.Context,
    lanes: Lanes = 16,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be applied.")] = False,
) -> None:
    """Bring the tables up to this release. A run that was killed is resumed by the next one."""
    out = session_of(ctx).out
    with out.waiting("migrating"):
        done = _storage(ctx).migrate(lanes=lanes, dry_run=dry_run)

    def say() -> None:
        for name in done.applied:
            out.line(f"{'would apply' if dry_run else 'applied'} {name}")
        if not done.applied:
            out.line("Nothing to do: the tables are those of this release.")
        for note in done.notes:
            out.line(note)

    out.answer({"applied": done.applied, "notes": done.notes, "dry_run": dry_run}, say)


@migrate_app.command(epilog=EPILOG)
def sql(ctx: typer.Context, lanes: Lanes = 16) -> None:
    """Print the whole installation as SQL, for those who run it themselves. Connects to nothing."""
    out = session_of(ctx).out
    text = _storage(ctx).script(lanes=lanes)
    out.answer({"sql": text}, lambda: print(text, end=""))


@migrate_app.command(epilog=EPILOG)
def check(ctx: typer.Context) -> None:
    """Compare the tables with what this release expects; exit code 1 if anything differs."""
    out = session_of(ctx).out
    found = _storage(ctx).check()

    def say() -> None:
        for finding in found:
            out.line(finding)
        if not found:
            out.line("The tables are those of this release.")

    out.answer(found, say)
    if found:
        raise typer.Exit(Exit.FAILED)


@migrate_app.command(epilog=EPILOG)
def grants(
    ctx: typer.Context,
    writer: Role = None,
    relay: Role = None,
    viewer: Role = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the statements.")] = False,
) -> None:
    """Give existing roles the least they need: writers add, relays deliver, viewers look. The owner needs nothing."""
    if not (writer or relay or viewer):
        raise Refused("No role was named.", "Name at least one: --writer, --relay or --viewer.")
    out = session_of(ctx).out
    statements = _storage(ctx).grant(writer=writer, relay=relay, viewer=viewer, dry_run=dry_run)

    def say() -> None:
        for statement in statements:
            out.line(f"{statement};")

    out.answer({"statements": statements, "granted": not dry_run}, say)
