"""The wheel: built from the tree and installed into the running environment, only when something in it changed."""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _content() -> str:
    """A sum of all that goes into the wheel."""
    files = [ROOT / "pyproject.toml", ROOT / "README.md", ROOT / "LICENSE"]
    files += [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    (ROOT / ".dev").mkdir(exist_ok=True)
    with (ROOT / ".dev" / "wheel.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(folder: Path) -> Path:
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the wheel does not build:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return next(folder.glob("*.whl"))


def install() -> None:
    """Make what the environment has installed equal to the tree, through the wheel."""
    mark = Path(sys.prefix) / ".pillarbox-installed"
    with _alone():
        content = _content()
        if mark.exists() and mark.read_text() == content:
            return
        with tempfile.TemporaryDirectory() as folder:
            wheel = build(Path(folder))
            words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", "--no-index"]
            subprocess.run(
                [*words, "--disable-pip-version-check", "--no-input", str(wheel)],
                stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True, env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"},
            )  # fmt: skip
        mark.write_text(content)
