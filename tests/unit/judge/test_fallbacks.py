"""judge.fallbacks: what is advised where a check could not look fits the reason that it gives."""

from __future__ import annotations

import pytest
from support.cases import topology

from preflight.judge.fallbacks import GENERIC, NOT_LOADED, UNJUDGED, UNSTARTED, missing
from preflight.model import (
    NO_PROCESS,
    OF_ANY_CHECK,
    Cause,
    Finding,
    FindingType,
    Missing,
    World,
    too_little_cpu,
)

PERMISSION = "run it with that permission"
MEMORY = "stop that program"
BUSY = "re-run when the machine is less busy"
OTHER = "fix what the message names"


def unseen(why: str, cause: Cause = Cause.CANNOT_OBSERVE) -> Finding:
    world: World[object] = World("x.y", {"n1": Missing(cause, why)}, topology())
    return missing("x.y", cause, ["n1"], world)


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("/proc/self/mountinfo: Permission denied", PERMISSION),
        ("/dev/kmsg: Operation not permitted", PERMISSION),
        ("nvmlInit: Insufficient Permissions (4)", PERMISSION),
        ("no state of a port is readable in /sys/class/infiniband", PERMISSION),
        ("neither can the port be tried nor are its sockets readable", PERMISSION),
        ("NVML does not tell: the number of GPUs", PERMISSION),
        ("only 0.2 GiB are free on GPU 3: gpu.health names who has the rest", MEMORY),
        ("less than 2 GiB are free on the GPU of a rank", MEMORY),
        ("matmul bf16 on GPU 0: CUDA out of memory. Tried to allocate 2 GiB", MEMORY),
        ("the package nvidia-ml-py is not installed", OTHER),
        ("the round trip is too unsteady", OTHER),
        ("no CPU was left to touch the places: this machine is too busy", BUSY),
        (too_little_cpu(11.0, 20.0), BUSY),
    ],
)
def test_the_advice_fits_the_reason(why: str, text: str) -> None:
    found = unseen(why)
    assert isinstance(found.advice, FindingType)
    assert found.advice.text.startswith(text)
    assert found.advice.text.endswith("or leave the check out: --skip x.y")
    assert found.saw == why


def test_what_was_killed_is_no_matter_of_a_permission() -> None:
    found = unseen("Permission denied", Cause.TIMED_OUT)
    assert isinstance(found.advice, FindingType)
    assert PERMISSION not in found.advice.text


def test_what_the_kernel_refuses_a_process_names_the_limit() -> None:
    found = unseen(f"{NO_PROCESS}: ulimit -u is 120 for user 1000")
    assert found.code == UNSTARTED
    assert isinstance(found.advice, FindingType)
    assert found.advice.text.startswith("raise the limit")
    assert "ulimit -u is 120 for user 1000" in found.headline


def test_the_codes_of_any_check_are_these() -> None:
    """`preflight explain` takes the check's name for them."""
    codes = {code for code, _, _ in GENERIC.values()} | {UNSTARTED, UNJUDGED, NOT_LOADED}
    assert codes == OF_ANY_CHECK
    assert unseen("no such file").explained_as == "x.y"
