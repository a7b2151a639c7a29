"""Named places where a test may kill the process.

A place calls `here("settle.before")`. Nothing is armed in production: `here` is then a function that does nothing.
`PILLARBOX_CRASH=name` or `name:3` (the third time it is reached) arms one place in a process that is started by a test.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

POINTS = (
    "take.before", "take.after_claim", "take.after_load",
    "read.after", "send.before", "send.after", "answer.after",
    "settle.before", "settle.sent", "settle.after",
    "bury.before", "bury.after", "hangup.before", "hangup.after",
    "renew.before", "renew.after", "expel.after", "giveback.before", "giveback.after",
    "recover.before", "recover.after", "route.stored",
    "scheduled.before", "scheduled.after", "unrouted.after",
    "roll.after_setval", "roll.after", "attach.after_create", "attach.after_attach",
    "prune.marked", "prune.kept", "prune.detached", "prune.dropped",
    "file.before_sync", "file.torn", "file.rotated",
)  # fmt: skip


def _die(name: str, count: int, log: str) -> Callable[[str], None]:
    left = count

    def here(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                if log:  # the harness counts what really fired
                    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                    os.write(fd, f"{point}\n".encode())
                    os.close(fd)
                os.kill(os.getpid(), signal.SIGKILL)

    return here


def _nothing(_point: str) -> None:
    return None


def arm(spec: str, log: str = "") -> Callable[[str], None]:
    """What `here` is to be for `name` or `name:count`."""
    if not spec:
        return _nothing
    name, _, count = spec.partition(":")
    if name not in POINTS:
        raise ValueError(f"no crash point {name!r}")
    return _die(name, int(count or 1), log)


# For the one place that must do something special before it can die there: half a write.
ARMED = os.environ.get("PILLARBOX_CRASH", "").partition(":")[0]
here: Callable[[str], None] = arm(os.environ.get("PILLARBOX_CRASH", ""), os.environ.get("PILLARBOX_CRASH_LOG", ""))
