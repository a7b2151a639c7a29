"""`init`, `config show|check`, `--version`, and how the command says no."""

import json
from pathlib import Path

import pytest

from tests.acceptance.command import Command, configured

CANARY = "canary-7f3a"


@pytest.fixture
def pillarbox(tmp_path: Path) -> Command:
    return Command(tmp_path)


def test_version(pillarbox: Command) -> None:
    """The version is one line."""
    assert pillarbox("--version").stdout.startswith("pillarbox 0.")


def test_init_writes_a_file_that_is_good(pillarbox: Command, tmp_path: Path) -> None:
    """What init writes passes the check, and is not overwritten without a word."""
    pillarbox("init")
    assert pillarbox("config", "check").stdout == "The configuration is good.\n"
    assert "is there already" in pillarbox("init", code=5).stderr
    (tmp_path / "pillarbox.toml").write_text("")
    pillarbox("init", "--force")
    assert "[database]" in (tmp_path / "pillarbox.toml").read_text()


@pytest.mark.parametrize("words", [("--config", "o.toml", "config", "show"), ("config", "show", "--config=o.toml")])
def test_options_stand_anywhere(pillarbox: Command, words: tuple[str, ...]) -> None:
    """--config, --set and --json stand before or after the command."""
    pillarbox("init", "o.toml")
    assert "relay.batch = 77" in pillarbox(*words, "--set", "relay.batch=77").stdout
    assert pillarbox.json("--set", "relay.batch=77", *words)["relay"]["batch"] == 77


def test_check_tells_everything(tmp_path: Path) -> None:
    """Every problem at once, also those only a sink's kind knows; code 3 and nothing secret."""
    pillarbox = configured(tmp_path, f"postgresql+asyncpg://app:{CANARY}@db/x", more='[sinks.b]\nkind = "file"\n')
    found = pillarbox.json("config", "check", "--set", "relay.batch=1", code=3)
    assert {each["path"] for each in found} >= {"database.url", "relay.batch", "sinks.b.path", "sinks.b"}
    text = pillarbox("config", "check", code=3)
    assert "postgresql://app:***@db/x" in text.stdout
    assert CANARY not in text.stdout + text.stderr


def test_show_masks(tmp_path: Path) -> None:
    """What is shown has no password, in text and in JSON."""
    pillarbox = configured(tmp_path, f"postgresql://app:{CANARY}@db/x?password={CANARY}")
    for words in (("config", "show"), ("config", "show", "--json")):
        assert CANARY not in pillarbox(*words, PILLARBOX_DATABASE__PASSWORD=CANARY).stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("nonsense",), 2, "No such command"),
        (("run", "--once", "--until-idle"), 5, "two different things"),
        (("config", "check", "--config", "none.toml"), 3, "There is no file none.toml"),
        (("config", "show", "--set", "x"), 2, "SECTION.NAME=VALUE"),
        (("migrate", "up"), 3, "database.url: is missing"),
        (("migrate", "up", "--set", "database.url=mysql://x/y"), 3, "is no database we know"),
        (("migrate", "grants"), 5, "No role was named"),
        (("run", "--set", "database.url=sqlite:///none.db"), 4, "pillarbox migrate up"),
    ],
)
def test_saying_no(pillarbox: Command, words: tuple[str, ...], code: int, says: str) -> None:
    """A refusal is one line with its cure and its own exit code, never a traceback."""
    assert says in pillarbox(*words, code=code).stderr


def test_saying_no_in_json(pillarbox: Command) -> None:
    """With --json an error is JSON too, on standard error."""
    done = pillarbox("migrate", "up", "--json", code=3)
    assert done.stdout == ""
    assert '"code": "config"' in done.stderr


@pytest.mark.parametrize(
    "words", [(), ("config",), ("migrate",), ("run",), ("upkeep",), ("init",), ("migrate", "up"), ("config", "check")]
)
def test_help(pillarbox: Command, words: tuple[str, ...]) -> None:
    """Every command has a help page, which tells of the options that stand anywhere."""
    said = pillarbox(*words, "--help").stdout
    assert "Usage: pillarbox" in said
    assert "--json" in said


def test_environment_twins(pillarbox: Command) -> None:
    """A command's own options have twins in the environment."""
    pillarbox("init")
    pillarbox("migrate", "up")
    done = pillarbox("run", PILLARBOX_RUN_ONCE="1", PILLARBOX_RUN_LISTEN="off", PILLARBOX_JSON="1")
    assert done.stdout == '{"delivered": 0}\n'
    done = pillarbox("route", "pause", "nope", code=5, PILLARBOX_JSON="1")
    assert json.loads(done.stderr)["error"]["code"] == "refused"


def test_a_missing_driver_names_the_extra(pillarbox: Command, tmp_path: Path) -> None:
    """Without psycopg a PostgreSQL URL says what to install."""
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError('no psycopg here', name='psycopg')")
    done = pillarbox(
        "migrate", "up", "--set", "database.url=postgresql://x/y", code=3, PYTHONPATH=f"{tmp_path}:{_path(pillarbox)}"
    )
    assert "pip install 'pillarbox[postgres]'" in done.stderr


def _path(pillarbox: Command) -> str:
    return pillarbox.environ.get("PYTHONPATH", "")
