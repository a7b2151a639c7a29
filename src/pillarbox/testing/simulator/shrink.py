"""Make a failing schedule smaller while it still breaks the same promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pillarbox.testing.simulator.schedule import Act, Schedule

Fails = Callable[[Schedule], bool]


def shrink(schedule: Schedule, fails: Fails, most: int = 600) -> Schedule:
    """Leave out acts, then messages, then natures; then simplify the world."""
    tries = 0
    found = True
    while found and tries < most:
        found = False
        for smaller in _smaller(schedule):
            tries += 1
            if tries >= most:
                break
            if fails(smaller):
                schedule, found = smaller, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    yield from _fewer_acts(schedule)
    yield from _simpler_world(schedule)
    yield from _fewer_messages(schedule)
    yield from _simpler_acts(schedule)


def _fewer_acts(schedule: Schedule) -> Iterator[Schedule]:
    acts, size = schedule.acts, len(schedule.acts) // 2
    while size:
        for start in range(0, len(acts), size):
            yield replace(schedule, acts=acts[:start] + acts[start + size :])
        size //= 2


def _simpler_world(schedule: Schedule) -> Iterator[Schedule]:
    if schedule.lanes > 1:
        yield replace(schedule, lanes=1)
    if schedule.relays > 1:
        acts = tuple(a for a in schedule.acts if not _of_relay(a) or a.who < schedule.relays - 1)
        yield replace(schedule, relays=schedule.relays - 1, acts=acts)
    if schedule.lacks:
        yield replace(schedule, lacks=())
    for name in list(schedule.routes)[1:]:
        fewer = {n: d for n, d in schedule.routes.items() if n != name}
        yield replace(schedule, routes=fewer, acts=tuple(a for a in schedule.acts if not _of_route(a) or a.who == 0))
    for name in schedule.config:
        yield replace(schedule, config={n: v for n, v in schedule.config.items() if n != name})
    for name, definition in schedule.routes.items():
        for part in set(definition) - {"sink"}:
            simpler = {n: v for n, v in definition.items() if n != part}
            yield replace(schedule, routes={**schedule.routes, name: simpler})


def _of_relay(act: Act) -> bool:
    return act.what in ("crash", "pause", "lose", "expel", "leave", "join", "ambush")


def _of_route(act: Act) -> bool:
    return act.what in ("pause_route", "change_route", "operate")


def _fewer_messages(schedule: Schedule) -> Iterator[Schedule]:
    for n, act in enumerate(schedule.acts):
        for m in range(len(act.messages)) if len(act.messages) > 1 else ():
            yield _with(schedule, n, act._replace(messages=act.messages[:m] + act.messages[m + 1 :]))


def _simpler_acts(schedule: Schedule) -> Iterator[Schedule]:
    for n, act in enumerate(schedule.acts):
        if act.what == "add":
            for m, message in enumerate(act.messages):
                plain = (message._replace(nature=""), message._replace(topic=""), message._replace(aggregate="order"))
                for each in [each for each in plain if each != message]:
                    yield _with(schedule, n, act._replace(messages=(*act.messages[:m], each, *act.messages[m + 1 :])))
        if act.what in ("add", "crash", "pause") and act.seconds:
            yield _with(schedule, n, act._replace(seconds=0.0))


def _with(schedule: Schedule, n: int, act: Act) -> Schedule:
    return replace(schedule, acts=(*schedule.acts[:n], act, *schedule.acts[n + 1 :]))
