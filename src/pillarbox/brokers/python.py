"""Any Python callable, blocking or async, one message or a batch at a time, in a thread of its own."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pillarbox.brokers.delivery import Delivery
from pillarbox.brokers.publishing import Publisher, PublishSink
from pillarbox.errors import Reject, SinkUnavailable
from pillarbox.outcome import Answers, Failed, Outcome, Record, SinkClass, Traits

ABANDON = 4  # calls that never return, before the sink waits for one of them


class Settings(BaseModel):
    """`kind = "python"`"""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    callable: Any = Field(description="`package.module:function`, or in your own process the function itself.")
    batch: bool = Field(default=False, description="Call it with a list of messages instead of one.")
    batch_size: int = Field(default=100, ge=1, le=5000, description="The longest list it is called with.")
    concurrency: int = Field(default=1, ge=1, le=1000, description="Async callables: how many calls at once.")
    in_flight: int = Field(default=100, ge=1, le=10_000, description="Messages handed over and not yet answered.")
    unavailable: tuple[str, ...] = Field(
        default=(),
        description="Exceptions (`package.module:Class`) that mean an outage, as `OSError` and its kin do already.",
    )

    @field_validator("callable")
    @classmethod
    def _names_something(cls, value: object) -> object:
        if callable(value) or (isinstance(value, str) and all(value.removeprefix("call:").partition(":"))):
            return value
        raise ValueError("must be a callable or `package.module:function`")


def make(name: str, settings: Settings) -> PublishSink:
    traits = Traits(delivery=SinkClass.SINGLE, max_in_flight=settings.in_flight)
    return CallableSink(settings, name, traits)


class CallableSink(PublishSink):
    """Resolves the callable when a session opens, so that a module that is broken is an outage with a reason."""

    def __init__(self, settings: Settings, name: str, traits: Traits) -> None:
        super().__init__(self._publisher, name=name, traits=traits, abandon=ABANDON)
        self._settings = settings
        self._loop: _Loop | None = None

    def _publisher(self) -> Publisher:
        return CallablePublisher(self._settings, self._loop_of_ours)

    def _loop_of_ours(self) -> _Loop:
        # One for the sink's whole life: clients of async libraries belong to the loop they were made in.
        if self._loop is None:
            self._loop = _Loop()
        return self._loop

    def close(self) -> None:
        super().close()
        if self._loop is not None:
            self._loop.stop()
            self._loop = None


class CallablePublisher:
    def __init__(self, settings: Settings, loop: Callable[[], _Loop]) -> None:
        self._settings = settings
        self._loop = loop
        self._over = False
        self._calls: list[Any] = []

    def open(self) -> None:
        given = self._settings.callable
        self._function = resolve(given) if isinstance(given, str) else given
        self._outage = (OSError, SinkUnavailable, *(resolve(name) for name in self._settings.unavailable))

    def publish(self, batch: Sequence[Record]) -> Iterator[Answers]:
        size = self._settings.batch_size if self._settings.batch else 1
        parts = [batch[start : start + size] for start in range(0, len(batch), size)]
        if _is_async(self._function):
            yield from self._side_by_side(parts)
        else:
            for part in parts:
                if self._over:
                    return
                yield self._judge(part, partial(self._call, part))

    def _side_by_side(self, parts: list[Sequence[Record]]) -> Iterator[Answers]:
        done: SimpleQueue[tuple[Sequence[Record], Any]] = SimpleQueue()
        waiting = iter(parts)
        self._calls = []

        def start_next() -> bool:
            part = None if self._over else next(waiting, None)
            if part is None:
                return False
            call = self._loop().start(self._awaited(part))
            self._calls.append(call)
            call.add_done_callback(lambda ended: done.put((part, ended)))
            return True

        running = sum(start_next() for _ in range(self._settings.concurrency))
        while running:
            part, ended = done.get()
            running += start_next() - 1
            if not ended.cancelled():
                yield self._judge(part, ended.result)

    def _argument(self, part: Sequence[Record]) -> Delivery | list[Delivery]:
        return [Delivery.of(record) for record in part] if self._settings.batch else Delivery.of(part[0])

    async def _awaited(self, part: Sequence[Record]) -> object:
        return await self._function(self._argument(part))

    def _call(self, part: Sequence[Record]) -> object:
        result = self._function(self._argument(part))
        if inspect.isawaitable(result):  # a plain function that returns a coroutine: not awaited, it would be lost
            return self._loop().start(_await(result)).result()
        return result

    def _judge(self, part: Sequence[Record], call: Callable[[], object]) -> Answers:
        try:
            said = call()
            if self._settings.batch and said is not None:
                return self._each(part, said)
        except self._outage as error:
            return Answers([], [Failed(record[0], Outcome.UNAVAILABLE, _told(error)) for record in part])
        except (Exception, SystemExit) as error:
            if len(part) == 1:
                return Answers([], [Failed(part[0][0], Outcome.REFUSED, _told(error))])
            return self._one_by_one(part)
        return Answers([record[0] for record in part], [])

    def _each(self, part: Sequence[Record], said: object) -> Answers:
        """A batch callable may say of each message: None, or the exception it would have raised for it alone."""
        if not isinstance(said, Sequence) or len(said) != len(part):
            raise TypeError(f"returned {type(said).__name__}; expected None or one None or exception for each message")
        answers = Answers([], [])
        for record, word in zip(part, said, strict=True):
            if word is None:
                answers.accepted.append(record[0])
            else:
                outcome = Outcome.UNAVAILABLE if isinstance(word, self._outage) else Outcome.REFUSED
                answers.failed.append(Failed(record[0], outcome, _told(word)))
        return answers

    def _one_by_one(self, part: Sequence[Record]) -> Answers:
        """A refusal counts only for a message that was alone in its request (PROTOCOL R8)."""
        answers = Answers([], [])
        for record in part:
            if not self._over:
                one = self._judge([record], partial(self._call, [record]))
                answers.accepted.extend(one.accepted)
                answers.failed.extend(one.failed)
        return answers

    def interrupt(self) -> None:
        self._over = True
        for call in list(self._calls):
            call.cancel()

    def close(self) -> None:
        """The callable's own affair."""


class _Loop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sink-loop", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, object]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(1.0)
        if not self._thread.is_alive():
            self._loop.close()


def resolve(name: str) -> Any:
    """What `package.module:attribute` names; the current folder counts as a place to import from."""
    module, _, attribute = name.removeprefix("call:").partition(":")
    if (here := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.append(here)  # the `pillarbox` command does not stand in it, unlike `python -m`
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SinkUnavailable(f"{name}: {error}.", "It is looked up as package.module:function.") from error
    return found


async def _await(result: Awaitable[object]) -> object:
    return await result


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _told(error: object) -> str:
    text = str(error)
    return text if isinstance(error, (Reject, SinkUnavailable)) and text else f"{type(error).__name__}: {text}"
