"""README and every page of docs/, done as a reader does them: each block runs, each output shown is the real one."""

import re
from pathlib import Path

import pytest

from devtools import wheel
from pillarbox.errors import ConfigError
from tests.docs.pages import Page, page_of, pages
from tests.docs.reader import Failed, Reader

PAGES = pages()


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "reader"
    folder.mkdir(exist_ok=True)
    return folder


def read(page: Page, tmp_path: Path, servers: dict[str, str]) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    Reader(folder_of(tmp_path), aside, servers).read(page)


@pytest.mark.parametrize("page", [page for page in PAGES if not page.needs], ids=lambda page: page.name)
def test_a_page_runs(page: Page, tmp_path: Path) -> None:
    """From top to bottom in an empty folder, with nothing but what is installed."""
    read(page, tmp_path, {})


@pytest.mark.parametrize("page", [p for p in PAGES if p.needs == {"postgres"}], ids=lambda page: page.name)
def test_a_page_with_postgres_runs(page: Page, tmp_path: Path, pg_url: str) -> None:
    """The same with an empty database, whose owner the reader is, in DATABASE_URL."""
    read(page, tmp_path, {"DATABASE_URL": pg_url})


@pytest.mark.parametrize("page", [p for p in PAGES if p.needs == {"postgres", "kafka"}], ids=lambda page: page.name)
def test_a_page_with_postgres_and_kafka_runs(page: Page, tmp_path: Path, pg_url: str, kafka: str) -> None:
    """The same with a broker in KAFKA, too."""
    read(page, tmp_path, {"DATABASE_URL": pg_url, "KAFKA": kafka})


def test_the_readme_runs(tmp_path: Path, pg_url: str, kafka: str) -> None:
    """The same from the built wheel on, in the folder of someone who knows nothing else."""
    (readme,) = (page for page in PAGES if "wheel" in page.needs)
    wheel.build(folder_of(tmp_path))
    read(readme, tmp_path, {"DATABASE_URL": pg_url, "KAFKA": kafka})


def test_no_page_is_left_out() -> None:
    """A page that asks for what nobody gives it would never be read."""
    known: list[set[str]] = [set(), {"postgres"}, {"postgres", "kafka"}, {"postgres", "kafka", "wheel"}]
    assert [page.name for page in PAGES if page.needs not in known] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```sh\nfalse\necho on\n```\n", "line 2: it ended with 1"),
        ("```sh\necho a | grep b\n```\n", "line 2: it ended with 1"),
        ("```python\n\n1 / 0\n```\n", 'page.md", line 3'),
        ("```sh\necho one two\n```\n\n```text\none three\n```\n", "but it said\none two"),
        ("```python\nprint(1)\n```\n```text\n2\n```\n", "but it said\n1"),
        ("```python\ndef test_a():\n    assert 0\n```\n", "1 failed"),
        ('```toml\n[routes.a]\nsink = "b"\nsnik = "b"\n```\n', "routes.a.snik"),
    ],
    ids=["command", "pipe", "python", "output", "python's output", "test", "configuration"],
)
def test_what_does_not_work_is_told(text: str, says: str, tmp_path: Path) -> None:
    """A block that fails, and an output that is another one, with the page's line."""
    with pytest.raises((Failed, ConfigError), match=re.escape(says)):
        read(page_of("page.md", text), tmp_path, {})


def test_what_a_reader_takes_along(tmp_path: Path) -> None:
    """Files, exported variables and Python's names last to the page's end; `…` stands for anything."""
    text = (
        "```python\n# tool/it.py\nprint(6 * 7)\n```\n```sh\nexport SIZE=3\nsleep 100 &\npython tool/it.py; cd tool\n```\n"
        "```text\n4…\n```\n```sh\nkill %1; ls\n```\n```text\nit.py\n```\n"
        "```python\nimport os\nsize = os.environ['SIZE']\n```\n```python\nprint(size)\n```\n```text\n3\n```\n"
    )
    read(page_of("page.md", text), tmp_path, {})


def test_a_heading_parts_output_from_command(tmp_path: Path) -> None:
    """Text that shows something else is not compared."""
    read(page_of("page.md", "```sh\necho 1\n```\n## Else\n```text\n2\n```\n"), tmp_path, {})


def test_an_open_block_is_no_page() -> None:
    """A fence that is never closed would hide the rest of the page."""
    with pytest.raises(ValueError, match="line 1 has no end"):
        page_of("page.md", "```sh\necho 1\n")


def test_a_block_that_never_ends_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that waits for something is cut, and what it said is shown."""
    monkeypatch.setattr("tests.docs.reader.WITHIN", 0.5)
    with pytest.raises(Failed, match="no end within"):
        read(page_of("page.md", "```sh\necho here; sleep 100\n```\n"), tmp_path, {})
