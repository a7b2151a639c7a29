"""`/livez /readyz /healthz /metrics` on one port, from before anything else connects until the process ends."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from pillarbox.config import masked
from pillarbox.config.values import seconds
from pillarbox.events import Emit, Warned
from pillarbox.observability.health import OLD, Verdict
from pillarbox.observability.metrics import CONTENT_TYPE

AGAIN_AFTER = 5.0  # seconds until a taken port is tried again
PATIENCE = 10.0  # seconds a client may be silent

Reply = tuple[int, str, bytes]


class Pages:
    """What each path answers."""

    def __init__(
        self,
        live: Callable[[], Verdict],
        ready: Callable[[], Verdict],
        healthy: Callable[[float], Verdict],
        metrics: Callable[[], bytes],
    ) -> None:
        self._live, self._ready, self._healthy, self._metrics = live, ready, healthy, metrics

    def answer(self, target: str) -> Reply:
        url = urlsplit(target)
        match url.path:
            case "/livez":
                return _verdict(self._live())
            case "/readyz":
                return _verdict(self._ready())
            case "/healthz":
                asked = seconds(parse_qs(url.query).get("max_age", [str(OLD)])[0])
                return _verdict(self._healthy(asked if isinstance(asked, float) else OLD))
            case "/metrics":
                return 200, CONTENT_TYPE, self._metrics()
        return 404, "text/plain; charset=utf-8", b"There are /livez /readyz /healthz /metrics.\n"


def _verdict(verdict: Verdict) -> Reply:
    told = {"ok": verdict.code == 0, "code": verdict.code, "reasons": verdict.reasons, **verdict.facts}
    body = masked(json.dumps(told, ensure_ascii=False)).encode() + b"\n"
    return 200 if verdict.code == 0 else 503, "application/json", body


class Server:
    """Listens in a thread of its own. A taken port is a warning, tried again, and never the end of a relay."""

    def __init__(self, address: tuple[str, int], pages: Pages, emit: Emit) -> None:
        self._address, self._pages, self._emit = address, pages, emit
        self._over = threading.Event()
        self._http: ThreadingHTTPServer | None = None
        self._thread = threading.Thread(target=self._serve, name="pillarbox-probes", daemon=True)
        self._first_try = threading.Event()

    @property
    def port(self) -> int | None:
        """Where it listens in fact; None while it does not."""
        return self._http.server_address[1] if self._http else None

    def start(self) -> None:
        """Returns once the port is open or was found taken."""
        self._thread.start()
        self._first_try.wait()

    def stop(self) -> None:
        self._over.set()
        if self._http is not None:
            self._http.shutdown()
        self._thread.join()

    def _serve(self) -> None:
        http = self._listening()
        self._first_try.set()
        if http is None:
            return
        with http:
            if not self._over.is_set():
                http.serve_forever(poll_interval=0.1)

    def _listening(self) -> ThreadingHTTPServer | None:
        warned = False
        while not self._over.is_set():
            try:
                self._http = _http_server(self._address, self._pages)
            except OSError as error:
                if not warned:
                    why = f"{self._told()} cannot be listened on: {error.strerror}; set another relay.listen, or off"
                    self._emit(Warned("port_taken", why))
                    warned = True
                self._first_try.set()
                self._over.wait(AGAIN_AFTER)
            else:
                if warned:
                    self._emit(Warned("port_taken", f"{self._told()} is ours now", active=False))
                return self._http
        return None

    def _told(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"


def _http_server(address: tuple[str, int], pages: Pages) -> ThreadingHTTPServer:
    class Handler(_Handler):
        answers = pages

    class Listener(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET

    return Listener(address, Handler)


class _Handler(BaseHTTPRequestHandler):
    answers: ClassVar[Pages]
    timeout = PATIENCE
    server_version, sys_version = "pillarbox", ""

    def do_GET(self) -> None:
        self._reply(body=True)

    def do_HEAD(self) -> None:
        self._reply(body=False)

    def _reply(self, *, body: bool) -> None:
        try:
            status, kind, content = self.answers.answer(self.path)
        except Exception as error:  # a probe tells its own failure, and never takes the server along
            status, kind, content = 500, "text/plain; charset=utf-8", f"{type(error).__name__}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """A probe each second is no news."""
