"""Log lines, metrics and probes, fed with events."""

import io
import json
import logging
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from uuid import uuid4

import pytest

from pillarbox import events
from pillarbox.clock import SystemClock
from pillarbox.events import Event
from pillarbox.observability import fan_out
from pillarbox.observability.health import LIVE_WITHIN, Pulse, judged
from pillarbox.observability.log import JsonFormatter, TextFormatter, log, to_stderr
from pillarbox.observability.metrics import Metrics
from pillarbox.observability.server import Pages, Server
from pillarbox.views import LaneLine, Overview, RouteLine

CANARY = "canary-7f3a"


def overview(*, oldest: float | None = None, paused: bool = False, same_system: bool = True) -> Overview:
    route = RouteLine("all", {}, paused, "beginning", held=2, waiting=3, dead=1, oldest_held=None)
    lane = LaneLine("all", 0, "host", 1, 0.0, 7, counted=True, oldest=oldest, position=None)
    relays = [(uuid4(), "host", "0.1.0", ("all",))]
    return Overview("production", same_system, 1, relays, [route], [lane], [], 4, 0, None, 1234, 1, 3, (5.0, "app"))


class StillClock(SystemClock):
    """A clock that a test moves."""

    at = 100.0

    def mono(self) -> float:  # type: ignore[override]
        return self.at


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    ours = logging.getLogger("pillarbox")
    before = ours.handlers[:], ours.level, ours.propagate
    stream = io.StringIO()
    to_stderr("text", stream=stream)
    yield stream
    ours.handlers[:], ours.propagate = before[0], before[2]
    ours.setLevel(before[1])


def test_a_line_is_one_line(lines: io.StringIO) -> None:
    """A line break or a quote in an error's text cannot begin a line or a field of its own."""
    log(events.SinkDown("all", "main", 'refused\n2026-01-01 INFO forged field="x"'))
    (line,) = lines.getvalue().splitlines()
    assert line.endswith(r'WARNING sink_down route=all sink=main reason="refused\n2026-01-01 INFO forged field=\"x\""')


def test_a_line_hides_passwords(lines: io.StringIO) -> None:
    """A URL in an error's text is shown without its password."""
    log(events.DatabaseLost(f"connection to postgresql://app:{CANARY}@db/shop failed"))
    assert CANARY not in lines.getvalue()
    assert "app:***@db/shop" in lines.getvalue()


def test_what_happens_all_the_time_is_not_told(lines: io.StringIO) -> None:
    """A delivery is a line only for who debugs."""
    log(events.Delivered("all", "main", 10, waits=[0.1]))
    assert lines.getvalue() == ""


def test_json_lines() -> None:
    """The JSON form has the event's name and its fields as values of their own."""
    record = logging.LogRecord("pillarbox.relay", logging.INFO, "", 0, "x", None, None)
    record.event, record.fields = "lanes_taken", {"route": "all", "lanes": (0, 1)}
    told = json.loads(JsonFormatter().format(record))
    assert told["event"] == "lanes_taken"
    assert told["lanes"] == [0, 1]
    assert told["time"].endswith("Z")
    assert TextFormatter().format(record).startswith(told["time"])


def metric(metrics: Metrics, line: str) -> bool:
    return line in metrics.text().decode().splitlines()


def test_metrics_count_what_events_tell() -> None:
    """Counters, gauges and histograms follow the events, under the names that alerts rely on."""
    metrics = Metrics("0.1.0")
    for event in (
        events.Delivered("all", "main", 3, waits=[0.2, -0.5], publishes=[0.01]),
        events.MessageRefused("all", 7, 1, 2.0, "no"),
        events.MessageRefused("all", 7, 5, None, "no"),
        events.AnswerUnknown("all", 4, "time-out"),
        events.SinkUp("all", "main"),
        events.LeaseLost("expelled"),
        events.Warned("port_taken", "9464"),
    ):
        metrics(event)
    metrics.count([("all", "main", 5, 70), ("gone", "main", 1, 1)])
    metrics.count([("all", "main", 2, 7)])
    for line in (
        'pillarbox_in_flight{route="all",sink="main"} 7.0',
        'pillarbox_lanes_owned{route="gone"} 0.0',
        'pillarbox_delivered_total{route="all",sink="main"} 3.0',
        'pillarbox_refused_total{route="all"} 2.0',
        'pillarbox_retried_total{route="all"} 1.0',
        'pillarbox_unknown_total{route="all"} 4.0',
        'pillarbox_sink_up{route="all",sink="main"} 1.0',
        'pillarbox_lanes_owned{route="all"} 2.0',
        "pillarbox_lease_lost_total 1.0",
        'pillarbox_warning{reason="port_taken"} 1.0',
        'pillarbox_build_info{version="0.1.0"} 1.0',
        'pillarbox_publish_seconds_count{route="all",sink="main"} 1.0',
        'pillarbox_delivery_seconds_count{route="all",sink="main"} 2.0',
    ):
        assert metric(metrics, line), line


def test_series_are_there_before_anything_happens() -> None:
    """A counter begins at 0 and a sink as usable when its route is served, so that alerts need no first event."""
    metrics = Metrics("0.1.0")
    metrics(events.SinkDown("early", "main", "refused"))
    metrics.count([("all", "main", 5, 0), ("early", "main", 0, 0)])
    for line in (
        'pillarbox_delivered_total{route="all",sink="main"} 0.0',
        'pillarbox_refused_total{route="all"} 0.0',
        'pillarbox_retried_total{route="all"} 0.0',
        'pillarbox_unknown_total{route="all"} 0.0',
        'pillarbox_publish_seconds_count{route="all",sink="main"} 0.0',
        'pillarbox_sink_up{route="all",sink="main"} 1.0',
        'pillarbox_sink_up{route="early",sink="main"} 0.0',
    ):
        assert metric(metrics, line), line


def test_silent_brokers_are_a_sink_that_is_not_up() -> None:
    """Brokers that fall silent are found away topic by topic; one missing topic beside others is not the sink's."""
    metrics = Metrics("0.1.0")
    up, down = (f'pillarbox_sink_up{{route="all",sink="main"}} {value}' for value in ("1.0", "0.0"))
    metrics(events.SessionAbandoned("all", "main", 200, "no answer within 30 s"))
    metrics(events.DestinationAway("all", "main", "orders", "its brokers did not answer"))
    metrics(events.DestinationAway("all", "main", "users", "its brokers did not answer"))
    assert metric(metrics, down)
    assert metric(metrics, 'pillarbox_unknown_total{route="all"} 200.0')
    metrics(events.DestinationBack("all", "main", "orders"))
    assert metric(metrics, down)
    metrics(events.DestinationBack("all", "main", "users"))
    assert metric(metrics, up)
    metrics(events.DestinationAway("all", "main", "typo", "the topic is missing"))
    metrics(events.Delivered("all", "main", 1))
    assert metric(metrics, up)


def test_gauges_of_the_installation() -> None:
    """What the database tells is there when it answers, and absent when it does not."""
    seen: list[Overview | None] = [overview(oldest=12.0)]
    metrics = Metrics("0.1.0", look=lambda: seen[-1])
    for line in (
        'pillarbox_oldest_undelivered_seconds{route="all"} 12.0',
        'pillarbox_held{route="all"} 5.0',
        'pillarbox_dead{route="all"} 1.0',
        "pillarbox_unrouted 4.0",
        "pillarbox_log_bytes 1234.0",
        "pillarbox_segments_ahead 3.0",
        "pillarbox_oldest_transaction_seconds 5.0",
    ):
        assert metric(metrics, line), line
    seen.append(None)
    assert "oldest_undelivered" not in metrics.text().decode()


def test_health_follows_progress() -> None:
    """The oldest undelivered message decides; a paused route was paused by a person."""
    assert judged(overview(oldest=10)).code == 0
    assert judged(overview(oldest=301)).code == 1
    assert judged(overview(oldest=301), max_age=600).code == 0
    assert judged(overview(oldest=301, paused=True)).code == 0
    assert judged(overview(same_system=False)).code == 1
    assert judged(None).code == 2


def test_live_is_the_loop_alone() -> None:
    """A loop that does not come round is dead; a lost database is not."""
    clock = StillClock()
    pulse = Pulse(clock)
    pulse(events.DatabaseLost("gone"))
    clock.at += LIVE_WITHIN - 1
    assert pulse.live().code == 0
    clock.at += 2
    assert pulse.live().code == 1
    pulse.beat()
    assert pulse.live().code == 0


def test_ready_is_this_process_alone() -> None:
    """Ready once started and with a database; a sink that is away is told and takes nobody out of service."""
    pulse = Pulse(StillClock())
    assert pulse.ready().code == 1
    pulse(events.Started("id", "host", "0.1.0", ("all",)))
    pulse(events.SinkDown("all", "main", "refused"))
    assert pulse.ready() == (0, ["sink main is away: refused"], {})
    pulse(events.SinkUp("all", "main"))
    pulse(events.DatabaseLost("gone"))
    assert pulse.ready().code == 1
    pulse(events.DatabaseBack(3.0))
    pulse(events.Warned("identity_differs", "another cluster"))
    assert pulse.ready().code == 1
    pulse(events.Warned("identity_differs", "", active=False))
    assert pulse.ready() == (0, [], {})


def get(port: int, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def pages(metrics: Metrics, seen: Overview | None = None) -> Pages:
    pulse = Pulse(StillClock())
    return Pages(pulse.live, pulse.ready, lambda age: judged(seen, age), metrics.text)


def test_the_four_paths() -> None:
    """Each path answers with its own status; anything else is not found."""
    metrics = Metrics("0.1.0")
    server = Server(("127.0.0.1", 0), pages(metrics, overview(oldest=10)), metrics)
    server.start()
    try:
        assert server.port
        assert get(server.port, "/livez")[0] == 200
        assert get(server.port, "/readyz")[0] == 503
        assert get(server.port, "/healthz")[0] == 200
        assert get(server.port, "/healthz?max_age=5s")[0] == 503
        assert b"pillarbox_build_info" in get(server.port, "/metrics")[1]
        assert get(server.port, "/etc")[0] == 404
    finally:
        server.stop()


def test_a_taken_port_is_a_warning() -> None:
    """A port that somebody else has is told once, and the relay goes on without."""
    told: list[Event] = []
    metrics = Metrics("0.1.0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Server(taken.getsockname(), pages(metrics), fan_out(told.append, metrics))
        server.start()
        server.stop()
    assert [type(event) for event in told] == [events.Warned]
    assert metric(metrics, 'pillarbox_warning{reason="port_taken"} 1.0')
