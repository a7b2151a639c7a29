"""What a route's stored definition means: which messages it wants, and which topic each goes to. Pure.

A definition is the JSON object a route is stored as: `match`, `sink`, `topic`, `force_topic`, `order`,
`after_last_attempt`, `headers`.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

RowTuple = tuple[Any, ...]
Test = Callable[[RowTuple], bool]

_FIELDS = {"key": 2, "aggregate": 4, "type": 5}
_MORE = 7
# What headers that a bare INSERT wrote may come to: any JSON at all, nested as deep as the database allows.
UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError)
_TEMPLATE = re.compile(r"\{(\w+)\}")
TEMPLATE_FIELDS = ("aggregate", "type", "key")
DEFAULT_TOPIC = "{aggregate}"


def extras(row: RowTuple) -> dict[str, Any]:
    """What is rarely there: topic, version, sequence, content_type, encoding, headers."""
    more = row[_MORE]
    return {} if more is None else json.loads(more)


def _globs(patterns: Sequence[str]) -> Callable[[str], Any]:
    return re.compile("|".join(f"(?:{fnmatch.translate(p)})" for p in patterns)).match


def _field_test(name: str, patterns: Sequence[str]) -> Test:
    fits = _globs(patterns)
    if name == "topic":

        def own_topic(row: RowTuple) -> bool:
            try:
                topic = extras(row).get("topic")
            except UNREADABLE:
                return True
            return topic is not None and fits(topic) is not None

        return own_topic
    place = _FIELDS[name]
    return lambda row: row[place] is not None and fits(row[place]) is not None


def _header_test(name: str, patterns: Sequence[str]) -> Test:
    fits = _globs(patterns)

    def header(row: RowTuple) -> bool:
        try:
            value = (extras(row).get("headers") or {}).get(name)
        except UNREADABLE:
            return True  # nobody can say, so it is not passed over: its encoding fails, and it is seen
        return isinstance(value, str) and fits(value) is not None

    return header


def compile_match(definition: Mapping[str, Any]) -> Test | None:
    """Whether a row is wanted; all conditions must hold, one glob of each. None: every row is."""
    match: Mapping[str, Any] = definition.get("match") or {}
    tests = [_field_test(name, globs) for name, globs in match.items() if name != "header" and globs and globs != ["*"]]
    tests += [_header_test(name, globs) for name, globs in (match.get("header") or {}).items()]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda row: all(test(row) for test in tests)


def matches_everything(definition: Mapping[str, Any]) -> bool:
    """Whether no message can escape this route."""
    return compile_match(definition) is None


def fill(template: str, row: RowTuple) -> str:
    """A topic's template with the row's own values; a message without a key has an empty one."""
    return _TEMPLATE.sub(lambda m: str(row[_FIELDS[m.group(1)]] or ""), template)


def topic_and_rule(definition: Mapping[str, Any], row: RowTuple) -> tuple[str, str]:
    """Where a message goes, and which rule said so: force_topic | own | route | default."""
    if definition.get("force_topic"):
        return fill(definition["force_topic"], row), "force_topic"
    own = extras(row).get("topic")
    if own:
        return own, "own"
    if definition.get("topic"):
        return fill(definition["topic"], row), "route"
    return fill(DEFAULT_TOPIC, row), "default"


def literal_topics(definition: Mapping[str, Any]) -> list[str]:
    """The topics that are known before any message is."""
    named = [definition.get("force_topic") or definition.get("topic") or DEFAULT_TOPIC]
    return [topic for topic in named if not _TEMPLATE.search(topic)]
