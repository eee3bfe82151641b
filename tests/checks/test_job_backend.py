"""job.backend: what carries the collectives of a rehearsed command, and what can't."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cases import Case, assert_case, judged, round_trips, topology, world
from support.nccl_reports import CARD, IB, MEMLOCK, NONE, capture, nodes, over, ring

from preflight.check import conforms
from preflight.checks import job_backend
from preflight.checks.job_backend import Carried, launcher_of
from preflight.domains.collectives.nccl_log import Link, NcclLog
from preflight.domains.collectives.nccl_transport import NcclReport, RdmaPorts
from preflight.domains.job.backends import Backends, GroupBackends, StridedCall
from preflight.domains.job.frame import Frame
from preflight.model import Blame, Cause, Confidence, Missing, Node, Status, Topology

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


def views(op: str, *strides: int) -> Carried:
    """One that gives a collective over Gloo views of these strides."""
    seen = rank(0, *GLOO)
    call = StridedCall(op, (32, 8), strides, 30, LINE)
    return replace(seen, backends=replace(seen.backends, strided=(call,)))


def asks(number: int, backend: str) -> Carried:
    """One that has no group so far."""
    return Carried(Backends(number, True, backend, LINE))


def logged(
    number: int, size: int, log: NcclLog, fabric: RdmaPorts = NONE, *told: str, part: int = 0
) -> Carried:
    """A rank that says what NCCL logged of it; `part`: ranks of a group beside the whole job."""
    pairs = ((number, size), (number % part, part)) if part else ((number, size),)
    said = NcclReport(replace(log, communicators=pairs), fabric, told)
    return replace(rank(number, *NCCL, models=("cuda",), gpu=True), world=size, nccl=said)


def job(*logs: Carried, each: int = 1) -> dict[str, Any]:
    """Their nodes and the topology of a case."""
    found = range(0, len(logs), each)
    met = tuple(Node(f"n{at // each + 1}", tuple(range(at, at + each))) for at in found)
    return {"saw": nodes(*logs, each=each), "topology": topology(len(logs), nodes=met)}


def network(size: int, name: str, fabric: RdmaPorts, *told: str) -> dict[str, Any]:
    """A rank on each node."""
    logs = (over(name, ring(r, size, f"NET/{name}")) for r in range(size))
    return job(*(logged(r, size, log, fabric, *told) for r, log in enumerate(logs)))


P2P_OFF = capture("v100-p2p-off-2.28")
# the ranks of a tensor-parallel group count from 0 on each node: its SHM is none to rank 1 of the
# job, and that NVLink joins the two says nothing of the job's ranks
OF_A_PART = over("IB", Link(1, "SHM", 2), Link(1, "NET/IB", 2), nvlink=(1,))

HCAS = ("mlx5_0:1/IB", "mlx5_1:1/IB")
NCCL_CASES = (
    Case("NCCL over InfiniBand", **network(4, "IB", IB)),
    Case("NCCL over TCP, and there is nothing else", **network(4, "Socket", NONE)),
    Case(
        "NCCL over TCP beside InfiniBand",
        code="sockets-chosen",
        status=FAIL,
        **network(4, "Socket", IB),
    ),
    Case(
        "NCCL_IB_DISABLE was left set",
        code="sockets-chosen",
        status=FAIL,
        **network(2, "Socket", IB, "NCCL_IB_DISABLE=1"),
    ),
    Case(
        "NCCL over TCP beside plain Ethernet cards",
        code="sockets-chosen",
        status=WARN,
        **network(2, "Socket", CARD),
    ),
    Case(
        "Sockets on one node alone",
        **job(*(logged(r, 2, over("Socket"), IB) for r in range(2)), each=2),
    ),
    Case(
        "NVSwitch and InfiniBand as recorded",
        **job(
            logged(0, 16, capture("h100-ib-2.27"), IB),
            *(logged(r, 16, over("IB"), IB) for r in range(1, 16)),
            each=8,
        ),
    ),
    Case(
        "TCP beside InfiniBand as recorded",
        code="sockets-chosen",
        status=FAIL,
        **job(
            *(logged(r, 4, capture("a100-socket-2.18", 1), IB) for r in range(4)),
            each=2,
        ),
    ),
    Case(
        "P2P that is switched off, as recorded",
        code="p2p-unused",
        status=WARN,
        **job(
            logged(0, 4, P2P_OFF, NONE, "NCCL_P2P_DISABLE=1"),
            *(logged(r, 4, over("")) for r in range(1, 4)),
            each=4,
        ),
    ),
    Case(
        "the same, and nobody has said so",
        code="p2p-unused",
        status=WARN,
        **job(logged(0, 4, P2P_OFF), *(logged(r, 4, over("")) for r in range(1, 4)), each=4),
    ),
    Case(
        "the same in a job with groups: whose peers they are is not known",
        **job(
            logged(0, 4, P2P_OFF, NONE, part=2),
            *(logged(r, 4, over("")) for r in range(1, 4)),
            each=4,
        ),
    ),
    Case(
        "a group of each node and InfiniBand between them",
        **job(*(logged(r, 4, OF_A_PART, IB, part=2) for r in range(4)), each=2),
    ),
    Case(
        "groups, and TCP beside InfiniBand all the same",
        code="sockets-chosen",
        status=FAIL,
        **job(
            *(logged(r, 4, over("Socket", Link(1, "NET/Socket", 2)), IB, part=2) for r in range(4)),
            each=2,
        ),
    ),
    Case(
        "groups of ranks that NVLink joins across nodes",
        **job(
            *(logged(r, 4, over("Socket", Link(1, "P2P/MNNVL", 2)), IB, part=2) for r in range(4)),
            each=2,
        ),
    ),
    Case(
        "NCCL within each node only, where its choice of a network says nothing",
        **job(
            *(
                replace(said, nccl=replace(said.nccl, log=replace(said.nccl.log, nodes=1)))
                for r in range(4)
                if (said := logged(r, 4, over("Socket" if r < 2 else "IB"), IB, part=2)).nccl
            ),
            each=2,
        ),
    ),
    Case(
        "another network on one node",
        code="nets-differ",
        status=FAIL,
        **job(*(logged(r, 3, over("Socket" if r == 2 else "IB"), IB) for r in range(3))),
    ),
    Case(
        "an InfiniBand port that one node does not use",
        code="hcas-unused",
        status=WARN,
        **job(
            *(
                logged(r, 3, over("IB", ring(r, 3, "NET/IB"), devices=HCAS[: 2 - r // 2]), IB)
                for r in range(3)
            )
        ),
    ),
    Case(
        "an InfiniBand port that NCCL_IB_HCA names and no node uses",
        code="hcas-unused",
        status=WARN,
        **job(
            *(
                logged(r, 2, over("IB", devices=HCAS[:1], hcas="mlx5_0,mlx5_1:1"), IB)
                for r in range(2)
            )
        ),
    ),
    Case(
        "one that NCCL_IB_HCA leaves out",
        **job(*(logged(r, 2, over("IB", devices=HCAS[:1], hcas="mlx5_0"), IB) for r in range(2))),
    ),
    Case(
        "one that NCCL_IB_HCA excludes",
        **job(*(logged(r, 2, over("IB", devices=HCAS[:1], hcas="^mlx5_1"), IB) for r in range(2))),
    ),
    Case(
        "GPUDirect RDMA on three of four nodes",
        code="gdr-off",
        status=WARN,
        **job(*(logged(r, 4, over("IB", ring(r, 4, "NET/IB", gdr=r != 2)), IB) for r in range(4))),
    ),
    Case(
        "NCCL's own diagnostics",
        code="nccl-diagnostics",
        status=WARN,
        **job(
            logged(0, 2, over("IB", diagnosed=("p2p: 52/56 directed GPU P2P edges verified",))),
            logged(1, 2, over("IB")),
            each=2,
        ),
    ),
    Case(
        "two jobs in one command",
        **job(*(logged(0, 2, over("Socket"), IB) for _ in range(2))),
    ),
)


def sets(
    number: int, failed: str = "", joining: bool = False, waits: float = 0.0, **of: str
) -> Carried:
    """A rank with settings that somebody has set for it."""
    seen = rank(number, *NCCL, failed=failed, gpu=True)
    backends = replace(seen.backends, settings=tuple(of.items()))
    return replace(seen, backends=backends, joining=joining, waits=waits)


TREE, DETAIL = {"NCCL_ALGO": "Tree"}, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
TRUNCATED = "DistBackendError: NCCL error: ncclInternalError: Internal check failed."
SETTINGS_CASES = (
    Case("one setting everywhere", {f"n1/{r}": sets(r, **TREE) for r in range(3)}),
    Case(
        "one rank takes trees, and the job goes on",
        {f"n1/{r}": sets(r, **(TREE if r == 1 else {})) for r in range(3)},
        "setting-differs",
        WARN,
        subject="n1 · rank 1",
    ),
    Case(
        "one rank takes trees, and all hang",
        {f"n1/{r}": sets(r, waits=9.0, **(TREE if r == 1 else {})) for r in range(3)},
        "setting-differs",
        FAIL,
        subject="n1 · rank 1",
    ),
    Case(
        "one of them works, the others wait",
        {f"n1/{r}": sets(r, waits=9.0 * (r > 0), **(TREE if r == 1 else {})) for r in range(3)},
        "setting-differs",
        WARN,
    ),
    Case(
        "another number of channels, and NCCL ends",
        {"n1/0": sets(0, failed=TRUNCATED, NCCL_MAX_NCHANNELS="1"), "n1/1": sets(1)},
        "setting-differs",
        FAIL,
    ),
    Case(
        "a rank of three ends where it joins",
        {f"n1/{r}": sets(r, joining=r == 2, **(DETAIL if r == 2 else {})) for r in range(3)},
        "setting-differs",
        FAIL,
        subject="n1 · rank 2",
    ),
    Case(
        "it ends where it joins, and NCCL reads it later",
        {f"n1/{r}": sets(r, joining=r == 2, **(TREE if r == 2 else {})) for r in range(3)},
        "setting-differs",
        WARN,
    ),
    *(
        Case(
            f"it ends for something else: {text[:12]}",
            {"n1/0": sets(0, failed=text, **TREE), "n1/1": sets(1), "n1/2": sets(2)},
            "setting-differs",
            WARN,
        )
        for text in (
            "RuntimeError: Error(s) in loading state_dict: size mismatch for head.weight",
            "DistBackendError: ncclInvalidUsage: Last error: Duplicate GPU detected : rank 0 and",
        )
    ),
    Case(
        "one that has not called init_process_group",
        {"n1/0": sets(0, **TREE), "n1/1": replace(sets(1), backends=Backends(1))},
    ),
    Case(
        "Gloo reads none of NCCL's",
        {
            "n1/0": rank(0, *GLOO),
            "n1/1": replace(
                rank(1, *GLOO),
                backends=replace(rank(1, *GLOO).backends, settings=tuple(TREE.items())),
            ),
        },
    ),
)

CASES = (
    *NCCL_CASES,
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
    Case(
        "columns of a matrix",
        views("all_reduce", 64, 1),
        "tensor-not-contiguous",
        FAIL,
        subject="n1 · rank 0",
    ),
    Case("mpirun sets no RANK", rank(0, failed=UNSET, launcher="mpirun"), "launcher-unread", FAIL),
    Case(
        "srun sets no LOCAL_RANK",
        rank(0, failed="KeyError: 'LOCAL_RANK'", launcher="srun"),
        "launcher-unread",
        FAIL,
    ),
    Case(
        "a key of the script's own",
        rank(0, failed="KeyError: 'LOCAL_RANKS'", launcher="srun"),
    ),
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
    *SETTINGS_CASES,
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


def test_the_ways_of_nccl_are_measured() -> None:
    first = logged(0, 2, over("IB", Link(1, "NET/IB", 2, gdr=True), Link(1, "SHM", 1)), IB)
    assert first.nccl is not None
    log = replace(first.nccl.log, devices=("mlx5_0:1/IB",), interface="eth0", rings=16)
    log = replace(log, trees=2)
    first = replace(first, nccl=replace(first.nccl, log=log))
    seen = {"n1/0": first, "n2/1": logged(1, 2, over("IB"), IB)}
    found = job_backend.measured(world("job.backend", seen))
    assert found.text == (
        "other groups nccl cuda · none asked for: torch chose · transport NET/IB/GDRDMA + SHM"
    )
    assert found.values["links"] == {"0-1": "NET/IB/GDRDMA, SHM"}
    assert (found.values["networks"], found.values["interfaces"]) == (["IB"], ["eth0"])
    assert (found.values["rings"], found.values["trees"], found.values["nvls"]) == (16, 2, 0)
    assert found.values["devices"] == ["mlx5_0:1/IB"]
    round_trips(first)


@pytest.mark.parametrize(
    ("name", "explained"),
    [("another network on one node", True), ("NCCL over TCP beside InfiniBand", False)],
)
def test_only_networks_that_can_t_talk_explain_a_hang(name: str, explained: bool) -> None:
    (found,) = judged(job_backend, next(c for c in NCCL_CASES if c.name == name))
    assert ("job.collectives" in found.explains) == explained


@pytest.mark.parametrize(
    ("setting", "failed", "explained"),
    [
        ("NCCL_ALGO", "", {"job.collectives:fabric-stuck", "job.collectives:nothing-seen"}),
        ("TORCH_DISTRIBUTED_DEBUG", "", {"job.collectives"}),
        ("TORCH_DIST_INIT_BARRIER", TRUNCATED, {"job.collectives", "job.ranks"}),
    ],
)
def test_what_a_setting_that_differs_explains(
    setting: str, failed: str, explained: set[str]
) -> None:
    """Other calls on some ranks only where torch itself makes more calls with it."""
    odd = sets(1, failed=failed, waits=9.0, **{setting: "DETAIL" if "DEBUG" in setting else "1"})
    (found,) = judged(job_backend, Case("", {"n1/0": sets(0, waits=9.0), "n1/1": odd}))
    assert set(found.explains) == explained
    assert found.confidence is Confidence.LIKELY
    assert found.alternatives
    round_trips(odd)


def test_what_nccl_warns_of_is_shown() -> None:
    """With the ranks, each warning once, and no more than some."""

    def warns(number: int, *texts: str) -> Carried:
        return logged(number, 3, over("IB", warnings=texts))

    seen = {"n1/0": warns(0, MEMLOCK), "n1/1": warns(1), "n1/2": warns(2, MEMLOCK, "moon is full")}
    found = job_backend.measured(world("job.backend", seen))
    assert found.notes == (
        f"NCCL warns on ranks 0,2: {MEMLOCK}",
        "NCCL warns on rank 2: moon is full",
    )
    many = world("job.backend", {"n1/0": warns(0, *map(str, range(99)))})
    assert len(job_backend.measured(many).notes) == job_backend.WARNINGS


def test_the_setting_that_takes_the_fabric_away_is_named() -> None:
    case = next(c for c in NCCL_CASES if c.name == "NCCL_IB_DISABLE was left set")
    (found,) = judged(job_backend, case)
    assert "NCCL_IB_DISABLE=1" in found.saw
    assert (found.fields["unset"], found.blame) == ("NCCL_IB_DISABLE", Blame.JOB)
