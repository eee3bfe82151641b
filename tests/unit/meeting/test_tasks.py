"""What stands in a launcher's store about the meeting: anybody may have written it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.meeting.tasks import OWN_MOST, place_told


def test_addresses_and_a_port() -> None:
    told = {"ips": ["10.0.0.1", "fe80::1%eth0"] + ["10.0.0.2"] * 40, "port": 4711, "newer": 1}
    found = place_told(json.dumps(told).encode())
    assert found["port"] == 4711
    assert found["ips"][:2] == ["10.0.0.1", "fe80::1%eth0"]
    assert len(found["ips"]) == OWN_MOST


@pytest.mark.parametrize(
    "told",
    [
        {"ips": ["a.name.to.look.up"], "port": 1},
        {"ips": ["10.0.0.1\0"], "port": 1},
        {"ips": "10.0.0.1", "port": 1},
        {"ips": ["10.0.0.1"], "port": 0},
        {"ips": ["10.0.0.1"], "port": 1 << 16},
        {"ips": ["10.0.0.1"], "port": "29500"},
        {"ips": ["10.0.0.1"], "port": True},
        [],
    ],
)
def test_what_would_make_an_agent_wait_or_stop_is_no_place(told: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  of the address, or of the shape
        place_told(json.dumps(told).encode())
