"""The same ports in memory: for unit tests, for the simulator, and for tests of those who use Pillarbox.

Ids are drawn by `add`, rows become visible at `commit`, so a transaction that commits late yields lower ids after
higher ones, as PostgreSQL does. A lane's log is in commit order and a position is a place in it. Time is the clock
that is passed in; nothing is random but the `Random` that is passed in. Every method is one atomic step, from any
thread. `crash` changes the crash token; what was committed stays.
"""

from __future__ import annotations

from pillarbox.storage.memory.chores import MemoryChores, MemoryUpkeep
from pillarbox.storage.memory.leases import MemoryLeases
from pillarbox.storage.memory.log import MemoryLog, MemoryTransaction
from pillarbox.storage.memory.source import MemorySource, Token

__all__ = [
    "MemoryChores",
    "MemoryLeases",
    "MemoryLog",
    "MemorySource",
    "MemoryStore",
    "MemoryTransaction",
    "MemoryUpkeep",
    "Token",
]


class MemoryStore:
    """One connection. Two of them on one log are two relays on one database."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        token = Token(log)
        self.source = MemorySource(token)
        self.leases = MemoryLeases(token)
        self.chores = MemoryChores(log)
        self.upkeep = MemoryUpkeep(log)
