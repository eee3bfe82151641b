"""The outermost: what is said and kept of our own faults."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import LIMITS, REPOSITORY, preflight

from preflight.cli import main
from preflight.process.bootstrap import SITE, start_site

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


def test_the_first_line_of_ours_listens_to_ctrl_c() -> None:
    """pip's script around us does something between the import and the call."""
    code = "import os; from preflight.__main__ import main; os.kill(os.getpid(), 2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
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


INJECTED = """
import os, subprocess, sys, threading, time
def refuse(*args, **kwargs):
    raise RuntimeError("wrapped")
os.fork = subprocess.Popen.__init__ = refuse
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
os.register_at_fork(after_in_child=lambda: os._exit(9))
sys.path.append(os.environ["ADDED"])
print("injected", file=sys.stderr)
"""


def test_what_pythonpath_injects_is_not_ours(tmp_path: Path) -> None:
    """Our workers do without, the command of gate has all of it."""
    (tmp_path / "sitecustomize").mkdir()
    (tmp_path / "sitecustomize" / "__init__.py").write_text(INJECTED)
    env = {"PYTHONPATH": str(tmp_path), "ADDED": "/added"}
    show = "import os, sys; print(os.environ['PYTHONPATH'], '/added' in sys.path)"
    done = preflight("gate", *LIMITS, "-q", "--", sys.executable, "-c", show, env=env)
    assert done.code == 0
    assert f"{tmp_path} True" in done.out
    assert "RuntimeError" not in done.err


def test_what_has_left_pythonpath_again_is_not_ours(tmp_path: Path) -> None:
    """As older releases of OpenTelemetry's do, for the sake of children."""
    (tmp_path / "sitecustomize.py").write_text(
        f"{INJECTED}\nos.environ['PYTHONPATH'] = os.environ['OTHERS']\n"
    )
    path = os.pathsep.join((str(tmp_path), str(REPOSITORY)))
    env = {"PYTHONPATH": path, "OTHERS": str(REPOSITORY), "ADDED": "/added"}
    done = preflight("run", *LIMITS, "-q", env=env)
    assert (done.code, done.err) == (0, "injected\n")


def test_what_it_adds_to_the_path_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As EasyBuild finds its packages."""
    import site

    began: list[str] = []
    monkeypatch.setattr(site, "main", lambda: began.extend(map(str, map(sys.modules.get, SITE))))
    monkeypatch.setattr(sys, "path", ["/first"])
    start_site(os.pathsep.join(["/added", "/first"]))
    assert sys.path == ["/first", "/added"]
    assert began == [f"<module '{name}'>" for name in SITE]
