"""Writes docs/measured.md: what preflight finds on a machine with GPUs, what each check takes
there, what preflight itself costs, and how the tests marked `gpu` end. The figures are those of
this run, which takes some minutes. Without a GPU nothing is written.

    python tools/measured.py [--rounds N] [--no-tests]      `make gpu` installs what it needs before

It needs the project, torch with CUDA, pytest, pytest-timeout and pytest-xdist.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

REPOSITORY = Path(__file__).parents[1]
TARGET = REPOSITORY / "docs/measured.md"
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests"), str(REPOSITORY / "tools")]

from gpu import machine as asking  # noqa: E402  they lie beside this file and in tests/
from gpu.running import Ran, run, torchrun  # noqa: E402
from tables import say, table  # noqa: E402

from preflight import __version__  # noqa: E402
from preflight.domains.collectives.allreduce import busbw  # noqa: E402
from preflight.humanize import MIB, duration, plural, size  # noqa: E402

STEPS, WITHIN = 2000, 200.0
"""Of the script whose rehearsal is measured, and the seconds that it may take."""
TESTING = 900.0
"""Seconds for the tests: what hangs must not take the figures along with it."""
REHEARSALS, SETTINGS = "test_rehearsal.py", "test_settings.py"
"""Tests to which it is all the same who else has the GPU."""
CPUS_EACH, AT_ONCE = 4, 4
"""CPUs for each rehearsal, so that none waits for another, and how many run at once at most. The
settings are tried at once by their own test."""
TOLD = ("gpu.", "world.", "host.software")
"""Checks whose words are shown: those of others hold names and addresses."""

HEAD = """\
# Measured

Made by `make gpu`; don't edit. What preflight finds on GPUs, what that takes, and what it costs.
All figures are of one run on one machine; they are no benchmark of its GPUs.

"""


@dataclass(frozen=True)
class Tests:
    """How the tests marked `gpu` ended: names of those that failed, and why others were skipped.
    `ended` is false where they had to be killed."""

    passed: int = 0
    failed: tuple[str, ...] = ()
    skipped: Mapping[str, str] | None = None
    ended: bool = True


@dataclass(frozen=True)
class Figures:
    """All that the document is made of.

    about      what the machine is and what runs there: name -> value
    report     of a run at level standard
    quick      seconds of runs at that level; standard likewise
    beyond     bytes that preflight took of each GPU at most; memory: of the machine's memory
    rehearsed  seconds of the same steps without and with a rehearsal
    tests      None: they were not run
    """

    about: Mapping[str, str]
    report: Mapping[str, Any]
    quick: Sequence[float]
    standard: Sequence[float]
    beyond: Sequence[int]
    memory: int
    rehearsed: Sequence[tuple[float, float]]
    tests: Tests | None = None


# --- the document ---


def document(of: Figures) -> str:
    parts = [HEAD + table(("", ""), of.about.items()), verdict(of), checks(of.report)]
    parts += filter(None, (rates(of.report), copies(of.report), sums(of.report)))
    return "\n".join([*parts, costs(of)])


def verdict(of: Figures) -> str:
    lines = [f"**{told(of.tests)}**"]
    if of.tests is not None:
        lines += [f"- failed: `{name}`" for name in of.tests.failed]
        lines += [f"- not run: `{name}`: {why}" for name, why in (of.tests.skipped or {}).items()]
    return "\n".join(lines) + "\n"


def told(tests: Tests | None) -> str:
    if tests is None:
        return "The tests marked `gpu` were not run."
    if not tests.ended:
        return f"The tests marked `gpu` did not end in {duration(TESTING)}."
    tried = tests.passed + len(tests.failed)
    return f"{tests.passed} of {tried} tests marked `gpu` pass."


def checks(report: Mapping[str, Any]) -> str:
    findings = [
        f"- `{f['check']}` {f['code']} ({f['status']}): {_cell(f['saw'])}"
        for f in report["findings"]
    ]
    said = "\n".join(findings) if findings else "No finding."
    rows = [
        (
            f"`{row['id']}`",
            row["status"],
            f"{row['seconds']:.2f}" if row["status"] != "skip" else "-",
            _cell(row["reason"] or (row["text"] if row["id"].startswith(TOLD) else "")),
        )
        for row in report["checks"]
    ]
    head = ("check", "status", "seconds", "says")
    ranks = plural(report["world"]["size"], "rank")
    text = f"`preflight run --level standard`: {report['verdict']}, {ranks}"
    return f"## The checks\n\n{text}, {report['seconds']:.1f} s. {said}\n\n{table(head, rows)}"


def rates(report: Mapping[str, Any]) -> str:
    """What gpu.compute measured of each GPU."""
    made = _measured(report, "gpu.compute")
    kinds = [kind for kind in made if re.search(r"_(tflops|gbs)$", kind)]
    if not kinds:
        return ""
    places = list(dict.fromkeys(place for kind in kinds for place in made[kind]))
    units = {"tflops": "TFLOP/s", "gbs": "GB/s"}
    head = [_kind(kind, units) for kind in kinds]
    body = [
        [f"rank {place.rpartition('/')[2]}", *(_figure(made[k].get(place)) for k in kinds)]
        for place in places
    ]
    return f"## Each GPU (`gpu.compute`)\n\n{table(('', *head), body)}"


def _kind(kind: str, units: Mapping[str, str]) -> str:
    name, _, unit = kind.rpartition("_")
    return f"{name.replace('_', ' ').replace('gpu', 'GPU')}, {units[unit]}"


def copies(report: Mapping[str, Any]) -> str:
    """The matrix of gpu.p2p: from the rows to the columns; a gap where nothing arrived as sent."""
    blocks = []
    for node, pairs in _measured(report, "gpu.p2p").get("gb_per_s", {}).items():
        ends = {tuple(map(int, pair.split("->"))): rate for pair, rate in pairs.items()}
        seen = report["observations"]["gpu.p2p"][node]["ok"]
        numbers = sorted(party["number"] for party in seen["parties"])
        body = [
            [f"**{one}**", *(_figure(ends.get((one, other))) for other in numbers)]
            for one in numbers
        ]
        blocks.append(table(("GB/s from \\ to", *map(str, numbers)), body))
    return "## From GPU to GPU (`gpu.p2p`)\n\n" + "\n".join(blocks) if blocks else ""


def sums(report: Mapping[str, Any]) -> str:
    """All-reduces over NCCL by size, as both checks measured them."""
    ranks = report["world"]["size"]
    seconds = {
        check: {int(count): spent for count, spent in _measured(report, check)["seconds"].items()}
        for check in ("world.nccl", "world.bandwidth")
        if "seconds" in _measured(report, check)
    }
    if not seconds:
        return ""
    body = []
    for count in sorted({count for own in seconds.values() for count in own}):
        cells = [size(count)]
        for own in seconds.values():
            spent = own.get(count)
            cells.append(f"{spent * 1e6:,.0f} µs" if spent else "-")
            if spent and ranks > 1 and count >= MIB:
                cells[-1] += f", {_figure(busbw(count, spent, ranks))} GB/s"
        body.append(cells)
    head = ("bytes", *(f"`{check}`" for check in seconds))
    alone = "" if ranks > 1 else "One rank: nothing leaves the GPU, and there is no bus bandwidth."
    intro = alone or "Of the slowest rank; from 1 MiB on with the bus bandwidth, S/t x 2(n-1)/n."
    return f"## All-reduces over NCCL\n\n{intro}\n\n{table(head, body)}"


def costs(of: Figures) -> str:
    body = [
        ("`preflight run --level quick`", _span(of.quick)),
        ("`preflight run --level standard`", _span(of.standard)),
        ("memory of a GPU, at most", ", ".join(size(count) for count in of.beyond)),
        ("memory of the machine, all processes, at most", size(of.memory)),
    ]
    if of.rehearsed:
        over = median(with_it / without for without, with_it in of.rehearsed) - 1
        plain = median(without for without, _ in of.rehearsed)
        body.append(
            (
                f"`preflight rehearse`, {STEPS} steps of DDP over NCCL",
                f"{over:+.1%} of {plain:.2f} s (median of {plural(len(of.rehearsed), 'pair')})",
            )
        )
    return f"## What preflight costs\n\n{table(('', ''), body)}"


def _span(seconds: Sequence[float]) -> str:
    spread = f" ({min(seconds):.1f} to {max(seconds):.1f}, {len(seconds)} runs)"
    return f"{median(seconds):.1f} s{spread if len(seconds) > 1 else ''}"


def _measured(report: Mapping[str, Any], check: str) -> Mapping[str, Any]:
    found = [row["measured"] for row in report["checks"] if row["id"] == check]
    return found[0] if found else {}


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- the measurements ---


def measured(machine: asking.Machine, rounds: int) -> Figures:
    ranks = str(len(machine.gpus))
    torch = asking.torch()
    watched = _well(run("run", "--level", "standard", "--nproc", ranks, watched=True))
    say(f"standard, watched: {watched.seconds:.1f} s")
    quick = list(_seconds("quick", ranks, 2 * rounds - 1))
    standard = list(_seconds("standard", ranks, rounds))
    rehearsed = list(_rehearsed(len(machine.gpus), rounds))
    about = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "GPUs": machine.models,
        "driver": machine.driver,
        "torch": f"{torch.version}, CUDA {torch.cuda}",
        "NCCL": torch.nccl or "none",
        "kernel": f"Linux {platform.release()}, {os.cpu_count()} CPUs",
        "Python": platform.python_version(),
        "preflight": __version__,
    }
    return Figures(
        about=about,
        report=watched.told,
        quick=quick,
        standard=standard,
        beyond=watched.beyond,
        memory=watched.memory,
        rehearsed=rehearsed,
    )


def _well(ran: Ran) -> Ran:
    """A run that has a report: what it says is a matter of the document."""
    if not ran.told:
        raise SystemExit(ran.shown("no report"))
    return ran


def _seconds(level: str, ranks: str, rounds: int) -> Iterator[float]:
    for _ in range(rounds):
        ran = _well(run("run", "--level", level, "--nproc", ranks))
        say(f"{level}: exit {ran.code}, {ran.seconds:.1f} s")
        yield ran.seconds


def _rehearsed(ranks: int, rounds: int) -> Iterator[tuple[float, float]]:
    """Seconds of the script's steps, by its own clock, without and with a rehearsal. The first
    pair, in which files are read for the first time, is not counted; every other one begins with
    the rehearsal, so that a machine that becomes faster or slower meanwhile favours neither."""
    command = torchrun(ranks, "train", str(STEPS))
    for turn in range(rounds + 1):
        spent: dict[bool, float] = {}
        for rehearsed in (False, True) if turn % 2 else (True, False):
            seconds, shown = _trained(command, rehearsed)
            say(f"{'with' if rehearsed else 'without'} a rehearsal: {seconds} s")
            if seconds is None:
                say(shown)
                return
            spent[rehearsed] = seconds
        if turn:
            yield spent[False], spent[True]


def _trained(command: Sequence[str], rehearsed: bool) -> tuple[float | None, str]:
    """The seconds of its steps, and what it said."""
    if rehearsed:
        ran = run("rehearse", "-q", within=WITHIN, then=command)
        return _steps(ran.out), ran.shown()
    plain = subprocess.run(
        command,
        env=asking.environment(),
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
    )
    return _steps(plain.stdout), plain.stderr[-2000:]


def _steps(out: str) -> float | None:
    found = re.search(r"^seconds ([\d.]+)$", out, re.MULTILINE)
    return float(found[1]) if found else None


def tested() -> Tests:
    """Run the tests marked `gpu`; what they print goes to stderr. Those that take a GPU's whole
    memory or watch what is used of it run first and alone, the rest beside each other."""
    tests = REPOSITORY / "tests/gpu"
    rehearsals, settings = str(tests / REHEARSALS), str(tests / SETTINGS)
    ending = time.monotonic() + TESTING
    at_once = max(1, min(AT_ONCE, (os.cpu_count() or 1) // CPUS_EACH))
    spread = ("-n", str(at_once), "--dist", "worksteal")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = [str(tests), f"--ignore={rehearsals}", f"--ignore={settings}"]
        ended = _pytest([first], folder, ending) + _pytest(
            [[rehearsals, *spread], [settings]], folder, ending
        )
        if None in ended:
            return Tests(ended=False)
        told = [results_of(one) for one in ended if one]
    return Tests(
        sum(one.passed for one in told),
        tuple(name for one in told for name in one.failed),
        {name: why for one in told for name, why in (one.skipped or {}).items()},
    )


def _pytest(each: Sequence[Sequence[str]], folder: Path, ending: float) -> tuple[str | None, ...]:
    """The JUnit files of these runs of pytest, which run at once; None of one that had to be
    killed."""
    runs = []
    for arguments in each:
        results, said = (
            Path(folder, f"{Path(arguments[0]).stem}.{kind}") for kind in ("xml", "out")
        )
        words = ("-m", "pytest", "-q", "-m", "gpu", *arguments, f"--junitxml={results}")
        with said.open("wb") as out:
            program = subprocess.Popen(
                [sys.executable, *words],
                cwd=REPOSITORY,
                env=asking.environment(),
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        runs.append((program, results, said))
    told: list[str | None] = []
    for program, results, said in runs:
        try:
            program.wait(max(0.0, ending - time.monotonic()))
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        sys.stderr.write(said.read_text(errors="replace"))
        if program.returncode >= 0 and not results.exists():
            raise SystemExit(f"pytest: exit code {program.returncode}, no results")
        told.append(results.read_text(encoding="utf-8") if results.exists() else None)
    return tuple(told)


def results_of(text: str) -> Tests:
    """What pytest's JUnit file, our own, says of each test."""
    passed, failed, skipped = 0, [], {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif skip is not None:
            skipped[name] = _cell(skip.get("message") or "")
        else:
            passed += 1
    return Tests(passed, tuple(failed), skipped)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    arguments.add_argument("--rounds", type=int, default=3, help="runs of each kind")
    arguments.add_argument("--no-tests", action="store_true", help="figures only")
    given = arguments.parse_args()
    try:
        machine = asking.asked()
        if not asking.torch().gpus:
            raise asking.NoGpu(f"no GPU for torch {asking.torch().version} here")
    except asking.NoGpu as why:
        raise SystemExit(f"{why}: nothing was measured, {TARGET.name} is not written") from None
    figures = measured(machine, given.rounds)
    TARGET.write_text(document(figures), encoding="utf-8")  # whatever becomes of the tests
    tests = None if given.no_tests else tested()
    TARGET.write_text(document(replace(figures, tests=tests)), encoding="utf-8")
    say(f"{TARGET.relative_to(REPOSITORY)}: {told(tests)}")
    sys.exit(1 if tests is not None and (tests.failed or not tests.passed) else 0)


if __name__ == "__main__":
    main()
