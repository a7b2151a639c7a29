"""PgBouncer in transaction mode in front of a private PostgreSQL: any of its databases, any of its roles."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from devtools.servers import process
from devtools.servers.process import ServerError

# Debian puts daemons where an ordinary user's path does not look.
PATH = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin"


def binary() -> str:
    if shutil.which("pgbouncer", path=PATH) is None:
        process.install_debian("pgbouncer")
    found = shutil.which("pgbouncer", path=PATH)
    if found is None:
        raise ServerError("pgbouncer was installed and is not on the path")
    return found


class PgBouncer:
    """One pooler. Roles log in with their own passwords: it asks the server for their secrets and passes SCRAM on."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.log = folder / "pgbouncer.log"
        self.user = process.unprivileged_user("postgres")
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(cls, folder: Path, *, admin_url: str, settings: Mapping[str, object] = {}) -> Self:
        """In front of the server whose superuser's URL is `admin_url`; `settings` are PgBouncer's own."""
        pooler = cls(folder, process.free_port())
        server = urlsplit(admin_url)
        wishes = {
            "listen_addr": "127.0.0.1",
            "listen_port": pooler.port,
            "unix_socket_dir": "",
            "pool_mode": "transaction",
            "auth_type": "scram-sha-256",
            "auth_user": server.username,
            "auth_file": folder / "users.txt",
            "max_client_conn": 500,
            "default_pool_size": 20,
            "ignore_startup_parameters": "extra_float_digits,options",
            **settings,
        }
        (folder / "users.txt").write_text(f'"{server.username}" "{server.password}"\n')
        lines = ["[databases]", f"* = host={server.hostname} port={server.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in wishes.items()]
        (folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        process.give_to(pooler.user, folder)
        pooler.start_again()
        return pooler

    def start_again(self) -> None:
        command = [binary(), self.folder / "pgbouncer.ini"]
        self._process = process.spawn(command, log=self.log, cwd=self.folder, user=self.user, death=signal.SIGTERM)
        process.wait_until(
            lambda: self.running.poll() is not None or process.answers(self.port), seconds=15, what="PgBouncer ready"
        )
        if self.running.poll() is not None:
            raise ServerError(f"PgBouncer ended at once:\n{process.tail(self.log)}")

    @property
    def running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            raise ServerError("this PgBouncer was never started")
        return self._process

    def through(self, url: str) -> str:
        """The same database and role by way of this pooler."""
        parts = urlsplit(url)
        return parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{self.port}").geturl()

    def stop(self) -> None:
        process.stop_process(self.running)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.running.kill()
        self.running.wait(10)

    def freeze(self) -> None:
        process.freeze(self.running.pid)

    def thaw(self) -> None:
        process.thaw(self.running.pid)
