"""Matrix products on one device: exact ones, reproducible ones, and their speed.

Nothing here is drawn from a device's own generator: the same numbers on every device. torch is
imported inside the functions; a sick device makes each of them hang: only in a worker.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from preflight.domains.gpu.nccl_library import loaded_path
from preflight.domains.torch.devices import Devices
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import MIB

TEXT = 120
"""Characters kept of any name or version."""

LARGEST = 3.4028235e38
"""The largest float32: JSON has neither infinity nor NaN."""


@dataclass(frozen=True, slots=True)
class NumberType:
    """A type of numbers. The exact product adds up `depth` products of whole numbers of at most
    `most`: depth x most² is within the whole numbers that the type holds exactly, so that no order
    of adding and no narrow accumulator can round anything."""

    name: str
    dtype: str
    width: int
    depth: int
    most: int


# significands of 8, 11 and 24 bits: whole numbers up to 256, 2048 and 16,777,216
KINDS = (
    NumberType("bf16", "bfloat16", 2, 64, 2),
    NumberType("fp16", "float16", 2, 128, 4),
    NumberType("fp32", "float32", 4, 256, 250),
)

# a product of this side has some 500 tiles of 128 x 256: more than any GPU has multiprocessors
SIDE, DEPTH = 4096, 128
# of the rows and columns that the exact product repeats; both prime, so that no tile of a power of
# two sees the same twice, and the right result is small enough for the CPU
ROWS, COLUMNS = 61, 67
EXACT, AT_LEAST = 2, 3
"""Times that a product is made: the exact one, the others at least."""

TILE = 1024
SIDES = (8192, 4096, 2048, 1024, 512)
SPACE, SHARE = 512 * MIB, 32
"""What the matrices of a product may take, and which part of the free memory at most."""
COPIED, MOVED = 128 * MIB, 64 * MIB
"""Bytes of a copy within the device, beyond its caches; and of one from or to the host."""

SLOT, WITHIN = 0.25, 0.1
"""Seconds for which one rank of a node has the bus for itself, and in which of them it begins."""


FORCED = ("TORCH_BLAS_PREFER_CUBLASLT", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Variables that torch reads when it is imported, and that change how it multiplies."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """`kind` is a Kind's name (TFLOP/s, `size` is the side), or what was copied (GB/s, bytes)."""

    kind: str
    size: int
    rate: float
    repeats: int


@dataclass(frozen=True, slots=True)
class WrongNumbers:
    """Numbers that are not what they must be; the first of them, at `index`, was `got`."""

    kind: str
    count: int
    of: int
    index: int
    got: float
    wanted: float


@dataclass(frozen=True, slots=True)
class VaryingBits:
    """Numbers of a product that had other bits at a later time, the `time`th."""

    kind: str
    count: int
    of: int
    time: int


def make_reproducible() -> None:
    """One way of computing for all ranks, before the device is started: no TF32, no sums in half
    precision, and the workspace with which cuBLAS promises the same bits at every run (its manual,
    2.1.4 Results reproducibility)."""
    import torch

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    torch.set_float32_matmul_precision("highest")
    matmul = torch.backends.cuda.matmul
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


def software(host: Host, driver: str) -> str:
    """What decides on the bits of a product; read once a product was made, which loads cuBLAS."""
    import torch

    made = torch.version.hip
    parts = [f"torch {torch.__version__}", f"HIP {made}" if made else f"CUDA {torch.version.cuda}"]
    parts += [f"cuBLAS {version}"] if (version := _cublas(host)) else []
    parts += [f"driver {driver}"] if driver else []
    parts += [f"{name}={host.environ[name]}" for name in FORCED if host.environ.get(name)]
    return ", ".join(part[:TEXT] for part in parts)


def _cublas(host: Host) -> str:
    """The version of the library in this process, which needs not be the one of torch's package."""
    path = loaded_path(host, "libcublas.so")
    if not path:
        return ""
    numbers = []
    try:
        library = ctypes.CDLL(path)
        for part in range(3):  # library_types.h: MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
            number = ctypes.c_int(0)
            library.cublasGetProperty(part, ctypes.byref(number))
            numbers.append(str(number.value))
    except (OSError, AttributeError):
        return ""
    return ".".join(numbers)


def noise(count: int, seed: int) -> Any:
    """`count` numbers of 0 to 65535 that look like chance and are the same everywhere: whole
    numbers mixed as in a hash, on the CPU."""
    import torch

    mixed = torch.arange(count, dtype=torch.int64) + seed * 1_000_003
    for factor in (0x45D9F3B, 0x2C1B3C6D):
        mixed = ((mixed >> 16) ^ mixed) * factor & 0xFFFFFFFF
    return (mixed >> 8) & 0xFFFF


def _fractions(rows: int, columns: int, seed: int) -> Any:
    """Fractions from -1/2 to 1/2, on the CPU."""
    import torch

    return (noise(rows * columns, seed).to(torch.float32) / 65536 - 0.5).view(rows, columns)


def exact_product(devices: Devices, index: int, kind: NumberType) -> WrongNumbers | None:
    """A product of whole numbers, compared with what it must be."""
    import torch

    at, dtype = devices.at(index), getattr(torch, kind.dtype)

    def whole(rows: int, columns: int, seed: int) -> Any:
        return (noise(rows * columns, seed) % (2 * kind.most + 1) - kind.most).view(rows, columns)

    left, right = whole(ROWS, kind.depth, 1), whole(kind.depth, COLUMNS, 2)
    result = left @ right  # of 64-bit integers, on the CPU
    rows, columns = (torch.arange(SIDE, device=at) % period for period in (ROWS, COLUMNS))
    a = left.to(dtype).to(at)[rows]
    b = right.to(dtype).to(at)[:, columns]
    wanted = result.to(dtype).to(at)[rows][:, columns]
    for _ in range(EXACT):
        made = torch.mm(a, b)
        devices.wait(index)
        if (wrong := _compare(kind.name, made, wanted)) is not None:
            return wrong
    return None


def _compare(kind: str, made: Any, wanted: Any) -> WrongNumbers | None:
    import torch

    if torch.equal(made, wanted):
        return None
    off = (made != wanted).flatten()
    first = int(off.to(torch.int8).argmax())
    got, right = (_finite(float(t.flatten()[first])) for t in (made, wanted))
    return WrongNumbers(kind, int(off.sum()), made.numel(), first, got, right)


def _finite(number: float) -> float:
    return number if abs(number) <= LARGEST else LARGEST


def _as_integers(tensor: Any) -> Any:
    """Its bits as whole numbers: a NaN is not even equal to itself."""
    import torch

    return tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])


def _compare_bits(kind: str, made: Any, first: Any, time_: int) -> VaryingBits | None:
    import torch

    if torch.equal(_as_integers(made), _as_integers(first)):
        return None
    return VaryingBits(
        kind, int((_as_integers(made) != _as_integers(first)).sum()), made.numel(), time_
    )


def repeated_product(
    devices: Devices, index: int, kind: NumberType, seconds: float
) -> tuple[str, VaryingBits | None, int]:
    """A product of fractions, made again and again: the digest of its bits, what differed once, and
    how often it was made. Its size does not depend on the device."""
    import torch

    at, dtype = devices.at(index), getattr(torch, kind.dtype)
    a = _fractions(SIDE, DEPTH, 3).to(dtype).to(at)
    b = _fractions(DEPTH, SIDE, 4).to(dtype).to(at)
    first = torch.mm(a, b)
    made = torch.empty_like(first)
    devices.wait(index)
    digest = _digest(first)
    times, until = 1, time.perf_counter() + seconds
    while times < AT_LEAST or time.perf_counter() < until:
        times += 1
        torch.mm(a, b, out=made)
        devices.wait(index)
        if (unlike := _compare_bits(kind.name, made, first, times)) is not None:
            return digest, unlike, times
    return digest, None, times


def _digest(tensor: Any) -> str:
    here = tensor.cpu().contiguous()
    buffer = (ctypes.c_char * (here.numel() * here.element_size())).from_address(here.data_ptr())
    return hashlib.sha256(buffer).hexdigest()[:16]


def side(free: int, width: int) -> int:
    """Of the largest square matrices, of which four fit into what may be taken."""
    most = min(SPACE, free // SHARE)
    return next((n for n in SIDES if 4 * n * n * width <= most), SIDES[-1])


def timed_products(
    devices: Devices, index: int, kind: NumberType, free: int, seconds: float
) -> tuple[Throughput, VaryingBits | None]:
    """Large square products for so many seconds, a third of them to warm up: the rate of the median
    one. The bits of each are compared, too: the device is at work as it is in training."""
    import torch

    n = side(free, kind.width)
    tile = min(n, TILE)
    dtype, times = getattr(torch, kind.dtype), n // tile
    a = _fractions(tile, tile, 5).to(dtype).to(devices.at(index)).repeat(times, times)
    b = _fractions(tile, tile, 6).to(dtype).to(devices.at(index)).repeat(times, times)
    first = torch.mm(a, b)
    made = torch.empty_like(first)
    devices.wait(index)
    unlike: VaryingBits | None = None

    def multiply() -> None:
        torch.mm(a, b, out=made)

    taken: list[float] = []
    warm = time.perf_counter() + seconds / 3
    while time.perf_counter() < warm:
        multiply()
        devices.wait(index)
    for one in _time_each(devices, index, multiply, seconds * 2 / 3):
        taken.append(one)
        unlike = unlike or _compare_bits(kind.name, made, first, len(taken))
    return Throughput(kind.name, n, _median_rate(2 * n**3 / 1e12, taken), len(taken)), unlike


def _time_each(
    devices: Devices, index: int, work: Callable[[], None], seconds: float
) -> Iterator[float]:
    """Seconds of each time that it is done."""
    until, done = time.perf_counter() + seconds, 0
    while done < AT_LEAST or time.perf_counter() < until:
        began = time.perf_counter()
        work()
        devices.wait(index)
        yield time.perf_counter() - began
        done += 1


def _median_rate(amount: float, taken: Sequence[float]) -> float:
    return float(f"{amount / max(median(taken), 1e-9):.4g}")


def time_device_copy(devices: Devices, index: int, free: int, seconds: float) -> Throughput:
    """Bytes that its memory reads and writes a second, by copying within."""
    import torch

    count = min(COPIED, free // SHARE // 2)
    source = torch.zeros(count, dtype=torch.uint8, device=devices.at(index))
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    copy()
    devices.wait(index)
    taken = list(_time_each(devices, index, copy, seconds))
    return Throughput(COPY, count, _median_rate(2 * count / 1e9, taken), len(taken))


COPY, TO, FROM = "copy", "to GPU", "from GPU"
PAGED = ", unpinned"
BUS = "copy to the GPU and back"


def time_host_copies(
    devices: Devices, index: int, free: int, seconds: float, turn: Callable[[], None]
) -> tuple[tuple[Throughput, Throughput], WrongNumbers | None]:
    """Bytes per second to the device and from it, from pinned memory where it is to be had, and
    whether they came back as they were. `turn` waits until no neighbour uses the bus."""
    import torch

    count = min(MOVED, free // SHARE // 2) // 4
    there = noise(TILE * TILE, 7).to(torch.int32).repeat(-(-count // TILE**2))[:count]
    back = torch.zeros_like(there)
    note = ""
    try:
        there, back = there.pin_memory(), back.pin_memory()
    except RuntimeError:  # a limit of locked memory, or a device without: slower, and said
        note = PAGED
    device = torch.empty(count, dtype=torch.int32, device=devices.at(index))
    device.copy_(there)
    back.copy_(device)
    devices.wait(index)
    turn()
    rates = []
    for kind, target, source in ((TO, device, there), (FROM, back, device)):

        def copy(target: Any = target, source: Any = source) -> None:
            target.copy_(source, non_blocking=True)

        taken = list(_time_each(devices, index, copy, seconds / 2))
        rates.append(
            Throughput(kind + note, 4 * count, _median_rate(4 * count / 1e9, taken), len(taken))
        )
    return (rates[0], rates[1]), _compare(BUS, back, there)


def take_turns(number: int, of: int) -> None:
    """Wait for this rank's slot of the machine's clock, which all its processes read alike: GPUs
    that share a bus take from each other. At most `of` slots, without asking anybody."""
    while of > 1:
        slot, into = divmod(time.monotonic(), SLOT)
        if int(slot) % of == number % of and into < WITHIN:
            return
        time.sleep(0.005)
