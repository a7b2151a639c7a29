"""`./dev test`: the wheel installed, the servers started once, then all fences and tests in one pytest run."""

import sys

from devtools.wheel import ROOT
from devtools.with_servers import run_beside

FAST_FOLDERS = ("unit", "contract", "architecture", "typing")
COVERED = ("pillarbox.relay", "pillarbox.storage", "pillarbox.inbox")
COVERAGE = 95


def main(words: list[str]) -> int:
    fast, full = "--fast" in words, "--full" in words
    rest = [word for word in words if word not in ("--fast", "--full")]
    command = [sys.executable, "-m", "pytest", *_workers(rest), *rest]
    if fast and not _chosen(rest):
        command += [f"tests/{name}" for name in FAST_FOLDERS if (ROOT / "tests" / name).is_dir()]
    if not fast and not rest:
        command += _coverage()
    extra = {"PILLARBOX_FAST": "1"} if fast else {"PILLARBOX_FULL": "1"} if full else {}
    return run_beside([] if fast else ["postgres", "kafka"], command, ROOT, extra=extra, needed=False)


def _chosen(words: list[str]) -> bool:
    """Did the caller name files or folders?"""
    return any((ROOT / word.split("::")[0]).exists() for word in words)


def _workers(words: list[str]) -> list[str]:
    """Two, as there are two cores; what may not run beside its like shares a group, and a debugger wants none."""
    own = any(word.startswith(("-n", "--numprocesses", "--pdb", "-s", "--capture")) for word in words)
    return [] if own else ["-n", "2", "--dist", "loadgroup"]


def _coverage() -> list[str]:
    """Only of a whole run can a share be asked for; with the branches, on the rooms where a gap loses messages."""
    rooms = [name for name in COVERED if (ROOT / "src" / name.replace(".", "/")).is_dir()]
    if not rooms:
        return []
    return [*(f"--cov={name}" for name in rooms), "--cov-branch", "--cov-report=", f"--cov-fail-under={COVERAGE}"]
