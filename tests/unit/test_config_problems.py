"""Findings across settings, and what references stand for."""

from pathlib import Path
from typing import Any

import pytest

from pillarbox.config import Config, problems, secret
from pillarbox.config.problems import TOPIC_FIELDS
from pillarbox.config.secrets import called, masked
from pillarbox.errors import ConfigError
from pillarbox.routing import TEMPLATE_FIELDS

CANARY = "canary-7f3a"
BASE: dict[str, Any] = {
    "database": {"url": "postgresql://app@db/shop"},
    "sinks": {"out": {"kind": "file", "path": "x"}},
    "routes": {"all": {"sink": "out"}},
}


def found(**sections: Any) -> dict[str, tuple[str, str]]:
    config = Config.model_validate({**BASE, **sections})
    return {problem.path: (problem.level, problem.what) for problem in problems(config, {})}


def test_nothing_is_wrong() -> None:
    """A plain configuration has no finding at all."""
    assert found() == {}


def test_retention_over_period() -> None:
    """More than 32 segments are refused; a month's worth of days is not."""
    assert found(log={"retention": "30 days", "period": "day"}) == {}
    assert found(log={"retention": "33 h", "period": "hour"})["log.period"][0] == "error"
    assert found(log={"unique_window": "8 days"}).keys() == {"log.unique_window"}


@pytest.mark.parametrize("url", ["postgresql://app@db:6432/shop", "host=pgbouncer.internal dbname=shop"])
def test_a_pooler_needs_a_direct_connection(url: str) -> None:
    """Behind a pooler retention would stop without maintenance_url."""
    assert found(database={"url": url})["database.maintenance_url"][0] == "warning"
    assert found(database={"url": url, "maintenance_url": "postgresql://owner@db/shop"}) == {}


@pytest.mark.parametrize("url", ["", "mysql://x/y", "sqlite://x", "postgresql+asyncpg://a@b/c", "shop.db"])
def test_urls_we_do_not_know(url: str) -> None:
    """A URL that is missing or of another kind is an error, also when a variable gives it."""
    config = Config.model_validate({**BASE, "database": {"url": "${URL}"}})
    assert [problem.path for problem in problems(config, {"URL": url})] == ["database.url"]


def test_sqlite_has_no_password() -> None:
    """What means nothing to SQLite is told."""
    database = {"url": "sqlite:///x.db", "password": "${X}", "maintenance_url": "postgresql://x/y"}
    assert {path for path, (level, _) in found(database=database).items() if level == "warning"} == {
        "database.password",
        "database.maintenance_url",
    }


@pytest.mark.parametrize(
    ("relay", "path", "says"),
    [
        ({"lease": 60}, "relay.lease", "may take 65 s to resume, 55 s longer"),
        ({"send_timeout": 120}, "relay.send_timeout", "may take 130 s to resume, 90 s longer"),
        ({"poll_max": 10}, "relay.poll_max", "10 s"),
    ],
)
def test_times_that_lengthen_the_promise(relay: dict[str, Any], path: str, says: str) -> None:
    """A longer time-out is allowed, and told by how much it delays delivery after a fault."""
    level, what = found(relay=relay)[path]
    assert level == "warning"
    assert says in what


def test_relay_settings_that_contradict() -> None:
    """The shortest pause cannot be above the longest; no port at all is told."""
    assert found(relay={"poll_min": 2, "poll_max": 1})["relay.poll_min"][0] == "error"
    assert found(relay={"listen": "off"})["relay.listen"][0] == "warning"


def test_topics_of_routes() -> None:
    """{type} on an ordered route is told; a field no template knows is an error."""
    ordered = {"all": {"sink": "out", "topic": "{aggregate}.{type}"}}
    assert found(routes=ordered)["routes.all.topic"][0] == "warning"
    assert found(routes={"all": {**ordered["all"], "order": "none"}}) == {}
    assert found(routes={"all": {"sink": "out", "force_topic": "{city}"}})["routes.all.force_topic"][0] == "error"
    assert set(TOPIC_FIELDS) == set(TEMPLATE_FIELDS)


def test_routes_and_sinks_meet() -> None:
    """A route without its sink is an error; a sink without a route, and no route at all, are told."""
    assert found(routes={"all": {"sink": "uot"}})["routes.all.sink"][0] == "error"
    assert found(sinks={**BASE["sinks"], "b": {"kind": "null"}})["sinks.b"][0] == "warning"
    assert found(sinks={}, routes={})["routes"][0] == "warning"
    assert found(routes={"unrouted": {"sink": "out"}})["routes.unrouted"][0] == "error"


def test_a_password_in_the_file_is_told() -> None:
    """A literal password is told, and not shown."""
    findings = found(database={"url": "postgresql://app@db/shop", "password": CANARY})
    assert findings["database.password"][0] == "warning"
    assert CANARY not in str(findings)


# ------------------------------------------------------------------ references


def test_references(tmp_path: Path) -> None:
    """${ENV} inside a string, file: without its last newline, call:, and $$ for a dollar."""
    path = tmp_path / "pw"
    path.write_text(f"{CANARY}\n\n")
    env = {"A": "one", "DIR": str(tmp_path)}
    assert secret("x${A}y$$z${A}", env) == "xoney$zone"
    assert secret(f"file:{path}", env) == secret("file:${DIR}/pw", env) == f"{CANARY}\n"
    assert secret("call:platform:python_implementation", env) == "CPython"
    assert secret("$A costs $5", env) == "$A costs $5"


def test_nothing_is_remembered(tmp_path: Path) -> None:
    """A rotated password is there at the next connect."""
    path = tmp_path / "pw"
    for password in ("old", "new"):
        path.write_text(password)
        assert secret(f"file:{path}") == password


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("${NOT_SET}", "NOT_SET is not set"),
        ("file:/nowhere/pw", "cannot be read"),
        ("call:nowhere.module:f", "cannot be found"),
        ("call:os:nothing", "cannot be found"),
        ("call:os:sep", "is no function"),
        ("call:os:getpid", "returned int"),
    ],
)
def test_references_that_fail(reference: str, says: str) -> None:
    """A reference to nothing says what is missing."""
    with pytest.raises(ConfigError, match=says):
        secret(reference, {})


def leaking() -> str:
    raise ValueError(CANARY)


def test_a_failing_function_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a foreign exception may hold the secret: only its type is told."""
    monkeypatch.setattr("platform.node", leaking)
    with pytest.raises(ConfigError, match="ValueError") as caught:
        called("call:platform:node")
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql://app:{CANARY}@db/x and more", "postgresql://app:***@db/x and more"),
        (f"postgresql://app:p@ss{CANARY}@db/x", "postgresql://app:***@db/x"),
        (f"host=db password={CANARY} user=x", "host=db password=*** user=x"),
        (f"x?a=1&password={CANARY}&b=2", "x?a=1&password=***&b=2"),
        ("postgresql://app@db/x", "postgresql://app@db/x"),
        ("postgresql://app:${PW}@db/x", "postgresql://app:${PW}@db/x"),
        (f"password='{CANARY} \\' {CANARY}' user=x", "password=*** user=x"),
    ],
)
def test_masks(text: str, shown: str) -> None:
    """Passwords in URLs, queries and pairs are hidden, and nothing else is."""
    assert masked(text) == shown
