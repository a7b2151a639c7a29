"""Which servers there are by name, how each is started, and what a command is told about it."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from devtools.servers import process
from devtools.servers.process import ServerError


class Server(Protocol):
    """The verbs every server has after `start(folder)`; `kill`, `freeze` and `thaw` are for those who may harm it."""

    def stop(self) -> None: ...

    def start_again(self) -> None: ...


@dataclass(frozen=True)
class Running:
    """A private server, the variables that tell a command where it is, and the folder that goes with it."""

    server: Any
    variables: Mapping[str, str]
    folder: Path

    def close(self) -> None:
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _postgres(version: str) -> Callable[[Path], tuple[Server, dict[str, str]]]:
    def start(folder: Path) -> tuple[Server, dict[str, str]]:
        server = import_module("devtools.servers.postgres").Postgres.start(folder, version=version)
        url = server.fresh_database()
        return server, {"PILLARBOX_TEST_POSTGRES_URL": url, "PILLARBOX_TEST_POSTGRES_ADMIN_URL": server.url}

    return start


def _kafka(folder: Path) -> tuple[Server, dict[str, str]]:
    server = import_module("devtools.servers.kafka").Kafka.start(folder)
    return server, {"PILLARBOX_TEST_KAFKA_URL": f"kafka://{server.bootstrap}"}


# A new server: a module beside this one, and a line here.
SERVERS: Mapping[str, Callable[[Path], tuple[Server, dict[str, str]]]] = {
    "postgres": _postgres("15"),
    "postgres16": _postgres("16"),
    "postgres17": _postgres("17"),
    "postgres18": _postgres("18"),
    "kafka": _kafka,
}


def start(name: str) -> Running:
    if name not in SERVERS:
        raise ServerError(f"no server named {name!r}; known are {', '.join(SERVERS)}")
    folder = process.temporary_folder(name)
    try:
        server, variables = SERVERS[name](folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, ServerError) or not isinstance(error, Exception):
            raise
        raise ServerError(f"{name} could not be started: {error}") from error
    return Running(server, variables, folder)
