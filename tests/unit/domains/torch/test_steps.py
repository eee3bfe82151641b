"""Torch's errors in one line, and steps that are marked before they are taken."""

from __future__ import annotations

import pytest
from support.cases import context

from preflight.domains.torch.steps import TEXT, Steps, readable

ROUTE = (
    "The client socket has failed to connect to any network address of (n1, 29500). The client "
    "socket has failed to connect to 89.127.0.0:22528 (errno: 113 - No route to host)."
)
BRACKETS = "The client socket has failed to connect to [::ffff:1.2.3.4]:22528 (errno: 111)."
GLOO = (
    "[enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. "
    "Unable to find address for: eth7"
)
PAIR = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
NCCL = (
    "NCCL error in: /pytorch/x.cpp:94, invalid usage\nncclInvalidUsage: This usually reflects …\n"
    "Last error:\nDuplicate GPU detected"
)
LOADER = (
    "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
    'last):\n  File "x.py", line 1\nRuntimeError: No space left on device (28)\n'
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n  b", "a b"),
        ("why\nException raised from f at x.cpp:1\nframe #0", "why"),
        (GLOO, "ifa != nullptr. Unable to find address for: eth7"),
        (PAIR + "[10.0.0.1]:8080", "Connection closed by peer [10.0.0.1]:8080"),
        (
            LOADER,
            "Caught RuntimeError in DataLoader worker process 0. RuntimeError: No space left on "
            "device (28)",
        ),
        ("", ""),
    ],
)
def test_readable(text: str, shown: str) -> None:
    assert readable(text) == shown


def test_addresses_of_c10d_are_garbage_but_its_host_and_port_are_right() -> None:
    assert "(n1, 29500)" in readable(ROUTE)
    assert "22528" not in readable(ROUTE) + readable(BRACKETS)
    assert "errno: 113" in readable(ROUTE)


def test_the_reason_of_nccl_comes_first() -> None:
    assert readable(NCCL).startswith("Duplicate GPU detected (NCCL error in")


def test_long_texts_are_cut() -> None:
    assert len(readable("x y " * 1_000_000)) == TEXT


def test_steps_are_marked_before_they_are_taken() -> None:
    marks: list[str] = []
    steps = Steps(context(mark=marks.append))
    with steps.until_trouble():
        steps.at("one")
        steps.at("two")
        raise RuntimeError("no")
    assert marks == ["one", "two"]
    assert list(steps.seconds) == ["one"]
    assert steps.trouble is not None
    assert (steps.trouble.step, steps.trouble.text) == ("two", "no")


def test_our_own_errors_are_not_torchs() -> None:
    steps = Steps(context())
    with pytest.raises(TypeError), steps.until_trouble():
        raise TypeError
