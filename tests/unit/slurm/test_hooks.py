"""The hooks: what they decide and say of a node, and what of a job that has ended."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.cases import topology

from preflight import check, registry
from preflight.domains.system import container
from preflight.headline import begun, finished
from preflight.host import Host
from preflight.model import (
    Blame,
    Confidence,
    Finding,
    Kind,
    Observations,
    Report,
    Row,
    Status,
    Subject,
    Verdict,
)
from preflight.slurm import messages, node_check
from preflight.slurm.leftovers import leftovers_of

HERE = Subject(Kind.NODE, "n1")
BAD = Finding(
    "bad",
    Status.FAIL,
    (HERE,),
    saw="/dev/shm can't be written",
    blame=Blame.NODE,
    check="host.limits",
    headline="/dev/shm can't be written",
)


def report(*findings: Finding, verdict: Verdict = Verdict.NOT_READY, **changes: Any) -> Report:
    rows = tuple(Row(f.check, "machine", "node", f.status, 0.1, {"n1": f.status}) for f in findings)
    seen = Observations({}, "2026-11-21T12:00:00Z", 0.12, {}, topology(1), {})
    made = {"rows": rows, "findings": findings, "observations": seen, "exclude": ("n1",)}
    return Report(verdict, 3, **(made | changes))


# --- who is at fault ---


def test_a_fault_of_this_node_is_one() -> None:
    assert messages.drain_findings(report(BAD), "n1") == (BAD,)


@pytest.mark.parametrize(
    "changes",
    [
        *({"blame": blame} for blame in Blame if blame is not Blame.NODE),
        *({"status": status} for status in Status if status is not Status.FAIL),
        {"confidence": Confidence.POSSIBLE},
        {"confidence": Confidence.LIKELY, "alternatives": ("GPUs that wake slowly",)},
        {"subjects": (Subject(Kind.NODE, "n2"),)},
        {"subjects": (Subject(Kind.JOB),)},
    ],
    ids=str,
)
def test_nothing_else_is(changes: Mapping[str, Any]) -> None:
    assert messages.drain_findings(report(BAD.with_(**changes)), "n1") == ()


def test_what_is_tolerated_is_none() -> None:
    """judge/verdict.py makes a warning of it, and names nobody in `exclude`."""
    assert messages.drain_findings(report(BAD, exclude=()), "n1") == ()


# --- the reason ---


def test_the_reason_names_check_device_and_job() -> None:
    gpu = Subject(Kind.GPU, "n1", "GPU 5", (5,))
    said = "GPU 5 on n1 needs a reset"
    lost = BAD.with_(check="gpu.visible", subjects=(gpu,), headline=said)
    assert messages.drain_reason((lost,), "prolog job 48130") == (
        "preflight: gpu.visible GPU 5 on n1 needs a reset [prolog job 48130]"
    )
    both = messages.drain_reason((lost, BAD, BAD), "healthcheck")
    assert both.endswith("needs a reset (also host.limits) [healthcheck]")


HOSTILE = st.text(max_size=400)


@settings(deadline=None)
@given(said=HOSTILE, name=HOSTILE, more=st.booleans())
def test_a_reason_is_one_bounded_line_that_we_know_again(said: str, name: str, more: bool) -> None:
    """Whatever a device or a file system is called."""
    headline = finished(begun("{at}: {seen}", said, {}), [Subject(Kind.NIC, "n1", name)])
    assume("(also" not in headline)
    first = BAD.with_(headline=headline)
    second = BAD.with_(check="net.port")
    text = messages.drain_reason((first, second)[: 1 + more], "prolog job 7")
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 220
    assert '"' not in text
    shown = f"NodeName=n1 State=MIXED+DRAIN Weight=1 Reason={text} [root@2026-11-21T23:14:44]"
    for after in ("", "\n\n", " Comment=hi [there] Extra=x"):
        state = messages.state_of(shown + after)
        assert state is not None
        assert (state.drained, state.reason) == (True, text)
        assert messages.may_resume(state, ["host.limits", "net.port"])
        assert not messages.may_resume(state, ["net.port"])
        assert messages.may_resume(state, ["host.limits"]) is not more


# --- slurmctld's words ---

IDLE = "NodeName=n1 Arch=x86_64 State={} ThreadsPerCore=1 Partitions=all {}\n\n"
OURS = "Reason=preflight: host.limits /dev/shm is gone [prolog job 3] [root@2026-11-21T23:14:44]"
THEIRS = "Reason=fan roars [jo@2026-11-21T23:14:44]"


@pytest.mark.parametrize(
    ("text", "drain", "resume"),
    [
        (IDLE.format("IDLE", ""), True, False),
        (IDLE.format("IDLE*", ""), True, False),
        (IDLE.format("ALLOCATED+COMPLETING", ""), True, False),
        (IDLE.format("IDLE+DRAIN", OURS), False, True),
        (IDLE.format("MIXED+DRAIN+COMPLETING", OURS), False, True),
        (IDLE.format("DOWN+DRAIN+NOT_RESPONDING", OURS), False, True),
        (IDLE.format("DOWN", OURS), True, False),
        (IDLE.format("IDLE+DRAIN", THEIRS), False, False),
        (IDLE.format("IDLE+DRAIN", "Reason=Prolog error [root@2026-11-21T23:14:44]"), False, False),
        (IDLE.format("IDLE+DRAIN", ""), False, False),
        (IDLE.format("DOWN", THEIRS), False, False),
        (IDLE.format("IDLE+DRAIN", THEIRS.replace("fan", "preflight: fan")), False, False),
        (IDLE.format("IDLE+DRAIN", OURS.replace("=pre", "=see pre")), False, False),
    ],
)
def test_whose_a_drain_is(text: str, drain: bool, resume: bool) -> None:
    state = messages.state_of(text)
    assert state is not None
    assert messages.may_drain(state) is drain
    assert messages.may_resume(state, ["host.limits"]) is resume


def test_a_check_with_a_digit_in_its_name() -> None:
    reason = OURS.replace("host.limits", "gpu.p2p").replace("gone", "gone (also net.port, a.b2c)")
    state = messages.state_of(IDLE.format("IDLE+DRAIN", reason))
    assert state is not None
    assert messages.may_resume(state, ["gpu.p2p", "net.port", "a.b2c"])
    assert not messages.may_resume(state, ["gpu.p2p"])


def test_what_is_no_answer_is_none() -> None:
    for text in ("", "Node n9 not found\n", "slurm_load_node error: Unable to contact"):
        assert messages.state_of(text) is None


@pytest.mark.parametrize(
    "name", ["ALL", "all", "n[1-4]", "n1,n2", "", "-n1", "n1 n2", "n1\nState=DOWN", "é", "a" * 300]
)
def test_what_may_stand_for_several_nodes_is_no_name(name: str) -> None:
    assert messages.node_name(name) == ""
    assert messages.node_name("gpu-b07.cluster_1") == "gpu-b07.cluster_1"


@pytest.mark.parametrize("text", ["", "1_2", "../1", "-1", "١", "9" * 30, "1 2"])
def test_what_is_no_job_number_names_no_file(text: str) -> None:
    assert messages.job_number(text) == ""


# --- what the user sees ---


def test_the_line_for_the_jobs_output() -> None:
    healthy = report(verdict=Verdict.READY)
    assert messages.summary(healthy) == "READY 0 checks 0.1s (n1)"
    bad = report(BAD.with_(status=Status.WARN, check="net.port"), BAD)
    assert messages.summary(bad) == "NOT READY host.limits:bad /dev/shm can't be written (n1)"
    hostile = messages.summary(report(BAD.with_(headline="a\nexport X=1\x1b[31m" + "b" * 999)))
    assert "\n" not in hostile
    assert "\x1b" not in hostile
    assert len(hostile) <= 220


# --- the checks of a hook ---


def test_the_checks_that_drain() -> None:
    """Each has said so: a new check drains nothing."""
    draining = {loaded.id for loaded in registry.load() if loaded.check.drains}
    gpu, host = {"gpu.visible", "gpu.health", "gpu.links"}, {"host.limits", "host.storage"}
    assert draining == gpu | host | {"net.interface", "net.port", "net.rdma"}
    assert not check.Check(check.Scope.NODE, check.Stage.MACHINE, 1.0).drains


def test_of_the_environment_stays_what_names_the_node() -> None:
    kept = {"PATH": "/bin", "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "3"}
    job = {"CUDA_VISIBLE_DEVICES": "7", "MASTER_ADDR": "x", "PREFLIGHT_ONLY": "y", "HOME": "/h"}
    comment = {"SLURM_JOB_COMMENT": "$(reboot)", "NCCL_DEBUG": "INFO", "TMPDIR": "/gone"}
    environ = kept | job | comment
    node_check.forget_the_job(environ)
    assert environ == kept | {
        "LANG": "C.UTF-8",
        "SLURM_SCRIPT_CONTEXT": "health_check_slurmd",
    }


@pytest.mark.parametrize("context", ["prolog_slurmd", "epilog_slurmd", "health_check_slurmd"])
def test_a_node_whose_image_was_a_container_is_a_node(tmp_path: Path, context: str) -> None:
    """Images of nodes are made of containers, and keep their signs; a job may be in a real one."""
    (tmp_path / ".dockerenv").touch()
    assert container.kind(Host(str(tmp_path), {})) == "container"
    assert container.kind(Host(str(tmp_path), {"SLURM_SCRIPT_CONTEXT": context})) == ""
    task = {"SLURM_SCRIPT_CONTEXT": "prolog_task"}  # tasks of SLURM 22.05 and later have it
    assert container.kind(Host(str(tmp_path), task)) == "container"


# --- the epilog ---


class Marks:
    def mark(self, name: str) -> None:
        pass


def process(
    root: Path, pid: int, uid: int, files: Sequence[str], job: str = "", more: str = ""
) -> None:
    folder = root / f"proc/{pid}"
    (folder / "fd").mkdir(parents=True)
    (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cmdline").write_text("python\0train.py\0--token=secret\0")
    said = ["HOME=/h", *([f"SLURM_JOB_ID={job}"] if job else []), *([more] if more else [])]
    (folder / "environ").write_text("\0".join(said) + "\0")
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  inode
   0: 00000000:735D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 777 1 x
   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 778 1 x
"""


def tree(root: Path) -> Path:
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/tcp").write_text(TCP)
    (root / "dev/shm").mkdir(parents=True)
    for name in ("nccl-a", "torch_b", "other"):
        (root / "dev/shm" / name).write_bytes(bytes(4096))
    return root


def found(root: Path, job: str = "31", uid: int = 1000) -> dict[str, Any]:
    return leftovers_of(Host(str(root)), job, uid, Marks())  # type: ignore[arg-type]


def test_what_a_job_has_left(tmp_path: Path) -> None:
    root = tree(tmp_path)
    process(root, 10, 1000, ["/dev/nvidia3", "/dev/nvidia3", "/dev/nvidiactl"], job="31")
    process(root, 11, 1000, ["socket:[777]", "socket:[778]"])  # it has lost its environment
    process(root, 12, 1000, ["/dev/null"], job="31")
    process(root, 13, 1001, ["/dev/nvidia0", "socket:[777]"])
    process(root, 14, 1000, ["/dev/nvidia0"], more="SLURM_SCRIPT_CONTEXT=epilog_slurmd")
    assert found(root)["processes"] == [
        {"pid": 10, "name": "python train.py", "gpus": ["nvidia3"], "ports": []},
        {"pid": 11, "name": "python train.py", "gpus": [], "ports": [29533]},
    ]
    own = found(root, uid=os.getuid())["files"]
    assert [file["name"] for file in own] == ["nccl-a", "torch_b"]


def test_another_job_of_the_same_user_is_left_alone(tmp_path: Path) -> None:
    root = tree(tmp_path)
    process(root, 10, 1000, ["/dev/nvidia3"], job="31")
    process(root, 11, 1000, ["/dev/nvidia0", "socket:[777]"], job="32")
    process(root, 12, 1000, ["/dev/nvidia1"])
    told = [p["pid"] for p in found(root)["processes"]]
    assert told == [10], "what has no job's name may be 32's"
    process(root, 13, os.getuid(), [], job="32")
    assert found(root, uid=os.getuid())["files"] == []


def test_the_daemons_of_root_belong_to_no_job(tmp_path: Path) -> None:
    root = tree(tmp_path)
    process(root, 10, 0, ["/dev/nvidia0"])
    process(root, 11, 0, ["/dev/nvidia1"], job="31")
    assert [p["pid"] for p in found(root, uid=0)["processes"]] == [11]


def test_the_line_about_leftovers() -> None:
    files = [{"name": f"nccl-{n}", "bytes": 1 << 20} for n in range(5)]
    one = {"pid": 10, "name": "python t.py\n", "gpus": ["nvidia3"], "ports": [29500]}
    text = messages.leftovers({"processes": [one], "files": files}, "31", 1000)
    assert text == (
        "preflight: uid 1000 left pid 10 python t.py  holds /dev/nvidia3, port 29500; "
        "5 files (5 MiB) in /dev/shm: nccl-0, nccl-1, nccl-2, ... [epilog job 31]"
    )
    assert messages.leftovers({"processes": [], "files": []}, "31", 1000) == ""


# --- environments that slurmd gives, by version ---


def recorded(version: str) -> dict[str, str]:
    file = Path(__file__).parents[2] / "data/prologs" / f"prolog-{version}.env"
    lines = (line for line in file.read_text().splitlines() if not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("version", ["22.05", "24.11"])
def test_a_prolog_finds_its_node_and_its_job_whatever_the_version(version: str) -> None:
    environ = recorded(version)
    # the older one calls the list of nodes otherwise: nothing may rest on it
    assert ("SLURM_JOB_NODELIST" in environ) is (version == "24.11")
    node_check.forget_the_job(environ)
    assert messages.node_name(environ["SLURMD_NODENAME"]) == "n1"
    assert messages.job_number(environ["SLURM_JOB_ID"]) == "1"
    assert set(environ) <= {*node_check.KEPT, "LANG"}
