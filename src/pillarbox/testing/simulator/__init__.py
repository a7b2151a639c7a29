"""The real engine in a simulated world: seeded schedules of messages, faults and people, judged as it goes.

result = run(draw(seed))         # the same seed, the same run
small = shrink(draw(seed), lambda s: run(s).promise == result.promise)
run(small, trace=print)
"""

from pillarbox.testing.simulator.draw import draw
from pillarbox.testing.simulator.ledger import Broken
from pillarbox.testing.simulator.run import Result, run
from pillarbox.testing.simulator.schedule import Act, Message, Schedule, SinkSpec
from pillarbox.testing.simulator.shrink import shrink
from pillarbox.testing.simulator.world import World

__all__ = ["Act", "Broken", "Message", "Result", "Schedule", "SinkSpec", "World", "draw", "run", "shrink"]
