"""Code that PYTHONPATH injects into every Python is seen, and kept where a site wants it."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.process.bootstrap import KEEP, injected


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py"])
def test_what_is_injected(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEEP, raising=False)
    assert not injected(f"/nonexistent:{tmp_path}")
    (tmp_path / name).write_text("")
    assert injected(f"/nonexistent:{tmp_path}")
    monkeypatch.setenv(KEEP, "keep")
    assert not injected(str(tmp_path))
