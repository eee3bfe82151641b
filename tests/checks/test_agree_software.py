"""agree.software: the outlier is named by majority, by a reason, or both are, with `possible`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import nvml
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import Preloaded, conforms
from preflight.checks import agree_software
from preflight.checks.agree_software import NodeSoftware
from preflight.host import Host
from preflight.model import Cause, Confidence, Finding, Missing, Node, Status, Topology
from preflight.serde import encode

conforms(agree_software)

FAIL, WARN = Status.FAIL, Status.WARN


def nodes(count: int) -> Topology:
    made = tuple(Node(f"n{i}", (2 * i - 2, 2 * i - 1)) for i in range(1, count + 1))
    return topology(2 * count, nodes=made)


NODE = NodeSoftware(
    python="3.11.9",
    executable="/opt/venv/bin/python",
    torch="2.7.0+cu128",
    git="1341794745",
    cuda="12.8",
    folder="/opt/venv/lib/python3.11/site-packages/torch",
    nccl="2.26.2",
    nccl_built="2.26.2",
    nccl_path="/opt/venv/nvidia/nccl/lib/libnccl.so.2",
    nccl_origin="package",
    driver="570.124.06",
    gpus=True,
)
ALONE = NodeSoftware(
    python="3.11.7",
    executable="/usr/bin/python3",
    torch="2.13.0+cpu",
    git="abc",
    folder="/opt/venv/lib/python3.11/site-packages/torch",
)
ABSENT = NodeSoftware("3.9.2", "/usr/bin/python3", absent=True, driver="570.124.06", gpus=True)
BROKEN = NodeSoftware("3.11.9", "/opt/venv/bin/python", broken=True)
OLD_NCCL = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"


def but(**changes: object) -> NodeSoftware:
    return replace(NODE, **changes)  # type: ignore[arg-type]


def cpu(**changes: object) -> NodeSoftware:
    return replace(ALONE, **changes)  # type: ignore[arg-type]


SEARCHED = but(nccl="2.21.5", nccl_path=OLD_NCCL, nccl_origin="LD_LIBRARY_PATH")
SYSTEM = but(nccl="2.21.5", nccl_path=OLD_NCCL, nccl_origin="system")
OLDER = but(
    torch="2.5.1+cu124",
    cuda="12.4",
    git="fff",
    nccl="2.21.5",
    nccl_built="2.21.5",
    python="3.10.4",
    executable="/usr/bin/python3",
)
PATCHED = but(torch="2.7.1+cu128", git="e2d141d")


def among(*odd: NodeSoftware, of: int = 4, base: NodeSoftware = NODE) -> dict[str, NodeSoftware]:
    """The last nodes are odd."""
    seen = [base] * (of - len(odd)) + list(odd)
    return {f"n{i}": each for i, each in enumerate(seen, 1)}


def case(name: str, saw: Mapping[str, object], *rest: object, **more: object) -> Case:
    return Case(name, saw, *rest, topology=nodes(len(saw)), **more)  # type: ignore[arg-type]


CASES = (
    case("all alike", among()),
    case("two alike", among(of=2)),
    case("alike, on CPUs", among(base=ALONE)),
    case("nothing was seen", {}),
    case("one part alone: an agent that never got in", among(of=1)),
    case("no torch anywhere", among(of=3, base=ABSENT)),
    case("the same NCCL from elsewhere", among(but(nccl_origin="system", nccl_path=OLD_NCCL))),
    case("a patch level of Python", among(but(python="3.11.2"))),
    case("another folder", among(but(folder="/home/a/torch", executable="/home/a/python"))),
    case("all load another NCCL than torch's own", among(base=SEARCHED)),
    case("an NCCL that does not tell", among(but(nccl=""))),
    case("a broken torch: host.software speaks", among(BROKEN)),
    case("a GPU node without a driver module in view", among(but(driver=""))),
    case("can't tell of one", {**among(of=3), "n4": Missing(Cause.TIMED_OUT)}),
    # torch
    case("an older torch", among(OLDER), "torch-differs", FAIL, subject="n4 · torch"),
    case("older, on CPUs", among(cpu(torch="2.6.0+cpu"), base=ALONE), "torch-differs", FAIL),
    case("a patch level", among(PATCHED), "torch-differs", WARN, subject="n4 · torch"),
    case("another build", among(but(git="0000")), "torch-differs", WARN),
    case("a CPU build among GPUs", among(but(torch="2.7.0+cpu", cuda="")), "torch-differs", FAIL),
    case(
        "a CUDA build among CPUs",
        among(cpu(torch="2.13.0+cu130", cuda="13.0"), base=ALONE),
        "torch-differs",
        WARN,
    ),
    case("one of two", among(OLDER, of=2), "torch-differs", FAIL, subject="n1 · torch"),
    case("two of four", among(OLDER, OLDER), "torch-differs", FAIL, subject="n1 · torch"),
    case("no torch on one", among(ABSENT), "torch-absent", FAIL, subject="n4 · torch"),
    case("no torch on one of two", among(ABSENT, of=2), "torch-absent", FAIL, subject="n2 · torch"),
    case(
        "expected, of two",
        among(OLDER, of=2),
        "torch-differs",
        FAIL,
        expect={"torch": ">=2.6"},
        subject="n2 · torch",
    ),
    case(
        "expected, by its CUDA",
        among(OLDER, of=2),
        "torch-differs",
        FAIL,
        expect={"cuda": "12.4"},
        subject="n1 · torch",
    ),
    case(
        "expected, against the majority",
        among(OLDER),
        "torch-differs",
        FAIL,
        expect={"torch": "2.5.1"},
        subject="n1 · torch",
    ),
    # NCCL
    case("an older NCCL", among(SYSTEM), "nccl-differs", FAIL, subject="n4 · NCCL"),
    case("a patch level of NCCL", among(but(nccl="2.26.5")), "nccl-differs", FAIL),
    case("one of two: a reason", among(SEARCHED, of=2), "nccl-differs", FAIL, subject="n2 · NCCL"),
    case("one of two", among(SYSTEM, of=2), "nccl-differs", FAIL, subject="n1 · NCCL"),
    case(
        "expected NCCL, of two",
        among(SYSTEM, of=2),
        "nccl-differs",
        FAIL,
        expect={"nccl": ">=2.26"},
        subject="n2 · NCCL",
    ),
    case(
        "NCCL without GPUs",
        among(but(nccl="2.21.5", gpus=False), base=but(gpus=False)),
        "nccl-differs",
        WARN,
    ),
    case("a patch of torch with its NCCL", among(replace(PATCHED, nccl="2.26.5")), "nccl-differs"),
    # the rest
    case("Python", among(but(python="3.12.1")), "python-differs", WARN, subject="n4 · Python"),
    case("the driver", among(but(driver="560.35.03")), "driver-differs", WARN),
    case("one of two drivers", among(but(driver="560.35.03"), of=2), "driver-differs", WARN),
    case(
        "the driver is not as expected",
        among(but(driver="560.35.03"), of=2),
        "driver-differs",
        FAIL,
        expect={"driver": ">=570"},
        subject="n2 · NVIDIA driver",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(case: Case) -> None:
    assert_case(agree_software, case)


def found(saw: Mapping[str, object], **expect: object) -> list[Finding]:
    return judged(agree_software, case("", saw, expect=expect))


def test_two_are_no_majority_and_both_are_said() -> None:
    (finding,) = found(among(OLDER, of=2))
    assert finding.confidence is Confidence.POSSIBLE
    assert [s.node for s in finding.subjects] == ["n1", "n2"]
    assert finding.alternatives == ("n1 is the one that differs", "n2 is the one that differs")
    assert "torch 2.7.0+cu128" in finding.saw
    assert "torch 2.5.1+cu124" in finding.saw


def test_a_majority_is_certain_and_what_follows_from_torch_is_not_said_again() -> None:
    (finding,) = found(among(OLDER))
    assert finding.confidence is Confidence.CERTAIN
    assert finding.subjects[0].ranks == (6, 7)
    assert "n1, n2, n3" in finding.expected


def test_another_fault_beside_torch_is_said() -> None:
    """n6 has another torch and what came with it, n5 another NCCL only."""
    torch, nccl = found(among(SYSTEM, OLDER, of=6))
    assert (torch.code, [s.node for s in torch.subjects]) == ("torch-differs", ["n6"])
    assert (nccl.code, [s.node for s in nccl.subjects]) == ("nccl-differs", ["n5", "n6"])


def test_a_reason_is_likely_and_names_what_brings_it() -> None:
    (finding,) = found(among(SEARCHED, of=2))
    assert finding.confidence is Confidence.LIKELY
    assert f"NCCL 2.21.5 from {OLD_NCCL} (LD_LIBRARY_PATH)" in finding.saw
    assert "built with 2.26.2" in finding.saw
    assert "NCCL 2.26.2" in finding.expected
    assert "host.software" in finding.explains


def test_a_majority_with_a_foreign_nccl_is_doubted() -> None:
    (finding,) = found(among(NODE, base=SEARCHED))
    assert finding.subjects[0].node == "n4"
    assert finding.confidence is Confidence.LIKELY
    assert "LD_LIBRARY_PATH" in finding.alternatives[0]


def test_who_agrees_on_the_release_may_differ_in_the_patch() -> None:
    """Most have 2.7, of which two have 2.7.0 and two 2.7.1."""
    findings = found(among(PATCHED, PATCHED, OLDER, of=5))
    assert [(f.code, f.status, f.confidence) for f in findings[:2]] == [
        ("torch-differs", FAIL, Confidence.CERTAIN),
        ("torch-differs", WARN, Confidence.POSSIBLE),
    ]
    assert [s.node for s in findings[0].subjects] == ["n5"]
    assert [s.node for s in findings[1].subjects] == ["n1", "n2", "n3", "n4"]


@given(st.data())
def test_a_planted_odd_one(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 12))
    odd = data.draw(st.integers(1, count))
    strange = data.draw(
        st.sampled_from([OLDER, PATCHED, SYSTEM, SEARCHED, ABSENT, but(driver="1.2.3")])
    )
    saw = {f"n{i}": strange if i == odd else NODE for i in range(1, count + 1)}
    findings = found(saw)
    assert findings
    for finding in findings:
        named = {s.node for s in finding.subjects}
        assert f"n{odd}" in named
        assert named == {f"n{odd}"} or (count == 2 and finding.confidence is Confidence.POSSIBLE)


# --- observe ---

FAKE_TORCH = """
    import types
    from torch import version
    __version__ = "2.11.0+cu130"
    _C = types.SimpleNamespace(_nccl_version=int)
    # nothing else of torch.cuda: whoever asks for it is caught
    cuda = types.SimpleNamespace(nccl=types.SimpleNamespace(version=lambda: (2, 28, 9)))
"""


def test_observe_without_torch(tmp_path: Path) -> None:
    nvml.machine(tmp_path, gpus=1)
    absent = {"torch": Preloaded(0.01, "ModuleNotFoundError", absent=True)}
    seen = agree_software.observe(Host(str(tmp_path), {}), context(preloaded=absent))
    assert (seen.absent, seen.broken, seen.torch, seen.nccl) == (True, False, "", "")
    assert (seen.driver, seen.gpus) == ("550.54.15", True)
    round_trips(seen)


@pytest.mark.parametrize("preloaded", [{}, {"torch": Preloaded(0.4, "ImportError: no")}])
def test_observe_a_torch_that_was_not_imported(
    tmp_path: Path, preloaded: dict[str, Preloaded]
) -> None:
    seen = agree_software.observe(Host(str(tmp_path), {}), context(preloaded=preloaded))
    assert (seen.absent, seen.broken, seen.torch) == (False, True, "")
    assert seen.python.startswith("3.")


def test_observe_a_torch(tmp_path: Path) -> None:
    for name, text in (
        ("__init__", FAKE_TORCH),
        ("version", 'cuda, git_version = "13.0", "abc" * 1000'),
    ):
        file = tmp_path / f"python/torch/{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    seen = nvml.observed(
        "agree.software",
        None,
        root=tmp_path / "root",
        python_path=tmp_path / "python",
        preloaded={"torch": {"seconds": 1.0}},
    ).value
    assert (seen.torch, seen.cuda, seen.nccl) == ("2.11.0+cu130", "13.0", "2.28.9")
    assert (seen.nccl_built, seen.nccl_path) == ("2.28.9", "")
    assert seen.folder == str(tmp_path / "python/torch")
    assert len(seen.git) == agree_software.TEXT
    assert (seen.absent, seen.broken, seen.gpus) == (False, False, False)
    json.dumps(encode(seen)).encode()


@pytest.mark.torch
def test_observe_the_torch_that_is_here() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    preloaded = {"torch": {"seconds": 1.0}}
    seen = nvml.observed("agree.software", None, preloaded=preloaded)
    assert seen.value.torch
    assert seen.value.folder.endswith("/torch")
    round_trips(seen.value)


def test_a_node_shows_what_it_has() -> None:
    measured = agree_software.measured(world("agree.software", among(SEARCHED)))
    assert "NCCL 2.21.5 / 2.26.2" in measured.text
    assert agree_software.measured(world("agree.software", {})).text == ""
