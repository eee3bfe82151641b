"""The launchers there are, and what each calls its numbers. Pure.

Recordings of their environments are in tests/data/launchers/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from preflight.frozen import dataclass

STEP_LIST, JOB_LIST = "SLURM_STEP_NODELIST", ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
"""Node lists of SLURM: in a prolog of 22.05 only the last is there."""

OPTIONS = "PREFLIGHT_TORCHRUN_OPTIONS"
"""Where preflight has read the options of the torchrun that it is to start, as `gate` does: which
variables it made of them, and how each was typed (`PET_NNODES=--nnodes …`)."""

NODE_WORDS = ("auto", "gpu", "cpu")
"""What torchrun takes for a number of ranks a node (determine_local_world_size)."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How one launcher names its numbers; of several variables the first that holds one counts.

    sign      all of them are there in what it starts; `NAME=value`: with this very value
    without   none of them is
    same      pairs (inner, outer): where the inner is set it says the same, else it is of another
              launcher that started us below this one
    per_node  it starts one process per node, and `local_size` says how many ranks that stands for
    by_pod    RANK and WORLD_SIZE may well count nodes: a rank of its own has a LOCAL_RANK, too
    hosts     node lists whose first host has rank 0: of SLURM, or one host per line or comma
    all_hosts hosts in the order of their numbers: a JSON list, or one per line; this_host: the
              variable that says which of them this node is
    to_come   it is yet to be started, and may number its nodes itself: a node without a number is
              looked at by itself
    gpus      how many GPUs the job has on this node; never SLURM_GPUS_PER_NODE, which may be a100:4
    """

    name: str
    sign: tuple[str, ...]
    without: tuple[str, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    rank: tuple[str, ...] = ()
    size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    local_size: tuple[str, ...] = ()
    node_rank: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    job: tuple[str, ...] = ()
    addr: tuple[str, ...] = ("MASTER_ADDR",)
    port: tuple[str, ...] = ("MASTER_PORT",)
    hosts: tuple[str, ...] = ()
    all_hosts: str = ""
    this_host: str = ""
    gpus: tuple[str, ...] = ()
    per_node: bool = False
    by_pod: bool = False
    to_come: bool = False


def meets_statically(environ: Mapping[str, str]) -> bool:
    """Whether a torchrun with these variables meets at its --master-addr and --master-port, and
    goes by --node-rank: the other backends read none of the three."""
    backend = environ.get("PET_RDZV_BACKEND", "").strip()
    return backend in ("", "static") and not standalone(environ)


def standalone(environ: Mapping[str, str]) -> bool:
    """Whether a torchrun with these variables meets only itself, at a port that the kernel chooses:
    0 means no (argparse_util.check_env), and words stop it."""
    return environ.get("PET_STANDALONE", "").strip().lstrip("+-0") != ""


def leaves_port_open(environ: Mapping[str, str]) -> bool:
    """Whether a torchrun with these variables has one node and no port: from torch 2.12 on it takes
    a free one then, before that 29500."""
    typed = environ.get("PET_MASTER_PORT", "") or environ.get("PET_RDZV_ENDPOINT", "")
    return one_node(environ) and not typed and meets_statically(environ)


def one_node(environ: Mapping[str, str]) -> bool:
    """Whether a torchrun with these variables is the only one of its job: `1`, or `1:1`."""
    return environ.get("PET_NNODES", "").strip().rpartition(":")[2] == "1"


def numbers_nodes(environ: Mapping[str, str]) -> bool:
    """Whether a torchrun with these variables numbers its nodes itself, of which it has several."""
    return not meets_statically(environ) and not standalone(environ)


def is_host(conf: str) -> bool | None:
    """`is_host` of `key=value,…`; None when it is not there (RendezvousParameters.get_as_bool)."""
    for part in conf[:1000].split(","):
        key, _, value = part.partition("=")
        if key.strip() == "is_host":
            return value.strip().lower() in ("1", "true", "t", "yes", "y")
    return None


def named(environ: Mapping[str, str], variable: str) -> str:
    """How to call a variable: by the option of torchrun that was typed in its place, if any."""
    pairs = (pair.partition("=") for pair in environ.get(OPTIONS, "").split())
    return next((option for name, _, option in pairs if name == variable), variable)


# a process per rank, with the variables of env://, as torch's init_process_group reads them
ENV = Launcher(
    "environment",
    sign=("RANK", "WORLD_SIZE"),
    rank=("RANK",),
    size=("WORLD_SIZE",),
    local_rank=("LOCAL_RANK",),
    local_size=("LOCAL_WORLD_SIZE",),
    job=("SLURM_JOB_ID",),
)

# its daemons are a step of their own, which the ranks of the first node are not in
OPEN_MPI = Launcher(
    "Open MPI",
    sign=("OMPI_COMM_WORLD_RANK",),
    rank=("OMPI_COMM_WORLD_RANK",),
    size=("OMPI_COMM_WORLD_SIZE",),
    local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
    local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
    job=("SLURM_JOB_ID",),
    # of Azure ML, whose jobs of MPI get no MASTER_ADDR
    hosts=(*JOB_LIST, "AZ_BATCHAI_MPI_MASTER_NODE", "AZ_BATCH_MASTER_NODE"),
)
# SLURM_STEP_NUM_TASKS is there in tasks that srun started, not in the batch script itself; and
# in the shell of salloc's interactive step (SLURM_INTERACTIVE_STEP), which is no task either.
SLURM = Launcher(
    "SLURM",
    sign=("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    without=("SLURM_STEP_ID=4294967290",),
    same=(
        ("PMI_RANK", "SLURM_PROCID"),
        ("PMI_SIZE", "SLURM_STEP_NUM_TASKS"),
        ("PMIX_RANK", "SLURM_PROCID"),
    ),
    rank=("SLURM_PROCID",),
    size=("SLURM_STEP_NUM_TASKS",),
    local_rank=("SLURM_LOCALID",),
    local_size=("SLURM_STEP_TASKS_PER_NODE",),
    node_rank=("SLURM_NODEID",),
    nodes=("SLURM_STEP_NUM_NODES",),
    job=("SLURM_JOB_ID",),
    hosts=(STEP_LIST, *JOB_LIST),
    gpus=("SLURM_GPUS_ON_NODE",),
)
# what its shell sets for each task, beside what its PMI says; a broker clears it (flux-core)
FLUX = Launcher(
    "Flux",
    sign=("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    same=(("PMI_RANK", "FLUX_TASK_RANK"), ("PMI_SIZE", "FLUX_JOB_SIZE")),
    rank=("FLUX_TASK_RANK",),
    size=("FLUX_JOB_SIZE",),
    local_rank=("FLUX_TASK_LOCAL_ID",),
    nodes=("FLUX_JOB_NNODES",),
    job=("FLUX_JOB_ID",),
)
PMI = Launcher(
    "MPI (PMI)",
    sign=("PMI_RANK", "PMI_SIZE"),
    rank=("PMI_RANK",),
    size=("PMI_SIZE",),
    # Hydra of MPICH and Intel MPI; Cray's PMI; PALS of HPE, for env.identity
    local_rank=("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    local_size=("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"),
    job=("SLURM_JOB_ID",),
    hosts=JOB_LIST,
)
# mpiexec of HPE Cray's PALS; where its PMI is off it says how many ranks there are in a file alone.
# srun on the same machines sets its variables, too (mpi_cray_shasta.c), and so does Flux.
PALS = Launcher(
    "PALS",
    sign=("PALS_RANKID",),
    same=(("PMI_RANK", "PALS_RANKID"), ("PMIX_RANK", "PALS_RANKID")),
    rank=("PALS_RANKID",),
    size=("PMI_SIZE", "PALS_SIZE", "WORLD_SIZE"),
    local_rank=("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
    local_size=("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
    job=("PBS_JOBID",),
)
# aprun of Cray's ALPS, which PALS has replaced
ALPS = Launcher(
    "ALPS",
    sign=("ALPS_APP_PE",),
    same=(("PMI_RANK", "ALPS_APP_PE"),),
    rank=("ALPS_APP_PE",),
    size=("PMI_SIZE", "WORLD_SIZE"),
    job=("PBS_JOBID",),
)
# jsrun of IBM's LSF; with Spectrum MPI its ranks have Open MPI's variables, too, which say the same
JSM = Launcher(
    "jsrun",
    sign=("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    rank=("JSM_NAMESPACE_RANK",),
    size=("JSM_NAMESPACE_SIZE",),
    local_rank=("JSM_NAMESPACE_LOCAL_RANK",),
    local_size=("JSM_NAMESPACE_LOCAL_SIZE",),
    job=("LSB_JOBID",),
)
# the size is said over PMIx alone
PMIX = Launcher("MPI (PMIx)", sign=("PMIX_RANK",), rank=("PMIX_RANK",), size=("WORLD_SIZE",))

SIZELESS = (PMIX, PALS, ALPS)
"""They may say a rank, and not how many there are."""

OUTER = (OPEN_MPI, JSM, PMI, SLURM)
"""What may have started a launcher of torch's, with a number for every process. torchrun and mpirun
may themselves be started by srun: then the inner one counts, which comes first."""

# its workers are processes of an actor each, with a port that is free on the node of the first one
RAY = replace(
    ENV,
    name="Ray Train",
    sign=("RANK", "WORLD_SIZE", "LOCAL_RANK", "RAY_JOB_ID"),
    job=("RAY_JOB_ID",),
)

# what its `run` section gets on each node, for a torchrun; scripts export RANK and WORLD_SIZE of
# the nodes beside it
SKYPILOT = Launcher(
    "SkyPilot",
    sign=("SKYPILOT_NODE_RANK", "SKYPILOT_NODE_IPS"),
    without=("LOCAL_RANK",),
    same=(("RANK", "SKYPILOT_NODE_RANK"), ("WORLD_SIZE", "SKYPILOT_NUM_NODES")),
    node_rank=("SKYPILOT_NODE_RANK",),
    nodes=("SKYPILOT_NUM_NODES",),
    local_size=("SKYPILOT_NUM_GPUS_PER_NODE",),
    job=("SKYPILOT_TASK_ID",),
    all_hosts="SKYPILOT_NODE_IPS",
    per_node=True,
)
# a script on each host, where its toolkit starts it without a launcher
SAGEMAKER = Launcher(
    "SageMaker",
    sign=("SM_HOSTS", "SM_CURRENT_HOST"),
    without=("LOCAL_RANK",),
    same=(("RANK", "SM_CURRENT_HOST_RANK"), ("WORLD_SIZE", "SM_HOST_COUNT")),
    node_rank=("SM_CURRENT_HOST_RANK",),
    nodes=("SM_HOST_COUNT",),
    local_size=("SM_NUM_GPUS",),
    job=("TRAINING_JOB_NAME",),
    addr=("MASTER_ADDR", "SM_MASTER_ADDR"),
    port=("MASTER_PORT", "SM_MASTER_PORT"),
    all_hosts="SM_HOSTS",
    this_host="SM_CURRENT_HOST",
    per_node=True,
)

# What `gate` has read from the torchrun that it is to start: see OPTIONS. c10d numbers the nodes
# itself, so that another launcher's number of this one does as well.
TORCHRUN_TO_COME = Launcher(
    "torchrun's options",
    sign=(OPTIONS, "PET_NNODES"),
    without=("LOCAL_RANK",),
    node_rank=("PET_NODE_RANK", "SLURM_NODEID", "JOB_COMPLETION_INDEX", "NODE_RANK"),
    nodes=("PET_NNODES",),
    local_size=("PET_NPROC_PER_NODE",),
    job=("SLURM_JOB_ID",),
    addr=("PET_MASTER_ADDR",),
    port=("PET_MASTER_PORT",),
    per_node=True,
    to_come=True,
)
# The first that fits wins: the innermost launcher is the one that started us.
LAUNCHERS = (
    # RANK is a pod's number where WORLD_SIZE counts pods
    replace(
        TORCHRUN_TO_COME,
        sign=(*TORCHRUN_TO_COME.sign, "RANK", "WORLD_SIZE"),
        same=(("WORLD_SIZE", "PET_NNODES"),),
        node_rank=("PET_NODE_RANK", "RANK"),
    ),
    TORCHRUN_TO_COME,
    # the only task of its node: the ranks are those of torchrun, which reads none of its variables
    replace(
        TORCHRUN_TO_COME,
        sign=(*TORCHRUN_TO_COME.sign, "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"),
        without=(),
    ),
    # `accelerate launch` is torchrun below
    replace(
        ENV,
        name="torchrun",
        sign=("TORCHELASTIC_RUN_ID", "RANK"),
        job=("TORCHELASTIC_RUN_ID",),
    ),
    # Kubeflow's operators say in PET_ variables what the pod's torchrun is to go by. Beside them
    # version 1 sets RANK, the pod's number, and WORLD_SIZE, which counts pods or all ranks.
    Launcher(
        "PyTorchJob",
        sign=("PET_NNODES", "RANK", "WORLD_SIZE"),
        without=("LOCAL_RANK",),
        node_rank=("PET_NODE_RANK", "RANK"),
        nodes=("PET_NNODES",),
        local_size=("PET_NPROC_PER_NODE",),
        addr=("PET_MASTER_ADDR", "MASTER_ADDR"),
        port=("PET_MASTER_PORT", "MASTER_PORT"),
        per_node=True,
    ),
    Launcher(
        "Kubeflow Trainer",
        sign=("PET_NNODES",),
        without=("LOCAL_RANK",),
        node_rank=("PET_NODE_RANK", "JOB_COMPLETION_INDEX", "SLURM_NODEID"),
        nodes=("PET_NNODES",),
        local_size=("PET_NPROC_PER_NODE",),
        addr=("PET_MASTER_ADDR", "MASTER_ADDR"),
        port=("PET_MASTER_PORT", "MASTER_PORT"),
        per_node=True,
    ),
    RAY,
    *(SKYPILOT, SAGEMAKER),
    # an older PyTorchJob, Volcano, a manifest of one's own
    replace(
        ENV,
        name="Kubernetes pod",
        sign=("RANK", "WORLD_SIZE", "KUBERNETES_SERVICE_HOST"),
        without=("LOCAL_RANK",),
        by_pod=True,
    ),
    replace(ENV, by_pod=True),
    OPEN_MPI,
    SLURM,
    FLUX,
    PALS,
    ALPS,
    JSM,
    PMI,
    PMIX,
    Launcher(
        "Indexed Job",
        sign=("JOB_COMPLETION_INDEX",),
        without=("LOCAL_RANK",),
        node_rank=("JOB_COMPLETION_INDEX",),
        per_node=True,
    ),
    # it knows from its Trainer how many ranks per node has, and says so to nobody
    Launcher(
        "Lightning",
        sign=("NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"),
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        node_rank=("NODE_RANK",),
    ),
    # what Lightning wants of whoever starts it once a node
    Launcher(
        "environment of a node",
        sign=("NODE_RANK", "MASTER_ADDR"),
        without=("LOCAL_RANK", "SLURM_JOB_ID"),
        size=("WORLD_SIZE",),
        node_rank=("NODE_RANK",),
        per_node=True,
    ),
)
LOCAL = Launcher("local", sign=(), job=("SLURM_JOB_ID",), per_node=True)


def detect(
    environ: Mapping[str, str], typed: bool = False, of: tuple[Launcher, ...] = LAUNCHERS
) -> Launcher:
    """The launcher, one `of` these, that started this process, LOCAL when none did. `typed`: at the
    prompt of a shell that is itself a task of SLURM's (srun --pty bash): what was started there is
    no task."""
    left = leftovers(environ)
    environ = {name: value for name, value in environ.items() if name not in left}
    found = next((launcher for launcher in of if _fits(launcher, environ)), LOCAL)
    return LOCAL if typed and found is SLURM else found


def leftovers(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of an MPI launch that is not this one, which torch does not read either."""
    found = []
    if "PMIX_RANK" in environ and not environ.get("PMIX_NAMESPACE"):
        found.append("PMIX_RANK")  # PMIx_Init takes both
    # SLURM's own PMI says the same as SLURM does; Hydra, below a step, gives local ranks as well
    slurms = _fits(replace(SLURM, same=()), environ)
    if slurms and not any(environ.get(name) for name in PMI.local_rank):
        pairs = (("PMI_RANK", "SLURM_PROCID"), ("PMI_SIZE", "SLURM_STEP_NUM_TASKS"))
        if any(environ.get(mine, environ[theirs]) != environ[theirs] for mine, theirs in pairs):
            found += [name for name, _ in pairs if name in environ]
    return tuple(found)


def _fits(launcher: Launcher, environ: Mapping[str, str]) -> bool:
    return (
        all(_has(environ, sign) for sign in launcher.sign)
        and not any(_has(environ, name) for name in launcher.without)
        and all(
            not environ.get(inner) or environ[inner] == environ.get(outer)
            for inner, outer in launcher.same
        )
    )


def _has(environ: Mapping[str, str], wanted: str) -> bool:
    name, sign, value = wanted.partition("=")
    return environ.get(name) == value if sign else bool(environ.get(name))


def wants_gpus(environ: Mapping[str, str], typed: bool = False) -> bool:
    """Whether the GPUs of this node stand in for the number of ranks, where no flag says it."""
    launcher = detect(environ, typed)
    said = [environ.get(name, "") for name in launcher.local_size]
    return launcher.per_node and not any(text.isdecimal() or text == "cpu" for text in said)
