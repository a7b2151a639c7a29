"""Read by mypy, never run: what a user's type checker says about the public names."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Any, assert_type
from uuid import UUID

import psycopg

from pillarbox import NO_KEY, AsyncOutbox, Events, Message, Outbox

outbox, async_outbox = Outbox(), AsyncOutbox(schema="pillarbox", max_message=100_000)


def place(connection: psycopg.Connection[Any], events: Events) -> int:
    events.add(aggregate="a", type="t", payload=connection.info.dbname)
    return 5


async def later(_connection: object, _events: Events) -> str:
    return "x"


def blocking(conn: psycopg.Connection[Any], when: datetime) -> None:
    assert_type(outbox.add(conn, aggregate="a", type="t", payload={"a": 1}), UUID)
    assert_type(
        outbox.add(conn, aggregate="a", type="t", payload=b"", key=7, deliver_at=when, headers={"a": "b"}), UUID
    )
    assert_type(outbox.add(conn, aggregate="a", type="t", payload=None, key=NO_KEY, on_duplicate="raise"), UUID)
    assert_type(outbox.add_many(conn, [Message(aggregate="a", type="t", payload=1), {"aggregate": "a"}]), list[UUID])
    assert_type(outbox.delayed(conn, limit=5), list[Message])
    assert_type(outbox.cancel(conn, UUID(int=1)), bool)

    outbox.add(conn, aggregate="a", type="t")  # type: ignore[call-arg]
    outbox.add(conn, aggregate="a", type="t", payload=1, key=None)  # type: ignore[arg-type]
    outbox.add(conn, aggregate="a", type="t", payload=1, kye="k")  # type: ignore[call-arg]
    outbox.add(conn, aggregate="a", type="t", payload=1, version="1")  # type: ignore[arg-type]
    outbox.add(conn, aggregate="a", type="t", payload=1, on_duplicate="fail")  # type: ignore[arg-type]
    Message(aggregate="a", type="t", payload=1).key = "k"  # type: ignore[misc]
    Outbox("pillarbox")  # type: ignore[call-arg]
    assert_type(outbox.with_transaction(conn, place), int)


async def awaited(conn: psycopg.AsyncConnection[Any]) -> None:
    assert_type(async_outbox.add(conn, aggregate="a", type="t", payload=1), Awaitable[UUID])
    assert_type(await async_outbox.add(conn, aggregate="a", type="t", payload=1), UUID)
    assert_type(await async_outbox.add_many(conn, []), list[UUID])
    assert_type(await async_outbox.with_transaction(conn, later), str)
