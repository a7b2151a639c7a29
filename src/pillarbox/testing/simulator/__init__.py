"""The real engine in a simulated world: seeded schedules of messages, faults and people, judged as it goes."""

from pillarbox.testing.simulator.run import Result, run
from pillarbox.testing.simulator.schedule import Act, Message, Schedule, SinkSpec

__all__ = ["Act", "Message", "Result", "Schedule", "SinkSpec", "run"]
