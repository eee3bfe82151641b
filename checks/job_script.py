"""Does the training script contain code that deadlocks or wastes time across ranks?

Level        deep
Looks at     the script of the command that is rehearsed and what it imports from its own folder (up
             to 50 files), as text: nothing is imported or run. A comment '# preflight: ignore' on a
             line keeps it out
Fails if     the script has a syntax error
Warns if     some ranks leave before a collective or alone get to one (a test of the rank around it,
             without the same for the others), or alone call the wrapped model; a rank goes on after
             an error in a collective, stops early, or throws dice about a collective on its own; a
             set gives the order of collectives; an asynchronous collective is never waited for; DDP
             reads its data without a sampler, or never tells it the epoch; gradients that are added
             up over batches are summed over the ranks in each, or reset in each; they are clipped
             while they are scaled; a GradScaler scales bfloat16; apex.amp is used; no rank is given
             a GPU of its own, or a batch stays on the CPU; NCCL is asked for where there is no GPU;
             DETAIL debugging will crash DDP over Gloo; addresses, ranks or devices are written down
             and contradict the launcher; a process group of NCCL is never destroyed
Undecided    the script can't be read
Not covered  what only shows when it runs; collectives in a group of their own; installed libraries
             and what they do: where Lightning, Accelerate and the like are imported, or data is
             dealt out in a way of its own, the rules about data, devices and steps are silent
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
    "collective-swallowed": pitfall(
        headline="one rank goes on alone after an error: the except at {place} ends nothing",
        cause="a batch that is too large or broken, and that should be left out",
        means="that rank is one collective behind from then on: all hang until the time-out, or "
        "add up what does not belong together",
        text="raise again at {place!s}, so that the launcher ends all ranks; or let all ranks "
        "leave the batch out: all_reduce a flag after the forward, before any backward()",
    ),
    "wrapped-under-rank": pitfall(
        headline="only some ranks call the wrapped model at {place}, which takes all of them",
        cause="evaluation, sampling or a checkpoint on rank 0",
        means="those ranks wait in the broadcast of its buffers, or in the all-gather of its "
        "parameters, until the time-out",
        text="call model.module at {place!s} with DDP; let all ranks call it with FSDP",
    ),
    "early-stop-per-rank": pitfall(
        headline="each rank decides alone to stop training at {place}",
        cause="early stopping as on one GPU",
        means="a rank that has stopped is missing in the next all-reduce: the others hang until "
        "its time-out",
        text="use the loss of all ranks (all_reduce) for the test, or broadcast the decision of "
        "rank 0, before {place!s}",
    ),
    "random-branch": pitfall(
        headline="chance decides on each rank whether it calls the collective at {place}",
        cause="random numbers that are seeded for each rank, or not at all",
        means="some ranks wait in a collective that the others never call",
        text="use a random.Random(seed) with the same seed on all ranks at {place!s}, or broadcast "
        "what rank 0 has drawn",
    ),
    "set-order": pitfall(
        headline="collectives are called in the order of a set at {place}",
        cause="a set where a list was meant",
        means="ranks call them in different orders: a hang, or sums of different things",
        text="use sorted(…) at {place!s}, or over a list or dict",
    ),
    "accumulation-reset": pitfall(
        headline="gradients are reset in every micro-batch at {place}, before they are used",
        cause="accumulation added to a loop that had zero_grad() in each batch",
        means="no error: all micro-batches of a step but the last are computed for nothing",
        text="put zero_grad() of {place!s} behind optimizer.step(), under the same if",
    ),
    "clip-scaled": pitfall(
        headline="gradients are clipped at {place} while they are scaled",
        cause="clipping added to a loop with a GradScaler",
        means="no error: gradients that are 65536 times too large are cut down to nearly nothing "
        "in every step",
        text="call scaler.unscale_(optimizer) before {place!s}",
    ),
    "apex-amp": pitfall(
        headline="apex.amp is used at {place}",
        cause="a script from before torch had mixed precision of its own",
        means="'No module named apex', or a build of it that fits no recent torch",
        text="use torch.autocast and torch.amp.GradScaler at {place!s}",
    ),
    "batch-not-moved": pitfall(
        headline="a batch stays on the CPU, and the model at {place} is on the GPU",
        cause="a .to(device) forgotten",
        means="'Expected all tensors to be on the same device'",
        text="call .to(device, non_blocking=True) of what the DataLoader gives, before {place!s}",
    ),
    "rendezvous-hardcoded": pitfall(
        headline="the script fixes at {place} where or with how many ranks it meets",
        cause="a trial on one machine, or the address of another one",
        means="ranks wait for each other at different places, for ranks that are not started, or "
        "for none",
        text="let the launcher set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE: at {place!s} "
        "init_process_group with no more than a backend",
    ),
    "launcher-contradicted": pitfall(
        headline="the devices or processes of {place} contradict what torchrun starts",
        cause="processes or devices that are given to both",
        means="'does not match the world size', 'invalid device ordinal', or more ranks than GPUs",
        text="let {place!s} follow the launcher: devices='auto', no spawn, no "
        "CUDA_VISIBLE_DEVICES of the script's own; or start it without torchrun",
    ),
    "destroy-missing": pitfall(
        headline="the process group of NCCL at {place} is never destroyed",
        cause="a script without an end",
        means="'destroy_process_group() was not called before program exit'; a rank may hang or "
        "abort while it ends",
        text="call torch.distributed.destroy_process_group() at the end of the script that has "
        "{place!s}",
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
    "collective-swallowed": "an error that ends the rank, or a batch that all leave out",
    "wrapped-under-rank": "model.module, or the call on all ranks",
    "early-stop-per-rank": "one decision for all ranks",
    "random-branch": "one decision for all ranks",
    "set-order": "the same order on all ranks",
    "accumulation-reset": "zero_grad() once a step of the optimizer",
    "clip-scaled": "scaler.unscale_(optimizer) before clipping",
    "apex-amp": "torch.amp",
    "batch-not-moved": "the batch on the device of the model",
    "rendezvous-hardcoded": "what the launcher says",
    "launcher-contradicted": "as many as the launcher starts",
    "destroy-missing": "destroy_process_group() at the end",
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
    argv = ctx.options.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, (list, tuple)) else []
    hits = linter.hits(program, host.environ, gpu, words)
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
    if hit.rule in ("batch-not-moved", "destroy-missing"):
        return seen.gpu
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
