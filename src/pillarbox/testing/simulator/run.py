"""Run a schedule to its end, and judge what must hold there."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import NamedTuple

from pillarbox.testing.simulator.ledger import GIVEN_UP, Book, Broken, Known
from pillarbox.testing.simulator.node import Node
from pillarbox.testing.simulator.schedule import Schedule
from pillarbox.testing.simulator.world import World

HEALED_WITHIN = 35.0  # seconds after the last fault in which everything must be delivered and settled
LOOK_EACH = 0.5
CONTAINED_WITHIN = 30.0  # seconds after the last commit in which what can be delivered must be
CONTAINED_EACH = 4.5  # and for each that cannot: a sink that does not tell is probed with one after the other
RESUMED_WITHIN = 14.0  # P11: ten seconds, and the send time-out twice: once for the message, once for the probe


class Result(NamedTuple):
    """How a run ended."""

    broken: str  # the promise that did not hold; empty: all did
    time: float
    messages: int
    copies: int
    statements: int

    @property
    def promise(self) -> str:
        """Its name alone."""
        return self.broken.partition(":")[0]


def run(schedule: Schedule, *, trace: Callable[[str], None] | None = None) -> Result:
    """Let it happen, then let everything heal."""
    broken = ""
    world = World(schedule, trace=trace)
    with world.crash_points():
        try:
            _to_the_end(world)
        except Broken as why:
            broken = str(why)
        except Exception as error:
            if trace is not None:
                trace("".join(traceback.format_exception(error)))
            broken = f"CRASHED: the engine raised {type(error).__name__}: {error}"
    copies = sum(book.copies for book in world.ledger.books.values())
    return Result(broken, world.clock.time, len(world.ledger.known), copies, world.statements)


def _to_the_end(world: World) -> None:
    if world.schedule.kind == "contained":
        _contained(world)
    else:
        _healed(world)


def _healed(world: World) -> None:
    world.run_until(world.schedule.last + 0.001)
    _heal(world)
    healed = world.clock.time
    while True:
        world.run_until(world.clock.time + LOOK_EACH)
        world.advance()
        left = unfinished(world) or untidy(world)
        if not left:
            break
        if world.clock.time >= max(healed, world.ledger.arrived_at) + HEALED_WITHIN:
            raise Broken(f"STUCK: {HEALED_WITHIN:g} s after the last fault and the last arrival {left}")
    if world.schedule.kind in ("calm", "outage"):
        _judge_quiet(world, healed)
    world.run_until(world.clock.time + 10.0)  # what is still on its way from ended sessions
    world.advance()


def _contained(world: World) -> None:
    world.run_until(world.commits_end)
    slow = sum(
        world.is_away(name, known) for name, book in world.ledger.books.items() for known in book.wanted.values()
    )
    give_up = world.commits_end + CONTAINED_WITHIN + slow * CONTAINED_EACH
    while left := uncontained(world):
        if world.clock.time >= give_up:
            raise Broken(f"CONTAINED: {world.clock.time - world.commits_end:.0f} s after the last commit {left}")
        world.run_until(world.clock.time + LOOK_EACH)
        world.advance()


def _judge_quiet(world: World, healed: float) -> None:
    """P8, P11: an outage sets nothing aside and counts nothing, and its end is noticed by itself."""
    if world.log.holds and not all(h.route == "unrouted" for h in world.log.holds.values()):
        raise Broken(f"HELD: {world.log.holds} although nothing was refused")
    if world.held_ever and sum(act.what == "outage" for act in world.schedule.acts) < 2:
        raise Broken("HELD: something was set aside although nothing was refused")
    if world.schedule.kind == "outage" and world.ledger.delivered_at > max(healed, world.commits_end) + RESUMED_WITHIN:
        raise Broken(f"RESUMED: the last delivery came {world.ledger.delivered_at - healed:.1f} s after the outage")


def uncontained(world: World) -> str:
    """P7: what is not delivered although it is none of what cannot be delivered, nor waits behind it."""
    for name, book in world.ledger.books.items():
        world.note_holds(name)
        stopped: dict[str, int] = {}
        for known in book.wanted.values():
            what = (known.id, 0)
            over = what in book.got or book.states.get(what) in GIVEN_UP
            if over:
                continue
            if world.is_away(name, known) or known.nature.startswith("kill") or book.states.get(what) == "blocked":
                if known.key is not None and book.ordered:
                    stopped.setdefault(known.key, known.place)
            elif known.key is None or stopped.get(known.key, known.place) >= known.place:
                return f"{name}/{known.label} is not delivered (hold: {book.states.get(what, 'none')})"
    return ""


def _heal(world: World) -> None:
    """Somebody works, and all routes run."""
    if all(node.engine is None or node.stop_by is not None for node in world.nodes):
        world.after(6.0, world.nodes[0].start)


# ------------------------------------------------------------------ the end


def unfinished(world: World) -> str:
    """What of the messages is still to be done."""
    if world.log.due:
        return f"{len(world.log.due)} scheduled messages are due"
    for name, book in world.ledger.books.items():
        world.note_holds(name)
        blocked = {book.wanted[i].key for (i, _), s in book.states.items() if s == "blocked" and i in book.wanted}
        for known in book.wanted.values():
            if not _is_over(book, known, blocked):
                return f"{name}/{known.label} is not delivered (hold: {book.states.get((known.id, 0), 'none')})"
        for (id_, generation), state in book.states.items():
            if state in ("retry", "waiting") and world.ledger.known[id_].key not in blocked:
                return f"{name}/{world.ledger.known[id_].label} generation {generation} is still in hold as {state}"
        stored = world.log.routes[name]
        for lane, cursor in enumerate(stored.cursors):
            if any(k.id in book.wanted for k in world.order[lane][cursor:]):
                return f"the cursor of {name} lane {lane} stands at {cursor} of {len(world.order[lane])}"
    return _unowned(world)


def _is_over(book: Book, known: Known, blocked: set[str | None]) -> bool:
    what = (known.id, 0)
    over = what in book.got or known.id in book.optional or book.states.get(what) in GIVEN_UP
    return over or (known.key in blocked if known.key is not None else book.states.get(what) == "blocked")


def _unowned(world: World) -> str:
    owners = {node.engine.tenure.id for node in world.nodes if node.engine is not None}
    for name, route in world.log.routes.items():
        for lane, owner in enumerate(route.owners):
            if owner not in owners:
                return f"nobody owns {name} lane {lane}"
    return ""


def untidy(world: World) -> str:
    """What the relays still remember although all is done."""
    for node in world.nodes:
        found = _untidy(node)
        if found:
            return f"{node} remembers {found}"
    return ""


def _untidy(node: Node) -> str:
    engine = node.engine
    if engine is None:
        return ""
    for name, service in engine.services.items():
        blocked = any(s == "blocked" for s in node.world.ledger.books[name].states.values())
        judge, flight = service.judge, service.flight
        for what, it in (("done", service.done), ("wire", flight.wire), ("first", flight.first),
                         ("entries on the wire", flight.entries), ("failing", judge.failing), ("busy", judge.turns.busy),
                         ("parked", list(judge.turns.parked()))):  # fmt: skip
            if it:
                return f"{what} of {name}: {it}"
        for lane, window in service.windows.items():
            for what in ("pages", "ready", "replays", "ahead", "early", "gone", "unpassed", "bytes"):
                if getattr(window, what):
                    return f"{what} of {name} lane {lane}: {getattr(window, what)}"
            if (window.stopped or window.touched) and not blocked:
                return f"stopped keys of {name} lane {lane}: {list(window.stopped)} {list(window.touched)}"
    return ""
