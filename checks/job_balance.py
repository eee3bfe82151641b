"""Do all ranks have the same work, and do they get to it: batches, lengths, memory, own code?

Level        deep
Looks at     of each rank of a rehearsed command: samples and elements of the batches that its
             DataLoader gave for its steps, and of what the forward of DDP or FSDP gets; seed, epoch
             and part of torch's DistributedSampler in each pass, what else divides the samples
             among ranks, and whether the dataset is a rank's own part already, or has other samples
             than elsewhere (indices, file names, rows of a larger tensor); of a few steps how many
             labels are not ignored (-100), what torch's generators gave between the batch and the
             forward, and in which state they were; what torch has reserved on its GPU, and what the
             driver tells of that once a second: utilisation, SM clock, memory, power; on the host
             the time in DDP's forward, from there to the end of backward, to the optimizer, in it,
             and from there to the next forward; CPU time
Fails if     never: uneven work trains, too
Warns if     a rank has a quarter more samples per batch than most, or as many samples with a third
             more elements (longer sequences), or most have that much more than it; the ranks take
             their parts of one dataset from different orders of it, or of datasets of which each
             has samples that another one lacks; some shards are loaded by no rank, samples are
             divided among the ranks twice, or all ranks give DDP the same inputs in all steps that
             are looked at, or have the same integers (labels) and different other numbers in
             batches that torch's own samplers drew, or draw the same random numbers for different
             samples; a rank has a quarter of the labels of the others or less, in 8 of 10 steps,
             and no number is exchanged in each step; three training epochs have the same shuffle
             order; a rank has 30 % and 1 GiB more on its GPU than most, and half of the GPU's
             memory; a loaded GPU's SM clock is a fifth below that of at least two others of its
             model; in 30 % of the looks a rank waits for its GPU (.item(), .cpu(), float(loss),
             `if loss > y`, synchronize(), a tensor that is printed), which idles in 20 % of the
             time; on the CPU, every rank spends 40 % of its usual step and 30 ms in own code
             between backward and the next forward, but for the optimizer and the DataLoader; every
             rank begins a new pass over its DataLoader for each batch, which starts its workers
             again or gives the same batch
Undecided    fewer than 8 batches; not a rehearsal (preflight rehearse -- CMD)
Not covered  data of no DataLoader, but for its amount where DDP or FSDP gets it; samplers of other
             classes; random numbers of NumPy or of a generator of the script's own, and what the
             forward draws, as dropout does; labels on a GPU, and those that a mask of the script's
             leaves out; a part of a dataset that several ranks take (model parallel, parts of a
             sequence); padding (padded elements count as others); parts of a GPU (MIG); the GPU's
             own time of each part
Seen as      no error at all: all ranks wait for the one with the most work; "CUDA out of memory" on
             one rank alone; "GPU-Util" of nvidia-smi low on some; a gradient that is not the mean
             over all samples
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from preflight.check import Context
from preflight.domains.job.draws import same_draws
from preflight.domains.job.frame import Frame
from preflight.domains.job.gpu_use import GpuUse, slow_clocks
from preflight.domains.job.labels import TIMES, is_of_few, uneven_labels
from preflight.domains.job.load import REHEARSAL, for_author, load_rank, nothing_seen, rank_subject
from preflight.domains.job.record import Calls, Loader
from preflight.domains.job.replica import odd_ones
from preflight.domains.job.shared_data import (
    Dealt,
    SharedTwice,
    Shares,
    missed,
    repeated,
    same_inputs,
    same_labels,
    shared_twice,
    taken,
    told_apart,
    unlike_orders,
    unlike_samples,
)
from preflight.domains.job.step_parts import BatchAmount, StepPart, StepParts, Timed
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, plural, rank_list, size
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
    Subject,
    Swimlane,
    World,
)

CHECK = replace(REHEARSAL, required=False)

BATCHES = 8
"""Below that the last batch of an epoch, which may be smaller, says too much."""
SAMPLES, CONTENT = 1.25, 1.33
"""More than most by so much. A last batch that is smaller, or one sample more, stays below."""
SURE = 4.0
"""Standard errors by which the content of batches must differ: lengths vary by chance."""
SAME_STEPS = 0.8
"""Ranks that do other work, such as to evaluate, make other numbers of steps."""
MEMORY, MEMORY_LEAST, MEMORY_PART = 1.3, 1 << 30, 0.5
CLOCK = 0.8
"""Of the peers' clock. Under the same load and power limit GPUs of a model differ by a few
percent."""
BLOCKED, BLOCKED_LEAST = 0.4, 0.03
"""Part of a usual step, and seconds of it, in which every rank does something else."""
PASSES = 0.9
"""Passes over a DataLoader for each batch that it gave, from which they are of one batch each."""
DRAWS = frozenset({"RandomSampler", "WeightedRandomSampler"})
"""Samplers of torch's of which each pass begins with another batch."""
TIMED = "a test of speed alone, for which all ranks make up the same data"
SAMPLERS = frozenset({"RandomSampler", "SequentialSampler", "_InfiniteConstantSampler"})
"""How torch calls what draws samples where a script passes no sampler; the last one is that of an
IterableDataset."""
WHOLE = 0.9
"""Part of a batch that goes into the model, from which on it is all of it."""
MOST = 128
"""Ranks in the report, and those of a job of which each step is drawn."""
LOOKS, SYNCED, MISSED, DATA = 20, 0.3, 0.2, 0.3
"""Looks at a rank; parts of them in which it waited for its GPU, and of the time that the GPU
missed by that, before it is worth a word. Where it waits for data that long, the GPU does so."""
EXCHANGED = 0.8
"""Small collectives per step, from which on ranks may tell each other how many labels they have."""
SHOWN = 4
"""Orders of the data that are told."""
ROWS = 8
"""Ranks that have a row of the table: of more those with the longest steps."""

FINDINGS = {
    "batch-uneven": for_author(
        headline="the ranks have different amounts of work: {seen}",
        cause="a batch size that depends on the rank, data that is sorted by length before it is "
        "split, one rank with other files",
        means="no error at all: all ranks wait in every step for the one with the most work, and "
        "DDP weighs its samples less than those of the others",
        text="give all ranks the same batch size; shuffle before the data is split, or batch by "
        "length over all ranks",
        status=Status.WARN,
    ),
    "orders-differ": for_author(
        headline="the ranks take their parts of the data from different orders of it: {seen}",
        cause="a seed for DistributedSampler that comes from the clock, the rank or a random "
        "number, or set_epoch with another number on some ranks",
        means="no error at all: in such an epoch about {missed!s} of the samples are used by no "
        "rank, and others by several",
        text="give all ranks {hint!s} for what {line!s} iterates: each takes its part of the "
        "order that comes from seed + epoch",
        status=Status.WARN,
    ),
    "samples-differ": for_author(
        headline="the ranks divide different datasets among themselves: {seen}",
        cause="random_split, train_test_split, shuffle or sample before DistributedSampler, from "
        "random numbers whose seed contains the rank or was never set; the order of os.listdir, "
        "glob or a set",
        means="no error at all: some samples are used by several ranks and others by none, and a "
        "rank may train on what another one holds out for validation",
        text="use one seed on all ranks for what splits or shuffles (generator= of random_split, "
        "seed= of train_test_split, random.Random(seed)), and sort lists of files, before the "
        "loop at {line!s}",
        status=Status.WARN,
        explains=("job.script:order-per-rank",),
    ),
    "gpu-memory-uneven": for_author(
        headline="{at} uses more GPU memory than the others: {seen}",
        cause="buffers, logs or an evaluation that only this rank has, checkpoints that are loaded "
        "to GPU 0, longer samples",
        means="'CUDA out of memory' on this rank alone, while the others have room",
        text="load checkpoints with map_location='cpu'; put what only one rank needs on the CPU",
        status=Status.WARN,
    ),
    "gpu-clock-low": FindingType(
        headline="{at} has a GPU that runs slower than the others: {seen}",
        who="cluster administrator",
        cause="heat, a lower power limit, locked clocks, or an HW Power Brake Slowdown",
        means="no error at all: all ranks wait in every step for this one",
        text="look at the reasons in the output, then at fans and at the settings of the other "
        "GPUs; preflight run --only gpu compares them",
        commands=(Command("nvidia-smi -q -d CLOCK,PERFORMANCE,POWER", "the node"),),
        status=Status.WARN,
        blame=(Blame.NODE,),
    ),
    "gpu-synchronised": for_author(
        headline="the host waits for the GPU in its steps, then the GPU for the host: {seen}",
        cause="the loss read or printed in every step, torch.cuda.synchronize() for timing or left "
        "from a search for an error, metrics on the CPU",
        means="no error at all: steps could be up to {saved!s} shorter",
        text="keep {call!s} at {line!s} out of most steps: sum the loss on the GPU and read it "
        "every 100 steps; time with torch.cuda.Event; copy with non_blocking=True",
        status=Status.WARN,
    ),
    "shards-unused": for_author(
        headline="several ranks load the same shard of the data, others are not loaded: {seen}",
        cause="DistributedSampler(rank=…) with an argument that has the same value on all ranks, "
        "such as --local_rank, which torchrun does not pass",
        means="no error at all: some samples are used several times per epoch, the rest never",
        text="pass no rank and no num_replicas to the DistributedSampler of the loader at "
        "{line!s}, or rank=torch.distributed.get_rank()",
        status=Status.WARN,
    ),
    "data-shared-twice": for_author(
        headline="the data is divided among the ranks twice: {seen}",
        cause="a dataset that is a rank's own part already (shard(), data[rank::world_size], a "
        "Subset of it) in a DataLoader with a DistributedSampler; a DataLoader with a "
        "DistributedSampler given to Accelerate, which divides it as well",
        means="no error at all: an epoch uses only a part of the samples, and ends earlier",
        text="let one of these divide the samples of the loop at {line!s}: {hint!s}",
        status=Status.WARN,
    ),
    "inputs-same": for_author(
        headline="all ranks compute with the same batches: {seen}",
        cause="a DataLoader without a DistributedSampler and with the same seed on all ranks, an "
        "IterableDataset that each rank reads whole, a sampler that does not know of ranks",
        means="no error at all: all ranks learn from the same samples, and the job as one of them "
        "alone would, in the same time",
        text="give each rank its own part of the data at {line!s}: a DistributedSampler, in an "
        "IterableDataset every world_size-th sample from get_rank() on",
        status=Status.WARN,
        explains=("job.script:sampler-missing",),
    ),
    "noise-same": for_author(
        headline="all ranks draw the same random numbers in their steps: {seen}",
        cause="one seed on all ranks (torch.manual_seed, set_seed, seed_everything), and noise, "
        "timesteps, masks or augmentations that are drawn from it in the training loop",
        means="no error at all: the samples of all ranks get the same noise, of which a step has "
        "as little then as one rank alone",
        text="call torch.manual_seed(seed + rank) once the model is built, before the loop at "
        "{line!s}; set_seed(seed, device_specific=True) with Accelerate; or draw from a "
        "torch.Generator of each rank's own",
        status=Status.WARN,
    ),
    "labels-uneven": for_author(
        headline="the ranks average their losses over very different numbers of labels: {seen}",
        cause="data that is split by source, so that one rank has long answers and another one "
        "short ones; labels that are masked (-100) on some ranks only",
        means="no error at all: DDP and FSDP average the gradients of means, so that a label of a "
        "rank with few of them counts {times!s} times as much",
        text="let each rank have samples of all sources: shuffle before the data is split; or sum "
        "the loss, divide it by the number of labels of all ranks, which takes an all_reduce in "
        "each step, and multiply it by world_size",
        status=Status.WARN,
    ),
    "order-repeats": for_author(
        headline="every epoch has the same shuffle order: {seen}",
        cause="no call of set_epoch, or on a DistributedSampler that is not the DataLoader's own",
        means="no error at all: every epoch has the same batches in the same order",
        text="call set_epoch(epoch) of the sampler of the DataLoader at {line!s} in each epoch: "
        "loader.sampler, or loader.batch_sampler.sampler where it was made with batch_sampler=",
        status=Status.WARN,
        explains=("job.script:set-epoch-missing",),
    ),
    "loader-restarted": for_author(
        headline="a new iterator of the DataLoader is created for every batch: {seen}",
        cause="next(iter(loader)) in the training loop",
        means="no error at all: {means!s}",
        text="create the iterator once per epoch: `for batch in loader`, or keep iter(loader) at "
        "{line!s} and create a new one on StopIteration",
        status=Status.WARN,
    ),
    "step-blocked": for_author(
        headline="all ranks do something else in every step before they go on: {seen}",
        cause="a checkpoint, a log, tokenising or other work of the CPU in the training loop",
        means="no error at all: the GPUs idle meanwhile",
        text="keep {line!s} out of the loop: tokenise in workers of a DataLoader, save "
        "and log every so many steps or in a thread (torch.distributed.checkpoint.async_save)",
        status=Status.WARN,
    ),
}


@dataclass(frozen=True, slots=True)
class Work:
    """Of one rank. step: median seconds of a step; loader: part of the time in which it waited for
    data; summed: bytes that its collectives take per step; gpu, limit: bytes on its GPU."""

    rank: int | None
    parts: StepParts
    steps: int = 0
    step: float = 0.0
    loader: float = 0.0
    summed: float = 0.0
    gpu: int = 0
    limit: int = 0
    between: Frame | None = None
    after: Frame | None = None
    asynchronous: bool = False
    """Its model is on a GPU, which may work while the host does something else."""
    use: GpuUse = GpuUse()
    looks: int = 0
    synced: float = 0.0
    sync: str = ""
    sync_at: Frame | None = None
    dealt: tuple[Dealt, ...] = ()
    data: Loader | None = None
    batches: int = 0
    """Got from all its DataLoaders."""
    world: int = 0
    shares: tuple[Shares, ...] = ()
    shared: bool = False
    """All that it wraps is in DDP of all ranks, which exchange nothing else."""
    numbers: float = 0.0
    """Calls per step that exchange a number or a few."""

    @property
    def missed(self) -> float:
        """Part of the time in which its GPU does nothing for the host's waiting: the host waits for
        the GPU instead of preparing what it could do next, and then the GPU for the host."""
        share = self.use.share
        if share is None or not self.asynchronous or self.looks < LOOKS or self.loader >= DATA:
            return 0.0
        return min(self.synced, 1.0 - share)

    @property
    def held(self) -> int:
        """Bytes on its GPU that are torch's, with what it keeps for later."""
        return max(self.gpu, self.use.reserved)


def observe(host: Host, ctx: Context) -> Work:
    seen = load_rank(host, ctx)
    if not seen.parts.batches and not seen.parts.steps:
        raise nothing_seen(
            seen, "no step with an optimizer of torch's, and no batch of a DataLoader"
        )
    calls = sum(group.enqueued for group in seen.calls.groups)
    return Work(
        rank=seen.life.rank,
        parts=seen.parts if seen.life.world <= MOST else replace(seen.parts, latest=()),
        steps=seen.calls.steps,
        step=seen.pace.step,
        loader=seen.pace.loader,
        summed=seen.pace.mean_size * calls / max(1, seen.calls.steps),
        gpu=max((used for *_, used in seen.growth.samples), default=0),
        limit=seen.growth.gpu_limit,
        between=seen.pace.between,
        after=seen.pace.after,
        asynchronous=bool(seen.gpu.reserved) or any(d != "cpu" for d in seen.backends.models),
        use=seen.gpu,
        looks=seen.pace.looks,
        synced=seen.pace.synced,
        sync=seen.pace.sync,
        sync_at=seen.pace.sync_at,
        dealt=seen.dealt,
        data=seen.calls.loader,
        batches=seen.calls.batches,
        world=seen.life.world,
        shares=seen.shares,
        shared=any(model.kind == "ddp" for model in seen.models)
        and not seen.exchanges
        and not any("own_group" in model.options for model in seen.models),
        numbers=_numbers(seen.calls, calls),
    )


def _numbers(seen: Calls, made: int) -> float:
    """How often per step a few numbers are exchanged, such as how many labels there are: of the
    latest calls, as far as they are kept."""
    known = [call for group in seen.groups for call in group.calls if not call.p2p]
    few = sum(is_of_few(call.shape) for call in known)
    return few / len(known) * made / seen.steps if known and seen.steps else 0.0


Rank = tuple[Subject, Work]


def judge(world: World[Work], expect: Expect) -> Iterator[Found]:
    ranks = [(rank_subject(here, seen.rank), seen) for here, seen in world.each()]
    yield from _batches(ranks)
    shared = list(_shards_unused(ranks))
    yield from shared or _orders(ranks)
    same = [] if shared else list(_same(ranks))
    yield from same
    yield from () if shared else _shared_twice(ranks)
    yield from () if shared else _samples(ranks)
    yield from () if same else _noise(ranks)
    yield from _labels(ranks)
    yield from _repeats(ranks)
    yield from _memory(ranks)
    yield from _clocks(ranks)
    restarted = list(_restarted(ranks))
    yield from restarted or _blocked(ranks)  # to start workers is what blocks the step then
    yield from _synchronised(ranks)


def _batches(ranks: Sequence[Rank]) -> Iterator[Found]:
    """What the DataLoaders gave, else what the models got: it may be made by the script itself."""
    yield from list(_amounts(ranks, _data)) or _amounts(ranks, _inputs)


def _data(work: Work) -> BatchAmount:
    return work.parts.data


def _inputs(work: Work) -> BatchAmount:
    """Of models whose gradients all ranks average: stages of a pipeline get different things."""
    return work.parts.inputs if work.parts.inputs.ranks == work.world > 1 else BatchAmount()


def _amounts(ranks: Sequence[Rank], of: Callable[[Work], BatchAmount]) -> Iterator[Found]:
    known = [(s, w) for s, w in ranks if of(w).batches >= BATCHES and of(w).size]
    if len(known) < 2 or len(known) < len(ranks):
        return
    for counts in ([work.steps for _, work in known], [of(work).batches for _, work in known]):
        if min(counts) < SAME_STEPS * max(counts):
            return
    # many short samples on one rank and few long ones on another, as token budgets make them
    if not _unlike(known, lambda work: of(work).size * of(work).content, SAMPLES):
        return
    if odd := _unlike(known, lambda work: of(work).size, SAMPLES):
        yield _uneven(known, odd, "samples per batch", of, lambda amount: amount.size)
        return
    noise = SURE * max(of(work).error for _, work in known)
    if odd := _unlike(known, lambda work: of(work).content, max(CONTENT, 1 + noise)):
        yield _uneven(known, odd, "elements per sample", of, lambda amount: amount.content)


def _unlike(ranks: Sequence[Rank], of: Callable[[Work], float], times: float) -> list[Rank]:
    """The ranks with more than `times` the usual amount (of two ranks: the smaller one); where
    there are none, those with less than the usual amount / `times`, which wait for the others."""
    values = [of(work) for _, work in ranks]
    usual = median(values) if len(values) > 2 else min(values)
    more = [(s, w) for s, w in ranks if usual and of(w) > times * usual]
    return more or [(s, w) for s, w in ranks if 0 < times * of(w) < usual]


def _uneven(
    ranks: Sequence[Rank],
    odd: Sequence[Rank],
    what: str,
    of: Callable[[Work], BatchAmount],
    count: Callable[[BatchAmount], float],
) -> Found:
    rest = [of(work) for subject, work in ranks if subject not in {s for s, _ in odd}]
    numbers = rank_list(n for subject, _ in odd for n in subject.ranks)
    usual = median(map(count, rest))
    worst = max((of(work) for _, work in odd), key=lambda amount: abs(count(amount) - usual))
    have = "has" if len(odd) == 1 else "have"
    line = f" · given to the model at {worst.frame}" if worst.frame else ""
    return Found(
        "batch-uneven",
        tuple(subject for subject, _ in odd),
        saw=f"{numbers} {have} {count(worst):.4g} {what}, the others {usual:.4g} · "
        f"latest shape {worst.shape}, elsewhere {rest[0].shape}{line}",
        expected="about as much on every rank",
        confidence=Confidence.CERTAIN,
    )


def _by_rank(ranks: Sequence[Rank]) -> tuple[dict[int, Rank], int]:
    """Those that are known by their number in the job, and how many ranks this has."""
    known = {work.rank: (subject, work) for subject, work in ranks if work.rank is not None}
    return known, max((work.world for _, work in known.values()), default=0)


def _orders(ranks: Sequence[Rank]) -> Iterator[Found]:
    known, _ = _by_rank(ranks)
    dealt = unlike_orders(
        {rank: work.dealt for rank, (_, work) in known.items()},
        {rank: work.steps for rank, (_, work) in known.items()},
    )
    if dealt is None:
        return
    odd, _ = odd_ones({rank: one.order for rank, one in dealt.items()})
    rows = [f"{told} on {rank_list(of)}" for told, of in told_apart(dealt)]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    first = dealt[odd[0]]
    line = str(first.frame) if first.frame else "the loop"
    yield Found(
        "orders-differ",
        tuple(known[rank][0] for rank in odd),
        saw=f"{'; '.join(rows[:SHOWN])}{more} · iterated at {line}, after "
        f"{plural(first.steps, 'step')} · {first.length:,} samples in {first.replicas} parts",
        expected="one order of the data on all ranks that share it",
        confidence=Confidence.LIKELY,
        alternatives=("the ranks are meant to draw samples independently of each other",),
        fields={"line": line, "missed": _part(missed(dealt)), "hint": _one_order(dealt)},
    )


def _shards_unused(ranks: Sequence[Rank]) -> Iterator[Found]:
    known, world = _by_rank(ranks)
    found = taken({rank: work.dealt for rank, (_, work) in known.items()}, world)
    if found is None:
        return
    first, parts = found
    line = str(first.frame) if first.frame else "the loop"
    rows = [f"shard {part} on {rank_list(of)}" for part, of in parts.items()]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    yield Found(
        "shards-unused",
        tuple(known[rank][0] for of in parts.values() if len(of) > 1 for rank in of),
        saw=f"{', '.join(rows[:SHOWN])}{more} · {len(parts)} of {world} shards of "
        f"{first.length:,} samples loaded · iterated at {line}",
        expected="a different shard on every rank",
        confidence=Confidence.LIKELY,
        fields={"line": line},
    )


def _shared_twice(ranks: Sequence[Rank]) -> Iterator[Found]:
    known, world = _by_rank(ranks)
    found = shared_twice({rank: work.shares for rank, (_, work) in known.items()}, world)
    if found is None:
        return
    line = str(found.loop.frame) if found.loop.frame else "the loop"
    sharers = [f"{one.by} takes one of {one.parts} parts" for one in found.loop.sharers]
    if (own := found.own) is not None:
        of = f" of {own.of:,}" if own.of and own.marks else ""
        sharers = [f"each dataset is a part of its own ({own.kind}, {own.length:,}{of})", *sharers]
    used = world / (found.parts * found.shards)
    yield Found(
        "data-shared-twice",
        tuple(subject for subject, _ in known.values()),
        saw=f"{', then '.join(sharers)}, on {plural(world, 'rank')} · {used:.3g} of the samples in "
        f"an epoch · iterated at {line}",
        expected="each sample on one rank in an epoch",
        confidence=Confidence.LIKELY if own is not None else Confidence.CERTAIN,
        alternatives=("the ranks are meant to use a part of their data only",) if own else (),
        fields={"line": line, "hint": _once(found)},
    )


def _samples(ranks: Sequence[Rank]) -> Iterator[Found]:
    known, world = _by_rank(ranks)
    found = unlike_samples({rank: work.shares for rank, (_, work) in known.items()}, world)
    if found is None:
        return
    loop, samples = found
    line = str(loop.frame) if loop.frame else "the loop"
    odd, _ = odd_ones({rank: (one.marks, one.order) for rank, one in samples.items()})
    lengths = sorted({one.length for one in samples.values()})
    one = samples[odd[0]]
    have = "to ".join(f"{length:,} " for length in (lengths[0], lengths[-1])[: len(lengths)])
    of = f"of {one.of:,} " if one.of else ""
    same = len({(one.length, one.marks) for one in samples.values()}) == 1
    told = "the same in other orders" if same else "not the same"
    on = "on all ranks" if len(odd) == len(samples) else f"on {rank_list(odd)}"
    yield Found(
        "samples-differ",
        tuple(known[rank][0] for rank in odd),
        saw=f"{one.kind} with {have}{of}samples, {told} {on} · {loop.sharers[0].by} gives each "
        f"rank one of {world} parts · iterated at {line}",
        expected="one dataset in one order on all ranks that share it",
        confidence=Confidence.LIKELY,
        alternatives=("each rank is meant to draw its own part of the data",),
        fields={"line": line},
    )


def _once(found: SharedTwice) -> str:
    """What to leave out."""
    if found.own is not None:
        return "give all ranks the whole dataset, or leave the sampler out: shuffle=True"
    return f"leave {found.loop.sharers[-1].by} out, and let {found.loop.sharers[0].by} do it"


def _same(ranks: Sequence[Rank]) -> Iterator[Found]:
    """Of all ranks of the job, with a model in DDP and batches of a DataLoader."""
    known = {work.rank: work.parts for _, work in ranks if work.rank is not None}
    whole = all(work.shared and work.world == len(known) for _, work in ranks)
    if not whole or len(known) < 2:
        return
    steps = same_inputs({rank: parts.marks for rank, parts in known.items()})
    seen, sure = f"equal inputs of DDP in all {steps} steps that were looked at", True
    if not steps and all(_takes_all(work) for _, work in ranks):
        steps = same_labels({rank: parts.contents for rank, parts in known.items()})
        seen, sure = f"equal labels in all {steps} steps that were looked at, beside other ", False
        seen += "numbers, as of samples that each rank augments for itself"
    if not steps:
        return
    loader = next((work.data for _, work in ranks if work.data is not None), None)
    line = str(loader.frame) if loader is not None and loader.frame else "the loop"
    yield Found(
        "inputs-same",
        tuple(subject for subject, _ in ranks),
        saw=f"{seen} · iterated at {line}",
        expected="other batches on each rank",
        confidence=Confidence.LIKELY if sure else Confidence.POSSIBLE,
        alternatives=(TIMED,) if sure else ("integers that all ranks count alike, as of time",),
        fields={"line": line},
    )


def _takes_all(work: Work) -> bool:
    """Whether a rank trains on whole batches of a DataLoader that draws its samples in one of
    torch's ways: another sampler may give the ranks the same classes, or views of one sample."""
    sampler = work.data.sampler if work.data is not None else ""
    parts = work.parts
    whole = parts.inputs.size * parts.batches >= WHOLE * parts.samples > 0
    return sampler in SAMPLERS and whole


def _averaged(ranks: Sequence[Rank]) -> dict[int, Work]:
    """By its number each rank of a job whose ranks all average the gradients of a model; empty
    where they don't: in tensor parallelism ranks have the same samples, and draw the same."""
    known = {work.rank: work for _, work in ranks if work.rank is not None}
    whole = all(work.parts.inputs.ranks == work.world == len(known) > 1 for work in known.values())
    return known if whole else {}


def _noise(ranks: Sequence[Rank]) -> Iterator[Found]:
    known = _averaged(ranks)
    found = same_draws(
        {rank: work.parts.draws for rank, work in known.items()},
        {rank: work.parts.data.size for rank, work in known.items()},
    )
    if found is None:
        return
    frame = next(work.parts.inputs.frame for work in known.values())
    line = str(frame or "the forward")
    what = f"at least {found.numbers} numbers" if found.numbers else "numbers on the GPU"
    yield Found(
        "noise-same",
        tuple(subject for subject, _ in ranks),
        saw=f"{what} drawn between the batch and the forward at {line}, from the same state of "
        f"torch's generator on all ranks, in all {plural(found.steps, 'step')} that were looked at",
        expected="other random numbers on each rank, for its own samples",
        confidence=Confidence.LIKELY,
        alternatives=("a choice that all ranks have to share, such as layers to leave out",),
        fields={"line": line},
    )


def _labels(ranks: Sequence[Rank]) -> Iterator[Found]:
    """Not where ranks tell each other a number in each step, which may be that of their labels."""
    known = _averaged(ranks)
    found = uneven_labels({rank: work.parts.labels for rank, work in known.items()})
    if found is None or any(work.numbers >= EXCHANGED for work in known.values()):
        return
    subjects = {work.rank: subject for subject, work in ranks}
    low, high = sorted((found.theirs, found.usual))
    frame = next(work.parts.inputs.frame for work in known.values())
    yield Found(
        "labels-uneven",
        tuple(subjects[rank] for rank in found.odd),
        saw=f"{rank_list(found.odd)} with {found.theirs:.4g} labels per step that are not -100, the"
        f" others with {found.usual:.4g}, over {plural(found.steps, 'step')}"
        f"{f' · the model is called at {frame}' if frame else ''}",
        expected=f"no rank with less than 1/{TIMES:g} of the others in nearly all steps",
        confidence=Confidence.POSSIBLE,
        alternatives=(
            "a loss that is a sum, or that is divided by a number of all ranks",
            "a mean per rank that is meant",
        ),
        fields={"times": f"{high / max(low, 1):.0f}"},
    )


def _repeats(ranks: Sequence[Rank]) -> Iterator[Found]:
    """Where all ranks that have such passes repeat their order."""
    shuffled = [(s, w) for s, w in ranks if any(d.trains and d.shuffle for d in w.dealt)]
    found = [(subject, again) for subject, work in shuffled if (again := repeated(work.dealt))]
    if not found or len(found) < len(shuffled):
        return
    first, passes = found[0][1]
    line = str(first.frame) if first.frame else "the loop"
    yield Found(
        "order-repeats",
        tuple(subject for subject, _ in found),
        saw=f"DistributedSampler with seed {first.seed} and epoch {first.epoch} in all {passes} "
        f"epochs at {line}",
        expected="a different epoch number each time",
        confidence=Confidence.LIKELY,
        fields={"line": line},
    )


def _one_order(dealt: Mapping[int, Dealt]) -> str:
    """What should be equal on all ranks, and is not."""
    if len({one.shuffle for one in dealt.values()}) > 1:
        return "one shuffle of DistributedSampler"
    if len({one.seed for one in dealt.values()}) > 1:
        return "one seed of DistributedSampler"
    return "one number in set_epoch"


def _memory(ranks: Sequence[Rank]) -> Iterator[Found]:
    known = [(s, w) for s, w in ranks if w.held and w.limit]
    if len(known) < 3:
        return
    usual = median(work.held for _, work in known)
    more = [
        (s, w)
        for s, w in known
        if w.held > max(MEMORY * usual, usual + MEMORY_LEAST, MEMORY_PART * w.limit)
    ]
    if more:
        worst = max(more, key=lambda rank: rank[1].held)[1]
        others = (
            f" · {size(worst.use.used)} in use on GPU {worst.use.index}" if worst.use.used else ""
        )
        yield Found(
            "gpu-memory-uneven",
            tuple(subject for subject, _ in more),
            saw=f"{size(worst.held)} of {size(worst.limit)}, the others {size(int(usual))}{others}",
            expected="about as much on every rank",
            confidence=Confidence.CERTAIN,
        )


def _clocks(ranks: Sequence[Rank]) -> Iterator[Found]:
    by_key = {str(place): (subject, work) for place, (subject, work) in enumerate(ranks)}
    uses = {key: work.use for key, (_, work) in by_key.items() if work.use.index is not None}
    for key, usual in slow_clocks(uses, CLOCK).items():
        subject, work = by_key[key]
        use = work.use
        yield Found(
            "gpu-clock-low",
            (subject,),
            saw=f"GPU {use.index} at {use.clock or 0:.0f} MHz while it computes, the others at "
            f"{usual:.0f} MHz (SM clock)",
            expected="about the same clock on GPUs of one model under the same load",
            confidence=Confidence.CERTAIN,
        )


def _restarted(ranks: Sequence[Rank]) -> Iterator[Found]:
    """Of every rank: passes of one batch each."""
    known = [(subject, data) for subject, work in ranks if (data := _restarts(work))]
    if not known or len(known) < len(ranks):
        return
    first = known[0][1]
    same = first.sampler not in DRAWS
    line = str(first.frame) if first.frame else "the loop"
    harm = ["every step trains on the same batch"] if same else []
    harm += [f"{plural(first.workers, 'worker')} started for each batch"] if first.workers else []
    yield Found(
        "loader-restarted",
        tuple(subject for subject, _ in known),
        saw=f"{first.passes} iterators for {ranks[0][1].batches} batches at {line} · len(loader) "
        f"{first.length or 0}, {first.sampler or 'no sampler'}, num_workers={first.workers}",
        expected="one iterator per epoch",
        confidence=Confidence.LIKELY,
        fields={"line": line, "means": ", and ".join(harm)},
    )


def _restarts(work: Work) -> Loader | None:
    """Its DataLoader, where nearly each batch began a pass over several, and that does harm: to
    draw one batch at random, without workers, is a way of sampling."""
    data = work.data
    if data is None or work.batches < BATCHES or data.passes < PASSES * work.batches:
        return None
    harmful = data.workers or data.sampler not in DRAWS
    return data if harmful and data.length is not None and data.length > 1 else None


def _blocked(ranks: Sequence[Rank]) -> Iterator[Found]:
    """Of every rank: where only one does so, the others wait for it (job.pace)."""
    if not ranks or not all(_is_blocked(work) for _, work in ranks):
        return
    least = min((work for _, work in ranks), key=lambda work: work.parts.other)
    early = 2 * least.parts.between < least.parts.other  # most of it is before the optimizer
    line = next((str(at) for _, work in ranks if (at := work.after if early else work.between)), "")
    where = "backward and the optimizer" if early else "the optimizer and the next forward"
    took = least.parts.other - least.parts.between if early else least.parts.between
    yield Found(
        "step-blocked",
        tuple(subject for subject, _ in ranks),
        saw=f"{duration(took)} of {duration(least.step)} per step between {where}"
        + (f", mostly at {line}" if line else ""),
        expected="most of a step in forward, backward and optimizer",
        confidence=Confidence.LIKELY,
        fields={"line": line or "other work"},
    )


def _is_blocked(work: Work) -> bool:
    other = work.parts.other
    enough = work.steps >= BATCHES and not work.asynchronous
    return enough and other >= BLOCKED_LEAST and other >= BLOCKED * work.step > 0


def _synchronised(ranks: Sequence[Rank]) -> Iterator[Found]:
    waiting = [(s, w) for s, w in ranks if w.missed >= MISSED and w.synced >= SYNCED]
    if not waiting:
        return
    worst = max(waiting, key=lambda rank: rank[1].missed)[1]
    line = str(worst.sync_at) if worst.sync_at else ""
    yield Found(
        "gpu-synchronised",
        tuple(subject for subject, _ in waiting),
        saw=f"at {_part(worst.synced)} of {worst.looks} looks in {worst.sync}, mostly at {line}, "
        f"while the GPU was busy {_part(worst.use.share or 0.0)} of the time",
        expected="the next step's work queued before the GPU has done this one's",
        confidence=Confidence.LIKELY,
        fields={"line": line, "call": worst.sync, "saved": _part(worst.missed)},
    )


def _part(number: float) -> str:
    return f"{100 * number:.0f} %"


COMPUTING = (StepPart.FORWARD, StepPart.BACKWARD, StepPart.OPTIMIZER)
COLUMNS = ("rank", "step", "data", "forward", "backward", "optimizer", "other", "CPU", "batch")


def _table(works: Sequence[Work]) -> list[str]:
    """A row per rank: times per step, CPU time of it, and the shape of the latest batch."""
    told = sorted((w for w in works if w.parts.steps and w.step), key=lambda w: -w.step)[:ROWS]
    rows: list[tuple[str, ...]] = [COLUMNS]
    for work in sorted(told, key=lambda work: work.rank or 0):
        parts = work.parts
        each = (
            *(work.step, work.loader * work.step, *map(parts.usual, COMPUTING)),
            *(parts.other, parts.cpu),
        )
        times = [duration(took) if took else "-" for took in each]
        rank = "?" if work.rank is None else str(work.rank)
        rows.append((rank, *times, parts.shape.replace(", ", "x") or "-"))
    more = len(works) - len(told)
    return [*_aligned(rows), *([f"and {more} more"] if more else [])] if told else []


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _gpu_table(works: Sequence[Work]) -> list[str]:
    """A row per rank whose GPU was looked at, the least busy ones where there are many."""
    told = [w for w in works if w.use.looks and w.use.index is not None]
    rows: list[tuple[str, ...]] = [("rank", "GPU", "busy", "SM clock", "power", "used", "torch")]
    least = sorted(told, key=lambda work: work.use.busy or 0.0)[:ROWS]
    for work in sorted(least, key=lambda work: work.rank or 0):
        use = work.use
        rows.append(
            (
                "?" if work.rank is None else str(work.rank),
                str(use.index),
                "-" if use.busy is None else _part(use.busy),
                f"{use.clock:.0f} MHz" if use.clock else "-",
                "-" if use.power is None else f"{use.power:.0f} W",
                size(use.used) if use.used else "-",
                size(use.reserved),
            )
        )
    more = len(told) - len(least)
    return [*_aligned(rows), *([f"and {more} more"] if more else [])] if told else []


def measured(world: World[Work]) -> Measured:
    works = [work for _, work in world.each()]
    if not works:
        return Measured()
    parts = [work.parts for work in works if work.parts.steps]
    told: list[str] = []
    values: dict[str, Any] = {}
    if sizes := [work.parts.data.size for work in works if work.parts.batches]:
        low, high = min(sizes), max(sizes)
        told.append(
            f"{low:.4g} samples per batch"
            if low == high
            else f"{low:.4g}-{high:.4g} samples per batch"
        )
        values["samples_a_batch"] = [round(low, 2), round(high, 2)]
    if parts:
        values |= {
            f"{part}_s": round(median(one.usual(part) for one in parts), 6) for part in COMPUTING
        }
    if summed := median(work.summed for work in works):
        told.append(f"{size(int(summed))} in collectives per step")
        values["collective_bytes_a_step"] = int(summed)
    rows = {str(w.rank): _row(w) for w in works if w.rank is not None}
    values["ranks"] = dict(list(rows.items())[:MOST])
    notes = (*_table(works), *_gpu_table(works))
    return Measured(" · ".join(told), values, notes=notes, lanes=_timeline(world.seen))


def _timeline(works: Mapping[str, Work]) -> Lanes | None:
    """The latest steps of each rank, from the last begin that all ranks still know."""
    latest = {key: work.parts.latest for key, work in works.items() if work.parts.latest}
    if len(latest) < 2:
        return None
    start = max(timed[0].start for timed in latest.values())
    lanes = tuple(Swimlane(key, _spans(timed, start)) for key, timed in latest.items())
    if not all(lane.spans for lane in lanes):
        return None  # they trained one after the other, or their clocks differ
    return Lanes("the latest steps of each rank, as its host saw them", "s", lanes)


def _spans(latest: Sequence[Timed], start: float) -> tuple[Span, ...]:
    found = []
    for timed in latest:
        began, ended = timed.start - start, timed.start - start + timed.seconds
        if began < 0:
            continue
        waits = ended - min(timed.waits, timed.seconds)
        doing = Doing.DATA if timed.part is StepPart.DATA else Doing.WORK
        text = "waits for data" if timed.part is StepPart.DATA else str(timed.part)
        for first, last, what, said in (
            (began, waits, doing, text),
            (waits, ended, Doing.WAIT, "waits for its collectives"),
        ):
            if last > first:
                found.append(Span(round(first, 6), round(last, 6), what, said))
    return tuple(found)


def _row(work: Work) -> dict[str, Any]:
    each = {str(part): work.parts.usual(part) for part in COMPUTING} | {"step": work.step}
    each |= {"data": work.loader * work.step, "other": work.parts.other, "cpu": work.parts.cpu}
    told = {f"{name}_s": round(took, 6) for name, took in each.items()}
    row = {**told, "batch": work.parts.shape, "gpu_bytes": work.gpu}
    use = work.use
    if use.looks:
        row |= {"gpu": use.index, "gpu_busy": use.busy, "gpu_sm_mhz": use.clock}
        row |= {"gpu_watts": use.power, "gpu_used_bytes": use.used, "reserved_bytes": use.reserved}
    return row
