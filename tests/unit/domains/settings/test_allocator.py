"""What torch's allocator refuses; tests/rehearse/test_cuda_wheel.py asks torch itself the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.allocator import REFUSED, TAKEN

from preflight.domains.settings.allocator import refused_because


@pytest.mark.parametrize("value", TAKEN)
def test_it_is_taken(value: str) -> None:
    assert refused_because(value) == ""


def test_a_key_that_only_some_releases_know_is_not_judged() -> None:
    assert refused_because("foo:1") == ""
    assert refused_because("large_segment_size_mb:64,throw_on_cudamalloc_oom:True") == ""
    assert refused_because("pinned_use_xpu_host_register:True") == ""


@pytest.mark.parametrize("value", REFUSED)
def test_it_is_refused(value: str) -> None:
    assert refused_because(value)


def test_the_reason_names_the_key() -> None:
    assert refused_because("expandable_segments:true").startswith("expandable_segments is 'true'")
    assert (
        refused_because("backend:native,expandable_segment:True")
        == "expandable_segment is not a key that torch knows; expandable_segments is"
    )
    assert (
        refused_because("max_split_size_mb=8") == "'=' where ':' belongs, after max_split_size_mb"
    )


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_has_an_answer(value: str) -> None:
    assert isinstance(refused_because(value), str)
