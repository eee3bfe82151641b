"""All tests of CI: `python tools/suite.py PYTEST_ARGS`. A few that fail are tried once more, alone.

Four thousand of the tests start real processes and have real deadlines, four at a time on two
cores. One deadline that is missed beside the others says nothing of the program; a fault of the
program fails alone, too. What passed only alone is printed: a race in the program hides there, so
it is to be looked at. More than a few are no accident, and are not tried again; how many that is
depends on the machine: with half the speed of the one that the deadlines were made on nine of them
were missed in a run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FEW = 6
"""On a machine that is as fast; twice as many on one of half the speed."""
CHOSEN = "not gpu and not at_length"
FAILED = 1
"""pytest's exit code when tests have failed; others mean that it did not run as it should."""
REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "tests")]

from support.pace import slower  # noqa: E402  it lies in another folder

LAST_FAILED = REPOSITORY / ".pytest_cache/v/cache/lastfailed"


def main(args: list[str]) -> int:
    LAST_FAILED.unlink(missing_ok=True)  # of an earlier run
    pytest = [sys.executable, "-m", "pytest", "-m", CHOSEN]
    code = subprocess.run([*pytest, *args], cwd=REPOSITORY).returncode
    failed = json.loads(LAST_FAILED.read_text()) if LAST_FAILED.exists() else {}
    if code != FAILED or not 0 < len(failed) <= FEW * slower():
        return code
    print(f"\n{len(failed)} failed beside the others; once more, alone:", flush=True)
    code = subprocess.run([*pytest, "-n", "0", *failed], cwd=REPOSITORY).returncode
    if not code:
        print("passed only alone, look at it:", *failed, sep="\n  ")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
