"""Where the daemon of MPS serves, and where only its traces are left."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from preflight.domains.gpu.mps import SHARE, VARIABLE, MpsDaemon, daemon, share
from preflight.host import Host


def here(folder: Path) -> Host:
    return Host("/", {VARIABLE: str(folder)})


def bound(folder: Path, kind: int) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(str(folder / "control"))
    if kind != socket.SOCK_DGRAM:
        made.listen(1)
    return made


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_a_daemon_that_listens_is_not_disturbed(tmp_path: Path, kind: int) -> None:
    with bound(tmp_path, kind) as control:
        assert daemon(here(tmp_path)) == MpsDaemon(str(tmp_path))
        control.setblocking(False)
        if kind != socket.SOCK_DGRAM:
            with pytest.raises(BlockingIOError):
                control.accept()


def test_a_daemon_that_has_ended(tmp_path: Path) -> None:
    bound(tmp_path, socket.SOCK_SEQPACKET).close()
    seen = daemon(here(tmp_path))
    assert seen == MpsDaemon(str(tmp_path), "nobody listens on its socket 'control'", died=True)


def test_a_folder_that_nobody_serves_yet(tmp_path: Path) -> None:
    assert daemon(here(tmp_path)) == MpsDaemon(str(tmp_path), "has no socket 'control'")
    assert daemon(here(tmp_path / "later")) == MpsDaemon(str(tmp_path / "later"))
    assert daemon(Host(str(tmp_path), {})) is None


def test_a_copied_tree_says_no_more_than_that_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    (tmp_path / "tmp/nvidia-mps/control").touch()
    assert daemon(Host(str(tmp_path), {})) == MpsDaemon("/tmp/nvidia-mps")


@pytest.mark.parametrize(
    ("given", "percent"),
    [("25", 25.0), ("12.5", 12.5), ("100", 100.0), ("0", 100.0), ("much", 100.0), ("nan", 100.0)],
)
def test_the_share_of_a_program(given: str, percent: float) -> None:
    assert share({SHARE: given}) == percent
    assert share({}) == 100.0
