"""Signals that reached all of a process group are told from those that came to us alone."""

from __future__ import annotations

import os
import subprocess
import sys

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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["[False]", "[True]", "[True, True]", "[False]"]
