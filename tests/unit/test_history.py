"""The history checker passes what is right and catches every kind of breach: a judge that passes a mutant is broken."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pillarbox.testing.history import (
    FAILED,
    OK,
    UNKNOWN,
    Added,
    History,
    ProducerLog,
    Sighting,
    State,
    digest,
    judge,
    read_log,
)


def added(text: str, outcome: str = OK) -> list[Added]:
    """`"a1 a2 b1"`: messages by key and number; the id says the same."""
    return [Added(word, word[0], int(word[1:]), outcome, f"body of {word}") for word in text.split()]


def arrived(text: str) -> list[Sighting]:
    """`"a1 a1' b1"`: copies in order; a prime is a generation."""
    words = [(word.rstrip("'"), word.count("'")) for word in text.split()]
    return [Sighting(id, id[0], generation, f"body of {id}") for id, generation in words]


def breaches(history: History) -> dict[str, list[str]]:
    return judge(history).breaches


GOOD = [
    ("", ""),
    ("a1 a2 b1", "b1 a1 a2"),
    ("a5 a6", "a5 a6"),
]


@pytest.mark.parametrize(("meant", "came"), GOOD)
def test_what_is_right_passes(meant: str, came: str) -> None:
    """Each key in its order, keys among each other in any."""
    verdict = judge(History(added(meant), arrived(came)))
    assert (verdict.ok, verdict.duplicates, verdict.reordered) == (True, 0, 0)


@pytest.mark.parametrize(
    ("meant", "came", "found"),
    [
        ("a1 a2 a3", "a1 a2", {"lost": ["a3"]}),
        ("a1 a2 a3", "a1 a3", {"lost": ["a2"], "gaps": ["a3"]}),
        ("a1 a2", "a1 a2 z9", {"ghosts": ["z9"]}),
        ("a1 a2", "a2 a1", {"gaps": ["a2"], "inversions": ["a1"]}),
        ("a1 a2 a3", "a1 a3 a2", {"gaps": ["a3"], "inversions": ["a2"]}),
        ("a1 a2", "a1 a1 a2", {"too_often": ["a1"]}),
        ("a1 a3", "a1 a3", {"gaps": ["a"]}),
    ],
)
def test_each_breach_is_found(meant: str, came: str, found: dict[str, list[str]]) -> None:
    """Lost, ghost, inversion, gap, a copy too many, and a log that misses a commit."""
    assert breaches(History(added(meant), arrived(came))) == found


@pytest.mark.parametrize(
    ("came", "found"),
    [
        ("a1 a2 a3 a2 a3 a4", {}),
        ("a1 a2 a3 a1 a2 a3 a2 a3 a4", {}),
        ("a1 a2 a3 a4 a1 a3 a4", {"torn_runs": ["a3"]}),
        ("a1 a2 a3 a2 a4", {"torn_runs": ["a4"]}),
        ("a1 a2 a3 a4 a4 a3", {}),
        ("a1 a2 a3 a4 a2 a2 a2", {"too_often": ["a2"]}),
    ],
)
def test_a_repetition_leaves_nothing_out(came: str, found: dict[str, list[str]]) -> None:
    """After a crash a key begins again somewhere and goes on without a hole; each fault allows one copy more."""
    assert breaches(History(added("a1 a2 a3 a4"), arrived(came + " a4" * ("a4" not in came)), again_all=2)) == found


def test_a_zombie_may_stand_between_others() -> None:
    """Late copies of a frozen relay are duplicates, no inversions; a first copy out of order stays one."""
    late = History(added("a1 a2 a3 a4"), arrived("a1 a2 a1 a3 a2 a4"), again_all=1, zombies=True)
    assert breaches(late) == {}
    assert "inversions" in breaches(replace(late, arrived=arrived("a1 a3 a2 a4")))


def test_copies_are_allowed_where_a_fault_can_explain_them() -> None:
    """A message that was settled before the fault may not come again."""
    history = History(added("a1 a2"), arrived("a1 a2 a1 a2"), again={"a2": 1})
    verdict = judge(history)
    assert (verdict.breaches, verdict.duplicates, verdict.allowed) == ({"too_often": ["a1"]}, 2, 1)


def test_all_copies_together_stay_within_the_window() -> None:
    """Many faults allow each message several copies, but never more in total than were unsettled."""
    history = History(added("a1 a2"), arrived("a1 a2 a1 a2"), again_all=5, window=2)
    assert (breaches(history), judge(history).allowed) == ({}, 2)
    assert breaches(replace(history, window=1)) == {"too_often": ["all of them together"]}


@pytest.mark.parametrize(
    ("outcome", "came", "there", "found"),
    [
        (FAILED, "", "", {}),
        (FAILED, "a1", "", {"ghosts": ["a1"]}),
        (OK, "a1", "", {"contradictions": ["a1"], "ghosts": ["a1"]}),
        (FAILED, "a1", "a1", {"contradictions": ["a1"]}),
        (UNKNOWN, "a1", "a1", {}),
        (UNKNOWN, "", "a1", {"lost": ["a1"]}),
        (UNKNOWN, "", "", {}),
        (UNKNOWN, "a1", "", {"ghosts": ["a1"]}),
    ],
)
def test_the_business_table_decides_what_is_unknown(outcome: str, came: str, there: str, found: dict) -> None:
    """A COMMIT without an answer counts if the business rows are there; where both are known they must agree."""
    history = History(added("a1", outcome), arrived(came), committed=set(there.split()))
    assert breaches(history) == found


def test_unknown_without_a_look_at_the_table_is_no_pass() -> None:
    """Else whoever forgets to read the business table would lose messages unseen."""
    assert breaches(History(added("a1", UNKNOWN), [])) == {"contradictions": ["a1"]}


@pytest.mark.parametrize(
    ("state", "came", "found"),
    [
        (State("dead", 5), "a1 a3", {}),
        (State("skipped"), "a1 a3", {}),
        (State("dead", 5), "a1 a2 a3", {"two_ends": ["a2"]}),
        (State("dead", 5, unknowns=1), "a1 a3 a2", {}),
        (State("retry", 2), "a1 a2 a3", {"unfinished": ["a2"]}),
        (State("waiting"), "a1 a3", {"lost": ["a2"], "unfinished": ["a2"], "gaps": ["a3"]}),
    ],
)
def test_each_message_ends_once(state: State, came: str, found: dict[str, list[str]]) -> None:
    """Delivered, dead or skipped, and only an unknown answer explains two of them."""
    assert breaches(History(added("a1 a2 a3"), arrived(came), states={"a2": state})) == found


def test_replays_stand_outside_the_order() -> None:
    """A generation is a delivery of its own, also of a message that had been given up."""
    history = History(added("a1 a2 a3"), arrived("a1 a3 a2' a1'"), states={"a2": State("resolved", 5)})
    assert breaches(history) == {}
    assert breaches(replace(history, arrived=arrived("a1 a3 a2' a2'"))) == {"too_often": ["a2"]}


def test_no_key_and_delayed_messages_have_no_order() -> None:
    """They must arrive, whenever."""
    loose = [one._replace(key=None) for one in added("x2 x1")]
    late = [one._replace(delayed=True) for one in added("a3")]
    came = [one._replace(key=None) for one in arrived("x1 x2")]
    assert breaches(History([*loose, *late, *added("a1 a2")], [*arrived("a1 a3 a2"), *came])) == {}


@pytest.mark.parametrize("change", [{"digest": "other"}, {"key": "b"}])
def test_a_message_is_the_same_in_every_copy(change: dict[str, str]) -> None:
    """Another body or key under a known id."""
    first, second = arrived("a1 a1")
    history = History(added("a1"), [first, second._replace(**change)], again_all=1)
    assert breaches(history) == {"changed": ["a1"]}


def test_an_outage_counts_no_attempt() -> None:
    """With nothing but outages, one counted attempt is a breach."""
    history = History(added("a1"), arrived("a1"), states={"a1": State("resolved", 1, 1)})
    assert breaches(history) == {}
    assert breaches(replace(history, outage_only=True)) == {"counted": ["a1"]}


def test_a_fault_that_never_happened_proves_nothing() -> None:
    """Each fault's counter must be above zero."""
    assert breaches(History([], [], hits={"kill": 3, "freeze": 0})) == {"never_hit": ["freeze"]}


def test_the_log_is_read_back(tmp_path: Path) -> None:
    """Outcomes, an end that was never written, and a line its writer did not finish."""
    path = tmp_path / "producer.jsonl"
    log = ProducerLog(path, seed=1)
    first, second, third = added("a1 a2 b1")
    log.begin("t1", [first._replace(digest=digest(b"x"))])
    log.end("t1", OK)
    log.begin("t2", [second, third._replace(delayed=True)])
    log.begin("t3", added("c1"))
    log.end("t3", FAILED)
    log.close()
    with path.open("a") as torn:
        torn.write('{"end":"t2","outc')
    assert read_log(path) == [
        first._replace(digest=digest(b"x")),
        second._replace(outcome=UNKNOWN),
        third._replace(outcome=UNKNOWN, delayed=True),
        *added("c1", FAILED),
    ]


def _good_run(draw: random.Random) -> History:
    """Several keys, failed transactions that used the same numbers, and crashes after which a stretch comes again."""
    meant: list[Added] = []
    streams: dict[str, list[Sighting]] = {}
    for key in "abcde":
        names = [f"{key}{n}" for n in range(1, draw.randrange(5, 30))]
        meant += added(" ".join(names))
        meant += [Added(f"failed-{name}", key, int(name[1:]), FAILED) for name in draw.sample(names, 3)]
        cut = draw.randrange(1, len(names))
        back = draw.randrange(cut)
        streams[key] = arrived(" ".join([*names[:cut], *names[back:]]))
    copies: list[Sighting] = []
    while streams:
        key = draw.choice(sorted(streams))
        copies.append(streams[key].pop(0))
        if not streams[key]:
            del streams[key]
    return History(meant, copies, again_all=1)


def _lose(draw: random.Random, history: History) -> History:
    id = draw.choice(history.arrived).id
    return replace(history, arrived=[seen for seen in history.arrived if seen.id != id])


def _haunt(draw: random.Random, history: History) -> History:
    id = draw.choice([one.id for one in history.added if one.outcome == FAILED])
    copies = list(history.arrived)
    copies.insert(draw.randrange(len(copies)), Sighting(id, id[7]))
    return replace(history, arrived=copies)


def _swap(draw: random.Random, history: History) -> History:
    """Two first copies of one key change places."""
    key = draw.choice("abcde")
    places: dict[str, int] = {}
    for place, seen in enumerate(history.arrived):
        if seen.key == key:
            places.setdefault(seen.id, place)
    one, other = draw.sample(sorted(places.values()), 2)
    copies = list(history.arrived)
    copies[one], copies[other] = copies[other], copies[one]
    return replace(history, arrived=copies)


def _repeat(draw: random.Random, history: History) -> History:
    return replace(history, arrived=[*history.arrived, *[draw.choice(history.arrived)] * 2])


def _corrupt(draw: random.Random, history: History) -> History:
    copies = list(history.arrived)
    place = draw.randrange(len(copies))
    copies[place] = copies[place]._replace(digest="other")
    return replace(history, arrived=copies)


@pytest.mark.parametrize(
    ("mutate", "field"),
    [
        (_lose, "lost"),
        (_haunt, "ghosts"),
        (_swap, "inversions"),
        (_repeat, "too_often"),
        (_corrupt, "changed"),
    ],
)
def test_every_mutant_of_a_good_run_is_caught(
    mutate: Callable[[random.Random, History], History], field: str, seed: int
) -> None:
    """Two hundred seeded runs pass, and fail for the right reason once one thing is broken."""
    for number in range(200):
        draw = random.Random(f"{seed}:{number}")
        history = _good_run(draw)
        assert breaches(history) == {}, f"seed {seed}:{number}"
        assert field in breaches(mutate(draw, history)), f"seed {seed}:{number}"


def test_it_tells_what_it_found() -> None:
    """The figures first, then each breach with its first ids."""
    verdict = judge(History(added("a1 a2"), arrived("a2 a2")))
    assert str(verdict).splitlines() == [
        "2 messages, 2 copies, duplicates 1 (allowed: 0)",
        "lost 1: a1",
        "gaps 1: a2",
        "too_often 1: a2",
    ]
