"""Code that PYTHONPATH injects into every Python is seen, and kept where a site wants it."""

from __future__ import annotations

import compileall
import sys
import zipfile
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


@pytest.mark.parametrize("form", ["archive", "compiled", "package", "sys.path"])
def test_in_whatever_form(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's injector may be a zip file, or keep no source; old releases of OpenTelemetry's
    and .pth files are in sys.path alone."""
    monkeypatch.delenv(KEEP, raising=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    module = folder / "sitecustomize.py"
    module.write_text("")
    python_path = str(folder)
    match form:
        case "archive":
            python_path = str(tmp_path / "injected.zip")
            with zipfile.ZipFile(python_path, "w") as archive:
                archive.write(module, "sitecustomize.py")
        case "compiled":
            compileall.compile_file(module, legacy=True, quiet=2)
            module.unlink()
        case "package":
            (folder / "sitecustomize").mkdir()
            module.rename(folder / "sitecustomize/__init__.py")
        case _:
            monkeypatch.setattr(sys, "path", [*sys.path, python_path])
            python_path = ""
    assert injected(python_path)


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_what_is_installed_is_left(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEEP, raising=False)
    (tmp_path / name).mkdir()
    (tmp_path / name / "sitecustomize.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / name)])
    assert not injected("")
