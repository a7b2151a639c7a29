"""A relay in a process of its own, to be killed, frozen, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class RelayProcess:
    """`python -m pillarbox run` on one configuration. Starting it again is another life, not another object."""

    def __init__(self, config: Path, log: Path, environ: Mapping[str, str] = os.environ, word: str = "run") -> None:
        self._command = [sys.executable, "-m", "pillarbox", "--config", str(config), word]
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._born = 0  # where the log of this life begins
        self.log = log
        self.lives = 0

    def start(self, **variables: str) -> None:
        with self.log.open("ab") as out:
            self._born = out.tell()
            self._process = subprocess.Popen(
                self._command, env={**self._environ, **variables}, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self.lives += 1

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """Its status; negative: the signal it died of; None while it lives."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout)

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def signal(self, number: int) -> None:
        """SIGTERM, SIGSTOP, SIGCONT …; nothing if it has ended."""
        if self.ended is None:
            os.kill(self.pid, number)

    def forget(self) -> None:
        """As if it had never been started."""
        self.kill()
        self._process = None

    def stop(self, timeout: float = 20.0) -> int:
        """SIGTERM, then its status; SIGKILL if it does not listen."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def said(self) -> str:
        """What it has logged in this life."""
        return self.log.read_bytes()[self._born :].decode(errors="replace") if self.log.exists() else ""

    def tail(self, lines: int = 10) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
