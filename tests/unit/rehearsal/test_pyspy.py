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


def test_the_root_of_a_collective() -> None:
    def told(name: str, **variables: str) -> dict[str, str]:
        c10d = "/venv/torch/distributed/distributed_c10d.py"
        known = [{"name": variable, "repr": value} for variable, value in variables.items()]
        frame = {"name": name, "filename": c10d, "line": 3, "locals": known}
        dump = json.dumps([{"os_thread_id": 7, "frames": [frame]}]).encode()
        return pyspy.parse_arguments(dump, 7)

    assert told("broadcast", src="1", group_src="0") == {"root": "1"}
    assert told("broadcast", src="None", group_src="0") == {"root": "0"}
    assert told("gather", dst="3") == {"root": "3"}
    assert told("all_reduce", src="1") == {}


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


def place(name: str, file: str = "/job/train.py", line: int = 9) -> dict[str, object]:
    return {"name": name, "filename": file, "line": line}


SHUTDOWN = place("_shutdown", "/usr/lib/python3.11/threading.py", 1590)
WAITS = place("wait", "/usr/lib/python3.11/threading.py", 327)


def told(*threads: list[dict[str, object]]) -> list[str]:
    """The functions of the first thread, the main one's, as they are read."""
    known = [{"os_thread_id": 7 + n, "frames": frames} for n, frames in enumerate(threads)]
    return [f.function for f in pyspy.parse_dump(json.dumps(known).encode(), 7) or ()]


def test_at_its_end_a_program_is_where_the_thread_is_that_it_waits_for() -> None:
    uploader, feeder = [WAITS, place("upload")], [WAITS]
    assert told([SHUTDOWN], uploader, feeder) == ["wait", "upload", "_shutdown"]
    assert told([SHUTDOWN], uploader, uploader) == ["_shutdown"]  # one of them is a daemon, maybe
    assert told([SHUTDOWN], feeder) == ["_shutdown"]
    assert told([place("step")], uploader) == ["step"]


def test_a_worker_of_a_dataloader_is_at_a_sample_or_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The frames outside of its loop are the program's from which it was forked."""
    loop = place("_worker_loop", "/venv/torch/utils/data/_utils/worker.py", 374)
    queue = place("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)
    stacks = {
        1: [place("record", line=23), place("__getitem__", line=64), loop, place("run", line=104)],
        2: [queue, loop, place("run", line=104)],
        3: [place("run", line=104)],
    }
    dumps = {
        pid: json.dumps([{"os_thread_id": pid, "frames": frames}]).encode()
        for pid, frames in stacks.items()
    }
    monkeypatch.setattr(pyspy, "_dumps", lambda pids, seconds: (dumps, ""))
    found = pyspy.samples(list(stacks))
    assert {pid: (f.function, f.line) for pid, f in found.items()} == {1: ("record", 23)}


def test_what_could_not_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that runs meanwhile may change its stack: the second time it is there."""
    program, tries = tmp_path / "py-spy", tmp_path / "tries"
    dump = json.dumps([{"os_thread_id": 7, "frames": [place("step")]}])
    program.write_text(
        f"#!/bin/sh\necho >>{tries}\n"
        f"test $(wc -l <{tries}) -gt 1 || {{ echo Failed to get stack traces >&2; exit 1; }}\n"
        f"echo '{dump}'\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(pyspy, "find_pyspy", lambda: str(program))
    found, problem = pyspy.stacks([7])
    assert ([f.function for f in found[7]], problem) == (["step"], "")
    tries.unlink()
    program.write_text("#!/bin/sh\necho Permission denied >&2\nexit 1\n")
    assert pyspy.stacks([7])[1].startswith(pyspy.NO_PTRACE)


def test_below_a_deep_library_the_users_line_is_kept() -> None:
    deep = [place("sync", "/venv/lib/site-packages/torchmetrics/metric.py", n) for n in range(30)]
    assert told([*deep, place("evaluate"), place("main")])[-2:] == ["evaluate", "main"]
