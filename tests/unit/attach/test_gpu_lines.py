"""Lines of a source at which a process waits for its GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from preflight.attach.gpu_lines import gpu_wait
from preflight.domains.job.record import Frame
from preflight.rehearsal import procfs

SOURCE = """\
def step(batch):
    batch = batch.to(device)
    loss = model(batch).mean()
    total += loss.item ()
    torch.cuda.synchronize()
    items(loss)
"""


@pytest.mark.parametrize(
    ("line", "how"),
    [(1, ""), (2, ".to()"), (4, ".item()"), (5, ".synchronize()"), (6, ""), (0, ""), (99, "")],
)
def test_what_a_line_waits_by(
    line: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    frame = Frame(str(tmp_path / "train.py"), line, "step", own=True)
    assert gpu_wait(os.getpid(), frame) == ""  # it has no GPU
    monkeypatch.setattr(procfs, "has_cuda", lambda pid: True)
    assert gpu_wait(os.getpid(), frame) == how
    monkeypatch.chdir(tmp_path)
    assert gpu_wait(os.getpid(), Frame("train.py", line, "step")) == how


def test_a_file_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one waited for that nobody writes to."""
    monkeypatch.setattr(procfs, "has_cuda", lambda pid: True)
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "absent", "<string>", ""):
        assert gpu_wait(os.getpid(), Frame(str(tmp_path / name), 1, "f")) == ""
    assert gpu_wait(1 << 22, Frame("<frozen runpy>", 1, "f")) == ""
