"""Which processes a running job has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import command

from preflight.attach import snapshot
from preflight.domains.job.record import WENT, Calls, Frame
from preflight.rehearsal import procfs
from preflight.rehearsal.history import History, ProcessSample


def test_the_ranks_of_a_launcher_are_found(tmp_path: Path) -> None:
    """Those that were given a RANK, and not what they have started themselves."""
    code = (
        "import os, subprocess, sys, time\n"
        "c = [sys.executable, '-c', 'import os, subprocess, sys, time;"
        'p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]);'
        "time.sleep(60)']\n"
        "p = [subprocess.Popen(c, env={**os.environ, 'RANK': str(r), 'WORLD_SIZE': '2'})"
        " for r in (0, 1)]\n"
        "print(*(q.pid for q in p), flush=True)\n"
        "time.sleep(60)\n"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert launcher.stdout is not None
        ranks = {int(word) for word in launcher.stdout.readline().split()}
        until = time.monotonic() + 10
        while not all(procfs.children(pid) for pid in ranks) and time.monotonic() < until:
            time.sleep(0.05)
        args = {"pid": launcher.pid}
        assert set(snapshot._find_ranks(snapshot._python_processes(args), (), args)) == ranks
        assert {procfs.rank_of(pid) for pid in ranks} == {(0, 2), (1, 2)}
    finally:
        os.killpg(launcher.pid, 9)
        launcher.communicate()


def test_nothing_to_attach_to_is_said_in_a_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "preflight", "attach", "99999999"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "preflight: no Python process of pid 99999999 on this machine\n"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["sleep", "60"], "no Python process"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "is not a torch job"),
    ],
)
def test_what_is_no_job_of_torch_is_a_usage_error(argv: list[str], words: str) -> None:
    process = subprocess.Popen(argv)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "preflight", "attach", str(process.pid)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        process.kill()
        process.wait()
    assert ended.returncode == 2
    assert words in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_anything_was_seen_is_no_usage_error(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "torch.py").touch()
    code = "import time, torch; print(flush=True); time.sleep(60)"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "RANK": "0", "WORLD_SIZE": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            looking = command.start("attach", str(process.pid)).listening()
            time.sleep(1.0)  # it looks for six seconds
            looking.process.send_signal(number)
            done = looking.end()
        finally:
            process.kill()
    assert done.code == 128 + number
    assert done.said == f"preflight: {number.name} before the job was looked at"
    assert not done.left


API = "/venv/site-packages/torch/distributed/distributed_c10d.py"


def met(*function: str, waits: tuple[int, ...], state: str = "S") -> History:
    """A rank that is met in one function at every look, and its main thread's waits."""
    history, switched = History(7, 0.0, inside=False, rank=0, world=2), {7: 0}
    for at, count in enumerate(waits):
        stack = [
            [f, 1, name, f == "t.py"] for f, name in zip((API, "t.py"), function, strict=False)
        ]
        history.add_sample(ProcessSample(float(at), 0.0, 0, state, pulse={"stack": stack}))
        snapshot._note_progress(history, switched, count)
    snapshot._settle(history, float(len(waits)), 3.0)
    return history


@pytest.mark.parametrize(
    ("waits", "moved"),
    [
        ((5, 5, 5, 5, 5, 5), 0.0),
        ((5, 5, 9, 9, 9, 14), 5.0),
        ((100, 200, 300, 400, 500, 600), 0.0),  # it asks every 10 ms
    ],
)
def test_a_call_that_waits_again_is_another_one(waits: tuple[int, ...], moved: float) -> None:
    assert met("all_reduce", "main", waits=waits).moved == moved


def test_one_that_is_stopped_is_in_no_call() -> None:
    assert met("all_reduce", "main", waits=(5,) * 6, state="T").at == "unknown"
    assert met("all_reduce", "main", waits=(5,) * 6).at == "collective"
    assert met("_engine_run_backward", "main", waits=(5,) * 6).at == "collective"


MADE = (Frame(API, 2169, "_new_process_group_helper"), Frame(API, 5863, "new_group"))
OWN = Frame("t.py", 51, "main", own=True)


def making(*names: str, moved: float = 0.0, members: str = "[0, 1]") -> bool:
    """Whether ranks that stand in new_group, each with this name for its group, don't meet."""
    told = [{"name": name, "members": members} for name in names]
    histories = {n: History(n, 0.0, inside=False, stack=(*MADE, OWN)) for n in range(len(names))}
    histories[0].moved = moved
    return snapshot._cross(histories, dict(enumerate(told)), 6.0)


def test_ranks_that_count_a_group_as_another_one_do_not_meet() -> None:
    assert making("2", "1")
    assert not making("2", "2")
    assert not making("2", "1", moved=5.5)
    assert not making("2", "")
    assert not making("2", "1", members="<list at 0x7f>")


def test_a_group_that_is_made_has_its_number_and_line() -> None:
    told = {"name": "2", "members": "[0, 1]"}
    at_init = Calls(1, 2, "stuck", "init", 6.0, 6.0, stack=(*MADE, OWN))
    made = snapshot._from_outside(at_init, told, moves=False)
    assert [(g.name, g.ranks, g.made) for g in made.groups] == [("2", (0, 1), OWN)]
    first = Calls(1, 2, "stuck", "init", 6.0, 6.0, stack=(MADE[0], OWN))
    assert snapshot._from_outside(first, told, moves=False).groups == ()


def test_a_process_that_has_ended_meanwhile_is_not_py_spys_problem() -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    assert snapshot._problem(History(ended.pid, 0.0), "py-spy: no") == WENT
    assert snapshot._problem(History(os.getpid(), 0.0), "py-spy: no") == "py-spy: no"
