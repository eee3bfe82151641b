"""What the flags of a rehearsal say, and the line about how it goes."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.model import PreflightError
from preflight.rehearsal import aggregate, run

TOLD: dict[str, Any] = {
    "seconds": 12.3,
    "alive": 4,
    "starting": 0,
    "world": 4,
    "steps": [17, 18],
    "collectives": [40, 40],
    "rate": 33.5,
    "gpu": 0,
    "cpu": 2.04,
    "rss": 3 << 30,
    "shm": 0,
    "workers": 0,
    "waiting": [],
    "quiet": 0.3,
}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "12 of 60 s · 4/4 ranks · 17-18 steps · 40 collectives, 33.5/s · 2.0 CPUs · 3.0 GiB"),
        ({"workers": 8}, "8 loader workers"),
        ({"gpu": 2 << 30}, "2.0 GiB on GPUs"),
        ({"starting": 2, "alive": 2}, "2/4 ranks · 2 starting"),
        ({"shm": 64 << 20}, "/dev/shm +64 MiB"),
        ({"waiting": [0, 2], "quiet": 9.0}, "nothing for 9 s, waiting: rank 0, 2"),
    ],
)
def test_the_live_line(changes: dict[str, Any], wanted: str) -> None:
    assert wanted in run.line({**TOLD, **changes}, 60.0)


def test_what_the_flags_say() -> None:
    asked = run.terms(["python", "x.py"], "2m", None, "5s", stop_when_ok=True)
    assert (asked.seconds, asked.stuck, asked.steps) == (120.0, 5.0, run.ENOUGH)
    assert run.terms(["x"], None, 7, None, stop_when_ok=True).steps == 7
    for words, for_ in (([""], None), (["x"], "soon"), (["x"], "0s")):
        with pytest.raises(PreflightError):
            run.terms(words, for_, None, None, stop_when_ok=False)


def test_secrets_of_a_command_line_are_not_shown() -> None:
    raised = {"how": "raised", "text": "ValueError: https://me:pass@host/ refused"}
    assert "pass" not in aggregate.end_of(raised, 1.0, 1).text


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (("python", "train.py", "--config", "x.py"), "train.py"),
        (("torchrun", "--nproc-per-node=2", "a b/train.py"), "a b/train.py"),
        (("python", "-m", "train"), ""),
        (("bash", "-c", "cd /data && exec python train.py --lr 1"), "train.py"),
        (("/bin/sh", "-ec", "torchrun 'my train.py'; echo done"), "my train.py"),
        (("bash", "-lc", "python train.py; python train.py --again"), "train.py"),
        (("bash", "-c", "python a.py && python b.py"), ""),
        (("bash", "-c", "python 'a.py"), ""),
        (("bash", "launch.sh", "train.py"), "train.py"),
        (("bash", "-c"), ""),
    ],
)
def test_the_script_of_a_command(argv: tuple[str, ...], script: str) -> None:
    assert run.script_of(argv) == script
