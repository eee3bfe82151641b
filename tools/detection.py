"""Writes docs/detection.md: every fault of the catalogue (tests/faults), what preflight says of it,
what torchrun says of the same, and how often preflight finds something where nothing is wrong. The
figures are those of this run, which takes half an hour. tools/rehearsals.py does it for commands.

    python tools/detection.py [--no-torchrun | --torchrun-again] [WORD…]
        with words: only what has them in its name, printed, nothing is written

What torchrun says of a fault is kept from the last document where that is of the same torch, unless
it is asked again: it takes longer than all the rest.

It needs what the tests need: root, namespaces, nftables, gcc, torch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
TARGET = REPOSITORY / "docs/detection.md"
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tools")]

import rows  # noqa: E402  they lie beside this file and in tests/
import torchrun  # noqa: E402
from at_once import each  # noqa: E402
from faults import (  # noqa: E402
    accelerators,
    agents,
    agreement,
    bandwidth,
    computing,
    healthy,
    healthy_worlds,
    job,
    naming,
    network,
    node,
    rails,
    ranks,
    slow_networks,
    torch_builds,
    torchruns,
)
from faults.world import ARRIVE  # noqa: E402
from rows import Row  # noqa: E402
from tables import say, table  # noqa: E402

LABS = 2
"""How many labs at a time: as many as the tests have."""
TORCHRUN_LABS = 8
"""These wait for most of their time; see torchrun.STARTING."""

Item = Any  # a Fault or a WorldFault, as `look` has it


@dataclass(frozen=True, slots=True)
class Part:
    """A table: its title, its head, what is in it and how that is looked at."""

    title: str
    head: tuple[str, ...]
    items: Sequence[Item]
    look: Callable[[Item], Row]


ONE = ("fault", "detected", "culprit named", "false alarms", "seconds")
ON_GPUS = (*ONE, "in place of GPUs")
MANY = (
    *("fault", "detected", "named", "subject right", "others blamed", "seconds"),
    f"`torchrun`, all-reduce over Gloo, within {torchrun.SECONDS:g} s",
)
QUIET = ("healthy machine", "READY", "false alarms", "seconds at most")
QUIET_WORLDS = ("healthy world", "READY", "false alarms", "seconds")

PARTS = (
    Part("What the job's author set", ONE, job.FAULTS, rows.machine_fault),
    Part("What is wrong with the machine", ONE, node.FAULTS, rows.machine_fault),
    Part(
        "What is wrong with its GPUs",
        ON_GPUS,
        (*accelerators.FAULTS, *torch_builds.FAULTS),
        rows.gpu_fault,
    ),
    Part(
        "What its GPUs compute, and copy to each other", ON_GPUS, computing.FAULTS, rows.gpu_fault
    ),
    Part("What shows when ranks start and work together", ONE, ranks.FAULTS, rows.machine_fault),
    Part(
        "Between machines: the network",
        MANY,
        (*network.FAULTS, *rails.FAULTS, *bandwidth.FAULTS, *slow_networks.FAULTS),
        rows.world_fault,
    ),
    Part("Between machines: names and addresses", MANY, naming.FAULTS, rows.world_fault),
    Part("Between machines: what must agree", MANY, agreement.FAULTS, rows.world_fault),
    Part(
        "Between machines: who comes, and who else is there",
        MANY,
        (*agents.FAULTS, *torchruns.FAULTS),
        rows.world_fault,
    ),
    Part("Machines with nothing wrong", QUIET, healthy.VARIANTS, rows.healthy_machine),
    Part(
        "Machines whose GPUs compute and copy well",
        QUIET,
        (*computing.HEALTHY, *torch_builds.HEALTHY),
        rows.healthy_machine,
    ),
    Part(
        "Jobs on several machines with nothing wrong",
        QUIET_WORLDS,
        (*healthy_worlds.WORLDS, *healthy_worlds.WITH_TORCH),
        rows.healthy_world,
    ),
)

HEAD = """\
# Detection

Made by `make faults`; don't edit. Each fault is injected into machines made of Linux namespaces
(tests/lab), then `preflight run` is run there: on one machine with 4 ranks unless the fault is
about their number; or on each of several machines, as `srun` would start it. *Detected*: the exit
code and the check are the right ones. *Culprit named*, *subject right*: a finding of its own, not
one folded under another, names the right node, rank, edge or variable, or the job where it says
that it can only tell what is possible. *False alarms*, *others blamed*: other findings of the same
report that blame what is innocent. *Seconds*: of the whole command; of several machines, until the
last agent has ended, and in brackets how much longer than a healthy run of the same world, of which
{arrive:g} s are the time for which agents were told to wait where somebody can't come. A warning
exits 0.

*In place of GPUs*: no machine here has one. *NVML* is a library that answers as the fault has it
(tests/lab/fake_nvml.c); *torch.cuda* computes and copies over the CPU's memory, wrongly where the
fault has it so, in a time of its own (tests/faults/stand_in).

*`torchrun`*: the last line of error of the first rank that fails on the same machines, broken in
the same way, when each runs `torchrun --nnodes … --master-addr …` with a script that makes one
all-reduce over Gloo with a timeout of 20 s; its seconds in brackets; `ok` where all ranks end well.
Nobody is waited for longer than {limit:g} s after all have imported what they need; what is shown
then is the last warning. `-` where the fault is something that only preflight has: its agents,
flags or variables. Its answers are kept from one such document to the next while torch stays the
same.

What `preflight rehearse` finds in training scripts is in [rehearsals.md](rehearsals.md).

{machine} {minutes:.0f} minutes.

"""


def machine() -> str:
    """Where the figures come from."""
    torch = importlib.metadata.version("torch")
    name = f"{os.cpu_count()} CPUs, Linux {platform.release().partition('-')[0]}"
    python = platform.python_version()
    version = importlib.metadata.version("cluster-preflight")
    return f"preflight {version}, Python {python}, torch {torch}, {name}, {LABS} labs at a time."


def looked_at(parts: Sequence[Part]) -> list[list[Row]]:
    """The rows of each part; every one is printed as it is made."""
    items = [(part, item) for part in parts for item in part.items]
    rows.measure([item for part, item in items if part.look == rows.world_fault])
    made: dict[int, Row] = {}
    for number, row in each(_look, items, LABS):
        made[number] = row
        say(f"{len(made)}/{len(items)}", *row.cells, *row.said)
    ordered = iter(made[number] for number in range(len(items)))
    return [[next(ordered) for _ in part.items] for part in parts]


def _look(pair: tuple[Part, Item]) -> Row:
    """A lab that fails is a row that says so: the others have taken long."""
    part, item = pair
    try:
        return part.look(item)
    except (RuntimeError, OSError, AssertionError) as error:
        return rows.failed(item.name, error, len(part.head))


def known_answers(document: str) -> dict[str, str]:
    """What torchrun has said of faults, by their names, in a document of the torch that is here."""
    if f" torch {importlib.metadata.version('torch')}, " not in document:
        return {}
    cells = [line.strip("| ").split(" | ") for line in document.splitlines() if line[:1] == "|"]
    return {
        one[0]: one[-1]
        for one in cells
        if len(one) == len(MANY) and one[-1] not in ("-", "---", rows.NOT_COMPARED, MANY[-1])
    }


def compared(
    parts: Sequence[Part], looked: Sequence[Sequence[Row]], known: Mapping[str, str]
) -> None:
    """Add to each row of several machines what torchrun says, or has said before."""
    pairs = [
        (fault, row)
        for part, body in zip(parts, looked, strict=True)
        for fault, row in zip(part.items, body, strict=True)
        if part.head == MANY and row.tried and torchrun.comparable(fault)
    ]
    for fault, row in pairs:
        row.cells[-1] = known.get(fault.name, row.cells[-1])
    pairs = [(fault, row) for fault, row in pairs if fault.name not in known]
    faults = [fault for fault, _ in pairs]
    for count, (number, said) in enumerate(each(rows.torchrun_says, faults, TORCHRUN_LABS), 1):
        pairs[number][1].cells[-1] = said
        say(f"torchrun {count}/{len(faults)}", faults[number].name, said)


def summary(parts: Sequence[Part], looked: Sequence[Sequence[Row]]) -> str:
    def of(*heads: tuple[str, ...]) -> list[Row]:
        each = zip(parts, looked, strict=True)
        return [row for part, body in each if part.head in heads for row in body if row.tried]

    lines = []
    for what, heads in (("one machine", (ONE, ON_GPUS)), ("several machines", (MANY,))):
        faults = of(*heads)
        alarms = sum(row.alarms for row in faults)
        good = sum(row.good for row in faults)
        lines.append(
            f"{good} of {len(faults)} faults on {what} are named, with {alarms} false alarms "
            "beside them."
        )
    times = [row.found_in for row in of(MANY) if row.found_in is not None]
    if times:
        lines.append(
            f"The median time from the start to the finding is {statistics.median(times):.1f} s "
            f"over the {len(times)} faults on several machines where nobody is absent, none is "
            "stopped meanwhile and no name server is silent."
        )
    quiet = of(QUIET, QUIET_WORLDS)
    lines.append(
        f"{sum(row.ready for row in quiet)} of {sum(row.runs for row in quiet)} runs on "
        f"{len(quiet)} kinds of healthy machines and worlds are READY, with "
        f"{sum(row.alarms for row in quiet)} false alarms."
    )
    cells = [row.cells[-1] for row in of(MANY)]
    tried = [cell for cell in cells if cell not in ("-", rows.NOT_COMPARED)]
    if tried:
        silent = sum(cell.startswith(torchrun.NOTHING) for cell in tried)
        fine = tried.count("ok")
        lines.append(
            f"Of the {len(tried)} faults on several machines that torchrun can have it ends with "
            f"an error in {len(tried) - silent - fine}, with nothing in {torchrun.SECONDS:g} s in "
            f"{silent}, and as if nothing were wrong in {fine}."
        )
    return "**" + " ".join(lines) + "**\n\n"


def document(known: Mapping[str, str] | None) -> str:
    """`known`: what torchrun has said; None: it is not compared at all."""
    began = time.monotonic()
    looked = looked_at(PARTS)
    if known is not None:
        compared(PARTS, looked, known)
    minutes = (time.monotonic() - began) / 60
    text = HEAD.format(machine=machine(), minutes=minutes, arrive=ARRIVE, limit=torchrun.SECONDS)
    text += summary(PARTS, looked)
    bodies = zip(PARTS, looked, strict=True)
    tables = (f"## {p.title}\n\n{table(p.head, (row.cells for row in b))}" for p, b in bodies)
    return text + "\n".join(tables)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    asked = arguments.add_mutually_exclusive_group()
    asked.add_argument("--no-torchrun", action="store_true", help="leave the comparison out")
    asked.add_argument("--torchrun-again", action="store_true", help="keep no older answer of it")
    arguments.add_argument("words", nargs="*", metavar="WORD", help="that a name must have")
    given = arguments.parse_args()
    if not given.words:
        TARGET.parent.mkdir(exist_ok=True)
        last = TARGET.read_text() if TARGET.exists() and not given.torchrun_again else ""
        TARGET.write_text(document(None if given.no_torchrun else known_answers(last)))
        return
    chosen = [
        Part(p.title, p.head, [i for i in p.items if all(w in i.name for w in given.words)], p.look)
        for p in PARTS
    ]
    looked = looked_at(chosen)
    if not given.no_torchrun:
        compared(chosen, looked, {})
    say(summary(chosen, looked).strip())


if __name__ == "__main__":
    main()
