"""A file of JSON lines, on the disk before it answers accepted.

Any number of relays and routes of one machine may share a file. A batch is one `write` at the end of the file, made
under a lock that covers looking at the file's end, cutting a torn line off and rotating, but not the `fsync`: a
process that is frozen holds the others up only if it is caught in those microseconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from pillarbox import crashpoints
from pillarbox.brokers import jsonline
from pillarbox.brokers.filelock import FileLock
from pillarbox.brokers.publishing import PublishSink
from pillarbox.errors import SinkUnavailable
from pillarbox.outcome import Answers, Failed, Outcome, Record, SinkClass, Traits

TRAITS = Traits(delivery=SinkClass.FAIL_STOP, max_in_flight=10_000)
LOCK_WITHIN = 2.0  # seconds
BLOCK = 65_536


class Settings(BaseModel):
    """`kind = "file"`"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path = Field(description="The file to append to; its folder must exist.")
    rotate_bytes: int = Field(
        default=268_435_456,
        ge=0,
        description="Before a batch is written to a file of at least so many bytes, the file is renamed to "
        "`PATH.000001` and so on, and a new one begun. 0: never. Nothing is ever deleted.",
    )


def make(name: str, settings: Settings) -> PublishSink:
    return PublishSink(lambda: FileWriter(settings.path, settings.rotate_bytes), name=name, traits=TRAITS)


class FileWriter:
    """One session: what it has open, and whether it failed."""

    def __init__(self, path: Path, rotate_bytes: int) -> None:
        self._path = path.absolute()
        self._rotate_bytes = rotate_bytes
        self._lock: FileLock | None = None
        self._fd = -1
        self._end = -1  # where our last write ended; what lies behind it was written by somebody else
        self._broken = False
        self._over = False

    def open(self) -> None:
        try:
            if self._path.exists() and not stat.S_ISREG(self._path.stat().st_mode):
                raise SinkUnavailable(f"{self._path} is no regular file.", 'For standard output use kind = "console".')
            self._lock = FileLock(self._path.with_name(f"{self._path.name}.lock"))
            with self._lock.held(LOCK_WITHIN):
                self._prepare()
        except OSError as error:
            raise SinkUnavailable(
                f"cannot append to {self._path}: {_reason(error)}.", "Its folder must exist and be writable."
            ) from error

    def publish(self, batch: Sequence[Record]) -> Iterator[Answers]:
        if self._broken:
            return  # fail-stop: what comes after a failure is left unanswered, for the next session
        lines: list[bytes] = []
        refused: list[Failed] = []
        for record in batch:
            try:
                lines.append(jsonline.encode(record))
            except (ValueError, TypeError, AttributeError) as error:
                refused.append(Failed(record[0], Outcome.REFUSED, f"cannot be written as JSON: {error}"))
                break
        handles = [record[0] for record in batch[: len(lines)]]
        failure = self._append(b"".join(lines)) if lines else None
        self._broken = bool(failure or refused)
        if failure is None:
            yield Answers(handles, refused)
        else:
            yield Answers([], [Failed(handle, *failure) for handle in handles])

    def _append(self, data: bytes) -> tuple[Outcome, str] | None:
        """None if all of it is on the disk, else nothing of it counts."""
        assert self._lock is not None
        try:
            with self._lock.held(LOCK_WITHIN):
                self._prepare()
                if self._over:
                    return Outcome.UNKNOWN, "hung up"
                self._write(data)
        except OSError as error:
            return Outcome.UNAVAILABLE, f"cannot append to {self._path}: {_reason(error)}"
        crashpoints.here("file.before_sync")
        try:
            os.fsync(self._fd)
        except OSError as error:  # the kernel may have dropped pages or written them: only the file itself could tell
            return Outcome.UNKNOWN, f"fsync of {self._path} failed: {_reason(error)}"
        return None

    def _prepare(self) -> None:
        """Under the lock: have the file of this name open, not too long, ending with a whole line."""
        if self._fd >= 0 and not self._is_current():
            self._close_file()
        if self._fd < 0:
            self._open_file()
        size = os.fstat(self._fd).st_size
        if size != self._end:  # a stranger wrote, perhaps one that was killed in the middle of a line
            size = self._cut_torn_line(size)
        if self._rotate_bytes and size >= self._rotate_bytes:
            self._rotate()

    def _is_current(self) -> bool:
        ours = os.fstat(self._fd)
        try:
            named = self._path.stat()
        except FileNotFoundError:  # somebody else's log rotation
            return False
        return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)

    def _open_file(self) -> None:
        new = not self._path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        self._fd = os.open(self._path, flags, 0o644)
        self._end = -1
        if new:
            _sync_folder(self._path.parent)

    def _cut_torn_line(self, size: int) -> int:
        end = size
        while end > 0:
            start = max(0, end - BLOCK)
            os.lseek(self._fd, start, os.SEEK_SET)
            newline = os.read(self._fd, end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end != size:
            os.ftruncate(self._fd, end)
        self._end = end
        return end

    def _rotate(self) -> None:
        # A session that has not synced its last batch yet has this file open and syncs it under its new name.
        self._close_file()
        self._path.rename(self._path.with_name(f"{self._path.name}.{_next_number(self._path):06d}"))
        crashpoints.here("file.rotated")
        self._open_file()
        self._end = 0

    def _write(self, data: bytes) -> None:
        start = self._end
        try:
            rest = memoryview(data)
            if crashpoints.ARMED == "file.torn":
                rest = rest[os.write(self._fd, rest[: len(rest) // 2]) :]
                crashpoints.here("file.torn")
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            with contextlib.suppress(OSError):  # else the next one to write cuts off at least the torn line
                os.ftruncate(self._fd, start)
            raise
        self._end = start + len(data)

    def interrupt(self) -> None:
        self._over = True

    def close(self) -> None:
        self._close_file()
        if self._lock is not None:
            self._lock.close()

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def rotated(path: Path) -> list[Path]:
    """The files that were rotated away, oldest first; `path` itself comes after them."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d{6,})(\..*)?")  # somebody may have compressed one
    found = [(match[1], other) for other in path.parent.iterdir() if (match := pattern.fullmatch(other.name))]
    return [other for _, other in sorted(found, key=lambda pair: int(pair[0]))]


def _next_number(path: Path) -> int:
    older = rotated(path)
    return int(older[-1].name[len(path.name) + 1 :].partition(".")[0]) + 1 if older else 1


def _sync_folder(folder: Path) -> None:
    """So that the name survives a power cut; Windows opens no folders."""
    with contextlib.suppress(PermissionError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
