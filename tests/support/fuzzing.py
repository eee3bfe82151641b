"""How many examples the fuzzers of tests/fuzz try: few in the suite, FUZZ of each by `make fuzz`;
and what is said of those that are refused."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def in_one_line(error: Exception) -> None:
    assert "\n" not in str(error)


EXAMPLES = settings(
    max_examples=int(os.environ.get("FUZZ", "40")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
