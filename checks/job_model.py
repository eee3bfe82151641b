"""Do all ranks train the same model?

Level        deep
Looks at     of each rank of a rehearsed command: name, shape and requires_grad of the parameters
             and names of the buffers, in their order, when DDP wraps a model; before steps 1, 2, 3,
             4, 5, 7, 9, 13 … of the optimizer a few numbers out of up to 512 parameters and as many
             buffers; which parameters ever had a gradient, and which were frozen when DDP was built
             and are trained later; whether DDP summed the gradients that a step uses; learning
             rates and seeds; copies of the model by copy.deepcopy, as of averaged weights
Fails if     ranks wrap models with other parameters, or with the same ones in another order;
             parameters of a model that DDP has wrapped differ between ranks; those of a model
             without DDP do from the start, and are stepped with the same gradients; DDP ended a
             rank because parameters took no part in the loss; a copy of the model differs where
             all ranks load it into the model or call it (AveragedModel)
Warns if     parameters that were equal at the start differ later, though gradients are summed
             without DDP; a buffer of a model in DDP that no rank changes differs between ranks;
             ranks have the same buffers in different orders; a model takes nothing of a state dict
             that is loaded without strict; in 16 steps no parameter of a model
             changes that has gradients or an optimizer; a model that was in training mode makes
             its latest 16 steps in evaluation mode; all ranks train a model of one shape, and none
             has called init_process_group; all ranks update a copy of equal models, and it differs;
             without DDP, ranks with parts of one model (some of its numbers differ before the first
             step, and some don't) that exchange in forward() or backward(): what they had in common
             comes apart, or all normalisations as wide as that, or one beside layers which all have
             in common; models stop to change when the learning rate comes down to 0, and 32 steps
             and more are made after that
Undecided    no rank got to its first step; not a rehearsal (preflight rehearse -- CMD)
Not covered  buffers that change with the steps, such as BatchNorm's; parameters that are sharded
             (FSDP, DTensor) or sparse; a forward of a copy that is no AveragedModel; parameters
             that start as a constant, where ranks have parts of one model, but for such
             normalisations; models that DDP wraps in a group of their own; some parameters of a
             model without DDP that sends samples to its experts by all_to_all; numbers of a
             parameter that are not looked at
Seen as      "DDP expects same model across all ranks", "Expected to have finished reduction in the
             prior iteration before starting a new one", or no error: a loss that is worse than on
             one GPU, checkpoints that depend on the rank that saved them
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from preflight.check import Context
from preflight.domains.job.clipping import Clip, Clipping, scaled_apart
from preflight.domains.job.copies import LOAD, CopiesApart, ModelCopy, copies_apart
from preflight.domains.job.frame import Frame
from preflight.domains.job.load import REHEARSAL, for_author, load_rank, nothing_seen, rank_subject
from preflight.domains.job.optimizer_settings import is_idle
from preflight.domains.job.replica import (
    Drift,
    Load,
    Reordered,
    Replica,
    apart_by_group,
    averaged_apart,
    common_apart,
    constants_differ,
    differs_at,
    of_kind,
    reordered,
    replaced_too_late,
    stopped,
    structure,
    unchanged,
    unfrozen_too_late,
    unreduced_on,
    without_gradient,
)
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import plural, rank_list, size
from preflight.model import (
    Confidence,
    Found,
    Measured,
    Status,
    Subject,
    World,
)

CHECK = replace(REHEARSAL, required=False)

UNREDUCED = "Expected to have finished reduction"
RAISED = ("job.ranks:rank-raised", "job.collectives", "job.pace", "job.memory")
EXCHANGES, STEPS = 0.5, 8
"""Collectives per step below which no gradients are summed, once there were so many steps."""
GRADIENTS = 0.5
"""Part of the gradients' bytes that is summed in each step where it is the gradients."""
PASSES = ("forward", "backward")
"""Functions of a model's own that exchange what its parts compute."""
ROUTES = "all_to_all"
SHOWN = 4
SUBGROUPS = 64
ENOUGH = 16
"""Steps in which nothing changes, or in evaluation mode, before it is worth a word."""

FINDINGS = {
    "model-structure": for_author(
        headline="the ranks wrap models with different parameters: {seen}",
        cause="a size or depth that depends on the rank, layers that are made or frozen on some "
        "ranks only, another version of the code or of the checkpoint",
        means="'DDP expects same model across all ranks', or a hang in the first all-reduce",
        text="let all ranks build the same model before {line!s}",
        explains=RAISED,
    ),
    "order-differs": for_author(
        headline="the ranks have the layers of their model in different orders: {seen}",
        cause="layers, parameters or buffers that are made in the order of a set, which is another "
        "one in each process where it holds strings, or in that of a listed folder",
        means="no error at all where shapes are equal: DDP shares parameters, buffers and "
        "gradients by their place, and gives a rank those of another layer; else 'DDP expects same "
        "model across all ranks'",
        text="make the {what!s}s in one order on all ranks before {line!s} wraps them: from a "
        "list, or from sorted(…) of the set",
        status=(Status.FAIL, Status.WARN),
        explains=RAISED,
    ),
    "replicas-diverged": for_author(
        headline="the ranks do not have the same model: {seen}",
        cause="weights that are loaded, initialised or changed on some ranks after DDP wrapped the "
        "model, or never shared where gradients are averaged without DDP; a forward of "
        "model.module, no_sync() around the last backward before optimizer.step(), parameters that "
        "are unfrozen or replaced after DDP was built, other learning rates",
        means="no error at all: each rank trains a model of its own, and the checkpoint of rank 0 "
        "has learned from its part of the data only",
        text="find what sets the ranks apart: {hint!s}",
        status=(Status.FAIL, Status.WARN),
    ),
    "common-parameters-differ": for_author(
        headline="parameters that ranks have in common come apart: {seen}",
        cause="gradients of replicated parameters (embedding, normalisation, bias) that nobody "
        "sums over the tensor or sequence parallel group; gradients that are averaged over the "
        "tensor parallel group in place of the data parallel one; clip_grad_norm_ with a norm of "
        "each rank's own",
        means="no error at all: each rank trains weights of its own where there should be one, and "
        "a checkpoint has those of one rank",
        text="give these parameters the same gradients on all ranks that have them in common: "
        "{hint!s}",
        status=Status.WARN,
    ),
    "copies-differ": for_author(
        headline="the ranks have different copies of the model: {seen}",
        cause="averaged weights (EMA, SWA) or a teacher that rank 0 alone updates and all ranks "
        "use, that each rank updates by a number of its own, or that was made before DDP wrapped "
        "the model, from weights of another seed on each rank",
        means="no error at all: metrics that are averaged over the ranks are of different weights; "
        "where the copy is loaded into the model, the ranks train different ones from then on",
        text="update the copy made at {line!s} in the same way on all ranks, in each step; or "
        "broadcast its parameters from the rank that has updated it, before the others use it",
        status=(Status.FAIL, Status.WARN),
        explains=("job.model:replicas-diverged",),
    ),
    "buffers-differ": for_author(
        headline="the ranks have different constants in their model: {seen}",
        cause="a buffer that is computed or loaded on some ranks only after DDP wrapped the model, "
        "with broadcast_buffers=False",
        means="no error at all: each rank computes another function, and what is saved is that of "
        "rank 0",
        text="set the buffer before {line!s}, or leave broadcast_buffers at True",
        status=Status.WARN,
    ),
    "checkpoint-unmatched": for_author(
        headline="no key of a checkpoint matched the model: {seen}",
        cause="the keys of a model that DDP or torch.compile had wrapped (module., _orig_mod.), or "
        "a checkpoint of another model, with strict=False",
        means="no error at all: the training starts from the initial weights",
        text="check the missing_keys that load_state_dict returns at {line!s}, and {hint!s}",
        status=Status.WARN,
    ),
    "model-unchanged": for_author(
        headline="the parameters of the model never change: {seen}",
        cause="an optimizer with the parameters of another model or of a copy, an output that is "
        "not used in the loss, a learning rate of 0, updates that bfloat16 rounds to 0",
        means="no error at all: this model is not trained",
        text="fix the training of this model: {hint!s}",
        status=Status.WARN,
    ),
    "rate-zero": for_author(
        headline="the learning rate is 0, and the training goes on: {seen}",
        cause="a scheduler that is stepped more often than its length assumes: once per rank by "
        "Accelerate, which prepare() makes of it; in each micro-batch, or once per batch where its "
        "length is in epochs; a length that is computed from a DataLoader of one rank; a state of "
        "an earlier, shorter run",
        means="no error at all: from this step on nothing is learned",
        text="count the steps that the scheduler makes in one of the optimizer, and give it a "
        "length in the same unit",
        status=Status.WARN,
    ),
    "mode-evaluation": for_author(
        headline="the model is trained in eval mode: {seen}",
        cause="model.eval() for validation without model.train() after it",
        means="no error at all: dropout is off, and BatchNorm uses its running statistics and "
        "does not update them",
        text="call model.train() after each evaluation, before the next batch of the training",
        status=Status.WARN,
    ),
    "never-joined": for_author(
        headline="the ranks train a model each: none of them has called init_process_group",
        cause="a script that waits for --local_rank, which torchrun does not pass, or another "
        "condition around init_process_group that is never true",
        means="no error at all: as many trainings as ranks, each with the gradients of its own "
        "batches only, most often all of them on GPU 0",
        text="read the rank from LOCAL_RANK in the environment, not from an argument, and call "
        "init_process_group on every rank",
        status=Status.WARN,
    ),
    "gradients-unused": for_author(
        headline="parameters take no part in the loss: {seen}",
        cause="a layer or branch that the forward does not use, an output that is left out of the "
        "loss, a loss of what torch.distributed.all_gather returned, which passes no gradient back",
        means="'Expected to have finished reduction in the prior iteration before starting a new "
        "one', at the second forward",
        text="remove the layer, or freeze it (requires_grad_(False)) before {line!s}; where "
        "features are gathered, put the rank's own back into the list or use "
        "torch.distributed.nn.functional.all_gather; where each rank takes or leaves it by itself, "
        "let all choose alike (one seed, a broadcast); or pass find_unused_parameters=True to "
        "DDP, which costs time in each step",
        explains=RAISED,
    ),
}


@dataclass(frozen=True, slots=True)
class Models:
    """The models of one rank. steps, collectives: done in all; exchanged: bytes that its
    collectives took in each step; failed: the exception that ended it; alone: it has never joined
    the other ranks, of which its environment speaks, nor imported what else may exchange
    gradients."""

    rank: int | None
    models: tuple[Replica, ...]
    steps: int = 0
    collectives: int = 0
    exchanged: float = 0.0
    failed: str = ""
    alone: bool = False
    loads: tuple[Load, ...] = ()
    copies: tuple[ModelCopy, ...] = ()
    idle: bool = False
    """All its optimizers had a learning rate of 0 when they were looked at last."""
    schedule: Frame | None = None
    """The user's line that makes the first scheduler."""
    clipping: Clipping = Clipping()
    subgroups: tuple[tuple[tuple[int, ...], int], ...] = ()
    """The ranks of each group that has not all of them, and how many collectives it has made."""
    within: bool = False
    """Its collectives are also those of a function's forward or backward, as in tensor parallel by
    hand, and none sends parts to some ranks only, as to experts or to the next stage."""
    routed: bool = False
    """Functions of the model send parts of a batch to the ranks that have experts for them."""


def observe(host: Host, ctx: Context) -> Models:
    seen = load_rank(host, ctx)
    if not seen.models:
        raise nothing_seen(seen, "no model was wrapped in DDP, and no optimizer made a step")
    end = seen.life.end
    calls = sum(group.enqueued for group in seen.calls.groups)
    made = [call for group in seen.calls.groups for call in group.calls]
    within = [call for call in made if call.frame is not None and call.frame.function in PASSES]
    between = [call.p2p for call in made]
    # neighbours that mix their weights sum no gradients
    summing = calls if 2 * sum(between) <= len(between) else 0
    return Models(
        rank=seen.life.rank,
        models=seen.models,
        steps=seen.calls.steps,
        collectives=calls,
        exchanged=seen.pace.mean_size * summing / max(1, seen.calls.steps),
        loads=seen.loads,
        copies=seen.copies,
        idle=bool(seen.settings) and all(is_idle(one) for one in seen.settings),
        schedule=next((one.schedule for one in seen.settings if one.schedule), None),
        clipping=seen.clipping,
        subgroups=tuple(
            (group.ranks, group.enqueued)
            for group in seen.calls.groups[:SUBGROUPS]
            if 1 < len(group.ranks) < seen.life.world
        ),
        within=bool(within) and not any(call.p2p or call.op.startswith(ROUTES) for call in made),
        routed=any(call.op.startswith(ROUTES) for call in within),
        failed=(end.whole or end.text) if end is not None and end.how == "raised" else "",
        alone=seen.life.world > 1
        and not (seen.life.joined or seen.life.joins or seen.calls.groups or seen.calls.libraries),
    )


def judge(world: World[Models], expect: Expect) -> Iterator[Found]:
    ranks: dict[int, tuple[Subject, Models]] = {}
    for here, seen in world.each():
        if seen.rank is not None:
            ranks[seen.rank] = (rank_subject(here, seen.rank), seen)
    yield from _unmatched(ranks)
    known = {rank: seen.models for rank, (_, seen) in ranks.items()}
    subjects = {rank: subject for rank, (subject, _) in ranks.items()}
    yield from _copies(ranks)
    for models in of_kind(known, "ddp"):
        options = {option for one in models.values() for option in one.options}
        if "own_group" in options and "join" not in options:
            yield from _averaged_in_groups(models, ranks)
        if options & {"own_group", "join"}:
            continue  # who is in it is not known, or ranks make as many steps as they have batches
        if (order := reordered(models)) is not None:
            yield _order(order, models, subjects)
            if order.what == "parameter":
                return
        if (found := structure(models)) is not None:
            yield _structure(found, models, subjects)
            return
        yield from _constants(models, subjects)
        differs = differs_at(models)
        local = any("localsgd" in h.lower() for one in models.values() for h in one.hooks)
        if differs is not None and not local:
            yield _diverged(differs, models, ranks)
            return
    if not any(one.kind == "ddp" for models in known.values() for one in models):
        for models in of_kind(known, "optimizer"):
            if all(seen.within for _, seen in ranks.values()) and (apart := common_apart(models)):
                yield _common(*apart, models, ranks)
                return
            if (differs := differs_at(models)) is None or not _exchanged(models, ranks):
                continue
            if averaged_apart(differs, models):
                yield _never_equal(differs, models, ranks)
                return
            # experts that were made alike: each learns from what is sent to it
            own = all(seen.routed for _, seen in ranks.values()) and differs.many < differs.compared
            if differs.agreed >= 0 and not differs.again and not own:
                yield _drifted(differs, models, ranks)
                return
    if any(seen.failed for _, seen in ranks.values()):
        yield from _unused(ranks)
        return
    yield from _alone(ranks)
    for kind in ("ddp", "optimizer"):
        for models in of_kind(known, kind):
            yield from _untrained(models, subjects)
    yield from _rate_zero(ranks)


def _averaged_in_groups(
    models: Mapping[int, Replica], ranks: Mapping[int, tuple[Subject, Models]]
) -> Iterator[Found]:
    """Where ranks of different groups of DDP's work on one batch together, as those do that have a
    part of each sequence, their gradients belong to one sum. Ranks that exchange nothing train
    models of their own."""
    wrapped = [one for _, seen in ranks.values() for one in seen.models if one.kind == "ddp"]
    apart = apart_by_group(models) if len(wrapped) == len(ranks) else None
    if apart is None:
        return
    differs, together = apart
    part = {rank: number for number, of in enumerate(together) for rank in of}
    if not any(
        calls >= seen.steps > 0 and len({part[r] for r in of if r in part}) > 1
        for _, seen in ranks.values()
        for of, calls in seen.subgroups
    ):
        return
    groups = " and ".join(rank_list(one) for one in together[:SHOWN])
    line = _wrapped_at(models)
    yield Found(
        "replicas-diverged",
        tuple(ranks[rank][0] for rank in differs.odd),
        saw=f"{_told(differs, models)} · equal on all ranks at the start, now on {groups} each, "
        "which exchange something in each step",
        expected="the same parameters on all ranks that work on one batch together",
        confidence=Confidence.POSSIBLE,
        alternatives=(f"{groups} are meant to train models of their own",),
        fields={
            "hint": f"pass DDP{line} the group of all ranks that have the same weights, data x "
            f"sequence or context parallel, as it averages over {rank_list(together[0])} only"
        },
        status=Status.WARN,
    )


def _unmatched(ranks: Mapping[int, tuple[Subject, Models]]) -> Iterator[Found]:
    """A checkpoint that was loaded without strict and fits in no key."""
    having = [
        (subject, seen.loads[0]) for _, (subject, seen) in sorted(ranks.items()) if seen.loads
    ]
    if not having:
        return
    first = having[0][1]
    line = str(first.frame) if first.frame else "load_state_dict"
    prefixed = "module." in first.given.replace(first.wanted, "")
    yield Found(
        "checkpoint-unmatched",
        tuple(subject for subject, _ in having),
        saw=f"load_state_dict at {line} loaded 0 of {plural(first.keys, 'key')}: the checkpoint "
        f"has {first.given}, the model has {first.wanted}",
        expected="keys that the model has",
        confidence=Confidence.CERTAIN,
        fields={
            "line": line,
            "hint": "save model.module.state_dict, or remove the prefix module."
            if prefixed
            else "rename the keys to those of the model",
        },
    )


def _copies(ranks: Mapping[int, tuple[Subject, Models]]) -> Iterator[Found]:
    """Not of ranks that DDP gives other gradients."""
    wrapped = [one for _, seen in ranks.values() for one in seen.models if one.kind == "ddp"]
    local = any("localsgd" in hook.lower() for one in wrapped for hook in one.hooks)
    if local or any({"own_group", "join"} & {*one.options} for one in wrapped):
        return
    drifts = (
        differs_at(models)
        for models in of_kind({rank: seen.models for rank, (_, seen) in ranks.items()}, "ddp")
    )
    unequal = min((drift.step for drift in drifts if drift is not None), default=None)
    apart = copies_apart({rank: seen.copies for rank, (_, seen) in ranks.items()}, unequal)
    if apart is None:
        return
    line = str(next(iter(apart.copies.values())).frame or "its line")
    yield Found(
        "copies-differ",
        tuple(ranks[rank][0] for rank in apart.drift.odd),
        saw=f"{apart.drift.name} of the copy made at {line} differs on "
        f"{rank_list(apart.drift.odd)}, {_used(apart)}",
        expected="the same numbers in the copies of all ranks, as in their models",
        confidence=Confidence.LIKELY if apart.use is None else Confidence.CERTAIN,
        alternatives=("each rank is meant to have a copy of its own",) if apart.use is None else (),
        fields={"line": line},
        status=Status.WARN if apart.use is None else Status.FAIL,
    )


def _used(apart: CopiesApart) -> str:
    if apart.use is None:
        never = ", never equal, like a copy made before DDP gives all ranks rank 0's model"
        when = _when(apart.drift) + (never if apart.drift.agreed < 0 else "")
        return f"{when} · all ranks update it, and their models are equal"
    how = "loaded into the model" if apart.use.how == LOAD else "called"
    where = f" at {apart.use.frame}" if apart.use.frame else ""
    never = f" · it never changes on {rank_list(apart.still)}" if apart.still else ""
    after = plural(apart.use.looked.step, "step")
    return f"where all ranks have it {how}{where} after {after}{never}"


def _structure(
    found: tuple[tuple[int, ...], bool, str],
    models: Mapping[int, Replica],
    subjects: Mapping[int, Subject],
) -> Found:
    odd, tie, told = found
    line = next((str(models[r].frame) for r in odd if models[r].frame), "the line that wraps it")
    return Found(
        "model-structure",
        tuple(subjects[rank] for rank in odd),
        saw=f"{told} · wrapped at {line}",
        expected="the same parameters on all ranks",
        confidence=Confidence.CERTAIN,
        alternatives=tuple(f"rank {r} is the one that was meant" for r in odd[:2]) if tie else (),
        fields={"line": line},
    )


def _order(
    found: Reordered, models: Mapping[int, Replica], subjects: Mapping[int, Subject]
) -> Found:
    line = next((str(m.frame) for r in found.odd if (m := models[r]).frame), "the line that wraps")
    rows: dict[str, list[int]] = {}
    for rank in sorted(found.there):
        rows.setdefault(found.there[rank], []).append(rank)
    told = "; ".join(f"{name} on {rank_list(of)}" for name, of in list(rows.items())[:SHOWN])
    buffers = found.what == "buffer"
    return Found(
        "order-differs",
        tuple(subjects[rank] for rank in found.odd),
        saw=f"{found.what} {found.place + 1} of {found.many} is {told} · all have the same "
        f"{found.what}s · wrapped at {line}",
        expected=f"the same {found.what}s in the same order on all ranks",
        confidence=Confidence.LIKELY if buffers else Confidence.CERTAIN,
        alternatives=("those that change places hold the same numbers",) if buffers else (),
        fields={"line": line, "what": found.what},
        status=Status.WARN if buffers else Status.FAIL,
    )


def _constants(models: Mapping[int, Replica], subjects: Mapping[int, Subject]) -> Iterator[Found]:
    if len(models) < 2 or (found := constants_differ(models)) is None:
        return
    name, odd, _ = found
    line = next((str(models[r].frame) for r in odd if models[r].frame), "the line that wraps it")
    yield Found(
        "buffers-differ",
        tuple(subjects[rank] for rank in odd),
        saw=f"buffer {name} differs on {rank_list(odd)} and never changes · wrapped at {line}",
        expected="the same buffers on all ranks",
        confidence=Confidence.POSSIBLE,
        alternatives=("the ranks are meant to have their own, such as a rank or a seed",),
        fields={"line": line},
    )


def _when(differs: Drift) -> str:
    if differs.step == 0:
        return "before the first step"
    after = f"after {plural(differs.step, 'step')}"
    return f"{after}, equal after {differs.agreed}" if differs.agreed > 0 else after


def _diverged(
    differs: Drift,
    models: Mapping[int, Replica],
    ranks: Mapping[int, tuple[Subject, Models]],
) -> Found:
    return Found(
        "replicas-diverged",
        tuple(ranks[rank][0] for rank in differs.odd),
        saw=_told(differs, models),
        expected="the same parameters on all ranks after every step",
        confidence=Confidence.CERTAIN,
        fields={"hint": _hint(differs, models, ranks)},
    )


def _drifted(
    differs: Drift,
    models: Mapping[int, Replica],
    ranks: Mapping[int, tuple[Subject, Models]],
) -> Found:
    return Found(
        "replicas-diverged",
        tuple(ranks[rank][0] for rank in differs.odd),
        saw=_told(differs, models) + " · equal at the start, and gradients are summed without DDP",
        expected="the same parameters on all ranks after every step",
        confidence=Confidence.POSSIBLE,
        alternatives=("the ranks are meant to have models of their own",),
        fields={"hint": _hint(differs, models, ranks)},
        status=Status.WARN,
    )


def _never_equal(
    differs: Drift,
    models: Mapping[int, Replica],
    ranks: Mapping[int, tuple[Subject, Models]],
) -> Found:
    return Found(
        "replicas-diverged",
        tuple(ranks[rank][0] for rank in differs.odd),
        saw=_told(differs, models) + " · never equal, but stepped with the same gradients",
        expected="the same parameters on all ranks before the first step",
        confidence=Confidence.LIKELY,
        fields={
            "hint": "the weights at the start: dist.broadcast each parameter and buffer from rank "
            "0 before the first step, or let DDP wrap the model, which does that"
        },
    )


def _common(
    differs: Drift,
    together: Sequence[Sequence[int]],
    models: Mapping[int, Replica],
    ranks: Mapping[int, tuple[Subject, Models]],
) -> Found:
    first = models[differs.odd[0]]
    names = _some(
        [f"{n} {first.shapes[i]}" for n, i in zip(differs.names, differs.numbers, strict=True)]
    )
    many = len(together) > 1 or len(together[0]) < len(models)
    groups = " and ".join(rank_list(one) for one in together[:SHOWN])
    if many:
        hint = f"sum them over {groups}, in an all_reduce whose group has these ranks"
    else:
        hint = (
            "sum them in the backward of what precedes a layer that is split by columns, or by "
            "all_reduce before the step, and leave those of layers that are split as they are"
        )
    clipped = _clipped(differs, models, ranks)
    factors = ", ".join(f"{one.factor:.3g}" for one in list(clipped.values())[:SHOWN])
    if clipped:
        frame = ranks[differs.odd[0]][1].clipping.frame
        at = f" at {frame}" if frame else ""
        hint = (
            f"clip them by one norm{at}: add up the squares of the norms of all ranks with "
            "all_reduce, those of common parameters once, and give the root to "
            "clip_grads_with_norm_"
        )
    return Found(
        "common-parameters-differ",
        tuple(ranks[rank][0] for rank in differs.odd),
        saw=f"{names} · the same on {groups} before the first step, others {_when(differs)} · each "
        "rank has other numbers of the layers that are split"
        + (f" · the same gradients, clipped by factors {factors}" if clipped else ""),
        expected="the same numbers after every step where they were the same before the first",
        confidence=Confidence.LIKELY,
        alternatives=("the ranks are meant to have such parameters of their own",),
        fields={"hint": hint},
    )


def _clipped(
    differs: Drift,
    models: Mapping[int, Replica],
    ranks: Mapping[int, tuple[Subject, Models]],
) -> dict[int, Clip]:
    """What each rank has clipped by, where gradients of what all have in common differ by that."""
    number, gradients = differs.numbers[0], {}
    for rank in models:
        looks = ((one.step, one.sums) for one in models[rank].graded)
        told = {step: sums[number] for step, sums in looks if number < len(sums)}
        gradients[rank] = {step: value for step, value in told.items() if value}
    return scaled_apart({rank: ranks[rank][1].clipping for rank in models}, gradients)


def _exchanged(models: Mapping[int, Replica], ranks: Mapping[int, tuple[Subject, Models]]) -> bool:
    """Whether it looks like data parallel by hand: in each step about as much is exchanged as there
    are gradients."""
    return all(
        ranks[rank][1].exchanged >= GRADIENTS * one.bytes > 0 for rank, one in models.items()
    )


def _told(differs: Drift, models: Mapping[int, Replica]) -> str:
    who = rank_list(differs.odd)
    text = f"{differs.name} differs on {who} {_when(differs)}"
    text += f" · {differs.many} of {differs.compared} parameters that are compared do"
    first = models[differs.odd[0]]
    text += f" · wrapped at {first.frame}" if first.frame else ""
    if len({one.seed for one in models.values()}) > 1:
        text += " · the seeds differ, which is no fault by itself"
    return text


def _wrapped_at(models: Mapping[int, Replica]) -> str:
    return next((f" at {one.frame}" for one in models.values() if one.frame), "")


def _hint(
    differs: Drift,
    models: Mapping[int, Replica],
    ranks: Mapping[int, tuple[Subject, Models]],
) -> str:
    """What to do, by what else is known. Learning rates come after what sets weights apart for
    sure: a schedule that follows the loss differs where the models do. A program that is compiled
    calls no DDP that could be seen: one of several that is not called is."""
    line = _wrapped_at(models)
    others = (other for _, seen in ranks.values() for other in seen.models)
    if not any(one.called for one in models.values()) and any(
        other.kind == "ddp" and other.called for other in others
    ):
        return (
            f"call the model that DDP wraps{line} by itself, not by its .module or a method of "
            "that: DDP was never called, so that it sums no gradients"
        )
    if unfrozen_too_late(differs, models) and not _wrapped_again(differs, models, ranks):
        one = differs.many == 1
        be, was, its = ("is", "it was", "its") if one else ("are", "they were", "their")
        return (
            f"wrap the model in DDP after {_some(differs.names)} {be} unfrozen, or again then: "
            f"{was} frozen when DDP was built{line}, so that {its} gradients are not all-reduced"
        )
    if replaced_too_late(differs, models) and not _wrapped_again(differs, models, ranks):
        they, are = ("it", "is") if differs.many == 1 else ("they", "are")
        return (
            f"wrap the model in DDP again after {_some(differs.names)} {are} replaced: {they} "
            f"{are} none of the parameters that DDP has wrapped{line}, whose gradients it sums"
        )
    if unreduced := unreduced_on(differs, models):
        step = next((f" at {models[r].stepped}" for r in unreduced if models[r].stepped), "")
        return (
            f"let the LAST micro-batch before optimizer.step{step} be the one outside of no_sync, "
            "or with require_backward_grad_sync=True: now that step follows a backward without "
            "all-reduce"
        )
    rates = {one.rates for one in models.values()}
    if len(rates) > 1:
        told = " and ".join(f"{_rates(r)}" for r in sorted(rates)[:2])
        return f"give all ranks one learning rate: they have {told}"
    quiet = [
        seen
        for _, seen in ranks.values()
        if seen.steps >= STEPS and seen.collectives < EXCHANGES * seen.steps
    ]
    if len(quiet) == len(ranks):
        return (
            "call the wrapped model itself, not model.module, and leave no_sync before the "
            "optimizer steps: no gradients were summed at all"
        )
    if differs.step == 0:
        return (
            "load and initialise weights on all ranks alike, or before DDP wraps the model: it "
            "shares those of rank 0 only then"
        )
    name = differs.name.replace(" (", ", ").replace(")", "")  # a shell's words are quoted in a fix
    return (
        f"look at what changes {name} or skips the optimizer on some ranks only, between "
        f"steps {max(differs.agreed, 0)} and {differs.step}"
    )


def _wrapped_again(
    differs: Drift,
    models: Mapping[int, Replica],
    ranks: Mapping[int, tuple[Subject, Models]],
) -> bool:
    """Whether another DDP may sum the gradients of these parameters: one that trains such names."""
    return any(
        trains and name in differs.names
        for rank, model in models.items()
        for other in ranks[rank][1].models
        if other.kind == "ddp" and other is not model
        for name, trains in zip(other.names, other.trained, strict=False)
    )


def _rates(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates[:SHOWN]) or "none"


def _unused(ranks: Mapping[int, tuple[Subject, Models]]) -> Iterator[Found]:
    """Of ranks that DDP has ended for it: the parameters that never had a gradient."""
    known = {rank: found for rank, (_, seen) in ranks.items() if (found := _first_unused(seen))}
    failed = [rank for rank, (_, seen) in ranks.items() if UNREDUCED in seen.failed]
    if not any(rank in known for rank in failed):
        return
    rows: dict[tuple[str, ...], list[int]] = {}
    for rank in failed:
        if rank in known:
            rows.setdefault(known[rank].names, []).append(rank)
    names, mine = next(iter(rows.items()))
    first = known[mine[0]]
    line = str(first.model.frame or "DDP wraps the model")
    had = "never had a gradient"
    used = sorted(r for r, (_, seen) in ranks.items() if _uses_any(seen, names))
    if first.lately:
        had, used = "had no gradient in the latest step, but in steps before", []
    told = f"{_some(names)} {had}"
    if used or len(rows) > 1:  # a branch or a layer that each rank takes or leaves by itself
        told = "; ".join(f"{rank_list(of)}: {_some(few)}" for few, of in list(rows.items())[:SHOWN])
        told += f" {had}"
        told += f", and had one on {rank_list(used)}" if used else ""
    yield Found(
        "gradients-unused",
        tuple(ranks[rank][0] for rank in failed),
        saw=f"{told} · wrapped at {line}",
        expected="a gradient for every parameter that requires one",
        confidence=Confidence.CERTAIN,
        fields={"line": line},
    )


def _alone(ranks: Mapping[int, tuple[Subject, Models]]) -> Iterator[Found]:
    """Ranks that train one model each, and never join."""
    models = {rank: next(iter(seen.models), None) for rank, (_, seen) in ranks.items()}
    same = {one.described if one is not None else () for one in models.values()}
    enough = all(seen.alone and seen.steps >= STEPS for _, seen in ranks.values())
    if len(ranks) < 2 or len(same) > 1 or not enough:
        return
    least = min(seen.steps for _, seen in ranks.values())
    yield Found(
        "never-joined",
        tuple(subject for subject, _ in ranks.values()),
        saw=f"{rank_list(sorted(ranks))} each made {least} optimizer steps or more on a model of "
        "the same shape, and never called init_process_group",
        expected="init_process_group on every rank, where they train one model",
        confidence=Confidence.POSSIBLE,
        alternatives=("the ranks are meant to train models of their own, as in a sweep",),
    )


def _untrained(models: Mapping[int, Replica], subjects: Mapping[int, Subject]) -> Iterator[Found]:
    """A model that all ranks have and that does not learn on any of them."""
    first = next(iter(models.values()), None)
    if first is None:
        return
    where = f" · wrapped at {first.frame}" if first.frame else ""
    evaluates = min(one.modes[1] for one in models.values())
    if evaluates >= ENOUGH and all(one.modes[0] for one in models.values()):
        yield Found(
            "mode-evaluation",
            tuple(subjects[rank] for rank in models),
            saw=f"the latest {plural(evaluates, 'step')}, after {first.modes[0]} in train mode"
            f"{where}",
            expected="train mode in every step",
            confidence=Confidence.LIKELY,
        )
    steps = min(unchanged(one) for one in models.values())
    if steps >= ENOUGH:
        why, hint = _why_unchanged(first)
        yield Found(
            "model-unchanged",
            tuple(subjects[rank] for rank in models),
            saw=f"{plural(len(first.names), 'parameter')} unchanged after {plural(steps, 'step')}"
            f" · {why}{where}",
            expected="parameters that change with the steps",
            confidence=Confidence.LIKELY,
            fields={"hint": hint},
        )


def _rate_zero(ranks: Mapping[int, tuple[Subject, Models]]) -> Iterator[Found]:
    """Where all models of all ranks have stopped to change."""
    trained = [[one for one in seen.models if any(one.given)] for _, seen in ranks.values()]
    if not trained or not all(seen.idle for _, seen in ranks.values()) or not all(trained):
        return
    spans = [stopped(one) for models in trained for one in models]
    if not all(last for _, last in spans):
        return
    first, last = max(spans)
    schedule = next((seen.schedule for _, seen in ranks.values() if seen.schedule), None)
    line = f" · scheduler made at {schedule}" if schedule else ""
    yield Found(
        "rate-zero",
        tuple(subject for subject, _ in ranks.values()),
        saw=f"no parameter changed from step {first} to step {last}, of which the learning rate "
        f"is 0{line}",
        expected="a learning rate that is 0 after the last step",
        confidence=Confidence.LIKELY,
    )


def _why_unchanged(one: Replica) -> tuple[str, str]:
    """What is known beside it, and what to do."""
    if not any(one.had):
        return (
            "an optimizer steps them, but they never had a gradient",
            "use the output of the model in the loss: torch.distributed.all_gather passes no "
            "gradient back, torch.distributed.nn.functional.all_gather does, detach and no_grad "
            "stop gradients",
        )
    if not any(one.given):
        return (
            "they have gradients, but no optimizer steps them",
            "create the optimizer from the parameters of the model that is trained, after the "
            "model was copied or got adapters or another head",
        )
    half = any(shape.endswith(("float16", "bfloat16")) for shape in one.shapes)
    rates = ", ".join(f"{rate:g}" for rate in one.rates) or "not known"
    hint = "check the learning rate and the scale of the gradients"
    if half and all(one.rates):
        hint = "keep the parameters in float32 and use torch.autocast for the forward: bfloat16 "
        hint += "rounds an update below 0.4 % of a value to 0"
    return f"an optimizer steps them, learning rate {rates}", hint


@dataclass(frozen=True, slots=True)
class Unused:
    """Parameters of a model without a gradient; lately: they had one in steps before, and DDP says
    of them that they had none in the latest."""

    model: Replica
    names: tuple[str, ...]
    lately: bool = False


def _first_unused(seen: Models) -> Unused | None:
    """The first model of a rank in DDP of which only some parameters had a gradient."""
    ddp = [one for one in seen.models if one.kind == "ddp"]
    never = next((one for one in ddp if one.unused and any(one.had)), None)
    if never is not None:
        return Unused(never, never.unused)
    lately = ((one, without_gradient(one, seen.failed)) for one in ddp)
    return next((Unused(one, names, lately=True) for one, names in lately if names), None)


def _uses_any(seen: Models, names: Sequence[str]) -> bool:
    """Whether one of these parameters had a gradient on this rank."""
    return any(
        had and name in names
        for one in seen.models
        if one.kind == "ddp"
        for name, had in zip(one.names, one.had, strict=False)
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def measured(world: World[Models]) -> Measured:
    found = [seen for _, seen in world.each() if seen.models]
    if not found:
        return Measured()
    first = max(found, key=lambda seen: len(seen.models)).models[0]
    last = max((c.step for seen in found for m in seen.models for c in m.checks), default=0)
    text = f"{plural(len(first.names), 'parameter')}, {size(first.bytes)} of gradients"
    text += f" · compared up to step {last}" if len(found) > 1 and last else ""
    return Measured(text, {"parameters": len(first.names), "compared_until_step": last})
