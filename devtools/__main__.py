"""`./dev COMMAND`: which module does what."""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

COMMANDS = {
    "test": ("check", "build and install the wheel, start the servers, run fences and tests; --fast, --full"),
    "with": ("with_servers", "SERVER… -- COMMAND…: run a command beside private servers"),
    "demo": ("demo", "the shop that is killed on purpose; --postgres-kafka: on real servers"),
    "lint": ("lint", "ruff, mypy and import-linter; --fix: let ruff mend what it can"),
    "bench": ("bench", "measure speed"),
    "soak": ("soak", "all faults at random for --minutes N"),
    "simulate": ("simulate", "the real engine under seeded schedules: --schedules N --seed S"),
    "docs": ("docs", "write the generated pages and check the rest"),
}


def usage() -> str:
    return "usage: ./dev COMMAND …\n\n" + "\n".join(f"  {name:<9} {what}" for name, (_, what) in COMMANDS.items())


def main(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    name, *rest = words
    if name not in COMMANDS:
        print(f"dev: no command {name!r}\n{usage()}", file=sys.stderr)
        return 2
    module = f"devtools.{COMMANDS[name][0]}"
    if find_spec(module) is None:
        print(f"dev: {name} is not here yet ({module} is missing)", file=sys.stderr)
        return 2
    try:
        return int(import_module(module).main(rest))
    except RuntimeError as error:  # ours: a server or a wheel that could not be had, in a sentence
        print(f"dev: {error}", file=sys.stderr)
        return 3


def caller_folder() -> Path:
    """Where ./dev was called; the variable is ours alone and goes no further."""
    return Path(os.environ.pop("PILLARBOX_DEV_FROM", os.curdir))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
