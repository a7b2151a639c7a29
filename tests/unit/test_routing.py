"""What a route's definition means for rows that a bare INSERT has written."""

import json

import pytest

from pillarbox.relay.encode import CannotEncode, encoder
from pillarbox.routing import compile_match

DEFINITIONS = [{"match": {"header": {"city": ["Rome"]}}}, {"match": {"topic": ["news*"]}}]
NOBODY_CAN_SAY = ['["city"]', '"city"', "5", "{", "[" * 5000 + "]" * 5000]


def row(more: str) -> tuple[object, ...]:
    return (1, 0, "k", b"\0" * 16, "order", "order.created", b"{}", more)


@pytest.mark.parametrize("headers", NOBODY_CAN_SAY)
def test_what_cannot_be_judged_is_not_passed_over(headers: str) -> None:
    """Headers that are no object stop nobody's reading; the message is wanted, cannot be encoded, and is seen."""
    broken = row(f'{{"headers": {headers}}}')
    wanted = compile_match(DEFINITIONS[0])
    assert wanted is not None
    assert wanted(broken)
    with pytest.raises(CannotEncode):
        encoder({})(broken, 0)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_what_is_not_there_does_not_match(definition: dict[str, object]) -> None:
    """Neither a missing header, nor null, nor a number is a text that a glob could fit."""
    wanted = compile_match(definition)
    assert wanted is not None
    for headers in (None, {}, {"city": None}, {"city": 5}):
        assert not wanted(row(json.dumps({"topic": None, "headers": headers})))


def test_a_header_that_is_null_is_left_out() -> None:
    """SQL writes null easily where it means nothing."""
    _, topic, _, _, headers = encoder({})(row('{"topic": null, "version": null, "headers": {"city": null}}'), 0)
    assert topic == "order"
    assert [name for name, _ in headers] == ["id", "type", "aggregate", "content-type"]


def test_a_key_that_is_no_text_is_refused_alone() -> None:
    """SQLite keeps any bytes as text; also where the headers of its kind are ready, only that message fails."""
    encode = encoder({})
    good = (*row("")[:7], None)
    encode(good, 0)
    with pytest.raises(CannotEncode):
        encode((2, 0, "\udcff", *good[3:]), 0)
