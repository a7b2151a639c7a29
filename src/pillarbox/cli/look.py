"""`status`, `explain`, `health`: how is it, and why has it not arrived."""

from __future__ import annotations

from typing import Annotated

import typer

from pillarbox.admin import explain as why
from pillarbox.admin import reads
from pillarbox.admin.explain import Explanation
from pillarbox.admin.reads import Route, Status
from pillarbox.admin.words import messages, span, volume
from pillarbox.cli import selection as s
from pillarbox.cli.app import EPILOG, app
from pillarbox.cli.output import Output
from pillarbox.cli.session import Exit, session_of
from pillarbox.clock import SystemClock
from pillarbox.errors import PillarboxError
from pillarbox.observability.health import judged
from pillarbox.wiring import storage_of


@app.command(epilog=EPILOG)
def status(
    ctx: typer.Context,
    sample: Annotated[
        float, typer.Option("--sample", min=0, max=60, help="Seconds between two looks; 0: no rate.")
    ] = 1,
    lanes: Annotated[bool, typer.Option("--lanes", help="Show each lane with owner and term.")] = False,
) -> None:
    """Show what is undelivered, the oldest first; routes with pending, rate and lag; lanes, held, dead, warnings."""
    session = session_of(ctx)
    config, _problems = session.examined()
    proposed = {name: route.definition() for name, route in config.routes.items()}
    with s.at_the_desk(ctx) as at:
        seen = reads.status(at.desk, SystemClock(), between=sample, proposed=proposed)
        at.out.answer(seen, lambda: _say_status(at.out, seen, lanes=lanes))


def _say_status(out: Output, seen: Status, *, lanes: bool) -> None:
    oldest = seen.oldest_undelivered
    out.line(f"oldest undelivered: {span(oldest) if oldest else 'none'}", "bold")
    for warning in seen.warnings:
        out.line(f"warning: {warning}", "yellow")
    columns = ("route", "state", "sink", "pending", "rate/s", "lag", "held", "waiting", "dead")
    out.table(columns, map(_route_row, seen.routes))
    if lanes:
        _say_lanes(out, seen)
    for each in seen.troubles:
        out.line(f"{each.route}: {messages(each.messages)} {each.state}: {each.error} (first {each.first})")
    for relay in seen.relays:
        out.line(f"relay {relay.host} {relay.version} serves {', '.join(relay.serves) or 'nothing'} ({relay.id})")
    late = f", the oldest {span(seen.overdue)} late" if seen.overdue else ""
    out.line(f"unrouted {seen.unrouted}, scheduled {seen.scheduled}{late}")
    out.line(f"log {volume(seen.log_bytes)} in {seen.segments} segment(s), {seen.segments_ahead} ahead")
    if seen.oldest_transaction is not None:
        out.line(f"oldest transaction {span(seen.oldest_transaction)}: {seen.oldest_transaction_of}")


def _route_row(route: Route) -> tuple[object, ...]:
    pending = f"{route.pending}" if route.counted else f"~{route.pending}"
    rate = "" if route.rate is None else f"{route.rate:.0f}"
    lag = "" if route.lag is None else span(route.lag)
    return (route.name, route.state, route.sink, pending, rate, lag, route.held, route.waiting, route.dead)


def _say_lanes(out: Output, seen: Status) -> None:
    rows = [
        (route.name, lane.lane, lane.owner, lane.term, f"{'' if lane.counted else '~'}{lane.pending}",
         "" if lane.oldest is None else span(lane.oldest), "" if lane.settled_ago is None else span(lane.settled_ago))
        for route in seen.routes for lane in route.lanes
    ]  # fmt: skip
    out.table(("route", "lane", "owner", "term", "pending", "oldest", "settled ago"), rows)


@app.command(epilog=EPILOG)
def explain(
    ctx: typer.Context,
    ids: s.Ids = None,
    *,
    key: Annotated[str | None, typer.Option("--key", help="The chain of this key: all that is unfinished.")] = None,
    aggregate: s.AggregateOf = None,
    limit: s.Limit = 50,
) -> None:
    """Say why messages have not arrived, in a sentence each, with what they wait for. Exit code 1 if one is nowhere."""
    if bool(ids) == (key is not None):
        raise typer.BadParameter("give message ids, or --key", param_hint="ID or --key")
    with s.at_the_desk(ctx) as at:
        told = why.explain(at.desk, ids or ()) if key is None else why.explain_key(at.desk, key, aggregate, limit)
        at.out.answer(told, lambda: _say_explanations(at.out, told, key))
    if any(one.place == "nowhere" for one in told):
        raise typer.Exit(Exit.FAILED)


def _say_explanations(out: Output, told: list[Explanation], key: str | None) -> None:
    if not told:
        out.line(f"Every route has finished every message of key {key!r} that is in the log.")
    for one in told:
        if one.id is not None:
            where = f"{one.place} {one.log_id}, lane {one.lane}" if one.log_id is not None else one.place
            since = "gone" if one.place in ("cancelled", "erased") else "added"
            ago = span(one.age or 0.0)
            out.line(f"{one.id} {one.aggregate}/{one.type} key {one.key!r}, {where}, {since} {ago} ago", "bold")
        if not one.routes:
            out.line(f"  {one.sentence}" if one.id is not None else one.sentence)
        for route in one.routes:
            topic = f" Topic {route.topic}: {route.topic_rule}." if route.topic is not None else ""
            out.line(f"  {route.sentence}{topic}")


@app.command(epilog=EPILOG)
def health(
    ctx: typer.Context,
    max_age: Annotated[
        str, typer.Option("--max-age", metavar="5m", help="An undelivered message may be so old.")
    ] = "5m",
) -> None:
    """Say whether the installation delivers: exit code 0 it does, 1 something waits too long, 2 nobody can tell."""
    out = session_of(ctx).out
    age = s.duration(max_age, "--max-age")
    unknown = ""
    seen = None
    try:
        desk = storage_of(session_of(ctx).config("database")).desk()
        try:
            seen = desk.overview()
        finally:
            desk.close()
    except PillarboxError as error:
        unknown = f"{error.what} {error.hint}".strip()
    verdict = judged(seen, age or 0.0)
    reasons = [f"{reason}: {unknown}" if unknown else reason for reason in verdict.reasons]
    word = ("healthy", "unhealthy", "unknown")[verdict.code]

    def say() -> None:
        out.line(word)
        for reason in reasons:
            out.line(f"  {reason}")

    out.answer({"health": word, "code": verdict.code, "reasons": reasons, **verdict.facts}, say)
    raise typer.Exit(verdict.code)
