"""A check reads its own rank out of the record."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from support.cases import context

from preflight.domains.job.load import LIMIT, OPTION, load_rank
from preflight.domains.job.record import Calls, Life, RehearsalRecord, Rehearsed, WatchedCommand
from preflight.domains.job.replica import Replica, Sampled
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable
from preflight.serde import encode

LIFE = Life(WatchedCommand(("torchrun",), 0, "ended", 3.0))


def test_each_observer_has_its_own_rank(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    made = RehearsalRecord(tuple(Rehearsed(LIFE, Calls(rank=rank)) for rank in (4, 5)))
    path.write_text(json.dumps(encode(made)))
    for local_rank, rank in enumerate((4, 5)):
        seen = load_rank(Host(), context(options={OPTION: str(path)}, local_rank=local_rank))
        assert seen.calls.rank == rank
    with pytest.raises(CannotObserve, match="has 2 ranks, and not number 2"):
        load_rank(Host(), context(options={OPTION: str(path)}, local_rank=2))


def test_a_model_whose_numbers_ran_off_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    models = (Replica("ddp", checks=(Sampled(3, (math.inf, None), (math.nan, 1.0)),)),)
    path.write_text(json.dumps(encode(RehearsalRecord((Rehearsed(LIFE, models=models),)))))
    seen = load_rank(Host(), context(options={OPTION: str(path)}))
    assert str(seen.models) == str(models)


def test_without_a_record_there_is_nothing_to_look_at() -> None:
    with pytest.raises(NotApplicable):
        load_rank(Host(), context())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("", "is no record"),
        ("[]", "is no record"),
        ('{"ranks": 7}', "is no record"),
        ("[" * 100_000, "is no record"),
        (" " * (LIMIT + 1), "longer than 64 MiB"),
    ],
    ids=["gone", "empty", "a list", "no ranks", "deep", "long"],
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "record.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CannotObserve, match=why):
        load_rank(Host(), context(options={OPTION: str(path)}))
