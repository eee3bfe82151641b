"""compute_outliers: the slow GPU of a model is found, and whose products have other bits."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from preflight.domains.gpu import compute_outliers

MODEL = "NVIDIA H100 80GB HBM3"


@given(
    st.lists(st.floats(0.95, 1.05), min_size=4, max_size=64),
    st.floats(0.05, 0.75),
    st.data(),
)
def test_the_slow_one_of_any_number_is_found_and_no_other(
    spread: list[float], slow: float, data: st.DataObject
) -> None:
    sound = {f"n{n // 8}/{n}": {"bf16 of 8192": 600 * by} for n, by in enumerate(spread)}
    models = dict.fromkeys(sound, MODEL)
    assert compute_outliers.slow_gpus(sound, models, ["bf16"]) == {}
    culprit = data.draw(st.sampled_from(sorted(sound)))
    found = compute_outliers.slow_gpus(
        sound | {culprit: {"bf16 of 8192": 570 * slow}}, models, ["bf16"]
    )
    # of a few that scatter, even far is not far enough
    assert set(found) <= {culprit}
    if len(spread) >= 8 and slow < 0.5:
        assert set(found) == {culprit}


def test_who_has_other_bits() -> None:
    same = dict.fromkeys("abcdefgh", MODEL)

    def odd(kinds: Mapping[str, str]) -> list[tuple[str, str, bool, bool]]:
        """kind -> one letter for the digest of each GPU."""
        digests: dict[str, dict[str, str]] = {}
        for kind, row in kinds.items():
            for key, digest in zip("abcdefgh", row, strict=False):
                digests.setdefault(key, {})[kind] = digest
        seen = compute_outliers.differing_bits(digests, same)
        return [(" ".join(o.kinds), "".join(o.keys), o.sure, o.unclear) for o in seen]

    assert odd({"x": "1111", "y": "2222"}) == []
    assert odd({"x": "1"}) == []
    assert odd({"x": "12"}) == [("x", "ab", False, True)]
    assert odd({"x": "1112", "y": "1113"}) == [("x y", "d", True, False)]
    assert odd({"x": "11123"}) == [("x", "d", True, False), ("x", "e", True, False)]
    assert odd({"x": "11122"}) == [("x", "de", False, False)]
    assert odd({"x": "1122"}) == [("x", "abcd", False, False)]
    assert odd({"x": "1123"}) == [("x", "abcd", False, True)]
    # odd in one kind: where it is one of two, that is known
    assert odd({"x": "21", "y": "2111"}) == [("y", "a", True, False)]
    assert (
        compute_outliers.differing_bits({"a": {"x": "1"}, "b": {"x": "2"}}, {"a": 1, "b": 2}) == []
    )
