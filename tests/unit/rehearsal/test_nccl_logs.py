"""NCCL's own logs of rehearsed ranks: what is set for them, and how they are read."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from preflight.host import Host
from preflight.process import scratch
from preflight.rehearsal import nccl_logs, workdir
from preflight.rehearsal.nccl_logs import read_logs, variables

CAPTURES = Path(__file__).parents[2] / "data/nccl_logs"
SUBSYS = "INIT,BOOTSTRAP,ENV,NET,GRAPH"
ALL = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": SUBSYS,
    "NCCL_DEBUG_FILE": "/w/nccl.%h.%p",
}
TORCHRUN = ("torchrun", "--nproc-per-node=8", "train.py")


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    """The root of a machine that has one."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "added", "kept"),
    [
        ({}, ALL, {}),
        ({"NCCL_DEBUG_SUBSYS": "ALL"}, {k: v for k, v in ALL.items() if v != SUBSYS}, {}),
        ({"NCCL_DEBUG": "WARN"}, {}, {"NCCL_DEBUG": "WARN"}),
        ({"NCCL_DEBUG": ""}, {}, {}),
        (
            {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/logs/%h"},
            {},
            {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/logs/%h"},
        ),
        ({"NCCL_DEBUG_FILE": "/logs/%h"}, {}, {"NCCL_DEBUG_FILE": "/logs/%h"}),
        ({"HOME": "/home/me"}, {}, {"NCCL_DEBUG": "VERSION"}),
    ],
)
def test_what_the_user_has_set_is_kept(
    gpu: Path, environ: dict[str, str], added: dict[str, str], kept: dict[str, str]
) -> None:
    (gpu / "home/me").mkdir(parents=True)
    (gpu / "home/me/.nccl.conf").write_text("NCCL_DEBUG=VERSION\n")
    assert variables(Host(str(gpu), environ), TORCHRUN, "/w") == (added, kept)


def test_nothing_is_set_without_a_gpu(tmp_path: Path) -> None:
    assert variables(Host(str(tmp_path), {}), TORCHRUN, "/w") == ({}, {})
    assert variables(Host(str(tmp_path), {"NCCL_DEBUG": "INFO"}), TORCHRUN, "/w") == ({}, {})


@pytest.mark.parametrize(
    "argv",
    [
        ("srun", "-n", "16", "python", "train.py"),
        ("/opt/mpi/bin/mpirun", "python", "train.py"),
        ("bash", "-c", "cd x; srun torchrun train.py"),
        ("deepspeed", "--hostfile", "h", "train.py"),
    ],
)
def test_nothing_is_set_where_ranks_start_on_machines_without_the_folder(
    gpu: Path, argv: tuple[str, ...]
) -> None:
    assert variables(Host(str(gpu), {}), argv, "/w") == ({}, {})


def test_the_logs_of_the_ranks_are_read(tmp_path: Path) -> None:
    shutil.copyfile(CAPTURES / "h100-ib-2.27.log", tmp_path / "nccl.gpu-a01.example.org.4211")
    shutil.copyfile(CAPTURES / "l40s-shm-2.21.log", tmp_path / "nccl.gpu-a01.4212")
    shutil.copyfile(CAPTURES / "l40s-shm-2.21.log", tmp_path / "nccl.gpu-a01.99")  # no rank
    for name in ("nccl", "nccl.h", "nccl.h.", "nccl.h.4213x", "other.h.4213", "4213.hello"):
        (tmp_path / name).write_text("h:1:1 [0] NCCL INFO Using network IB\n")
    found = read_logs(str(tmp_path), {4211: 0, 4212: 2, 4213: None})
    assert set(found) == {4211, 4212}
    assert (found[4211].network, found[4211].communicators) == ("IB", ((0, 16),))
    assert {link.way for link in found[4212].links} == {"SHM"}


def test_what_a_rank_puts_in_its_place_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO would be read for ever, a link leads to files of others, and some have no end."""
    secret = tmp_path / "secret"
    secret.write_text("h:1:1 [0] NCCL INFO Using network Secret\n")
    os.mkfifo(tmp_path / "nccl.h.1")
    (tmp_path / "nccl.h.2").symlink_to(secret)
    (tmp_path / "nccl.h.3").mkdir()
    (tmp_path / "nccl.h.4").write_bytes(
        b"\xff\0NCCL INFO Using network \x1b[31m\xff\n" + b"x" * 999
    )
    (tmp_path / "nccl.h.5").write_text("h:1:1 [0] NCCL INFO Using network IB\n" * 99)
    monkeypatch.setattr(nccl_logs, "LOG", 100)
    found = read_logs(str(tmp_path), dict.fromkeys(range(9)))
    assert set(found) == {4, 5}
    assert found[4].network.isprintable()
    assert found[5].network == "IB"


def test_of_all_logs_only_so_much_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in range(20):
        (tmp_path / f"nccl.h.{pid}").write_text("h:1:1 [0] NCCL INFO Using network IB\n")
    monkeypatch.setattr(nccl_logs, "ALL", 37 * 5)
    assert 4 <= len(read_logs(str(tmp_path), dict.fromkeys(range(20)))) <= 6


def test_a_folder_with_logs_that_was_left_behind_is_swept(tmp_path: Path) -> None:
    folder = tmp_path / "preflight-left"
    folder.mkdir(mode=0o700)
    for name in (*workdir.INJECTED, "nccl.gpu-a01.4211"):
        (folder / name).touch()
    then = time.time() - 2 * scratch.OLD_SECONDS
    os.utime(folder, (then, then))
    scratch.sweep(str(tmp_path), workdir.INJECTED)
    assert not folder.exists()


def test_the_worker_answers_for_this_machine() -> None:
    """As the parent asks it; a machine with a GPU gets them all."""
    args = {"environ": {"HOME": "/"}, "argv": ["python", "train.py"], "folder": "/w"}
    wanted = ALL if Host().gpu_files() else {}
    assert nccl_logs.offered(args, None, None) == {"set": wanted, "kept": {}}
