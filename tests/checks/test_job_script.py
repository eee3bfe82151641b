"""job.script: what the text of a training script shows, and silence about healthy ones."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import job_script
from preflight.checks.job_script import Script
from preflight.domains.script.source import Hit
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Missing,
    Node,
    NotApplicable,
    Status,
    Topology,
)

conforms(job_script)

FAIL, WARN = Status.FAIL, Status.WARN
SCRIPTS = Path(__file__).parents[1] / "scripts"
UNDER = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"

CLEAN = Script("train.py", files=3, lines=240, hits=(), gpu=True, same_python=True)
BARRIER = Hit(
    "collective-under-rank",
    "train.py",
    31,
    "train",
    "dist.barrier()",
    "barrier under 'if rank == 0', line 30",
)


def of(rule: str, line: int = 31) -> Hit:
    return replace(BARRIER, rule=rule, line=line)


def with_hits(*hits: Hit, **changes: object) -> Script:
    return replace(CLEAN, hits=hits, **changes)  # type: ignore[arg-type]


TWO_NODES = Topology(size=8, nodes=(Node("n1", (0, 1, 2, 3)), Node("n2", (4, 5, 6, 7))))
PLAIN = (
    "collective-under-rank",
    "async-not-waited",
    "sampler-missing",
    "set-epoch-missing",
    "no-sync-missing",
    "scaler-bf16",
    "set-device-missing",
    "collective-swallowed",
    "batch-skipped",
    "wrapped-under-rank",
    "early-stop-per-rank",
    "rate-per-rank",
    "gradients-summed",
    "loss-divided-twice",
    "gather-without-gradient",
    "order-per-rank",
    "random-branch",
    "set-order",
    "accumulation-reset",
    "clip-scaled",
    "unscaled-each-batch",
    "apex-amp",
    "batch-not-moved",
    "copy-not-awaited",
    "rendezvous-hardcoded",
    "launcher-contradicted",
    "destroy-missing",
)
BROKEN = of("syntax-error")
ABSENT = Script("train.py", 0, 0, (), gpu=False, same_python=False, absent="/job/train.py")
NCCL, DETAIL = of("nccl-on-cpu"), of("detail-ddp")

CASES = (
    Case("nothing to say", CLEAN),
    *(Case(r, with_hits(of(r)), r, WARN, subject="n1 · train.py:31") for r in PLAIN),
    Case("our own Python can't read it", with_hits(BROKEN), "syntax-error", FAIL),
    Case("another may", with_hits(BROKEN, same_python=False), "syntax-error", WARN),
    Case("no such file", ABSENT, "script-missing", FAIL, subject="n1 · /job/train.py"),
    Case(
        "a folder that one node does not share",
        {"n1": CLEAN, "n2": ABSENT},
        "script-missing",
        FAIL,
        topology=TWO_NODES,
        subject="n2 · /job/train.py",
    ),
    Case("NCCL without a GPU", with_hits(NCCL, gpu=False), "nccl-on-cpu", WARN),
    Case("NCCL with one", with_hits(NCCL)),
    Case("a batch on the CPU, as everything", with_hits(of("batch-not-moved"), gpu=False)),
    Case("a torch that crashes", with_hits(DETAIL, torch="2.13.0+cpu"), "detail-ddp", WARN),
    Case("another torch", with_hits(DETAIL, torch="2.12.1")),
    Case("no torch beside us", with_hits(DETAIL)),
    Case("no command", Missing(Cause.NOT_APPLICABLE, "only where a command is rehearsed")),
    Case("a file system that hangs", Missing(Cause.TIMED_OUT)),
    Case(
        "a GPU on one node only",
        {"n1": with_hits(NCCL), "n2": with_hits(NCCL, gpu=False)},
        "nccl-on-cpu",
        WARN,
        topology=TWO_NODES,
        subject="n2 · train.py:31",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    assert_case(job_script, case)


def test_it_is_the_job_that_is_to_blame_and_only_likely() -> None:
    (found,) = judged(job_script, Case("", with_hits(BARRIER)))
    assert (found.blame, found.confidence) == (Blame.JOB, Confidence.LIKELY)
    assert found.saw == "dist.barrier() · in train() · barrier under 'if rank == 0', line 30"
    assert "at train.py:31" in job_script.FINDINGS["async-not-waited"].filled(found.fields).text


def test_nodes_with_the_same_script_are_one_finding() -> None:
    both = {"n1": with_hits(BARRIER), "n2": with_hits(BARRIER)}
    (found,) = judged(job_script, Case("", both, topology=TWO_NODES))
    assert [str(s) for s in found.subjects] == ["n1 · train.py:31", "n2 · train.py:31"]


def test_of_many_places_some_are_shown() -> None:
    seen = with_hits(*(of("async-not-waited", n) for n in range(1, 13)))
    found = judged(job_script, Case("", seen))
    assert [f.subjects[0].name for f in found] == [f"train.py:{n}" for n in range(1, 6)]
    assert found[-1].saw.endswith(" · and 7 more places")


def test_what_is_kept_survives_its_way() -> None:
    round_trips(with_hits(BARRIER, BROKEN, torch="2.13.0"))
    round_trips(ABSENT)


# --- observe ---


def source(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def observed(folder: Path, name: str = "train.py", **options: object) -> Script:
    options = {"script": name, "cwd": str(folder), **options}
    return job_script.observe(Host(), context(options=options))


def test_only_where_a_command_is_rehearsed() -> None:
    with pytest.raises(NotApplicable, match="only where a command is rehearsed"):
        job_script.observe(Host(), context())


def test_a_command_without_a_python_file_has_no_script() -> None:
    options = {"script": "", "cwd": "/", "argv": ["./train.sh"]}
    with pytest.raises(NotApplicable, match="the command names no Python file"):
        job_script.observe(Host(), context(options=options))


def test_observe(tmp_path: Path) -> None:
    source(tmp_path, "src/train.py", "import near\n" + UNDER)
    source(tmp_path, "src/near.py", "x = 1\n")
    seen = observed(tmp_path, "src/train.py")
    assert (seen.name, seen.files, seen.lines) == ("src/train.py", 2, 5)
    assert [(h.file, h.line) for h in seen.hits] == [("src/train.py", 4)]
    (found,) = judged(job_script, Case("", seen))
    assert str(found.subjects[0]) == "n1 · src/train.py:4"
    with pytest.raises(CannotObserve, match=r"gone\.py: No such file"):
        observed(tmp_path, "gone.py")


@pytest.mark.parametrize(
    ("argv", "opened"),
    [
        ("python gone.py --lr 1", True),
        ("torchrun --nproc-per-node 2 gone.py", True),
        ("python -m torch.distributed.run --standalone gone.py", True),
        ("accelerate launch gone.py", True),
        ("python -m train --config gone.py", False),
        ("torchrun --module train gone.py", False),
        ("torchrun --no-python ./train gone.py", False),
        ("torchrun -m train gone.py", False),
        ("docker run image python gone.py", False),
        ("srun -N2 python gone.py", False),
        ("bash -c 'make gone.py; python gone.py'", False),
    ],
)
def test_a_script_that_is_not_there(tmp_path: Path, argv: str, opened: bool) -> None:
    words = shlex.split(argv)
    if opened:
        seen = observed(tmp_path, "gone.py", argv=words, exit=2)
        assert seen.absent == str(tmp_path / "gone.py")
        (found,) = judged(job_script, Case("", seen))
        assert found.explains == ("job.ranks:command-failed",)
    else:
        with pytest.raises(CannotObserve):
            observed(tmp_path, "gone.py", argv=words, exit=2)
    with pytest.raises(CannotObserve):  # it was there until the command had read it
        observed(tmp_path, "gone.py", argv=words, exit=0)


def test_which_python_will_read_it(tmp_path: Path) -> None:
    source(tmp_path, "train.py", "")
    other = source(tmp_path, "bin/python3", "")
    other.chmod(0o755)
    ours = sys.executable
    assert observed(tmp_path, argv=[ours, "train.py"]).same_python
    assert observed(tmp_path, argv=["srun", "-n2", ours, "train.py"]).same_python
    assert not observed(tmp_path, argv=[str(other), "train.py"]).same_python
    assert not observed(tmp_path, argv=["srun", "train.py"]).same_python
    assert not observed(tmp_path, argv="python").same_python


def test_the_release_of_torch_is_looked_up_where_it_matters() -> None:
    folder = SCRIPTS / "faulty"
    assert observed(folder, "under_rank.py").torch == ""
    assert observed(folder, "detail.py").torch.partition(".")[2]


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    text = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
    text += "dist.destroy_process_group()\n"
    source(tmp_path, "job/train.py", text)
    options = {"script": "/job/train.py", "cwd": "/job"}
    seen = job_script.observe(Host(str(tmp_path)), context(options=options))
    assert [f.code for f in judged(job_script, Case("", seen))] == ["nccl-on-cpu"]
    source(tmp_path, "dev/kfd", "")
    seen = job_script.observe(Host(str(tmp_path)), context(options=options))
    assert judged(job_script, Case("", seen)) == []


def test_a_loss_that_is_read_in_every_step_is_mentioned_only() -> None:
    read = with_hits(of("waits-each-step", 12), of("waits-each-step", 40))
    assert judged(job_script, Case("", read)) == []
    told = job_script.measured(world("job.script", {"n1": read}))
    assert told.notes == ("the host waits for the GPU in every step: train.py:12, train.py:40",)
    assert "to look at" not in told.text
    on_cpu = replace(read, gpu=False)
    assert job_script.measured(world("job.script", {"n1": on_cpu})).notes == ()
