"""The judge: what producers meant to happen against what the destination has, with nothing taken on trust.

Producers number the messages of a key in commit order (by a counter row that their transaction keeps locked, or
because they alone write the key) and log each transaction before and after its COMMIT. The destination is read back
from its beginning. `judge` compares the two: it is a function of values and knows no database and no broker.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
GIVEN_UP = ("dead", "skipped")
FINAL = (*GIVEN_UP, "resolved")


class Added(NamedTuple):
    """A message as its producer knows it."""

    id: str
    key: str | None
    n: int  # its place among the committed messages of its key
    outcome: str  # of its transaction: ok | failed | unknown
    digest: str = ""
    delayed: bool = False  # joins its key's order when it becomes due: outside the order of `n`


class Sighting(NamedTuple):
    """A copy of a message at the destination."""

    id: str
    key: str | None
    generation: int = 0
    digest: str = ""


class State(NamedTuple):
    """What the installation says of a message it has a `hold` row for."""

    state: str
    attempts: int = 0
    unknowns: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """Everything that is known at the end. Copies of one key stand in `arrived` in the destination's order."""

    added: Sequence[Added]
    arrived: Sequence[Sighting]
    states: Mapping[str, State] = field(default_factory=dict)
    committed: Collection[str] | None = None  # ids whose business rows are there: resolves unknown transactions
    again: Mapping[str, int] = field(
        default_factory=dict
    )  # faults at which this message was not settled yet: copies it may have more
    again_all: int = 0  # faults that nobody can pin to messages: copies that every message may have more
    window: int | None = None  # all faults together left so many deliveries unsettled: no more copies than that
    hits: Mapping[str, int] = field(default_factory=dict)  # how often each fault really happened
    outage_only: bool = False  # nothing but outages happened: no attempt may have been counted
    zombies: bool = False  # a frozen relay woke up: its late copies stand between others


@dataclass(slots=True)
class Verdict:
    """Each list holds the ids (or keys, or names) of what broke a promise; empty lists are a pass."""

    messages: int = 0
    copies: int = 0
    duplicates: int = 0
    allowed: int = 0
    lost: list[str] = field(default_factory=list)
    ghosts: list[str] = field(default_factory=list)
    inversions: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    too_often: list[str] = field(default_factory=list)
    torn_runs: list[str] = field(default_factory=list)  # a repetition that left one out
    changed: list[str] = field(default_factory=list)  # two bodies or keys under one id
    unfinished: list[str] = field(default_factory=list)
    two_ends: list[str] = field(default_factory=list)  # delivered and given up
    counted: list[str] = field(default_factory=list)  # attempts during an outage
    contradictions: list[str] = field(default_factory=list)  # log and business table disagree: a broken harness
    never_hit: list[str] = field(default_factory=list)

    @property
    def breaches(self) -> dict[str, list[str]]:
        lists = {name: getattr(self, name) for name in self.__slots__}
        return {name: found for name, found in lists.items() if isinstance(found, list) and found}

    @property
    def ok(self) -> bool:
        return not self.breaches

    @property
    def reordered(self) -> int:
        return len(self.inversions) + len(self.torn_runs)

    def __str__(self) -> str:
        good = f"{self.messages} messages, {self.copies} copies, duplicates {self.duplicates} (allowed: {self.allowed})"
        bad = [f"{name} {len(ids)}: {', '.join(ids[:5])}" for name, ids in self.breaches.items()]
        return "\n".join([good, *bad])


def digest(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=8).hexdigest()


def judge(history: History) -> Verdict:
    verdict = Verdict()
    committed = _committed(history, verdict)
    verdict.messages, verdict.copies = len(committed), len(history.arrived)
    copies = _identities(history, committed, verdict)
    _ends(history, committed, copies, verdict)
    _duplicates(history, copies, verdict)
    _order(history, committed, verdict)
    verdict.never_hit = [name for name, hits in history.hits.items() if not hits]
    return verdict


def _committed(history: History, verdict: Verdict) -> dict[str, Added]:
    """The messages that must arrive, by id."""
    known = history.committed
    committed: dict[str, Added] = {}
    for one in history.added:
        there = one.outcome == OK if known is None else one.id in known
        if known is not None and one.outcome != UNKNOWN and there != (one.outcome == OK):
            verdict.contradictions.append(one.id)
        if known is None and one.outcome == UNKNOWN:
            verdict.contradictions.append(one.id)  # nobody looked: it can be judged neither lost nor a ghost
        if there:
            committed[one.id] = one
    return committed


def _identities(history: History, committed: Mapping[str, Added], verdict: Verdict) -> Counter[tuple[str, int]]:
    """How often each (id, generation) arrived; who was not meant to, and who came as somebody else."""
    copies: Counter[tuple[str, int]] = Counter()
    ghosts: dict[str, None] = {}
    changed: dict[str, None] = {}
    for seen in history.arrived:
        meant = committed.get(seen.id)
        if meant is None:
            ghosts[seen.id] = None
        elif seen.key != meant.key or (meant.digest and seen.digest != meant.digest):
            changed[seen.id] = None
        copies[seen.id, seen.generation] += 1
    verdict.ghosts, verdict.changed = list(ghosts), list(changed)
    return copies


def _ends(history: History, committed: Mapping[str, Added], copies: Counter[tuple[str, int]], verdict: Verdict) -> None:
    """Each message ended in exactly one way."""
    for id in committed:
        state = history.states.get(id)
        delivered = (id, 0) in copies
        given_up = state is not None and state.state in FINAL
        if not delivered and not given_up:
            verdict.lost.append(id)
        if state is None:
            continue
        if state.state not in FINAL:
            verdict.unfinished.append(id)
        # A copy whose answer was unknown may have arrived before the message was given up: the row says so.
        if delivered and given_up and not state.unknowns:
            verdict.two_ends.append(id)
        if history.outage_only and state.attempts:
            verdict.counted.append(id)


def _duplicates(history: History, copies: Counter[tuple[str, int]], verdict: Verdict) -> None:
    for (id, _generation), count in copies.items():
        allowed = history.again.get(id, 0) + history.again_all
        verdict.duplicates += count - 1
        verdict.allowed += allowed
        if count - 1 > allowed:
            verdict.too_often.append(id)
    if history.window is not None:
        verdict.allowed = min(verdict.allowed, history.window)
        if verdict.duplicates > history.window:
            verdict.too_often.append("all of them together")


def _order(history: History, committed: Mapping[str, Added], verdict: Verdict) -> None:
    """For each key the first copies come as 1, 2, 3, …; a repetition begins anywhere and leaves nothing out."""
    expected: dict[str, list[int]] = defaultdict(list)
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for one in committed.values():
        if one.key is None or one.delayed:
            continue
        numbers[one.key].add(one.n)
        if not _given_up(history, one.id):
            expected[one.key].append(one.n)
    for key, known in numbers.items():
        if max(known) - min(known) + 1 != len(known):
            verdict.gaps.append(key)  # the log itself misses a commit: nothing can be said about this key
    places = {key: {n: place for place, n in enumerate(sorted(ns))} for key, ns in expected.items()}
    for key, ids in _by_key(history, committed).items():
        _order_of_key([(id, places[key][committed[id].n]) for id in ids], verdict, zombies=history.zombies)


def _given_up(history: History, id: str) -> bool:
    state = history.states.get(id)
    return state is not None and state.state in FINAL


def _by_key(history: History, committed: Mapping[str, Added]) -> dict[str, list[str]]:
    """The copies that stand in an order."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for seen in history.arrived:
        meant = committed.get(seen.id)
        if meant is None or meant.key is None or meant.delayed or seen.generation or _given_up(history, seen.id):
            continue
        found[meant.key].append(seen.id)
    return found


def _order_of_key(copies: Iterable[tuple[str, int]], verdict: Verdict, *, zombies: bool) -> None:
    seen: set[int] = set()
    highest = before = -1
    for id, place in copies:
        if place in seen:
            if place > before + 1 and not zombies:
                verdict.torn_runs.append(id)
        elif place < highest:
            verdict.inversions.append(id)
        elif place > highest + 1:
            verdict.gaps.append(id)
        elif before != highest and not zombies:
            verdict.torn_runs.append(id)  # went on with new ones before the repetition was complete
        seen.add(place)
        highest = max(highest, place)
        before = place


class ProducerLog:
    """An append-only file, one line an event. A transaction without an end is unknown."""

    def __init__(self, path: Path, seed: int) -> None:
        self._file: IO[str] = path.open("a", buffering=1)
        self._write({"seed": seed})

    def begin(self, transaction: str, messages: Iterable[Added]) -> None:
        """Before COMMIT. The outcome the messages carry does not count yet."""
        self._write({"begin": transaction, "messages": [(*one[:3], *one[4:]) for one in messages]})

    def end(self, transaction: str, outcome: str) -> None:
        """After COMMIT or ROLLBACK was answered."""
        self._write({"end": transaction, "outcome": outcome})

    def _write(self, event: Mapping[str, object]) -> None:
        self._file.write(json.dumps(event) + "\n")

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> list[Added]:
    """What one or several producers logged, with the outcomes their transactions had."""
    begun: dict[str, list[list[Any]]] = {}
    ends: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if not line.endswith("}"):
            continue  # the producer was killed while it wrote: its transaction had not begun to commit, or is unknown
        event = json.loads(line)
        if "begin" in event:
            begun[event["begin"]] = event["messages"]
        elif "end" in event:
            ends[event["end"]] = event["outcome"]
    return [
        Added(id, key, n, ends.get(transaction, UNKNOWN), body, delayed)
        for transaction, messages in begun.items()
        for id, key, n, body, delayed in messages
    ]
