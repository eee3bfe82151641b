"""The roll of a run that is over: what a guest says of its own may be anything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from preflight.engine.agent import _last_roll
from preflight.meeting.session import Company
from preflight.model import Observation, Seen
from preflight.roster import Roll


@pytest.mark.parametrize("roll", [[1], "x", None, 3, {"hosts": True}])
def test_no_guest_is_believed_to_be_the_host(roll: Any) -> None:
    company = cast("Company", SimpleNamespace(roll=Roll(True, "n0", 29500, 2)))
    seen: dict[str, Observation] = {"n0": Seen({"roll": {}}), "n1": Seen({"roll": roll})}
    _last_roll(seen, company, "n0")
    mine, other = seen["n0"], seen["n1"]
    assert isinstance(mine, Seen)
    assert isinstance(other, Seen)
    assert mine.value["roll"]["hosts"] is True
    assert other.value["roll"] == ({"hosts": False} if isinstance(roll, dict) else roll)
