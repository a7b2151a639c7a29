"""Turns a plain `publish(batch)` that may block into a sink that never does.

Each session is one daemon thread that calls a publisher; the engine only puts batches into its queue and takes
answers out of another. A session that is hung up is told to stop and left alone: whatever its thread still says goes
into a queue that nobody reads any more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Protocol

from pillarbox.clock import SystemClock
from pillarbox.errors import SinkUnavailable
from pillarbox.outcome import NO_ANSWERS, Answers, Failed, Outcome, Record, Traits

OPEN_WITHIN = 3.0  # seconds, as long as any sink may take to connect (DESIGN 5)
mono = SystemClock.mono


class Publisher(Protocol):
    """What somebody writes who wants a sink without thinking of threads. One object a session."""

    def open(self) -> None:
        """Be ready, or raise whatever says why not."""

    def publish(self, batch: Sequence[Record]) -> Iterable[Answers]:
        """Deliver in this order and say what came of each message, as soon as it is known. May block."""

    def interrupt(self) -> None:
        """The session is over while another thread is inside `publish`: give up early where that is possible."""

    def close(self) -> None:
        """Let go of everything. Called by the session's own thread, also after a failed `open`."""


class _Session:
    """One thread, from opening to hanging up."""

    def __init__(self, publisher: Publisher, name: str) -> None:
        self.publisher = publisher
        self.opened: Future[None] = Future()
        self.todo: SimpleQueue[Sequence[Record] | None] = SimpleQueue()
        self.done: SimpleQueue[Answers] = SimpleQueue()
        self.over = False
        self.busy_since = mono()
        # A daemon: a callable that never returns must not keep the process from ending.
        self.thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.publisher.open()
        except BaseException as error:  # a user's module may even call sys.exit
            self.opened.set_exception(error)
        else:
            self.opened.set_result(None)
            self._work()
        with contextlib.suppress(Exception):
            self.publisher.close()

    def _work(self) -> None:
        while (batch := self.todo.get()) is not None:
            self.busy_since = mono()
            said: list[Answers] = []
            try:
                for answers in () if self.over else self.publisher.publish(batch):
                    said.append(answers)
                    self.done.put(answers)
                    if self.over:
                        return
            except BaseException as error:  # a publisher that breaks its word: nobody knows what it did
                self.done.put(_unknown(batch, said, f"{type(error).__name__}: {error}"))

    def end(self) -> None:
        self.over = True
        self.todo.put(None)
        with contextlib.suppress(Exception):
            self.publisher.interrupt()


def _unknown(batch: Sequence[Record], said: Sequence[Answers], reason: str) -> Answers:
    answered = {handle for answers in said for handle in answers.accepted}
    answered.update(failed.handle for answers in said for failed in answers.failed)
    return Answers([], [Failed(record[0], Outcome.UNKNOWN, reason) for record in batch if record[0] not in answered])


class PublishSink:
    """A sink made of publishers. At most `abandon` sessions may still be stuck in a call when the next one opens."""

    def __init__(self, make: Callable[[], Publisher], *, name: str, traits: Traits, abandon: int = 0) -> None:
        self.traits = traits
        self._make, self._name, self._abandon = make, name, abandon
        self._session: _Session | None = None
        self._left: list[_Session] = []

    def open(self) -> None:
        self.hang_up()
        self._refuse_if_stuck()
        session = _Session(self._make(), self._name)
        try:
            session.opened.result(OPEN_WITHIN)
        except SinkUnavailable:
            raise
        except BaseException as error:
            if not session.opened.done():  # our patience ended, not its own
                session.end()
                self._left.append(session)
                raise SinkUnavailable(f"sink {self._name} was not ready within {OPEN_WITHIN:g} s") from error
            if isinstance(error, KeyboardInterrupt):
                raise
            raise SinkUnavailable(f"sink {self._name} cannot be opened: {type(error).__name__}: {error}") from error
        self._session = session

    def _refuse_if_stuck(self) -> None:
        for session in self._left:
            session.thread.join(0.05)  # one that was told to end a moment ago is about to
        self._left = [session for session in self._left if session.thread.is_alive()]
        if len(self._left) > self._abandon:
            seconds = mono() - min(session.busy_since for session in self._left)
            raise SinkUnavailable(
                f"sink {self._name}: a call that began {seconds:.0f} s ago has not returned",
                "Nothing more is handed over until it does.",
            )

    def away(self, _topics: Sequence[str]) -> dict[str, str]:
        return {}

    def send(self, batch: Sequence[Record]) -> None:
        assert self._session is not None, "send comes after open"
        self._session.todo.put(batch)

    def answers(self, timeout: float) -> Answers:
        if self._session is None:
            return NO_ANSWERS
        done = self._session.done
        accepted: list[int | tuple[int, int]] = []
        failed: list[Failed] = []
        try:
            answers = done.get(timeout=timeout) if timeout > 0 else done.get_nowait()
            while True:
                accepted += answers.accepted
                failed += answers.failed
                answers = done.get_nowait()
        except Empty:
            return Answers(accepted, failed)

    def hang_up(self) -> None:
        if self._session is not None:
            self._session.end()
            self._left.append(self._session)
            self._session = None

    def fence(self, route: str, lane: int, term: int) -> None:
        """Nothing here can tell an old owner from a new one."""

    def warnings(self) -> list[str]:
        return []

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.todo.put(None)
            session.thread.join(OPEN_WITHIN)
            session.over = True
