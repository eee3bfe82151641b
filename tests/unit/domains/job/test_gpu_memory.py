"""What torch says of a GPU without room: its numbers are read, and name the cause that they show;
where they show none, none is named."""

from __future__ import annotations

import pytest

from preflight.domains.job.gpu_memory import (
    KEPT,
    UNEVEN,
    GpuMemory,
    Shortage,
    brief,
    describe,
    out_of_memory,
    shortage,
)
from preflight.domains.job.memory_trend import Rise
from preflight.sanitize import shell_prose

MIB, GIB = 1 << 20, 1 << 30
TAIL = (
    " If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
    "for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
HEAD = "OutOfMemoryError: CUDA out of memory. Tried to allocate "
FULL = (  # pixel_seg of an A100: private pools of CUDA graphs
    f"{HEAD}25.31 GiB. GPU 0 has a total capacity of 79.25 GiB of which 24.65 GiB is free. "
    "Including non-PyTorch memory, this process has 54.59 GiB memory in use. Of the allocated "
    "memory 23.57 GiB is allocated by PyTorch, with 9.93 GiB allocated in private pools (e.g., "
    "CUDA Graphs), and 30.41 GiB is reserved by PyTorch but unallocated." + TAIL
)
LIMITED = (  # an H100 shared by many, torch 2.13
    f"{HEAD}1024.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 63.62 GiB is free. "
    "Process 4139 has 1.21 GiB memory in use. Process 4147 has 1.21 GiB memory in use. Including "
    "non-PyTorch memory, this process has 2.20 GiB memory in use. Process 4159 has 1.21 GiB "
    "memory in use. 1.58 GiB allowed; Of the allocated memory 1.09 GiB is allocated by PyTorch, "
    "and 14.94 MiB is reserved by PyTorch but unallocated." + TAIL
)
BESIDE = (
    f"{HEAD}1.16 GiB. GPU 0 has a total capacity of 31.36 GiB of which 471.69 MiB is free. "
    "Including non-PyTorch memory, this process has 16.63 GiB memory in use. Process 19239 has "
    "14.26 GiB memory in use. Of the allocated memory 15.03 GiB is allocated by PyTorch, and 1.00 "
    "GiB is reserved by PyTorch but unallocated." + TAIL
)
UNSEEN = BESIDE.replace("Process 19239 has 14.26 GiB memory in use. ", "")
CONTAINER = (  # on Kaggle the driver counts processes otherwise: 6314 is the one that speaks
    f"{HEAD}248.00 MiB. GPU 0 has a total capacity of 22.28 GiB of which 33.38 MiB is free. "
    "Process 6314 has 22.23 GiB memory in use. Of the allocated memory 20.60 GiB is allocated by "
    "PyTorch, with 199.88 MiB allocated in private pools (e.g., CUDA Graphs), and 171.43 MiB is "
    "reserved by PyTorch but unallocated." + TAIL
)
SMALL = (
    f"{HEAD}462.00 MiB. GPU 0 has a total capacity of 23.68 GiB of which 161.00 MiB is free. "
    "Including non-PyTorch memory, this process has 23.52 GiB memory in use. Of the allocated "
    "memory 23.18 GiB is allocated by PyTorch, and 31.53 MiB is reserved by PyTorch but "
    "unallocated." + TAIL
)
DESKTOP = (
    f"{HEAD}876.00 MiB. GPU 0 has a total capacity of 23.68 GiB of which 251.06 MiB is free. "
    "Process 2612630 has 458.00 MiB memory in use. Including non-PyTorch memory, this process has "
    "22.98 GiB memory in use. Of the allocated memory 22.65 GiB is allocated by PyTorch, and 77.68 "
    "MiB is reserved by PyTorch but unallocated." + TAIL
)
OF_ASYNC = (  # PYTORCH_ALLOC_CONF=backend:cudaMallocAsync, in one line
    "OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory) "
    "Currently allocated : 9.43 GiB Requested : 640.00 MiB Device limit : 11.59 GiB Free "
    "(according to CUDA): 7.12 MiB PyTorch limit (set by user-supplied memory fraction) : "
    "17179869184.00 GiB"
)
OF_NCCL = (
    "DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:340, unhandled "
    "cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5 "
    "ncclUnhandledCudaError: Call to CUDA function failed. Last error: "
)


def read(text: str) -> GpuMemory:
    found = out_of_memory(text)
    assert found is not None
    return found


def cause(text: str, ranks: dict[int, int] | None = None, rank: int = 0) -> Shortage | None:
    return shortage(read(text), {77: rank} if ranks is None else ranks, rank)


def test_all_numbers_are_read() -> None:
    seen = read(LIMITED)
    assert (seen.gpu, seen.tried, seen.known, seen.api, seen.plain) == (0, GIB, True, "CUDA", True)
    assert seen.capacity == round(79.18 * GIB)
    assert seen.free == round(63.62 * GIB)
    assert seen.own == round(2.2 * GIB)
    assert seen.allowed == round(1.58 * GIB)
    assert seen.allocated == round(1.09 * GIB)
    assert seen.unallocated == round(14.94 * MIB)
    assert seen.others == {pid: round(1.21 * GIB) for pid in (4139, 4147, 4159)}
    assert describe(seen) == (
        "GPU 0: tried to allocate 1 GiB, 64 GiB of 79 GiB free, this rank has 2.2 GiB, "
        "1.1 GiB in tensors, 15 MiB reserved beside"
    )


def test_what_others_than_torch_take_within_the_process_is_counted() -> None:
    text = SMALL.replace("23.18 GiB is", "15.00 GiB is")
    assert describe(read(text)).endswith(", 8.5 GiB outside of torch's allocator")
    assert "outside" not in describe(read(SMALL))


def test_the_asynchronous_backend_has_words_of_its_own() -> None:
    seen = read(OF_ASYNC)
    assert (seen.gpu, seen.tried) == (0, 640 * MIB)
    assert (seen.capacity, seen.free) == (round(11.59 * GIB), round(7.12 * MIB))
    assert seen.allowed is None, "a limit that nobody has set"
    assert cause(OF_ASYNC) is None
    limited = OF_ASYNC.replace("17179869184.00", "4.00").replace(": 7.12 MiB", ": 7.12 GiB")
    assert "its own limit is 4 GiB" in (cause(limited) or Shortage("", "")).why


def test_memory_that_grew_is_the_cause() -> None:
    leak = Rise(5, 500 * MIB, 105, GIB)
    found = shortage(read(LIMITED), {77: 0}, 0, leak)
    assert found is not None
    assert found.why == (
        "its tensors grew from 500 MiB after 5 steps to 1 GiB after 105, by 5.2 MiB per step"
    )
    assert shell_prose(found.advice) == found.advice
    # on a GPU that is full of something else it is not the cause
    full = shortage(read(FULL), {77: 0}, 0, leak)
    assert full is not None
    assert "fragmentation" in full.why


@pytest.mark.parametrize(
    ("text", "words", "foreign"),
    [
        (LIMITED, "its own limit is 1.6 GiB (set_per_process_memory_fraction)", False),
        (FULL, "30 GiB are reserved but in pieces (fragmentation)", False),
        (BESIDE, "pid 19239 holds 14 GiB of GPU 0", True),
    ],
)
def test_the_numbers_show_the_cause(text: str, words: str, foreign: bool) -> None:
    found = cause(text)
    assert found is not None
    assert (found.why, found.foreign) == (words, foreign)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(SMALL, id="it has all of it"),
        pytest.param(DESKTOP, id="another has little"),
        pytest.param(CONTAINER, id="a container, and nobody else"),
        pytest.param(SMALL.replace("31.53", "500.00"), id="few pieces"),
        pytest.param(SMALL[: len(HEAD) + 40], id="cut"),
        pytest.param(HEAD + "20.00 MiB (GPU 0; 7.93 GiB total capacity)", id="torch 1.13"),
        pytest.param("OutOfMemoryError: CUDA out of memory.", id="no numbers"),
        pytest.param(
            SMALL.replace("23.52 GiB", "17179869184.00 GiB"), id="a driver that does not count"
        ),
    ],
)
def test_where_they_show_none_none_is_named(text: str) -> None:
    assert cause(text) is None


def test_ranks_of_the_job_on_one_gpu_are_named() -> None:
    found = cause(BESIDE, {19239: 3, 19240: 2}, 2)
    assert found is not None
    assert (found.why, found.foreign) == (
        "ranks 2-3 share GPU 0, 14 GiB of it held by rank 3",
        False,
    )
    contexts = cause(DESKTOP.replace("876.00", "300.00"), {2612630: 1, 9: 0})
    assert contexts is not None, "they would have been enough"
    assert "ranks 0-1 share GPU 0, 458 MiB of it held by rank 1" in contexts.why
    assert "LOCAL_RANK" in contexts.advice


def test_in_a_container_the_own_process_is_known_by_what_it_holds() -> None:
    more = CONTAINER.replace("20.60 GiB", "12.00 GiB").replace(
        "has 22.23 GiB memory in use.",
        "has 12.50 GiB memory in use. Process 6315 has 9.73 GiB memory in use.",
    )
    seen = read(more)
    assert (seen.known, seen.others) == (False, {6315: round(9.73 * GIB)})
    found = cause(more, {6315: 1, 9: 0})
    assert found is not None, "a number that is a rank's by chance is no rank"
    assert found.why.startswith("pid 6315 holds 9.7 GiB of GPU 0, by the host's pids")
    assert found.foreign
    assert found.doubt


def test_what_can_not_be_seen_is_counted() -> None:
    found = cause(UNSEEN)
    assert found is not None
    assert found.why == "14 GiB are held by processes that can't be seen from here"
    assert (found.foreign, len(found.doubt)) == (True, 1)


def test_many_others_are_counted() -> None:
    many = " ".join(f"Process {pid} has 2.00 GiB memory in use." for pid in range(1, 8))
    found = cause(BESIDE.replace("Process 19239 has 14.26 GiB memory in use.", many))
    assert found is not None
    assert (
        "7 other processes hold 14 GiB of GPU 0 (pid 1: 2 GiB, 2: 2 GiB, 3: 2 GiB and 4 more)"
        in found.why
    )


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: out of memory",
        "AcceleratorError: CUDA error: out of memory Search for `cudaErrorMemoryAllocation' in",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: CUDA driver error: out of memory",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "RuntimeError: Triton Error [CUDA]: out of memory",
        OF_NCCL + "Cuda failure 2 'out of memory'",
        OF_NCCL + "Cuda failure 'out of memory'",
        OF_NCCL + "Failed to CUDA calloc 8388608 bytes",
        OF_NCCL + "Failed to CUDA calloc async 6291456 bytes",
    ],
)
def test_libraries_that_find_no_memory_give_no_cause(text: str) -> None:
    assert not read(text).plain
    assert cause(text) is None


def test_what_nccl_tried_is_read() -> None:
    text = OF_NCCL + "Failed to CUDA calloc 8388608 bytes"
    assert describe(read(text)) == "the GPU: tried to allocate 8 MiB"
    assert describe(read("RuntimeError: CUDA error: out of memory")) == ""


@pytest.mark.parametrize("api", ["HIP", "XPU"])
def test_other_makers(api: str) -> None:
    assert read(SMALL.replace("CUDA out", f"{api} out")).api == api


@pytest.mark.parametrize(
    "text",
    [
        "MemoryError: ",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)",
        "OutOfMemoryError: Task was killed due to the node running low on memory.",
        "ValueError: with a batch of 64 the GPU would be out of memory",
        "RuntimeError: CUDA out of memory is likely with --batch 64, choose less",
        "ValueError: the log has 'CUDA error: out of memory' in it",
        "ArrayMemoryError: Unable to allocate 7.00 GiB for an array",
        OF_NCCL + "Failed to CUDA host alloc 4923392 bytes",
        OF_NCCL + "Cuda failure 700 'an illegal memory access was encountered'",
    ],
)
def test_what_is_about_something_else_is_not_taken_for_it(text: str) -> None:
    assert out_of_memory(text) is None


def test_a_worker_of_the_dataloader_and_a_wrapper_say_the_same() -> None:
    for first in (
        "OutOfMemoryError: Caught OutOfMemoryError in replica 1 on device 1. Original Traceback "
        '(most recent call last): File "x.py", line 1 ',
        "RuntimeError: step 12 failed: ",
    ):
        assert read(first + "torch." + SMALL).gpu == 0


@pytest.mark.parametrize("ranks", [{}, {19239: 3, 19240: 2}])
def test_what_is_done_is_prose_that_a_shell_leaves_alone(ranks: dict[int, int]) -> None:
    shown = [cause(text, ranks) for text in (LIMITED, FULL, BESIDE, UNSEEN)]
    for advice in (KEPT, UNEVEN, *(found.advice for found in shown if found)):
        assert shell_prose(advice) == advice
    assert all(shown)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (LIMITED, "CUDA out of memory, tried to allocate 1 GiB"),
        (LIMITED[:300], "CUDA out of memory, tried to allocate 1 GiB"),
        ("RuntimeError: CUDA error: out of memory", "CUDA out of memory"),
        (
            "RuntimeError: CUDA error: misaligned address https://x",
            "CUDA error: misaligned address",
        ),
        ("ValueError: bad batch", "ValueError: bad batch"),
    ],
)
def test_one_that_was_caught_is_shown_in_few_words(text: str, short: str) -> None:
    assert brief(text) == short
