"""Do all ranks call the same collectives, and who keeps the others waiting?

Level        deep
Looks at     what every rank of the rehearsed command has called (number, operation, shape and type
             of the latest collectives of every process group), its stack and state, its steps,
             batches and DataLoader; in a hang which rank waits for which; of a job that already
             runs what NCCL's RAS service says of it
Fails if     ranks make different calls with the same number, or in a different order; one has no
             data left while others continue; in a hang: one is elsewhere (in its own code, its
             DataLoader, a file system, its own exit), ranks wait for each other in different
             groups or for a key of the store that none sets, NCCL's RAS service can't reach one or
             reports that it has launched fewer calls, or all have reached the same call and it
             does not end; a rank does not end after its program is over, or has failed
Warns if     at the end of the watch other ranks have waited at least 10 s for one that is still
             working, or that sleeps between attempts; in a job that is only seen from outside one
             does nothing somewhere else while all others wait for their GPUs; at the end of the
             watch no rank has made a step for 15 s, nor used its CPU, or all wait in calls of
             torch.distributed.rpc; one line calls barrier() 8 times and more in each step, or one
             line makes a process group for the same ranks again and again
Undecided    no collective and no step was seen during the watch; a process group counts calls, but
             neither torch nor preflight could record them; all ranks wait for the lock file of an
             extension's build (torch.utils.cpp_extension, as DeepSpeed uses it)
Not covered  calls of other libraries (MPI, Horovod); before Python 3.12 exceptions that the user's
             own code raises and catches; the order of calls from the same line; whether the data of
             a call is what was intended
Seen as      "Watchdog caught collective operation timeout", "Timed out waiting 1800000ms for recv
             operation to complete", "Received data size doesn't match expected size", "Detected
             mismatch between collectives on ranks", "wait timeout after 300000ms, keys: /…",
             "CANCELLED AT … DUE TO TIME LIMIT", GPUs at 100 % without progress, a training that
             hangs at the end of an epoch or never returns after the last one, a loss that is wrong
             without any error
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from preflight.check import Context
from preflight.domains.job import collective_order
from preflight.domains.job.barriers import repeated_barrier
from preflight.domains.job.gpu_waits import elsewhere
from preflight.domains.job.hang import (
    Hang,
    describe_mismatch,
    in_rpc,
    mismatch_fields,
    uneven_data,
    uneven_data_at_end,
)
from preflight.domains.job.hang_causes import hang_cause
from preflight.domains.job.load import REHEARSAL, for_author, load_rank
from preflight.domains.job.mismatch_advice import mismatch_advice
from preflight.domains.job.ras_findings import from_ras
from preflight.domains.job.record import Calls
from preflight.domains.job.repeated_groups import repeated_groups
from preflight.domains.job.stack_sites import UNNUMBERED, from_stacks
from preflight.domains.job.swallowed import with_swallowed
from preflight.domains.job.wait_graph import INIT, wait_graph
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, plural, rank_list
from preflight.model import (
    Blame,
    Command,
    Confidence,
    Doing,
    FindingType,
    Found,
    Lanes,
    Measured,
    Span,
    Status,
    Swimlane,
    World,
)

CHECK = replace(REHEARSAL, explains=("job.ranks", "job.pace", "job.memory"))

TIMEOUT = (
    "the others wait until torch gives up, then report each other: 'Watchdog caught collective "
    "operation timeout' after 10 minutes (NCCL), 'Timed out waiting …ms for recv operation to "
    "complete' after 30 (Gloo)"
)
LIKELY = Confidence.LIKELY
GATHERED = (*CHECK.explains, "job.model:replicas-diverged")
"""With what wrong values of an all_gather, or calls out of step since, do to the models."""
BATON = "torch/utils/file_baton.py"
"""Where a process waits that finds the lock file of a build."""

FINDINGS = {
    "collective-mismatch": for_author(
        headline="the ranks make different collective calls: {seen}",
        cause="a collective under a condition that not all ranks meet (if rank == 0), an "
        "exception caught on one rank, a different number of parameters or batch size on one rank",
        means="a hang until 'Watchdog caught collective operation timeout', 'Received data size "
        "doesn't match expected size' (Gloo), 'message truncated : receiving 524288 bytes instead "
        "of' (NCCL), or a wrong result",
        text="look at {line!s}: {advice!s}; all ranks of a group have to make the same calls, in "
        "the same order, with equal shapes, src and dst; before an all_to_all of uneven parts "
        "exchange their sizes",
        blame=(Blame.JOB, Blame.UNKNOWN),
        was=("collective-differs",),
    ),
    "peer-mismatch": for_author(
        headline="a send or recv is never matched: {seen}",
        cause="a wrong src, dst or tag; a missing send or recv on one rank; ranks that all send "
        "before they receive",
        means="a hang until 'Timed out waiting …ms for recv operation to complete' (Gloo), or "
        "'Watchdog caught collective operation timeout' (NCCL)",
        text="look at {line!s}: {advice!s}; every send needs a recv on the rank that it sends to, "
        "every recv a send on the rank that it receives from; if all ranks send first, use "
        "torch.distributed.batch_isend_irecv",
    ),
    "threads-share-group": for_author(
        headline="two threads of a rank make collective calls in one process group: {seen}",
        cause="an asynchronous checkpoint (torch.distributed.checkpoint.async_save), a prefetcher "
        "or a logger that calls torch.distributed in a thread of its own, while the main thread "
        "goes on in the same group: which call comes first is each rank's own chance",
        means="now and then a hang until 'Watchdog caught collective operation timeout', "
        "'Received data size doesn't match expected size', or a wrong result",
        text="make a separate process group for the thread, once on all ranks, with "
        "torch.distributed.new_group (async_save takes it as process_group), or let all ranks "
        "wait for the thread before {line!s}",
    ),
    "exception-swallowed": for_author(
        headline="{seen}",
        cause="a try around a step with `except Exception: continue`, or a collective in a finally",
        means="the rank skips calls that the others make: a hang, or sums of different steps",
        text="let the exception at {line} end the rank, or let all ranks skip that step: agree on "
        "it with an all-reduce",
    ),
    "groups-differ": for_author(
        headline="the ranks make different process groups: {seen}",
        cause="new_group under a condition such as `if rank in ranks`, or in the order of a set or "
        "dict that differs by rank",
        means="no error at all, and sums over the wrong ranks; or a hang where the groups differ "
        "in size",
        text="call new_group for all groups, in the same order, on every rank, at {line!s} and "
        "before it, also for groups that the rank is not a member of; or use "
        "torch.distributed.device_mesh.init_device_mesh",
    ),
    "order-swapped": for_author(
        headline="the ranks make collective calls in different orders: {seen}",
        cause="calls whose order comes from a set, from hooks or from a condition that differs "
        "between ranks",
        means="no error at all: different tensors are summed with each other, and the loss is "
        "wrong",
        text="make the calls in the same order on all ranks, e.g. sorted by name",
    ),
    "data-uneven": for_author(
        headline="{at} has a different number of batches from the other ranks",
        cause="different numbers of batches: files split by hand, an IterableDataset, a sampler "
        "without equal parts",
        means="the last step of an epoch hangs on the ranks with more data, until 'Watchdog caught "
        "collective operation timeout'",
        text="stop all ranks after the smallest number of steps of any rank, or use "
        "DistributedSampler with drop_last=True, a fixed number of steps for an IterableDataset, "
        "or torch.distributed.algorithms.join.Join",
        blame=(Blame.JOB, Blame.UNKNOWN),
    ),
    "barriers-in-step": for_author(
        headline="barrier() at {line} is called {often}",
        cause="barriers of tracing, timing or debugging left in the loop",
        means="every rank waits for the slowest one at each of them, not once per step: slow steps "
        "without an error",
        text="remove the barrier at {line!s}, or call it once per step: collectives wait for all "
        "ranks by themselves",
        status=Status.WARN,
        explains=(),
    ),
    "groups-repeated": for_author(
        headline="a process group for the same ranks is made again and again at {line}",
        cause="new_group in a function that each step calls, for a metric or a log",
        means="all groups stay until the end: each step is slower than the one before, until 'Too "
        "many open files', 'can't start new thread', or, as each communicator of NCCL has buffers, "
        "'CUDA out of memory'",
        text="call new_group at {line!s} once, before the loop, and keep the group",
        status=Status.WARN,
        explains=("job.pace", "job.memory", "job.balance:step-blocked"),
    ),
    "rank-stuck": for_author(
        headline="rank {rank} is stuck at {line}, the others wait for it",
        cause="a lock, a file or a server that one rank waits for, a sleep, a collective that only "
        "the others call",
        means=TIMEOUT,
        text="look at what rank {rank} waits for at {line!s}",
    ),
    "rank-busy": for_author(
        headline="{at} is busy while the others wait for it",
        cause="work that one rank does for all: tokenisation, evaluation, a checkpoint",
        means="the others wait, and end with a timeout when it takes longer than 10 (NCCL) or 30 "
        "minutes (Gloo)",
        text="raise init_process_group(timeout=…) if the work takes that long, or prepare the "
        "data before the job, or spread the work over all ranks",
        status=Status.WARN,
        explains=("job.pace",),
    ),
    "rank-elsewhere": for_author(
        headline="{at} is at {line} while the others wait for their GPUs",
        cause="a collective that the others have called and this rank has not: NCCL waits on the "
        "GPU, and the host only where it needs a value",
        means=TIMEOUT,
        text="look at what rank {rank} does at {line!s}; look again with --for 60s to see whether "
        "it goes on",
        status=Status.WARN,
    ),
    "rank-unreachable": FindingType(
        headline="{seen}",
        who="job author, then cluster administrator",
        cause="a process that crashed, was killed or is stopped, a node that is down, a broken "
        "network between nodes",
        means=TIMEOUT,
        text="check the logs and dmesg of the processes and nodes that are named, and sacct -j JOB",
        blame=Blame.UNKNOWN,
    ),
    "store-key-unset": for_author(
        headline="no rank sets the {key} of the store, and the job waits for it at {line}",
        cause="set() under a condition that no rank meets, another name or PrefixStore than where "
        "it is set, a rank that failed or left before, one more wait() than there are set()",
        means="'wait timeout after 300000ms, keys: /…' after the timeout of the store, and a "
        "hang until then",
        text="set the key on one rank before {line!s} waits for it, through a store with the same "
        "prefix (PrefixStore)",
    ),
    "exit-stuck": for_author(
        headline="rank {rank} does not end: {doing}, and it is stuck at {line}",
        cause="a thread that is no daemon and waits for more work, a child process or a queue "
        "that is joined, an upload or a tracker without finish(), destroy_process_group while a "
        "collective is under way",
        means="the launcher waits for the rank, and the job holds its nodes until 'CANCELLED AT … "
        "DUE TO TIME LIMIT'",
        text="end what rank {rank} waits for at {line!s} before the program ends: tell the thread "
        "or process to stop, or start it with daemon=True",
    ),
    "failed-not-ended": for_author(
        headline="rank {rank} has failed at {raised}, its process does not end, and the others "
        "wait for it",
        cause="a thread that is no daemon and that nobody stops when the program fails: a monitor, "
        "a prefetcher, a logger, a pool",
        means=TIMEOUT,
        text="correct what fails at {raised!s}; and start the thread at {line!s} with "
        "daemon=True, or stop it in a finally, so that the launcher sees that the rank has failed",
    ),
    "loader-stuck": for_author(
        headline="rank {rank} waits for a DataLoader that hangs at {line}",
        cause="a worker of the DataLoader that hangs or has died: a lock taken before the fork "
        "(OpenCV, OpenMP, a logger), /dev/shm too small, a file that can't be read",
        means=TIMEOUT,
        text="use multiprocessing_context='spawn' or 'forkserver', cv2.setNumThreads(0), and no "
        "locks, clients or open files shared with the workers; num_workers=0 shows the error where "
        "it happens",
    ),
    "storage-stuck": FindingType(
        headline="rank {rank} hangs in the file system at {line}",
        cause="a file system (NFS, Lustre, FUSE, a disk) that does not answer",
        means="the process can't be killed; all other ranks wait for it",
        text="check the mounts of the node and its kernel log; move data and checkpoints to "
        "another file system, or exclude the node",
        commands=(
            Command("dmesg -T | tail -50; nfsstat -m; df -h", "the node (df may hang as well)"),
        ),
        blame=(Blame.NETWORK, Blame.UNKNOWN),
    ),
    "fabric-stuck": FindingType(
        headline="all ranks hang in the same collective, none is late: the network or a GPU is "
        "stuck",
        who="cluster administrator, then job author",
        cause="lost packets or a lost connection between ranks, a stuck GPU or NIC, P2P that does "
        "not work",
        means="'Watchdog caught collective operation timeout' on all ranks, none of them late",
        now="preflight run --level standard",
        text="run preflight on the nodes of the job; with TORCH_NCCL_ENABLE_TIMING=1 a rehearsal "
        "tells a stuck GPU from the network; NCCL_DEBUG=INFO shows how the ranks are connected",
        commands=(Command("preflight run --only net,world", "all nodes", "the fabric, 1 min"),),
        blame=Blame.NETWORK,
    ),
    "gpu-stuck": FindingType(
        headline="the GPU of {at} is stuck: the work that it had before {line} does not end",
        who="job author, then cluster administrator",
        cause="a kernel that never returns (a Triton or CUDA extension that spins, collectives on "
        "two groups at the same time), a stream that waits for an event nobody records, a GPU with "
        "an error",
        means="'Watchdog caught collective operation timeout' on all ranks, none of them late",
        text="look at what is started on this GPU before {line!s}: CUDA_LAUNCH_BLOCKING=1 "
        "makes the program wait at the line of that kernel; check the GPU for Xid errors",
        commands=(Command("dmesg -T | grep -i xid", "the node of that GPU"),),
        blame=Blame.UNKNOWN,
    ),
    "calls-unrecorded": for_author(
        headline="{seen}",
        cause="a backend without a flight recorder, or a recorder that the program disables",
        means="nothing: it says nothing about the collectives of this command",
        text="rehearse it with torch 2.8 or later, without TORCH_FR_BUFFER_SIZE in the program",
        status=Status.UNDECIDED,
    ),
    "extension-locked": for_author(
        headline="{seen}",
        cause="a killed build of a C++ or CUDA extension: its lock file stays behind, and torch "
        "waits for it forever",
        means="'Using … as PyTorch extensions root...' is the last line printed, and no rank ever "
        "joins; a build by another job in the same folder looks the same until it ends",
        text="remove the lock file if nothing builds the extension at the moment (ninja, nvcc, "
        "c++), here or on another node with the same home directory",
        now="find ~/.cache/torch_extensions $TORCH_EXTENSIONS_DIR -name lock",
        status=Status.UNDECIDED,
    ),
    "standstill": for_author(
        headline="the job does nothing any more: no step, batch or collective for {seconds}",
        cause="a wait of the script's own for a key of the store, a file or a counter that never "
        "gets there (one that is used twice, or that ranks leave out), a remote call that nobody "
        "answers, a service that does not respond",
        means="a hang, if what the ranks wait for does not come: no timeout of torch's ends it",
        text="look at what the ranks wait for at {line!s}; look at it for longer (--for) to see "
        "whether it goes on",
        status=Status.WARN,
    ),
    "nothing-seen": for_author(
        headline="{seen}",
        cause="a start that takes longer than the watch; a training loop without torch.optim",
        means="nothing: it says nothing about this command",
        text="look at it for longer (--for), or rehearse it on less data",
        status=Status.UNDECIDED,
    ),
}


def observe(host: Host, ctx: Context) -> Calls:
    return load_rank(host, ctx).calls


def judge(world: World[Calls], expect: Expect) -> Iterator[Found]:
    hang = Hang.of(world)
    if not hang.calls:
        return
    first = (
        from_stacks(hang)
        or _locked(hang)
        or _mixed_groups(hang)
        or _order(hang)
        or from_ras(hang)
        or uneven_data_at_end(hang)
        or hang_cause(hang)
        or elsewhere(hang)
        or _standstill(hang)
        or _swapped(hang)
        or _unrecorded(hang)
        or _nothing(hang)
    )
    if first:
        yield with_swallowed(hang, first)
    elif repeated := repeated_barrier(hang):
        often = f"{repeated.in_a_step:.0f} times in each step"
        yield Found(
            "barriers-in-step",
            hang.subjects(repeated.ranks),
            saw=f"barrier() at {repeated.frame}: about {often} of the optimizer, on every rank",
            expected="no barrier in a step",
            confidence=LIKELY,
            fields={"line": str(repeated.frame), "often": often},
        )
    elif made := repeated_groups(hang):
        yield Found(
            "groups-repeated",
            hang.subjects(made.by),
            saw=f"{made.many} groups of {rank_list(made.ranks)} were made at {made.frame}, in "
            f"{plural(made.steps, 'step')}",
            expected="one group for the same ranks",
            confidence=LIKELY,
            fields={"line": str(made.frame)},
        )


def _mixed_groups(hang: Hang) -> Found | None:
    """Groups that are others for some of their ranks."""
    gloo = {rank for rank, seen in hang.calls.items() if seen.gloo}
    found = collective_order.mixed_groups(hang.groups, gloo)
    if found is None:
        return _crossed_groups(hang)
    rows: dict[str, list[int]] = {}
    for rank, members in sorted(found.members.items(), key=lambda of: of[0] not in found.odd):
        made = f" at {found.made[rank]}" if rank in found.made else ""
        rows.setdefault(rank_list(members) + made, []).append(rank)
    told = "; ".join(f"{rank_list(of)} created it for {members}" for members, of in rows.items())
    several = {*found.members.values()}
    apart = sum(map(len, several)) == len({rank for ranks in several for rank in ranks})
    one = len(found.odd) == 1
    line = next((str(found.made[r]) for r in found.odd if r in found.made), "that line")
    return Found(
        "groups-differ",
        hang.subjects(found.odd),
        saw=f"group {found.name!r:.40}: {told}",
        expected="new_group called for the same ranks in one order on all ranks",
        confidence=LIKELY if one or apart else Confidence.POSSIBLE,
        alternatives=() if one or apart else hang.either(found.odd),
        fields={"line": line},
    )


def _crossed_groups(hang: Hang) -> Found | None:
    """Ranks that make a group of the same ranks, and count it as another one."""
    making = {
        r: seen.groups[-1] for r, seen in hang.calls.items() if seen.at == INIT and seen.groups
    }
    crossed = collective_order.crossed_groups(making)
    if not crossed or not hang.stopped:
        return None
    members, numbers = next(iter(crossed.items()))
    here = {r: making[r].made for of in numbers.values() for r in of}
    told = ", ".join(f"number {name} on {rank_list(of)}" for name, of in numbers.items())
    line = next((str(made) for made in here.values() if made is not None), "that line")
    return Found(
        "groups-differ",
        hang.subjects(sorted(here)),
        saw=f"the group of {rank_list(members)}, created at {line}, is {told}",
        expected="new_group called for the same ranks in one order on all ranks",
        confidence=LIKELY,
        fields={"line": line},
    )


def _order(hang: Hang) -> Found | None:
    """Other calls under one number."""
    found = collective_order.mismatches(hang.groups, equal=_equal(hang))
    found = tuple(one for one in found if one.seq != UNNUMBERED)
    if not found:
        return None
    # the smallest number is not the earliest in another group: where there are several, one that
    # has an outlier says more
    first = min(found, key=lambda d: (d.tie, d.seq))
    uneven = uneven_data(hang, first.calls)
    if uneven:
        return uneven
    told = describe_mismatch(first)
    odd = first.odd
    line = next((str(first.calls[r].frame) for r in odd if first.calls[r].frame), "that line")
    if len({call.thread for call in first.calls.values()}) > 1:
        main = next((c.frame for c in first.calls.values() if c.frame and not c.thread), line)
        return Found(
            "threads-share-group",
            hang.subjects(sorted(first.calls)),
            saw=f"{told}, number {first.seq}{hang.group(first.group)}",
            expected="the calls of a group from one thread, in one order on all ranks",
            confidence=LIKELY,
            fields={"line": str(main)},
        )
    return Found(
        "collective-mismatch",
        hang.subjects(odd),
        saw=f"{told}, number {first.seq}{hang.group(first.group)}",
        expected=EXPECTED[first.what],
        confidence=LIKELY if first.tie or first.what == "exchange" else Confidence.CERTAIN,
        alternatives=hang.either(odd) if first.tie else (),
        explains=GATHERED if first.what == "gather" else None,
        fields=mismatch_fields(*(mismatch_advice(hang, first) or (line,))),
    )


EXPECTED = {
    "op": "one call on all ranks",
    "root": "one src or dst on all ranks",
    "shape": "one shape on all ranks",
    "type": "one type on all ranks",
    "gather": "room for as many elements as all ranks bring",
    "exchange": "as many elements to receive as are sent, over all ranks",
}


def _equal(hang: Hang) -> frozenset[str]:
    """Operations whose shapes are compared: of a job that goes on none; of one that failed not
    those that NCCL takes with unequal parts, which Gloo never does."""
    if hang.stopped or (hang.failed and all(seen.gloo for seen in hang.calls.values())):
        return collective_order.EQUAL
    return collective_order.EQUAL - collective_order.SPLIT if hang.failed else frozenset()


def _swapped(hang: Hang) -> Found | None:
    found = collective_order.swaps(hang.groups)
    if not found:
        return None
    first = found[0]
    way = "both orders are there" if first.tie else f"{rank_list(first.odd)} the other way round"
    return Found(
        "order-swapped",
        hang.subjects(first.odd),
        saw=f"numbers {first.first} and {first.second}{hang.group(first.group)} come from "
        f"{first.one} and {first.other}, on {way}"
        if not first.tie
        else f"numbers {first.first} and {first.second}{hang.group(first.group)}: {way}, "
        f"{first.one} first and {first.other} first",
        expected="one order on all ranks",
        confidence=LIKELY,
        alternatives=hang.either(first.odd) if first.tie else (),
    )


def _unrecorded(hang: Hang) -> Found | None:
    """Ranks whose process group counts calls of which there is no record. Not so those that have
    joined and made none: a group without a call counts none."""
    blind = {rank: seen.unrecorded for rank, seen in hang.calls.items() if seen.unrecorded}
    if not blind:
        return None
    return Found(
        "calls-unrecorded",
        hang.subjects(blind),
        saw=f"{rank_list(tuple(blind))} made calls that could not be seen: "
        + next(iter(blind.values())),
        expected="a record of every rank's calls",
        confidence=Confidence.CERTAIN,
    )


def _locked(hang: Hang) -> Found | None:
    """All ranks wait for the file by which torch lets one process build an extension, and none of
    them builds it: who has made the file is gone, or is no rank of this job."""
    waiting = [
        r for r, seen in hang.calls.items() if any(f.file.endswith(BATON) for f in seen.stack)
    ]
    if not waiting or len(waiting) < len(hang.calls):
        return None
    seconds = min(hang.calls[r].quiet for r in waiting)
    return Found(
        "extension-locked",
        hang.subjects(waiting),
        saw=f"{rank_list(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for the lock file of "
        f"an extension that none of them builds, for {duration(seconds)}{hang.places()}",
        expected="a rank that builds it, or no lock file",
        confidence=LIKELY,
    )


STANDSTILL_SECONDS, STANDSTILL_STEPS = 15.0, 10
"""How long the job is without a step when the watch ends: seconds, and steps that would have fitted
in at the pace before."""
STANDSTILL_CPU = 0.1
"""Of one CPU, at most, in the last seconds: who polls sleeps most of the time."""


def _standstill(hang: Hang) -> Found | None:
    """Ranks that have stepped, and of which none does any more: none of them computes, reads or
    writes, and none waits in a collective, for which there would be a rank to name."""
    calls = hang.calls.values()
    if any(seen.why != "time" or seen.at != "own" or seen.leaving or seen.moves for seen in calls):
        return None
    if any(frame.file.endswith(BATON) for seen in calls for frame in seen.stack):
        return None  # one of them may build the extension that they wait for
    quiet = min(seen.quiet for seen in calls)
    steps = max(seen.steps for seen in calls)
    if not steps or quiet < STANDSTILL_SECONDS:
        return None
    before = max(seen.seconds for seen in calls) - quiet
    if quiet * steps < STANDSTILL_STEPS * before or not all(map(_rests, calls)):
        return None
    line = next((str(seen.own) for seen in calls if seen.own is not None), "that line")
    return Found(
        "standstill",
        hang.subjects(hang.calls),
        saw=f"{plural(steps, 'step')} in {duration(before)}, and none for {duration(quiet)}"
        + hang.places(),
        expected="a step on every rank",
        confidence=Confidence.POSSIBLE,
        alternatives=("what they wait for comes from outside of the job, and later",),
        fields={"seconds": duration(quiet), "line": line},
    )


def _rests(seen: Calls) -> bool:
    return in_rpc(seen) or (seen.cpu < STANDSTILL_CPU and not seen.works)


def _nothing(hang: Hang) -> Found | None:
    """Whether there was anything to judge. A command that ended by itself has said how it went."""
    calls = hang.calls.values()
    if all(seen.why == "ended" for seen in calls) or any(seen.ended for seen in calls):
        return None
    worked = any(seen.steps or any(group.completed for group in seen.groups) for seen in calls)
    if not hang.stopped and (worked or not hang.distributed or any(s.moves for s in calls)):
        return None
    watched = duration(max(seen.seconds for seen in calls))
    where = hang.places()
    stands = hang.stopped and worked
    return Found(
        "nothing-seen",
        hang.subjects(hang.calls),
        saw=("no progress" if stands else f"no step or collective in {watched}") + where,
        expected="a step on every rank",
        confidence=LIKELY,
    )


def measured(world: World[Calls]) -> Measured:
    seen = list(world.seen.values())
    if not seen:
        return Measured()
    done = max(sum(group.completed for group in calls.groups) for calls in seen)
    steps = max(calls.steps for calls in seen)
    groups = len({(g.name, g.ranks) for calls in seen for g in calls.groups})
    watched = max(calls.seconds for calls in seen)
    values = {"collectives": done, "steps": steps, "groups": groups, "seconds": watched}
    if not done and not steps and max(calls.world for calls in seen) < 2:
        return Measured("no collectives: not distributed", values)
    if not done and any(calls.moves for calls in seen):
        return Measured("goes on · calls can't be counted from outside", values)
    text = f"{done:,} collective{'s' * (done != 1)}, {steps:,} step{'s' * (steps != 1)}"
    text += f" in {duration(watched)}"
    pictured = wait_graph(dict(enumerate(seen)))
    waiting = len(pictured.behind)
    stuck = any(calls.why == "stuck" for calls in seen)
    told = text + (f" · {waiting} of {len(seen)} wait" if stuck else "")
    return Measured(told, values, lanes=_lanes(world, stuck))


def _lanes(world: World[Calls], stuck: bool) -> Lanes:
    """How many collectives each rank has completed, and where it is."""
    lanes = []
    for key, calls in world.seen.items():
        done = sum(group.completed for group in calls.groups)
        where = f", {calls.own}" if calls.own else ""
        spans = [Span(0.0, float(done), Doing.WORK, f"{plural(done, 'collective')} completed")]
        call = next((group.open for group in calls.groups if group.open), None)
        if call is not None:
            at = f" at {call.frame}" if call.frame else where.replace(",", " at", 1)
            told = f"in {call.op} #{call.seq}{at} for {duration(calls.quiet)}"
            spans.append(Span(float(done), done + 1.0, Doing.WAIT, told))
        elif calls.ended:
            spans.append(Span(float(done), done + 1.0, Doing.ABSENT, f"has ended: {calls.ended}"))
        elif stuck:
            told = f"in no collective for {duration(calls.quiet)}{where}"
            spans.append(Span(float(done), done + 1.0, Doing.STUCK, told))
        lanes.append(Swimlane(key, tuple(spans)))
    return Lanes("how far each rank came, and where it is", "collectives", tuple(lanes))
