"""The proxy breaks what it is told to break, counts it, and is nothing but a wire otherwise."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from pillarbox.clock import SystemClock
from pillarbox.testing.faults import Direction, Proxy

clock = SystemClock()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of a server that says everything back."""
    server = socket.create_server(("127.0.0.1", 0))

    def echo(conn: socket.socket) -> None:
        with conn, contextlib.suppress(OSError):
            while data := conn.recv(65536):
                conn.sendall(data)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with Proxy("127.0.0.1", server.getsockname()[1]) as proxy:
        yield proxy
    server.close()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0) as conn:
        yield conn


def said_back(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    got = b""
    while len(got) < len(data) and (more := client.recv(65536)):
        got += more
    return got


def silent(client: socket.socket) -> bool:
    """Nothing comes for a while, and nobody hangs up."""
    client.settimeout(0.2)
    try:
        return client.recv(1) is None
    except TimeoutError:
        return True
    finally:
        client.settimeout(5.0)


def test_without_a_fault_it_is_a_wire(proxy: Proxy, client: socket.socket) -> None:
    """A megabyte there and back, and nothing is counted."""
    data = bytes(range(256)) * 4096
    threading.Thread(target=client.sendall, args=(data,), daemon=True).start()
    got = b""
    while len(got) < len(data):
        got += client.recv(65536)
    assert (got, +proxy.hits) == (data, {})


@pytest.mark.parametrize("way", [(), (Direction.UP,), (Direction.DOWN,)])
def test_frozen_is_silence_without_a_reset(way: tuple[Direction, ...], proxy: Proxy, client: socket.socket) -> None:
    """In one direction or both; thawed, the held-back bytes arrive."""
    assert said_back(client, b"1") == b"1"
    proxy.freeze(*way)
    client.sendall(b"2")
    assert silent(client)
    proxy.thaw()
    assert client.recv(1) == b"2"
    assert proxy.hits["freeze"] > 0


def test_new_connections_freeze_too(proxy: Proxy) -> None:
    """A black hole answers nobody: the handshake is the kernel's, and after it nothing comes."""
    proxy.freeze()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0) as conn:
        conn.sendall(b"x")
        assert silent(conn)
        proxy.thaw()
        assert conn.recv(1) == b"x"


def test_reset_is_a_reset(proxy: Proxy, client: socket.socket) -> None:
    """Not a polite end: the client gets an error."""
    assert said_back(client, b"1") == b"1"
    assert proxy.reset() == 1
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert proxy.hits == {"reset": 1}


def test_it_cuts_after_so_many_bytes(proxy: Proxy, client: socket.socket) -> None:
    """Exactly so many get through in that direction, then the link is reset."""
    proxy.cut_after(3, Direction.UP)
    client.sendall(b"12345")
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(10):
            got += more
    assert b"123".startswith(got)
    assert proxy.hits["cut"] == 1


@pytest.mark.parametrize(("before", "reached"), [(True, b""), (False, b"COMMIT")])
def test_it_cuts_at_a_reply(before: bool, reached: bytes, proxy: Proxy, client: socket.socket) -> None:
    """In front of or behind a piece that is recognised; the next link is whole again."""
    proxy.cut_when(lambda data: b"COMMIT" in data, Direction.UP, before=before)
    assert said_back(client, b"BEGIN") == b"BEGIN"
    client.sendall(b"COMMIT")
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(10) in (b"", reached)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0) as again:
        assert said_back(again, b"COMMIT") == b"COMMIT"
    assert proxy.hits["cut"] == 1


def test_delay_is_there_and_back(proxy: Proxy, client: socket.socket) -> None:
    """Each way waits by itself."""
    proxy.delay(0.1)
    before = clock.mono()
    assert said_back(client, b"1") == b"1"
    assert clock.mono() - before >= 0.2
    proxy.heal()
    assert (said_back(client, b"2"), proxy.hits["delay"]) == (b"2", 2)


def test_refused_connections_end_at_once(proxy: Proxy, client: socket.socket) -> None:
    """Links that live are left alone; healed, new ones are let in."""
    assert said_back(client, b"0") == b"0"
    proxy.refuse()
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0) as conn:
        assert conn.recv(1) == b""
    assert said_back(client, b"1") == b"1"
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=5.0) as conn:
        assert said_back(conn, b"2") == b"2"
    assert proxy.hits == {"refuse": 1}


def test_a_goodbye_passes_on(proxy: Proxy, client: socket.socket) -> None:
    """Half-closing reaches the server, and its end reaches the client."""
    assert said_back(client, b"1") == b"1"
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
