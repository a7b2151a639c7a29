"""`./dev demo`: the wheel installed, then `pillarbox demo` with the caller's arguments."""

import subprocess
import sys
from pathlib import Path

from devtools import wheel
from devtools.__main__ import caller_folder
from devtools.with_servers import environment, run_beside


def main(words: list[str]) -> int:
    folder = caller_folder()
    command = [str(Path(sys.prefix) / "bin" / "pillarbox"), "demo", *words]
    if "--postgres-kafka" in words:
        return run_beside(["postgres", "kafka"], command, folder)
    wheel.install()
    return subprocess.run(command, cwd=folder, env=environment({}), check=False).returncode
