"""Do all ranks have the same NCCL, torch and Gloo settings where they must be the same?

Level        standard
Looks at     on every rank the settings of NCCL, torch, Gloo, UCX, libfabric and Accelerate that
             change what a collective does, from the environment and from nccl.conf (the environment
             counts, then the user's file, then /etc/nccl.conf), as the libraries parse them: 0 is
             the same as unset where it is the default, Ring,Tree the same as tree,ring;
             CUDA_VISIBLE_DEVICES and LOCAL_RANK of each task, which GPUs' device files it may open,
             and, where it names GPUs by UUID, what the driver says of their UUIDs and models
Fails if     a setting that determines the algorithm, protocol, transport or start-up differs; more
             tasks of a node than the GPUs that each of them sees have the very same mask, or more
             tasks than the GPUs of all their masks; tasks of a node that see the same GPUs share a
             LOCAL_RANK, and by the launcher's numbers and by their ranks they share a GPU, too;
             tasks come to one GPU by masks of their own, by its number and by its UUID as well
Warns if     tasks of a node that see the same GPUs share a LOCAL_RANK, and the launcher's numbers
             or their ranks part them; no LOCAL_RANK is set, and the masks differ so that neither
             the launcher's number, nor the rank, nor the first GPU of its mask gives each task a
             GPU of its own; a time limit, a watchdog, an allocator or the number of threads
             differs; a setting that only NCCL reads differs and no node has a GPU; a setting
             differs that only scripts with Accelerate read
Undecided    never: the environment can always be read. If two values are equally common, it shows
             both
Not covered  RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (env.identity), the versions
             (agree.software); what may differ between nodes: names of interfaces, adapters and
             files, GID indexes, debug output; what the script itself sets (job.backend); masks of
             UUIDs that overlap only partly; two MIG instances of one GPU (gpu.visible); a number
             beside a UUID where GPUs are of several models, since CUDA may count the fastest first
Seen as      a hang in the first collective, "mismatch in collective sizes or environment settings",
             "Message truncated : received … bytes instead of", "NET mismatch", a slow node,
             "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.gpu import nvml
from preflight.domains.params import switched_on
from preflight.domains.settings.agreement import compared, effective, fatal_if_different
from preflight.domains.settings.collect import collect_settings
from preflight.domains.settings.nccl_conf import VALUE_KEPT, Variable, nccl_setting
from preflight.domains.settings.variables import RENAMED
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import plural
from preflight.inference import consensus
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
    place_of,
)
from preflight.nodeset import hostlist
from preflight.redact import HIDDEN, redact
from preflight.sanitize import quoted, shell_prose, shell_word

CHECK = Check(
    scope=Scope.RANK,
    stage=Stage.MEETING,
    budget=3.0,
    level=Level.STANDARD,
    requires=frozenset({Requirement.PEERS}),
    blame=Blame.JOB,
    explains=("world.nccl", "world.ddp", "world.bandwidth"),
)

# read without a GPU, too
EVERYWHERE = ("ACCELERATE_", "GLOO_", "TORCH_DIST_", "TORCH_DISTRIBUTED_", "TORCH_GLOO_", "OMP_")
NCCL_JOB = ("world.nccl", "world.ddp", "world.bandwidth")
JOB = ("rdzv.store", "rdzv.store:stuck", "world.*")
"""The code: also where it is not known which of two nodes has the wrong value."""

NUMBERS = (
    *(
        "FLUX_TASK_LOCAL_ID",
        "SLURM_LOCALID",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "PALS_LOCAL_RANKID",
        "MPI_LOCALRANKID",
    ),
    *("PMI_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
)
"""Variables of launchers that number the tasks of a node."""

LIMIT = 6
"""Findings of one run; the rest are counted in the last of them."""
SHOWN = 4
"""Variables, values or nodes that one sentence shows."""

FINDINGS = {
    "setting-differs": FindingType(
        headline="{seen}",
        who="job author",
        cause="the shell profile, module or image of one node, or mpirun without -x for all "
        "variables",
        means="a hang in the first collective, or 'mismatch in collective sizes or environment "
        "settings'",
        now="{now!r}",
        text="set {names!s} for all ranks in one place, e.g. in the job script",
        commands=(Command("env | grep -E '^(NCCL|TORCH|GLOO|ACCELERATE)_' | sort", "the node"),),
        status=(Status.FAIL, Status.WARN),
    ),
    "setting-uneven": FindingType(
        headline="{seen}",
        who="job author",
        cause="the shell profile, module or image of one node, or a launcher that sets it on some "
        "nodes only",
        means="the job runs, but one rank is slower than the others, or times out before them",
        now="{now!r}",
        text="set {names!s} for all ranks in one place, e.g. in the job script",
        status=Status.WARN,
        explains=(),
    ),
    "conf-leftover": FindingType(
        headline="{seen}",
        cause="an nccl.conf left over from debugging on one node",
        means="a hang in the first collective, or slow collectives; no environment variable shows "
        "it",
        now="{now!r}",
        text="remove {names!s} from {file!s} there, or use the same nccl.conf on all nodes",
        commands=(Command("cat {file}", "the node"),),
        blame=Blame.NODE,
    ),
    "gpu-shared": FindingType(
        headline="{at} shares {gpus}: {seen}",
        who="job author",
        cause="one CUDA_VISIBLE_DEVICES for all tasks, exported before srun or mpirun; or a job "
        "with fewer GPUs than tasks",
        means="NCCL stops: 'Duplicate GPU detected : rank 0 and rank 1 both on CUDA device'",
        text="give each task a GPU of its own: do not export CUDA_VISIBLE_DEVICES, and request as "
        "many GPUs as tasks per node (--gpus-per-node=N --gpu-bind=none, or --gpus-per-task=1)",
        commands=(
            Command(
                "srun sh -c 'echo $SLURM_PROCID $CUDA_VISIBLE_DEVICES'", "the job's first node"
            ),
        ),
        status=(Status.FAIL, Status.WARN),
        explains=("gpu.visible:mask-per-task", "world.nccl", "world.ddp", "world.bandwidth"),
    ),
    "local-rank-shared": FindingType(
        headline="{at} would use the same GPU: LOCAL_RANK is {local} on each of them",
        who="job author",
        cause="LOCAL_RANK set before srun or mpirun, or by a wrapper script that gives all tasks "
        "the same",
        means="if the script takes its GPU from LOCAL_RANK: NCCL stops with 'Duplicate GPU "
        "detected : rank 0 and rank 1 both on CUDA device', or GPU {local} runs out of memory and "
        "the others are idle",
        now="unset LOCAL_RANK   if the script takes its GPU from SLURM_LOCALID",
        text="set it inside the task: srun bash -c 'export LOCAL_RANK=$SLURM_LOCALID; exec python "
        "…' (mpirun: $OMPI_COMM_WORLD_LOCAL_RANK), or give each task one GPU (--gpus-per-task=1)",
        commands=(
            Command(
                "srun sh -c 'echo $SLURM_PROCID $LOCAL_RANK $CUDA_VISIBLE_DEVICES'",
                "the job's first node",
            ),
        ),
        status=(Status.FAIL, Status.WARN),
        explains=("env.identity:local-rank-differs", "env.identity:out-of-range"),
    ),
}


CROSSED = 3
"""Masks that are quoted."""


@dataclass(frozen=True, slots=True)
class TaskGpus:
    """What of the GPUs a task sees that has an environment of its own: the entries of its
    CUDA_VISIBLE_DEVICES, or those of NVIDIA's device files that it may open, with their numbers.

    uuids   of the GPUs that it may open, by the number that CUDA gives each; only where the mask
            names GPUs by UUID, and empty where the driver does not say
    ordered CUDA counts them by PCI address, since CUDA_DEVICE_ORDER says so
    """

    mask: tuple[str, ...] | None = None
    devices: tuple[tuple[str, int], ...] = ()
    uuids: tuple[str, ...] = ()
    ordered: bool = False

    @property
    def count(self) -> int:
        return len(self.devices if self.mask is None else self.mask)


@dataclass(frozen=True, slots=True)
class Environment:
    """The compared settings that count on this rank, by name: the same everywhere in a sound world,
    so that it travels once.

    gpus   there is a GPU, so that somebody will read what is NCCL's
    task   its GPUs; None where the ranks of a node share one environment, or a GPU on purpose
    local  LOCAL_RANK of such a task; None: not set
    number the launcher's own number of it on its node (SLURM_LOCALID); None: not set
    """

    settings: tuple[Variable, ...] = ()
    gpus: bool = False
    task: TaskGpus | None = None
    local: int | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A variable that differs.

    odd    the parties (nodes, or NODE/rank) to name; all of them when none is the one that differs
    sure   of that; usual: what the others have set, None: nothing
    file   the nccl.conf in which the odd ones have it
    """

    name: str
    saw: str
    odd: tuple[str, ...]
    sure: Confidence
    usual: Variable | None = None
    file: str = ""
    alternatives: tuple[str, ...] = ()


def observe(host: Host, ctx: Context) -> Environment:
    found = collect_settings(host, ctx.mark)
    first: dict[str, Variable] = {}
    for variable in found.variables:
        # NCCL alone reads its files
        if variable.assigned and (not variable.file or variable.name.startswith("NCCL_")):
            first.setdefault(variable.name, variable)
    for old, new in RENAMED.items():
        if old in first and not first[old].file:
            first.setdefault(new, replace(first[old], name=new))
    for name in compared():
        if name in host.environ:  # some are no business of env.vars
            value = redact(name, host.environ[name], VALUE_KEPT)
            first.setdefault(name, Variable(name, value))
    settings = tuple(v for n, v in sorted(first.items()) if n in compared())
    ctx.mark("/dev/nvidia*")
    task = _task_gpus(host, ctx)
    local = number = None
    if task is not None:
        local = nvml.env_number(host.environ, "LOCAL_RANK")
        numbers = (nvml.env_number(host.environ, name) for name in NUMBERS)
        number = next((n for n in numbers if n is not None), None)
    return Environment(settings, bool(found.gpus or found.amd), task, local, number)


def _task_gpus(host: Host, ctx: Context) -> TaskGpus | None:
    tasks = nvml.tasks_here(host.environ)
    mask = nvml.env_text(host.environ, "CUDA_VISIBLE_DEVICES")
    # NCCL 2.30 and later take several ranks on a GPU where they are meant to be
    shared = switched_on(nccl_setting(host, "NCCL_MULTI_RANK_GPU_ENABLE"))
    entries = tuple(entry.strip() for entry in (mask or "").split(","))
    odd = any(entry in ("", "-1", "NoDevFiles") for entry in entries)
    # of several MIG instances a process sees one, and the driver may choose which
    odd = odd or (len(entries) > 1 and any(entry.startswith("MIG-") for entry in entries))
    if tasks < 2 or shared or (mask is not None and odd):
        return None
    files = (path for path in host.gpu_files() if "/nvidia" in path)
    numbers = ((path, host.permitted_device(path)) for path in files)
    devices = tuple((path, number) for path, number in numbers if number is not None)
    if not devices:
        return None
    uuids: tuple[str, ...] = ()
    if any(entry.startswith("GPU-") for entry in entries):
        ctx.mark("/proc/driver/nvidia/gpus")
        uuids = nvml.uuids_by_number(host, [number for _, number in devices])
    ordered = host.environ.get("CUDA_DEVICE_ORDER") == nvml.BY_ADDRESS
    return TaskGpus(None if mask is None else entries, devices, uuids, ordered)


def judge(world: World[Environment], expect: Expect) -> Iterator[Found]:
    yield from _shared_gpus(world)
    yield from _shared_local_ranks(world)
    yield from _crossed_masks(world)
    yield from _too_few(world)
    gpus = any(e.gpus for e in world.seen.values())
    groups: dict[tuple[str, Status, tuple[str, ...], Confidence], list[SettingDifference]] = {}
    for found in _differences(world):
        everywhere = found.name.startswith(EVERYWHERE)
        harmful = found.name in fatal_if_different()
        if not harmful and not everywhere and not gpus:
            continue  # nobody reads it
        only_accelerate = found.name.startswith("ACCELERATE_")
        code = "setting-differs" if harmful or only_accelerate else "setting-uneven"
        code = "conf-leftover" if found.file else code
        status = Status.FAIL if harmful and (everywhere or gpus) else Status.WARN
        groups.setdefault((code, status, found.odd, found.sure), []).append(found)
    heaviest = sorted(groups, key=lambda k: k[1] is not Status.FAIL)
    for number, key in enumerate(heaviest[:LIMIT], 1):
        finding = _finding(world, *key, groups[key])
        more = len(heaviest) - LIMIT
        last = number == LIMIT and more > 0
        yield finding.with_(saw=f"{finding.saw} · and {more} more like it") if last else finding


def _shared_gpus(world: World[Environment]) -> Iterator[Found]:
    """Tasks of a node with one mask that shows fewer GPUs than they are. Where control groups part
    them, all have the mask 0, and each may open a GPU of its own."""
    alike: dict[tuple[str, TaskGpus], list[str]] = {}
    for key, seen in world.seen.items():
        if seen.task is not None:
            alike.setdefault((place_of(key)[0], seen.task), []).append(key)
    # what a batch script exports is the same on all nodes
    groups: dict[tuple[tuple[str, ...] | None, int, int, int], dict[str, list[str]]] = {}
    for (node, task), keys in alike.items():
        if len(keys) > task.count:
            group = task.mask, len(keys), len(task.devices), task.count
            groups.setdefault(group, {})[node] = keys
    for (told, count, number, visible), nodes in groups.items():
        mask = "not set" if told is None else quoted(",".join(told), 80)
        where = hostlist(nodes)
        each = f" on each of {where}" if len(nodes) > 1 else ""
        keys = [key for keys in nodes.values() for key in keys]
        yield Found(
            "gpu-shared",
            tuple(map(world.subject, sorted(keys, key=lambda key: place_of(key)[1] or 0))),
            saw=f"CUDA_VISIBLE_DEVICES is {mask} for {plural(count, 'task')}{each} · each of them "
            f"may open {plural(number, 'GPU')}" + ("" if each else f" of {where}"),
            expected="a GPU of its own for each task",
            confidence=Confidence.LIKELY,
            alternatives=("the script sets CUDA_VISIBLE_DEVICES itself before it uses CUDA",),
            fields={"gpus": _shared(told, visible)},
        )


def _shared(mask: tuple[str, ...] | None, visible: int) -> str:
    if visible != 1:
        return plural(visible, "GPU")
    return "one MIG instance" if mask and mask[0].startswith("MIG-") else "one GPU"


def _shared_local_ranks(world: World[Environment]) -> Iterator[Found]:
    """Tasks of a node that see the same GPUs, enough for all, and share a LOCAL_RANK. Who sees a
    GPU of its own is right to call that 0. A script that goes by the launcher's numbers, or by its
    rank, does not read LOCAL_RANK: only where these lead to one GPU, too, no script can run."""
    alike: dict[tuple[str, TaskGpus], dict[int, list[str]]] = {}
    for key, seen in world.seen.items():
        if seen.task is not None and seen.local is not None:
            ranks = alike.setdefault((place_of(key)[0], seen.task), {})
            ranks.setdefault(seen.local, []).append(key)
    groups: dict[tuple[int, int, Status], dict[str, list[str]]] = {}
    for (node, task), ranks in alike.items():
        for local, keys in ranks.items():
            here = {key: world.seen[key] for key in keys}
            otherwise = _apart(here, _by_number) or _apart(here, _by_rank)
            status = Status.WARN if otherwise else Status.FAIL
            enough = local < task.count and sum(map(len, ranks.values())) <= task.count
            if len(keys) > 1 and enough:
                groups.setdefault((local, task.count, status), {})[node] = keys
    for (local, count, status), nodes in groups.items():
        keys = [key for keys in nodes.values() for key in keys]
        each = f" on each of {hostlist(nodes)}" if len(nodes) > 1 else f" of {hostlist(nodes)}"
        several = plural(len(next(iter(nodes.values()))), "task")
        yield Found(
            "local-rank-shared",
            tuple(map(world.subject, sorted(keys, key=lambda key: place_of(key)[1] or 0))),
            saw=f"LOCAL_RANK={local} for {several}{each} · each of them sees the same "
            f"{plural(count, 'GPU')}",
            expected="a LOCAL_RANK of its own for each task of a node",
            status=status,
            confidence=Confidence.LIKELY,
            alternatives=(
                "the script takes its GPU from the launcher's number (SLURM_LOCALID), or from RANK",
                "the script sets CUDA_VISIBLE_DEVICES itself before it uses CUDA",
            ),
            fields={"local": str(local)},
        )


Choice = Callable[[str, Environment], int | None]
"""Which entry of its mask a task takes, by how a script chooses it; None: it can't."""


def _by_local_rank(key: str, seen: Environment) -> int | None:
    return seen.local


def _by_number(key: str, seen: Environment) -> int | None:
    return seen.number


def _by_rank(key: str, seen: Environment) -> int | None:
    rank, task = place_of(key)[1], seen.task
    return rank % task.count if rank is not None and task is not None and task.count else None


def _first(key: str, seen: Environment) -> int | None:
    return 0


def _apart(tasks: Mapping[str, Environment], choice: Choice) -> bool:
    """Whether each of these tasks of a node comes to a GPU of its own if all choose in this way."""
    taken = [_gpu_taken(seen, choice(key, seen)) for key, seen in tasks.items()]
    return None not in taken and len({*taken}) == len(taken)


def _gpu_taken(seen: Environment, number: int | None) -> object:
    """What names the GPU that a task has under this number; None: it has none of that number."""
    task = seen.task
    if task is None or number is None or number >= task.count:
        return None
    # where control groups part them, a number means another GPU for each
    return task.devices[number] if task.mask is None else (task.mask[number], task.devices)


def _too_few(world: World[Environment]) -> Iterator[Found]:
    """Tasks of a node with masks by number that are not the same, where no choice, or no usual one,
    gives each of them a GPU of its own. UUIDs may name what a number does, so that these are
    judged above and below."""
    nodes: dict[tuple[str, object], dict[str, Environment]] = {}
    for key, seen in world.seen.items():
        task = seen.task
        if task is not None and task.mask is not None and all(e.isdecimal() for e in task.mask):
            nodes.setdefault((place_of(key)[0], task.devices), {})[key] = seen
    for (node, _), there in nodes.items():
        masks = {key: seen.task.mask for key, seen in there.items() if seen.task and seen.task.mask}
        counts = Counter(masks.values())
        if len(counts) < 2 or any(count > len(mask) for mask, count in counts.items()):
            continue  # one mask for more tasks than it has GPUs is told above
        short = not _fits(masks.values())
        chosen = any(seen.local is not None for seen in there.values())
        usual = (_by_number, _by_rank, _first)
        if not short and (chosen or any(_apart(there, choice) for choice in usual)):
            continue
        gpus = sorted({entry for mask in masks.values() for entry in mask}, key=int)
        told = [
            f"CUDA_VISIBLE_DEVICES={','.join(mask)[:80]} on {world.subject(key)}"
            for key, mask in list(masks.items())[:CROSSED]
        ]
        more = f" and {len(masks) - CROSSED} more" if len(masks) > CROSSED else ""
        why = (
            f"{plural(len(masks), 'task')} of {node} see {plural(len(gpus), 'GPU')} in all"
            if short
            else "two tasks take the same one, whether a script goes by the launcher's number, by "
            "its rank, or takes the first"
        )
        yield Found(
            "gpu-shared",
            tuple(map(world.subject, sorted(masks, key=lambda key: place_of(key)[1] or 0))),
            saw=f"{'; '.join(told)}{more}: {why}",
            expected="a GPU of its own for each task",
            status=Status.FAIL if short else Status.WARN,
            confidence=Confidence.LIKELY,
            alternatives=("the script sets CUDA_VISIBLE_DEVICES itself before it uses CUDA",),
            fields={"gpus": plural(len(gpus), "GPU") if short else "one GPU"},
        )


def _fits(masks: Iterable[tuple[str, ...]]) -> bool:
    """Whether each task can have a GPU of its own out of its mask."""
    taken: dict[str, tuple[str, ...]] = {}

    def give(mask: tuple[str, ...], tried: set[str]) -> bool:
        for entry in mask:
            if entry not in tried:
                tried.add(entry)
                if entry not in taken or give(taken[entry], tried):
                    taken[entry] = mask
                    return True
        return False

    return all(give(mask, set()) for mask in masks)


def _crossed_masks(world: World[Environment]) -> Iterator[Found]:
    """Tasks of a node that come to one GPU by masks of their own: of a mask with one entry that
    one, of a longer one the entry of LOCAL_RANK. One mask for several tasks is judged above."""
    uuids = {
        (place_of(key)[0], seen.task.devices, seen.task.ordered): seen.task.uuids
        for key, seen in world.seen.items()
        if seen.task is not None and seen.task.uuids
    }
    comes: dict[tuple[str, str, object], dict[str, Environment]] = {}
    for key, seen in world.seen.items():
        task = seen.task
        mask = task.mask if task is not None else None
        number = 0 if mask is not None and len(mask) == 1 else seen.local
        if task is not None and mask is not None and number is not None and number < len(mask):
            node = place_of(key)[0]
            alike = uuids.get((node, task.devices, task.ordered), ())
            uuid = _uuid_of(mask[number], mask[0], alike)
            # where control groups part them, a number means another GPU for each
            known = (uuid, None) if uuid else (mask[number], task.devices)
            comes.setdefault((node, *known), {})[key] = seen
    for (node, entry, _), there in comes.items():
        masks = {seen.task.mask for seen in there.values() if seen.task is not None}
        if len(masks) < 2:
            continue
        told = [
            f"CUDA_VISIBLE_DEVICES={','.join(seen.task.mask)[:80]}"
            + f", LOCAL_RANK={seen.local}" * (len(seen.task.mask) > 1)
            + f" on {world.subject(key)}"
            for key, seen in list(there.items())[:CROSSED]
            if seen.task is not None and seen.task.mask is not None
        ]
        gpu = entry[:60] if entry.startswith("GPU-") else f"GPU {entry[:60]}"
        yield Found(
            "gpu-shared",
            tuple(map(world.subject, sorted(there, key=lambda key: place_of(key)[1] or 0))),
            saw=f"{'; '.join(told)}: {gpu} of {node} for each",
            expected="a GPU of its own for each task",
            confidence=Confidence.LIKELY,
            alternatives=("the script sets CUDA_VISIBLE_DEVICES itself before it uses CUDA",),
            fields={"gpus": "one GPU"},
        )


def _uuid_of(entry: str, first: str, uuids: tuple[str, ...]) -> str:
    """The UUID of the GPU that an entry of a mask names; empty where nothing says which."""
    shown = nvml.visible_devices(entry, uuids)
    mixed = entry.startswith("GPU-") != first.startswith("GPU-")  # CUDA reads no further
    return "" if mixed or shown.problem or not shown.indexes else uuids[shown.indexes[0]]


def _differences(world: World[Environment]) -> Iterator[SettingDifference]:
    distinct: dict[Environment, list[str]] = {}
    of_object: dict[int, list[str]] = {}  # most of 100,000 ranks have one and the same
    for key, seen in world.seen.items():
        if id(seen) not in of_object:
            of_object[id(seen)] = distinct.setdefault(seen, [])
        of_object[id(seen)].append(key)
    settings = {seen: {v.name: v for v in seen.settings} for seen in distinct}
    for name in compared():
        values = {
            seen: effective(name, mine[name].value if name in mine else "")
            for seen, mine in settings.items()
        }
        hidden = any(name in m and m[name].value == HIDDEN for m in settings.values())
        if len(set(values.values())) < 2 or hidden:
            continue
        held = {k: (values[s], settings[s].get(name)) for s, keys in distinct.items() for k in keys}
        yield _difference(name, _parties(held))


def _parties(
    held: Mapping[str, tuple[str, Variable | None]],
) -> dict[str, tuple[str, Variable | None]]:
    """By node where the ranks of each node agree, since they have it from one place; by rank
    otherwise, or when all are on one node."""
    by_node: dict[str, tuple[str, Variable | None]] = {}
    for key, value in held.items():
        if by_node.setdefault(place_of(key)[0], value)[0] != value[0]:
            return dict(held)
    return by_node


def _difference(name: str, parties: Mapping[str, tuple[str, Variable | None]]) -> SettingDifference:
    agreed = consensus({party: value for party, (value, _) in parties.items()})
    groups: dict[str, list[str]] = {}
    for party, (value, _) in parties.items():
        groups.setdefault(value, []).append(party)
    smallest = sorted(groups.values(), key=len)
    said = [f"{_value(parties[g[0]][1])} on {_names(g)}" for g in smallest[:SHOWN]]
    saw = f"{name} differs: {', '.join(said)}"
    files = {p: v.file for p, (_, v) in parties.items() if v is not None and v.file}
    rest = [p for p in parties if p not in files]
    if agreed.value is not None:
        odd = tuple(p for p, (value, _) in parties.items() if value != agreed.value)
        file = files.get(odd[0], "") if all(p in files for p in odd) else ""
        usual = parties[agreed.holders[0]][1]
        return SettingDifference(name, saw, odd, Confidence.LIKELY, usual, file)
    if files and len(files) <= len(rest) and len({parties[p][0] for p in rest}) == 1:
        # a file that only some nodes have is more often forgotten than missing
        odd, file = tuple(files), next(iter(files.values()))
        other = (f"{file} is missing on {_names(rest)}",)
        return SettingDifference(
            name, saw, odd, Confidence.LIKELY, parties[rest[0]][1], file, other
        )
    return SettingDifference(
        name, saw, tuple(parties), Confidence.POSSIBLE, alternatives=_both(groups)
    )


def _both(groups: Mapping[str, list[str]]) -> tuple[str, ...]:
    if len(groups) == 2:
        return tuple(f"the value on {_names(g)} is the intended one" for g in groups.values())
    return ("no value has a majority: any of them may be the intended one",)


def _value(variable: Variable | None) -> str:
    return f"{quoted(variable.value, 60)} ({variable.place})" if variable else "not set"


def _names(parties: list[str]) -> str:
    """`n1, n2` or `rank 3 of n1`; many are counted."""
    places = [place_of(p) for p in parties[:SHOWN]]
    shown = [n if rank is None else f"rank {rank} of {n}" for n, rank in places]
    more = len(parties) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _finding(
    world: World[Environment],
    code: str,
    status: Status,
    odd: tuple[str, ...],
    sure: Confidence,
    group: list[SettingDifference],
) -> Found:
    names = [d.name for d in group]
    one = group[0]
    more = f" · and {len(group) - SHOWN} more" if len(group) > SHOWN else ""
    nccl = all(n.startswith(("NCCL_", "TORCH_NCCL_")) for n in names)
    explains = (NCCL_JOB if nccl else JOB) if status is Status.FAIL else ()
    name, places = shell_word(one.name) or "NAME", shell_prose(_names(list(odd))) or "these nodes"
    corrected = _corrected(name, one.usual)
    sure_which = not one.file and sure is not Confidence.POSSIBLE
    now = f"{corrected}   on {places}" if corrected and sure_which else ""
    system = one.file.startswith("/etc/")
    return Found(
        code,
        tuple(_subject(world, p, names[0] if len(names) == 1 else "") for p in odd),
        saw=" · ".join(d.saw for d in group[:SHOWN]) + more,
        expected="one value for all ranks",
        blame=Blame.NODE if system else Blame.JOB,
        confidence=sure,
        explains=explains,
        alternatives=one.alternatives,
        fields={"now": now, "names": ", ".join(names[:SHOWN]), "name": one.name, "file": one.file},
        status=status,
    )


def _corrected(name: str, usual: Variable | None) -> str:
    """The command that sets a variable as most have it; empty where its value can't be shown."""
    if usual is None:
        return f"unset {name}"
    if not usual.value:
        return f"export {name}="
    whole = "" if HIDDEN in usual.value else shell_word(usual.value)
    return f"export {name}={whole}" if whole else ""


def _subject(world: World[Environment], party: str, name: str) -> Subject:
    node, rank = place_of(party)
    if rank is None:
        return Subject(Kind.NODE, node, name, world.topology.ranks_of(node))
    return world.subject(party)


def measured(world: World[Environment]) -> Measured:
    if not world.seen:
        return Measured()
    names = {v.name for seen in world.distinct for v in seen.settings}
    different = [d.name for d in _differences(world)]
    nodes = len({place_of(key)[0] for key in world.seen})
    text = f"{plural(len(names), 'setting')} the same on {plural(nodes, 'node')}"
    if not names:
        text = f"all defaults on {plural(nodes, 'node')}"
    if different:
        text = f"{', '.join(different[:SHOWN])} not the same everywhere"
    return Measured(text, {"settings": sorted(names), "different": different})
