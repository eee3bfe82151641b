"""What a rehearsal costs the command that is rehearsed: with and without it, taking turns.

    make bench            5 pairs after one that warms up
    python bench/overhead.py --rounds 1

The bar is on the CPU time of the ranks, from their first step to their last; what preflight itself
uses beside them, its start and its report included, is shown.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from bench import BIN, HERE, LIMIT, environment, free_port

RANKS = 2
STARTS = 40


def ranks_cpu(rehearsed: bool) -> tuple[float, float]:
    """CPU seconds of the ranks' steps, and of everything together."""
    port = f"--master-port={free_port()}"
    command = [str(BIN / "torchrun"), f"--nproc-per-node={RANKS}", port, str(HERE / "train.py")]
    if rehearsed:
        command = [str(BIN / "preflight"), "rehearse", "-q", "--", *command]
    before = os.times()
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False
    )
    after = os.times()
    found = re.search(r"^cpu ([\d.]+)$", ended.stdout, re.MULTILINE)
    if found is None or ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.returncode}\n{ended.stdout}{ended.stderr}")
    whole = after.children_user + after.children_system
    return float(found[1]), whole - before.children_user - before.children_system


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
        f"{1e3 * plain:.0f} ms   <= 5 ms   {'met' if hooked - plain <= 0.005 else 'NOT MET'}"
    )


if __name__ == "__main__":
    main()
