"""What an operator's word makes of a hold row, what an estimate makes of ids, and what explain says: pure functions."""

import random
from uuid import UUID

import pytest

from pillarbox.admin.audit import note
from pillarbox.admin.explain import _drawn, _on_route
from pillarbox.admin.words import span, times, volume
from pillarbox.errors import Refused
from pillarbox.storage.asked import split_ids
from pillarbox.storage.estimate import SEGMENT, Segment, pending, used_between
from pillarbox.storage.holds import FINAL, HoldRow, change, replay
from pillarbox.views import Found, HoldLine, Standing

ROW = HoldRow(7, "all", 3, [10, 11, 12], 0, "k", "retry", ahead=False, error="boom", attempts=2, unknowns=1)
ID = UUID("01890000-0000-7000-8000-000000000000")
FOUND = Found("log", 10, 3, ID, "k", "order", "order.created", None, {}, 5.0)
LINE = HoldLine(7, "all", 3, 9, ID, "order", "order.created", "k", 0, "retry", 2, 0, 12.0, "boom", 3.0, 0, 1)


@pytest.mark.parametrize("seed", range(200))
def test_no_message_is_lost_or_reordered_by_any_choice(seed: int) -> None:
    """Whatever ids of a run are given up, each id stays in exactly one row and the rest keep row, place and order."""
    dice = random.Random(seed)
    ids = list(range(100, 100 + dice.randint(1, 8)))
    row = ROW._replace(ids=ids, state=dice.choice(["retry", "blocked", "waiting"]), ahead=dice.random() < 0.3)
    wanted = {(7, id) for id in ids if dice.random() < 0.5} | {(8, ids[0])}
    verb = dice.choice(["skip", "bury"])
    plan = change(verb, [row], wanted)
    after = [*plan.rewritten, *plan.added] if plan.done else [row]
    assert sorted(id for each in after for id in each.ids) == ids
    given_up = [each for each in after if each.state == FINAL[verb]]
    assert sorted(plan.done) == sorted(id for each in given_up for id in each.ids)
    assert all(len(each.ids) == 1 and each.ahead == row.ahead for each in given_up)
    rest = [each for each in after if each.state != FINAL[verb]]
    if rest:
        assert [each.seq for each in rest] == [7]
        assert rest[0].ids == [id for id in ids if id not in plan.done]


def test_bury_takes_only_the_head_of_its_key() -> None:
    """What waits is not the poison: burying it would reorder its key for nothing."""
    assert change("bury", [ROW._replace(state="waiting")], {(7, 10)}).done == []
    assert change("bury", [ROW], {(7, 11)}).done == []
    assert change("bury", [ROW], {(7, 10), (7, 11)}).done == [10]


def test_a_new_head_begins_with_all_its_attempts() -> None:
    """Attempts, lost answers and the error belonged to the one before it."""
    [rest] = change("skip", [ROW], {(7, 10)}).rewritten
    assert (rest.state, rest.attempts, rest.unknowns, rest.error) == ("retry", 0, 0, "")


def test_a_retry_leaves_waiting_and_dead_rows_alone() -> None:
    """Only a head that failed can be tried again by hand."""
    for state in ("waiting", "dead", "skipped", "resolved"):
        assert change("retry", [ROW._replace(state=state)], {(7, 10)}).done == []


def test_skipped_is_final() -> None:
    """No word of an operator brings a skipped message back."""
    row = ROW._replace(ids=[10], state="skipped")
    assert [change(verb, [row], {(7, 10)}).done for verb in ("retry", "bury", "skip")] == [[], [], []]
    assert replay([row], {(7, 10)}, None, {}).done == []


def test_generations_of_one_message_never_repeat() -> None:
    """Two dead rows of one message, replayed in one go, get two generations."""
    rows = [ROW._replace(seq=s, ids=[10], state="dead", route=r) for s, r in ((1, "a"), (2, "b"))]
    plan = replay(rows, {(1, 10), (2, 10)}, None, {10: 4})
    assert [(row.route, row.generation) for row in plan.added] == [("a", 5), ("b", 6)]
    assert plan.routes == ["a", "b"]


def test_the_gap_behind_a_closed_segment_holds_no_messages() -> None:
    """Ids between the last one used and the next range were never drawn."""
    segments = [Segment(0, "closed", 500), Segment(1, "open", SEGMENT + 20), Segment(2, "ahead", None)]
    assert used_between(segments, 100, SEGMENT + 9) == 400 + 10
    assert pending(segments, 100, 3, 103, SEGMENT + 9) == (3, True)
    number, exact = pending(segments, 0, 1000, 2000, 2000)
    assert (number, exact) == (1000, False)


def test_an_empty_closed_segment_counts_nothing() -> None:
    """A segment that was rolled past without a message has no highest id."""
    assert used_between([Segment(0, "closed", None), Segment(1, "open", None)], 0, SEGMENT + 4) == 5


def standing(**more: object) -> Standing:
    base = Standing("all", {}, False, 10, False, 0, (), None, "box1", 4, 0.5)
    return base._replace(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "state", "words"),
    [
        (standing(read=True), "delivered", "delivered."),
        (standing(), "unread", "on its way; its lane is with box1 (term 4)"),
        (standing(before=7), "unread", "7 unread before it"),
        (standing(owner=None), "unread", "no living relay owns its lane"),
        (standing(paused=True), "unread", "the route is paused"),
        (standing(head=LINE), "waiting", f"it waits behind order.created {ID}"),
        (standing(lines=(LINE._replace(id=10),), read=True), "retry", "refused twice (boom); its next attempt is in 12 s"),
        (standing(lines=(LINE._replace(id=10, unknowns=1),)), "retry", "its answer was lost once"),
        (standing(lines=(LINE._replace(state="blocked"),)), "blocked", "holds its key back until a person decides"),
        (standing(lines=(LINE._replace(state="waiting", id=10),), head=LINE), "waiting", "waits behind"),
        (standing(lines=(LINE._replace(state="dead"),)), "dead", "given up 3.0 s ago"),
        (standing(lines=(LINE._replace(state="skipped", error="erased"),)), "skipped", "(erased)"),
        (standing(definition={"match": {"type": ["x"]}}), "unwanted", "does not want it"),
    ],
)  # fmt: skip
def test_explain_says_why_in_a_sentence(how: Standing, state: str, words: str) -> None:
    """Each way a route can stand to a message has a sentence of its own."""
    told = _on_route(FOUND, how)
    assert told.state == state
    assert words in told.sentence


def test_explain_tells_a_replay_beside_the_first_delivery() -> None:
    """A resolved row and a live one of generation 1: it is being replayed."""
    rows = (LINE._replace(state="resolved"), LINE._replace(generation=1, attempts=0, due_in=0.0))
    told = _on_route(FOUND, standing(lines=rows, read=True))
    assert told.state == "replaying"
    assert "Replay 1 is under way; its next attempt is due now." in told.sentence


def test_explain_tells_a_replay_to_a_route_that_does_not_match() -> None:
    """What a person sent by hand is on its way whatever the route's match says."""
    rows = (LINE._replace(generation=1, attempts=0, due_in=0.0),)
    told = _on_route(FOUND, standing(definition={"match": {"aggregate": ["user"]}}, lines=rows, read=True))
    assert told.state == "replaying"
    assert "does not want it (its match). Replay 1 is under way" in told.sentence


def test_explain_judges_no_header_that_is_not_there_any_more() -> None:
    """`erase` blanks the headers that a match asked for: nobody knows whether it was wanted."""
    told = _on_route(FOUND, standing(definition={"match": {"header": {"city": ["R*"]}}}, read=True))
    assert "as it is, without headers" in told.sentence


def test_explain_says_what_keeps_the_relay() -> None:
    """Of what relays say, that which concerns the message's route and its sink or topic."""
    ours = ["all: 3 read so far wait for topic order: missing (first 7)", "all: sink main is away: refused"]
    others = ["all: 2 read so far wait for topic user: missing (first 8)", "other: sink main is away: refused"]
    told = _on_route(FOUND, standing(), [*ours, *others]).sentence
    assert all(text.removeprefix("all: ") in told for text in ours)
    assert "topic user" not in told
    assert "other" not in told


@pytest.mark.parametrize(
    ("topic", "definition", "rule"),
    [
        (None, {}, "the default, the aggregate"),
        ("mine", {"topic": "t"}, "the message's own topic"),
        (None, {"topic": "t"}, "the route's topic"),
        ("mine", {"force_topic": "f"}, "the route's force_topic"),
    ],
)
def test_explain_says_which_rule_chose_the_topic(topic: str | None, definition: dict[str, str], rule: str) -> None:
    """force_topic, the message's own, the route's, the default: in this order."""
    assert _on_route(FOUND._replace(topic=topic), standing(definition=definition)).topic_rule == rule


def test_a_uuid7_tells_when_it_was_drawn() -> None:
    """For a message that is nowhere, the time in its id is what there is to go by."""
    assert _drawn(str(ID)).startswith("Drawn at 2023-06-28")
    assert _drawn("17") == _drawn("00000000-0000-4000-8000-000000000000") == ""


def test_ids_are_uuids_or_numbers() -> None:
    """What is neither is refused with the form that is meant."""
    assert split_ids(["17", str(ID)]) == ([ID], [17])
    for wrong in ("", "order-1", "1" * 19, "²"):
        with pytest.raises(Refused, match="no message id"):
            split_ids([wrong])


def test_figures_are_said_as_people_say_them() -> None:
    """Spans, counts and volumes."""
    assert [span(s) for s in (-1, 0.44, 12.3, 119, 300, 12000, 200000)] == [
        "0.0 s", "0.4 s", "12 s", "119 s", "5 min", "3 h 20 min", "2 d 7 h",
    ]  # fmt: skip
    assert [times(n) for n in (1, 2, 3)] == ["once", "twice", "3 times"]
    assert [volume(n) for n in (5, 2048, 5 * 1024**3)] == ["5 B", "2.0 KiB", "5.0 GiB"]


def test_the_operator_is_the_person_not_the_account() -> None:
    """PILLARBOX_OPERATOR first, then whoever stands behind sudo, then the process's user."""
    assert note("x", {"PILLARBOX_OPERATOR": "ann", "SUDO_USER": "bob"}).who == "ann"
    assert note("x", {"SUDO_USER": "bob"}).who == "bob"
    assert note("x", {}).who
