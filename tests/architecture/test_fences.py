"""The fences of the house: layers, sizes, typing, lint, SQL, time, drivers, and nothing of this machine in the tree."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools import lint, sizes
from devtools.wheel import ROOT

SRC = ROOT / "src" / "pillarbox"
DATABASES = ["psycopg", "psycopg2", "asyncpg", "aiosqlite", "sqlalchemy", "django"]
DRIVERS = [*DATABASES, "confluent_kafka", "yaml", "opentelemetry", "matplotlib"]
SQL = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT INTO\b|\bUPDATE \S+ SET\b|\bDELETE FROM\b|\bCREATE (TABLE|INDEX|SCHEMA|FUNCTION)\b"
    r"|\b(ALTER|DROP) TABLE\b",
    re.DOTALL,
)
TIME = {("time", "time"), ("time", "monotonic"), ("time", "sleep"), ("time", "time_ns"), ("time", "monotonic_ns"),
        ("asyncio", "sleep"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}  # fmt: skip


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        yield path, ast.parse(path.read_text())


@pytest.mark.parametrize("name", lint.CHECKS)
def test_lint(name: str) -> None:
    """Ruff, mypy strict and the layers find nothing."""
    status, text = lint.check(name)
    assert status == 0, text


def test_sizes() -> None:
    """No file, function, class or folder grew past the cap, and none takes more positional parameters than one can read."""
    found = sizes.breaches()
    assert not found, "\n".join(found)


def test_the_size_fence_sees_a_breach() -> None:
    """A function one line too long, and one parameter too many, are reported."""
    text = "def f(a, b, c):\n" + "    a\n" * 3
    assert [line.split(": ")[1] for line in sizes.of_file(text, "x", sizes.Caps(9, 3, 9, 2, 9))] == [
        "4 lines, at most 3",
        "3 positional parameters, at most 2",
    ]


def _prose(tree: ast.Module) -> set[int]:
    """Docstrings, by identity of their node: they may talk about SQL."""
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }


def test_sql_lives_in_sql_files() -> None:
    """No Python file but a dialect carries a statement."""
    found = []
    for path, tree in modules():
        if path.name == "dialect.py":
            continue
        prose = _prose(tree)
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value[:60]!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
            if SQL.search(node.value)
        ]
    assert not found, "\n".join(found)


def test_only_the_clock_reads_time() -> None:
    """Everything else is given a clock, so that a test can turn it."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value.id}.{node.attr}"
        for path, tree in modules()
        if path != SRC / "clock.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (node.value.id, node.attr) in TIME
    ]
    assert not found, "\n".join(found)


def test_the_core_install_imports_no_driver() -> None:
    """A service that only adds, and the command line's help, need no broker's and no database's library."""
    probe = f"import pillarbox, pillarbox.cli, sys; print([n for n in {DRIVERS!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, cwd="/")
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_public_names_exist() -> None:
    """Whatever `__all__` promises can be imported, once each."""
    import pillarbox

    assert len(set(pillarbox.__all__)) == len(pillarbox.__all__)
    assert [name for name in pillarbox.__all__ if not hasattr(pillarbox, name)] == []


def test_the_wheel_is_typed() -> None:
    """Users' type checkers read our annotations only beside this marker."""
    import pillarbox

    assert (Path(pillarbox.__file__).parent / "py.typed").exists()


def test_outbox_and_inbox_see_only_connections_of_storage() -> None:
    """They work on the caller's connection; which dialect that is, `storage.connections` decides."""
    found = []
    for path, tree in modules():
        if path.relative_to(SRC).parts[0].removesuffix(".py") not in ("outbox", "inbox"):
            continue
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if name.startswith("pillarbox.storage") and not name.startswith("pillarbox.storage.connections")
            ]
    assert not found, "\n".join(found)


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=60
        )
    except OSError:
        return ""
    return done.stdout


def _of_this_machine() -> set[str]:
    """Hosts its package clients are pointed to, and the folders around this checkout."""
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    said = "\n".join(path.read_text() for path in sources if path.is_file())
    said += _ask(sys.executable, "-m", "pip", "config", "list") + _ask("npm", "config", "get", "registry")
    settings = Path.home() / ".m2" / "settings.xml"
    said += settings.read_text() if settings.is_file() else ""
    hosts = set(re.findall(r"https?://(?:[^/@\s]*@)?([^/:\s'\"<]+)", said)) - {"localhost", "127.0.0.1"}
    hosts = {host for host in hosts if not host.startswith(("maven.apache.org", "www.w3.org"))}
    return hosts | {f"{ROOT}/"} | {f"{path}/" for path in ROOT.parent.iterdir() if ROOT.parent.name not in ("", "tmp")}


def test_nothing_of_this_machine_is_tracked() -> None:
    """No registry's host and no path of the machine it was written on: packages come by name, files by relation."""
    words = [word for secret in sorted(_of_this_machine()) for word in ("-e", secret)]
    assert _ask("git", "grep", "-nIF", *words, "--", ".") == ""


def test_every_ignored_rule_has_a_reason() -> None:
    """Ruff starts from ALL; what is switched off says why on its own line."""
    text = (ROOT / "pyproject.toml").read_text()
    block = text.split("ignore = [", 1)[1].split("\n]", 1)[0]
    assert [line for line in block.strip().splitlines() if "#" not in line] == []


def test_tests_say_what_they_show() -> None:
    """Each test's docstring is one sentence naming the behaviour."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)
