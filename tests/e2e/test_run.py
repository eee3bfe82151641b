"""run, from end to end: signals, deadlines, checks that misbehave, torch that is not there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest
from support.command import (
    CHECK,
    LIMITS,
    Done,
    judges,
    left,
    observes,
    planted,
    preflight,
    report,
    start,
)
from support.pace import slower

from preflight.model import Verdict

STANDARD = ("run", "--nproc", "2")


# --- signals ---


def interrupted(number: signal.Signals, after: float, *args: str, **more: Any) -> Done:
    """A run that gets a signal `after` it has begun to listen for one."""
    running = start(*STANDARD, *(args or ("-o", "json")), **more).listening()
    time.sleep(after)
    running.process.send_signal(number)
    asked = time.monotonic()
    done = running.end()
    assert time.monotonic() - asked < 2 + 1, "within 2 s, on a machine that has other work, too"
    assert not done.left
    return done


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_a_signal_ends_a_run_with_what_it_has_seen(number: signal.Signals, after: float) -> None:
    """While Python starts, while torch is imported, while the ranks meet."""
    done = interrupted(number, after)
    assert done.code == 128 + number
    document = done.document
    assert document["interrupted"] == number.name
    assert document["exit_code"] == done.code
    assert document["verdict"] == "undecided"
    assert len(document["checks"]) > 10, "those that were not made are there, too"
    assert not [f for f in document["findings"] if f["status"] == "fail"], "evidence against nobody"
    assert "Traceback" not in done.err


def test_a_terminal_that_closes_ends_a_run_as_other_signals_do() -> None:
    done = interrupted(signal.SIGHUP, 0.5)
    assert (done.code, done.document["interrupted"]) == (129, "SIGHUP")


def test_the_report_of_an_interrupted_run_is_written(tmp_path: Path) -> None:
    done = interrupted(signal.SIGTERM, 0.5, "-o", f"json={tmp_path}/r.json", "-o", "human")
    assert "interrupted by SIGTERM" in done.out
    assert json.loads((tmp_path / "r.json").read_text())["exit_code"] == 143


def test_two_signals_at_once_are_one_wish() -> None:
    """timeout(1) signals the process and then its group."""
    running = start(*STANDARD, "-o", "json").listening()
    time.sleep(0.6)
    running.process.send_signal(signal.SIGTERM)
    time.sleep(0.02)
    running.process.send_signal(signal.SIGTERM)
    done = running.end()
    assert done.code == 143
    assert done.document["interrupted"] == "SIGTERM"
    assert not done.left


def test_a_second_signal_does_not_wait_for_a_file_system(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # nobody will ever open it
    running = start("run", *LIMITS, "-o", f"json={tmp_path}/fifo")
    time.sleep(0.8)
    running.process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    assert running.process.poll() is None
    running.process.send_signal(signal.SIGINT)
    done = running.end(within=3)
    assert done.code == -signal.SIGINT
    assert not done.left


@pytest.mark.parametrize("after", [0.2, 0.5, 0.8, 1.2])
def test_nothing_outlives_a_parent_that_is_killed(after: float) -> None:
    running = start(*STANDARD)
    time.sleep(after)
    running.process.kill()
    done = running.end()
    assert done.code == -signal.SIGKILL
    assert not done.left


def test_other_commands_just_end(tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "report.json")
    running = start("show", str(fifo))
    end = opened(fifo)  # it is read: the command is at work, and would wait for more
    try:
        running.process.send_signal(signal.SIGINT)
        done = running.end()
    finally:
        os.close(end)
    assert done.code == -signal.SIGINT
    assert done.errors == ""


def opened(fifo: Path, within: float = 20.0) -> int:
    """The writing end of a FIFO, once somebody reads it."""
    until = time.monotonic() + within
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


# --- deadlines ---


def test_the_deadline_of_the_whole_run(tmp_path: Path) -> None:
    package = planted(tmp_path, planted_hang=HANG.replace("budget=0.5", "budget=30"))
    only = ("--only", "planted,host.limits")
    done = preflight("run", *only, "--deadline", "1s", "-o", "json", package=package)
    assert done.code == 4
    assert done.seconds < 1 + 3
    assert done.row("host.limits")["status"] == "pass"
    (finding,) = done.findings("planted.hang")
    assert finding["code"] == "interrupted"
    assert finding["blame"] == "unknown"
    assert finding["saw"] == 'the run\'s deadline of 1 s was over · last mark "about to hang"'
    assert done.document["interrupted"] == ""


def test_a_deadline_in_which_nothing_can_be_done() -> None:
    done = preflight(*STANDARD, "--deadline", "1ms", "-o", "json")
    assert done.code == 4
    assert done.seconds < 3
    statuses = {row["status"] for row in done.document["checks"]}
    assert statuses <= {"undecided", "skip"}


def test_a_failure_counts_although_the_deadline_was_over() -> None:
    args = ("--expect", "nofile=1000000000", "--deadline", f"{0.6 * slower():.1f}s")
    done = preflight(*STANDARD, *args, "-o", "json")
    assert done.code == 3
    assert done.document["verdict"] == "not_ready"


def test_the_time_of_one_check(tmp_path: Path) -> None:
    package = planted(tmp_path, planted_hang=HANG.replace("budget=0.5", "budget=30"))
    only = ("--only", "planted", "--timeout", "planted.hang=0.3s")
    done = preflight("run", *only, "-o", "json", package=package)
    assert done.code == 4
    assert done.seconds < 10  # its own budget is 30 s
    (finding,) = done.findings("planted.hang")
    assert finding["saw"] == 'no answer in 300 ms, killed · last mark "about to hang"'
    assert done.document["settings"]["timeout.planted.hang"] == {"value": 0.3, "from": "--timeout"}


def test_too_little_time_accuses_nobody() -> None:
    args = ("--timeout", "net.name=2ms", "--timeout", "net.port=2ms", "--timeout", "host=2ms")
    done = preflight("run", "--level", "quick", *args, "-o", "json")
    assert done.code in (0, 4)
    assert {f["status"] for f in done.document["findings"]} <= {"undecided", "warn"}


# --- checks that misbehave ---

HANG = observes("""
    import time
    ctx.mark("about to hang")
    time.sleep(600)
""")
FINDS = """yield Found("bad", tuple(s for s, _ in world.each()), saw="x", status=Status.{})"""

MISBEHAVING = {
    "planted_hang": HANG,
    "planted_deaf": observes("""
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ctx.mark("deaf")
        while True:
            time.sleep(60)
    """),
    "planted_stopped": observes("""
        import os, signal
        ctx.mark("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)
    """),
    "planted_segfault": observes("""
        import ctypes
        ctx.mark("about to crash")
        ctypes.string_at(0)
    """),
    "planted_forks": observes("""
        import os, time
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        return Answer()
    """),
    "planted_escapes": observes("""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        os.wait()
        return Answer()
    """),
    "planted_threads": observes("""
        import threading, time
        threading.Thread(target=time.sleep, args=(600,)).start()
        return Answer()
    """),
    "planted_chatty": observes("""
        import os
        for number in range(20_000):
            os.write(1, b"x" * 500)
        return Answer()
    """).replace("budget=0.5", "budget=5"),
    "planted_huge": observes("return Answer('x' * (16 << 20))").replace("budget=0.5", "budget=9"),
    "planted_lies": observes("return Answer('no number')"),
    "planted_wrong": observes("return 7"),
    "planted_object": observes("return Answer(object())"),
    "planted_silent": observes("import os\nos._exit(0)"),
    "planted_exits": observes("raise SystemExit(3)"),
    "planted_raises": observes("raise RuntimeError('on purpose')"),
    "planted_blind": observes("raise CannotObserve('no permission')"),
    "planted_nothing": observes("raise NotApplicable('nothing here')"),
    "planted_judge": judges("raise RuntimeError('judged on purpose')"),
    "planted_judgenone": judges("return None"),
    "planted_nobody": judges("yield Found('bad', (), saw='x')"),
    "planted_code": judges("yield Found('no-such', (Subject('job'),), 'x', status=Status.WARN)"),
    "planted_measured": CHECK.replace('Measured("planted")', "None"),
    "planted_unmeasured": CHECK.replace('Measured("planted")', 'Measured("x", {"a": object()})'),
    "planted_syntax": "def observe(:\n",
    "planted_import": "import nothing_of_the_kind\n",
    "planted_leaves": "raise SystemExit(0)\n",
    "planted_empty": '"""Is there anything?"""\n',
    "planted_later": CHECK.replace("budget=0.5", "budget=0.5, needs=('rdzv.store',)"),
    "planted_alone": CHECK.replace("budget=0.5", "budget=0.5, needs=('planted.absent',)"),
    "planted_one": CHECK.replace("budget=0.5", "budget=0.5, needs=('planted.other',)"),
    "planted_other": CHECK.replace("budget=0.5", "budget=0.5, needs=('planted.one',)"),
    "planted_untyped": CHECK.replace(" -> Answer", ""),
    "planted_number": CHECK.replace("-> Answer", "-> int"),
    "planted_after": CHECK.replace("budget=0.5", "budget=0.5, needs=('planted.hang',)"),
    "planted_broken": CHECK.replace("budget=0.5", "budget=0.5, needs=('planted.syntax',)"),
    "planted_well": CHECK,
    "Planted": "",
}

# id -> status of the row, code, and what the finding's text begins with
EXPECTED = {
    "planted.hang": ("undecided", "no-answer", "no answer in 500 ms, killed"),
    "planted.deaf": ("undecided", "no-answer", "no answer in 500 ms, killed"),
    "planted.stopped": ("undecided", "no-answer", "no answer in 500 ms, killed"),
    "planted.segfault": ("undecided", "crashed", "killed by SIGSEGV"),
    "planted.forks": ("pass", "", ""),
    "planted.escapes": ("pass", "", ""),
    "planted.threads": ("pass", "", ""),
    "planted.chatty": ("pass", "", ""),
    "planted.huge": ("undecided", "crashed", "InvalidAnswer: more than 8388608 bytes"),
    "planted.lies": ("undecided", "crashed", "the answer does not fit this version"),
    "planted.wrong": ("undecided", "crashed", "the answer does not fit this version"),
    "planted.object": ("undecided", "crashed", "InvalidAnswer: "),
    "planted.silent": ("undecided", "crashed", "ended with exit code 0 and no answer"),
    "planted.exits": ("undecided", "crashed", "SystemExit: 3"),
    "planted.raises": ("undecided", "crashed", "RuntimeError: on purpose"),
    "planted.blind": ("undecided", "not-observable", "no permission"),
    "planted.nothing": ("skip", "", ""),
    "planted.judge": ("undecided", "unjudged", "RuntimeError while judging: judged"),
    "planted.judgenone": ("undecided", "unjudged", "TypeError while judging"),
    "planted.nobody": ("undecided", "unjudged", "ValueError while judging: bad has"),
    "planted.code": ("warn", "no-such", "x"),
    "planted.measured": ("undecided", "unjudged", "TypeError while judging"),
    "planted.unmeasured": ("undecided", "unjudged", "TypeError while judging"),
    "planted.syntax": ("undecided", "not-loaded", "SyntaxError: invalid syntax"),
    "planted.import": ("undecided", "not-loaded", "ModuleNotFoundError: No module named"),
    "planted.leaves": ("undecided", "not-loaded", "SystemExit: 0"),
    "planted.empty": ("undecided", "not-loaded", "has no CHECK; has no FINDINGS; has no observe()"),
    "planted.later": ("undecided", "not-loaded", "needs 'rdzv.store' of the stage training, which"),
    "planted.alone": ("undecided", "not-loaded", "needs 'planted.absent', which does not exist"),
    "planted.one": ("undecided", "not-loaded", "checks need each other: planted.one -> planted.o"),
    "planted.other": ("undecided", "not-loaded", "checks need each other: planted.one -> planted"),
    "planted.untyped": ("undecided", "not-loaded", "observe() does not say what it returns"),
    "planted.number": ("undecided", "not-loaded", "observe() returns no dataclass"),
    "planted.after": ("pass", "", ""),
    "planted.broken": ("pass", "", ""),
    "planted.well": ("pass", "", ""),
    "Planted": ("undecided", "not-loaded", "the id 'Planted' is not of the form group.name"),
    "host.limits": ("pass", "", ""),
}

TOOLS_OWN = ("crashed", "not-loaded", "unjudged", "no-such")


@pytest.fixture(scope="module")
def misbehaved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """One run of them all."""
    package = planted(tmp_path_factory.mktemp("misbehaving"), **MISBEHAVING)
    only = ("--only", "planted,Planted,host.limits")
    return package, preflight("run", *only, "-o", "json", package=package)


@pytest.mark.parametrize("check_id", EXPECTED)
def test_a_check_that_misbehaves(check_id: str, misbehaved: tuple[Path, Done]) -> None:
    status, code, saw = EXPECTED[check_id]
    _, done = misbehaved
    assert done.row(check_id)["status"] == status
    findings = done.findings(check_id)
    assert [f["code"] for f in findings] == ([code] if code else [])
    for finding in findings:
        assert finding["saw"].startswith(saw)
        assert (finding["blame"] == "tool") is (code in TOOLS_OWN)
        assert finding["subjects"]


def test_what_misbehaves_is_undecided_and_drains_nobody(misbehaved: tuple[Path, Done]) -> None:
    _, done = misbehaved
    assert done.code == 4
    assert done.seconds < 12, "the slowest may have nine"
    assert done.document["exclude"] == []
    assert done.document["left_behind"] == []
    # how far it is, where that takes longer than a second
    assert all(line.startswith(" preflight: ") for line in done.err.splitlines()), done.err


def test_the_traceback_is_in_the_report(misbehaved: tuple[Path, Done]) -> None:
    seen = misbehaved[1].document["observations"]
    (raised,) = seen["planted.raises"].values()
    assert "RuntimeError: on purpose" in raised["detail"]
    assert "raise RuntimeError(" in raised["detail"]
    (hung,) = seen["planted.hang"].values()
    assert "in observe" in hung["detail"], "the stack of a hang"
    assert [mark for mark, _ in hung["marks"]] == ["about to hang"]


def test_a_real_failure_goes_before_all_our_own_faults(misbehaved: tuple[Path, Done]) -> None:
    package, _ = misbehaved
    only = ("--only", "planted.raises,planted.syntax,host.limits")
    done = preflight("run", *only, "--expect", "nofile=1000000000", "-o", "json", package=package)
    assert done.code == 3
    assert report(done).verdict is Verdict.NOT_READY
    assert done.document["findings"][0]["check"] == "host.limits"


def test_list_and_explain_name_what_can_not_be_loaded(misbehaved: tuple[Path, Done]) -> None:
    package, _ = misbehaved
    listed = preflight("list", package=package).out
    for check_id, (_, code, saw) in EXPECTED.items():
        assert check_id in listed
        assert code != "not-loaded" or f"{check_id}  could not be loaded: {saw}" in listed
    explained = preflight("explain", "planted.syntax", package=package)
    assert explained.code == 2
    assert "planted.syntax could not be loaded: SyntaxError" in explained.said


@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM", "SIGSTOP"])
def test_a_fork_server_that_is_lost(number: str, tmp_path: Path) -> None:
    package = planted(
        tmp_path / "package",
        planted_murder=observes(f"""
            import os, signal, time
            time.sleep(0.3)
            ctx.mark("now")
            os.kill(os.getppid(), signal.{number})
            time.sleep(600)
        """),
        planted_slow=observes("import time\ntime.sleep(0.4)\nreturn Answer()"),
        planted_after=CHECK.replace("budget=0.5", "budget=0.5, needs=('planted.slow',)"),
    )
    only = ("--only", "planted,host.limits", "-o", "json", "-o", f"human={tmp_path}/r.txt")
    done = preflight("run", *only, package=package)
    assert done.code == 4, done
    assert done.seconds < 20
    assert done.row("host.limits")["status"] == "pass"
    assert done.row("planted.murder")["status"] == "undecided"
    assert "UNDECIDED" in (tmp_path / "r.txt").read_text(), "reports are written all the same"


UNDER_LIMITS = ("run", "--level", "quick", "-o", "json")


def test_no_file_to_be_had() -> None:
    done = preflight(*UNDER_LIMITS, python=("prlimit", "--nofile=24", sys.executable))
    assert done.code in (3, 4), "host.limits fails, if it comes to it"
    assert "Traceback" not in done.err
    undecided = [f for f in done.document["findings"] if f["status"] == "undecided"]
    assert any("Too many open files" in f["saw"] for f in undecided)


def test_no_process_to_be_had() -> None:
    """As a user whom the limit binds and who has no other process."""
    python: tuple[str, ...] = ("prlimit", "--nproc=1", sys.executable)
    if os.geteuid() == 0:
        uid = str(50_000 + os.getpid() % 10_000)
        other = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        probe = subprocess.run([*other, "sh", "-c", f"{sys.executable} -c ''"], capture_output=True)
        if probe.returncode:
            pytest.skip(f"other users than root can't run {sys.executable}")
        python = (*other, *python)
    done = preflight(*UNDER_LIMITS, python=python)
    assert done.code == 4, done
    assert "Traceback" not in done.err
    assert {f["status"] for f in done.document["findings"]} == {"undecided"}
    assert any("Resource temporarily" in f["saw"] for f in done.document["findings"])


def test_many_ranks_with_few_open_files() -> None:
    """Each worker takes two of ours: what can't be had is said, what can be is done."""
    limits = ("prlimit", "--nofile=64", sys.executable)
    done = preflight(*UNDER_LIMITS, "--nproc", "64", python=limits)
    assert done.code in (3, 4), done
    codes = {f["code"] for f in done.document["findings"]}
    assert "not-observable" in codes
    assert "Traceback" not in done.err


def crashed(tmp_path: Path, module: str, old: str, new: str) -> tuple[Done, list[Path]]:
    """A run with a bug planted in a module of ours, and the files that it leaves: log, report."""
    package = planted(tmp_path)
    broken = package / "preflight" / module
    text = broken.read_text()
    assert old in text
    broken.write_text(text.replace(old, new))
    done = preflight("run", *LIMITS, package=package)
    assert done.code == 70
    named = re.findall(r"/tmp/preflight-crash-\w+\.(?:log|json)", done.err)
    return done, [Path(path) for path in dict.fromkeys(named)]


def test_a_crash_of_the_parent_is_not_the_clusters_fault(tmp_path: Path) -> None:
    done, (log,) = crashed(
        tmp_path, "engine/scheduler.py", "    def _observe(self) -> None:\n", "    def _o(self):\n"
    )
    assert "AttributeError" in done.err
    assert "this is our fault, not your cluster's" in done.err
    assert "AttributeError" in log.read_text()
    log.unlink()


def test_a_crash_of_the_judgement_keeps_what_was_observed(tmp_path: Path) -> None:
    planted_bug = "def judge(*a, **more):\n    1 / 0\n\n\ndef _j(\n"
    done, (log, kept) = crashed(tmp_path, "judge/verdict.py", "def judge(\n", planted_bug)
    assert "ZeroDivisionError" in done.err
    again = preflight("show", "--judge", str(kept))
    log.unlink()
    kept.unlink()
    assert again.code == 0, again
    assert "host.limits" in again.out


# --- without torch ---


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with all that we need and no torch: its interpreter."""
    folder = tmp_path_factory.mktemp("bare")
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    import typer

    for package in Path(typer.__file__).parent.parent.iterdir():
        torch = package.name.startswith(("torch", "functorch", "nvidia", "triton", "__editable__"))
        if not torch and package.suffix != ".pth":
            (site / package.name).symlink_to(package)
    return folder


def in_environment(folder: Path, *args: str) -> Done:
    return preflight(*args, python=(str(folder / "bin" / "python"),), within=60)


def test_without_torch_quick_is_ready(bare: Path) -> None:
    done = in_environment(bare, "run", "--level", "quick", "-o", "json")
    assert done.code == 0, done
    assert done.document["verdict"] == "ready"


def test_without_torch_standard_is_undecided(bare: Path) -> None:
    done = in_environment(bare, *STANDARD, "-o", "json")
    assert done.code == 4, done
    reasons = {r["id"]: r["reason"] for r in done.document["checks"] if r["status"] == "skip"}
    # and of a Python on PATH that root does not run
    assert reasons["rdzv.store"] == reasons["world.gloo"]
    assert reasons["world.gloo"].startswith("torch is not installed here")
    assert not [f for f in done.document["findings"] if f["status"] in ("fail", "undecided")]
    assert "torch is not installed here" in in_environment(bare, *STANDARD).out


@pytest.mark.parametrize(
    ("body", "saw"),
    [
        ("raise ImportError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12"),
        ("import no_such_dependency", "no_such_dependency"),
        ("import os; os._exit(1)", ""),
        ("import ctypes; ctypes.string_at(0)", ""),
    ],
    ids=["no libcudart", "no dependency", "exits", "segfault"],
)
def test_a_torch_that_is_broken_is_the_images_fault(
    body: str, saw: str, bare: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    shutil.copytree(bare, environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text(f"{body}\n")
    done = in_environment(environment, *STANDARD, "-o", "json")
    assert done.code == 3, done
    (finding,) = [f for f in done.document["findings"] if f["status"] == "fail"]
    assert finding["check"] == "host.software"
    assert finding["blame"] == "job"
    assert saw in finding["saw"]
    assert done.document["exclude"] == []
    rows = {r["id"]: (r["status"], r["reason"]) for r in done.document["checks"]}
    assert rows["world.gloo"][0] == "skip"
    assert "host.software" in rows["rdzv.store"][1]


# --- the whole of it ---


@pytest.mark.torch
def test_a_healthy_machine_is_ready_without_a_word_of_warning() -> None:
    done = preflight(*STANDARD, "-o", "json", within=100)
    assert done.code == 0, done
    assert done.document["verdict"] == "ready"
    # but how far it is, where it takes longer than a second
    said = [line for line in done.err.splitlines() if not re.match(r" preflight: \d+ s, ", line)]
    assert not said
    assert {r["status"] for r in done.document["checks"]} <= {"pass", "warn", "skip"}


@pytest.mark.torch
def test_the_port_is_free_again_at_once() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = preflight(*STANDARD, "--only", "rdzv.store", env=env, within=60)
    assert done.code == 0, done
    with socket.socket() as job:
        job.bind(("127.0.0.1", port))  # without SO_REUSEADDR: TIME_WAIT would be in its way


def test_a_report_judged_again_is_the_same_report(tmp_path: Path) -> None:
    first = preflight("run", "--level", "quick", "-o", "json")
    path = tmp_path / "r.json"
    path.write_text(first.out)
    again = preflight("show", str(path), "--judge", "-o", "json")
    assert again.code == first.code
    assert again.document == first.document


def test_these_tests_see_what_is_left() -> None:
    running = start("run", *LIMITS).listening()
    assert left(running.tag, within=0.0)
    running.end()
