"""`./dev with SERVER… -- COMMAND…`: private servers for the time of one command."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from devtools import wheel
from devtools.__main__ import caller_folder
from devtools.servers import registry
from devtools.servers.process import PR_SET_PDEATHSIG, ServerError, say

USAGE = f"usage: ./dev with [SERVER…] -- COMMAND…\nservers: {', '.join(registry.SERVERS)}"


class Ended(BaseException):
    """A signal told us to end before the command had begun."""


def main(words: list[str]) -> int:
    if "--" not in words or not words[words.index("--") + 1 :]:
        print(USAGE, file=sys.stderr)
        return 2
    cut = words.index("--")
    names, command = words[:cut], words[cut + 1 :]
    folder = caller_folder()
    unknown = [name for name in names if name not in registry.SERVERS]
    if unknown:
        say(f"no server named {', '.join(unknown)}")
        print(USAGE, file=sys.stderr)
        return 2
    return run_beside(list(dict.fromkeys(names)), command, folder)


def run_beside(
    names: Sequence[str], command: Sequence[str], folder: Path, *, extra: Mapping[str, str] = {}, needed: bool = True
) -> int:
    """The command's exit status; 128 + n when signal n ended it, as shells say it.

    Without `needed`, a server that cannot be had is told and left out: the command decides what that means.
    """
    servers: list[registry.Running] = []
    variables: dict[str, str] = {}
    for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(sign, _end)
    try:
        wheel.install()
        for name in names:
            try:
                server = registry.start(name)
            except ServerError as error:
                if needed:
                    raise
                say(f"no {name}: {error}")
                continue
            servers.append(server)
            variables |= server.variables
            say(f"{name} is up: {', '.join(server.variables)}")
        return _run(command, folder, environment({**variables, **extra}))
    except Ended as ended:
        return 128 + int(ended.args[0])
    except (ServerError, RuntimeError) as error:
        say(str(error))
        return 3
    finally:
        for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(sign, signal.SIG_IGN)  # what follows is short and must not be cut
        for server in reversed(servers):
            server.close()


def _end(sign: int, _frame: FrameType | None) -> None:
    raise Ended(sign)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The caller's, with this environment's python and pillarbox first on the path."""
    scripts = Path(sys.prefix) / "bin"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    path = f"{scripts}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "VIRTUAL_ENV": sys.prefix, **variables}


def _run(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> int:
    prctl, us = ctypes.CDLL(None).prctl, os.getpid()

    def die_with_us() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != us:
            os._exit(1)

    try:
        child = subprocess.Popen(command, cwd=folder, env=env, preexec_fn=die_with_us)
    except OSError as error:
        say(f"{command[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126

    def pass_on(sign: int, _frame: FrameType | None) -> None:
        # Ctrl-C at a terminal reaches the command by itself; a second one would cut its farewell short.
        if not (sign == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()):
            child.send_signal(sign)

    for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(sign, pass_on)
    status = child.wait()
    return status if status >= 0 else 128 - status
