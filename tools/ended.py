"""Ends every command of preflight with a signal at a random moment of its life, many times: is a
process or a file of it left, is a traceback shown, how long did it take? Writes docs/ended.md.

python tools/ended.py [--seed N] [--lanes N] [--minutes M] [--signal NAME]… [RUNS]

RUNS of each signal: 500. With --signal of these alone: `--signal SIGKILL`. What earlier calls have
counted stands in docs/ended.json, each with its commit, and stays: the page is about all of it. Who
begins anew removes that file. Another seed makes other runs.

Each lane has a PID namespace and a /tmp and /dev/shm of its own, so that whatever is there after a
run is of that run, whatever it calls itself. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs/ended.md"
COUNTED = REPOSITORY / "docs/ended.json"
sys.path.append(str(REPOSITORY / "tools"))

from tables import commit, table  # noqa: E402  it lies beside this file

BIN = Path(sys.executable).parent
PREFLIGHT, PYTHON = str(BIN / "preflight"), sys.executable

RUNS, LANES = 500, 2
SOON, LATER = 2.0, 12.0
"""Seconds after which nothing may be there: a command whose rehearsal was killed has ten to end,
and a hook whose script was killed its seven."""
LONGEST = 25.0
"""Seconds after the signal at which a run is given up, and counts as one that hangs."""

WORKS = """\
import datetime, time, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(days=1))
for _ in range({steps}):
    dist.all_reduce(torch.ones(8))
    time.sleep(0.05)
"""
HANGS = WORKS.format(steps=1) + "time.sleep(1e6) if dist.get_rank() else dist.barrier()\n"

TORCHRUN = (str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2")
LIGHT = ("--only", "host.limits", "--nproc", "1")
TORCH = ("--only", "world.gloo,world.loader,rdzv.store", "--nproc", "2", "--deadline", "40s")
FILES = ("-o", "json=report.json", "-o", "html=report.html")
HOOK = (PYTHON, "-I", "-m", "preflight", "slurm")
STATE = ("--state", "/tmp/state")


@dataclass(frozen=True, slots=True)
class Variant:
    """A command line, and in how many of a round's runs of its command it is taken."""

    command: str
    argv: tuple[str, ...]
    share: int = 1


VARIANTS = (
    Variant("run", (PREFLIGHT, "run", *LIGHT), 5),
    Variant("run", (PREFLIGHT, "run", *LIGHT, *FILES), 2),
    Variant("run", (PREFLIGHT, "run", "--level", "quick", "--nproc", "2"), 2),
    Variant("run", (PREFLIGHT, "run", *TORCH), 1),
    Variant("gate", (PREFLIGHT, "gate", *LIGHT, "--", "sleep", "0.3"), 6),
    Variant("gate", (PREFLIGHT, "gate", "--level", "quick", "--", "sh", "-c", "sleep 0.2; :"), 3),
    Variant("gate", (PREFLIGHT, "gate", *TORCH, "--", "sleep", "0.3"), 1),
    Variant("rehearse", (PREFLIGHT, "rehearse", "--", "sleep", "0.3"), 4),
    Variant("rehearse", (PREFLIGHT, "rehearse", "--", "sh", "-c", "sleep 0.3 & sleep 0.4"), 4),
    Variant("rehearse", (PREFLIGHT, "rehearse", *FILES, "--", PYTHON, "-c", "import json"), 1),
    Variant("rehearse", (PREFLIGHT, "rehearse", "--", *TORCHRUN, "/tmp/works.py"), 1),
    Variant("attach", (PREFLIGHT, "attach", "--for", "2s", "{job}"), 1),
    Variant("slurm prolog", (*HOOK, "prolog", *STATE), 1),
    Variant("slurm prolog", ("/bin/sh", "/tmp/prolog.sh"), 1),
    Variant("slurm healthcheck", (*HOOK, "healthcheck", *STATE), 1),
    Variant("slurm epilog", (*HOOK, "epilog", *STATE), 1),
    Variant("slurm task-prolog", (*HOOK, "task-prolog", *STATE), 1),
)
COMMANDS = tuple(dict.fromkeys(variant.command for variant in VARIANTS))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
MEANT = re.compile(
    r"/tmp/(works|hangs)\.py|/tmp/prolog\.sh|/tmp/state(/(job-7|bad)\.json|/\w+-7\.log)?"
    r"|/tmp/cwd(/report\.(json|html))?|/tmp/torchelastic_.*"
)
"""Files that somebody asked for, and torchrun's own."""
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LANG": "C.UTF-8",
    "HOME": "/tmp/cwd",
    "OMP_NUM_THREADS": "1",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_UID": "65534",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """One run. `after`: seconds from its start to the signal; `took`: from there to its end."""

    command: str
    argv: str
    signal: str
    whole_group: bool
    after: float
    took: float
    code: int
    processes: tuple[str, ...]
    files: tuple[str, ...]
    traceback: str
    harmed: bool = False

    @property
    def early(self) -> bool:
        """Whether Python was still coming up, and has said so in its own way."""
        others = self.command == "rehearse" and self.after > 0.1  # of the command itself
        return self.signal == "SIGINT" and bool(self.traceback) and not self.ours and not others

    @property
    def ours(self) -> bool:
        return "/preflight/" in self.traceback


# --- one lane ---


def processes() -> dict[int, str]:
    """All of this lane, but ourselves and what has ended already."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if state not in "ZX" and int(folder.name) != os.getpid():
            found[int(folder.name)] = words.strip()
    return found


def files() -> set[str]:
    return {
        str(path)
        for place in ("/tmp", "/dev/shm")
        for path in Path(place).rglob("*")
        if not MEANT.fullmatch(str(path))
    }


def wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


class Lane:
    """Where runs are made, one after the other, beside a job that hangs for `attach`."""

    def __init__(self) -> None:
        Path("/tmp/cwd").mkdir()
        Path("/tmp/state").mkdir()
        Path("/tmp/works.py").write_text(WORKS.format(steps=10))
        Path("/tmp/hangs.py").write_text(HANGS)
        script = subprocess.run(
            [PREFLIGHT, "slurm", "snippet", "prolog"], capture_output=True, text=True, check=True
        ).stdout
        Path("/tmp/prolog.sh").write_text(script.replace("/run/preflight", "/tmp/state"))
        self.job = subprocess.Popen(
            [*TORCHRUN, "/tmp/hangs.py"],
            cwd="/tmp/cwd",
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(15)  # until it hangs
        self.beside = processes()
        if len(self.beside) < 3:
            raise RuntimeError(f"no job of two ranks: {self.beside}")
        self.before = files()
        self.usual: dict[tuple[str, ...], float] = {}

    def start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        with open("/tmp/cwd/said", "wb") as said:
            return subprocess.Popen(
                [word.replace("{job}", str(self.job.pid)) for word in argv],
                cwd="/tmp/cwd",
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    def time_of(self, argv: tuple[str, ...]) -> float:
        """How long it takes when nothing happens to it."""
        if argv not in self.usual:
            began = time.monotonic()
            self.start(argv).wait(120)
            self.usual[argv] = time.monotonic() - began
        return self.usual[argv]

    def run(self, variant: Variant, number: signal.Signals, dice: random.Random) -> Ended:
        whole_group = dice.random() < 0.3
        after = dice.uniform(0.0, 1.05) * self.time_of(variant.argv)
        process = self.start(variant.argv)
        wait(process, after)
        sent = time.monotonic()
        if process.poll() is None:
            (os.killpg if whole_group else os.kill)(process.pid, number)
        code = wait(process, LONGEST)
        took = time.monotonic() - sent
        patient = variant.argv[0] == "/bin/sh" or (
            number == signal.SIGKILL and variant.command == "rehearse"
        )
        left = self.left(LATER if patient else SOON)
        kept = sorted(files() - self.before - {"/tmp/cwd/said"})
        said = Path("/tmp/cwd/said").read_bytes().decode(errors="replace")
        self.clear(left, kept)
        return Ended(
            variant.command,
            " ".join(variant.argv),
            number.name,
            whole_group,
            round(after, 3),
            round(took, 3),
            -1000 if code is None else code,
            tuple(f"{words[:200]}" for words in left.values()),
            tuple(kept),
            said[-1500:] if "Traceback (most recent call last)" in said or code == 1 else "",
            bool(self.beside.keys() - processes().keys()),
        )

    def left(self, within: float) -> dict[int, str]:
        """Processes that are there once `within` seconds have gone by, or none as soon as there is
        none."""
        until = time.monotonic() + within
        while True:
            self.reap()
            found = {pid: w for pid, w in processes().items() if pid not in self.beside}
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.02)

    def reap(self) -> None:
        """Orphans that came to us, who are PID 1 here; not the job, which has a Popen."""
        for pid in [p for p in map(int, filter(str.isdigit, os.listdir("/proc"))) if p > 1]:
            if pid != self.job.pid:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue

    def clear(self, left: Mapping[int, str], kept: Sequence[str]) -> None:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for name in sorted(kept, reverse=True):
            path = Path(name)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def rounds(
    seed: int, lane: int, signals: Sequence[signal.Signals]
) -> Iterator[tuple[Variant, signal.Signals]]:
    """Each of these signals to every command in turn, without end."""
    dice = random.Random(f"{seed}/{lane}")
    while True:
        for number in signals:
            for command in COMMANDS:
                fitting = [v for v in VARIANTS if v.command == command]
                (variant,) = dice.choices(fitting, [v.share for v in fitting])
                yield variant, number


def make_lane(seed: int, number: int, signals: Sequence[signal.Signals]) -> None:
    """Runs until nobody reads what came of them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    lane = Lane()
    dice = random.Random(f"{seed}/{number}/when")
    for variant, sent in rounds(seed, number, signals):
        print(json.dumps(asdict(lane.run(variant, sent, dice))), flush=True)


# --- all of them ---


def lanes(seed: int, count: int, signals: Sequence[signal.Signals] = SIGNALS) -> Iterator[Ended]:
    """What comes of the runs of all lanes."""
    inside = (
        "mount -t tmpfs -o mode=1777 tmp /tmp && mount -t tmpfs -o mode=1777 shm /dev/shm && "
        'exec "$@"'
    )
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    words += ["sh", "-c", inside, "sh", PYTHON, str(Path(__file__).resolve()), "--seed", str(seed)]
    words += [word for one in signals for word in ("--signal", one.name)]
    begun = [
        subprocess.Popen([*words, "--lane", str(lane)], stdout=subprocess.PIPE, text=True)
        for lane in range(count)
    ]
    found: list[Ended] = []
    ready = threading.Condition()

    def read(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with ready:
                    found.append(_run(json.loads(line)))
                    ready.notify()

    readers = [threading.Thread(target=read, args=(one,), daemon=True) for one in begun]
    for reader in readers:
        reader.start()
    try:
        while any(process.poll() is None for process in begun):
            with ready:
                ready.wait_for(lambda: found, timeout=5.0)
                now, found[:] = list(found), []
            yield from now
    finally:
        for process in begun:
            process.kill()
            process.wait()
        for reader in readers:  # what is killed has closed its end
            reader.join(5.0)


def allowed(run: Ended) -> bool:
    """Whether it ended with a code of the contract, or with that of the command that it started."""
    number = signal.Signals[run.signal]
    codes = {0, 3, 4, 5, 128 + number, -number}
    if run.command == "rehearse":
        codes |= {128 + 15, 137}  # the command's own end
    return run.code in codes


def problems(run: Ended) -> Iterator[str]:
    yield from (f"process left: {words}" for words in run.processes)
    if run.signal != "SIGKILL":
        yield from (f"file left: {name}" for name in run.files)
    if run.code == -1000:
        yield f"had not ended {LONGEST:g} s after the signal"
    elif not allowed(run) and not run.early:
        yield f"exit code {run.code}"
    if run.ours:  # a rehearsed command has its own
        yield f"traceback: {run.traceback}"
    if run.harmed:
        yield "the job that attach looks at has lost a process"


# --- what is counted of them ---


@dataclass(slots=True)
class Tally:
    """Runs of one command that were ended by one signal."""

    command: str
    signal: str
    runs: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    processes: int = 0
    files: int = 0
    early: int = 0

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        for code, times in other.codes.items():
            self.codes[code] = self.codes.get(code, 0) + times
        self.slowest = max(self.slowest, other.slowest)
        self.processes += other.processes
        self.files += other.files
        self.early += other.early


@dataclass(slots=True)
class Batch:
    """The runs of one call of this program. `where`: machine and versions; `early`: seconds from
    the start of a run to the last SIGINT that came before Python had read a line of ours."""

    commit: str
    day: str
    where: str
    seed: int
    early: float = 0.0
    tallies: list[Tally] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def runs(self) -> int:
        return sum(tally.runs for tally in self.tallies)

    def count(self, run: Ended) -> None:
        one = Tally(
            *(run.command, run.signal, 1, {str(run.code): 1}, run.took),
            *(len(run.processes), len(run.files), int(run.early)),
        )
        _add(self.tallies, one)
        if run.early:
            self.early = max(self.early, run.after)
        if found := list(problems(run)):
            last = found[0].strip().rpartition("\n")[2]
            self.problems.append(
                f"`{run.command}`, {run.signal} after {run.after:.2f} s: {last[:200]}"
            )


def _add(tallies: list[Tally], one: Tally) -> None:
    same = (t for t in tallies if (t.command, t.signal) == (one.command, one.signal))
    if (known := next(same, None)) is None:
        tallies.append(known := Tally(one.command, one.signal))
    known.add(one)


def counted() -> list[Batch]:
    """What earlier calls have counted."""
    if not COUNTED.exists():
        return []
    read = json.loads(COUNTED.read_text())
    return [Batch(**one | {"tallies": [Tally(**t) for t in one["tallies"]]}) for one in read]


def begin(seed: int, lanes: int) -> Batch:
    import preflight

    where = f"preflight {preflight.__version__}, Python {platform.python_version()}, "
    where += f"{os.cpu_count()} CPUs, Linux {platform.release()}, lanes: {lanes}"
    return Batch(commit(), str(date.today()), where, seed)


# --- the page ---

HEAD = """\
# Ended runs

Made by `make ended`; don't edit. Every command of preflight was ended with a signal at a random
moment of its life: from its first millisecond, while Python itself is coming up, to after its
usual end. Three in ten signals go to its whole process group, as a terminal sends them, the others
to the process alone. Each run has a PID namespace, a /tmp and a /dev/shm of its own: whatever is
there {soon:g} s later, under whatever name, was left ({later:g} s later where a rehearsal was
killed, whose command has ten to end, or the script around a hook, which has seven). Most runs are
light ones (`--only host.limits`, `--level quick`), one in ten starts torch.

**{count:,} runs. {catchable:,} ended by SIGINT, SIGTERM or SIGHUP left {processes} processes and
{files} files; {killed:,} ended by SIGKILL left {orphans} processes.** The longest took
{longest:.1f} s to end. What was killed may leave files: a later run removes them when they are an
hour old.

*While Python starts*: SIGINT came before Python had read the first line of preflight's, at most
{early:.0f} ms after its start here. Python answers that with a traceback and exit code 1 or 130, as
with any program written in it; there is no option or variable with which it would not.

They were made in {batches}, with the program as it was then:

"""


def page(batches: Sequence[Batch]) -> str:
    together: list[Tally] = []
    for batch in batches:
        for one in batch.tallies:
            _add(together, one)
    hard = [one for one in together if one.signal == "SIGKILL"]
    soft = [one for one in together if one.signal != "SIGKILL"]
    text = HEAD.format(
        soon=SOON,
        later=LATER,
        count=sum(one.runs for one in together),
        catchable=sum(one.runs for one in soft),
        killed=sum(one.runs for one in hard),
        processes=sum(one.processes for one in soft),
        files=sum(one.files for one in soft),
        orphans=sum(one.processes for one in hard),
        longest=max(one.slowest for one in together),
        early=1000 * max(batch.early for batch in batches),
        batches="one go" if len(batches) == 1 else f"{len(batches)} goes",
    )
    text += table(("commit", "day", "runs", "of them SIGKILL", "seed", "where"), map(made, batches))
    text += "\n" + table(COLUMNS, map(cells, sorted(together, key=lambda t: (t.command, t.signal))))
    wrong = [(batch.commit, told) for batch in batches for told in batch.problems]
    if wrong:
        text += "\n## Runs with a problem\n\n"
        text += "".join(f"- {told} (commit {of})\n" for of, told in wrong)
    return text


def made(batch: Batch) -> list[str]:
    killed = sum(one.runs for one in batch.tallies if one.signal == "SIGKILL")
    numbers = (f"{batch.runs:,}", f"{killed:,}", str(batch.seed))
    return [batch.commit, batch.day, *numbers, batch.where]


COLUMNS = (
    *("Command", "signal", "runs", "exit codes", "slowest end"),
    *("processes left", "files left", "while Python starts"),
)


def cells(one: Tally) -> Iterator[str]:
    codes = sorted(one.codes.items(), key=lambda pair: (-pair[1], int(pair[0])))
    yield from (f"`{one.command}`", one.signal, str(one.runs))
    yield ", ".join(f"{times} x {code}" for code, times in codes)
    yield from (f"{one.slowest:.1f} s", str(one.processes))
    yield "–" if one.signal == "SIGKILL" else str(one.files)
    yield str(one.early)


def write(batches: Sequence[Batch]) -> None:
    """After every run: what is cut short has counted as far as it came."""
    COUNTED.write_text(json.dumps([asdict(batch) for batch in batches], indent=1) + "\n")
    PAGE.write_text(page(batches))


def _run(made: dict[str, Any]) -> Ended:
    return Ended(**made | {name: tuple(made[name]) for name in ("processes", "files")})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="?", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--lane", type=int)
    parser.add_argument("--signal", action="append", choices=[number.name for number in SIGNALS])
    parser.add_argument("--minutes", type=float, default=1e6, help="stop then, with fewer runs")
    given = parser.parse_args()
    if os.geteuid():
        print("can't be tried here: needs root, for namespaces")
        return 1
    signals = [number for number in SIGNALS if not given.signal or number.name in given.signal]
    if given.lane is not None:
        make_lane(given.seed, given.lane, signals)
        return 0
    began, before = time.monotonic(), counted()
    batch = begin(given.seed, given.lanes)
    wanted = given.runs * len(signals)
    for run in lanes(given.seed, given.lanes, signals):
        batch.count(run)
        write([*before, batch])
        print(
            f"{batch.runs}/{wanted}",
            *(run.command, run.signal, run.after, run.took, run.code),
            *problems(run),
            sep=" | ",
            flush=True,
        )
        if batch.runs >= wanted or time.monotonic() - began > given.minutes * 60:
            break
    print(f"\n{len(batch.problems)} of {batch.runs} runs had a problem")
    return int(bool(batch.problems))


if __name__ == "__main__":
    sys.exit(main())
