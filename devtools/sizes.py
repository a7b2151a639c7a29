"""The tail of sizes: what is longer, wider or more than the house allows. `./dev lint` and a test ask here."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devtools.wheel import ROOT


@dataclass(frozen=True)
class Caps:
    file: int
    function: int
    klass: int
    parameters: int
    in_folder: int


SRC = Caps(file=350, function=40, klass=220, parameters=7, in_folder=14)
TESTS = Caps(file=450, function=50, klass=450, parameters=9, in_folder=40)


def breaches() -> list[str]:
    found = list(_of_tree(ROOT / "src" / "pillarbox", SRC, root_counts=False))
    for folder in ("tests", "devtools", "benchmarks", "examples"):
        found += _of_tree(ROOT / folder, TESTS, root_counts=True)
    return found


def _of_tree(root: Path, caps: Caps, *, root_counts: bool) -> Iterator[str]:
    files = sorted(root.rglob("*.py"))
    for folder in sorted({path.parent for path in files}):
        count = sum(path.parent == folder for path in files)
        if count > caps.in_folder and (root_counts or folder != root):
            yield f"{folder.relative_to(ROOT)}: {count} files in one folder, at most {caps.in_folder}"
    for path in files:
        yield from of_file(path.read_text(), str(path.relative_to(ROOT)), caps)


def of_file(text: str, name: str, caps: Caps) -> Iterator[str]:
    lines = text.count("\n")
    if lines > caps.file:
        yield f"{name}: {lines} lines, at most {caps.file}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield from _longer(node, caps.klass, f"{name}:{node.lineno} class {node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = f"{name}:{node.lineno} {node.name}"
            yield from _longer(node, caps.function, where)
            wide = positional(node)
            if wide > caps.parameters:
                yield f"{where}: {wide} positional parameters, at most {caps.parameters}"


def positional(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters a caller may confuse: named-only ones say themselves what they are (`add` has thirteen)."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _longer(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, cap: int, where: str) -> Iterator[str]:
    size = (node.end_lineno or node.lineno) - node.lineno + 1
    if size > cap:
        yield f"{where}: {size} lines, at most {cap}"
