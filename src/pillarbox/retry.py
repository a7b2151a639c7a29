"""How long to wait before trying again. Pure."""

from __future__ import annotations

from random import Random
from typing import NamedTuple


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
