"""`list` and `explain`: every check, complete, on a screen of any width and in a pipe."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.terminal import PREFLIGHT, in_pipe, on_terminal

from preflight import registry
from preflight.check import CheckModule
from preflight.checks.net_port import FINDINGS
from preflight.model import PreflightError
from preflight.registry import SECTIONS, Catalogue, Loaded
from preflight.render import explain
from preflight.render.layout import GLUE, QUOTED, glued, wrapped

CATALOGUE = registry.load()
WIDTHS = (110, 98, 80, 40, 20)
a_width = pytest.mark.parametrize("width", WIDTHS)
a_check = pytest.mark.parametrize("loaded", tuple(CATALOGUE), ids=lambda loaded: loaded.id)


def flat(printed: str) -> str:
    return " ".join(printed.split())


def too_long(printed: str, width: int, whole: tuple[str, ...] = ()) -> list[str]:
    """The lines that could have been broken, but were not."""
    return [
        line
        for line in printed.splitlines()
        if len(line) > width
        and max(map(len, line.split())) <= width // 2
        and not any(part in line for part in whole)
    ]


# --- list ---


@a_width
def test_the_table_has_every_check_and_its_question(width: int) -> None:
    printed = explain.table(CATALOGUE, width)
    starts = [line.split()[0] for line in printed.splitlines() if not line.startswith(" ")]
    assert starts == ["ID", *CATALOGUE.checks]
    for loaded in CATALOGUE:
        assert loaded.question in flat(printed)
    assert too_long(printed, width) == []
    assert [line for line in printed.splitlines() if line != line.rstrip()] == []


def test_columns_go_where_there_is_no_room() -> None:
    heads = {width: explain.table(CATALOGUE, width).splitlines()[0].split() for width in WIDTHS}
    assert explain.table(CATALOGUE, 110).splitlines()[0].split()[-1] == "TOUCHES"
    assert heads[98] == ["ID", "STAGE", "LEVEL", "BUDGET", "NEEDS", "TOUCHES"]
    assert heads[80] == ["ID", "STAGE", "LEVEL", "BUDGET", "NEEDS"]
    assert heads[40] == ["ID", "STAGE", "LEVEL"]
    assert heads[20] == ["ID"]


@pytest.mark.parametrize("width", [98, 110, 160])
def test_what_is_too_long_for_its_column_goes_on_below(width: int) -> None:
    head, *lines = explain.table(CATALOGUE, width).splitlines()
    needs, touches = head.index("NEEDS"), head.index("TOUCHES")
    for loaded in CATALOGUE:
        start = next(i for i, line in enumerate(lines) if line.split()[0] == loaded.id)
        row = lines[start : lines.index(f"  {wrapped(loaded.question, width - 2)[0]}")]
        words = [*loaded.check.needs, *sorted(map(str, loaded.check.requires))]
        assert flat(" ".join(x[needs:touches] for x in row)) == (", ".join(words) or "-")
        assert flat(" ".join(x[touches:] for x in row)) == loaded.check.disturbs


@pytest.mark.parametrize("width", [None, 400])
def test_with_room_enough_there_is_a_line_a_check(width: int | None) -> None:
    printed = explain.table(CATALOGUE, width).splitlines()
    assert printed[0].split()[-1] == "WHAT"
    assert len(printed) == 1 + len(CATALOGUE.checks)
    assert (
        len({line.index(c.question) for line, c in zip(printed[1:], CATALOGUE, strict=True)}) == 1
    )


def test_needs_are_named() -> None:
    line = next(
        x for x in explain.table(CATALOGUE, None).splitlines() if x.startswith("world.nccl")
    )
    assert line.split()[:6] == [
        "world.nccl",
        "training",
        "standard",
        "60",
        "s",
        "rdzv.store,net.payload,gpu.visible,gpu,torch",
    ]


def test_a_check_that_could_not_be_loaded_is_listed() -> None:
    broken = Catalogue(CATALOGUE.checks, {"net.mesh": "ImportError: no module"})
    assert explain.table(broken, 80).endswith(
        "net.mesh  could not be loaded: ImportError: no module\n"
    )


def test_the_list_in_a_pipe_is_for_grep() -> None:
    ended = in_pipe((*PREFLIGHT, "list"))
    assert ended.stdout.decode() == explain.table(CATALOGUE, None)


@pytest.mark.parametrize("columns", [98, 80, 40])
def test_the_list_on_a_terminal(columns: int) -> None:
    shown = on_terminal((*PREFLIGHT, "list"), columns)
    assert shown.lines == explain.table(CATALOGUE, columns).splitlines()


def test_the_list_as_data() -> None:
    ended = in_pipe((*PREFLIGHT, "list", "--json"))
    listed = json.loads(ended.stdout)
    assert [entry["id"] for entry in listed] == list(CATALOGUE.checks)
    assert listed == [json.loads(json.dumps(explain.data(loaded))) for loaded in CATALOGUE]


# --- explain ---


@a_width
@a_check
def test_an_explanation_is_complete(loaded: Loaded, width: int) -> None:
    printed = explain.explain(loaded, "", width)
    told = flat(printed)
    assert told.startswith(f"{loaded.id} {loaded.question}")
    assert [s for s in SECTIONS if f"{s} {flat(loaded.sections[s])}" not in told] == []
    assert "{" not in printed
    for code, template in loaded.module.FINDINGS.items():
        advice = template.filled({})
        assert f"\n  {code}\n" in printed
        for part in (advice.cause, advice.means, advice.text, advice.who):
            assert flat(part) in told
        for command in advice.commands:
            assert any(
                line.strip().partition("   # ")[0].removeprefix("fix").strip() == command.run
                for line in printed.splitlines()
            )


@a_width
@a_check
def test_an_explanation_fits(loaded: Loaded, width: int) -> None:
    printed = explain.explain(loaded, "", width)
    whole = tuple(
        part
        for advice in (a.filled({}) for a in loaded.module.FINDINGS.values())
        for part in (
            *(c.run for c in advice.commands),
            advice.now.partition("   ")[0],
            *QUOTED.findall(advice.now),
            *(w.replace(GLUE, " ") for w in glued(advice.text).split(" ") if GLUE in w),
        )
        if part
    )
    if width >= 40:
        assert too_long(printed, width, whole) == []
    assert [line for line in printed.splitlines() if line != line.rstrip()] == []
    assert "\n\n\n" not in printed


def test_what_is_declared_is_said() -> None:
    told = flat(explain.explain(CATALOGUE.checks["world.nccl"], "", 110))
    needs = "needs rdzv.store, net.payload, gpu.visible, gpu, torch"
    assert f"training · standard · at most 60 s · touches 1 GiB of every GPU · {needs}" in told
    assert "· read only\n" in explain.explain(CATALOGUE.checks["host.cpu"], "", 98)
    assert 'Option        [checks."host.storage"] checkpoint_dir: ' in explain.explain(
        CATALOGUE.checks["host.storage"], "", 98
    )


def test_a_code_is_explained_alone() -> None:
    loaded, code = explain.find(CATALOGUE, "port-held")
    printed = explain.explain(loaded, code, 98, explain.owners(CATALOGUE, code))
    assert (loaded.id, code) == ("net.port", "port-held")
    assert "\n  port-held\n" in printed
    assert "port-leftover" not in printed
    assert "Also in" not in printed
    assert printed.endswith(" More          preflight explain net.port\n")


def test_a_code_of_several_checks_names_them() -> None:
    loaded, code = explain.find(CATALOGUE, "rank-died")
    also = explain.owners(CATALOGUE, code)
    printed = explain.explain(loaded, code, 98, also)
    assert loaded.id == also[0]
    assert f" Also in       {', '.join(also[1:])}\n" in printed
    chosen, _ = explain.find(CATALOGUE, f"{also[-1]}/rank-died")
    assert chosen.id == also[-1] != loaded.id


def renamed() -> Catalogue:
    """The catalogue after port-held of net.port became port-held-now, and so on."""
    loaded = CATALOGUE.checks["net.port"]
    findings = {f"{c}-now": dataclasses.replace(k, was=(c,)) for c, k in FINDINGS.items()}
    module = SimpleNamespace(**{**vars(loaded.module), "FINDINGS": findings})
    port = dataclasses.replace(loaded, module=cast("CheckModule[Any]", module))
    return Catalogue({**CATALOGUE.checks, "net.port": port}, {})


@pytest.mark.parametrize("name", ["port-held", "net.port/port-held", "port-held-now"])
def test_an_old_code_stands_for_that_of_today(name: str) -> None:
    loaded, code = explain.find(renamed(), name)
    assert (loaded.id, code) == ("net.port", "port-held-now")
    assert "\n  port-held-now\n" in explain.explain(loaded, code, 98)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("net.prot", "no check or finding 'net.prot'; did you mean 'net.port'?"),
        ("port-hold", "no check or finding 'port-hold'; did you mean 'port-held'?"),
        ("zzzz", "no check or finding 'zzzz'"),
        ("net.port/port-hold", "net.port has no finding 'port-hold'; did you mean 'port-held'?"),
        ("nothing/port-held", "no check or finding 'nothing/port-held'; did you mean 'port-held'?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, why: str) -> None:
    with pytest.raises(PreflightError) as caught:
        explain.find(CATALOGUE, name)
    assert str(caught.value) == why
    ended = in_pipe((*PREFLIGHT, "explain", name))
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.decode() == f"preflight: {why}\n"


def test_a_broken_check_can_not_be_explained() -> None:
    broken = Catalogue({}, {"net.port": "SyntaxError: invalid syntax"})
    with pytest.raises(PreflightError, match=r"net\.port could not be loaded: SyntaxError"):
        explain.find(broken, "net.port")


@pytest.mark.parametrize("columns", [98, 40])
def test_explain_on_a_terminal(columns: int) -> None:
    shown = on_terminal((*PREFLIGHT, "explain", "host.limits"), columns)
    wanted = explain.explain(CATALOGUE.checks["host.limits"], "", columns)
    assert shown.raw == wanted.replace("\n", "\r\n")
    assert shown.code == 0


def test_explain_as_data(tmp_path: Path) -> None:
    ended = in_pipe((*PREFLIGHT, "explain", "net.port", "-o", "json"))
    told = json.loads(ended.stdout)
    assert set(told["sections"]) == set(SECTIONS)
    held = told["findings"]["port-held"]
    assert (held["status"], held["blame"]) == (["fail", "warn"], ["job"])
    assert held["drains"] is False
    assert told["drains"]
    assert told["findings"]["ports-few"]["drains"]
    assert held["remedy"]["commands"] == [
        {"run": "ss -tanp sport = :{port}", "where": "the node of rank 0", "disturbs": "nothing"}
    ]
