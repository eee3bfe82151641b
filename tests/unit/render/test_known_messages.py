"""What is known of messages: each leads to findings that exist, the special before the general."""

from __future__ import annotations

import pytest
from support import command

from preflight import registry
from preflight.render.known_messages import MESSAGES, Message, MessageKind
from preflight.render.symptoms import candidates, diagnosis, known_lines, known_message, search

CATALOGUE = registry.load()
WORDS = [(words, message) for message in MESSAGES for words in message.words]


@pytest.mark.parametrize("message", MESSAGES, ids=[message.words[0] for message in MESSAGES])
def test_each_leads_somewhere(message: Message) -> None:
    for place in message.findings:
        check, _, code = place.partition(":")
        assert not code or code in CATALOGUE.checks[check].module.FINDINGS, place
    assert not message.means.endswith(".")
    if message.kind is MessageKind.ERROR:
        assert message.findings or message.do, "an error, and nothing to do"


@pytest.mark.parametrize(("words", "message"), WORDS, ids=[words for words, _ in WORDS])
def test_none_hides_behind_a_more_general_one(words: str, message: Message) -> None:
    assert known_message(f"[rank1]: {words.replace('…', ' x ')}") is message


# as torch 2.4-2.13, NCCL 2.18-2.28, SLURM, docker and the kernel print them, written for this test
LINES = {
    "[rank0]: torch.distributed.DistBackendError: [0] is setting up NCCL communicator and "
    "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got "
    "error: Connection reset by peer": "job.ranks:rank-raised",
    "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and "
    "retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got "
    "error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0": "job.ranks:rank-late",
    "n1:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 172.17.0.1<41921> "
    "failed : Connection refused": "net.interface:interface-isolated",
    "n1:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.1.0.7<41921> "
    "failed : No route to host": "net.mesh:interface-wrong",
    "RuntimeError: Gloo connectFullMesh failed with [/third_party/gloo/gloo/transport/tcp/pair.cc:"
    "152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:4123": (
        "net.name:hostname-loopback"
    ),
    "E1126 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: "
    "0 (pid: 59) of binary: /usr/bin/python": "job.ranks:rank-oom",
    "  exitcode  : -7 (pid: 591)": "host.limits:shm-small",
    "RuntimeError: unable to open shared memory object </torch_81_2> in read-write mode: Too many "
    "open files (24)": "host.limits:nofile-low",
    "[7.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, Ch 00000008": (
        "job.ranks:rank-cuda-error"
    ),
    "n1:1:2 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.1.0.6<58683> "
    "collective mismatch error, local size 4096 remote size 65536": (
        "job.collectives:collective-mismatch"
    ),
    "  Communicator ranks have different AllReduce operation counts": "job.collectives:rank-stuck",
    "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error": (
        "gpu.visible:gpu-lost"
    ),
    "srun: error: Task launch for 7.0 failed on node n3: Job credential expired": (
        "agree.clock:clock-skew-large"
    ),
    "[W socket.cpp:752] [c10d] The IPv6 network addresses of ([fd00::7], 29500) cannot be "
    "retrieved (gai error: -2 - Name or service not known).": "env.identity:address-malformed",
    "Warning Evicted 3m kubelet The node was low on resource: ephemeral-storage. Threshold 1, ": (
        "host.storage:full"
    ),
    "srun: error: n2: task 5: Out Of Memory": "job.ranks:rank-oom",
    "bash: fork: retry: Resource temporarily unavailable": "host.limits:threads-low",
    "[7.1] NVRM: Xid (PCI:0000:3b:00): 94, pid=77, name=python, Contained": (
        "gpu.health:memory-errors"
    ),
}


@pytest.mark.parametrize(("line", "finding"), LINES.items(), ids=range(len(LINES)))
def test_the_most_likely_comes_first(line: str, finding: str) -> None:
    loaded, code = search(CATALOGUE, line)[0]
    assert f"{loaded.id}:{code}" == finding
    (seen,) = known_lines(line, CATALOGUE)
    assert ":".join(seen.findings[0]) == finding


def test_a_number_is_no_part_of_a_longer_one() -> None:
    assert known_message("failed (exitcode: -99) local_rank: 0") is None
    assert known_message("errno: 1130 failed to connect to errno: 1130") is None


def test_the_error_counts_before_what_follows_from_it() -> None:
    text = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "Sending process 4 closing signal SIGTERM\n"
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n"
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"
    )
    message = known_message(text)
    assert message is not None
    assert message.findings[0] == "job.ranks:rank-oom"
    printed = diagnosis(known_lines(text, CATALOGUE), "log", 4, 80)
    assert printed.index(" line 3\n") < printed.index(" lines 1, 2: said because something else")
    assert printed.endswith("\n line 4: harmless\n")


@pytest.mark.parametrize("width", [40, 80])
def test_what_is_printed_says_what_it_means_and_what_to_run(width: int) -> None:
    line = "Signal 9 (SIGKILL) received by PID 7"
    printed = candidates(search(CATALOGUE, line), known_message(line), line, width)
    assert printed.startswith("   means      the kernel killed")
    assert "\n could be, the most likely first\n job.ranks:rank-oom\n" in printed
    assert "\n   preflight rehearse -- CMD\n" in printed
    assert "\n   preflight run --only host.limits\n" in printed
    assert max(map(len, printed.splitlines())) <= width + 20


def test_one_without_a_check_has_advice_alone() -> None:
    line = "RuntimeError: Expected to mark a variable ready only once."
    assert search(CATALOGUE, line) == []
    ended = command.preflight("explain", line)
    assert (ended.code, "could be" in ended.out) == (0, False)
    assert "\n   do         checkpoint(..., use_reentrant=False)" in ended.out
    assert "run next" not in diagnosis(known_lines(line, CATALOGUE), "log", 1, 80)


FAILED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 40, in <module>
[rank1]:     batch["labels"]
[rank1]: KeyError: 'labels'
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 44, in <module>
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.1.0.2]:4132
E1126 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def test_an_exception_of_the_script_is_the_cause_of_what_the_others_say() -> None:
    printed = diagnosis(known_lines(FAILED, CATALOGUE), "log", 9, 80)
    assert printed.count("could be") == 1
    assert " line 4 · rank 1\n   [rank1]: KeyError: 'labels'\n" in printed
    assert " lines 7, 8, 9: said because something else has failed" in printed


@pytest.mark.parametrize("line", ["KeyError: 'labels' of sample 7, skipped", "no ValueError: here"])
def test_what_is_in_no_traceback_is_no_exception(line: str) -> None:
    assert known_lines(f"[rank0]: Traceback (most recent call last):\n{line}", CATALOGUE) == []
    assert known_lines(line, CATALOGUE) == []
