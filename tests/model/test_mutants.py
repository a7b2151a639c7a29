"""The judge is judged: the simulator must catch every rule that is broken on purpose."""

import pytest

from pillarbox.testing.simulator import draw, run
from tests.model.mutants_of_leases import ALL as MUTANTS

ENOUGH = 1_000  # schedules


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some schedule of the everyday share shows that this rule is broken."""
    MUTANTS[name](monkeypatch)
    assert any(run(draw(seed)).broken for seed in range(ENOUGH)), f"{name} was not caught in {ENOUGH} schedules"
