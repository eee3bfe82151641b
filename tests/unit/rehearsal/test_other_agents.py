"""Whether ranks of other machines are stuck: what is asked of one rank, and what it answers."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

from preflight.rehearsal.other_agents import OtherAgents

PID = 7


def answering(path: Path, answers: list[dict[str, Any]]) -> list[str]:
    """A rank's inside that gives these answers; the questions, as they come."""
    asked: list[str] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        with listener:
            for answer in answers:
                line, _ = listener.accept()
                with line:
                    asked.append(line.recv(64).decode().strip())
                    line.sendall(json.dumps(answer).encode())

    threading.Thread(target=serve, daemon=True).start()
    return asked


def test_what_was_added_is_taken_away_until_it_is(tmp_path: Path) -> None:
    standing = {"stand": [2, 1], "added": [2, 1]}
    gone = {"stand": [0, 0], "added": [0, 0]}
    # the first one that takes it away comes while the thread before it is still at work
    asked = answering(tmp_path / "sock", [standing, standing, gone])
    elsewhere, sockets = OtherAgents(), {PID: str(tmp_path / "sock")}
    assert not elsewhere.stand_too(sockets, 2, waits=True, world=4)
    assert elsewhere.told
    assert not elsewhere.stand_too(sockets, 0, waits=False, world=4)
    assert elsewhere.told, "it is still there: another machine would count it"
    assert not elsewhere.stand_too(sockets, 0, waits=False, world=4)
    assert not elsewhere.told
    assert asked == ["stand 2 1", "stand 0 0", "stand 0 0"]


def test_one_answer_that_all_stand_is_not_enough(tmp_path: Path) -> None:
    answering(tmp_path / "sock", [{"stand": [4, 1], "added": [2, 1]}] * 2)
    elsewhere, sockets = OtherAgents(), {PID: str(tmp_path / "sock")}
    assert not elsewhere.stand_too(sockets, 2, waits=True, world=4)
    assert not elsewhere.stand_too(sockets, 2, waits=True, world=4)


def test_a_rank_that_is_gone_or_makes_no_sense(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [{"stand": None}, {"stand": ["4", 1]}, {}, {"stand": [4]}]
    answering(tmp_path / "sock", odd)
    elsewhere, sockets = OtherAgents(), {PID: str(tmp_path / "sock")}
    for _ in odd:
        assert not elsewhere.stand_too(sockets, 2, waits=True, world=4)
    assert not elsewhere.stand_too({PID + 1: "/nowhere"}, 2, waits=True, world=4)
