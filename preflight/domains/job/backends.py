"""Which backend carries the collectives of each group, on which kind of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from preflight.domains.job.frame import Frame
from preflight.frozen import dataclass

SHOWN = 4
"""Groups that are named in a row of the screen."""
UNSET = re.compile(
    r"(?:environment variable |^KeyError: ')(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)"
    r"(?: expected, but not set|')"
)
"""What a script says that needs a launcher and was started without one."""


@dataclass(frozen=True, slots=True)
class GroupBackends:
    """Of one group: pairs of a kind of tensors ("cpu", "cuda") and a backend ("gloo", "nccl").
    label: what torch calls it: default_pg, mesh_tp for a dimension of a mesh, or the group_desc of
    new_group ("undefined" where there is none)."""

    name: str
    carried: tuple[tuple[str, str], ...] = ()
    ranks: tuple[int, ...] = ()
    label: str = ""

    @property
    def called(self) -> str:
        """`world`, `tp`; empty where nobody has given it a name."""
        if self.label == "default_pg":
            return "world"
        return "" if self.label == "undefined" else self.label.removeprefix("mesh_")

    @property
    def text(self) -> str:
        """`gloo`, or `cpu:gloo cuda:nccl` where there are several."""
        kinds = dict.fromkeys(backend for _, backend in self.carried)
        if len(kinds) == 1:
            return next(iter(kinds))
        return " ".join(f"{device}:{backend}" for device, backend in self.carried)


@dataclass(frozen=True, slots=True)
class StridedCall:
    """A collective over Gloo that was given a view with gaps: its shape and strides, how often, and
    the user's line."""

    op: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    calls: int
    frame: Frame | None = None

    @property
    def text(self) -> str:
        """`[512, 8] with strides [64, 1]`."""
        return f"{list(self.shape)} with strides {list(self.strides)}"


@dataclass(frozen=True, slots=True)
class Backends:
    """What a rank has asked for and got.

    asked    the backend that init_process_group was given; empty: none, torch chose
    called   whether it was called; `frame`: the user's line
    groups   the groups that it is in
    models   devices of the models that DDP has wrapped, each once
    failed   of a rank that an exception has ended: its text, and the user's line that raised
    settings (name, value) of those that all ranks must agree on, when it called
             init_process_group: also what the script has set itself
    strided  collectives that were given views with gaps
    """

    rank: int | None = None
    called: bool = False
    asked: str = ""
    frame: Frame | None = None
    groups: tuple[GroupBackends, ...] = ()
    models: tuple[str, ...] = ()
    failed: str = ""
    raised: Frame | None = None
    settings: tuple[tuple[str, str], ...] = ()
    strided: tuple[StridedCall, ...] = ()

    @property
    def text(self) -> str:
        """The backends of all groups, each once."""
        return ", ".join(dict.fromkeys(group.text for group in self.groups if group.carried))


def told(groups: Iterable[GroupBackends], gpu: bool) -> str:
    """`world gloo cpu · tp nccl cuda`: what carries which kind of tensors, the groups of the same
    kind together. gpu: whether there are tensors on one."""
    names: dict[str, dict[str, None]] = {}
    for group in groups:
        by: dict[str, list[str]] = {}
        for device, backend in group.carried:
            if gpu or device != "cuda" or len(group.carried) == 1:
                by.setdefault(backend, []).append(device)
        text = ", ".join(f"{backend} {'+'.join(devices)}" for backend, devices in by.items())
        names.setdefault(text, {})[group.called or "other groups"] = None
    return " · ".join(f"{_names(list(called))} {text}" for text, called in names.items() if text)


def _names(called: Sequence[str]) -> str:
    more = len(called) - SHOWN
    return ", ".join(called[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def carries(groups: Iterable[GroupBackends], device: str) -> str:
    """The backend that carries such tensors in the first group; empty where none does."""
    first = next(iter(groups), None)
    return dict(first.carried).get(device, "") if first is not None else ""
