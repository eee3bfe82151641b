"""What launchers' variables may say of a rank, and where they contradict each other. Pure.

env.identity reads the variables, shows the faults and knows what to advise; the rules are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from preflight.humanize import plural
from preflight.identity.addresses import flaw, loopback
from preflight.model import Confidence, Status, Subject, Topology
from preflight.redact import quoted

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
PORTS = ("MASTER_PORT", "PET_MASTER_PORT")
ELASTIC, STORE = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"
STANDALONE = "PET_STANDALONE"
PET = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT")
SLURM = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES")
STEP = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_ID", "SLURM_JOB_ID")
# each launcher's number of this process, of all, and of those on this node, the outermost last:
# torchrun and mpirun may be started by srun, and then the inner one counts
OUTER = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""),
)
MPI = (*OUTER[0], *OUTER[1], "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_RANK")
POD = "JOB_COMPLETION_INDEX"
NAMES = (
    *NUMBERS,
    "MASTER_ADDR",
    *PORTS,
    ELASTIC,
    STORE,
    *PET,
    STANDALONE,
    *SLURM,
    *STEP,
    *MPI,
    POD,
)
"""Every variable that is looked at."""

MEETING = ("net.name", "net.port", "rdzv.*", "world.*")
JOB = ("rdzv.*", "world.*")
SHOWN = 3
"""Different values that one finding shows; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Env:
    """One environment and all the ranks that have it. `owned` is how many ranks this run started
    from it: more than 1 where an agent owns its node's ranks."""

    values: Mapping[str, str]
    owned: int
    kubernetes: bool
    node: str
    subjects: tuple[Subject, ...]

    def __contains__(self, name: str) -> bool:
        return bool(self.values.get(name))

    def number(self, name: str) -> int | None:
        return number(self.values.get(name, ""))

    def say(self, *names: str) -> str:
        """`RANK='0' · SLURM_PROCID='1'` of those that are there."""
        return " · ".join(f"{n}={quoted(self.values[n])}" for n in names if n in self.values)

    @property
    def started_by_torchrun(self) -> bool:
        return ELASTIC in self and "RANK" in self

    @property
    def holds_first(self) -> bool:
        """Whether rank 0 is among its ranks."""
        return any(0 in subject.ranks for subject in self.subjects)

    @property
    def most_nodes(self) -> int:
        """The upper end of PET_NNODES (`2` or `1:4`)."""
        return number(self.values.get("PET_NNODES", "").rpartition(":")[2]) or 1


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one environment; the fields are those of a Finding."""

    code: str
    env: Env
    saw: str
    expected: str
    status: Status = Status.FAIL
    confidence: Confidence = Confidence.CERTAIN
    explains: tuple[str, ...] = JOB
    fields: Mapping[str, str] = field(default_factory=dict)


def number(text: str) -> int | None:
    """What int() makes of it, as torch and torchrun read it; None when it is no number."""
    try:
        return int(text)
    except ValueError:
        return None


def _numbers(env: Env, top: Topology) -> Iterator[Fault]:
    for name, least in NUMBERS.items():
        if name not in env:
            continue
        value, found = env.values[name], env.number(name)
        # many scripts export LOCAL_RANK=-1 for "not distributed"
        if name == "LOCAL_RANK" and "RANK" not in env:
            continue
        # only the script itself may read NODE_RANK
        status = Status.WARN if name == "NODE_RANK" else Status.FAIL
        if found is None:
            yield Fault("number-malformed", env, env.say(name), "digits only", status)
        elif found < least:
            yield Fault("out-of-range", env, env.say(name), f"{name} at least {least}", status)
        elif value != value.strip():
            yield Fault("number-blank", env, env.say(name), "digits only", Status.WARN)
    for name, words in (("PET_NNODES", False), ("PET_NPROC_PER_NODE", True)):
        value = env.values.get(name, "")
        counts = [number(part) for part in value.split(":", 0 if words else 1)]
        if value and not (words and value.isalpha()) and any(c is None or c < 1 for c in counts):
            wanted = "a number, or auto, gpu or cpu" if words else "NODES or LEAST:MOST"
            yield Fault("number-malformed", env, env.say(name), wanted)


def _ranges(env: Env, top: Topology) -> Iterator[Fault]:
    pairs = [
        ("RANK", "WORLD_SIZE"),
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("GROUP_RANK", "GROUP_WORLD_SIZE"),
    ]
    for rank, size in pairs:
        low, high = env.number(rank), env.number(size)
        if low is not None and high is not None and low >= high:
            yield Fault("out-of-range", env, env.say(rank, size), f"{rank} below {size}")
    local, size_here = env.number("LOCAL_RANK"), env.number("LOCAL_WORLD_SIZE")
    world_size, mine = env.number("WORLD_SIZE"), env.number("RANK")
    if local is not None and world_size and size_here and size_here > world_size:
        names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
        yield Fault("out-of-range", env, env.say(*names), "LOCAL_WORLD_SIZE at most WORLD_SIZE")
    # torchrun numbers the ranks of a node in the order of their local ranks
    if env.started_by_torchrun and mine is not None and local is not None and mine < local:
        yield Fault("out-of-range", env, env.say("RANK", "LOCAL_RANK"), "RANK at least LOCAL_RANK")
    node = env.number("PET_NODE_RANK")
    if node is not None and "PET_NNODES" in env and node >= env.most_nodes:
        names = ("PET_NODE_RANK", "PET_NNODES")
        yield Fault("out-of-range", env, env.say(*names), "PET_NODE_RANK below PET_NNODES")


def _ports(env: Env, top: Topology) -> Iterator[Fault]:
    for name in PORTS:
        if name not in env:
            continue
        port, value = env.number(name), env.values[name]
        # a single process may well meet itself on a free port
        least = 0 if name != "MASTER_PORT" or env.number("WORLD_SIZE") == 1 else 1
        if port is None or not least <= port <= 65535:
            yield Fault(
                "port-invalid",
                env,
                env.say(name),
                "a number from 1 to 65535",
                explains=MEETING,
                fields={"name": name},
            )
        elif value != value.strip():
            yield Fault("number-blank", env, env.say(name), "digits only", Status.WARN)


def _addresses(env: Env) -> Iterator[tuple[str, str]]:
    """(name, host) of the variables that say where the job meets."""
    for name in ("MASTER_ADDR", "PET_MASTER_ADDR"):
        if name in env:
            yield name, env.values[name]
    endpoint = env.values.get("PET_RDZV_ENDPOINT", "")
    host, colon, _ = endpoint.rpartition(":")
    if endpoint and "://" not in endpoint:
        yield "PET_RDZV_ENDPOINT", host.strip("[]") if colon else endpoint


def _address(env: Env, top: Topology) -> Iterator[Fault]:
    for name, host in _addresses(env):
        if why := flaw(host):
            saw = f"{env.say(name)}: {why}"
            fields = {"name": name}
            wanted = "one host's name or address"
            yield Fault("address-malformed", env, saw, wanted, explains=MEETING, fields=fields)
        elif loopback(host) and (found := _several_nodes(env, name, top)):
            evidence, status = found
            yield Fault(
                "address-loopback",
                env,
                f"{env.say(name)} · {evidence}",
                "an address that the other nodes reach",
                status,
                Confidence.CERTAIN if status is Status.FAIL else Confidence.POSSIBLE,
                MEETING,
                {"name": name},
            )


def _several_nodes(env: Env, name: str, top: Topology) -> tuple[str, Status] | None:
    """What says that the job has several nodes, asked of the innermost launcher first, and how bad
    a loopback address is then."""
    if name == "MASTER_ADDR":
        if (groups := env.number("GROUP_WORLD_SIZE")) and env.started_by_torchrun:
            return (env.say("GROUP_WORLD_SIZE"), Status.FAIL) if groups > 1 else None
        local, size = env.number("LOCAL_WORLD_SIZE"), env.number("WORLD_SIZE")
        if local and size:
            says = env.say("WORLD_SIZE", "LOCAL_WORLD_SIZE")
            return (says, Status.FAIL) if size > local else None
        names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
        if (total := env.number(names[0])) and (here := env.number(names[1])):
            return (env.say(*names), Status.FAIL) if total > here else None
        if nodes := env.number("SLURM_STEP_NUM_NODES"):
            return (env.say("SLURM_STEP_NUM_NODES"), Status.FAIL) if nodes > 1 else None
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
    if next((r for r in ranks if r is not None), None) != 0:
        return evidence, Status.FAIL
    # an operator gives localhost to the first pod alone, and the service's name to the others
    return None if env.kubernetes else (evidence, Status.WARN)


def _complete(env: Env, top: Topology) -> Iterator[Fault]:
    present = [name for name in ENV_INIT if name in env]
    missing = [name for name in ENV_INIT if name not in env]
    # manifests of Jobs hand the pod's number to torchrun as RANK
    a_pods = "RANK" in env and env.number("RANK") == env.number(POD) and "LOCAL_RANK" not in env
    if "RANK" not in env or not missing or a_pods:
        return
    # what torchrun will start from here gets its own; a single process may not need any
    alone = env.owned == 1 and env.number("WORLD_SIZE") != 1
    fails = alone and ("WORLD_SIZE" in env or len(missing) == 1)
    yield Fault(
        "incomplete",
        env,
        f"{env.say(*present)} · not set: {', '.join(missing)}",
        "all of " + ", ".join(ENV_INIT) + ", or none",
        Status.FAIL if fails else Status.WARN,
        Confidence.LIKELY,
        fields={"missing": missing[0], "present": " ".join(present)},
    )


def _launcher(env: Env, top: Topology) -> Iterator[Fault]:
    """RANK, WORLD_SIZE and the node's rank against the launcher that started this process."""
    if env.started_by_torchrun:
        return
    yield from _pod(env)
    nodes, node = env.number("SLURM_STEP_NUM_NODES") or 1, env.number("SLURM_NODEID")
    for rank_name, size_name, local_name in OUTER:
        rank, size = env.number(rank_name), env.number(size_name)
        if rank is None or size is None:
            continue
        mine, all_ = env.number("RANK"), env.number("WORLD_SIZE")
        local = env.number(local_name) if local_name else size // nodes
        if size > 1 and mine is not None and mine != rank:
            # a node's agent: torchrun will give its ranks their own
            status = Status.FAIL if env.owned == 1 else Status.WARN
            yield _disagreement(env, "RANK", rank_name, status)
        elif local and local > 1 and None not in (mine, all_) and all_ != size:
            yield _disagreement(env, "WORLD_SIZE", size_name)
        break
    for name in ("PET_NODE_RANK", "NODE_RANK"):
        said = env.number(name)
        if nodes > 1 and None not in (said, node) and said != node:
            yield _disagreement(env, name, "SLURM_NODEID")


def _pod(env: Env) -> Iterator[Fault]:
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
        fields = {"present": "WORLD_SIZE"}
        sure = Confidence.LIKELY
        yield Fault(
            "launcher-disagrees", env, env.say(*names), wanted, Status.WARN, sure, fields=fields
        )


def _disagreement(env: Env, mine: str, theirs: str, status: Status = Status.FAIL) -> Fault:
    saw, wanted = env.say(mine, theirs), f"{mine} equal to {theirs}, or not set"
    sure, fields = Confidence.LIKELY, {"present": mine}
    return Fault("launcher-disagrees", env, saw, wanted, status, sure, fields=fields)


def _nested(env: Env, top: Topology) -> Iterator[Fault]:
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
        status = Status.WARN if agents == 1 else Status.FAIL
    else:
        agents, mine = env.most_nodes, "PET_NPROC_PER_NODE"
        status = Status.WARN
        if (env.number(mine) or 1) < 2:
            return
    if agents != tasks:  # as many agents as tasks is a legal, if odd, way to start
        saw = f"torchrun in each of several tasks: {env.say(*names, mine)}"
        yield Fault("launchers-nested", env, saw, "one task a node", status, Confidence.LIKELY)


def _leftovers(env: Env, top: Topology) -> Iterator[Fault]:
    if env.values.get(STORE) == "True" and ELASTIC not in env and "RANK" in env:
        saw = f"{env.say(STORE)} · not set: {ELASTIC}"
        yield Fault("store-nobody-serves", env, saw, "both of torchrun's variables, or none")
    if env.number(STANDALONE) and env.most_nodes > 1:
        saw = env.say(STANDALONE, "PET_NNODES")
        yield Fault("standalone", env, saw, "no --standalone on several nodes")
    # one process a rank: what counts is how many of them there are, and env.owned doesn't say
    if "LOCAL_RANK" in env or any(env.number(rank) is not None for rank, _, _ in OUTER):
        return
    for name in ("LOCAL_WORLD_SIZE", "PET_NPROC_PER_NODE"):
        said = env.number(name)
        counts = env.owned > 1 or (name != "LOCAL_WORLD_SIZE" and "RANK" not in env)
        if said is not None and said > 0 and counts and said != env.owned:
            saw = f"{env.say(name)} · {plural(env.owned, 'rank')} of this run here"
            fields = {"name": name, "said": str(said)}
            yield Fault("local-count", env, saw, "the same number", Status.WARN, fields=fields)


def faults(env: Env, top: Topology) -> Iterator[Fault]:
    """All that is wrong with one environment by itself."""
    for rule in RULES:
        yield from rule(env, top)


Rule = Callable[[Env, Topology], Iterator[Fault]]
RULES: tuple[Rule, ...] = (
    _numbers,
    _ranges,
    _ports,
    _address,
    _complete,
    _launcher,
    _nested,
    _leftovers,
)
