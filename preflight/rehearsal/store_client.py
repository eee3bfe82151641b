"""Reads keys of torch's TCPStore over the store's own protocol, without torch, and without changing
anything there (torch/csrc/distributed/c10d/TCPStoreBackend.hpp, the same from 2.4 to 2.15). What
answers may be anything: nothing but a greeting is sent before it has shown that it is a store. Only
in a worker."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Sequence

VALIDATE, GET, CHECK, NUMBER_OF_KEYS = (bytes([number]) for number in (0, 3, 5, 7))
MAGIC = struct.pack("<I", 0x3C85F7CE)
NOT_A_STORE = "what listens there is no TCPStore of torch"
MOST_KEYS = 1 << 32
"""Keys that a store may have: the first bytes of any text are a greater number."""
VALUE_LIMIT = 1 << 20
"""Bytes of one value."""
KEY_LIMIT = 1024


class NoStore(Exception):
    """Why nothing could be read there: errno's name, or what is wrong with what answers."""


def read_keys(
    address: tuple[str, int], keys: Sequence[str], seconds: float
) -> dict[str, bytes | None]:
    """The values of those keys that are there, of the others None; NoStore where it can't be asked.
    A get would wait for a key that is missing, so each is requested first."""
    until = time.monotonic() + seconds
    try:
        with socket.create_connection(address, seconds) as line:
            # not by a ping, which 2.4 does not know
            _send(line, VALIDATE + MAGIC + NUMBER_OF_KEYS, until)
            if struct.unpack("<Q", _receive(line, 8, until))[0] >= MOST_KEYS:
                raise NoStore(NOT_A_STORE)
            _send(line, b"".join(CHECK + struct.pack("<Q", 1) + _text(k) for k in keys), until)
            there = [
                k for k, b in zip(keys, _receive(line, len(keys), until), strict=True) if not b
            ]
            return dict.fromkeys(keys) | {key: _get(line, key, until) for key in there}
    except TimeoutError:
        raise NoStore("ETIMEDOUT") from None
    except OSError as error:
        raise NoStore(errno.errorcode.get(error.errno or 0, str(error)[:80])) from None


def _get(line: socket.socket, key: str, until: float) -> bytes:
    _send(line, GET + _text(key), until)
    (size,) = struct.unpack("<Q", _receive(line, 8, until))
    if size > VALUE_LIMIT:
        raise NoStore(f"a value of {size} bytes")
    return _receive(line, size, until)


def _text(key: str) -> bytes:
    raw = key.encode()[:KEY_LIMIT]
    return struct.pack("<Q", len(raw)) + raw


def _send(line: socket.socket, data: bytes, until: float) -> None:
    line.settimeout(max(0.01, until - time.monotonic()))
    line.sendall(data)


def _receive(line: socket.socket, size: int, until: float) -> bytes:
    data = b""
    while len(data) < size:
        line.settimeout(max(0.01, until - time.monotonic()))
        part = line.recv(min(1 << 16, size - len(data)))
        if not part:
            raise NoStore("what listens there closes the connection")
        data += part
    return data
