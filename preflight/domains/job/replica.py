"""What ranks know of their models, and where those of DDP differ that should be the same. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

TOLERANCE = {"float32": 1e-5, "float64": 1e-9}
"""By how much of the size of its numbers a parameter may differ. Replicas on equal hardware have
the same bits; another GPU may round otherwise in a step, which stays far below this."""
NUMBERS = re.compile(r"indices which did not receive grad for rank \d{1,9}: ((?:\d{1,6} ?){1,200})")
LOOKS = 5
"""At a model before it is said that nothing in it changes."""
AVERAGED = 4
"""Steps with equal gradients before they are called averaged."""
CONSTANT = 3
"""Looks at which a buffer was the same before it is called constant."""
COARSE = 2e-2
"""The same of all other types: half precision rounds to three digits, float8 to one."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A look at the parameters after so many steps: of each that was compared a weighted sum of
    some of its numbers, and the size of these; None for what could not be read."""

    step: int
    sums: tuple[float | None, ...]
    sizes: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Replica:
    """One model of a rank.

    kind      ddp, or optimizer: the parameters of an optimizer where nothing is wrapped
    frame     the user's line that wraps it
    trained   whether each parameter requires a gradient; had: whether it ever had one; given:
              whether an optimizer stepped it
    modes     steps that it made in training mode, and the latest ones in evaluation mode
    called    whether there was a forward of DDP, which may have a backward
    checks    every `each`-th parameter is compared
    options   of DDP: find_unused_parameters, static_graph, own_group; join: it was in Join, where
              a rank may make fewer steps; hooks: what was registered to be called instead of its
              all-reduce
    rates     the learning rates of the optimizer; seed: torch's, when it was wrapped
    bytes     of its gradients
    unfrozen  parameter, by number, that was frozen when DDP was built, and a step (from 0) that
              trained it; replaced: the same of one that was another object by then
    unreduced steps (from 0) after a backward whose gradients DDP has not summed, the first ones
              after each check; stepped: the user's line of the first
    buffers   names of those that hold floating point numbers; held: checks of each of these
    placed    name, shape and type of all buffers that DDP shares, in its order
    graded    the same of the gradients, right before the first of these steps, without DDP
    """

    kind: str = ""
    frame: Frame | None = None
    device: str = ""
    bytes: int = 0
    names: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    trained: tuple[bool, ...] = ()
    had: tuple[bool, ...] = ()
    given: tuple[bool, ...] = ()
    modes: tuple[int, int] = (0, 0)
    called: bool = True
    options: tuple[str, ...] = ()
    rates: tuple[float, ...] = ()
    hooks: tuple[str, ...] = ()
    seed: int = 0
    unfrozen: tuple[tuple[int, int], ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()
    unreduced: tuple[int, ...] = ()
    stepped: Frame | None = None
    checks: tuple[Sampled, ...] = ()
    buffers: tuple[str, ...] = ()
    held: tuple[Sampled, ...] = ()
    placed: tuple[str, ...] = ()
    graded: tuple[Sampled, ...] = ()
    touched: bool = False
    """Without DDP: between the first backward and the first step its gradients were changed."""
    paths: tuple[str, ...] = ()
    """What the model calls the parameters of an optimizer, where a variable has the model."""

    @property
    def each(self) -> int:
        """Of so many parameters one is compared."""
        compared = len(self.checks[-1].sums) if self.checks else len(self.names)
        return math.ceil(len(self.names) / compared) if compared else 1

    def shape(self, number: int) -> str:
        """Of a parameter that is compared: its sizes and its type."""
        place = min(number * self.each, len(self.shapes) - 1)
        return self.shapes[place] if self.shapes else ""

    def sizes(self, number: int) -> list[str]:
        return self.shape(number).partition("]")[0].strip("[").split(", ")

    def path(self, number: int) -> str:
        """Of a parameter that is compared; empty where it is not known."""
        place = number * self.each
        return self.paths[place] if place < len(self.paths) else ""

    @property
    def described(self) -> tuple[str, ...]:
        """Name, shape, type and whether it is trained, of each parameter."""
        return tuple(
            f"{name} {shape}{'' if trained else ', not trained'}"
            for name, shape, trained in zip(self.names, self.shapes, self.trained, strict=False)
        )

    @property
    def unused(self) -> tuple[str, ...]:
        """Parameters that should have had a gradient in some step that was looked at."""
        parts = zip(self.names, self.trained, self.had, strict=False)
        return tuple(name for name, trained, had in parts if trained and not had)


@dataclass(frozen=True, slots=True)
class Load:
    """A state dict of which a model took nothing, since none of its `keys` is one of the model's.
    frame: the user's line; given: its first key, wanted: the first one that the model lacks."""

    frame: Frame | None
    keys: int
    given: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Reordered:
    """Where ranks have the same parameters or buffers (`what`), each in an order of its own:
    number `place` is the first that is another one, `there` on each rank; odd: see Drift."""

    what: str
    place: int
    there: Mapping[int, str]
    odd: tuple[int, ...]
    many: int


@dataclass(frozen=True, slots=True)
class Drift:
    """Where replicas differ first: in `name`, after `step` steps (they still agreed after `agreed`,
    -1: never), on the ranks `odd`; `tie`: nobody knows which of them are right. `names`: of the
    parameters that do, of `compared`; `numbers`: theirs; `again`: they agreed later."""

    step: int
    agreed: int
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    odd: tuple[int, ...]
    tie: bool
    compared: int
    again: bool = False

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def many(self) -> int:
        return len(self.names)


def of_kind(found: Mapping[int, Sequence[Replica]], kind: str) -> Iterator[Mapping[int, Replica]]:
    """The models that all ranks have: the first of each, the second of each, …"""
    own = {rank: [one for one in models if one.kind == kind] for rank, models in found.items()}
    for number in range(min(map(len, own.values()), default=0)):
        yield {rank: models[number] for rank, models in own.items()}


STOPPED_LEAST = 32
"""Steps in which nothing changes after a learning rate came down to 0: a schedule may end a few
steps before the training."""


def odd_ones(values: Mapping[int, object]) -> tuple[tuple[int, ...], bool]:
    """The ranks whose value is not that of the most, and whether no value is that of more than
    half of them: then all of them."""
    usual, count = Counter(values.values()).most_common(1)[0]
    if 2 * count <= len(values):
        return tuple(sorted(values)), True
    return tuple(sorted(rank for rank, value in values.items() if value != usual)), False


def reordered(models: Mapping[int, Replica]) -> Reordered | None:
    """The parameters or buffers that the ranks have in different orders. Not those of which some
    are others: these may be meant."""
    for what in ("parameter", "buffer"):
        orders = {r: m.described if what == "parameter" else m.placed for r, m in models.items()}
        if len(set(orders.values())) < 2 or len({tuple(sorted(o)) for o in orders.values()}) > 1:
            continue
        odd, _ = odd_ones(orders)
        places = enumerate(zip(*orders.values(), strict=True))
        place = next(number for number, names in places if len(set(names)) > 1)
        there = {rank: order[place] for rank, order in orders.items()}
        return Reordered(what, place, there, odd, len(next(iter(orders.values()))))
    return None


def structure(models: Mapping[int, Replica]) -> tuple[tuple[int, ...], bool, str] | None:
    """The ranks whose model has other parameters, whether nobody knows which are right, and the
    first parameter that differs, as it is on two of them."""
    described = {rank: one.described for rank, one in models.items()}
    if len(set(described.values())) < 2:
        return None
    odd, tie = odd_ones(described)
    one = odd[0]
    other = next(r for r in sorted(described) if described[r] != described[one])
    mine, theirs = described[one], described[other]
    number = next(
        (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
        min(len(mine), len(theirs)),
    )
    a, b = (d[number] if number < len(d) else "no such parameter" for d in (mine, theirs))
    return odd, tie, f"{a} on rank {one}, {b} on rank {other}"


def differs_at(models: Mapping[int, Replica]) -> Drift | None:
    """The first step after which the parameters of some ranks differ; only of models with the same
    parameters."""
    checks = {rank: {c.step: c for c in one.checks} for rank, one in models.items()}
    first = next(iter(models.values()), None)
    if first is None or len(models) < 2:
        return None
    steps = sorted(set.intersection(*(set(own) for own in checks.values())))
    agreed = -1
    for step in steps:
        now = {rank: own[step] for rank, own in checks.items()}
        found = list(_different(now, first))
        if found:
            numbers = tuple(min(i * first.each, len(first.names) - 1) for i, _ in found)
            names = tuple(first.names[number] for number in numbers)
            odd, tie = odd_ones(found[0][1])
            compared = len(next(iter(now.values())).sums)
            later = [{r: own[s] for r, own in checks.items()} for s in steps if s > step]
            again = any(not list(_different(one, first)) for one in later)
            return Drift(step, agreed, names, numbers, odd, tie, compared, again)
        agreed = step
    return None


def apart_by_group(
    models: Mapping[int, Replica],
) -> tuple[Drift, tuple[tuple[int, ...], ...]] | None:
    """Of models that DDP averages in groups of ranks, and that all ranks had alike before the first
    step: where they differ first, and the ranks that still have the same, together. None unless
    that is so of all parameters, and each rank has another one that has the same: experts, and the
    parts of a layer, lie among parameters that all have in common."""
    differs = differs_at(models)
    if differs is None or differs.agreed < 0 or differs.again:
        return None
    if len({one.described for one in models.values()}) > 1:
        return None
    first = next(iter(models.values()))
    checks = {rank: {c.step: c for c in one.checks} for rank, one in models.items()}
    last = max(set.intersection(*(set(own) for own in checks.values())))
    found = [groups for _, groups in _different({r: c[last] for r, c in checks.items()}, first)]
    if len(found) < differs.compared or any(groups != found[0] for groups in found):
        return None
    heads = dict.fromkeys(found[0].values())
    together = tuple(tuple(r for r in found[0] if found[0][r] == head) for head in heads)
    return (differs, together) if min(map(len, together)) > 1 else None


def common_apart(models: Mapping[int, Replica]) -> tuple[Drift, tuple[tuple[int, ...], ...]] | None:
    """Of ranks that have parts of one model (parameters whose numbers differ before the first
    step): the parameters that some of them had in common then, and of which each has its own later;
    and the ranks that had the same, together. Numbers that all have one sign tell nothing: a
    constant, with which ranks begin that have nothing in common, but for a normalisation that is as
    wide as what they have in common, or that lies beside layers which they all have in common."""
    if len(models) < 2 or len({one.described for one in models.values()}) > 1:
        return None
    checks = {rank: {c.step: c for c in one.checks} for rank, one in models.items()}
    first = next(iter(models.values()))
    steps = sorted(set.intersection(*(set(own) for own in checks.values())))
    if len(steps) < LOOKS or steps[0]:
        return None
    start = {rank: own[0] for rank, own in checks.items()}
    random = [n for n in range(min(len(c.sums) for c in start.values())) if _is_random(start, n)]
    shared = {n: _alike(start, first, n) for n in random}
    if all(len(set(groups.values())) == 1 for groups in shared.values()):
        return None
    norms = _norms(first, start, shared)
    beside = _norms_beside(models, start, shared)
    found: list[int] = []
    step = agreed = 0
    for at in steps[1:]:
        now = {rank: own[at] for rank, own in checks.items()}
        apart = [n for n, groups in shared.items() if _splits(groups, _alike(now, first, n))]
        if norms and all(_splits(own, _alike(now, first, n)) for n, own in norms.items()):
            apart += norms  # of experts some would stay alike
        apart += [
            n for n, own in beside.items() if n not in apart and _splits(own, _alike(now, first, n))
        ]
        if found and not apart:
            return None
        if apart and not found:
            found, step = apart, at
        agreed = agreed if found else at
    if not found:
        return None
    shared |= norms | beside
    found.sort(key=lambda n: -len(set(shared[n].values())))  # the closest groups tell most
    groups = shared[found[0]]
    heads = dict.fromkeys(groups.values())
    together = [tuple(r for r in groups if groups[r] == head) for head in heads]
    common = tuple(one for one in together if len(one) > 1)
    odd = tuple(sorted(rank for one in common for rank in one))
    numbers = tuple(min(n * first.each, len(first.names) - 1) for n in found)
    paths = first.paths or ("",) * len(first.names)
    names = tuple(paths[number] or first.names[number] for number in numbers)
    return Drift(step, agreed, names, numbers, odd, True, len(shared)), common


NORM = re.compile(r"\(\w*Norm\w*\.(?:weight|bias)\)$")
"""The name of a normalisation's parameter, with its module's class."""


def _norms(
    first: Replica, start: Mapping[int, Sampled], shared: Mapping[int, dict[int, int]]
) -> dict[int, dict[int, int]]:
    """The normalisations that begin as constants, and who has each in common: those that have the
    same of a layer whose vectors are as long. Not where some part of a layer is so long as well."""
    layers = {n: first.sizes(n) for n in shared}
    common = {n: own for n, own in layers.items() if len(set(shared[n].values())) < len(start)}
    parts = [own for n, own in layers.items() if n not in common]
    found = {}
    for number in range(min(len(look.sums) for look in start.values())):
        size = first.sizes(number)
        named = NORM.search(first.names[min(number * first.each, len(first.names) - 1)])
        if number in shared or named is None or len(size) != 1 or [*size, *size] in parts:
            continue
        alike = (n for n, own in common.items() if len(own) == 2 and own[-1:] == size)
        layer = next(alike, None)
        if layer is not None and not _splits(shared[layer], _alike(start, first, number)):
            found[number] = shared[layer]
    return found


def _norms_beside(
    models: Mapping[int, Replica],
    start: Mapping[int, Sampled],
    shared: Mapping[int, dict[int, int]],
) -> dict[int, dict[int, int]]:
    """The normalisations that begin as constants and lie in a module, by the names of the model,
    whose other layers all ranks have in common, such as the last one before the output layer; not
    in one with a part of a layer, as an expert has."""
    first = next(iter(models.values()))
    if len({one.paths for one in models.values()}) > 1:
        return {}
    layers: dict[str, list[int]] = {}
    for number in shared:
        layers.setdefault(_place_of(first.path(number)), []).append(number)
    found = {}
    for number in range(min(len(look.sums) for look in start.values())):
        size, path = first.sizes(number), first.path(number)
        named = NORM.search(first.names[min(number * first.each, len(first.names) - 1)])
        around = layers.get(_place_of(path), [])
        if number in shared or named is None or not path or len(size) != 1 or not around:
            continue
        common = all(len(set(shared[n].values())) == 1 for n in around)
        wide = any(len(of := first.sizes(n)) == 2 and of[-1:] == size for n in around)
        if common and wide and not _splits(shared[around[0]], _alike(start, first, number)):
            found[number] = shared[around[0]]
    return found


def _place_of(path: str) -> str:
    """Where the module lies that has a parameter: of `layers.0.norm.weight` it is `layers.0`."""
    return path.rpartition(".")[0].rpartition(".")[0]


def _is_random(now: Mapping[int, Sampled], number: int) -> bool:
    pairs = [(look.sums[number], look.sizes[number]) for look in now.values()]
    return all(a is not None and b and abs(a) < (1 - 1e-6) * b for a, b in pairs)


def _alike(now: Mapping[int, Sampled], first: Replica, number: int) -> dict[int, int]:
    """Rank -> the lowest one that has the same of a parameter."""
    dtype = first.shape(number).rpartition(" ")[2]
    size = max((look.sizes[number] or 0.0 for look in now.values()), default=0.0)
    known = {rank: look.sums[number] or 0.0 for rank, look in now.items()}
    return _groups(known, TOLERANCE.get(dtype, COARSE) * size)


def _splits(before: Mapping[int, int], now: Mapping[int, int]) -> bool:
    """Whether ranks that had the same have it no longer."""
    return any(now[rank] != now[head] for rank, head in before.items())


def averaged_apart(differs: Drift, models: Mapping[int, Replica]) -> bool:
    """Whether models that were never equal are stepped with equal gradients. Other weights give
    other gradients, so these are averaged by hand, and the weights at the start were not shared.
    Where nobody has changed the gradients they are equal by themselves: the ranks have parts of one
    layer, whose outputs are summed."""
    graded = {rank: {g.step: g for g in one.graded} for rank, one in models.items()}
    steps = set.intersection(*(set(own) for own in graded.values()))
    first = next(iter(models.values()))
    touched = all(one.touched for one in models.values())
    if differs.agreed >= 0 or differs.again or len(steps) < AVERAGED or not touched:
        return False
    for step in steps:
        now = {rank: own[step] for rank, own in graded.items()}
        sizes = zip(*(look.sizes for look in now.values()), strict=False)
        some = (i * first.each for i, each in enumerate(sizes) if all(each))
        if not set(differs.numbers).intersection(some) or any(_different(now, first)):
            return False
    return True


def without_gradient(one: Replica, text: str) -> tuple[str, ...]:
    """The parameters that DDP's own error counts as unused: of those that are trained, by their
    numbers. None where it does not say, or speaks of another model."""
    found = NUMBERS.search(text)
    trained = [name for name, on in zip(one.names, one.trained, strict=False) if on]
    numbers = [int(word) for word in found[1].split()] if found is not None else []
    return tuple(trained[n] for n in numbers if n < len(trained)) if numbers else ()


def unfrozen_too_late(differs: Drift, models: Mapping[int, Replica]) -> bool:
    """Whether all parameters that differ were frozen when DDP was built, which sums the gradients
    of others only, and every rank had trained them by then."""
    return _on_all(differs, [one.unfrozen for one in models.values()])


def replaced_too_late(differs: Drift, models: Mapping[int, Replica]) -> bool:
    """The same of parameters that are others since: a new head, a layer that has grown."""
    return _on_all(differs, [one.replaced for one in models.values()])


def _on_all(differs: Drift, late: Sequence[Sequence[tuple[int, int]]]) -> bool:
    before = [{number for number, step in one if step < differs.step} for one in late]
    return all(own.issuperset(differs.numbers) for own in before)


def unreduced_on(differs: Drift, models: Mapping[int, Replica]) -> tuple[int, ...]:
    """The ranks that differ and had made a step, since they agreed, with gradients that DDP had not
    summed."""
    since = range(max(differs.agreed, 0), differs.step)
    return tuple(rank for rank in differs.odd if any(n in since for n in models[rank].unreduced))


def unchanged(one: Replica) -> int:
    """In how many steps no parameter of a model has changed, as far as they are compared; 0 where
    one has, too little was looked at, or it is not to be trained."""
    looks = one.checks
    if len(looks) < LOOKS or not (any(one.had) or any(one.given)):
        return 0
    known = 0
    for number in range(min(len(look.sums) for look in looks)):
        place = min(number * one.each, len(one.names) - 1)
        if one.trained[place : place + 1] != (True,):
            continue
        values = {look.sums[number] for look in looks}
        if len(values) > 1:
            return 0
        known += None not in values
    return looks[-1].step - looks[0].step if known else 0


def stopped(one: Replica) -> tuple[int, int]:
    """The first and the last look since which no parameter has changed, in steps, of a model that
    had changed before and whose optimizer has a learning rate of 0 by now; (0, 0): not so."""
    looks = one.checks
    if len(looks) < LOOKS or not one.rates or any(one.rates) or not any(one.given):
        return 0, 0
    last, trains = looks[-1], range(min(len(look.sums) for look in looks))
    trained = [n for n in trains if one.trained[min(n * one.each, len(one.names) - 1)]]
    known = [n for n in trained if last.sums[n] is not None]
    same = [all(look.sums[n] == last.sums[n] for n in known) for look in looks]
    if not known or all(same):
        return 0, 0
    first = looks[len(same) - next(n for n, alike in enumerate(reversed(same)) if not alike)].step
    return (first, last.step) if last.step - first >= STOPPED_LEAST else (0, 0)


def constants_differ(models: Mapping[int, Replica]) -> tuple[str, tuple[int, ...], bool] | None:
    """The first buffer that each rank keeps as it is, and that is not the same on all ranks; the
    ranks that are odd, and whether nobody knows which are right. One that changes with the steps
    is no constant: statistics of batches are each rank's own until DDP shares those of rank 0."""
    first = next(iter(models.values()), None)
    if first is None or len({one.buffers for one in models.values()}) > 1:
        return None
    for number, name in enumerate(first.buffers):
        values, size = {}, 0.0
        for rank, one in models.items():
            looks = [c for c in one.held if number < len(c.sums)]
            known = {c.sums[number] for c in looks}
            if len(looks) < CONSTANT or len(known) > 1 or None in known:
                break
            values[rank] = looks[0].sums[number] or 0.0
            size = max(size, looks[0].sizes[number] or 0.0)
        else:
            groups = _groups(values, TOLERANCE["float32"] * size)
            if len(set(groups.values())) > 1:
                return name, *odd_ones(groups)
    return None


def _different(now: Mapping[int, Sampled], first: Replica) -> Iterator[tuple[int, dict[int, int]]]:
    """Number of a parameter that differs -> ranks that have the same of it, as one number each."""
    length = min(len(check.sums) for check in now.values())
    for number in range(length):
        sums = {rank: check.sums[number] for rank, check in now.items()}
        if any(value is None for value in sums.values()):
            continue
        known = {rank: value for rank, value in sums.items() if value is not None}
        size = max((check.sizes[number] or 0.0 for check in now.values()), default=0.0)
        place = min(number * first.each, len(first.shapes) - 1)
        dtype = first.shapes[place].rpartition(" ")[2] if first.shapes else ""
        groups = _groups(known, TOLERANCE.get(dtype, COARSE) * size)
        if len(set(groups.values())) > 1:
            yield number, groups


def _groups(values: Mapping[int, float], apart: float) -> dict[int, int]:
    """Rank -> the lowest rank that has about the same value. What is not a number is the same as
    any other."""
    found: dict[int, int] = {}
    for rank in sorted(values):
        value = values[rank]
        same = (
            other
            for other in dict.fromkeys(found.values())
            if abs(values[other] - value) <= apart
            or (not math.isfinite(values[other]) and not math.isfinite(value))
        )
        found[rank] = next(same, rank)
    return found
