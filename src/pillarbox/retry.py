"""When to try again: one message, and a whole sink. Pure."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

TOLERATED = 3  # failing answers in a row, nothing accepted between them
FIRST_PAUSE, GROWTH, LONGEST_PAUSE = 0.1, 2.0, 2.0  # seconds: an outage that ends is noticed well within P11's ten
JITTER = 0.2


class Policy(NamedTuple):
    """What happens to a message that is refused."""

    attempts: int = 5
    base: float = 2.0
    longest: float = 300.0
    jitter: float = 0.1

    def is_last(self, tries: int) -> bool:
        """Whether a message that has been refused so often is given up."""
        return tries >= self.attempts

    def delay(self, tries: int, rnd: Random) -> float:
        """Seconds until the next attempt, after so many refusals."""
        return spread(backoff(tries, 1.0, self.base, self.longest), self.jitter, rnd)


def backoff(n: int, first: float, base: float, longest: float) -> float:
    """The n-th pause (n from 1) of a series that grows from `first` by `base` up to `longest`."""
    if n > 64:  # the power would overflow long after the cap was reached
        return longest
    return min(longest, first * base ** max(0, n - 1))


def spread(seconds: float, jitter: float, rnd: Random) -> float:
    """The same, a random share of at most `jitter` more or less."""
    return seconds * (1 + jitter * (2 * rnd.random() - 1))


class Breaker:
    """Opens after a few failures without a success; while open one message at a time is let through as a probe."""

    def __init__(self, rnd: Random) -> None:
        self._rnd = rnd
        self.failures = 0
        self._probe_at = 0.0
        self.reason = ""

    @property
    def is_open(self) -> bool:
        """Whether the sink is taken to be away."""
        return self.failures >= TOLERATED

    def failed(self, now: float, reason: str) -> None:
        """Unavailable, unknown, or no session to be had."""
        self.failures += 1
        self.reason = reason
        pause = backoff(self.failures - TOLERATED + 1, FIRST_PAUSE, GROWTH, LONGEST_PAUSE)
        self._probe_at = now + spread(pause, JITTER, self._rnd)

    def is_away(self, now: float, reason: str) -> None:
        """The sink itself says that nothing can be had from it: open at once."""
        self.failures = max(self.failures, TOLERATED - 1)
        self.failed(now, reason)

    def accepted(self) -> bool:
        """The sink is well; whether it was taken to be away."""
        was_open = self.is_open
        self.failures = 0
        self.reason = ""
        return was_open

    def may_try(self, now: float) -> bool:
        """Whether anything may be handed over now."""
        return not self.is_open or now >= self._probe_at

    def allows(self, in_flight: int, now: float) -> bool:
        """Whether one more may be in flight."""
        return not self.is_open or (in_flight == 0 and now >= self._probe_at)
