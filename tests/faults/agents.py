"""Faults of the agents themselves and of their meeting: killed, stopped, cut off, late, there
twice, or without the token; and of whoever has the port."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping

from faults.world import PORT, WorldFault, machines
from lab import faults as broken
from lab.faults import Break
from lab.host import Lab
from lab.running import Running

SLURM = {
    "SLURM_JOB_ID": "1001",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_NNODES": "3",
    "SLURM_TASKS_PER_NODE": "1(x3)",
}
TWICE_ON_N2 = (
    *("sh", "-c"),
    'if [ "$(hostname)" = n2 ]; then "$@" & fi; "$@"; code=$?; wait; exit $code',
    "sh",
)


TWICE_APART = ("sh", "-c", '"$@" & sleep 0.8; "$@"; code=$?; wait; exit $code', "sh")


def slurm_of(nodes: int) -> dict[str, str]:
    return SLURM | {
        "SLURM_JOB_NODELIST": f"n[1-{nodes}]",
        "SLURM_NNODES": str(nodes),
        "SLURM_TASKS_PER_NODE": f"1(x{nodes})",
    }


OTHER_VERSION = Break(
    "another version of preflight",
    "mkdir other\n"
    "echo 'import preflight; preflight.__version__ = \"9.9\"' > other/sitecustomize.py",
)
IN_SECONDS = 40.0
POLL = 0.05
LARGE = 100_000

Act = Callable[[Lab, Mapping[str, Running]], None]


def all_in(lab: Lab, host: str) -> bool:
    """Whether all others have their connection to the meeting that this machine holds."""
    met = lab[host].sh(f"ss -Htn state established 'sport = :{PORT}'")
    return len(met.splitlines()) >= len(list(lab)) - 1


def in_gloo(lab: Lab, name: str) -> bool:
    """Whether a rank with torch has something large to send: 16 MiB over a slow card."""
    lines = lab[name].sh("ss -Htnp state established").splitlines()
    large = [words for line in lines if int((words := line.split())[1]) >= LARGE]
    pids = {int(pid) for words in large for pid in re.findall(r"pid=(\d+)", words[-1])}
    runs = lab[name].processes() if pids else {}
    return any("torch" in runs.get(pid, "") for pid in pids)


def once(there: Callable[[Lab, str], bool], name: str, act: Act) -> Act:
    """As soon as it is so far."""

    def wait(lab: Lab, begun: Mapping[str, Running]) -> None:
        until = time.monotonic() + IN_SECONDS
        while not there(lab, name):
            if time.monotonic() > until:
                raise RuntimeError(f"{name} did not come so far")
            time.sleep(POLL)
        act(lab, begun)

    return wait


def killed(name: str) -> Act:
    return lambda lab, begun: begun[name].kill()


def terminated(name: str) -> Act:
    return lambda lab, begun: begun[name].send(signal.SIGTERM)


def stopped(name: str, seconds: float) -> Act:
    """And let on after so many seconds."""

    def act(lab: Lab, begun: Mapping[str, Running]) -> None:
        begun[name].stop()
        time.sleep(seconds)
        begun[name].cont()

    return act


def cut(name: str, *breaks: Break) -> Act:
    return lambda lab, begun: lab[name].break_(*breaks)


FAULTS: tuple[WorldFault, ...] = (
    WorldFault(
        "an agent is killed before it arrives",
        *("rdzv.reach", "absent", "rank 2", "missing"),
        exit=5,
        act=killed("n3"),
        after=0.05,
        arrive=6.0,
        confidence="possible",
    ),
    WorldFault(
        "an agent is killed once it is in",
        *("rdzv.reach", "lost", "n3"),
        act=once(all_in, "n1", killed("n3")),
        after=0.3,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "an agent is killed while its rank reduces with the others",
        *("rdzv.reach", "lost", "n3"),
        act=once(in_gloo, "n3", killed("n3")),
        after=0.3,
        innocent=("n1", "n2"),
        breaks={"n3": [broken.rate(50)]},
        args=("--only", "world.gloo"),
    ),
    WorldFault(
        "an agent is stopped, and goes on when it has been given up",
        *("rdzv.reach", "lost", "n3"),
        alike=("agent-paused",),
        act=once(all_in, "n1", stopped("n3", 9.0)),
        after=0.3,
        slower=16.0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "the network of a guest is cut once it is in",
        *("rdzv.reach", "lost", "n3"),
        act=once(all_in, "n1", cut("n3", broken.unplugged())),
        after=0.3,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "an agent gets SIGTERM",
        *("rdzv.reach", "lost", "n3"),
        act=once(all_in, "n1", terminated("n3")),
        after=0.3,
        says="SIGTERM",
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "the host of the meeting is killed",
        *("rdzv.reach", "lost", "n1"),
        act=once(all_in, "n1", killed("n1")),
        after=0.3,
        says="ended without a message",
        innocent=("n2", "n3"),
    ),
    WorldFault(
        "the host of the meeting is stopped, and goes on when all are gone",
        *("rdzv.reach", "agent-paused", "n1"),
        act=once(all_in, "n1", stopped("n1", 10.0)),
        after=0.3,
        slower=17.0,
        innocent=("n2", "n3"),
    ),
    WorldFault(
        "the network of the host of the meeting is cut",
        *("rdzv.reach", "cut-off", "n1"),
        act=once(all_in, "n1", cut("n1", broken.unplugged())),
        after=0.3,
        innocent=("n2", "n3"),
    ),
    WorldFault(
        "of two nodes one falls silent, and both live",
        *("rdzv.reach", "lost", "n1->n2"),
        machines=machines(2),
        act=once(all_in, "n1", cut("n2", broken.unplugged())),
        after=0.3,
        confidence="possible",
    ),
    WorldFault(
        "an agent of another version of preflight",
        *("rdzv.reach", "handshake-incomplete", "n3"),
        breaks={"n3": [OTHER_VERSION]},
        on={"n3": {"PYTHONPATH": "other"}},
        arrive=6.0,
    ),
    WorldFault(
        "a node where nothing was started",
        *("rdzv.reach", "absent", "rank 2", "missing"),
        exit=5,
        absent=("n3",),
        confidence="possible",
    ),
    WorldFault(
        "a node of SLURM's list where nothing was started",
        *("rdzv.reach", "absent-host-up", "n3", "missing"),
        exit=5,
        absent=("n3",),
        env=SLURM,
    ),
    WorldFault(
        "a node of SLURM's list that is down",
        *("rdzv.reach", "absent-host-silent", "n3", "missing"),
        exit=5,
        absent=("n3",),
        breaks={"n3": [broken.unplugged()]},
        env=SLURM,
    ),
    WorldFault(
        "an agent comes 8 s after the others",
        *("rdzv.reach", "agent-late", "n3", "warn"),
        exit=0,
        slower=12.0,
        act=stopped("n3", 8.0),
        after=0.05,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "an agent comes when the others have given it up",
        *("rdzv.reach", "agent-too-late", "n3", "missing"),
        exit=5,
        slower=14.0,
        act=stopped("n3", 8.0),
        after=0.05,
        arrive=6.0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "two nodes with one node rank",
        *("rdzv.reach", "rank-duplicate", "n2 · rank 1"),
        subjects=("n3 · rank 1",),
        node_rank={"n3": 1},
        innocent=("n1",),
    ),
    WorldFault(
        "two nodes that both think that they lead",
        *("rdzv.reach", "leader-duplicate", "n3 · rank 0"),
        node_rank={"n3": 0},
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "n4 is not started, and n2 twice: the node list knows it",
        *("rdzv.reach", "absent-host-up", "n4", "missing"),
        machines=machines(4),
        absent=("n4",),
        wrap=TWICE_ON_N2,
        env=slurm_of(4),
        exit=3,
        also=("rdzv.reach rank-duplicate",),
        innocent=("n1", "n3"),
    ),
    WorldFault(
        "two of five are not started, and one of them was dealt out twice",
        *("rdzv.reach", "absent-host-up", "n4", "missing"),
        subjects=("n5",),
        machines=machines(5),
        absent=("n4", "n5"),
        node_rank={"n3": 1},
        wrap=TWICE_ON_N2,
        env=slurm_of(5),
        exit=3,
        also=("rdzv.reach rank-duplicate",),
        innocent=("n1",),
    ),
    WorldFault(
        "all nodes with the node rank 0, which is the default",
        *("rdzv.reach", "leader-duplicate", "n2 · rank 0"),
        subjects=("n3 · rank 0",),
        node_rank={"n2": 0, "n3": 0},
    ),
    WorldFault(
        "all nodes with the node rank 1",
        *("rdzv.reach", "rank-duplicate", "n1 · rank 1"),
        subjects=("n2 · rank 1", "n3 · rank 1"),
        node_rank={"n1": 1, "n3": 1},
    ),
    WorldFault(
        "a node that counts one node more than the others",
        *("rdzv.reach", "size-differs", "n3"),
        nodes={"n3": 4},
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "of two nodes one counts three",
        *("rdzv.reach", "size-differs", "n2"),
        machines=machines(2),
        nodes={"n2": 3},
    ),
    WorldFault(
        "a node without the token",
        *("rdzv.reach", "token", "n3"),
        env={"PREFLIGHT_TOKEN": "a-secret-of-this-job"},
        on={"n3": {"PREFLIGHT_TOKEN": None}},
        arrive=6.0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "a node with another token",
        *("rdzv.reach", "token", "n3"),
        env={"PREFLIGHT_TOKEN": "a-secret-of-this-job"},
        on={"n3": {"PREFLIGHT_TOKEN": "a-secret-of-yesterday"}},
        arrive=6.0,
        innocent=("n1", "n2"),
    ),
    WorldFault(
        "only the node of rank 0 lacks the token",
        *("rdzv.reach", "token", "n1"),
        env={"PREFLIGHT_TOKEN": "a-secret-of-this-job"},
        on={"n1": {"PREFLIGHT_TOKEN": None}},
        arrive=6.0,
        innocent=("n2", "n3"),
    ),
    WorldFault(
        "RANK and WORLD_SIZE count nodes, and each starts two processes, one after the other",
        *("rdzv.reach", "leader-duplicate", "n1 · rank 0"),
        wrap=TWICE_APART,
        also=("rdzv.reach rank-duplicate",),
    ),
    *(
        WorldFault(
            f"MASTER_PORT is taken on its host by {who}",
            *("net.port", "port-held", "n1 · MASTER_PORT"),
            alike=("port-leftover",),
            breaks={"n1": [by(PORT)]},
            arrive=6.0,
            innocent=("n2", "n3"),
        )
        for who, by in (
            ("a silent server", broken.silent_server),
            ("a web server", broken.http_server),
            ("an echo server", broken.echo_server),
            ("who hangs up", broken.hanging_up),
            ("the store of another job", broken.torch_store),
            ("a socket that does not listen", broken.taken),
        )
    ),
)
