"""Ctrl-C, or a scheduler's SIGTERM, during a rehearsal: what was seen until then is judged."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from support import command

pytestmark = pytest.mark.torch

SCRIPT = """\
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(10):
    if dist.get_rank() == 1 and step == 5:
        print("sleeping", flush=True)
        time.sleep(600)
    dist.all_reduce(torch.ones(8))
"""
LINE = "train.py:9"


def test_who_was_waited_for_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    torchrun = Path(sys.executable).with_name("torchrun")
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        running = command.start(
            *("rehearse", "--stuck", "90s", "-o", f"json={tmp_path}/report.json", "--"),
            *(torchrun, "--standalone", "--nproc-per-node=2", script),
            stdout=out,
            stderr=err,
        )
        until = time.monotonic() + 60
        while "sleeping" not in (tmp_path / "out").read_text() and time.monotonic() < until:
            time.sleep(0.1)
        # job.collectives says who is waited for after 10 s
        until = time.monotonic() + 90
        while _waited(tmp_path / "err") < 12 and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(running.process.pid, signal.SIGINT)
        done = running.end(40)
    assert done.code == 128 + signal.SIGINT, (tmp_path / "err").read_text()
    assert not done.left
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["interrupted"] == "SIGINT"
    (found,) = report["findings"]
    assert (found["check"], found["code"]) == ("job.collectives", "rank-busy")
    assert found["subjects"][0]["ranks"] == [1]
    assert LINE in found["saw"]
    assert {row["id"] for row in report["checks"]} >= {"job.ranks", "job.collectives", "job.pace"}


def _waited(err: Path) -> int:
    """Seconds for which nothing has gone on, as the live line has it."""
    found = re.findall(r"nothing for (\d+) s, waiting: rank 0", err.read_text())
    return int(found[-1]) if found else 0


STUBBORN = """\
import signal, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
"""


def test_a_command_that_ignores_sigterm_costs_its_ten_seconds_once(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        running = command.start(
            *("rehearse", "--", sys.executable, "-c", STUBBORN), stdout=out, stderr=out
        )
        until = time.monotonic() + 60
        while b"deaf" not in (tmp_path / "out").read_bytes() and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(running.process.pid, signal.SIGTERM)
        began = time.monotonic()
        done = running.end(40)
    assert done.code == 128 + signal.SIGTERM
    assert not done.left
    assert time.monotonic() - began < 18


COUNTS = """\
import signal, time

times = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: times.append(1))
print("ready", flush=True)
until = time.monotonic() + 60
while not times and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(2)
print("times:", len(times), flush=True)
"""


WARNED = """\
import signal, time

got = []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, frame: got.append(number))
print("ready", flush=True)
until = time.monotonic() + 60
while len(got) < 2 and time.monotonic() < until:
    time.sleep(0.05)
print("got:", *map(int, got), flush=True)
"""


def test_the_warning_of_a_scheduler_reaches_the_command(tmp_path: Path) -> None:
    """It saves its state then, and goes on."""
    with (tmp_path / "out").open("wb") as out:
        words = ("rehearse", "--", sys.executable, "-c", WARNED)
        running = command.start(*words, stdout=out, stderr=out)
        until = time.monotonic() + 60
        while b"ready" not in (tmp_path / "out").read_bytes() and time.monotonic() < until:
            time.sleep(0.1)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(running.process.pid, number)
            time.sleep(0.3)
        done = running.end(60)
    said = (tmp_path / "out").read_text()
    assert f"got: {int(signal.SIGUSR1)} {int(signal.SIGUSR2)}" in said
    assert done.code == 0, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
@pytest.mark.parametrize("whom", ["us", "our group", "us and our group"])
def test_a_signal_reaches_the_command_once(number: int, whom: str, tmp_path: Path) -> None:
    """Slurm's and kill's goes to all of the group, that of timeout(1) to us and then to all."""
    with (tmp_path / "out").open("wb") as out:
        words = ("rehearse", "--", sys.executable, "-c", COUNTS)
        running = command.start(*words, stdout=out, stderr=out, start_new_session=True)
        until = time.monotonic() + 60
        while b"ready" not in (tmp_path / "out").read_bytes() and time.monotonic() < until:
            time.sleep(0.1)
        if whom != "our group":
            os.kill(running.process.pid, number)
        if whom != "us":
            os.killpg(running.process.pid, number)
        done = running.end(60)
    said = (tmp_path / "out").read_text()
    assert re.findall("times: .*", said) == ["times: 1"], said
    assert not done.left


@pytest.mark.parametrize("stdin", ["the terminal", "nothing"])
def test_ctrl_c_reaches_the_command_once(stdin: str) -> None:
    """The terminal sends it to both of us, whatever stdin is."""
    pid, main = pty.fork()
    if pid == 0:
        if stdin == "nothing":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        words = [sys.executable, "-m", "preflight", "rehearse", "-q", "--"]
        os.execv(sys.executable, [*words, sys.executable, "-c", COUNTS])
    text, typed = b"", False
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            text += os.read(main, 65536)
        except OSError:
            break
        if b"ready" in text and not typed:
            os.write(main, b"\x03")
            typed = True
    os.close(main)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert re.findall(rb"times: (\d+)", text) == [b"1"]
    assert status == 130
