"""Upkeep in a thread and on a connection of its own: a slow DETACH never delays a delivery."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import NamedTuple

from pillarbox.config import LogConfig
from pillarbox.errors import DatabaseUnavailable, NotPermitted, PillarboxError
from pillarbox.events import ChoreFailed, Emit, SegmentRolled, SegmentsDropped, Warned
from pillarbox.ports import Upkeep

EACH = 60.0  # seconds; relays come at random within half of it more, so that they do not all come at once


class Kept(NamedTuple):
    """What one round of upkeep did."""

    attached: int
    rolled: bool
    dropped: list[str]
    expired: int


def keep(upkeep: Upkeep, log: LogConfig) -> Kept:
    """One round."""
    return Kept(
        attached=upkeep.attach_ahead(),
        rolled=upkeep.roll(log.period_seconds, log.period_rows),
        dropped=upkeep.prune(log.retention),
        expired=upkeep.expire(log.retention, log.unique_seconds),
    )


class Maintenance:
    """A round a minute until it is stopped; what fails is told and tried again."""

    def __init__(self, make: Callable[[], Upkeep], log: LogConfig, emit: Emit) -> None:
        self._make, self._log, self._emit = make, log, emit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pillarbox-upkeep", daemon=True)
        self._warned = False

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        self._over.set()
        if self._thread.ident is not None:  # a relay that never began has none to wait for
            self._thread.join(timeout)

    def _work(self) -> None:
        pause = random.uniform(0, 2)
        while not self._over.wait(pause):
            self.round()
            pause = EACH * random.uniform(1, 1.5)

    def round(self) -> None:
        """Once, in the caller's thread."""
        upkeep: Upkeep | None = None
        try:
            upkeep = self._make()
            self._tell(keep(upkeep, self._log))
            self._warn(active=False, detail="upkeep works")
        except NotPermitted as error:
            self._warn(active=True, detail=str(error))
        except DatabaseUnavailable:
            pass  # the relay itself tells of that
        except PillarboxError as error:
            self._emit(ChoreFailed("upkeep", str(error)))
        finally:
            if upkeep is not None:
                upkeep.close()

    def _tell(self, kept: Kept) -> None:
        if kept.rolled:
            self._emit(SegmentRolled())
        if kept.dropped:
            self._emit(SegmentsDropped(tuple(kept.dropped)))

    def _warn(self, *, active: bool, detail: str) -> None:
        if active != self._warned:
            self._warned = active
            self._emit(Warned("no_maintenance_connection", detail, active))
