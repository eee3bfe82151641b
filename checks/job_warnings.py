"""Has torch itself warned that the job trains wrongly or slowly?

Level        deep
Looks at     of each rank of a rehearsed command: the warnings of torch and Lightning that it
             printed, and the user's line at which they came; only those of a short list
Fails if     never: the job goes on
Warns if     a loss gets tensors of different shapes; backward does not pass through a collective of
             the forward; an IterableDataset gives more samples than its length; Lightning logs a
             metric of one rank as that of all; FSDP's forward takes another order on some ranks;
             autocast is disabled; torch has no kernels for a GPU, or can't use CUDA
Undecided    not a rehearsal (preflight rehearse -- CMD)
Not covered  warnings that the program filters out, those of other libraries, and what torch only
             logs, such as recompilations
Seen as      a line among thousands, often of another rank than the one whose log is read
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from preflight.check import Context
from preflight.domains.job.load import FROM_OUTSIDE, REHEARSAL, for_author, load_rank, rank_subject
from preflight.domains.job.torch_warnings import CODES, TorchWarning
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import plural
from preflight.model import (
    Confidence,
    Found,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = replace(REHEARSAL, required=False)

SHOWN = 160
"""Letters of a warning."""

warning = partial(for_author, status=Status.WARN)
FINDINGS = {
    "loss-broadcast": warning(
        headline="a loss gets tensors of different shapes: {seen}",
        cause="an output of shape [N, 1] and a target of shape [N]: each output is compared with "
        "every target",
        means="no error at all: the loss goes down, and the model learns the mean of the targets",
        text="give both the same shape at {line!s}: output.squeeze(-1), or target.unsqueeze(-1)",
    ),
    "gradient-not-passed": warning(
        headline="backward does not pass through a collective of the forward: {seen}",
        cause="dist.all_reduce or all_gather of a tensor that needs gradients: features for a "
        "contrastive loss, tensor parallelism written by hand",
        means="no error at all: the gradients are those of this rank's part, or wrong",
        text="use functions that have a backward for what the loss at {line!s} needs: "
        "torch.distributed.nn.functional, in the latest releases "
        "torch.distributed._functional_collectives; detach() what is only logged",
    ),
    "dataset-repeated": warning(
        headline="an IterableDataset gives more samples than its length: {seen}",
        cause="each DataLoader worker reads all data instead of its part; or a length that is too "
        "small",
        means="no error at all: each sample is trained on once per worker, and epochs are longer",
        text="use torch.utils.data.get_worker_info() in the dataset of {line!s}, so that each "
        "worker reads its part only",
    ),
    "metric-unsynced": warning(
        headline="a metric is logged by each rank for itself: {seen}",
        cause="self.log without sync_dist=True",
        means="no error at all: what is logged, and what selects checkpoints or stops early, is "
        "the value of one rank",
        text="pass sync_dist=True to self.log at {line!s}",
    ),
    "forward-order": warning(
        headline="FSDP's forward differs between ranks: {seen}",
        cause="a branch, a skipped layer or an order of modules that differs by rank",
        means="wrong parameters, or a hang in an all-gather",
        text="call the modules in the same order on all ranks in the forward at {line!s}",
    ),
    "precision-off": warning(
        headline="mixed precision is disabled: {seen}",
        cause="a dtype of autocast that this device does not support",
        means="no error at all: it trains in float32, slower and with more memory",
        text="set device_type and dtype of autocast at {line!s} to what this machine has",
    ),
    "gpu-unsupported": warning(
        headline="this torch has no kernels for a GPU of this machine: {seen}",
        cause="a GPU newer or older than the architectures that the wheel was built for",
        means="'CUDA error: no kernel image is available for execution on the device'",
        text="install a build of torch whose torch.cuda.get_arch_list() has this GPU",
    ),
    "cuda-unusable": warning(
        headline="torch can't use CUDA: {seen}",
        cause="a driver that is too old for this torch, a GPU that is lost, a device file that is "
        "missing",
        means="torch.cuda.is_available() is False, and the job trains on the CPU",
        text="check the driver and the GPUs of this node",
        now="preflight run --only gpu",
    ),
}


@dataclass(frozen=True, slots=True)
class Warnings:
    """Those of one rank."""

    rank: int | None
    warned: tuple[TorchWarning, ...] = ()


def observe(host: Host, ctx: Context) -> Warnings:
    seen = load_rank(host, ctx)
    if seen.life.watched != "inside":
        raise NotApplicable(FROM_OUTSIDE)
    return Warnings(seen.life.rank, seen.warned)


def judge(world: World[Warnings], expect: Expect) -> Iterator[Found]:
    for code in CODES:
        ranks = [
            (rank_subject(here, seen.rank), warned)
            for here, seen in world.each()
            for warned in seen.warned
            if warned.code == code
        ]
        if ranks:
            yield _found(code, ranks)


def _found(code: str, ranks: list[tuple[Subject, TorchWarning]]) -> Found:
    first = ranks[0][1]
    text = first.text if len(first.text) <= SHOWN else f"{first.text[: SHOWN - 1]}…"
    where = f" · at {first.frame}" if first.frame else ""
    often = max(warned.times for _, warned in ranks)
    return Found(
        code,
        tuple(subject for subject, _ in ranks),
        saw=f"{text!r}{where}" + (f" · {often} times" if often > 1 else ""),
        expected="no such warning",
        confidence=Confidence.LIKELY,
        fields={"line": str(first.frame) if first.frame else "that line"},
    )


def measured(world: World[Warnings]) -> Measured:
    count = sum(len(seen.warned) for _, seen in world.each())
    return Measured(f"{plural(count, 'warning')} of torch" if count else "torch warned of nothing")
