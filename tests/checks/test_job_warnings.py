"""job.warnings: what torch itself has warned of is named with its rank and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips

from preflight.check import conforms
from preflight.checks import job_warnings
from preflight.checks.job_warnings import Warnings
from preflight.domains.job.record import (
    Frame,
    Life,
    RehearsalRecord,
    Rehearsed,
    WatchedCommand,
)
from preflight.domains.job.torch_warnings import CODES, TorchWarning
from preflight.host import Host
from preflight.model import Cause, Missing, NotApplicable, Status
from preflight.rehearsal.aggregate import warnings_of
from preflight.serde import encode

conforms(job_warnings)

LINE = Frame("train.py", 31, "step", own=True)
SHAPES = TorchWarning("loss-broadcast", "Using a target size that is different …", LINE, 3)


def ranks(*each: tuple[TorchWarning, ...]) -> dict[str, Warnings]:
    return {f"n1/{rank}": Warnings(rank, warned) for rank, warned in enumerate(each)}


CASES = (
    Case("nothing", ranks((), ())),
    Case("the record can't be read", Missing(Cause.TIMED_OUT)),
    Case("no command", Missing(Cause.NOT_APPLICABLE, "only where a command is rehearsed")),
    *(
        Case(
            code,
            ranks((), (replace(SHAPES, code=code),)),
            code,
            Status.WARN,
            subject="n1 · rank 1",
        )
        for code in CODES
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    assert_case(job_warnings, case)


def test_text_line_and_ranks_are_named() -> None:
    (found,) = judged(job_warnings, Case("", ranks((SHAPES,), (), (SHAPES,))))
    assert [subject.ranks for subject in found.subjects] == [(0,), (2,)]
    assert all(part in found.saw for part in (SHAPES.text, "train.py:31", "3 times")), found.saw


def test_a_long_text_is_cut_on_the_screen() -> None:
    (found,) = judged(job_warnings, Case("", ranks((replace(SHAPES, text="x" * 300),))))
    assert "…" in found.saw
    assert len(found.saw) < 250


@pytest.mark.parametrize(
    "told",
    [
        None,
        "loss-broadcast",
        [["made-up", "text", None, 1]],
        [["loss-broadcast", "text", None, -1]],
        [["loss-broadcast", 5, None, 1]],
        [["loss-broadcast"]],
    ],
)
def test_an_answer_that_is_none_is_left_out(told: Any) -> None:
    assert warnings_of({"warned": told}) == ()


def test_what_a_rank_tells_is_bounded_and_redacted() -> None:
    text = "api_key=abcdef0123456789abcdef " + "x" * 9000
    entry = ["loss-broadcast", text, ["train.py", 31, "step", True], 1 << 90]
    (one,) = warnings_of({"warned": [entry] * 500})
    assert (one.frame, len(one.text) <= 400, "abcdef01" in one.text) == (LINE, True, False)
    assert one.times < 1 << 63


def record(life: Life, *warned: TorchWarning) -> str:
    return json.dumps(encode(RehearsalRecord((Rehearsed(life, warned=warned),))))


def test_observe(tmp_path: Path) -> None:
    life = Life(WatchedCommand(("python", "train.py"), 0, "ended", 12.0), rank=1)
    file = tmp_path / "record.json"
    file.write_text(record(life, SHAPES))
    ctx = context(options={"record": str(file)})
    assert job_warnings.observe(Host(), ctx) == Warnings(1, (SHAPES,))
    round_trips(Warnings(1, (SHAPES,)))
    file.write_text(record(replace(life, watched="py-spy"), SHAPES))
    with pytest.raises(NotApplicable, match="outside"):
        job_warnings.observe(Host(), ctx)
