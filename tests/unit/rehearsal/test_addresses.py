"""Whether the job's store is where ranks wait."""

from __future__ import annotations

import socket
import threading

from preflight.rehearsal.addresses import unreached
from preflight.rehearsal.store_client import NOT_A_STORE


def test_where_somebody_listens_and_where_nobody_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            nobody = other.getsockname()[1]
        words = [
            *({"host": "127.0.0.1", "port": p} for p in (port, nobody, port)),
            {"host": "", "port": port},
            {"host": "127.0.0.1", "port": "22"},
            {"host": ["x"], "port": 22},
            {"host": "a" * 300, "port": 22},
            {},
        ]
        found = unreached(words)
    assert found.pop(("a" * 300, 22))
    assert found == {("127.0.0.1", nobody): "Connection refused"}


def test_what_answers_is_no_store() -> None:
    """A proxy's answer; that of a store, which is a number of keys, and one that hangs up."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]

    def answer(server: socket.socket, text: bytes) -> None:
        for _ in range(2):  # the first one only looks whether somebody listens
            with server.accept()[0] as line:
                if text and line.recv(100):
                    line.sendall(text)

    texts = (b"HTTP/1.1 400 Bad Request\r\n\r\n", (3).to_bytes(8, "little"), b"")
    for given in zip(servers, texts, strict=True):
        threading.Thread(target=answer, args=given, daemon=True).start()
    places = [server.getsockname() for server in servers]
    found = unreached({"host": host, "port": port} for host, port in places)
    for server in servers:
        server.close()
    assert found == {places[0]: f"{NOT_A_STORE}: a proxy, or another program"}
