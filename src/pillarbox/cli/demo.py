"""`pillarbox demo`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer

from pillarbox.cli.app import app
from pillarbox.cli.session import session_of


@app.command()
def demo(
    ctx: typer.Context,
    *,
    postgres_kafka: Annotated[
        bool, typer.Option("--postgres-kafka", help="PostgreSQL to Kafka, instead of SQLite to a file.")
    ] = False,
    postgres: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="PILLARBOX_TEST_POSTGRES_URL", help="An empty database."),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", envvar="PILLARBOX_TEST_KAFKA_URL", help="A broker; a topic is created."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=2, max=3600, help="How long the shop sells.")] = 14,
    kills: Annotated[int, typer.Option(min=0, max=1000, help="How often the relay is killed.")] = 5,
    seed: Annotated[int | None, typer.Option(help="Who buys what; drawn and told if not given.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the picture of lag over time there.")] = None,
) -> None:
    """A shop sells, a relay delivers and is killed several times on purpose; then a verdict.

    Needs nothing but this package. Exit code 1 says that a promise was broken.
    """
    from pillarbox.demo import Wishes, run

    if postgres_kafka and not (postgres and kafka):
        raise typer.BadParameter("say --postgres URL and --kafka HOST:PORT too", param_hint="--postgres-kafka")
    wishes = Wishes(
        seconds=seconds,
        kills=kills,
        seed=random.SystemRandom().randrange(10**6) if seed is None else seed,
        postgres=postgres if postgres_kafka else None,
        kafka=kafka.removeprefix("kafka://") if postgres_kafka and kafka else None,
        png=png,
        as_json=session_of(ctx).out.as_json,
    )
    raise typer.Exit(run(wishes))
