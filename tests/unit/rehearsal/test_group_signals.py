"""Signals that reached all of a process group are told from those that came to us alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.command import REPOSITORY

PROGRAM = """
import os, signal, time
from preflight.rehearsal.group_signals import PATIENCE, GroupSignals

os.setpgid(0, 0)
signal.signal(signal.SIGUSR1, lambda *_: None)
signals = GroupSignals()
us, all_of_it = os.getpid(), os.getpgrp()

def told(*senders):
    for send, whom in senders:
        send(whom, signal.SIGUSR1)
    time.sleep(0.1)
    answers = [signals.has(signal.SIGUSR1) for _ in senders]
    time.sleep(PATIENCE + 0.1)
    return answers

print(told((os.kill, us)))
print(told((os.killpg, all_of_it)))
print(told((os.kill, us), (os.killpg, all_of_it)))
print(told((os.kill, us)))
signals.close()
"""


def test_one_to_us_and_one_to_all_at_once_are_one() -> None:
    assert printed(PROGRAM) == ["[False]", "[True]", "[True, True]", "[False]"]


HANDLERS = """
import os, signal, subprocess, sys, time
from preflight.rehearsal.command import Running

os.setpgid(0, 0)
sent = []
Running._signal = lambda self, number: sent.append(signal.Signals(number).name)
running = Running(["sleep", "20"], os.environ)
words = sys.argv[1].format(us=os.getpid())
subprocess.Popen(["sh", "-c", words], start_new_session=True).wait()
time.sleep(2.5)
print(*sent)
running.close()
"""


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("kill -USR1 {us}; sleep 0.3; kill -USR2 {us}", ["SIGUSR1 SIGUSR2"]),
        ("kill -USR1 {us}; sleep 0.3; kill -USR1 -{us}", [""]),
        ("kill -USR1 {us}; sleep 0.3; kill -USR2 -{us}", ["SIGUSR1"]),
    ],
)
def test_one_that_comes_while_another_is_looked_for_waits(words: str, sent: list[str]) -> None:
    """Else its handler, in the middle of the other's, takes what that one waits for."""
    assert printed(HANDLERS, words) == sent


def printed(program: str, *args: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
