"""Who acts."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping

from pillarbox.views import Note


def note(why: str = "", environ: Mapping[str, str] | None = None) -> Note:
    """The operator as `PILLARBOX_OPERATOR` says, else the person behind sudo, else the user of this process."""
    env = os.environ if environ is None else environ
    who = env.get("PILLARBOX_OPERATOR") or env.get("SUDO_USER") or _user()
    return Note(who[:200], socket.gethostname()[:200], why[:2000])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has no name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
