"""Several nodes in one test: their names and edges for the tables of judges, and peers that talk to
each other in the test's own process as the agents relay it over the meeting. Sockets are real."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from preflight.model import Node, Status, Topology
from support.cases import Case, topology

T = TypeVar("T")

Numbers = tuple[int, int]
"""A directed edge between nodes by their numbers."""


def nodes(count: int) -> Topology:
    """n0 … with two ranks each."""
    return topology(2 * count, nodes=tuple(Node(f"n{i}", (2 * i, 2 * i + 1)) for i in range(count)))


def case(
    name: str,
    count: int,
    saw: Any,
    code: str | None = None,
    status: Status | None = None,
    subject: str | None = None,
) -> Case:
    """A row about so many nodes."""
    return Case(name, saw, code, status, topology=nodes(count), subject=subject)


def every(count: int, what: T) -> dict[Numbers, T]:
    return {(a, b): what for a in range(count) for b in range(count) if a != b}


def into(node: int, count: int, what: T) -> dict[Numbers, T]:
    return {(a, node): what for a in range(count) if a != node}


def out_of(node: int, count: int, what: T) -> dict[Numbers, T]:
    return {(node, b): what for b in range(count) if b != node}


class Relay:
    """What all have said so far. `tamper(number, topic, value)` may change it on the way."""

    def __init__(self, count: int, tamper: Callable[[int, str, Any], Any] | None = None) -> None:
        self.count = count
        self.tamper = tamper or (lambda number, topic, value: value)
        self.said: dict[tuple[int, str], dict[int, Any]] = {}
        self.changed = threading.Condition()

    def peers(self, number: int) -> Voice:
        return Voice(self, number)


class Voice:
    """One of them."""

    def __init__(self, relay: Relay, number: int) -> None:
        self.relay = relay
        self.number = number

    def say(self, topic: str, value: Any = None, to: Sequence[int] | None = None) -> None:
        value = self.relay.tamper(self.number, topic, value)
        with self.relay.changed:
            for other in range(self.relay.count) if to is None else to:
                self.relay.said.setdefault((other, topic), {})[self.number] = value
            self.relay.changed.notify_all()

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        heard = self.relay.said.setdefault((self.number, topic), {})
        with self.relay.changed:
            self.relay.changed.wait_for(lambda: len(heard) >= count, seconds)
            return dict(heard)


def together(count: int, one: Callable[[int], T], seconds: float = 30.0) -> list[T]:
    """one(0) … one(count - 1), each in a thread, all at once."""
    found: dict[int, T] = {}
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            found[number] = one(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    if failed:
        raise failed[0]
    assert len(found) == count, "somebody is still busy"
    return [found[n] for n in range(count)]
