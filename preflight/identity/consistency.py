"""What launchers' variables may say of a rank, and where they contradict each other. Pure.

env.identity reads the variables, shows the faults and knows what to advise; the rules are here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from preflight.frozen import dataclass
from preflight.humanize import plural
from preflight.identity import slurm_hosts
from preflight.identity.addresses import endpoint_parts, every_address, flaw, loopback
from preflight.identity.discover import FLAG, NO_GPU, RANKS_LIMIT, nodes_by_flag
from preflight.identity.launchers import (
    OPEN_MPI,
    OPTIONS,
    OUTER,
    PMI,
    PMIX,
    SLURM,
    TORCHRUN_TO_COME,
    Launcher,
    leftovers,
    meets_statically,
    named,
)
from preflight.model import (
    Confidence,
    Found,
    Kind,
    Status,
    Subject,
    Topology,
    place_of,
    subject_of,
)
from preflight.nodeset import expand
from preflight.sanitize import quoted

# what env:// needs (torch/distributed/rendezvous.py); an empty value counts as not set there
ENV_INIT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# whole numbers that torch or torchrun passes to int(), with the least that makes sense
NUMBERS: Mapping[str, int] = {
    "RANK": 0,
    "WORLD_SIZE": 1,
    "LOCAL_RANK": 0,
    "LOCAL_WORLD_SIZE": 1,
    "GROUP_RANK": 0,
    "GROUP_WORLD_SIZE": 1,
    "NODE_RANK": 0,
    "PET_NODE_RANK": 0,
}
TORCHRUN_NUMBERS = {
    "PET_NNODES": "NODES or LEAST:MOST",
    "PET_NPROC_PER_NODE": "a number, or auto, gpu, cpu or xpu",
    "PET_NODE_RANK": "digits only",
}
DEVICE = re.compile(r"[a-z]{3,20}")
"""A word that may be the name of a device."""
PORTS = ("MASTER_PORT", "PET_MASTER_PORT")
ELASTIC, STORE = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"
STANDALONE = "PET_STANDALONE"
ENDPOINT, BACKEND = "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND"
PET = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", ENDPOINT, BACKEND)
TASK = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES")
LISTS = (slurm_hosts.STEP, slurm_hosts.JOB)
STEP = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_ID", "SLURM_JOB_ID")
COMPONENTS = "SLURM_HET_SIZE"
MPI = tuple(
    name
    for mpi in (OPEN_MPI, PMI)
    for name in (*mpi.rank, *mpi.size, *mpi.local_size, *mpi.local_rank)
)
POD = "JOB_COMPLETION_INDEX"
REPLICAS = re.compile(r"VC_\w{1,80}_NUM", re.ASCII)
"""How many pods a task of Volcano's job has, by its name."""
OF_TRAINING = ("VC_MASTER_NUM", "VC_WORKER_NUM")
"""The tasks whose pods its plugin for PyTorch gives a RANK, as they are called by default."""
MASKS = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
)
"""What shows a process some GPUs only."""
NO_MACHINE = "an address to listen at, with which each node connects to itself"
ONE_DEVICE = re.compile(r"(\d+(\.\d+)?|(GPU|MIG)-[\w/-]+)?")
"""A mask that shows one, or none; a tile of Intel's is 3.1."""
GPUS_OF_TASK = ("SLURM_GPUS_PER_TASK", "SLURM_GPUS_ON_NODE")
NAMES = (
    *NUMBERS,
    "MASTER_ADDR",
    *PORTS,
    OPTIONS,
    ELASTIC,
    STORE,
    *PET,
    STANDALONE,
    *TASK,
    *STEP,
    *LISTS,
    COMPONENTS,
    *MPI,
    *PMIX.rank,
    POD,
    *MASKS,
    *GPUS_OF_TASK,
)
"""Every variable that is looked at."""

COUNTED = frozenset({"auto", "cpu", "gpu", "xpu"})
"""What torchrun counts the ranks of a node by (determine_local_world_size); a device of torch's
that a package adds (privateuse1) is one, too."""
ADDED_DEVICES = frozenset({"npu", "mlu", "musa", "gcu", "hpu", "sdaa", "privateuseone"})
NO_DEVICE = frozenset({"cuda", "gpus", "cpus", "rocm", "all", "none", "null", "true", "false"})

NNODES, NPROC = "--nnodes", "--nproc-per-node"
"""Of torchrun, whose command line counts before its variables."""

SHOWN = 3
"""Different values that one finding shows; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Env:
    """One environment and the keys of all ranks of a node that have it. `owned` is how many ranks
    this run started from it: more than 1 where an agent owns its node's ranks."""

    values: Mapping[str, str]
    owned: int
    kubernetes: bool
    node: str
    keys: tuple[str, ...]
    top: Topology
    gpus: bool = True

    def __contains__(self, name: str) -> bool:
        return bool(self.values.get(name))

    def number(self, name: str) -> int | None:
        return number(self.values.get(name, ""))

    def say(self, *names: str) -> str:
        """`RANK='0' · SLURM_PROCID='1'` of those that are there."""
        there = [name for name in names if name in self.values]
        return " · ".join(f"{self.named(n)}={quoted(self.values[n])}" for n in there)

    def named(self, name: str) -> str:
        """The variable, or the option of the torchrun that is to come."""
        return named(self.values, name)

    def for_devices_alone(self, name: str) -> bool:
        """Whether nobody but a script may go by this variable here: torch chooses a GPU by it
        (device_mesh.py), and init_process_group does not read it."""
        return name == "LOCAL_RANK" and not self.gpus

    def given(self, name: str) -> str:
        """What to type before a value of it."""
        option = self.named(name)
        return f"export {name}=" if option == name else f"torchrun {option}="

    @property
    def started_by_torchrun(self) -> bool:
        return ELASTIC in self and "RANK" in self

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Made for a finding: of a hundred thousand ranks they would take 30 MB."""
        return tuple(subject_of(self.top, key) for key in self.keys)

    @property
    def holds_first(self) -> bool:
        """Whether rank 0 is among its ranks."""
        ranks = [place_of(key)[1] for key in self.keys]
        return 0 in ranks or (None in ranks and 0 in self.top.ranks_of(self.node))

    def fault(
        self,
        code: str,
        saw: str,
        expected: str,
        status: Status | None = None,
        confidence: Confidence = Confidence.CERTAIN,
        **fields: str,
    ) -> Found:
        """A finding about all ranks that have this environment."""
        return Found(
            code,
            self.subjects,
            saw,
            expected,
            status,
            confidence=confidence,
            fields=fields,
        )

    @property
    def most_nodes(self) -> int:
        """The upper end of PET_NNODES (`2` or `1:4`)."""
        return number(self.values.get("PET_NNODES", "").rpartition(":")[2]) or 1


def number(text: str) -> int | None:
    """What int() makes of it, as torch and torchrun read it; None when it is not a number."""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def _number_faults(env: Env, top: Topology) -> Iterator[Found]:
    for name, least in NUMBERS.items():
        if name not in env:
            continue
        value, found = env.values[name], env.number(name)
        # many scripts export LOCAL_RANK=-1 for "not distributed"
        if name == "LOCAL_RANK" and "RANK" not in env:
            continue
        # only the script itself may read NODE_RANK
        node_rank = Status.WARN if name == "NODE_RANK" else None
        status = Status.WARN if env.for_devices_alone(name) else node_rank
        if found is None:
            yield env.fault("number-malformed", env.say(name), "digits only", node_rank)
        elif found < least:
            yield env.fault("out-of-range", env.say(name), f"{name} at least {least}", status)
        elif value != value.strip():
            yield env.fault("number-whitespace", env.say(name), "digits only")
    yield from _torchrun_number_faults(env)


def _torchrun_number_faults(env: Env) -> Iterator[Found]:
    """Numbers that torchrun stops at, as it is to be started."""
    to_come = OPTIONS in env
    for name, wanted in TORCHRUN_NUMBERS.items():
        value = env.values.get(name)
        if value == "" and to_come:  # without what gate has read, nobody may read it
            yield env.fault("number-malformed", env.say(name), wanted)
    said = env.values.get("PET_NNODES", "")
    if said and any(c is None or c < 1 for c in map(number, said.split(":", 1))):
        yield env.fault("number-malformed", env.say("PET_NNODES"), TORCHRUN_NUMBERS["PET_NNODES"])
    name = "PET_NPROC_PER_NODE"
    value = env.values.get(name, "")
    count = number(value)
    if not value or value in COUNTED | ADDED_DEVICES or (count is not None and count > 0):
        return
    found = env.fault("number-malformed", env.say(name), TORCHRUN_NUMBERS[name])
    if DEVICE.fullmatch(value) and value not in NO_DEVICE:
        other = f"a package adds a device '{value}' to torch"
        found = found.with_(confidence=Confidence.LIKELY, alternatives=(other,))
    yield found


def _range_faults(env: Env, top: Topology) -> Iterator[Found]:
    pairs = [
        ("RANK", "WORLD_SIZE"),
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("GROUP_RANK", "GROUP_WORLD_SIZE"),
    ]
    for rank, size in pairs:
        low, high = env.number(rank), env.number(size)
        if low is not None and high is not None and low >= high:
            harmless = env.for_devices_alone(rank)
            yield env.fault(
                "out-of-range",
                env.say(rank, size) + " · no GPU here that would be chosen by it" * harmless,
                f"{rank} below {size}",
                Status.WARN if harmless else None,
            )
    local, size_here = env.number("LOCAL_RANK"), env.number("LOCAL_WORLD_SIZE")
    world_size, mine = env.number("WORLD_SIZE"), env.number("RANK")
    if local is not None and world_size and size_here and size_here > world_size:
        names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
        yield env.fault("out-of-range", env.say(*names), "LOCAL_WORLD_SIZE at most WORLD_SIZE")
    # torchrun numbers the ranks of a node in the order of their local ranks, as do SLURM and MPI
    if mine is not None and local is not None and mine < local:
        if env.started_by_torchrun:
            saw = env.say("RANK", "LOCAL_RANK")
            yield env.fault("out-of-range", saw, "RANK at least LOCAL_RANK")
        elif size_here and local < size_here:
            saw = env.say("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
            saw += ": the ranks before it on this node would be below 0"
            sure = Confidence.LIKELY
            fault = env.fault("out-of-range", saw, "RANK at least LOCAL_RANK", None, sure)
            where = "RANK and WORLD_SIZE count nodes", "the ranks of a node are in another order"
            yield fault.with_(alternatives=where)
    node = env.number("PET_NODE_RANK")
    if not meets_statically(env.values):
        node = None  # torchrun reads it as a number, and goes by its own
    if node is not None and "PET_NNODES" in env and node >= env.most_nodes:
        names = ("PET_NODE_RANK", "PET_NNODES")
        wanted = " below ".join(map(env.named, names))
        yield env.fault("out-of-range", env.say(*names), wanted)


def _port_faults(env: Env, top: Topology) -> Iterator[Found]:
    for name in PORTS:
        if name not in env:
            continue
        port, value = env.number(name), env.values[name]
        if name == "PET_MASTER_PORT" and port is not None and not meets_statically(env.values):
            continue  # torchrun stops at words there, and does nothing with a number
        # a single process may well meet itself on a free port
        least = 0 if name != "MASTER_PORT" or env.number("WORLD_SIZE") == 1 else 1
        if port is None or not least <= port <= 65535:
            wanted = "a number from 1 to 65535"
            given = env.given(name)
            yield env.fault("port-invalid", env.say(name), wanted, given=given, right="29500")
        elif value != value.strip():
            yield env.fault("number-whitespace", env.say(name), "digits only")


def _endpoint_faults(env: Env, top: Topology) -> Iterator[Found]:
    """The port of a torchrun's endpoint that is yet to be started."""
    endpoint = env.values.get(ENDPOINT, "")
    host, port = endpoint_parts(endpoint)
    ready = env.started_by_torchrun or bool(env.number(STANDALONE))
    if not host or "://" in endpoint or flaw(host) or ready:
        return
    backend = env.values.get(BACKEND, "")
    right = f"[{host}]:29500" if ":" in host else f"{host}:29500"
    if port is not None:
        found = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else None
        # with 0 the store is where only its own node knows, and under the static rendezvous nobody:
        # the ranks are told 0, and torchrun hangs on a single node, too
        several = env.most_nodes > 1 and backend in ("", "c10d")
        least = 1 if several or backend == "static" else 0
        if found is None or not least <= found <= 65535:
            wanted = f"HOST:PORT, with a port from {least} to 65535"
            given = env.given(ENDPOINT)
            yield env.fault("port-invalid", env.say(ENDPOINT), wanted, given=given, right=right)
    elif backend in ("", "static"):
        # torchrun's default is static; its command line may name another backend
        saw = f"{env.say(ENDPOINT, BACKEND)} · no port"
        # of what gate has read all options are known
        backend = backend or ("static" if OPTIONS in env else "")
        status = None if backend else Status.WARN
        sure = Confidence.LIKELY if backend else Confidence.POSSIBLE
        fields = {"given": env.given(ENDPOINT), "name": env.named(ENDPOINT), "right": right}
        missing = env.fault("port-missing", saw, "HOST:PORT", status, sure, **fields)
        other = () if backend else ("torchrun is given --rdzv-backend c10d, where 29400 is meant",)
        yield missing.with_(alternatives=other)


def _meeting_hosts(env: Env) -> Iterator[tuple[str, str]]:
    """(name, host) of the variables that say where the job meets."""
    for name in ("MASTER_ADDR", "PET_MASTER_ADDR"):
        if name in env and (name == "MASTER_ADDR" or meets_statically(env.values)):
            yield name, env.values[name]
    endpoint = env.values.get(ENDPOINT, "")
    if endpoint and "://" not in endpoint:
        yield ENDPOINT, endpoint_parts(endpoint)[0]


def _address_faults(env: Env, top: Topology) -> Iterator[Found]:
    for name, host in _meeting_hosts(env):
        if why := flaw(host):
            saw = f"{env.say(name)}: {why}"
            said = env.named(name)
            yield env.fault("address-malformed", saw, "one host's name or address", name=said)
        elif name != ENDPOINT and every_address(host) and env.holds_first:
            continue  # rank 0 listens at all addresses, and reaches itself there
        elif loopback(host) and (found := _several_nodes(env, name, top)):
            evidence, status = found
            fault = env.fault(
                "address-loopback",
                f"{env.say(name)} · {evidence}",
                "an address that the other nodes can reach",
                status,
                Confidence.CERTAIN if status is None else Confidence.POSSIBLE,
                name=env.named(name),
                given=env.given(name),
                first=_first_host_of_slurm(env),
                what=NO_MACHINE if every_address(host) else "a loopback address",
            )
            if status is None and name == "MASTER_ADDR" and env.holds_first:
                # torch listens at all addresses there
                fault = fault.with_(
                    confidence=Confidence.LIKELY,
                    alternatives=("it is given to rank 0 alone, and the others have its name",),
                )
            yield fault


def _first_host_of_slurm(env: Env) -> str:
    if _other_allocation(env):
        return ""
    named = (env.values.get(name, "") for name in LISTS)
    return slurm_hosts.first_host(next(filter(None, named), ""))


def _several_nodes(env: Env, name: str, top: Topology) -> tuple[str, Status | None] | None:
    """What says that the job has several nodes, asked of the innermost launcher first, and how bad
    a loopback address is then."""
    if name == "MASTER_ADDR":
        if (groups := env.number("GROUP_WORLD_SIZE")) and env.started_by_torchrun:
            return (env.say("GROUP_WORLD_SIZE"), None) if groups > 1 else None
        local, size = env.number("LOCAL_WORLD_SIZE"), env.number("WORLD_SIZE")
        if local and size:
            says = env.say("WORLD_SIZE", "LOCAL_WORLD_SIZE")
            return (says, None) if size > local else None
        names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
        if (total := env.number(names[0])) and (here := env.number(names[1])):
            return (env.say(*names), None) if total > here else None
        nodes = env.number("SLURM_STEP_NUM_NODES")
        if nodes and "job_nodes" not in top.facts:  # this machine alone, of the step's
            return (env.say("SLURM_STEP_NUM_NODES"), None) if nodes > 1 else None
        if (env.number("SLURM_NNODES") or 1) > 1:
            # in a batch script: it may use its first node alone
            return env.say("SLURM_NNODES"), Status.WARN
    evidence = env.say("PET_NNODES") if env.most_nodes > 1 else ""
    if name == "MASTER_ADDR" and not evidence:
        nodes_fact = top.facts.get("nodes")
        if nodes_fact and (number(nodes_fact.value) or 1) > 1:
            evidence = f"{nodes_fact.value} nodes ({nodes_fact.source})"
    if not evidence:
        return None
    ranks = [env.number(n) for n in ("PET_NODE_RANK", "RANK", "NODE_RANK")]
    own = 0 if env.kubernetes and env.holds_first else None
    if next((r for r in ranks if r is not None), own) != 0:
        return evidence, None
    # an operator gives localhost to the first pod alone, and the service's name to the others
    return None if env.kubernetes else (evidence, Status.WARN)


def _missing_variables(env: Env, top: Topology) -> Iterator[Found]:
    present = [name for name in ENV_INIT if name in env]
    missing = [name for name in ENV_INIT if name not in env]
    # manifests of Jobs hand the pod's number to torchrun as RANK
    a_pods = "RANK" in env and env.number("RANK") == env.number(POD) and "LOCAL_RANK" not in env
    if "RANK" not in env or not missing or a_pods:
        return
    # what torchrun will start from here gets its own; a single process may not need any
    alone = env.owned == 1 and env.number("WORLD_SIZE") != 1
    fails = alone and ("WORLD_SIZE" in env or len(missing) == 1)
    yield env.fault(
        "incomplete",
        f"{env.say(*present)} · not set: {', '.join(missing)}",
        "all of " + ", ".join(ENV_INIT) + ", or none",
        None if fails else Status.WARN,
        Confidence.LIKELY,
        missing=missing[0],
        present=" ".join(present),
    )


def _launcher_faults(env: Env, top: Topology) -> Iterator[Found]:
    """RANK, WORLD_SIZE and the node's rank against the launcher that started this process."""
    if env.started_by_torchrun:
        return
    yield from _pod_faults(env)
    yield from _index_faults(env)
    yield from _replica_faults(env)
    yield from _flag_faults(env, top)
    nodes, node = env.number("SLURM_STEP_NUM_NODES") or 1, env.number("SLURM_NODEID")
    left = leftovers(env.values)
    if PMI.rank[0] in left or PMI.size[0] in left:
        yield _left_over(env, left)
    for launcher in (one for one in OUTER if not {one.rank[0], one.size[0]} & set(left)):
        rank, size = env.number(launcher.rank[0]), env.number(launcher.size[0])
        if rank is None or size is None:
            continue
        mine, all_ = env.number("RANK"), env.number("WORLD_SIZE")
        local = size // nodes if launcher is SLURM else env.number(launcher.local_size[0])
        if _is_of_a_loop(env, rank, size) or _is_of_several_launches(env, rank, size, top):
            break
        if size > 1 and mine is not None and mine != rank:
            # a node's agent: torchrun will give its ranks their own
            status = None if env.owned == 1 else Status.WARN
            yield _disagreement(env, "RANK", launcher.rank[0], status)
        elif (
            local
            and None not in (mine, all_)
            and all_ != size
            and (local > 1 or _no_multiple(env, size))
        ):
            saw = env.say("WORLD_SIZE", launcher.size[0])
            yield size_mismatch(env, saw, size, launcher.size[0])
        elif local and local > 1 and mine is None and all_ not in (None, size) and env.owned == 1:
            # what a batch script has computed for a script that takes its rank from the launcher
            saw = env.say("WORLD_SIZE", launcher.size[0])
            found = size_mismatch(env, saw, size, launcher.size[0])
            other = f"the job takes its number of ranks from {launcher.size[0]}"
            yield found.with_(
                subjects=env.subjects,
                status=Status.WARN,
                alternatives=(*found.alternatives, other),
            )
        elif size > 1 and mine in (None, rank):
            yield from _local_rank_faults(env, launcher)
        break
    for name in ("PET_NODE_RANK", "NODE_RANK"):
        said = env.number(name)
        if nodes > 1 and None not in (said, node) and said != node:
            yield _disagreement(env, name, "SLURM_NODEID")


def _no_multiple(env: Env, tasks: int) -> bool:
    """Whether the only task of a node is a rank of a world that tasks with as many ranks each can't
    make: 4 of 3. A multiple may be what each of them starts."""
    size = env.number("WORLD_SIZE") or 0
    return tasks > 1 and env.owned == 1 and "LOCAL_RANK" in env and size % tasks != 0


def _is_of_a_loop(env: Env, task: int, tasks: int) -> bool:
    """Whether each task has started several ranks by a loop of its own, with numbers that fit."""
    mine, local, size = (env.number(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    each = (size or 0) // tasks if tasks > 0 else 0
    fits = local is not None and mine == task * each + local
    return each > 1 and each * tasks == size and fits


def _is_of_several_launches(env: Env, task: int, tasks: int, top: Topology) -> bool:
    """Whether this launch has brought a part of a world alone, such as one of several srun or
    mpiexec with an offset: all ranks of that world have come, or it is a component of a
    heterogeneous job whose ranks follow those of another."""
    mine, size = env.number("RANK"), env.number("WORLD_SIZE")
    if mine is None or size is None or not 1 < tasks < size or env.owned > 1:
        return False
    components = env.number(COMPONENTS) or 1
    follows = components > 1 and 0 < mine - task <= size - tasks
    return top.met == top.size == size or follows


def _left_over(env: Env, left: tuple[str, ...]) -> Found:
    """torch does not read them; an MPI library that is imported beside it does (mpi4py)."""
    mine = [name for name in left if name in (*PMI.rank, *PMI.size)]
    saw = env.say(*mine, SLURM.rank[0], SLURM.size[0])
    goal = "what SLURM says of this task, or not set"
    status, present = Status.WARN, " ".join(mine)
    return env.fault(
        "launcher-disagrees", saw, goal, status, Confidence.LIKELY, present=present
    ).with_(alternatives=("PMI_* are left over from an earlier MPI launch",))


def _pod_faults(env: Env) -> Iterator[Found]:
    """Kubeflow says twice which pod this is and how many ranks there are; its WORLD_SIZE counts
    pods where torchrun is to find out how many ranks each of them has."""
    said = env.number("PET_NODE_RANK")
    if "PET_NNODES" not in env or "RANK" not in env or "LOCAL_RANK" in env or said is None:
        return
    if env.number("RANK") != said:
        yield _disagreement(env, "RANK", "PET_NODE_RANK", Status.WARN)
    pods, each = env.number("PET_NNODES"), env.number("PET_NPROC_PER_NODE") or 1
    if pods and (env.number("WORLD_SIZE") or pods) not in (pods, pods * each):
        names = ("WORLD_SIZE", "PET_NNODES", "PET_NPROC_PER_NODE")
        wanted = f"WORLD_SIZE {pods} (pods) or {pods * each} (ranks), or not set"
        likely, present = Confidence.LIKELY, "WORLD_SIZE"
        saw = env.say(*names)
        yield env.fault("launcher-disagrees", saw, wanted, Status.WARN, likely, present=present)


def _replica_faults(env: Env) -> Iterator[Found]:
    """Volcano's WORLD_SIZE that counts pods of tasks which get no RANK (volcano#4166)."""
    counts = {name: env.number(name) or 0 for name in env.values if REPLICAS.fullmatch(name)}
    ranked = {name: count for name, count in counts.items() if name in OF_TRAINING}
    size, with_rank = env.number("WORLD_SIZE"), sum(ranked.values())
    if "RANK" not in env or "LOCAL_RANK" in env or not 0 < with_rank < sum(counts.values()):
        return
    if size == sum(counts.values()):
        saw = env.say("WORLD_SIZE", *sorted(counts))
        found = size_mismatch(env, saw, with_rank, " and ".join(sorted(ranked)))
        other = "the pods of the other tasks get a RANK from their own command"
        yield found.with_(alternatives=(*found.alternatives, other))


def _index_faults(env: Env) -> Iterator[Found]:
    """The manifest of an Indexed Job that calls all its pods the first one."""
    index, rank, size = (env.number(name) for name in (POD, "RANK", "WORLD_SIZE"))
    each = env.number("LOCAL_WORLD_SIZE") or 1
    # elsewhere the ranks may well begin with a pod of another Job
    if index and size and rank is not None and 0 <= rank < each and index * each < size:
        saw = env.say("RANK", POD, "WORLD_SIZE")
        wanted = f"a RANK of pod {index}, or not set"
        likely = Confidence.LIKELY
        found = env.fault("launcher-disagrees", saw, wanted, Status.WARN, likely, present="RANK")
        yield found.with_(alternatives=("the pods of this Job are of several worlds",))


def _flag_faults(env: Env, top: Topology) -> Iterator[Found]:
    """WORLD_SIZE of nodes with one rank each, against how many nodes this run was started for."""
    count, size = nodes_by_flag(top), env.number("WORLD_SIZE")
    if not {"RANK", "LOCAL_RANK"} <= set(env.values):
        return
    if env.number("LOCAL_WORLD_SIZE") == 1 and count and size and size != count:
        saw = f"{env.say('WORLD_SIZE', 'LOCAL_WORLD_SIZE')} · {FLAG} {count}"
        yield size_mismatch(env, saw, count, f"{FLAG} {count}")


def _torchrun_faults(env: Env, top: Topology) -> Iterator[Found]:
    """What a torchrun that is yet to be started would take from PET_ variables, against how many
    nodes this run was started for, and the GPUs that were counted here."""
    if env.started_by_torchrun:
        return
    count, said = nodes_by_flag(top), env.values.get("PET_NNODES", "").strip()
    least = number(said.partition(":")[0]) or 0
    # --nodes 1 is how one looks at this node alone
    if count > 1 and least and not least <= count <= env.most_nodes:
        name, given = env.named("PET_NNODES"), env.given("PET_NNODES")
        typed = name != "PET_NNODES"
        saw = f"{env.say('PET_NNODES')} · {FLAG} {count}"
        wanted = f"{name}={count}" if typed else f"{name}={count}, or not set"
        sure, right = Confidence.CERTAIN if typed else Confidence.LIKELY, str(count)
        found = env.fault(
            "node-count-differs", saw, wanted, None, sure, name=name, given=given, right=right
        )
        other = (f"torchrun is given {NNODES}, which counts instead",)
        yield found.with_(alternatives=() if typed else other)
    if left := top.facts.get("job_nodes") if top.launcher == TORCHRUN_TO_COME.name else None:
        saw = f"{left.source} {left.value} · this run has looked at this node alone"
        wanted = "--nodes, with the number of nodes that are to meet"
        yield env.fault("nodes-unchecked", saw, wanted, nodes=left.value)
    counted = top.facts.get("nproc")
    name = "PET_NPROC_PER_NODE"
    if env.values.get(name) == "gpu" and counted and counted.source.endswith(NO_GPU):
        saw, wanted = f"{env.say(name)} · no GPU was found", "a GPU, or the number of ranks"
        found = env.fault("gpus-absent", saw, wanted, None, Confidence.LIKELY, name=env.named(name))
        other = (f"torchrun is given {NPROC}, which counts instead",)
        yield found.with_(alternatives=other if env.named(name) == name else ())


def size_mismatch(env: Env, saw: str, launched: int, source: str) -> Found:
    """A WORLD_SIZE of another job. It is about the ranks that nobody has launched, too: that they
    never come is its consequence."""
    said = env.number("WORLD_SIZE") or 0
    found = env.fault(
        "world-size-mismatch",
        saw,
        f"WORLD_SIZE {launched}",
        None,
        Confidence.LIKELY,
        said=str(said),
        right=str(launched),
        ranks="rank is" if launched == 1 else "ranks are",
        source=source,
    )
    found = _with_other_component(_with_other_allocation(env, found, source), env, source)
    if not launched < said <= RANKS_LIMIT:
        return found
    nobody = Subject(Kind.RANK, ranks=tuple(range(launched, said)))
    return found.with_(subjects=(*env.subjects, nobody))


def _local_rank_faults(env: Env, launcher: Launcher) -> Iterator[Found]:
    """LOCAL_RANK against the launcher's, where a process sees several GPUs: who sees one alone is
    right to call it 0."""
    name = next((n for n in launcher.local_rank if env.number(n) is not None), "")
    mine, theirs = env.number("LOCAL_RANK"), env.number(name)
    alone = any(env.number(one) == 1 for one in GPUS_OF_TASK)
    alone = alone or any(ONE_DEVICE.fullmatch(env.values.get(mask, ",")) for mask in MASKS)
    if mine is None or mine < 0 or theirs is None or mine == theirs or (alone and mine == 0):
        return
    saw, wanted = env.say("LOCAL_RANK", name), f"LOCAL_RANK equal to {name}, or not set"
    found = env.fault("local-rank-differs", saw, wanted, None, Confidence.LIKELY, theirs=name)
    yield found.with_(alternatives=("the job does not choose its GPU by LOCAL_RANK",))


def _disagreement(env: Env, mine: str, theirs: str, status: Status | None = None) -> Found:
    saw, wanted = env.say(mine, theirs), f"{mine} equal to {theirs}, or not set"
    found = env.fault("launcher-disagrees", saw, wanted, status, Confidence.LIKELY, present=mine)
    return _with_other_allocation(env, found, theirs)


def _with_other_allocation(env: Env, found: Found, theirs: str) -> Found:
    """A finding with what else it could be where SLURM's variables may be another job's."""
    if theirs.startswith("SLURM_") and (listed := _other_allocation(env)):
        left = f"SLURM_* are left over from an allocation without {env.node}: {env.say(listed)}"
        return found.with_(alternatives=(left,))
    return found


def _with_other_component(found: Found, env: Env, theirs: str) -> Found:
    """A finding with what else it could be in a heterogeneous job, whose step has the tasks of the
    components that srun was given, and of the first one where it was given none."""
    components = env.number(COMPONENTS) or 1
    if components < 2 or not theirs.startswith("SLURM_STEP_"):
        return found
    other = f"another srun of this job's {components} components starts the other ranks"
    saw = f"{found.saw} · {env.say(COMPONENTS)}"
    return found.with_(saw=saw, alternatives=(*found.alternatives, other))


def _other_allocation(env: Env) -> str:
    """The node list of SLURM in which this node is not; empty where it is in it, or nothing says
    so. A node may have another name in SLURM than it calls itself: that alone is no proof."""
    name = next((name for name in LISTS if name in env), "")
    hosts = {host.partition(".")[0] for host in expand(env.values.get(name, ""))}
    return name if hosts and env.node.partition(".")[0] not in hosts else ""


def _nested_launchers(env: Env, top: Topology) -> Iterator[Found]:
    """torchrun, started by each of several tasks of one node."""
    tasks, nodes = env.number(STEP[0]), env.number(STEP[1])
    names = STEP[:2]
    if (here := env.number("OMPI_COMM_WORLD_LOCAL_SIZE")) and here > 1:
        names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
        tasks, nodes = env.number(names[0]), 1
    if not tasks or not nodes or tasks <= nodes:
        return
    if env.started_by_torchrun:
        agents, mine = env.number("GROUP_WORLD_SIZE"), "GROUP_WORLD_SIZE"
        status = Status.WARN if agents == 1 else None
    else:
        agents, mine = env.most_nodes, "PET_NPROC_PER_NODE"
        status = Status.WARN
        if (env.number(mine) or 1) < 2:
            return
    if agents != tasks:  # as many agents as tasks is a legal, if odd, way to start
        saw = f"torchrun in each of several tasks: {env.say(*names, mine)}"
        yield env.fault("launchers-nested", saw, "one task per node", status, Confidence.LIKELY)


def _split_worlds(env: Env, top: Topology) -> Iterator[Found]:
    """One torchrun a node, and each of them a world of its own: that is what torchrun does without
    --nnodes, or with --nnodes=1 where an operator of Kubernetes says more, so that it is hardly
    meant."""
    if not env.started_by_torchrun or env.number("GROUP_WORLD_SIZE") != 1:
        return
    wanted = "torchrun --nnodes=N on N nodes, with one --rdzv-endpoint"
    alone = ("intentionally independent runs, one per node",)
    if env.kubernetes and (env.number("PET_NNODES") or 0) > 1:  # a range may have come down to one
        saw = f"{env.say('PET_NNODES', 'GROUP_WORLD_SIZE')}: each node trains alone"
        found = env.fault("worlds-split", saw, wanted, None, Confidence.LIKELY)
        yield found.with_(alternatives=alone)
        return
    for tasks, here in (STEP[:2], ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")):
        total, part = env.number(tasks), env.number(here)
        several = total and part and (total == part > 1 if here == STEP[1] else total > part == 1)
        if several:
            saw = f"{env.say(tasks, here, 'GROUP_WORLD_SIZE')}: each node trains alone"
            found = env.fault("worlds-split", saw, wanted, None, Confidence.LIKELY)
            yield found.with_(alternatives=alone)
            return


def _leftover_variables(env: Env, top: Topology) -> Iterator[Found]:
    if env.values.get(STORE) == "True" and ELASTIC not in env and "RANK" in env:
        saw = f"{env.say(STORE)} · not set: {ELASTIC}"
        yield env.fault("store-not-served", saw, "both of torchrun's variables, or none")
    if env.number(STANDALONE) and env.most_nodes > 1:
        saw = env.say(STANDALONE, "PET_NNODES")
        typed = env.named(STANDALONE) != STANDALONE
        act = "torchrun without --standalone" if typed else f"unset {STANDALONE}"
        # with a lower end of 1 it starts after the last call for others, on one node as meant
        alone = number(env.values["PET_NNODES"].partition(":")[0]) == 1
        status = Status.WARN if alone else Status.FAIL
        yield env.fault("standalone", saw, "no --standalone on several nodes", status, act=act)
    # one process per rank: what counts is how many of them there are, and env.owned doesn't say
    if "LOCAL_RANK" in env or any(env.number(o.rank[0]) is not None for o in OUTER):
        return
    for name in ("LOCAL_WORLD_SIZE", "PET_NPROC_PER_NODE"):
        said = env.number(name)
        counts = env.owned > 1 or (name != "LOCAL_WORLD_SIZE" and "RANK" not in env)
        if said is not None and said > 0 and counts and said != env.owned:
            saw = f"{env.say(name)} · {plural(env.owned, 'rank')} of this run here"
            yield env.fault("local-count", saw, "the same number", name=name, said=str(said))


def faults(env: Env, top: Topology) -> Iterator[Found]:
    """All that is wrong with one environment by itself."""
    for rule in RULES:
        yield from rule(env, top)


Rule = Callable[[Env, Topology], Iterator[Found]]
RULES: tuple[Rule, ...] = (
    _number_faults,
    _range_faults,
    _port_faults,
    _endpoint_faults,
    _address_faults,
    _missing_variables,
    _launcher_faults,
    _torchrun_faults,
    _nested_launchers,
    _split_worlds,
    _leftover_variables,
)
