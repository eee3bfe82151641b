"""Stacks that py-spy reads."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preflight.rehearsal import pyspy


@pytest.mark.parametrize(
    "told", [b"", b"[", b"{}", b"[1]", b'[{"os_thread_id": 8}]', b'[{"os_thread_id": 7}]']
)
def test_what_pyspy_prints_may_be_anything(told: bytes) -> None:
    assert not pyspy.parse_dump(told, 7)


def test_pyspy_tells_the_main_threads_stack(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import time\ndef here():\n    time.sleep(60)\nprint(1, flush=True)\nhere()\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        time.sleep(0.2)
        found, problem = pyspy.stacks([process.pid, 999_999_999])
        assert problem.startswith("py-spy: ")
        assert [(f.function, f.line, f.own) for f in found[process.pid]] == [
            ("here", 3, True),
            ("<module>", 5, True),
        ]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("listed", "lies"),
    [("../../../bin/py-spy", "bin"), ("../../bin/py-spy", "lib/python/site/bin")],
    ids=["with --user", "with --target"],
)
def test_pyspy_is_found_where_pip_has_put_it(
    listed: str, lies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "lib/python/site"
    package = site / "py_spy-0.4.3.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: py-spy\nVersion: 0.4.3\n")
    (package / "RECORD").write_text(f"{listed},,\npy_spy-0.4.3.dist-info/METADATA,,\n")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert pyspy.find_pyspy() == ""
    program = tmp_path / lies / "py-spy"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert Path(pyspy.find_pyspy()).samefile(program)
    monkeypatch.setattr(sys, "path", [])
    assert pyspy.find_pyspy() == ""


@pytest.mark.parametrize("within", ["", "_exception_logger.<locals>."], ids=["0.4.2", "0.4.3"])
def test_a_function_is_called_by_its_own_name(within: str) -> None:
    """py-spy says the qualified one from 0.4.3 on."""
    torch = "/venv/torch/distributed/c10d_logger.py"
    group = {"name": "kwargs", "repr": '{"group": <torch.ProcessGroup at 0x7fbeee11baf0>}'}
    frames = [
        {"name": f"{within}wrapper", "filename": torch, "line": 83, "locals": [group]},
        {"name": "<module>", "filename": "/job/train.py", "line": 9, "locals": []},
    ]
    told = json.dumps([{"os_thread_id": 7, "frames": frames}]).encode()
    assert pyspy.parse_arguments(told, 7) == {"group": "given"}
    assert [f.function for f in pyspy.parse_dump(told, 7) or ()] == ["wrapper", "<module>"]


def test_before_python_3_11_the_main_thread_is_known_by_its_name() -> None:
    """py-spy 0.4.3 has null for the thread's id there, and no name where nobody gave one."""

    def thread(name: str | None, function: str) -> dict[str, object]:
        frame = {"name": function, "filename": "/job/train.py", "line": 9}
        return {"os_thread_id": None, "thread_name": name, "frames": [frame]}

    def told(*threads: dict[str, object]) -> list[str]:
        frames = pyspy.parse_dump(json.dumps(threads).encode(), 7) or ()
        return [frame.function for frame in frames]

    helper, main = thread("Thread-1 (wait)", "wait"), thread("MainThread", "step")
    assert told(helper, main) == told(main, helper) == ["step"]
    assert told(thread(None, "wait"), thread(None, "step")) == ["step"]
    assert told({**helper, "os_thread_id": 8}, main) == []
