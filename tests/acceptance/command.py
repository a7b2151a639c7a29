"""Starts the real `pillarbox` command in a folder of its own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

WITHIN = 30.0  # seconds; three times what DESIGN promises


class Command:
    """The command in one folder, under one environment."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PILLARBOX_")}
        self.environ = {**ours, **environ}

    def __call__(self, *words: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end; it must end with this code."""
        done = subprocess.run(
            [sys.executable, "-m", "pillarbox", *words],
            cwd=self.folder, env={**self.environ, **environ}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        """Run it with --json; what it answered."""
        return json.loads(self(*words, "--json", code=code).stdout)

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator["Running"]:
        """Start it, and end it with the block at the latest."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pillarbox", *words],
            cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            yield Running(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


class Running:
    """A command that has not ended yet."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def terminate(self) -> tuple[int, str]:
        """SIGTERM; how it ended, and all it said."""
        self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=WITHIN)
        return self.process.returncode, said


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body; status 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def until(condition: Any, what: str) -> None:
    """Wait for a state of another process."""
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end, f"not within {WITHIN:g} s: {what}"
        time.sleep(0.02)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The messages in a file sink's file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def configured(folder: Path, url: str, environ: Mapping[str, str] | None = None, more: str = "") -> Command:
    """A command whose folder has a pillarbox.toml with one route to messages.jsonl, and no port."""
    (folder / "pillarbox.toml").write_text(
        f'[database]\nurl = "{url}"\n[relay]\nlisten = "off"\nlease = 1\n'
        f'[sinks.out]\nkind = "file"\npath = "messages.jsonl"\n[routes.all]\nsink = "out"\n{more}'
    )
    return Command(folder, **(environ or {}))
