"""A reader who does what a page says: one folder, one terminal, one Python prompt."""

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path

import yaml

from pillarbox.config import load
from pillarbox.wiring import sink_problems
from tests.docs.pages import Block, Page

WITHIN = 60.0  # seconds for one block
DONE = "--- that was the block ---"

# Runs what it is told in one namespace, as a prompt does, with the terminal's environment; tests of a page at its end.
PROMPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, "")
def told(line):
    kind, place, number, path = line.rstrip("\\n").split("\\t")
    os.environ.update(pair.split("=", 1) for pair in Path(os.environ["PAGE_ENV"]).read_text().split("\\0") if pair)
    if kind == "test":
        import pytest
        Path("test_page.py").write_text("import __main__\\nglobals().update(vars(__main__))\\n")
        return pytest.main(["-q", "-p", "no:cacheprovider", "test_page.py"])
    text = "\\n" * (int(number) - 1) + Path(path).read_text()
    exec(compile(text, place, "exec", dont_inherit=True), globals())
for line in sys.stdin:
    if told(line):
        sys.exit(1)
    print("\\n" + DONE, flush=True)
"""


class Failed(AssertionError):
    """Something the page says does not work."""


class Session:
    """A process that is told one thing at a time; everything it says comes back, and its end is a failure."""

    def __init__(self, words: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            words, cwd=folder, env=dict(env), text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def tell(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        try:
            while (heard := self._lines.get(timeout=WITHIN)) is not None:
                if heard.rstrip("\n") == DONE:
                    return "".join(said)
                said.append(heard)
        except queue.Empty:
            raise Failed(f"no end within {WITHIN:.0f} s; it said:\n{''.join(said)}") from None
        raise Failed(f"it ended with {self._process.wait(WITHIN)} and said:\n{''.join(said)}")

    def end(self) -> None:
        """With all that was left running behind it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


class Reader:
    """Reads a page in `folder`; `aside` is for what is not the reader's: the blocks as files."""

    def __init__(self, folder: Path, aside: Path, servers: Mapping[str, str]) -> None:
        self._folder, self._aside = folder, aside
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PILLARBOX", "PYTEST", "COV"))
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # What a page installs is there already: the wheel under test and all that it may need.
        kept |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        self._env = {**kept, "PATH": path, "HOME": str(folder), "PAGE_ENV": str(aside / "env"), **servers}
        (aside / "env").write_text("")
        self._sessions: dict[str, Session] = {}
        self._said = ""
        self._tests = False

    def read(self, page: Page) -> None:
        try:
            for block in page.blocks:
                try:
                    self._do(page, block)
                except Failed as failure:
                    raise Failed(f"{page.name}, line {block.line}: {failure}") from None
            if self._tests:
                self._python("test", page.name, Block("python", "", 0))
        finally:
            for session in self._sessions.values():
                session.end()

    def _do(self, page: Page, block: Block) -> None:
        if block.name:
            path = self._folder / block.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        match block.language:
            case "sh":
                self._said = self._sh(block)
            case "python" if not block.name:
                self._tests |= bool(
                    re.search(r"^def test_|^class \w+Contract\w*\(|^class Test", block.text, re.MULTILINE)
                )
                self._said = self._python("run", page.name, block)
            case "text" if block.follows:
                compare(block.text, self._said)
            case "toml":
                self._toml(block)
            case "yaml":
                yaml.safe_load(block.text)
            case "sql" if "DATABASE_URL" in self._env:
                self._sql(block)

    def _session(self, name: str, words: list[str]) -> Session:
        if name not in self._sessions:
            self._sessions[name] = Session(words, self._folder, self._env)
        return self._sessions[name]

    def _sh(self, block: Block) -> str:
        path = self._aside / f"{block.line}.sh"
        path.write_text(block.text, encoding="utf-8")
        shell = self._session("sh", ["bash", "--noprofile", "--norc"])
        return shell.tell(
            f"set -eo pipefail; . {path} </dev/null; set +eo pipefail; env -0 >$PAGE_ENV; printf '\\n%s\\n' '{DONE}'"
        )

    def _python(self, kind: str, place: str, block: Block) -> str:
        path = self._aside / f"{block.line}.py"
        path.write_text(block.text, encoding="utf-8")
        prompt = self._session("python", [sys.executable, "-u", "-c", f"DONE = {DONE!r}\n{PROMPT}"])
        return prompt.tell(f"{kind}\t{place}\t{block.line}\t{path}")

    def _sql(self, block: Block) -> None:
        import psycopg

        with psycopg.connect(self._env["DATABASE_URL"]) as conn:
            conn.execute(block.text.encode())

    def _toml(self, block: Block) -> None:
        """A configuration, or a part of one that is completed here; what it refers to is not on this machine."""
        text = re.sub(r'"(?:file|call):[^"]+"', '"secret"', block.text)
        text = re.sub(r"\$\{(\w+)\}", lambda name: "sqlite:///x.db" if "URL" in name[1] else "there:9092", text)
        tree = tomllib.loads(text)
        if not {"database", "relay", "log", "sinks", "routes"} & set(tree):
            return  # somebody else's file
        path = self._aside / f"{block.line}.toml"
        path.write_text(text, encoding="utf-8")
        missing: dict[str, dict[str, object]] = {"sinks": {}}
        if "database" not in tree:
            missing["database"] = {"url": "sqlite:///shop.db"}
        for route in tree.get("routes", {}).values():
            if route["sink"] not in tree.get("sinks", {}):
                missing["sinks"][route["sink"]] = {"kind": "null"}
        wrong = sink_problems(load(path, {}, missing))
        found = [f"{problem.path}: {problem.what}" for problem in wrong if "callable" not in problem.path]
        if found:
            raise Failed("\n".join(found))


def compare(expected: str, said: str) -> None:
    """`…` stands for anything."""
    wanted = ".*".join(re.escape(part) for part in expected.strip().split("…"))
    if not re.fullmatch(wanted, said.strip(), re.DOTALL):
        raise Failed(f"the page says\n{expected}\nbut it said\n{said}")
