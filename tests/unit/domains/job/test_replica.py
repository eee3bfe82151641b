"""Where models of ranks differ that should be the same."""

from __future__ import annotations

import math
from dataclasses import replace

from preflight.domains.job.replica import (
    Replica,
    Sampled,
    common_apart,
    differs_at,
    odd_ones,
    stopped,
)


def model(*sums: float | None, dtype: str = "float32", step: int = 1, names: int = 0) -> Replica:
    many = tuple(f"p{n}" for n in range(names or len(sums)))
    look = Sampled(step, sums, tuple(1.0 if s is not None else None for s in sums))
    return Replica("ddp", names=many, shapes=(f"[2] {dtype}",) * len(many), checks=(look,))


def test_the_most_are_right() -> None:
    assert odd_ones({0: 1, 1: 1, 2: 5}) == ((2,), False)
    assert odd_ones({0: 1, 1: 2}) == ((0, 1), True)
    assert odd_ones({0: 1, 1: 2, 2: 3}) == ((0, 1, 2), True)


def test_half_precision_may_round_otherwise() -> None:
    one, other = 1.0, 1.001
    assert differs_at({0: model(one), 1: model(other)}) is not None
    assert differs_at({0: model(one, dtype="bfloat16"), 1: model(other, dtype="bfloat16")}) is None


def test_what_can_not_be_read_is_not_compared() -> None:
    assert differs_at({0: model(None), 1: model(3.0)}) is None
    assert differs_at({0: model(1.0, step=1), 1: model(2.0, step=2)}) is None
    assert differs_at({0: model(1.0)}) is None
    assert differs_at({}) is None


def test_no_number_equals_no_number() -> None:
    nan = math.nan
    assert differs_at({0: model(nan), 1: model(math.inf)}) is None
    found = differs_at({0: model(1.0, nan), 1: model(1.0, 2.0), 2: model(1.0, 2.0)})
    assert found is not None
    assert (found.name, found.odd, found.tie) == ("p1", (0,), False)


def test_of_many_parameters_some_are_compared() -> None:
    found = differs_at({0: model(1.0, 1.0, names=5), 1: model(1.0, 2.0, names=5)})
    assert found is not None
    assert (found.name, found.many, found.compared) == ("p3", 1, 2)


def parted(*slopes: tuple[float, float, float], again: bool = False) -> dict[int, Replica]:
    """On each rank a constant, numbers that all begin with, and those of its own part: by how much
    each of these changes in a step."""
    found = {}
    for rank, (one, common, own) in enumerate(slopes):
        looks = tuple(
            Sampled(
                step,
                (
                    1 + one * step,
                    0.2 + common * step * (not again or step < 8),
                    rank % 2 + own * step,
                ),
                (1 + one * step, 3.0, 3.0),
            )
            for step in (0, 1, 2, 4, 8)
        )
        names = ("norm", "embedding", "columns")
        found[rank] = Replica(names=names, shapes=("[2] float32",) * 3, checks=looks)
    return found


def test_what_ranks_have_in_common_comes_apart() -> None:
    found = common_apart(parted((0.0, 0.1, 0.1), (0.0, 0.3, 0.2)))
    assert found is not None
    differs, together = found
    assert (differs.names, differs.odd, differs.step, differs.agreed) == (
        ("embedding",),
        (0, 1),
        1,
        0,
    )
    assert together == ((0, 1),)


def test_ranks_with_the_same_part_are_compared_with_each_other() -> None:
    same, other = (0.0, 0.1, 0.1), (0.0, 0.1, 0.4)
    assert common_apart(parted(same, other, same, other)) is None
    found = common_apart(parted(same, same, other, same))
    assert found is not None
    assert found[0].names == ("columns",)
    assert found[1] == ((0, 2), (1, 3))


def test_what_is_meant_to_come_apart() -> None:
    assert common_apart(parted((0.0, 0.1, 0.1), (0.4, 0.1, 0.2))) is None  # a constant
    assert common_apart(parted((0.0, 0.1, 0.1), (0.0, 0.3, 0.1), again=True)) is None
    for models in ({}, {0: model(1.0)}, {0: model(1.0), 1: model(2.0)}):
        assert common_apart(models) is None


NAMES = ("norm (RMSNorm.weight)", "embedding", "columns")
SHAPES = ("[32] float32", "[40, 32] float32", "[48, 32] float32")


def normed(
    *slopes: tuple[float, float, float], names: tuple[str, ...] = NAMES, shapes: object = SHAPES
) -> dict[int, Replica]:
    return {r: replace(m, names=names, shapes=shapes) for r, m in parted(*slopes).items()}  # type: ignore[arg-type]


def test_a_normalisation_as_wide_as_what_all_have_is_in_common() -> None:
    apart = (0.0, 0.1, 0.1), (0.4, 0.1, 0.2)
    found = common_apart(normed(*apart))
    assert found is not None
    assert (found[0].names, found[0].odd) == (NAMES[:1], (0, 1))
    assert common_apart(normed((0.4, 0.1, 0.1), (0.4, 0.1, 0.2))) is None
    for names, shapes in (
        (("bias (Linear.bias)", *NAMES[1:]), SHAPES),
        (NAMES, ("[48] float32", *SHAPES[1:])),
        (NAMES, (*SHAPES[:2], "[32, 32] float32")),  # a part of a layer may be as wide
    ):
        assert common_apart(normed(*apart, names=names, shapes=shapes)) is None


def test_normalisations_of_which_some_stay_alike_may_be_of_experts() -> None:
    both = {
        rank: replace(
            model,
            names=(*NAMES, NAMES[0]),
            shapes=(*SHAPES, SHAPES[0]),
            checks=tuple(
                replace(look, sums=(*look.sums, 1.0), sizes=(*look.sizes, 1.0))
                for look in model.checks
            ),
        )
        for rank, model in normed((0.0, 0.1, 0.1), (0.4, 0.1, 0.2)).items()
    }
    assert common_apart(both) is None


PATHS = ("last.weight", "embedding.weight", "layers.0.columns.weight")


def with_a_norm_that_stays(paths: tuple[str, ...], shapes: tuple[str, ...] = SHAPES) -> object:
    """Of two normalisations the first comes apart, the other one does not."""
    models = {
        rank: replace(
            one,
            paths=(*paths, "layers.0.norm.weight"),
            names=(*NAMES, NAMES[0]),
            shapes=(*shapes, shapes[0]),
            checks=tuple(
                replace(look, sums=(*look.sums, 1.0), sizes=(*look.sizes, 1.0))
                for look in one.checks
            ),
        )
        for rank, one in normed((0.0, 0.1, 0.1), (0.4, 0.1, 0.2)).items()
    }
    return common_apart(models)


def test_a_normalisation_beside_layers_that_all_have_is_in_common() -> None:
    found = with_a_norm_that_stays(PATHS)
    assert isinstance(found, tuple)
    assert (found[0].names, found[0].odd) == (("last.weight",), (0, 1))


def test_a_normalisation_beside_a_part_of_a_layer_may_be_an_experts() -> None:
    assert with_a_norm_that_stays(("layers.0.last.weight", *PATHS[1:])) is None
    assert with_a_norm_that_stays((*PATHS[:2], "columns.weight")) is None
    assert with_a_norm_that_stays(("", "", "")) is None
    assert with_a_norm_that_stays(PATHS, ("[64] float32", *SHAPES[1:])) is None


def test_ranks_that_begin_alike_have_no_parts() -> None:
    one, other = parted((0.0, 0.1, 0.1), (0.0, 0.3, 0.2)).values()
    alike = replace(other.checks[0], sums=one.checks[0].sums)
    assert common_apart({0: one, 1: replace(other, checks=(alike, *other.checks[1:]))}) is None


def test_since_when_nothing_changes() -> None:
    def sums(*values: float) -> Replica:
        steps = (0, 1, 8, 16, 32, 64, 96, 128)
        looks = tuple(
            Sampled(s, (v, None), (1.0, None)) for s, v in zip(steps, values, strict=True)
        )
        two = (True, True)
        return Replica(names=("w", "b"), trained=two, given=two, rates=(0.0,), checks=looks)

    ended = sums(1, 2, 3, 4, 5, 6, 6, 6)
    assert stopped(ended) == (64, 128)
    assert stopped(sums(1, 2, 3, 4, 5, 6, 7, 8)) == (0, 0)
    assert stopped(sums(1, 2, 6, 6, 6, 6, 7, 6)) == (0, 0)  # it comes and goes
    assert stopped(sums(*[6] * 8)) == (0, 0)  # it never began
    assert stopped(replace(ended, given=(False, False))) == (0, 0)
