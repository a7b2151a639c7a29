"""Links between pages lead somewhere, and every page can be found."""

import re
from pathlib import Path

import pytest

from devtools.wheel import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8"))
    return [link for link in found if not link.startswith("http")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page is a file."""
    assert [link for link in links(page) if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_index() -> None:
    """Whoever begins at docs/index.md finds all of them."""
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link).resolve() for link in links(index)}
    assert {page for page in PAGES if page.parent != ROOT} - listed == {index}
