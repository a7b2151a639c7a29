"""The types users see are part of the public API."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_public_types() -> None:
    """What is right passes mypy's strict mode, what is wrong is found: an ignore that is not needed fails too."""
    words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", "uses.py"]
    done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
