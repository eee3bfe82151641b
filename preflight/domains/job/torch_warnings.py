"""Warnings of torch and Lightning that a rank printed, and that mean trouble. Pure."""

from __future__ import annotations

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

CODES = (
    "loss-broadcast",
    "gradient-not-passed",
    "dataset-repeated",
    "metric-unsynced",
    "forward-order",
    "precision-off",
    "gpu-unsupported",
    "cuda-unusable",
)
"""What they are called, here and in the injected preflight_warned.py."""


@dataclass(frozen=True, slots=True)
class TorchWarning:
    """The first one of its code. text: its own words; frame: the user's line; times: how often."""

    code: str
    text: str
    frame: Frame | None = None
    times: int = 1
