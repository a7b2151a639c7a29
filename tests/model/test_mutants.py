"""The judge is judged: the simulator must catch every rule that is broken on purpose."""

import pytest

from pillarbox.testing.simulator import Act, Message, Schedule, draw, run
from tests.model.mutants_of_leases import ALL as MUTANTS

ENOUGH = 600  # schedules

POISON = Message(0, "k0", nature="poison")
# Rare meetings, each arranged: rare events keep a deterministic test.
ARRANGED = {
    "loaded_before_the_take": [
        Schedule(
            seed,
            (
                Act(0.0, "lose", 0, 0.0, "settle dying"),
                Act(0.5, "pause", 1, 1.5, "take"),
                Act(1.0, "add", messages=(POISON, Message(1, "k0"))),
                Act(1.2, "add", messages=(Message(2, "k0"),)),
            ),
            relays=2,
            lanes=1,
        )
        for seed in range(20)
    ],
    "stale_is_taken_as_written": [
        Schedule(
            seed,
            (Act(0.0, "add", messages=(POISON, Message(1, "k0"))), Act(2.0, "ambush", 0, 0.0, verb)),
            lanes=1,
            routes={"main": {"sink": "s0", "after_last_attempt": policy}},
        )
        for seed in range(4)
        for verb in ("retry", "bury", "skip")
        for policy in ("block", "bury")
    ],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some schedule shows that this rule is broken."""
    MUTANTS[name](monkeypatch)
    caught = any(run(schedule).broken for schedule in ARRANGED.get(name, ()))
    assert caught or any(run(draw(seed)).broken for seed in range(ENOUGH)), f"{name}: not in {ENOUGH} schedules"


@pytest.mark.parametrize("name", ARRANGED)
def test_the_arranged_meetings_break_nothing_by_themselves(name: str) -> None:
    """Without the mutant the same schedules pass."""
    assert [run(schedule).broken for schedule in ARRANGED[name]] == [""] * len(ARRANGED[name])
