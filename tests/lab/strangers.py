"""Who may be there on a machine of the lab: servers that have nothing to do with us, and name
servers that don't do their work.

    python strangers.py http 29500

Each prints `ready` once it is, and then runs until it is killed.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Callable

REFUSED, SERVFAIL, NXDOMAIN = 5, 2, 3
WEB_PAGE = b"<html><body><h1>It works!</h1></body></html>\n"

Talk = Callable[[socket.socket], object]


def ready() -> None:
    print("ready", flush=True)


def rest() -> None:
    while True:
        time.sleep(60)


def server(port: str, **more: bool) -> socket.socket:
    """A listener on all addresses, of both families where there are both."""
    if socket.has_dualstack_ipv6():
        family = socket.AF_INET6
        return socket.create_server(("", int(port)), family=family, dualstack_ipv6=True)
    return socket.create_server(("", int(port)))


def serve(port: str, talk: Talk) -> None:
    listener = server(port)
    ready()
    while True:
        threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


def taken(port: str) -> None:
    holder = socket.socket()
    holder.bind(("", int(port)))
    ready()
    rest()


def silent(port: str) -> None:
    kept: list[socket.socket] = []
    serve(port, kept.append)


def closing(port: str) -> None:
    serve(port, lambda client: client.close())


def echo(port: str) -> None:
    def talk(client: socket.socket) -> None:
        while data := client.recv(1 << 16):
            client.sendall(data)
        client.close()

    serve(port, talk)


def http(port: str) -> None:
    """What is not a request by its first word is answered with 400 as web servers do."""

    def talk(client: socket.socket) -> None:
        request = client.recv(1 << 16)
        status = "200 OK" if request.startswith((b"GET ", b"HEAD ")) else "400 Bad Request"
        head = f"HTTP/1.1 {status}\r\nServer: nginx\r\nContent-Length: {len(WEB_PAGE)}\r\n\r\n"
        client.sendall(head.encode() + WEB_PAGE)
        client.close()

    serve(port, talk)


def store(port: str) -> None:
    from torch.distributed import TCPStore

    kept = TCPStore("127.0.0.1", int(port), 2, is_master=True, wait_for_workers=False)
    kept.set("job", "another")
    ready()
    rest()


def dns(address: str, how: str, *names: str) -> None:
    """faults.resolver says how."""
    known = dict(name.split("=") for name in names)
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    line.bind((address, 53))
    ready()
    while True:
        question, client = line.recvfrom(512)
        if how == "silent":
            continue
        late = float(how) if how not in ("refusing", "failing") else 0.0
        code = {"refusing": REFUSED, "failing": SERVFAIL}.get(how)
        # each in its own time: a slow server is slow for everybody, but not slower for the second
        threading.Timer(late, line.sendto, (_answer(question, known, code), client)).start()


def _answer(question: bytes, known: dict[str, str], code: int | None) -> bytes:
    """RFC 1035: the header and the question again, with one address or with a code."""
    labels, end = [], 12
    while size := question[end]:
        labels.append(question[end + 1 : end + 1 + size].decode())
        end += size + 1
    asked = question[12 : end + 5]
    kind = struct.unpack("!H", question[end + 1 : end + 3])[0]
    ip = known.get(".".join(labels))
    if code is None:
        code = 0 if ip else NXDOMAIN
    rest = b""
    if ip and kind == 1 and not code:
        rest = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(ip)
    return question[:2] + struct.pack("!5H", 0x8180 | code, 1, bool(rest), 0, 0) + asked + rest


PROGRAMS = {f.__name__: f for f in (taken, silent, closing, echo, http, store, dns)}

if __name__ == "__main__":
    name, *arguments = (word for word in sys.argv[1:] if not word.startswith("--"))
    PROGRAMS[name](*arguments)
