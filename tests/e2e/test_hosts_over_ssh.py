"""A run from one place on hosts that real ssh leads to, in the lab."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.world import LIGHT, machines
from lab import faults, ssh
from lab.host import Ended, Lab
from lab.running import Running

pytestmark = pytest.mark.root

PREFLIGHT = str(Path(sys.executable).with_name("preflight"))
THREE = ("run", "--hosts", "n[1-3]", "--nproc", "2", *LIGHT)
ENDS_SECONDS = 100.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if why := ssh.lacking():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    made = tmp_path_factory.mktemp("ssh")
    ssh.keys(made)
    return made


@pytest.fixture(scope="module")
def daemons() -> dict[str, Running]:
    return {}


@pytest.fixture(scope="module")
def lab(folder: Path, daemons: dict[str, Running]) -> Iterator[Lab]:
    """Three hosts, and n4 from where they are called."""
    with Lab(*machines(4)) as made:
        for name in ("n1", "n2", "n3"):
            daemons[name] = ssh.lets_in(made[name], folder)
        ssh.calls(made["n4"], folder)
        yield made


def called(lab: Lab, *args: str) -> Ended:
    running = lab["n4"].begin([PREFLIGHT, *args], cwd="/tmp")
    ended = running.wait(ENDS_SECONDS)
    running.end()
    return ended


def left(lab: Lab) -> list[str]:
    """Agents that are still there after a moment."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = [
            f"{host.machine.name}: {text}"
            for host in lab
            for text in host.processes().values()
            if re.search(r"preflight (agent|run)", text)
        ]
        if not found:
            break
        time.sleep(0.1)
    return found


def test_hosts_over_ssh(lab: Lab) -> None:
    ended = called(lab, *THREE, "-o", "json")
    assert ended.code == 0, (ended.out, ended.err)
    report = json.loads(ended.out)
    assert (report["verdict"], report["world"]["met"]) == ("ready", 6)
    assert [node["name"] for node in report["world"]["nodes"]] == ["n1", "n2", "n3"]
    assert left(lab) == []


@pytest.mark.parametrize("name", ["n1", "n3"])
def test_a_host_that_lets_nobody_in(
    name: str, lab: Lab, daemons: dict[str, Running], folder: Path
) -> None:
    """Be it the host of the meeting, or another: one diagnosis, which is ssh's."""
    with ssh.closed(lab[name], daemons[name], folder):
        ended = called(lab, *THREE, "--arrive", "6s")
    assert ended.code == 5, (ended.out, ended.err)
    words = " ".join(ended.out.split())
    assert f"nothing came from {name} · ssh: connect to host {name} port 22: Connection" in words
    others = [n for n in ("n1", "n2", "n3") if n != name]
    assert f"do now preflight run --hosts 'n[{others[0][1]}" in words
    assert left(lab) == []


def test_a_job_network_that_is_broken(lab: Lab) -> None:
    """Every part comes over ssh, and all of them are one report."""
    with lab["n1"].broken(faults.drop_port(29500)):
        ended = called(lab, *THREE, "--arrive", "6s", "-o", "json")
    assert ended.code == 3, (ended.out, ended.err)
    report = json.loads(ended.out)
    assert report["world"]["met"] == 6
    (finding,) = report["findings"]
    assert (finding["check"], finding["code"]) == ("rdzv.reach", "dropped")
    assert finding["subjects"][0]["node"] == "n1"
    assert left(lab) == []


def test_agents_end_with_who_started_them(lab: Lab) -> None:
    """Killed here, where nothing can be said any more: ssh closes what they live by."""
    with lab["n1"].broken(faults.drop_port(29500)):
        running = lab["n4"].begin([PREFLIGHT, *THREE], cwd="/tmp")
        until = time.monotonic() + 60
        while time.monotonic() < until and not all(
            any("preflight agent" in text for text in lab[name].processes().values())
            for name in ("n1", "n2", "n3")
        ):
            time.sleep(0.1)
        running.kill()
        assert running.wait(10).code == -9
        assert left(lab) == []
