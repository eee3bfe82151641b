"""SLURM's lists of hosts: folded as SLURM does it, and expanded again by SLURM itself."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.scenarios import NAMES, hostile, judged

from preflight.nodeset import hostlist
from preflight.render import human, slurm_nodes

every_scenario = pytest.mark.parametrize("scenario", NAMES)
needs_scontrol = pytest.mark.skipif(not shutil.which("scontrol"), reason="needs scontrol")


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What scontrol wants to see before it expands a list; no cluster is asked."""
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=none\nSlurmctldHost=localhost\n")
    return path


def expanded(text: str, conf: Path) -> list[str]:
    """The hosts of a list, as SLURM reads it."""
    done = subprocess.run(
        ["scontrol", "show", "hostnames", text],
        env=os.environ | {"SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), text
    return done.stdout.split()


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ((), ""),
        (("gpu1",), "gpu1"),
        (("gpu-b07", "gpu-b19"), "gpu-b[07,19]"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n1", "n01", "n001"), "n[1,01,001]"),
        (("n098", "n099", "n100"), "n[098-100]"),
        (("n1", "head", "n2", "n"), "n[1-2],head,n"),
        (("n1", "n1"), "n1"),
        (("r1n1", "r1n2", "r2n1"), "r1n[1-2],r2n1"),
        # SLURM reads nothing but another bracket behind a bracket
        (("r1n1", "r2n1"), "r1n1,r2n1"),
        (("gpu1.site", "gpu2.site"), "gpu1.site,gpu2.site"),
        (("gpu1-ib", "gpu2-ib"), "gpu1-ib,gpu2-ib"),
        (("10.0.0.1", "10.0.0.2"), "10.0.0.[1-2]"),
        (("7", "8"), "[7-8]"),
        (("n1234567890", "n1234567891"), "n1234567890,n1234567891"),
        # no node of SLURM can be called so, or it would name others
        (("gpu1", "gpu1#2"), "gpu1"),
        (("a,b", "n[1-64]", "-x", "", "a b", "@all", "$(reboot)", "é1", "n1\n"), ""),
    ],
    ids=str,
)
def test_names_are_folded_as_slurm_folds_them(names: tuple[str, ...], wanted: str) -> None:
    assert hostlist(names) == wanted


a_name = st.from_regex(r"[a-c0-9_]{1,2}-?([0-9]{1,3}[a-b.-])?[0-9]{0,4}(-ib|\.x)?", fullmatch=True)
slow = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


@needs_scontrol
@slow
@given(names=st.lists(a_name, min_size=1, max_size=40, unique=True))
def test_slurm_expands_it_to_exactly_these_nodes(names: list[str], conf: Path) -> None:
    assert sorted(expanded(hostlist(names), conf)) == sorted(names)


@needs_scontrol
def test_slurm_expands_many_nodes(conf: Path) -> None:
    names = [f"gpu-{n:05}" for n in range(0, 60_000, 7)] + [f"rack{n}-1.site" for n in range(300)]
    assert sorted(expanded(hostlist(names), conf)) == sorted(names)


def excluding(names: Iterable[str]) -> str:
    return slurm_nodes.render(dataclasses.replace(judged("nodes-64"), exclude=tuple(names)))


@every_scenario
def test_it_is_one_line_or_nothing(scenario: str) -> None:
    of = judged(scenario)
    text = slurm_nodes.render(of)
    assert text == (f"{text.strip()}\n" if of.exclude else "")
    assert text.count("\n") == bool(of.exclude)


@pytest.mark.slow
def test_the_nodes_to_leave_out() -> None:
    assert excluding(["gpu-b07", "gpu-b19"]) == "gpu-b[07,19]\n"
    assert excluding([]) == ""
    assert excluding(["gpu-b07", "gpu-b07#2", "x,gpu-b[01-64]"]) == "gpu-b07\n"


def test_the_line_to_act_on_names_the_same_set() -> None:
    of = dataclasses.replace(judged("nodes-64"), exclude=("r1n1", "r2n1"))
    assert human.do_now(of) == "sbatch --exclude=r1n1,r2n1   and your job script"


@needs_scontrol
@slow
@given(foreign=st.text(alphabet=st.characters(), min_size=1, max_size=20))
def test_a_hostile_name_names_nobody_else(foreign: str, conf: Path) -> None:
    text = slurm_nodes.render(hostile(foreign))
    assert expanded(text.strip(), conf) in ([], [foreign])
