"""A message nobody can deliver holds back its own key until it is given up, and no other (P7)."""

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.servers.kafka import Kafka
from tests.faults.stage import Stage, staged, unwritten

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(300)]


def cannot_be_encoded(stage: Stage) -> str:
    message_id = str(uuid.uuid4())
    unwritten(stage, message_id, {"n": ["no", "text"]})
    return message_id


def is_refused_by_the_broker(stage: Stage) -> str:
    return stage.add(1, keys=1, payload="x" * 30_000)[0]


@pytest.mark.parametrize("poison", [cannot_be_encoded, is_refused_by_the_broker])
def test_only_its_key_waits(
    tmp_path: Path, pg_url: str, private_kafka: Callable[..., Kafka], poison: Callable[[Stage], str]
) -> None:
    """At each stage (encode, send) the poison is tried as often as it may be, then dead and visible; every
    other message arrives, those of its key behind it too."""
    kafka = private_kafka()
    with staged(tmp_path, pg_url, kafka) as stage:
        kafka.configure_topic(stage.topic, {"max.message.bytes": "20000"})
        stage.add(60)
        dead = poison(stage)
        stage.add(240)
        stage.start()
        stage.until_delivered(but=[dead])
        stage.until(lambda: [row[1] for row in stage.hold()] == ["dead"], what="one dead row")
        key, _, attempts, _ = stage.hold()[0]
        assert (key, attempts) == ("k0", 2)


def test_a_topic_no_broker_can_have_waits_for_a_person(
    tmp_path: Path, pg_url: str, private_kafka: Callable[..., Kafka]
) -> None:
    """A name that is not legal may be a slip in the configuration, so nothing is buried for it: its key alone waits,
    with the reason, and goes on when an operator skips it."""
    kafka = private_kafka()
    with staged(tmp_path, pg_url, kafka) as stage:
        stage.add(60)
        nowhere = stage.add(1, keys=1, topic="no such name!")[0]
        stage.add(240)
        stage.start()
        behind = stage.keys["k0"][stage.keys["k0"].index(nowhere) :]
        stage.until_delivered(but=behind)

        def is_set_aside() -> bool:
            stage.add(1, keys=1, key="other")  # what is accepted meanwhile shows that the sink is well (R10)
            return [row[:3] for row in stage.hold()][:1] == [("k0", "retry", 0)]

        stage.until(is_set_aside, what="one row in hold")
        command = [sys.executable, "-m", "pillarbox", "--config", str(stage.config)]
        subprocess.run([*command, "held", "skip", nowhere, "--yes", "--why", "a slip"], check=True)
        stage.until_delivered(but=[nowhere])
