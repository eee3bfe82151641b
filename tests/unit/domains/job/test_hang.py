"""Ranks that run out of data before the others."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from support.rehearsed_worlds import named, told, waiting

from preflight.domains.job.record import Calls, Loader


@given(waiting(), st.data())
def test_who_has_no_data_left(planted: tuple[dict[int, Calls], int], data: st.DataObject) -> None:
    calls, culprit = planted
    length = data.draw(st.integers(3, 20))
    more = data.draw(st.integers(1, 4))
    ended = data.draw(st.sampled_from(["", "exited"]))
    for r in calls:
        given_ = Loader(length + more, length + 1)
        calls[r] = replace(calls[r], loader=given_, batches=length + 1)
    done = Loader(length, length, exhausted=True)
    calls[culprit] = replace(calls[culprit], loader=done, batches=length, ended=ended)
    if ended:
        calls[culprit] = replace(calls[culprit], at="gone")
    findings = told(calls)
    assert [f.code for f in findings] == ["data-uneven"]
    assert named(findings) == {culprit}
