"""A run from one place on hosts: the agents are started there, told what to do, and heard; whatever
happens to them, or here, nothing of them stays."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.command import LIMITS, Done, preflight, start

from preflight import nodeset
from preflight.config.resolve import Flags
from preflight.engine import agent
from preflight.engine.agent import Wish
from preflight.model import PreflightError, Verdict
from preflight.process.call import Returned
from preflight.process.servers import LIGHT, open_light
from preflight.process.signals import Interrupt
from preflight.remote import collect, launch_worker, protocol
from preflight.remote import launch as fanout
from preflight.remote.protocol import Orders

HERE = "env PLACE=%h"
"""Leads to this very machine, whatever the host."""
QUICK = ("--level", "quick", *LIMITS)


def shell(script: str) -> str:
    """A way to a host that is a script: `$1` is the host, the rest starts the agent."""
    return f"sh -c {shlex.quote('host=$1; shift; ' + script)} sh %h"


def hosts(names: str, connect: str, *flags: str, **more: object) -> Done:
    return preflight("run", "--hosts", names, "--connect", connect, *flags, **more)  # type: ignore[arg-type]


# --- what is requested ---


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [
        (["--slurm"], {}, "--slurm is for a batch script or salloc"),
        (["--slurm"], {"SLURM_JOB_ID": "7"}, "--slurm is for a batch script or salloc"),
        (
            ["--slurm"],
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "4"},
            "srun has started this already",
        ),
        (
            ["--slurm"],
            {
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "n[1-3]",
                "SLURM_TASKS_PER_NODE": "2(x2),1",
            },
            "SLURM_TASKS_PER_NODE=2(x2),1: not the same number",
        ),
        (
            ["--slurm", "--nproc", "1"],
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "PATH": "/nonexistent"},
            "srun can't be started: No such file or directory",
        ),
        (["--slurm", "--hosts", "a"], {}, "--slurm and --hosts"),
        (["--hosts", "a", "--nodes", "2"], {}, "leave --nodes out"),
        (["--hosts", "a"], {"PREFLIGHT_NODE_RANK": "0"}, "leave env PREFLIGHT_NODE_RANK out"),
        (["--connect", "x %h"], {}, "--connect goes with --hosts"),
        (["--hosts", "a", "--connect", "ssh"], {}, "--connect wants %h"),
        (["--hosts", "a", "--connect", "ssh '%h"], {}, "No closing quotation"),
        (["--hosts", ""], {}, "--hosts ''"),
        (["--hosts", "n[1-"], {}, "--hosts 'n[1-'"),
        (["--hosts", "a;reboot"], {}, "is not a host name"),
        (["--hosts", "-oProxyCommand=reboot"], {}, "is not a host name"),
        (["--hosts", "n[1-99999]"], {}, "there may be 1 to 4096"),
        (["--hosts", "@nosuchgroup"], {}, "--hosts '@nosuchgroup'"),
        (["--hosts", "a", "--only", "net.prot"], {}, "net.port"),
    ],
)
def test_what_can_not_be_is_said_in_a_line(
    args: Sequence[str], env: Mapping[str, str], words: str
) -> None:
    done = preflight("run", *args, env=env)
    assert (done.code, done.out) == (2, "")
    assert words in done.said
    assert "\n" not in done.said.partition("preflight: flags are also")[0].strip()


@pytest.mark.parametrize(
    ("environ", "nproc"),
    [
        ({"SLURM_NTASKS_PER_NODE": "8", "SLURM_GPUS_ON_NODE": "4"}, 8),
        ({"SLURM_TASKS_PER_NODE": "2(x4)"}, 2),
        ({"SLURM_TASKS_PER_NODE": "1(x4)", "SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"SLURM_TASKS_PER_NODE": "1(x4)"}, None),
        ({"SLURM_GPUS_ON_NODE": "0"}, None),
        ({}, None),
    ],
)
def test_ranks_of_a_node_of_the_job(environ: Mapping[str, str], nproc: int | None) -> None:
    found, source = fanout._ranks_per_node(environ)
    assert found == nproc
    assert bool(source) == (nproc is not None)


@pytest.mark.parametrize(
    ("environ", "option"),
    [
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS_PER_NODE": "4"}, "--gpus-per-node=4"),
        ({"SLURM_GPUS_PER_TASK": "a100:2", "SLURM_GPUS_ON_NODE": "8"}, "--gpus-per-node=8"),
        ({"SLURM_GPUS_PER_TASK": "1"}, ""),
        ({"SLURM_GPUS_PER_NODE": "4", "SLURM_GPUS_ON_NODE": "4"}, ""),
    ],
)
def test_the_one_task_of_a_node_gets_all_its_gpus(environ: Mapping[str, str], option: str) -> None:
    options = fanout._srun_options(environ)
    assert [o for o in options if "gpus" in o] == [option] * bool(option)


def test_what_is_asked_of_srun_in_the_environment_is_not_meant_for_an_agent() -> None:
    misleading = "SLURM_NTASKS_PER_NODE SLURM_GPUS_PER_TASK SLURM_CPU_BIND SLURM_STDOUTMODE"
    assert all(map(launch_worker._overrides_srun_options, misleading.split()))
    assert launch_worker._overrides_srun_options("PREFLIGHT_HOSTS")
    kept = "SLURM_JOB_ID SLURM_JOB_NODELIST SLURM_CONF SLURM_NNODES PATH MASTER_ADDR NCCL_DEBUG"
    assert not any(map(launch_worker._overrides_srun_options, kept.split()))


COMMAND = ["/opt/a b/python", "-m", "preflight"]


def test_a_way_that_ends_in_a_shell_is_quoted_for_it() -> None:
    assert launch_worker._connect_command(["ssh", "-p", "22", "%h"], "n1", COMMAND) == [
        *("ssh", "-p", "22", "n1", "'/opt/a b/python' -m preflight"),
    ]
    assert launch_worker._connect_command(["kubectl", "exec", "-i", "%h", "--"], "n1", COMMAND) == [
        *("kubectl", "exec", "-i", "n1", "--", *COMMAND),
    ]


# --- the orders ---


def test_orders_come_as_they_were_given() -> None:
    flags = Flags(only=("net.*", "a b'\"\n$(x)"), nproc=8, sources={"only": "env PREFLIGHT_ONLY"})
    given = Orders("1", flags, config=("x.toml", 'level = "quick"\n'), token="secret", place="n1")
    assert given.line.count(b"\n") == 1
    assert protocol.parse_orders(given.line) == given


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[]", b'"x"', b'{"version": 1}', b"\xff", b"[" * 9999]
)
def test_what_are_no_orders(line: bytes) -> None:
    with pytest.raises(PreflightError, match="no orders"):
        protocol.parse_orders(line)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\n"])
def test_an_agent_without_orders_does_nothing(said: bytes, tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes(said)
    with (tmp_path / "said").open() as file:
        done = preflight("agent", stdin=file)
    assert (done.code, done.out) == (2, "")
    assert "orders" in done.said


# --- on this machine, by a way that leads nowhere else ---


def test_one_report_of_all() -> None:
    done = hosts("n[1-3]", HERE, "--nproc", "2", *QUICK, "-o", "json")
    assert done.code == 0, done.err
    world = done.document["world"]
    assert [node["ranks"] for node in world["nodes"]] == [[0, 1], [2, 3], [4, 5]]
    assert world["facts"]["nodes"] == {"value": "3", "from": "--hosts"}
    assert world["facts"]["master_addr"]["from"] == "the first of --hosts"
    assert done.document["settings"]["hosts"]["value"] == ["n1", "n2", "n3"]


@pytest.mark.parametrize("columns", ["40", "80"])
def test_the_one_that_is_not_reached_is_named(columns: str) -> None:
    way = shell('if [ $host = n2 ]; then echo "no way to $host" >&2; exit 9; fi; exec "$@"')
    done = hosts("n[1-3]", way, "--nproc", "1", *QUICK, env={"COLUMNS": columns})
    assert done.code == 5, done.err
    words = " ".join(done.out.split())
    assert "nothing came from n2 · no way to n2 · sh ended with exit code 9" in words
    assert words.endswith("do now preflight run --hosts 'n[1,3]' # without n2")


def test_what_a_login_prints_is_no_harm() -> None:
    way = shell(
        'echo "Welcome to $host"; echo "quota: 90 %" >&2; printf "preflight-parcel 1 "; "$@"'
    )
    done = hosts("n[1-2]", way, "--nproc", "1", *QUICK)
    assert done.code == 0, (done.out, done.err)


def test_what_an_agent_dies_of_is_told() -> None:
    way = shell('[ $host = n1 ] || set -- "$1" -c "import nosuchmodule"; "$@"')
    done = hosts("n[1-2]", way, "--nproc", "1", *QUICK)
    assert done.code == 5
    assert "No module named 'nosuchmodule'" in " ".join(done.out.split())


def test_the_flags_and_the_config_file_of_this_place_are_those_of_all(tmp_path: Path) -> None:
    """And not those of that machine."""
    file = tmp_path / "a b.toml"
    file.write_text('[tolerate."host.limits"]\nwhy = "known"\nuntil = 2999-01-31\n')
    flags = ("--nproc", "1", *QUICK, "--expect", "nofile=1000000000", "--config", str(file))
    way = shell('PREFLIGHT_STRICT=1 PREFLIGHT_HOSTS=x exec "$@"')
    done = hosts("n[1-2]", way, *flags, "-o", "json")
    assert done.code == 0, (done.out, done.err)
    assert done.document["tolerated"] == ["host.limits"]
    assert [f["status"] for f in done.document["findings"]] == ["warn"]


def test_a_token_is_in_no_list_of_processes(tmp_path: Path) -> None:
    way = shell(f'ps -ww -e -o args= > {tmp_path}/$host; "$@"')
    env = {"PREFLIGHT_TOKEN": "s3cret-s3cret"}
    assert hosts("n1", way, "--nproc", "1", *QUICK, env=env).code == 0
    assert "preflight agent" in (tmp_path / "n1").read_text()
    assert "s3cret" not in (tmp_path / "n1").read_text()


def test_gate_starts_cmd_once_and_here() -> None:
    way = ("--hosts", "n[1-2]", "--connect", HERE, "--nproc", "1", *QUICK, "-q")
    done = preflight("gate", *way, "--", "sh", "-c", "echo started; exit 7")
    assert (done.code, done.out.count("started")) == (7, 1), done.err
    lacking = ("--expect", "nofile=1000000000")
    done = preflight("gate", *way, *lacking, "--", "sh", "-c", "echo started")
    assert (done.code, done.out.count("started")) == (3, 0)


# --- twelve thousand nodes ---

MANY = "gpu-with-a-long-name[00001-12500]"
SAID = f"srun: error: Nodes {MANY} are still not ready"
SRUN = """#!{python}
import os, sys
with open("{folder}/calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if not any(word.startswith("--exclude=") for word in sys.argv):
    for number in range(1, 12500, 2):
        said = f"srun: error: Task launch failed on node gpu-with-a-long-name{{number:05}}: Down"
        print(said, file=sys.stderr)
for _ in range(8):
    print("{said}", file=sys.stderr)
"""


@pytest.mark.slow
def test_srun_says_something_of_each_of_so_many_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them can't be had, and it is started again without them, whose names are more than
    Linux takes in one word. Were each line read again for each node, it would take an hour."""
    srun = tmp_path / "srun"
    srun.write_text(SRUN.format(python=sys.executable, folder=tmp_path, said=SAID))
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    names = list(nodeset.expand(MANY))
    places = {name: collect.RemoteNode(name, number) for number, name in enumerate(names)}
    gathering = collect.Gathering("srun", True, places)
    begun = []
    args = {"hosts": names, "options": [], "command": ["true"], "orders": ""}
    with agent.session(Interrupt()) as workers:
        open_light(workers)
        workers.relaying = True
        more = {"label": "srun", "group": "fanout", "limit": 1 << 28}
        call = workers.call(LIGHT, launch_worker.by_srun, args, seconds=100.0, **more)
        while call.result is None:
            for _ in workers.run(time.monotonic() + 1.0):
                pass
            for _, told in workers.heard:
                gathering.hear(told.topic, told.value)
                begun += [len(told.value)] if told.topic == "begun" else []
            workers.heard.clear()
    assert isinstance(call.result, Returned), call.result
    assert begun == [12500, 6250]
    assert [p.name for p in gathering.places.values() if p.failed] == names[::2]
    assert all(place.over for place in gathering.places.values())
    assert gathering.places[names[1]].words == "\n".join([SAID] * launch_worker.KEPT_LINES)
    first, again = (tmp_path / "calls").read_text().splitlines()
    assert "--exclude=" not in first
    assert "--exclude=gpu-with-a-long-name[00001,00003," in again


@pytest.mark.parametrize(
    ("flags", "environ", "said"),
    [
        (["--hosts", "n[1-12500]"], {}, "12500 hosts; there may be 1 to 4096"),
        (
            ["--slurm", "--nproc", "1"],
            {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-12500]", "PATH": "/nonexistent"},
            "srun can't be started",
        ),
    ],
)
def test_srun_reaches_more_nodes_than_ssh(
    flags: Sequence[str], environ: Mapping[str, str], said: str
) -> None:
    """Of which each is a process here."""
    done = preflight("run", *flags, env=environ)
    assert done.code == 2
    assert said in done.said


# --- it ends, whatever happens ---


def launched(
    way: str, monkeypatch: pytest.MonkeyPatch, names: str = "n[1-3]", **seconds: float
) -> tuple[agent.Ending, float]:
    """A run in this process, where its patience can be less."""
    for name, value in seconds.items():
        module = launch_worker if hasattr(launch_worker, name) else fanout
        monkeypatch.setattr(module, name, value)
    flags = Flags(level="quick", only=("host.limits",), nproc=1, deadline="1s")
    launch = fanout.launch_of(flags, False, names, way)
    began = time.monotonic()
    interrupt = Interrupt()
    with agent.session(interrupt) as workers:
        wish = Wish(flags, config_file="/dev/null")
        ended = fanout.ending_of(wish, launch, workers, interrupt, lambda progress: None)
    return ended, time.monotonic() - began


SHORT = {"START_SECONDS": 60.0, "LATE_SECONDS": 1.0, "ENDING_SECONDS": 0.5, "END_SECONDS": 4.0}


def absent(ended: agent.Ending) -> list[tuple[str, str]]:
    assert ended.report is not None
    return [(s.node, f.saw) for f in ended.report.findings for s in f.subjects]


@pytest.mark.slow
def test_one_way_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    way = shell('[ $host != n2 ] || exec sleep 1000; exec "$@"')
    ended, seconds = launched(way, monkeypatch, **SHORT)
    assert ended.verdict is Verdict.INCOMPLETE
    ((name, saw),) = absent(ended)
    assert name == "n2"
    assert "no report came as long as sh was waited for" in saw
    assert seconds < 40


@pytest.mark.slow
def test_all_ways_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, seconds = launched(
        shell("exec sleep 1000"), monkeypatch, **{**SHORT, "START_SECONDS": 0.5}
    )
    assert ended.verdict is Verdict.INCOMPLETE
    assert [name for name, _ in absent(ended)] == ["n1", "n2", "n3"]
    assert seconds < 40


@pytest.mark.slow
def test_a_flood_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lines, and of one that does not end; the others are heard all the same."""
    flood = (
        "case $host in n1) exec yes preflight-parcel 1 0123456789abcdef 1/2 QUJD;; "
        "n2) exec tr '\\\\0' x < /dev/zero;; esac; exec \"$@\""
    )
    kept: list[int] = []
    hear = fanout.Gathering.hear

    def heard(self: fanout.Gathering, topic: str, value: object) -> None:
        hear(self, topic, value)
        kept.append(len(str(value)))

    monkeypatch.setattr(fanout.Gathering, "hear", heard)
    ended, seconds = launched(shell(flood), monkeypatch, "n[1-5]", **SHORT)
    assert [name for name, _ in absent(ended)] == ["n1", "n2"]
    assert max(kept) < 4096
    assert seconds < 60


SLOW = ("--nproc", "1", "--only", "host.limits,net.name", "--deadline", "30s")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_when_this_place_is_ended(number: signal.Signals) -> None:
    """The agents wait for each other at a meeting that nobody holds."""
    running = start(
        "run", "--hosts", "n[1-2]", "--connect", HERE, *SLOW, "--meet", "192.0.2.1:29500"
    )
    running.listening()
    until = time.monotonic() + 30
    while not agents_of(running.tag) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.5)
    running.process.send_signal(number)
    done = running.end()
    assert done.left == ()
    assert done.code == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -9), done.err
    if number is not signal.SIGKILL:
        assert f"interrupted by {number.name}" in done.out


def agents_of(tag: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"RUN_OF_A_TEST={tag}".encode() in (folder / "environ").read_bytes()
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if ours and b"agent" in words:
            found.append(folder.name)
    return found
