"""The command line: its words, its options that stand anywhere, and how it ends."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer

from pillarbox.cli.output import Output
from pillarbox.cli.session import Exit, Session, code_of, tree_of
from pillarbox.config import masked
from pillarbox.errors import PillarboxError

EPILOG = "Before or after the command: --config FILE, --set SECTION.NAME=VALUE, --json."

# Each module registers its words on `app`; in the order of the help page.
MODULES = ("setup", "database", "run", "look", "held", "later", "routes", "demo")

app = typer.Typer(
    name="pillarbox",
    help="Transactional outbox: messages recorded in your own transaction are carried on, in order, never lost.",
    epilog="Exit codes: 0 done, 1 failed or not well, 2 wrong usage, 3 configuration, 4 database, 5 refused.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PILLARBOX"},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pillarbox {version('pillarbox')}")
        raise typer.Exit


@app.callback()
def everywhere(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", envvar="PILLARBOX_CONFIG", help="TOML or YAML; ./pillarbox.toml."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Override a setting; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", envvar="PILLARBOX_JSON", help="Answer in JSON.")] = False,
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_version,
            help="Say the version.",
            show_envvar=False,
            allow_from_autoenv=False,
        ),
    ] = False,
) -> None:
    ctx.obj = Session(out=Output(as_json=as_json), path=config, overrides=tree_of(settings or []))


def hoisted(words: list[str]) -> list[str]:
    """The words with the options that stand anywhere moved to the front, where the parser looks for them."""
    front: list[str] = []
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word in {"--config", "--set"}:
            front += [word, *([value] if (value := next(left, None)) is not None else [])]
        elif word == "--json" or word.startswith(("--config=", "--set=")):
            front.append(word)
        else:
            rest.append(word)
    return front + rest


def main() -> None:
    """The entry point. It ends the process."""
    words = hoisted(sys.argv[1:])
    for module in MODULES:
        import_module(f"pillarbox.cli.{module}")
    try:
        app(args=words, prog_name="pillarbox")
    except PillarboxError as error:
        _complain(error, as_json=_wants_json(words))
        sys.exit(code_of(error))
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone; that is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.FAILED)
    except Exception as error:
        if os.environ.get("PILLARBOX_TRACEBACK"):
            raise
        unexpected = PillarboxError(
            f"Unexpected {type(error).__name__}: {error}.", "PILLARBOX_TRACEBACK=1 shows where; please report it."
        )
        _complain(unexpected, as_json=_wants_json(words))
        sys.exit(Exit.FAILED)


def _wants_json(words: list[str]) -> bool:
    """Errors may come before, or instead of, what the parser makes of the words."""
    return "--json" in words or os.environ.get("PILLARBOX_JSON", "").lower() in {"1", "true", "t", "yes", "y", "on"}


def _complain(error: PillarboxError, *, as_json: bool) -> None:
    what, hint = masked(error.what), masked(error.hint)
    if as_json:
        print(json.dumps({"error": {"code": error.code, "what": what, "hint": hint}}), file=sys.stderr)
    else:
        print(f"pillarbox: {what} {hint}".rstrip(), file=sys.stderr)
