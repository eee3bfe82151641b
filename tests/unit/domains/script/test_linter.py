"""All rules over scripts with one kind of fault, healthy ones of many shapes, and hostile text."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.script_files import looked_at, write_script

from preflight.checks import job_script
from preflight.domains.script import linter, source
from preflight.host import Host
from preflight.model import CannotObserve

SCRIPTS = Path(__file__).parents[3] / "scripts"


MARK = "# hit: "


def marks(path: Path) -> set[tuple[str, int]]:
    """What a faulty script says of itself."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return {(line.partition(MARK)[2], number) for number, line in lines if MARK in line}


FAULTY = sorted((SCRIPTS / "faulty").glob("*.py"))


HEALTHY = sorted((SCRIPTS / "healthy").glob("*.py"))


@pytest.mark.parametrize("path", FAULTY, ids=lambda p: p.stem)
def test_each_fault_is_named_at_its_line_and_nothing_else(path: Path) -> None:
    assert {(hit.rule, hit.line) for hit in looked_at(path)} == marks(path)
    assert marks(path)


@pytest.mark.parametrize("path", HEALTHY, ids=lambda p: p.stem)
def test_a_healthy_script_is_not_accused(path: Path) -> None:
    """On a machine with GPUs: without one, NCCL alone may be said. What is only noted is no
    accusation."""
    silent = {"nccl-on-cpu", job_script.NOTED}
    assert [h for h in looked_at(path, gpu=True) if h.rule not in silent] == []
    assert {h.rule for h in looked_at(path)} <= silent


def test_there_are_enough_healthy_scripts() -> None:
    assert len(HEALTHY) >= 40
    rules = {rule for path in FAULTY for rule, _ in marks(path)}
    no_lint = {
        "syntax-error",
        "script-missing",
    }  # of a file that can't be read; one that isn't there
    assert rules | no_lint == set(job_script.EXPECTED) == set(job_script.FINDINGS)


UNDER = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"


def test_what_a_module_does_is_seen(tmp_path: Path) -> None:
    start = write_script(tmp_path, "train.py", "from lib.work import run\nrun()")
    write_script(tmp_path, "lib/work.py", UNDER)
    (hit,) = linter.hits(source.read_program(Host(), start.name, str(tmp_path)), {}, True)
    assert (hit.file, hit.line) == ("lib/work.py", 3)


EVALUATES = (
    "import torch.distributed as dist\ndef evaluate(loader):\n    total = sum(loader)\n"
    "    {sums}\n    return total\n"
)
ON_FIRST = (
    "import torch.distributed as dist\nfrom engine import evaluate\n"
    "if dist.get_rank() == 0:\n    evaluate(loader)\n"
)


@pytest.mark.parametrize(
    ("engine", "script", "lines"),
    [
        (EVALUATES.format(sums="dist.all_reduce(total)"), ON_FIRST, [4]),
        (EVALUATES.format(sums="pass"), ON_FIRST, []),
        (EVALUATES.format(sums="if log: dist.all_reduce(total)"), ON_FIRST, []),
        # a function of that name, and another one that is called
        (EVALUATES.format(sums="dist.barrier()"), ON_FIRST.replace("engine", "timm"), []),
        # the two halves of a meeting
        (EVALUATES.format(sums="dist.barrier()"), ON_FIRST + "else:\n    evaluate(loader)\n", []),
    ],
)
def test_a_collective_of_another_file_is_not_for_all(
    tmp_path: Path, engine: str, script: str, lines: list[int]
) -> None:
    start = write_script(tmp_path, "train.py", script)
    write_script(tmp_path, "engine.py", engine)
    found = linter.hits(source.read_program(Host(), start.name, str(tmp_path)), {}, True)
    assert [hit.line for hit in found if hit.rule == "collective-under-rank"] == lines


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "x = " + "-" * 3000 + "1",
        "x = " + "+".join("1" * 4000),
        "if a: pass\n" + "elif a: dist.barrier()\n" * 800,
        "import torch.distributed as dist\n"
        + "".join(f"{' ' * n}if rank == 0:\n" for n in range(90))
        + " " * 90
        + "dist.barrier()",
        "import torch.distributed as dist\n"
        + "".join(f"def f{n}():\n  f{n + 1}(); f{n + 1}(); dist.barrier()\n" for n in range(60)),
        "lambda: 0\nclass A: x: int\nasync def f():\n  async with a as (b, *c): await b",
        "",
    ],
    ids=range(8),
)
def test_hostile_text_ends_soon(tmp_path: Path, text: str) -> None:
    path = write_script(tmp_path, "train.py", text)
    began = time.process_time()
    with contextlib.suppress(CannotObserve):
        looked_at(path, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    assert time.process_time() - began < 10  # 15 s is the budget of the check


@given(st.binary(max_size=300))
def test_any_bytes_are_a_script_or_refused(data: bytes) -> None:
    try:
        module = source.parse_module(data, "train.py")
    except (SyntaxError, ValueError):
        return
    linter.hits(source.Program((module,), ()), {}, False)
