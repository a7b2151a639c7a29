"""How long the oldest order has been waiting, over time; measured at the destination."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pillarbox.testing.history import Sighting


@dataclass(slots=True)
class Lag:
    """Fed with commits and sightings; `sample` notes how late the destination is at a moment."""

    waiting: dict[str, float] = field(default_factory=dict)  # id -> committed at; the oldest first
    seen: set[str] = field(default_factory=set)
    copies: list[Sighting] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    def committed(self, id: str, at: float) -> None:
        # The relay may be faster than the shop's own note of its COMMIT.
        if id not in self.seen:
            self.waiting[id] = at

    def arrived(self, copies: Iterable[Sighting]) -> None:
        for copy in copies:
            self.copies.append(copy)
            self.seen.add(copy.id)
            self.waiting.pop(copy.id, None)

    def sample(self, now: float) -> float:
        oldest = next(iter(self.waiting.values()), now)
        self.times.append(now)
        self.lags.append(max(0.0, now - oldest))
        return self.lags[-1]
