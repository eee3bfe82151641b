"""Are RANK, WORLD_SIZE, MASTER_ADDR consistent with each other and with the launcher?

Looks at     RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, NODE_RANK, MASTER_ADDR,
             MASTER_PORT, PET_RDZV_ENDPOINT, and what torchrun (TORCHELASTIC_*), Kubernetes (PET_*,
             JOB_COMPLETION_INDEX), Volcano (VC_*_NUM), SLURM and MPI say of the same
Fails if     a number or port is invalid or out of range; the endpoint of torchrun's static
             rendezvous has no port; MASTER_ADDR is not a host name, or is a loopback address
             although there are several nodes; RANK is set without the rest of what env:// needs;
             RANK, WORLD_SIZE or a node's rank is not what this process's launcher says; each of
             several tasks starts a torchrun of its own, or each node runs a separate job;
             WORLD_SIZE is not the number of ranks that are launched; two processes have the same
             RANK, or ranks differ in WORLD_SIZE or MASTER_PORT; torchrun is to count GPUs where
             there is none
Warns if     a number has whitespace or a carriage return around it; the endpoint has no port, and
             nothing names a backend; ranks differ in MASTER_ADDR; the variables give another number
             of ranks on this node than this run has, or than came from it; LOCAL_RANK is not what
             the launcher says, where a process sees several GPUs; a pod has the RANK of another;
             PET_NNODES is not the number of nodes that this run was started for
Undecided    never: the environment is always there
Not covered  whether MASTER_ADDR resolves (net.name), whether MASTER_PORT is free (net.port), the
             command line that torchrun or srun will get
Seen as      "environment variable RANK expected, but not set", "invalid literal for int()",
             "The client socket has timed out", "clients joined", "rank < size",
             "port must have value from 0 to 65535", "port is missing in endpoint", "EADDRINUSE",
             "Cuda is not available",
             KeyError: 'RANK'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight.check import Check, Context, Scope, Stage
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import plural
from preflight.identity.across_ranks import faults_across_ranks
from preflight.identity.addresses import loopback
from preflight.identity.consistency import NAMES, NUMBERS, REPLICAS, SHOWN, Env, faults
from preflight.model import (
    Blame,
    Command,
    FindingType,
    Found,
    Measured,
    Status,
    Subject,
    Topology,
    World,
    place_of,
)
from preflight.redact import redact

CHECK = Check(
    scope=Scope.RANK,
    stage=Stage.MACHINE,
    budget=2.0,
    blame=Blame.JOB,
    explains=("rdzv.*", "world.*"),
)

MEETING = ("net.name", "net.port", "rdzv.*", "world.*")

# set in every pod (Kubernetes documentation, "Services: environment variables")
KUBERNETES = "KUBERNETES_SERVICE_HOST"

REPLICAS_MOST = 16
"""Tasks of a job of Volcano's that are looked at."""

# one number for all tasks, which is right on one of them
SPREAD = ("launcher-disagrees", "local-rank-differs")

FINDINGS = {
    "number-malformed": FindingType(
        headline="{seen} is not a number on {at}",
        who="job author",
        cause="quotes kept by an env file, or a shell variable that was never expanded, or not set",
        means='"invalid literal for int() with base 10" in init_process_group or in torchrun, or '
        '"Unsupported nproc_per_node value"',
        text="set it to digits only, or let one launcher set it: torchrun sets all of them",
        status=(Status.FAIL, Status.WARN),
    ),
    "number-whitespace": FindingType(
        headline="{seen} contains a space or carriage return on {at}",
        who="job author",
        cause="a file with Windows line endings, or a space after the value in an env file",
        means="torch strips it, but a shell's [ $RANK -eq 0 ] and C code don't",
        text="remove the space or carriage return from the file that sets it: dos2unix",
        status=Status.WARN,
        was=("number-blank",),
    ),
    "out-of-range": FindingType(
        headline="{seen} is out of range on {at}",
        who="job author",
        cause="the numbers of two launchers mixed, or ranks counted from 1",
        means='"rank < size" at init, or a rank that retries to connect until its timeout; by '
        'LOCAL_RANK, "invalid device ordinal", or nothing where no GPU is chosen',
        text="count ranks from 0: RANK < WORLD_SIZE, LOCAL_RANK < LOCAL_WORLD_SIZE",
        status=(Status.FAIL, Status.WARN),
    ),
    "port-invalid": FindingType(
        headline="{seen} is not a valid port number on {at}",
        who="job author",
        cause="text, 0 or a number above 65535 where a port belongs",
        means='"port must have value from 0 to 65535"; with 0 each rank chooses a different port',
        now="{given!s}{right}",
        text="set one port for all ranks, outside net.ipv4.ip_local_port_range",
        explains=MEETING,
    ),
    "port-missing": FindingType(
        headline="torchrun's static rendezvous needs a port in {name} on {at}",
        who="job author",
        cause="an endpoint written for --rdzv-backend c10d, whose default is 29400; MASTER_PORT "
        "is not read where there is an endpoint",
        means='torchrun ends at once: "ValueError: port is missing in endpoint: … Try to specify '
        '--master-port"',
        now="{given!s}{right}",
        text="write the port into the endpoint on every node, or pass --rdzv-backend c10d",
        status=(Status.FAIL, Status.WARN),
    ),
    "address-malformed": FindingType(
        headline="{seen}, on {at}",
        who="job author",
        cause="an address with port, blank, quotes or brackets, or a node list",
        means='"The client socket has timed out … while trying to connect": no such name',
        text="set {name} to one host name or address only; the port goes into MASTER_PORT",
        explains=MEETING,
    ),
    "address-loopback": FindingType(
        headline="{seen} is {what}, but the job has several nodes",
        who="job author",
        cause="a single-node example run on several nodes",
        means='each node connects to itself: "1/2 clients joined" on rank 0, "The client socket '
        'has timed out … (localhost, …)" elsewhere',
        now="{given!s}{first}   on every node",
        text="set {name} to the name or address by which the other nodes reach rank 0's node",
        status=(Status.FAIL, Status.WARN),
        explains=MEETING,
    ),
    "incomplete": FindingType(
        headline="{missing} is not set on {at}",
        who="job author",
        cause="a variable left over in the shell, or a launch script that sets only some",
        means='"environment variable {missing} expected, but not set"; other ranks wait for it',
        now="unset {present!s}   if torchrun will set them",
        text="set {missing!s} too, or let one launcher set all four: torchrun, or a wrapper run by "
        "srun on each task",
        status=(Status.FAIL, Status.WARN),
        explains=MEETING,  # a rank that is taken for the only one is where rank 0 would be
    ),
    "launcher-disagrees": FindingType(
        headline="the launcher's variables contradict each other on {at}: {seen}",
        who="job author",
        cause="$SLURM_PROCID expanded in the batch script, before srun, so that all tasks get 0; "
        "a number set in the manifest as well as by Kubernetes",
        means='several processes have the same rank: "wait timeout … keys" on all of them, or '
        "EADDRINUSE for the second rank 0",
        now="unset {present!s}",
        text="set it inside the task: srun bash -c 'export RANK=$SLURM_PROCID; exec python …'; in "
        "a pod take it out of manifest and image, or from $JOB_COMPLETION_INDEX",
        status=(Status.FAIL, Status.WARN),
    ),
    "world-size-mismatch": FindingType(
        headline="WORLD_SIZE={said}, but {right} {ranks} launched ({source})",
        who="job author",
        cause="WORLD_SIZE left over from another job, in a shell, an env file or an image; or "
        "computed in the batch script with other numbers than its srun has, which in a "
        "heterogeneous job starts the first component alone without --het-group=0,1; or an "
        "operator that counts pods without a rank",
        means='rank 0: "Timed out … waiting for clients", e.g. 3/8 clients joined: it waits for '
        "ranks that nobody starts; with fewer than are launched, 'rank < size'",
        now="export WORLD_SIZE={right}   on every node",
        text="remove WORLD_SIZE from the file that sets it, or let the launcher compute it: nodes "
        "x processes per node",
        status=(Status.FAIL, Status.WARN),
    ),
    "local-rank-differs": FindingType(
        headline="LOCAL_RANK does not match the task's number on its node: {seen}, on {at}",
        who="job author",
        cause="LOCAL_RANK exported in the batch script, before srun or mpirun, so that all tasks "
        "of a node have 0",
        means="ranks of a node use the same GPU: 'Duplicate GPU detected' and ncclInvalidUsage, or "
        "out of memory on GPU 0 while others are idle",
        now="unset LOCAL_RANK",
        text="set it inside the task: srun bash -c 'export LOCAL_RANK=$SLURM_LOCALID; exec python "
        "…' (mpirun: $OMPI_COMM_WORLD_LOCAL_RANK)",
        status=Status.WARN,
        explains=(),
    ),
    "launchers-nested": FindingType(
        headline="{seen}",
        who="job author",
        cause="--ntasks-per-node above 1 (or mpirun with several slots) together with torchrun",
        means="every task starts all ranks of its node: N x N processes on the same GPUs, "
        '"address already in use" or a rendezvous that closes early',
        text="use one task per node with torchrun (srun --ntasks-per-node=1 torchrun), or one task "
        "per rank without it",
        status=(Status.FAIL, Status.WARN),
    ),
    "worlds-split": FindingType(
        headline="each node runs a separate job: {seen}",
        who="job author",
        cause="srun or mpirun on several nodes and torchrun without --nnodes, or a pod of several "
        "whose command has --nnodes=1 or --standalone",
        means="every node trains alone, writes the same checkpoints and ends without an error",
        text="give torchrun --nnodes=$SLURM_NNODES --rdzv-backend=c10d --rdzv-endpoint=HOST:29500; "
        "if independent runs are intended: --tolerate env.identity",
    ),
    "store-not-served": FindingType(
        headline="TORCHELASTIC_USE_AGENT_STORE is set, but no torchrun serves the store",
        who="job author",
        cause="torchrun's variables copied into the environment of another job",
        means='all ranks, including rank 0, act as clients: "The client socket has timed out"',
        now="unset TORCHELASTIC_USE_AGENT_STORE",
        text="start the ranks with torchrun, or clear its TORCHELASTIC_ variables",
        explains=(*CHECK.explains, "net.port:agent-store-missing"),
        was=("store-nobody-serves",),
    ),
    "rank-duplicate": FindingType(
        headline="the same rank exists twice: {seen}",
        who="job author",
        cause="the same --node-rank on two nodes, RANK exported to all of them, or an srun per "
        "component of a heterogeneous job, each of which counts from 0",
        means='all ranks time out with "wait timeout … keys: …/N", where no process has rank N',
        text="set a different RANK for every process; start the components of a heterogeneous job "
        "with one srun --het-group=0,1",
    ),
    "world-differs": FindingType(
        headline="{name} differs between ranks: {values}",
        who="job author",
        cause="nodes x processes computed by hand, or a script that differs between nodes",
        means='"4/5 clients joined" on rank 0, or no message for five times the timeout',
        text="set the same {name} on every node: compute it once, or let one launcher set it",
    ),
    "master-differs": FindingType(
        headline="MASTER_ADDR differs between ranks",
        who="job author",
        cause="MASTER_ADDR=$(hostname) evaluated on each node",
        means='ranks look for rank 0 in different places: "clients joined", then timeouts',
        text="compute MASTER_ADDR once, before the nodes are started",
        status=(Status.FAIL, Status.WARN),
    ),
    "local-count": FindingType(
        headline="{name} does not match --nproc: {seen}",
        who="job author",
        cause="a variable left over from another job, or an --nproc that is not the job's",
        means="the job starts a different number of ranks here than this run tested",
        now="preflight run --nproc {said}",
        text="unset {name}, or keep --nproc and the launcher's number the same",
        status=Status.WARN,
    ),
    "local-size-differs": FindingType(
        headline="{seen}, but its node {at} has {right} of them",
        who="job author",
        cause="a number left over from another job or launcher, or one computed for nodes with "
        "more GPUs",
        means="code that derives nodes, devices or groups of ranks from it gets them wrong: FSDP's "
        "hybrid sharding, DeepSpeed, Accelerate, samplers; 'invalid device ordinal', or a hang in "
        "new_group",
        text="set LOCAL_WORLD_SIZE to {right} there, or let one launcher set it: torchrun, or a "
        "wrapper run by srun on each task",
        status=Status.WARN,
    ),
    "node-count-differs": FindingType(
        headline="{name} does not match the {right} nodes of this run: {seen}",
        who="job author",
        cause="a number of an earlier job, in a shell, an env file or a manifest",
        means="with too many torchrun waits for nodes that nobody starts; with too few the rest "
        "wait outside, and the world is smaller than it should be",
        now="{given!s}{right}   on every node",
        text="set the number of nodes once for the job, or give it to torchrun alone: --nnodes",
        status=Status.WARN,
    ),
    "gpus-absent": FindingType(
        headline="{name}=gpu, and there is no GPU on {at}",
        who="job author",
        cause="a container without --gpus, a pod or step without GPUs, or a driver that did not "
        "load",
        means="torchrun ends at once: 'ValueError: Cuda is not available.'",
        text="give the job its GPUs, or set {name} to a number or to cpu",
    ),
    "standalone": FindingType(
        headline="torchrun --standalone can't be used on several nodes",
        who="job author",
        cause="--standalone left over from a single-node job",
        means="torchrun waits 10 minutes for nodes that can't find it: RendezvousTimeoutError; "
        "with --nnodes 1:N every node trains alone, half a minute later, and ends without an error",
        now="{act!s}",
        text="pass --rdzv-backend and --rdzv-endpoint to torchrun instead of --standalone",
        status=(Status.FAIL, Status.WARN),
    ),
    "nodes-unchecked": FindingType(
        headline="the command is for {nodes} nodes, and only this one was checked",
        who="job author",
        cause="a rendezvous that waits for as many nodes as may come (c10d, --nnodes 1:4), or at a "
        "server of its own (etcd)",
        means="whether the nodes reach each other, and agree, nobody has seen",
        text="give the number of nodes, so that all of them meet at the command's endpoint; with "
        "etcd, give --meet HOST:PORT, too",
        commands=(
            Command("preflight gate --nodes $N -- torchrun --nnodes $N train.py", "every node"),
        ),
        status=Status.WARN,
        explains=(),
    ),
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What the environment says of who this rank is: the variables in NAMES that are set, as they
    are (bounded). `owned` is the number of ranks that share this environment in this run, `gpus`
    whether the machine has any."""

    values: Mapping[str, str]
    owned: int = 1
    kubernetes: bool = False
    gpus: bool = True


def observe(host: Host, ctx: Context) -> Identity:
    environ = host.environ
    names = [name for name in NAMES if name in environ]
    names += sorted(name for name in environ if REPLICAS.fullmatch(name))[:REPLICAS_MOST]
    return Identity(
        values={name: redact(name, environ[name]) for name in names},
        owned=ctx.local_world_size,
        kubernetes=KUBERNETES in environ,
        gpus=bool(host.gpu_files()),
    )


def judge(world: World[Identity], expect: Expect) -> Iterator[Found]:
    envs = _environments(world)
    named = _first_is_named(envs)
    found = [
        fault
        for fault in _faults_of_each(envs, world.topology)
        if fault.code != "address-loopback" or {s.node for s in fault.subjects} != {named}
    ]
    launched = {f.subjects for f in found if f.code == "launcher-disagrees"}
    found += faults_across_ranks(envs, launched, world.topology)
    # equal faults of many ranks are one finding
    groups: dict[tuple[str, Status | None], list[Found]] = {}
    for fault in found:
        groups.setdefault((fault.code, fault.status), []).append(fault)
    for group in groups.values():
        seen = list(dict.fromkeys(fault.saw for fault in group))
        more = f" · and {len(seen) - SHOWN} more" if len(seen) > SHOWN else ""
        subjects = dict.fromkeys(s for fault in group for s in fault.subjects)
        subjects |= dict.fromkeys(_right_by_chance(group, envs))
        yield group[0].with_(
            subjects=tuple(sorted(subjects, key=lambda s: not s.node)),  # who is there first
            saw="; ".join(seen[:SHOWN]) + more,
        )


def _first_is_named(envs: Sequence[Env]) -> str:
    """The node of rank 0, where all others have another name for it than the loopback: what is
    written there leads to itself, and torch listens at all addresses."""
    first = next((env.node for env in envs if env.holds_first), "")
    others = [env.values.get("MASTER_ADDR", "") for env in envs if env.node != first]
    return first if others and not any(loopback(name) or not name for name in others) else ""


def _right_by_chance(group: Sequence[Found], envs: Sequence[Env]) -> Iterator[Subject]:
    """Ranks with the one number that is wrong on all others of a finding: one script gave it to all
    of them, and they would get theirs by the same way."""
    first = group[0]
    here = first.code == "local-rank-differs"
    name = "LOCAL_RANK" if here else first.fields.get("present", "")
    said = {fault.saw.partition(" · ")[0] for fault in group}
    ranks = name in NUMBERS and name.endswith("RANK")
    if first.code not in SPREAD or not ranks or len(said) > 1:
        return
    nodes = {s.node for fault in group for s in fault.subjects}
    for env in envs:
        if env.say(name) in said and (env.node in nodes or not here):
            yield from env.subjects


def _environments(world: World[Identity]) -> list[Env]:
    """Ranks of one node that see the very same share an agent's environment."""
    numbers: dict[tuple[object, ...], int] = {}
    number_of: dict[int, int] = {}
    groups: dict[tuple[str, int], tuple[Identity, list[str]]] = {}
    for name, seen in world.seen.items():
        if id(seen) not in number_of:  # most of 100,000 ranks have the same
            what = (seen.owned, seen.kubernetes, *sorted(seen.values.items()))
            number_of[id(seen)] = numbers.setdefault(what, len(numbers))
        key = place_of(name)[0], number_of[id(seen)]
        if key not in groups:
            groups[key] = seen, []
        groups[key][1].append(name)
    return [
        Env(seen.values, seen.owned, seen.kubernetes, node, tuple(names), world.topology, seen.gpus)
        for (node, _), (seen, names) in groups.items()
    ]


def _faults_of_each(envs: Sequence[Env], top: Topology) -> Iterator[Found]:
    """What is wrong with each environment by itself. Where that is nothing it is nothing on another
    node that has the same one."""
    sound: set[tuple[object, ...]] = set()
    for env in envs:
        what = id(env.values), env.owned, env.kubernetes, env.holds_first
        if what not in sound:
            found = [*faults(env, top)]
            yield from found
            if not found:
                sound.add(what)


def measured(world: World[Identity]) -> Measured:
    if not world.seen:
        return Measured()
    top = world.topology
    launcher = "no launcher" if top.launcher == "local" else top.launcher
    nodes = top.facts.get("nodes")
    note = f" · {nodes.source}" if nodes and "read as" in nodes.source else ""
    if job_nodes := top.facts.get("job_nodes"):  # in a batch script, or where salloc was typed
        note += f" · this machine alone, of a job of {job_nodes.value} nodes"
    text = f"{len(world.seen)} of {plural(top.size, 'rank')} · {launcher}{note}"
    if top.size > len(world.seen) or len(top.nodes) > 1:
        text += f" · {top.master_addr}:{top.master_port}"
    facts = {what: f"{fact.value} ({fact.source})" for what, fact in top.facts.items()}
    return Measured(text, {"launcher": top.launcher, "size": top.size, "facts": facts})
