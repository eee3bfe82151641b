"""copy_results: the copies of an observation that was lost, read back from its marks."""

from __future__ import annotations

from preflight.domains.gpu import copy_results
from preflight.domains.gpu.copy_results import Copy
from preflight.model import Mark


def test_marks_are_read_back() -> None:
    made, at = copy_results.copies_from_marks(
        [Mark(n, 1.0) for n in ("CUDA", "copy 0->1", "wrong 0->1: a\nb", "copy 1->0", "copy x->y")]
    )
    assert made == (Copy(0, 1, wrong="a\nb"), Copy(1, 0))
    assert at is None
    made, at = copy_results.copies_from_marks([Mark("copy 0->1", 1.0), Mark("copy 1->0", 2.5)])
    assert made == (Copy(0, 1),)
    assert at == (Copy(1, 0), 2.5)
    assert copy_results.copies_from_marks([]) == ((), None)
