"""Where does the time of a step go: data loading, other ranks, small collectives?

Level        deep
Looks at     of each rank of a rehearsed command, over its steps after the first: the median time of
             a step, the part of it in which it waited for its DataLoader, and the line of the
             user's that it was at then, if no worker made the batch, the share of samples in
             which it was in a collective or had one open, the line at which it was otherwise, what
             its other threads use of the CPU, and how many collectives of which size it called; how
             long torch's profiler records, where all parameters of a sharded model are gathered,
             whether the forwards of what no_sync() is around are within, with how many threads
             torch computes on the CPU, and for how long the main thread was ready to run and had no
             CPU
Fails if     never: a slow job still trains
Warns if     a rank waits for its DataLoader in 30 % of its time (in 50 % with a GPU that may
             compute meanwhile; never where the driver says that it is busy in 90 %); 50 collectives
             per step, half of them below 64 KiB, with one open on all ranks in 30 % of the samples;
             a rank or a few hardly ever wait for a collective while the others do in 40 %, in every
             step or in every tenth, say; over NCCL, a rank spends half of its step in own code
             between the optimizer and the next forward, in which it waits for nothing, the others
             40 % of a step less, and its GPU has pauses; the same without GPUs from 30 % on, where
             the others wait longer in their backward pass or in collectives; ranks may run on fewer
             CPUs than they are, where the command has more; ranks without GPUs compute with half as
             many threads again as they have CPUs together, and wait for a CPU in a quarter of the
             time; the payload of a collective grows from call to call, to three times its size, or
             half as much again where nearly all of 40 calls carry more than the one before, or so
             steadily that it must have been a third of it at the first call, or nothing where 16
             are known; objects (all_gather_object and the like) are exchanged in every step, by all
             ranks at one line, and 30 % of a step passes between the optimizer and the next
             forward, mostly at that line; a profiler records 100 steps; half of the parameters of a
             model in FSDP or more are gathered in 9 of 10 steps by summon_full_params() or
             full_tensor(), or as much of their gradients or of averages outside of an optimizer's
             step; 9 of 10 blocks of no_sync() have a backward in them and not its forward; the
             workers of DataLoaders are started again and again, in a quarter of the time; garbage
             collections take a tenth of a rank's time; torch.compile compiles one function 8 times,
             in a fifth of it; half of the bytes of gradients that DDP sums, or more, are rows of a
             table that no sample of the batches has used, and all ranks have a collective open in
             30 % of the samples; DDP broadcasts 8 MiB of buffers and twice the bytes of its
             gradients before every forward
Undecided    fewer than 8 steps or 10 samples; not a rehearsal (preflight rehearse -- CMD)
Not covered  what a GPU itself takes for its part of a step; whether it waits in NCCL, in steps of
             less than half a second; steps without an optimizer; a rank that is slow at odd times;
             pauses that keep Python's lock, but for its garbage collection; why a rank is slow
Seen as      no error at all: GPUs idle, "CANCELLED AT … DUE TO TIME LIMIT", "Timed out waiting"
             only when it gets much worse
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median

from preflight.check import Context
from preflight.domains.job.backends import carries
from preflight.domains.job.load import (
    REHEARSAL,
    for_author,
    load_rank,
    name_of,
    nothing_seen,
    rank_subject,
)
from preflight.domains.job.needless import (
    COLLECTING,
    PROFILED,
    STARTING,
    collects_garbage,
    compiled_again,
    gathered_each_step,
    left_running,
    mostly_zero,
    needless_work,
    not_skipped,
    started_again,
)
from preflight.domains.job.record import BusyThread, Pace, Volume
from preflight.domains.job.shared_buffers import shared_buffers
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, plural, rank_list, size
from preflight.inference import ENOUGH, outliers
from preflight.model import (
    Blame,
    CannotObserve,
    Command,
    Confidence,
    Doing,
    Found,
    Lanes,
    Measured,
    Span,
    Status,
    Subject,
    Swimlane,
    World,
    place_of,
)

CHECK = replace(REHEARSAL, required=False)

STEPS, LOOKS = 8, 10
"""Below that a median is one odd step, and a part of the samples may be off by a third."""

RECURS, UNEVEN = 5, 2.0
"""Pauses that come again and again, as work in every 20th step does, and by how much farther than
usual two of them may be apart."""
REGULAR = 0.5
"""Part of the time that usual steps make up. Below, it went into a few that took very long, as an
evaluation or a checkpoint does: looks and waits are theirs then, not those of every step."""

BUFFERS, BUFFERS_PART = 8 << 20, 2
"""Bytes that DDP broadcasts before each forward, and how many times those of its gradients, from
which on they are said: below, they are a small part of what a step sends."""

LOADER = 0.3
LOADER_GPU = 0.5
"""With a GPU, which computes while the process waits: only what can hardly be hidden behind it."""
GPU_IDLE, GPU_BUSY = 0.5, 0.9
"""Part of the time that its GPU computes, where the driver tells. Below, what the rank waits for is
missed there; above, it is hidden."""
LOADER_LEAST = 0.01
"""Seconds a step. To hand over a batch from process to process takes milliseconds by itself: where
less is lost, workers do not make it faster."""
LOADING = 0.5
"""Part of that in which one function of the user's makes the batches."""
WORKERS_MAX = 8
"""Advised at most, as by world.loader: more seldom help, and each takes memory and /dev/shm."""

SMALL = 64 << 10
"""Bytes of a collective that takes as long as an empty one: at 10 Gbit/s 64 KiB are on the way for
0.05 ms, which is what a round trip takes."""
MANY = 50
"""Collectives a step. DDP has one for 25 MiB of gradients: with 32 bits that is 50 for 300 million
parameters, and none of them is small."""
WAITING = 0.3
LATENCY = 0.05
"""Seconds that a small collective takes at most where it is its latency. When it is longer, ranks
wait for one that comes late, which fewer messages do not mend."""

WAITED = 0.4
"""Part of the samples at which the others are in a collective before somebody is called slow."""
APART, APART_FEW = 0.3, 0.4
"""By how much less a slow rank waits. With three ranks or less, where nothing tells what is usual,
only what is gross."""
SAME_PACE = 1.5
"""Ranks that wait for each other in every step take as long for one; an evaluator, an actor or a
server of parameters does not, and it does not hold them up by being elsewhere."""
THREAD_CPU = 0.3
"""Part of a CPU that a thread uses before it is named."""
EACH = "every step"
SLOW_LEAST = 0.01
"""Seconds a step that the others lose. In steps of a few milliseconds a line of log is that."""
NOTICED = 0.5
"""Seconds of a step from which it counts that a collective of NCCL was open: in shorter ones there
is always one that torch has not noticed yet to be done."""
HOST, HOST_UNSURE, HOST_APART = 0.5, 0.7, 0.4
"""Part of a step that a rank spends in own code while its GPU waits for it: where the driver tells
that the GPU has pauses, where it does not, and by how much less the others do."""
HELD_UP = 0.3
"""The same on the CPU, where the others' backward pass shows that they wait so long."""
NOISE = 4.0
"""Standard errors that two parts of the samples must be apart. The smallest of many is taken, and
looks one after the other are not independent."""

CROWDED, UNSERVED, HELPED = 1.5, 0.25, 1.5
"""Threads per CPU, part of the time in which a rank wants a CPU and has none, and how many times
as much CPU as its main thread it uses, from which on its threads hold up each other: what other
programs take is missed by the main thread as well."""

GROWS, GROWN, GROWN_LEAST = 0.8, 3.0, 256 << 10
"""Part of a line's calls that carry more than the one before, how many times as much it is at last,
and bytes then: a payload that only varies, or starts over, rises in half of its calls."""
GROWING_CALLS = 8
ALWAYS, ALWAYS_GROWN, ALWAYS_CALLS = 0.95, 1.5, 40
"""The same where nearly every one of many calls carries more than the one before: it need not have
grown as much yet, and only to what takes longer than an empty one (SMALL)."""
FROM_NOTHING, FROM_CALLS = 0.2, 16
"""The same of fewer calls, as are kept beside many others: each carries as much more than the one
before as makes the latest one from nothing; by which part of that it may be off."""

OBJECTS, EACH_STEP, SIZES = 0.3, 0.9, 1 << 10
"""Part of a step before the next forward, calls per step, and bytes of the sizes of objects."""
OBJECTS_GPU = 1 << 20
"""Bytes of an object from a GPU from which pickling takes longer than the copy of a loss."""

slowing = partial(for_author, status=Status.WARN)
FINDINGS = {
    "loader-bound": slowing(
        headline="{seen}",
        cause="no workers or too few, expensive transforms, slow storage, workers restarted for "
        "each epoch",
        means="no error at all: the GPUs wait for data, and the other ranks for this one",
        text="set num_workers of the DataLoader to {workers!s}; persistent_workers=True; "
        "pin_memory=True with a GPU; a larger prefetch_factor; do {work!s} once, not in every "
        "epoch",
    ),
    "small-collectives": slowing(
        headline="many small collectives slow every step down: {seen}",
        cause="one all_reduce per parameter or metric, a small bucket_cap_mb of DDP, values "
        "reduced for logging at every step",
        means="no error at all: each of them costs a round trip, however small it is",
        text="use one flat tensor instead of many (torch.cat, or let DDP do it); bucket_cap_mb of "
        "DDP at its 25 or above; sum metrics on the rank and reduce them every few steps",
    ),
    "payload-grows": slowing(
        headline="the payload of the collective at {line} keeps growing: {seen}",
        cause="a list that grows and is sent as a whole each time (all_gather_object of a replay "
        "buffer, of all metrics or predictions so far)",
        means="no error at all: each call takes longer than the previous one, until it times out "
        "or the rank runs out of memory",
        text="change {line!s} to send only what is new since the last call, or limit its size",
    ),
    "objects-in-step": slowing(
        headline="objects are pickled and exchanged in every step: {seen}",
        cause="all_gather_object, gather_object or broadcast_object_list of predictions, losses or "
        "metrics in each step",
        means="no error at all: each step pickles the objects, copies them from the GPU and back, "
        "sends them as bytes, and waits for that",
        text="replace the objects at {line!s} by tensors: all_reduce sums and counts, or "
        "all_gather_into_tensor; or exchange them every 100 steps",
        explains=("job.balance:step-blocked", "job.balance:gpu-synchronised"),
    ),
    "cpus-shared": slowing(
        headline="{at} may only run on {cpus}: {seen}",
        cause="os.sched_setaffinity, taskset, numactl or a binding library with the same numbers "
        "for each rank, such as those of SLURM_LOCALID, which torchrun does not set",
        means="no error at all: the ranks and their DataLoader workers take turns, and the other "
        "CPUs are idle",
        text="bind each rank by LOCAL_RANK to CPUs of its own, those next to its GPU, or do not "
        "bind them",
        commands=(Command("taskset -cp PID", "the node, for each rank"),),
        explains=("job.pace:rank-slow", "job.pace:loader-bound"),
    ),
    "threads-many": slowing(
        headline="{at} compute with more threads than there are CPUs: {seen}",
        cause="torch.set_num_threads() or OMP_NUM_THREADS with the number of CPUs of the machine, "
        "which each rank takes for itself; a cgroup that allows a few of them",
        means="no error at all: the threads of all ranks take the CPUs from each other, and each "
        "operation waits for the last of its threads",
        text="set OMP_NUM_THREADS={each!s} for the job, or call torch.set_num_threads() with that "
        "in each rank",
        explains=("job.pace:rank-slow", "job.pace:loader-bound"),
    ),
    "profiler-on": slowing(
        headline="{at} runs torch's profiler all the time: {seen}",
        cause="a profiler that is started and not stopped, a schedule without an end, a condition "
        "for stop() that is never met",
        means="no error at all: each operation is recorded, which makes this rank slower than the "
        "others, and its memory grows until it is written or runs out",
        text="stop the profiler started at {line!s} after some ten steps, or give it "
        "schedule=torch.profiler.schedule(wait=…, warmup=…, active=…, repeat=1)",
        explains=("job.pace:rank-slow", "job.memory:memory-growth"),
    ),
    "workers-restarted": slowing(
        headline="the workers of a DataLoader are started for every epoch: {seen}",
        cause="a DataLoader without persistent_workers and short epochs, or one that is made again "
        "for each; a dataset that opens or reads much in each new worker",
        means="no error at all: all ranks wait at the beginning of each epoch until processes are "
        "there and have read a batch",
        text="pass persistent_workers=True to the DataLoader used at {line!s}, and make it once; "
        "or let an epoch be longer",
        explains=("job.pace:loader-bound",),
    ),
    "recompiled": slowing(
        headline="torch.compile compiles the same function again and again: {seen}",
        cause="an argument or attribute that changes (a number, a tuple, a shape, a flag), so that "
        "what was compiled does not fit",
        means="no error at all: steps that take seconds, on all ranks if one compiles; from "
        "torch._dynamo.config.recompile_limit on the function runs without torch.compile",
        text="keep what changes out of the function at {line!s}, mark shapes as dynamic "
        "(dynamic=True, torch._dynamo.mark_dynamic), or compile its unchanging parts, such as each "
        "layer; TORCH_LOGS=recompiles shows each reason",
        explains=("job.pace:rank-slow",),
    ),
    "garbage-collected": slowing(
        headline="Python's garbage collection stops {at} again and again: {seen}",
        cause="very many Python objects that live long (samples, trees, caches), through all of "
        "which each full collection goes; gc.collect() in the loop",
        means="no error at all: nothing of the rank goes on meanwhile, and the others wait for it",
        text="call gc.freeze() once what lives long is there; then gc.disable(), and "
        "gc.collect() every 500 steps, in the same step on all ranks; keep large tables "
        "in tensors or NumPy arrays",
        explains=("job.pace:rank-slow", "job.balance:step-blocked"),
    ),
    "parameters-gathered": slowing(
        headline="all parameters of a sharded model, or as much, are gathered in every step: "
        "{seen}",
        cause="averaged weights (EMA) updated inside of FSDP.summon_full_params() or from "
        "full_tensor(), norms or statistics of whole parameters or gradients for a log",
        means="no error at all: each step sends the model once more, and each rank needs memory "
        "for all of it",
        text="let each rank compute with its own shards at {line!s}: the parameters outside of "
        "summon_full_params(), to_local() in place of full_tensor(), norm().full_tensor() in place "
        "of full_tensor().norm(); gather all for a checkpoint alone",
    ),
    "no-sync-late": slowing(
        headline="no_sync() comes too late to keep gradients from being summed: {seen}",
        cause="accumulation with no_sync() around backward() alone: DDP decides in the forward "
        "whether the backward sums the gradients",
        means="no error at all: every micro-batch sends all gradients, as if there were no "
        "no_sync()",
        text="put the forward into the block of no_sync() at {line!s} as well",
    ),
    "buffers-broadcast": slowing(
        headline="DDP broadcasts {bytes} of buffers before every forward, for {gradients} of "
        "gradients",
        cause="constant tables of the model (causal masks, positions, an embedding that is not "
        "trained) that are registered as buffers: broadcast_buffers is True by default",
        means="no error at all: rank 0 sends the same numbers to all in every forward, also with "
        "persistent=False",
        text="pass broadcast_buffers=False to DDP at {line!s} if no buffer changes; else keep "
        "{largest!s} and the like out of the buffers, or share one among all layers",
        explains=("job.balance:step-blocked",),
    ),
    "gradient-mostly-zero": slowing(
        headline="most of the bytes that DDP sums in every step are zeros: {seen}",
        cause="a large nn.Embedding of identifiers (users, items, hashed features), of which a "
        "batch uses a few rows, with a dense gradient",
        means="no error at all: the whole table goes through the network in every step, and the "
        "optimizer goes through all of it",
        text="keep {table!s} out of DDP, its rows divided over the ranks as TorchRec does; or, "
        "over Gloo, pass sparse=True to its nn.Embedding, with SGD, Adagrad or SparseAdam, so that "
        "only the rows in use are summed, which NCCL can not do",
        explains=("job.balance:step-blocked",),
    ),
    "rank-slow": slowing(
        headline="{at} is slower than the others, which wait for it in {often!s}",
        cause="work that only this rank does (log, checkpoint, evaluation; in a thread, too, which "
        "keeps Python's lock from the main one), a larger share of the data, a slower or shared "
        "CPU or GPU",
        means="no error at all: a step of any rank takes as long as on the slowest one",
        text="look at {line!s}: do it less often, in another process, or on all ranks alike; with "
        "the same work on all ranks, preflight run --level deep looks for a slow CPU or GPU",
        blame=(Blame.UNKNOWN, Blame.JOB),
        explains=("job.balance:step-blocked",),
    ),
}


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of which enough was seen."""

    subject: Subject
    pace: Pace

    @property
    def regular(self) -> bool:
        return REGULAR * self.pace.mean <= self.pace.step

    @property
    def pauses_every(self) -> int:
        """In one of how many steps it takes several times as long as usual; 0 where that comes now
        and then only, as an evaluation, or is over."""
        at = self.pace.pauses
        gaps = [later - one for one, later in pairwise(at)]
        if len(at) < RECURS:
            return 0
        usual = median(gaps)
        widest = max(*gaps, self.pace.steps - at[-1])
        return round(usual) if usual >= 2 and widest <= UNEVEN * usual else 0

    @property
    def in_bursts(self) -> bool:
        """Whether its workers, which began together, deliver together: one step in about as many
        waits for all of them."""
        pauses = len(self.pace.pauses)
        return pauses >= RECURS and self.pace.steps <= UNEVEN * max(1, self.pace.workers) * pauses

    @property
    def each(self) -> float:
        """Seconds of a step: most are as long, or the long ones are as much its pace."""
        return self.pace.step if self.regular else self.pace.mean

    @property
    def starved(self) -> bool:
        pace = self.pace
        if pace.busy is not None and pace.busy >= GPU_BUSY:
            return False
        return (
            (self.regular or self.in_bursts)
            and pace.loader >= self.loader_least
            and pace.loader * self.each >= LOADER_LEAST
        )

    @property
    def loader_least(self) -> float:
        busy = self.pace.busy
        idle = busy is not None and busy < GPU_IDLE
        return LOADER if idle or not self.pace.cuda else LOADER_GPU

    @property
    def held(self) -> float:
        """Part of the samples at which a collective of it was open. Beside other work that is no
        loss by itself; but it is the same on all ranks, unless one comes late."""
        return held_of(self.pace)

    @property
    def waits(self) -> float:
        """Seconds of a step in collectives, on average."""
        return self.pace.waiting * self.pace.mean

    @property
    def alone(self) -> float:
        """Seconds of a step in which the host does something else than to wait or to start work of
        the GPU. Without one it may wait for others in a collective then."""
        waits = (self.pace.synced + self.pace.copied) * self.pace.mean
        waits += 0.0 if self.pace.cuda else self.waits
        return max(0.0, self.pace.outside - waits)

    @property
    def alone_least(self) -> float:
        """Part of a step from which that is what its GPU and the others wait for."""
        busy = self.pace.busy
        if busy is None:
            return HOST_UNSURE
        return HOST if busy < GPU_BUSY else 1.0


def held_of(pace: Pace) -> float:
    unnoticed = pace.nccl and pace.mean < NOTICED
    return pace.waiting if unnoticed else max(pace.waiting, pace.pending)


def observe(host: Host, ctx: Context) -> Pace:
    seen = load_rank(host, ctx)
    nccl = carries(seen.backends.groups, "cuda") == "nccl"
    parts = seen.parts
    pace = replace(
        seen.pace,
        busy=seen.gpu.share,
        outside=parts.between,
        backward=(parts.backward + parts.after) / parts.steps if parts.steps else 0.0,
        nccl=seen.pace.cuda and nccl,
        threads=parts.threads,
        cpu=parts.cpu,
        needless=seen.needless,
        buffers=shared_buffers(seen.models),
    )
    if not enough(pace) and not needless_work(pace.needless):
        raise nothing_seen(
            seen,
            f"{plural(pace.steps, 'step')} timed, {plural(pace.looks, 'sample')}: too few to tell "
            "where the time of a step goes",
        )
    if not pace.cpus:
        try:
            cpus = len(host.affinity()) / max(1, ctx.local_world_size)
        except CannotObserve:
            cpus = 0.0
        pace = replace(pace, cpus=cpus)
    quota = min((amount for amount, _ in host.cpu_quotas()), default=math.inf)
    return replace(pace, cpus=min(pace.cpus, quota / max(1, seen.life.here)))


def enough(pace: Pace) -> bool:
    """Whether its numbers say anything."""
    parts = (pace.loader, pace.waiting, pace.pending, pace.own_part, pace.synced, pace.copied)
    others = [pace.step, pace.mean, pace.collectives, pace.size, pace.cpus]
    others += [pace.outside, pace.backward]
    return (
        pace.steps >= STEPS
        and pace.looks >= LOOKS
        and pace.step > 0
        and all(0 <= part <= 1 for part in parts)
        and all(0 <= number < math.inf for number in others)
    )


def judge(world: World[Pace], expect: Expect) -> Iterator[Found]:
    ranks = _ranks(world)
    needless = tuple(Rank(rank_subject(here, pace.rank), pace) for here, pace in world.each())
    gathered = list(_gathered(needless))
    starved = [rank for rank in ranks if rank.starved]
    slow = _slow(ranks)
    if starved:
        yield _loader(starved, [rank for rank in ranks if rank not in starved])
    busy = () if starved else _busy_on_cpu(ranks) or (() if slow else _busy_hosts(ranks))
    # who waits for data is late for that reason, and the others wait for nothing else
    if busy and (not slow or {*busy} == {*slow}):  # which has the line
        yield _late_on_host(busy, [rank for rank in ranks if rank not in busy])
    elif slow and not any(rank in starved for rank in slow):
        yield _late(slow, [rank for rank in ranks if rank not in slow])
    elif ranks and not starved and not gathered and all(_chatty(rank) for rank in ranks):
        yield _small(ranks)
    if growing := _growing(world):
        yield growing
    elif not slow and not starved and (pickled := _pickled(ranks)):
        yield pickled
    pinned = list(_crowded(world))
    yield from pinned or _oversubscribed(world)
    yield from _profiled(needless)
    yield from gathered
    yield from _summed_anyway(needless)
    yield from _restarted(needless)
    yield from _recompiled(needless)
    yield from _collected(needless)
    yield from _constants(ranks)
    if not slow and not starved:
        yield from _zeros(ranks)


def _ranks(world: World[Pace]) -> tuple[Rank, ...]:
    return tuple(
        Rank(rank_subject(here, pace.rank), pace) for here, pace in world.each() if enough(pace)
    )


def _loader(starved: Sequence[Rank], others: Sequence[Rank]) -> Found:
    worst = max(starved, key=lambda rank: rank.pace.loader)
    pace = worst.pace
    gpu = f" · its GPU busy {_parts([pace.busy])} of it" if pace.busy is not None else ""
    unsure = pace.cuda and worst.loader_least == LOADER_GPU
    advised = max(1, min(WORKERS_MAX, int(pace.cpus))) if pace.cpus else 0
    cpus = f", {plural(int(pace.cpus) or 1, 'CPU')} per rank" if pace.cpus else ""
    idle = f" · the others {_parts([r.pace.loader for r in others])}" if others else ""
    at = pace.loading if pace.loading_part >= LOADING * pace.loader else None
    within = f" · most of it in {at.function} at {at}" if at is not None else ""
    if not advised:
        workers = "more, at most one for each CPU of the rank"
    elif pace.workers < advised:
        workers = str(advised)
    else:
        workers = "what it is, since the CPUs are used up, and make the transforms cheaper"
    return Found(
        "loader-bound",
        tuple(rank.subject for rank in starved),
        saw=f"{_who(starved)} {_parts([r.pace.loader for r in starved])} of the time for the "
        f"DataLoader, {duration(pace.loader * worst.each)} of {duration(worst.each)} per step{gpu}"
        f"{idle}{within}"
        f" · num_workers={pace.workers}{cpus}",
        expected=f"less than {_parts([worst.loader_least])}",
        confidence=Confidence.POSSIBLE if unsure else Confidence.LIKELY,
        alternatives=("the GPU computes at the same time, and sets the pace",) if unsure else (),
        fields={
            "workers": workers,
            "work": f"what {at} does" if at is not None else "the decoding and resizing",
        },
    )


def _chatty(rank: Rank) -> bool:
    pace = rank.pace
    return (
        rank.regular
        and pace.collectives >= MANY
        and 0 < pace.size < SMALL
        and rank.held >= WAITING
        and rank.held * pace.step / pace.collectives <= LATENCY
    )


def _small(ranks: Sequence[Rank]) -> Found:
    most = max(ranks, key=lambda rank: rank.pace.collectives).pace
    return Found(
        "small-collectives",
        tuple(rank.subject for rank in ranks),
        saw=f"{most.collectives:.0f} collectives per step, half of them of {size(int(most.size))} "
        f"or less · {_parts([r.held for r in ranks])} of the samples have one open · "
        f"{duration(most.step)} per step",
        expected=f"fewer than {MANY}, or larger than {size(SMALL)}",
        confidence=Confidence.LIKELY,
    )


def _growing(world: World[Pace]) -> Found | None:
    """The line whose calls carry more each time, on whichever ranks they do."""
    found = [
        (rank_subject(here, pace.rank), payload)
        for here, pace in world.each()
        for payload in pace.payloads
        if _grows(payload)
    ]
    if not found:
        return None
    worst = max((payload for _, payload in found), key=lambda payload: payload.late)
    latest = worst.all > 2 * worst.calls
    calls = f"the latest {worst.calls} of {worst.all:,} calls" if latest else f"{worst.calls} calls"
    return Found(
        "payload-grows",
        tuple(subject for subject, payload in found if payload.frame == worst.frame),
        saw=f"{worst.op} from {size(int(worst.early))} to {size(int(worst.late))} in {calls}",
        expected="about the same size in every call",
        confidence=Confidence.LIKELY,
        alternatives=("a curriculum: longer samples or larger batches on purpose",),
        fields={"line": str(worst.frame)},
    )


def _pickled(ranks: Sequence[Rank]) -> Found | None:
    """The line between the optimizer and the next forward at which all ranks exchange objects in
    each step, and where they are most often then."""
    found = [(rank, payload) for rank in ranks if (payload := _objects(rank.pace)) is not None]
    if len(found) < max(2, len(ranks)) or len({payload.frame for _, payload in found}) > 1:
        return None
    worst, payload = max(found, key=lambda one: one[0].pace.outside / one[0].pace.step)
    return Found(
        "objects-in-step",
        tuple(rank.subject for rank in ranks),
        saw=f"{payload.op} of {size(int(payload.late))} of pickled objects at {payload.frame} · "
        f"{duration(worst.pace.outside)} of {duration(worst.pace.step)} per step between the "
        "optimizer and the next forward",
        expected="tensors, or fewer steps with it",
        confidence=Confidence.POSSIBLE if worst.pace.cuda else Confidence.LIKELY,
        alternatives=("it waits for what its GPU computes meanwhile",) if worst.pace.cuda else (),
        fields={"line": str(payload.frame)},
    )


def _objects(pace: Pace) -> Volume | None:
    """What torch makes of an object: a size, then the bytes."""
    sized = {one.frame for one in pace.payloads if one.kind == "Long" and one.late <= SIZES}
    return next(
        (
            one
            for one in pace.payloads
            if one.kind == "Byte"
            and one.frame in sized
            and one.frame == pace.between
            and one.late >= (OBJECTS_GPU if pace.cuda else SMALL)
            and one.all >= EACH_STEP * pace.steps
            and pace.outside >= OBJECTS * pace.step
        ),
        None,
    )


def _crowded(world: World[Pace]) -> Iterator[Found]:
    """Ranks of a node that were bound to the same CPUs, fewer than they are themselves, where the
    command could use more."""
    bound: dict[tuple[str, tuple[int, ...]], dict[str, Pace]] = {}
    for key, pace in world.seen.items():
        if pace.pinned:
            bound.setdefault((place_of(key)[0], pace.pinned), {})[key] = pace
    for (node, cpus), there in bound.items():
        if len(there) > len(cpus):
            named = rank_list(cpus).replace("rank", "CPU", 1)
            ranks = [pace.rank for pace in there.values() if pace.rank is not None]
            yield Found(
                "cpus-shared",
                tuple(rank_subject(world.subject(key), pace.rank) for key, pace in there.items()),
                saw=f"{plural(len(there), 'rank')} of {node} on {plural(len(cpus), 'CPU')}",
                expected="a CPU of its own for each rank at least",
                confidence=Confidence.CERTAIN,
                fields={"at": rank_list(ranks) or node, "cpus": named},
            )


def _oversubscribed(world: World[Pace]) -> Iterator[Found]:
    """Ranks of a node whose operations on the CPU have more threads than there are CPUs, and that
    are held up by it. With one thread each they would have no others to wait for."""
    by_node: dict[str, dict[str, Pace]] = {}
    for key, pace in world.seen.items():
        if enough(pace) and pace.threads > 1 and pace.cpus and not pace.cuda and _helped(pace):
            by_node.setdefault(place_of(key)[0], {})[key] = pace
    for node, there in by_node.items():
        threads = sum(pace.threads for pace in there.values())
        bound = {cpu for pace in there.values() for cpu in pace.pinned}
        free = sum(pace.cpus for pace in there.values())
        cpus = len(bound) if all(pace.pinned for pace in there.values()) else free
        late = [key for key, pace in there.items() if pace.unserved >= UNSERVED]
        if threads < CROWDED * cpus or 2 * len(late) < len(there):
            continue
        worst = max(there.values(), key=lambda pace: pace.unserved)
        each = sorted({pace.threads for pace in there.values()})
        of = "-".join(str(number) for number in dict.fromkeys((each[0], each[-1])))
        ranks = [pace.rank for pace in there.values() if pace.rank is not None]
        yield Found(
            "threads-many",
            tuple(rank_subject(world.subject(key), pace.rank) for key, pace in there.items()),
            saw=f"{plural(len(there), 'rank')} with {of} threads each on "
            f"{cpus:g} {'CPU' if cpus == 1 else 'CPUs'} of {node} · ready to run without a CPU in "
            f"{_parts([there[key].unserved for key in late])} of the time · "
            f"{duration(worst.step)} per step",
            expected="at most as many threads as CPUs",
            confidence=Confidence.LIKELY,
            alternatives=("workers of a DataLoader or other programs that use these CPUs",),
            fields={
                "at": rank_list(ranks) or node,
                "each": str(max(1, int(cpus / len(there)))),
            },
        )


def _helped(pace: Pace) -> bool:
    """Whether other threads of a rank compute beside its main one."""
    return pace.cpu >= HELPED * pace.ran * pace.mean > 0


def _profiled(ranks: Sequence[Rank]) -> Iterator[Found]:
    found = [rank for rank in ranks if left_running(rank.pace.needless.profiled)]
    if not found:
        return
    one = max((rank.pace.needless.profiled for rank in found), key=lambda one: one.steps)
    line = f"the profiler started at {one.frame}" if one.frame else "a profiler"
    yield Found(
        "profiler-on",
        tuple(rank.subject for rank in found),
        saw=f"{line} has recorded {plural(one.steps, 'step')}, since step {one.since + 1}",
        expected=f"some ten steps, at most {PROFILED}",
        confidence=Confidence.CERTAIN,
        alternatives=("a run for its profile alone",),
        fields={"line": str(one.frame or "its start")},
    )


def _gathered(ranks: Sequence[Rank]) -> Iterator[Found]:
    found = {
        rank: one
        for rank in ranks
        if (one := gathered_each_step(rank.pace.needless.gathered, rank.pace.needless.whole))
    }
    if not found:
        return
    one = next(iter(found.values()))
    yield Found(
        "parameters-gathered",
        tuple(rank.subject for rank in found),
        saw=f"at {one.frame} in {plural(one.steps, 'step')} from step {max(one.first, 1)} to "
        f"{max(one.last, 1)}",
        expected="all parameters on a rank for checkpoints alone",
        confidence=Confidence.CERTAIN,
        fields={"line": str(one.frame)},
    )


def _summed_anyway(ranks: Sequence[Rank]) -> Iterator[Found]:
    found = [rank for rank in ranks if not_skipped(rank.pace.needless.no_sync)]
    if not found:
        return
    one = found[0].pace.needless.no_sync
    line = f" at {one.frame}" if one.frame else ""
    of = f"{one.late} of {plural(one.late + one.right, 'block')} of no_sync(){line}"
    yield Found(
        "no-sync-late",
        tuple(rank.subject for rank in found),
        saw=f"{of} have a backward in them whose forward came before the block",
        expected="forward and backward in one block",
        confidence=Confidence.CERTAIN,
        fields={"line": str(one.frame or "its line")},
    )


def _restarted(ranks: Sequence[Rank]) -> Iterator[Found]:
    found = [rank for rank in ranks if started_again(rank.pace.needless.starts)]
    if not found:
        return
    one = max((rank.pace.needless.starts for rank in found), key=lambda one: one.seconds)
    yield Found(
        "workers-restarted",
        tuple(rank.subject for rank in found),
        saw=f"{plural(one.times, 'time')} after the first, "
        f"{duration(one.seconds / one.times)} each: "
        f"{duration(one.seconds)} of {duration(one.within)} · num_workers={found[0].pace.workers}"
        f" · used at {one.frame or 'an unknown line'}",
        expected=f"less than {STARTING:.0%} of the time",
        confidence=Confidence.LIKELY,
        fields={"line": str(one.frame or "its line")},
    )


def _recompiled(ranks: Sequence[Rank]) -> Iterator[Found]:
    found = [rank for rank in ranks if compiled_again(rank.pace.needless.compiled)]
    if not found:
        return
    one = max((rank.pace.needless.compiled for rank in found), key=lambda one: one.seconds)
    why = f" · the latest time, since this was so before: {one.why}" if one.why else ""
    yield Found(
        "recompiled",
        tuple(rank.subject for rank in found),
        saw=f"{one.frame or 'a function'} was compiled {plural(one.times, 'time')}, in "
        f"{duration(one.seconds)} of {duration(one.within)}{why}",
        expected="once or twice",
        confidence=Confidence.LIKELY,
        alternatives=("shapes of a fixed set, each of which comes once in the beginning",),
        fields={"line": str(one.frame or "its line")},
    )


def _collected(ranks: Sequence[Rank]) -> Iterator[Found]:
    found = [rank for rank in ranks if collects_garbage(rank.pace.needless.collected)]
    if not found:
        return
    worst = max(found, key=lambda rank: rank.pace.needless.collected.seconds)
    one = worst.pace.needless.collected
    # the others wait for those that take the longest
    found = [r for r in found if 2 * r.pace.needless.collected.seconds >= one.seconds]
    there = f", most of it at {one.frame}" if one.frame and 2 * one.there > one.seconds else ""
    yield Found(
        "garbage-collected",
        tuple(rank.subject for rank in found),
        saw=f"{plural(one.times, 'collection')} of {name_of(worst.subject)} in "
        f"{duration(one.within)} took {duration(one.seconds)}, the longest "
        f"{duration(one.longest)}{there}",
        expected=f"less than {_parts([COLLECTING])} of the time",
        confidence=Confidence.LIKELY,
    )


def _constants(ranks: Sequence[Rank]) -> Iterator[Found]:
    if len(ranks) < 2:
        return
    found = ranks[0].pace.buffers
    if found.bytes < max(BUFFERS, BUFFERS_PART * found.gradients):
        return
    line = str(found.frame) if found.frame else "the line that makes it"
    yield Found(
        "buffers-broadcast",
        tuple(rank.subject for rank in ranks),
        saw=f"{plural(found.count, 'buffer')} of {size(found.bytes)}, the largest {found.largest}"
        f" · gradients of {size(found.gradients)} · {duration(ranks[0].pace.step)} per step",
        expected="buffers that change, such as running statistics, alone",
        confidence=Confidence.LIKELY,
        fields={
            "bytes": size(found.bytes),
            "gradients": size(found.gradients),
            "line": line,
            "largest": found.largest.partition(" ")[0],
        },
    )


def _zeros(ranks: Sequence[Rank]) -> Iterator[Found]:
    tables = [mostly_zero(rank.pace.needless.tables) for rank in ranks]
    table = tables[0] if len(tables) > 1 and all(tables) else None
    if table is None or min(rank.held for rank in ranks) < WAITING:
        return
    used = f"{table.used:.1%}" if table.used else "next to none"
    yield Found(
        "gradient-mostly-zero",
        tuple(rank.subject for rank in ranks),
        saw=f"{size(table.bytes)} of {size(table.whole)} are the gradient of {table.name} "
        f"({table.rows:,} x {table.columns}), in which {used} of the rows are not zero · "
        f"{_parts([r.held for r in ranks])} of the samples have a collective open",
        expected="gradients of the rows that are in use",
        confidence=Confidence.LIKELY,
        fields={"table": table.name},
    )


def _grows(payload: Volume) -> bool:
    rises = payload.rises >= ALWAYS
    always = rises and payload.calls >= ALWAYS_CALLS
    often = payload.rises >= GROWS and payload.calls >= GROWING_CALLS
    grown = payload.early * (ALWAYS_GROWN if always else GROWN)
    begins = _begins(payload)
    if rises and FROM_CALLS <= payload.calls < ALWAYS_CALLS <= payload.all:
        always = abs(begins) <= FROM_NOTHING * payload.late
    if always and GROWN * begins <= payload.late:
        grown = 0.0
    least = SMALL if always else GROWN_LEAST
    return (always or often) and max(least, grown) <= payload.late < math.inf


def _begins(payload: Volume) -> float:
    """Bytes of the first call, if it has grown all the time as it has in the latest ones; below 0
    where it has not."""
    each = (payload.late - payload.early) / (payload.calls - payload.calls // 4)
    return payload.late - each * max(payload.all, payload.calls)


def _slow(ranks: Sequence[Rank]) -> tuple[Rank, ...]:
    """Those that hardly wait where all others do: they are waited for. Where a thread keeps
    Python's lock from the main one, some steps take many times as long as usual; or every 20th step
    does, where the rank does more in it."""
    if len(ranks) < 2:
        return ()
    first = min(ranks, key=lambda rank: rank.held)
    threaded = _thread(first, [rank for rank in ranks if rank is not first]) is not None
    regular = all(rank.regular for rank in ranks)
    if not (threaded or regular or all(rank.pauses_every for rank in ranks)):
        return ()
    steps = [rank.pace.step if regular and not threaded else rank.pace.mean for rank in ranks]
    if max(steps) > SAME_PACE * min(steps):
        return ()
    waits = {str(i): rank.held for i, rank in enumerate(ranks)}
    if len(ranks) >= ENOUGH:
        odd, apart = {int(key) for key in outliers(waits, high=False).odd}, APART
    else:
        odd, apart = {min(range(len(ranks)), key=lambda i: ranks[i].held)}, APART_FEW
    slow = tuple(rank for i, rank in enumerate(ranks) if i in odd)
    others = [rank for i, rank in enumerate(ranks) if i not in odd]
    if not slow or median(rank.held for rank in others) < WAITED:
        return ()
    late = max(slow, key=lambda rank: rank.held)
    soonest = min(others, key=lambda rank: rank.held)
    gap = soonest.held - late.held
    sure = gap >= max(apart, NOISE * _error(late, soonest))
    lost = gap * min(steps) >= SLOW_LEAST
    # it calls what they call
    usual = median(rank.pace.collectives for rank in others)
    alike = all(2 * rank.pace.collectives >= usual for rank in slow)
    return slow if sure and lost and alike else ()


def _error(one: Rank, other: Rank) -> float:
    """Standard error of the difference between two parts of the samples, if these are equal."""
    part = (one.held + other.held) / 2
    return math.sqrt(part * (1 - part) * (1 / one.pace.looks + 1 / other.pace.looks))


def _late(slow: Sequence[Rank], others: Sequence[Rank]) -> Found:
    first = min(slow, key=lambda rank: rank.held)
    step = first.pace.step if first.regular else first.pace.mean
    own, every = first.pace.own, first.pauses_every
    same = own is not None and any(rank.pace.own == own for rank in others)
    where = ""
    if own is not None:
        most = "the others, too, when they don't wait" if same else "the others elsewhere"
        where = (
            f" · {name_of(first.subject)} is most often at {own} in {own.function} "
            f"({_parts([first.pace.own_part])}), {most}"
        )
    return Found(
        "rank-slow",
        tuple(rank.subject for rank in slow),
        saw=f"{_who(slow)} for a collective in {_parts([r.held for r in slow])} of the "
        f"samples, the others in {_parts([r.held for r in others])}{where}"
        f"{_threads_part(first, others)} · {duration(step)} per step",
        expected="about as much waiting on every rank",
        blame=Blame.JOB if (own is not None and not same) or _thread(first, others) else None,
        confidence=Confidence.LIKELY,
        fields={
            "line": _line(first, others, str(own or "")),
            "often": f"1 step of {every}" if every else EACH,
        },
    )


def _thread(slow: Rank, others: Sequence[Rank]) -> BusyThread | None:
    """The thread beside the main one that computes on the slow rank, and does not on the others."""
    thread = slow.pace.thread
    theirs = [rank.pace.thread.cpu for rank in others if rank.pace.thread is not None]
    if thread is None or thread.cpu < THREAD_CPU or 2 * max(theirs, default=0.0) > thread.cpu:
        return None
    return thread


def _threads_part(slow: Rank, others: Sequence[Rank]) -> str:
    thread = _thread(slow, others)
    if thread is None:
        return ""
    at = f", mostly at {thread.at} in {thread.at.function}" if thread.at is not None else ""
    return f" · its thread '{thread.name}' uses {_parts([thread.cpu])} of a CPU{at}"


def _line(slow: Rank, others: Sequence[Rank], own: str) -> str:
    """What to look at: a thread that keeps the interpreter from the main one, before what that one
    does meanwhile."""
    thread = _thread(slow, others)
    at = str(thread.at) if thread is not None and thread.at is not None else own
    return at or "what this rank does alone"


def _busy_hosts(ranks: Sequence[Rank]) -> tuple[Rank, ...]:
    """Over NCCL: those whose own code makes the step as long as it is. The others don't wait on the
    host, which only starts work, and are as fast as they may run ahead."""
    means = [rank.pace.mean for rank in ranks]
    if len(ranks) < 2 or not all(rank.pace.nccl for rank in ranks):
        return ()
    if min(means) <= 0 or max(means) > SAME_PACE * min(means):
        return ()
    step = min(means)
    busy = tuple(rank for rank in ranks if rank.alone >= rank.alone_least * rank.pace.mean)
    others = [rank.alone for rank in ranks if rank not in busy]
    if not busy or 2 * len(busy) > len(ranks):
        return ()
    gap = min(rank.alone for rank in busy) - max(others)
    return busy if gap >= max(HOST_APART * step, SLOW_LEAST) else ()


def _busy_on_cpu(ranks: Sequence[Rank]) -> tuple[Rank, ...]:
    """Without GPUs: those that are in own code between optimizer and forward for as long as the
    others wait: in a backward pass that takes them longer, or in a collective between these two."""
    if len(ranks) < 2 or any(rank.pace.cuda or not rank.regular for rank in ranks):
        return ()
    steps = [rank.pace.step for rank in ranks]
    if max(steps) > SAME_PACE * min(steps):
        return ()
    busy = tuple(rank for rank in ranks if rank.alone >= HELD_UP * rank.pace.step)
    others = [rank for rank in ranks if rank not in busy]
    if not busy or 2 * len(busy) > len(ranks):
        return ()
    gap = min(rank.alone for rank in busy) - max(rank.alone for rank in others)
    waits = (
        min(rank.pace.backward for rank in others) - max(rank.pace.backward for rank in busy),
        min(rank.waits for rank in others) - max(rank.waits for rank in busy),
    )
    return busy if gap >= max(HELD_UP * min(steps), SLOW_LEAST) and max(waits) >= gap / 2 else ()


def _late_on_host(busy: Sequence[Rank], others: Sequence[Rank]) -> Found:
    first = max(busy, key=lambda rank: rank.alone)
    pace = first.pace
    unsure = pace.busy is None and pace.cuda
    line = f", mostly at {pace.between}" if pace.between else ""
    gpu = "" if pace.busy is None else f" · its GPU busy {_parts([pace.busy])} of the time"
    return Found(
        "rank-slow",
        tuple(rank.subject for rank in busy),
        saw=f"{name_of(first.subject)} is busy for {duration(first.alone)} of "
        f"{duration(pace.mean)} per step between the optimizer and the next forward{line}; the "
        f"others for {duration(max(rank.alone for rank in others))}{gpu}"
        f"{_threads_part(first, others)}",
        expected="about as much of that on every rank",
        blame=Blame.JOB,
        confidence=Confidence.POSSIBLE if unsure else Confidence.LIKELY,
        alternatives=("its GPU computes at the same time, and sets the pace",) if unsure else (),
        fields={"line": _line(first, others, str(pace.between or "")), "often": EACH},
    )


def _who(ranks: Sequence[Rank]) -> str:
    if len(ranks) == 1:
        return f"{name_of(ranks[0].subject)} waits"
    numbers = rank_list(n for rank in ranks for n in rank.subject.ranks)
    return f"{numbers or plural(len(ranks), 'rank')} wait"


def _parts(numbers: Sequence[float]) -> str:
    low, high = round(100 * min(numbers)), round(100 * max(numbers))
    return f"{low} %" if low == high else f"{low}-{high} %"


def measured(world: World[Pace]) -> Measured:
    ranks = [rank.pace for rank in _ranks(world)]
    if not ranks:
        return Measured()
    # a host that runs ahead of its GPU has many short steps and a few in which it waits for it
    step = median(pace.mean if pace.nccl and pace.mean else pace.step for pace in ranks)
    # where the GPUs wait for each other, the hosts do not
    hosts = any(held_of(pace) for pace in ranks) or not all(pace.nccl for pace in ranks)
    summed = f"{_parts([p.waiting for p in ranks])} in collectives · " if hosts else ""
    waiting = median(pace.waiting for pace in ranks)
    loader = median(pace.loader for pace in ranks)
    return Measured(
        f"{duration(step)} per step · {summed}{_parts([p.loader for p in ranks])} for data",
        {
            "step_s": round(step, 6),
            "steps": min(pace.steps for pace in ranks),
            "waiting": round(waiting, 3),
            "loader": round(loader, 3),
            "collectives_a_step": round(median(pace.collectives for pace in ranks), 1),
        },
        lanes=Lanes(
            "what a step of each rank is made of",
            "s per step",
            tuple(Swimlane(key, _spans(seen)) for key, seen in world.seen.items() if enough(seen)),
        ),
    )


def _spans(pace: Pace) -> tuple[Span, ...]:
    """A step: data, the user's own code, other ranks. Their parts, not their order."""
    held = min(held_of(pace), 1.0)
    data = min(pace.loader, 1.0)
    own = max(0.0, 1.0 - held - data)
    spans, at = [], 0.0
    for part, doing, text in (
        (data, Doing.DATA, "waits for data"),
        (own, Doing.WORK, f"own code, mostly {pace.own}" if pace.own else "own code"),
        (held, Doing.WAIT, "in collectives"),
    ):
        end = at + part * pace.step / max(data + own + held, 1.0)
        if end > at:
            spans.append(Span(round(at, 6), round(end, 6), doing, f"{text}: {part:.0%}"))
        at = end
    return tuple(spans)
