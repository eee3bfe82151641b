"""agree.env: the odd value and its owner are named by majority or by the file that only one node
has, never by a majority of two; what may differ from node to node is nobody's worry."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology

from preflight.check import conforms
from preflight.checks import agree_env
from preflight.checks.agree_env import Environment, TaskGpus
from preflight.domains.settings.agreement import compared
from preflight.domains.settings.nccl_conf import Variable
from preflight.host import Host
from preflight.model import Blame, Cause, Confidence, Missing, Node, Status, Topology

conforms(agree_env)

ETC = "/etc/nccl.conf"


def env(gpus: bool = True, file: str = "", **values: str) -> Environment:
    return Environment(
        tuple(Variable(n, v, file, int(bool(file))) for n, v in values.items()), gpus
    )


def nodes(count: int, ranks: int = 1) -> Topology:
    """n1 … with so many ranks each."""
    return topology(
        count * ranks,
        nodes=tuple(
            Node(f"n{i + 1}", tuple(range(i * ranks, (i + 1) * ranks))) for i in range(count)
        ),
    )


def several(*seen: Any, ranks: int = 1) -> dict[str, Any]:
    """The n-th node has the n-th environment on all its ranks."""
    return {
        f"n{i + 1}/{rank}": one
        for i, one in enumerate(seen)
        for rank in range(i * ranks, (i + 1) * ranks)
    }


def case(name: str, seen: tuple[Any, ...], *rest: Any, ranks: int = 1, **more: Any) -> Case:
    return Case(name, several(*seen, ranks=ranks), *rest, topology=nodes(len(seen), ranks), **more)


NONE, RING, TREE = env(), env(NCCL_ALGO="Ring"), env(NCCL_ALGO="Tree")
FILED = env(file=ETC, NCCL_ALGO="Ring")
CPU = env(False)
LAUNCHED = {
    "ACCELERATE_USE_CPU": "False",
    "ACCELERATE_MIXED_PRECISION": "no",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1",
}


def tasks(
    *masks: str | None, open_to: tuple[int, ...] | None = None, each: int | None = None
) -> Case:
    """Tasks of one node with these masks, which may open four GPUs, or these, or each its own."""
    ranks = {}
    for rank, mask in enumerate(masks):
        usable = open_to or (range(4) if each is None else range(rank, rank + each))
        devices = tuple((f"/dev/nvidia{n}", 195 << 8 | n) for n in usable)
        told = None if mask is None else tuple(mask.split(","))
        ranks[f"n1/{rank}"] = Environment((), True, TaskGpus(told, devices))
    return Case("", ranks, topology=nodes(1, len(masks)))


TWO_OF_ONE = tuple(tasks("0", "0").saw.values())


def local_ranks(name: str, tasks: Case, *locals_: int | None, shared: Status | None = None) -> Case:
    """These tasks with a LOCAL_RANK each; `shared`: how bad it is that some have the same."""
    pairs = zip(tasks.saw.items(), locals_, strict=True)
    saw = {key: dataclasses.replace(seen, local=local) for (key, seen), local in pairs}
    code = "local-rank-shared" if shared else None
    return dataclasses.replace(tasks, name=name, saw=saw, code=code, status=shared)


def taken(tasks: Case, *locals_: int | None) -> Case:
    """These tasks with a LOCAL_RANK each."""
    return local_ranks("", tasks, *locals_)


def crossed(name: str, tasks: Case, *locals_: int | None) -> Case:
    return shared(name, taken(tasks, *locals_))


def shared(name: str, tasks: Case) -> Case:
    return dataclasses.replace(tasks, name=name, code="gpu-shared", status=Status.FAIL)


UUIDS = ("GPU-1f", "GPU-2a", "GPU-2b", "GPU-3c")


def told(tasks: Case, uuids: tuple[str, ...] = UUIDS) -> Case:
    """These tasks, of which those with a UUID in their mask know the driver's."""
    saw = {}
    for key, seen in tasks.saw.items():
        by_uuid = any(entry.startswith("GPU-") for entry in seen.task.mask)
        task = dataclasses.replace(seen.task, uuids=uuids if by_uuid else ())
        saw[key] = dataclasses.replace(seen, task=task)
    return dataclasses.replace(tasks, saw=saw)


def ordered(tasks: Case) -> Case:
    """These tasks, of which those that know UUIDs have CUDA_DEVICE_ORDER=PCI_BUS_ID as well."""
    saw = {}
    for key, seen in tasks.saw.items():
        task = dataclasses.replace(seen.task, ordered=bool(seen.task.uuids))
        saw[key] = dataclasses.replace(seen, task=task)
    return dataclasses.replace(tasks, saw=saw)


FAIL = Status.FAIL


def numbered(tasks: Case, *numbers: int) -> Case:
    """These tasks with their launcher's numbers."""
    pairs = zip(tasks.saw.items(), numbers, strict=True)
    saw = {key: dataclasses.replace(seen, number=number) for (key, seen), number in pairs}
    return dataclasses.replace(tasks, saw=saw)


def every_other(tasks: Case) -> Case:
    """These tasks as the ranks 0, 2, … of the job, which go round its two nodes."""
    saw = {f"n1/{2 * rank}": seen for rank, seen in enumerate(tasks.saw.values())}
    ranks = tuple(range(0, 2 * len(saw), 2))
    top = topology(2 * len(saw), nodes=(Node("n1", ranks), Node("n2", tuple(r + 1 for r in ranks))))
    return dataclasses.replace(tasks, saw=saw, topology=top)


def unsafe(name: str, tasks: Case) -> Case:
    return dataclasses.replace(tasks, name=name, code="gpu-shared", status=Status.WARN)


def apart(name: str, tasks: Case) -> Case:
    return dataclasses.replace(tasks, name=name)


CASES = (
    shared("four tasks with the mask 0", tasks("0", "0", "0", "0")),
    shared("two pairs of tasks share a GPU each", tasks("0", "0", "1", "2")),
    shared("four tasks see the same two GPUs", tasks(*["0,1"] * 4)),
    shared("a job of one GPU and two tasks", tasks("0", "0", open_to=(2,))),
    shared("the same without a mask", tasks(None, None, open_to=(2,))),
    shared(
        "the same mask for the tasks of two nodes is one finding",
        dataclasses.replace(
            tasks("0", "0"),
            saw=tasks("0", "0").saw | {f"n2/{n + 2}": s for n, s in enumerate(TWO_OF_ONE)},
            topology=nodes(2, 2),
        ),
    ),
    local_ranks("LOCAL_RANK=0 for all", tasks(*[None] * 4), 0, 0, 0, 0, shared=Status.WARN),
    local_ranks("LOCAL_RANK=0, one mask", tasks("0,1,2", "0,1,2"), 0, 0, shared=Status.WARN),
    local_ranks("LOCAL_RANK=1 for both", tasks("0,1", "0,1"), 1, 1, shared=Status.WARN),
    # a script that goes by SLURM_LOCALID or its rank runs
    local_ranks("two of four", tasks(*["0,1,2,3"] * 4), 0, 1, 1, 3, shared=Status.WARN),
    local_ranks("one per two tasks", tasks(*[None] * 4), 0, 0, 1, 1, shared=Status.WARN),
    local_ranks("and ranks that go round", every_other(tasks("0,1", "0,1")), 0, 0, shared=FAIL),
    local_ranks(
        "the same, and the launcher numbers them",
        numbered(every_other(tasks("0,1", "0,1")), 0, 1),
        *(0, 0),
        shared=Status.WARN,
    ),
    local_ranks(
        "a launcher's numbers that were exported, too",
        numbered(every_other(tasks("0,1", "0,1")), 1, 1),
        *(1, 1),
        shared=FAIL,
    ),
    apart("masks turned for whoever takes the first", numbered(tasks("0,1", "1,0"), 0, 1)),
    apart("masks by twos, with others in common", numbered(tasks("0,1", "0,2"), 0, 1)),
    apart("masks that part them by their numbers", numbered(tasks("2,3", "2,3,1"), 0, 1)),
    unsafe("no usual choice parts them", numbered(tasks("0,1,2", "0,2,1", "0,1,2"), 0, 1, 2)),
    shared("four tasks and two GPUs, by turned masks", tasks(*["0,1", "1,0"] * 2)),
    shared("three tasks and two GPUs, by masks that differ", tasks("0,1", "1", "0")),
    apart("three tasks and three GPUs", numbered(tasks("0,1", "1,2", "2,0"), 0, 1, 2)),
    local_ranks("it is not set", tasks(*[None] * 4), None, None, None, None),
    local_ranks("one task has it", tasks(None, None), 0, None),
    local_ranks("a GPU that is not there, which is gpu.visible's", tasks("0,1", "0,1"), 7, 7),
    local_ranks("a LOCAL_RANK each", tasks(*[None] * 4), 0, 1, 2, 3),
    local_ranks("LOCAL_RANK=0 for all, and a mask each", tasks("0", "1", "2", "3"), 0, 0, 0, 0),
    local_ranks("LOCAL_RANK=0 for all, parted by control groups", tasks("0", "0", each=1), 0, 0),
    local_ranks("LOCAL_RANK=0 for all, whose masks begin differently", tasks("0,1", "1,0"), 0, 0),
    apart("a mask for each task", tasks("0", "1", "2", "3")),
    crossed("one GPU by lists in another order", tasks("0,1", "1,0"), 0, 1),
    crossed("one GPU by a mask alone and a list", tasks("1", "0,1"), 0, 1),
    crossed("one GPU by its UUID", tasks("GPU-1f", "GPU-2a,GPU-1f"), None, 1),
    shared("one GPU by its number and by its UUID", told(tasks("1", "GPU-2a"))),
    shared("by a UUID and the beginning of it", told(tasks("GPU-3c", "GPU-3"))),
    shared("one of a list of UUIDs", told(taken(tasks("2", "GPU-3c,GPU-2b"), None, 1))),
    shared("one MIG instance", tasks("MIG-12", "MIG-12")),
    apart("a number and another one's UUID", told(tasks("0", "GPU-2a"))),
    apart("a beginning that two of them have", told(tasks("1", "GPU-2"))),
    apart("the driver tells no UUID", told(tasks("1", "GPU-2a"), ())),
    apart("a number that no GPU has", told(tasks("7", "GPU-3c"))),
    apart(
        "a UUID behind a number, which CUDA leaves out", told(taken(tasks("1", "0,GPU-2a"), 0, 1))
    ),
    apart("by number and UUID, parted by control groups", told(tasks("1", "GPU-2a", each=2))),
    apart("CUDA counts the GPUs otherwise for one of them", ordered(told(tasks("1", "GPU-2a")))),
    apart("a MIG instance each", tasks("MIG-12", "MIG-34")),
    apart("lists in another order, and one LOCAL_RANK each", taken(tasks("0,1", "1,0"), 0, 0)),
    apart("no LOCAL_RANK tells which of a list", taken(tasks("1", "0,1"), None, None)),
    apart("lists parted by control groups", taken(tasks("0,1", "1,0", each=2), 0, 1)),
    apart("parted by control groups, each sees its own as 0", tasks("0", "0", "0", each=1)),
    apart("all masks show all GPUs", tasks(*["0,1,2,3"] * 4)),
    apart("no mask, and as many GPUs", tasks(None, None, None, None)),
    case("nobody has set anything", (NONE,) * 3),
    case("all have set the same", (RING,) * 4, ranks=2),
    case("the same in another spelling", (RING, env(NCCL_ALGO="ring"), RING)),
    case("the same in another order", (env(NCCL_ALGO="Tree,Ring"), env(NCCL_ALGO="ring,tree"))),
    case("a default that is spelled out", (NONE, env(NCCL_IB_DISABLE="0"), NONE)),
    case("empty is not set", (NONE, env(NCCL_P2P_DISABLE=""), NONE)),
    case("0 and 0x0", (env(NCCL_NVLS_ENABLE="0"), env(NCCL_NVLS_ENABLE="0x0"), NONE)[:2]),
    case("by the file and by the environment", (FILED, RING, RING)),
    case("a library by its path", tuple(env(NCCL_NET_PLUGIN=f"/{x}/libofi.so") for x in "abc")),
    case("INFO says more, and does no more", (NONE, env(TORCH_DISTRIBUTED_DEBUG="INFO"), NONE)),
    case("a transport by its old name", (NONE, env(GLOO_DEVICE_TRANSPORT="LINUX"))),
    case("another time limit without a GPU", (CPU, CPU, env(False, NCCL_IB_TIMEOUT="22"))),
    case("a single agent's part", (RING,)),
    case("as accelerate launch sets them", (env(False, **LAUNCHED),) * 3),
    case("some by accelerate launch, some by nobody", (CPU, env(False, **LAUNCHED), CPU)),
    case(
        "left over from another launch: FSDP on one of three",
        (CPU, CPU, env(False, ACCELERATE_USE_FSDP="true")),
        "setting-differs",
        Status.WARN,
        subject="n3 · ACCELERATE_USE_FSDP",
    ),
    case(
        "another precision on one",
        (NONE, env(ACCELERATE_MIXED_PRECISION="bf16"), NONE),
        "setting-differs",
        Status.WARN,
        subject="n2 · ACCELERATE_MIXED_PRECISION",
    ),
    case(
        "two nodes, one of which is on the CPU",
        (env(ACCELERATE_USE_CPU="1"), NONE),
        "setting-differs",
        Status.WARN,
    ),
    Case("a rank that did not come", {"n1/0": RING, "n2/1": Missing(Cause.NOT_ARRIVED)}),
    Case("not looked", {"n1/0": Missing(Cause.CANNOT_OBSERVE)}),
    case(
        "one of three", (NONE, NONE, RING), "setting-differs", Status.FAIL, subject="n3 · NCCL_ALGO"
    ),
    case("one lacks it", (RING, NONE, RING), "setting-differs", subject="n2 · NCCL_ALGO"),
    case(
        "one node of eight ranks",
        (RING, RING, TREE),
        "setting-differs",
        Status.FAIL,
        ranks=8,
        subject="n3 · NCCL_ALGO",
    ),
    Case(
        "one rank of a node",
        {f"n{r // 4 + 1}/{r}": TREE if r == 6 else RING for r in range(8)},
        "setting-differs",
        Status.FAIL,
        topology=nodes(2, 4),
        subject="n2 · rank 6",
    ),
    Case(
        "several ranks on one node",
        {f"n1/{r}": TREE if r == 1 else RING for r in range(3)},
        "setting-differs",
        subject="n1 · rank 1",
    ),
    case("two nodes", (RING, TREE), "setting-differs", Status.FAIL, subject="n1 · NCCL_ALGO"),
    case("without a GPU", (CPU, CPU, env(False, NCCL_ALGO="Tree")), "setting-differs", Status.WARN),
    case(
        "what Gloo reads, without a GPU",
        (CPU, CPU, env(False, GLOO_ENABLE_STORE_V2_API="1")),
        "setting-differs",
        Status.FAIL,
        subject="n3 · GLOO_ENABLE_STORE_V2_API",
    ),
    case(
        "DETAIL on one", (CPU, CPU, env(False, TORCH_DISTRIBUTED_DEBUG="detail")), "setting-differs"
    ),
    case(
        "a file on one of two",
        (NONE, FILED),
        "conf-leftover",
        Status.FAIL,
        subject="n2 · NCCL_ALGO",
    ),
    case(
        "a file on one of four",
        (NONE, NONE, FILED, NONE),
        "conf-leftover",
        subject="n3 · NCCL_ALGO",
    ),
    case(
        "a file that one lacks", (FILED, FILED, NONE), "setting-differs", subject="n3 · NCCL_ALGO"
    ),
    case("threads", (env(OMP_NUM_THREADS="8"),) * 2 + (NONE,), "setting-uneven", Status.WARN),
    case(
        "a watchdog is off on one",
        (NONE, env(TORCH_NCCL_ENABLE_MONITORING="0"), NONE),
        "setting-uneven",
        Status.WARN,
        subject="n2 · TORCH_NCCL_ENABLE_MONITORING",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(agree_env, case)


def one(*seen: Any) -> Any:
    (finding,) = judged(agree_env, case("", seen))
    return finding


def test_of_two_both_are_named_and_neither_is_the_odd_one() -> None:
    finding = one(RING, TREE)
    assert finding.confidence is Confidence.POSSIBLE
    assert [s.node for s in finding.subjects] == ["n1", "n2"]
    assert len(finding.alternatives) == 2
    assert "'Ring' (environment) on n1" in finding.saw
    assert "'Tree' (environment) on n2" in finding.saw


def test_two_against_two_is_no_majority() -> None:
    finding = one(RING, TREE, TREE, RING)
    assert finding.confidence is Confidence.POSSIBLE
    assert len(finding.subjects) == 4


def test_seven_ranks_of_one_node_are_no_majority_over_one_of_another() -> None:
    saw = {f"n1/{r}": RING for r in range(7)} | {"n2/7": TREE}
    top = topology(8, nodes=(Node("n1", tuple(range(7))), Node("n2", (7,))))
    (finding,) = judged(agree_env, Case("", saw, topology=top))
    assert finding.confidence is Confidence.POSSIBLE
    assert {s.node for s in finding.subjects} == {"n1", "n2"}


def test_a_file_that_only_one_has_is_a_hint_and_no_proof() -> None:
    finding = one(NONE, FILED)
    assert finding.confidence is Confidence.LIKELY
    assert finding.blame is Blame.NODE
    assert finding.alternatives == ("/etc/nccl.conf is missing on n1",)
    assert finding.advice is not None
    assert finding.advice.now == ""
    assert finding.advice.text.startswith("remove NCCL_ALGO from /etc/nccl.conf there, or ")


def test_many_variables_of_one_node_are_one_finding() -> None:
    odd = env(NCCL_ALGO="Tree", NCCL_PROTO="LL", NCCL_IB_DISABLE="1", NCCL_NVLS_ENABLE="0")
    finding = one(NONE, odd, NONE)
    assert [str(s) for s in finding.subjects] == ["n2"]
    assert all(v.name in finding.saw for v in odd.settings)


def test_one_run_shows_six_and_counts_the_rest() -> None:
    names = [n for n in sorted(compared()) if n.startswith("NCCL_IB")][:8]
    seen = [env(**{name: "3"}) for name in names]
    seen += [NONE] * 9
    found = judged(agree_env, case("", tuple(seen)))
    assert len(found) == 6
    assert "and 2 more like it" in found[-1].saw


def test_now_says_what_to_type_and_where() -> None:
    assert one(RING, NONE, RING).fields["now"] == "export NCCL_ALGO=Ring   on n2"
    assert one(NONE, RING, NONE).fields["now"] == "unset NCCL_ALGO   on n2"


def test_a_hidden_value_is_not_compared() -> None:
    assert not judged(agree_env, case("", (NONE, env(NCCL_ALGO="***"), NONE)))


# --- observe ---


def tree(tmp_path: Path, conf: str = "", **environ: str) -> Environment:
    (tmp_path / "etc").mkdir(exist_ok=True)
    (tmp_path / "etc/nccl.conf").write_text(conf)
    return agree_env.observe(Host(str(tmp_path), environ), context())


def values(seen: Environment) -> dict[str, tuple[str, str]]:
    return {v.name: (v.value, v.file) for v in seen.settings}


def test_the_environment_counts_before_the_file(tmp_path: Path) -> None:
    seen = tree(tmp_path, "NCCL_ALGO=Tree\nNCCL_PROTO=LL\nOMP_NUM_THREADS=3\n", NCCL_ALGO="Ring")
    assert values(seen) == {"NCCL_ALGO": ("Ring", ""), "NCCL_PROTO": ("LL", ETC)}
    round_trips(seen)


def test_what_may_differ_is_not_even_carried(tmp_path: Path) -> None:
    own = {
        "RANK": "3",
        "NCCL_SOCKET_IFNAME": "eth3",
        "NCCL_IB_HCA": "mlx5_3",
        "NCCL_HOSTID": "n3",
        "NCCL_TOPO_FILE": "/tmp/n3.xml",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": "/tmp/%h",
        "GLOO_SOCKET_IFNAME": "eth3",
        "TORCHELASTIC_RUN_ID": "7",
        "CUDA_VISIBLE_DEVICES": "3",
        "UCX_NET_DEVICES": "mlx5_3:1",
    }
    assert tree(tmp_path, **own) == Environment()


def test_an_old_name_stands_for_the_new_one(tmp_path: Path) -> None:
    seen = tree(tmp_path, NCCL_BLOCKING_WAIT="1")
    assert values(seen)["TORCH_NCCL_BLOCKING_WAIT"] == ("1", "")


def test_what_env_vars_does_not_look_at_is_read_too(tmp_path: Path) -> None:
    seen = tree(tmp_path, CUDA_DEVICE_MAX_CONNECTIONS="1")
    assert values(seen) == {"CUDA_DEVICE_MAX_CONNECTIONS": ("1", "")}


def test_equal_environments_are_equal_observations(tmp_path: Path) -> None:
    first = tree(tmp_path, NCCL_PROTO="LL", NCCL_ALGO="Ring")
    again = tree(tmp_path, NCCL_ALGO="Ring", NCCL_PROTO="LL")
    assert first == again
    assert dataclasses.asdict(first) == dataclasses.asdict(again)


SRUN = {"SLURM_STEP_TASKS_PER_NODE": "4", "CUDA_VISIBLE_DEVICES": "0"}


def test_a_task_says_its_mask_and_what_it_may_open(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    devices = (("/dev/nvidia0", 0), ("/dev/nvidia1", 0))
    seen = tree(tmp_path, **SRUN)
    assert seen.task == TaskGpus(("0",), devices)
    round_trips(seen)
    assert tree(tmp_path, SLURM_STEP_TASKS_PER_NODE="4").task == TaskGpus(None, devices)
    # mpiexec of PALS, as in radical.pilot#3022: ranks of a node with masks that overlap
    of_pals = tree(tmp_path, PMI_LOCAL_SIZE="4", PALS_LOCAL_SIZE="4", CUDA_VISIBLE_DEVICES="0")
    assert of_pals.task == TaskGpus(("0",), devices)
    # the second component's nodes have a task each
    uneven = tree(tmp_path, SLURM_STEP_TASKS_PER_NODE="2,1(x2)", SLURM_NODEID="1")
    assert uneven.task is None


@pytest.mark.parametrize(
    "own",
    [
        {"SLURM_STEP_TASKS_PER_NODE": "1"},
        {"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
        {"CUDA_VISIBLE_DEVICES": ""},
        {"CUDA_VISIBLE_DEVICES": "MIG-12,MIG-34"},
    ],
    ids=str,
)
def test_what_is_shared_on_purpose_or_not_told(tmp_path: Path, own: dict[str, str]) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    assert tree(tmp_path, **{**SRUN, **own}).task is None


def test_without_a_gpu_there_is_none_to_share(tmp_path: Path) -> None:
    assert tree(tmp_path, **SRUN).task is None
