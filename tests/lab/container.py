"""A real container: podman and crun on a copy-on-write view of this very file system, without an
image, a registry or a daemon. What a container is by default is so here, too: 64 MiB of /dev/shm,
64 KiB of locked memory, podman's own seccomp profile and capabilities, no network, and the command
as process 1.

crun wants a pure cgroup2 tree, which small machines lack: so it gets a mount namespace with one,
and leaves control groups alone. All of it, the overlay included, is gone with that namespace.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from lab.running import Ended, end

TOOLS = ("podman", "crun", "conmon", "unshare", "setpriv", "mount", "umount")
STARTS_SECONDS = 30.0
ENDS_SECONDS = 60.0

# private, so that runs side by side share no lock and leave no record behind
SETUP = r"""
umount -l -R /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /mnt
cd /mnt
mkdir upper work root state
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
cd root
eval "$SETUP"
cd /
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Container:
    """How a container is to be; the defaults are podman's.

    user      UID:GID, or empty for an image's own; such a number need have no line in /etc/passwd
    env       all that its command finds, but for PATH and what podman adds (HOME, HOSTNAME, …)
    folders   of this system, to be found in it at the same place and not to be written
    setup     shell that runs as root in the container's root folder before it starts
    flags     more of `podman run`'s
    image     an image in `store` in the place of this file system; its own entry point counts then
    """

    shm: str = "64m"
    memlock: int = 65536
    files: int = 1024
    user: str = "0:0"
    env: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    devices: Sequence[str] = ()
    seccomp: str = ""
    read_only: bool = False
    setup: str = ""
    flags: Sequence[str] = ()
    image: str = ""
    store: Path | None = None

    def with_env(self, **variables: str) -> Container:
        return replace(self, env={**self.env, **variables})

    def argv(self, command: Sequence[str]) -> list[str]:
        """`podman run` as it is started in the namespace of SETUP."""
        state = self.store or Path("/mnt/state")
        limits = {"nofile": self.files, "nproc": 4096, "memlock": self.memlock}
        options = [f"--ulimit={name}={value}:{value}" for name, value in limits.items()]
        options += [f"--env={name}={value}" for name, value in self.env.items()]
        options += [f"--user={self.user}"] * bool(self.user)
        options += [f"--volume={folder}:{folder}:ro" for folder in self.folders]
        options += [f"--device={device}" for device in self.devices]
        options += [f"--security-opt=seccomp={self.seccomp}"] * bool(self.seccomp)
        options += ["--read-only", "--read-only-tmpfs=false"] * self.read_only
        what = [self.image] if self.image else ["--rootfs", "/mnt/root"]
        return [
            *("podman", f"--root={state}/root", f"--runroot={state}/run"),
            *("--runtime=crun", "--cgroup-manager=cgroupfs", "--events-backend=none"),
            *("run", "--rm", "--interactive", "--cgroups=disabled", "--network=none"),
            *(f"--shm-size={self.shm}", "--pull=never"),
            *(*options, *self.flags, *what, *command),
        ]


def start(
    command: Sequence[str], container: Container | None = None, **streams: Any
) -> subprocess.Popen[str]:
    """Start a command as process 1 of a container. The process that is returned ends as it does,
    but gets no signal for it: see send()."""
    container = container or Container()
    names = ("unshare", "--mount", "--cgroup", "--pid", "--fork", "--kill-child", "--mount-proc")
    shell = ("sh", "-euc", SETUP, "sh", *container.argv(command))
    given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "--", *names, "--", *shell],
        env={"PATH": os.environ.get("PATH", os.defpath), "SETUP": container.setup or ":"},
        text=True,
        **(given | streams),
    )


def run(
    command: Sequence[str], container: Container | None = None, within: float = ENDS_SECONDS
) -> Ended:
    """Run a command to its end; the code is None where it took longer, and nothing of it stays."""
    began = time.monotonic()
    process = start(command, container)
    code: int | None = None
    try:
        out, err = process.communicate(timeout=within)
        code = process.returncode
    except subprocess.TimeoutExpired:
        end(process)
        out, err = process.communicate()
    return Ended(code, out, err, time.monotonic() - began)


def first(process: subprocess.Popen[str], word: str) -> int:
    """Process 1 of the container as this system knows it, once it has `word` among its own."""
    until = time.monotonic() + STARTS_SECONDS
    while process.poll() is None and time.monotonic() < until:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_text().split("\0")
                status = (folder / "status").read_text()
            except OSError:
                continue
            numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
            # this system, the namespace of SETUP, the container
            if word in words and len(numbers) > 2 and numbers[-1] == "1":
                return int(folder.name)
        time.sleep(0.01)
    raise AssertionError(f"process 1 with {shlex.quote(word)} did not come")


def send(process: subprocess.Popen[str], word: str, number: signal.Signals) -> None:
    """A signal to process 1, as `docker stop` and the kubelet send it."""
    os.kill(first(process, word), number)


@cache
def missing() -> str:
    """Why no container can run here; empty when one can."""
    lacking = [tool for tool in TOOLS if not shutil.which(tool)]
    if lacking:
        return f"not installed here: {', '.join(lacking)}"
    if os.geteuid() != 0:
        return "needs root"
    ended = run(["true"], within=STARTS_SECONDS)
    return "" if ended.code == 0 else f"no container can run here: {ended.err.strip()[-400:]}"
