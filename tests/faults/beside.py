"""What runs beside preflight on a machine of the lab: who holds its port, who does not answer.

    python beside.py listen 29500 nobody

Each program prints `ready` once it is, and then runs until it is killed.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import socket
import struct
import sys
import time
from collections.abc import Sequence

Open = list[socket.socket]
"""What a program must keep open."""


def listen(port: str, user: str = "root") -> Open:
    """A server that has nothing to do with us, of this user."""
    os.setuid(pwd.getpwnam(user).pw_uid)
    return [socket.create_server(("", int(port)))]


def mps(folder: str) -> Open:
    """The socket at which a control daemon of MPS waits."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.bind(f"{folder}/control")
    control.listen()
    return [control]


def store(port: str) -> object:
    """The store of a run that did not end."""
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", int(port), 2, is_master=True, wait_for_workers=False)


def outgoing(port: str) -> Open:
    """A connection to somewhere whose near end got this port."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.socket()
    client.bind(("127.0.0.1", int(port)))
    client.connect(server.getsockname())
    return [server, client, server.accept()[0]]


def time_wait(port: str) -> Open:
    """A run that has just ended and closed its connections first: they linger in TIME_WAIT."""
    with socket.create_server(("127.0.0.1", int(port))) as server:
        client = socket.create_connection(("127.0.0.1", int(port)))
        server.accept()[0].close()
        client.recv(1)
        client.close()
    return []


def dns(delay: str, *names: str) -> Open:
    """A name server at 127.0.0.1 that answers after `delay` seconds, never when it is `never`. It
    knows `NAME=IP`; of all else it says that there is no such name."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))
    known = dict(name.split("=") for name in names)
    if delay != "never" and not os.fork():
        while True:
            question, client = server.recvfrom(512)
            time.sleep(float(delay))
            server.sendto(_answer(question, known), client)
    return [server]


def _answer(question: bytes, known: dict[str, str]) -> bytes:
    """RFC 1035: the header and the question again, with one address or with NXDOMAIN."""
    labels, end = [], 12
    while size := question[end]:
        labels.append(question[end + 1 : end + 1 + size].decode())
        end += size + 1
    asked = question[12 : end + 5]
    kind = struct.unpack("!H", question[end + 1 : end + 3])[0]
    ip = known.get(".".join(labels))
    rest = b""
    if ip and kind == 1:
        rest = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(ip)
    flags = 0x8180 if ip else 0x8183
    return question[:2] + struct.pack("!5H", flags, 1, bool(rest), 0, 0) + asked + rest


def fuse(folder: str, end: str = "hang", source: str = "lab") -> object:
    """A file system that was mounted all right and answers nothing any more (`hang`), or whose
    daemon is dead (`die`): to whoever touches it what NFS with a dead server is."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(source), os.fsencode(folder), b"fuse.lab", 0, options):
        raise OSError(ctypes.get_errno(), "mount")
    request = os.read(device, 1 << 17)  # FUSE_INIT
    unique = struct.unpack("<Q", request[8:16])[0]
    # fuse_init_out of protocol 7.31: the rest of its 64 bytes is 0
    answer = struct.pack("<IIIIHHIIHHI28x", 7, 31, 4096, 0, 12, 9, 4096, 1, 1, 0, 0)
    os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
    if end == "die":
        os.close(device)
    return device


PROGRAMS = {f.__name__: f for f in (listen, mps, store, outgoing, time_wait, dns, fuse)}


def main(name: str, *arguments: str) -> None:
    kept: Sequence[object] | object = PROGRAMS[name](*arguments)
    print("ready", flush=True)
    while kept is not None:
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
