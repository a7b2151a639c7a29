"""Kafka's settings, partitioners and verdicts: what needs no broker."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from pillarbox.brokers import registry
from pillarbox.brokers.kafka import verdicts
from pillarbox.brokers.kafka.partition import murmur2
from pillarbox.brokers.kafka.settings import Conf, Redactor, Settings, flat
from pillarbox.errors import ConfigError
from pillarbox.outcome import Outcome

DOCS = Path(__file__).parents[2] / "docs" / "sinks" / "kafka.md"


def problems(**settings: Any) -> str:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return "\n".join(registry.problems("events", "kafka", {"bootstrap_servers": "localhost:1", "settings": given}))


@pytest.mark.parametrize(
    ("key", "theirs"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_java(key: bytes, theirs: int) -> None:
    """The vectors of Kafka's own tests, made positive as its partitioner does."""
    assert murmur2(key) == theirs & 0x7FFFFFFF


def test_nested_tables_are_dotted_names() -> None:
    """TOML cannot tell `sasl.username = …` from a table."""
    nested = {"sasl": {"username": "u", "mechanisms": "PLAIN"}, "linger.ms": 5, "request": {"required": {"acks": -1}}}
    assert flat(nested) == {"sasl.username": "u", "sasl.mechanism": "PLAIN", "linger.ms": 5, "acks": -1}


def test_several_servers_may_be_a_list() -> None:
    """A string with commas or a list."""
    assert Settings(bootstrap_servers=["a:1", "b:2"]).bootstrap_servers == "a:1,b:2"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"enable_idempotence": False}, "enable.idempotence must stay True"),
        ({"acks": 1}, "acks must stay all"),
        ({"request_required_acks": 1}, "acks must stay all"),
        ({"delivery_timeout_ms": 120_000}, "message.timeout.ms must stay 0"),
        ({"enable_gapless_guarantee": "false"}, "enable.gapless.guarantee must stay True"),
        ({"transactional_id": "x"}, "transactional.id is set by Pillarbox"),
        ({"no_such_thing": 1}, "no.such.thing"),
        ({"linger_ms": "soon"}, "queue.buffering.max.ms"),
        ({"partitioner": "mine"}, "murmur2_random"),
        ({"sasl_password": "${PILLARBOX_NO_SUCH_VARIABLE}"}, "PILLARBOX_NO_SUCH_VARIABLE"),
        ({"acks": -1, "compression_type": "zstd"}, ""),
        ({"socket": {"timeout.ms": 5000}}, ""),
    ],
)
def test_settings_that_cannot_be_are_told(settings: dict[str, Any], told: str) -> None:
    """Also those that would let a message pass one that failed."""
    found = problems(**settings)
    assert told in found
    assert bool(told) == bool(found)


def test_secrets_are_read_again_and_shown_never(tmp_path: Path) -> None:
    """A rotated file counts at the next reading; neither value stands in a complaint."""
    secret = tmp_path / "password"
    secret.write_text("first-canary\n")
    conf = Conf("localhost:1", {"sasl.password": f"file:{secret}"})
    assert conf.read()["sasl.password"] == "first-canary"
    secret.write_text("second-canary\n")
    read = conf.read()
    assert read["sasl.password"] == "second-canary"
    assert "canary" not in Redactor(read)("SASL failed for second-canary")
    told = problems(sasl_password="third-canary", no_such_thing="x", sasl_username="u")
    assert told
    assert "canary" not in told


def test_tokens_are_fetched_before_a_client_waits_for_them() -> None:
    """The first one is used; a function that fails is told at once, without its words."""
    fetched: list[str] = []

    def token(config: str) -> tuple[str, float]:
        fetched.append(config)
        if len(fetched) > 2:
            raise RuntimeError("canary")
        return f"token-{len(fetched)}", 4e9

    given = {"oauth_cb": token, "sasl": {"oauthbearer.config": "scope=x"}}
    callback = Conf("localhost:1", given).for_client()["oauth_cb"]
    assert [callback("scope=x")[0], callback("scope=x")[0], fetched] == ["token-1", "token-2", ["scope=x"] * 2]
    with pytest.raises(ConfigError, match="RuntimeError") as caught:
        Conf("localhost:1", given).for_client()
    assert "canary" not in str(caught.value)


def test_every_code_has_its_verdict_and_docs_show_it() -> None:
    """One table, complete, and printed in the documentation."""
    codes = {getattr(KafkaError, name) for name in dir(KafkaError) if name.strip("_").isupper()} - {0}
    assert codes <= verdicts.VERDICTS.keys()
    named = verdicts.REFUSED.keys() | verdicts.UNAVAILABLE.keys() | verdicts.UNKNOWN.keys()
    assert sum(map(len, (verdicts.REFUSED, verdicts.UNAVAILABLE, verdicts.UNKNOWN))) == len(named)
    assert [name for name in named if not hasattr(KafkaError, name)] == []
    assert verdicts.as_markdown() in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("word", ["AUTH", "SASL", "SSL", "TOPIC", "LEADER", "BROKER", "REPLICAS"])
def test_an_outage_or_a_missing_right_is_never_a_refusal(word: str) -> None:
    """A message must not be buried for what an operator can repair."""
    about = [getattr(KafkaError, name) for name in dir(KafkaError) if word in name]
    assert about
    assert Outcome.REFUSED not in {verdicts.verdict(code) for code in about}


def test_a_code_from_the_future_is_unknown() -> None:
    """Sent again, and set aside only if it alone fails."""
    assert verdicts.verdict(99_999) is Outcome.UNKNOWN
    assert "99999" in verdicts.explained(99_999)
