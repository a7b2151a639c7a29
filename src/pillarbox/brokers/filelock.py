"""An exclusive lock on a file between processes (and between threads that opened it themselves)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pillarbox.clock import SystemClock

if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class FileLock:
    """Held by one open file description at a time; the kernel lets go of it when its process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)

    @contextlib.contextmanager
    def held(self, within: float) -> Iterator[None]:
        """Wait at most `within` seconds: its holder may be frozen. `TimeoutError` names the file."""
        clock = SystemClock()
        until = clock.mono() + within
        while not self._taken():
            if clock.mono() >= until:
                raise TimeoutError(f"{self._path} has been locked by another process for {within:g} s")
            clock.sleep(0.0005)
        try:
            yield
        finally:
            _unlock(self._fd)

    def _taken(self) -> bool:
        try:
            _lock(self._fd)
        except (BlockingIOError, PermissionError):  # held by another (POSIX, Windows); anything else is an error
            return False
        return True

    def close(self) -> None:
        os.close(self._fd)
