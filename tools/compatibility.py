"""Writes docs/compatibility.md: what preflight says on each torch that people have: `run --nproc 2`
several times, every training script of tests/rehearse and every job of tests/attach once.

    python tools/compatibility.py [WORD…]     only what has these words in its name: 2.6.0 cuda

One environment after the other is made in a temporary folder and removed again, some 6 GB each; the
packages come from the index that pip and uv are set to. Each takes some ten minutes. What an
environment has shown stands in docs/compatibility.json until it is run again, with its day and the
commit. COMPAT_CPU_INDEX: where the CPU wheels of torch are, if not on that index. COMPAT_RUNS: how
often `run --nproc 2`, and as often beside busy loops; otherwise 20 times. COMPAT_SHORT=1: only the
scripts that the tests rehearse, one of each kind, in a row of its own.

    python tools/compatibility.py --here      in this interpreter, as JSON on stdout
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
TARGET = REPOSITORY / "docs/compatibility.md"
SEEN = REPOSITORY / "docs/compatibility.json"
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tools")]

from tables import commit, say, table  # noqa: E402  it lies beside this file

RUNS = int(os.environ.get("COMPAT_RUNS", "20"))
"""Of `run --nproc 2`, and as many again beside busy loops: one in twenty is to be seen."""
SHORT = " short" if os.environ.get("COMPAT_SHORT") else ""
"""In the name of a row for which only the scripts of the tests are rehearsed."""
BUSY_LOOPS = 8
RUN_SECONDS = 120.0
AT_A_TIME = 2
LIMITS = 4
"""Times the limit of a row: a machine that has more to do takes most of it to start the ranks."""
INSTALL_SECONDS = 1200.0
SECONDS = 5400.0
"""For all that one environment is asked."""
ROOM = 12 << 30
"""Bytes that an environment needs, with the packages on their way to it."""


@dataclass(frozen=True)
class Environment:
    """A torch to install. `wheel`: cuda is what the index has by default, cpu the one without."""

    torch: str
    wheel: str
    python: str

    @property
    def name(self) -> str:
        return f"{self.torch} {self.wheel} {self.python}"


CUDA = {
    "2.4.1": ("3.11",),
    "2.6.0": ("3.10", "3.11"),
    "2.8.0": ("3.11",),
    "2.10.0": ("3.11", "3.12"),
    "2.13.0": ("3.10", "3.11", "3.12", "3.13", "3.14"),
    "2.15.0": ("3.11",),
}
CPU = ("2.4.1", "2.6.0", "2.8.0", "2.10.0", "2.13.0")
ENVIRONMENTS = (
    *(Environment(torch, "cuda", python) for torch in CUDA for python in CUDA[torch]),
    *(Environment(torch, "cpu", "3.11") for torch in CPU),
)


# --- an environment ---


def interpreter(version: str) -> str | None:
    """A Python of that version: on PATH, or one of pyenv's."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for found in (*map(str, pyenv), shutil.which(f"python{version}")):
        if found is None:
            continue
        said = subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True)
        if not said.returncode:
            return found
    return None


def installed(wanted: Environment, folder: Path) -> str:
    """Make it there; why that is not possible, or nothing."""
    python = interpreter(wanted.python)
    if python is None:
        return f"no Python {wanted.python} here"
    if shutil.disk_usage(folder).free < ROOM:
        return f"less than {ROOM >> 30} GiB free below {folder}"
    target = folder / "bin/python"
    torch = [f"torch=={wanted.torch}{'+cpu' if wanted.wheel == 'cpu' else ''}"]
    steps = [[python, "-m", "venv", str(folder)], [str(target), "-m", "pip", "install", "-q", "uv"]]
    uv = [str(target), "-m", "uv", "pip", "install", "-q", "-p", str(target)]
    if wanted.wheel == "cpu":
        index = os.environ.get("COMPAT_CPU_INDEX", "")
        # a machine's pip may know of a CPU wheel that uv does not look for
        pip = [str(target), "-m", "pip", "install", "-q"]
        steps.append([*pip, *(["--index-url", index] if index else []), *torch])
    else:
        steps.append([*uv, *torch])
    libraries = ["numpy", "accelerate>=1.0", "lightning>=2.4", "setuptools", "py-spy>=0.4"]
    steps.append([*uv, *torch, *libraries, "-e", str(REPOSITORY)])
    until = time.monotonic() + INSTALL_SECONDS
    for step in steps:
        left = max(1.0, until - time.monotonic())
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return f"not installed in {INSTALL_SECONDS:g} s"
        if done.returncode:
            return f"not installed: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}"
    version = [str(target), "-c", "import torch; print(torch.version.cuda or '')"]
    built = subprocess.run(version, capture_output=True, text=True).stdout.strip()
    if bool(built) != (wanted.wheel == "cuda"):
        return f"the index gives another build: {built or 'for the CPU'}"
    return ""


def look(wanted: Environment) -> dict[str, Any] | str:
    """What it shows, or why it could not be tried."""
    with tempfile.TemporaryDirectory(prefix="compat-") as name:
        folder = Path(name)
        if why := installed(wanted, folder):
            return why
        command = [str(folder / "bin/python"), __file__, "--here"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"not through after {SECONDS:g} s"
        if done.returncode:
            return f"exit code {done.returncode}"
        return {"name": wanted.name + SHORT, "day": str(date.today()), **json.loads(done.stdout)}


# --- inside of one ---


def here() -> dict[str, Any]:
    """What this interpreter's torch shows."""
    import torch

    began = time.monotonic()
    said: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "commit": commit(),
        "run": ready(),
        "loaded": ready_beside_busy_loops(),
        **rehearsed(),
        "attach": looked_at(),
    }
    return {**said, "minutes": round((time.monotonic() - began) / 60, 1)}


def ready() -> list[str]:
    """Of each run: nothing where it was READY, else what it said."""
    from support import command

    said = []
    for _ in range(RUNS):
        done = command.start("run", "--nproc", "2", "-o", "json").end(RUN_SECONDS)
        try:
            found = [f"{f['check']} {f['code']}" for f in done.document["findings"]]
        except (ValueError, KeyError):
            found = [done.err.strip()[-200:]]
        said.append("" if done.code == 0 else f"exit {done.code}: {', '.join(found)}")
        say("run --nproc 2", said[-1] or "READY")
    return said


def ready_beside_busy_loops() -> list[str]:
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)
    ]
    try:
        return ready()
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rehearsed() -> dict[str, Any]:
    """Every script once."""
    from at_once import each
    from rehearse.catalogue import AT_LENGTH, FAULTS, HEALTHY, missing

    asked = [row for row in (*FAULTS, *HEALTHY) if not (SHORT and row.name in AT_LENGTH)]
    rows = [row for row in asked if not missing(row)]
    said: dict[str, Any] = {"planted": 0, "healthy": 0, "wrong": {}, "alarms": {}, "innocents": {}}
    said["missing"] = [row.name for row in asked if missing(row)]
    for number, (problems, innocents) in each(rehearse_row, rows, AT_A_TIME):
        row = rows[number]
        planted = row in FAULTS
        said["planted" if planted else "healthy"] += 1
        if problems:
            said["wrong" if planted else "alarms"][row.name] = problems
        if innocents:
            said["innocents"][row.name] = innocents
        say(row.name, *problems, *(["INNOCENT", innocents] if innocents else []))
    return said


def rehearse_row(row: Any) -> tuple[list[str], str]:
    """What is not as it should be, and who is accused without being to blame."""
    from rehearse.catalogue import FAULTS
    from rehearse.judged import findings, wrong
    from rehearse.running import rehearse

    try:
        told = rehearse(replace(row, limit=LIMITS * row.limit))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return [f"{type(error).__name__}: {error}"[:200]], ""
    accused = {
        rank
        for finding in told.findings("fail")
        for subject in finding["subjects"]
        for rank in subject["ranks"]
    }
    innocents = sorted(accused - set(row.ranks))
    names = f"ranks {innocents}" if innocents else ""
    if row in FAULTS:
        problems = list(wrong(row, told))
        codes = ", ".join(f["code"] for f in findings(row, told)) or "nothing"
        return [f"said {codes}", *problems] if problems else [], names
    alarms = told.findings("fail", "warn", "undecided", "missing")
    said = [f"{f['check']} {f['code']}" for f in alarms if f["code"] not in row.may_warn]
    return said + ([f"exit {told.code}"] if told.code else []), names


def looked_at() -> dict[str, list[str]]:
    """What is not as it should be when `attach` looks at each of the jobs, one after the other."""
    from attach.catalogue import FAULTS, HEALTHY
    from attach.running import attached, wrong

    said = {}
    for row in (*FAULTS, *HEALTHY):
        try:
            said[row.name] = list(wrong(row, attached(row)))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            said[row.name] = [f"{type(error).__name__}: {error}"]
        said[row.name] = [" ".join(text.split())[:200] for text in said[row.name]]
        say("attach", row.name, *said[row.name])
    return said


# --- the document ---

HEAD = """\
# Compatibility

Made by `make compat`; don't edit. Of every torch in the table, in an environment of its own:
`preflight run --nproc 2`, several times, and as often beside {loops} busy loops; `preflight
rehearse` of every training script of tests/rehearse, or where they are fewer of one of each kind,
once, as in [rehearsals.md](rehearsals.md), which has them with the CPU wheel of the tests;
and `preflight attach` to ten hanging jobs and three healthy ones (tests/attach). Over Gloo, on a
machine without GPUs. *Named*: the finding has the right code, rank and line. *Innocent*: scripts of
which a FAIL names a rank that is not to blame. CUDA wheels are what `pip install torch` gives on
Linux. The Python is that of both, preflight and the job. What went wrong is below the table;
of a script that only costs time (slow_rank, holds_lock) nothing is said where a machine with other
work takes most of the watch to start it.

"""
COLUMNS = (
    *("torch", "Python", "`run` READY", "at load"),
    *("faults named", "healthy READY", "innocent", "`attach`", "day", "commit"),
)


def cells(seen: Mapping[str, Any]) -> Iterator[str]:
    yield from (seen["torch"], seen["python"])
    for runs in (seen["run"], seen["loaded"]):
        yield f"{runs.count('')} of {len(runs)}"
    yield f"{seen['planted'] - len(seen['wrong'])} of {seen['planted']}"
    yield f"{seen['healthy'] - len(seen['alarms'])} of {seen['healthy']}"
    yield str(len(seen["innocents"]))
    yield f"{sum(not said for said in seen['attach'].values())} of {len(seen['attach'])}"
    yield from (seen["day"], seen["commit"])


def not_as_it_should_be(seen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for what, runs in (("run --nproc 2", seen["run"]), ("the same at load", seen["loaded"])):
        for said in filter(None, runs):
            yield what, said
    for script, problems in sorted({**seen["wrong"], **seen["alarms"]}.items()):
        accused = seen["innocents"].get(script)
        yield script, "; ".join([*problems, *([f"accuses {accused}"] if accused else [])])
    for name, problems in seen["attach"].items():
        if problems:
            yield f"attach: {name}", "; ".join(problems)


def document(known: Sequence[Mapping[str, Any]], untried: Mapping[str, str]) -> str:
    text = HEAD.format(loops=BUSY_LOOPS) + table(COLUMNS, map(list, map(cells, known)))
    if untried:
        rows = ([name, why.replace("|", "/")] for name, why in untried.items())
        text += "\n## Not tried\n\n" + table(("environment", "why"), rows)
    for seen in known:
        rows = [(script, said.replace("|", "/")) for script, said in not_as_it_should_be(seen)]
        if rows:
            title = f"torch {seen['torch']}, Python {seen['python']}, commit {seen['commit']}"
            text += f"\n## Not as it should be: {title}\n\n"
            text += table(("what", "said"), rows)
        if seen["missing"]:
            text += f"\nNot run, for want of a library: {', '.join(seen['missing'])}.\n"
    return text


def main() -> None:
    words = " ".join(sys.argv[1:]).split()
    if words == ["--here"]:
        json.dump(here(), sys.stdout)
        return
    kept = json.loads(SEEN.read_text(encoding="utf-8")) if SEEN.exists() else {}
    for wanted in ENVIRONMENTS:
        if not set(words) <= set(wanted.name.split()):
            continue
        say("---", wanted.name)
        kept[wanted.name + SHORT] = found = look(wanted)
        if isinstance(found, str):
            say(wanted.name, found)
        write(kept)


def write(kept: Mapping[str, Any]) -> None:
    """After every environment: the next one may take all the time that is left."""
    names = [e.name + short for e in ENVIRONMENTS for short in ("", " short")]
    ordered = [(name, kept[name]) for name in names if name in kept]
    SEEN.write_text(json.dumps(dict(ordered), indent=1) + "\n", encoding="utf-8")
    tried = [found for _, found in ordered if not isinstance(found, str)]
    untried = {name: why for name, why in ordered if isinstance(why, str)}
    TARGET.write_text(document(tried, untried), encoding="utf-8")


if __name__ == "__main__":
    main()
