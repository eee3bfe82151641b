"""Does the training script contain code that deadlocks or wastes time across ranks?

Level        deep
Looks at     the script of the command that is rehearsed and what it imports from its own folder (up
             to 50 files), as text: nothing is imported or run. A comment '# preflight: ignore' on a
             line keeps it out
Fails if     the script has a syntax error
Warns if     some ranks leave before a collective or alone get to one (a test of the rank around it,
             without the same for the others); an asynchronous collective is never waited for; DDP
             reads its data without a sampler, or never tells it the epoch; gradients that are added
             up over batches are summed over the ranks in each; a GradScaler scales bfloat16; no
             rank is given a GPU of its own; NCCL is asked for where there is no GPU; DETAIL
             debugging will crash DDP over Gloo
Undecided    the script can't be read
Not covered  what only shows when it runs; collectives in a group of their own; installed libraries
             and what they do: where Lightning, Accelerate and the like are imported, or data is
             dealt out in a way of its own, the rules about data and devices are silent
Seen as      "Watchdog caught collective operation timeout", "Timed out waiting 1800000ms for recv
             operation to complete" on innocent ranks, "Duplicate GPU detected", "ProcessGroupNCCL
             is only supported with GPUs, no GPUs found!", exit code 139 (SIGSEGV) at the first step
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.job.load import for_author
from preflight.domains.script import linter, source
from preflight.domains.script.source import Hit
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import plural
from preflight.model import (
    Blame,
    Confidence,
    Found,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.REHEARSAL,
    budget=15.0,
    level=Level.DEEP,
    requires=frozenset({Requirement.REHEARSAL}),
    required=False,
    options={"script": "the script to look at; rehearse takes it from the command"},
    blame=Blame.JOB,
)

SHOWN = 5
"""Places of one rule that are told of."""

# the releases in which a DDP over Gloo was seen to end with SIGSEGV under DETAIL
CRASHING = ("2.13.",)
# programs beside which the interpreter lies that will read the script
STARTERS = ("python", "torchrun", "accelerate", "deepspeed")

pitfall = partial(for_author, status=Status.WARN)
FINDINGS = {
    "syntax-error": for_author(
        headline="{place} is not valid Python: {seen}",
        cause="a typing error, or a file for another Python",
        means="every rank ends at once with 'SyntaxError' at {place}",
        text="correct {place!s}; python -m py_compile of the file shows the same",
        status=(Status.FAIL, Status.WARN),
    ),
    "collective-under-rank": pitfall(
        headline="not all ranks reach the collective at {place}: {seen}",
        cause="saving, logging or evaluating on rank 0, with a collective inside",
        means="those ranks wait in it until its time-out; the error then names innocent ranks",
        text="let all ranks get to it: no test of the rank around or before {place!s}, or the same "
        "collective for the others; what is for some ranks needs a group= of their own",
    ),
    "async-not-waited": pitfall(
        headline="the result of an async collective at {place} is never waited for",
        cause="async_op=True for speed, and the wait() forgotten",
        means="no error: the tensor may be read before its sum is there",
        text="keep what it returns at {place!s} and call .wait() before the tensor is used; or "
        "leave async_op out",
    ),
    "sampler-missing": pitfall(
        headline="all ranks may read the same data: no DistributedSampler at {place}",
        cause="a script for one GPU to which DDP was added",
        means="no error: every rank reads all of the data, an epoch takes as long as on one GPU",
        text="pass sampler=DistributedSampler(dataset) in the DataLoader at {place!s}, without "
        "shuffle=; and sampler.set_epoch(epoch) at the start of each epoch",
    ),
    "set-epoch-missing": pitfall(
        headline="the data is in the same order in every epoch: no set_epoch() for the sampler at "
        "{place}",
        cause="a DistributedSampler in the place of shuffle=True",
        means="no error: each epoch has the same order, and the loss may level off too high",
        text="call sampler.set_epoch(epoch) at the start of each epoch, for the sampler of "
        "{place!s}; or shuffle=False there, if the order is meant",
    ),
    "no-sync-missing": pitfall(
        headline="gradients are exchanged in every micro-batch: no model.no_sync() at {place}",
        cause="accumulation as on one GPU",
        means="no error: gradients are sent over the network in every batch and used in a few",
        text="put with model.no_sync(): around forward and backward() at {place!s}, in all batches "
        "of a step but the last",
    ),
    "scaler-bf16": pitfall(
        headline="a GradScaler is used with bfloat16 at {place}",
        cause="float16 exchanged for bfloat16, and its scaler left over",
        means="no error: each step looks through all gradients for infinities that bfloat16, with "
        "the range of float32, has no need for",
        text="remove the GradScaler at {place!s}: loss.backward(), optimizer.step()",
    ),
    "set-device-missing": pitfall(
        headline="all ranks may use GPU 0: no torch.cuda.set_device() before {place}",
        cause="a script for one GPU to which init_process_group was added",
        means="all ranks of a node use GPU 0: 'Duplicate GPU detected', 'out of memory', or a "
        "barrier that hangs",
        text="call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before {place!s}, and "
        "device_id= in init_process_group",
    ),
    "nccl-on-cpu": pitfall(
        headline="backend 'nccl' is asked for at {place}, but there is no GPU",
        cause="a script for GPUs on a login node, or a job that asked for none",
        means="'ProcessGroupNCCL is only supported with GPUs, no GPUs found!'",
        text="choose 'nccl' if torch.cuda.is_available() else 'gloo' at {place!s}; or a job with "
        "GPUs",
    ),
    "detail-ddp": pitfall(
        headline="TORCH_DISTRIBUTED_DEBUG=DETAIL at {place} slows every collective down",
        cause="TORCH_DISTRIBUTED_DEBUG=DETAIL left over from a search for a hang",
        means="exit code 139 or signal 11 on every rank when the model is wrapped",
        text="export TORCH_DISTRIBUTED_DEBUG=INFO, or take DETAIL out of {place!s}",
    ),
}

EXPECTED = {
    "syntax-error": "a script that Python can read",
    "collective-under-rank": "every collective on all ranks, in the same order",
    "async-not-waited": ".wait() on what it returns",
    "sampler-missing": "data of its own for each rank",
    "set-epoch-missing": "set_epoch() in each epoch",
    "no-sync-missing": "gradients summed once a step of the optimizer",
    "scaler-bf16": "a GradScaler with float16 only",
    "set-device-missing": "a GPU of its own for each rank",
    "nccl-on-cpu": "a backend that this machine has",
    "detail-ddp": "TORCH_DISTRIBUTED_DEBUG=INFO or OFF",
}


@dataclass(frozen=True, slots=True)
class Script:
    """What the script's text shows. same_python: it will be read by the Python that read it here;
    torch: the release that is installed beside us, looked up only where it matters."""

    name: str
    files: int
    lines: int
    hits: tuple[Hit, ...]
    gpu: bool
    same_python: bool
    torch: str = ""


def observe(host: Host, ctx: Context) -> Script:
    name = str(ctx.options.get("script") or "")
    if not name:
        rehearsed = "argv" in ctx.options
        raise NotApplicable(
            "the command names no Python file" if rehearsed else "only where a command is rehearsed"
        )
    cwd = str(ctx.options.get("cwd") or os.getcwd())
    program = source.read_program(host, name, cwd)
    gpu = bool(host.gpu_files()) or host.exists("/proc/driver/nvidia") or host.exists("/dev/nvmap")
    ctx.mark("read")
    hits = linter.hits(program, host.environ, gpu)
    argv = ctx.options.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, (list, tuple)) else []
    return Script(
        name=name,
        files=len(program.modules),
        lines=sum(len(module.lines) for module in program.modules),
        hits=hits,
        gpu=gpu,
        same_python=_same_python(words, host.environ),
        torch=_torch() if any(hit.rule == "detail-ddp" for hit in hits) else "",
    )


def _same_python(argv: list[str], environ: Mapping[str, str]) -> bool:
    """Whether the command's Python is ours: another one may know more of the language."""
    for word in argv:
        if os.path.basename(word).startswith(STARTERS):
            found = shutil.which(word, path=environ.get("PATH"))
            return found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)
    return False


def _torch() -> str:
    from importlib import metadata

    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def judge(world: World[Script], expect: Expect) -> Iterator[Found]:
    places: dict[Hit, list[tuple[Subject, Script]]] = {}
    for here, seen in world.each():
        for hit in seen.hits:
            if _applies(hit, seen):
                places.setdefault(hit, []).append((here, seen))
    rules: dict[str, list[Hit]] = {}
    for hit in places:
        rules.setdefault(hit.rule, []).append(hit)
    for own in rules.values():
        for number, hit in enumerate(own[:SHOWN]):
            more = len(own) - SHOWN if number == SHOWN - 1 else 0
            yield _found(hit, places[hit], more)


def _applies(hit: Hit, seen: Script) -> bool:
    if hit.rule == "nccl-on-cpu":
        return not seen.gpu
    return hit.rule != "detail-ddp" or seen.torch.startswith(CRASHING)


def _found(hit: Hit, where: list[tuple[Subject, Script]], more: int) -> Found:
    place = f"{hit.file}:{hit.line}"
    saw = f"{hit.text or 'an empty line'}" + (f" · in {hit.function}()" if hit.function else "")
    saw += f" · {hit.other}" if hit.other else ""
    saw += f" · and {plural(more, 'more place')}" if more > 0 else ""
    certain = hit.rule == "syntax-error" and all(seen.same_python for _, seen in where)
    return Found(
        hit.rule,
        tuple(Subject(Kind.SOFTWARE, h.node, place, ranks=h.ranks) for h, _ in where),
        saw=saw,
        expected=EXPECTED[hit.rule],
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
        fields={"place": place},
        status=None if certain else Status.WARN,
    )


def measured(world: World[Script]) -> Measured:
    seen = next(iter(world.seen.values()), None)
    if seen is None:
        return Measured()
    places = sum(_applies(hit, seen) for hit in seen.hits)
    text = f"{seen.name} · {plural(seen.files, 'file')}, {plural(seen.lines, 'line')}"
    text += f" · {plural(places, 'place')} to look at" if places else ""
    return Measured(text, {"files": seen.files, "lines": seen.lines, "places": places})
