"""A cluster whose slurm.conf names the hooks, as an administrator would set it up."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from faults.inject import way_for_others
from lab import nvml
from lab.running import Ended
from lab.slurm import ENVIRONMENT, Cluster

REPOSITORY = Path(__file__).parent.parent.parent
NODES = ("n1", "n2", "n3", "n4")
HOOKS = {
    "prolog": "Prolog",
    "task-prolog": "TaskProlog",
    "healthcheck": "HealthCheckProgram",
    "epilog": "Epilog",
}

CONFIG = "printf '[expect]\\nmemlock_gib = 0.001\\n' > /etc/preflight/config.toml"
LOW, BACK = "65536", "8388608"
"""Bytes of memory that slurmd and all that it starts may lock: less than the config file wants, and
as much as before."""

SYSLOG = """
import os, socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
line.bind("/dev/log")
os.chmod("/dev/log", 0o666)
print("ready", flush=True)
with open(sys.argv[1], "a", buffering=1) as file:
    while True:
        file.write(line.recv(8192).decode(errors="replace").rstrip("\\0\\n") + "\\n")
"""


def environment(folder: Path, package: Path = REPOSITORY) -> Path:
    """A virtual environment in which this preflight is installed; its interpreter."""
    library = folder / f"lib/python3.{sys.version_info.minor}/site-packages"
    library.mkdir(parents=True)
    own = next(p for p in sys.path if p.endswith("site-packages"))
    (library / "paths.pth").write_text(f"{package}\n{own}\n")
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\n")
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(Path(sys.base_prefix, "bin/python3"))
    return folder / "bin/python"


def snippet(python: Path, hook: str) -> str:
    """What `preflight slurm snippet` prints where an administrator runs it."""
    argv = [str(python), "-P", "-m", "preflight", "slurm", "snippet", hook]
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=30, env={}
    ).stdout


class Site:
    """A cluster whose slurm.conf names our scripts. They are put there again before each test."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.python = environment(folder / "venv")
        self.scripts = {hook: snippet(self.python, hook) for hook in HOOKS}

    def reset(self) -> None:
        for hook in HOOKS:
            self.install(hook, self.scripts[hook] if hook != "healthcheck" else "#!/bin/sh\n")
        for node in NODES:
            self.cluster[node].sh(f"rm -rf /run/preflight; mkdir -p /etc/preflight; {CONFIG}")
            (self.folder / f"syslog.{node}").write_text("")

    def install(self, hook: str, script: str) -> None:
        """By renaming: slurmd may be about to run the old one."""
        new = self.folder / "new.sh"
        new.write_text(script)
        new.chmod(0o755)
        new.rename(self.folder / f"{hook}.sh")

    @contextmanager
    def sick(self, node: str) -> Iterator[None]:
        """A node whose slurmd was started with too small a LimitMEMLOCK."""
        pid = self.cluster.daemons[node].pid
        self.cluster[node].sh(f"prlimit --pid {pid} --memlock={LOW}:")
        try:
            yield
        finally:
            self.cluster[node].sh(f"prlimit --pid {pid} --memlock={BACK}:")

    @contextmanager
    def gpus(self, node: str, scenario: Mapping[str, object]) -> Iterator[None]:
        """A node with two GPUs, as far as the driver's files and NVML show them. The library is
        found by name and plays what its copy was built for: a hook has no variables to tell it."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        nvml.machine(folder, 2)
        file, library = folder / "scenario", folder / "libnvidia-ml.so.1"
        nvml.environment(nvml.settings(2, scenario), file)
        source = f'#include <stdlib.h>\n#define getenv(name) "{file}"\n'
        source += f'#include "{Path(nvml.__file__).with_name("fake_nvml.c")}"\n'
        argv = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", str(library)]
        subprocess.run([*argv, "-x", "c", "-"], input=source, text=True, check=True, timeout=60)
        self.cluster[node].sh(f"""
            mount --rbind {folder}/proc/driver /proc/driver
            mount --rbind {folder}/sys/bus /sys/bus
            cp -a {folder}/dev/. /dev; cp -a {folder}/run/. /run
            echo {folder} > /etc/ld.so.conf.d/gpus.conf; ldconfig
        """)
        try:
            yield
        finally:
            self.cluster[node].sh("""
                umount -l /proc/driver; umount -l /sys/bus; rm -rf /dev/nvidia* /run/nvidia*
                rm /etc/ld.so.conf.d/gpus.conf; ldconfig
            """)

    def by_hand(self, hook: str, node: str, *before: str, **env: str) -> Ended:
        """The script of a hook as slurmd would run it there; `before` starts it."""
        script = self.folder / "by-hand.sh"
        script.write_text(self.scripts[hook])
        told = {"SLURMD_NODENAME": node, **env}
        return self.cluster.run([*before, "sh", str(script)], timeout=30, env=told, at=node)

    def syslog(self, node: str) -> str:
        """Without time and priority."""
        lines = (self.folder / f"syslog.{node}").read_text().splitlines()
        return "\n".join(line[line.index("preflight") :] for line in lines if "preflight" in line)

    def run(self, node: str, *argv: str, within: float = 30, **env: str) -> Ended:
        """A job of one task there."""
        given = {**ENVIRONMENT, **env}
        argv = argv or ("hostname",)
        return self.cluster.run(["srun", "-Q", "-w", node, *argv], timeout=within, env=given)


@contextmanager
def built(folder: Path) -> Iterator[Site]:
    """Four nodes; the scripts and what syslog was told are in the folder."""
    folder.chmod(0o755)
    conf = {name: f"{folder}/{hook}.sh" for hook, name in HOOKS.items()}
    for hook in HOOKS:
        (folder / f"{hook}.sh").write_text("#!/bin/sh\n")
        (folder / f"{hook}.sh").chmod(0o755)
    # one health check a second would leave slurmctld no time to ask who has come back
    conf |= {"PrologFlags": "Alloc", "HealthCheckInterval": "2"}
    machine = {"limits": {"memlock": f"{BACK}:"}, "setup": way_for_others()}
    with Cluster(nodes=4, conf=conf, **machine) as it:
        for node in NODES:
            it[node].start([sys.executable, "-c", SYSLOG, f"{folder}/syslog.{node}"])
        yield Site(it, folder)
