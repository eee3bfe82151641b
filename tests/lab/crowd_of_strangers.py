"""A crowd of hostile connections to HOST PORT, COUNT of them; or `serve PORT`, a hostile host."""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.hostile import SURROGATES, WORDS

LINES = [line.encode() for line in (*WORDS.values(), *SURROGATES.values())]
HELLO = {"version": "1", "job": "", "host": "x", "id": "y", "pid": 1, "ranks": [1], "size": 2}
BANNER = b'{"preflight": 1, "version": "1", "job": "", "nonce": "n", "token": false}\n'


def words(dice: random.Random) -> bytes:
    hello = json.dumps({"hello": HELLO | {"meet": "n1", "token": False, "nonce": "n"}, "t": 1.0})
    return dice.choice(
        [
            dice.randbytes(dice.randrange(1, 4000)),
            f"{hello}\n".encode() + dice.choice(LINES) + b"\n",
            dice.choice(LINES) + b"\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00" + dice.randbytes(300),
            b"",
            b"[" * 50_000 + b"\n",
            b"x" * 200_000,
        ]
    )


def connected(host: str, port: int) -> socket.socket:
    """Once somebody listens there."""
    until = time.monotonic() + 30.0
    while True:
        try:
            return socket.create_connection((host, port), timeout=20)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def come(host: str, port: int, numbers: range, held: list[socket.socket]) -> None:
    for number in numbers:
        dice = random.Random(number)
        line = connected(host, port)
        line.settimeout(0.5)
        try:
            line.sendall(words(dice))
            if dice.random() < 0.2:
                line.recv(200)
        except OSError:
            pass  # it was sent away
        if dice.random() < 0.02:
            held.append(line)
        else:
            line.close()


def serve(port: int) -> None:
    listener = socket.create_server(("", port), backlog=128)
    print("ready", flush=True)
    for number in range(1 << 20):
        line, _ = listener.accept()
        dice = random.Random(number)
        try:
            line.sendall(dice.choice([b"", BANNER]) + words(dice))
        except OSError:
            pass
        line.close()


def main(host: str, port: int, count: int) -> None:
    held: list[socket.socket] = []
    connected(host, port).close()
    threads = [
        threading.Thread(target=come, args=(host, port, range(n, count - 1, 4), held))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(count)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
