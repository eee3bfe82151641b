"""What the text of a training script shows: scripts with one kind of fault, healthy ones of many
shapes, and what is read of them at all."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.checks import job_script
from preflight.domains.script import linter as script
from preflight.domains.script import source as script_tree
from preflight.domains.script.source import FILES_MAX, SIZE_MAX, Hit
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable

SCRIPTS = Path(__file__).parent / "scripts"
MARK = "# hit: "


def looked_at(
    path: Path | str, environ: Mapping[str, str] | None = None, gpu: bool = False
) -> tuple[Hit, ...]:
    program = script_tree.read(Host(), str(path), "/")
    return script.hits(program, environ or {}, gpu)


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
    """On a machine with GPUs: without one, NCCL alone may be said."""
    with_gpu = [h for h in looked_at(path, gpu=True) if h.rule != "nccl-on-cpu"]
    assert with_gpu == []
    assert {h.rule for h in looked_at(path)} <= {"nccl-on-cpu"}


def test_there_are_enough_healthy_scripts() -> None:
    assert len(HEALTHY) >= 40
    rules = {rule for path in FAULTY for rule, _ in marks(path)}
    assert rules | {"syntax-error"} == set(job_script.EXPECTED) == set(job_script.ADVICE)


def source(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


UNDER = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"


@pytest.mark.parametrize(
    "test",
    [
        "rank == 0",
        "not rank",
        "rank != 0",
        "0 == int(os.environ['RANK'])",
        "os.getenv('LOCAL_RANK') == '0'",
        "rank in {0}",
        "args.local_rank in [-1, 0]",
        "self.is_main_process and step % 10 == 0",
        "utils.is_main_process()",
        "rank == world_size - 1",
        "rank % 2 == 1",
        "rank == 0 or rank == 1",
        "(me := dist.get_rank()) == 0",
    ],
)
def test_tests_that_part_the_ranks(tmp_path: Path, test: str) -> None:
    text = f"import os\nimport torch.distributed as dist\nif {test}:\n    dist.barrier()\n"
    (hit,) = looked_at(source(tmp_path, "train.py", text))
    assert (hit.rule, hit.line) == ("collective-under-rank", 4)


@pytest.mark.parametrize(
    "test",
    [
        "rank >= 0",
        "local_rank != -1",
        "rank is not None",
        "rank == 0 or args.everywhere",
        "world_size > 1",
        "dist.is_initialized()",
        "dist.get_rank(group) == 0",
        "tp_rank == 0",
        "rank < world_size",
        "epoch % 5 == 0",
        "ready[rank]",
        "rank % gpus == 0",
        "rank ** 99999 == 0",
        "rank // 0",
        "9 ** 9 ** 9",
        "1 << 99999999",
    ],
)
def test_tests_that_do_not(tmp_path: Path, test: str) -> None:
    text = f"import torch.distributed as dist\nif {test}:\n    dist.barrier()\n"
    assert looked_at(source(tmp_path, "train.py", text)) == ()


def test_silence_is_for_a_comment_alone(tmp_path: Path) -> None:
    text = UNDER.replace("barrier()", "barrier(); print('# preflight: ignore')")
    assert len(looked_at(source(tmp_path, "train.py", text))) == 1
    quiet = UNDER.replace("barrier()", "barrier()  # preflight: ignore, rank 0 has a twin")
    assert looked_at(source(tmp_path, "train.py", quiet)) == ()
    elsewhere = "# preflight: ignore\n" + UNDER
    assert len(looked_at(source(tmp_path, "train.py", elsewhere))) == 1


GLOO = "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
WRAP = "model = DistributedDataParallel(model)\n"


@pytest.mark.parametrize(
    ("start", "gpu", "found"),
    [
        ("dist.init_process_group('gloo')", True, True),
        ("dist.init_process_group('nccl')", False, False),
        ("dist.init_process_group('nccl' if there() else 'gloo')", False, True),
        ("dist.init_process_group('nccl' if there() else 'gloo')", True, False),
        ("dist.init_process_group(args.backend)", False, False),
    ],
)
def test_detail_from_the_environment(tmp_path: Path, start: str, gpu: bool, found: bool) -> None:
    path = source(tmp_path, "train.py", f"{GLOO}{start}\n{WRAP}")
    for value, expected in (("DETAIL", found), ("detail", found), ("INFO", False)):
        hits = looked_at(path, {"TORCH_DISTRIBUTED_DEBUG": value}, gpu)
        assert ("detail-ddp" in {h.rule for h in hits}) is expected


def test_a_rank_that_sees_one_gpu_needs_no_set_device() -> None:
    path = SCRIPTS / "faulty/no_device.py"
    assert "set-device-missing" in {h.rule for h in looked_at(path, gpu=True)}
    for one in ({"CUDA_VISIBLE_DEVICES": "3"}, {"ROCR_VISIBLE_DEVICES": "GPU-1"}):
        assert "set-device-missing" not in {h.rule for h in looked_at(path, one, gpu=True)}
    several = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert "set-device-missing" in {h.rule for h in looked_at(path, several, gpu=True)}


# --- what is read ---


def files(path: Path) -> list[str]:
    return [m.file for m in script_tree.read(Host(), path.name, str(path.parent)).modules]


def test_imports_are_followed_beside_the_script_and_no_further(tmp_path: Path) -> None:
    start = source(
        tmp_path, "train.py", "import os, torch, a.b\nfrom c import d\ndef f():\n import e"
    )
    source(tmp_path, "a/__init__.py", "from . import near\nfrom .. import above")
    source(tmp_path, "a/b.py", "from .near import x\nraise SystemExit('it was run')")
    source(tmp_path, "a/near.py", "")
    source(tmp_path, "c.py", "import train")
    source(tmp_path, "e.py", "")
    source(tmp_path, "unused.py", UNDER)
    expected = ["train.py", "a/__init__.py", "a/b.py", "c.py", "e.py", "a/near.py"]
    assert files(start) == expected


def test_what_a_module_does_is_seen(tmp_path: Path) -> None:
    start = source(tmp_path, "train.py", "from lib.work import run\nrun()")
    source(tmp_path, "lib/work.py", UNDER)
    (hit,) = script.hits(script_tree.read(Host(), start.name, str(tmp_path)), {}, True)
    assert (hit.file, hit.line) == ("lib/work.py", 3)


def test_how_far_and_how_many(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    for number in range(6):
        source(chain, f"m{number}.py", f"import m{number + 1}")
    assert files(chain / "m0.py") == ["m0.py", "m1.py", "m2.py", "m3.py"]
    wide = tmp_path / "wide"
    start = source(wide, "train.py", "\n".join(f"import w{n}" for n in range(80)))
    for number in range(80):
        source(wide, f"w{number}.py", "")
    assert len(files(start)) == FILES_MAX


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    start = source(tmp_path, "train.py", "import pipe, folder, large, gone")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    source(tmp_path, "large.py", "#" * (SIZE_MAX + 1))
    (tmp_path / "gone.py").symlink_to("nowhere")
    assert files(start) == ["train.py"]
    for name in ("pipe.py", "folder.py", "large.py", "gone.py", "/dev/zero"):
        with pytest.raises(CannotObserve, match=name.rpartition("/")[2]):
            files(tmp_path / name)


@pytest.mark.parametrize("data", [b"#!/bin/bash\necho", b"\x7fELF\0\0", b"a = 1\0"])
def test_what_is_not_python_is_not_judged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "train").write_bytes(data)
    with pytest.raises(NotApplicable, match="no Python script"):
        files(tmp_path / "train")


def test_scripts_have_any_name_and_encoding(tmp_path: Path) -> None:
    path = tmp_path / "train"
    path.write_bytes(b"#!/usr/bin/env python3\n# coding: latin-1\n# \xe9\n" + UNDER.encode())
    (hit,) = looked_at(path)
    assert hit.line == 6


def test_a_syntax_error_is_found_where_it_is(tmp_path: Path) -> None:
    (hit,) = looked_at(source(tmp_path, "train.py", "import os\n\nif True\n    pass\n"))
    assert (hit.rule, hit.line, hit.text) == ("syntax-error", 3, "if True")
    assert hit.other == "expected ':'"


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("import broken", True),
        ("import fine", True),
        ("try:\n    import broken\nexcept Exception:\n    broken = None", False),
        ("def later():\n    import broken", False),
    ],
)
def test_a_module_with_one_matters_where_it_is_surely_imported(
    tmp_path: Path, start: str, told: bool
) -> None:
    source(tmp_path, "broken.py", "x = = 1")
    source(tmp_path, "fine.py", "import broken")
    hits = looked_at(source(tmp_path, "train.py", start))
    assert [(h.rule, h.file, h.line) for h in hits] == (
        [("syntax-error", str(tmp_path / "broken.py")[1:], 1)] if told else []
    )


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
    path = source(tmp_path, "train.py", text)
    began = time.monotonic()
    with contextlib.suppress(CannotObserve):
        looked_at(path, {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    assert time.monotonic() - began < 10  # 15 s is the budget of the check


@given(st.binary(max_size=300))
def test_any_bytes_are_a_script_or_refused(data: bytes) -> None:
    try:
        module = script_tree.parsed(data, "train.py")
    except (SyntaxError, ValueError):
        return
    script.hits(script_tree.Program((module,), ()), {}, False)
