"""The composition root: from a configuration to the objects that meet nowhere else."""

from pillarbox.wiring.maintenance import Kept, keep
from pillarbox.wiring.relay import AsyncRelay, Relay
from pillarbox.wiring.sinks import sink_problems
from pillarbox.wiring.storage import Migrated, Storage, storage_of
from pillarbox.wiring.watch import Watch

__all__ = ["AsyncRelay", "Kept", "Migrated", "Relay", "Storage", "Watch", "keep", "sink_problems", "storage_of"]
