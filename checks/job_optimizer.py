"""Do the optimizers step all that the ranks train, alike on all of them?

Level        deep
Looks at     of each rank of a rehearsed command that wraps its model in DDP, before steps 1, 2, 3,
             4, 5, 7, 9, 13 … : which parameters have gradients, and which of these the model knows
             of, DDP has wrapped, and an optimizer holds; those in lists and dicts of its modules; a
             few numbers of what is stepped beside DDP; how many hooks there are; the counts of
             learning rate schedulers, and the steps of their optimizers; learning rate, weight
             decay and the like of each parameter group; whether zero_grad() resets gradients that
             no step has used; parameters that were registered in two modules; norm and max_norm of
             torch.nn.utils.clip_grad_norm_ and clip_grads_with_norm_
Fails if     a setting of an optimizer, or max_norm, differs between ranks whose gradients DDP
             averages, and the models of these ranks differ after that; ranks clip what FSDP
             (version 1) has sharded, each by the norm of its own part
Warns if     the same where no model differs yet; in 9 of 10 steps zero_grad() resets the gradients
             of one batch before those of the next are computed, and the step uses these alone; for
             16 steps: parameters in a list or dict of a module have gradients, but are none of
             its parameters and no optimizer's; parameters of the model have gradients and no
             optimizer, which holds others of the same shape in their place; parameters that DDP
             does not have are stepped, and differ between ranks; hooks are added in every few
             steps; a scheduler counts, but its optimizer makes no steps, and another one steps the
             same parameters at a rate that does not change; a ReduceLROnPlateau gets 2 numbers or
             more, as many each time, between two steps of its optimizer; a parameter that two
             layers had in common is one of its own in each, and both are stepped; ranks clip the
             shards that they keep of summed gradients, each by the norm of its own
Undecided    not a rehearsal (preflight rehearse -- CMD)
Not covered  models without DDP, but for gradients that are reset and weights in common; parameters
             beside DDP where ranks gather or scatter by themselves,
             as with experts or a classifier in parts; a network in evaluation mode, which is meant
             to stay as it is; hooks of tensors that are no parameters; more than 64 optimizers;
             gradients that are reset without zero_grad(), or whose batches are of no DataLoader and
             in no no_sync(); gradients that are clipped without torch.nn.utils, or whose norm never
             comes to max_norm; ranks with other layers than each other, of which each has its norm
Seen as      no error at all: a loss that is worse than on one GPU, or as if layers were frozen;
             steps that take longer and longer; learning rates in the logs of the ranks that are not
             the same
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from zlib import crc32

from preflight.check import Context
from preflight.domains.job.clipping import (
    LIMIT,
    PARTS,
    SHARDS,
    Clip,
    ClippedApart,
    Clipping,
    clipped_apart,
)
from preflight.domains.job.discarded import Discarded, thrown_away
from preflight.domains.job.load import (
    FROM_OUTSIDE,
    REHEARSAL,
    for_author,
    load_rank,
    rank_subject,
)
from preflight.domains.job.optimized import (
    Held,
    Optimized,
    counts_again,
    lasting,
    outdated,
    piles_up,
    replaced,
    unshared,
)
from preflight.domains.job.optimizer_settings import (
    PASSES,
    STATE,
    OptimizerSettings,
    SettingApart,
    unlike,
)
from preflight.domains.job.record import Calls
from preflight.domains.job.replica import Replica
from preflight.domains.job.tied import Untied, trained_apart
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import plural, rank_list
from preflight.model import (
    Confidence,
    Found,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = replace(REHEARSAL, required=False)

SHOWN = 3
"""Parameters by name, and ranks with a setting of their own."""
WORDS = {"lr": "learning rate", "weight_decay": "weight decay", STATE: "count of steps"}
"""Settings that have a name beside that of the argument."""
APART = frozenset({"own_group", "join"})
"""DDP's options with which ranks need not have the same."""

warning = partial(for_author, status=Status.WARN)
FINDINGS = {
    "optimizer-differs": for_author(
        headline="the ranks have different settings in their optimizer: {seen}",
        cause="ReduceLROnPlateau or another scheduler that gets the loss of the rank's own data or "
        "counts its own batches; a learning rate or weight decay that is computed from the rank",
        means="no error at all: the ranks apply the same gradients in different ways, so that each "
        "trains a model of its own, and the checkpoint of rank 0 has that of rank 0",
        text="let all ranks {hint!s}",
        status=(Status.FAIL, Status.WARN),
        explains=("job.model:replicas-diverged", "job.script:rate-per-rank"),
    ),
    "state-differs": for_author(
        headline="the optimizers of the ranks have different states: {seen}",
        cause="a checkpoint whose optimizer is loaded on one rank only (DDP gives its weights to "
        "the others, and nothing of an optimizer), an optimizer that some ranks create again",
        means="no error at all: Adam's averages differ, so that each rank takes another step from "
        "the same gradients and trains a model of its own",
        text="load the optimizer's state dict on all ranks, from a file or by "
        "broadcast_object_list",
        status=(Status.FAIL, Status.WARN),
        explains=("job.model:replicas-diverged",),
    ),
    "steps-skipped": for_author(
        headline="{at} skips steps of the optimizer that the other ranks make",
        cause="a guard against spikes or NaN that looks at the rank's own loss, a step in a try or "
        "under a condition that not all ranks meet",
        means="no error at all: the rank that skips a step keeps the weights that all others have "
        "changed, and trains a model of its own from then on",
        text="let all ranks decide alike whether to step: all_reduce the loss or the flag before "
        "the condition",
        explains=("job.model:replicas-diverged",),
    ),
    "clip-differs": for_author(
        headline="the ranks clip the gradients by different factors: {seen}",
        cause="torch.nn.utils.clip_grad_norm_ on the parameters of a model in FSDP (version 1) or "
        "on other shards, of which each rank sees its own part only; a max_norm that is computed "
        "from the rank's own loss or data",
        means="no error at all: each part of the gradient is scaled by a factor of its own, which "
        "turns it into another direction, and depends on the number of ranks",
        text="let all ranks clip by one number: {hint!s}",
        status=(Status.FAIL, Status.WARN),
        explains=("job.model:replicas-diverged",),
    ),
    "gradients-discarded": warning(
        headline="gradients are reset before a step has used them: {seen}",
        cause="accumulation over several batches with zero_grad() in each of them; with Accelerate "
        "zero_grad() at the begin of accumulate()",
        means="no error at all: each step uses the last batch alone; the others are computed in "
        "vain, and a loss that is divided by their number makes the step too small",
        text="call zero_grad() right after optimizer.step(), under the same condition, instead of "
        "at {line!s}",
        explains=("job.script:accumulation-reset",),
    ),
    "weights-untied": warning(
        headline="layers that had one weight in common have one each: {seen}",
        cause="to_empty() after the model was made on the meta device, load_state_dict with "
        "assign=True, a parameter that is assigned after the tie",
        means="no error at all: the two are trained apart, one of them maybe from random numbers, "
        "and a checkpoint of the model has another function than the one that was trained",
        text="run {line!s} again, which ties them, after the model has its weights and before the "
        "optimizer is created",
    ),
    "parameters-unregistered": warning(
        headline="layers in a plain list or dict are not trained: {seen}",
        cause="self.layers = [nn.Linear(…), …] in place of nn.ModuleList, a dict in place of "
        "nn.ModuleDict, a list in place of nn.ParameterList",
        means="no error at all: model.parameters() does not have them, so that no optimizer steps "
        "them, DDP does not share them, and no checkpoint has them",
        text="use nn.ModuleList, nn.ModuleDict or nn.ParameterList {line!s}; if they are meant to "
        "stay as they are, requires_grad_(False)",
    ),
    "parameters-replaced": warning(
        headline="parameters of the model are in no optimizer, which has older ones: {seen}",
        cause="an optimizer made before a layer was replaced: another head, resized embeddings, a "
        "copy of the model",
        means="no error at all: the new parameters get gradients and are never updated",
        text="create the optimizer at {line!s} after the model has its last layer",
    ),
    "parameters-unshared": warning(
        headline="parameters are trained outside of DDP: {seen}",
        cause="a loss with weights of its own (ArcFace, a learned temperature), a second network, "
        "layers in a plain list, or adapters (LoRA) that were added to the model after DDP "
        "wrapped it: an optimizer has them and DDP has not",
        means="no error at all: their gradients are not averaged, so that each rank learns them "
        "from its own batches, and a checkpoint has those of one rank",
        text="let DDP wrap them as well, or make them a module of the model before DDP wraps it",
    ),
    "hooks-pile-up": warning(
        headline="hooks are registered again and again: {seen}",
        cause="register_forward_hook, register_full_backward_hook or register_hook in the training "
        "step or in forward(), and no handle.remove()",
        means="each step takes longer than the one before, and memory grows; a hook that changes "
        "gradients changes them again for each of them",
        text="register {line!s} once before the loop, or keep the handle and call handle.remove() "
        "in the same step",
    ),
    "scheduler-elsewhere": warning(
        headline="a scheduler sets the learning rate of an optimizer that makes no steps: {seen}",
        cause="an optimizer that was made again (after unfreezing, after a checkpoint was loaded), "
        "and a scheduler that still has the first one",
        means="no error at all: the learning rate of the training never changes",
        text="create the scheduler at {line!s} from the optimizer that is stepped",
    ),
    "plateau-repeats": warning(
        headline="ReduceLROnPlateau gets each evaluation several times: {seen}",
        cause="accelerator.prepare(scheduler), which steps it once for each rank; a call of step() "
        "in a loop over ranks, optimizers or parameter groups",
        means="no error at all: each further call counts as an evaluation without progress: "
        "patience is used up early, and the learning rate falls while the model still learns",
        text="call step() of the scheduler made at {line!s} once for each evaluation, on all ranks "
        "with one number; with Accelerate keep it out of prepare()",
    ),
}


@dataclass(frozen=True, slots=True)
class Optimizers:
    """Of one rank. parts: it makes collectives with which ranks have parts of one model each, or
    DDP shares in another way than with all ranks in every step."""

    rank: int | None
    held: Optimized = Optimized()
    parts: bool = False
    apart: bool = False
    """The same but for the collectives: DDP shares gradients in another way."""
    settings: tuple[OptimizerSettings, ...] = ()
    models: tuple[tuple[int, int], ...] = ()
    """Of the looks at models that DDP has wrapped: steps before it, and a number that is equal for
    equal models."""
    discarded: tuple[Discarded, ...] = ()
    untied: tuple[Untied, ...] = ()
    clipping: Clipping = Clipping()
    shards: tuple[int, ...] = ()
    """Lengths of what it keeps of vectors that are summed over the ranks, and gathers."""


def observe(host: Host, ctx: Context) -> Optimizers:
    seen = load_rank(host, ctx)
    if seen.life.watched != "inside":
        raise NotApplicable(FROM_OUTSIDE)
    if not seen.optimized.steps:
        raise NotApplicable("no optimizer made a step")
    wrapped = [model for model in seen.models if model.kind == "ddp"]
    apart = any(APART.intersection(model.options) for model in wrapped) or any(
        "localsgd" in hook.lower() for model in wrapped for hook in model.hooks
    )
    return Optimizers(
        rank=seen.life.rank,
        held=seen.optimized,
        parts=seen.exchanges or apart,
        apart=apart,
        settings=seen.settings,
        models=tuple(looks_at(wrapped)),
        discarded=seen.discarded,
        untied=seen.untied,
        clipping=seen.clipping,
        shards=tuple(sorted(kept_of(seen.calls))),
    )


def kept_of(calls: Calls) -> set[int]:
    """Lengths of the parts that it keeps of tensors with one dimension, as shards of parameters
    are, which it has summed with the other ranks, and that it gathers from all of them. Gloo makes
    an all_reduce of a reduce_scatter."""
    summed, gathered = set(), set()
    for group in calls.groups:
        for call in group.calls:
            length = call.shape.partition("]")[0].strip("[")
            if not length.isdecimal():
                continue
            if call.op.lstrip("_").startswith(("reduce_scatter", "all_reduce")):
                summed.add(int(length) // max(1, len(group.ranks)))
            elif call.op.lstrip("_").startswith("all_gather"):
                gathered.add(int(length))
    return summed & gathered


def looks_at(models: Sequence[Replica]) -> Iterator[tuple[int, int]]:
    """Steps, and a number that is equal for equal models."""
    looks: dict[int, list[tuple[float | None, ...]]] = {}
    for model in models:
        for look in model.checks:
            looks.setdefault(look.step, []).append(look.sums)
    for step, sums in sorted(looks.items()):
        yield step, crc32(repr(sums).encode())


def judge(world: World[Optimizers], expect: Expect) -> Iterator[Found]:
    ranks: dict[int, tuple[Subject, Optimizers]] = {}
    for here, seen in world.each():
        if seen.rank is not None:
            ranks[seen.rank] = (rank_subject(here, seen.rank), seen)
    yield from _differs(ranks)
    yield from _clipped(ranks)
    yield from _discarded(ranks)
    yield from _unregistered(ranks)
    yield from _replaced(ranks)
    yield from _unshared(ranks)
    yield from _piled(ranks)
    yield from _elsewhere(ranks)
    yield from _repeated(ranks)
    yield from _untied(ranks)


Ranks = Mapping[int, tuple[Subject, Optimizers]]


def _differs(ranks: Ranks) -> Iterator[Found]:
    """Not where the models differ already: a scheduler that follows the loss does so, too."""
    if len(ranks) < 2 or any(seen.apart for _, seen in ranks.values()):
        return
    found = unlike({rank: seen.settings for rank, (_, seen) in ranks.items()})
    models = first_unequal({rank: dict(seen.models) for rank, (_, seen) in ranks.items()})
    if found is None:
        return
    one, own = found
    if one.name == PASSES:
        yield from _skipped(ranks, one, models)
        return
    if models is not None and models <= one.clock:
        return
    first = own[min(own)]
    made = f" · {first.kind} made at {first.frame}" if first.frame else ""
    drift = f" · the models differ after {plural(models, 'step')}" if models is not None else ""
    more = f", also {', '.join(one.more[:SHOWN])}" if one.more else ""
    group = f" of parameter group {one.group}" if one.groups > 1 else ""
    what = WORDS.get(one.name, one.name)
    yield Found(
        "state-differs" if one.name == STATE else "optimizer-differs",
        tuple(ranks[rank][0] for rank in one.odd),
        saw=f"{what}{group} is {_values(one)}{more} · {_since(one)}{made}{drift}",
        expected="the same settings on all ranks in every step",
        confidence=Confidence.CERTAIN if models is not None else Confidence.LIKELY,
        fields={"hint": _hint(one, what, own)},
        status=Status.FAIL if models is not None else Status.WARN,
    )


def _skipped(ranks: Ranks, one: SettingApart, models: int | None) -> Iterator[Found]:
    """Only where the models differ since the same look: one rank may make forward passes of its
    own, as in an evaluation."""
    if models is None or not max(one.agreed, 0) < models <= one.clock + 1:
        return
    least = min(one.by_rank.values())
    skipping = [rank for rank, passes in one.by_rank.items() if passes > least]
    yield Found(
        "steps-skipped",
        tuple(ranks[rank][0] for rank in skipping),
        saw=f"{rank_list(skipping)} made fewer steps in as many forward passes: step "
        f"{one.step + 1} comes after pass {_values(one)} · as many until step {one.agreed + 1} · "
        f"the models differ after {plural(models, 'step')}",
        expected="as many forward passes before a step on all ranks",
        confidence=Confidence.LIKELY,
        alternatives=("the models had come apart before, so that the ranks decide differently",),
    )


def _clipped(ranks: Ranks) -> Iterator[Found]:
    """Not of max_norm where DDP averages in a way of its own."""
    if len(ranks) < 2:
        return
    shards = set.intersection(*({*seen.shards} for _, seen in ranks.values()))
    models = first_unequal({rank: dict(seen.models) for rank, (_, seen) in ranks.items()})
    found = {rank: seen.clipping for rank, (_, seen) in ranks.items()}
    if (apart := clipped_apart(found, shards, models)) is None:
        return
    own = apart.why == LIMIT
    if own and any(seen.apart for _, seen in ranks.values()):
        return
    frame = found[min(found)].frame
    at = f" at {frame}" if frame else ""
    drift = f" · the models differ after {plural(models, 'step')}" if own and models else ""
    yield Found(
        "clip-differs",
        tuple(subject for subject, _ in ranks.values()),
        saw=f"{'max_norm' if own else 'the norm of its own shard'} is {_limits(apart)} in step "
        f"{apart.step + 1}, factor {_factors(apart)} · clipped{at}{drift}",
        expected="one norm, of the gradients of all shards"
        if not own
        else "the same max_norm on all ranks",
        confidence=Confidence.LIKELY if apart.why == PARTS else Confidence.CERTAIN,
        alternatives=("each rank is meant to have a norm of its own",)
        if apart.why == PARTS
        else (),
        fields={"hint": _clip_hint(apart.why, at)},
        status=Status.WARN if apart.why == PARTS else Status.FAIL,
    )


def _clip_hint(why: str, at: str) -> str:
    if why == LIMIT:
        return f"all_reduce what max_norm{at} is computed from"
    if why == SHARDS:
        return (
            f"call clip_grad_norm_ of the FSDP model itself{at}, in place of that of torch.nn.utils"
        )
    return (
        f"all_reduce the square of get_total_norm over the shards{at}, and give the root of the "
        "sum to clip_grads_with_norm_"
    )


def _limits(apart: ClippedApart) -> str:
    def number(one: Clip) -> float:
        return one.limit if apart.why == LIMIT else one.norm

    shown = [f"{number(one):.4g} on rank {r}" for r, one in sorted(apart.by_rank.items())[:SHOWN]]
    more = f" and others on {len(apart.by_rank) - SHOWN} more" if len(apart.by_rank) > SHOWN else ""
    return ", ".join(shown) + more


def _factors(apart: ClippedApart) -> str:
    factors = sorted(one.factor for one in apart.by_rank.values())
    return f"{factors[0]:.3g} to {factors[-1]:.3g}"


def first_unequal(models: Mapping[int, Mapping[int, int]]) -> int | None:
    """After how many steps models differ between ranks, of the looks that all have made."""
    steps = set.intersection(*(set(looks) for looks in models.values()))
    unequal = (s for s in sorted(steps) if len({looks[s] for looks in models.values()}) > 1)
    return next(unequal, None)


def _values(one: SettingApart) -> str:
    """`0.1 on rank 0, 0.2 on ranks 1-3`."""
    rows: dict[tuple[float, ...], list[int]] = {}
    for rank, values in sorted(one.by_rank.items()):
        rows.setdefault(values, []).append(rank)
    shown = [f"{_number(values)} on {rank_list(of)}" for values, of in [*rows.items()][:SHOWN]]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    return ", ".join(shown) + more


def _number(values: Sequence[float]) -> str:
    text = ", ".join(f"{value:.6g}" for value in values)
    return text if len(values) == 1 else f"({text})"


def _since(one: SettingApart) -> str:
    if one.agreed < 0:
        return "from the first step"
    before = f", the same in step {one.agreed + 1}" if one.agreed < one.step - 1 else ""
    return f"since step {one.step + 1}{before}"


def _hint(one: SettingApart, what: str, own: Mapping[int, OptimizerSettings]) -> str:
    first = own[min(own)]
    at = f" at {first.frame}" if first.frame else ""
    if one.agreed < 0 or one.name != "lr":
        return f"give the optimizer{at} one {what}, with nothing in it that depends on the rank"
    if first.schedule is None:
        return f"set the learning rate of the optimizer{at} from numbers that are the same on all"
    return (
        f"make the scheduler at {first.schedule} with the same length and step it as often, with "
        "one number: all_reduce the loss or metric that it gets"
    )


def _discarded(ranks: Ranks) -> Iterator[Found]:
    found = {r: one for r, (_, seen) in ranks.items() if (one := thrown_away(seen.discarded))}
    if not found:
        return
    one = next(iter(found.values()))
    line = f" at {one.frame}" if one.frame else ""
    each = f"{one.batches / one.wasted:.3g}"
    yield Found(
        "gradients-discarded",
        tuple(ranks[rank][0] for rank in found),
        saw=f"zero_grad(){line} reset gradients that no step had used, before {one.wasted} of "
        f"{plural(one.steps, 'step')} of {one.kind} · {each} batches per step",
        expected="the gradients of all batches since the last step",
        confidence=Confidence.LIKELY,
        alternatives=("the script adds them up in tensors of its own before it resets them",),
        fields={"line": str(one.frame or "the begin of a batch")},
    )


def _untied(ranks: Ranks) -> Iterator[Found]:
    found = {r: ties for r, (_, seen) in ranks.items() if (ties := trained_apart(seen.untied))}
    if not found:
        return
    ties = next(iter(found.values()))
    one = ties[0]
    more = f" and {plural(len(ties) - 1, 'more pair')}" if len(ties) > 1 else ""
    tied = f" · tied at {one.frame}" if one.frame else ""
    yield Found(
        "weights-untied",
        tuple(ranks[rank][0] for rank in found),
        saw=f"{one.name} and {one.other}, {one.shape.partition(']')[0]}], were one parameter and "
        f"are two{more} · both had gradients and an optimizer for "
        f"{plural(one.until - one.since, 'step')}{tied}",
        expected="one parameter in both layers",
        confidence=Confidence.LIKELY,
        alternatives=("the two are meant to be trained apart from now on",),
        fields={"line": str(one.frame or "the line")},
    )


def _unregistered(ranks: Ranks) -> Iterator[Found]:
    found = {r: one for r, (_, seen) in ranks.items() if (one := lasting(seen.held.hidden))}
    if not found:
        return
    first = next(iter(found.values()))
    frame = first[0].frame
    yield Found(
        "parameters-unregistered",
        tuple(ranks[rank][0] for rank in found),
        saw=f"{_some(first)} · had gradients for {_steps(first[0])}, but are no parameters of the "
        "model and no optimizer's" + (f" · made at {frame}" if frame else ""),
        expected="all parameters with gradients in model.parameters()",
        confidence=Confidence.LIKELY,
        alternatives=("they are of a network that is meant to stay as it is",),
        fields={"line": f"at {frame}" if frame else "there"},
    )


def _replaced(ranks: Ranks) -> Iterator[Found]:
    found = {r: pairs for r, (_, seen) in ranks.items() if (pairs := replaced(seen.held))}
    if not found:
        return
    pairs = next(iter(found.values()))
    new, old = pairs[0]
    line = f" at {old.frame}" if old.frame else ""
    yield Found(
        "parameters-replaced",
        tuple(ranks[rank][0] for rank in found),
        saw=f"{_some([one for one, _ in pairs])} · had "
        f"gradients for {_steps(new)}, but the optimizer made{line} has {_shape(old)}, without "
        f"gradients, where the model has {_shape(new)}",
        expected="an optimizer with the parameters that the model has now",
        confidence=Confidence.LIKELY,
        fields={"line": str(old.frame or "its line")},
    )


def _unshared(ranks: Ranks) -> Iterator[Found]:
    loose = {r: seen.held.loose for r, (_, seen) in ranks.items() if seen.held.loose is not None}
    if len(loose) < max(2, len(ranks)) or any(seen.parts for _, seen in ranks.values()):
        return
    if (differs := unshared(loose)) is None:
        return
    first = loose[differs.odd[0]]
    where = f" of {first.where}" if first.where else ""
    since = f"after {plural(differs.step, 'step')}" if differs.step else "from the start"
    yield Found(
        "parameters-unshared",
        tuple(ranks[rank][0] for rank in sorted(loose)),
        saw=f"{plural(len(first.names), 'parameter')}{where} · {first.names[0]}, {first.shapes[0]}"
        f", differs on {rank_list(differs.odd)} {since} · stepped by the optimizer made at "
        f"{first.frame or 'a place that is not known'}, and in no DDP",
        expected="the same parameters on all ranks after every step",
        confidence=Confidence.LIKELY,
        alternatives=("the ranks are meant to have such parameters of their own",),
    )


def _piled(ranks: Ranks) -> Iterator[Found]:
    found = {r: looks for r, (_, seen) in ranks.items() if (looks := piles_up(seen.held.hooks))}
    if not found:
        return
    rank, looks = next(iter(found.items()))
    hooks = ranks[rank][1].held.hooks
    line = f" · begins at {hooks.frame}" if hooks.frame else ""
    (start, few), (end, many) = looks[0], looks[-1]
    yield Found(
        "hooks-pile-up",
        tuple(ranks[rank][0] for rank in found),
        saw=f"{few} hooks after {plural(start, 'step')}, {many} after {end} · "
        f"{plural(hooks.most, hooks.kind)} of {hooks.owner}{line}",
        expected="as many hooks in each step",
        confidence=Confidence.CERTAIN,
        fields={"line": f"the function at {hooks.frame}" if hooks.frame else "hooks"},
    )


def _elsewhere(ranks: Ranks) -> Iterator[Found]:
    found = {r: one for r, (_, seen) in ranks.items() if (one := outdated(seen.held.schedulers))}
    if not found:
        return
    one = next(iter(found.values()))
    line, other = (f" at {frame}" if frame else "" for frame in (one.frame, one.instead))
    yield Found(
        "scheduler-elsewhere",
        tuple(ranks[rank][0] for rank in found),
        saw=f"one counted {one.counts} times in {plural(one.idle, 'step')} of another optimizer · "
        f"made{line} · the other one, made{other}, has the same parameters and one learning rate",
        expected="a scheduler with the optimizer that is stepped",
        confidence=Confidence.LIKELY,
        fields={"line": str(one.frame or "its line")},
    )


def _repeated(ranks: Ranks) -> Iterator[Found]:
    found = {r: one for r, (_, seen) in ranks.items() if (one := counts_again(seen.held.plateaus))}
    if not found:
        return
    one = next(iter(found.values()))
    line = str(one.frame) if one.frame else "a place that is not known"
    yield Found(
        "plateau-repeats",
        tuple(ranks[rank][0] for rank in found),
        saw=f"{one.most} calls of step() after each of {one.rounds} evaluations · made at {line}",
        expected="one call for each evaluation",
        confidence=Confidence.LIKELY,
        fields={"line": line},
    )


def _some(held: Sequence[Held]) -> str:
    more = f" and {len(held) - SHOWN} more" if len(held) > SHOWN else ""
    return ", ".join(one.name for one in held[:SHOWN]) + more


def _steps(one: Held) -> str:
    return plural(one.until - one.since, "step")


def _shape(one: Held) -> str:
    return one.shape.partition("]")[0] + "]"


def measured(world: World[Optimizers]) -> Measured:
    steps = min((seen.held.steps for _, seen in world.each()), default=0)
    return Measured(f"{plural(steps, 'step')} of optimizers")
