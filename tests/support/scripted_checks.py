"""Checks whose judgement is written in the test: for what must hold whatever checks say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from preflight.check import Check, Context, Scope, Stage
from preflight.expect import Expect
from preflight.host import Host
from preflight.judge import verdict
from preflight.judge.policy import Policy
from preflight.model import (
    FindingType,
    Found,
    Kind,
    Measured,
    Missing,
    Node,
    Observation,
    Observations,
    Report,
    Seen,
    Status,
    Subject,
    Topology,
    World,
)
from preflight.registry import Catalogue, Loaded

FINDINGS = {
    "bad": FindingType(who="{who}", cause="c", means="means {word}", now="now", text="text")
}


@dataclass(frozen=True, slots=True)
class Answer:
    value: int = 0
    trouble: str | None = None


@dataclass
class Script:
    """A check module. `says` is called by judge() with the world."""

    says: Callable[[World[Answer]], Iterable[Found]] = lambda world: ()
    shows: Callable[[World[Answer]], Any] = lambda world: Measured("shown")
    CHECK: Check = field(default_factory=lambda: Check(Scope.NODE, Stage.MACHINE, 1.0))
    FINDINGS: Mapping[str, FindingType] = field(default_factory=lambda: FINDINGS)

    def __post_init__(self) -> None:
        self.__name__ = __name__  # where the type of its answer is looked up

    def observe(self, host: Host, ctx: Context) -> Answer:
        raise AssertionError("nothing is observed here")

    def judge(self, world: World[Answer], expect: Expect) -> Iterable[Found]:
        return self.says(world)

    def measured(self, world: World[Answer]) -> Any:
        return self.shows(world)


def catalogue(broken: Mapping[str, str] | None = None, **scripts: Script) -> Catalogue:
    """A catalogue of scripted checks: `a_b=Script(…)` is the check a.b."""
    ids = {name.replace("_", "."): script for name, script in scripts.items()}
    loaded: Any = {i: Loaded(i, script.CHECK, script) for i, script in ids.items()}  # type: ignore[arg-type]
    return Catalogue(loaded, broken or {})


def topology(*nodes: str, ranks: int = 1) -> Topology:
    made = tuple(
        Node(name, tuple(range(n * ranks, (n + 1) * ranks)))
        for n, name in enumerate(nodes or ("n1",))
    )
    return Topology(size=len(made) * ranks, nodes=made, master_addr="127.0.0.1", master_port=29500)


def observed(
    checks: Mapping[str, Observation | Mapping[str, Observation]],
    top: Topology | None = None,
    interrupted: str = "",
) -> Observations:
    """Observations of each check, from the node n1 where only one is given."""
    return Observations(
        tool={"name": "preflight", "version": "0"},
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        settings={},
        topology=top or topology(),
        checks={
            i: {"n1": seen} if isinstance(seen, (Seen, Missing)) else dict(seen)
            for i, seen in checks.items()
        },
        interrupted=interrupted,
    )


SEEN: Seen[Any] = Seen({"value": 1}, 0.1)
NODE = Subject(Kind.NODE, "n1", ranks=(0,))
RANKS = Check(Scope.RANK, Stage.TRAINING, 1.0)


def says(
    status: Status, *subjects: Subject, code: str = "bad", check: Check | None = None, **more: Any
) -> Script:
    """A check that always finds this."""
    made = Found(code, subjects or (NODE,), saw="saw", status=status, **more)
    script = Script(lambda world: (made,))
    return replace(script, CHECK=check) if check else script


def judged(
    checks: Mapping[str, Observation | Mapping[str, Observation]],
    policy: Policy | None = None,
    top: Topology | None = None,
    broken: Mapping[str, str] | None = None,
    interrupted: str = "",
    **scripts: Script,
) -> Report:
    known = catalogue(broken, **scripts)
    seen = observed(checks, top, interrupted)
    return verdict.judge(seen, known, Expect(), policy or Policy())


def outcome(*args: Any, **more: Any) -> tuple[str, int]:
    report = judged(*args, **more)
    return str(report.verdict), report.exit_code
