"""What every private server needs: a folder, a port, a process that dies with us, and stopping it by its pid."""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
FOLDER_PREFIX = "pillarbox-"


class ServerError(RuntimeError):
    """A private server could not be installed, started or stopped; the text says why and shows its log's end."""


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


def cache_folder(name: str) -> Path:
    """A folder that survives runs: $PILLARBOX_CACHE, else the user's cache; root's is where other users can read too."""
    home = Path("/var/cache") if os.geteuid() == 0 else Path.home() / ".cache"
    folder = Path(os.environ.get("PILLARBOX_CACHE") or home / "pillarbox") / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def free_port() -> int:
    """A loopback port nobody listens on now; whoever takes it must start soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], *, seconds: float, what: str, every: float = 0.02) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ServerError(f"{what}: not within {seconds:g} s")
        time.sleep(every)


def answers(port: int) -> bool:
    """Does something on loopback accept connections at this port?"""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def temporary_folder(name: str) -> Path:
    """A folder others may pass through (servers run as another user), named after our pid so a later run can clear it."""
    _clear_folders_of_the_dead()
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-{name}-"))
    folder.chmod(0o755)
    return folder


def _clear_folders_of_the_dead() -> None:
    """What a run that was killed left behind. Each folder carries the pid of the process that made it."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*-*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def unprivileged_user(*preferred: str) -> str | None:
    """Whom a server runs as that refuses root; None when we are not root anyway."""
    if os.geteuid() != 0:
        return None
    for name in (*preferred, "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ServerError("no unprivileged user to run a server as")


def give_to(user: str | None, folder: Path) -> None:
    if user is None:
        return
    entry = pwd.getpwnam(user)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, entry.pw_uid, entry.pw_gid, follow_symlinks=False)


def _die_with_parent(death: signal.Signals, parent: int) -> Callable[[], None]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def before_exec() -> None:
        prctl(PR_SET_PDEATHSIG, int(death), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and here
            os._exit(1)

    return before_exec


def spawn(
    command: Sequence[str | os.PathLike[str]],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: str | None = None,
    death: signal.Signals = signal.SIGKILL,
) -> "subprocess.Popen[bytes]":
    """Start a server in a process group of its own; it gets `death` when the thread that started it ends.

    The kernel ties that to the starting *thread*: start servers from one that outlives them (a fixture's main thread).
    """
    identity: dict[str, object] = {}
    if user is not None:
        entry = pwd.getpwnam(user)
        identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    with log.open("ab") as output:
        return subprocess.Popen(
            [os.fspath(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            process_group=0,
            preexec_fn=_die_with_parent(death, os.getpid()),
            **identity,  # type: ignore[call-overload]
        )


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    user: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float = 120,
) -> str:
    """Run one tool to its end; its output on success, a ServerError with it otherwise."""
    identity: dict[str, object] = {}
    if user is not None:
        entry = pwd.getpwnam(user)
        identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    done = subprocess.run(
        [os.fspath(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        check=False,
        text=True,
        env=dict(env) if env is not None else None,
        cwd=cwd or "/",
        **identity,  # type: ignore[call-overload]
    )
    if done.returncode != 0:
        raise ServerError(f"{os.fspath(command[0])} failed with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout


def install_debian(*packages: str) -> None:
    """apt-get install without letting any package start a system service."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ServerError(f"please install {' '.join(packages)} (Debian packages); only root can do it from here")
    say(f"installing {' '.join(packages)}")
    env = {**os.environ, "RUNLEVEL": "1", "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        run(["apt-get", "update"], env=env, seconds=300)
        run(install, env=env, seconds=900)
    finally:
        if ours:
            policy.unlink()


def tail(log: Path, lines: int = 15) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    return ""


def stop_process(process: "subprocess.Popen[bytes]", how: signal.Signals = signal.SIGTERM, seconds: float = 10) -> None:
    """Ask, wait, then kill. A frozen process is thawed first, else it could not hear the question."""
    if process.poll() is not None:
        return
    for sign in (how, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, sign)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)


def family(pid: int) -> list[int]:
    """The process and all its descendants, parents first."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def signal_family(pid: int, sign: signal.Signals) -> None:
    for each in family(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, sign)


def freeze(pid: int) -> None:
    """SIGSTOP all of a server: the parent first, so that it starts nothing new meanwhile."""
    signal_family(pid, signal.SIGSTOP)


def thaw(pid: int) -> None:
    signal_family(pid, signal.SIGCONT)
