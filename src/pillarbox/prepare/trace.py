"""W3C trace context of the span that is current, if the program traces with OpenTelemetry."""

from __future__ import annotations

import sys


def is_on() -> bool:
    return "opentelemetry.trace" in sys.modules


def context() -> dict[str, str]:
    """`traceparent` and `tracestate`, or nothing. Never the one to import the library."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    try:
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return {}
        found = {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"}
        state = span.trace_state.to_header() if span.trace_state else ""
    except Exception:  # tracing must never be why a message is not recorded
        return {}
    if state and state.isascii() and state.isprintable():
        found["tracestate"] = state
    return found
