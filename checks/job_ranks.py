"""Did all ranks start and join the rendezvous, and did they run to the end?

Level        deep
Looks at     how every rank of the rehearsed command ended: its exception and the line that raised
             it, its exit status or signal, the OOM killer, what its tensors had on its GPU; which
             ranks never arrived; where and as which rank each joined (init_method, rank and
             world_size of init_process_group); how the command itself ended; of a job that already
             runs and waits in torchrun's rendezvous or in init_process_group, who has arrived
             there, according to its store
Fails if     a rank raised, was killed, ran out of memory (of the host or of its GPU), met an error
             of CUDA, or left while others waited for it; one never arrived; ranks that don't meet
             have different ports, files or world sizes, the same rank, the file of an earlier job,
             or an address where nothing answers; the others gave up waiting for one that was at
             something else; the command failed for another reason. The first cause is named: errors
             that only say that a peer is gone, and signals of the launcher, are consequences
Warns if     a rank failed and the command still succeeded, e.g. after a restart
Undecided    no process of the command could be watched, or none had started; a rank left silently
             at the very end; missing nodes or ranks were waited for less than 10 s
Not covered  why a rank waits (job.collectives); which failure is the first if the clocks of nodes
             differ
Seen as      "Connection closed by peer", "Timed out waiting 1800000ms for recv operation to
             complete", "Watchdog caught collective operation timeout", ChildFailedError, "Signal 9
             (SIGKILL) received by PID", "exitcode: -11", "CUDA out of memory", "DataLoader
             worker (pid 123) is killed by signal: Bus error", "Timed out after 600 seconds waiting
             for clients. 3/4 clients joined"
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from preflight.check import Context
from preflight.domains.job import gpu_memory, joining
from preflight.domains.job.backends import UNSET
from preflight.domains.job.gpu_errors import REPAIRS
from preflight.domains.job.load import REHEARSAL, for_author, load_rank, rank_subject
from preflight.domains.job.memory_trend import rise
from preflight.domains.job.raised_advice import what_to_fix
from preflight.domains.job.rank_exits import (
    LAUNCHERS,
    VANISHED,
    Ended,
    Ends,
    at_frame,
    classify,
    describe,
    describe_later,
    elsewhere_meanwhile,
    ended_badly,
    first_complaint,
    left_before,
    name_ranks,
    patience,
    signal_name,
    signal_of,
)
from preflight.domains.job.record import (
    ARGUMENTS,
    NO_PTRACE,
    NO_PYSPY,
    NO_RANK,
    NOT_IMPORTED,
    WENT,
    Life,
    Uncaught,
)
from preflight.domains.job.rendezvous import rendezvous_conflict, unreachable_address
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, plural, rank_list
from preflight.model import (
    Blame,
    Command,
    Confidence,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
    place_of,
)
from preflight.redact import HIDDEN

CHECK = replace(REHEARSAL, explains=("job.collectives", "job.pace", "job.memory"))

OF_A_MISFIT = ("job.pace", "job.memory")
"""Of an end that may itself be the consequence of what job.collectives finds."""
STUCK, INTERRUPTED, BLIND, TIME = "stuck", "interrupted", "blind", "time"
"""Command.why"""
OUTSIDE = "outside"

NOT_INSTALLED = re.compile(r"ModuleNotFoundError: No module named '([\w.]{1,100})'")
PRINTED = "the error that the command printed last"

LIKELY, POSSIBLE, CERTAIN = Confidence.LIKELY, Confidence.POSSIBLE, Confidence.CERTAIN

FINDINGS = {
    "rank-raised": for_author(
        headline="{seen}",
        cause="an uncaught exception on one rank",
        means="the other ranks wait for it in their next collective, then end with 'Connection "
        "closed by peer' (Gloo), 'Connection closed by remote peer' and 'remote process exited or "
        "there was a network error' (NCCL) or after the timeout of 10 to 30 minutes; torchrun says "
        "'failed (exitcode: 1)' of it",
        text="fix {place!s}; the errors of the other ranks are only consequences",
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.JOB, Blame.UNKNOWN),
    ),
    "rank-killed": for_author(
        headline="{seen}",
        cause="a crash in native code (SIGSEGV, SIGABRT, SIGBUS, SIGILL), or a kill from outside",
        means="'exitcode: -11' or the like from the launcher, then 'Connection closed by peer' or "
        "'Connection closed by remote peer'",
        text="look for a crash or a kill in the kernel's log (dmesg -T), and for who may end the "
        "job's processes; PYTHONFAULTHANDLER=1 prints the Python line of a crash",
        blame=(Blame.JOB, Blame.UNKNOWN),
    ),
    "rank-oom": for_author(
        headline="{seen}",
        cause="more memory than the job's or container's limit",
        means="a rank or a worker of its DataLoader ends silently, the others wait for it; SLURM "
        "says 'Detected … oom_kill event', 'Detected … oom-kill event', 'Some of the step tasks "
        "have been OOM Killed' or 'task …: Out Of Memory', the shell 'slurm_script: line … Killed'",
        text="ask for more memory, or start fewer ranks and workers on the node; load less at "
        "once: smaller batches, no full copy of the data in each rank; preflight rehearse shows "
        "growth per step as job.memory",
    ),
    "rank-gpu-oom": for_author(
        headline="{seen}",
        cause="a batch, a model or a cache that is too large; losses or outputs that are kept with "
        "their graph; other processes or ranks on the same GPU; memory that torch has reserved, in "
        "pieces (expandable_segments:True helps); a limit by set_per_process_memory_fraction; work "
        "that one rank alone has",
        means="'CUDA out of memory. Tried to allocate', torch.OutOfMemoryError, 'CUDA error: out "
        "of memory', 'CUDA error: CUBLAS_STATUS_ALLOC_FAILED', 'Failed to CUDA calloc … bytes' on "
        "this rank; the others end with an error about a lost peer, or wait until their timeout",
        text="make it fit: {advice!s}. If that is not enough, use a smaller batch per rank with "
        "gradient accumulation, activation checkpointing or sharding (FSDP, ZeRO)",
        who="job author, or whoever else uses the GPU",
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.JOB, Blame.UNKNOWN),
        explains=("job.collectives", "job.pace"),
    ),
    "rank-cuda-error": for_author(
        headline="{seen}",
        cause="an index or a label that is out of range, a faulty kernel, a GPU number that is not "
        "there, a torch that was not built for this GPU or driver; a GPU that fails",
        means="'device-side assert triggered', 'an illegal memory access was encountered', "
        "'CUDA error: CUBLAS_STATUS_EXECUTION_FAILED', 'invalid device ordinal', 'no kernel image "
        "is available for execution on the device', 'uncorrectable ECC error encountered' on this "
        "rank; the others end with an error about a lost peer, or wait until their timeout",
        now="{command}   on {node}",
        text="find what failed: {advice!s}; the errors of the other ranks are only consequences",
        who="job author, or the cluster administrator where the GPU itself fails",
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.JOB, Blame.NODE, Blame.UNKNOWN),
    ),
    "rank-exited": for_author(
        headline="{seen}",
        cause="sys.exit, os._exit or the end of the script on one rank only",
        means="the other ranks wait for it in their next collective until the timeout, or end with "
        "'Connection closed by remote peer'; torchrun may say 'failed (exitcode: 7)' of it",
        text="let all ranks leave together: agree to stop with an all-reduce or a broadcast "
        "before any rank leaves; if the job was done, find out why only the others make their "
        "last call",
        status=(Status.FAIL, Status.UNDECIDED),
        blame=(Blame.UNKNOWN, Blame.JOB),
    ),
    "rank-late": for_author(
        headline="{seen}",
        cause="work on one rank only (tokenising, a download, an evaluation, a checkpoint) that "
        "takes longer than the others may wait; or a rank that hangs there",
        means="'Timed out waiting 1800000ms for recv operation to complete' on the ranks that "
        "wait, which are not to blame",
        text="run what is at {line!s} before init_process_group, or share it among all ranks; or "
        "raise init_process_group(timeout=…) above what it takes",
    ),
    "rank-absent": for_author(
        headline="{at} never called init_process_group: {seen}",
        cause="fewer processes started than WORLD_SIZE, a rank that is still busy before "
        "init_process_group, a node that did not start",
        means="'Timed out after 600 seconds waiting for clients' on rank 0, 'wait timeout after … "
        "keys' elsewhere, after 10 to 30 minutes without a message",
        text="compare WORLD_SIZE with what the launcher starts on each node; look at what rank "
        "{rank} does before init_process_group",
        status=(Status.FAIL, Status.UNDECIDED),
    ),
    "rendezvous-incomplete": for_author(
        headline="{seen}",
        cause="a node on which the command was not started or failed, a different --nnodes, "
        "endpoint, port or --rdzv-id there, the same --node-rank twice, or --standalone",
        means="torchrun prints nothing and fails after 10 minutes with RendezvousTimeoutError or "
        "'Timed out after 600 seconds waiting for clients'",
        now="{command}   on the node that is missing",
        text="start torchrun on every node with the same --nnodes, endpoint and --rdzv-id, and "
        "use an endpoint that is an address of one node that all can reach",
        status=(Status.FAIL, Status.UNDECIDED),
    ),
    "rendezvous-unreachable": for_author(
        headline="{seen}",
        cause="node rank 0 or rank 0 not started, a different port there, a name that this node "
        "can't resolve, a firewall",
        means="'The client socket has timed out … while trying to connect to ({place})' after up "
        "to 10 minutes, or RendezvousConnectionError",
        now="{command}   on the node of node rank 0",
        text="check that a store listens at {place} and that this node can reach it: preflight "
        "run shows which of the two is wrong",
        commands=(Command("ss -ltnp", "{host}"), Command("getent ahosts {host}", "this node")),
        status=(Status.FAIL, Status.UNDECIDED),
    ),
    "rank-duplicate": for_author(
        headline="{seen}",
        cause="a wrongly computed rank, e.g. LOCAL_RANK used as RANK on several nodes",
        means="'address already in use' on one of them, or a hang in init_process_group",
        text="give each process a different rank at {line}; a script that starts its ranks by "
        "itself (mp.spawn) is started with python, not with torchrun",
    ),
    "world-size-differs": for_author(
        headline="the ranks disagree about the world size: {seen}",
        cause="world_size from different sources: an argument, WORLD_SIZE, a count of GPUs",
        means="a hang in init_process_group, then 'Timed out … waiting for clients'",
        text="give all ranks the same world_size at {line}",
    ),
    "rendezvous-differs": for_author(
        headline="the ranks meet at different addresses: {seen}",
        cause="a port or file that each process chooses for itself",
        means="each rank waits for the others in a different place, for 5 to 30 minutes",
        text="choose the address once, before the ranks start, and pass it to all of them at "
        "{line}",
    ),
    "rendezvous-replaced": for_author(
        headline="the script looks for the others where nobody listens: {seen}",
        cause="os.environ['MASTER_PORT'] or ['MASTER_ADDR'] = … in the script, which is started by "
        "torchrun: its agent holds the store, so that no rank opens one at another address",
        means="a hang in init_process_group without a message, for up to 30 minutes, then 'The "
        "client socket has timed out'",
        text="remove what sets the address at {line}; with torchrun call init_process_group with a "
        "backend only, and choose the port by --master-port",
        explains=("job.collectives", "job.pace", "job.memory", "job.script:rendezvous-hardcoded"),
    ),
    "rendezvous-file-stale": for_author(
        headline="{seen}",
        cause="the file of an earlier job that was killed before it could remove it",
        means="a hang in init_process_group, or 'Connection refused' by ranks of that job",
        now="rm {path}",
        text="use a new file for each job at {line}, on a file system that all nodes share",
    ),
    "command-failed": for_author(
        headline="{seen}",
        cause="a launcher or script that failed before any rank started",
        means="the job ends with the same status",
        text="fix {what!s}",
    ),
    "not-launched": for_author(
        headline="{name} was started without a launcher: {variable} is not set",
        cause="python in place of torchrun; a launcher that starts a single process without these "
        "variables; srun or mpirun, which set SLURM_PROCID or OMPI_COMM_WORLD_RANK only",
        means="'environment variable RANK expected, but not set', or 'KeyError: …LOCAL_RANK'",
        now="{command}",
        text="start the script with torchrun, which sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR "
        "and MASTER_PORT; with srun or mpirun set them from SLURM_PROCID, SLURM_LOCALID and "
        "SLURM_NTASKS, or from OMPI_COMM_WORLD_RANK and the like, before init_process_group",
    ),
    "stacks-unreadable": for_author(
        headline="{seen}",
        cause="an installation without py-spy, a container without permission to ptrace, "
        "processes of another user",
        means="nothing: no statement about this job",
        now="{command}   beside preflight",
        text="install py-spy, run attach as root, or as the job's user with "
        "kernel.yama.ptrace_scope=0; in a container use --cap-add SYS_PTRACE",
        status=Status.UNDECIDED,
        blame=Blame.TOOL,
    ),
    "ended-meanwhile": for_author(
        headline="the job ended while preflight looked at it",
        cause="a job that is done, or that has failed meanwhile",
        means="nothing: no statement about this job",
        text="look for errors in the log of the job with `preflight diagnose LOG`; rehearse its "
        "command to see how its ranks end",
        status=Status.UNDECIDED,
        blame=Blame.UNKNOWN,
        explains=(),
    ),
    "none-started": for_author(
        headline="no rank had started when --for ended the command after {time}",
        cause="torchrun or the script still importing torch, on a loaded machine or from a slow "
        "file system; a command that is no distributed job; ranks that a daemon or another machine "
        "starts",
        means="nothing: no statement about this job",
        text="give rehearse a longer --for than the job takes to start",
        status=Status.UNDECIDED,
        blame=Blame.TOOL,
        explains=(),
    ),
    "not-watched": for_author(
        headline="{seen}",
        cause="an isolated interpreter (python -I, -E or -S), ranks that a daemon or another "
        "machine starts, a sandbox that hides processes",
        means="the command was not affected, but preflight could not watch its ranks",
        text="rehearse the command on each node, inside the container or sandbox, or install "
        "py-spy",
        status=Status.UNDECIDED,
        blame=Blame.TOOL,
        explains=(),
    ),
}


def observe(host: Host, ctx: Context) -> Life:
    seen = load_rank(host, ctx, launchers=True)
    looks = [(steps, used) for _, steps, _, used in seen.growth.samples if used]
    every = -(-len(looks) // LOOKS) or 1
    return replace(seen.life, on_gpu=tuple(looks[::-1][::every][::-1]))


def judge(world: World[Life], expect: Expect) -> Iterator[Found]:
    seen = world.seen
    if not seen:
        return
    found = classify(seen, LATEST)
    first = (
        rendezvous_conflict(world)
        or _caused(world, found)
        or _joining(world)
        or _unreadable(world)
        or _absent(world, found)
        or _unreached(world, found)
        or _left(world, found)
        or _late(world, found)
        or _followed(world, found)
        or _failed(world)
        or _blind(world)
    )
    if first:
        yield first


def _subject(world: World[Life], ended: Ended) -> Subject:
    """The rank, or of several processes that have not said which they are the one."""
    if ended.rank is None and len(world.seen) > 1:
        return Subject(Kind.JOB, place_of(ended.key)[0], f"pid {world.seen[ended.key].pid}")
    return rank_subject(world.subject(ended.key), ended.rank)


LOOKS = 24
"""At the memory of a GPU, of one rank."""
LATEST = 3.0
"""Seconds after a complaint in which the end that it is about may be noticed: processes are looked
at by turns."""


def _caused(world: World[Life], found: Ends) -> Found | None:
    """The first end that is nobody else's consequence."""
    if not found.causes:
        return None
    first = found.causes[0]
    reason = first.same
    same = [e for e in found.causes if e.what == first.what and e.same == reason]
    code, what = describe(first, world.seen[first.key].oom_kills)
    lives = world.seen.values()
    # of a parent that does not look how its children ended 0 says nothing
    fine = all(life.command.exit == 0 for life in lives) and any(
        life.end is None or not ended_badly(life.end) for life in lives
    )
    again = {life.rank for life in world.seen.values() if life.end is None}
    restarted = all(e.rank is not None and e.rank in again for e in same)
    symptom = first.misfit or first.mutual
    after = [e for e in found.all if e not in same]
    sure = CERTAIN if not symptom and found.clear else LIKELY
    line = str(first.frame or "that line")
    made = Found(
        code,
        tuple(_subject(world, e) for e in same),
        saw=f"{name_ranks(same)}: {what}{_numbers(world, same)}{describe_later(after)}"
        + (" · the command ended with 0" if fine else " · it was started again" * restarted),
        expected="all ranks live until the end",
        # Gloo aborts the rank whose buffer is too small for what a peer sent it, so that an abort
        # may be the symptom of different shapes
        blame=Blame.UNKNOWN if symptom else Blame.JOB,
        confidence=sure,
        explains=OF_A_MISFIT if first.misfit else None,
        fields={
            "line": line,
            "place": what_to_fix(first.whole, line, partly=len(same) < len(lives)),
        },
        status=Status.WARN if fine or restarted else None,
    )
    return _on_gpu(world, same, made)


def _numbers(world: World[Life], same: Sequence[Ended]) -> str:
    """Of ranks whose GPU had too little memory: why, and what torch says of it."""
    memory = same[0].memory
    if memory is None:
        return ""
    short = _shortage(world, same[0])
    numbers = gpu_memory.describe(memory)
    of = f"{name_ranks(same[:1])}, " if len(same) > 1 else ""
    return (f": {short.why}" if short else "") + (f" · {of}{numbers}" if numbers else "")


def _shortage(world: World[Life], ended: Ended) -> gpu_memory.Shortage | None:
    """Who or what takes the memory that a rank did not get, as far as torch's numbers show it."""
    node = place_of(ended.key)[0]
    lives = (life for key, life in world.seen.items() if place_of(key)[0] == node)
    ranks = {life.pid: life.rank for life in lives if life.rank is not None}
    memory = ended.memory
    if memory is None:
        return None
    grown = rise(world.seen[ended.key].on_gpu)
    return gpu_memory.shortage(memory, ranks, ended.rank, grown)


def _on_gpu(world: World[Life], same: Sequence[Ended], made: Found) -> Found:
    """What is done where a GPU had too little memory or failed; whose node it is where that may be
    the GPU's own fault."""
    first = same[0]
    if (memory := first.memory) is not None:
        short = _shortage(world, first)
        doubt = short.doubt if short else ()
        doubt = doubt if memory.plain else ("an earlier error of a kernel on this GPU",)
        alone = len(same) == 1 and len(world.seen) > 1
        usual = gpu_memory.UNEVEN if alone else gpu_memory.KEPT
        return made.with_(
            expected="room on the GPU for what the rank allocates",
            blame=Blame.UNKNOWN if short and short.foreign else Blame.JOB,
            confidence=LIKELY if doubt else made.confidence,
            alternatives=doubt,
            fields={**made.fields, "advice": short.advice if short else usual},
        )
    if (error := first.error) is not None:
        repair = REPAIRS[error.area]
        certain = repair.blame is Blame.JOB and not repair.doubt
        command = "preflight\0run\0--only\0gpu" if repair.looks else ""
        return made.with_(
            expected="no error of CUDA",
            blame=repair.blame,
            confidence=made.confidence if certain else LIKELY,
            alternatives=repair.doubt,
            fields={
                **made.fields,
                "advice": error.advice,
                "command": command,
                "node": place_of(first.key)[0],
            },
        )
    return made


def _joining(world: World[Life]) -> Found | None:
    """Of a job that already runs: launchers and ranks that wait for others to come."""
    lives = {key: life for key, life in world.seen.items() if life.joining is not None}
    waiting = {key: life.joining for key, life in lives.items() if life.joining is not None}
    launchers = {key: one for key, one in waiting.items() if one.who == joining.LAUNCHER}
    ranks = {one.mine: key for key, one in waiting.items() if one.who == joining.RANK}
    return (
        joining.from_launchers(launchers)
        or joining.launchers_without_ranks(launchers)
        or joining.from_ranks(
            {rank: waiting[key] for rank, key in ranks.items() if rank is not None},
            {rank: place_of(key)[0] for rank, key in ranks.items() if rank is not None},
            frozenset(life.rank for life in world.seen.values() if life.rank is not None),
        )
    )


def _unreadable(world: World[Life]) -> Found | None:
    """Of a job that already runs: that its stacks can't be read."""
    blind = {
        key: life
        for key, life in world.seen.items()
        if life.pid and not life.watched and life.problem.startswith((NO_PYSPY, NO_PTRACE))
    }
    if not blind:
        return None
    problem = next(iter(blind.values())).problem
    missing = problem.startswith(NO_PYSPY)
    return Found(
        "stacks-unreadable",
        tuple(rank_subject(world.subject(key), life.rank) for key, life in blind.items()),
        saw=f"{problem}: where the processes are can't be seen",
        expected="py-spy, and permission to read the job's processes",
        fields={"command": "pip\0install\0py-spy" if missing else ""},
    )


def _absent(world: World[Life], found: Ends) -> Found | None:
    """Ranks that the others needed to begin, and that did not come. Where one has a process group,
    all have come."""
    seen = world.seen
    stopped = any(life.command.why == STUCK for life in seen.values()) or bool(found.complaints)
    if not stopped or any(life.joined or life.joining for life in seen.values()):
        return None
    if any(life.watched and life.rank is None for life in seen.values()):
        return None  # it may be the one
    there = {life.rank: key for key, life in seen.items() if life.watched}
    size = max((life.world for life in seen.values()), default=0)
    launched = {rank for life in seen.values() for rank in life.absent}
    absent = sorted((set(range(min(size, 1 << 16))) | launched) - there.keys())
    if absent and (there or launched):
        sure = launched >= set(absent) or not world.topology.several_nodes
        return Found(
            "rank-absent",
            tuple(Subject(Kind.RANK, "", str(rank), ranks=(rank,)) for rank in absent[:64]),
            saw=f"{rank_list(absent)} of {size or len(absent) + len(there)} never came: no such "
            f"process was seen · {len(there)} wait for it",
            expected=f"{plural(size, 'rank')}, as the others expect" if size else "all",
            confidence=LIKELY if sure else POSSIBLE,
            explains=None if sure else (),
            alternatives=()
            if sure
            else ("it runs on a node without preflight, and can't reach the others",),
            fields={"rank": str(absent[0])},
        )
    complained = {e.key for e in found.complaints}
    late = [
        (key, life)
        for key, life in seen.items()
        if key not in complained
        and life.rank is not None
        and (life.watched == OUTSIDE or (complained and _silent(life)))
    ]
    if not late or len(late) == len(there):
        return None
    first = late[0][1]
    told = f" after {duration(first.starting)}" if first.starting else ""
    ranks = [life.rank for _, life in late if life.rank is not None]
    return Found(
        "rank-absent",
        tuple(rank_subject(world.subject(key), life.rank) for key, life in late),
        saw=f"{rank_list(ranks)} was started (pid {first.pid}) and has not come to "
        f"torch.distributed{told}; where it is can't be seen"
        if first.watched == OUTSIDE
        else f"{rank_list(ranks)} was there, but did not join; the others complained of it",
        expected=f"all {size} ranks in init_process_group" if size else "all ranks",
        confidence=LIKELY,
        fields={"rank": str(ranks[0])},
    )


def _unreached(world: World[Life], found: Ends) -> Found | None:
    """Nobody has met, and that is over or will not end."""
    lives = world.seen.values()
    stopped = any(life.command.why == STUCK for life in lives) or bool(found.complaints)
    return unreachable_address(world) if stopped and not any(x.joined for x in lives) else None


def _silent(life: Life) -> bool:
    """It lives, or the launcher ended it."""
    return life.end is None or signal_of(life.end) in LAUNCHERS


def _left(world: World[Life], found: Ends) -> Found | None:
    """Ranks that ended well while others waited for them or failed for their absence."""
    seen, left = world.seen, list(found.left)
    stuck = any(life.command.why == STUCK for life in seen.values())
    either: tuple[str, ...] = ()
    lost = [e for e in left if e.what == VANISHED]
    living = [life for life in seen.values() if life.end is None]
    if living and all(life.closing for life in living):
        return None
    if stuck and left and len(left) < len(seen):
        alive = len(seen) - len(found.all)
        harm = f" · {plural(alive, 'other')} {'is' if alive == 1 else 'are'} stuck" if alive else ""
    elif (
        found.complaints
        and (left := left_before(left, found.complaints[0], LATEST))
        and 2 * len(left) <= len(seen)
    ):
        frame = found.complaints[0].frame
        harm = f" · {plural(len(found.complaints), 'other')} ended with errors after it"
        harm += f", waiting for it{at_frame(frame)}" if frame is not None else ""
        if frame is not None and 2 * len(left) == len(seen) and left[0].how != VANISHED:
            others = name_ranks(found.complaints)
            either = (f"the script is finished, and only {others} made the call at {frame}",)
    elif lost and any(life.command.exit is None for life in seen.values()):
        return _lost(world, lost)
    else:
        return None
    first = left[0]
    code, what = describe(first, world.seen[first.key].oom_kills)
    return Found(
        code,
        tuple(rank_subject(world.subject(e.key), e.rank) for e in left),
        saw=f"{name_ranks(left)}: {what}{harm}",
        expected="all ranks leave together",
        # a rank that is done is at fault only if the others are right to want more of it
        confidence=LIKELY,
        alternatives=either,
        blame=Blame.UNKNOWN,
    )


def _lost(world: World[Life], lost: Sequence[Ended]) -> Found:
    return Found(
        "rank-exited",
        tuple(rank_subject(world.subject(e.key), e.rank) for e in lost),
        saw=" left silently, by os._exit or a signal, and no rank had waited for it when the "
        "watch was over",
        expected="an exit status, or a longer --for",
        confidence=LIKELY,
        status=Status.UNDECIDED,
    )


def _late(world: World[Life], found: Ends) -> Found | None:
    """Ranks that were at something else when the others had waited for them as long as they may."""
    if not found.complaints or not (late := elsewhere_meanwhile(found)):
        return None
    first, one = first_complaint(found), late[0]
    return Found(
        "rank-late",
        tuple(rank_subject(world.subject(e.key), e.rank) for e in late),
        saw=f"{name_ranks(late)} {'was' if len(late) == 1 else 'were'} still{at_frame(one.last)} "
        f"when {name_ranks([first])} gave up after {duration(patience(first))}"
        f"{at_frame(first.frame)}",
        expected="all ranks in the collective within the timeout of the process group",
        confidence=LIKELY,
        fields={"line": str(one.last)},
    )


def _followed(world: World[Life], found: Ends) -> Found | None:
    """Nothing but complaints about others: what they are about was not seen."""
    if not found.complaints:
        return None
    first = first_complaint(found)
    done = [e for e in found.left if e.what != VANISHED]
    if done:  # most were done, this one wanted more
        why: tuple[str, ...] = ()
        told = f" · {name_ranks(done)} had ended with 0"
    else:
        why = ("the rank that it waited for was busy elsewhere", "the network between them")
        told = describe_later([e for e in found.all if e is not first])
    return Found(
        "rank-raised",
        (rank_subject(world.subject(first.key), first.rank),),
        saw=f"{name_ranks([first])}: {first.text}{at_frame(first.frame)}{told}",
        expected="peers that join and stay",
        confidence=LIKELY if done else POSSIBLE,
        explains=None if done else (),
        alternatives=why,
        fields={"place": str(first.frame or "that line")},
        blame=Blame.UNKNOWN,
    )


def _failed(world: World[Life]) -> Found | None:
    """No rank says why: then the exception that ended the command, or a process of it that was not
    started as a rank."""
    failed = {key: life.command for key, life in world.seen.items() if life.command.exit}
    if not failed:
        return None
    # of several nodes one that says why
    key, command = max(failed.items(), key=lambda one: one[1].raised is not None)
    subject = Subject(Kind.JOB, place_of(key)[0], "the command")
    name = " ".join(command.argv[:3])[:80]
    status = command.exit or 0
    told = f"exit status {status}" if status > 0 else f"signal {signal_name(status)}"
    raised = command.raised
    if raised is None:
        return Found(
            "command-failed",
            (subject,),
            saw=f"{name}: {told} after {duration(command.seconds)}, and no rank says why",
            expected="exit status 0",
            fields={"what": PRINTED},
        )
    if (variable := UNSET.search(raised.text)) is not None:
        return Found(
            "not-launched",
            (subject,),
            saw=f"{raised.text}{at_frame(raised.frame)}",
            expected=f"{variable[1]} in the environment, from a launcher",
            confidence=CERTAIN if raised.own else LIKELY,
            fields={
                "name": raised.frame.file if raised.frame else name,
                "variable": variable[1],
                "command": _launched(command.argv, world),
            },
        )
    return Found(
        "command-failed",
        (subject,),
        saw=f"{name}: {raised.text}{at_frame(raised.frame)} · {told}",
        expected="exit status 0",
        confidence=CERTAIN if raised.own else LIKELY,
        fields={"what": _what_to_fix(raised)},
    )


def _what_to_fix(raised: Uncaught) -> str:
    if (module := NOT_INSTALLED.match(raised.text)) is not None:
        return f"the environment: install {module[1]} for the Python that runs the script"
    return str(raised.frame or PRINTED)


def _launched(argv: Sequence[str], world: World[Life]) -> str:
    """`python train.py …` on one node, started by torchrun, \0 between its words; empty for others,
    and where a word is not told."""
    python, *rest = argv
    plain = re.fullmatch(r"python[\d.]*", os.path.basename(python)) is not None
    if not plain or not rest or not rest[0].endswith(".py") or world.topology.several_nodes:
        return ""
    if len(argv) >= ARGUMENTS or any(HIDDEN in word for word in rest):
        return ""
    return "\0".join(["torchrun", "--standalone", "--nproc-per-node=auto", *rest])


def _blind(world: World[Life]) -> Found | None:
    """Whether anything was seen at all, unless the command has ended well by itself."""
    blind = {
        key: life
        for key, life in world.seen.items()
        if life.command.exit != 0
        and life.command.why != INTERRUPTED
        and (life.command.why == BLIND or not life.watched)
    }
    if not blind:
        return None
    problem = next((life.problem for life in blind.values() if life.problem), "")
    subjects = tuple(rank_subject(world.subject(key), life.rank) for key, life in blind.items())
    if all(life.problem == WENT for life in blind.values()):
        ranks = rank_list(life.rank for life in blind.values() if life.rank is not None)
        return Found(
            "ended-meanwhile",
            subjects,
            saw=f"{ranks or 'its processes'}: ended before their stacks were read",
            expected="ranks that live as long as --for",
        )
    early = problem in ("", NOT_IMPORTED, NO_RANK)
    if early and all(one.command.why == TIME and not one.pid for one in blind.values()):
        took = duration(max(life.command.seconds for life in blind.values()))
        return Found(
            "none-started",
            subjects,
            saw=problem or f"no process of a rank in {took}",
            expected="ranks that have started",
            fields={"time": took},
        )
    return Found(
        "not-watched",
        subjects,
        saw=problem or "no process of the command could be watched",
        expected="ranks that can be seen",
    )


def measured(world: World[Life]) -> Measured:
    seen = world.seen
    if not seen:
        return Measured()
    inside = next((life.joining for life in seen.values() if life.joining is not None), None)
    if inside is not None and inside.size:
        waited = max(life.command.seconds for life in seen.values())
        values = {"come": inside.come or 0, "of": inside.size, "seconds": waited}
        return Measured(joining.describe(inside), values)
    ranks = {life.rank for life in seen.values() if life.rank is not None}
    size = max(life.world for life in seen.values())
    alive = sum(life.end is None and bool(life.watched) for life in seen.values())
    done = sum(life.end is not None and not ended_badly(life.end) for life in seen.values())
    first = next(iter(seen.values())).command
    took = max(life.command.seconds for life in seen.values())
    parts = []
    if ranks:
        parts.append(f"{len(ranks)} of {size} ranks" if size else plural(len(ranks), "rank"))
        parts += [f"{alive} alive"] if alive else []
        parts += [f"{done} ended well"] if done else []
    if first.exit is not None:
        by = "ended by itself" if first.exit == 0 else "ended"
        parts.append(f"{by} after {duration(took)}, exit {first.exit}")
    else:
        parts.append(f"watched for {duration(took)}")
    parts += ["not distributed"] if not ranks and first.exit is not None else []
    return Measured(" · ".join(parts), {"ranks": len(ranks), "alive": alive, "exit": first.exit})
