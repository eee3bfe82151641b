"""`preflight demo` as a user has it: no cluster, no root."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from lab.host import missing
from support.command import preflight

from preflight.cli.demo import names


def test_it_lists_all_of_them() -> None:
    done = preflight("demo")
    assert (done.code, done.err) == (0, "")
    assert all(f" {name} " in done.out for name in names())


@pytest.mark.parametrize("name", ["port-held", "firewall", "512-nodes", "rank-sleeps"])
def test_it_shows_one(name: str, tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    done = preflight("demo", name, "-o", f"html={page}")
    assert (done.code, done.err) == (0, "")
    assert " NOT READY " in done.out
    assert preflight("show", str(page)).out.splitlines()[2:8] == done.out.splitlines()[2:8]


def test_it_is_quick() -> None:
    """Of CPU: other tests run on this machine."""
    preflight("demo", "firewall")
    before = os.times()
    began = time.monotonic()
    assert preflight("demo", "firewall").code == 0
    after = os.times()
    used = sum(after[2:4]) - sum(before[2:4])
    assert min(used, time.monotonic() - began) < 0.5


def test_one_that_is_not_there() -> None:
    done = preflight("demo", "firewal")
    assert done.code == 2
    assert "did you mean 'firewall'" in done.err or "firewall" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.torch
def test_live_breaks_hosts_and_leaves_nothing() -> None:
    if why := missing("nft"):
        pytest.skip(why)
    # of its own: other tests have hosts in /tmp; short, for the sockets in it
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        done = preflight("demo", "firewall", "--live", within=110, env={"TMPDIR": folder})
        left = [name for name in os.listdir(folder) if name.startswith("preflight-lab")]
    assert done.code == 3, done.err
    assert "net.mesh:inbound-closed" in done.out
    assert "torchrun, on the same hosts:" in done.out
    assert done.left == ()
    assert left == []


def test_live_knows_which_it_can() -> None:
    done = preflight("demo", "sick-gpu", "--live")
    assert done.code == 2
    assert "demo --live knows " in done.err
