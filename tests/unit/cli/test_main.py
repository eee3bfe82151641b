"""The outermost: what is said and kept of our own faults."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path

import pytest

from preflight.cli import main


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
