"""How many examples the fuzzers of tests/fuzz try: few in the suite, FUZZ of each by `make fuzz`;
what is said of those that are refused, and what becomes of an observation."""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import HealthCheck, settings

from preflight.check import Context
from preflight.expect import Expect
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable
from preflight.serde import decode, encode, parsed
from support.cases import world


def in_one_line(error: Exception) -> None:
    assert "\n" not in str(error)


EXAMPLES = settings(
    max_examples=int(os.environ.get("FUZZ", "40")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def look(module: Any, host: Host, ctx: Context) -> None:
    """A check looks, or says why it can't; what it saw is written, read and judged."""
    check = module.__name__.rpartition(".")[2].replace("_", ".", 1)
    try:
        value = module.observe(host, ctx)
    except (CannotObserve, NotApplicable) as why:
        in_one_line(why)
        return
    written = json.dumps(encode(value), allow_nan=False, ensure_ascii=False).encode()
    seen = world(check, {"n1": decode(type(value), parsed(written))})
    list(module.judge(seen, Expect({})))
    module.measured(seen)
