"""`explain TEXT` and `diagnose`: the messages that the checks quote lead to their findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import command

from preflight import registry
from preflight.render.symptoms import candidates, diagnosis, known_lines, search, symptoms

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
    assert "   run next   preflight run --only net.name,rdzv.reach," in printed
    assert max(map(len, printed.splitlines())) < 140


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
        ("EADDRINUSE", "net.port:port-held"),
        ("throttle", "gpu.health:clocks-throttled"),
        ("Stale file handle", "host.storage:mount-broken"),
        ("Mismatched NCCL version detected", "world.nccl:version-mismatch"),
        ("uncorrectable ECC error encountered", "gpu.health:memory-errors"),
        ("Torch not compiled with CUDA enabled", "host.software:cpu-build"),
    ],
)
def test_words_lead_to_the_finding(text: str, first: str) -> None:
    found = search(CATALOGUE, text)
    assert next(f"{loaded.id}:{code}" for loaded, code in found) == first
    printed = candidates(found, text, 80)
    assert f" {first}\n" in printed
    assert f"   preflight run --only {first.partition(':')[0]}\n" in printed


def test_the_beginning_of_an_id_leads_to_its_checks() -> None:
    ids = [loaded.id for loaded, code in search(CATALOGUE, "net") if not code]
    assert ids == [i for i in CATALOGUE.checks if i.startswith("net.")]


def test_every_quoted_message_is_found_by_itself() -> None:
    table = symptoms(CATALOGUE)
    assert len(table) > 100
    for symptom in table:
        if "…" not in symptom.words and "{" not in symptom.words and "<" not in symptom.words:
            assert known_lines(f"[rank1]: {symptom.words} x", CATALOGUE), symptom.words


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_log_and_any_question_is_answered(text: str) -> None:
    lines = len(text.splitlines())
    assert diagnosis(known_lines(text, CATALOGUE), text, lines, 40)
    assert candidates(search(CATALOGUE, text), text, 40)


def test_the_commands(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"\xff\xfe binary\n" + LOG.encode())
    told = command.preflight("diagnose", str(log))
    assert told.code == 0
    assert " line 4 · rank 3 · 2 lines like it\n" in told.out
    as_json = command.preflight("diagnose", str(log), "-o", "json")
    assert [row["rank"] for row in json.loads(as_json.out)] == [3, 5, 4, 6]
    gone = command.preflight("diagnose", str(tmp_path / "gone"))
    assert (gone.code, gone.out) == (2, "")
    found = command.preflight("explain", "EADDRINUSE")
    assert (found.code, found.out.splitlines()[2]) == (0, " net.port:port-held")
    assert command.preflight("explain", "xyzzy").code == 2
