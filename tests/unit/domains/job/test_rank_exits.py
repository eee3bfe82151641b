"""Ends: which one is a cause, which the symptom of something that job.collectives sees, and where a
rank was that says nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import Case, judged
from support.rehearsed_worlds import call, gone, group, loader, over

from preflight.checks import job_collectives, job_ranks
from preflight.domains.job.record import End, Frame, Life, WatchedCommand
from preflight.judge.fold import fold
from preflight.model import Blame

STEP = Frame("train.py", 31, "step", own=True)
INNER = Frame("/usr/lib/python3/json/decoder.py", 355, "raw_decode")
PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:34567"
MISFIT = (
    "RuntimeError: [enforce fail at /a/gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
    "op.nbytes. 36 vs 4. "
)


def job(*ends: End) -> dict[str, Life]:
    command = WatchedCommand(("torchrun", "train.py"), 1, "ended", 12.1)
    return {
        f"n1/{rank}": Life(command, rank, len(ends), len(ends), 1000 + rank, joined=True, end=end)
        for rank, end in enumerate(ends)
    }


def raised(text: str, at: float = 100.0) -> End:
    return End("raised", at, 1, text, (STEP,))


def signal(number: int, at: float = 100.0) -> End:
    return End("vanished", at, -number)


@pytest.mark.parametrize("code", [-9, 3, None])
def test_who_leaves_without_a_word_was_last_seen_somewhere(code: int | None) -> None:
    lost = End("vanished", 100.0, code, last=(INNER, STEP), ago=0.4)
    text = judged(job_ranks, Case("", job(raised(PEER, 100.2), lost)))[0].saw
    assert " · last seen at train.py:31 in step, 0.4 s before its end" in text
    crashed = replace(lost, code=-11, frames=(STEP,))
    assert "last seen" not in judged(job_ranks, Case("", job(raised(PEER, 100.2), crashed)))[0].saw


@pytest.mark.parametrize("cause", [signal(6), raised(MISFIT)], ids=["aborted", "raised"])
def test_other_sizes_are_the_cause_of_an_end_by_them(cause: End) -> None:
    found = judged(job_ranks, Case("", job(raised(PEER, 100.1), cause, signal(15, 100.5))))
    calls = [group(call(7)), group(call(7, shape="[4] Float")), group(call(7))]
    seen = Case("", over("ended", *(gone("vanished", of) for of in calls)))
    differs = judged(job_collectives, seen)
    assert [f.code for f in differs] == ["collective-mismatch"]
    ranks = [f.with_(check="job.ranks") for f in found]
    (kept,) = fold([*ranks, *(f.with_(check="job.collectives") for f in differs)])
    assert (kept.code, [s.name for s in kept.subjects]) == ("collective-mismatch", ["1"])
    assert kept.folded == ("job.ranks",)


def test_other_sizes_do_not_explain_another_end() -> None:
    found = judged(job_ranks, Case("", job(raised("E: x"), signal(6, 100.3))))
    assert found[0].blame is Blame.JOB
    assert "job.collectives" in found[0].explains


def test_where_a_rank_with_more_data_waited_when_it_ended() -> None:
    short = {"loader": loader(6, 6, done=True), "batches": 6}
    long = {"loader": loader(7, 8), "batches": 7}
    more = gone("vanished", group(call(7, line=34)), **long)
    saw = over("ended", gone("vanished", group(call(7, "barrier")), **short), more)
    told = judged(job_collectives, Case("", saw))[0]
    assert told.code == "data-uneven"
    assert told.saw.endswith("SequentialSampler, and wait at train.py:34 in step")
