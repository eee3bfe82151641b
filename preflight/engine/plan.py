"""What a run would do, what it is to do, how far it is, and what it has seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from preflight.frozen import dataclass
from preflight.model import LeftBehind, Observation, Status, Topology
from preflight.registry import Catalogue

SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable that names the file in which GitHub Actions take what a step has to say."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run. `selected` is id -> "" or why the user left it out."""

    catalogue: Catalogue
    selected: Mapping[str, str]
    topology: Topology
    deadline: float
    root: str = "/"
    patience: float = 0.0
    """Seconds for which other nodes are waited for."""
    budgets: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    launchers_store: bool = False
    """torchrun's own store has the port at MASTER_ADDR: the ranks use that, as the job will."""
    python: str = ""
    """The job's interpreter, where somebody says it."""


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """One check of a run that goes on. `status` is None until it is done; `seconds` is how long it
    took, or has run by now, of at most `limit`: 0 where it does not run. `headline`: of its first
    failure."""

    check: str
    stage: str
    status: Status | None = None
    seconds: float = 0.0
    limit: float = 0.0
    headline: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the run is: ids done of all, and what is in flight with its seconds and limit.

    leads   this agent is the one that prints the report
    speaks  it is the one of its node that says something
    """

    done: int
    total: int
    seconds: float
    check: str = ""
    running_for: float = 0.0
    limit: float = 0.0
    waiting_for: str = ""
    rows: tuple[CheckProgress, ...] = ()
    leads: bool = True
    speaks: bool = True


Watch = Callable[[Callable[[], Progress]], None]
"""What is told at every look that the run goes on. It asks how far when it has a use for that."""


@dataclass(slots=True)
class Outcome:
    """What a run has seen."""

    checks: dict[str, dict[str, Observation]] = field(default_factory=dict)
    interrupted: str = ""
    left_behind: tuple[LeftBehind, ...] = ()
    seconds: float = 0.0
