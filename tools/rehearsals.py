"""Writes docs/rehearsals.md: every training script of tests/rehearse, and what `preflight rehearse`
says of it. The figures are those of this run, which takes some minutes.

    python tools/rehearsals.py [WORD…]      with words: only what has them in its name, printed

It needs what the tests need: torch, py-spy. What needs Lightning or Accelerate and finds none is
listed as not run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TARGET = REPOSITORY / "docs/rehearsals.md"
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tools")]

from at_once import each  # noqa: E402  they lie beside this file and in tests/
from detection import machine  # noqa: E402
from rehearse.catalogue import FAULTS, HEALTHY, SCRIPTS, Row, missing  # noqa: E402
from rehearse.judged import findings, late, wrong  # noqa: E402
from rehearse.running import rehearse  # noqa: E402
from tables import say, table  # noqa: E402

AT_A_TIME = 2
HEAD = """\
# Rehearsals

Made by `make faults`; don't edit. Each is a small training script (tests/rehearse/scripts) with one
planted fault or with nothing wrong, started as a user would: `preflight rehearse --stuck … --
torchrun … script.py`, over Gloo on the CPU. *Named*: the report has one failure (one warning where
the fault only costs time), of the code and with the ranks that are to blame, and with the file and
line where the script has its mark, unless the script leaves no trace of it, in time. *Seconds*:
from the fault until everything has ended, of which --stuck are waited for on purpose.

{machine} {minutes:.0f} minutes.

"""


def what(row: Row) -> str:
    """The first line of the script's documentation."""
    text = (SCRIPTS / f"{row.script}.py").read_text(encoding="utf-8")
    first = text.removeprefix('"""').partition("\n")[0].rstrip('".')
    return f"{row.name}: {first}"


def looked_at(row: Row) -> tuple[bool, list[str]]:
    """Whether it is as it should be, and the cells of its row."""
    told = rehearse(row)
    if row in FAULTS:
        problems = [*wrong(row, told), *late(row, told)]
        said = ", ".join(
            f"`{f['check']}` {f['code']} ({f['status']}, {f['confidence']})"
            for f in findings(row, told)
        )
        good = not problems
        seconds = f"{told.after:.1f}" if told.after is not None else "-"
        named = "; ".join(["**no**", *problems]) if problems else "yes"
        return good, [what(row), said, named, f"{row.stuck:g}", seconds]
    alarms = told.findings("fail", "warn", "undecided", "missing")
    good = told.code == 0 and not [f for f in alarms if f["code"] not in row.may_warn]
    if not good:  # it may not come again
        say(row.name, *(f"{f['code']}: {f['saw']}" for f in alarms), told.err[-2000:])
    said = ", ".join(f"`{f['check']}` {f['code']}" for f in alarms) or "none"
    return good, [what(row), "yes" if told.code == 0 else f"**exit code {told.code}**", said]


def run(rows: Sequence[Row]) -> Iterator[tuple[Row, bool, list[str]]]:
    done = {}
    for number, (good, cells) in each(looked_at, rows, AT_A_TIME):
        done[number] = (rows[number], good, cells)
        say(f"{len(done)}/{len(rows)}", *cells, "" if good else "NOT AS IT SHOULD BE")
    yield from (done[number] for number in sorted(done))


def main() -> None:
    words = sys.argv[1:]
    wanted = [row for row in (*FAULTS, *HEALTHY) if all(word in row.name for word in words)]
    rows = [row for row in wanted if not missing(row)]
    idle = [f"{row.name} ({row.needs})" for row in wanted if missing(row)]
    began = time.monotonic()
    done = list(run(rows))
    if idle:
        say("not run, for want of a library:", *idle)
    if words:
        return
    minutes = (time.monotonic() - began) / 60
    faults = [(good, cells) for row, good, cells in done if row in FAULTS]
    quiet = [(good, cells) for row, good, cells in done if row not in FAULTS]
    text = HEAD.format(machine=machine(), minutes=minutes)
    text += (
        f"**{sum(g for g, _ in faults)} of {len(faults)} planted faults are named; "
        f"{sum(g for g, _ in quiet)} of {len(quiet)} healthy scripts are READY without a finding."
        "**\n\n## With a fault\n\n"
    )
    text += table(("script", "said", "named", "--stuck", "seconds"), (c for _, c in faults))
    text += "\n## With nothing wrong\n\n"
    text += table(("script", "READY", "findings"), (c for _, c in quiet))
    if idle:
        text += f"\n## Not run, for want of a library\n\n{', '.join(idle)}\n"
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
