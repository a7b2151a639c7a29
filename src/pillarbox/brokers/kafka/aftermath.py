"""What a session that failed still has to find out and to say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pillarbox.outcome import Failed, Handle, Outcome, Record

TRIED_ALONE = 200  # of one refused request; with more the relay sends smaller windows


class Aftermath:
    """Failures of one session, told once everything on the wire has been answered."""

    def __init__(self) -> None:
        self.cause = (Outcome.UNKNOWN, "the session ended")
        self._words: list[Failed] = []
        self._suspects: deque[Record] = deque()
        self._left_to_try = TRIED_ALONE
        self._casualty: Handle | None = None

    def tell(self, failed: Failed) -> None:
        """The failure itself."""
        self._words.append(failed)

    def suspect(self, record: Record) -> None:
        """Refused with everything else in its request: one of them is the poison."""
        self._suspects.append(record)

    def casualty(self, records: Iterable[Record]) -> None:
        """They will have no answer in this session. The first of them stands for all, if nothing else does."""
        if self._casualty is None:
            self._casualty = next((record[0] for record in records), None)

    def next_suspect(self) -> Record | None:
        """Who goes alone now: in their order, and no more after a failure."""
        if not self._suspects or self._words or not self._left_to_try:
            return None
        self._left_to_try -= 1
        return self._suspects.popleft()

    def conclusion(self) -> list[Failed]:
        """What to answer, once; nothing if there is nobody without an answer."""
        self.casualty(self._suspects)
        if not self._words and self._casualty is not None:
            self._words.append(Failed(self._casualty, *self.cause))
        said, self._words, self._casualty = self._words, [], None
        self._suspects.clear()
        return said
