"""job.backend: what carries the collectives of a rehearsed command, and what can't."""

from __future__ import annotations

import pytest
from support.cases import Case, assert_case, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import job_backend
from preflight.checks.job_backend import Carried, launcher_of
from preflight.domains.job.backends import Backends, GroupBackends
from preflight.domains.job.frame import Frame
from preflight.model import Blame, Cause, Missing, Node, Status, Topology

conforms(job_backend)

FAIL, WARN = Status.FAIL, Status.WARN
LINE = Frame("train.py", 5, "main", own=True)
FOUR = Topology(size=4, nodes=(Node("n1", (0, 1)), Node("n2", (2, 3))))
TWO = Topology(size=2, nodes=(Node("n1", (0, 1)),))


def rank(
    number: int = 0,
    *carried: tuple[str, str],
    models: tuple[str, ...] = (),
    failed: str = "",
    gpu: bool = False,
    launcher: str = "",
) -> Carried:
    groups = (GroupBackends("0", carried, (0, 1)),) if carried else ()
    backends = Backends(number, True, "", LINE, groups, models, failed, LINE if failed else None)
    return Carried(backends, gpu, launcher)


GLOO = (("cpu", "gloo"), ("cuda", "gloo"))
BOTH = (("cpu", "gloo"), ("cuda", "nccl"))
NCCL = (("cuda", "nccl"),)
UNSET = (
    "ValueError: Error initializing torch.distributed using env:// rendezvous: "
    "environment variable RANK expected, but not set"
)


def asks(number: int, backend: str) -> Carried:
    """One that has no group so far."""
    return Carried(Backends(number, True, backend, LINE))


CASES = (
    Case("Gloo on the CPU", rank(0, *GLOO, models=("cpu",))),
    Case("torch chose both", rank(0, *BOTH, models=("cuda",), gpu=True)),
    Case("NCCL alone", rank(0, *NCCL, models=("cuda",), gpu=True)),
    Case("Gloo for flags beside NCCL", rank(0, *NCCL, models=("cuda",), gpu=True)),
    Case("it raised something else", rank(0, failed="ValueError: bad sample")),
    Case("RANK missing, but no mpirun", rank(0, failed=UNSET)),
    Case(
        "Gloo carries a GPU's gradients",
        rank(0, *GLOO, models=("cuda",), gpu=True),
        "gloo-on-gpu",
        WARN,
    ),
    Case(
        "NCCL is not in this build",
        rank(0, failed="RuntimeError: Distributed package doesn't have NCCL built in"),
        "backend-unavailable",
        FAIL,
    ),
    Case(
        "no GPU for NCCL",
        rank(0, failed="ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
        "backend-unavailable",
        FAIL,
    ),
    Case(
        "UCC is not in this build",
        rank(0, failed="AssertionError: Unknown c10d backend type UCC"),
        "backend-unavailable",
        FAIL,
    ),
    Case(
        "a flag on the CPU, over NCCL",
        rank(0, *NCCL, failed="RuntimeError: No backend type associated with device type cpu"),
        "device-uncarried",
        FAIL,
    ),
    Case("mpirun sets no RANK", rank(0, failed=UNSET, launcher="mpirun"), "launcher-unread", FAIL),
    Case(
        "one rank sees no GPU",
        {"n1": rank(0, *NCCL, gpu=True), "n2": rank(1, ("cpu", "gloo"), ("cuda", "gloo"))},
        "backend-differs",
        FAIL,
        topology=Topology(size=2, nodes=(Node("n1", (0,)), Node("n2", (1,)))),
    ),
    Case(
        "one waits in init with another",
        {"n1/0": asks(0, "gloo"), "n1/1": asks(1, "nccl"), "n1/2": asks(2, "gloo")},
        "backend-differs",
        FAIL,
        subject="n1 · rank 1",
    ),
    Case("one names what torch chooses", {"n1/0": asks(0, "gloo"), "n1/1": asks(1, "")}),
    Case("one has several names", {"n1/0": asks(0, "gloo"), "n1/1": asks(1, "cpu:gloo,cuda:nccl")}),
    Case("two jobs in one command", {"n1/0": asks(0, "gloo"), "n1/1": asks(0, "nccl")}),
    Case("no command", Missing(Cause.NOT_APPLICABLE, "only where a command is rehearsed")),
    Case("a record that can't be read", Missing(Cause.TIMED_OUT)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    assert_case(job_backend, case)


def test_the_backend_and_the_line_are_named() -> None:
    seen = rank(1, failed="RuntimeError: Distributed package doesn't have MPI built in. MPI …")
    (found,) = judged(job_backend, Case("", seen))
    assert (found.fields["backend"], found.fields["line"]) == ("mpi", "train.py:5")
    assert (found.blame, [s.ranks for s in found.subjects]) == (Blame.JOB, [(1,)])


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ("mpirun -np 4 python train.py", "mpirun"),
        ("/opt/mpi/bin/mpiexec python train.py", "mpirun"),
        ("srun -n 4 python train.py", "srun"),
        ("srun torchrun train.py", ""),
        ("mpirun python -m torch.distributed.run train.py", ""),
        ("bash ./mpirun 2 python train.py", "mpirun"),
        ("python train.py mpirun", ""),
        ("python train.py", ""),
    ],
)
def test_who_has_started_the_ranks(argv: str, found: str) -> None:
    assert launcher_of(argv.split()) == found


def test_what_is_measured() -> None:
    groups = (
        GroupBackends("0", BOTH, label="default_pg"),
        GroupBackends("1", (("cpu", "gloo"),), label="undefined"),
        GroupBackends("3", (("cuda", "nccl"),), label="mesh_tp"),
    )
    assert Backends(groups=groups).text == "cpu:gloo cuda:nccl, gloo, nccl"
    ranks = {"n1/0": Carried(Backends(0, True, "", LINE, groups), gpu=True)}
    measured = job_backend.measured(world("job.backend", ranks))
    assert measured.text == (
        "world gloo cpu, nccl cuda · other groups gloo cpu · tp nccl cuda · none asked for: torch "
        "chose"
    )
    assert measured.values["groups"] == {
        "world": {"cpu": "gloo", "cuda": "nccl"},
        "1": {"cpu": "gloo"},
        "tp": {"cuda": "nccl"},
    }
    round_trips(Carried(Backends(0, True, "gloo", LINE, groups, ("cpu",)), True, "srun"))
