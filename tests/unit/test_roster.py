"""What a roll says of the way to the meeting."""

from __future__ import annotations

import pytest

from preflight.roster import Attempt, Roll

SILENT = Attempt("10.0.0.9", 29500, "ETIMEDOUT")
OURS = Attempt("10.0.0.1", 29500, answer="ours")


@pytest.mark.parametrize(
    ("looked", "ladder", "address"),
    [(0.2, (OURS,), ""), (3.0, (SILENT, OURS), "10.0.0.1"), (3.0, (), "10.0.0.9")],
)
def test_a_name_that_takes_seconds_is_not_looked_up_again(
    looked: float, ladder: tuple[Attempt, ...], address: str
) -> None:
    ips = ("10.0.0.9", "10.0.0.1")
    roll = Roll(False, "n1", 29500, 4, ips=ips, looked=looked, ladder=ladder)
    assert roll.master_ip == address


def test_no_address_at_all() -> None:
    assert Roll(False, "n1", 29500, 4, looked=9.0).master_ip == ""
