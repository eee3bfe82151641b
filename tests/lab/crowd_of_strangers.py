"""A crowd of hostile connections to HOST PORT, COUNT of them; or `serve PORT COUNTED`, a hostile
host that writes into a file how many have come: at PORT it lets nobody in, at the next one all."""

from __future__ import annotations

import json
import random
import select
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
TOKEN = BANNER.replace(b"false", b"true")
WELCOME = b'{"welcome":[1.0,1.1,1.2],"proof":"00"}\n'
SEAT = {"node": "n2", "number": 1, "nodes": 2, "ranks": [1], "voice": True, "met": 2, "size": 2}
ODD = (
    None,
    True,
    -1,
    1 << 63,
    10**400,
    0.5,
    "",
    "\x1b[2J",
    "é",
    "\ud800",
    [],
    {},
    "x" * 3000,
    [[]],
)
"""In the place of what a guest expects."""


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


def told(dice: random.Random) -> bytes:
    """What a hostile host says to a guest that it has let in."""
    odd = dice.choice(ODD)
    seat = SEAT | {dice.choice(list(SEAT)): odd}
    over = {"verdict": "ready", "exit": 0, "own": 0} | {dice.choice(["exit", "own", "line"]): odd}
    lines: list[object] = [
        {"seat": seat},
        {"seat": SEAT},
        {"start": dice.choice(["rdzv.reach", "net.mesh", "no.such", "../x", odd])},
        {"want": [odd] * 40},
        {"said": ["net.mesh", dice.choice([0, 1, 1 << 40]), "listen", odd, None]},
        {"said": ["agree.env", 0, "\U0001f600" + "a" * 100_000, [[]] * 9000, [0, 1]]},
        {"pong": [odd, 1.0, odd]},
        {"over": over},
        {"over": odd},
    ]
    floods = [b'{"pong":[1,1,1]}\n' * 20_000, b"x" * 17_000_000, b'{"start":"net.mesh"}\n' * 5000]
    made = [json.dumps(line).encode() + b"\n" for line in dice.choices(lines, k=6)]
    return WELCOME + b"".join(made) + dice.choice([b"", b"", words(dice), dice.choice(floods)])


def drip(line: socket.socket, data: bytes) -> None:
    """A byte now and then."""
    for number in range(len(data)):
        line.sendall(data[number : number + 1])
        time.sleep(0.2)


def answer(line: socket.socket, number: int, lets_in: bool) -> None:
    dice = random.Random(number)
    line.settimeout(5.0)
    try:
        if lets_in:
            line.sendall(BANNER)
            line.recv(65536)
            line.sendall(told(dice))
            time.sleep(dice.choice([0.0, 0.5, 30.0]))
        elif dice.random() < 0.02:
            drip(line, BANNER + words(dice)[:50])
        else:
            line.sendall(dice.choice([b"", BANNER, TOKEN]) + words(dice))
            if dice.random() < 0.3:
                line.recv(65536)
                line.sendall(dice.choice(LINES) + b"\n")
    except OSError:
        pass  # it has gone
    line.close()


def serve(port: int, counted: str) -> None:
    listeners = {socket.create_server(("", port + more), backlog=512): more for more in (0, 1)}
    print("ready", flush=True)
    number = 0
    while True:
        for listener in select.select(list(listeners), [], [])[0]:
            line, _ = listener.accept()
            number += 1
            Path(counted).write_text(str(number))
            given = (line, number, bool(listeners[listener]))
            threading.Thread(target=answer, args=given, daemon=True).start()


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
        serve(int(sys.argv[2]), sys.argv[3])
    else:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
