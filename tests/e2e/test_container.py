"""In a real container, whose process 1 the gate is: it becomes CMD and leaves nothing, and what a
container takes away is named where it harms a job, and only there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab import container
from lab.container import Container
from lab.running import Ended, end
from support.command import LIMITS, REPOSITORY, observes, planted

pytestmark = pytest.mark.root

PYTHON = (sys.executable, "-P", "-m", "preflight")
TOO_MANY = ("--expect", "nofile=1000000000")
# they may lie on file systems of their own
FOLDERS = tuple(dict.fromkeys((str(REPOSITORY), sys.prefix, sys.base_prefix)))
HERE = Container(env={"PYTHONPATH": str(REPOSITORY), "LANG": "C.UTF-8"}, folders=FOLDERS)
# root's home is nobody else's, and this interpreter may lie in it
OPENED = "\n".join(f"chmod a+x .{above}" for path in FOLDERS for above in Path(path).parents[:-1])
NOBODYS = 1000720000
"""A number as OpenShift gives it: with group 0, and without a line in /etc/passwd."""

PROCESSES = """
import os
for pid in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
    state, parent = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[:2]
    print(pid, state, parent)
"""


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    if why := container.missing():
        pytest.skip(why)


def preflight(*args: str, inside: Container = HERE) -> Ended:
    return container.run([*PYTHON, *args], inside)


def gate(*command: str, flags: Sequence[str] = LIMITS, inside: Container = HERE) -> Ended:
    return preflight("gate", "-q", *flags, "--", *command, inside=inside)


@contextmanager
def running(*args: str, inside: Container = HERE, **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = container.start([*PYTHON, *args], inside, **more)
    try:
        yield process
    finally:
        if process.poll() is None:
            end(process)
        process.communicate()


NOBODY = replace(HERE, user=f"{NOBODYS}:0", setup=OPENED, flags=("--passwd=false",))


def report(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.out)
    return found


def codes(ended: Ended) -> set[str]:
    return {f"{f['check']}:{f['code']}" for f in report(ended)["findings"]}


# --- process 1 ---


@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_the_command_becomes_process_1_and_ends_the_container(code: int) -> None:
    ended = gate("sh", "-c", f"echo I am $$; exit {code}")
    assert (ended.code, ended.out.splitlines()[-1]) == (code, "I am 1"), ended


def test_not_ready_starts_nothing() -> None:
    ended = gate("echo", "started!", flags=(*LIMITS, *TOO_MANY))
    assert (ended.code, "started!" in ended.out) == (3, False)
    assert "echo was not started.   exit 3" in ended.err


def test_a_command_that_the_image_lacks() -> None:
    ended = gate("no-such-command")
    assert ended.code == 127, ended
    assert "no-such-command can't be started: No such file or directory" in ended.err


def test_stdin_goes_to_the_command() -> None:
    with running("gate", "-q", *LIMITS, "--", "cat", stdin=subprocess.PIPE) as process:
        out, _ = process.communicate("for the command\n", timeout=60)
    assert (process.returncode, out.splitlines()[-1]) == (0, "for the command")


def test_the_terminal_is_as_it_was() -> None:
    """A shell behind the gate gets it as the runtime has set it up."""
    inside = replace(HERE, flags=("--tty",))
    look = ("sh", "-c", "test -t 0 && test -t 1 && tty && stty -a")
    before = container.run(look, inside)
    assert before.out.startswith("/dev/"), before
    assert gate(*look, inside=inside).out.endswith(before.out)


def test_a_signal_before_the_command_is_started() -> None:
    with running("gate", "--nproc", "2", "--", "echo", "started!") as process:
        caught(process, signal.SIGTERM)
        container.send(process, "gate", signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, "started!" in out) == (143, False), (out, err)
    assert "echo was not started.   exit 143" in err


def test_a_signal_to_the_command() -> None:
    program = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    with running("gate", "-q", *LIMITS, "--", "sh", "-c", program) as process:
        assert process.stdout is not None
        while process.stdout.readline() not in ("ready\n", ""):
            pass  # the report
        container.send(process, program, signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (9, "got it\n")


def caught(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Until process 1 of the container has a handler for a signal: the kernel drops one for which
    it has none."""
    status = Path(f"/proc/{container.first(process, 'gate')}/status")
    until = time.monotonic() + 30
    while time.monotonic() < until:
        mask = int(status.read_text().partition("SigCgt:")[2].split()[0], 16)
        if mask & 1 << (number - 1):
            return
        time.sleep(0.005)
    raise AssertionError(f"{number.name} is not handled")


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
return Answer()
"""
"""A probe that starts something and lets go of it."""

LOST = """
import os, signal, time
time.sleep(0.2)
if os.fork() == 0:
    time.sleep(1000)
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(10)
"""
"""A probe whose server dies under it: nobody but process 1 is left to take its exit status."""


@pytest.mark.parametrize("probe", [DAEMON, LOST], ids=["lets go of a daemon", "loses its server"])
def test_the_command_finds_no_process_of_ours(tmp_path: Path, probe: str) -> None:
    package = planted(tmp_path, planted_orphan=observes(probe))
    inside = replace(HERE, folders=(*FOLDERS, str(tmp_path))).with_env(PYTHONPATH=str(package))
    flags = ("--only", "planted.orphan", "--start-undecided")
    ended = gate(sys.executable, "-c", PROCESSES, flags=flags, inside=inside)
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1] == "1 R 0", ended.out


# --- what a container takes away ---


def test_the_defaults_of_a_container_are_a_warning() -> None:
    ended = preflight("run", "--level", "quick", "-o", "json")
    assert (ended.code, codes(ended)) == (0, {"host.limits:shm-small"}), ended
    (finding,) = report(ended)["findings"]
    assert finding["blame"] == "job"
    assert "--shm-size=8g (docker, podman) or an emptyDir" in finding["remedy"]["text"]


def test_what_a_job_needs_is_asked_of_the_runtime() -> None:
    inside = replace(HERE, shm="2g")
    ended = preflight("run", "--level", "quick", "-o", "json", inside=inside)
    assert (ended.code, codes(ended)) == (0, set()), ended
    ended = preflight("run", "-q", *LIMITS, inside=replace(HERE, shm="5m"))
    assert ended.code == 3, "a rank's share of /dev/shm is not there"
    assert "/dev/shm has 5 MiB free of 5 MiB" in ended.out


@pytest.mark.torch
def test_any_number_may_be_the_user() -> None:
    """As on OpenShift: no name, no home, no folder of its own. Even torch runs."""
    inside = replace(NOBODY, shm="2g")
    ended = preflight("run", "--nproc", "2", "-o", "json", inside=inside)
    assert (ended.code, codes(ended)) == (0, set()), ended
    assert {r["status"] for r in report(ended)["checks"]} == {"pass", "skip"}


def test_the_user_without_a_name_is_seen() -> None:
    program = (
        "from preflight.host import Host;"
        "from preflight.domains.system.container import kind, nameless;"
        "print(kind(Host()), nameless(Host()))"
    )

    def told(inside: Container, **env: str) -> str:
        return container.run([sys.executable, "-c", program], inside.with_env(**env)).out.strip()

    assert told(NOBODY) == f"container {NOBODYS}"
    assert told(NOBODY, USER="job") == "container None"
    assert told(HERE, KUBERNETES_SERVICE_HOST="10.96.0.1") == "kubernetes None"


def test_a_read_only_image_needs_a_tmp() -> None:
    inside = replace(NOBODY, read_only=True, shm="2g")
    ended = preflight("run", "--level", "quick", "-o", "json", inside=inside)
    assert (ended.code, codes(ended)) == (3, {"host.storage:image-read-only"}), ended
    # podman would fill it with what this system has there
    flags = (*inside.flags, "--tmpfs=/tmp:notmpcopyup")
    ended = preflight("run", "--level", "quick", "-o", "json", inside=replace(inside, flags=flags))
    assert (ended.code, codes(ended)) == (0, set()), ended


def fabric(folder: Path) -> Container:
    """A container that sees its host's InfiniBand, as every container of such a host does."""
    port = folder / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (folder / "class/net").symlink_to("/sys/devices/virtual/net")
    return replace(HERE, shm="2g", flags=(f"--volume={folder}/class:/sys/class",))


def test_the_hosts_infiniband_alone_is_no_fault(tmp_path: Path) -> None:
    """Locked memory of 64 KiB is the runtime's default, and nobody here can register any."""
    ended = preflight("run", *LIMITS, "-o", "json", inside=fabric(tmp_path))
    assert (ended.code, codes(ended)) == (0, set()), ended
    seen = next(iter(report(ended)["observations"]["host.limits"].values()))["ok"]
    assert (seen["rdma"], seen["verbs"], seen["memlock"]) == (["mlx5_0"], False, 65536)


def test_an_infiniband_that_was_given_needs_locked_memory(tmp_path: Path) -> None:
    """/dev/null stands for the driver's device."""
    inside = fabric(tmp_path)
    given = replace(inside, devices=("/dev/null:/dev/infiniband/uverbs0",))
    ended = preflight("run", *LIMITS, "-o", "json", inside=given)
    assert (ended.code, codes(ended)) == (3, {"host.limits:memlock-container"}), ended
    (finding,) = report(ended)["findings"]
    assert finding["blame"] == "job", "no node is drained for what `docker run` was not told"
    may = replace(given, flags=(*given.flags, "--cap-add=IPC_LOCK"))
    ended = preflight("run", *LIMITS, "-o", "json", inside=may)
    assert (ended.code, codes(ended)) == (0, set()), ended


REFUSED = (
    *("process_vm_readv", "process_vm_writev", "ptrace", "pidfd_open", "pidfd_getfd", "kcmp"),
    *("get_mempolicy", "set_mempolicy", "mbind", "move_pages", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "keyctl", "syslog"),
)
"""What seccomp profiles refuse to those without further capabilities; and a little more."""


@pytest.mark.torch
def test_neither_we_nor_gloo_need_what_seccomp_refuses(tmp_path: Path) -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": list(REFUSED), "action": "SCMP_ACT_ERRNO", "errnoRet": 1}],
    }
    path = tmp_path / "strict.json"
    path.write_text(json.dumps(profile))
    inside = replace(HERE, shm="2g", seccomp=str(path))
    asked = [sys.executable, "-c", "import os; os.pidfd_open(1)"]
    assert "PermissionError" in container.run(asked, inside).err, "the profile is in force"
    ended = preflight("run", "--nproc", "2", "-o", "json", inside=inside)
    assert (ended.code, codes(ended)) == (0, set()), ended
