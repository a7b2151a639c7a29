"""`./dev lint`: the fences that read and never run code; the same commands the tests in tests/architecture run."""

import os
import subprocess
import sys
from pathlib import Path

from devtools import sizes
from devtools.wheel import ROOT

SCRIPTS = Path(sys.prefix) / "bin"
CHECKS = {
    "ruff": ["ruff", "check", "--quiet", "."],
    "mypy": ["mypy", "--cache-dir", ".dev/mypy", "--no-error-summary"],
    "pyright": ["basedpyright", "--level", "error"],
    "import-linter": ["lint-imports", "--no-cache", "--no-logo"],
}


def check(name: str, *more: str) -> tuple[int, str]:
    """A tool's status and all it said, on the tree (not on the installed wheel)."""
    program, *arguments = CHECKS[name]
    done = subprocess.run(
        [SCRIPTS / program, *arguments, *more],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def main(words: list[str]) -> int:
    unknown = set(words) - {"--fix"}
    if unknown:
        print(f"dev: lint does not know {', '.join(sorted(unknown))}\nusage: ./dev lint [--fix]", file=sys.stderr)
        return 2
    worst = 0
    for name in CHECKS:
        status, text = check(name, *(["--fix"] if words and name == "ruff" else []))
        print(f"{name}: {'ok' if status == 0 else 'no'}")
        if status != 0:
            print(text)
            worst = 1
    long = sizes.breaches()
    print(f"sizes: {'no' if long else 'ok'}", *long, sep="\n")
    return 1 if long else worst
