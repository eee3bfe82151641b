"""Errors of CUDA: one line of each, where to look for the cause, and whether it came from before
the line that raised it."""

from __future__ import annotations

import pytest

from preflight.domains.job.gpu_errors import AREAS, REPAIRS, SHOWN, Area, GpuError, gpu_error
from preflight.model import Blame
from preflight.sanitize import shell_prose

SUFFIX = (
    " CUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect. For debugging consider passing CUDA_LAUNCH_BLOCKING=1 "
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)


def searched(name: str) -> str:
    return (
        f" Search for `{name}' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
        "group__CUDART__TYPES.html for more information." + SUFFIX
    )


SGEMM = "cublasSgemm( handle, opa, opb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc)"
NCCL = (
    "DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, "
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9 "
    "ncclUnhandledCudaError: Call to CUDA function failed. Last error: "
)
REPORTS = (
    # huggingface/trl#1995 and many more; torch 2.13 on an H100
    (
        "AcceleratorError: CUDA error: device-side assert triggered" + searched("cudaErrorAssert"),
        "CUDA error: device-side assert triggered",
        Area.ASSERTION,
        True,
    ),
    # jade-hpc-gpu/jade-hpc-gpu.github.io#194
    (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered" + SUFFIX,
        "CUDA error: uncorrectable ECC error encountered",
        Area.HARDWARE,
        True,
    ),
    # ostris/ai-toolkit#470
    (
        "AcceleratorError: CUDA error: uncorrectable ECC error encountered"
        + searched("cudaErrorECCUncorrectable"),
        "CUDA error: uncorrectable ECC error encountered",
        Area.HARDWARE,
        True,
    ),
    # pytorch/torchtitan#423
    (
        "RuntimeError: CUDA error: invalid device ordinal" + SUFFIX,
        "CUDA error: invalid device ordinal",
        Area.ORDINAL,
        False,
    ),
    (
        "AcceleratorError: CUDA error: invalid device ordinal GPU device may be out of range, do "
        "you have enough GPUs?" + SUFFIX,
        "CUDA error: invalid device ordinal",
        Area.ORDINAL,
        False,
    ),
    # pytorch/pytorch#100691
    (
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable" + SUFFIX,
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        Area.BUSY,
        False,
    ),
    # jadore801120/attention-is-all-you-need-pytorch#193
    (
        f"RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `{SGEMM}`",
        f"CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `{SGEMM}`",
        Area.KERNEL,
        True,
    ),
    (
        "RuntimeError: CUDA error: an illegal memory access was encountered" + SUFFIX,
        "CUDA error: an illegal memory access was encountered",
        Area.KERNEL,
        True,
    ),
    (
        "RuntimeError: CUDA error: unspecified launch failure" + SUFFIX,
        "CUDA error: unspecified launch failure",
        Area.KERNEL,
        True,
    ),
    (
        "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered",
        "Triton Error [CUDA]: an illegal memory access was encountered",
        Area.KERNEL,
        True,
    ),
    (
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        Area.KERNEL,
        True,
    ),
    (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device"
        + SUFFIX,
        "CUDA error: no kernel image is available for execution on the device",
        Area.BUILD,
        False,
    ),
    (
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"
        + SUFFIX,
        "CUDA error: uncorrectable NVLink error detected during the execution",
        Area.HARDWARE,
        True,
    ),
    (
        "RuntimeError: CUDA error: unknown error" + SUFFIX,
        "CUDA error: unknown error",
        Area.UNKNOWN,
        True,
    ),
    (
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain."
        + SUFFIX,
        "CUDA error: the provided PTX was compiled with an unsupported toolchain",
        Area.DRIVER,
        False,
    ),
    (
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        "CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        Area.DRIVER,
        False,
    ),
    (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please "
        "update your GPU driver by downloading and installing a new version from the URL: "
        "http://www.nvidia.com/Download/index.aspx",
        "CUDA: The NVIDIA driver on your system is too old (found version 11040)",
        Area.DRIVER,
        False,
    ),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions "
        "before calling NumCudaDevices() that might have already set an error? Error 802: system "
        "not yet initialized",
        "cudaGetDeviceCount: system not yet initialized",
        Area.FABRIC,
        False,
    ),
    (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
        "multiprocessing, you must use the 'spawn' start method",
        "CUDA: Cannot re-initialize CUDA in forked subprocess",
        Area.FORK,
        False,
    ),
    (
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0. Original Traceback "
        '(most recent call last): File "worker.py", line 3 RuntimeError: CUDA error: '
        "initialization error" + SUFFIX,
        "CUDA error: initialization error",
        Area.FORK,
        False,
    ),
    (
        NCCL + "Cuda failure 700 'an illegal memory access was encountered'",
        "CUDA error in NCCL: an illegal memory access was encountered",
        Area.KERNEL,
        True,
    ),
    (
        NCCL + "Failed to CUDA host alloc 4923392 bytes",
        "NCCL could not allocate 4.7 MiB of page-locked memory of the host",
        Area.PINNED,
        False,
    ),
    (
        "RuntimeError: HIP error: invalid device function HIP kernel errors might be "
        "asynchronously reported at some other API call",
        "HIP error: invalid device function",
        Area.BUILD,
        False,
    ),
    (
        "AcceleratorError: CUDA error: operation not permitted" + SUFFIX,
        "CUDA error: operation not permitted",
        Area.OTHER,
        True,
    ),
)


@pytest.mark.parametrize(
    ("text", "line", "area", "late"), REPORTS, ids=[f"{r[1][:50]}" for r in REPORTS]
)
def test_texts_of_real_reports(text: str, line: str, area: Area, late: bool) -> None:
    assert gpu_error(text) == GpuError(line, area, late)
    assert gpu_error(text[:300]) in (GpuError(line, area, late), None), "as old reports have it"


def test_with_launch_blocking_the_line_is_the_kernels() -> None:
    """Torch leaves its warning out then."""
    error = gpu_error("AcceleratorError: CUDA error: device-side assert triggered Compile with `")
    assert error == GpuError("CUDA error: device-side assert triggered", Area.ASSERTION)
    assert "look at that line" in error.advice
    assert "CUDA_LAUNCH_BLOCKING" not in error.advice


def test_otherwise_it_is_set_to_get_the_line() -> None:
    error = gpu_error("RuntimeError: CUDA error: misaligned address" + SUFFIX)
    assert error is not None
    assert error.advice.startswith("set CUDA_LAUNCH_BLOCKING=1 on that rank")


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: bad batch",
        "ValueError: the log has 'CUDA error: misaligned address' in it",
        "RuntimeError: no CUDA error is expected here",
        "AssertionError: device-side assert",
        "DistBackendError: NCCL error: remote process exited or there was a network error",
        "IndexError: index out of range in self",
        "",
    ],
)
def test_what_is_about_something_else_is_not_taken_for_it(text: str) -> None:
    assert gpu_error(text) is None


def test_a_long_one_is_cut() -> None:
    error = gpu_error("RuntimeError: CUDA error: " + "x" * 5000)
    assert error is not None
    assert len(error.text) <= SHOWN + len("CUDA error: ")
    assert error.text.endswith("…")


def test_every_area_says_what_to_do() -> None:
    assert set(REPAIRS) == set(Area)
    assert {area for area, _ in AREAS} | {Area.OTHER, Area.PINNED} == set(Area)
    for error in (GpuError("", area, late) for area in Area for late in (True, False)):
        assert shell_prose(error.advice) == error.advice


def test_the_node_is_never_sure_of_an_illegal_access() -> None:
    assert REPAIRS[Area.KERNEL].blame is Blame.JOB
    assert REPAIRS[Area.KERNEL].doubt
    assert {a for a, repair in REPAIRS.items() if repair.blame is Blame.NODE} == {
        Area.HARDWARE,
        Area.FABRIC,
    }
