"""The outermost: what is said and kept of our own faults."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from preflight.cli import main

INTERRUPTED = """
import builtins, os, signal, sys
importing = builtins.__import__
def interrupted(name, *args):
    if name == "preflight.process.signals":
        os.kill(os.getpid(), signal.SIGINT)
    return importing(name, *args)
builtins.__import__ = interrupted
sys.argv = ["preflight", *sys.argv[1:]]
from preflight.__main__ import main
main()
"""


@pytest.mark.parametrize("command", ["run", "list"])
def test_ctrl_c_before_anybody_listens_ends_without_a_traceback(command: str) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, command], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_a_crash_log_has_no_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["preflight", "gate", "--", "curl", "--pwd", "PLANTED-1", "-H", "Cookie: PLANTED-2"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setenv("MY_API_KEY", "PLANTED-3")
    try:
        raise ValueError("401 for PLANTED-3")
    except ValueError:
        assert main._keep_traceback() == 70
    said = capsys.readouterr().err
    found = re.search(r"/tmp/preflight-crash-\S+\.log", said)
    assert found is not None
    kept = Path(found[0])
    text, mode = kept.read_text(), stat.S_IMODE(kept.stat().st_mode)
    kept.unlink()
    assert "ValueError: 401 for ***" in text
    assert "PLANTED" not in said + text
    assert mode == 0o600
