"""`explain TEXT` and `diagnose`: the messages that the checks quote lead to their findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import command

from preflight import registry
from preflight.render.symptoms import (
    as_data,
    candidates,
    candidates_as_data,
    diagnosis,
    known_lines,
    known_message,
    search,
    symptoms,
)

CATALOGUE = registry.load()

# as torch 2.4-2.13, NCCL and slurmd print them; none of these is written anywhere in the checks
LOG = """\
W1122 10:02:11.002 torch/distributed/run.py:792] *****************************************
step 100 loss 2.31 lr 1e-4 took 0.20 s
[rank3]: torch.distributed.DistNetworkError: The client socket has timed out after 61337ms while \
trying to connect to (gpu-b07, 29517).
[default5]:RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by \
peer [10.1.2.3]:40412
4: gpu-b07:4017:4101 [4] misc/socket.cc:51 NCCL WARN Bootstrap : no socket interface found
[rank6]: RuntimeError: DataLoader worker (pid 20713) is killed by signal: Bus error. It is \
possible that dataloader's workers are out of shared memory. Please try to raise your shared \
memory limit.
[rank3]: torch.distributed.DistNetworkError: The client socket has timed out after 90000ms while \
trying to connect to (gpu-b07, 29517).
"""


def test_known_lines_have_their_number_and_rank_and_the_rest_is_left_alone() -> None:
    seen = known_lines(LOG, CATALOGUE)
    assert [(one.number, one.rank, one.count) for one in seen] == [
        *((3, 3, 2), (4, 5, 1), (5, 4, 1), (6, 6, 1)),
    ]
    assert ("net.name", "master-unresolved") in seen[0].findings
    assert ("rdzv.reach", "refused") in seen[0].findings
    assert ("net.interface", "ifname-unmatched") in seen[2].findings
    assert {"host.limits", "world.loader"} <= set(seen[3].checks)


def test_what_is_printed_claims_no_more_than_that_it_was_seen() -> None:
    printed = diagnosis(known_lines(LOG, CATALOGUE), "train.log", 8, 98)
    assert printed.startswith("train.log: 5 of 8 lines known, seen in the log\n")
    assert " line 3 · rank 3 · 2 lines like it\n" in printed
    assert "   run next   preflight run --only rdzv.reach,net.name," in printed
    assert max(map(len, printed.splitlines())) < 140


OUT_OF_MEMORY = """\
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a \
total capacity of 79.18 GiB of which 63.62 GiB is free.
[rank1]:[W1126 06:35:00.152524519 ProcessGroupNCCL.cpp:1575] Warning: WARNING: \
destroy_process_group() was not called before program exit, which can leak resources.
socketProgress: Connection closed by remote peer
E1126 06:35:02.139000 3948 torch/distributed/elastic/multiprocessing/api.py:986] failed \
(exitcode: 1) local_rank: 1 (pid: 4160) of binary: /opt/venv/bin/python3
"""
"""As an H100 and torch 2.11 said it."""


def test_what_is_said_once_a_rank_is_gone_comes_last() -> None:
    printed = diagnosis(known_lines(OUT_OF_MEMORY, CATALOGUE), "log", 4, 80)
    assert printed.count("could be") == 1
    assert " lines 3, 4: said because something else has failed before, so most" in printed
    assert " line 2: harmless\n" in printed
    _, gone = OUT_OF_MEMORY.split("\n", 1)
    assert diagnosis(known_lines(gone, CATALOGUE), "log", 3, 80).count("could be") == 2


@pytest.mark.parametrize(
    "healthy",
    [
        "step 1 loss 0.1",
        "NCCL INFO Connected all rings",
        "Epoch 3: 100%|####| 312/312 [00:12<00:00, 25.1it/s]",
        "INFO: connection to the database refused no more",
        "0 errors, 0 warnings; permission denied for nobody",
        "",
    ],
)
def test_healthy_lines_are_not_known(healthy: str) -> None:
    assert known_lines(healthy, CATALOGUE) == []


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("EADDRINUSE", "net.port:port-leftover"),
        ("throttle", "gpu.health:clocks-throttled"),
        ("Stale file handle", "host.storage:mount-broken"),
        ("Mismatched NCCL version detected", "agree.software:nccl-differs"),
        ("uncorrectable ECC error encountered", "gpu.health:memory-errors"),
        ("Torch not compiled with CUDA enabled", "host.software:cpu-build"),
    ],
)
def test_words_lead_to_the_finding(text: str, first: str) -> None:
    found = search(CATALOGUE, text)
    assert next(f"{loaded.id}:{code}" for loaded, code in found) == first
    printed = candidates(found, known_message(text), text, 80)
    assert f" {first}\n" in printed
    assert f"   preflight run --only {first.partition(':')[0]}\n" in printed


def test_the_beginning_of_an_id_leads_to_its_checks() -> None:
    ids = [loaded.id for loaded, code in search(CATALOGUE, "net") if not code]
    assert ids == [i for i in CATALOGUE.checks if i.startswith("net.")]


@pytest.mark.slow
def test_every_quoted_message_is_found_by_itself() -> None:
    table = symptoms(CATALOGUE)
    assert len(table) > 100
    for symptom in table:
        if "…" not in symptom.words and "{" not in symptom.words and "<" not in symptom.words:
            assert known_lines(f"[rank1]: {symptom.words} x", CATALOGUE), symptom.words


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_any_log_and_any_question_is_answered(text: str) -> None:
    lines = len(text.splitlines())
    assert diagnosis(known_lines(text, CATALOGUE), text, lines, 40)
    assert candidates(search(CATALOGUE, text), known_message(text), text, 40)


def test_the_commands(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff\xfe binary\n" + LOG.encode())
    told = command.preflight("diagnose", str(log))
    assert told.code == 0
    assert " line 4 · rank 3 · 2 lines like it\n" in told.out
    as_json = command.preflight("diagnose", str(log), "-o", "json")
    assert [row["rank"] for row in json.loads(as_json.out)] == [3, 5, 4, 6]
    assert {row["kind"] for row in json.loads(as_json.out)} <= {
        None,
        "error",
        "follows",
        "harmless",
    }
    advice = command.preflight(
        "explain", "Cannot re-initialize CUDA in forked subprocess", "-o", "json"
    )
    assert json.loads(advice.out)["do"].startswith("use the start method 'spawn'")
    gone = command.preflight("diagnose", str(tmp_path / "gone"))
    assert (gone.code, gone.out) == (2, "")
    found = command.preflight("explain", "EADDRINUSE")
    assert (found.code, found.out.splitlines()[0][:12]) == (0, "   means    ")
    assert " net.port:port-held\n" in found.out
    assert command.preflight("explain", "xyzzy").code == 2


# with advice but no check; with both; a consequence; harmless
AS_SCREEN = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must",
    "Signal 9 (SIGKILL) received by PID 20713",
    "RendezvousClosedError",
    "The hostname of the client socket cannot be retrieved. err=-3",
    "the firewall drops packets",
)


@pytest.mark.parametrize("text", AS_SCREEN)
def test_programs_get_what_the_screen_has(text: str) -> None:
    found, message = search(CATALOGUE, text), known_message(text)
    printed = " ".join(candidates(found, message, text, 110).split())
    data = candidates_as_data(found, message)
    assert data["means"] is None or data["means"] in printed
    assert (" do " in f" {printed}") == (data["do"] is not None and data["do"] in printed)
    listed = data["findings"]
    assert isinstance(listed, list)
    assert len(listed) == printed.count(" preflight r")
    for row in listed:
        assert row["cause"] in printed
        assert row["next"][0] in printed
    seen = known_lines(f"[rank1]: {text}", CATALOGUE)
    assert bool(seen) == (message is not None)
    told = " ".join(diagnosis(seen, "log", 1, 110).split())
    for row in as_data(seen):
        assert row["means"] == data["means"]
        assert row["do"] == data["do"]
        assert row["kind"] == data["kind"]
        assert row["later"] == (row["kind"] == "follows")
        assert all(f" run next {step} " in f"{told} " for step in row["next"][:1])
        assert row["means"] in told


REPORTED = {
    "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect "
    "to (GPU03, 29500).": "rdzv.reach:refused",
    "[W1226 15:44:31.548330712 TCPStore.cpp:358] [c10d] TCP client failed to connect/validate to "
    "host sws-8h100grid-05:8000 - retrying (try=0, timeout=600000ms, delay=77116ms): The client "
    "socket has timed out after 600000ms while trying to connect to (h5, 8000).": (
        "rdzv.reach:dropped"
    ),
    "host-01:2210 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection "
    "timed out, on dev mlx_x:1, curr state INIT, next state RTR": "net.rdma:gid-unusable",
    "[rank4]:[E321 02:07:08.414640780 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, "
    "Timeout(ms)=600000) ran for 600067 milliseconds": "job.collectives:collective-mismatch",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks "
    "have been OOM Killed.": "job.ranks:rank-oom",
    "slurmstepd: error: Detected 2 oom-kill event(s) in step 3756240.batch cgroup.": (
        "job.ranks:rank-oom"
    ),
    "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-01-01T00:00:00 "
    "DUE TO TIME LIMIT ***": ("job.collectives:"),
    "slurmstepd: error: *** STEP 4711.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE n4 "
    "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***": "rdzv.reach:lost",
    "srun: error: Node failure on n4": "rdzv.reach:lost",
    "srun: error: Task launch for StepId=4711.0 failed on node n4: Communication connection "
    "failure": "rdzv.reach:not-launched",
    "/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed                  python3 "
    "main.py": "job.ranks:rank-oom",
    "h1:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer "
    "10.0.0.6<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)": (
        "net.rdma:errors-growing"
    ),
    "srun: error: sdumont6156: task 0: Out Of Memory": "job.ranks:rank-oom",
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has "
    "a total capacity of 79.18 GiB of which 63.62 GiB is free.": "job.ranks:rank-gpu-oom",
    "[rank1]: torch.AcceleratorError: CUDA error: device-side assert triggered": (
        "job.ranks:rank-cuda-error"
    ),
    "NET/Socket : peer 10.0.0.2<40620> message truncated : receiving 524288 bytes instead of "
    "65536. If you believe your socket network is in a healthy state, there may be a mismatch in "
    "collective sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO)": (
        "job.collectives:collective-mismatch"
    ),
    "Error : no algorithm/protocol available for function AllGather with datatype ncclInt8. "
    "NCCL_ALGO was set to Tree.": "env.vars:algorithm-unavailable",
    "No algorithm/protocol nor symKernelId available for function Broadcast with datatype "
    "ncclInt8. NCCL_ALGO was set to allreduce:tree. NCCL_PROTO was set to Simple.": (
        "env.vars:algorithm-unavailable"
    ),
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/"
    "c10d/ProcessGroupNCCL.cpp:3780, remote process exited or there was a network error, NCCL "
    "version 2.28.9": "job.ranks:rank-raised",
    "[rank0]: socketProgress: Connection closed by remote peer": "job.ranks:rank-exited",
    "E1126 06:34:57.545000 4008 torch/distributed/elastic/multiprocessing/api.py:986] failed "
    "(exitcode: 7) local_rank: 1 (pid: 4143) of binary: /opt/venv/bin/python3": (
        "job.ranks:rank-exited"
    ),
    "KeyError: 'LOCAL_RANK'": "job.ranks:not-launched",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": "job.ranks:rank-cuda-error",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": (
        "job.ranks:rank-gpu-oom"
    ),
    "RuntimeError: DataLoader worker (pid 34569) is killed by signal: Bus error. Details are lost "
    "due to multiprocessing.": "host.limits:shm-full",
    "RuntimeError: DataLoader worker (pid(s) 411948) exited unexpectedly": (
        "world.loader:worker-died"
    ),
    "RuntimeError: DataLoader worker (pid 12847) is killed by signal: Killed.": (
        "world.loader:worker-died"
    ),
}
"""Lines of public reports of users: of torch 1.13 to 2.13, NCCL 2.21 to 2.27, SLURM."""

UNKNOWN = (
    "W1226 15:44:31.548330712 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment "
    "variable for each process to be 1 in default",
    "dgxh100-3:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0<0>",
    "dgxh100-3:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0",
    "Epoch 0:   6%| 32040/500150 [6:28:43<94:39:17,  1.37it/s, loss=2.6, v_num=95nc]",
    "saving checkpoint to /data/run/step_1000.pt done in 4.1 s",
    "srun: Job 4711 step creation temporarily disabled, retrying (Requested nodes are busy)",
)


@pytest.mark.parametrize(("line", "finding"), REPORTED.items(), ids=range(len(REPORTED)))
def test_lines_that_users_have_reported(line: str, finding: str) -> None:
    (seen,) = known_lines(line, CATALOGUE)
    assert tuple(finding.split(":")) in seen.findings


@pytest.mark.parametrize("line", UNKNOWN, ids=range(len(UNKNOWN)))
def test_lines_of_jobs_that_are_well(line: str) -> None:
    assert all(seen.harmless for seen in known_lines(line, CATALOGUE))


def test_what_a_rehearsal_shows_comes_first_where_the_message_is_known_of_it() -> None:
    line = list(REPORTED)[3]
    printed = diagnosis(known_lines(line, CATALOGUE), "log", 1, 98)
    first = printed.index("run next   preflight rehearse -- CMD")
    assert first < printed.index("preflight run --only net.payload")
