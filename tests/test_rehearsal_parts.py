"""The parts of a rehearsal that need no command: flags, the live line, py-spy's answers, the end of
what was started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from preflight.attach import run as attached
from preflight.domains.job.record import (
    Calls,
    Collective,
    Command,
    Frame,
    Group,
    Life,
    Record,
    Rehearsed,
)
from preflight.model import PreflightError
from preflight.rehearsal import aggregate as gathered
from preflight.rehearsal import procfs as processes
from preflight.rehearsal import pyspy
from preflight.rehearsal import run as rehearse
from preflight.rehearsal import workdir as folder
from preflight.rehearsal.command import variables
from preflight.rehearsal.history import History, Look

TOLD: dict[str, Any] = {
    "seconds": 12.3,
    "alive": 4,
    "starting": 0,
    "world": 4,
    "steps": [17, 18],
    "collectives": [40, 40],
    "rate": 33.5,
    "gpu": 0,
    "cpu": 2.04,
    "rss": 3 << 30,
    "shm": 0,
    "workers": 0,
    "waiting": [],
    "quiet": 0.3,
}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "12 of 60 s · 4/4 ranks · 17-18 steps · 40 collectives, 33.5/s · 2.0 CPUs · 3.0 GiB"),
        ({"workers": 8}, "8 loader workers"),
        ({"gpu": 2 << 30}, "2.0 GiB on GPUs"),
        ({"starting": 2, "alive": 2}, "2/4 ranks · 2 starting"),
        ({"shm": 64 << 20}, "/dev/shm +64 MiB"),
        ({"waiting": [0, 2], "quiet": 9.0}, "nothing for 9 s, waiting: rank 0, 2"),
    ],
)
def test_the_live_line(changes: dict[str, Any], wanted: str) -> None:
    assert wanted in rehearse.line({**TOLD, **changes}, 60.0)


def test_what_the_flags_say() -> None:
    asked = rehearse.terms(["python", "x.py"], "2m", None, "5s", stop_when_ok=True)
    assert (asked.seconds, asked.stuck, asked.steps) == (120.0, 5.0, rehearse.ENOUGH)
    assert rehearse.terms(["x"], None, 7, None, stop_when_ok=True).steps == 7
    for words, for_ in (([""], None), (["x"], "soon"), (["x"], "0s")):
        with pytest.raises(PreflightError):
            rehearse.terms(words, for_, None, None, stop_when_ok=False)


def test_secrets_of_a_command_line_are_not_shown() -> None:
    words = ["x.py", "--api-key", "abc", "--hf-token=abc", "--lr", "0.1", "hf_" + "a" * 30, "k"]
    shown = rehearse.without_secrets(words)
    assert shown == ["x.py", "--api-key", "***", "--hf-token=***", "--lr", "0.1", "***", "k"]
    raised = {"how": "raised", "text": "ValueError: https://me:pass@host/ refused"}
    assert "pass" not in gathered.end_of(raised, 1.0, 1).text


@pytest.mark.parametrize(
    ("environ", "more"),
    [
        ({}, {"PYTHONPATH": "/w"}),
        ({"PYTHONPATH": "/mine:/other"}, {"PYTHONPATH": "/w:/mine:/other"}),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, {"PYTHONPATH": "/w", "TORCH_FR_BUFFER_SIZE": "2000"}),
        ({"TORCH_FR_BUFFER_SIZE": "500"}, {"PYTHONPATH": "/w"}),
    ],
)
def test_what_is_set_for_the_command(environ: dict[str, str], more: dict[str, str]) -> None:
    assert variables(environ, "/w", "WATCHED") == {"WATCHED": "/w", **more}


def waiting(op: str, why: str = "stuck") -> Rehearsed:
    call = Collective(3, op, "[8] Float", done=False)
    calls = Calls(why=why, at="collective", groups=(Group("0", (0, 1), 3, 2, (call,)),))
    return Rehearsed(Life(Command(("x",), None, why, 9.0)), calls)


@pytest.mark.parametrize(
    ("ranks", "fabric"),
    [
        ((waiting("all_reduce"), waiting("all_reduce")), True),
        ((waiting("all_reduce"), waiting("broadcast")), False),
        ((waiting("all_reduce"),), False),
        ((waiting("all_reduce", "time"), waiting("all_reduce", "time")), False),
        ((waiting("all_reduce"), Rehearsed(Life(Command((), None, "stuck", 9.0)))), False),
    ],
)
def test_the_fabric_is_looked_at_where_all_wait_in_one_call(
    ranks: tuple[Rehearsed, ...], fabric: bool
) -> None:
    assert rehearse._is_the_fabric(Record(ranks)) is fabric


# --- the end of what was started ---


def test_all_that_was_started_is_ended_wherever_it_is(tmp_path: Path) -> None:
    """A child that has left its session and its parent; others are not touched."""
    mark = str(tmp_path)
    environ = {**os.environ, folder.VARIABLE: mark}
    code = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(60)\n"
    subprocess.run([sys.executable, "-c", code], env=environ, timeout=20, check=True)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    own = f"{folder.VARIABLE}={mark}"
    try:
        found = [pid for pid in folder._pids() if folder._is_of(pid, own)]
        assert len(found) == 1
        assert folder.end_all({"folder": mark}, None, None) == []
        assert [pid for pid in folder._pids() if folder._is_of(pid, own)] == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_the_folder_is_ours_alone() -> None:
    made = folder.make(None, None, None)
    try:
        assert os.stat(made).st_mode & 0o777 == 0o700
        assert len(made) < 60, "the path of a socket in it has 107 bytes"
        assert {"sitecustomize.py", "inside.py", "recorder.py"} == set(os.listdir(made))
    finally:
        folder.remove(made, None, None)
    assert not os.path.exists(made)


# --- from outside ---


@pytest.mark.parametrize(
    "told", [b"", b"[", b"{}", b"[1]", b'[{"os_thread_id": 8}]', b'[{"os_thread_id": 7}]']
)
def test_what_pyspy_prints_may_be_anything(told: bytes) -> None:
    assert not pyspy.frames_of(told, 7)


def test_pyspy_tells_the_main_threads_stack(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import time\ndef here():\n    time.sleep(60)\nprint(1, flush=True)\nhere()\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        time.sleep(0.2)
        found, problem = pyspy.stacks([process.pid, 999_999_999])
        assert problem.startswith("py-spy: ")
        assert [(f.function, f.line, f.own) for f in found[process.pid]] == [
            ("here", 3, True),
            ("<module>", 5, True),
        ]
    finally:
        process.kill()
        process.communicate()


def test_a_rank_that_is_seen_from_outside_is_in_the_call_of_its_stack() -> None:
    history = History(1, 0.0, inside=False)
    file = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    stack = [[file, 9, "all_reduce", False], ["/job/t.py", 4, "f", True]]
    history.saw(Look(1.0, 0.0, 0, pulse={"stack": stack}))
    (group,) = gathered.groups_of(history, {})
    assert group.open is not None
    assert (group.open.op, group.open.frame) == ("all_reduce", Frame("/job/t.py", 4, "f", True))


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
        while not all(processes.children(pid) for pid in ranks) and time.monotonic() < until:
            time.sleep(0.05)
        assert set(attached._ranks({"pid": launcher.pid})) == ranks
        assert {processes.rank_of(pid) for pid in ranks} == {(0, 2), (1, 2)}
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


def test_what_is_no_python_is_not_called_well() -> None:
    process = subprocess.Popen(["sleep", "60"])
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
    assert "no Python process" in ended.stderr


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--", "/nonexistent"], 127, "can't be started: No such file"),
        (["--", "/etc/passwd"], 126, "can't be started: Permission denied"),
        (["--for", "soon", "--", "true"], 2, "--for wants a time"),
        (["--slurm", "--", "true"], 2, "No such option: --slurm"),
        (["--only", "job.rank", "--", "true"], 2, "did you mean 'job.ranks'"),
        (["--color", "pink", "--", "true"], 2, "--color is one of auto, always, never"),
        (["--exit", "host", "--", "true"], 2, "--exit is one of world, node, nagios"),
        (["--exit", "nagios", "-q", "--", "false"], 2, ""),
        (["--", "true"], 0, ""),
        (["-q", "--", "sh", "-c", "exit 7"], 3, ""),
    ],
)
def test_its_exit_codes(argv: list[str], code: int, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "preflight", "rehearse", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    made = re.findall(r"PREFLIGHT_WATCHED=(\S+)", ended.stderr)
    assert not [path for path in made if os.path.exists(path)]


def test_a_report_of_a_rehearsal_is_one_as_any_other(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    command = [sys.executable, "-m", "preflight", "rehearse", "-q", "-o", f"json={path}", "--"]
    subprocess.run([*command, "true"], capture_output=True, timeout=60, check=True)
    report = json.loads(path.read_text())
    assert report["settings"]["command"]["value"] == "true"
    shown = subprocess.run(
        [sys.executable, "-m", "preflight", "show", "--judge", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0
    assert "rehearsed for" in shown.stdout


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(3)", 3), ("os.abort()", -6)])
def test_how_a_process_ended_that_somebody_else_has_waited_for(code: str, status: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os\n{code}"])
    descriptor = os.pidfd_open(process.pid)
    try:
        process.wait(20)
        release = tuple(int(part) for part in os.uname().release.split(".")[:2])
        assert processes.reaped_status(descriptor) == (status if release >= (6, 15) else None)
    finally:
        os.close(descriptor)


def test_a_zombie_tells_its_status() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = processes.stat(process.pid)
    assert found is not None
    assert (found.ended, processes.exit_status(found.code)) == (True, 3)
    process.wait()
    assert processes.stat(process.pid) is None


def test_what_a_process_gives_back_at_its_end_is_not_counted() -> None:
    history = History(1, 0.0)
    for at, (steps, mib) in enumerate([(1, 300), (2, 320), (3, 340), (4, 200), (4, 90)]):
        told = {"stack": [], "steps": steps}
        history.saw(Look(float(at), 0.0, mib << 20, pulse=told))
    for ended, kept in ((True, [300, 320, 340]), (False, [300, 320, 340, 200, 90])):
        growth = gathered.growth_of(history, 0.0, (1 << 40, 1 << 39), 1, ended=ended)
        assert [rss >> 20 for _, _, rss, _ in growth.samples] == kept


def test_what_a_child_says_when_it_crashes_is_not_its_parents() -> None:
    here = (Frame("train.py", 3, "step", own=True),)
    assert gathered.end_of(None, 1.0, -6, here).frames == here
    assert gathered.end_of(None, 1.0, None, here).frames == here
    assert gathered.end_of(None, 1.0, 3, here).frames == ()


def test_where_one_was_seen_last_is_told_where_nothing_else_is() -> None:
    here = (Frame("train.py", 3, "step", own=True),)
    seen = History(7, 0.0, stack=here, answered=41.3)
    lost = gathered.end_of(None, 1e9, -9)
    told = gathered.with_last_look(lost, seen, 42.0)
    assert (told.last, told.ago) == (here, 0.7)
    assert gathered.with_last_look(lost, None, 42.0) == lost
    crashed = gathered.end_of(None, 1e9, -11, here)
    assert gathered.with_last_look(crashed, seen, 42.0) == crashed
    left = gathered.end_of({"how": "exited"}, 1e9, 0)
    assert gathered.with_last_look(left, seen, 42.0) == left
