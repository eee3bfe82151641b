"""What a declaration must have, and what --only, --skip and levels select. How a module is
refused that lacks something is in test_run.py, with modules that do."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted_checks import Script, catalogue

from preflight import check, registry
from preflight.check import Check, Level, Scope, Stage
from preflight.humanize import nearest
from preflight.model import PreflightError
from preflight.registry import (
    SECTIONS,
    Catalogue,
    answer_type,
    module_name,
    order,
    sections,
    select,
)

FOLDER = Path(check.__file__).parent / "checks"


@pytest.fixture(scope="module")
def real() -> Catalogue:
    return registry.load()


def declared(
    stage: Stage = Stage.MACHINE,
    needs: tuple[str, ...] = (),
    level: Level = Level.QUICK,
    was: tuple[str, ...] = (),
) -> Script:
    return Script(CHECK=Check(Scope.NODE, stage, 1.0, needs=needs, level=level, was=was))


# --- the real ones ---


def test_all_of_them_are_found(real: Catalogue) -> None:
    assert not real.broken
    files = {p.stem.replace("_", ".", 1) for p in FOLDER.glob("[!_]*.py")}
    assert set(real.checks) == files
    assert len(files) >= 15


def test_they_run_by_stage_and_after_what_they_need(real: Catalogue) -> None:
    ids = list(real.checks)
    stages = [list(Stage).index(loaded.check.stage) for loaded in real]
    assert stages == sorted(stages)
    for loaded in real:
        for need in loaded.check.needs:
            assert ids.index(need) < ids.index(loaded.id)


def test_each_says_what_it_is(real: Catalogue) -> None:
    for loaded in real:
        assert loaded.question.endswith("?"), loaded.id
        assert list(loaded.sections) == list(SECTIONS), loaded.id
        assert 0 < loaded.check.budget <= 60
        assert importlib.import_module(module_name(loaded.id)) is loaded.module
        assert answer_type(loaded.module).__dataclass_params__.frozen


def test_the_contract_of_the_levels(real: Catalogue) -> None:
    """quick needs no torch and no peers; what needs either is in standard."""
    for loaded in real:
        if loaded.check.torch or loaded.check.scope in (Scope.PAIR, Scope.WORLD):
            assert loaded.check.level is not Level.QUICK, loaded.id
        for need in loaded.check.needs:  # else it would be missing where that is not loaded
            assert loaded.check.level.includes(real.checks[need].check.level), loaded.id
    quick = [real.checks[i].check for i in select(real, level=Level.QUICK)]
    assert sum(check.quick_budget or check.budget for check in quick) / 2 < 40


# --- docstrings ---


def test_sections_of_a_docstring() -> None:
    found = sections(
        """Is it?

Looks at     /proc
             and more
Fails if     it
Seen as      "Fails if you are lucky"
"""
    )
    assert found["Looks at"] == "/proc and more"
    assert found["Fails if"] == "it"
    assert found["Seen as"] == '"Fails if you are lucky"'
    assert "Undecided" not in found


@given(st.text(max_size=200))
def test_any_docstring_has_known_sections_only(text: str) -> None:
    assert set(sections(text)) <= set(SECTIONS)


# --- names ---

SOME = catalogue(
    net_port=declared(),
    net_name=declared(),
    host_cpu=declared(was=("cpu.host",)),
    world_gloo=declared(Stage.TRAINING, ("net.port",), Level.STANDARD),
    broken={"host.bad": "SyntaxError"},
)


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        ("net.port", ["net.port"]),
        ("net", ["net.port", "net.name"]),
        ("net.*", ["net.port", "net.name"]),
        ("*.port", ["net.port"]),
        ("host", ["host.cpu", "host.bad"]),
        ("cpu.host", ["host.cpu"]),
        ("*", ["net.port", "net.name", "host.cpu", "world.gloo", "host.bad"]),
    ],
)
def test_what_a_pattern_selects(pattern: str, ids: list[str]) -> None:
    assert sorted(SOME.matching(pattern)) == sorted(ids)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("net.prt", "no check 'net.prt'; did you mean 'net.port'?"),
        ("nett", "no check 'nett'; did you mean 'net'?"),
        ("wrld", "no check 'wrld'; did you mean 'world'?"),
        ("NET.PORT", "no check 'NET.PORT'"),
        ("net.zzz*", "no check 'net.zzz*'"),
        ("", "no check ''"),
    ],
)
def test_a_pattern_that_selects_nothing(pattern: str, said: str) -> None:
    with pytest.raises(PreflightError) as error:
        SOME.matching(pattern)
    assert str(error.value).startswith(said)


def test_an_old_id_is_an_alias() -> None:
    assert SOME.resolve("cpu.host") == "host.cpu"
    with pytest.raises(PreflightError):
        SOME.resolve("net")


def test_nearest() -> None:
    assert nearest("--onyl", ["--only"]) == "; did you mean '--only'?"
    assert nearest("zzz", ["--only"]) == ""
    assert nearest("x", []) == ""


# --- selection ---


def selected(**more: object) -> dict[str, str]:
    return select(SOME, **({"level": Level.QUICK} | more))  # type: ignore[arg-type]


def test_levels() -> None:
    assert set(selected()) == {"net.port", "net.name", "host.cpu", "host.bad"}
    assert "world.gloo" in selected(level=Level.STANDARD)
    assert "world.gloo" in selected(level=Level.DEEP)
    assert not Level.QUICK.includes(Level.STANDARD)
    assert Level.DEEP.includes(Level.DEEP)


def test_only_brings_what_is_needed_and_knows_no_level() -> None:
    assert selected(only=["world.gloo"]) == {"net.port": "", "world.gloo": ""}
    assert selected(only=["cpu.host"]) == {"host.cpu": ""}


def test_skip_is_a_row_with_a_reason() -> None:
    why = selected(skip=["net"])
    assert why["net.port"] == why["net.name"] == "skipped by you (--skip)"
    assert why["host.cpu"] == ""
    assert "host.bad" not in selected(skip=["host.bad"])
    assert selected(only=["net.port"], skip=["net.port"]) == {"net.port": "skipped by you (--skip)"}


def test_enabled_from_a_level_on() -> None:
    enabled = {"net.name": Level.DEEP, "world.gloo": Level.QUICK}
    assert "net.name" not in selected(enabled=enabled)
    assert "world.gloo" in selected(enabled=enabled)
    assert "net.name" in selected(enabled=enabled, only=["net.name"])


def test_order_is_by_stage_then_needs_then_name() -> None:
    known = catalogue(
        a_a=declared(needs=("b.b",)),
        b_b=declared(needs=("c.c",)),
        c_c=declared(),
        a_z=declared(Stage.FABRIC),
        a_y=declared(Stage.MEETING, needs=("gone.away",)),
    )
    assert list(order(known.checks)) == ["c.c", "b.b", "a.a", "a.y", "a.z"]


@pytest.mark.parametrize("level", [Level.QUICK, Level.STANDARD])
def test_a_run_loads_the_checks_of_its_level_and_no_other(real: Catalogue, level: Level) -> None:
    chosen = [i for i, loaded in real.checks.items() if level.includes(loaded.check.level)]
    assert list(registry.load(level=level).checks) == chosen
    assert 0 < len(chosen) < len(real.checks)
    code = f"from preflight import registry as r, check; r.load(level=check.Level('{level}'))"
    code += "; import sys; print(*(m for m in sys.modules if m.startswith('preflight.checks.')))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert set(printed.split()) == {module_name(i) for i in chosen}


def test_what_is_declared_is_what_is_loaded(real: Catalogue) -> None:
    assert registry.declared() == {i: loaded.check.level for i, loaded in real.checks.items()}


@pytest.mark.parametrize(
    ("doc", "level"),
    [
        ("Is it?\n\nLevel        standard\nLooks at     /proc\n", "standard"),
        ("Is it?\n\nLevel  deep\r\n", "deep"),
        ("Is it?\n\nLooks at     /proc\nLevel        standard\n", "quick"),
        ("Is it?\n\nLevels       standard\n", "quick"),
        ("Is it?", "quick"),
        ("", "quick"),
    ],
)
def test_the_level_that_a_docstring_declares(doc: str, level: str) -> None:
    assert registry.level_declared(doc) == level


def test_a_level_that_is_declared_in_one_place_only_is_a_fault(real: Catalogue) -> None:
    loaded = real.checks["net.mesh"]
    doc = (loaded.module.__doc__ or "").replace("\nLevel ", "\nElse ")
    module = SimpleNamespace(**{**vars(loaded.module), "__doc__": doc})
    assert list(registry._faults("net.mesh", loaded.module)) == []
    assert list(registry._faults("net.mesh", module)) == [
        "its docstring declares level quick, its CHECK standard"
    ]
