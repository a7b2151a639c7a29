"""Draw a schedule from a seed: a world, its messages, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from pillarbox.outcome import SinkClass
from pillarbox.testing.simulator.schedule import Act, Message, Schedule, SinkSpec

AWAY = 600.0  # seconds; nobody waits for the end of it
SPAN = 12.0  # seconds in which things happen
STATEMENTS = ("read", "settle", "settle", "settle", "fetch", "take", "retake", "renew", "load", "survey", "give_back",
              "join", "move_due", "expel")  # fmt: skip
PAUSES = ("", "any", "read", "settle", "open", "renew", "take", "load", "renew reply", "read reply", "take reply",
          "load reply", "settle reply", "fetch reply")  # fmt: skip
CRASH_POINTS = ("take.before", "take.after_claim", "take.after_load", "read.after", "send.before", "send.after",
                "answer.after", "settle.before", "settle.after", "bury.before", "bury.after", "hangup.before",
                "hangup.after", "renew.before", "renew.after", "giveback.before", "giveback.after", "recover.before",
                "recover.after", "")  # fmt: skip
NATURES = ("poison", "refuse:1", "refuse:2", "kill:2", "kill:5", "unknown:1", "unknown:3", "unencodable")


def draw(seed: int) -> Schedule:
    """The schedule of this number."""
    rnd = Random(seed)
    kind = rnd.choice(("", "", "", "", "calm", "outage", "contained"))
    return {"": _mixed, "calm": _calm, "outage": _outage, "contained": _contained}[kind](seed, rnd)


def _calm(seed: int, rnd: Random) -> Schedule:
    """Nothing goes wrong; relays come and go in good order."""
    schedule = _world(seed, rnd)
    acts = _in_time([*_messages(rnd, ()), *_Draw(rnd, schedule).hand_overs()])
    return replace(_slow(schedule, rnd), acts=acts)


def _outage(seed: int, rnd: Random) -> Schedule:
    """A whole sink is away, once or twice."""
    schedule = _world(seed, rnd)
    world = _Draw(rnd, schedule)
    outages = [world.outage()._replace(at=at) for at in rnd.choice(((2.0,), (1.0, 15.0)))]
    return replace(schedule, acts=_in_time([*_messages(rnd, ()), *outages, *world.hand_overs()]))


def _contained(seed: int, rnd: Random) -> Schedule:
    """Some messages, keys or topics cannot be delivered, for so long that the rest must not wait for them."""
    schedule = _world(seed, rnd)
    world = _Draw(rnd, schedule)
    natures = rnd.choice(
        ((), ("poison",), ("kill:1000",), ("poison", "unencodable", "refuse:1"), ("kill:1000", "poison"))
    )
    away = rnd.choice((0, 1)) if natures else 1
    acts = [*_messages(rnd, natures, bad=0.06)]
    acts += [rnd.choice((world.topic_away, world.key_away))()._replace(at=0.0, seconds=AWAY) for _ in range(away)]
    return replace(schedule, acts=_in_time(acts), config={**schedule.config, "held_keys": 1000})


def _mixed(seed: int, rnd: Random) -> Schedule:
    schedule = _world(seed, rnd)
    world = _Draw(rnd, schedule)
    natures = NATURES if rnd.random() < 0.6 else ()
    messages = _messages(rnd, natures, bad=rnd.choice((0.02, 0.1, 0.3)))
    faults = [act for _ in range(rnd.choice((1, 1, 2, 3, 5, 8))) for act in world.fault()]
    if any(act.detail == "after_last_attempt=block" for act in faults):
        schedule = replace(schedule, config={**schedule.config, "held_keys": 1000})
    return replace(_slow(schedule, rnd), acts=_in_time([*messages, *faults, *world.hand_overs()]))


def _slow(schedule: Schedule, rnd: Random) -> Schedule:
    """Sinks that take their time: more is on the wire when something happens."""
    sinks = tuple(spec._replace(delay=rnd.choice((0.02, 0.02, 0.3, 0.9))) for spec in schedule.sinks)
    return replace(schedule, sinks=sinks)


def _in_time(acts: list[Act]) -> tuple[Act, ...]:
    return tuple(sorted(acts, key=lambda act: act.at))


def _world(seed: int, rnd: Random) -> Schedule:
    sinks = tuple(_sink(rnd) for _ in range(rnd.choice((1, 1, 2))))
    routes = _routes(rnd, len(sinks))
    relays = rnd.choice((1, 1, 2, 2, 3))
    config: dict[str, Any] = {"attempts": rnd.choice((1, 2, 3)), "held_keys": rnd.choice((3, 1000))}
    if any(route.get("after_last_attempt") for route in routes.values()):
        config["held_keys"] = 1000  # so many blocked keys stop a lane, and that is meant
    if rnd.random() < 0.5:
        config |= {"window": 100, "batch": rnd.choice((10, 100))}
    lacks = ((1, f"s{rnd.randrange(len(sinks))}"),) if relays > 1 and rnd.random() < 0.2 else ()
    return Schedule(
        seed, (), lanes=rnd.choice((1, 2, 4)), relays=relays, sinks=sinks, routes=routes, config=config, lacks=lacks
    )


def _sink(rnd: Random) -> SinkSpec:
    delivery = rnd.choice(tuple(SinkClass))
    return SinkSpec(delivery, rnd.random() < 0.3, rnd.choice((1, 3, 20, 10_000)), rnd.random() < 0.6)


def _routes(rnd: Random, sinks: int) -> dict[str, dict[str, Any]]:
    routes: dict[str, dict[str, Any]] = {"main": {"sink": "s0"}}
    if rnd.random() < 0.4:
        routes["more"] = {"sink": f"s{sinks - 1}", "match": {"aggregate": ["audit", "bill"]}}
    else:
        routes["main"]["match"] = {"aggregate": ["order", "audit"]}
    for definition in routes.values():
        if rnd.random() < 0.2:
            definition["order"] = "none"
        if rnd.random() < 0.3:
            definition["after_last_attempt"] = "block"
    return routes


def _messages(rnd: Random, natures: tuple[str, ...], bad: float = 0.0) -> list[Act]:
    """Transactions: early and late, of one and of several messages, some rolled back."""
    keys = [f"k{n}" for n in range(rnd.choice((1, 2, 4, 6)))]
    total = rnd.choice((4, 15, 40, 80))
    acts, label, at = [], 0, 0.0
    while label < total:
        size = rnd.choice((1, 1, 1, 2, 5, 20))
        messages = []
        for _ in range(size):
            nature = rnd.choice(natures) if natures and rnd.random() < bad else ""
            key = None if rnd.random() < 0.1 else rnd.choice(keys)
            topic = rnd.choice(("t0", "t1", "")) if rnd.random() < 0.5 else ""
            aggregate = rnd.choice(("order", "order", "order", "audit", "bill"))
            messages.append(Message(label, key, topic, aggregate, nature))
            label += 1
        late = rnd.choice((0.0, 0.0, 0.0, 0.5, 4.0))
        end = "rollback" if rnd.random() < 0.08 else ""
        what = "later" if late and rnd.random() < 0.2 else "add"
        acts.append(Act(round(at, 3), what, 0, late, end if what == "add" else "", tuple(messages)))
        at += rnd.choice((0.0, 0.01, 0.2, 1.0))
    return acts


class _Draw:
    """Faults and hand-overs."""

    def __init__(self, rnd: Random, world: Schedule) -> None:
        self.rnd = rnd
        self.relays, self.sinks, self.routes = world.relays, len(world.sinks), len(world.routes)

    def at(self) -> float:
        return round(self.rnd.uniform(0.0, SPAN), 3)

    def relay(self) -> int:
        return self.rnd.randrange(self.relays)

    def fault(self) -> list[Act]:
        if self.rnd.random() < 0.1:
            return self.take_over()
        kinds: tuple[Callable[[], Act], ...] = (
            self.crash, self.crash, self.pause, self.pause, self.lose, self.lose, self.outage, self.outage,
            self.topic_away, self.key_away, self.reset, self.server, self.expel, self.person, self.person, self.ambush,
            self.ambush, self.route,
        )  # fmt: skip
        return [self.rnd.choice(kinds)()]

    def take_over(self) -> list[Act]:
        """A relay dies in a settle that applies later; whoever takes its lanes is slow to do so."""
        at, who = self.at(), self.relay()
        dies = [Act(at, "lose", who, 0.0, "settle dying")]
        pause = self.rnd.choice((0.5, 1.0, 1.5))  # beyond the lease the take itself is in doubt
        return dies + [Act(at, "pause", n, pause, "take") for n in range(self.relays) if n != who]

    def ambush(self) -> Act:
        return Act(self.at(), "ambush", self.relay(), 0.0, self.rnd.choice(("retry", "bury", "skip")))

    def crash(self) -> Act:
        return Act(self.at(), "crash", self.relay(), self.rnd.choice((0.1, 1.0, 5.0)), self.rnd.choice(CRASH_POINTS))

    def pause(self) -> Act:
        where = self.rnd.choice(PAUSES)
        return Act(self.at(), "pause", self.relay(), self.rnd.choice((0.5, 2.0, 3.0, 7.0)), where)

    def lose(self) -> Act:
        how = self.rnd.choice(("before", "after", "late"))
        return Act(self.at(), "lose", self.relay(), 0.0, f"{self.rnd.choice(STATEMENTS)} {how}")

    def outage(self) -> Act:
        kind = self.rnd.choice(("closed", "unavailable", "silent"))
        return Act(self.at(), "outage", self.rnd.randrange(self.sinks), self.rnd.choice((0.3, 2.0, 12.0)), kind)

    def topic_away(self) -> Act:
        topic = self.rnd.choice(("t0", "t1", "order"))
        return Act(self.at(), "topic_away", self.rnd.randrange(self.sinks), self.rnd.choice((1.0, 15.0)), topic)

    def key_away(self) -> Act:
        key = f"k{self.rnd.randrange(4)}"
        return Act(self.at(), "key_away", self.rnd.randrange(self.sinks), self.rnd.choice((1.0, 15.0)), key)

    def reset(self) -> Act:
        return Act(self.at(), "reset", self.rnd.randrange(self.sinks))

    def server(self) -> Act:
        return Act(self.at(), self.rnd.choice(("server_crash", "database_away")), 0, self.rnd.choice((0.0, 0.5, 4.0)))

    def expel(self) -> Act:
        return Act(self.at(), "expel", self.relay())

    def person(self) -> Act:
        verb = self.rnd.choice(("retry", "bury", "skip", "replay"))
        return Act(self.at() + 3.0, "operate", self.rnd.randrange(self.routes), 0.0, verb)

    def route(self) -> Act:
        at, route = self.at(), self.rnd.randrange(self.routes)
        if self.rnd.random() < 0.4:
            return Act(at, "pause_route", route, self.rnd.choice((0.5, 3.0)))
        changes = ("topic=t9", "after_last_attempt=block", "after_last_attempt=bury", "order=none",
                   *(f"sink=s{n}" for n in range(self.sinks)))  # fmt: skip
        return Act(at, "change_route", route, 0.0, self.rnd.choice(changes))

    def hand_overs(self) -> list[Act]:
        """Relays that leave in good order and come again, and log that goes: none of it excuses anything."""
        acts = []
        for _ in range(self.rnd.choice((0, 0, 1, 2))):
            at, who = self.at(), self.relay()
            acts.append(Act(at, "leave", who, 0.0, "30"))
            acts.append(Act(round(at + self.rnd.choice((0.3, 2.0, 8.0)), 3), "join", who))
        if self.rnd.random() < 0.3:
            acts.append(Act(self.at(), "prune"))
        return acts
