"""`preflight plan`: who this process is taken for, what `run` would do here, and nothing done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.command import planted, preflight
from support.launcher_environments import processes
from support.terminal import ASCII_ENV, PREFLIGHT, in_pipe, on_terminal

from preflight.registry import load

COUNTED = ("--nproc", "2")
"""So that nobody need be asked how many GPUs there are."""


def recorded(name: str, number: int = 0) -> Mapping[str, str]:
    return processes(name)[number].environ


def plan(*args: str, env: Mapping[str, str] | None = None) -> Any:
    """The plan as JSON."""
    done = preflight("plan", *args, "-o", "json", env=env)
    assert (done.code, done.err) == (0, "")
    return done.document


def step(document: Any, check_id: str) -> Any:
    (found,) = (s for s in document["checks"] if s["id"] == check_id)
    return found


def test_the_document_has_a_shape_that_stays() -> None:
    document = plan(*COUNTED)
    assert {name: type(value).__name__ for name, value in document.items()} == {
        "document": "str",
        "version": "int",
        "tool": "dict",
        "world": "dict",
        "meeting": "dict",
        "settings": "dict",
        "checks": "list",
        "effects": "list",
        "asked": "str",
    }
    assert set(document["world"]) == {"source", "job", "size", "node", "ranks", "facts"}
    assert set(document["meeting"]) == {"addr", "port", "meets", "leads"}
    names = ("id", "stage", "scope", "level", "runs", "why", "budget", "needs", "requires")
    assert all(set(s) == {*names, "touches"} for s in document["checks"])
    assert all(set(e) == {"what", "by"} for e in document["effects"])
    assert all(set(s) == {"value", "from"} for s in document["settings"].values())
    assert (document["document"], document["version"]) == ("plan", 1)


def test_every_check_is_in_it_in_the_order_in_which_they_run() -> None:
    assert [s["id"] for s in plan(*COUNTED)["checks"]] == list(load().checks)


def test_what_it_says_will_run_is_what_run_runs() -> None:
    """At the level that meets nobody, so that this run need not wait for the others."""
    flags = ("--nproc", "1", "--level", "quick", "--skip", "host.cpu")
    would = [s["id"] for s in plan(*flags)["checks"] if s["runs"]]
    done = preflight("run", *flags, "-o", "json")
    ran = [r["id"] for r in done.document["checks"] if r["id"] not in done.document["skipped"]]
    assert ran == would


def test_a_plan_and_a_run_agree_on_who_this_is() -> None:
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "RANK": "0", "WORLD_SIZE": "1"}
    only = ("--only", "env.identity", "-o", "json")
    world = preflight("run", *only, env=env).document["world"]
    planned = plan("--only", "env.identity", env=env)["world"]
    assert planned["facts"] == world["facts"]
    assert (planned["source"], planned["size"]) == (world["source"], world["size"])


def test_settings_say_where_they_are_from() -> None:
    document = plan(*COUNTED, "--deadline", "40s", env={"PREFLIGHT_LEVEL": "deep"})
    assert document["settings"]["nproc"] == {"value": 2, "from": "--nproc"}
    assert document["settings"]["deadline"] == {"value": 40.0, "from": "--deadline"}
    assert document["settings"]["level"] == {"value": "deep", "from": "env PREFLIGHT_LEVEL"}


@pytest.mark.parametrize(
    ("args", "check_id", "why"),
    [
        ((), "net.mesh", "single node, not needed"),
        (("--skip", "net.port"), "net.port", "skipped by you (--skip)"),
        (("--level", "quick"), "world.gloo", "of level standard"),
        (("--only", "env.vars"), "net.port", "not named by --only"),
        (("--only", "net.mesh"), "net.mesh", "single node, not needed"),
    ],
)
def test_why_a_check_is_left_out(args: tuple[str, ...], check_id: str, why: str) -> None:
    found = step(plan(*COUNTED, *args), check_id)
    assert (found["runs"], found["why"]) == (False, why)


def test_with_others_of_the_job() -> None:
    env = recorded("srun-task-a-node", 1)
    document = plan("--nproc", "4", "--timeout", "net.mesh=20s", env=env)
    assert document["world"]["ranks"] == [4, 5, 6, 7]
    assert document["meeting"] == {"addr": "n1", "port": 29500, "meets": True, "leads": False}
    assert (step(document, "net.mesh")["runs"], step(document, "net.mesh")["budget"]) == (True, 20)
    whats = [effect["what"] for effect in document["effects"]]
    assert "n1:29500 is connected to" in whats
    first = plan("--nproc", "4", env=recorded("srun-task-a-node", 0))
    assert first["meeting"]["leads"]
    assert "n1:29500 is listened on, and free again at the end" in [
        effect["what"] for effect in first["effects"]
    ]


def test_below_torchrun_the_port_is_its_stores() -> None:
    for number, told in ((0, "is told of it"), (3, "is asked where")):
        document = plan(env=recorded("torchrun-static", number))
        (effect,) = (e for e in document["effects"] if "torchrun's store" in e["what"])
        assert f"n1:29500 {told}" in effect["what"]


def test_level_quick_meets_nobody() -> None:
    document = plan("--nproc", "4", "--level", "quick", env=recorded("srun-task-a-node", 1))
    assert not document["meeting"]["meets"]
    named = plan(
        "--nproc",
        "4",
        "--level",
        "quick",
        "--only",
        "rdzv.store",
        env=recorded("srun-task-a-node", 1),
    )
    assert step(named, "rdzv.store")["why"] == "not run at --level quick (needs other nodes)"


def test_what_a_run_would_write_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = preflight("plan", *COUNTED, "-o", f"json={file}", "-o", f"junit={tmp_path}/r.xml")
    assert f"{file} is written" in done.out
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_run(tmp_path: Path) -> None:
    """Every observe() of this copy leaves a trace."""
    package = planted(tmp_path)
    trace = tmp_path / "trace"
    observer = package / "preflight/engine/tasks.py"
    text = observer.read_text()
    assert "\ndef perform(" in text
    observer.write_text(
        text.replace("    values = dict(", f"    open({str(trace)!r}, 'a')\n    values = dict(", 1)
    )
    assert preflight("run", "--nproc", "1", "--only", "host.limits", package=package).code == 0
    assert trace.exists()
    trace.unlink()
    assert preflight("plan", "--nproc", "1", package=package).code == 0
    assert not trace.exists()


def test_it_says_when_a_worker_had_to_count_the_gpus() -> None:
    assert plan()["asked"] == "how many GPUs this node has"
    assert plan(env={"CUDA_VISIBLE_DEVICES": "0,1"})["asked"] == ""
    assert plan(*COUNTED)["asked"] == ""
    assert "a worker was asked how many GPUs this node has" in preflight("plan").out


def test_a_batch_script_is_told_that_it_is_one_machine_of_several() -> None:
    done = preflight("plan", env=recorded("sbatch-script"))
    assert "nobody: this machine alone, of a job of 2 nodes" in done.out
    assert "nodes of job  2 · env SLURM_JOB_NUM_NODES" in done.out


def test_one_task_a_node_is_told_of_the_other_gpus() -> None:
    env = recorded("srun-task-a-node")
    said = "GPUs here     4 · env SLURM_GPUS_ON_NODE · --nproc 4 would be one rank for each"
    assert said in preflight("plan", env=env).out
    assert "GPUs here" not in preflight("plan", "--nproc", "4", env=env).out
    assert "GPUs here" not in preflight("plan", env=recorded("srun-task-a-rank")).out


def test_a_check_that_can_not_be_loaded(tmp_path: Path) -> None:
    package = planted(tmp_path, host_broken="import nothing_of_this_name\n")
    found = preflight("plan", *COUNTED, "-o", "json", package=package).document
    assert "could not be loaded: ModuleNotFoundError" in step(found, "host.broken")["why"]


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (("--only", "net.prot"), {}, "net.port"),
        (("--nodes", "2"), {}, "--node-rank"),
        (("--nproc", "8"), dict(recorded("srun-task-a-rank")), "leave --nproc out"),
        ((), dict(recorded("indexed-job", 1)), "give --nodes"),
        (("--exit", "wrold"), {}, "did you mean 'world'?"),
        (("--hosts", "n[1-2]"), {}, "a plan is of one place"),
    ],
)
def test_usage(args: tuple[str, ...], env: dict[str, str], said: str) -> None:
    done = preflight("plan", *args, env=env)
    assert (done.code, done.out) == (2, "")
    assert said in done.said
    assert done.said.count("\n") == 0


def test_secrets_of_the_environment_are_not_in_it() -> None:
    secret = "hf_abcdefghijklmnopqrstuvwx"
    env = {"TORCHELASTIC_RUN_ID": f"run-{secret}", "RANK": "0", "WORLD_SIZE": "1"}
    for more in ((), ("-o", "json")):
        done = preflight("plan", *more, env=env)
        assert done.code == 0
        assert secret not in done.out
        assert "run-***" in done.out


def test_bytes_that_are_no_text_and_what_a_terminal_would_obey() -> None:
    raw = b"env://\xff\x1b[31m"
    environ = {**os.environb, b"TORCHELASTIC_RUN_ID": raw, b"RANK": b"0", b"WORLD_SIZE": b"1"}
    for more in ((), ("-o", "json")):
        done = subprocess.run(
            [sys.executable, "-m", "preflight", "plan", *more],
            env=environ,
            capture_output=True,
            timeout=60,
            check=True,
        )
        assert b"\x1b" not in done.stdout
        done.stdout.decode()
    json.loads(done.stdout)


# --- the screen ---


@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_is_longer_than_the_screen(columns: int) -> None:
    env = {**recorded("srun-task-a-node", 1), "PREFLIGHT_NPROC": "4"}
    shown = on_terminal([*PREFLIGHT, "plan"], columns, env)
    assert shown.code == 0
    words = " ".join(" ".join(shown.lines).split())
    for check_id in load().checks:
        assert check_id in words
    assert ("default", True) in shown.styles("identity")
    piped = in_pipe([*PREFLIGHT, "plan", "--color", "never"], env).stdout.decode()
    assert max(map(len, piped.splitlines())) <= 98


def test_laid_out_lines_fit() -> None:
    """What a terminal of any width is given, before it would fold it."""
    env = {**recorded("srun-task-a-node", 1), "PREFLIGHT_NPROC": "4"}
    for columns in (40, 60, 80, 120):
        raw = on_terminal([*PREFLIGHT, "plan", "--color", "never"], columns, env).raw
        assert max(map(len, raw.replace("\r", "").split("\n"))) <= columns


def test_a_pipe_has_no_colours_and_ascii_no_other_letters() -> None:
    env = {"PREFLIGHT_NPROC": "2"}
    assert b"\x1b" not in in_pipe([*PREFLIGHT, "plan"], env).stdout
    assert in_pipe([*PREFLIGHT, "plan", "--ascii"], env).stdout.isascii()
    assert in_pipe([*PREFLIGHT, "plan"], env | ASCII_ENV).stdout.isascii()
