"""One log line an event, through the standard library's logging: a service that embeds a relay decides where it goes."""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TextIO

from pillarbox import events
from pillarbox.config import masked
from pillarbox.events import Event

LOGGER = logging.getLogger("pillarbox.relay")

# What happens all the time is for debugging; what a person must know of warns; the rest is told.
_LEVELS: dict[type[Event], int] = {
    events.Delivered: logging.DEBUG,
    events.Settled: logging.DEBUG,
    events.MessageRefused: logging.WARNING,
    events.MessageBuried: logging.ERROR,
    events.MessageBlocked: logging.ERROR,
    events.MessageSetAside: logging.WARNING,
    events.AnswerUnknown: logging.WARNING,
    events.SessionAbandoned: logging.WARNING,
    events.SinkDown: logging.WARNING,
    events.DestinationAway: logging.WARNING,
    events.LanesLost: logging.WARNING,
    events.LeaseLost: logging.WARNING,
    events.DatabaseLost: logging.WARNING,
    events.RouteIdle: logging.WARNING,
    events.UnroutedFound: logging.WARNING,
    events.ChoreFailed: logging.WARNING,
}
_NOT_TOLD = {"waits", "publishes"}  # samples, for metrics
_PLAIN = re.compile(r"[^\s\"=\\]+")


def name_of(event: Event) -> str:
    """`SinkDown` → `sink_down`: what an event is called in logs."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()


def log(event: Event) -> None:
    """A subscriber of events."""
    level = _level(event)
    if LOGGER.isEnabledFor(level):
        told = told_of(event)
        LOGGER.log(level, "%s", _line(name_of(event), told), extra={"event": name_of(event), "fields": told})


def _level(event: Event) -> int:
    if isinstance(event, events.Warned):
        return logging.WARNING if event.active else logging.INFO
    return _LEVELS.get(type(event), logging.INFO)


def told_of(event: Event) -> dict[str, Any]:
    """An event's fields as they may be shown."""
    pairs = ((field.name, getattr(event, field.name)) for field in fields(event) if field.name not in _NOT_TOLD)
    return {name: _shown(value) for name, value in pairs if value is not None}


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    return masked(value) if isinstance(value, str) else value


def _line(name: str, told: dict[str, Any]) -> str:
    return " ".join([name, *(f"{key}={_word(value)}" for key, value in told.items())])


def _word(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    # Quoted, a line break in somebody's error text cannot begin a line of its own.
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """`2026-11-19T23:50:00.123Z INFO lanes_taken route=all lanes=0,1`"""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname} {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {"time": _moment(record), "level": record.levelname.lower()}
        if hasattr(record, "fields"):
            told |= {"event": getattr(record, "event", ""), **record.fields}
        else:
            told |= {"event": "log", "message": masked(record.getMessage()), "logger": record.name}
        if record.exc_info:
            told["exception"] = masked(self.formatException(record.exc_info))
        return json.dumps(told, ensure_ascii=False, default=str)


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_stderr(form: str, *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """What `pillarbox run` does with the lines: standard error, and nowhere else."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    ours = logging.getLogger("pillarbox")
    ours.handlers[:] = [handler]
    ours.setLevel(level)
    ours.propagate = False
