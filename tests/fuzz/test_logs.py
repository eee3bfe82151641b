"""Logs of NCCL and of jobs with anything in them: what is read of them is bounded, and can be
written."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from support.fuzzing import EXAMPLES
from support.hostile import BIG, damaged

from preflight import registry
from preflight.domains.collectives import nccl_log
from preflight.render import symptoms
from preflight.serde import decode, encode, parsed

LOGS = Path(__file__).parents[1] / "data/nccl_logs"


@cache
def catalogue() -> registry.Catalogue:
    return registry.load()


@cache
def lines() -> tuple[bytes, ...]:
    found = {line for path in sorted(LOGS.glob("*.log")) for line in path.read_bytes().splitlines()}
    return tuple(sorted(found))


def line() -> st.SearchStrategy[bytes]:
    some = st.sampled_from(lines())
    return some | some.flatmap(damaged) | st.binary(max_size=60)


SAYS = "n1:1:2 [0] NCCL INFO "


@given(st.lists(line(), max_size=30), st.integers(0, 8))
@example([f"{SAYS}Channel 00/{BIG} : 0[1] -> {BIG}[2] via P2P/CUMEM".encode()], 0)
@example([f"{SAYS}comm 0x1 rank 0 nRanks 2 nNodes {BIG} localRanks 1".encode()], 0)
@example([f"{SAYS}GPU/1 ({BIG})".encode(), b"\xff" * 5000], 0)
@EXAMPLES
def test_a_log_of_nccl(text: list[bytes], rank: int) -> None:
    told = [one.decode(errors="replace") for one in text]
    found = nccl_log.parse(told, rank)
    written = json.dumps(encode(found), allow_nan=False, ensure_ascii=False).encode()
    assert len(written) < 1 << 18
    assert decode(nccl_log.NcclLog, parsed(written)) == found


@given(st.lists(line(), max_size=12))
@EXAMPLES
def test_a_log_of_a_job(text: list[bytes]) -> None:
    told = b"\n".join(text).decode(errors="replace")
    found = symptoms.known_lines(told, catalogue())
    json.dumps(symptoms.as_data(found), allow_nan=False, ensure_ascii=False).encode()
    shown = symptoms.diagnosis(found, "job.log", len(text), 80)
    assert shown.isprintable() or all(c.isprintable() or c == "\n" for c in shown)
