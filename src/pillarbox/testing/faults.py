"""A network that misbehaves on request: a TCP proxy between a client and a server of ours.

    with Proxy("127.0.0.1", 5432) as proxy:
        connect(port=proxy.port)
        proxy.freeze()            # a black hole: no bytes, no reset, new connections included
        proxy.thaw()

Every fault counts in `hits` when it really touched something: a fault that never happened proves nothing.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Self

from pillarbox.clock import SystemClock

CHUNK = 65_536
LOOK = 0.01  # seconds between two looks of a frozen direction
RESET = struct.pack("ii", 1, 0)  # SO_LINGER 0: close sends a reset


class Direction(StrEnum):
    """Which way bytes go."""

    UP = "up"  # from the client to the server
    DOWN = "down"  # from the server to the client


BOTH = (Direction.UP, Direction.DOWN)
Watch = Callable[[bytes], bool]


class _Link:
    """One client's connection and ours to the server, each way in a thread of its own."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.ends = {Direction.UP: (client, server), Direction.DOWN: (server, client)}
        self.passed: Counter[Direction] = Counter()
        self.over = False

    def start(self) -> None:
        for way in BOTH:
            threading.Thread(target=self._pump, args=(way,), name=f"proxy-{way}", daemon=True).start()

    def _pump(self, way: Direction) -> None:
        source, target = self.ends[way]
        proxy = self.proxy
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                proxy.hold_back(way, self)
                data, cut = proxy.what_passes(way, data, self.passed[way])
                self.passed[way] += len(data)
                target.sendall(data)
                if cut:
                    self.end(reset=True)
                    return
            proxy.hold_back(way, self)  # a black hole swallows the goodbye as well
            if self.over:
                return  # being reset: a polite end must not be faster
            target.shutdown(socket.SHUT_WR)
            if way is Direction.DOWN:
                self.end()

    def end(self, *, reset: bool = False) -> None:
        self.over = True
        for end in self.ends[Direction.UP]:
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                # Wakes the thread that reads: until it lets go, close says nothing to the peer.
                end.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
                end.close()


class Proxy:
    """Passes everything on until it is told otherwise. Safe to command from any thread."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._clock = SystemClock()
        self._links: list[_Link] = []
        self._frozen: set[Direction] = set()
        self._delay = dict.fromkeys(BOTH, 0.0)
        self._cut: dict[Direction, int] = {}
        self._watch: dict[Direction, tuple[Watch, bool]] = {}
        self._refusing = False
        self._over = False
        self._lock = threading.Lock()
        self.hits: Counter[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    # ---------------------------------------------------------------- commands

    def freeze(self, *ways: Direction) -> None:
        """Nothing goes these ways any more (all ways without any named), and nobody is told."""
        self._frozen = set(ways or BOTH)

    def thaw(self) -> None:
        """What was held back goes on."""
        self._frozen = set()

    def delay(self, seconds: float, *ways: Direction) -> None:
        """Each piece waits so long before it goes on."""
        self._delay |= dict.fromkeys(ways or BOTH, seconds)

    def cut_after(self, count: int, way: Direction) -> None:
        """Every link is reset once so many bytes in all went this way through it."""
        self._cut[way] = count

    def cut_when(self, watch: Watch, way: Direction, *, before: bool) -> None:
        """Reset the first link with a piece that `watch` recognises, before or after it has passed. Once."""
        self._watch[way] = watch, before

    def reset(self) -> int:
        """Reset every link now; how many."""
        links = self._alive()
        for link in links:
            link.end(reset=True)
        self.hits["reset"] += len(links)
        return len(links)

    def refuse(self, *, refusing: bool = True) -> None:
        """New connections are reset at once."""
        self._refusing = refusing

    def heal(self) -> None:
        """No fault is left; links that live go on."""
        self._cut.clear()
        self._watch.clear()
        self._delay = dict.fromkeys(BOTH, 0.0)
        self._refusing = False
        self.thaw()

    # ---------------------------------------------------------------- what links ask

    def hold_back(self, way: Direction, link: _Link) -> None:
        if self._delay[way]:
            self.hits["delay"] += 1
            self._clock.sleep(self._delay[way])
        if way in self._frozen:
            self.hits["freeze"] += 1
        while way in self._frozen and not (self._over or link.over):
            self._clock.sleep(LOOK)

    def what_passes(self, way: Direction, data: bytes, passed: int) -> tuple[bytes, bool]:
        """The part of the piece that goes on, and whether the link ends behind it."""
        watch, before = self._watch.get(way, (None, False))
        if watch is not None and watch(data):
            del self._watch[way]
            self.hits["cut"] += 1
            return (b"" if before else data), True
        limit = self._cut.get(way)
        if limit is not None and passed + len(data) >= limit:
            self.hits["cut"] += 1
            return data[: max(0, limit - passed)], True
        return data, False

    # ---------------------------------------------------------------- links

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._link, args=(client,), daemon=True).start()

    def _link(self, client: socket.socket) -> None:
        while Direction.UP in self._frozen and not self._over:  # accepted by the kernel, and that is all
            self._clock.sleep(LOOK)
        try:
            if self._refusing:
                self.hits["refuse"] += 1
                raise ConnectionRefusedError
            server = socket.create_connection(self._target, timeout=10.0)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
            return
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(self, client, server)
        with self._lock:  # known before its first byte, so that a reset misses none
            self._links = [*self._alive(), link]
        link.start()

    def _alive(self) -> list[_Link]:
        return [link for link in self._links if not link.over]

    def close(self) -> None:
        self._over = True
        self._listener.close()
        for link in self._alive():
            link.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
