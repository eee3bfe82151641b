"""The command line under bad input and on odd machines: a clear line, the right code, no report
lost."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.command import ENVIRONMENT, LIMITS, REPOSITORY, Done, preflight, start

from preflight import __version__

QUICK = ("run", "--level", "quick")
SCRIPT = Path(sys.executable).parent / "preflight"


def refused(*args: str | bytes, **more: Any) -> str:
    """The one line with which bad input is answered."""
    done = preflight(*args, **more)
    assert done.code == 2, done
    assert done.out == ""
    assert "Traceback" not in done.err
    return done.said


# --- words that nobody knows ---


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("run --only net.prt", "--only: no check 'net.prt'; did you mean 'net.port'?"),
        ("run --only net.port,net.prt", "no check 'net.prt'; did you mean 'net.port'?"),
        ("run --skip hots", "--skip: no check 'hots'; did you mean 'host'?"),
        ("run --skip nothing.like.it", "--skip: no check 'nothing.like.it'"),
        ("run --tolerate gpu.vis", "--tolerate: no check 'gpu.vis'; did you mean 'gpu.visible'?"),
        ("run --timeout net.prt=2s", "--timeout: no check 'net.prt'; did you mean 'net.port'?"),
        ("run --timeout net.port", "--timeout wants ID=20s, got 'net.port'"),
        ("run --timeout net.port=soon", "--timeout net.port wants a time such as 90s or 2m"),
        ("run --level quik", "--level is one of quick, standard, deep, got 'quik'; did you mean"),
        ("run --deadline 0", "--deadline wants a time such as 90s or 2m, got '0'"),
        ("run --deadline 2d", "--deadline wants a time such as 90s or 2m, got '2d'"),
        ("run --exit nod", "--exit is one of world, node, nagios, got 'nod'; did you mean 'node'?"),
        ("run --color sometimes", "--color is one of auto, always, never, got 'sometimes'"),
        ("run --expect gpu_per_node=4", "no key 'gpu_per_node'; did you mean 'gpus_per_node'?"),
        ("run --expect gpus_per_node=x", "--expect gpus_per_node wants a number, got 'x'"),
        ("run --expect gpus_per_node=1.5", "--expect gpus_per_node wants a whole number"),
        ("run --expect nofile=inf", "--expect nofile wants a number, got 'inf'"),
        ("run --expect nofile=-1", "--expect nofile wants a number, got '-1'"),
        ("run --expect torch=new", "--expect torch wants a version such as >=2.6, got 'new'"),
        ("run --expect torch", "--expect wants key=value, got 'torch'"),
        ("run -o jso", "--output: no format 'jso', there are human, json, junit, prometheus, "),
        ("run -o jso", ", nagios, markdown, slurm, html and github; did you mean 'json'?"),
        ("run -o promeheus=x", "did you mean 'prometheus'?"),
        ("run -o json=", "--output json= names no file"),
        ("run -o json -o human", "only one -o can go to stdout"),
        ("explain net.prt", "no check or finding 'net.prt'; did you mean 'net.port'?"),
        ("explain net.port -o jsn", "-o is one of human, json, got 'jsn'; did you mean 'json'?"),
        (
            "show x.json -o jsn",
            "-o: no format 'jsn', there are human, json, junit, prometheus, nagios, markdown, "
            "slurm, html and github; did you mean 'json'?",
        ),
    ],
)
def test_a_word_that_nobody_knows(args: str, said: str) -> None:
    assert said in refused(*args.split())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("run --onyl net.port", "No such option: --onyl (Possible options: --color, --only)"),
        ("list --jsn", "No such option: --jsn (Possible options: --json)"),
        ("gate --levl quick -- true", "No such option: --levl"),
        ("runn", "No such command 'runn'. Did you mean 'run'?"),
        ("run --nproc x", "Invalid value for '--nproc'"),
        ("run --nproc 0", "0 is not in the range 1<=x<=4096"),
        ("run extra", "Got unexpected extra argument"),
        ("show", "Missing argument 'REPORT'"),
        ("gate", "Missing argument '-- CMD...'"),
    ],
)
def test_a_flag_that_nobody_knows(args: str, said: str) -> None:
    assert said in refused(*args.split())


@pytest.mark.parametrize("flag", ["--only", "--skip", "--checkpoint-dir", "--config", "--deadline"])
def test_a_flag_whose_shell_variable_was_not_set(flag: str) -> None:
    assert f"{flag} " in refused("run", flag, "")


def test_a_very_long_word() -> None:
    assert len(refused("run", "--only", "x" * 100_000)) < 200


def test_a_usage_error_names_the_variables_that_are_flags() -> None:
    said = refused("run", env={"PREFLIGHT_NPROC": "many", "PREFLIGHT_LEVEL": "quick"})
    assert "Invalid value for '--nproc'" in said
    assert "PREFLIGHT_NPROC" in said
    assert "PREFLIGHT_TOLERATE" not in said


# --- reports that are none ---


@pytest.fixture(scope="module")
def saved() -> dict[str, Any]:
    """A good report, as data."""
    return preflight("run", *LIMITS, "-o", "json").document


def shown(path: Path, *more: str) -> str:
    """What `show` says of a file that is no report: the same with every flag."""
    said = refused("show", str(path), *more)
    assert said.startswith(f"preflight: {path}: ")
    assert "\n" not in said
    return said.removeprefix(f"preflight: {path}: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a report"),
        (os.urandom(64) + b"\xff\xfe", "not a report: it is no UTF-8 text"),
        (b"level = 'quick'", "not a report: not valid JSON"),
        (b"[1, 2]", "not a report"),
        (b'"verdict observations"', "not a report"),
        (b'{"a": 1}', "not a report"),
        (b'{"verdict": "ready", "observations": {}}', "not a report"),
        (b"[" * 200_000, "not a report"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not a report"),
        (b"\0" * (65 << 20), "larger than 64 MiB"),
        (b'{"verdict": "' + b"x" * (65 << 20) + b'"}', "larger than 64 MiB"),
    ],
    ids=range(11),
)
def test_a_file_that_is_no_report(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    assert said in shown(path)


def test_a_report_that_can_not_be_read(tmp_path: Path) -> None:
    assert shown(tmp_path) == "Is a directory"
    assert shown(tmp_path / "absent") == "No such file or directory"


def test_a_report_that_was_cut(saved: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(saved)[:700])
    assert shown(path) == "not a report: not valid JSON"


DEEP: Any = {}
for _ in range(600):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "great"},
        {"settings": 3},
        {"settings": {"level": 3}},
        {"findings": 3},
        {"findings": [{}]},
        {"findings": [{"check": "a.b", "code": "c", "status": "fail", "subjects": []}]},
        {"checks": {"a": 1}},
        {"checks": [{"id": "a.b"}]},
        {"world": []},
        {"world": {"size": 1, "nodes": [{"name": "a", "ranks": ["x"]}]}},
        {"observations": 3},
        {"observations": {"host.limits": {"n": {"missing": "no such cause"}}}},
        {"observations": {"host.limits": {"n": {}}}},
        {"observations": {"host.limits": {"n": {"ok": DEEP}}}},
        {"left_behind": [{"pid": "x", "state": "D"}]},
        {"seconds": float("inf")},
        {"exit_code": "0"},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_document_of_another_shape(
    changes: dict[str, Any], saved: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(saved | changes))
    assert shown(path).startswith("not a report")
    assert shown(path, "--judge", "-o", "json").startswith("not a report")


@pytest.mark.parametrize(
    "changes",
    [
        {"observations": {"host.limits": {"n": {"ok": {"lies": 1}}}}},
        {"observations": {"made.up": {"n": {"ok": 1}}}},
        {"observations": {"host.limits": {}}},
        {"observations": {}},
    ],
    ids=["lies", "made up", "nobody looked", "nothing"],
)
def test_observations_that_do_not_fit_are_no_evidence(
    changes: dict[str, Any], saved: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(saved | changes))
    done = preflight("show", str(path), "--judge")
    assert done.code == 4, done
    assert "Traceback" not in done.err


def test_fields_of_a_newer_version_are_ignored(saved: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "newer.json"
    path.write_text(json.dumps(saved | {"more": {"of": "it"}}))
    done = preflight("show", str(path), "--judge", "-o", "json")
    assert done.code == 0
    assert done.document == saved


# --- outputs ---


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("/nonexistent/report.json", "No such file or directory"),
        ("/proc/report.json", "No such file or directory"),
        ("/tmp", "Is a directory"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_a_report_file_that_can_not_be_written(file: str, why: str) -> None:
    done = preflight("run", *LIMITS, "-o", f"json={file}")
    assert done.code == 74
    assert done.said == f"preflight: could not write the report: {file}: {why}"
    assert "READY" in done.out
    assert file not in done.out, "it is not there to be shown"


def test_a_worse_verdict_goes_before_an_output() -> None:
    done = preflight("run", *LIMITS, "--expect", "nofile=1000000000", "-o", "json=/dev/full")
    assert done.code == 3


def test_the_other_outputs_are_written_all_the_same(tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    outputs = ("-o", "json=/nonexistent/a", "-o", f"json={good}", "-o", f"human={tmp_path}/a.txt")
    done = preflight("run", *LIMITS, *outputs)
    assert done.code == 74
    assert json.loads(good.read_text())["exit_code"] == 0
    assert "READY" in (tmp_path / "a.txt").read_text()
    assert str(good) in done.out


def test_a_report_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("old")
    (tmp_path / "r.json").chmod(0o600)
    assert preflight("run", *LIMITS, "-o", "json=r.json", cwd=tmp_path).code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    assert preflight("show", "r.json", cwd=tmp_path).code == 0


def test_a_fifo_that_nobody_reads_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    running = start("run", *LIMITS, "-o", f"json={tmp_path}/fifo")
    time.sleep(0.5)
    assert running.process.poll() is None, "it has ten seconds"
    with open(tmp_path / "fifo", encoding="utf-8") as reader:
        assert json.load(reader)["verdict"] == "ready"
    assert running.end().code == 0


# --- standard streams ---


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "args", [("run", *LIMITS), ("run", *LIMITS, "-o", "json"), ("list",), ("--version",)], ids=str
)
def test_a_full_disk_behind_stdout(args: tuple[str, ...], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = preflight(*args, stdout=full, env={"PYTHONUNBUFFERED": unbuffered})
    assert done.code == 74
    assert done.said.endswith("stdout: No space left on device")
    assert "\n" not in done.said


def test_help_on_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        assert preflight("--help", stdout=full).code == 74


@pytest.mark.root
def test_a_disk_that_fills_up_in_the_middle(tmp_path: Path) -> None:
    """Where Python's own streams are unbuffered they write a part and say nothing."""
    in_namespace = (
        f"mount -t tmpfs -o size=4k none {tmp_path} && cd {tmp_path} && "
        f"{sys.executable} -m preflight run --level quick -o json > report.json"
    )
    command = ["unshare", "-m", "sh", "-c", in_namespace]
    env = ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 74, done
    assert "stdout: No space left on device" in done.stderr


@pytest.mark.root
def test_a_full_disk_keeps_no_half_report(tmp_path: Path) -> None:
    in_namespace = (
        f"mount -t tmpfs -o size=4k none {tmp_path} && "
        f"{sys.executable} -m preflight run --level quick -q -o json={tmp_path}/r.json; "
        f"code=$?; ls -A {tmp_path}; exit $code"
    )
    command = ["unshare", "-m", "sh", "-c", in_namespace]
    env = ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 74, done
    assert done.stderr.strip().endswith("No space left on device")
    assert done.stdout.strip().startswith("READY")
    assert "json" not in done.stdout


def closed(*descriptors: str) -> tuple[str, ...]:
    """A python that is started by a shell with these redirections: `>&-`."""
    return ("sh", "-c", f'exec "$@" {" ".join(descriptors)}', "-", sys.executable)


@pytest.mark.parametrize("args", [("run", *LIMITS), ("list",), ("--version",)], ids=str)
def test_a_closed_stdout(args: tuple[str, ...]) -> None:
    done = preflight(*args, python=closed(">&-"))
    assert done.code == 74
    assert done.said.endswith("stdout is closed")


@pytest.mark.parametrize("descriptors", [("<&-",), ("2>&-",), ("<&-", "2>&-")], ids=" ".join)
def test_other_closed_streams(descriptors: tuple[str, ...]) -> None:
    done = preflight(*QUICK, "-o", "json", python=closed(*descriptors))
    assert done.code == 0
    assert done.document["verdict"] == "ready"


def test_nothing_open_at_all(tmp_path: Path) -> None:
    python = closed("<&-", ">&-", "2>&-")
    done = preflight("run", *LIMITS, "-o", f"json={tmp_path}/r.json", python=python)
    assert done.code == 74
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "ready"


@pytest.mark.parametrize("args", ["list", "--help", "--version", "run --only host.limits"])
def test_a_reader_that_goes_away_is_no_failure(args: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = preflight(*args.split(), stdout=write)
    os.close(write)
    assert (done.code, done.errors) == (0, "")


@pytest.fixture(scope="module")
def long_report(saved: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with a report of which no pipe holds the whole."""
    path = tmp_path_factory.mktemp("long") / "report.json"
    limits = saved["observations"]["host.limits"]
    (name,) = limits
    path.write_text(
        json.dumps(
            saved
            | {
                "observations": {
                    "host.limits": limits
                    | {f"{name}{number}": limits[name] for number in range(500)}
                }
            }
        )
    )
    return str(path)


def test_a_pipe_that_is_not_blocking_gets_all_of_it(long_report: str) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    running = start("show", long_report, "-o", "json", stdout=write)
    os.close(write)
    time.sleep(1.0)  # it has filled the pipe by now
    with open(read, "rb") as pipe:
        text = pipe.read()
    assert running.end().code == 0
    assert len(text) > 2 * 65536, "more than a pipe holds"
    assert json.loads(text)["verdict"] == "ready"


# --- environments ---


def test_ten_thousand_variables() -> None:
    done = preflight(*QUICK, "-o", "json", env={f"NCCL_{n}": "v" for n in range(10_000)})
    assert done.code == 0
    assert done.seconds < 10
    assert len(done.out) < 1_000_000


def test_values_as_long_as_exec_allows() -> None:
    """One string may have 128 KiB, all together a quarter of the stack's limit."""
    names = ("NCCL_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT", "TMPDIR", "RANK", "WORLD_SIZE")
    env = dict.fromkeys(names, "9" * 120000) | {f"X{n}": "y" * 120_000 for n in range(5)}
    done = preflight(*QUICK, "-o", "json", env=env)
    assert done.code == 3
    assert len(done.out) < 1_000_000
    assert done.document["interrupted"] == ""


@pytest.mark.parametrize("name", ["HOME", "PATH", "LANG", "TMPDIR"])
def test_without_a_variable_that_everybody_has(name: str) -> None:
    assert preflight(*QUICK, unset=(name,)).code == 0


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    env: Any = {os.fsdecode(b"NCCL_\xff"): os.fsdecode(b"\xfe\xff"), "MASTER_ADDR": "\udcff"}
    done = preflight(*QUICK, "-o", f"json={tmp_path}/r.json", env=env)
    assert done.code == 3
    assert done.errors == ""
    document = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert document["exit_code"] == 3
    assert preflight("show", f"{tmp_path}/r.json", "--judge").code == 3


@pytest.mark.parametrize("output", ["human", "json"])
def test_a_locale_that_is_not_utf8(output: str) -> None:
    env = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = preflight(*QUICK, "-o", output, env=env | {"MASTER_ADDR": "ünï"})
    assert done.code == 3
    assert done.out.isascii()
    assert done.errors == ""
    if output == "json":
        assert done.document["exit_code"] == 3


def test_forty_columns() -> None:
    """In a real terminal: nothing is wrapped by it, ids are whole."""
    import pty
    import termios

    main, side = pty.openpty()
    termios.tcsetwinsize(side, (24, 40))
    running = start("run", *LIMITS, stdout=side, stderr=side, stdin=side, env={"TERM": "xterm"})
    os.close(side)
    text = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        text += chunk
    os.close(main)
    assert running.end().code == 0
    lines = re.sub(rb"\x1b\[[0-9;]*[a-zA-Z]", b"", text).decode().replace("\r\n", "\n").split("\n")
    assert any("host.limits" in line for line in lines)
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= 40


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "PLANTED-01-XYZ",
    # secret by name, and in the value of another
    "WANDB_API_KEY": "PLANTED-17-XYZ",
    "NCCL_ALGO": "PLANTED-17-XYZ",
    "http_proxy": "http://user:PLANTED-02-XYZ@proxy:3128",
    "NCCL_MY_TOKEN": "PLANTED-03-XYZ",
    "MASTER_ADDR": "http://user:PLANTED-04-XYZ@host",
    "MASTER_PORT": "tcp://user:PLANTED-05-XYZ@host:1",
    "NCCL_NET_PLUGIN": "hf_PLANTED-06-XYZabcdefgh",
    "RANK": "token=PLANTED-07-XYZ",
    "TMPDIR": "/tmp/password=PLANTED-08-XYZ",
    "CUDA_VISIBLE_DEVICES": "key=PLANTED-09-XYZ",
    "SLURM_JOB_ID": "token=PLANTED-10-XYZ",
    "NCCL_SOCKET_IFNAME": "user:PLANTED-11-XYZ@b",
    "GLOO_SOCKET_IFNAME": "token=PLANTED-12-XYZ",
    "INIT_METHOD": "tcp://user:PLANTED-13-XYZ@h:1",
    "LD_LIBRARY_PATH": "/a/token=PLANTED-14-XYZ",
    "OMP_NUM_THREADS": "secret=PLANTED-15-XYZ",
    "TORCH_DISTRIBUTED_DEBUG": "https://u:PLANTED-16-XYZ@b",
}


@pytest.mark.parametrize("args", [("-o", "json"), ("-v",)], ids=["json", "human"])
def test_secrets_do_not_leave_the_machine(args: tuple[str, ...]) -> None:
    done = preflight(*QUICK, *args, env=SECRETS)
    assert done.code == 3
    assert "***" in done.out
    assert not re.findall(r"PLANTED-\d+", done.out + done.err)


def test_a_password_as_short_as_an_ordinary_word_spoils_no_report() -> None:
    done = preflight(*QUICK, "-o", "json", env={"https_proxy": "http://u:vm@proxy:1"})
    assert "***" not in json.dumps(done.document["world"])


# --- machines ---


def on_odd_machine(setup: str, *args: str) -> Done:
    """Run in a mount namespace of its own, prepared by these commands."""
    program = f"{setup} && exec {sys.executable} -m preflight {' '.join(args)}"
    command = ["unshare", "--mount", "--uts", "sh", "-c", program]
    env = ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY)}
    began = time.monotonic()
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=30, cwd="/tmp", check=False
    )
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


@pytest.mark.root
def test_a_root_that_is_read_only(tmp_path: Path) -> None:
    setup = "mount --bind / / && mount -o remount,bind,ro / && cd /tmp"
    done = on_odd_machine(setup, "run", *LIMITS, "-o", f"json={tmp_path}/r.json")
    assert done.code == 74, done
    assert "Read-only file system" in done.said
    done = on_odd_machine(setup, *QUICK, "-o", "json")
    assert done.findings("host.storage")[0]["code"] == "unwritable"
    assert [r["id"] for r in done.document["checks"] if r["status"] == "undecided"] == []


@pytest.mark.root
def test_nothing_below_proc() -> None:
    done = on_odd_machine("mount -t tmpfs none /proc", *QUICK, "-o", "json")
    assert done.code == 4
    assert done.errors == ""
    assert done.findings("host.limits")[0]["code"] == "not-observable"
    assert {f["status"] for f in done.document["findings"]} <= {"undecided", "warn"}


@pytest.mark.root
def test_nothing_below_sys() -> None:
    done = on_odd_machine("mount -t tmpfs none /sys", *QUICK, "-o", "json")
    assert done.code in (0, 4)
    assert {f["status"] for f in done.document["findings"]} <= {"undecided", "warn"}


@pytest.mark.root
@pytest.mark.parametrize(
    "name", ["a" * 64, "UPPER.Case_and_underscore", "1234", "a/b", "-n", "tête", "a b"]
)
def test_odd_host_names(name: str) -> None:
    setup = f"{sys.executable} -c \"import socket; socket.sethostname('{name}')\""
    done = on_odd_machine(setup, *QUICK, "-o", "json")
    assert done.code in (0, 3, 4), done
    assert done.errors == ""
    assert [n["name"] for n in done.document["world"]["nodes"]] == [name]
    covered = {r["id"]: (r["covered"], r["of"]) for r in done.document["checks"]}
    assert covered["host.limits"] == (1, 1)
    assert covered["env.identity"] == (1, 1)


def test_an_empty_root_is_undecided_and_not_written_to(tmp_path: Path) -> None:
    done = preflight(*QUICK, "--root", str(tmp_path), "-o", "json")
    assert done.code == 4
    assert list(tmp_path.iterdir()) == []


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"rmdir {gone}; exec {sys.executable} -m preflight {{}}"
    env = ENVIRONMENT | {"PYTHONPATH": str(REPOSITORY)}

    def run(args: str) -> subprocess.CompletedProcess[str]:
        gone.mkdir(exist_ok=True)
        command = ["sh", "-c", program.format(args)]
        return subprocess.run(
            command, cwd=gone, env=env, capture_output=True, text=True, timeout=30
        )

    done = run("run --level quick --checkpoint-dir here -q")
    assert done.returncode == 3, "the job can't run there either"
    assert "host.storage" in done.stdout
    assert done.stderr == ""
    done = run("run --only host.limits -o json=r.json")
    assert done.returncode == 74
    assert "could not write the report: r.json: No such file or directory" in done.stderr
    assert run("show r.json").returncode == 2


# --- the program itself ---


def test_python_m_is_the_same_program(tmp_path: Path) -> None:
    if not SCRIPT.exists():
        pytest.skip(f"{SCRIPT} is not installed")
    for args in (["--help"], ["run", "--help"], ["list"], ["explain", "net.port"], ["nonsense"]):
        script, module = (
            subprocess.run(
                [*command, *args], capture_output=True, text=True, timeout=30, cwd=tmp_path
            )
            for command in ([str(SCRIPT)], [sys.executable, "-m", "preflight"])
        )
        assert (script.returncode, script.stdout, script.stderr) == (
            module.returncode,
            module.stdout,
            module.stderr,
        )


def test_a_job_folder_with_modules_of_its_own_names(tmp_path: Path) -> None:
    for name in ("json", "signal", "typing", "checks", "preflight", "select", "torch", "typer"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    assert preflight("run", *LIMITS, cwd=tmp_path, python=(sys.executable, "-P")).code == 0
    (tmp_path / "preflight.py").unlink()  # which -m itself would take from here
    done = preflight("run", *LIMITS, cwd=tmp_path)
    assert done.code == 0, done


def test_alone_it_prints_its_help() -> None:
    done = preflight()
    assert done.code == 2
    assert "Usage: preflight" in done.out + done.err
    assert "3 NOT READY" in done.out + done.err


def test_version_says_where_it_is_from() -> None:
    done = preflight("--version")
    assert done.out == f"preflight {__version__} from {REPOSITORY / 'preflight'}\n"


def complete(words: str) -> list[str]:
    env = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "_PREFLIGHT_COMPLETE": "complete_bash",
    }
    return preflight(env=env).out.split()


def test_completion() -> None:
    assert complete("preflight run --only net.po") == ["net.port"]
    assert complete("preflight run --skip net.port,host.l") == ["net.port,host.limits"]
    assert complete("preflight explain rdzv.s") == ["rdzv.store"]
    assert complete("preflight run --level ") == ["quick", "standard", "deep"]
    assert complete("preflight run --stri") == ["--strict"]
    # the shell is found among our ancestors: there must be one
    asked = [f"{shlex.quote(sys.executable)} -m preflight --show-completion; exit $?"]
    shown = subprocess.run(
        ["bash", "-c", *asked], env=ENVIRONMENT, capture_output=True, text=True, timeout=20
    )
    assert "complete -o default -F" in shown.stdout, shown.stderr


def test_every_flag_of_run_has_its_variable() -> None:
    from preflight.cli.main import SHARED

    for parameter in SHARED:
        option = parameter.annotation.__metadata__[0]
        names = (option.default, *option.param_decls)
        long = next(n for n in names if str(n).startswith("--")).partition("/")[0]
        expected = "PREFLIGHT_" + long.removeprefix("--").replace("-", "_").upper()
        assert option.envvar == expected


def test_list_and_schema_are_json() -> None:
    everything = json.loads(preflight("list", "--json").out)
    assert {"id", "stage", "needs", "budget", "touches"} <= set(everything[0])
    assert json.loads(preflight("schema").out)["$id"]


def test_a_reader_that_sleeps_does_not_keep_us_from_being_ended(long_report: str) -> None:
    read, write = os.pipe()
    running = start("show", long_report, "-o", "json", stdout=write)
    os.close(write)
    time.sleep(1.0)
    assert running.process.poll() is None, "nobody has read"
    running.process.send_signal(signal.SIGINT)
    done = running.end(within=5)
    os.close(read)
    assert done.code == -signal.SIGINT
    assert not done.left


# --- exit styles ---


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((), 0),
        (("--expect", "nofile=1000000000"), 2),
        (("--expect", "nofile=1000000000", "--tolerate", "host.limits"), 1),
        (("--skip", "host.limits"), 3),
        (("-o", "json=/dev/full"), 1),
    ],
    ids=str,
)
def test_nagios_has_codes_of_its_own(args: tuple[str, ...], code: int) -> None:
    done = preflight("run", *LIMITS, "--exit", "nagios", *args)
    assert done.code == code
    assert "environment" not in done.err


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (("--exit", "nagios", "--nonsense"), {}),
        (("--exit=nagios", "--only", "no.such"), {}),
        (("--nproc", "many"), {"PREFLIGHT_EXIT": "nagios"}),
    ],
    ids=str,
)
def test_to_nagios_a_wrong_flag_is_nothing_critical(
    words: tuple[str, ...], environ: dict[str, str]
) -> None:
    assert preflight("run", *words, env=environ).code == 3
