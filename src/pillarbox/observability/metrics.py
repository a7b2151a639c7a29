"""Prometheus metrics, with names that others' alerts rely on. No key and no id is ever a label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pillarbox import events
from pillarbox.events import Event
from pillarbox.views import Overview

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PUBLISH = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
DELIVERY = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400)

E = TypeVar("E", bound=Event)


class Metrics:
    """A subscriber of events with a registry of its own; `look` asks the database about the installation."""

    def __init__(self, version: str, look: Callable[[], Overview | None] = lambda: None) -> None:
        self.registry = CollectorRegistry()
        self._counted: set[tuple[str, str]] = set()
        self._away: dict[tuple[str, str], set[str]] = {}  # topics by (route, sink); "" is the sink itself
        self._make_counters()
        self._make_gauges(version)
        self.registry.register(Installation(look))
        self._handlers = self._make_handlers()

    def __call__(self, event: Event) -> None:
        if (handler := self._handlers.get(type(event))) is not None:
            handler(event)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)

    def _make_counters(self) -> None:
        by_sink, by_route = ("route", "sink"), ("route",)
        counter, histogram = self._counter, self._histogram
        self.delivered = counter("delivered", "Messages acknowledged by a sink.", by_sink)
        self.refused = counter("refused", "Refusals of a single message by a sink.", by_route)
        self.retried = counter("retried", "Refused messages that are to be sent again.", by_route)
        self.unknown = counter("unknown", "Messages sent whose answer never came.", by_route)
        self.lease_lost = counter("lease_lost", "Times this process lost its lease.", ())
        self.publish = histogram("publish_seconds", "Handed over to acknowledged (samples).", by_sink, PUBLISH)
        self.delivery = histogram("delivery_seconds", "Added to acknowledged (samples).", by_sink, DELIVERY)

    def _make_gauges(self, version: str) -> None:
        gauge = self._gauge
        self.lanes_owned = gauge("lanes_owned", "Lanes this process owns.", ("route",))
        self.sink_up = gauge("sink_up", "1 unless this process found the sink, or all it sends to there, away.", ("route", "sink"))
        self.in_flight = gauge("in_flight", "Messages with the sink and not yet answered.", ("route", "sink"))
        self.warning = gauge("warning", "1 while a state that needs somebody lasts.", ("reason",))
        gauge("build_info", "Which release this is.", ("version",)).labels(version).set(1)

    def _make_handlers(self) -> dict[type[Event], Callable[[Any], None]]:
        return {
            events.Delivered: self._on_delivered,
            events.MessageRefused: self._on_refused,
            events.AnswerUnknown: lambda event: self.unknown.labels(event.route).inc(event.count),
            events.SessionAbandoned: self._on_abandoned,
            events.SinkUp: lambda event: self._on_back(event.route, event.sink, ""),
            events.SinkDown: lambda event: self._on_away(event.route, event.sink, ""),
            events.DestinationAway: lambda event: self._on_away(event.route, event.sink, event.destination),
            events.DestinationBack: lambda event: self._on_back(event.route, event.sink, event.destination),
            events.LeaseLost: lambda _: self.lease_lost.inc(),
            events.DatabaseBack: lambda _: self.warning.labels("database").set(0),
            events.Warned: lambda event: self.warning.labels(event.reason).set(int(event.active)),
        }

    def _on_delivered(self, event: events.Delivered) -> None:
        self.delivered.labels(event.route, event.sink).inc(event.count)
        self.sink_up.labels(event.route, event.sink).set(1)
        for seconds in event.publishes:
            self.publish.labels(event.route, event.sink).observe(seconds)
        for seconds in event.waits:
            # Clocks of two machines: an acknowledgement before the message was added was a quick one.
            self.delivery.labels(event.route, event.sink).observe(max(0.0, seconds))

    def _on_refused(self, event: events.MessageRefused) -> None:
        self.refused.labels(event.route).inc()
        if event.next_in is not None:
            self.retried.labels(event.route).inc()

    def _on_abandoned(self, event: events.SessionAbandoned) -> None:
        if event.unanswered > 1:  # a single one has an event of its own
            self.unknown.labels(event.route).inc(event.unanswered)

    def _on_away(self, route: str, sink: str, what: str) -> None:
        """Where brokers fall silent each topic is found away, and nothing is said of the sink. A topic that is missing
        beside others is not the sink's trouble: their next delivery tells."""
        self._away.setdefault((route, sink), set()).add(what)
        self.sink_up.labels(route, sink).set(0)

    def _on_back(self, route: str, sink: str, what: str) -> None:
        away = self._away.get((route, sink), set())
        away.discard(what)
        self.sink_up.labels(route, sink).set(int(not away or not what))

    def _begin(self, route: str, sink: str) -> None:
        """A series that is not there cannot be alarmed on: all of a route's are there as soon as it is served."""
        self._counted.add((route, sink))
        for counter in (self.refused, self.retried, self.unknown):
            counter.labels(route)
        for by_sink in (self.delivered, self.publish, self.delivery):
            by_sink.labels(route, sink)
        if (route, sink) not in self._away:
            self.sink_up.labels(route, sink).set(1)  # until it is found to be away

    def count(self, now: Sequence[tuple[str, str, int, int]]) -> None:
        """What each route has at this moment: (route, sink, lanes owned, messages in flight)."""
        for route, sink in self._counted - {(route, sink) for route, sink, _, _ in now}:
            self.lanes_owned.labels(route).set(0)
            self.in_flight.labels(route, sink).set(0)
        for route, sink, lanes, in_flight in now:
            if (route, sink) not in self._counted:
                self._begin(route, sink)
            self.lanes_owned.labels(route).set(lanes)
            self.in_flight.labels(route, sink).set(in_flight)

    def _counter(self, name: str, meaning: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"pillarbox_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(f"pillarbox_{name}", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"pillarbox_{name}", meaning, labels, registry=self.registry, buckets=buckets)


class Installation(Collector):
    """Gauges of the whole installation, the same from every relay: read them with max(). Absent when unknown."""

    def __init__(self, look: Callable[[], Overview | None]) -> None:
        self._look = look

    def describe(self) -> list[GaugeMetricFamily]:
        return []  # else registering would look at the database

    def collect(self) -> Iterator[GaugeMetricFamily]:
        seen = self._look()
        if seen is None:
            return
        yield from self._by_route(seen)
        plain = {
            "unrouted": ("Messages that no route matches.", seen.unrouted),
            "log_bytes": ("Size of the log on disk.", seen.log_bytes),
            "segments_ahead": ("Segments that lie ready beyond the open one.", seen.segments_ahead),
            "oldest_transaction_seconds": (
                "Age of the oldest open transaction; it holds retention back.",
                seen.oldest_transaction[0] if seen.oldest_transaction else 0,
            ),
        }
        for name, (meaning, value) in plain.items():
            yield GaugeMetricFamily(f"pillarbox_{name}", meaning, value=value)

    @staticmethod
    def _by_route(seen: Overview) -> Iterator[GaugeMetricFamily]:
        families = {
            "oldest_undelivered_seconds": "Age of the oldest message not delivered.",
            "held": "Messages set aside and those that wait behind them.",
            "dead": "Messages given up.",
        }
        made = {
            name: GaugeMetricFamily(f"pillarbox_{name}", meaning, labels=["route"])
            for name, meaning in families.items()
        }
        for route in seen.routes:
            waits = [lane.oldest for lane in seen.lanes if lane.route == route.name and lane.oldest is not None]
            made["oldest_undelivered_seconds"].add_metric([route.name], max([*waits, route.oldest_held or 0.0]))
            made["held"].add_metric([route.name], route.held + route.waiting)
            made["dead"].add_metric([route.name], route.dead)
        yield from made.values()
