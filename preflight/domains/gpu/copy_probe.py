"""Copies data between all pairs of GPUs, and verifies and times each copy.

torch is imported inside the functions. Copies may hang forever: only in a worker. What was found
is also in the marks, so that a copy that blocks the worker takes nothing along with it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from preflight.domains import pci
from preflight.domains.gpu import nvlink
from preflight.domains.gpu.copy_results import BLOCK, TEXT, Copied, Copy, CopyGpu, Pair
from preflight.domains.gpu.link_outliers import by_nvlink
from preflight.domains.torch.devices import Devices
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import MIB, size
from preflight.model import CannotObserve

LEAST = 4 * MIB
"""What a block shrinks to when memory is short."""
SHARE = 8
"""Blocks that must be free on a GPU: four are kept there, the rest is for comparing them."""
WORD = 8
HEAD = LEAST // WORD
"""Words of each copy that the host compares for itself."""

BURST, REPEATS, LONGEST = 4, 5, 0.1
"""Copies that are timed together, how often, and after how many seconds no further time."""

SPINNING = 0.05
"""Seconds for which the end of a copy is looked for without a pause, so as not to miss it."""

MOST, TELLING = 380, 100
"""Pairs that are tried (of 20 GPUs), each twice, and bad ones that are named in marks. Of these an
observation has 1000, and one that is lost would make an earlier copy the last one."""

MULTIPLIER = 0x9E3779B97F
"""Odd, below 2**40: times the number of a word (below 2**23) it fits into 63 bits, and all of
them change from word to word."""
SALT = 0x5851F42D4C957F2D
POSITIVE = (1 << 63) - 1

AGAIN = "timed again"


class CopyHangs(Exception):
    """A copy has not ended; its argument is the seconds that it was waited for."""


@dataclass(frozen=True, slots=True)
class CopyEngine:
    """Copies by torch; tests replace it by one that copies badly."""

    devices: Devices

    def send(self, source: int, target: int, data: Any, into: Any) -> None:
        """Ask for `data` on one GPU to be copied `into` memory of another."""
        into.copy_(data, non_blocking=True)

    def event(self, index: int) -> Any:
        """What query() tells of: all that was asked of this GPU so far is done."""
        event = self.devices.module.Event()
        event.record(self.devices.module.current_stream(index))
        return event

    def reaches(self, source: int, target: int) -> bool | None:
        try:
            return bool(self.devices.module.can_device_access_peer(source, target))
        except RuntimeError:
            return None


class Blocks:
    """Blocks of memory on every GPU, and the copies between them."""

    def __init__(self, carrier: CopyEngine, block: int, patience: float) -> None:
        self._carrier, self._block, self._patience = carrier, block, patience
        self._words = block // WORD
        # GPU -> the numbered words of all patterns, what is sent, what comes, what should come
        self._base: dict[int, Any] = {}
        self._sent: dict[int, Any] = {}
        self._came: dict[int, Any] = {}
        self._wanted: dict[int, Any] = {}
        self._host: Any = None

    def lay(self, index: int) -> None:
        """Take the memory of one GPU."""
        import torch

        device = self._carrier.devices.at(index)
        numbers = torch.arange(self._words, dtype=torch.int64, device=device)
        self._base[index] = numbers.mul_(MULTIPLIER)
        for kept in (self._sent, self._came, self._wanted):
            kept[index] = torch.zeros_like(self._base[index])
        if self._host is None:
            self._host = torch.arange(HEAD, dtype=torch.int64).mul_(MULTIPLIER)
        self._finish(index)

    def tried(self, source: int, target: int, salt: int, copy: Copy) -> Copy:
        """One copy that is verified, and bursts of them that are timed and verified. Of a copy that
        was tried before the better rate counts: what disturbed it for a moment must not."""
        try:
            wrong, rate = self._wrong(source, target, salt), 0.0
            if not wrong:
                wrong, rate = self._timed(source, target)
            return replace(copy, wrong=wrong, rate=None if wrong else max(copy.rate or 0.0, rate))
        except CopyHangs as problem:
            return replace(copy, stuck=problem.args[0])
        except RuntimeError as error:
            return replace(copy, error=_first_line(error))

    def alive(self, *indexes: int) -> bool:
        """Whether CUDA still does anything for us after an error."""
        try:
            for index in indexes:
                self._came[index].zero_()
                self._finish(index)
        except (RuntimeError, CopyHangs):
            return False
        return True

    def _finish(self, *indexes: int) -> None:
        """Wait for GPUs, not forever: not even a signal would end synchronize()."""
        events = [self._carrier.event(index) for index in indexes]
        began = time.monotonic()
        while not all(event.query() for event in events):
            waited = time.monotonic() - began
            if waited > self._patience:
                raise CopyHangs(round(waited, 3))
            if waited > SPINNING:
                time.sleep(0.001)

    def _wrong(self, source: int, target: int, salt: int) -> str:
        """Copy the pattern of this pair; what is wrong with what came."""
        import torch

        torch.bitwise_xor(self._base[source], salt, out=self._sent[source])
        came, wanted = self._came[target], self._wanted[target]
        torch.bitwise_xor(self._base[target], salt, out=wanted)
        # no word is right before
        torch.bitwise_not(wanted, out=came)
        self._finish(source, target)
        self._carrier.send(source, target, self._sent[source], came)
        self._finish(source, target)
        if wrong := self._differs(target):
            return wrong
        head = self._host[: self._words] ^ salt
        if not torch.equal(came[:HEAD].cpu(), head):
            return "exact on the GPU, wrong when the host reads it"
        return ""

    def _differs(self, target: int) -> str:
        """What is wrong with what is there now; empty when it is what should come."""
        came, wanted = self._came[target], self._wanted[target]
        bad = came != wanted
        return (
            _describe_difference(came.cpu(), wanted.cpu(), int(bad.sum()))
            if bool(bad.any())
            else ""
        )

    def _timed(self, source: int, target: int) -> tuple[str, float]:
        """Copies at full speed: what is wrong after one of the bursts, and bytes per second."""
        rates: list[float] = []
        spent = 0.0
        while len(rates) < REPEATS and (spent < LONGEST or not rates):
            began = time.perf_counter()
            for _ in range(BURST):
                self._carrier.send(source, target, self._sent[source], self._came[target])
            self._finish(source, target)
            took = max(time.perf_counter() - began, 1e-9)
            rates.append(BURST * self._block / took)
            spent += took
            if wrong := self._differs(target):
                return wrong, 0.0
        return "", round(median(rates))


def _describe_difference(came: Any, wanted: Any, count: int) -> str:
    """What came in place of what was sent, in words."""
    total = came.numel()
    bad = came != wanted
    first = int(bad.to(dtype=wanted.dtype).argmax())
    if bool((came == ~wanted)[bad].all()):
        what = "nothing arrived"
    elif not bool(came[bad].any()):
        what = "zeros arrived"
    else:
        what = f"{int(came[first]) & (1 << 64) - 1:#x} for {int(wanted[first]):#x}"
    part = "all" if count == total else f"{count} of {total}"
    return f"{part} words wrong from byte {first * WORD} on: {what}"


def _first_line(error: RuntimeError) -> str:
    """CUDA's error without torch's advice on debugging, which begins on a line of its own."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:TEXT]


def pair_order(indexes: Sequence[int]) -> list[Pair]:
    """All pairs in both directions. The first of them touch all GPUs, and no two that follow each
    other have more than one in common: where time ends it, every GPU has been tried alike."""
    count = len(indexes)
    return [
        (indexes[i], indexes[(i + shift) % count])
        for shift in range(1, count)
        for i in range(count)
    ]


def salt_of(source: int, target: int) -> int:
    """Another one for each pair: what another pair has left behind is right at no place."""
    return (source * 4096 + target + 1) * SALT & POSITIVE


def copy_all_pairs(
    host: Host, carrier: CopyEngine, mark: Callable[[str], None], until: float, patience: float
) -> Copied:
    """Copies between all GPUs until the monotonic time `until`; none is waited for longer than
    `patience`."""
    devices = carrier.devices
    # before: a copy that hangs must leave nothing to ask
    told = _topology(host, mark, max(0.0, until - time.monotonic()) / 4)
    known = {gpu.uuid: gpu.index for gpu in told.gpus if gpu.uuid}
    parties: dict[int, CopyGpu] = {}
    free: dict[int, int] = {}
    for index in range(devices.count):
        parties[index] = CopyGpu(index)
        mark(f"CUDA on device {index}")
        try:
            number = known.get(_uuid(devices, index), index)
            parties[index] = CopyGpu(number, devices.name(index))
            free[index] = devices.free(index)
        except RuntimeError as error:
            parties[index] = replace(parties[index], lacks=_first_line(error))
    numbers = {index: party.number for index, party in parties.items()}
    if len({*numbers.values()}) < len(numbers):  # some are known, and some are not
        parties = {index: replace(party, number=index) for index, party in parties.items()}
        told = nvlink.GpuTopology()
    enough = [count for count in free.values() if count >= SHARE * LEAST]
    block = BLOCK
    while block > LEAST and SHARE * block > min(enough, default=0):
        block //= 2
    blocks = Blocks(carrier, block, patience)
    for index, count in free.items():
        try:
            if count < SHARE * LEAST:
                raise RuntimeError(f"only {size(count)} of its memory are free")
            if time.monotonic() >= until:
                raise RuntimeError("the time was over before it had started")
            blocks.lay(index)
        except RuntimeError as error:
            parties[index] = replace(parties[index], lacks=_first_line(error))
        except CopyHangs as problem:
            text = f"it has not filled {size(block)} in {problem.args[0]:.0f} s"
            parties[index] = replace(parties[index], lacks=text)
    copies, ended = _copy_pairs(blocks, carrier, parties, told, mark, until)
    return Copied(tuple(parties.values()), copies, block, ended, virtual=pci.virtual_machine(host))


def _uuid(devices: Devices, index: int) -> str:
    """As NVML writes it; empty where torch doesn't tell."""
    uuid = getattr(devices.about(index), "uuid", "")
    return f"GPU-{uuid}" if uuid else ""


def _topology(host: Host, mark: Callable[[str], None], seconds: float) -> nvlink.GpuTopology:
    """What joins them, as far as NVML tells: without it the copies are as good."""
    try:
        return nvlink.read_topology(host, mark, seconds)
    except CannotObserve:
        return nvlink.GpuTopology()


def pair_paths(told: nvlink.GpuTopology) -> Mapping[Pair, str]:
    """What joins every two GPUs, by NVML's numbers."""
    found: dict[Pair, str] = {}
    levels = {pair.ends: pair.level for pair in told.pairs}
    for one, other in itertools.permutations(told.gpus, 2):
        level = levels.get(frozenset((one.index, other.index)))
        if not (one.whole and other.whole):
            continue
        if by_nvlink(one, other):
            lanes = one.lanes_to(other) or min(one.active, other.active)
            found[one.index, other.index] = f"NVLink {lanes}"
        elif level is not None:
            found[one.index, other.index] = nvlink.NEAR.get(level, "")
    return found


def _mark_if_bad(mark: Callable[[str], None], copy: Copy, made: Mapping[Pair, Copy]) -> None:
    """In a mark, of a bad copy: the observation may yet be lost."""
    if not copy.exact and sum(not c.exact for c in made.values()) <= TELLING:
        mark(f"{'wrong' if copy.wrong else 'failed'} {copy}: {copy.wrong or copy.error}")


def _copy_pairs(
    blocks: Blocks,
    carrier: CopyEngine,
    parties: Mapping[int, CopyGpu],
    told: nvlink.GpuTopology,
    mark: Callable[[str], None],
    until: float,
) -> tuple[tuple[Copy, ...], str]:
    """All pairs of those who take part, and why it was not all."""
    made: dict[Pair, Copy] = {}
    by = pair_paths(told)
    ready = [index for index, party in parties.items() if not party.lacks]
    pairs = pair_order(ready)
    for source, target in pairs[:MOST]:
        if time.monotonic() >= until:
            return tuple(made.values()), "there was no time for more"
        pair = parties[source].number, parties[target].number
        copy = Copy(*pair, way=by.get(pair, ""))
        mark(f"copy {copy}")
        copy = replace(copy, peer=carrier.reaches(source, target))
        made[source, target] = copy = blocks.tried(source, target, salt_of(*pair), copy)
        if copy.stuck is not None:
            return tuple(made.values()), f"nothing was tried after {copy}, which did not end"
        _mark_if_bad(mark, copy, made)
        if copy.error and not blocks.alive(source, target):
            return tuple(made.values()), f"CUDA does nothing more after {copy}"
    mark(AGAIN)
    for (source, target), copy in made.items():
        if time.monotonic() >= until:
            break
        if copy.exact:
            mark(f"copy {copy}")
            again = blocks.tried(source, target, salt_of(*copy.pair), copy)
            made[source, target] = again
            if again.stuck is not None or again.error:
                return tuple(made.values()), ""
            _mark_if_bad(mark, again, made)
    return tuple(made.values()), "" if len(pairs) <= MOST else f"no more than {MOST} are tried"
