"""`run`, `upkeep`: what a machine starts."""

from __future__ import annotations

import logging
import os
import signal
from enum import StrEnum
from types import FrameType
from typing import Annotated

import typer

from pillarbox.cli.app import EPILOG, app
from pillarbox.cli.session import Exit, session_of
from pillarbox.config import problems
from pillarbox.errors import Refused
from pillarbox.observability.health import Verdict, judged
from pillarbox.observability.log import to_stderr
from pillarbox.observability.server import Pages, Server
from pillarbox.wiring import Relay, keep, storage_of

LOGGER = logging.getLogger("pillarbox.config")


class Form(StrEnum):
    """The form of log lines."""

    TEXT = "text"
    JSON = "json"


@app.command(epilog=EPILOG)
def run(
    ctx: typer.Context,
    *,
    once: Annotated[bool, typer.Option("--once", help="Deliver what this process can now, and end.")] = False,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Deliver until nothing is left that can be delivered, and end.")
    ] = False,
    listen: Annotated[str | None, typer.Option(help="host:port of probes and metrics; off for none.")] = None,
    logs: Annotated[Form | None, typer.Option(help="The form of log lines on standard error.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log each delivery and settle too.")] = False,
) -> None:
    """Carry messages on, until SIGTERM (which drains) or, with --once and --until-idle, until there are none.

    Start it on as many machines as you like: they share the work. Exit code 1 with --once and --until-idle says that a
    sink was away, so that something may be left.
    """
    if once and until_idle:
        raise Refused("--once and --until-idle are two different things.", "Say one of them.")
    session = session_of(ctx)
    wished = {name: value for name, value in (("listen", listen), ("logs", logs)) if value is not None}
    config = session.config(more={"relay": wished})
    to_stderr(config.relay.logs, level=logging.DEBUG if verbose else logging.INFO)
    for problem in problems(config):
        LOGGER.warning("%s: %s %s", problem.path, problem.what, problem.cure)
    relay = Relay(config)
    _stop_on_signals(relay)
    server = _listening(relay)
    try:
        delivered = relay.run_once() if once else relay.run_until_idle() if until_idle else relay.run()
    finally:
        if server is not None:
            server.stop()
    if session.out.as_json:
        session.out.json({"delivered": delivered})
    if (once or until_idle) and relay.pulse.away:
        raise typer.Exit(Exit.FAILED)


def _stop_on_signals(relay: Relay) -> None:
    """The first asks to drain, the second ends the process where it is: what was not settled is delivered again."""
    asked = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        relay.ask_to_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)


def _listening(relay: Relay) -> Server | None:
    """Before anything connects: a relay that waits for its database can be asked why."""
    address = relay.config.relay.address
    if address is None:
        return None

    def healthy(max_age: float) -> Verdict:
        return judged(relay.watch.look(), max_age)

    pages = Pages(relay.pulse.live, relay.pulse.ready, healthy, relay.metrics.text)
    server = Server(address, pages, relay.emit)
    server.start()
    return server


@app.command(epilog=EPILOG)
def upkeep(ctx: typer.Context) -> None:
    """Prepare segments, end the open one when it is time, drop what everybody has read and has been kept long enough.

    `run` does this by itself once a minute where its role may; else let cron do it, as the owner of the tables.
    """
    session = session_of(ctx)
    config = session.config("database", "log")
    work = storage_of(config).upkeep()
    try:
        with session.out.waiting("upkeep"):
            kept = keep(work, config.log)
    finally:
        work.close()

    def say() -> None:
        session.out.line(f"dropped: {', '.join(kept.dropped) or 'nothing'}")
        session.out.line(f"made ahead: {kept.attached}, rolled: {'yes' if kept.rolled else 'no'}")
        session.out.line(f"expired rows: {kept.expired}")

    session.out.answer(kept._asdict(), say)
