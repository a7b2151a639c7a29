"""docs/states-and-errors.md names every state and every error there is, and no other."""

import re

from devtools.wheel import ROOT
from pillarbox import errors
from pillarbox.admin.actions import STATES
from pillarbox.admin.explain import ALL
from pillarbox.errors import PillarboxError

PAGE = (ROOT / "docs/states-and-errors.md").read_text(encoding="utf-8")


def test_every_state_is_told_of() -> None:
    """The states a hold row can have are the ones in the first table."""
    first = PAGE.split("## What an operator's word does")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", first, re.MULTILINE)) == set(ALL)


def test_every_error_is_told_of() -> None:
    """Code and type of each class of the tree, as the code has them."""
    tree = {
        (error.code, name)
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, PillarboxError)
    }
    assert set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE)) == tree


def test_what_each_word_takes_is_told() -> None:
    """The states that an operator's word applies to are those in the second table."""
    for word, verb in (
        ("held retry", "retry"),
        ("held bury", "bury"),
        ("dead replay", "replay"),
        ("dead skip", "skip dead"),
    ):
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{word}`"))
        assert set(re.findall(r"`(\w+)`", row.split("|")[2])) == set(STATES[verb])
