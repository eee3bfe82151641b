"""Which Python has no torch is said: ours, or the one that somebody named."""

from __future__ import annotations

import pytest

from preflight.engine.dispatch import torch_absent


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("", "torch is not installed here"),
        ("--python", "the Python that --python names has no torch"),
        ("torchrun on PATH", "torch is not installed here, nor for torchrun on PATH"),
        (
            "root runs no Python that is only on PATH: --python /usr/bin/python3",
            "torch is not installed here: root runs no Python that is only on PATH: "
            "--python /usr/bin/python3",
        ),
    ],
)
def test_a_missing_torch(note: str, said: str) -> None:
    assert torch_absent(note) == said
