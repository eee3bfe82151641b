"""An exception that one rank alone has caught is named where the ranks are apart, only there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import world
from support.rehearsed_worlds import WAITS, call, group, job, rank

from preflight.domains.job.hang import Hang
from preflight.domains.job.record import Calls, Caught, Frame
from preflight.domains.job.swallowed import with_swallowed
from preflight.model import Confidence, Found

RAISED, HANDLER = Frame("data.py", 9, "read", own=True), Frame("train.py", 30, "main", own=True)
ERROR = Caught("OSError: truncated", RAISED, HANDLER, 2)
OTHER = rank("collective", group(call(7, "broadcast", 40)))
COMPLAINT = replace(ERROR, text="RuntimeError: [gloo] Connection closed by peer [127.0.0.1]")


def named(*calls: Calls, code: str = "collective-mismatch", of: int = 1) -> Found:
    hang = Hang.of(world("job.collectives", job(*calls)))
    found = Found(code, hang.subjects([of]), saw="apart", confidence=Confidence.CERTAIN)
    return with_swallowed(hang, found)


def caught(*errors: Caught, seen: Calls = WAITS) -> Calls:
    return replace(seen, caught=errors)


def test_the_rank_that_has_caught_it_is_named() -> None:
    found = named(WAITS, caught(ERROR, seen=OTHER), WAITS)
    assert (found.code, [s.name for s in found.subjects]) == ("exception-swallowed", ["1"])
    assert found.saw == (
        "rank 1 has caught OSError: truncated at data.py:9 in read, caught at train.py:30 "
        "(2 times), which no other rank has · apart"
    )
    assert found.confidence is Confidence.LIKELY
    now = named(WAITS, caught(Caught("KeyError: 'x'", RAISED, now=True)))
    assert now.saw.startswith("rank 1 is handling KeyError: 'x' at data.py:9 in read, which")


def test_a_batch_that_did_not_fit_and_was_left_out_is_named_in_few_words() -> None:
    """`except RuntimeError: continue` on one rank, which is a step behind the others then."""
    text = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    found = named(WAITS, caught(replace(ERROR, text=text), seen=OTHER), WAITS)
    assert found.saw.startswith(
        "rank 1 has caught CUDA out of memory, tried to allocate 2 GiB at data.py:9 in read, caught"
    )


def test_in_a_mismatch_the_others_may_look_odd() -> None:
    assert named(caught(ERROR), OTHER).subjects[0].name == "0"
    assert named(caught(ERROR), WAITS, code="rank-stuck").code == "rank-stuck"


@pytest.mark.parametrize(
    "calls",
    [
        (WAITS, OTHER),
        (caught(ERROR), caught(ERROR)),
        (caught(ERROR), caught(replace(ERROR, times=1)), caught(replace(ERROR, times=2))),
        (caught(ERROR), caught(replace(ERROR, frame=HANDLER))),  # two, each its own
        (WAITS, caught(COMPLAINT)),
        # it is what has ended it
        (WAITS, caught(replace(ERROR, handler=None), seen=replace(OTHER, ended="raised"))),
    ],
)
def test_what_is_no_cause(calls: tuple[Calls, ...]) -> None:
    assert named(*calls).code == "collective-mismatch"


def test_another_finding_stays() -> None:
    assert named(WAITS, caught(ERROR), code="fabric-stuck").code == "fabric-stuck"
