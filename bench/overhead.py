"""What a rehearsal costs the command that is rehearsed: with and without it, taking turns.

    make bench            5 pairs after one that warms up
    python bench/overhead.py --rounds 1

The bar is on the CPU time of the ranks, from their first step to their last; what preflight itself
uses beside them, its start and its report included, is shown. Of steps of 20 ms, most of it asleep,
the CPU time that a rehearsal adds to one is told as a part of 20 ms; and by how much the memory of
a rank grows: its share of all after the last step, and its peak, to which its last word is added.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from bench import BIN, HERE, LIMIT, environment, free_port

RANKS = 2
STARTS = 40
STEP = 20.0
"""Milliseconds of a step of paced.py."""
PACED = (
    ("its own 2 collectives", (), True),
    ("20 broadcasts in it", ("20",), True),
    ("200 broadcasts in it", ("200",), False),
    ("a new group in each", ("2", "1"), True),
)
"""What else is in its steps, its arguments, and whether the bar on CPU time is on this: one between
two ranks over Gloo takes more than a hundred microseconds, so 200 of them are no step of 20 ms."""


def run(script: str, arguments: Sequence[str], rehearsed: bool) -> tuple[str, float]:
    """What the ranks print of their steps, and the peak of the largest process, in MiB."""
    port = f"--master-port={free_port()}"
    command = [str(BIN / "torchrun"), f"--nproc-per-node={RANKS}", port, str(HERE / script)]
    command += arguments
    if rehearsed:
        command = [str(BIN / "preflight"), "rehearse", "-q", "--", *command]
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(command, env=environment(), stdout=out, stderr=out) as process,
    ):
        killer = threading.Timer(LIMIT, process.kill)
        killer.start()
        _, status, used = os.wait4(process.pid, 0)
        killer.cancel()
        process.returncode = code = os.waitstatus_to_exitcode(status)
        out.seek(0)
        told = out.read()
    if code or "cpu " not in told:
        raise SystemExit(f"{' '.join(command)}: {code}\n{told}")
    return told, used.ru_maxrss / 1024


def number(name: str, told: str) -> float:
    found = re.search(rf"^(?:.* )?{name} ([\d.]+)", told, re.MULTILINE)
    assert found is not None, told
    return float(found[1])


def ranks_cpu(rehearsed: bool) -> tuple[float, float]:
    """CPU seconds of the ranks' steps, and of everything together."""
    before = os.times()
    told, _ = run("train.py", (), rehearsed)
    after = os.times()
    whole = after.children_user + after.children_system
    return number("cpu", told), whole - before.children_user - before.children_system


def paced(arguments: Sequence[str], rehearsed: bool) -> tuple[float, float, float]:
    """CPU milliseconds of a step, memory of a rank in MiB after the last, and its peak."""
    told, peak = run("paced.py", arguments, rehearsed)
    return number("cpu", told), number("memory", told), peak


def table(rounds: int) -> str:
    """Of each kind of step: what it costs more with a rehearsal than without, taking turns. CPU
    time is the least of all rounds of each."""
    lines = []
    for name, arguments, bar in PACED:
        pairs = []
        for turn in range(rounds):
            pairs.append((paced(arguments, False), paced(arguments, True)))
            print(f"  {turn + 1}/{rounds} {name}: {pairs[-1]}", file=sys.stderr)
        # what else the machine does adds CPU time, by other CPUs' use of its caches and clocks
        without, ours = (min(one[0] for one in side) for side in zip(*pairs, strict=True))
        cpu = ours - without
        memory, peak = (median(ours[n] - theirs[n] for theirs, ours in pairs) for n in (1, 2))
        over, most = cpu / STEP, max(memory, peak)
        limit = f"<= 3 %    {'met' if over <= 0.03 else 'NOT MET'}" if bar else "no bar"
        lines += [
            f"rehearse: a step of 20 ms with {name:<22} {over:+.1%} "
            f"({cpu:+.2f} ms of CPU on {without:.2f})   {limit}",
            f"rehearse: memory of a rank with {name:<21} {memory:+.1f} MiB, peak {peak:+.1f} MiB   "
            f"<= 60 MiB   {'met' if most <= 60 else 'NOT MET'}",
        ]
    return "\n".join(lines)


def start_seconds(environ: dict[str, str]) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=environ, timeout=LIMIT, check=True)
    return perf_counter() - began


def starts() -> tuple[float, float]:
    """Median seconds of a Python that never imports torch, without and with our hook."""
    plain = environment()
    ours = HERE.parent / "preflight/rehearsal/injected"
    with tempfile.TemporaryDirectory() as folder:
        for path in ours.glob("*.py"):
            Path(folder, path.name).write_bytes(path.read_bytes())
        hooked = {**plain, "PREFLIGHT_WATCHED": folder, "PYTHONPATH": folder}
        pairs = [(start_seconds(plain), start_seconds(hooked)) for _ in range(STARTS)]
    return median(p for p, _ in pairs), median(h for _, h in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    steps = table(rounds)
    pairs = []
    for turn in range(rounds + 1):
        one = ranks_cpu(False), ranks_cpu(True)
        print(f"  {turn}/{rounds} {one[0][0]:.2f} s {one[1][0]:.2f} s", file=sys.stderr)
        pairs += [one] if turn else []
    ratios = sorted(with_us[0] / without[0] for without, with_us in pairs)
    over = median(ratios) - 1
    beside = median(with_us[1] - without[1] for without, with_us in pairs)
    plain, hooked = starts()
    print(
        f"rehearse: CPU of {RANKS} ranks          {over:+.1%} (pairs {ratios[0] - 1:+.1%} to "
        f"{ratios[-1] - 1:+.1%})   <= 2 %    {'met' if over <= 0.02 else 'NOT MET'}\n"
        f"rehearse: CPU of all of it        {beside:+.2f} s beside "
        f"{median(without[1] for without, _ in pairs):.1f} s, no bar\n"
        f"rehearse: a start without torch   {1e3 * (hooked - plain):+.1f} ms on "
        f"{1e3 * plain:.0f} ms   <= 5 ms   {'met' if hooked - plain <= 0.005 else 'NOT MET'}\n"
        f"{steps}"
    )


if __name__ == "__main__":
    main()
