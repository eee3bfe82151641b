"""job.balance: whether all ranks have the same work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import Case, assert_case, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import job_balance
from preflight.checks.job_balance import Work
from preflight.domains.job.draws import Draw
from preflight.domains.job.frame import Frame
from preflight.domains.job.gpu_use import GpuUse
from preflight.domains.job.labels import Labels
from preflight.domains.job.record import Loader
from preflight.domains.job.shared_data import Dealt, Samples, Sharer, Shares
from preflight.domains.job.step_parts import BatchAmount, StepPart, StepParts, Timed
from preflight.model import Cause, Missing, Node, Status, Topology

conforms(job_balance)

WARN = Status.WARN
FOUR = Topology(size=4, nodes=(Node("n1", (0, 1, 2, 3)),))
GIB = 1 << 30


def parts(
    samples: float = 32, length: float = 100, batches: int = 40, spread: float = 0
) -> StepParts:
    mean = samples * length
    return StepParts(
        *(0.4, 0.8, 0.1, 40, batches),
        samples=int(samples * batches),
        elements=int(mean * batches),
        squares=int((mean**2 + (spread * mean) ** 2) * batches),
        bytes=int(4 * mean * batches),
        shape=f"[{samples:g}, {length:g}]",
    )


def ranks(*works: Work) -> dict[str, Work]:
    return {f"n1/{r}": replace(work, rank=r) for r, work in enumerate(works)}


ONE = Work(0, parts(), 40, 0.03, 0.1, 1e6)
LARGER = replace(ONE, parts=parts(samples=64))
LONGER = replace(ONE, parts=parts(length=180))
SAVES = replace(ONE, parts=replace(parts(), between=0.25), step=0.3)


COUNTS = replace(ONE, parts=replace(parts(), after=8.0), step=0.3)


def gives(samples: float = 32, spread: float = 0.0, **changes: object) -> Work:
    """A rank that makes its tensors itself."""
    data = parts(samples, spread=spread).data
    given = replace(data, frame=Frame("train.py", 40, "main", own=True), ranks=4)
    own = replace(given, **changes)  # type: ignore[arg-type]
    return replace(ONE, parts=StepParts(steps=40, inputs=own), world=4)


def replace_ranks(work: Work, ranks: int) -> Work:
    inputs = replace(work.parts.inputs, ranks=ranks)
    return replace(work, parts=replace(work.parts, inputs=inputs))


UNEVEN = (gives(), gives(), gives(64), gives())
LONG: dict[str, object] = {
    "elements": 40 * 32 * 180,
    "squares": 40 * (32 * 180) ** 2,
    "shape": "[32, 180]",
}


def on_gpu(
    busy: float = 0.95, clock: float = 1980, reserved: int = 30 * GIB, index: int = 0
) -> GpuUse:
    return GpuUse(index, "H100", 30, 28, busy, clock, 550.0, 50 * GIB, 80 * GIB, reserved)


OF_GPU = replace(ONE, asynchronous=True, looks=60, use=on_gpu())
READS = replace(
    OF_GPU,
    synced=0.5,
    sync=".item()",
    sync_at=Frame("train.py", 31, "main", True),
    use=on_gpu(busy=0.6),
)
LOOP = Frame("train.py", 20, "main", True)


def deals(rank: int, seed: int = 0, epoch: int = 0, **more: object) -> Work:
    """With one pass over 1,000 samples for four ranks."""
    fields: dict[str, object] = {"steps": 0, "replicas": 4, "rank": rank, "seed": seed}
    fields |= {"epoch": epoch, "shuffle": True, "length": 1000, "frame": LOOP} | more
    return replace(ONE, dealt=(Dealt(**fields),))  # type: ignore[arg-type]


def dealt_to(*works: Work) -> dict[str, Work]:
    return ranks(*(replace(work, world=4) for work in works))


def passes(*epochs: int, **more: object) -> dict[str, Work]:
    """Passes of two ranks, of eight steps each."""
    fields = {"replicas": 2, "trains": True} | more
    return ranks(
        *(
            replace(
                ONE,
                dealt=tuple(
                    one
                    for number, epoch in enumerate(epochs)
                    for one in deals(rank, epoch=epoch, steps=8 * number, **fields).dealt
                ),
            )
            for rank in range(2)
        )
    )


def draws(**more: object) -> Work:
    """With a new pass over 50 batches for each of 25 that it got."""
    fields: dict[str, object] = {"length": 50, "given": 1, "workers": 2, "passes": 25}
    fields |= {"sampler": "DistributedSampler", "frame": LOOP} | more
    return replace(ONE, data=Loader(**fields), batches=25)  # type: ignore[arg-type]


MARKS = tuple((step, 100 + step) for step in (0, 1, 2, 3, 4, 6, 8, 12))
ONE_BATCH = tuple((step, 100) for step, _ in MARKS)
TWO = Topology(size=2, nodes=(Node("n1", (0, 1)),))


def feeds(
    *marks: tuple[tuple[int, int], ...], shared: bool = True, world: int = 2
) -> dict[str, Work]:
    """What goes into DDP's forward on each rank."""
    given = replace(ONE, shared=shared, world=world, data=Loader(frame=LOOP))
    return ranks(*(replace(given, parts=replace(ONE.parts, marks=each)) for each in marks))


def varied(
    *contents: tuple[tuple[int, int, int], ...],
    sampler: str = "RandomSampler",
    part: int = 1,
    world: int = 2,
) -> dict[str, Work]:
    """What its DataLoader gives each rank, which puts one in `part` of the samples into its
    model."""
    loader = Loader(sampler=sampler, frame=LOOP)
    given = replace(ONE, shared=True, world=world, data=loader)
    whole = given.parts
    inputs = BatchAmount(whole.batches, whole.samples // part)
    return ranks(
        *(
            replace(given, parts=replace(whole, contents=each, inputs=inputs, marks=marks))
            for each, marks in zip(contents, (MARKS, OTHER_MARKS), strict=True)
        )
    )


OTHER_MARKS = tuple((step, mark + 1) for step, mark in MARKS)
VARIED = tuple((step, label, 7 * label) for step, label in MARKS)
VARIED_TOO = tuple((step, label, 9 * label) for step, label, _ in VARIED)
OTHER_LABELS = tuple((step, label + 1, 9 * label) for step, label, _ in VARIED)
SAMPLER = Sharer("DistributedSampler", 2, 0)
WRAPPED = Shares(LOOP, True, (Sharer("BatchSamplerShard", 2, 0), SAMPLER))


def divides(*loops: Shares) -> dict[str, Work]:
    """Loops of one rank each."""
    return ranks(*(replace(ONE, shares=(loop,), world=len(loops)) for loop in loops))


def part(*marks: int, length: int = 50) -> Shares:
    return Shares(LOOP, True, (SAMPLER,), (Samples("Subset", length, 100, marks),))


def mixed(rank: int, *marks: int, order: int = 0, parts: int = 2) -> Shares:
    """Part `rank` of `parts` of a dataset that the rank has put together itself."""
    samples = Samples("Subset", 50, 100, marks, order=order or sum(marks))
    return Shares(LOOP, True, (Sharer("DistributedSampler", parts, rank),), (samples,))


GIVEN = replace(parts().data, frame=LOOP, ranks=2)
NOISE = tuple(Draw(step, 100 + step, 600) for step in (0, 1, 2, 3, 4, 6))
OTHER = tuple(replace(one, cpu=one.cpu + 50) for one in NOISE)
MANY = tuple(Labels(step, 265, 384) for step in range(12))
FEW = tuple(replace(one, counted=16) for one in MANY)


def averaged(*each: StepParts, world: int = 2, numbers: float = 0.0) -> dict[str, Work]:
    """Ranks that all average the gradients of a model."""
    one = replace(ONE, world=world, numbers=numbers)
    return ranks(*(replace(one, parts=replace(p, inputs=GIVEN)) for p in each))


def noise(*draws: tuple[Draw, ...]) -> tuple[StepParts, ...]:
    return tuple(replace(parts(), draws=each) for each in draws)


def labelled(*labels: tuple[Labels, ...]) -> tuple[StepParts, ...]:
    return tuple(replace(parts(), labels=each) for each in labels)


CASES = (
    Case("a sampler in a sampler", divides(WRAPPED, WRAPPED), "data-shared-twice", WARN),
    Case("a part of a part", divides(part(2, 4), part(1, 3)), "data-shared-twice", WARN),
    Case("a part of all of it", divides(part(2, 4), part(2, 4))),
    Case("other samples", divides(mixed(0, 2, 4), mixed(1, 1, 4)), "samples-differ", WARN),
    Case("another order", divides(mixed(0, 2, 4), mixed(1, 2, 4, order=9)), "samples-differ", WARN),
    Case(
        "one with another order",
        divides(*(mixed(r, 2, 4, order=8 + (r == 2), parts=4) for r in range(4))),
        "samples-differ",
        WARN,
        topology=FOUR,
        subject="n1 · rank 2",
    ),
    Case("one order", divides(mixed(0, 2, 4), mixed(1, 2, 4))),
    Case("nodes, then ranks", divides(*[WRAPPED] * 4)),
    *(
        Case(name, ranks(work, work), "loader-restarted", WARN, topology=FOUR)
        for name, work in (
            ("the first batch again and again", draws(workers=0)),
            ("workers for each batch", draws(sampler="RandomSampler")),
            ("both, and it blocks the step", replace(SAVES, data=draws().data, batches=25)),
        )
    ),
    *(
        Case(name, ranks(work, work), topology=FOUR)
        for name, work in (
            ("a batch drawn at random", draws(sampler="RandomSampler", workers=0)),
            ("an epoch of one batch", draws(length=1)),
            ("a stream", draws(length=None)),
            ("a pass per epoch", draws(passes=2)),
            ("a validation batch now and then", draws(passes=12)),
        )
    ),
    Case(
        "one part on all",
        dealt_to(*(deals(0, trains=True) for _ in range(4))),
        "shards-unused",
        WARN,
        topology=FOUR,
    ),
    Case(
        "two parts on two each",
        dealt_to(*(deals(r // 2, trains=True) for r in range(4))),
        "shards-unused",
        WARN,
        topology=FOUR,
    ),
    Case("one dataset on all", feeds(MARKS, MARKS), "inputs-same", WARN, topology=TWO),
    Case(
        "the same labels, augmented by each rank",
        varied(VARIED, VARIED_TOO),
        "inputs-same",
        WARN,
        topology=TWO,
    ),
    Case(
        "an iterable dataset",
        varied(VARIED, VARIED_TOO, sampler="_InfiniteConstantSampler"),
        "inputs-same",
        WARN,
        topology=TWO,
    ),
    Case("a sampler of its own", varied(VARIED, VARIED_TOO, sampler="Episodes"), topology=TWO),
    Case("its part of each batch", varied(VARIED, VARIED_TOO, part=2), topology=TWO),
    Case("other labels", varied(VARIED, OTHER_LABELS), topology=TWO),
    Case("the same batch, of which each takes a part", varied(VARIED, VARIED), topology=TWO),
    Case("one of few ranks", varied(VARIED, VARIED_TOO, world=4), topology=TWO),
    Case("labels of few steps", varied(VARIED[:5], VARIED_TOO[:5]), topology=TWO),
    Case(
        "one label in all steps",
        varied(*(tuple((s, 3, rest) for s, _, rest in one) for one in (VARIED, VARIED_TOO))),
        topology=TWO,
    ),
    Case("other batches", feeds(MARKS, tuple((s, m + 1) for s, m in MARKS)), topology=TWO),
    Case("one batch in all steps", feeds(ONE_BATCH, ONE_BATCH), topology=TWO),
    Case("too few steps", feeds(MARKS[:5], MARKS[:5]), topology=TWO),
    Case("one rank of two is known", feeds(MARKS, MARKS[:2]), topology=TWO),
    Case("without DDP, or in a group", feeds(MARKS, MARKS, shared=False), topology=TWO),
    Case("ranks elsewhere", feeds(MARKS, MARKS, world=4), topology=FOUR),
    Case("one noise for all", averaged(*noise(NOISE, NOISE)), "noise-same", WARN, topology=TWO),
    Case("a noise each", averaged(*noise(NOISE, OTHER)), topology=TWO),
    Case("parallel within a model", averaged(*noise(NOISE, NOISE), world=4), topology=FOUR),
    Case(
        "all of it is the same",
        ranks(
            *(
                replace(
                    ONE,
                    shared=True,
                    world=2,
                    parts=replace(parts(), draws=NOISE, marks=MARKS, inputs=GIVEN),
                )
                for _ in range(2)
            )
        ),
        "inputs-same",
        WARN,
        topology=TWO,
    ),
    Case(
        "few labels on one",
        averaged(*labelled(MANY, FEW)),
        "labels-uneven",
        WARN,
        topology=TWO,
        subject="n1 · rank 1",
    ),
    Case("as many labels", averaged(*labelled(MANY, MANY)), topology=TWO),
    Case("they tell each other", averaged(*labelled(MANY, FEW), numbers=1.0), topology=TWO),
    Case("of one batch, in parts", averaged(*labelled(MANY, FEW), world=4), topology=FOUR),
    Case("a part each", dealt_to(*(deals(r, trains=True) for r in range(4))), topology=FOUR),
    Case("one part, to look at", dealt_to(*(deals(0) for _ in range(4))), topology=FOUR),
    Case(
        "two parts of two, model parallel",
        dealt_to(*(deals(r // 2, replicas=2, trains=True) for r in range(4))),
        topology=FOUR,
    ),
    Case("one is not seen", dealt_to(*(deals(0, trains=True) for _ in range(3))), topology=FOUR),
    Case("the same order", passes(0, 0, 0), "order-repeats", WARN, topology=FOUR),
    Case("an epoch each", passes(0, 1, 2), topology=FOUR),
    Case("two passes", passes(0, 0), topology=FOUR),
    Case("an epoch for each second pass", passes(0, 0, 1, 1), topology=FOUR),
    Case("a validation", passes(0, 0, 0, trains=False), topology=FOUR),
    Case("not shuffled, in order", passes(0, 0, 0, shuffle=False), topology=FOUR),
    Case("one rank alone draws", ranks(draws(), ONE), topology=FOUR),
    Case("all alike", ranks(ONE, ONE, ONE, ONE), topology=FOUR),
    Case("all give alike", ranks(*[gives()] * 4), topology=FOUR),
    Case(
        "longer sequences, of no DataLoader",
        ranks(gives(), gives(**LONG), gives(), gives()),
        "batch-uneven",
        WARN,
        topology=FOUR,
        subject="n1 · rank 1",
    ),
    Case(
        "larger batches, beside equal ones of the DataLoader",
        ranks(*(replace(w, parts=replace(ONE.parts, inputs=w.parts.inputs)) for w in UNEVEN)),
        "batch-uneven",
        WARN,
        topology=FOUR,
        subject="n1 · rank 2",
    ),
    Case("lengths of its own, by chance", ranks(gives(), gives(33, 0.9), gives()), topology=FOUR),
    Case("gradients of some ranks", ranks(*(replace_ranks(w, 2) for w in UNEVEN)), topology=FOUR),
    Case("an evaluation on one", ranks(gives(), gives(64, batches=80), gives()), topology=FOUR),
    Case("a sample more", ranks(ONE, ONE, replace(ONE, parts=parts(samples=33))), topology=FOUR),
    Case(
        "lengths that vary a lot, by chance",
        ranks(ONE, ONE, replace(ONE, parts=parts(length=140, spread=0.9))),
        topology=FOUR,
    ),
    Case("too few batches", ranks(ONE, replace(ONE, parts=parts(64, batches=5))), topology=FOUR),
    Case("an evaluator beside three", ranks(ONE, ONE, replace(LARGER, steps=3)), topology=FOUR),
    Case("one rank alone", ranks(LARGER), topology=FOUR),
    Case(
        "no DataLoader on one", ranks(ONE, LARGER, replace(ONE, parts=StepParts())), topology=FOUR
    ),
    Case(
        "a larger batch on one",
        ranks(ONE, ONE, LARGER, ONE),
        "batch-uneven",
        WARN,
        topology=FOUR,
        subject="n1 · rank 2",
    ),
    Case(
        "less than the others on one",
        ranks(LARGER, ONE, LARGER, LARGER),
        "batch-uneven",
        WARN,
        topology=FOUR,
        subject="n1 · rank 1",
    ),
    Case(
        "as many tokens on each, in many short samples or in few long ones",
        ranks(replace(ONE, parts=parts(48, 21)), replace(ONE, parts=parts(6, 170))),
        topology=FOUR,
    ),
    Case("of two, one", ranks(ONE, LARGER), "batch-uneven", WARN, topology=FOUR),
    Case(
        "longer sequences on one",
        ranks(ONE, ONE, LONGER),
        "batch-uneven",
        WARN,
        topology=FOUR,
        subject="n1 · rank 2",
    ),
    Case(
        "a seed of each rank's own",
        ranks(*(deals(r, seed=7 * r) for r in range(4))),
        "orders-differ",
        WARN,
        topology=FOUR,
        subject="n1 · rank 0",
    ),
    Case(
        "another seed on one",
        ranks(deals(0), deals(1), deals(2, seed=5), deals(3)),
        "orders-differ",
        WARN,
        topology=FOUR,
        subject="n1 · rank 2",
    ),
    Case(
        "set_epoch on one alone",
        ranks(deals(0, epoch=3), deals(1), deals(2), deals(3)),
        "orders-differ",
        WARN,
        topology=FOUR,
        subject="n1 · rank 0",
    ),
    Case(
        "shuffled on some alone",
        ranks(deals(0), deals(1), deals(2), deals(3, shuffle=False)),
        "orders-differ",
        WARN,
        topology=FOUR,
        subject="n1 · rank 3",
    ),
    Case("one seed", ranks(*(deals(r, seed=7, epoch=2) for r in range(4))), topology=FOUR),
    Case("one sum", ranks(*(deals(r, seed=r, epoch=9 - r) for r in range(4))), topology=FOUR),
    Case(
        "not shuffled", ranks(*(deals(r, seed=r, shuffle=False) for r in range(4))), topology=FOUR
    ),
    Case(
        "two ranks take each part, with a seed of theirs",
        ranks(*(deals(r // 2, seed=r % 2, replicas=2) for r in range(4))),
        topology=FOUR,
    ),
    Case(
        "a seed for each dataset",
        ranks(*(deals(r % 2, seed=r // 2, replicas=2, length=10 + r // 2) for r in range(4))),
        topology=FOUR,
    ),
    Case(
        "all of the data on each rank",
        ranks(*(deals(0, seed=r, replicas=1) for r in range(4))),
        topology=FOUR,
    ),
    Case("ranks elsewhere", ranks(deals(0), deals(1, seed=1), deals(2, seed=2)), topology=FOUR),
    Case(
        "a pass without a step",
        ranks(*(deals(r, seed=r, steps=40) for r in range(4))),
        topology=FOUR,
    ),
    Case(
        "passes that are begun at other steps",
        ranks(*(deals(r, epoch=r, steps=r) for r in range(4))),
        topology=FOUR,
    ),
    Case(
        "one GPU is fuller",
        ranks(*(replace(ONE, gpu=n * GIB, limit=80 * GIB) for n in (70, 40, 40, 41))),
        "gpu-memory-uneven",
        WARN,
        topology=FOUR,
        subject="n1 · rank 0",
    ),
    Case(
        "one GPU is fuller, and far from full",
        ranks(*(replace(ONE, gpu=n * GIB, limit=80 * GIB) for n in (30, 10, 10, 10))),
        topology=FOUR,
    ),
    Case(
        "more is reserved on one",
        ranks(
            *(replace(OF_GPU, limit=80 * GIB, use=on_gpu(reserved=n * GIB)) for n in (70, 40, 40))
        ),
        "gpu-memory-uneven",
        WARN,
        topology=FOUR,
        subject="n1 · rank 0",
    ),
    Case(
        "a slow clock",
        ranks(*(replace(OF_GPU, use=on_gpu(clock=c)) for c in (1980, 1950, 1200, 1965))),
        "gpu-clock-low",
        WARN,
        topology=FOUR,
        subject="n1 · rank 2",
    ),
    Case(
        "clocks that differ a little",
        ranks(*(replace(OF_GPU, use=on_gpu(clock=c)) for c in (1980, 1950, 1650, 1965))),
        topology=FOUR,
    ),
    Case("the loss is read in every step", ranks(READS, READS), "gpu-synchronised", WARN),
    Case(
        "one prints it",
        ranks(replace(READS, sync="print of a tensor"), OF_GPU, OF_GPU),
        "gpu-synchronised",
        WARN,
        topology=FOUR,
        subject="n1 · rank 0",
    ),
    Case("the GPU has no gaps", ranks(*[replace(READS, use=on_gpu(busy=0.93))] * 2)),
    Case("nobody tells what the GPU does", ranks(*[replace(READS, use=GpuUse())] * 2)),
    Case("now and then", ranks(*[replace(READS, synced=0.1)] * 2)),
    Case("on a CPU there is nothing to wait for", ranks(*[replace(READS, asynchronous=False)] * 2)),
    Case("it waits for data", ranks(*[replace(READS, loader=0.45)] * 2)),
    Case("too few looks", ranks(*[replace(READS, looks=15)] * 2)),
    Case("all save in every step", ranks(SAVES, SAVES), "step-blocked", WARN),
    Case("only one does: the others wait for it", ranks(SAVES, SAVES, ONE), topology=FOUR),
    Case("a GPU may work meanwhile", ranks(*[replace(SAVES, asynchronous=True)] * 2)),
    Case("a line of log", ranks(*[replace(SAVES, parts=replace(parts(), between=0.01))] * 2)),
    Case("a part of it", ranks(*[replace(SAVES, step=0.8)] * 2)),
    Case("before the optimizer", ranks(*[replace(COUNTS)] * 2), "step-blocked", WARN),
    Case("clipping", ranks(*[replace(COUNTS, parts=replace(parts(), after=0.4))] * 2)),
    Case("too few steps to tell", ranks(*[replace(SAVES, steps=7)] * 2)),
    Case("no command", Missing(Cause.NOT_APPLICABLE, "only where a command is rehearsed")),
    Case("a record that can't be read", Missing(Cause.TIMED_OUT)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    assert_case(job_balance, case)


def test_what_each_has_is_told() -> None:
    (found,) = judged(job_balance, Case("", ranks(ONE, ONE, LONGER), topology=FOUR))
    assert found.saw.startswith("rank 2 has 180 elements per sample, the others 100")
    assert "[32, 180], elsewhere [32, 100]" in found.saw


def test_what_is_kept_survives_its_way() -> None:
    round_trips(ONE)
    round_trips(READS)


def test_where_the_host_waits_and_what_it_costs() -> None:
    (found,) = judged(job_balance, Case("", ranks(READS, READS)))
    assert found.saw == (
        "at 50 % of 60 looks in .item(), mostly at train.py:31, while the GPU was busy 60 % of the "
        "time"
    )
    assert found.fields == {"line": "train.py:31", "call": ".item()", "saved": "40 %"}


def test_gpus_have_a_table_only_where_they_were_looked_at() -> None:
    cards = [replace(OF_GPU, use=on_gpu(index=3 - n, busy=0.9 - 0.1 * n)) for n in range(4)]
    seen = job_balance.measured(world("job.balance", ranks(*cards), FOUR))
    assert seen.notes[-5:] == (
        "rank  GPU  busy  SM clock  power    used   torch",
        "   0    3  90 %  1980 MHz  550 W  50 GiB  30 GiB",
        "   1    2  80 %  1980 MHz  550 W  50 GiB  30 GiB",
        "   2    1  70 %  1980 MHz  550 W  50 GiB  30 GiB",
        "   3    0  60 %  1980 MHz  550 W  50 GiB  30 GiB",
    )
    assert seen.values["ranks"]["1"]["gpu"] == 2
    assert "GPU" not in str(job_balance.measured(world("job.balance", ranks(ONE), FOUR)).notes)


def test_the_line_is_named_and_every_rank_has_a_row() -> None:
    line = Frame("train.py", 12, "save", True)
    saving = ranks(replace(SAVES, between=line), SAVES)
    (found,) = judged(job_balance, Case("", saving))
    assert found.fields["line"] == "train.py:12"
    assert found.saw == (
        "250 ms of 300 ms per step between the optimizer and the next forward, mostly at "
        "train.py:12"
    )
    before = ranks(replace(COUNTS, after=line, between=Frame("train.py", 9, "log", True)), COUNTS)
    (found,) = judged(job_balance, Case("", before))
    assert found.saw == (
        "200 ms of 300 ms per step between backward and the optimizer, mostly at train.py:12"
    )
    seen = job_balance.measured(world("job.balance", saving))
    head, first, second = seen.notes
    assert head.split() == list(job_balance.COLUMNS)
    assert first.split()[:3] == ["0", "300", "ms"]
    assert second.endswith("[32x100]")
    assert seen.values["ranks"]["1"]["other_s"] == 0.25


def test_of_many_ranks_the_slowest_have_a_row() -> None:
    many = ranks(*(replace(ONE, step=0.01 * (n + 1)) for n in range(12)))
    notes = job_balance.measured(world("job.balance", many)).notes
    assert [line.split()[0] for line in notes[1:-1]] == [str(n) for n in range(4, 12)]
    assert notes[-1] == "and 4 more"


def stepping(at: float, loader: float = 0.1, waits: float = 0.2) -> Work:
    """Two steps of a second, from `at` on the wall clock."""
    latest = []
    for step in (at, at + 1):
        begin = step
        for part, took, wait in (
            (StepPart.DATA, loader, 0.0),
            (StepPart.FORWARD, 0.2, 0.0),
            (StepPart.BACKWARD, 0.3 + waits, waits),
            (StepPart.OPTIMIZER, 0.1, 0.0),
        ):
            latest.append(Timed(part, begin, took, wait))
            begin += took
    return replace(ONE, parts=replace(parts(), latest=tuple(latest)))


def drawn(*works: Work) -> dict[str, list[tuple[float, float, str]]]:
    lanes = job_balance.measured(world("job.balance", ranks(*works), FOUR)).lanes
    made = lanes.lanes if lanes else ()
    return {
        lane.key: [(round(s.start, 3), round(s.end, 3), str(s.doing)) for s in lane.spans]
        for lane in made
    }


def test_the_latest_steps_are_on_one_axis() -> None:
    """It begins with the first part that all of them still know."""
    lanes = drawn(stepping(1e9), stepping(1e9 + 0.2, loader=0.3, waits=0.0))
    assert lanes["n1/1"][:5] == [
        (0.0, 0.3, "data"),
        (0.3, 0.5, "work"),
        (0.5, 0.8, "work"),
        (0.8, 0.9, "work"),
        (1.0, 1.3, "data"),
    ]
    assert lanes["n1/0"][:3] == [(0.1, 0.4, "work"), (0.4, 0.6, "wait"), (0.6, 0.7, "work")]


def test_what_can_not_be_on_one_axis_is_not_drawn() -> None:
    assert drawn(stepping(1e9)) == {}
    assert drawn(ONE, ONE) == {}
    assert drawn(stepping(1e9), stepping(1e9 + 3600)) == {}


def test_who_divides_the_data_is_said() -> None:
    (found,) = judged(job_balance, Case("", divides(WRAPPED, WRAPPED), topology=TWO))
    assert "BatchSamplerShard takes one of 2 parts, then DistributedSampler" in found.saw
    assert "0.5 of the samples" in found.saw
    (found,) = judged(job_balance, Case("", divides(part(2, 4), part(1, 3)), topology=TWO))
    assert all(text in found.saw for text in ("Subset, 50 of 100", "train.py:20", "0.5 of"))
