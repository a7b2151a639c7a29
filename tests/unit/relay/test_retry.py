"""How long to wait before trying again, and when to stop trying a sink."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.retry import LONGEST_PAUSE, TOLERATED, Breaker, Policy, backoff, spread


def test_delays_double_up_to_the_longest() -> None:
    """Delay n is 2^(n-1) seconds, at most 300."""
    policy = Policy(jitter=0.0)
    assert [policy.delay(n, Random(0)) for n in (1, 2, 3, 9, 10, 100)] == [1, 2, 4, 256, 300, 300]


def test_the_last_attempt_is_the_one_that_was_configured() -> None:
    """Five refusals, and a message is given up."""
    assert [Policy(attempts=5).is_last(n) for n in (4, 5, 6)] == [False, True, True]


@given(st.integers(1, 10_000), st.floats(1, 10), st.floats(0.01, 86_400), st.floats(0, 1), st.integers())
def test_a_pause_is_within_its_bounds(n: int, base: float, longest: float, jitter: float, seed: int) -> None:
    """Never negative, never longer than the longest and its jitter, never an overflow."""
    pause = backoff(n, 1.0, base, longest)
    assert 0 < pause <= longest
    assert 0 <= spread(pause, jitter, Random(seed)) <= longest * (1 + jitter) + 1e-9


@given(st.floats(0.01, 100), st.floats(0, 1), st.integers())
def test_jitter_goes_both_ways(seconds: float, jitter: float, seed: int) -> None:
    """At most its share, more or less."""
    assert abs(spread(seconds, jitter, Random(seed)) - seconds) <= seconds * jitter + 1e-9


def test_a_breaker_opens_after_a_few_failures_and_closes_with_a_success() -> None:
    """While it is open one message at a time goes, when its pause is over."""
    breaker = Breaker(Random(0))
    for n in range(TOLERATED):
        assert not breaker.is_open
        assert breaker.allows(99, float(n))
        breaker.failed(float(n), "away")
    assert breaker.is_open
    assert (breaker.reason, breaker.allows(0, TOLERATED - 1.0), breaker.allows(1, 99.0)) == ("away", False, False)
    assert breaker.allows(0, 99.0)
    assert breaker.accepted()
    assert (breaker.is_open, breaker.reason, breaker.accepted()) == (False, "", False)


def test_a_sink_that_says_so_is_away_at_once() -> None:
    """No session to be had opens the breaker with the first failure."""
    breaker = Breaker(Random(0))
    breaker.is_away(0.0, "refused")
    assert breaker.is_open


@given(st.integers(1, 200), st.integers())
def test_a_probe_is_never_far_away(failures: int, seed: int) -> None:
    """P11: however long an outage was, its end is noticed within seconds."""
    breaker = Breaker(Random(seed))
    for n in range(failures):
        breaker.failed(100.0 + n, "away")
    assert breaker.allows(0, 100.0 + failures - 1 + LONGEST_PAUSE * 1.21)


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_a_delay_needs_no_luck(jitter: float) -> None:
    """Any jitter the configuration allows gives a delay."""
    assert Policy(jitter=jitter).delay(3, Random(1)) >= 0
