"""Questions that a small program on a machine of the lab answers, to see what is true there.

ask(lab["n1"], "connect", "10.77.0.2", 29500) == "ECONNREFUSED"
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from lab import faults
from lab.host import Command, Host, Lab, Machine, missing
from lab.running import Running

N1, N2, N3, N4 = (f"10.77.0.{n}" for n in (1, 2, 3, 4))
OPEN, OTHER = 29500, 41000
TIMED_OUT = "timeout"

# what a probe runs: functions whose results are compared, each with a short wait
PROBES = """
import errno, json, os, select, socket, struct, sys, threading, time

def dial(address, port, wait=0.4):
    try:
        return socket.create_connection((address, port), wait)
    except TimeoutError:
        return "timeout"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))

def connect(address, port):
    got = dial(address, port)
    return got if isinstance(got, str) else "ok"

def connects(edges):
    got = dict.fromkeys(range(len(edges)))
    def one(n):
        got[n] = connect(*edges[n])
    threads = [threading.Thread(target=one, args=(n,)) for n in got]
    [each.start() for each in threads]
    [each.join() for each in threads]
    return list(got.values())

def keep(address, port, count):
    kept = [dial(address, port) for _ in range(count)]
    return [each if isinstance(each, str) else "ok" for each in kept]

def echo(address, port, size, wait=1.0):
    line, sent, got = dial(address, port, wait), 0, 0
    began, data = time.monotonic(), bytes(size)
    line.setblocking(False)
    while got < size:
        if time.monotonic() - began > wait:
            return "timeout"
        reads, writes, _ = select.select([line], [line] if sent < size else [], [], 0.1)
        if writes:
            sent += line.send(data[sent:sent + 65536])
        if reads:
            got += len(line.recv(1 << 20))
    return time.monotonic() - began

def ask(address, port, said, wait=0.4):
    line = dial(address, port)
    try:
        line.sendall(said.encode())
        return line.recv(100).decode("latin-1")
    except TimeoutError:
        return "timeout"
    except ConnectionError:
        return ""  # hung up on what was said

def look_up(name):
    began = time.monotonic()
    try:
        found = socket.getaddrinfo(name, 1, type=socket.SOCK_STREAM)
        said = sorted({each[4][0] for each in found})
    except socket.gaierror as error:
        said = {-2: "EAI_NONAME", -3: "EAI_AGAIN"}.get(error.errno, str(error))
    return said, time.monotonic() - began

def reverse(address):
    return socket.getnameinfo((address, 1), 0)[0]

def owners(address):
    # the MAC addresses that answer who has it
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x806))
    line.bind(("eth0", 0x806))
    line.settimeout(0.3)
    mac = line.getsockname()[4]
    asked = struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + mac + bytes(10) + socket.inet_aton(address)
    line.send(b"\\xff" * 6 + mac + b"\\x08\\x06" + asked)
    found = set()
    try:
        while True:
            frame = line.recv(100)
            if frame[20:22] == b"\\0\\2" and frame[28:32] == socket.inet_aton(address):
                found.add(frame[22:28].hex())
    except TimeoutError:
        return len(found)

def clocks():
    return time.time(), time.monotonic()

def bind(port):
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"

print(json.dumps([globals()[name](*given) for name, *given in json.loads(sys.argv[1])]))
"""


@contextmanager
def four() -> Iterator[Lab]:
    """Four machines; n1 and n2 have echo servers."""
    with Lab(*(Machine(f"n{n}") for n in (1, 2, 3, 4))) as lab:
        for name in ("n1", "n2"):
            for port in (OPEN, OTHER):
                lab[name].break_(faults.echo_server(port))
        yield lab


def possible(*tools: str) -> None:
    """Skips where there can be no lab; in CI there can."""
    if why := missing(*tools):
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


def python(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", source, *arguments]


def probe(machine: Host, *asked: Sequence[object]) -> list[Any]:
    env = {"RES_OPTIONS": "timeout:1 attempts:1"}
    ended = machine.run(python(PROBES, json.dumps(asked)), timeout=20, env=env)
    assert ended.code == 0, ended.err
    answers: list[Any] = json.loads(ended.out)
    return answers


def said(running: Running, word: str) -> None:
    """Wait until it said this."""
    until = time.monotonic() + 20
    while word not in running.out:
        assert time.monotonic() < until, running.ended()
        time.sleep(0.01)


def ask(machine: Host, *asked: object) -> Any:
    return probe(machine, asked)[0]


def connections(lab: Lab, edges: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], str]:
    """What connecting says on each edge, all of them at once."""
    mine = {name: [edge for edge in edges if edge[0] == name] for name, _, _ in edges}
    asked = {name: json.dumps([("connects", [e[1:] for e in each])]) for name, each in mine.items()}
    commands = {name: Command(python(PROBES, words)) for name, words in asked.items()}
    ended = lab.run_all(commands, timeout=20)
    assert all(each.code == 0 for each in ended.values()), ended
    return {
        edge: said
        for name, each in mine.items()
        for edge, said in zip(each, json.loads(ended[name].out)[0], strict=True)
    }
