"""What is expected, each value with its source: flags > config file, which `preflight baseline
record` may have written.

Absolute expectations beat the peers' majority. Knows no check; a judge asks by key.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field

from preflight.frozen import dataclass
from preflight.model import PreflightError, Setting

KEYS: Mapping[str, tuple[type, str]] = {
    "gpus_per_node": (int, "GPUs that every node has"),
    "gpu_model": (str, "text that every GPU's name contains, e.g. H100"),
    "torch": (str, "version or condition, e.g. >=2.6"),
    "cuda": (str, "CUDA that torch was built for, e.g. >=12.4"),
    "nccl": (str, "NCCL that torch loads, e.g. >=2.26"),
    "driver": (str, "NVIDIA driver, e.g. >=570"),
    "memlock_gib": (float, "floor of the locked-memory limit, in GiB"),
    "nofile": (int, "floor of the open-files limit"),
    "shm_gib": (float, "floor of the size of /dev/shm, in GiB"),
    "cpus_per_rank": (float, "floor of the CPUs that each rank may use"),
    "free_gib": (
        float,
        "free space in TMPDIR and the checkpoint directory, in GiB; hooks drain for it",
    ),
    "tcp_gbits": (float, "floor of what one TCP stream moves between two nodes, in Gbit/s"),
    "allreduce_busbw_gbs": (
        float,
        "floor of an all-reduce's bus bandwidth over all ranks, in GB/s",
    ),
    "loader_workers": (int, "DataLoader workers of each rank"),
}

CONDITION = re.compile(r"\s*(>=|<=|==|!=|>|<)?\s*(\d{1,9}(?:\.\d{1,9}){0,9})\s*")


@dataclass(frozen=True, slots=True)
class Expect:
    """The expectations of this run."""

    values: Mapping[str, Setting] = field(default_factory=dict)

    def number(self, key: str) -> float | None:
        """The expected number, None when nobody said one."""
        setting = self.values.get(key)
        return None if setting is None else float(setting.value)

    def text(self, key: str) -> str | None:
        setting = self.values.get(key)
        return None if setting is None else str(setting.value)

    def source(self, key: str) -> str:
        """Where the expectation comes from, e.g. `--expect nofile=65536`; empty when nowhere."""
        return self.values[key].source if key in self.values else ""

    def aside(self, key: str) -> str:
        """The source to append to what was expected: ` (--expect nofile=65536)`, or nothing."""
        return f" ({self.values[key].source})" if key in self.values else ""

    def admits(self, key: str, version: str) -> bool:
        """Whether `version` meets the condition under `key`; True when nobody said one."""
        condition = self.text(key)
        return condition is None or meets(version, condition)


def numbers(version: str) -> tuple[int, ...]:
    """The leading dotted numbers of a version: `2.13.0+cpu` is (2, 13, 0)."""
    found = re.match(r"\D*(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def meets(version: str, condition: str) -> bool:
    """Whether a version meets conditions joined by commas; without an operator a prefix is meant:
    `2.26` admits 2.26.2."""
    have = numbers(version)
    met = True  # each part is read, so that one that is none is refused whatever the version
    for part in condition.split(","):
        found = CONDITION.fullmatch(part.strip())
        if not found:
            raise PreflightError(f"not a version condition: {condition!r:.40}")
        operator, want = found[1] or "=", tuple(int(n) for n in found[2].split("."))
        width = max(len(have), len(want))
        left = have + (0,) * (width - len(have))
        right = want + (0,) * (width - len(want))
        outcome = {
            "=": have[: len(want)] == want,
            "==": left == right,
            "!=": left != right,
            ">=": left >= right,
            "<=": left <= right,
            ">": left > right,
            "<": left < right,
        }[operator]
        met = met and outcome
    return met


def value_of(key: str, raw: object, place: str = "") -> object:
    """`raw` (a flag's text or a config value) as the type that `key` has; `place` is how an error
    calls it."""
    kind = KEYS[key][0]
    place = place or f"expect.{key}"
    if kind is str:
        return _text(key, raw, place)
    number = math.nan
    if isinstance(raw, (int, float, str)) and not isinstance(raw, bool):
        try:
            number = float(raw)
        except (ValueError, OverflowError):
            pass
    if not (math.isfinite(number) and number >= 0):
        raise PreflightError(f"{place} wants a number, got {raw!r:.40}")
    if kind is int and number != int(number):
        raise PreflightError(f"{place} wants a whole number, got {raw!r:.40}")
    return kind(number)


def _text(key: str, raw: object, place: str) -> str:
    if key == "gpu_model":
        if not isinstance(raw, str) or not raw.strip():
            raise PreflightError(f"{place} wants a text, got {raw!r:.40}")
        return raw
    try:
        meets("0", str(raw))  # refuses what is no condition
    except PreflightError:
        raise PreflightError(f"{place} wants a version such as >=2.6, got {raw!r:.40}") from None
    return str(raw)
