"""expect: versions, conditions and numbers that people write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.expect import KEYS, Expect, meets, numbers, value_of
from preflight.model import PreflightError, Setting


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("2.13.0+cpu", (2, 13, 0)),
        ("v2.26.2-1", (2, 26, 2)),
        ("570.124.06", (570, 124, 6)),
        ("12.8", (12, 8)),
        ("NCCL 2.21.5", (2, 21, 5)),
        ("2.7.0a0+git1234", (2, 7, 0)),
        ("", ()),
        ("none", ()),
        ("9" * 5000, (999999999,)),
    ],
)
def test_the_numbers_of_a_version(version: str, found: tuple[int, ...]) -> None:
    assert numbers(version) == found


@pytest.mark.parametrize(
    ("version", "condition", "does"),
    [
        ("2.26.2", "2.26", True),
        ("2.26.2", "2.26.2", True),
        ("2.26.2", "2.2", False),
        ("2.26", "2.26.2", False),
        ("2.26.2", "==2.26", False),
        ("2.26.0", "==2.26", True),
        ("2.26.2", "!=2.26.2", False),
        ("2.26.2", ">=2.26", True),
        ("2.26", ">=2.26.0", True),
        ("2.9", ">=2.26", False),
        ("2.26.2", ">2.26.2", False),
        ("2.26.3", ">2.26.2", True),
        ("2.26.2", "<2.27,>=2.26", True),
        ("2.27", "<2.27,>=2.26", False),
        ("2.26.2", " >= 2.26 , < 3 ", True),
        ("2.13.0+cpu", "2.13", True),
        ("", ">=1", False),
        ("", "1", False),
    ],
)
def test_conditions(version: str, condition: str, does: bool) -> None:
    assert meets(version, condition) is does


@pytest.mark.parametrize(
    "text", ["", "new", ">>2", "=2", "2.x", ">=", "~=2.1", ">=2.6,", "9" * 5000]
)
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(PreflightError, match="not a version condition"):
        meets("2.0", text)


VERSIONS = st.lists(st.integers(0, 99), min_size=1, max_size=4)


@given(VERSIONS, VERSIONS)
def test_conditions_are_an_order(left: list[int], right: list[int]) -> None:
    one, other = (".".join(map(str, v)) for v in (left, right))
    assert meets(one, f">={other}") is not meets(one, f"<{other}")
    assert meets(one, f"<={other}") is not meets(one, f">{other}")
    assert meets(one, f"=={other}") is not meets(one, f"!={other}")
    assert meets(one, f"=={other}") is (meets(one, f">={other}") and meets(one, f"<={other}"))
    assert meets(one, one)


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("gpus_per_node", "4", 4),
        ("gpus_per_node", 4, 4),
        ("gpus_per_node", 4.0, 4),
        ("nofile", "1e6", 1_000_000),
        ("shm_gib", "0.5", 0.5),
        ("shm_gib", 1, 1.0),
        ("torch", 2.6, "2.6"),
        ("torch", ">=2.6", ">=2.6"),
        ("gpu_model", "H100", "H100"),
    ],
)
def test_values(key: str, raw: object, value: object) -> None:
    found = value_of(key, raw)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("gpus_per_node", "four"),
        ("gpus_per_node", "1.5"),
        ("gpus_per_node", True),
        ("gpus_per_node", None),
        ("gpus_per_node", [4]),
        ("nofile", "nan"),
        ("nofile", float("inf")),
        ("nofile", -1),
        ("shm_gib", "9" * 5000),
        ("torch", True),
        ("torch", []),
        ("gpu_model", 100),
        ("gpu_model", " "),
    ],
)
def test_values_that_are_refused_by_their_place(key: str, raw: object) -> None:
    with pytest.raises(PreflightError, match=r"^--expect key wants a "):
        value_of(key, raw, "--expect key")


@given(st.sampled_from(list(KEYS)), st.text(max_size=12) | st.floats() | st.integers())
def test_anything_is_a_value_or_refused(key: str, raw: object) -> None:
    try:
        value = value_of(key, raw)
    except PreflightError:
        return
    assert isinstance(value, KEYS[key][0])


def test_what_a_judge_asks() -> None:
    expect = Expect({"nofile": Setting(5, "--expect nofile=5"), "nccl": Setting(">=2.26", "f")})
    assert expect.number("nofile") == 5.0
    assert expect.source("nofile") == "--expect nofile=5"
    assert expect.aside("nofile") == " (--expect nofile=5)"
    assert expect.admits("nccl", "2.26.2")
    assert not expect.admits("nccl", "2.21.5")
    assert expect.admits("torch", "0.1"), "nobody expects anything"
    assert (expect.number("x"), expect.text("x"), expect.source("x"), expect.aside("x")) == (
        None,
        None,
        "",
        "",
    )
