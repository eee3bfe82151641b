"""job.model: whether all ranks train the same model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import Case, assert_case, judged, round_trips

from preflight.check import conforms
from preflight.checks import job_model
from preflight.checks.job_model import Models
from preflight.domains.job.clipping import Clip, Clipping
from preflight.domains.job.copies import CopyUse, ModelCopy
from preflight.domains.job.frame import Frame
from preflight.domains.job.replica import Load, Replica, Sampled
from preflight.model import Cause, Confidence, Missing, Node, Status, Topology

conforms(job_model)

FAIL, WARN = Status.FAIL, Status.WARN
LINE = Frame("train.py", 12, "main", own=True)
FOUR = Topology(size=4, nodes=(Node("n1", (0, 1, 2, 3)),))
THREE = Topology(size=3, nodes=(Node("n1", (0, 1, 2)),))
NAMES, SHAPES = ("body.weight", "head.weight"), ("[4, 4] float32", "[2, 4] float32")


def checks(*heads: float) -> tuple[Sampled, ...]:
    """After 0, 1, 2 … steps: the body's sum is 1, the head's is given."""
    return tuple(Sampled(step, (1.0, head), (1.0, 1.0)) for step, head in enumerate(heads))


DDP = Replica(
    "ddp",
    LINE,
    "cpu",
    96,
    NAMES,
    SHAPES,
    (True, True),
    (True, True),
    rates=(0.1,),
    seed=7,
    checks=checks(0.5, 0.6, 0.7),
)
PLAIN = replace(DDP, kind="optimizer", frame=None)
SAME = (0.1, 0.2, 0.3, 0.4)


def ranks(*models: Replica, **more: object) -> dict[str, Models]:
    known = {"steps": 40, "collectives": 80, "exchanged": 96.0} | more
    return {f"n1/{r}": Models(r, (one,), **known) for r, one in enumerate(models)}  # type: ignore[arg-type]


def graded(heads: tuple[float, ...], gradients: tuple[float, ...], size: float = 1.0) -> Replica:
    """Without DDP: the sums of the head and those of its gradient at each look."""
    looks = (Sampled(step, (None, one), (None, size)) for step, one in enumerate(gradients))
    return replace(PLAIN, checks=checks(*heads), graded=tuple(looks), touched=True)


def in_groups(*ends: float, body: float = 1.0, shared: int = 40) -> dict[str, Models]:
    """Four ranks, of which DDP averages 0 and 2, and 1 and 3; `ends`: what their sums come to. All
    begin alike, and 0 and 1 make `shared` collectives in a group of theirs."""
    models = (
        replace(
            DDP,
            options=("own_group",),
            checks=tuple(
                Sampled(step, sums, (1.0, 1.0))
                for step, sums in enumerate(((1.0, 0.5), (body * end, end), (body * end, end)))
            ),
        )
        for end in ends
    )
    return ranks(*models, subgroups=(((0, 1), shared),))


OTHER = replace(DDP, checks=checks(0.5, 0.6, 0.8))
DRIFTS = replace(PLAIN, checks=checks(0.5, 0.9, 0.8))
AGAIN = replace(PLAIN, checks=checks(0.5, 0.9, 0.7))


def routing(dense: tuple[float, ...], expert: tuple[float, ...]) -> Replica:
    """A model with experts: the sums of one parameter that all have, and of an expert's."""
    pairs = zip(dense, expert, strict=True)
    looks = (Sampled(step, pair, (1.0, 1.0)) for step, pair in enumerate(pairs))
    return replace(PLAIN, checks=tuple(looks))


EXPERT, DENSE, LEARNED = (0.5, 0.6, 0.7), (0.1, 0.2, 0.3), (0.5, 0.9, 0.8)
EXPERTS = routing(DENSE, EXPERT), routing(DENSE, LEARNED)
APART = routing(DENSE, EXPERT), routing((0.1, 0.4, 0.2), LEARNED)
FROZEN = replace(DDP, trained=(True, False))
THAWED = replace(FROZEN, unfrozen=((1, 1),))
THAWS = replace(OTHER, trained=FROZEN.trained, unfrozen=((1, 1),))
STEP = Frame("train.py", 30, "main", own=True)
UNREDUCED_STEP = replace(OTHER, unreduced=(1,), stepped=STEP)
UNUSED = replace(DDP, had=(True, False), checks=())


def holds(*sums: float | None) -> Replica:
    """With a buffer of these values, one each look."""
    looks = (Sampled(step, (sum_,), (1.0,)) for step, sum_ in enumerate(sums))
    return replace(DDP, buffers=("mask",), held=tuple(looks))


MASK, OTHER_MASK = holds(1.0, 1.0, 1.0), holds(2.0, 2.0, 2.0)
UNREDUCED = "RuntimeError: Expected to have finished reduction in the prior iteration before …"

TURNED = replace(
    DDP, names=NAMES[::-1], shapes=SHAPES[::-1], checks=(), trained=(True, True), had=(True, True)
)
PLACED = ("full_inv_freq [16] float32", "sliding_inv_freq [16] float32")
ROPE, TURNED_ROPE = replace(DDP, placed=PLACED), replace(DDP, placed=PLACED[::-1])

STILL = replace(
    DDP,
    given=(True, True),
    modes=(64, 0),
    checks=tuple(Sampled(step, (1.0, 0.5), (1.0, 1.0)) for step in (0, 1, 2, 4, 8, 16, 32)),
)
LEARNS = replace(
    STILL,
    checks=tuple(Sampled(step, (1.0, 0.5 + step), (1.0, 1.0)) for step in (0, 1, 2, 4, 8, 16, 32)),
)
ENDED = replace(
    STILL,
    rates=(0.0,),
    checks=tuple(
        Sampled(step, (1.0, 0.5 + min(step, 40)), (1.0, 1.0))
        for step in (0, 1, 2, 4, 8, 16, 32, 64, 96)
    ),
)
PREFIXED = Load(STEP, 6, "module.enc.weight", "enc.weight")


def loads(model: Replica, *found: Load) -> dict[str, Models]:
    return {key: replace(seen, loads=found) for key, seen in ranks(model, model, steps=64).items()}


def copied(slope: float, *uses: float) -> ModelCopy:
    """A copy that changes by so much in each step, with its numbers when it is used."""
    looks = tuple(Sampled(s, (1 + slope * s,), (1.0,)) for s in (0, 1, 2, 4, 8))
    loaded = (CopyUse("load", n, STEP, Sampled(8, (v,), (1.0,))) for n, v in enumerate(uses))
    return ModelCopy(LINE, NAMES[:1], SHAPES[:1], looks, tuple(loaded))


def begun(copied: ModelCopy) -> ModelCopy:
    """The same from other numbers."""
    looks = tuple(replace(one, sums=tuple((s or 0) + 7 for s in one.sums)) for one in copied.looks)
    return replace(copied, looks=looks)


def keep(*copies: ModelCopy, of: Replica = DDP) -> dict[str, Models]:
    seen = ranks(*(of,) * len(copies)).values()
    pairs = zip(seen, copies, strict=True)
    return {f"n1/{one.rank}": replace(one, copies=(kept,)) for one, kept in pairs}


def parts(*slopes: tuple[float, float], within: bool = True) -> dict[str, Models]:
    """Ranks with parts of one model: by how much what they have in common changes in a step, and
    what they have not."""
    models = [
        replace(
            PLAIN,
            checks=tuple(
                Sampled(s, (0.2 + common * s, 0.1 * rank + own * s), (3.0, 3.0))
                for s in (0, 1, 2, 4, 8)
            ),
        )
        for rank, (common, own) in enumerate(slopes)
    ]
    return ranks(*models, within=within, exchanged=0.0)


def clipped(*norms: float, limit: float = 0.5) -> dict[str, Models]:
    """Such ranks with the same gradient of what they have in common, which each clips by a norm of
    its own."""
    seen = parts((0.1, 0.2), (0.3, 0.1))
    for key, norm in zip(seen, norms, strict=True):
        clip = Clip(False, 2, 80, 64, limit, norm)
        looks = Sampled(0, (3.0 * clip.factor, 1.0), (1.0, 1.0))
        (model,) = seen[key].models
        seen[key] = replace(
            seen[key],
            models=(replace(model, graded=(looks,)),),
            clipping=Clipping(LINE, ((0, (clip,)),)),
        )
    return seen


CASES = (
    Case(
        "rank 0 alone updates a copy that all load",
        keep(copied(0.1, 1.8), copied(0.0, 1.0)),
        "copies-differ",
        FAIL,
    ),
    Case("rank 0 alone loads it", keep(copied(0.1, 1.8), copied(0.0))),
    Case("each updates its own", keep(copied(0.1), copied(0.3)), "copies-differ", WARN),
    Case("each began with its own", keep(copied(0.1), begun(copied(0.1))), "copies-differ", WARN),
    Case("each began with its own, and one keeps it", keep(copied(0.1), begun(copied(0.0)))),
    Case("all update theirs alike", keep(copied(0.1, 1.8), copied(0.1, 1.8))),
    Case(
        "copies of models that share in groups",
        keep(copied(0.1, 1.8), copied(0.0, 1.0), of=replace(DDP, options=("own_group",))),
    ),
    Case(
        "what all have in common comes apart",
        parts((0.1, 0.2), (0.3, 0.1)),
        "common-parameters-differ",
        WARN,
    ),
    Case(
        "it is clipped by a norm of each rank's own",
        clipped(9.9, 9.1),
        "common-parameters-differ",
        WARN,
    ),
    Case("it stays the same", parts((0.1, 0.2), (0.1, 0.1))),
    Case("models of an ensemble", parts((0.1, 0.2), (0.3, 0.1), within=False)),
    *(
        Case(name, ranks(model, model), "model-unchanged", WARN, topology=THREE)
        for name, model in (
            ("an optimizer steps it, and nothing changes", STILL),
            ("no gradient comes", replace(STILL, had=(False, False))),
            ("no optimizer has it", replace(STILL, given=(False, False))),
            ("without DDP", replace(STILL, kind="optimizer")),
        )
    ),
    *(
        Case(name, ranks(model, model), topology=THREE)
        for name, model in (
            ("it learns", LEARNS),
            ("two looks", replace(STILL, checks=STILL.checks[:2])),
            ("eight steps", replace(STILL, checks=STILL.checks[:5])),
            ("a teacher", replace(STILL, had=(False, False), given=(False, False))),
            ("all of it frozen", replace(STILL, trained=(False, False))),
            ("in evaluation mode from the start", replace(LEARNS, modes=(0, 64))),
            ("two steps in evaluation mode", replace(LEARNS, modes=(62, 2))),
        )
    ),
    Case(
        "a schedule that is over before the training",
        ranks(ENDED, ENDED, idle=True),
        "rate-zero",
        WARN,
        topology=THREE,
    ),
    *(
        Case(name, ranks(ENDED, model, idle=idle), topology=THREE)
        for name, model, idle in (
            ("another optimizer has a rate", ENDED, False),
            ("a rate that is not 0", replace(ENDED, rates=(0.1,)), True),
            ("rates that are not known", replace(ENDED, rates=()), True),
            ("it changes after that", replace(LEARNS, rates=(0.0,)), True),
            ("over in the last steps", replace(ENDED, checks=ENDED.checks[:-1]), True),
        )
    ),
    Case("one of two learns", ranks(STILL, replace(LEARNS, options=("join",))), topology=THREE),
    Case(
        "as many steps as batches in Join",
        ranks(*(replace(m, options=("join",)) for m in (DDP, OTHER))),
        topology=THREE,
    ),
    Case(
        "a layer that is left out now and then",
        ranks(
            DDP,
            DDP,
            failed=f"{UNREDUCED} Parameter indices which did not receive grad for "
            "rank 1: 1 In addition, you can set",
        ),
        "gradients-unused",
        FAIL,
        topology=THREE,
        subject="n1 · rank 0",
    ),
    Case(
        "numbers that the model has not",
        ranks(DDP, DDP, failed=f"{UNREDUCED} indices which did not receive grad for rank 1: 7 8"),
        topology=THREE,
    ),
    Case(
        "evaluation mode that stays",
        ranks(*[replace(LEARNS, modes=(20, 44))] * 2),
        "mode-evaluation",
        WARN,
        topology=THREE,
    ),
    Case(
        "keys that DDP has made",
        loads(LEARNS, PREFIXED),
        "checkpoint-unmatched",
        WARN,
        topology=THREE,
    ),
    Case(
        "keys of another model",
        loads(LEARNS, replace(PREFIXED, given="blocks.0.w", wanted="enc.weight")),
        "checkpoint-unmatched",
        WARN,
        topology=THREE,
    ),
    Case("all alike", ranks(DDP, DDP, DDP), topology=THREE),
    Case("other seeds", ranks(DDP, replace(DDP, seed=8), DDP), topology=THREE),
    Case(
        "rounded otherwise",
        ranks(DDP, replace(DDP, checks=checks(0.5, 0.6, 0.7000001))),
        topology=THREE,
    ),
    Case("one rank alone", ranks(DDP), topology=THREE),
    Case(
        "in a group of their own",
        ranks(*(replace(m, options=("own_group",)) for m in (DDP, OTHER))),
        topology=THREE,
    ),
    Case(
        "averaged now and then",
        ranks(*(replace(m, hooks=("post_localSGD_hook",)) for m in (DDP, OTHER))),
        topology=THREE,
    ),
    Case(
        "no DDP, parts of a model",
        ranks(PLAIN, replace(PLAIN, checks=checks(0.1, 0.2))),
        topology=THREE,
    ),
    Case("frozen, and never trained", ranks(FROZEN, FROZEN, FROZEN), topology=THREE),
    Case("unfrozen late, and equal", ranks(THAWED, THAWED, THAWED), topology=THREE),
    Case(
        "the last batch not summed, the same data",
        ranks(*(replace(DDP, unreduced=(0, 1), stepped=STEP),) * 2),
        topology=THREE,
    ),
    Case("no DDP, equal again later", ranks(PLAIN, AGAIN), topology=THREE),
    Case("no DDP, nothing summed", ranks(PLAIN, DRIFTS, exchanged=4.0), topology=THREE),
    Case("no DDP, experts that were made alike", ranks(*EXPERTS, routed=True), topology=THREE),
    Case("no looks yet", ranks(replace(DDP, checks=()), DDP), topology=THREE),
    Case("unused, and allowed", ranks(UNUSED, UNUSED), topology=THREE),
    Case(
        "one has gone its own way",
        ranks(DDP, DDP, OTHER),
        "replicas-diverged",
        FAIL,
        topology=THREE,
        subject="n1 · rank 2",
    ),
    Case(
        "unfrozen after DDP was built",
        ranks(THAWED, THAWS),
        "replicas-diverged",
        FAIL,
        topology=THREE,
        subject="n1 · rank 0",
    ),
    Case(
        "the last batch is not summed",
        ranks(DDP, UNREDUCED_STEP),
        "replicas-diverged",
        FAIL,
        topology=THREE,
        subject="n1 · rank 0",
    ),
    Case(
        "gradients by hand, one forgotten",
        ranks(PLAIN, DRIFTS),
        "replicas-diverged",
        WARN,
        topology=THREE,
    ),
    Case(
        "gradients by hand, one forgotten, and no experts",
        ranks(*EXPERTS),
        "replicas-diverged",
        WARN,
        topology=THREE,
    ),
    Case(
        "gradients by hand, one forgotten of a model with experts",
        ranks(*APART, routed=True),
        "replicas-diverged",
        WARN,
        topology=THREE,
    ),
    Case(
        "gradients by hand, each with weights of its own",
        ranks(graded((0.5, 0.6, 0.7), SAME), graded((0.8, 0.9, 1.0), SAME)),
        "replicas-diverged",
        FAIL,
        topology=THREE,
        subject="n1 · rank 0",
    ),
    Case(
        "an ensemble: each with weights and gradients of its own",
        ranks(graded((0.5, 0.6, 0.7), SAME), graded((0.8, 0.9, 1.0), (0.1, 0.2, 0.3, 0.5))),
        topology=THREE,
    ),
    Case(
        "parts of a layer, whose outputs are summed",
        ranks(
            *(
                replace(graded(heads, SAME), touched=False)
                for heads in ((0.5, 0.6, 0.7), (0.8, 0.9, 1.0))
            )
        ),
        topology=THREE,
    ),
    Case(
        "weights are shared after the first step",
        ranks(graded((0.5, 0.6, 0.7), SAME), graded((0.8, 0.6, 0.7), SAME)),
        topology=THREE,
    ),
    Case(
        "no gradient at all",
        ranks(*(graded((one, one, one), SAME, size=0.0) for one in (0.5, 0.8))),
        topology=THREE,
    ),
    Case(
        "frozen on one",
        ranks(DDP, DDP, FROZEN),
        "model-structure",
        FAIL,
        topology=THREE,
        subject="n1 · rank 2",
    ),
    Case(
        "parameters in another order on one",
        ranks(DDP, TURNED, DDP),
        "order-differs",
        FAIL,
        topology=THREE,
        subject="n1 · rank 1",
    ),
    Case(
        "buffers in another order on one",
        ranks(ROPE, ROPE, TURNED_ROPE),
        "order-differs",
        WARN,
        topology=THREE,
        subject="n1 · rank 2",
    ),
    Case("buffers in one order", ranks(ROPE, ROPE, ROPE), topology=THREE),
    Case("buffers that not all have", ranks(ROPE, replace(DDP, placed=PLACED[:1]))),
    Case("buffers that are not shared", ranks(ROPE, DDP)),
    Case(
        "stages in groups of their own",
        ranks(*(replace(m, options=("own_group",)) for m in (ROPE, TURNED_ROPE, TURNED))),
        topology=THREE,
    ),
    Case(
        "unused", ranks(UNUSED, UNUSED, failed=UNREDUCED), "gradients-unused", FAIL, topology=THREE
    ),
    Case(
        "each leaves out layers of its own",
        ranks(UNUSED, replace(UNUSED, had=(False, True)), failed=UNREDUCED),
        "gradients-unused",
        FAIL,
        topology=THREE,
    ),
    Case("nobody joins", ranks(PLAIN, PLAIN, alone=True), "never-joined", WARN, topology=THREE),
    Case(
        "nobody joins, other models",
        ranks(PLAIN, replace(PLAIN, trained=(True, False)), alone=True),
        topology=THREE,
    ),
    Case("nobody joins, and one step", ranks(PLAIN, PLAIN, alone=True, steps=1), topology=THREE),
    Case("alone, as it should be", ranks(PLAIN, alone=True)),
    Case("a constant is another on one", ranks(MASK, MASK, OTHER_MASK), "buffers-differ", WARN),
    Case("statistics of each rank's own batches", ranks(MASK, holds(0.1, 0.2, 0.3))),
    Case("the same constants", ranks(MASK, MASK, MASK), topology=THREE),
    Case("looked at twice", ranks(holds(1.0, 1.0), holds(2.0, 2.0))),
    Case("other buffers", ranks(MASK, replace(OTHER_MASK, buffers=("mean",)))),
    Case("a constant that can't be read", ranks(MASK, holds(None, None, None))),
    Case(
        "DDP averages over those with the same part of a sequence",
        in_groups(0.6, 0.7, 0.6, 0.7),
        "replicas-diverged",
        WARN,
        topology=FOUR,
    ),
    Case("two models of their own", in_groups(0.6, 0.7, 0.6, 0.7, shared=3), topology=FOUR),
    Case("one and the same", in_groups(0.6, 0.6, 0.6, 0.6), topology=FOUR),
    Case("four models of their own", in_groups(0.6, 0.7, 0.8, 0.9), topology=FOUR),
    Case("a layer is common to all", in_groups(0.6, 0.7, 0.6, 0.7, body=0.0), topology=FOUR),
    Case("no command", Missing(Cause.NOT_APPLICABLE, "only where a command is rehearsed")),
    Case("a record that can't be read", Missing(Cause.TIMED_OUT)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    assert_case(job_model, case)


def found(*models: Replica, **more: object):  # type: ignore[no-untyped-def]
    (one,) = judged(job_model, Case("", ranks(*models, **more), topology=THREE))
    return one


def test_parameter_step_and_rank_are_named() -> None:
    one = found(DDP, DDP, OTHER)
    assert one.saw.startswith("head.weight differs on rank 2 after 2 steps, equal after 1")
    assert "1 of 2 parameters that are compared do" in one.saw
    assert one.confidence is Confidence.CERTAIN
    assert "between steps 1 and 2" in one.fields["hint"]


def test_the_first_buffer_out_of_place_is_named_on_each_rank() -> None:
    one = found(ROPE, TURNED_ROPE)
    assert one.saw.startswith(
        "buffer 1 of 2 is full_inv_freq [16] float32 on rank 0; sliding_inv_freq [16] float32 on "
        "rank 1 · all have the same buffers · wrapped at train.py:12"
    )
    assert [s.ranks for s in one.subjects] == [(0,), (1,)]


def test_what_else_differs_is_the_hint() -> None:
    other = replace(OTHER, rates=(0.2,))
    assert "one learning rate: they have 0.1 and 0.2" in found(DDP, other).fields["hint"]
    assert "not model.module" in found(DDP, OTHER, collectives=5).fields["hint"]
    early = replace(DDP, checks=checks(0.4, 0.3, 0.2))
    one = found(DDP, DDP, early)
    assert "before the first step" in one.saw
    assert "before DDP wraps the model" in one.fields["hint"]


def test_a_parameter_unfrozen_after_ddp_was_built_is_the_cause() -> None:
    hint = found(THAWED, THAWS).fields["hint"]
    assert "after head.weight is unfrozen" in hint
    assert "it was frozen when DDP was built at train.py:12" in hint
    # a schedule that follows the loss differs as a consequence
    assert found(THAWED, replace(THAWS, rates=(0.2,))).fields["hint"] == hint


def test_a_parameter_that_was_replaced_is_the_cause() -> None:
    late = ((1, 1),)
    both = (replace(THAWED, unfrozen=(), replaced=late), replace(THAWS, unfrozen=(), replaced=late))
    hint = found(*both).fields["hint"]
    assert "again after head.weight is replaced" in hint
    assert "has wrapped at train.py:12" in hint
    one = found(both[0], replace(both[1], replaced=()))
    assert one.fields["hint"].startswith("look at what changes")


def test_what_is_unfrozen_is_the_cause_of_what_it_can_be_only() -> None:
    generic = "look at what changes"
    for late in (((1, 2),), ((0, 1),), ()):  # after they differ, another parameter, never
        both = (replace(THAWED, unfrozen=late), replace(THAWS, unfrozen=late))
        assert found(*both).fields["hint"].startswith(generic)
    # on one rank only
    assert found(FROZEN, THAWS).fields["hint"].startswith(generic)
    # and where the model was wrapped again, the second DDP sums them
    seen = ranks(THAWED, THAWS)
    again = {at: replace(one, models=(*one.models, DDP)) for at, one in seen.items()}
    (one,) = judged(job_model, Case("", again, topology=THREE))
    assert one.fields["hint"].startswith(generic)
    # more differs than what is unfrozen
    body = tuple(Sampled(c.step, (2.0, *c.sums[1:]), c.sizes) for c in THAWS.checks)
    other = replace(THAWS, checks=(*THAWS.checks[:2], body[2]))
    assert found(THAWED, other).fields["hint"].startswith(generic)


def test_a_step_after_a_backward_without_all_reduce_is_the_cause() -> None:
    hint = found(DDP, UNREDUCED_STEP).fields["hint"]
    assert "LAST micro-batch before optimizer.step at train.py:30" in hint
    assert found(DDP, UNREDUCED_STEP, collectives=5).fields["hint"] == hint
    for steps in ((0,), (2,)):  # they were equal after it, or differed before
        other = replace(UNREDUCED_STEP, unreduced=steps)
        assert found(DDP, other).fields["hint"].startswith("look at what changes")


def test_a_model_whose_ddp_is_never_called_is_the_cause() -> None:
    bare = [replace(one, called=False) for one in (DDP, OTHER)]
    called = {at: replace(one, models=(*one.models, DDP)) for at, one in ranks(*bare).items()}
    (one,) = judged(job_model, Case("", called, topology=THREE))
    assert one.fields["hint"].startswith("call the model that DDP wraps at train.py:12 by itself")
    # a program that is compiled calls none that could be seen
    assert found(*bare).fields["hint"].startswith("look at what changes")


def test_the_first_parameter_that_is_not_there_is_named() -> None:
    longer = replace(
        DDP, names=(*NAMES, "extra.bias"), shapes=(*SHAPES, "[2] float32"), trained=(True,) * 3
    )
    told = found(DDP, DDP, longer).saw
    assert told.startswith("extra.bias [2] float32 on rank 2, no such parameter on rank 0")
    assert "head.weight [2, 4] float32, not trained on rank 2" in found(DDP, DDP, FROZEN).saw


def test_what_each_rank_leaves_out_is_told_apart() -> None:
    other = replace(UNUSED, had=(False, True))
    one = found(UNUSED, other, failed=UNREDUCED)
    assert one.saw.startswith(f"rank 0: {NAMES[1]}; rank 1: {NAMES[0]} never had a gradient, and")


def test_what_is_kept_survives_its_way() -> None:
    round_trips(Models(0, (DDP,), 3, 4, 5.0, "ValueError"))


def test_copies_and_common_parameters_are_said() -> None:
    for world, said in (
        (
            keep(copied(0.1, 1.8), copied(0.0, 1.0)),
            ("made at train.py:12", "loaded into the model at train.py:30 after 8 steps", "rank 1"),
        ),
        (keep(copied(0.1), copied(0.3)), ("after 1 step", "all ranks update it")),
        (parts((0.1, 0.2), (0.3, 0.1)), ("body.weight [4, 4] float32", "ranks 0-1")),
    ):
        (found,) = judged(job_model, Case("", world))
        assert all(part in found.saw for part in said), found.saw


@pytest.mark.parametrize(
    ("norms", "told"), [((9.9, 9.1), True), ((9.9, 9.9), False), ((0.3, 0.2), False)]
)
def test_what_clipping_sets_apart(norms: tuple[float, float], told: bool) -> None:
    case = Case("", clipped(*norms), "common-parameters-differ")
    (found,) = judged(job_model, case)
    assert ("clipped by factors" in found.saw) is told
    assert ("clip them by one norm" in found.fields["hint"]) is told
