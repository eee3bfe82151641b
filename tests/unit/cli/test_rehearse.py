"""`preflight rehearse` as a user calls it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--", "/nonexistent"], 127, "can't be started: No such file"),
        (["--", "/etc/passwd"], 126, "can't be started: Permission denied"),
        (["--for", "soon", "--", "true"], 2, "--for wants a time"),
        (["--slurm", "--", "true"], 2, "No such option: --slurm"),
        (["--only", "job.rank", "--", "true"], 2, "did you mean 'job.ranks'"),
        (["--color", "pink", "--", "true"], 2, "--color is one of auto, always, never"),
        (["--exit", "host", "--", "true"], 2, "--exit is one of world, node, nagios"),
        (["--exit", "nagios", "-q", "--", "false"], 2, ""),
        (["--", "true"], 0, ""),
        (["-q", "--", "sh", "-c", "exit 7"], 3, ""),
    ],
)
def test_its_exit_codes(argv: list[str], code: int, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "preflight", "rehearse", *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert said in ended.stderr
    made = re.findall(r"PREFLIGHT_WATCHED=(\S+)", ended.stderr)
    assert not [path for path in made if os.path.exists(path)]


def test_a_report_of_a_rehearsal_is_one_as_any_other(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    command = [sys.executable, "-m", "preflight", "rehearse", "-q", "-o", f"json={path}", "--"]
    subprocess.run([*command, "true"], capture_output=True, timeout=60, check=True)
    report = json.loads(path.read_text())
    assert report["settings"]["command"]["value"] == "true"
    shown = subprocess.run(
        [sys.executable, "-m", "preflight", "show", "--judge", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0
    assert "rehearsed for" in shown.stdout
