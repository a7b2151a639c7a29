"""Work that one relay does for all, each in a short transaction under a row lock (R18)."""

from __future__ import annotations

from collections.abc import Sequence

from pillarbox import events as ev
from pillarbox.config import RelayConfig
from pillarbox.errors import Retryable
from pillarbox.ports import Chores, RouteState

PAUSE = 0.5  # seconds between two looks
DUE_AT_ONCE = 1_000


class ChoreWork:
    """Moves messages that are due, judges those that no route wants."""

    def __init__(self, chores: Chores, config: RelayConfig, emit: ev.Emit) -> None:
        self._chores = chores
        self._bury = config.unrouted == "dead"
        self._emit = emit
        self._next = float("-inf")

    def step(self, now: float, routes: Sequence[RouteState]) -> None:
        """Do both if it is time. What the database asks to be tried again is tried again the next time."""
        if now < self._next:
            return
        self._next = now + PAUSE
        try:
            moved = self._chores.move_due(DUE_AT_ONCE)
            if moved:
                self._emit(ev.ScheduledMoved(moved))
            if moved >= DUE_AT_ONCE:
                self._next = now
            buried = self._chores.judge_unrouted(routes, self._bury)
            if buried:
                self._emit(ev.UnroutedFound(buried))
        except Retryable as e:
            self._emit(ev.ChoreFailed("scheduled, unrouted", str(e)))
