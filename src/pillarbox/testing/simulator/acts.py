"""What a schedule's acts do to a world: producers, people, and faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pillarbox.ports import Held
from pillarbox.storage.holds import HoldRow, change, replay
from pillarbox.storage.memory import MemoryUpkeep
from pillarbox.testing.simulator.schedule import Act, Message

if TYPE_CHECKING:
    from pillarbox.testing.simulator.world import World

PATIENCE = 3.0  # seconds until a crash at a point that is not reached happens anyway


# ------------------------------------------------------------------ producers


def add(world: World, act: Act) -> None:
    """A transaction: ids are drawn now, it ends `seconds` later."""
    transaction = world.log.begin()
    for message in act.messages:
        transaction.add(message.aggregate, "created", b"%d" % message.label, key=message.key, **_more(message))
    end = transaction.rollback if act.detail == "rollback" else transaction.commit
    if act.seconds:
        world.after(act.seconds, end)
    else:
        end()


def later(world: World, act: Act) -> None:
    """Messages to be added when they are due, by whoever does that chore."""
    for message in act.messages:
        fields = {"aggregate": message.aggregate, "type": "created", "key": message.key, **_more(message)}
        world.log.schedule(act.seconds, payload=b"%d" % message.label, **fields)


def _more(message: Message) -> dict[str, Any]:
    more: dict[str, Any] = {"topic": message.topic} if message.topic else {}
    if message.nature == "unencodable":
        more["headers"] = {"broken": 5}
    return more


# ------------------------------------------------------------------ relays


def crash(world: World, act: Act) -> None:
    node = world.nodes[act.who]
    if act.detail:
        node.crash_at = act.detail
        world.after(PATIENCE, lambda: node.die() if node.crash_at else None)
    else:
        node.die()
    world.after(act.seconds + (PATIENCE if act.detail else 0.0), node.start)


def pause(world: World, act: Act) -> None:
    node = world.nodes[act.who]
    if act.detail:
        node.pause_at = (act.detail, act.seconds)
    else:
        node.pause(act.seconds)


def lose(world: World, act: Act) -> None:
    """The next reply of this statement is lost: `settle after`."""
    statement, _, how = act.detail.partition(" ")
    world.nodes[act.who].lose[statement] = how


def expel(world: World, act: Act) -> None:
    """The database's clock made a jump: the relay's row is gone before its time."""
    node = world.nodes[act.who]
    engine = node.engine
    if engine is not None:
        node.jumped_until = node.alive_until
        world.log.processes.pop(engine.tenure.id, None)


def leave(world: World, act: Act) -> None:
    world.nodes[act.who].leave(float(act.detail or 5.0))


def join(world: World, act: Act) -> None:
    world.nodes[act.who].start()


# ------------------------------------------------------------------ the database


def server_crash(world: World, act: Act) -> None:
    world.log.crash()
    database_away(world, act)


def database_away(world: World, act: Act) -> None:
    if not act.seconds:
        return
    world.database_away = True

    def back() -> None:
        world.database_away = False

    world.after(act.seconds, back)


def prune(world: World, _act: Act) -> None:
    """Everything that every cursor has passed goes."""
    MemoryUpkeep(world.log).prune(0.0)


# ------------------------------------------------------------------ sinks


def outage(world: World, act: Act) -> None:
    broker = world.brokers[act.who]
    broker.begin_outage(act.detail)
    world.after(act.seconds, broker.end_outage)


def topic_away(world: World, act: Act) -> None:
    broker = world.brokers[act.who]
    broker.advance()
    broker.topics_away.add(act.detail)
    world.after(act.seconds, lambda: broker.comes_back(broker.topics_away, act.detail))


def key_away(world: World, act: Act) -> None:
    broker = world.brokers[act.who]
    broker.advance()
    broker.keys_away.add(act.detail)
    world.after(act.seconds, lambda: broker.comes_back(broker.keys_away, act.detail))


def reset(world: World, act: Act) -> None:
    """Every connection to the sink breaks."""
    broker = world.brokers[act.who]
    broker.advance()
    for session in list(broker.sessions):
        broker.break_session(session, "reset")


# ------------------------------------------------------------------ people


def _route_of(world: World, act: Act) -> str:
    return list(world.schedule.routes)[act.who]


def pause_route(world: World, act: Act) -> None:
    name = _route_of(world, act)
    world.log.change_route(name, state="paused")
    world.after(act.seconds, lambda: world.log.change_route(name, state="running"))


def change_route(world: World, act: Act) -> None:
    """`route apply`: `detail` is field=value."""
    name = _route_of(world, act)
    field, _, value = act.detail.partition("=")
    definition = {**world.log.routes[name].state.definition, field: value}
    world.define(name, definition)
    world.log.change_route(name, definition=definition)


def operate(world: World, act: Act) -> None:
    """retry | bury | skip | replay of one held or dead message: the first that fits."""
    act_on_hold(world, _route_of(world, act), act.detail, list(world.log.holds))


def ambush(world: World, act: Act) -> None:
    """The same, just before the relay's next settle that changes a hold row, of that row."""
    world.nodes[act.who].ambush = act.detail


def act_on_hold(world: World, route: str, verb: str, seqs: list[int]) -> None:
    """What a person does to one of these rows, if the verb fits it."""
    fits = {"retry": ("blocked", "retry"), "bury": ("retry", "blocked"), "skip": ("retry", "waiting", "blocked", "dead"),
            "replay": ("dead",)}[verb]  # fmt: skip
    holds = [(seq, world.log.holds[seq]) for seq in seqs if seq in world.log.holds]
    rows = [_row(world, seq) for seq, h in holds if h.route == route and h.held.state in fits]
    if not rows:
        return
    row = rows[int(world.dice.throw(f"operate {verb}") * len(rows))]
    wanted = {(row.seq, row.ids[0] if verb != "skip" else row.ids[-1])}
    highest: dict[int, int] = {}
    for hold in world.log.holds.values():
        for id_ in hold.held.ids:
            highest[id_] = max(highest.get(id_, 0), hold.held.generation)
    plan = replay([row], wanted, None, highest) if verb == "replay" else change(verb, [row], wanted)
    _write(world, route, plan.rewritten, plan.added)
    world.tell("person", verb, row)
    for _, id_ in wanted:
        world.ledger.books[route].by_person[id_, row.generation] = world.clock.time


def _row(world: World, seq: int) -> HoldRow:
    hold = world.log.holds[seq]
    h = hold.held
    return HoldRow(seq, hold.route, h.lane, list(h.ids), h.generation, h.key, h.state, h.ahead, h.error, h.attempts,
                   h.unknowns)  # fmt: skip


def _write(world: World, route: str, rewritten: list[HoldRow], added: list[HoldRow]) -> None:
    log = world.log
    for row in rewritten:
        log.change_hold(row.seq, ids=row.ids, state=row.state, attempts=row.attempts, unknowns=row.unknowns, due_in=0.0)
    for row in added:
        log.put(0, route, _held(row))
    if added and not rewritten:
        log.change_route(route, nudge=log.routes[route].state.nudge + 1)
    world.note_holds(route)


def _held(row: HoldRow) -> Held:
    return Held(row.lane, 0, 0, row.key, row.ids, row.generation, row.state, row.attempts, row.unknowns, 0.0,
                row.error, row.ahead)  # fmt: skip


ACTS: dict[str, Callable[[World, Act], None]] = {
    act.__name__: act
    for act in (add, later, crash, pause, lose, expel, leave, join, server_crash, database_away, prune, outage,
                topic_away, key_away, reset, pause_route, change_route, operate, ambush)
}  # fmt: skip
