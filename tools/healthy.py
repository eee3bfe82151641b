"""Healthy worlds (tests/faults/healthy_worlds.py) in turn, again and again: is anything found?

python tools/healthy.py [RUNS]     200 where nothing is said
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

from at_once import each  # noqa: E402  it lies beside this file
from faults.healthy_worlds import WITH_TORCH, WORLDS, alarms  # noqa: E402
from faults.world import WorldFault, lacking, run  # noqa: E402

RUNS = 200
LABS = 2


def look(world: WorldFault) -> tuple[list[str], float]:
    """What is wrong with the run of a world where nothing is, and how long it took."""
    try:
        seen = run(world)
    except (RuntimeError, OSError) as error:
        return [f"the lab failed: {error}"], 0.0
    return alarms(seen), seen.seconds


def main(runs: int) -> int:
    worlds = list(itertools.islice(itertools.cycle((*WORLDS, *WITH_TORCH)), runs))
    if why := lacking(worlds[0]):
        print(f"can't be tried here: {why}")
        return 1
    bad: Counter[str] = Counter()
    slowest = 0.0
    for done, (number, (found, seconds)) in enumerate(each(look, worlds, LABS), 1):
        name = worlds[number].name
        slowest = max(slowest, seconds)
        bad[name] += bool(found)
        print(f"{done}/{runs}", name, f"{seconds:.1f} s", *found, sep=" | ", flush=True)
    print(
        f"\n{bad.total()} of {runs} runs had a finding or were not READY; slowest {slowest:.1f} s"
    )
    for name, count in (+bad).items():
        print(f"  {count} x {name}")
    return int(bad.total() > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else RUNS))
