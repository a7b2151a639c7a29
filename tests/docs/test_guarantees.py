"""docs/guarantees.md names tests that exist, and every promise there is."""

import re

from devtools.wheel import ROOT

PAGE = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tests_it_names_are_there() -> None:
    """A promise is kept by a test; one that was renamed or removed keeps nothing."""
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src/pillarbox/testing/contracts").glob("*.py")]
    defined = {name for path in sources for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))}
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named - defined == set()
    assert len(named) > 60


def test_the_files_it_names_are_there() -> None:
    """And so are the files."""
    assert [path for path in re.findall(r"`(tests/[\w/.]+)`", PAGE) if not (ROOT / path).exists()] == []


def test_every_promise_stands_in_both() -> None:
    """P1 to P16, in README in short and in the page with its limits."""
    promises = [f"P{number}" for number in range(1, 17)]
    assert re.findall(r"^## (P\d+) ", PAGE, re.MULTILINE) == promises
    assert re.findall(r"^\| (P\d+) \|", README, re.MULTILINE) == promises
