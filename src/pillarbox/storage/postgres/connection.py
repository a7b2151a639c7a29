"""One connection to PostgreSQL: opened when first needed and again after it was lost, never waited for without end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg import conninfo, pq

from pillarbox.clock import Clock, SystemClock
from pillarbox.errors import ConfigError, DatabaseUnavailable
from pillarbox.ports import InDoubt
from pillarbox.storage.postgres import failure
from pillarbox.storage.sql import identifier, load

Rows = list[tuple[Any, ...]]

CONNECT = {
    "connect_timeout": "3",
    "keepalives": "1",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
    "target_session_attrs": "read-write",  # a standby's snapshots are not ours (DESIGN 2.2 rule 5)
}
# Whatever the statistics say, the read stays on its indexes (rule 10): an unhinted plan took half a second after a stop.
PLAN = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "max_parallel_workers_per_gather": "0",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NOTICED_WITHIN = 0.1  # seconds after its deadline


class Overdue(psycopg.OperationalError):
    """The server did not answer in time."""


class Link(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection on which nothing waits beyond a limit: a black hole answers no statement, and no cancel."""

    limit = 5.0
    clock: Clock = SystemClock()

    def wait(
        self, gen: Generator[Any, Any, Any], interval: float = NOTICED_WITHIN, timeout: float | None = None
    ) -> Any:
        return super().wait(self._limited(gen), min(interval, NOTICED_WITHIN))

    def _limited(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        end = self.clock.mono() + self.limit
        ready = None
        try:
            while True:
                ready = yield gen.send(ready)
                if not ready and self.clock.mono() >= end:
                    self.close()
                    raise Overdue(f"no answer within {self.limit:g} s")
        except StopIteration as done:
            return done.value


class Database:
    """The statements of this package on one connection of its own, each by itself unless inside `transaction()`.

    Nothing is ever sent twice: a statement that meets a lost connection raises `DatabaseUnavailable`, and only the
    next one opens a new connection. One thread at a time.
    """

    def __init__(
        self,
        url: str | Callable[[], str],
        *,
        schema: str = "pillarbox",
        name: str = "pillarbox",
        lease: float = 5.0,
        limit: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.schema = schema
        self.token: str | None = None  # of the server's present life, as first seen (DESIGN 2.2 rule 5)
        self.pooled = False  # behind a pooler that takes no options
        self._url = url if callable(url) else lambda: url
        self._name, self._lease = name, lease
        self.limit = lease if limit is None else limit  # seconds a statement may take
        self._clock = clock or SystemClock()
        self._sql = load("pillarbox.storage.postgres.sql", identifier(schema))
        self._link: Link | None = None

    def run(self, statement: str, *parameters: object, limit: float | None = None) -> Rows:
        """Execute one named statement and return its rows."""
        return self.execute(self._sql[statement], *parameters, limit=limit)

    def text(self, statement: str) -> str:
        """The text of a named statement."""
        return self._sql[statement]

    def read(self, statement: str, *parameters: object) -> Rows:
        """Execute one named statement whose plan must stay on the indexes."""
        if not self.pooled:
            rows = self.run(statement, *parameters)
            if not self.pooled:  # it may have connected only now, and learned better
                return rows
        with self._working(None) as link:
            return self._read_piped(link, self._sql[statement], parameters)

    def _read_piped(self, link: Link, text: str, parameters: Sequence[object]) -> Rows:
        """The settings in front of the statement, in its own transaction and in one round trip."""
        try:
            with link.pipeline():
                link.execute("BEGIN")
                for setting, value in PLAN.items():
                    link.execute(f"SET LOCAL {setting} = {value}".encode())
                cursor = self._cursor(link).execute(text.encode(), parameters, prepare=False, binary=True)
                link.execute("COMMIT")
            return cursor.fetchall()
        except psycopg.Error:
            if link.pgconn.transaction_status == pq.TransactionStatus.INERROR:
                link.execute("ROLLBACK")
            raise

    def execute(self, text: str, *parameters: object, limit: float | None = None) -> Rows:
        """Execute this text. Without parameters it may be several statements."""
        with self._working(limit) as link:
            cursor = self._cursor(link)
            if parameters:
                cursor.execute(text.encode(), parameters, prepare=not self.pooled, binary=True)
            else:
                cursor.execute(text.encode(), prepare=False)
            return cursor.fetchall() if cursor.description else []

    def trust(self, token: bytes | None) -> None:
        """Nothing in memory is trusted once the server has another crash token than before (DESIGN 2.2 rule 5)."""
        found = None if token is None else str(UUID(bytes=bytes(token)))
        if found is None or self.token not in (None, found):
            raise InDoubt
        self.token = found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What runs inside commits together. Nothing a relay does under a lease belongs here (PROTOCOL, settle)."""
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            if self._link is not None:
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    @property
    def connected(self) -> bool:
        return self._link is not None

    def direct(self) -> Link:
        """The connection itself, for migrations, which take any of psycopg's."""
        return self._link or self._connect()

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    @staticmethod
    def _cursor(link: Link) -> psycopg.RawCursor[tuple[Any, ...]]:
        return psycopg.RawCursor(link)

    @contextmanager
    def _working(self, limit: float | None) -> Iterator[Link]:
        link = self._link or self._connect()
        link.limit = self.limit if limit is None else limit
        try:
            yield link
        except psycopg.Error as error:
            if link.closed or link.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self._link = None
                link.close()
            raise failure.named(error, self.schema) from error

    def _connect(self) -> Link:
        settings = self._settings()
        try:
            link = self._open({**settings, "options": f"{settings.get('options', '')} {self._options()}".strip()})
            # A pooler refuses options, or swallows them.
            self.pooled = link is None or not _took_options(link)
            link = link or self._open(settings)
        except psycopg.Error as error:
            text = failure.told(error, settings.get("password"))
            raise DatabaseUnavailable(f"PostgreSQL cannot be reached: {text}.", failure.cure(text)) from None
        assert link is not None
        link.prepare_threshold = None if self.pooled else 0
        self._link = link
        return link

    def _open(self, settings: dict[str, Any]) -> Link | None:
        """A link; None where a pooler takes no options."""
        try:
            link = Link.connect(**settings, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            if "unsupported startup parameter" in str(error) and "options" in settings:
                return None
            raise
        link.clock, link.limit = self._clock, self.limit
        link.prepared_max = None
        return link

    def _settings(self) -> dict[str, Any]:
        try:
            given = conninfo.conninfo_to_dict(self._url())
        except psycopg.Error:  # its text quotes the URL, password and all
            raise ConfigError("The database's URL is not one PostgreSQL understands.", URL_HINT) from None
        defaults: dict[str, Any] = {**CONNECT, "application_name": self._name}
        hosts = str(given.get("host") or "localhost").split(",")
        if not all(host in LOOPBACK or host.startswith(("/", "@")) for host in hosts):
            defaults |= {"sslmode": "verify-full"}
            if "sslrootcert" not in given and "sslmode" not in given:
                defaults |= {"sslrootcert": "system"}
        return {**defaults, **{key: value for key, value in given.items() if value is not None}}

    def _options(self) -> str:
        milliseconds = max(1, round(self._lease * 1000))
        settings = {
            **PLAN,
            "synchronous_commit": "on",  # a settle or a take that a crash undoes would let a term be issued twice
            "idle_in_transaction_session_timeout": milliseconds,
            "tcp_user_timeout": 5000,
            "tcp_keepalives_idle": 2,
            "tcp_keepalives_interval": 1,
            "tcp_keepalives_count": 3,
        }
        return " ".join(f"-c {name}={value}" for name, value in settings.items())


def _took_options(link: Link) -> bool:
    try:
        return link.execute("SHOW plan_cache_mode").fetchone() == (PLAN["plan_cache_mode"],)
    except psycopg.Error:
        link.close()
        raise


URL_HINT = "Write postgresql://user@host:5432/database, and the password into `[database] password`."
