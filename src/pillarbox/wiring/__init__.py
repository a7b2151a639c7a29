"""The composition root: from a configuration to the objects that meet nowhere else."""

from pillarbox.wiring.sinks import sink_problems
from pillarbox.wiring.storage import Storage, storage_of

__all__ = ["Storage", "sink_problems", "storage_of"]
