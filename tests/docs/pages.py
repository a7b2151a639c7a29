"""What a page of the documentation tells its reader to do: its fenced blocks, in order."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devtools.wheel import ROOT

# A comment at the page's top, for the suite alone: `<!-- needs: postgres kafka -->`.
NEEDS = re.compile(r"<!-- needs: ([\w ]+) -->")
# `# shop.py` as a block's first line: the reader saves the block under that name.
NAMED = re.compile(r"# ([\w./-]+\.\w+)\s*$")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of its first line in the page
    follows: bool = False  # stands behind the block before it without a heading between them

    @property
    def name(self) -> str | None:
        """The file that the reader makes of it."""
        found = NAMED.match(self.text.partition("\n")[0])
        return found[1] if found and self.language != "sh" else None


@dataclass(frozen=True)
class Page:
    name: str
    needs: frozenset[str]
    blocks: tuple[Block, ...]


def page_of(name: str, text: str) -> Page:
    found = NEEDS.match(text)
    return Page(name, frozenset(found[1].split() if found else ()), tuple(_blocks(text)))


def pages() -> list[Page]:
    """README and every page under docs/."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths]


def page(name: str) -> Page:
    return page_of(name, Path(ROOT / name).read_text(encoding="utf-8"))


def _blocks(text: str) -> Iterator[Block]:
    """Fenced blocks; and stage directions, which a reader does not see: `<!-- sh`, lines, `-->`."""
    lines = iter(enumerate(text.splitlines(), 1))
    follows = False
    for number, line in lines:
        if line.startswith("#"):
            follows = False
        opened = re.match(r"(?:```|<!-- )(\w+)$", line)
        if not opened:
            continue
        end = "```" if line.startswith("```") else "-->"
        inside = []
        for _, within in lines:
            if within == end:
                break
            inside.append(f"{within}\n")
        else:
            raise ValueError(f"the block of line {number} has no end")
        yield Block(opened[1], "".join(inside), number + 1, follows)
        follows = True
