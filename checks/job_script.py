"""Does the training script contain code that deadlocks or wastes time across ranks?

Level        deep
Looks at     the script of the command that is rehearsed and what it imports from its own folder (up
             to 50 files), as text: nothing is imported or run. A comment '# preflight: ignore'
             excludes a line
Fails if     the script has a syntax error, or does not exist and the command has failed
Warns if     some ranks exit before a collective, or only some reach one (an `if rank == 0` around
             it, without the same call for the others), or only some call the wrapped model; a rank
             continues alone after an error in a collective, skips a batch or stops early on its
             own, sets its own learning rate, or decides by a random number whether to call one; a
             set determines the order of collectives; an asynchronous collective is never waited
             for; gradients are summed, by a hook of DDP or by hand, and not divided, or a loss over
             the tokens of all ranks is averaged by DDP once more; features are gathered for a
             contrastive loss by a collective that carries no gradient; DDP loads its data without a
             sampler, or never calls set_epoch, or each rank shuffles it by itself before; gradients
             accumulated over batches are all-reduced in each of them, or reset or unscaled in each;
             they are clipped while they are scaled; a GradScaler is used with bfloat16;
             apex.amp is used; no rank selects its own GPU, or a batch stays on the CPU; NCCL is
             requested without a GPU; DETAIL debugging will crash DDP over Gloo; hard-coded
             addresses, ranks or devices contradict the launcher; an NCCL process group is never
             destroyed. A loss that is read or printed in every step (.item(), synchronize()) is
             mentioned, where there is a GPU
Undecided    the script can't be read
Not covered  what only shows at run time; collectives in their own group; what installed libraries
             do: if Lightning, Accelerate or the like is imported, or data is distributed in a
             custom way, the rules about data, devices and steps are not applied
Seen as      "Watchdog caught collective operation timeout", "Timed out waiting 1800000ms for recv
             operation to complete" on innocent ranks, "Duplicate GPU detected", "ProcessGroupNCCL
             is only supported with GPUs, no GPUs found!", exit code 139 (SIGSEGV) at the first step
"""

from __future__ import annotations

import itertools
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
LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
# options of launchers for what is not a file
NO_FILE = {"--module", "--no-python", "--no_python"}

pitfall = partial(for_author, status=Status.WARN)
FINDINGS = {
    "script-missing": for_author(
        headline="the script of the command does not exist: {path}",
        cause="a mistyped path, another working directory, or a folder that this node does not "
        "share",
        means='every rank of this node fails at once with "can\'t open file"',
        text="correct the path in the command, or make {path} readable on every node",
        status=(Status.FAIL,),
    ),
    "syntax-error": for_author(
        headline="{place} is not valid Python: {seen}",
        cause="a typo, or a file for another Python version",
        means="every rank fails at once with 'SyntaxError' at {place}",
        text="correct {place!s}; python -m py_compile FILE shows the same error",
        status=(Status.FAIL, Status.WARN),
    ),
    "collective-under-rank": pitfall(
        headline="not all ranks reach the collective at {place}: {seen}",
        cause="saving, logging or evaluating on rank 0, with a collective inside",
        means="those ranks wait in it until the timeout; the error then names innocent ranks",
        text="let all ranks reach it: no `if rank` around or before {place!s}, or the same "
        "collective for the others; for a collective of some ranks create a group= for them",
    ),
    "async-not-waited": pitfall(
        headline="the result of an async collective at {place} is never waited for",
        cause="async_op=True for speed, and a forgotten wait()",
        means="no error: the tensor may be read before the result is there",
        text="keep the return value at {place!s} and call .wait() before the tensor is used; or "
        "remove async_op",
    ),
    "sampler-missing": pitfall(
        headline="all ranks may read the same data: no DistributedSampler at {place}",
        cause="a script for one GPU to which DDP was added",
        means="no error: every rank loads all of the data, an epoch takes as long as on one GPU",
        text="pass sampler=DistributedSampler(dataset) to the DataLoader at {place!s}, without "
        "shuffle=; call sampler.set_epoch(epoch) at the start of each epoch",
    ),
    "set-epoch-missing": pitfall(
        headline="the data is in the same order in every epoch: no set_epoch() for the sampler at "
        "{place}",
        cause="a DistributedSampler instead of shuffle=True",
        means="no error: each epoch has the same order, and the loss may stop falling too early",
        text="call sampler.set_epoch(epoch) at the start of each epoch, for the sampler of "
        "{place!s}; or pass shuffle=False there, if the fixed order is intended",
    ),
    "no-sync-missing": pitfall(
        headline="gradients are exchanged in every micro-batch: no model.no_sync() at {place}",
        cause="gradient accumulation written for one GPU",
        means="no error: gradients are sent over the network for every batch but used only every "
        "few",
        text="put `with model.no_sync():` around forward and backward() at {place!s}, in all "
        "batches of a step but the last",
    ),
    "scaler-bf16": pitfall(
        headline="a GradScaler is used with bfloat16 at {place}",
        cause="a GradScaler left over from float16",
        means="no error: each step scans all gradients for infinities, which bfloat16, with the "
        "range of float32, does not need",
        text="remove the GradScaler at {place!s}: loss.backward(), optimizer.step()",
    ),
    "collective-swallowed": pitfall(
        headline="one rank continues alone after an error: the except at {place} does not end it",
        cause="an except that skips a batch that is too large or broken",
        means="that rank is one collective behind from then on: all ranks hang until the timeout, "
        "or sum tensors that don't belong together",
        text="raise again at {place!s}, so that the launcher ends all ranks; or let all ranks "
        "skip the batch: all_reduce a flag after the forward, before any backward()",
    ),
    "batch-skipped": pitfall(
        headline="each rank decides alone to skip a batch at {place}",
        cause="a guard against an empty batch or a loss that is NaN, as on one GPU",
        means="a rank that skips is missing in the all-reduce of backward(): the others hang until "
        "its timeout, or gradients of different batches are summed",
        text="let all ranks skip it: all_reduce a flag, before {place!s}; or call backward() on a "
        "loss of zero there",
    ),
    "wrapped-under-rank": pitfall(
        headline="only some ranks call the wrapped model at {place}, which needs all of them",
        cause="evaluation, sampling or a checkpoint on rank 0",
        means="those ranks wait in the broadcast of its buffers, or in the all-gather of its "
        "parameters, until the timeout",
        text="call model.module at {place!s} with DDP; let all ranks call it with FSDP",
    ),
    "early-stop-per-rank": pitfall(
        headline="each rank decides alone to stop training at {place}",
        cause="early stopping, or a time limit, as on one GPU",
        means="a rank that has stopped is missing in the next all-reduce: the others hang until "
        "its timeout",
        text="use a value of all ranks (all_reduce) for the decision, or broadcast that of rank 0, "
        "before {place!s}",
    ),
    "rate-per-rank": pitfall(
        headline="each rank sets its own learning rate at {place}",
        cause="a scheduler written for one GPU, which is given the loss of the rank's own data or "
        "is stepped by some ranks only",
        means="no error: the ranks apply the same gradients with different learning rates, and "
        "their models drift apart",
        text="call the scheduler on all ranks, with a loss that all have agreed on (all_reduce), "
        "at {place!s}",
    ),
    "gradients-summed": pitfall(
        headline="gradients are summed over the ranks and not divided, at {place}: {seen}",
        cause="all_reduce with its default operation, which is a sum; a hook of "
        "register_comm_hook, which takes the place of DDP's own averaging",
        means="no error: with SGD each step is as many times too large as there are ranks, and "
        "the learning rate that was right on one GPU is not right on eight",
        text="use op=dist.ReduceOp.AVG with NCCL, or divide by dist.get_world_size(), at {place!s}",
    ),
    "loss-divided-twice": pitfall(
        headline="the loss at {place} is a mean over all ranks, and DDP takes the mean once more",
        cause="a loss per token of all ranks, which all_reduce has counted, under DDP",
        means="no error: with SGD each step is as many times too small as there are ranks",
        text="correct the loss at {place!s}: times dist.get_world_size(), by which DDP divides",
    ),
    "gather-without-gradient": pitfall(
        headline="all_gather at {place} carries no gradient, and a loss is made of its result: "
        "{seen}",
        cause="torch.distributed.all_gather, which fills plain tensors: a contrastive loss over "
        "the batches of all ranks learns from each rank's own rows alone",
        means="no error: gradients are a part of what they should be, and a larger batch does not "
        "help",
        text="use torch.distributed.nn.functional.all_gather at {place!s}; or put the rank's own "
        "part back, gathered[rank] = x, where every rank computes the loss over all rows",
    ),
    "order-per-rank": pitfall(
        headline="each rank shuffles or splits the dataset differently at {place}: {seen}",
        cause="random numbers without a seed that is the same on all ranks, before "
        "DistributedSampler splits the dataset by index",
        means="no error: some samples are used by several ranks and others by none, and validation "
        "data is trained on",
        text="use a random.Random(seed) or a torch.Generator with the same seed on all ranks at "
        "{place!s}",
    ),
    "random-branch": pitfall(
        headline="a random number decides on each rank whether it calls the collective at {place}",
        cause="random numbers with a different seed on each rank, or none",
        means="some ranks wait in a collective that the others never call",
        text="use a random.Random(seed) with the same seed on all ranks at {place!s}, or "
        "broadcast rank 0's number",
    ),
    "set-order": pitfall(
        headline="collectives are called in the order of a set at {place}",
        cause="a set used instead of a list",
        means="ranks call them in different orders: a hang, or sums of different things",
        text="use sorted(…) at {place!s}, or a list or dict",
    ),
    "accumulation-reset": pitfall(
        headline="gradients are reset in every micro-batch at {place}, before they are used",
        cause="accumulation added to a loop that had zero_grad() in each batch",
        means="no error: all micro-batches of a step except the last are wasted",
        text="put zero_grad() of {place!s} after optimizer.step(), under the same if",
    ),
    "clip-scaled": pitfall(
        headline="gradients are clipped at {place} while they are scaled",
        cause="clipping added to a loop with a GradScaler",
        means="no error: gradients that are 65536 times too large are clipped to nearly zero in "
        "every step",
        text="call scaler.unscale_(optimizer) before {place!s}",
    ),
    "unscaled-each-batch": pitfall(
        headline="accumulated gradients are unscaled at {place} in every batch",
        cause="clipping added to a loop with a GradScaler that accumulates gradients",
        means="no error where update() is called in every batch, too: what was accumulated is "
        "divided by the scale again and again, and the last batch alone counts; else 'unscale_() "
        "has already been called on this optimizer since the last update().'",
        text="call unscale_() at {place!s}, clipping and scaler.update() only where "
        "scaler.step(optimizer) is called",
    ),
    "apex-amp": pitfall(
        headline="apex.amp is used at {place}",
        cause="a script from before torch had its own mixed precision",
        means="'No module named apex', or a build of it that does not work with a recent torch",
        text="use torch.autocast and torch.amp.GradScaler at {place!s}",
    ),
    "batch-not-moved": pitfall(
        headline="a batch stays on the CPU, but the model at {place} is on the GPU",
        cause="a forgotten .to(device)",
        means="'Expected all tensors to be on the same device'",
        text="call .to(device, non_blocking=True) on the batches of the DataLoader, before "
        "{place!s}",
    ),
    "copy-not-awaited": pitfall(
        headline="a copy between CPU and GPU at {place} may not have ended when it is used: {seen}",
        cause="non_blocking=True, with which a copy only begins",
        means="no error at all: zeros, numbers of an earlier batch, or parts of both, now and then",
        text="wait for the copy at {place!s} before its memory is read or filled again: "
        "torch.cuda.current_stream().synchronize(), or an Event recorded after it; two buffers in "
        "turn need an Event each",
    ),
    "rendezvous-hardcoded": pitfall(
        headline="the rendezvous address or the number of ranks is hard-coded at {place}",
        cause="a test on one machine, or the address of another one",
        means="ranks wait for each other in different places, for ranks that are never started, "
        "or for none",
        text="let the launcher set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE: at {place!s} "
        "call init_process_group with a backend only",
    ),
    "launcher-contradicted": pitfall(
        headline="the devices or processes of {place} contradict what torchrun starts",
        cause="processes or devices configured in both",
        means="'does not match the world size', 'invalid device ordinal', or more ranks than GPUs",
        text="let {place!s} follow the launcher: devices='auto', no spawn, no "
        "CUDA_VISIBLE_DEVICES of the script's own; or start the script without torchrun",
    ),
    "destroy-missing": pitfall(
        headline="the process group of NCCL at {place} is never destroyed",
        cause="a script without a clean end",
        means="'destroy_process_group() was not called before program exit'; a rank may hang or "
        "abort at its end",
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
        headline="backend 'nccl' is requested at {place}, but there is no GPU",
        cause="a script for GPUs on a login node, or a job that did not request any",
        means="'ProcessGroupNCCL is only supported with GPUs, no GPUs found!'",
        text="use 'nccl' if torch.cuda.is_available() else 'gloo' at {place!s}; or request GPUs "
        "for the job",
    ),
    "detail-ddp": pitfall(
        headline="TORCH_DISTRIBUTED_DEBUG=DETAIL at {place} slows every collective down",
        cause="TORCH_DISTRIBUTED_DEBUG=DETAIL left over from debugging a hang",
        means="exit code 139 or signal 11 on every rank when the model is wrapped",
        text="export TORCH_DISTRIBUTED_DEBUG=INFO, or remove DETAIL at {place!s}",
    ),
}

NOTED = "waits-each-step"
"""A rule whose places are only mentioned: to read a loss in every step is common, and what it costs
a rehearsal on the GPU tells (job.balance)."""
EXPECTED = {
    "script-missing": "the script on every node",
    "syntax-error": "a script that Python can read",
    "collective-under-rank": "every collective on all ranks, in the same order",
    "async-not-waited": ".wait() on what it returns",
    "sampler-missing": "different data for each rank",
    "set-epoch-missing": "set_epoch() in each epoch",
    "no-sync-missing": "gradients summed once per optimizer step",
    "scaler-bf16": "a GradScaler with float16 only",
    "collective-swallowed": "an error that ends the rank, or a batch that all ranks skip",
    "batch-skipped": "a batch that all ranks skip",
    "wrapped-under-rank": "model.module, or the call on all ranks",
    "early-stop-per-rank": "one decision for all ranks",
    "rate-per-rank": "one learning rate on all ranks",
    "gradients-summed": "the mean of the gradients",
    "loss-divided-twice": "a loss that is multiplied by the number of ranks",
    "gather-without-gradient": "a collective that carries gradients",
    "order-per-rank": "one order of the data on all ranks",
    "random-branch": "one decision for all ranks",
    "set-order": "the same order on all ranks",
    "accumulation-reset": "zero_grad() once per optimizer step",
    "clip-scaled": "scaler.unscale_(optimizer) before clipping",
    "unscaled-each-batch": "scaler.unscale_(optimizer) once per optimizer step",
    "apex-amp": "torch.amp",
    "batch-not-moved": "the batch on the device of the model",
    "copy-not-awaited": "a wait for the copy, or no non_blocking",
    "rendezvous-hardcoded": "the launcher's values",
    "launcher-contradicted": "as many as the launcher starts",
    "destroy-missing": "destroy_process_group() at the end",
    "set-device-missing": "a different GPU for each rank",
    "nccl-on-cpu": "a backend that this machine has",
    "detail-ddp": "TORCH_DISTRIBUTED_DEBUG=INFO or OFF",
}


@dataclass(frozen=True, slots=True)
class Script:
    """What the script's text shows. same_python: it will be read by the Python that read it here;
    torch: the release that is installed beside us, looked up only where it matters; absent: where
    the command, which has failed, looked for it in vain."""

    name: str
    files: int
    lines: int
    hits: tuple[Hit, ...]
    gpu: bool
    same_python: bool
    torch: str = ""
    absent: str = ""


def observe(host: Host, ctx: Context) -> Script:
    name = str(ctx.options.get("script") or "")
    if not name:
        rehearsed = "argv" in ctx.options
        raise NotApplicable(
            "the command names no Python file" if rehearsed else "only where a command is rehearsed"
        )
    cwd = str(ctx.options.get("cwd") or os.getcwd())
    argv = ctx.options.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, (list, tuple)) else []
    path = os.path.normpath(os.path.join(cwd, name))
    if ctx.options.get("exit") and _is_opened_here(words, name) and not host.exists(path):
        return Script(name, files=0, lines=0, hits=(), gpu=False, same_python=False, absent=path)
    program = source.read_program(host, name, cwd)
    gpu = bool(host.gpu_files()) or host.exists("/proc/driver/nvidia") or host.exists("/dev/nvmap")
    ctx.mark("read")
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


def _is_opened_here(argv: list[str], script: str) -> bool:
    """Whether the command's own program opens the script by this path: not one in a container or on
    another machine, nor a file that is only an argument of a module."""
    if not argv or not os.path.basename(argv[0]).startswith(STARTERS) or script not in argv:
        return False
    before = argv[1 : argv.index(script)]
    modules = [after for word, after in itertools.pairwise(before) if word == "-m"]
    return all(name in LAUNCHERS for name in modules) and not NO_FILE & set(before)


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
    yield from _missing(world)
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


def _missing(world: World[Script]) -> Iterator[Found]:
    paths: dict[str, list[Subject]] = {}
    for here, seen in world.each():
        if seen.absent:
            paths.setdefault(seen.absent, []).append(here)
    for path, where in paths.items():
        yield Found(
            "script-missing",
            tuple(Subject(Kind.SOFTWARE, h.node, path) for h in where),
            saw=f"{path}: No such file or directory, once the command had failed",
            expected=EXPECTED["script-missing"],
            confidence=Confidence.CERTAIN,
            fields={"path": path},
            explains=("job.ranks:command-failed",),
        )


def _applies(hit: Hit, seen: Script) -> bool:
    if hit.rule == NOTED:
        return False
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
        # the command ends with the same error
        explains=("job.ranks:command-failed",) if certain else None,
        status=None if certain else Status.WARN,
    )


def measured(world: World[Script]) -> Measured:
    seen = next((seen for seen in world.seen.values() if not seen.absent), None)
    if seen is None:
        return Measured()
    places = sum(_applies(hit, seen) for hit in seen.hits)
    text = f"{seen.name} · {plural(seen.files, 'file')}, {plural(seen.lines, 'line')}"
    text += f" · {plural(places, 'place')} to look at" if places else ""
    values = {"files": seen.files, "lines": seen.lines, "places": places}
    return Measured(text, values, notes=_notes(seen))


def _notes(seen: Script) -> tuple[str, ...]:
    waits = [f"{hit.file}:{hit.line}" for hit in seen.hits if hit.rule == NOTED and seen.gpu]
    if not waits:
        return ()
    more = f" and {plural(len(waits) - SHOWN, 'more place')}" if len(waits) > SHOWN else ""
    return (f"the host waits for the GPU in every step: {', '.join(waits[:SHOWN])}{more}",)
