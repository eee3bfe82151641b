"""The screen of several nodes: a column each while they fit, else how many and which ones."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from typing import Any

import pytest
from support import scenarios
from support.reports import (
    F,
    M,
    P,
    S,
    U,
    W,
    each,
    each_rank,
    finding,
    line,
    lines,
    of_nodes,
    report,
    row,
)

from preflight.model import (
    Blame,
    Cause,
    Confidence,
    Finding,
    Kind,
    Measured,
    Missing,
    Node,
    Observation,
    Seen,
    Subject,
    Verdict,
)
from preflight.render import human

WIDTHS = (98, 80, 40)


def heading(*subjects: Subject, **changes: object) -> str:
    """The heading of a finding, on one line whatever its length."""
    found = finding("net.mesh", *subjects, **changes)
    of = report(of_nodes(8), row("net.mesh", each(of_nodes(8))), findings=[found])
    return next(x for x in lines(of, 1000) if x.startswith("   where"))


# --- the header ---


def test_ready_of_one_node_says_so() -> None:
    nodes = of_nodes(1)
    shown = lines(report(nodes, row("env.vars", each(nodes)), size=8))
    assert any(line.startswith(" READY (this node only)   ") for line in shown)
    whole = lines(report(nodes, row("env.vars", each(nodes))))
    assert any(line.startswith(" READY   ") for line in whole)


@pytest.mark.parametrize(
    ("nodes", "topology", "wanted"),
    [
        (of_nodes(2), {}, "2 nodes x 4 ranks = 8 ranks"),
        (of_nodes(3, 1), {}, "3 nodes x 1 rank = 3 ranks"),
        ((*of_nodes(2), Node("c", (8, 9))), {}, "3 nodes, 10 ranks"),
        (of_nodes(3, 2), {"size": 8}, "3 nodes, 6 of 8 ranks"),
        (of_nodes(1), {}, "1 node, 4 ranks"),
        (of_nodes(1), {"size": 8}, "1 of 2 nodes, 4 of 8 ranks (this node only)"),
        (
            (Node("n1", (2,), size=2),),
            {"size": 8},
            "1 of 4 nodes, 1 of 8 ranks (this process only)",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_how_many_there_are(nodes: tuple[Node, ...], topology: dict[str, Any], wanted: str) -> None:
    first = lines(report(nodes, row("env.vars", each(nodes)), **topology))[0]
    assert f" · {wanted} · level standard" in first


@pytest.mark.parametrize(
    ("master", "addr", "wanted"),
    [
        ("n1", "10.0.0.1", "n1 10.0.0.1:29500"),
        ("10.0.0.1", "10.0.0.1", "n1 10.0.0.1:29500"),
        ("fd00::1", "fd00::1", "n1 [fd00::1]:29500"),
        ("n1", "fd00::1", "n1 [fd00::1]:29500"),
        ("n1", "", "n1:29500"),
        ("elsewhere", "10.0.0.1", "elsewhere:29500"),
        ("fd00::2", "10.0.0.1", "[fd00::2]:29500"),
    ],
)
def test_where_they_meet(master: str, addr: str, wanted: str) -> None:
    nodes = (Node("n1", (0,), addr), Node("n2", (1,)))
    second = lines(report(nodes, row("env.vars", each(nodes)), master_addr=master))[1]
    assert (
        second == f"identity from SLURM · meeting at {wanted} · expectations: the peers of this job"
    )


# --- columns, or counts ---


@pytest.mark.parametrize("width", WIDTHS)
def test_a_column_each_while_they_fit(width: int) -> None:
    fitted = 0
    for count in range(2, 20):
        nodes = of_nodes(count)
        of = report(nodes, row("env.vars", each(nodes)), row("world.ddp", each_rank(nodes)))
        names = [n.name for n in nodes]
        if columns := [x for x in lines(of, width) if x.split() == names]:
            fitted = count
            at = [columns[0].index(name) for name in names]
            marks = line(of, "world.ddp", width)
            assert [marks[a : a + 4] for a in at] == ["✓✓✓✓"] * count
            assert [line(of, "env.vars", width)[a : a + 2].strip() for a in at] == ["✓"] * count
        else:
            assert f"✓ {count} " in line(of, "env.vars", width)
            assert f"✓ {count} " in line(of, "world.ddp", width)
    assert fitted == {98: 6, 80: 4, 40: 3}[width]


@pytest.mark.parametrize("look", [{}, {"ascii": True}, {"verbose": True}], ids=str)
@pytest.mark.parametrize("width", [*WIDTHS, 60, 120])
@pytest.mark.parametrize("count", [2, 3, 7, 64])
def test_no_line_is_wider_than_the_screen(count: int, width: int, look: dict[str, bool]) -> None:
    for names in ("gpu-b", "a-rather-long-name-of-a-node-", "ein knöten, [;] #"):
        nodes = of_nodes(count, name=names)
        odd = dict.fromkeys(range(0, 4 * count, 3), F)
        rows = [row("env.vars", each(nodes)), row("world.ddp", each_rank(nodes, odd))]
        for text in lines(report(nodes, *rows), width, **look):
            before = text.startswith(("preflight", "identity", "  meeting"))  # a long name in it
            assert len(text) <= width or before, text
            assert text == text.rstrip()


def test_many_nodes_are_counted_and_the_odd_ones_named() -> None:
    nodes = of_nodes(64)
    odd = each(nodes, b07=F, b19=F, b30=W)
    of = report(nodes, row("env.vars", each(nodes)), row("net.rdma", odd))
    printed = lines(of)
    assert " machine           ✓ 64/64" in printed
    assert " fabric            ✓ 61/64  ✗ gpu-b[07,19]   ! gpu-b30" in printed
    assert line(of, "net.rdma").startswith(
        "  net.rdma         ✓ 61     ✗ gpu-b[07,19]   ! gpu-b30   8 of 8 "
    )
    assert not any("env.vars" in text for text in printed)
    assert "ok 61     X gpu-b[07,19]   ! gpu-b30" in line(of, "net.rdma", ascii=True)


def test_of_a_node_where_only_some_ranks_are_odd_they_are_named() -> None:
    nodes = of_nodes(64)
    whole = dict.fromkeys(nodes[4].ranks, F)
    of = report(nodes, row("world.ddp", each_rank(nodes, {9: F, 130: F} | whole)))
    assert "✓ 61     ✗ gpu-b05, gpu-b[03,33] ranks 9,130" in line(of, "world.ddp")


def test_what_does_not_fit_beside_the_count_is_below_it_or_counted() -> None:
    nodes = of_nodes(64)
    scattered = {f"b{n:02}": F for n in range(1, 64, 2)}
    of = report(nodes, row("net.rdma", each(nodes, **scattered, b02=W)))
    printed = lines(of)
    at = printed.index(line(of, "net.rdma"))
    # 32 of 63 are otherwise: what most are is the bad news
    assert "✗ 32 " in printed[at]
    assert printed[at + 1 : at + 3] == ["    ! gpu-b02", "    ✓ 31"]


def test_names_that_are_no_names_are_neither_folded_nor_obeyed() -> None:
    nodes = tuple(Node(f"\x1b[2Jn{i}#2", (i,)) for i in range(64))
    by_subject = {n.name: F if n.ranks[0] in (1, 2) else P for n in nodes}
    of = report(nodes, row("net.rdma", by_subject))
    assert r"✓ 62     ✗ \x1b[2Jn1#2,\x1b[2Jn2#2" in line(of, "net.rdma")


def test_marks_are_in_the_order_of_the_ranks() -> None:
    nodes = of_nodes(2)
    shuffled = dict(reversed(each_rank(nodes, {1: F, 6: W}).items()))
    assert "✓✗✓✓     ✓✓!✓" in line(report(nodes, row("world.ddp", shuffled)), "world.ddp")


def test_where_nodes_differ_the_row_says_what_was_found() -> None:
    for count, shown in ((2, "✓        ✗  it is bad "), (64, "✓ 63     ✗ gpu-b02   it is bad ")):
        nodes = of_nodes(count)
        of = report(
            nodes,
            row("net.mesh", each(nodes, b02=F)),
            findings=[finding("net.mesh", Subject(Kind.NODE, "gpu-b02"))],
        )
        assert shown in line(of, "net.mesh")


# --- who did not come ---


def absent(*subjects: Subject, **changes: object) -> Finding:
    given = {"status": M, "confidence": Confidence.LIKELY}
    return finding("rdzv.reach", *subjects, **(given | changes))


def test_somebody_did_not_come() -> None:
    """experience.md 5.5."""
    nodes = of_nodes(3, 2)
    of = report(
        nodes,
        row("env.vars", each(nodes)),
        row("host.limits", each(nodes, b02=W)),
        row("rdzv.reach", each(nodes), status=M),
        row("world.ddp", each_rank(nodes) | {"gpu-b11/6": M}),
        findings=[absent(Subject(Kind.NODE, "gpu-b11", ranks=(6, 7)))],
        verdict=Verdict.INCOMPLETE,
        size=8,
    )
    printed = lines(of)
    at = printed.index(" … rdzv.reach:code   it is bad")
    assert printed[at + 1].startswith("   where      gpu-b11 · ranks 6-7  ")
    assert printed[at + 1].endswith("   MISSING, likely")
    assert "   do now     look there" in printed
    assert "   who        who" in printed
    assert " INCOMPLETE   it is bad · 6/8 ranks · local checks of the 6 passed · 4.0 s" in printed
    assert printed[-1] == " do now      look there"
    assert " training  1 of 1 passed" in printed  # that somebody is absent is said once
    assert not any("world.ddp" in text for text in printed)
    assert "✓✓       ✓✓       ✓✓       …" in line(of, "world.ddp", verbose=True)


def test_local_checks_that_did_not_pass_are_not_said_to() -> None:
    nodes = of_nodes(3, 2)
    rows = [
        row("env.vars", each(nodes)),
        row("host.cpu", each(nodes, b02=U)),
        row("rdzv.reach", {}),
    ]
    gone = absent(Subject(Kind.RANK, "", "6", (6,)))
    of = report(nodes, *rows, findings=[gone], verdict=Verdict.INCOMPLETE, size=8)
    assert " INCOMPLETE   it is bad · 6/8 ranks · 1 of 2 checks passed · 4.0 s" in lines(of)


# --- headings ---


def rank(number: int, node: str = "") -> Subject:
    return Subject(Kind.RANK, node, str(number), (number,))


def node(number: int, **changes: object) -> Subject:
    made = Subject(Kind.NODE, f"n{number}", ranks=(number,))
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def link(one: int, other: int) -> Subject:
    return Subject(Kind.LINK, f"n{one}", to=f"n{other}")


@pytest.mark.parametrize(
    ("subjects", "wanted"),
    [
        ([rank(6)], "rank 6"),
        ([rank(6), rank(7)], "ranks 6-7"),
        ([Subject(Kind.RANK, ranks=(6, 7))], "ranks 6-7"),
        ([node(1), rank(6), rank(9)], "n1 · rank 1, ranks 6,9"),
        ([node(i) for i in range(1, 5)], "n1 · rank 1, n2 · rank 2, n3 · rank 3, n4 · rank 4"),
        ([node(i) for i in range(1, 6)], "n[1-5] · ranks 1-5"),
        ([*(node(i) for i in range(1, 6)), rank(9)], "n[1-5] · ranks 1-5,9"),
        ([node(i, kind=Kind.NIC, name="eth0") for i in range(1, 6)], "n[1-5] · eth0 · ranks 1-5"),
        (
            [node(i, kind=Kind.NIC, name=f"eth{i % 2}", ranks=()) for i in range(1, 6)],
            "n[1,3,5] · eth1, n[2,4] · eth0",
        ),
        ([*(node(i, ranks=()) for i in range(1, 6)), Subject(Kind.JOB)], "n[1-5], job"),
        ([rank(i, f"n{i // 2}") for i in range(10)], "n[0-4] · ranks 0-9"),
        (
            [rank(i, f"n{i * i}") for i in range(40)],
            "40 nodes · 40 ranks · n[0-1,4,9,16] and 35 more",
        ),
        ([link(1, 2)], "n1->n2"),
        ([link(1, 2), link(2, 1)], "n1->n2, n2->n1"),
        ([link(1, i) for i in range(2, 8)], "n1->n[2-7]"),
        ([link(i, 1) for i in range(2, 8)], "n[2-7]->n1"),
        ([*(link(1, i) for i in range(2, 8)), node(1)], "n1->n[2-7], n1 · rank 1"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_many_subjects_are_a_set(subjects: list[Subject], wanted: str) -> None:
    assert heading(*subjects).startswith(f"   where      {wanted}    ")


def test_a_link_and_what_follows_from_it() -> None:
    nodes = of_nodes(3)
    broken = finding(
        "net.mesh",
        Subject(Kind.LINK, "gpu-b01", to="gpu-b03"),
        blame=Blame.NETWORK,
        folded=("rdzv.store", "world.gloo"),
    )
    of = report(
        nodes,
        row("rdzv.store", each_rank(nodes, {8: F}), measured=Measured()),
        row("net.mesh", each(nodes, b01=F, b03=F)),
        row("world.gloo", each_rank(nodes, dict.fromkeys(range(12), F)), measured=Measured()),
        findings=[broken],
    )
    printed = lines(of)
    assert any(x.startswith("   where      gpu-b01->gpu-b03    ") for x in printed)
    assert "   explains   rdzv.store · world.gloo" in printed
    assert "✓✓✓✓     ✓✓✓✓     ✗✓✓✓  follows from net.mesh" in line(of, "rdzv.store")
    assert "✗✗✗✗     ✗✗✗✗     ✗✗✗✗  follows from net.mesh" in line(of, "world.gloo")


# --- what was covered ---


def test_the_verdict_says_on_how_many_ranks() -> None:
    nodes = of_nodes(2)
    env = row("env.vars", each(nodes))
    none = row("gpu.visible", each(nodes, S))
    nothing = {"gpu.visible": dict.fromkeys(each(nodes), Missing(Cause.NOT_APPLICABLE, "no GPU"))}
    assert lines(report(nodes, env, none, checks=nothing))[-1] == (
        " READY   1 check on 8/8 ranks · 4.0 s"
    )
    warned = row("host.cpu", each(nodes, b02=W))
    assert lines(report(nodes, env, warned))[-1].startswith(" READY   1 of 2 checks passed · 8/8 ")
    one = row("host.cpu", {"gpu-b01": P})
    assert lines(report(nodes, env, one))[-1] == (
        " READY   2 of 2 checks passed, 1 not on every node · 8/8 ranks · 4.0 s"
    )


def test_a_check_that_one_node_has_nothing_for_passes_by_the_others() -> None:
    nodes = of_nodes(2)
    some = row("gpu.visible", each(nodes, b02=S), status=S, reason="no GPU")
    none: dict[str, Observation] = {
        "gpu-b01": Seen(1),
        "gpu-b02": Missing(Cause.NOT_APPLICABLE, "no GPU"),
    }
    of = report(nodes, some, checks={"gpu.visible": none})
    assert line(of, "gpu.visible").split() == ["gpu.visible", "✓", "–", "8", "of", "8", "0.1s"]
    assert lines(of)[-1] == " READY   1 check on 8/8 ranks · 4.0 s"


@pytest.mark.parametrize("count", [2, 64])
def test_where_a_check_was_left_out(count: int) -> None:
    nodes = of_nodes(count)
    health = row("gpu.health", each(nodes, b02=S), status=S, reason="needs gpu.visible")
    seen: dict[str, Observation] = {n.name: Seen(1) for n in nodes}
    blocked = {"gpu.health": seen | {"gpu-b02": Missing(Cause.BLOCKED, by="gpu.visible")}}
    dead = finding("gpu.visible", Subject(Kind.NODE, "gpu-b02"))
    rows = [row("gpu.visible", each(nodes, b02=F)), health]
    of = report(nodes, *rows, findings=[dead], checks=blocked)
    assert "needs gpu.visible" in line(of, "gpu.health")
    assert "0 of 2 checks passed, 1 not run" in lines(of)[-2] + lines(of)[-3]
    assert " not run     gpu.health: needs gpu.visible on gpu-b02" in lines(of)


def test_a_stage_that_was_not_run_is_not_green() -> None:
    nodes = of_nodes(64)
    left = {f"gpu-b{n:02}": Missing(Cause.SKIPPED, "no torch") for n in range(1, 65)}
    loader = row("world.loader", each(nodes))
    store = row("world.ddp", each(nodes, S), reason="no torch")
    of = report(nodes, loader, store, checks={"world.ddp": left}, verdict=Verdict.UNDECIDED)
    assert " training          – 64/64" in lines(of)


# --- what to do ---


def bad(*names: str, launcher: str = "SLURM") -> str:
    nodes = tuple(Node(name, (i,)) for i, name in enumerate([*names, "zz1"]))
    found = finding("host.limits", Subject(Kind.NODE, names[0]))
    of = report(
        nodes,
        row("host.limits", each(nodes, F)),
        findings=[found],
        exclude=names,
        launcher=launcher,
    )
    return human.do_now(of)


def test_bad_nodes_are_left_out_in_the_syntax_of_the_scheduler() -> None:
    assert bad("n7", "n8", "n9", "h") == "sbatch --exclude='n[7-9],h'   and your job script"
    assert bad("n1", launcher="torchrun") == "look there"


@pytest.mark.parametrize("name", ["n1#2", "n1 n2", "n;reboot", "$(id)", "-x", "n[1-9]", "@all"])
def test_a_name_that_a_shell_would_read_is_in_no_command(name: str) -> None:
    assert bad("n1", name) == "look there"


# --- what it costs ---


@pytest.mark.slow
def test_a_thousand_nodes_take_a_moment() -> None:
    nodes = of_nodes(1024, 8)
    odd = dict.fromkeys(range(0, 8192, 1000), F)
    rows = [row(f"world.x{n}", each_rank(nodes, odd)) for n in range(12)]
    many = tuple(Subject(Kind.NODE, n.name, ranks=n.ranks) for n in nodes)
    of = report(nodes, *rows, findings=[finding("world.x1", *many)])
    began = time.process_time()
    printed = lines(of)
    # half a second, and several times that in a process with a gigabyte of other tests
    assert time.process_time() - began < 5.0
    assert len(printed) < 60


def test_only_what_folds_names_is_imported_and_only_then() -> None:
    """ClusterShell's NodeSet would read configuration files, in HOME too."""
    script = """
import sys
from support import scenarios
from preflight.render import human
human.render(scenarios.judged("port-held"), human.Look(verbose=True))
human.render(scenarios.judged("two-nodes"), human.Look(verbose=True))
assert not [name for name in sys.modules if name.startswith("ClusterShell")]
human.render(scenarios.judged("nodes-64"))
assert "ClusterShell.RangeSet" in sys.modules
assert "ClusterShell.NodeSet" not in sys.modules
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(scenarios.GOLDEN.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
