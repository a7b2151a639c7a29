"""A small shop that takes orders in transactions, as an application would: it knows nothing of relays."""

from __future__ import annotations

import json
import random
import threading
from collections import deque
from pathlib import Path
from typing import Any

from pillarbox.clock import SystemClock
from pillarbox.outbox import Outbox
from pillarbox.testing.history import FAILED, OK, Added, ProducerLog, digest
from pillarbox.testing.installation import connected, statements

CUSTOMERS = ["Ada", "Bashir", "Chiara", "Dmitri", "Esra", "Femi", "Giulia", "Hana", "Ines", "Jun"]
PAUSE = 0.012  # seconds between two transactions, on the average
DECLINED = 0.08  # the share of transactions that are rolled back


class CardDeclined(Exception):
    """Why a transaction is rolled back."""


class Shop:
    """One thread that sells until it is closed. `news` holds (message id, when its COMMIT was answered)."""

    def __init__(self, url: str, log: Path, seed: int) -> None:
        self._url = url
        self._sql = statements("pillarbox.demo", url)
        self._draw = random.Random(seed)
        self._log = ProducerLog(log, seed)
        self._outbox = Outbox()
        self._clock = SystemClock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._sell, name="shop", daemon=True)
        self.news: deque[tuple[str, float]] = deque()
        self.sold = self.declined = 0
        self.failure: BaseException | None = None

    def furnish(self) -> None:
        """The shop's own tables."""
        with connected(self._url) as conn:
            conn.execute(self._sql["create_customer"])
            conn.execute(self._sql["create_purchase"])
            for name in CUSTOMERS:
                conn.execute(self._sql["add_customer"], (name,))
            conn.commit()

    def begin(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._log.close()

    def committed(self) -> set[str]:
        """The orders that are in the table, whatever anybody was told."""
        with connected(self._url) as conn:
            return {id for (id,) in conn.execute(self._sql["purchases"])}

    def _sell(self) -> None:
        try:
            with connected(self._url) as conn:
                number = 0
                while not self._closed.wait(self._draw.expovariate(1 / PAUSE)):
                    number += 1
                    self._serve(conn, f"t{number}")
        except BaseException as error:  # shown by whoever looks; a shop that stopped selling proves nothing
            self.failure = error

    def _serve(self, conn: Any, transaction: str) -> None:
        """One transaction with one to three orders of one customer."""
        customer = self._draw.choice(CUSTOMERS)
        try:
            added = [self._order(conn, customer) for _ in range(self._draw.choice((1, 1, 1, 2, 3)))]
            self._log.begin(transaction, added)
            if self._draw.random() < DECLINED:
                raise CardDeclined
            conn.commit()
        except CardDeclined:
            conn.rollback()
            self._log.end(transaction, FAILED)
            self.declined += 1
            return
        self._log.end(transaction, OK)
        self.sold += len(added)
        now = self._clock.mono()
        self.news.extend((one.id, now) for one in added)

    def _order(self, conn: Any, customer: str) -> Added:
        conn.execute(self._sql["count_up"], (customer,))
        ((n,),) = conn.execute(self._sql["number"], (customer,))
        cents = self._draw.randrange(100, 30_000)
        payload = json.dumps({"customer": customer, "n": n, "cents": cents}).encode()
        id = self._outbox.add(conn, aggregate="order", key=customer, type="order.placed", payload=payload)
        conn.execute(self._sql["buy"], (str(id), customer, n, cents))
        return Added(str(id), customer, n, "", digest(payload))
