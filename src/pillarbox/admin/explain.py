"""Why a message has not arrived, in a sentence, with its chain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from pillarbox.admin.words import span, times
from pillarbox.ports import Desk
from pillarbox.routing import compile_match, topic_and_rule
from pillarbox.views import Found, HoldLine, Pick, Standing

ALL = ("retry", "waiting", "blocked", "dead", "skipped", "resolved")
LIVE = ("retry", "waiting", "blocked")
RULES = {
    "force_topic": "the route's force_topic",
    "own": "the message's own topic",
    "route": "the route's topic",
    "default": "the default, the aggregate",
}


@dataclass(frozen=True)
class OnRoute:
    """What one route makes of the message. `state`: delivered, unread, waiting, retry, blocked, dead, skipped,
    replaying, unwanted or unrouted."""

    route: str
    state: str
    sentence: str
    topic: str | None = None
    topic_rule: str | None = None
    behind: UUID | int | None = None
    generations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """A message, where it lies, and what each route makes of it."""

    asked: str
    id: UUID | None
    log_id: int | None
    place: str  # log | kept | scheduled | cancelled | erased | nowhere
    aggregate: str | None
    type: str | None
    key: str | None
    lane: int | None
    age: float | None
    sentence: str
    routes: tuple[OnRoute, ...] = ()


def explain(desk: Desk, ids: Sequence[str]) -> list[Explanation]:
    """These messages, in the order asked for."""
    found = desk.find(ids)
    by_word = {str(f.message_id): f for f in found} | {str(f.id): f for f in found if f.place != "scheduled"}
    told = {id(f): one for f, one in zip(found, _told(desk, found), strict=True)}
    return [told[id(by_word[_word(w)])] if _word(w) in by_word else _nowhere(w) for w in ids]


def explain_key(desk: Desk, key: str, aggregate: str | None, limit: int) -> list[Explanation]:
    """The key's chain: what some route has not finished of it, in its order."""
    return list(_told(desk, desk.of_key(key, aggregate, limit)))


def _word(asked: str) -> str:
    return asked if asked.isdigit() else str(UUID(asked))


def _nowhere(asked: str) -> Explanation:
    sentence = (
        f"{asked} is nowhere: no transaction that added it has committed, or it was delivered to every route and "
        "retention has dropped it."
    )
    return Explanation(asked, None, None, "nowhere", None, None, None, None, None, _drawn(asked) + sentence)


def _drawn(asked: str) -> str:
    """A UUIDv7 tells when it was drawn."""
    if asked.isdigit() or UUID(asked).version != 7:
        return ""
    drawn = datetime.fromtimestamp((UUID(asked).int >> 80) / 1000, UTC)
    return f"Drawn at {drawn.isoformat(timespec='seconds')}. "


def _told(desk: Desk, found: Sequence[Found]) -> Iterator[Explanation]:
    logged = [f for f in found if f.place in ("log", "kept")]
    standings = desk.standings(logged) if logged else []
    lines = desk.holds(Pick(ALL, ids=tuple(str(f.id) for f in logged), limit=1000 * len(logged))) if logged else []
    says = _said(desk) if any(not s.read and s.owner is not None for s in standings) else []
    for one in found:
        mine = [s for s in standings if s.id == one.id]
        known = {s.route for s in mine}
        strays = [line for line in lines if line.id == one.id and line.route not in known]
        yield _explanation(one, mine, strays, says)


def _said(desk: Desk) -> list[str]:
    """What relays say keeps them from delivering."""
    return [text for relay in desk.overview().relays for text in relay.says]


def _explanation(
    found: Found, standings: Sequence[Standing], strays: Sequence[HoldLine], says: Sequence[str]
) -> Explanation:
    logged = found.place in ("log", "kept")
    routes: tuple[OnRoute, ...] = ()
    if logged:
        routes = (*(_on_route(found, s, says) for s in standings), *(_stray(line) for line in strays))
    return Explanation(
        asked=str(found.message_id),
        id=found.message_id,
        log_id=found.id if logged else None,
        place=found.place,
        aggregate=found.aggregate,
        type=found.type,
        key=found.key,
        lane=found.lane if logged else None,
        age=found.age,
        sentence=_whole(found, routes),
        routes=routes,
    )


def _whole(found: Found, routes: Sequence[OnRoute]) -> str:
    if found.place == "scheduled":
        late = (found.due_in or 0.0) <= 0
        when = (
            f"since {span(-(found.due_in or 0.0))}: no relay has moved it yet"
            if late
            else f"in {span(found.due_in or 0.0)}"
        )
        return f"It is scheduled and joins the log when it is due, {when}."
    if found.place == "erased":
        return f"An operator erased it {span(found.age)} ago, and it lies nowhere any more; `audit` has the name."
    if found.place == "cancelled":
        return f"It was scheduled, and cancelled by an operator {span(found.age)} ago; `audit` has the name."
    if not routes:
        return "No route is stored, so nobody delivers it: `pillarbox run` stores those of the configuration."
    return " ".join(r.sentence for r in routes)


def _on_route(found: Found, standing: Standing, says: Sequence[str] = ()) -> OnRoute:
    more = json.dumps({"topic": found.topic, "headers": found.headers})
    row = (found.id, found.lane, found.key, found.message_id.bytes, found.aggregate, found.type, b"", more)
    test = compile_match(standing.definition)
    first = [line for line in standing.lines if line.generation == 0]
    topic, rule = topic_and_rule(standing.definition, row)
    if test is not None and not test(row) and not first:
        state, sentence, behind = "unwanted", _unwanted(found, standing), None
        if not standing.lines:
            return OnRoute(standing.route, state, f"{standing.route} {sentence}")
    else:
        state, sentence, behind = _stand(standing, first, [text for text in says if _concerns(text, standing, topic)])
    replays = tuple(_replay(line) for line in standing.lines if line.generation)
    if any(line.state in LIVE for line in standing.lines if line.generation):
        state = "replaying"
    sentence = " ".join([f"{standing.route}: {sentence}", *replays])
    return OnRoute(standing.route, state, sentence, topic, RULES[rule], behind, replays)


def _unwanted(found: Found, standing: Standing) -> str:
    if standing.definition.get("match", {}).get("header") and not found.headers:
        return "does not want it as it is, without headers (its match asks for one; `erase` blanks them)."
    return "does not want it (its match)."


def _concerns(text: str, standing: Standing, topic: str) -> bool:
    """Whether what a relay says keeps this message: of its route, and of the sink or its topic."""
    start = f"{standing.route}: "
    return text.startswith((f"{start}sink ", f"{start}{topic}:", f"{start}topic {topic}:")) or (
        text.startswith(start) and (f" wait for topic {topic}:" in text or f" wait for {topic}:" in text)
    )


def _stand(standing: Standing, lines: Sequence[HoldLine], says: Sequence[str]) -> tuple[str, str, UUID | int | None]:
    if lines:
        return _held(standing, lines[-1])
    if standing.read:
        return "delivered", "delivered.", None
    if standing.head is not None and standing.head.id < standing.id:
        return "waiting", f"not read yet, and then it {_behind(standing.head)}", _name(standing.head)
    return "unread", _unread(standing, says), None


def _held(standing: Standing, line: HoldLine) -> tuple[str, str, UUID | int | None]:
    if line.state == "waiting" and standing.head is not None and standing.head.id != line.id:
        return "waiting", f"it {_behind(standing.head)}", _name(standing.head)
    sentences = {
        "retry": f"it {_tried(line)}; {_next(line)}.",
        "waiting": "it is its key's next one.",
        "blocked": f"it {_tried(line)} and holds its key back until a person decides: `held retry`, `bury` or `skip`.",
        "dead": f"given up {span(line.held_for)} ago: it {_tried(line)}. `dead replay` sends it again.",
        "skipped": f"skipped by an operator{f' ({line.error})' if line.error == 'erased' else ''}; `audit` has the name.",
        "resolved": "given up, and resolved by an operator.",
    }
    return line.state, sentences[line.state], None


def _behind(head: HoldLine) -> str:
    what = f"{head.type or 'a message'} {_name(head)}"
    if head.state == "blocked":
        return f"waits behind {what} of the same key, which {_tried(head)} and is blocked until a person decides."
    return f"waits behind {what} of the same key, which {_tried(head)}; {_next(head)}."


def _name(line: HoldLine) -> UUID | int:
    return line.message_id or line.id


def _tried(line: HoldLine) -> str:
    tried = f"was refused {times(line.attempts)}" if line.attempts else "was set aside"
    if line.unknowns:
        tried += f", its answer was lost {times(line.unknowns)}"
    return f"{tried} ({line.error})" if line.error else tried


def _next(line: HoldLine) -> str:
    if line.due_in is None or line.due_in <= 0:
        return "its next attempt is due now"
    return f"its next attempt is in {span(line.due_in)}"


def _unread(standing: Standing, says: Sequence[str]) -> str:
    before = (
        "" if not standing.before else f" {standing.before}{'+' if standing.before >= 1000 else ''} unread before it;"
    )
    if standing.paused:
        return f"not read yet;{before} the route is paused: `pillarbox route resume {standing.route}`."
    if standing.owner is None:
        return f"not read yet;{before} no living relay owns its lane: is `pillarbox run` up, and has it this sink?"
    moved = "never" if standing.settled_for is None else f"{span(standing.settled_for)} ago"
    where = f"on its way;{before} its lane is with {standing.owner} (term {standing.term}), whose cursor moved {moved}."
    if says:
        return f"{where} What keeps it: {'; '.join(text.removeprefix(f'{standing.route}: ') for text in says)}."
    return f"{where} If that is long ago, `pillarbox status` says what keeps the relay."


def _replay(line: HoldLine) -> str:
    if line.state in LIVE:
        return f"Replay {line.generation} {_tried(line) if line.attempts else 'is under way'}; {_next(line)}."
    return f"Replay {line.generation} is {line.state}" + (f": {line.error}." if line.error else ".")


def _stray(line: HoldLine) -> OnRoute:
    if line.route == "unrouted" and line.state == "dead":
        sentence = "No route wants it: `dead replay --to ROUTE`, or add a route from the beginning that matches it."
        return OnRoute(line.route, "unrouted", sentence)
    if line.route == "unrouted" and line.state == "resolved":
        sentence = "No route wanted it, until an operator sent it on or a new route took it; `audit` has the name."
        return OnRoute(line.route, line.state, sentence)
    return OnRoute(line.route, line.state, f"{line.route}: {line.state} ({line.error}).")
