"""What is put into the user's interpreters: it stays out of the way, and it answers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from preflight.rehearsal import client
from preflight.rehearsal.workdir import INJECTED

OURS = Path(__file__).parents[4] / "preflight/rehearsal/injected"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "w"
    found.mkdir()
    for name in INJECTED:
        shutil.copy(OURS / name, found)
    return found


def python(folder: Path, code: str, *paths: str, **more: str) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join([str(folder), *paths])
    environ = {**os.environ, "PYTHONPATH": search, "PREFLIGHT_WATCHED": str(folder), **more}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def words(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob(f"*.{kind}")]


def test_a_program_without_torch_leaves_no_trace(folder: Path) -> None:
    ended = python(folder, "import json, sys; print('torch' in sys.modules)")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("False\n", "", 0)
    left = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert left == set(INJECTED)


def test_an_exception_before_torch_leaves_its_traceback(folder: Path, tmp_path: Path) -> None:
    program = "def load():\n    raise KeyError('data\\nmore')\nload()\n"
    (script := tmp_path / "train.py").write_text(program)
    # what is beside the script may have any name
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n")
    ended = python(folder, f"import runpy; runpy.run_path({str(script)!r})")
    assert ended.returncode == 1
    assert "KeyError" in ended.stderr
    ((pid, word),) = client.uncaught(str(folder), 100)
    assert pid > 1
    assert word["text"].startswith("KeyError: 'data")
    assert word["frames"][:2] == [
        [str(script), 2, "load", True],
        [str(script), 3, "<module>", True],
    ]


def test_of_a_deep_recursion_the_innermost_frames_and_the_message_are_told(folder: Path) -> None:
    program = "def f(n):\n    if n:\n        f(n - 1)\n    raise KeyError('x' * 10**6)\nf(500)\n"
    (script := folder.parent / ("long" * 40 + ".py")).write_text(program)
    python(folder, f"import runpy; runpy.run_path({str(script)!r})")
    ((_, word),) = client.uncaught(str(folder), 100)
    assert word["text"].startswith("KeyError: 'xxx")
    assert word["frames"][0] == [str(script), 4, "f", True]


@pytest.mark.parametrize("code", ["raise SystemExit('no')", "raise KeyboardInterrupt", "1"])
def test_other_ends_before_torch_leave_nothing(folder: Path, code: str) -> None:
    python(folder, code)
    assert not list(client.uncaught(str(folder), 100))


def test_the_users_own_sitecustomize_is_loaded(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine', __name__, __file__)\nX = 1\n")
    ended = python(folder, "import sitecustomize; print(sitecustomize.X)", str(tmp_path))
    path = tmp_path / "sitecustomize.py"
    assert ended.stdout == f"mine sitecustomize {path}\n1\n"


TRACER = """
import os, sys
from importlib.machinery import PathFinder
here = os.path.dirname(__file__)
class Hooks:
    asked = {}
    def find_spec(self, name, path=None, target=None):
        import importlib.util
        if name in self.asked:
            return None
        self.asked[name] = True
        try:
            return importlib.util.find_spec(name)
        finally:
            del self.asked[name]
sys.meta_path.insert(0, Hooks())
print("tracer")
"""
BY_SPEC = """
spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if p != here])
if spec is not None:
    spec.loader.load_module("sitecustomize")
"""
BY_IMPORT = """
at = sys.path.index(here)
sys.path.pop(at)
ours = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = ours
finally:
    sys.path.insert(at, here)
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.torch
@pytest.mark.parametrize("way", [BY_SPEC, BY_IMPORT], ids=["spec", "import"])
@pytest.mark.parametrize("own", [True, False], ids=["own", "alone"])
def test_a_tracer_that_looks_for_the_next_sitecustomize(
    folder: Path, tmp_path: Path, way: str, own: bool
) -> None:
    """As those of New Relic and of ddtrace do: it would find ours again, and ours would find it."""
    tracer, mine = tmp_path / "tracer", tmp_path / "mine"
    tracer.mkdir()
    mine.mkdir()
    (tracer / "sitecustomize.py").write_text(TRACER + way)
    if own:
        (mine / "sitecustomize.py").write_text("print('mine')\n")
    code = "import sys, torch.distributed; print(sum('Torch' in str(f) for f in sys.meta_path))"
    paths = (str(tracer), str(mine))
    ended = python(folder, code, *paths, PYTHONWARNINGS="ignore")
    said = ["tracer", *(["mine"] if own else []), "1"]
    assert (ended.stdout.split(), ended.stderr) == (said, "")
    assert [word["how"] for word in words(folder, "end")] == ["exited"]
    # and the other way round: the tracer's program has put its folder first
    environ = {**os.environ, "PREFLIGHT_WATCHED": str(folder), "PYTHONWARNINGS": "ignore"}
    environ["PYTHONPATH"] = os.pathsep.join([str(tracer), str(folder), str(mine)])
    first = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60
    )
    assert (first.stdout.split(), first.stderr) == (said, "")


@pytest.mark.parametrize("way", [BY_SPEC, BY_IMPORT], ids=["spec", "import"])
def test_a_tracers_own_is_what_it_is_without_us(
    folder: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs ask it whether the tracer has been loaded."""
    (tmp_path / "sitecustomize.py").write_text(
        f"{TRACER}{way}\nprint(here in sys.path, sys.path)\n"
    )
    code = "import sys; print(sys.modules['sitecustomize'].__file__, sys.path)"
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    alone = python(tmp_path, code)
    assert str(tmp_path / "sitecustomize.py") in alone.stdout
    assert python(folder, code, str(tmp_path)).stdout == alone.stdout


def test_a_package_as_sitecustomize(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize").mkdir()
    (tmp_path / "sitecustomize/__init__.py").write_text("from . import part\n")
    (tmp_path / "sitecustomize/part.py").write_text("print('part', __package__)\n")
    ended = python(folder, "import sitecustomize.part", str(tmp_path))
    assert (ended.stdout, ended.stderr) == ("part sitecustomize\n", "")


def test_a_child_of_python_2(folder: Path, tmp_path: Path) -> None:
    python_2 = shutil.which("python2.7") or shutil.which("python2") or "python2"
    try:  # it may be a stand-in that knows of none
        subprocess.run([python_2, "-c", ""], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no Python 2 on this machine")
    (tmp_path / "sitecustomize.py").write_text("X = 'mine'\n")
    environ = {**os.environ, "PREFLIGHT_WATCHED": str(folder)}
    environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(tmp_path)])
    code = "import sitecustomize; print(sitecustomize.X)"
    ended = subprocess.run(
        [python_2, "-c", code], env=environ, capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("mine\n", "")


COMPILED = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
counts = torch._dynamo.utils.counters
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1, capturable=False)
step = torch.compile(optimizer.step, backend="eager")
ddp = torch.compile(DistributedDataParallel(model), backend="eager")
loader = torch.utils.data.DataLoader(torch.ones(6, 4), 2)

@torch.compile(backend="eager")
def epoch():
    total = torch.zeros(())
    for batch in loader:
        total = total + batch.sum()
    return total

for batch in loader:
    ddp(batch).sum().backward()
    step()
print(epoch().item(), counts["stats"]["unique_graphs"], dict(counts["graph_break"]))
"""


@pytest.mark.torch
@pytest.mark.at_length
def test_a_compiled_program_is_compiled_as_without_us(folder: Path) -> None:
    """PyTorch's recipe for a compiled optimizer: its step has our hook in it."""
    without = python(folder, COMPILED, PREFLIGHT_WATCHED="")
    assert without.stdout.startswith("24.0 "), without.stderr
    ended = python(folder, COMPILED)
    assert (ended.stdout, ended.returncode) == (without.stdout, 0), ended.stderr
    assert not any("preflight" in line for line in ended.stderr.splitlines())


def test_without_the_variable_or_the_folder_nothing_is_hooked(folder: Path) -> None:
    code = "import sys; print(sum('TorchImports' in type(f).__name__ for f in sys.meta_path))"
    assert python(folder, code).stdout == "1\n"
    assert python(folder, code, PREFLIGHT_WATCHED="").stdout == "0\n"
    assert python(folder, code, PREFLIGHT_WATCHED="/gone").stdout == "0\n"


@pytest.mark.torch
def test_an_error_of_ours_is_swallowed(folder: Path) -> None:
    (folder / "preflight_responder.py").write_text("raise ValueError('ours')\n")
    ended = python(folder, "import torch.distributed; print('on')")
    assert (ended.stdout, ended.returncode) == ("on\n", 0)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("code", "how", "status"),
    [
        ("pass", "exited", 0),
        ("import sys; sys.exit(3)", "exited", 3),
        ("def f():\n    raise ValueError('x' * 9000)\nf()", "raised", 1),
        ("import sys; sys.excepthook = lambda *a: None\n1/0", "raised", 1),
    ],
)
def test_its_last_word(folder: Path, code: str, how: str, status: int) -> None:
    ended = python(folder, f"import torch.distributed\n{code}")
    assert ended.returncode == status
    (word,) = words(folder, "end")
    assert word["how"] == how
    if how == "raised":
        assert word["frames"][-1][2] == "<module>"
        assert len(word["text"]) <= 3000


CHILDREN = """
import multiprocessing, os, sys, torch.distributed as dist

def fails(rank):
    raise KeyError(rank)

def helps(rank):
    pass

def joins(rank):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

if __name__ == "__main__":
    for target in (fails, joins):
        child = multiprocessing.get_context("fork").Process(target=target, args=(1,))
        child.start()
        child.join()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(helps, range(4))
    if not os.fork():
        fails(2)
    os.wait()
"""


@pytest.mark.torch
def test_children_by_fork_answer_for_themselves(folder: Path) -> None:
    """Those that may be ranks do; not the workers of a pool, and of another helper only that an
    exception has ended it."""
    ended = python(folder, CHILDREN)
    assert ended.returncode == 0, ended.stderr
    hello = {word["pid"]: word for word in words(folder, "hello")}
    (parent,) = (pid for pid, word in hello.items() if not word["child"])
    assert [word["ppid"] for pid, word in hello.items() if pid != parent] == [parent] * 3
    said = [word.get("text", "") for word in words(folder, "end")]
    assert sorted(said) == ["", "", "KeyError: 1", "KeyError: 2"]
    (joins,) = words(folder, "joins")
    assert (joins["how"], joins["rank"], joins["world"]) == ("store", 0, 1)
    assert joins["frame"] is None or joins["frame"][2] == "joins"


@pytest.mark.torch
def test_stderr_is_the_programs_own(folder: Path) -> None:
    ended = python(folder, "import torch.distributed, sys; print('on', file=sys.stderr)")
    assert ended.stderr == "on\n"


@pytest.mark.torch
def test_it_answers_while_the_program_waits(folder: Path) -> None:
    code = """
import time, torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
w = torch.nn.Linear(2, 2)
o = torch.optim.SGD(w.parameters(), lr=0.1)
for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(6, 2)), 2):
    w(x).sum().backward()
    o.step()
def here():
    time.sleep(60)
here()
"""
    environ = {**os.environ, "PYTHONPATH": str(folder), "PREFLIGHT_WATCHED": str(folder)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environ)
    try:
        told: dict[str, Any] = {}
        until = time.monotonic() + 50
        while not (told.get("loader") or {}).get("exhausted") and time.monotonic() < until:
            time.sleep(0.2)
            paths = {process.pid: str(folder / f"{process.pid}.sock")}
            told = client.ask_responders(paths, "pulse", 2.0).get(process.pid, {})
        assert (told["rank"], told["world"], told["steps"]) == (0, 1, 3)
        assert (told["batches"], told["loader"]["exhausted"]) == (3, True)
        assert told["loader"]["length"] == 3
        time.sleep(0.3)
        dump = client.ask_responders(paths, "dump", 5.0)[process.pid]
        assert [call["op"] for call in dump["recorded"]["0"]] == ["all_reduce"]
        assert dump["stack"][0][2] == "here"
    finally:
        process.kill()
        process.wait()


@pytest.mark.torch
def test_one_thread_is_ours(folder: Path) -> None:
    """A server of torch's in the program, as there was once, has eight, and one that answers while
    the interpreter is taken down ends the program with SIGABRT."""
    code = (
        "import os, threading, torch.distributed; "
        "print(len(os.listdir('/proc/self/task')), threading.active_count())"
    )
    without, ended = python(folder, code, PREFLIGHT_WATCHED=""), python(folder, code)
    count, python_threads = map(int, without.stdout.split())
    assert ended.stdout == f"{count + 1} {python_threads}\n"


def test_who_gives_no_answer_is_not_waited_for(tmp_path: Path) -> None:
    """A listener that accepts and is silent, one that talks nonsense, one that is gone."""
    silent, chatty = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    paths = {1: str(tmp_path / "s"), 2: str(tmp_path / "c"), 3: str(tmp_path / "gone")}
    for listener, path in ((silent, paths[1]), (chatty, paths[2])):
        listener.bind(path)
        listener.listen()
    began = time.monotonic()
    with silent, chatty:
        assert client.ask_responders(paths, "pulse", 0.5) == {}
    assert time.monotonic() - began < 5


TRACE = """Fatal Python error: Aborted

Thread 0x00007f7f6c80ab00 (most recent call first):
  File "/tmp/preflight-x/preflight_responder.py", line 165 in serve

{current}Thread 0x00007f7f6c80ab80 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/x.py", line 9 in y
  File "/job/train.py", line 12 in step
  File "/job/train.py", line 30 in <module>
"""


@pytest.mark.parametrize(
    ("current", "first"),
    [
        (
            "Current thread 0x00007f7f4b1fc6c0 (most recent call first):\n  <no Python frame>\n\n",
            "y",
        ),
        ('Current thread 0x1 (most recent call first):\n  File "/job/io.py", line 2 in w\n\n', "w"),
        ("", "y"),
    ],
)
def test_which_thread_of_a_crash_matters(current: str, first: str) -> None:
    found = client.parse_faulthandler(TRACE.format(current=current))
    assert found[0].function == first
    assert [f.own for f in found if f.file == "/job/train.py"] in ([True, True], [])


@pytest.mark.parametrize("text", ["", "hread 0x", 'Thread 0x1\n  File "', "\0" * 100])
def test_a_trace_that_is_none(text: str) -> None:
    assert client.parse_faulthandler(text) == ()


@pytest.mark.torch
def test_a_question_at_the_very_end_does_not_abort_the_program(folder: Path) -> None:
    """A thread in native code that wants its interpreter back while that is taken down would."""
    code = """
import sys, time, torch.distributed
inside = next(f.responder for f in sys.meta_path if type(f).__name__ == "TorchImports")
asked = []
def slow():
    asked.append(True)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        torch.ones(100) + 1
    return {"answered": True}
inside["ANSWERS"][b"slow"] = slow
open(sys.argv[1], "w").close()
while not asked:
    time.sleep(0.01)
"""
    environ = {**os.environ, "PYTHONPATH": str(folder), "PREFLIGHT_WATCHED": str(folder)}
    ready = folder / "ready"
    process = subprocess.Popen(
        [sys.executable, "-c", code, ready], env=environ, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 50
        while not ready.exists() and time.monotonic() < until:
            time.sleep(0.1)
        paths = {process.pid: str(folder / f"{process.pid}.sock")}
        assert client.ask_responders(paths, "slow", 20.0) == {process.pid: {"answered": True}}
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (0, "")


@pytest.mark.torch
def test_a_program_that_closes_all_files_keeps_its_own(folder: Path) -> None:
    """As daemons do: what it opens then has the numbers of our files."""
    code = """
import os, socket, sys, time, torch.distributed
os.closerange(3, 256)
own = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
with open(sys.argv[1] + "~", "w") as file:
    print(*(one.getsockname()[1] for one in own), file=file)
os.rename(sys.argv[1] + "~", sys.argv[1])
for one in own:
    one.settimeout(20)
    one.accept()[0].sendall(b"own")
"""
    environ = {**os.environ, "PYTHONPATH": str(folder), "PREFLIGHT_WATCHED": str(folder)}
    ready = folder / "ready"
    process = subprocess.Popen([sys.executable, "-c", code, ready], env=environ)
    try:
        until = time.monotonic() + 50
        while not ready.exists() and time.monotonic() < until:
            time.sleep(0.05)
        paths = {process.pid: str(folder / f"{process.pid}.sock")}
        for _ in range(2):  # it takes the first to notice
            client.ask_responders(paths, "pulse", 1.0)
        for port in map(int, ready.read_text().split()):
            with socket.create_connection(("127.0.0.1", port), 20) as line:
                assert line.recv(3) == b"own"
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.torch
def test_a_dump_imports_nothing_into_the_program(folder: Path) -> None:
    """torch would import its compiler to look for the frames of compiled code."""
    code = """
import json, os, socket, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
before = set(sys.modules)
line = socket.socket(socket.AF_UNIX)
line.connect(os.path.join(os.environ["PREFLIGHT_WATCHED"], f"{os.getpid()}.sock"))
line.sendall(b"dump")
told = b"".join(iter(lambda: line.recv(1 << 16), b""))
print(len(json.loads(told)["recorded"]["0"]), sorted(set(sys.modules) - before))
print(torch._inductor.__name__, "torch._inductor" in sys.modules)
"""
    ended = python(folder, code)
    assert ended.stdout == "1 []\ntorch._inductor True\n", ended.stderr
