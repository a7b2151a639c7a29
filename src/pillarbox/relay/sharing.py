"""Who works how many lanes of a route (R15). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from pillarbox.ports import LaneState, RelayState

PATIENCE = 2  # ticks a lane may be free before anyone takes it, whatever its share


class Share(NamedTuple):
    """What this relay is to do about one route's lanes."""

    take: int  # at most so many more
    give_back: int


def share(me: UUID, route: str, lanes: Sequence[LaneState], relays: Sequence[RelayState], lease: float) -> Share:
    """Even shares among those that serve this route and have done so for a lease; all of them if none has. Who comes
    and goes all the time gets nothing, so a crash loop takes no lanes from its neighbours."""
    serving = [r for r in relays if route in r.serves]
    settled = [r for r in serving if r.settled_for >= lease]
    counted = sorted(r.id for r in settled or serving)
    held = sum(lane.owner == me for lane in lanes)
    if me not in counted:
        return Share(0, held)
    mine = len(lanes) // len(counted) + (counted.index(me) < len(lanes) % len(counted))
    return Share(max(0, mine - held), max(0, held - mine))


class Orphans:
    """Which lanes nobody has taken for a while."""

    def __init__(self) -> None:
        self._free_for: dict[tuple[str, int], int] = {}

    def after_tick(self, lanes: Sequence[LaneState], relays: Sequence[RelayState]) -> set[str]:
        """The routes that have a lane without an owner for longer than `PATIENCE` ticks."""
        alive = {r.id for r in relays}
        free = {(x.route, x.lane) for x in lanes if x.owner is None or x.owner not in alive}
        self._free_for = {x: self._free_for.get(x, 0) + 1 for x in free}
        return {route for (route, _), ticks in self._free_for.items() if ticks > PATIENCE}
