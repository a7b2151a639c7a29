"""What happens in a simulated world, as data: a seed draws it, `shrink` makes it smaller, `str` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pillarbox.outcome import SinkClass

QUICK = 0.02  # seconds


class Message(NamedTuple):
    """A message to be added. `nature` is how sinks take it: "" | poison | refuse:N | kill:N | unknown:N | unencodable."""

    label: int  # names it in the schedule, and is its payload
    key: str | None
    topic: str = ""
    aggregate: str = "order"
    nature: str = ""

    def __str__(self) -> str:
        extra = [x for x in (self.topic, "" if self.aggregate == "order" else self.aggregate, self.nature) if x]
        return f"{self.label}:{self.key or '-'}" + (f"({', '.join(extra)})" if extra else "")


class Act(NamedTuple):
    """One thing that the world does to its relays."""

    at: float
    what: str
    who: int = 0  # which relay, sink or route
    seconds: float = 0.0
    detail: str = ""
    messages: tuple[Message, ...] = ()

    @property
    def is_fault(self) -> bool:
        """Whether it may excuse copies."""
        return self.what not in ("add", "later", "join", "leave", "prune")

    def __str__(self) -> str:
        for_how_long = f" for {self.seconds:.2f} s" if self.seconds else ""
        told = " ".join(map(str, self.messages)) if self.messages else self.detail
        return f"{self.at:8.3f}  {self.what} {self.who}{for_how_long} {told}".rstrip()


class SinkSpec(NamedTuple):
    """A sink of the world."""

    delivery: SinkClass = SinkClass.FAIL_STOP
    fenced: bool = False
    max_in_flight: int = 10_000
    asks_topics: bool = True  # `away` tells of missing topics; else only answers do
    delay: float = QUICK  # seconds a message, and then its answer, is on its way, at most


@dataclass(frozen=True)
class Schedule:
    """A world and everything that happens in it."""

    seed: int
    acts: tuple[Act, ...]
    lanes: int = 2
    relays: int = 1
    sinks: tuple[SinkSpec, ...] = (SinkSpec(),)
    routes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"main": {"sink": "s0"}})
    config: Mapping[str, Any] = field(default_factory=dict)
    lacks: tuple[tuple[int, str], ...] = ()  # (relay, sink it does not have)

    @property
    def kind(self) -> str:
        """What may be asked of it beyond what every schedule must keep.

        calm: nothing goes wrong. outage: only whole sinks are away, for a while. contained: only some messages, keys
        or topics cannot be delivered."""
        bad = {message.nature.partition(":")[0] for act in self.acts for message in act.messages} - {""}
        faults = {act.what for act in self.acts if act.is_fault}
        if not faults and not bad:
            return "calm"
        if any(spec.delay > QUICK for spec in self.sinks):
            return "mixed"
        if faults <= {"outage"} and not bad:
            return "outage"
        if faults <= {"topic_away", "key_away"} and bad <= {"poison", "kill", "unencodable", "refuse"}:
            return "contained"
        return "mixed"

    @property
    def last(self) -> float:
        """When everything that is done to this world is over."""
        return max((act.at + act.seconds for act in self.acts), default=0.0)

    def __str__(self) -> str:
        sinks = ", ".join(
            f"s{n} {s.delivery}{' fenced' if s.fenced else ''} ≤{s.max_in_flight}{'' if s.asks_topics else ' mute'} {s.delay}s"
            for n, s in enumerate(self.sinks)
        )
        routes = "; ".join(f"{name} {dict(definition)}" for name, definition in self.routes.items())
        routes += "".join(f"; r{relay} lacks {sink}" for relay, sink in self.lacks)
        head = f"seed {self.seed}, {self.kind}: {self.relays} relays, {self.lanes} lanes, {sinks}\n  {routes}\n  {dict(self.config)}"
        return "\n".join([head, *(f"  {act}" for act in self.acts)])
