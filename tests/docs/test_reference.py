"""The generated pages say what the code says."""

import re

import pytest

from devtools.reference import PAGES
from devtools.wheel import ROOT
from pillarbox.observability.metrics import Metrics
from pillarbox.views import Overview, RouteLine


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    """A setting or an option that changed without `./dev docs` fails here."""
    assert (ROOT / name).read_text(encoding="utf-8") == PAGES[name](), f"{name} is stale: run ./dev docs"


def test_every_metric_is_told_of() -> None:
    """docs/observability.md names every metric there is, and none that is not."""
    route = RouteLine("all", {}, False, "beginning", 0, 0, 0, None)
    seen = Overview("production", True, 1, [], [route], [], [], 0, 0, None, 0, 1, 3, None)
    names = {family.name for family in Metrics("0", look=lambda: seen).registry.collect()}
    page = (ROOT / "docs/observability.md").read_text(encoding="utf-8")
    told = {name.removesuffix("_total") for name in re.findall(r"^\| `(pillarbox_\w+)`", page, re.MULTILINE)}
    assert told == names
