"""The hooks as slurmd calls them, on a real cluster: who is drained, with which words, and who not.

Every test that expects a drain has a twin in which the fault is not the node's, and must not.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import slurm
from lab.host import NOBODY
from lab.site import LOW, NODES, Site, built, environment
from support.command import CHECK, observes, planted
from support.pace import slower

pytestmark = pytest.mark.root

SICK = ("prlimit", f"--memlock={LOW}:")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Site]:
    if why := slurm.missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    # a folder of pytest's is closed to other users, whose tasks run the task prolog
    folder = Path(tempfile.mkdtemp(prefix="preflight-site-"))
    try:
        with built(folder) as site:
            yield site
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def site(cluster: Site) -> Iterator[Site]:
    cluster.reset()
    yield cluster
    cluster.install("healthcheck", "#!/bin/sh\n")
    cluster.cluster.cancel()
    cluster.cluster.resume(timeout=30)


# --- the prolog ---


def test_a_healthy_node_runs_the_job(site: Site) -> None:
    ended = site.cluster.run(["srun", "-Q", "-N4", "hostname"], timeout=30)
    assert ended.code == 0, (ended, site.cluster.log("n1")[-2000:])
    said = [line for line in ended.out.splitlines() if line.startswith("preflight: ")]
    assert sorted(set(ended.out.split()) & set(NODES)) == list(NODES)
    assert len(said) == 4, ended.out
    assert all(line.startswith("preflight: READY ") for line in said)
    assert "(n3)" in " ".join(said)
    for node in NODES:
        assert site.cluster.settled(node, "idle") == ("idle", "")
        # what the prolog kept for the task prolog has gone with the epilog, and no log has stayed
        until = time.monotonic() + 10
        while (left := site.cluster[node].sh("ls /run/preflight")) and time.monotonic() < until:
            time.sleep(0.1)
        assert left in ("", "controller-asked\n")
        assert site.syslog(node) == ""


def test_the_user_of_a_job_is_told_once_a_node(site: Site) -> None:
    argv = ["srun", "-Q", "-w", "n1", "-n", "3", "true"]
    ended = site.cluster.run(argv, timeout=30, user=NOBODY)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("preflight: READY ")
    assert ended.out.endswith("s (n1)\n")
    assert ended.out.count("\n") == 1


def test_a_node_at_fault_is_drained_with_our_reason_and_the_job_waits(site: Site) -> None:
    cluster = site.cluster
    with site.sick("n2"):
        job = cluster.submit("hostname\n", "-w", "n2")
        state, reason = cluster.settled("n2", "drained", timeout=30)
        assert state == "drained", cluster.log("n2")[-2000:]
        assert reason == (
            "preflight: host.limits locked memory is limited to 64 KiB on n2: too little for RDMA "
            f"[prolog job {job}]"
        )
        held = ("PENDING", "launch_failed_requeued_held")
        assert cluster.ended(job, "PENDING", timeout=10) == held
    # one line, the same, in syslog
    assert site.syslog("n2") == reason
    assert [cluster.state(n)[0] for n in ("n1", "n3", "n4")] == ["idle"] * 3
    # the whole report is there for whoever comes to look
    argv = [str(site.python), "-m", "preflight", "show", "/run/preflight/bad.json"]
    shown = cluster.run(argv, timeout=30, at="n2").out
    assert "NOT READY" in shown
    assert "memlock_gib" in shown


def test_a_lost_gpu_drains_whatever_the_job_may_see(site: Site) -> None:
    with site.gpus("n3", {"gpu1.error": 15}):
        assert site.run("n3", CUDA_VISIBLE_DEVICES="0").code != 0
        state, reason = site.cluster.settled("n3", "drained")
    assert state == "drained"
    assert reason.startswith("preflight: gpu.visible GPU 1 ")
    assert "GPU is lost" in reason


def test_healthy_gpus_and_a_mask_of_the_job_that_names_none(site: Site) -> None:
    with site.gpus("n3", {}):
        ended = site.run("n3", CUDA_VISIBLE_DEVICES="7")
    assert ended.code == 0, (ended, site.cluster.state("n3"))
    assert site.cluster.settled("n3", "idle") == ("idle", "")


def test_a_driver_that_hangs_is_told_in_time(site: Site) -> None:
    with site.gpus("n3", {"hang.nvmlInit": 1}):
        ended = site.run("n3")
        assert ended.code != 0
        assert ended.seconds < 8
        state, reason = site.cluster.settled("n3", "drained")
    assert (state, "the NVIDIA driver of n3 hangs" in reason) == ("drained", True), reason


def test_a_driver_that_may_just_be_slow_drains_nobody(site: Site) -> None:
    """Without its daemon it wakes every GPU again: that is named as the other explanation."""
    with site.gpus("n3", {"hang.nvmlInit": 1}):
        site.cluster["n3"].sh("rm -r /run/nvidia-persistenced")
        ended = site.run("n3")
    assert ended.code == 0, (ended, site.cluster.state("n3"))
    # 8 s are the prolog's; the job that it lets through starts and ends in the same measure
    assert ended.seconds < 12
    assert site.cluster.settled("n3", "idle") == ("idle", "")


@pytest.mark.parametrize(
    "variables",
    [
        {"MASTER_ADDR": "nowhere.invalid", "MASTER_PORT": "1"},
        {"NCCL_SOCKET_IFNAME": "ens99", "GLOO_SOCKET_IFNAME": "ens99"},
        {"TMPDIR": "/nowhere", "INIT_METHOD": "file:///nowhere/init", "RANK": "9"},
        {"PREFLIGHT_EXPECT": "nofile=999999999", "PREFLIGHT_CONFIG": "/nowhere"},
    ],
    ids=lambda v: next(iter(v)),
)
def test_settings_of_the_job_drain_nothing(site: Site, variables: dict[str, str]) -> None:
    ended = site.run("n1", **variables)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "n1"), ended
    assert site.cluster.settled("n1", "idle") == ("idle", "")
    assert site.syslog("n1") == ""


def test_a_reason_of_an_administrator_stays(site: Site) -> None:
    """The node is drained between the allocation and our look at it."""
    cluster = site.cluster
    drain = ["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan roars"]
    assert cluster.run(drain, timeout=20).code == 0
    ended = site.by_hand("prolog", "n2", *SICK, SLURM_JOB_ID="77")
    assert ended.code == 1, "the job must not begin there all the same"
    assert cluster.state("n2") == ("drained", "fan roars")
    log = cluster["n2"].sh("cat /run/preflight/prolog-77.log")
    assert "no reason set: drained already: fan roars" in log


# --- faults of our own ---


def crash(site: Site, folder: Path, how: str) -> None:
    """A preflight that is broken in this way, behind the script of a whole one."""
    package = planted(folder / "package")
    ours = package / "preflight"
    if how == "a check with a syntax error":
        (ours / "checks/host_limits.py").write_text("def observe(:\n")
    elif how == "a check that kills its process":
        text = observes("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
        (ours / "checks/planted_segfault.py").write_text(text)
    elif how == "a judge that raises":
        text = CHECK.replace("return ()", "raise RuntimeError('ours')")
        (ours / "checks/planted_raises.py").write_text(text)
    elif how == "a module with a syntax error":
        (ours / "engine/agent.py").write_text("def run(:\n")
    elif how == "a bug":
        hook = ours / "slurm/node_check.py"
        hook.write_text(hook.read_text() + "\n1 / 0\n")
    elif how == "typer is missing":
        (package / "typer.py").write_text("raise ImportError('typer')\n")
    elif how == "torch is broken":
        (package / "torch.py").write_text("raise SystemExit(3)\n")
    elif how == "a bad config file":
        site.cluster["n1"].sh("echo 'expct = 1' > /etc/preflight/config.toml")
    python = environment(folder / "venv", package)
    if how == "no virtual environment":
        shutil.rmtree(folder / "venv")
    elif how == "preflight is missing":
        shutil.rmtree(ours)
    elif how == "a Python that is none":
        python.unlink()
        python.write_text("no ELF\n")
    for hook in ("prolog", "epilog", "task-prolog"):
        site.install(hook, site.scripts[hook].replace(str(site.python), str(python)))


SAYS = {
    "no virtual environment": "prolog: no verdict, exit code 127",
    "a Python that is none": "prolog: no verdict, exit code 126",
    "preflight is missing": "prolog: no verdict, exit code 1",
    "typer is missing": "prolog: no verdict, exit code 1",
    "a module with a syntax error": "prolog: no verdict, exit code 1",
    "a check with a syntax error": "could not look: host.limits",
    "a check that kills its process": "could not look: planted.segfault",
    "a judge that raises": "could not look: planted.raises",
    "a bug": "",
    "torch is broken": "",
    "a bad config file": "",
}
"""What syslog says of each: that we are blind is never silent, where it is not the log's to say."""


@pytest.mark.parametrize("how", SAYS)
def test_a_fault_of_ours_lets_the_job_run(site: Site, tmp_path: Path, how: str) -> None:
    crash(site, tmp_path, how)
    ended = site.run("n1")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "n1"), ended
    assert site.cluster.settled("n1", "idle") == ("idle", "")
    said = site.syslog("n1")
    assert SAYS[how] in said
    logs = site.cluster["n1"].sh("cat /run/preflight/prolog-*.log 2>/dev/null || true")
    assert bool(said or logs) is (how != "torch is broken"), "we were blind and nobody is told"


DEAF = observes("""
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:  # holds all that it was given, in a session of its own
        os.setsid()
    while True:
        time.sleep(600)
""").replace("budget=0.5", "budget=60.0")


def test_a_probe_that_hangs_is_over_in_time_and_accuses_nobody(site: Site, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", planted(tmp_path / "package", planted_hang=DEAF))
    script = site.scripts["prolog"].replace(str(site.python), str(python))
    # a machine of half the speed, and busy, may need all of it to start Python
    assert "timeout -k 1 7 " in script
    site.install("prolog", script.replace("timeout -k 1 7 ", f"timeout -k 1 {7 * slower():.0f} "))
    ended = site.run("n1")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "n1"), ended
    assert 3 < ended.seconds < 3 + 5 * slower()
    assert site.cluster.settled("n1", "idle") == ("idle", "")
    assert "could not look: planted.hang" in site.syslog("n1")
    assert "-m preflight" not in " ".join(site.cluster["n1"].processes().values())


def test_a_preflight_that_hangs_is_ended_by_the_script(site: Site, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 93; done\n")
    python.chmod(0o755)
    site.install("prolog", site.scripts["prolog"].replace(str(site.python), str(python)))
    ended = site.run("n1")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "n1"), ended
    assert 7 < ended.seconds < 8 + 4 * slower(), "8 s for the prolog, and what srun takes"
    assert site.cluster.settled("n1", "idle") == ("idle", "")
    assert "prolog: no verdict, exit code 137" in site.syslog("n1")


# --- the health check ---


def test_the_health_check_drains_and_takes_back(site: Site) -> None:
    cluster = site.cluster
    site.install("healthcheck", site.scripts["healthcheck"])
    with site.sick("n4"):
        state, reason = cluster.settled("n4", "drained", timeout=30)
        assert state == "drained", cluster.log("n4")[-2000:]
        said = "locked memory is limited to 64 KiB on n4: too little for RDMA"
        assert reason == f"preflight: host.limits {said} [healthcheck]"
    assert cluster.settled("n4", "idle", timeout=30) == ("idle", "")
    assert f"back in service, healthy again; it was drained for: {reason}" in site.syslog("n4")


@pytest.mark.parametrize(
    "reason",
    [
        "fan roars",
        "Prolog error",
        "see preflight: host.limits full [prolog job 1]",
        "preflight: net.rdma mlx5_2 port 1 Down [prolog job 1]",  # nobody has looked at that
        "preflight: ask Jo first",
    ],
)
def test_the_health_check_leaves_all_others_drained(site: Site, reason: str) -> None:
    drain = ["scontrol", "update", "NodeName=n4", "State=DRAIN", f"Reason={reason}"]
    assert site.cluster.run(drain, timeout=20).code == 0
    ended = site.by_hand("healthcheck", "n4")
    assert ended.code == 0, ended
    assert site.cluster.state("n4") == ("drained", reason)


def test_a_node_drained_by_us_that_is_still_sick_stays_drained(site: Site) -> None:
    cluster, reason = site.cluster, "preflight: host.limits low [prolog job 1]"
    drain = ["scontrol", "update", "NodeName=n4", "State=DRAIN", f"Reason={reason}"]
    assert cluster.run(drain, timeout=20).code == 0
    assert site.by_hand("healthcheck", "n4", *SICK).code == 0
    assert cluster.state("n4") == ("drained", reason)
    assert site.by_hand("healthcheck", "n4").code == 0
    assert cluster.settled("n4", "idle") == ("idle", "")


def test_hooks_end_where_the_controller_does_not_answer(site: Site) -> None:
    """As before slurmd has registered, or while slurmctld is away. It listens, but sleeps."""
    daemon = site.cluster.daemons["slurmctld"]
    daemon.stop()
    try:
        for hook in ("prolog", "healthcheck"):
            ended = site.by_hand(hook, "n4", *SICK, SLURM_JOB_ID="78")
            assert ended.code == (1 if hook == "prolog" else 0)
            assert ended.seconds < 8
            log = site.cluster["n4"].sh(f"cat /run/preflight/{hook}-78.log")
            assert "no reason set: no answer of scontrol in time" in log
    finally:
        daemon.cont()


# --- the epilog ---

LEAVES = """
import os, socket, sys, time
open("/dev/shm/nccl-AbCdEf", "wb").write(bytes(2 << 20))
if os.fork():
    time.sleep(0.5)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
for number in (0, 1, 2):  # else srun would wait for it
    os.dup2(os.open("/dev/null", os.O_RDWR), number)
line = socket.create_server(("", 29533))
kept = open("/dev/nvidia0", "rb")
time.sleep(600)
"""


def test_the_epilog_names_what_a_job_has_left(site: Site) -> None:
    """A process that got away from its job, as a daemon does: it holds a GPU and a port."""
    n2 = site.cluster["n2"]
    n2.sh("[ -e /dev/nvidia0 ] || mknod -m 666 /dev/nvidia0 c 1 3")
    folder = site.folder / "job"
    folder.mkdir(exist_ok=True)
    (folder / "leaves.py").write_text(LEAVES)
    try:
        # the system's own Python: the one of these tests may be closed to others than root
        argv = ["srun", "-Q", "-w", "n2", "/usr/bin/python3", str(folder / "leaves.py")]
        ended = site.cluster.run(argv, timeout=30, user=NOBODY)
        assert ended.code == 0, ended
        until = time.monotonic() + 20
        while "[epilog job" not in site.syslog("n2") and time.monotonic() < until:
            time.sleep(0.1)
        said = site.syslog("n2")
        assert f"preflight: uid {NOBODY} left pid " in said, site.cluster.log("n2")[-2000:]
        assert "leaves.py holds /dev/nvidia0, port 29533" in said
        assert "1 file (2 MiB) in /dev/shm: nccl-AbCdEf" in said
        assert site.cluster.settled("n2", "idle") == ("idle", ""), "it is no reason to drain"
    finally:
        n2.sh("rm -f /dev/shm/nccl-AbCdEf /dev/nvidia0; pkill -f '[l]eaves.py' || true")


# --- how long it takes ---


def test_a_prolog_takes_no_longer_than_a_few_starts_of_python(site: Site) -> None:
    """0.28 s on a quiet machine, seven starts of Python. Others may be at work here, so it is held
    against what bare interpreters take in between."""
    env = {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "79"}

    def seconds(*argv: str) -> float:
        ended = site.cluster["n1"].run(argv, timeout=30, env=env)
        assert ended.code == 0, ended
        return ended.seconds

    script, python = str(site.folder / "prolog.sh"), str(site.python)
    pairs = [(seconds(script), seconds(python, "-I", "-c", "pass")) for _ in range(7)]
    prolog, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    assert prolog < 12 * bare, pairs
