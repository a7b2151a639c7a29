"""`./dev with`: a command beside private servers, and nothing left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from devtools.servers import process
from devtools.wheel import ROOT

LEFT_TO_ITSELF = """
import os, sys, time
print(os.environ["PILLARBOX_TEST_POSTGRES_ADMIN_URL"], os.getpid(), flush=True)
time.sleep(100)
"""


def dev(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "dev", "with", *words], capture_output=True, text=True, check=False, cwd=cwd, stdin=subprocess.DEVNULL
    )


def python(text: str) -> Sequence[str]:
    return ("--", "python", "-c", text)


def test_status_folder_and_output_are_the_commands_own(tmp_path: Path) -> None:
    """Without servers the command still gets the environment; its stdout is untouched and its status passed on."""
    done = dev(*python("import os, sys; print(os.getcwd(), sys.prefix); sys.exit(7)"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (7, f"{tmp_path} {sys.prefix}\n")


@pytest.mark.parametrize(
    ("words", "status"),
    [(("postgres",), 2), (("--",), 2), (("nosuch", "--", "true"), 2), (("--", "no-such-program"), 127),
     (("--", "sh", "-c", "kill -9 $$"), 137)],
)  # fmt: skip
def test_what_cannot_be_run_says_so(words: tuple[str, ...], status: int) -> None:
    """Wrong usage is 2, a missing program 127, a command ended by a signal 128 and its number."""
    assert dev(*words).returncode == status


def test_the_url_is_of_an_empty_database_its_user_owns() -> None:
    """A newcomer can create what they like in it, and it is no superuser's."""
    probe = """
import os, psycopg
with psycopg.connect(os.environ["PILLARBOX_TEST_POSTGRES_URL"]) as conn:
    print(*conn.execute("SELECT rolsuper, (SELECT count(*) FROM pg_tables WHERE tableowner = current_user)"
                        " FROM pg_roles WHERE rolname = current_user").fetchone())
    conn.execute("CREATE SCHEMA pillarbox")
"""
    done = dev("postgres", *python(probe))
    assert (done.returncode, done.stdout) == (0, "False 0\n"), done.stderr


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_it(sign: signal.Signals) -> None:
    """However it ends, its servers and its command end too."""
    words = [ROOT / "dev", "with", "postgres", *python(LEFT_TO_ITSELF)]
    running = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdout is not None
    with running.stdout:
        url, pid = running.stdout.readline().split()
    psycopg.connect(url).close()
    os.kill(running.pid, sign)
    status = running.wait(30)
    assert status in (-sign, 128 + sign, 1)  # Python answers SIGINT with a traceback and its own status
    process.wait_until(lambda: not Path(f"/proc/{pid}").exists(), seconds=10, what="the command's end")
    port = conninfo_to_dict(url)["port"]
    process.wait_until(lambda: not process.answers(int(port or 0)), seconds=10, what="the server's end")
