"""Kafka away: nothing is counted, nothing is set aside, and delivery goes on by itself (P8, P11)."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.servers.kafka import Kafka
from tests.faults.stage import HEALED, staged

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(300)]
LONGER_THAN_EVERY_RETRY = 6.0  # two attempts, 0.3 s apart, and two send time-outs of 2 s


@pytest.mark.parametrize("fault", ["stopped", "frozen"])
def test_an_outage_sets_nothing_aside(
    tmp_path: Path, pg_url: str, private_kafka: Callable[..., Kafka], fault: str
) -> None:
    """While the broker is stopped or frozen for longer than every retry would last, `hold` stays empty and no attempt
    is counted; when it is back everything arrives, in order."""
    kafka = private_kafka()
    with staged(tmp_path, pg_url, kafka) as stage:
        stage.add(300)
        stage.start()
        stage.until_delivered()
        kafka.stop() if fault == "stopped" else kafka.freeze()
        stage.add(600)
        time.sleep(LONGER_THAN_EVERY_RETRY)
        assert "sink_down" in stage.said() or "session_abandoned" in stage.said(), "the fault did not happen"
        assert stage.hold() == []
        kafka.start_again() if fault == "stopped" else kafka.thaw()
        stage.until_delivered(within=2.0 + HEALED)
        assert stage.hold() == []


def test_a_missing_topic_waits_and_resumes(tmp_path: Path, pg_url: str, private_kafka: Callable[..., Kafka]) -> None:
    """A topic that is not there is the destination's trouble: nobody's message dies, the others go on, and it is
    delivered when the topic is created."""
    kafka = private_kafka()
    with staged(tmp_path, pg_url, kafka) as stage:
        missing = f"{stage.topic}-late"
        late = stage.add(5, keys=1, key="late", topic=missing)
        stage.add(120)
        stage.start()
        stage.until_delivered(but=late)
        assert all(state in ("retry", "waiting") and attempts == 0 for _, state, attempts, _ in stage.hold())
        assert missing in stage.said()
        kafka.create_topic(missing, 1)
        stage.until(lambda: len(kafka.read_all(missing)) >= len(late), what="delivery to the late topic")
        assert [dict(s.headers)["id"].decode() for s in kafka.read_all(missing)] == late
        stage.until(lambda: stage.hold() == [], what="an empty hold")
