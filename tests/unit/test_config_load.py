"""File, environment and flags become one value, and every problem is found at once."""

from pathlib import Path
from typing import Any

import pytest

from pillarbox.config import Config, Problem, examine, load
from pillarbox.errors import ConfigError

CANARY = "canary-7f3a"
GOOD = """
[database]
url = "sqlite:///shop.db"
[sinks.out]
kind = "file"
path = "out.jsonl"
[routes.all]
sink = "out"
"""


def written(folder: Path, text: str, name: str = "pillarbox.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def errors(folder: Path, text: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    _, found = examine(written(folder, text), environ or {})
    return {problem.path: f"{problem.what} {problem.cure}" for problem in found if problem.level == "error"}


def test_flags_over_environment_over_file(tmp_path: Path) -> None:
    """The nearest hand wins: flag, then environment, then file, then default."""
    path = written(tmp_path, GOOD + "[relay]\nbatch = 100\nwindow = 200\nheld_keys = 300\n")
    environ = {"PILLARBOX_RELAY__BATCH": "101", "PILLARBOX_RELAY__WINDOW": "201"}
    relay = load(path, environ, {"relay": {"batch": "102"}}).relay
    assert (relay.batch, relay.window, relay.held_keys, relay.attempts) == (102, 201, 300, 5)


def test_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, else by PILLARBOX_CONFIG, else ./pillarbox.toml, else none."""
    monkeypatch.chdir(tmp_path)
    assert load(None, {"PILLARBOX_DATABASE__URL": "sqlite:///x.db"}).routes == {}
    written(tmp_path, GOOD)
    other = written(tmp_path, GOOD.replace("shop", "other"), "other.toml")
    assert load(None, {}).database.url == "sqlite:///shop.db"
    assert load(None, {"PILLARBOX_CONFIG": str(other)}).database.url == "sqlite:///other.db"
    assert load(other, {"PILLARBOX_CONFIG": "nowhere.toml"}).database.url == "sqlite:///other.db"


def test_yaml_says_the_same(tmp_path: Path) -> None:
    """A YAML file is as good as TOML."""
    text = "database: {url: 'sqlite:///shop.db'}\nsinks: {out: {kind: file, path: out.jsonl}}\nroutes: {all: {sink: out}}\n"
    assert load(written(tmp_path, text, "p.yaml"), {}) == load(written(tmp_path, GOOD), {})


@pytest.mark.parametrize(
    ("name", "text"),
    [("p.toml", f'[database]\npassword = "{CANARY}\n'), ("p.yaml", f"database: {{password: [{CANARY}\n")],
)
def test_a_broken_file_names_the_line_and_not_its_text(tmp_path: Path, name: str, text: str) -> None:
    """A syntax error tells where, and never quotes what may be a secret."""
    with pytest.raises(ConfigError, match="line") as caught:
        load(written(tmp_path, text, name), {})
    assert CANARY not in str(caught.value)


def test_no_file_and_wrong_kind_of_file(tmp_path: Path) -> None:
    """A file that is missing, is a folder, is no text or no table is refused in words."""
    for path in (tmp_path / "none.toml", tmp_path, written(tmp_path, "- 1\n", "list.yaml")):
        with pytest.raises(ConfigError):
            load(path, {})
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(binary, {})


def test_every_problem_at_once(tmp_path: Path) -> None:
    """Typing errors, ranges, unknown names and cross-references are told together, each with its key path."""
    found = errors(
        tmp_path,
        """
        [database]
        url = "sqlite:///x.db"
        passwort = "x"
        [relay]
        lease = "100 s"
        batch = 3
        [log]
        period = "hour"
        [sinks.main]
        kind = "file"
        [routes.all]
        sink = "mian"
        ordr = "none"
        [routes.other]
        match = { header = { city = 3 } }
        [routes."bad name"]
        sink = "main"
        """,
        {"PILLARBOX_RELAYS__BATCH": "5", "PILLARBOX_SINKS__MAIN__PATH": "${NOT_SET}"},
    )
    assert found.keys() == {
        "PILLARBOX_RELAYS__BATCH", "database.passwort", "relay.lease", "relay.batch", "log.period", "routes.all.sink",
        "routes.all.ordr", "routes.other.sink", "routes.other.match.header.city", "routes.bad name", "sinks.main.path",
    }  # fmt: skip
    assert "Did you mean `password`?" in found["database.passwort"]
    assert "Did you mean `main`?" in found["routes.all.sink"]
    assert "NOT_SET" in found["sinks.main.path"]
    assert "60" in found["relay.lease"]


@pytest.mark.parametrize("text", ["relay = 3", "sinks = [1]", "[sinks]\nk = 3", "x = 1", "[routes.a]\nmatch = [1]"])
def test_any_shape_is_a_finding(tmp_path: Path, text: str) -> None:
    """A value of the wrong shape anywhere is a finding, never an exception."""
    assert errors(tmp_path, text)


def test_only_the_sections_that_are_needed(tmp_path: Path) -> None:
    """`migrate` needs [database] alone: a route that is wrong does not stop it."""
    path = written(tmp_path, GOOD.replace('sink = "out"', 'sink = "nowhere"'))
    with pytest.raises(ConfigError, match=r"routes\.all\.sink"):
        load(path, {})
    assert load(path, {}, only=("database",)).database.url == "sqlite:///shop.db"


def test_environment_reaches_names(tmp_path: Path) -> None:
    """A variable reaches a sink whose name has capitals or a hyphen, and a dotted setting of its library."""
    text = GOOD + '[sinks.Main-Kafka]\nkind = "kafka"\n[sinks.Main-Kafka.settings]\n"sasl.password" = "old"\nacks = 1\n'
    environ = {
        "PILLARBOX_SINKS__MAIN_KAFKA__SETTINGS__SASL__PASSWORD": "1e5",
        "PILLARBOX_SINKS__MAIN_KAFKA__BOOTSTRAP_SERVERS": '["a:1","b:2"]',
    }
    sink = load(written(tmp_path, text), environ).sinks["Main-Kafka"]
    assert sink.settings == {"sasl.password": "1e5", "acks": 1}
    assert sink.options == {"bootstrap_servers": ["a:1", "b:2"]}


def test_nested_settings_are_dotted(tmp_path: Path) -> None:
    """What TOML makes a nested table is one dotted name to the client library."""
    config = load(written(tmp_path, GOOD + '[sinks.out.settings]\nsasl.password = "x"\nsasl.oauth.cb = "y"\n'), {})
    assert config.sinks["out"].settings == {"sasl.password": "x", "sasl.oauth.cb": "y"}


def test_units(tmp_path: Path) -> None:
    """Times and sizes may be written as people write them."""
    text = '[relay]\nlease = "500ms"\nsend_timeout = "2 min"\nbuffer_bytes = "64 MiB"\n[log]\nretention = "3 days"\n'
    config = load(written(tmp_path, GOOD + text), {})
    assert (config.relay.lease, config.relay.send_timeout, config.log.retention) == (0.5, 120, 259200)
    assert config.relay.buffer_bytes == 64 * 1024**2
    found = errors(tmp_path, GOOD + '[relay]\nlease = "5 parsecs"\nbuffer_bytes = "5 bags"\n')
    assert "parsecs" in found["relay.lease"]
    assert "bags" in found["relay.buffer_bytes"]


def test_references_outside_secrets_are_read_once(tmp_path: Path) -> None:
    """A name that others rely on is resolved while loading; what is read at each connect stays a reference."""
    text = GOOD.replace('url = "sqlite:///shop.db"', 'url = "${URL}"\nschema = "${SCHEMA}"').replace('"out"', '"${S}"')
    config = load(written(tmp_path, text), {"URL": "sqlite:///x.db", "SCHEMA": "events", "S": "out"})
    assert config.database.url == "${URL}"
    assert config.database.schema_name == "events"
    assert config.routes["all"].sink == "out"


def test_the_stored_definition(tmp_path: Path) -> None:
    """What the database stores has the match without empty conditions, and neither servers nor tuning."""
    text = GOOD + 'topic = "t"\nstart = "now"\nheaders = { eventType = "type" }\nmatch = { aggregate = "order*" }\n'
    assert load(written(tmp_path, text), {}).routes["all"].definition() == {
        "match": {"aggregate": ["order*"]},
        "sink": "out",
        "topic": "t",
        "force_topic": None,
        "order": "key",
        "after_last_attempt": "bury",
        "headers": {"eventType": "type"},
    }


def test_it_is_frozen() -> None:
    """A configuration is a value: nothing changes it."""
    with pytest.raises(ValueError, match="frozen"):
        Config().relay.batch = 5  # type: ignore[misc]


def test_made_by_hand_reads_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Config(…) reads no file and no environment."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, GOOD)
    monkeypatch.setenv("PILLARBOX_RELAY__BATCH", "17")
    assert Config() == Config.model_validate({})
    assert Config().relay.batch == 1000


@pytest.mark.parametrize(
    "url", [f"postgresql+asyncpg://app:{CANARY}@db/shop", f"postgres+psycopg2://app:{CANARY}@db/shop"]
)
def test_a_url_with_a_driver_is_corrected(tmp_path: Path, url: str) -> None:
    """SQLAlchemy's form is refused with the right one, the password masked."""
    found = errors(tmp_path, f'[database]\nurl = "{url}"\n')
    assert "postgresql://app:***@db/shop" in found["database.url"]
    assert CANARY not in str(found)


def shown(config: Config) -> list[Any]:
    return [repr(config), str(config), repr(config.database), repr(config.sinks), repr(config.shown())]


def test_no_representation_shows_a_secret(tmp_path: Path) -> None:
    """repr, str and the shown tree hide what a URL, a pair or a key's name calls secret."""
    text = f"""
    [database]
    url = "postgresql://app:{CANARY}@db/shop?sslpassword={CANARY}"
    password = "{CANARY}"
    maintenance_url = "host=db user=owner password='{CANARY} x'"
    [sinks.k]
    kind = "kafka"
    bootstrap_servers = "a:1"
    [sinks.k.settings]
    sasl.password = "{CANARY}"
    ssl.key.password = "{CANARY}"
    ssl.key.pem = "{CANARY}"
    sasl.oauthbearer.client.secret = "{CANARY}"
    sasl.jaas.config = "{CANARY}"
    url = "https://u:{CANARY}@registry"
    """
    config, found = examine(written(tmp_path, text), {})
    assert CANARY not in str([*shown(config), found])
    assert "app:***@db/shop" in repr(config)


def test_references_are_shown_as_they_are(tmp_path: Path) -> None:
    """A reference is no secret, and helps who reads."""
    text = GOOD.replace('url = "sqlite:///shop.db"', 'url = "postgresql://app:${PW}@db/x"\npassword = "file:/run/pw"')
    config, _ = examine(written(tmp_path, text), {"PW": CANARY})
    assert config.shown()["database"]["url"] == "postgresql://app:${PW}@db/x"
    assert config.shown()["database"]["password"] == "file:/run/pw"


def test_a_function_is_shown_by_its_name() -> None:
    """In one's own process a sink may be given the very function: it is shown by name."""
    sinks = {"out": {"kind": "python", "callable": shown, "extra": object()}}
    assert Config.model_validate({"sinks": sinks}).shown()["sinks"]["out"] == {
        "kind": "python", "settings": {}, "callable": "shown", "extra": "***",
    }  # fmt: skip


def test_problem_reads_as_a_tuple() -> None:
    """A finding is path, what and cure."""
    assert Problem("a.b", "is wrong.", "Mend it.")[:3] == ("a.b", "is wrong.", "Mend it.")
