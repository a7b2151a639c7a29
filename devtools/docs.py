"""`./dev docs`: write the generated pages."""

import sys

from devtools.reference import PAGES
from devtools.wheel import ROOT


def main(words: list[str]) -> int:
    if words:
        print("usage: ./dev docs", file=sys.stderr)
        return 2
    for name, made in PAGES.items():
        path, text = ROOT / name, made()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    return 0
