"""How ranks ended, from what the watch has seen."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from preflight.rehearsal.conclusion import Watched, _raised, _reraised

SPAWN, FAILED, PEER, OTHER = 10, 11, 12, 13
TRACE = 'Traceback (most recent call last):\n  File "/x/train.py", line 15, in work\nKeyError: 7\n'


@pytest.mark.parametrize(
    ("peer", "parent", "at"),
    [
        ((50.0, -signal.SIGTERM), SPAWN, 50.0),
        ((50.0, 0), SPAWN, 54.0),  # it was done
        ((50.0, -signal.SIGTERM), OTHER, 54.0),
    ],
)
def test_a_rank_that_failed_ended_before_those_that_were_ended_for_it(
    peer: tuple[float, int], parent: int, at: float
) -> None:
    seen = SimpleNamespace(
        ranks=[SimpleNamespace(pid=FAILED), SimpleNamespace(pid=PEER)],
        known={SPAWN: None, FAILED: None, PEER: None},
        words={SPAWN: {"of": FAILED, "trace": TRACE}},
        ends={FAILED: (54.0, 1), PEER: peer},
        parents={FAILED: SPAWN, PEER: parent},
        wall=1000.0,
    )
    found = _reraised(cast(Watched, cast(Any, seen)))
    assert found[FAILED]["at"] == 1000.0 + at
    assert found[FAILED]["text"] == "KeyError: 7"
    seen.words[FAILED] = {"at": 1041.5}  # what it has said itself is earlier than what was seen
    assert _reraised(cast(Watched, cast(Any, seen)))[FAILED]["at"] == 1041.5


RAN = {"how": "raised", "at": 20.0, "text": "ValueError: no data", "frames": []}


@pytest.mark.parametrize(
    ("words", "uncaught", "text", "own"),
    [
        ({}, {}, None, False),
        ({SPAWN: {"how": "exited", "at": 9.0}}, {}, None, False),
        ({SPAWN: RAN}, {}, "ValueError: no data", True),
        ({OTHER: RAN}, {SPAWN: {**RAN, "at": 21.0, "text": "E: later"}}, "E: later", True),
        # the launcher only says that one failed
        (
            {OTHER: RAN, SPAWN: {**RAN, "at": 21.0, "text": "CalledProcessError: Command …"}},
            {},
            "ValueError: no data",
            False,
        ),
        ({FAILED: RAN}, {}, None, False),  # a rank tells it as its own end
    ],
)
def test_what_ended_the_command(words: Any, uncaught: Any, text: str | None, own: bool) -> None:
    seen = SimpleNamespace(
        pid=SPAWN, ranks=[SimpleNamespace(pid=FAILED)], words=words, uncaught=uncaught
    )
    found = _raised(cast(Watched, cast(Any, seen)))
    assert (found and found.text, bool(found and found.own)) == (text, own)
