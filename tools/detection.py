"""Writes docs/detection.md: every fault of the catalogue (tests/faults), what preflight says of it,
and how often it finds something where nothing is wrong. The figures are those of this run.

    python tools/detection.py [WORD…]     only faults with these words in their names, printed

It needs what the tests need: root, namespaces, nftables, gcc, torch.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TARGET = REPOSITORY / "docs/detection.md"
sys.path.insert(0, str(REPOSITORY / "tests"))

from faults import accelerators, healthy, job, node, ranks  # noqa: E402  they lie in tests/
from faults.inject import Fault, judge, lacking, line, run  # noqa: E402

GROUPS: Sequence[tuple[str, tuple[Fault, ...]]] = (
    ("What the job's author set", job.FAULTS),
    ("What is wrong with the machine", node.FAULTS),
    ("What is wrong with its GPUs", accelerators.FAULTS),
    ("What shows when ranks start and work together", ranks.FAULTS),
)

HEAD = """\
# Detection

Made by `python tools/detection.py`; don't edit. Each fault is injected into a machine made of Linux
namespaces (tests/lab), then `preflight run` is run there, with 4 ranks unless the fault is about
their number. *Detected*: the exit code and the check are the right ones. *Culprit named*: a finding
of its own, not one folded under another, names the right subject, or the job where it says that it
can only tell what is possible. *False alarms*: other findings of the same report that blame what is
innocent. *Seconds*: of the whole command. A warning exits 0.

{machine}

"""


def machine() -> str:
    """Where the figures come from."""
    torch = importlib.metadata.version("torch")
    name = f"{os.cpu_count()} CPUs, Linux {platform.release().partition('-')[0]}"
    python = platform.python_version()
    version = importlib.metadata.version("cluster-preflight")
    return f"preflight {version}, Python {python}, torch {torch}, {name}."


def rows(faults: Iterable[Fault]) -> list[list[str]]:
    """A row a fault; what can't be injected here says why."""
    made = []
    for fault in faults:
        if why := lacking(fault):
            made.append([fault.name, "not tried here", why, "", ""])
            continue
        outcome = run(fault)
        verdict = judge(fault, outcome)
        finding = f"`{fault.check}` {fault.code}" if fault.code else f"exit code {fault.exit}"
        sure = {f["code"]: f["confidence"] for f in outcome.findings if f["check"] == fault.check}
        missed = f"no: {fault.missed}" if fault.missed else "**no**"
        detected = verdict.detected and outcome.ended.code == fault.exit
        made.append(
            [
                fault.name,
                f"{finding} ({fault.status}, {sure[fault.code]})"
                if fault.code and detected
                else finding,
                "yes" if detected and verdict.named else missed,
                str(len(verdict.false_alarms)),
                f"{outcome.ended.seconds:.1f}",
            ]
        )
        print(*made[-1], *verdict.problems, sep=" | ", file=sys.stderr, flush=True)
    return made


def healthy_rows(variants: Iterable[Fault]) -> list[list[str]]:
    """A row a variant, looked at several times at level quick and once at level standard."""
    made = []
    for variant in variants:
        if why := lacking(variant):
            made.append([variant.name, "not tried here", why, ""])
            continue
        runs = [variant] * healthy.TIMES
        if variant.args == ("--level", "quick"):
            runs.append(dataclasses.replace(variant, args=("--level", "standard")))
        outcomes = [run(one) for one in runs]
        alarms = [line(f) for outcome in outcomes for f in outcome.findings]
        ready = sum(outcome.ended.code == 0 for outcome in outcomes)
        slowest = max(outcome.ended.seconds for outcome in outcomes)
        made.append([variant.name, f"{ready} of {len(runs)}", str(len(alarms)), f"{slowest:.1f}"])
        print(*made[-1], *alarms, sep=" | ", file=sys.stderr, flush=True)
    return made


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def document() -> str:
    parts, tried, named, alarms = [], 0, 0, 0
    for title, faults in GROUPS:
        body = rows(faults)
        real = [row for row in body if row[1] != "not tried here"]
        tried += len(real)
        named += sum(row[2] == "yes" for row in real)
        alarms += sum(int(row[3]) for row in real)
        head = ("fault", "detected", "culprit named", "false alarms", "seconds")
        parts.append(f"## {title}\n\n{table(head, body)}\n")
    body = healthy_rows(healthy.VARIANTS)
    runs = [row[1].split(" of ") for row in body if row[1] != "not tried here"]
    false = sum(int(row[2]) for row in body if row[1] != "not tried here")
    head = ("healthy machine", "READY", "false alarms", "seconds at most")
    parts.append(f"## Where nothing is wrong\n\n{table(head, body)}")
    summary = (
        f"**{named} of {tried} faults are named, with {alarms} false alarms beside them. "
        f"{sum(int(r) for r, _ in runs)} of {sum(int(n) for _, n in runs)} runs on "
        f"{len(runs)} kinds of healthy machines are READY, with {false} false alarms.**\n\n"
    )
    return HEAD.format(machine=machine()) + summary + "".join(parts)


def main(words: Sequence[str]) -> None:
    if words:
        every = [f for _, faults in GROUPS for f in faults]
        rows(f for f in every if all(word in f.name for word in words))
        return
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(document())


if __name__ == "__main__":
    main(sys.argv[1:])
