"""The real engine in simulated worlds: what DESIGN promises holds in every schedule, and a seed is a schedule."""

import os
import subprocess
import sys

import pytest

from pillarbox.testing.simulator import Act, Message, Result, Schedule, SinkSpec, draw, run, shrink

EVERYDAY, FULL = 500, 20_000
PARTS = 4  # so that two workers share them


def explained(seed: int, result: Result) -> str:
    """The smallest schedule that breaks the same promise."""
    small = shrink(draw(seed), lambda schedule: run(schedule).promise == result.promise)
    return f"seed {seed}: {result.broken}\n{small}\n{run(small).broken}"


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_in_seeded_schedules(part: int, full: bool) -> None:
    """Crashes, pauses, lost replies, outages, poison, hand-overs and people break no promise."""
    copies = 0
    for seed in range(part, FULL if full else EVERYDAY, PARTS):
        result = run(draw(seed))
        assert not result.broken, explained(seed, result)
        copies += result.copies
    assert copies > EVERYDAY


def test_fresh_schedules(seed: int) -> None:
    """Schedules nobody has seen before hold too: the session's seed draws them."""
    for number in range(seed, seed + 40):
        result = run(draw(number))
        assert not result.broken, explained(number, result)


def test_every_kind_of_schedule_is_drawn() -> None:
    """The everyday share contains each kind of world, fault and sink."""
    schedules = [draw(seed) for seed in range(EVERYDAY)]
    assert {s.kind for s in schedules} == {"calm", "outage", "contained", "mixed"}
    assert len({act.what for s in schedules for act in s.acts}) >= 16
    assert {spec.delivery for s in schedules for spec in s.sinks} == {"single", "gaps", "fail-stop"}


def test_a_seed_is_a_schedule_in_every_process() -> None:
    """The same seed gives the same run whatever the order of Python's sets of strings."""
    code = (
        "import hashlib; from pillarbox.testing.simulator import draw, run\n"
        "h = hashlib.sha256()\n"
        "for seed in range(40): run(draw(seed), trace=lambda line: h.update(line.encode()))\n"
        "print(h.hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": n}, capture_output=True, check=True
        ).stdout
        for n in ("1", "2")
    }
    assert len(digests) == 1


def test_a_failing_schedule_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not matter for a broken promise is left out of what is shown."""
    noise = tuple(Act(0.1 * n, "add", messages=(Message(n, f"k{n % 3}"),)) for n in range(12))
    schedule = Schedule(1, (*noise, Act(0.5, "add", messages=(Message(99, "k0", nature="poison"), Message(100, "k1")))))
    monkeypatch.setattr("pillarbox.retry.Policy.is_last", lambda _self, _tries: True)
    result = run(schedule)
    assert result.promise == "ATTEMPTS"
    small = shrink(schedule, lambda s: run(s).promise == "ATTEMPTS")
    assert [m.label for act in small.acts for m in act.messages] == [99]
    assert "99:k0(poison)" in str(small)


def test_a_calm_world_delivers_everything_once_and_in_order() -> None:
    """Fifty messages of five keys: fifty deliveries."""
    acts = tuple(Act(0.1 * n, "add", messages=(Message(n, f"k{n % 5}"),)) for n in range(50))
    result = run(Schedule(2, acts))
    assert (result.broken, result.messages, result.copies) == ("", 50, 50)


def test_no_more_lanes_move_than_must() -> None:
    """Lanes that take their time to be given back are not joined by others (R15: the minimum moves)."""
    lines: list[str] = []
    slow = tuple(Act(0.05 * n, "add", messages=(Message(n, f"k{n}"),)) for n in range(300))
    schedule = Schedule(4, slow, lanes=8, relays=2, sinks=(SinkSpec(delay=0.9),))
    assert not run(schedule, trace=lines.append).broken
    given = [line for line in lines if "gives back" in line]
    moved = sum(len(line[line.index("[") :].split(",")) for line in given)
    assert moved == 4


def test_a_route_goes_to_a_sink_that_one_relay_lacks() -> None:
    """Its lanes are let go and all messages arrive through the other."""
    acts = tuple(Act(0.2 * n, "add", messages=(Message(n, f"k{n % 5}"),)) for n in range(30))
    change = Act(3.1, "change_route", detail="sink=s1")
    schedule = Schedule(
        2, tuple(sorted((*acts, change))), relays=2, lanes=4, sinks=(SinkSpec(), SinkSpec()), lacks=((1, "s1"),)
    )
    assert not run(schedule).broken


def test_a_take_whose_reply_was_lost_is_noticed() -> None:
    """The lanes are ours without our knowing: they are taken anew."""
    acts = (Act(0.0, "lose", detail="take after"), Act(1.0, "add", messages=(Message(0, "k0"), Message(1, "k1"))))
    result = run(Schedule(3, acts))
    assert (result.broken, result.copies) == ("", 2)
