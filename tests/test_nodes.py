"""Names as a set, the way SLURM writes it; what is no name is left alone."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.render.ranges import foldable, folded


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        ((), ""),
        (("gpu1",), "gpu1"),
        (("gpu-b07", "gpu-b19", "gpu-b08"), "gpu-b[07-08,19]"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n1", "head", "n2"), "n[1-2],head"),
        (("r1n1", "r2n1", "r3n1", "r3n2"), "r[1-3]n1,r3n2"),
        (("a1.x2.y", "a2.x2.y"), "a[1-2].x2.y"),
        (("10.0.0.1", "10.0.0.2"), "10.0.0.[1-2]"),
        (("n1", "n1", "n2"), "n[1-2]"),
        # what could mean something else in a set, or to a shell, stands for itself
        (("gpu1", "gpu1#2", "gpu2#2"), "gpu1,gpu1#2,gpu2#2"),
        (("n[1-3]", "n[1-4]"), "n[1-3],n[1-4]"),
        (("@all", "@1", "@2"), "@all,@1,@2"),
        (("a,b1", "a,b2", "c!1", "c!2"), "a,b1,a,b2,c!1,c!2"),
        (("-n1", "-n2"), "-n1,-n2"),
        (("n1234567890", "n1234567891"), "n1234567890,n1234567891"),
    ],
    ids=str,
)
def test_names_are_folded(names: tuple[str, ...], wanted: str) -> None:
    assert folded(names) == wanted


a_name = st.from_regex(r"[a-c]{1,2}-?[0-9]{1,3}([a-b][0-9]{1,2})?(\.x[0-9])?", fullmatch=True)


@settings(deadline=None)
@given(names=st.sets(a_name, min_size=1, max_size=30))
def test_a_set_stands_for_its_names(names: set[str]) -> None:
    """As ClusterShell, which knows SLURM's syntax, reads it."""
    assert all(map(foldable, names))
    assert set(NodeSet(folded(sorted(names)), resolver=RESOLVER_NOGROUP)) == names
