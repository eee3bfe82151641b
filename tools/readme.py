"""Fills the blocks of README.md and docs/usage.md, `<!-- begin: … -->` to `<!-- end: … -->`.

    help, help CMD    what --help prints
    checks, exits     tables of what the program declares
    screen NAME       real output of a command of SCREENS, run here and now
    nodes NAME        the same of a command of NODES, run on machines of tests/lab (needs root)

`make readme` writes them all, `make readme-tables` the first two kinds, which need neither torch
nor the lab; tests/test_contract.py holds those against the program.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from preflight import registry
from preflight.cli import main as cli
from preflight.judge import verdict
from preflight.model import Verdict

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs/usage.md")
BIN = Path(sys.executable).parent
BLOCK = re.compile(r"(<!-- begin: (.+?) -->\n)(.*?)(<!-- end\b.*? -->)", re.DOTALL)
PORT = 29500
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Screen:
    """A command as the reader would type it, and what has to be the case meanwhile."""

    command: str
    exits: int
    fault: Callable[[], AbstractContextManager[None]] = nullcontext
    script: str = ""
    """What lies there as train.py."""


JOB = Path("/tmp/job")
"""Where a script lies: a name that a reader can pass over."""

TRAIN = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def train(rank: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shard = TensorDataset(torch.randn(76 if rank == 2 else 80, 16))
    for (batch,) in DataLoader(shard, batch_size=4):
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
    dist.barrier()


dist.init_process_group("gloo")
train(dist.get_rank())
dist.destroy_process_group()
"""
"""A shard of rank 2 is shorter than those of the others."""


@contextmanager
def _port_taken() -> Iterator[None]:
    """Another program listens on MASTER_PORT: a web server that somebody forgot."""
    shown = ["python3", "-m", "http.server", str(PORT), "--bind", "127.0.0.1"]
    server = subprocess.Popen(
        shown,
        executable=sys.executable,
        cwd="/tmp",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 10
        while not _answers():
            if server.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"port {PORT} is needed for the red screen, and not free")
            time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait(10)


@contextmanager
def _written(script: str) -> Iterator[None]:
    """The folder with the script, where there is one."""
    if not script:
        yield
        return
    JOB.mkdir()
    try:
        (JOB / "train.py").write_text(script, encoding="utf-8")
        yield
    finally:
        shutil.rmtree(JOB)


def _answers() -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
        return True
    return False


SCREENS = {
    "green": Screen("preflight run --nproc 4", 0),
    "red": Screen(
        f"MASTER_ADDR=127.0.0.1 MASTER_PORT={PORT} preflight run --nproc 4", 3, _port_taken
    ),
    "message": Screen('preflight explain "Signal 9 (SIGKILL) received by PID 20713"', 0),
    "rehearse": Screen(
        "preflight rehearse --stuck 5s -- torchrun --nproc-per-node 3 train.py",
        3,
        script=TRAIN,
    ),
}


@dataclass(frozen=True, slots=True)
class Nodes:
    """A command as `srun` would start it on `count` machines, of which `broken` has a fault. What
    is shown is what the first one prints: it hosts the meeting."""

    command: str
    exits: int
    count: int
    broken: str
    fault: str


NODES = {
    "edge": Nodes(
        "MASTER_ADDR=gpu1 MASTER_PORT=29500 preflight run --nproc 2 --nodes 4 --node-rank $I",
        3,
        4,
        "gpu3",
        "close_other_ports",
    ),
}

EXITS = (
    (verdict.EXIT[Verdict.READY], "READY", "every check passed (warnings allowed)", "start"),
    (cli.USAGE, "USAGE", "wrong flag, bad config, unknown id", "show to the author; never drain"),
    (verdict.EXIT[Verdict.NOT_READY], "NOT READY", "at least one FAIL", "exclude what it names"),
    (
        verdict.EXIT[Verdict.UNDECIDED],
        "UNDECIDED",
        "no FAIL, but something required could not be judged",
        "retry, or start at own risk; never drain",
    ),
    (
        verdict.EXIT[Verdict.INCOMPLETE],
        "INCOMPLETE",
        "ranks did not arrive before the deadline, nothing else failed",
        "requeue; look at the named hosts",
    ),
    (
        cli.OUTPUT,
        "OUTPUT",
        "the verdict would be 0, but a report file could not be written",
        "look at the path",
    ),
    (cli.INTERNAL, "INTERNAL", "our own fault; a traceback is saved", "report it; never drain"),
    (
        "130, 143, 129",
        "INTERRUPTED",
        "SIGINT, SIGTERM, SIGHUP; the partial report is still printed",
        "–",
    ),
    (1, "never on purpose", "the interpreter died before us: a bad install", "treat as 70"),
)


def block(name: str) -> str:
    """What belongs between the markers of `name`."""
    kind, _, rest = name.partition(" ")
    if kind == "help":
        words = ["preflight", *rest.split(), "--help"]
        return _fenced(f"$ {' '.join(words)}\n{_run(shlex.join(words), 0)}")
    if name == "checks":
        return _table(
            ("Check", "Level", "Question"),
            [(f"`{c.id}`", c.check.when, c.question) for c in registry.load()],
        )
    if name == "exits":
        codes = [(str(code), name, means, then) for code, name, means, then in EXITS]
        return _table(("Code", "Name", "Means", "A scheduler should"), codes)
    if kind == "screen" and rest in SCREENS:
        screen = SCREENS[rest]
        with screen.fault(), _written(screen.script):
            return _fenced(f"$ {screen.command}\n{_run(screen.command, screen.exits)}")
    if kind == "nodes" and rest in NODES:
        return _fenced(f"$ {NODES[rest].command}      # on each of them\n{_on_nodes(NODES[rest])}")
    raise SystemExit(f"there is no block {name!r}")


def deterministic(name: str) -> bool:
    """Whether a block is the same on every machine."""
    return not name.startswith(("screen ", "nodes "))


def blocks(text: str) -> dict[str, str]:
    """Name -> what stands there now."""
    return {found[2]: found[3] for found in BLOCK.finditer(text)}


def written() -> dict[str, str]:
    """The blocks of all pages."""
    texts = (page.read_text(encoding="utf-8") for page in PAGES)
    return {name: inside for text in texts for name, inside in blocks(text).items()}


def filled(text: str, inside: Mapping[str, str]) -> str:
    """The text with these blocks in their places; others stay as they are."""
    return BLOCK.sub(lambda found: found[1] + inside.get(found[2], found[3]) + found[4], text)


def _run(command: str, exits: int) -> str:
    """Output of a command line that begins with variables, then with `preflight`."""
    words = shlex.split(command)
    first = words.index("preflight")
    given = dict(word.split("=", 1) for word in words[:first])
    # the screen of a machine on which nothing was set: no launcher, no terminal, no colours
    environ = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    environ["PATH"] = f"{BIN}:{environ.get('PATH', '')}"
    environ |= {"COLUMNS": "98", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"} | given
    ended = subprocess.run(
        [str(BIN / "preflight"), *words[first + 1 :]],
        env=environ,
        cwd=JOB if JOB.is_dir() else "/tmp",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if ended.returncode != exits:
        raise SystemExit(
            f"{command}: exit code {ended.returncode}, not {exits}\n{ended.stdout}{ended.stderr}"
        )
    return ended.stdout


def _on_nodes(screen: Nodes) -> str:
    """What the host of the meeting prints."""
    sys.path.insert(0, str(ROOT / "tests"))
    from lab import faults  # type: ignore[import-not-found]
    from lab.host import ENVIRONMENT, Command, Lab, Machine  # type: ignore[import-not-found]

    names = [f"gpu{number}" for number in range(1, screen.count + 1)]
    words = shlex.split(screen.command)
    first = words.index("preflight")
    given = dict(word.split("=", 1) for word in words[:first])
    with Lab(*(Machine(name) for name in names)) as lab:
        lab[screen.broken].break_(getattr(faults, screen.fault)(PORT))
        commands = {
            name: Command(
                [str(BIN / "preflight"), *(w.replace("$I", str(i)) for w in words[first + 1 :])],
                {**ENVIRONMENT, **given},
            )
            for i, name in enumerate(names)
        }
        ended = lab.run_all(commands, timeout=SECONDS)
    host = ended[names[0]]
    if host.code != screen.exits:
        raise SystemExit(f"{screen.command}: exit code {host.code}\n{host.out}{host.err}")
    return str(host.out)


def _fenced(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.rstrip().splitlines())
    return f"```text\n{lines}\n```\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main(arguments: Sequence[str]) -> None:
    """Write the blocks; with `--tables` those alone that are the same on every machine."""
    wanted = [name for name in written() if deterministic(name) or "--tables" not in arguments]
    inside = {name: block(name) for name in wanted}
    # read again: the screens take seconds, in which somebody may have saved an edit
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), inside), encoding="utf-8")
    print(f"{len(inside)} blocks of README.md and docs/usage.md are up to date")


if __name__ == "__main__":
    main(sys.argv[1:])
