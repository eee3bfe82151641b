"""Which backend carries the job's collectives, and is it the one that was meant?

Level        deep
Looks at     of each rank of a rehearsed command: the backend that init_process_group was given, the
             one that each process group has for each kind of tensors, the settings of NCCL, torch
             and Gloo at that call, with those that the script has set itself; the devices of the
             models that DDP wraps, the exception that ended the rank; whether the node has a GPU;
             what NCCL logs of the networks and connections that it takes (NCCL_DEBUG=INFO is set
             for the command, to a file of ours, where there is a GPU and the user has set neither
             NCCL_DEBUG nor NCCL_DEBUG_FILE), /sys/class/infiniband
Fails if     a backend was asked for that torch was built without or that has no GPU to work on; a
             tensor's device has no backend; ranks have different backends; mpirun or srun started
             the ranks and the script reads RANK, which they don't set; a setting on which all ranks
             have to agree differs, and all hang in one call or end with an error that it causes;
             ranks chose different networks for NCCL; it chose TCP between nodes that all have
             InfiniBand, EFA or fast RoCE ports; Gloo is given a view with gaps (some columns of a
             matrix) for a broadcast, reduce, scatter or all_reduce, with a torch up to 2.13
Warns if     such a setting differs in a command that goes on; Gloo carries the gradients of a model
             on a GPU; NCCL chose TCP although there are slow RoCE ports; GPUs connected by NVLink
             don't use it; GPUDirect RDMA is off on some nodes only; without NCCL_IB_HCA, NCCL uses
             at most half of a node's active InfiniBand ports, or fewer than on nodes with the same;
             with it, fewer than it names
Undecided    no rank called init_process_group; not a rehearsal (preflight rehearse -- CMD)
Not covered  how fast a backend is: world.bandwidth; what UCC or MPI do underneath; between which
             ranks NCCL takes which transport in a job that has groups of some ranks only; NCCL's
             log of a command that names srun, mpirun or deepspeed, which start ranks on nodes where
             its file can't be
Seen as      "Distributed package doesn't have NCCL built in", "ProcessGroupNCCL is only supported
             with GPUs, no GPUs found!", "No backend type associated with device type cpu",
             "environment variable RANK expected, but not set", "Using network Socket", or no error:
             GPUs that wait
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from preflight.check import Context
from preflight.domains.collectives import nccl_transport
from preflight.domains.collectives.nccl_log_capture import nccl_report
from preflight.domains.collectives.nccl_transport import NcclReport, transport_summary
from preflight.domains.job.backends import UNSET, Backends, StridedCall, carries, told
from preflight.domains.job.differing_settings import DifferingSetting, differing_settings
from preflight.domains.job.load import REHEARSAL, for_author, load_rank, nothing_seen, rank_subject
from preflight.domains.job.record import End
from preflight.domains.job.wait_graph import COLLECTIVE, INIT
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import plural, rank_list
from preflight.model import (
    Blame,
    Confidence,
    Found,
    Measured,
    Seen,
    Status,
    Subject,
    World,
    key_of,
    place_of,
)

CHECK = replace(REHEARSAL, required=False)

# torch/distributed/distributed_c10d.py and csrc/distributed/c10d/{ProcessGroupNCCL,ProcessGroup}
ABSENT = re.compile(r"doesn't have (\w+) built in|Unknown c10d backend type (\w+)")
NO_GPU = re.compile(r"Process ?Group ?(NCCL) is only supported with GPUs, no GPUs found")
UNCARRIED = re.compile(r"No backend type associated with device type (\w+)")
NOT_CUDA = re.compile(r"Tensors must be CUDA and dense")
MISMATCHED = re.compile(
    r"ncclIn(?:validUsage|ternalError)(?!.*Duplicate GPU)|mismatch in collective|NET mismatch|"
    r"[Mm]essage (?:was )?truncated"
)
"""What NCCL and Gloo say where the two ends of a connection do not match."""
CALLING = frozenset({"TORCH_DISTRIBUTED_DEBUG", "TORCH_DIST_INIT_BARRIER"})
"""With these torch itself makes more calls, or waits where the others do not."""
STANDING = ("fabric-stuck", "nothing-seen")
"""What job.collectives says where all ranks stand in one call, or in none."""
LONG = 5.0
"""Seconds for which all ranks of a job that goes on never wait at once."""
SETTINGS = 4
"""That differ, and are shown."""
MOST = 64
"""Groups, and connections of NCCL, in the report."""
WARNINGS = 4
"""Of NCCL that are shown."""
MPIRUN = frozenset({"mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"})
RAISED = ("job.ranks", "job.collectives", "job.pace", "job.memory", "job.model")

FINDINGS = {
    "backend-unavailable": for_author(
        headline="backend {backend!s} can't be used: {why!s}",
        cause="a script for other machines, a build of torch for the CPU only, a job that asked "
        "for no GPU",
        means="init_process_group raises on all ranks",
        text="choose a backend that is there at {line!s}: 'nccl' if torch.cuda.is_available() else "
        "'gloo', or none at all; or install the build of torch that has it",
        explains=RAISED,
    ),
    "device-uncarried": for_author(
        headline="a tensor on {device!s} is given to a process group that has no backend for it",
        cause="a metric, a flag or a list of sizes that was left on the CPU, over NCCL",
        means="'No backend type associated with device type cpu'",
        text="put the tensor on the GPU before {line!s}; or call init_process_group without a "
        "backend, which takes Gloo for the CPU and NCCL for GPUs",
        explains=RAISED,
    ),
    "backend-differs": for_author(
        headline="the ranks use different backends: {seen}",
        cause="a choice by torch.cuda.is_available(), and some ranks that see no GPU",
        means="a hang in init_process_group or the first collective",
        text="look why the GPUs of some ranks are not seen (gpu.visible); name one backend for all "
        "at {line!s}",
        explains=RAISED,
    ),
    "launcher-unread": for_author(
        headline="{launcher!s} started the ranks, but the script reads {variable!s}, which it does "
        "not set",
        cause="mpirun or srun in the place of torchrun",
        means="'environment variable RANK expected, but not set' on every rank",
        text="use torchrun on each node; or set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
        "MASTER_PORT before {line!s}, from {names!s}",
        explains=RAISED,
    ),
    "setting-differs": for_author(
        headline="the ranks have different settings: {seen}",
        cause="a script that sets it on some ranks only, the shell profile or the image of one "
        "node",
        means="a hang in the first collective or a later one, 'mismatch in collective sizes or "
        "environment settings', 'Message truncated'",
        text="set {names!s} to one value on all ranks before {line!s}, or on none",
        status=(Status.FAIL, Status.WARN),
        explains=(),
    ),
    "gloo-on-gpu": for_author(
        headline="Gloo carries the gradients of a model on a GPU",
        cause="a backend chosen for the CPU, or a fallback from NCCL that nobody noticed",
        means="no error at all: each all-reduce copies all gradients to the CPU and back, and the "
        "GPUs wait",
        text="call init_process_group('nccl') at {line!s}, or without a backend",
        status=Status.WARN,
    ),
    "tensor-not-contiguous": for_author(
        headline="{op!s} over Gloo is given a tensor that is not contiguous: {seen}",
        cause="a view that does not fill its memory: some columns of a matrix (x[:, :n]), every "
        "second number (x[::2]), an expanded tensor",
        means="no error at all: Gloo reads and writes as many numbers as the view has, one after "
        "the other from its first one on; parts of it keep their values, and what is between "
        "them is overwritten. NCCL refuses it: 'Tensors must be contiguous'",
        text="pass a copy at {line!s}: part = view.contiguous(), then view.copy_(part) with what "
        "came back",
        explains=("job.model",),
    ),
    **{
        code: replace(
            finding,
            blame=finding.blame or Blame.UNKNOWN,
            # such ranks can't talk to each other; whatever else NCCL took is only slow
            explains=RAISED if code == "nets-differ" else (),
        )
        for code, finding in nccl_transport.FINDINGS.items()
    },
}

NAMES = {
    "srun": "SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID",
    "mpirun": "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, or with "
    "MPICH PMI_RANK, PMI_SIZE, MPI_LOCALRANKID",
}


@dataclass(frozen=True, slots=True)
class Carried:
    """What a rank has asked for and got. gpu: the node has one; launcher: mpirun or srun, where the
    command is one of these without torchrun; world: ranks of the whole job, 0 where not known;
    nccl: what its NCCL said, None where it said nothing to us; waits: seconds that it has waited
    for others; joining: it ended in init_process_group, by an exception or a crash."""

    backends: Backends
    gpu: bool = False
    launcher: str = ""
    world: int = 0
    nccl: NcclReport | None = None
    waits: float = 0.0
    joining: bool = False


def observe(host: Host, ctx: Context) -> Carried:
    seen = load_rank(host, ctx)
    if not seen.backends.called and not seen.backends.groups:
        raise nothing_seen(seen, "no rank called init_process_group")
    gpu = bool(host.gpu_files()) or host.exists("/proc/driver/nvidia") or host.exists("/dev/nvmap")
    nccl = nccl_report(host, seen.nccl) if seen.nccl is not None else None
    launcher = launcher_of(seen.life.command.argv)
    waits = seen.calls.quiet if seen.calls.at in (COLLECTIVE, INIT) else 0.0
    joining = _ended_joining(seen.backends, seen.life.end)
    return Carried(seen.backends, gpu, launcher, seen.life.world, nccl, waits, joining)


def _ended_joining(backends: Backends, end: End | None) -> bool:
    """Whether a rank ended at its call of init_process_group."""
    if end is None or end.how == "exited" or backends.frame is None:
        return False
    own = next((frame for frame in end.frames or end.last if frame.own), None)
    return own is not None and (own.file, own.line) == (backends.frame.file, backends.frame.line)


def launcher_of(argv: Sequence[str]) -> str:
    """mpirun or srun, unless torch's own launcher comes after it."""
    words = [os.path.basename(word) for word in argv[:20]] or [""]
    if any(w in ("torchrun", "torch.distributed.run", "accelerate", "deepspeed") for w in words):
        return ""
    first = words[1] if len(words) > 1 and words[0] in ("bash", "sh", "time") else words[0]
    if first in MPIRUN:
        return "mpirun"
    return "srun" if first == "srun" else ""


def judge(world: World[Carried], expect: Expect) -> Iterator[Found]:
    ranks = [(rank_subject(here, seen.backends.rank), seen) for here, seen in world.each()]
    yield from _failed(ranks)
    yield from _differs(ranks)
    yield from _settings_differ(ranks)
    slow = [(s, seen) for s, seen in ranks if _gloo_on_gpu(seen.backends)]
    if slow:
        yield Found(
            "gloo-on-gpu",
            tuple(subject for subject, _ in slow),
            saw=f"backend {slow[0][1].backends.text}, model on {slow[0][1].backends.models[0]}",
            expected="nccl for tensors on a GPU",
            confidence=Confidence.CERTAIN,
            fields={"line": _line(slow[0][1].backends)},
        )
    yield from _not_contiguous(ranks)
    by_rank = world.once(_by_rank)
    yield from nccl_transport.findings(by_rank, _heard(by_rank))


def _not_contiguous(ranks: Sequence[tuple[Subject, Carried]]) -> Iterator[Found]:
    """One finding for each line."""
    lines: dict[tuple[str, str], list[tuple[Subject, StridedCall]]] = {}
    for subject, seen in ranks:
        for call in seen.backends.strided:
            lines.setdefault((call.op, str(call.frame or "")), []).append((subject, call))
    for (op, line), where in lines.items():
        call = where[0][1]
        at = f" at {line}" if line else ""
        yield Found(
            "tensor-not-contiguous",
            tuple(subject for subject, _ in where),
            saw=f"{call.text}{at} · {plural(call.calls, 'call')}",
            expected="a tensor whose numbers lie side by side",
            confidence=Confidence.CERTAIN,
            fields={"op": op, "line": line or "its line"},
        )


def _by_rank(world: World[Carried]) -> World[Carried]:
    """The same with the ranks' own numbers, by which NCCL names them; an empty one where one has
    no number, or several have the same: those are several jobs."""
    found = {
        key_of(here.node, seen.backends.rank): Seen(seen)
        for here, seen in world.each()
        if seen.backends.rank is not None
    }
    numbers = {seen.value.backends.rank for seen in found.values()}
    whole = len(numbers) == len(world.seen)
    return World(world.check, found if whole else {}, world.topology)


def _heard(by_rank: World[Carried]) -> dict[str, NcclReport]:
    """What NCCL said in each rank, as far as it is known whom it speaks of."""
    return {
        key: replace(seen.nccl, log=seen.nccl.log.of_job(seen.backends.rank or 0, seen.world))
        for key, seen in by_rank.seen.items()
        if seen.nccl is not None
    }


def _gloo_on_gpu(backends: Backends) -> bool:
    return "cuda" in backends.models and carries(backends.groups, "cuda") == "gloo"


def _line(backends: Backends) -> str:
    return str(backends.raised or backends.frame or "init_process_group")


def _failed(ranks: Sequence[tuple[Subject, Carried]]) -> Iterator[Found]:
    """What ended ranks, one finding for each reason."""
    reasons: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[Subject, Carried]]] = {}
    for subject, seen in ranks:
        if (reason := _reason(seen)) is not None:
            code, fields = reason
            reasons.setdefault((code, tuple(fields.items())), []).append((subject, seen))
    for (code, words), where in reasons.items():
        first = where[0][1].backends
        yield Found(
            code,
            tuple(subject for subject, _ in where),
            saw=f"{first.failed} at {_line(first)}",
            expected="a backend that this torch, this node and these tensors have",
            confidence=Confidence.CERTAIN,
            fields=dict(words) | {"line": _line(first)},
        )


def _reason(seen: Carried) -> tuple[str, Mapping[str, str]] | None:
    text = seen.backends.failed
    if found := ABSENT.search(text):
        why = "this build of torch does not have it"
        return "backend-unavailable", {"backend": (found[1] or found[2]).lower(), "why": why}
    if found := NO_GPU.search(text):
        why = "this rank sees no GPU" if seen.gpu else "this node has no GPU"
        return "backend-unavailable", {"backend": found[1].lower(), "why": why}
    if found := UNCARRIED.search(text):
        return "device-uncarried", {"device": found[1]}
    if NOT_CUDA.search(text):
        return "device-uncarried", {"device": "cpu"}
    if seen.launcher and (found := UNSET.search(text)):
        return "launcher-unread", {
            "launcher": seen.launcher,
            "variable": found[1],
            "names": NAMES[seen.launcher],
        }
    return None


def _differs(ranks: Sequence[tuple[Subject, Carried]]) -> Iterator[Found]:
    """Ranks of one group of which some have another backend for the same kind of tensors."""
    known = [(s, seen.backends) for s, seen in ranks if s.ranks]
    if len({s.ranks for s, _ in known}) < len(known):
        return  # several jobs in one command
    for device in ("cuda", "cpu"):
        by: dict[str, list[tuple[Subject, Backends]]] = {}
        for subject, backends in known:
            if backend := carries(backends.groups, device) or asked_alone(backends):
                by.setdefault(backend, []).append((subject, backends))
        if len(by) < 2:
            continue
        words = "; ".join(
            f"{backend} on {rank_list(n for s, _ in where for n in s.ranks)}"
            for backend, where in sorted(by.items())
        )
        few = min(by.values(), key=len)
        where = "" if any(asked_alone(b) for _, b in known) else f"for tensors on {device}: "
        yield Found(
            "backend-differs",
            tuple(subject for subject, _ in few),
            saw=where + words,
            expected="one backend on all ranks",
            confidence=Confidence.CERTAIN,
            fields={"line": _line(few[0][1])},
        )
        return


def _settings_differ(ranks: Sequence[tuple[Subject, Carried]]) -> Iterator[Found]:
    """Settings on which all ranks have to agree and do not. It has done harm where all of them wait
    for each other, one ended where it joins, or a library says so; elsewhere it may yet, with other
    sizes."""
    known = {s.ranks[0]: (s, seen) for s, seen in ranks if s.ranks and seen.backends.called}
    if len(known) < len(ranks):
        return  # several jobs in one command, or ranks that are not there yet
    settings = {rank: dict(seen.backends.settings) for rank, (_, seen) in known.items()}
    differing = differing_settings(settings, {b for _, s in ranks for b in _in_use(s.backends)})
    if not differing:
        return
    # NCCL reads its own in the first collective
    read_joining = any(not of.name.startswith("NCCL_") for of in differing)
    ended = any(
        (s.joining and read_joining) or MISMATCHED.search(s.backends.failed) for _, s in ranks
    )
    harm = ended or all(seen.waits >= LONG for _, seen in ranks)
    tie = any(of.tie for of in differing)
    odd = sorted({rank for of in differing for rank in of.odd})
    yield Found(
        "setting-differs",
        tuple(known[rank][0] for rank in odd),
        saw=" · ".join(of.text for of in differing[:SETTINGS])
        + f" · and {len(differing) - SETTINGS} more" * (len(differing) > SETTINGS),
        expected="one value on all ranks",
        confidence=Confidence.LIKELY,
        alternatives=("each value may be the intended one",) if tie else (),
        status=Status.FAIL if harm else Status.WARN,
        explains=_consequences(differing, ended=ended) if harm else (),
        fields={
            "names": ", ".join(of.name for of in differing[:SETTINGS]),
            "line": _line(ranks[0][1].backends),
        },
    )


def _consequences(differing: Sequence[DifferingSetting], *, ended: bool) -> tuple[str, ...]:
    """Of settings that differ. Ranks that make different calls are only one of those by which torch
    itself makes other calls."""
    mixed = any(of.name in CALLING for of in differing)
    hangs = ("job.collectives",) if mixed else tuple(f"job.collectives:{c}" for c in STANDING)
    return hangs + (("job.ranks",) if ended else ())


def _in_use(backends: Backends) -> frozenset[str]:
    """The backends of its groups; of one that has none yet the one that it has asked for."""
    carried = frozenset(backend for group in backends.groups for _, backend in group.carried)
    return carried or frozenset({backends.asked.lower()})


def asked_alone(backends: Backends) -> str:
    """What one that has no group yet has asked for, by one name for all kinds of tensors: Gloo
    waits in init_process_group for the others, and NCCL does not come there."""
    asked = backends.asked.lower()
    return asked if not backends.groups and asked.isalnum() and not backends.failed else ""


def measured(world: World[Carried]) -> Measured:
    """The groups of all ranks: one that only some are in has a backend, too."""
    found = [seen for _, seen in world.each() if seen.backends.text]
    if not found:
        return Measured()
    first = found[0].backends
    groups = [group for seen in found for group in seen.backends.groups]
    text = told(groups, any(seen.gpu for seen in found))
    text += "" if first.asked else " · none asked for: torch chose"
    nccl = _nccl_values(world)
    text += f" · {nccl['transport']}" if nccl.get("transport") else ""
    each = {group.called or group.name: dict(group.carried) for group in groups}
    shown = dict(list(each.items())[:MOST])
    values = {"backend": first.text, "asked": first.asked, "groups": shown}
    return Measured(text, values | nccl, notes=tuple(_warned(world)))


def _warned(world: World[Carried]) -> Iterator[str]:
    """What NCCL warned of, each with the ranks that did: often the cause of what torch raises, and
    without NCCL_DEBUG printed nowhere."""
    ranks: dict[str, list[int]] = {}
    for _, seen in world.each():
        for text in seen.nccl.log.warnings if seen.nccl is not None else ():
            if len(ranks) < WARNINGS or text in ranks:
                ranks.setdefault(text, []).append(seen.backends.rank or 0)
    for text, numbers in ranks.items():
        yield f"NCCL warns on {rank_list(numbers)}: {text}"


def _nccl_values(world: World[Carried]) -> dict[str, Any]:
    """What NCCL said: the ways that it took, in all and from each rank to each peer as far as that
    is known, its networks and their devices, and the interfaces where its ranks meet."""
    logs = {key: seen.nccl for key, seen in world.seen.items() if seen.nccl is not None}
    if not logs:
        return {}
    said = [report.log for report in logs.values()]
    links: dict[str, list[str]] = {}
    for key, report in _heard(world.once(_by_rank)).items():
        for link in report.log.links if len(links) < MOST else ():
            way = f"{link.way}/GDRDMA" if link.gdr else link.way
            links.setdefault(f"{place_of(key)[1]}-{link.peer}", []).append(way)
    return {
        "transport": transport_summary(logs),
        "networks": sorted({log.network for log in said} - {""})[:MOST],
        "devices": sorted({device for log in said for device in log.devices})[:MOST],
        "interfaces": sorted({log.interface for log in said} - {""})[:MOST],
        "rings": max(log.rings for log in said),
        "trees": max(log.trees for log in said),
        "nvls": max(log.nvls for log in said),
        "links": {pair: ", ".join(ways) for pair, ways in list(links.items())[:MOST]},
    }
