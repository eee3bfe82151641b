"""How NCCL and c10d parse numbers and flags."""

from __future__ import annotations

import pytest

from preflight.domains.params import c10d_bool, name_list, strtoll, switched_on


@pytest.mark.parametrize(
    ("text", "number", "rest"),
    [
        ("1", 1, ""),
        ("true", 0, "true"),
        ("4M", 4, "M"),
        ("010", 8, ""),
        ("08", 0, "8"),
        ("0x10", 16, ""),
        ("0x", 0, "x"),
        (" -2 ", -2, " "),
        ("+7", 7, ""),
        ('"1"', 0, '"1"'),
        ("", 0, ""),
    ],
)
def test_strtoll(text: str, number: int, rest: str) -> None:
    assert strtoll(text) == (number, rest)


@pytest.mark.parametrize(
    ("text", "on"),
    [("1", True), ("2", True), ("-1", True), ("0", False), ("true", False), ("", False)],
)
def test_a_flag_of_nccl_is_a_number(text: str, on: bool) -> None:
    assert switched_on(text) is on


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1", True), ("Yes", True), ("T", True), ("0", False), ("n", False), ("on", None), ("", None)],
)
def test_a_boolean_of_c10d_is_a_known_word(text: str, meant: bool | None) -> None:
    assert c10d_bool(text) is meant


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("^eth1", ["eth0", "ib0"]),
        ("^=eth1,ib0", ["eth0", "eth10"]),
        ("eth0:1", ["eth0"]),
        ("", ["eth0", "eth1", "eth10", "ib0"]),
    ],
)
def test_a_list_of_names(text: str, taken: list[str]) -> None:
    found = name_list(text, 16)
    assert [name for name in ("eth0", "eth1", "eth10", "ib0") if found.admits(name)] == taken


def test_a_port_counts_where_both_sides_have_one() -> None:
    found = name_list("mlx5_0:1,mlx5_1,mlx5_2:x", 2)
    assert len(found.entries) == 2
    assert [found.admits("mlx5_0", port) for port in (1, 2, None)] == [True, False, True]
    assert [found.means("mlx5_1", port) for port in (1, None)] == [True, True]
    assert not found.means("mlx5_10")
