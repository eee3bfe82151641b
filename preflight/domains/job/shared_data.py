"""How torch's DistributedSampler deals the samples of a dataset out to the ranks, whether its parts
are those of one order, and whether all ranks compute with the same. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

SAME = 6
"""Steps with the same inputs on all ranks before they are called so; half of them must be unlike
the others, since one batch in all steps is an experiment."""
REPEATS = 3
"""Passes in one order before it is called so: a job that goes on where another one ended may have
two of them."""


TABLE = "table"
"""A dataset of Hugging Face's, which has a fingerprint and the length of the whole split."""


@dataclass(frozen=True, slots=True)
class Sharer:
    """What takes one of `parts` of the samples: number `part`. by: its class."""

    by: str
    parts: int
    part: int


@dataclass(frozen=True, slots=True)
class Samples:
    """What tells whether ranks have the same dataset, or the same part of it.

    kind    its class
    length  how many samples it has, `of` how many; 0 where that is not known
    marks   the lowest of numbers that stand for its samples: equal datasets have the same
    span    of evenly spaced ones the first, the last and the distance
    order   equal where the same samples are in the same order; 0 where that is not known
    """

    kind: str
    length: int
    of: int = 0
    marks: tuple[int, ...] = ()
    span: tuple[int, int, int] = (0, 0, 0)
    order: int = 0

    def is_apart(self, other: Samples) -> bool:
        """Whether they have no sample in common, for sure."""
        if (self.kind, self.of) != (other.kind, other.of):
            return False
        if self.marks or other.marks:
            return bool(self.marks and other.marks) and not {*self.marks} & {*other.marks}
        (first, last, step), (begin, end, each) = self.span, other.span
        if last < begin or end < first:
            return True
        return step == each > 0 and (begin - first) % step != 0


@dataclass(frozen=True, slots=True)
class Shares:
    """A loop over a DataLoader that gives a rank a part of the samples. frame: the user's line that
    iterates; trains: steps were made between its batches; samples: of its dataset, then of those
    that it is made of."""

    frame: Frame | None
    trains: bool
    sharers: tuple[Sharer, ...]
    samples: tuple[Samples, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedTwice:
    """A loop whose samples are divided into more parts than there are ranks. shards: of how many
    parts the ranks have one each in their dataset, where `own` is that of the first rank."""

    loop: Shares
    parts: int
    shards: int = 1
    own: Samples | None = None


@dataclass(frozen=True, slots=True)
class Dealt:
    """A pass over a DataLoader with a DistributedSampler, begun after `steps` steps: it
    takes every `replicas`-th of `length` samples from number `rank` on, in an order that comes
    from seed + epoch alone where it shuffles. frame: the user's line that iterates; trains: steps
    were made between its batches."""

    steps: int
    replicas: int
    rank: int
    seed: int
    epoch: int
    shuffle: bool
    length: int
    frame: Frame | None = None
    trains: bool = False

    @property
    def order(self) -> tuple[bool, int]:
        """Equal for equal orders of the whole dataset."""
        return self.shuffle, self.seed + self.epoch if self.shuffle else 0


def unlike_orders(
    found: Mapping[int, Sequence[Dealt]], done: Mapping[int, int]
) -> Mapping[int, Dealt] | None:
    """The first pass in which the ranks take their parts from different orders of the dataset; by
    rank of the job. `done`: how many steps each of them has made. Only where each part is taken
    exactly once: of model parallel ranks several take one part, and which of them share a dataset
    is not known. A pass counts once a step was made in it: until then another may follow."""
    known: dict[tuple[int, int, int], dict[int, Dealt]] = {}
    for rank, passes in found.items():
        for one in passes:
            if one.replicas > 1 and one.steps < done.get(rank, 0):
                key = (one.steps, one.replicas, one.length)
                known.setdefault(key, {})[rank] = one
    for _, same in sorted(known.items()):
        parts = sorted(one.rank for one in same.values())
        complete = parts == list(range(next(iter(same.values())).replicas))
        if complete and len({one.order for one in same.values()}) > 1:
            return same
    return None


def repeated(passes: Sequence[Dealt]) -> tuple[Dealt, int] | None:
    """A loop that trains on one dataset in the same shuffled order in each pass, and in how many;
    None where there are few, or one has another order."""
    series: dict[tuple[Frame | None, int, int], list[Dealt]] = {}
    for one in passes:
        if one.trains and one.shuffle and one.replicas > 1:
            series.setdefault((one.frame, one.replicas, one.length), []).append(one)
    for same in series.values():
        if len(same) >= REPEATS and len({one.order for one in same}) == 1:
            return same[0], len(same)
    return None


def taken(
    found: Mapping[int, Sequence[Dealt]], world: int
) -> tuple[Dealt, dict[int, tuple[int, ...]]] | None:
    """A pass that trains and in which all ranks of the job share one dataset, and part -> the ranks
    that take it, where some part is nobody's."""
    known: dict[tuple[int, int], dict[int, Dealt]] = {}
    for rank, passes in found.items():
        for one in passes:
            if one.trains and one.replicas == world > 1:
                known.setdefault((one.steps, one.length), {})[rank] = one
    for _, same in sorted(known.items()):
        parts: dict[int, tuple[int, ...]] = {}
        for rank, one in sorted(same.items()):
            parts[one.rank] = (*parts.get(one.rank, ()), rank)
        if len(same) == world > len(parts):
            return next(iter(same.values())), parts
    return None


def shared_twice(found: Mapping[int, Sequence[Shares]], world: int) -> SharedTwice | None:
    """The first loop that trains on all ranks with a part of a part of the samples: of samplers one
    in the other, or of a sampler that divides what is a rank's own part already."""
    lines = {loop.frame: None for loops in found.values() for loop in loops if loop.trains}
    for line in lines:
        same = {
            rank: next((loop for loop in loops if loop.trains and loop.frame == line), None)
            for rank, loops in found.items()
        }
        known = {rank: loop for rank, loop in same.items() if loop is not None}
        if len(known) != len(found) or len(known) != world or world < 2:
            continue
        first = known[min(known)]
        parts = prod(sharer.parts for sharer in first.sharers)
        if any(prod(s.parts for s in loop.sharers) != parts for loop in known.values()):
            continue
        if parts > world:
            return SharedTwice(first, parts)
        for samples in zip(*(known[rank].samples for rank in sorted(known)), strict=False):
            shards = _shards(samples)
            if shards * parts > world:
                return SharedTwice(first, parts, shards, samples[0])
    return None


def unlike_samples(
    found: Mapping[int, Sequence[Shares]], world: int
) -> tuple[Shares, Mapping[int, Samples]] | None:
    """The first loop that trains on all ranks with a part each of what should be one dataset, where
    the ranks have other samples, or have them in another order; by rank. Ranks that have no sample
    in common have parts of their own, and what tables of Hugging Face's hold is not known."""
    for line in {loop.frame: None for loops in found.values() for loop in loops if loop.trains}:
        known = {
            rank: loop
            for rank, loops in found.items()
            for loop in loops[::-1]
            if loop.trains and loop.frame == line
        }
        sharers = [loop.sharers[0] for loop in known.values() if len(loop.sharers) == 1]
        if len(known) != world or sorted((s.parts, s.part) for s in sharers) != [
            (world, part) for part in range(world)
        ]:
            continue
        for samples in zip(*(known[rank].samples for rank in sorted(known)), strict=False):
            kinds = list(dict.fromkeys(samples))
            whole = all(one.order and one.kind == kinds[0].kind for one in kinds)
            if whole and len(kinds) > 1 and _have_common(kinds):
                return known[min(known)], dict(zip(sorted(known), samples, strict=True))
    return None


def _have_common(kinds: Sequence[Samples]) -> bool:
    return all({*one.marks} & {*kinds[0].marks} for one in kinds)


def _shards(samples: Sequence[Samples]) -> int:
    """How many parts there are, of which each rank has one and no two have a sample in common; 0
    where it is not so."""
    kinds = list(dict.fromkeys(samples))
    apart = all(a.is_apart(b) for n, a in enumerate(kinds) for b in kinds[:n])
    length = sum(one.length for one in kinds)
    if kinds[0].kind == TABLE:  # fingerprints differ for other reasons as well
        apart = apart and abs(length - kinds[0].of) <= len(kinds)
    elif kinds[0].of and kinds[0].marks:
        apart = apart and length <= kinds[0].of
    return len(kinds) if apart and len(kinds) > 1 else 0


def same_inputs(found: Mapping[int, Sequence[tuple[int, int]]]) -> int:
    """In how many of the steps that were looked at on all ranks these had the same inputs; 0 where
    they ever had others, or the same in all steps."""
    known = [dict(marks) for marks in found.values()]
    steps = set(known[0]).intersection(*known) if len(known) > 1 else set()
    alike = all(len({marks[step] for marks in known}) == 1 for step in steps)
    kinds = len({known[0][step] for step in steps}) if steps else 0
    return len(steps) if alike and len(steps) >= SAME and 2 * kinds >= len(steps) else 0


def same_labels(found: Mapping[int, Sequence[tuple[int, int, int]]]) -> int:
    """In how many of these steps the batches of all ranks had the same integers, and each other
    numbers beside them, as where each rank augments the same samples for itself; 0 as above."""
    rest = [{step: rest for step, _, rest in looks} for looks in found.values()]
    steps = set(rest[0]).intersection(*rest) if rest else set()
    apart = all(len({numbers[step] for numbers in rest}) == len(rest) for step in steps)
    whole = {rank: [(step, one) for step, one, _ in looks] for rank, looks in found.items()}
    return same_inputs(whole) if apart else 0


def missed(dealt: Mapping[int, Dealt]) -> float:
    """Part of the dataset that no rank takes, where their orders have nothing to do with each
    other: of two ranks a quarter."""
    counts = Counter(one.order for one in dealt.values())
    return prod(1 - count / len(dealt) for count in counts.values())


def told_apart(dealt: Mapping[int, Dealt]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What sets the ranks apart, and on which of them it is so."""
    seeds, epochs = (len({getattr(d, n) for d in dealt.values()}) > 1 for n in ("seed", "epoch"))
    rows: dict[tuple[bool, int], list[int]] = {}
    for rank in sorted(dealt):
        rows.setdefault(dealt[rank].order, []).append(rank)
    for ranks in rows.values():
        one = dealt[ranks[0]]
        words = [f"seed {one.seed}"] * seeds + [f"epoch {one.epoch}"] * epochs
        yield ", ".join(words if one.shuffle else ["no shuffle"]) or "shuffled", tuple(ranks)
