"""How checks are found, validated, selected and ordered."""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from preflight.check import Check, CheckModule, Level, Stage
from preflight.frozen import dataclass
from preflight.humanize import nearest
from preflight.model import Blame, PreflightError, Status, frames_of

SECTIONS = ("Looks at", "Fails if", "Warns if", "Undecided", "Not covered", "Seen as")
ID = re.compile(r"[a-z]+\.[a-z][a-z0-9]*")
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
HEAD = 1024
"""Bytes of a check's source that hold its level."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A check with its id and its module."""

    id: str
    check: Check
    module: CheckModule[Any]

    @property
    def question(self) -> str:
        return (self.module.__doc__ or "").strip().partition("\n")[0]

    @property
    def sections(self) -> dict[str, str]:
        return sections(self.module.__doc__ or "")

    def code(self, name: str) -> str:
        """The finding code that `name` (a code or an old one) stands for; empty if none."""
        kinds = self.module.FINDINGS
        return name if name in kinds else next((c for c in kinds if name in kinds[c].was), "")

    def blames(self, code: str) -> tuple[Blame, ...]:
        """Whom a finding may blame, the usual one first."""
        return self.module.FINDINGS[code].blames or (self.check.blame,)

    def drains(self, code: str) -> bool:
        """Whether a finding may drain the node in SLURM's hooks."""
        fails = Status.FAIL in self.module.FINDINGS[code].statuses
        return self.check.drains and fails and Blame.NODE in self.blames(code)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All checks by id, in the order in which they run, and those that could not be loaded."""

    checks: Mapping[str, Loaded]
    broken: Mapping[str, str]
    frames: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The traceback of each that could not be imported."""

    def __iter__(self) -> Iterator[Loaded]:
        return iter(self.checks.values())

    @property
    def of_meeting(self) -> str:
        """The check that reports who came to the meeting; it also stands for those who did not."""
        return next((c.id for c in self if c.check.reports_meeting), "the meeting")

    @property
    def of_torch(self) -> str:
        """The check that reports why torch can't be imported."""
        return next((c.id for c in self if c.check.reports_torch), "torch")

    def resolve(self, name: str) -> str:
        """The id that `name` (an id or an old one) stands for; PreflightError with the nearest."""
        if name in self.checks or name in self.broken:
            return name
        for loaded in self:
            if name in loaded.check.was:
                return loaded.id
        known = [*self.checks, *self.broken]
        raise PreflightError(f"no check {name!r:.60}{nearest(name, known)}")

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The ids that an id, a prefix (`net`) or a glob (`net.*`) selects; error when none."""
        ids = [*self.checks, *self.broken]
        if found := selected(pattern, ids):
            return found
        try:
            return (self.resolve(pattern),)
        except PreflightError:
            words = [*ids, *sorted({i.partition(".")[0] for i in ids})]
            raise PreflightError(f"no check {pattern!r:.60}{nearest(pattern, words)}") from None


def selected(pattern: str, ids: Iterable[str]) -> tuple[str, ...]:
    """Those of the ids that an id, a prefix (`net`) or a glob (`net.*`) selects."""
    return tuple(i for i in ids if fnmatch.fnmatchcase(i, pattern) or i.startswith(pattern + "."))


def sections(doc: str) -> dict[str, str]:
    """The sections of a check's docstring: lines `Title   text` with indented continuations."""
    found: dict[str, str] = {}
    title = ""
    for line in map(str.strip, doc.splitlines()[1:]):
        if line.startswith(SECTIONS):
            title = next(s for s in SECTIONS if line.startswith(s))
            found[title] = line.removeprefix(title).strip()
        elif title and line:
            found[title] = f"{found[title]} {line}".strip()
    return found


def _faults(check_id: str, module: Any) -> Iterator[str]:
    """What is wrong with the declaration of one check."""
    if not ID.fullmatch(check_id):
        yield f"the id {check_id!r} is not of the form group.name"
    check, doc = getattr(module, "CHECK", None), module.__doc__ or ""
    if not isinstance(check, Check):
        yield "has no CHECK"
    else:
        if check.drains and (check.stage is not Stage.MACHINE or check.torch):
            yield "drains, but SLURM's hooks run only checks of the machine without torch"
        if (declared := level_declared(doc)) != check.level:
            yield f"its docstring declares level {declared}, its CHECK {check.level}"
    advice = getattr(module, "FINDINGS", None)
    if not isinstance(advice, Mapping):
        yield "has no FINDINGS"
    else:
        codes = [*advice, *(old for k in advice.values() for old in getattr(k, "was", ()))]
        yield from (f"bad finding code {c!r}" for c in codes if not CODE.fullmatch(c))
        yield from (f"finding code {c!r} is there twice" for c in {*codes} if codes.count(c) > 1)
    for name in ("observe", "judge", "measured"):
        if not callable(getattr(module, name, None)):
            yield f"has no {name}()"
    try:
        if not dataclasses.is_dataclass(answer_type(module)):
            yield "observe() returns no dataclass"
    except (AttributeError, KeyError):
        yield "observe() does not say what it returns"
    present = sections(doc)
    yield from (f"its docstring lacks {s!r}" for s in SECTIONS if not present.get(s))


def level_declared(doc: str) -> str:
    """The level that the third line of a check's docstring declares (`Level  standard`), so that
    it is known before the check is loaded."""
    third = "".join(doc.split("\n", 3)[2:3])
    return third.removeprefix("Level").strip() if third.startswith("Level ") else Level.QUICK


@cache  # a run asks first what to load, and then loads it
def _head(path: Path) -> str:
    """The beginning of a check's source, which is its docstring."""
    with path.open("rb") as file:
        return file.read(HEAD).decode("utf-8", "replace").removeprefix('"""')


def declared(folder: Path | None = None) -> dict[str, str]:
    """Every check with the level that it declares, by id: known without an import."""
    return {_id_of(path): level_declared(_head(path)) for path in _files(folder)}


def _files(folder: Path | None) -> list[Path]:
    folder = folder or Path(__file__).parent / "checks"
    return sorted(path for path in folder.glob("*.py") if not path.name.startswith("_"))


def _id_of(path: Path) -> str:
    return path.stem.replace("_", ".", 1)


def load(folder: Path | None = None, level: Level = Level.DEEP) -> Catalogue:
    """Every check of the folder, ordered by stage and needs. Loud: a bad declaration is broken.
    Those that declare to be beyond the level are not imported: of a quick run a third of its CPU,
    of a standard one a tenth."""
    beyond = [str(other) for other in Level if not level.includes(other)]
    found: dict[str, Loaded] = {}
    broken: dict[str, str] = {}
    frames: dict[str, tuple[str, ...]] = {}
    for path in _files(folder):
        check_id = _id_of(path)
        if beyond and level_declared(_head(path)) in beyond:
            continue
        try:
            module = importlib.import_module(f"preflight.checks.{path.stem}")
        except (Exception, SystemExit) as error:  # noqa: BLE001  that is a row, not our end
            broken[check_id] = f"{type(error).__name__}: {error}"
            frames[check_id] = frames_of(error)
            continue
        faults = list(_faults(check_id, module))
        if faults:
            broken[check_id] = "; ".join(faults)
        else:
            found[check_id] = Loaded(check_id, module.CHECK, typing.cast(Any, module))
    for check_id in list(found):
        if fault := _unmet(found[check_id], found, broken):
            broken[check_id] = fault
            del found[check_id]
    for circle in _circles(found):
        around = " -> ".join((*circle, circle[0]))
        broken |= dict.fromkeys(circle, f"checks need each other: {around}")
        for check_id in circle:
            found.pop(check_id, None)  # it may be on two circles
    return Catalogue(order(found), broken, frames)


def _unmet(loaded: Loaded, found: Mapping[str, Loaded], broken: Mapping[str, str]) -> str:
    """Why the needs of a check can never be met; empty when they can."""
    stages = tuple(Stage)
    for need in loaded.check.needs:
        if need not in found:
            if need not in broken:
                return f"needs {need!r}, which does not exist"
            continue
        later = found[need].check.stage
        if stages.index(later) > stages.index(loaded.check.stage):
            return f"needs {need!r} of the stage {later}, which comes later"
    return ""


def _circles(checks: Mapping[str, Loaded]) -> list[tuple[str, ...]]:
    """Checks that need each other, each circle once."""
    circles: list[tuple[str, ...]] = []
    done: set[str] = set()

    def walk(check_id: str, path: tuple[str, ...]) -> None:
        if check_id in path:
            circles.append(path[path.index(check_id) :])
        elif check_id not in done and check_id in checks:
            for need in checks[check_id].check.needs:
                walk(need, (*path, check_id))
            done.add(check_id)

    for check_id in checks:
        walk(check_id, ())
    return circles


def order(checks: Mapping[str, Loaded]) -> dict[str, Loaded]:
    """By stage, then needs, then name. There are no circles."""
    stages = tuple(Stage)
    done: dict[str, Loaded] = {}

    def place(check_id: str) -> None:
        if check_id not in done and check_id in checks:
            for need in checks[check_id].check.needs:
                place(need)
            done[check_id] = checks[check_id]

    for check_id in sorted(checks, key=lambda i: (stages.index(checks[i].check.stage), i)):
        place(check_id)
    return {i: c for s in stages for i, c in done.items() if c.check.stage is s}


def select(
    catalogue: Catalogue,
    *,
    level: Level,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    enabled: Mapping[str, Level] | None = None,
) -> dict[str, str]:
    """id -> "" when it runs, else why it is left out. What `--only` names runs at any level, and
    so do its needs; checks beyond the level are not in the result at all."""
    wanted = {i for pattern in only for i in catalogue.matching(pattern)}
    for check_id in reversed(list(catalogue.checks)):
        if check_id in wanted:
            wanted |= set(catalogue.checks[check_id].check.needs)
    skipped = {i for pattern in skip for i in catalogue.matching(pattern)}
    chosen: dict[str, str] = {}
    for loaded in catalogue:
        from_level = (enabled or {}).get(loaded.id, loaded.check.level)
        if loaded.id in wanted or (not wanted and level.includes(from_level)):
            chosen[loaded.id] = "skipped by you (--skip)" if loaded.id in skipped else ""
    chosen |= {i: "" for i in catalogue.broken if (not wanted or i in wanted) and i not in skipped}
    return chosen


def module_name(check_id: str) -> str:
    return "preflight.checks." + check_id.replace(".", "_")


def imported(check_id: str) -> CheckModule[Any]:
    """The module of a check, for the worker that observes it."""
    return typing.cast("CheckModule[Any]", importlib.import_module(module_name(check_id)))


def answer_type(module: CheckModule[Any]) -> Any:
    """The dataclass that a check's observe() returns, from its annotation."""
    annotation = module.observe.__annotations__["return"]
    if isinstance(annotation, str):
        annotation = getattr(sys.modules[getattr(module, "__name__", "")], annotation)
    return annotation
