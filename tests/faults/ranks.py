"""Faults that show when torch is loaded and ranks work together."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from faults.inject import Fault
from faults.job import STORE
from lab.host import Machine

STANDARD = ("--level", "standard")
SHORT = (*STANDARD, "--timeout", "rdzv.*=6s")


def stand_in(source: str) -> dict[str, object]:
    """A package called torch that comes before the real one."""
    return {
        "setup": f"mkdir -p lib/torch; cat > lib/torch/__init__.py <<'END'\n{source}\nEND\n",
        "env": {"PYTHONPATH": "{here}/lib"},
        "args": STANDARD,
        "seconds": 10,
    }


def without_torch() -> str:
    """The folder of installed packages again, less everything of torch's."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    packages = Path(spec.origin).parents[1]
    return f"""
        mkdir packages; mount --rbind {packages} packages; mount -t tmpfs less {packages}
        ln -s $PWD/packages/* {packages}/; rm {packages}/torch*
    """


TORCH = "n1 · torch"

SOFTWARE = (
    Fault(
        "a library that torch needs is not there",
        "host.software",
        "torch-broken",
        TORCH,
        says="libcudart.so.12",
        **stand_in("raise ImportError('libcudart.so.12: cannot open shared object file')"),
    ),
    Fault(
        "import torch dies of SIGSEGV",
        "host.software",
        "torch-broken",
        TORCH,
        **stand_in("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
    ),
    Fault(
        "a file of the job is called torch",
        "host.software",
        "module-shadowed",
        TORCH,
        says="is not torch",
        **stand_in("x = 1"),
    ),
    Fault(
        "a file of the job is called random.py",
        "host.software",
        "module-shadowed",
        TORCH,
        says="from 'random'",
        setup="mkdir lib; echo 'x = 1' >lib/random.py\n",
        env={"PYTHONPATH": "{here}/lib"},
        args=STANDARD,
        seconds=10,
    ),
    Fault(
        "torch is not installed",
        says="torch is not installed here",
        exit=4,
        setup=without_torch(),
        args=STANDARD,
    ),
    Fault(
        "TORCH_DISTRIBUTED_DEBUG=LOUD, with torch",
        "env.vars",
        "import-fails",
        "n1 · TORCH_DISTRIBUTED_DEBUG",
        env={"TORCH_DISTRIBUTED_DEBUG": "LOUD"},
        args=STANDARD,
        seconds=15,
    ),
    Fault(
        "TORCH_DISTRIBUTED_DEBUG=DETAIL, with torch",
        "env.vars",
        "debug-detail",
        "n1 · TORCH_DISTRIBUTED_DEBUG",
        env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
        args=STANDARD,
        seconds=30,
        status="warn",
        exit=0,
    ),
    Fault(
        "TORCH_FR_BUFFER_SIZE=abc, with torch",
        "env.vars",
        "value-hangs",
        "n1 · TORCH_FR_BUFFER_SIZE",
        env={"TORCH_FR_BUFFER_SIZE": "abc"},
        args=SHORT,
        seconds=40,
    ),
    Fault(
        "import torch takes 21 s",
        "host.software",
        "torch-slow-import",
        TORCH,
        status="warn",
        exit=0,
        setup="mkdir lib; cp {tests}/faults/sabotage/slow_torch.py lib/sitecustomize.py",
        env={"PYTHONPATH": "{here}/lib"},
        args=(*STANDARD, "--only", "host.software"),
        seconds=90,
    ),
    Fault(
        "import torch does not end",
        "host.software",
        "torch-import-hangs",
        TORCH,
        **stand_in("import time; time.sleep(1000)") | {"seconds": 100},
    ),
)


def sabotage(what: str, seconds: float, **more: object) -> dict[str, object]:
    """One rank of four does this at one step."""
    changes: dict[str, object] = {
        "env": {"PYTHONPATH": "{tests}/faults/sabotage", "SABOTAGE": what, **STORE},
        "args": (*STANDARD, "--timeout", "world.*=8s"),
        "seconds": seconds,
    }
    return changes | more


def wall(rule: str) -> str:
    """A firewall with this rule for what comes in."""
    chain = "chain inet wall in { type filter hook input priority 0 ; }"
    return f"nft 'add table inet wall; add {chain}; add rule inet wall in {rule}'"


RANKS = (
    Fault(
        "rank 2 is stopped before it meets the others",
        "rdzv.store",
        "rank-silent",
        "n1 · rank 2",
        **sabotage("2 rendezvous stop", 30),
    ),
    Fault(
        "rank 3 is stopped before init_process_group",
        "rdzv.store",
        "rank-silent",
        "n1 · rank 3",
        **sabotage("3 init_process_group stop", 30, args=SHORT),
    ),
    Fault(
        "rank 1 is stopped in the middle of the all-reduces",
        "world.gloo",
        "rank-silent",
        "n1 · rank 1",
        **sabotage("1 all_reduce stop", 45),
    ),
    Fault(
        "rank 2 is killed in the middle of the all-reduces",
        "world.gloo",
        "rank-died",
        "n1 · rank 2",
        says="SIGKILL",
        **sabotage("2 all_reduce kill", 45),
    ),
    Fault(
        "rank 0 is killed at the rendezvous",
        "rdzv.store",
        "rank-died",
        "n1 · rank 0",
        **sabotage("0 rendezvous kill", 30, args=SHORT),
    ),
    Fault(
        "rank 1 fails with an error of its own",
        "world.gloo",
        "rank-failed",
        "n1 · rank 1",
        says="illegal memory access",
        **sabotage("1 all_reduce raise", 45),
    ),
    Fault(
        "rank 3 gets a wrong sum without any error",
        "world.gloo",
        "wrong-sum",
        "n1 · rank 3",
        **sabotage("3 all_reduce corrupt", 30),
    ),
    Fault(
        "rank 1 comes 4 s late",
        "rdzv.store",
        "rank-late",
        "n1 · rank 1",
        status="warn",
        exit=0,
        **sabotage("1 start sleep=4", 30, args=(*STANDARD, "--only", "rdzv.store")),
    ),
    Fault(
        "rank 1 takes 4 s to get into the store",
        "rdzv.store",
        "store-slow",
        "n1 · rank 1",
        status="warn",
        exit=0,
        **sabotage("1 rendezvous sleep=4", 30, args=(*STANDARD, "--only", "rdzv.store")),
    ),
    Fault(
        "/dev/shm of 1 MiB, with torch",
        "host.limits",
        "shm-full",
        machine=Machine(shm="1m"),
        args=STANDARD,
        seconds=30,
    ),
    Fault(
        "a firewall drops what ranks say to each other on free ports",
        "net.interface",
        "loopback-down",
        "n1 · lo",
        setup=wall("tcp dport 32768-60999 ct state new drop"),
        env=STORE,
        args=SHORT,
        seconds=30,
        needs=("nft",),
    ),
    Fault(
        "a firewall drops what comes to MASTER_PORT",
        "rdzv.store",
        "store-unreachable",
        "n1 · rank [0-3]",
        setup=wall("tcp dport 29500 drop"),
        env=STORE,
        args=SHORT,
        seconds=30,
        needs=("nft",),
    ),
    Fault(
        "a firewall resets what comes to MASTER_PORT",
        "rdzv.store",
        "store-unreachable",
        "n1 · rank [0-3]",
        setup=wall("tcp dport 29500 reject with tcp reset"),
        env=STORE,
        # torch tries again for a while before it says so, on a busy machine for longer
        args=("--level", "standard", "--timeout", "rdzv.*=15s"),
        seconds=45,
        needs=("nft",),
    ),
    Fault(
        "large packets are dropped on the way",
        "world.gloo",
        "stuck",
        "job",
        setup=wall("iifname lo meta length > 20000 drop"),
        env={"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500"},
        args=(*STANDARD, "--timeout", "world.*=8s"),
        seconds=45,
        needs=("nft",),
    ),
)

FAULTS = (*SOFTWARE, *RANKS)
