"""How a command speaks: rich to a terminal, plain lines into a pipe, JSON to a program."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pillarbox.errors import Refused

_SURROGATE = re.compile("[\ud800-\udfff]")  # text of an SQLite file that is no UTF-8
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Output:
    """Standard output and standard error of one command."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = Console(soft_wrap=True, highlight=False)
        self.errors = Console(stderr=True, soft_wrap=True, highlight=False)

    def answer(self, value: Any, say: Callable[[], None]) -> None:
        """The command's result: as JSON if that was asked for, else as `say` tells it."""
        if self.as_json:
            self.json(value)
        else:
            say()

    def json(self, value: Any) -> None:
        text = json.dumps(value, default=_plain, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None)
        print(_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))

    def line(self, text: str = "", style: str | None = None) -> None:
        """One line of text; nothing in it is markup."""
        self.console.print(escape(visible(text)), style=style)

    def note(self, text: str) -> None:
        """For the person who waits, beside the result: standard error."""
        self.errors.print(escape(visible(text)), style="dim")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
        """Rows under a head; into a pipe as lines with tabs between the cells."""
        cells = [["" if cell is None else visible(str(cell)) for cell in row] for row in rows]
        if not self.console.is_terminal:
            print("\t".join(columns))
            for row in cells:
                print("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
            return
        table = Table(title=title, title_justify="left")
        first, *rest = columns  # what comes first names the row, and is there to be copied: whole
        table.add_column(first, no_wrap=True, min_width=max((len(row[0]) for row in cells), default=0))
        for column in rest:
            table.add_column(column, overflow="fold")
        for row in cells:
            table.add_row(*(escape(cell) for cell in row))
        self.console.print(table, soft_wrap=False)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if a person says yes here, or said `--yes`. Raises `Refused`."""
        if yes:
            return
        if self.as_json or not sys.stdin.isatty():
            raise Refused(f"{question} Nobody is here to answer.", "Say --yes, or look first with --dry-run.")
        self.errors.print(f"{escape(question)} [y/N] ", end="")
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise Refused("Nothing was changed.", "")

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows a person that something takes its time."""
        if self.as_json or not self.errors.is_terminal:
            yield
            return
        with self.errors.status(escape(text)):
            yield


def visible(text: str) -> str:
    """The text with what would steer a terminal, or cannot be written, in its escaped form: keys and errors are
    anybody's."""
    return _STEERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
