"""Commands to rehearse, each with a planted fault or with nothing wrong, and what must be said.

The line of a fault is where its script has the comment `<- here`; where two places are equally
right, the other one has `<- or here`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"
STUCK = 5.0
"""Seconds of --stuck, unless a row says otherwise."""
LIMIT = 60.0
"""Seconds of --for."""
TORCHRUN = ("{torchrun}", "--standalone", "--nproc-per-node={nproc}")
STATIC = (
    "{torchrun}",
    "--master-addr=127.0.0.1",
    "--master-port={port}",
    "--nproc-per-node={nproc}",
)
PYTHON = ("{python}",)
SHELL = ("bash", str(SCRIPTS / "launch.sh"), "{nproc}", "{port}", "{python}")
"""Ranks that no launcher of torch's has started, which also costs one import of torch less."""
MODULE = ("{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node={nproc}")
SUBPROCESS = ("{python}", str(SCRIPTS / "starts_ranks.py"))
ACCELERATE = (
    *("{python}", "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes={nproc}"),
    *("--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"),
    "--main_process_port={port}",
)
ALONE = (
    *("{python}", "-m", "accelerate.commands.launch", "--cpu", "--num_processes={nproc}"),
    *("--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"),
)
"""Which starts one process, without a rank."""

AGENT_LATE = ("bash", str(SCRIPTS / "agents.sh"), "12", "{port}", "{torchrun}")
"""Two agents of torchrun, of which the first waits for the other."""

DEEPSPEED = (
    *("{python}", "-m", "deepspeed.launcher.runner", "--num_accelerators={nproc}"),
    "--master_port={port}",
)
"""With processes of its own, each with --local_rank on its command line."""

WAYS = ("forkserver", "spawn", "os.fork", "mp.spawn")
"""How a script may start its ranks itself, beside fork."""

FSDP2_ON_CPU = "torch 2.8"
"""Before, torch has no fully_shard there, or one that asks a CPU for its streams."""

RANKS, COLLECTIVES, PACE, MEMORY = "job.ranks", "job.collectives", "job.pace", "job.memory"
WARNINGS = "job.warnings"
GPUS: tuple[tuple[str, object], ...] = (("count", 4), ("busy", 95))
"""H100s that are busy. The ranks of gpu_steps.py use them from the last one on."""
GPU_SITE = "gpu_site/site-packages"
BACKEND, MODEL, BALANCE, SCRIPT = "job.backend", "job.model", "job.balance", "job.script"
OPTIMIZER = "job.optimizer"
MPIRUN = ("bash", str(SCRIPTS / "mpirun"), "{nproc}", "{python}")
"""What a rank of Open MPI's gets to know, from a script of that name."""

MPIEXEC = ("bash", str(SCRIPTS / "mpiexec"), "{nproc}", "{python}")
"""The same of MPICH's."""

SRUN = ("bash", str(SCRIPTS / "srun"), "{nproc}", "{python}")
"""The same of a task of SLURM's."""


@dataclass(frozen=True)
class Row:
    """A command and what must come of it.

    script   a file of scripts/, without its suffix
    code     of the one failure; with several, each would be right; none: nothing is wrong
    check    of that finding
    ranks    of which its subjects must be some; none: the finding is about the command
    exact    all of them must be
    line     whether a line must be named: of the rank, or where the others wait for it
    places   the files in which it is, where that is not the script
    warns    the finding is a warning
    may_warn codes of warnings that may stand there as well
    extra    seconds that it may take longer
    limit    --for: some commands would run forever
    launcher what stands before the script
    path     a folder of scripts/ that the user has in PYTHONPATH
    word     tells rows of one script apart
    gpus     lines of a scenario for the lab's NVML (fake_nvml.c); without any there is none
    needs    a library of others, "torch 2.8" for that or a newer one: without it the row is not run
    """

    script: str
    nproc: int = 2
    args: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    check: str = COLLECTIVES
    ranks: tuple[int, ...] = ()
    exact: bool = True
    line: bool = True
    places: tuple[str, ...] = ()
    warns: bool = False
    may_warn: tuple[str, ...] = ()
    stuck: float = STUCK
    extra: float = 0.0
    limit: float = LIMIT
    launcher: tuple[str, ...] = TORCHRUN
    path: str = ""
    word: str = ""
    gpus: tuple[tuple[str, object], ...] = ()
    needs: str = ""

    @property
    def name(self) -> str:
        return "-".join((self.script, self.word)) if self.word else self.script


def raised(script: str, *ranks: int, **more: object) -> Row:
    return Row(script, code=("rank-raised",), check=RANKS, ranks=ranks, **more)  # type: ignore[arg-type]


def gone(script: str, code: str, *ranks: int, **more: object) -> Row:
    more = {"check": RANKS} | more
    return Row(script, code=(code,), ranks=ranks, **more)  # type: ignore[arg-type]


def missing(row: Row) -> bool:
    """Whether the library is not installed that it needs, or is older."""
    name, _, least = row.needs.partition(" ")
    if not name or importlib.util.find_spec(name) is None:
        return bool(name)
    numbers = importlib.metadata.version(name).split(".")[:2] if least else []
    return [int(n) for n in numbers] < [int(n) for n in least.split(".") if n]


def hangs(script: str, code: str, *ranks: int, **more: object) -> Row:
    return Row(script, code=tuple(code.split()), ranks=ranks, **more)  # type: ignore[arg-type]


def warned(script: str, code: str, *ranks: int, **more: object) -> Row:
    return Row(script, code=(code,), ranks=ranks, warns=True, **more)  # type: ignore[arg-type]


JOINS: Mapping[str, Any] = {"nproc": 3, "launcher": PYTHON}

FAULTS = (
    # a rank ends
    raised("raised_at_step", 1),
    raised("raised_in_module", 2, nproc=3, places=("augment",), launcher=STATIC),
    raised("raised_in_worker", 1, launcher=SHELL),
    raised("raised_before_init", 1),
    raised("raised_in_join", 1, launcher=SHELL),
    raised("raised_at_checkpoint", 0, args=("{folder}/none/last.pt",)),
    raised("raised_with_own_hook", 1, launcher=SHELL),
    raised("spawned_raised", 1, launcher=PYTHON),
    # a GPU without room, or one that fails a kernel, in torch's own words
    *(
        gone("gpu_fails", code, 1, args=(mode,), word=mode, launcher=SHELL)
        for mode, code in (
            ("limit", "rank-gpu-oom"),
            ("shared", "rank-gpu-oom"),
            ("stranger", "rank-gpu-oom"),
            ("pieces", "rank-gpu-oom"),
            ("asserts", "rank-cuda-error"),
            ("mentions", "rank-raised"),
        )
    ),
    # ranks that no launcher has numbered, and that end before they say who they are
    *(raised("made_raised", 1, launcher=PYTHON, args=(way,), word=way) for way in ("fork", *WAYS)),
    raised("made_none", launcher=PYTHON, args=("fork",)),
    hangs("made_late", "rank-stuck", 1, nproc=3, launcher=PYTHON, args=("fork",)),
    raised("raised_at_step", 1, launcher=SUBPROCESS, word="subprocess"),
    raised("fsdp_raised", 0, needs=FSDP2_ON_CPU),
    gone("unused_parameters", "gradients-unused", 0, 1, check=MODEL, launcher=SHELL),
    gone("unused_head", "gradients-unused", 0, 1, check=MODEL, launcher=SHELL),
    gone("layer_drop", "gradients-unused", 0, 1, check=MODEL),
    # a model that is not that of all ranks
    gone("model_differs", "model-structure", 0, 1, check=MODEL),
    gone("model_frozen", "model-structure", 1, check=MODEL, nproc=3, launcher=SHELL),
    gone("model_sizes", "model-structure", 2, check=MODEL, nproc=3, launcher=SHELL),
    gone("replica_loaded", "replicas-diverged", 1, check=MODEL, nproc=3, launcher=SHELL),
    gone("replica_bare", "replicas-diverged", 0, 1, check=MODEL, launcher=SHELL),
    gone(
        *("replica_bare", "replicas-diverged", 0, 1),
        check=MODEL,
        args=("head",),
        word="head",
        launcher=SHELL,
    ),
    gone("replica_no_sync", "replicas-diverged", 0, 1, check=MODEL, launcher=SHELL),
    gone("replica_unfrozen", "replicas-diverged", 0, 1, check=MODEL, launcher=SHELL),
    gone(
        *("replica_unfrozen", "replicas-diverged", 0, 1),
        check=MODEL,
        args=("replaced",),
        word="replaced",
        launcher=SHELL,
    ),
    *(
        gone(
            *("accumulation_shifted", "replicas-diverged", 0, 1),
            check=MODEL,
            args=(way,),
            word=way,
            launcher=SHELL,
        )
        for way in ("no_sync", "flag")
    ),
    gone("replica_rates", "optimizer-differs", 0, check=OPTIMIZER, nproc=3, launcher=SHELL),
    *(
        gone(
            *("settings_apart", "optimizer-differs", 0, 1),
            check=OPTIMIZER,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("plateau", "progress", "decay", "group", "length", "late")
    ),
    *(
        gone(
            *("steps_apart", code, *ranks),
            check=OPTIMIZER,
            args=(how,),
            word=how,
            line=False,
            launcher=SHELL,
        )
        for how, code, ranks in (
            ("skips", "steps-skipped", (1,)),
            ("loads", "state-differs", (0, 1)),
        )
    ),
    *(
        gone(
            *("clips_apart", "clip-differs", 0, 1),
            check=OPTIMIZER,
            args=(how,),
            word=how,
            launcher=SHELL,
            needs=needs,
            stuck=stuck,
            limit=150.0,
        )
        for how, needs, stuck in (
            ("flat", FSDP2_ON_CPU, 60.0),
            ("original", FSDP2_ON_CPU, 60.0),
            ("loss", "", STUCK),
        )
    ),
    warned(
        *("clips_apart", "clip-differs", 0, 1),
        check=OPTIMIZER,
        args=("scattered",),
        word="scattered",
        launcher=SHELL,
        needs=FSDP2_ON_CPU,
    ),
    *(
        gone(
            *("copies_apart", "copies-differ", 0, 1),
            check=MODEL,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("averaged", "loaded")
    ),
    *(
        warned(
            *("copies_apart", "copies-differ", 0, 1),
            check=MODEL,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("decay", "early")
    ),
    *(
        warned(
            *("splits_model", "common-parameters-differ", *range(n)),
            check=MODEL,
            nproc=n,
            args=(how,),
            word=how,
            line=False,
            launcher=SHELL,
        )
        for how, n in (
            *(("embedding", 2), ("sequence", 2), ("norms", 2), ("clipped", 2)),
            ("group", 4),
        )
    ),
    gone("replica_skips", "replicas-diverged", 2, check=MODEL, nproc=3, launcher=SHELL),
    warned("replica_by_hand", "replicas-diverged", 0, 1, check=MODEL, line=False, launcher=SHELL),
    gone("replica_own_start", "replicas-diverged", 0, 1, check=MODEL, line=False, launcher=SHELL),
    gone("second_phase", "replicas-diverged", 0, 1, check=MODEL),
    *(
        warned("torch_warns", code, 0, 1, check=WARNINGS, args=(how,), word=how, launcher=SHELL)
        for how, code in (
            ("target", "loss-broadcast"),
            ("contrastive", "gradient-not-passed"),
            ("shards", "dataset-repeated"),
        )
    ),
    *(
        warned("learns_nothing", code, 0, 1, check=MODEL, args=(how,), word=how, launcher=SHELL)
        for how, code in (
            *((how, "model-unchanged") for how in ("detached", "another", "small")),
            ("evaluates", "mode-evaluation"),
        )
    ),
    *(
        warned("rate_ends", "rate-zero", 0, 1, check=MODEL, args=(how,), word=how, launcher=SHELL)
        for how in ("twice", "epochs")
    ),
    warned("keys_prefixed", "checkpoint-unmatched", 0, 1, check=MODEL, launcher=SHELL),
    warned(
        "averaged_in_groups",
        "replicas-diverged",
        *range(4),
        nproc=4,
        check=MODEL,
        args=("sequence",),
        launcher=SHELL,
        word="sequence",
    ),
    *(
        warned(script, code, 0, 1, check=OPTIMIZER, args=(how,), word=how, launcher=SHELL)
        for script, code, ways in (
            ("trains_too_little", "parameters-unregistered", ("list", "dict")),
            ("trains_too_little", "parameters-replaced", ("head", "embedding")),
            ("trains_apart", "parameters-unshared", ("same", "other", "list", "added")),
            ("hooks_added", "hooks-pile-up", ("forward", "gradient", "seldom")),
            ("scheduler_left", "scheduler-elsewhere", ("wrapped", "unfrozen")),
            ("resets_gradients", "gradients-discarded", ("first", "after", "method", "once")),
            ("ties_lost", "weights-untied", ("assign", "empty", "pretrained")),
        )
        for how in ways
    ),
    *(
        warned(
            *("plateau_repeats", "plateau-repeats", 0, 1),
            check=OPTIMIZER,
            args=(how,),
            word=how,
            launcher=SHELL,
            needs=needs,
        )
        for how, needs in (("each", ""), ("prepared", "accelerate"))
    ),
    *(
        warned("deals_data", code, 0, 1, check=BALANCE, args=(how,), word=how, launcher=SHELL)
        for how, code in (("same", "shards-unused"), ("order", "order-repeats"))
    ),
    *(
        warned(
            *("shares_twice", "data-shared-twice", 0, 1),
            check=BALANCE,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("subset", "rows", "files", "wrapped", "stream")
    ),
    *(
        warned(
            *("splits_data", "samples-differ", 0, 1),
            check=BALANCE,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("split", "files", "dropped")
    ),
    *(
        warned(
            *("same_batches", "inputs-same", 0, 1),
            check=BALANCE,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("seeded", "stream", "varied")
    ),
    # a backend that is not there, or that nobody told the ranks about
    gone("backend_absent", "backend-unavailable", 0, 1, check=BACKEND, args=("nccl",), word="nccl"),
    gone("backend_absent", "backend-unavailable", 0, 1, check=BACKEND, args=("mpi",), word="mpi"),
    gone(
        "backend_absent",
        "backend-unavailable",
        *(0, 1),
        check=BACKEND,
        args=("ucc",),
        word="ucc",
        exact=False,
    ),
    gone("reads_rank", "launcher-unread", 0, 1, check=BACKEND, launcher=MPIRUN),
    gone("reads_rank", "launcher-unread", 0, 1, check=BACKEND, launcher=SRUN, word="srun"),
    gone("reads_rank", "launcher-unread", 0, 1, check=BACKEND, launcher=MPIEXEC, word="mpich"),
    gone("reads_local_rank", "not-launched", launcher=SRUN),
    *(
        Row(
            *("mpi_ranks", 2, (mode, "{port}"), code, check, ranks),
            word=word,
            launcher=launcher,
            line=line,
        )
        for word, mode, code, check, ranks, line, launcher in (
            ("raises", "raises", ("rank-raised",), RANKS, (1,), True, MPIRUN),
            ("raises-mpich", "raises", ("rank-raised",), RANKS, (1,), True, MPIEXEC),
            ("size", "size", ("rank-absent",), RANKS, (2,), False, MPIRUN),
            ("same", "same", ("rank-duplicate",), RANKS, (0,), False, MPIRUN),
            ("late", "late", ("rank-stuck",), COLLECTIVES, (1,), True, MPIRUN),
            ("mpi", "mpi", ("backend-unavailable",), BACKEND, (0, 1), True, MPIRUN),
        )
    ),
    gone("backend_uncarried", "device-uncarried", 0, 1, check=BACKEND, launcher=SHELL),
    *(
        gone(
            *("columns_shared", "tensor-not-contiguous", 0, 1),
            check=BACKEND,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("sums", "shares")
    ),
    gone(
        *("backend_by_rank", "backend-differs", 1),
        check=BACKEND,
        nproc=3,
        launcher=SHELL,
        may_warn=("rendezvous-hardcoded",),
        extra=10.0,
    ),
    *(
        Row(
            *("settings_differ", 3, (f"{name}={value}",), ("setting-differs",), BACKEND, (1,)),
            word=word,
            launcher=SHELL,
            extra=15.0,
        )
        for word, name, value in (
            ("detail", "TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
            ("barrier", "TORCH_DIST_INIT_BARRIER", "1"),
        )
    ),
    warned(
        *("nccl_log", "p2p-unused", 0),
        check=BACKEND,
        args=("v100-p2p-off-2.28",),
        line=False,
        launcher=SHELL,
    ),
    # rank 0 only learns that its peer is gone
    gone("shape_differs", "model-structure", 0, 1, check=MODEL),
    # who leaves silently was last seen half a second before: no line is known
    gone("killed", "rank-killed", 1, line=False),
    gone("segfault", "rank-killed", 0),
    gone("exited_hard", "rank-exited", 2, nproc=3, launcher=SHELL, line=False),
    gone("exited_early", "rank-exited", 1, nproc=3),
    # before init, with a message of its own
    gone("own_message", "rank-exited", 1, launcher=SHELL),
    gone("own_message_hard", "rank-exited", 1, line=False),
    gone("free_ports", "rendezvous-differs", 0, 1, 2, nproc=3, launcher=SHELL),
    # the kernel takes a worker, and torch's handler of SIGCHLD raises in the rank
    raised("loader_died", 0, launcher=SHELL),
    hangs("never_joins", "rank-absent rank-stuck", 1, check=""),
    # what they say in init_process_group
    gone(
        "misjoins", "world-size-differs", 1, args=("fork", "size"), word="size", stuck=3.0, **JOINS
    ),
    gone("misjoins", "rendezvous-differs", 1, args=("fork", "port"), word="port", **JOINS),
    *(
        gone(
            *("address_replaced", "rendezvous-replaced", *ranks),
            args=(how,),
            word=how,
            launcher=STATIC,
            extra=15.0,
        )
        for how, ranks in (("own", (0, 1)), ("one", (1,)))
    ),
    gone("misjoins", "rank-duplicate", 2, args=("fork", "rank"), word="rank", **JOINS),
    gone(
        "misjoins", "rendezvous-file-stale", 0, 1, 2, args=("spawn", "file"), word="file", **JOINS
    ),
    gone(
        "misjoins",
        "rendezvous-unreachable",
        0,
        1,
        2,
        args=("fork", "address"),
        word="address",
        **JOINS,
    ),
    gone(
        "misjoins", "rendezvous-unreachable", 0, 1, 2, args=("fork", "name"), word="name", **JOINS
    ),
    # its ranks import torch after it is planted
    gone("one_too_few", "rank-absent", 2, line=False, launcher=PYTHON, extra=12.0),
    gone("failing_tool", "command-failed", line=False, launcher=PYTHON),
    gone("no_launcher", "not-launched", launcher=PYTHON),
    gone("no_launcher", "not-launched", launcher=PYTHON, args=("env",), word="env"),
    gone("no_launcher", "not-launched", launcher=ALONE, word="accelerate", needs="accelerate"),
    gone("missing_module", "command-failed", launcher=PYTHON, word="python"),
    # what fails before torch is there may be a rank's or the command's
    Row("missing_module", code=("rank-raised", "command-failed"), check=RANKS, launcher=STATIC),
    # ranks call other things
    hangs("op_differs", "collective-mismatch", 2, nproc=4),
    hangs(*("broadcast_roots", "collective-mismatch", 1), nproc=3, args=("counts",), word="counts"),
    hangs("broadcast_roots", "collective-mismatch", 0, 1, 2, nproc=3, args=("own",), word="own"),
    hangs("tags_differ", "peer-mismatch", 0, 1, nproc=3),
    hangs("gathers_between_epochs", "collective-mismatch", 0, nproc=3),
    warned("never_joined", "never-joined", 0, 1, check=MODEL, line=False),
    # Gloo ends the rank itself where a peer sends more than fits
    hangs("size_differs", "collective-mismatch", 1, nproc=3),
    hangs(
        "routed",
        "collective-mismatch",
        0,
        1,
        2,
        nproc=3,
        args=("sizes",),
        exact=False,
        word="sizes",
    ),
    hangs("dtype_differs", "collective-mismatch", 1, nproc=3, launcher=SHELL),
    hangs("order_swapped", "order-swapped", 1, nproc=3, launcher=SHELL),
    hangs("extra_on_rank_0", "collective-mismatch", 0, nproc=3),
    hangs("barrier_on_some", "collective-mismatch", 2, nproc=3, launcher=SHELL),
    hangs("subgroup_differs", "collective-mismatch", 2, nproc=4),
    hangs("new_group_by_some", "groups-differ", 0, 1, 2, nproc=3, exact=False),
    # two waits that nobody ends, and no word about which one is wrong
    hangs("recv_without_send", "peer-mismatch rank-stuck", 1, nproc=3),
    hangs("send_without_recv", "peer-mismatch rank-stuck", 0, launcher=SHELL),
    # as they were reported, and built without a look at what finds them
    hangs("validates_wrapped", "collective-mismatch", 0, nproc=3),
    hangs("saves_in_thread", "threads-share-group order-swapped", 0, 1, 2, nproc=3, exact=False),
    hangs("logs_to_service", "rank-stuck", 0, nproc=3),
    # one has caught what ends others
    hangs("swallowed_sample", "exception-swallowed", 1, launcher=SHELL),
    hangs("swallowed_forward", "exception-swallowed", 0, nproc=3, launcher=SHELL),
    hangs("finally_barrier", "exception-swallowed", 1, launcher=SHELL),
    # one has no more to do
    warned("barriers_traced", "barriers-in-step", 0, 1, launcher=SHELL),
    warned("groups_in_steps", "groups-repeated", 0, 1, launcher=SHELL),
    hangs("uneven_ddp", "data-uneven", 2, nproc=3),
    hangs("uneven_iterable", "data-uneven", 1, 2, nproc=3, line=False),
    hangs("uneven_sampler", "data-uneven", 1, launcher=SHELL),
    # one with a loop that it may leave at any time: nothing tells a loop's end from another path
    hangs("early_stop", "data-uneven collective-mismatch", 0),
    hangs("batch_skipped", "data-uneven collective-mismatch", 1),
    warned("batch_skipped", "batch-skipped", 0, 1, check=SCRIPT, args=("clean",), word="clean"),
    hangs("accumulation_differs", "data-uneven collective-mismatch", 1, launcher=SHELL),
    # it has ended, and was needed
    Row(
        "barrier_after_end",
        code=("rank-exited", "data-uneven", "collective-mismatch"),
        check="",
        ranks=(0, 1),
        exact=False,
    ),
    # torchrun may end rank 0 before anybody has seen that it waits: then that rank 1 was killed by
    # its own abort is all that is known
    Row(
        "aborts_at_teardown",
        code=("rank-exited", "rank-killed"),
        check=RANKS,
        ranks=(1,),
        line=False,
    ),
    Row(
        "gathers_on_zero",
        code=("rank-exited", "data-uneven", "collective-mismatch"),
        check="",
        ranks=(0, 1),
        exact=False,
        launcher=PYTHON,
        needs="lightning",
    ),
    # all made the same calls, from other lines
    gone("two_barriers", "rank-exited", 2, nproc=3, launcher=SHELL),
    # one is somewhere else
    gone("short_timeout", "rank-late", 0, nproc=3),
    gone("late_at_monitored_barrier", "rank-late", 2, nproc=3, launcher=SHELL),
    hangs("sleeps_before_barrier", "rank-stuck", 0),
    hangs("left_thread", "exit-stuck", 0, launcher=SHELL),
    hangs("fails_beside_thread", "failed-not-ended", 1, launcher=SHELL),
    raised("fails_beside_thread", 1, args=("daemon",), word="daemon", launcher=SHELL),
    # as they were reported, and built before what finds them was tried on them
    *(
        hangs("exits", "exit-stuck", 0, nproc=3, args=(how,), word=how, line=line, launcher=SHELL)
        for how, line in (("tracker", False), ("event", True))
    ),
    *(
        hangs(
            *("store_waits", "store-key-unset", *ranks),
            nproc=3,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how, ranks in (("prefix", (1, 2)), ("counts", (0,)), ("unset", (0, 1, 2)))
    ),
    hangs("fsdp_stuck", "rank-stuck", 1, needs=FSDP2_ON_CPU),
    hangs("lock_file", "rank-stuck", 1, args=("{folder}/lock",), launcher=SHELL),
    hangs("fifo", "rank-stuck", 2, nproc=3, args=("{folder}/fifo",), launcher=SHELL),
    hangs("loader_hangs", "loader-stuck", 1),
    # it waits for a server or a child that does nothing either, whatever else goes on meanwhile
    hangs("asks_dead_server", "rank-stuck", 0, launcher=SHELL, extra=10.0),
    *(
        hangs("polls", "rank-stuck", 0, args=(how,), word=how, launcher=SHELL)
        for how in ("gone", "file")
    ),
    hangs("asks_unix", "rank-stuck", 0, args=("2", "silent"), launcher=SHELL, extra=12.0),
    hangs("waits_for_child", "rank-stuck", 1, launcher=SHELL),
    hangs("tracker", "rank-stuck", 1, launcher=SHELL),
    # calls that need everybody, hidden in what one rank does
    hangs("state_dict_on_rank_0", "collective-mismatch", 0, nproc=3, needs=FSDP2_ON_CPU),
    hangs("evaluates_ddp", "collective-mismatch", 0, nproc=3, launcher=SHELL),
    # Gloo's calls between two have no record: it is one of those that wait in them
    hangs("gather_smaller", "collective-mismatch", 0, nproc=3),
    hangs("clips_on_some", "collective-mismatch", 1, nproc=3, needs=FSDP2_ON_CPU),
    hangs("ring", "peer-mismatch", 0, 1, nproc=3, exact=False, launcher=SHELL),
    hangs("ring_all", "peer-mismatch", 0, 1, 2, nproc=3, launcher=SHELL),
    hangs("ring_async", "peer-mismatch", 2, nproc=4, launcher=SHELL),
    # all are in new_group, where nobody is late: three times --stuck
    hangs("groups_of_pairs", "groups-differ", 1, nproc=4, args=("swapped",), extra=10.0),
    hangs("groups_of_its_own", "groups-differ", 0, 1, 2, 3, nproc=4, exact=False),
    hangs("groups_in_other_order", "groups-differ", 2, nproc=3, launcher=SHELL),
    # the checks of the network are run then and there
    hangs("packets_dropped", "fabric-stuck", 0, 1, exact=False, extra=10.0),
    # frameworks: Lightning's rank 0 is the command, and the parent of rank 1
    raised("lightning_raised", 1, launcher=PYTHON, needs="lightning"),
    # it ends on SIGTERM after the batch only, so that ten seconds pass before SIGKILL
    raised("deepspeed_zero", 1, args=("raises",), needs="deepspeed", extra=10.0),
    raised(
        "deepspeed_zero",
        1,
        args=("raises",),
        launcher=DEEPSPEED,
        needs="deepspeed",
        extra=10.0,
        limit=120.0,
        word="launcher",
    ),
    *(
        hangs(
            "deepspeed_zero",
            "collective-mismatch rank-exited",
            rank,
            nproc=3,
            args=(fault,),
            needs="deepspeed",
            extra=10.0,
            line=False,
            check="",
            word=fault,
        )
        for fault, rank in (("skips", 1), ("saves", 0))
    ),
    hangs("lightning_waits", "rank-stuck", 0, launcher=PYTHON, needs="lightning", extra=10.0),
    hangs("lightning_barrier", "collective-mismatch", 0, needs="lightning", extra=10.0),
    # Lightning counts its batches and never asks for one too many
    hangs("lightning_uneven", "data-uneven", 1, launcher=PYTHON, needs="lightning"),
    raised("accelerate_raised", 1, launcher=ACCELERATE, needs="accelerate"),
    hangs("accelerate_barrier", "collective-mismatch", 0, launcher=SHELL, needs="accelerate"),
    # Gloo ends the rank to which its peer sends more
    hangs("accelerate_ragged", "collective-mismatch", 0, 1, launcher=SHELL, needs="accelerate"),
    hangs("accelerate_saves", "rank-stuck", 0, launcher=SHELL, needs="accelerate"),
    # it goes on
    warned("holds_lock", "rank-busy", 1, limit=24.0),
    warned("tokenises", "rank-busy", 0, args=("600",), limit=24.0, launcher=SHELL),
    warned("backtracks", "rank-busy", 1, limit=24.0, launcher=SHELL),
    # nobody is in a collective
    warned(
        *("own_barrier", "standstill", 0, 1),
        args=("twice",),
        word="twice",
        limit=32.0,
        launcher=SHELL,
    ),
    warned(
        *("remote_rounds", "standstill", 0, 1),
        args=("uneven",),
        word="uneven",
        limit=28.0,
    ),
    warned("pinned", "cpus-shared", 0, 1, check=PACE, line=False, args=("SLURM_LOCALID",)),
    *(
        hangs(
            *("calls_apart", code, *ranks),
            args=(how,),
            word=how,
            launcher=SHELL,
            nproc=nproc,
            exact=how != "strings",
        )
        for how, code, ranks, nproc in (
            ("reduce", "collective-mismatch", (0,), 3),
            ("zeros", "collective-mismatch", (1,), 3),
            ("strings", "collective-mismatch", (0, 1, 2), 3),
            ("join", "collective-mismatch", (0, 1), 2),
            ("timer", "collective-mismatch", (0,), 3),
            ("last", "peer-mismatch", (1,), 2),
        )
    ),
    warned("loader_dominates", "loader-bound", 0, 1, check=PACE, launcher=SHELL),
    warned(
        *("constant_buffers", "buffers-broadcast", 0, 1),
        check=PACE,
        args=("all",),
        word="all",
        launcher=SHELL,
    ),
    warned("many_small", "small-collectives", 0, 1, check=PACE, line=False, launcher=SHELL),
    warned("games_shared", "payload-grows", 0, 1, check=PACE, launcher=SHELL),
    warned(
        *("collects_garbage", "garbage-collected", 1),
        check=PACE,
        args=("each",),
        word="each",
        launcher=SHELL,
        limit=150.0,
    ),
    warned(
        *("table_dense", "gradient-mostly-zero", 0, 1),
        check=PACE,
        line=False,
        args=("dense",),
        word="dense",
        launcher=SHELL,
        limit=150.0,
    ),
    warned(
        *("gathers_objects", "objects-in-step", 0, 1),
        check=PACE,
        args=("objects",),
        word="objects",
        launcher=SHELL,
    ),
    warned(
        *("games_shared", "payload-grows", 0, 1),
        check=PACE,
        args=("losses",),
        word="losses",
        launcher=SHELL,
    ),
    warned(
        *("games_shared", "payload-grows", 0, 1),
        check=PACE,
        args=("losses", "labels"),
        word="labels",
        launcher=SHELL,
    ),
    warned(
        *("norm_forgotten", "common-parameters-differ", 0, 1),
        check=MODEL,
        args=("last",),
        line=False,
        launcher=SHELL,
    ),
    warned("threads_many", "threads-many", 0, 1, check=PACE, args=("many",), line=False),
    *(
        warned(
            *("draws_noise", "noise-same", 0, 1),
            check=BALANCE,
            args=(how,),
            word=how,
            launcher=SHELL,
            needs=FSDP2_ON_CPU if how == "sharded" else "",
        )
        for how in ("same", "sharded")
    ),
    warned(
        *("labels_masked", "labels-uneven", 1),
        check=BALANCE,
        args=("split",),
        line=False,
        launcher=SHELL,
    ),
    warned("first_batch", "loader-restarted", 0, 1, check=BALANCE, launcher=SHELL),
    warned("slow_rank", "rank-slow", 1, nproc=3, check=PACE, launcher=SHELL),
    *(
        warned(
            *("slow_thread", "rank-slow", 1),
            check=PACE,
            args=(how,),
            word=how,
            launcher=SHELL,
        )
        for how in ("reporter", "subclass")
    ),
    # of a few seconds of steps
    warned(
        *("slow_rank", "rank-slow", 1),
        nproc=3,
        check=PACE,
        args=("18",),
        word="short",
        launcher=SHELL,
    ),
    warned(
        *("slow_rank", "rank-slow", 1),
        nproc=3,
        check=PACE,
        args=("60", "seldom"),
        word="seldom",
        launcher=SHELL,
    ),
    warned("batch_larger", "batch-uneven", 1, check=BALANCE, nproc=3, line=False, launcher=SHELL),
    *(
        warned(
            *("needless_work", code, *ranks),
            check=PACE,
            args=(how,),
            word=how,
            launcher=SHELL,
            may_warn=("rank-slow", "loader-bound"),
            needs=needs,
        )
        for how, code, ranks, needs in (
            ("left", "profiler-on", (0,), ""),
            ("summons", "parameters-gathered", (0, 1), FSDP2_ON_CPU),
            ("tensors", "parameters-gathered", (0, 1), FSDP2_ON_CPU),
            ("gradients", "parameters-gathered", (0, 1), FSDP2_ON_CPU),
            ("backward", "no-sync-late", (0, 1), ""),
            ("workers", "workers-restarted", (0, 1), ""),
            ("lists", "recompiled", (0, 1), ""),
            ("two", "no-sync-late", (0, 1), ""),
        )
    ),
    *(
        warned(
            *("gives_own", "batch-uneven", 1),
            check=BALANCE,
            args=(how,),
            word=how,
            launcher=SHELL,
            needs=FSDP2_ON_CPU if how == "sharded" else "",
        )
        for how in ("longer", "sharded", "more")
    ),
    warned("batch_longer", "batch-uneven", 2, check=BALANCE, nproc=3, line=False, launcher=SHELL),
    *(
        warned(
            "orders_differ",
            "orders-differ",
            0,
            1,
            check=BALANCE,
            launcher=SHELL,
            args=(how,),
            word=how,
        )
        for how in ("seed", "epoch", "shuffle")
    ),
    hangs("order_of_set", "order-differs", 0, 1, check=MODEL, args=("heads",), word="heads"),
    warned(
        *("order_of_set", "order-differs", 0, 1),
        check=MODEL,
        launcher=SHELL,
        args=("tables",),
        word="tables",
    ),
    warned("buffers_scaled", "buffers-differ", 0, 1, check=MODEL, launcher=SHELL),
    *(
        warned(
            *("gpu_steps", code, *ranks),
            check=check,
            nproc=3,
            args=(mode,),
            word=mode,
            line=mode in ("item", "float", "test", "synchronize", "prints"),
            launcher=SHELL,
            path=GPU_SITE,
            limit=150.0,
            gpus=(*GPUS, *more),
        )
        for mode, code, ranks, check, more in (
            ("clock", "gpu-clock-low", (1,), BALANCE, (("gpu2.clock_now", 1200),)),
            ("memory", "gpu-memory-uneven", (2,), BALANCE, (("gpu1.used", 72 << 30),)),
            ("starves", "loader-bound", (0,), PACE, (("gpu3.busy", 35),)),
            ("item", "gpu-synchronised", (0, 1, 2), BALANCE, (("busy", 55),)),
            ("float", "gpu-synchronised", (0, 1, 2), BALANCE, (("busy", 55),)),
            ("test", "gpu-synchronised", (0, 1, 2), BALANCE, (("busy", 55),)),
            ("synchronize", "gpu-synchronised", (1,), BALANCE, (("gpu2.busy", 40),)),
            ("prints", "gpu-synchronised", (0,), BALANCE, (("gpu3.busy", 40),)),
        )
    ),
    *(
        warned(
            *("lightning_slow", code, 0, 1),
            check=check,
            args=(how,),
            word=how,
            launcher=PYTHON,
            needs="lightning",
        )
        for how, code, check in (
            ("dataset", "loader-bound", PACE),
            ("hook", "step-blocked", BALANCE),
        )
    ),
    warned(
        *("writes_between", "rank-slow", 0),
        check=PACE,
        args=("each",),
        word="each",
        launcher=SHELL,
    ),
    warned("step_saves", "step-blocked", 0, 1, check=BALANCE, launcher=SHELL),
    warned("step_tokenises", "step-blocked", 0, 1, check=BALANCE, launcher=SHELL),
    warned(
        *("step_counts", "step-blocked", 0, 1),
        check=BALANCE,
        args=("each",),
        word="each",
        launcher=SHELL,
    ),
    warned("memory_grows", "memory-growth", 0, 1, check=MEMORY, line=False, launcher=SHELL),
    warned(
        "restarts",
        "rank-raised",
        0,
        1,
        exact=False,
        check=RANKS,
        line=False,
        launcher=(*TORCHRUN, "--max-restarts=1"),
    ),
)

HEALTHY = (
    Row("ddp", nproc=4),
    Row("batch_skipped_by_all"),
    # where nothing can be put into the interpreter, py-spy sees as much
    Row("ddp", launcher=(*TORCHRUN, "--no-python", "{python}", "-I"), word="isolated"),
    Row("ddp", launcher=STATIC, word="static"),
    Row("ddp", launcher=AGENT_LATE, word="agent-late"),
    Row("slow_start", args=("15", "all")),
    # of one that has not come nobody knows whether it will: 15 s is less than --stuck of its own
    Row("slow_start", args=("15", "1"), stuck=20.0, word="of-one"),
    Row("evaluation", args=("20",), launcher=SHELL),
    Row("slow_rank", nproc=3, args=("60", "alike"), word="alike", launcher=SHELL),
    *(
        Row("slow_rank", nproc=3, args=("18", how), word=how, launcher=SHELL)
        for how in ("turns", "all")
    ),
    *(Row("slow_thread", args=(how,), word=how, launcher=SHELL) for how in ("sleeps", "all")),
    Row("compiles", args=("22",), launcher=SHELL),
    Row("barriers_traced", args=("steps",), launcher=SHELL, word="steps"),
    Row("groups_in_steps", args=("once",), launcher=SHELL, word="once"),
    Row("replica_seeds", nproc=3, launcher=SHELL),
    Row("replica_zero", launcher=SHELL),
    Row("replica_own_start", args=("ensemble",), launcher=SHELL, word="ensemble"),
    Row("torch_warns", launcher=SHELL),
    Row("second_phase", args=("again",), word="again"),
    Row("second_phase", args=("teacher",), word="teacher", launcher=SHELL),
    Row("learns_nothing", launcher=SHELL),
    Row("keys_prefixed", args=("cut",), launcher=SHELL, word="cut"),
    *(
        Row("averaged_in_groups", args=(how,), nproc=4, launcher=SHELL, word=how)
        for how in ("whole", "ensemble", "experts")
    ),
    *(
        Row(script, args=(how,), word=how, launcher=SHELL)
        for script, ways in (
            ("trains_too_little", ("right", "listed", "dicts", "subset", "frozen")),
            ("trains_apart", ("wrapped", "averaged", "experts", "adapted")),
            ("hooks_added", ("once", "removed")),
            ("scheduler_left", ("again", "both", "copied")),
            ("steps_apart", ("agree", "both", "evaluates")),
            ("settings_apart", ("agreed", "groups", "population")),
            ("resets_gradients", ("right", "twice", "skips", "sam", "adversarial", "closure")),
            ("resets_gradients", ("gan", "penalty", "tasks")),
            ("shares_twice", ("whole", "copies", "synthetic", "validation")),
            ("collects_garbage", ("frozen", "none")),
            ("step_counts", ("clips", "seldom")),
            ("writes_between", ("seldom", "both")),
            ("gathers_objects", ("tensors", "seldom", "small")),
            ("table_dense", ("sparse", "used", "beside")),
            ("columns_shared", ("copied", "transposed", "rows")),
            ("splits_data", ("seed", "drawn", "sorted", "bootstrap")),
            ("ties_lost", ("loaded", "again", "purpose", "pruned", "frozen")),
            ("games_shared", ("window",)),
            ("calls_apart", ("all", "kept", "sorted", "thrown", "told", "whole")),
            ("rate_ends", ("last", "cycles", "warmup", "phases")),
            ("needless_work", ("schedule", "both", "apart", "last", "persistent", "long", "turns")),
            ("gives_own", ("chance", "curriculum", "evaluates")),
            ("copies_apart", ("right", "same", "kept", "shared", "saved", "teacher", "own")),
            ("splits_model", ("right", "summed", "ensemble", "split", "experts")),
            ("clips_apart", ("agreed", "layers", "stages", "before")),
        )
        for how in ways
    ),
    Row("splits_model", nproc=4, args=("mesh",), word="mesh", launcher=SHELL),
    *(
        Row(
            "clips_apart",
            args=(how,),
            word=how,
            launcher=SHELL,
            needs=FSDP2_ON_CPU,
            limit=150.0,
            stuck=60.0,
        )
        for how in ("right", "whole", "summed")
    ),
    Row("deals_data", launcher=SHELL),
    Row(*("shares_twice", 2, ("own",)), word="own", launcher=SHELL, may_warn=("sampler-missing",)),
    Row("shares_twice", 4, ("nodes",), word="nodes", launcher=SHELL),
    *(
        Row("same_batches", args=(how,), word=how, launcher=SHELL, may_warn=("sampler-missing",))
        for how in ("own", "sliced", "single", "split", "parts", "shifted", "classes")
    ),
    Row("left_thread", args=("stopped",), launcher=SHELL, word="stopped"),
    Row("games_shared", args=("new",), launcher=SHELL, word="new"),
    *(Row("first_batch", args=(how,), launcher=SHELL, word=how) for how in ("draws", "kept")),
    Row("groups_of_its_own", nproc=4, args=("local",), word="local"),
    Row("routed", nproc=3, launcher=SHELL),
    Row("batch_ragged", launcher=SHELL),
    *(
        Row("address_replaced", args=(how,), word=how, launcher=STATIC)
        for how in ("default", "same", "listens")
    ),
    *(
        Row("needless_work", args=(how,), word=how, launcher=SHELL, needs=FSDP2_ON_CPU)
        for how in ("seldom", "norms", "optimizer", "scale")
    ),
    Row("games_shared", args=("window", "labels"), word="labels-window", launcher=SHELL),
    *(Row("threads_many", args=(how,), word=how) for how in ("one", "waits")),
    *(Row("norm_forgotten", args=(how,), word=how, launcher=SHELL) for how in ("right", "experts")),
    *(
        Row("draws_noise", args=(how,), word=how, launcher=SHELL)
        for how in ("rank", "dropout", "size", "adds", "own")
    ),
    *(
        Row("labels_masked", args=(how,), word=how, launcher=SHELL)
        for how in ("shuffled", "counted")
    ),
    Row("replica_local", launcher=SHELL),
    Row("replica_parts", launcher=SHELL),
    Row("replica_unused_allowed", launcher=SHELL),
    *(
        Row("replica_unfrozen", args=(how,), launcher=SHELL, word=how)
        for how in ("wrapped-again", "never", "replaced-wrapped-again")
    ),
    *(
        Row("accumulation_shifted", args=(way, "right"), launcher=SHELL, word=f"{way}-right")
        for way in ("no_sync", "flag")
    ),
    Row("layer_drop", args=("healthy",), word="healthy"),
    *(
        Row(script, nproc=3, args=("healthy",), word="healthy")
        for script in ("broadcast_roots", "tags_differ", "gathers_between_epochs")
    ),
    Row("never_joined", args=("infers",), word="infers"),
    Row("backend_chosen", launcher=SHELL),
    *(
        Row("mpi_ranks", args=(mode, "{port}"), word=word, launcher=launcher)
        for word, mode, launcher in (
            ("given", "given", MPIRUN),
            ("local", "local", MPIRUN),
            ("given-mpich", "given", MPIEXEC),
            ("env-mpich", "env", MPIEXEC),
        )
    ),
    Row("nccl_log", launcher=SHELL, args=("l40s-shm-2.21",), word="shm"),
    Row("nccl_log", launcher=SHELL, args=("nvls-refused-2.28",), word="warns"),
    Row("backend_chosen", launcher=SHELL, args=("cpu:gloo",), word="cpu"),
    Row("buffers_own", launcher=SHELL),
    Row("order_of_set", launcher=SHELL, args=("sorted",), word="sorted"),
    *(
        Row("orders_own", nproc=n, launcher=SHELL, args=(how,), word=how)
        for how, n in (("equal", 2), ("in-order", 2), ("each-all", 2), ("each-its-own", 2))
    ),
    Row("orders_own", nproc=4, launcher=SHELL, args=("pairs",), word="pairs"),
    # they import much of torch's compiler
    Row("fsdp1", launcher=SHELL, needs=FSDP2_ON_CPU, limit=150.0, stuck=60.0),
    Row("tensor_parallel", launcher=SHELL, needs=FSDP2_ON_CPU, limit=150.0, stuck=60.0),
    Row("step_saves_seldom", launcher=SHELL),
    *(
        Row(
            "gpu_steps",
            nproc=3,
            args=(mode,),
            word=word,
            launcher=SHELL,
            path=GPU_SITE,
            limit=150.0,
            gpus=(*GPUS, *more),
        )
        for word, mode, more in (
            ("alike", "plain", (("gpu2.clock_now", 1850), ("gpu1.power", 500_000))),
            # it idles, since nothing is left to compute there: no clock of a load
            ("idle", "plain", (("gpu2.clock_now", 300), ("gpu2.busy", 10))),
            ("two-models", "plain", (("gpu2.clock_now", 1200), ("gpu2.name", "NVIDIA L40S"))),
            ("hidden-loader", "starves-all", ()),
            ("seldom", "item-seldom", (("busy", 55),)),
            ("hidden-item", "item", ()),
            ("dead", "plain", (("error.nvmlInit", 999),)),
            ("hangs", "plain", (("hang.nvmlDeviceGetUtilizationRates", 1),)),
        )
    ),
    Row("backend_meshes", nproc=4, launcher=SHELL),
    Row("backend_named_by_some", launcher=SHELL),
    Row("asks_api", args=("1.5", "8"), launcher=SHELL),
    Row("polls", args=("ready",), launcher=SHELL, word="ready"),
    # one answer that takes longer than --stuck
    Row("asks_api", args=("9", "1"), launcher=SHELL, word="one-long"),
    Row("asks_unix", args=("22", "done"), launcher=SHELL, word="streams"),
    Row("deepspeed_zero", args=("none",), needs="deepspeed", word="none"),
    Row("constant_buffers", args=("none",), word="none", launcher=SHELL),
    Row("own_barrier", args=("epochs",), word="epochs", launcher=SHELL),
    Row("remote_rounds", args=("even",), word="even"),
    Row("reads_output", args=("16",), launcher=SHELL),
    Row("groups_of_pairs", nproc=4, launcher=SHELL, word="in-order"),
    Row("pinned", args=("LOCAL_RANK",), word="by-rank"),
    *(
        Row("store_waits", nproc=3, args=(how,), word=how, launcher=SHELL)
        for how in ("downloads", "computes", "limited")
    ),
    *(
        Row("settings_differ", nproc=3, args=args, word=word, launcher=SHELL)
        for word, args in (
            ("alike", ("TORCH_DIST_INIT_BARRIER=1", "all")),
            ("unread", ("NCCL_ALGO=Tree",)),
            ("default", ("TORCH_DIST_INIT_BARRIER=0",)),
        )
    ),
    *(
        Row("exits", nproc=3, args=(how,), word=how, launcher=SHELL)
        for how in ("uploads", "workers")
    ),
    *(
        Row("attempts", args=(how,), word=how, launcher=SHELL)
        for how in ("retries", "doubles", "workers")
    ),
    Row("uploads", args=("main",), launcher=SHELL),
    Row("uploads", args=("thread",), launcher=SHELL, word="thread"),
    *(
        Row("child_works", args=(how,), launcher=SHELL, word=how)
        for how in ("computes", "downloads", "unpacks")
    ),
    Row("child_works", args=("unpacks", "trained"), launcher=SHELL, word="trained"),
    Row("join", nproc=3, launcher=SHELL),
    Row("accumulation", launcher=SHELL),
    Row("workers"),
    Row("gan", launcher=SHELL),
    Row("checkpoint", launcher=SHELL),
    Row("groups", nproc=4),
    Row("branches", nproc=3, launcher=SHELL),
    Row("ragged", nproc=3, launcher=SHELL),
    Row("pipeline", nproc=3, launcher=SHELL),
    Row("overlap", launcher=SHELL),
    Row("fsdp", needs=FSDP2_ON_CPU),
    Row("gather_smaller", args=("healthy",), word="healthy", nproc=3),
    Row("clips_on_some", args=("healthy",), word="healthy", nproc=3, needs=FSDP2_ON_CPU),
    Row("forgives", launcher=SHELL),
    Row("gpu_fails", args=("retries",), word="retries", launcher=SHELL),
    Row("no_torch", launcher=PYTHON),
    Row("single", launcher=PYTHON),
    Row("spawns", launcher=PYTHON),
    *(Row("made", launcher=PYTHON, args=(way,), word=way) for way in ("fork", *WAYS)),
    Row("gan", launcher=SUBPROCESS, word="subprocess"),
    Row("gan", launcher=MODULE, word="module"),
    Row("own_site", path="own_site"),
    Row("own_hook", launcher=SHELL),
    Row("chatty"),
    *(
        Row(script, nproc=3, args=("healthy",), word="healthy")
        for script in ("validates_wrapped", "saves_in_thread", "logs_to_service")
    ),
    Row(
        "gathers_on_zero",
        args=("healthy",),
        launcher=PYTHON,
        word="healthy",
        needs="lightning",
        may_warn=("collective-under-rank",),
    ),
    Row("lightning_ddp", launcher=PYTHON, needs="lightning"),
    Row("lightning_ddp", word="torchrun", needs="lightning"),
    Row("plateau_repeats", args=("mean",), word="mean", launcher=SHELL),
    Row("plateau_repeats", args=("kept",), word="kept", launcher=SHELL, needs="accelerate"),
    Row("lightning_slow", args=("model",), word="model", launcher=PYTHON, needs="lightning"),
    Row("accelerate_ddp", launcher=ACCELERATE, needs="accelerate"),
)


AT_LENGTH = frozenset(
    {
        # the only one of its code; the rule and what it reads have unit tests
        *("short_timeout", "barrier_after_end", "batch_skipped", "loader_hangs"),
        *("barriers_traced", "fails_beside_thread", "groups_of_pairs", "never_joined"),
        *("store_waits-counts", "backend_uncarried", "killed"),
        # there are others with its code
        *("spawned_raised", "accumulation_shifted-no_sync", "never_joins"),
        *("raised_in_worker", "replica_unfrozen-replaced"),
        # with the CUDA wheel in CI
        *("order_swapped", "ddp"),
        # nothing is wrong
        *("own_barrier-epochs", "made-fork", "accelerate_ddp", "second_phase-teacher"),
        *("batch_larger", "groups_in_steps", "gathers_objects-objects"),
        *("gathers_objects-seldom", "labels_masked", "settings_differ-detail"),
        *("order_of_set-tables", "gpu_fails-asserts", "columns_shared-sums"),
        *("backend_meshes", "aborts_at_teardown", "threads_many", "ring"),
        *("trains_apart-same", "swallowed_sample", "copies_apart-averaged"),
        *("splits_data-split", "keys_prefixed", "learns_nothing-detached"),
        *("backend_absent-mpi", "steps_apart-skips", "scheduler_left-unfrozen"),
        *("rate_ends-twice", "clips_apart-flat", "settings_apart-plateau"),
        *("deals_data-order", "hooks_added-forward", "same_batches-seeded"),
        *("trains_too_little-embedding", "torch_warns-contrastive", "pinned"),
        *("own_barrier-twice", "splits_model-right", "step_tokenises"),
        *("step_counts-clips", "step_counts-seldom"),
        *("batch_skipped-clean", "constant_buffers-all", "norm_forgotten"),
        *("raised_in_module", "raised_in_join", "raised_at_checkpoint"),
        "fails_beside_thread-daemon",
        *("replica_seeds", "learns_nothing", "lightning_ddp", "draws_noise-size", "uneven_ddp"),
        *("reads_rank-srun", "needless_work-backward"),
        *("ties_lost-again", "routed-sizes", "gives_own-longer", "second_phase"),
        "missing_module-python",
        *("replica_own_start", "reads_output", "mpi_ranks-local", "clips_apart-right"),
        *("model_frozen", "reads_local_rank"),
        *(f"calls_apart-{how}" for how in ("reduce", "strings", "join", "timer", "last")),
        *(f"calls_apart-{how}" for how in ("all", "sorted", "thrown", "told", "whole")),
        *(
            "raised_with_own_hook",
            "made_none",
            "replica_bare",
            "replica_bare-head",
            "replica_unfrozen",
            "asks_unix",
        ),
        *("broadcast_roots-counts", "orders_differ-epoch", "orders_differ-shuffle", "fifo"),
        *("no_launcher-env", "shares_twice-wrapped", "slow_rank", "orders_own-each-its-own"),
        *("slow_rank-seldom", "slow_rank-alike"),
        *("gpu_steps-test", "lightning_raised", "restarts", "deals_data", "batch_skipped_by_all"),
        "clips_on_some",
        *("trains_too_little-frozen", "slow_rank-turns", "settings_differ-alike", "nccl_log-shm"),
        *("order_of_set-sorted", "hooks_added-removed", "attempts-retries", "gpu_fails-retries"),
        *("broadcast_roots-own", "broadcast_roots-healthy", "tags_differ-healthy", "layer_drop"),
        *("gathers_between_epochs-healthy", "never_joined-infers"),
        *(
            f"{script}{word}"
            for script in (
                *("validates_wrapped", "saves_in_thread"),
                *("logs_to_service", "gathers_on_zero"),
            )
            for word in ("", "-healthy")
        ),
        *(
            "raised_before_init",
            "fsdp_raised",
            "unused_parameters",
            "loader_died",
            "missing_module",
        ),
        *("exited_early", "dtype_differs", "barrier_on_some", "recv_without_send", "early_stop"),
        *("uneven_iterable", "accumulation_differs", "lock_file", "extra_on_rank_0"),
        *("new_group_by_some", "fsdp_stuck", "uneven_sampler"),
        *("loader_dominates", "many_small", "memory_grows", "slow_start"),
        *("ddp-static", "slow_start-of-one", "compiles", "accumulation", "gan", "checkpoint"),
        *(f"{script}-{way}" for script in ("made", "made_raised") for way in WAYS),
        *(f"misjoins-{what}" for what in ("port", "rank", "file", "address", "name")),
        *("swallowed_forward", "finally_barrier"),
        *("asks_dead_server", "tracker", "ring_all", "evaluates_ddp", "backtracks", "free_ports"),
        *("own_message_hard", "asks_api-one-long", "uploads", "child_works-computes"),
        *("child_works-trained", "remote_rounds-uneven", "remote_rounds-even"),
        *("constant_buffers-none", "splits_model-embedding", "needless_work-lists"),
        "table_dense-dense",
        *("child_works-unpacks", "groups_in_other_order"),
        *("made_late", "raised_at_step-subprocess", "gan-subprocess", "gan-module"),
        *("ragged", "pipeline", "overlap", "forgives", "single", "own_hook"),
        *("lightning_waits", "lightning_barrier", "lightning_uneven", "lightning_ddp-torchrun"),
        *(f"lightning_slow-{how}" for how in ("dataset", "hook", "model")),
        *(f"plateau_repeats-{how}" for how in ("each", "mean", "kept")),
        *(f"writes_between-{how}" for how in ("seldom", "both")),
        *("accelerate_raised", "accelerate_ragged", "accelerate_saves"),
        *("replica_loaded", "replica_no_sync", "replica_rates", "replica_by_hand", "model_sizes"),
        *("accumulation_shifted-flag", "replica_unfrozen-never", "replica_unfrozen-wrapped-again"),
        *(f"accumulation_shifted-{way}-right" for way in ("no_sync", "flag")),
        *("replica_local", "replica_unused_allowed", "batch_longer"),
        *(f"gpu_steps-{mode}" for mode in ("two-models", "idle", "hidden-item", "alike", "seldom")),
        *(f"gpu_steps-{mode}" for mode in ("prints", "synchronize", "float", "dead")),
        *("mpi_ranks-raises-mpich", "mpi_ranks-same", "mpi_ranks-given-mpich", "reads_rank-mpich"),
        *("deepspeed_zero", "deepspeed_zero-none", "deepspeed_zero-launcher"),
        *("deepspeed_zero-skips", "deepspeed_zero-saves"),
        *("mpi_ranks-mpi", "reads_rank", "gpu_steps-item", "gpu_steps-memory", "step_saves"),
        *("tags_differ", "ring_async", "subgroup_differs", "gathers_between_epochs"),
        *("accelerate_barrier", "gather_smaller", "mpi_ranks-late", "tokenises", "shape_differs"),
        *("gather_smaller-healthy", "clips_on_some-healthy"),
        *("replica_skips", "no_launcher-accelerate", "mpi_ranks-size", "two_barriers", "segfault"),
        *("made_raised-fork", "mpi_ranks-raises", "replica_zero", "batch_ragged", "join"),
        *("mpi_ranks-given", "mpi_ranks-env-mpich", "nccl_log-warns", "fsdp1", "gpu_steps-hangs"),
        *("backend_named_by_some", "asks_unix-streams", "groups_of_pairs-in-order"),
        *("uploads-thread", "child_works-downloads", "workers", "groups", "layer_drop-healthy"),
        *(f"gpu_fails-{mode}" for mode in ("limit", "stranger", "pieces", "mentions")),
        *("learns_nothing-another", "learns_nothing-small", "deals_data-same", "left_thread"),
        *("second_phase-again", "keys_prefixed-cut", "left_thread-stopped"),
        *(f"needless_work-{how}" for how in ("left", "summons", "tensors", "two", "schedule")),
        *(f"needless_work-{how}" for how in ("both", "apart", "last", "seldom", "norms")),
        *(f"needless_work-{how}" for how in ("gradients", "optimizer")),
        *(f"needless_work-{how}" for how in ("persistent", "long", "turns")),
        *("needless_work-scale", "needless_work-workers"),
        *(f"address_replaced-{how}" for how in ("own", "one", "default", "same", "listens")),
        *(f"rate_ends-{how}" for how in ("epochs", "last", "cycles", "warmup", "phases")),
        *("games_shared-losses", "games_shared-window", "games_shared-labels-window"),
        *("games_shared-labels", "draws_noise-sharded", "threads_many-waits", "threads_many-one"),
        *("draws_noise-rank", "draws_noise-dropout", "draws_noise-adds", "draws_noise-own"),
        *("labels_masked-counted", "labels_masked-shuffled", "pinned-by-rank"),
        *("norm_forgotten-right", "norm_forgotten-experts"),
        *("games_shared", "games_shared-new", "first_batch", "first_batch-draws"),
        *("first_batch-kept", "groups_of_its_own", "groups_of_its_own-local"),
        *("late_at_monitored_barrier", "learns_nothing-evaluates"),
        *("copies_apart-right", "slow_thread-reporter", "asks_api", "shares_twice-subset"),
        *("ties_lost-assign", "trains_too_little-list", "holds_lock"),
        *("polls-gone", "polls-file", "polls-ready"),
        *("exits-event", "exits-workers", "exits-uploads", "store_waits-prefix"),
        *("store_waits-unset", "store_waits-computes", "store_waits-limited"),
        *("ddp-agent-late", "slow_rank-all", "attempts-doubles", "attempts-workers"),
        *("torch_warns-target", "torch_warns-shards", "orders_own-each-all", "orders_own-equal"),
        *("state_dict_on_rank_0", "op_differs", "step_saves_seldom"),
        *(
            "barriers_traced-steps",
            "groups_in_steps-once",
            "order_of_set-heads",
            "gpu_steps-starves",
        ),
        *("gpu_steps-clock", "orders_own-pairs", "replica_own_start-ensemble", "buffers_scaled"),
        *("settings_differ-barrier", "settings_differ-unread", "settings_differ-default"),
        *(f"trains_too_little-{how}" for how in ("dict", "head", "right", "listed", "dicts")),
        *("trains_too_little-subset", "trains_apart-other", "trains_apart-list"),
        *("trains_apart-added", "trains_apart-adapted", "steps_apart-loads"),
        *(f"steps_apart-{how}" for how in ("agree", "both", "evaluates")),
        *("trains_apart-wrapped", "trains_apart-experts", "hooks_added-gradient"),
        *("hooks_added-seldom", "hooks_added-once", "scheduler_left-wrapped"),
        *("same_batches-stream", "same_batches-own", "same_batches-single", "same_batches-split"),
        *("same_batches-parts", "same_batches-shifted", "same_batches-classes"),
        *("scheduler_left-again", "scheduler_left-both"),
        *(f"settings_apart-{how}" for how in ("progress", "decay", "group", "agreed", "groups")),
        *("settings_apart-length", "settings_apart-late"),
        "settings_apart-population",
        *(f"resets_gradients-{how}" for how in ("first", "method", "once", "twice", "skips")),
        *(f"resets_gradients-{how}" for how in ("adversarial", "closure", "gan", "penalty")),
        *("resets_gradients-tasks", "resets_gradients-right"),
        *(f"shares_twice-{how}" for how in ("rows", "files", "whole", "own", "nodes", "copies")),
        *("shares_twice-synthetic", "shares_twice-validation", "shares_twice-stream"),
        "shares_twice-wrapped",
        *(f"averaged_in_groups-{how}" for how in ("whole", "ensemble", "experts")),
        "replica_unfrozen-replaced-wrapped-again",
        *("collects_garbage-frozen", "collects_garbage-none", "collects_garbage-each"),
        *("gathers_objects-tensors", "gathers_objects-small", "table_dense-sparse"),
        *("table_dense-used", "table_dense-beside", "columns_shared-shares"),
        *("columns_shared-copied", "columns_shared-transposed", "columns_shared-rows"),
        *(f"splits_data-{how}" for how in ("files", "dropped", "drawn", "sorted", "bootstrap")),
        *(f"ties_lost-{how}" for how in ("empty", "pretrained", "loaded", "purpose", "pruned")),
        "ties_lost-frozen",
        *(f"clips_apart-{how}" for how in ("original", "scattered", "whole", "summed", "layers")),
        *("clips_apart-stages", "clips_apart-before", "clips_apart-agreed", "clips_apart-loss"),
        *(
            f"copies_apart-{how}"
            for how in ("loaded", "decay", "early", "same", "kept", "shared", "saved", "own")
        ),
        "copies_apart-teacher",
        *("splits_model-norms", "splits_model-clipped"),
        *(f"splits_model-{how}" for how in ("sequence", "group", "summed", "split", "experts")),
        *("splits_model-mesh", "slow_thread-subclass", "slow_thread-all", "slow_thread-sleeps"),
        *("evaluation", "torch_warns", "trains_apart-averaged", "scheduler_left-copied"),
        *("splits_model-ensemble", "same_batches-sliced", "replica_parts", "buffers_own"),
        *("tensor_parallel", "gpu_steps-hidden-loader", "store_waits-downloads", "spawns"),
        *("own_site", "ddp-isolated", "resets_gradients-sam", "orders_own-in-order"),
        *(f"gives_own-{how}" for how in ("sharded", "more", "chance", "curriculum", "evaluates")),
        *("backend_absent-nccl", "backend_absent-ucc", "backend_chosen", "backend_chosen-cpu"),
    }
)
"""Rows that `make faults` rehearses as well, and the tests do not: each takes 4 to 25 s, and
another row of the tests is of its kind."""


def places(row: Row) -> list[str]:
    """`file.py:line` of every place that is right to name."""
    found = []
    for name in row.places or (row.script,):
        lines = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8").splitlines()
        marked = (i for i, line in enumerate(lines, 1) if line.endswith(("<- here", "<- or here")))
        found += [f"{name}.py:{number}" for number in marked]
    return found
