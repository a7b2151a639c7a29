"""`init`, `config show`, `config check`: before anything runs."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from pillarbox.cli.app import EPILOG, app
from pillarbox.cli.output import Output
from pillarbox.cli.session import Exit, session_of
from pillarbox.config import Problem
from pillarbox.errors import Refused
from pillarbox.wiring import sink_problems

config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True, epilog=EPILOG)
app.add_typer(config_app, name="config")


@app.command(epilog=EPILOG)
def init(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("pillarbox.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
) -> None:
    """Write a commented pillarbox.toml to begin with."""
    text = resources.files("pillarbox.cli").joinpath("pillarbox.toml").read_text(encoding="utf-8")
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(f"{path} is there already.", "Name another file, or say --force.") from None
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}.", "Check the folder and its rights.") from None
    out = session_of(ctx).out
    out.answer({"path": str(path)}, lambda: out.line(f"Wrote {path}. Next: pillarbox migrate up, then pillarbox run."))


@config_app.command(epilog=EPILOG)
def show(ctx: typer.Context) -> None:
    """Show every setting as it is in force, secrets masked."""
    session = session_of(ctx)
    config, found = session.examined()
    out = session.out
    out.answer(config.shown(), lambda: _print_settings(out, config.shown()))
    errors = sum(problem.level == "error" for problem in found)
    if errors:
        out.note(f"{errors} problem(s): see pillarbox config check.")


@config_app.command(epilog=EPILOG)
def check(ctx: typer.Context) -> None:
    """Find every problem at once; exit code 3 if there is an error. Warnings are told and stop nothing."""
    session = session_of(ctx)
    config, found = session.examined()
    told = {problem.path for problem in found if problem.level == "error"}
    found += [problem for problem in sink_problems(config) if problem.path not in told]
    session.out.answer([problem._asdict() for problem in found], lambda: _print_problems(session.out, found))
    if any(problem.level == "error" for problem in found):
        raise typer.Exit(Exit.CONFIG)


def _print_problems(out: Output, found: list[Problem]) -> None:
    for problem in sorted(found, key=lambda problem: problem.level):
        out.line(f"{problem.level}: {problem.path}: {problem.what} {problem.cure}".rstrip())
    if not found:
        out.line("The configuration is good.")


def _print_settings(out: Output, tree: dict[str, Any], path: str = "") -> None:
    for name, value in tree.items():
        if isinstance(value, dict):
            _print_settings(out, value, f"{path}{name}.")
        else:
            out.line(f"{path}{name} = {'' if value is None else value}".rstrip())
