"""gate: on READY it becomes CMD and leaves no trace of itself; else it says that it did not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from support.command import ENVIRONMENT, LIMITS, Done, preflight, start

TOO_MANY = ("--expect", "nofile=1000000000")
"""An expectation that no machine meets: NOT READY."""
TOO_SHORT = ("--deadline", "0.001s")
"""A time in which nothing can be seen: UNDECIDED."""


def gate(*command: str, flags: tuple[str, ...] = (), **more: Any) -> Done:
    return preflight("gate", *LIMITS, "-q", *flags, "--", *command, **more)


def python(program: str) -> tuple[str, str, str]:
    return (sys.executable, "-c", textwrap.dedent(program))


# --- what CMD gets ---


@pytest.mark.parametrize("code", [0, 1, 3, 7, 255])
def test_the_exit_code_is_that_of_the_command(code: int) -> None:
    assert gate("sh", "-c", f"exit {code}").code == code


def test_the_words_of_the_command_are_its_own() -> None:
    words = ["a b", "", "--level", "-o", 'c"d', "$HOME", "--", "ünï"]
    done = gate(*python("import json, sys; print(json.dumps(sys.argv[1:]))"), *words)
    assert json.loads(done.out.splitlines()[-1]) == words


def test_without_the_two_dashes_flags_end_at_the_first_word() -> None:
    done = preflight("gate", *LIMITS, "-q", "echo", "--level", "quick")
    assert done.out.splitlines()[-1] == "--level quick"


def test_the_environment_is_untouched() -> None:
    env = {"PREFLIGHT_QUIET": "1", "MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "3"}
    show = python("import json, os; print(json.dumps(dict(os.environ)))")
    done = gate(*show, env=env)
    plain = json.loads(subprocess.run(show, env=env, capture_output=True, check=True).stdout)
    found = json.loads(done.out.splitlines()[-1])
    given = ENVIRONMENT | env
    assert {k: v for k, v in found.items() if k in given} == given
    added = set(found) - set(given) - set(plain)
    assert added == {"PYTHONPATH", "RUN_OF_A_TEST"}, "only what the test itself has set"


def test_stdin_is_passed_on() -> None:
    read, write = os.pipe()
    os.write(write, b"for the command\n")
    os.close(write)
    assert gate("cat", stdin=read).out.splitlines()[-1] == "for the command"
    os.close(read)


def test_it_is_the_same_process_with_nothing_open_and_nobody_else() -> None:
    program = """
        import json, os, signal
        children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
        numbers = [n for n in os.listdir("/proc/self/fd") if int(n) > 2]
        links = [f"/proc/self/fd/{n}" for n in numbers]
        opened = [os.readlink(link) for link in links if os.path.exists(link)]
        status = open("/proc/self/status").read()
        masks = dict(l.split(":\\t") for l in status.splitlines() if l.startswith("Sig"))
        print(json.dumps([os.getpid(), os.getppid(), children, opened, masks["SigIgn"]]))
    """
    running = start("gate", *LIMITS, "-q", "--", "sh", "-c", 'exec "$@"', "-", *python(program))
    pid = running.process.pid
    done = running.end()
    mine, parent, children, opened, _ = json.loads(done.out.splitlines()[-1])
    assert (mine, parent) == (pid, os.getpid())
    assert children == []
    assert [o for o in opened if not o.startswith("/proc/")] == []


@pytest.mark.parametrize("name", ["PIPE", "XFSZ", "INT", "TERM", "CHLD"])
def test_no_signal_is_ignored_or_blocked(name: str) -> None:
    program = f"""
        import signal
        number = signal.SIG{name}
        # Python's own choices at its start are those that a C program would not see
        status = open("/proc/self/status").read().splitlines()
        blocked = next(int(l.split()[1], 16) for l in status if l.startswith("SigBlk"))
        print(bool(blocked & 1 << (number - 1)))
    """
    assert gate(*python(program)).out.splitlines()[-1] == "False"
    ignored = gate("grep", "SigIgn", "/proc/self/status").out.split()[-1]
    assert not int(ignored, 16) & 1 << (getattr(signal, f"SIG{name}") - 1)


def test_a_broken_pipe_ends_the_command() -> None:
    done = gate("bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}")
    assert done.out.splitlines()[-2:] == ["y", str(128 + signal.SIGPIPE)]


def test_what_nohup_ignores_stays_ignored() -> None:
    deaf = ("sh", "-c", "trap '' INT; exec \"$@\"", "-", sys.executable)
    show = ("grep", "SigIgn", "/proc/self/status")
    ignored = int(gate(*show, python=deaf).out.split()[-1], 16)
    assert ignored & 1 << (signal.SIGINT - 1)
    running = start("run", "--nproc", "2", python=deaf).listening()
    running.process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    assert running.process.poll() is None
    running.process.send_signal(signal.SIGTERM)
    assert running.end().code == 143


def test_a_signal_to_the_gate_reaches_the_command() -> None:
    program = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    running = start("gate", *LIMITS, "-q", "--", "sh", "-c", program)
    assert running.process.stdout is not None
    lines = []
    while not lines or b"ready" not in lines[-1]:
        lines.append(running.process.stdout.readline())
    assert b"READY" in lines[0], "the report comes first"
    running.process.send_signal(signal.SIGTERM)
    done = running.end()
    assert (done.code, done.out.strip()) == (9, "got it")


# --- what can't be started ---


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [
        ("no-such-command", 127, "No such file or directory"),
        ("/no/such/command", 127, "No such file or directory"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/tmp", 126, "Permission denied"),
        ("--weird", 127, "No such file or directory"),
    ],
)
def test_a_command_that_is_none(command: str, code: int, why: str) -> None:
    done = gate(command)
    assert done.code == code
    assert done.said == f"preflight: {command} can't be started: {why}"


def test_an_empty_command_is_refused_before_anything_is_looked_at() -> None:
    done = gate("", "x")
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize("words", [(), ("--",)])
def test_no_command_at_all(words: tuple[str, ...]) -> None:
    done = preflight("gate", *LIMITS, *words)
    assert done.code == 2
    assert "Missing argument '-- CMD...'" in done.err


# --- what is not started ---


def not_started(done: Done, code: int) -> bool:
    return (
        done.code == code
        and "started!" not in done.out
        and f"echo was not started.   exit {code}" in done.err
    )


def test_not_ready() -> None:
    assert not_started(gate("echo", "started!", flags=TOO_MANY), 3)
    assert not_started(gate("echo", "started!", flags=(*TOO_MANY, "--start-undecided")), 3)


def test_undecided() -> None:
    assert not_started(gate("echo", "started!", flags=TOO_SHORT), 4)
    done = gate("echo", "started!", flags=(*TOO_SHORT, "--start-undecided"))
    assert (done.code, done.out.splitlines()[-1]) == (0, "started!")
    env = {"PREFLIGHT_START_UNDECIDED": "1"}
    assert gate("echo", "started!", flags=TOO_SHORT, env=env).code == 0


def test_a_warning_keeps_nothing_back_unless_strict() -> None:
    env = {"NCCL_NO_SUCH_VARIABLE": "1"}
    flags = ("gate", "--only", "env.vars", "-q")
    done = preflight(*flags, "--", "echo", "started!", env=env)
    assert (done.code, done.out.splitlines()[-1]) == (0, "started!")
    assert not_started(preflight(*flags, "--strict", "--", "echo", "started!", env=env), 3)
    flags = (*flags, "--strict", "--tolerate", "env.vars")
    assert preflight(*flags, "--", "echo", "started!", env=env).code == 0, "a waiver is a waiver"


def test_a_report_that_could_not_be_written_does_not_keep_a_job_from_running() -> None:
    done = gate("echo", "started!", flags=("-o", "json=/dev/full"))
    assert (done.code, done.out.splitlines()[-1]) == (0, "started!")
    assert done.said.endswith("No space left on device")


def test_nagios_has_its_own_code_here_too() -> None:
    assert not_started(gate("echo", "started!", flags=(*TOO_MANY, "--exit", "nagios")), 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals) -> None:
    running = start("gate", "--nproc", "2", "--", "echo", "started!").listening()
    time.sleep(0.3)
    running.process.send_signal(number)
    assert not_started(running.end(), 128 + number)


def test_a_usage_error_starts_nothing() -> None:
    done = preflight("gate", "--only", "net.prt", "--", "echo", "started!")
    assert (done.code, done.out) == (2, "")


# --- the real thing ---

SCRIPT = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ones = torch.ones(3)
dist.all_reduce(ones)
assert not any(name.startswith(("PET_", "PREFLIGHT_")) for name in os.environ)
assert ones.tolist() == [float(dist.get_world_size())] * 3
line = f"sum of rank {dist.get_rank()} is {int(ones[0])}\\n"
os.write(1, line.encode())  # at once: the ranks share the pipe
dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(port: int, folder: Path, *flags: str, **env: str) -> Done:
    """The line of the README: a gate and the job behind it, on the port that its command names."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    job = (
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-addr", "127.0.0.1", "--master-port", str(port), str(script)),
    )
    return preflight("gate", *flags, "--", *job, env={"OMP_NUM_THREADS": "1"} | env, within=100)


@pytest.mark.torch
def test_torchrun_starts_behind_the_gate_on_the_same_port(tmp_path: Path) -> None:
    done = torchrun(free_port(), tmp_path)
    assert done.code == 0, done
    assert "READY" in done.out
    assert "1 node, 2 ranks" in done.out
    assert "identity from torchrun's options" in done.out
    sums = [line for line in done.out.splitlines() if line.startswith("sum of rank")]
    assert sorted(sums) == ["sum of rank 0 is 2", "sum of rank 1 is 2"]


@pytest.mark.torch
def test_torchrun_does_not_start_where_the_port_is_held(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        done = torchrun(holder.getsockname()[1], tmp_path)
    assert done.code == 3, done
    assert "net.port" in done.out
    assert "sum of rank" not in done.out
    assert "was not started.   exit 3" in done.err


@pytest.mark.torch
def test_torchrun_does_not_start_with_a_setting_that_crashes_it(tmp_path: Path) -> None:
    done = torchrun(free_port(), tmp_path, TORCH_FR_BUFFER_SIZE="abc")
    assert done.code == 3, done
    assert "TORCH_FR_BUFFER_SIZE" in done.out
    assert "sum of rank" not in done.out
