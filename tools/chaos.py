"""Runs of jobs to which something happens at a random moment: does preflight end in time, with an
exit code of its contract, leave nothing, and blame nobody who is innocent? Writes docs/chaos.md.

python tools/chaos.py [--seed N] [RUNS]             1,000 where nothing is said, seed 1
python tools/chaos.py [--seed N] --only NUMBER      one of them again, with all that was said

What happens in a run follows from the seed and the number of the run alone; what else the machine
does at that moment doesn't.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY / "tests")]

from at_once import each  # noqa: E402  it lies beside this file
from faults.world import (  # noqa: E402
    LIGHT,
    PORT,
    Seen,
    WorldFault,
    _part,
    _seen,
    commands,
    lacking,
    line,
    machines,
)
from lab.faults import lose  # noqa: E402
from lab.host import ENVIRONMENT, Host, Lab  # noqa: E402
from lab.running import Running, _below  # noqa: E402

RUNS, LABS = 1000, 2
WRITTEN_EVERY = 20
"""Runs after which the page says what has been seen so far: all of them take an hour and a half."""
PAGE = REPOSITORY / "docs/chaos.md"

SETUP = "mount -t tmpfs -o mode=1777,size=48m tmp /tmp"
"""A /tmp of its own, that can be full or read-only."""
ROOM = 4.0
"""Seconds that a machine may take to start what is to run: the deadline is counted from then."""
BEYOND = 2.0
CODES = {0, 3, 4, 5, 74}
"""What a run may end with: INTERNAL (70) is our own bug, USAGE (2) a flag that is wrong."""
SOON, LATER = 1.0, 12.0
"""Seconds after which nothing of a run may be there: a command that was rehearsed when preflight
was killed has ten to end."""

SCRIPT = """\
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(100):
    dist.all_reduce(torch.ones(8))
    time.sleep(0.05)
dist.destroy_process_group()
"""


# --- what happens ---


@dataclass
class Moment:
    """One harm on its way: where, to whom, and what of it is still to be undone."""

    dice: random.Random
    host: Host
    running: Running
    extra: float = 0.0
    """Seconds for which it could not work."""
    killed: bool = False
    signals: set[int] = field(default_factory=set)

    def below(self) -> list[int]:
        """The agent's processes without nsenter, itself first."""
        return _below(self.running.process.pid)

    def send(self, pids: Sequence[int], number: int) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def sh(self, script: str) -> None:
        """As far as the machine can do it."""
        self.host.run(["sh", "-c", script], timeout=20)


def _signal(number: signal.Signals) -> Callable[[Moment], None]:
    def happen(at: Moment) -> None:
        at.running.send(number)
        at.signals.add(128 + number)

    return happen


def _two_signals(at: Moment) -> None:
    for number in at.dice.choices([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], k=2):
        at.running.send(number)
        at.signals |= {128 + number, -number}
        time.sleep(at.dice.uniform(0.0, 1.2))


def _kill(at: Moment) -> None:
    at.killed = True
    at.running.kill()


def _kill_worker(at: Moment) -> None:
    if mine := at.below()[1:]:
        at.send([at.dice.choice(mine)], signal.SIGKILL)


def _stop_worker(at: Moment) -> None:
    if mine := at.below()[1:]:
        at.send([at.dice.choice(mine)], signal.SIGSTOP)


def _stop(at: Moment) -> None:
    seconds = at.dice.uniform(0.5, 4.0)
    at.running.stop()
    time.sleep(seconds)
    at.running.cont()
    at.extra = seconds


def _starve(at: Moment) -> None:
    """Nine tenths of the time nothing of it gets a CPU."""
    until = time.monotonic() + at.dice.uniform(1.0, 4.0)
    began = time.monotonic()
    while time.monotonic() < until and not at.running.over:
        mine = at.below()
        at.send(mine, signal.SIGSTOP)
        time.sleep(0.09)
        at.send([*mine, at.running.process.pid], signal.SIGCONT)
        time.sleep(0.01)
    at.extra = time.monotonic() - began


def _fill(folder: str) -> Callable[[Moment], None]:
    def happen(at: Moment) -> None:
        at.sh(f"dd if=/dev/zero of={folder}/of-the-job bs=1M count=4096 2>/dev/null")

    return happen


def _no_inodes(at: Moment) -> None:
    at.sh("mount -o remount,nr_inodes=1 /tmp || mount -o remount,nr_inodes=1 /dev/shm")


def _read_only(at: Moment) -> None:
    at.sh("mount -o remount,ro /tmp")


def _few_files(at: Moment) -> None:
    most = at.dice.choice([4, 12, 20, 32])
    for pid in at.below():
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))


def _clock(at: Moment) -> None:
    jump = at.dice.choice([-86400, -30, 30, 3600, 400000000])
    at.sh(f"printf '%-16s' {jump} | dd of=/etc/lab-clock conv=notrunc 2>/dev/null")


def _lose(at: Moment) -> None:
    at.host.break_(lose(at.dice.choice([5, 20, 50, 100])))


def _link_down(at: Moment) -> None:
    at.sh("ip link set eth0 down")
    time.sleep(at.dice.uniform(0.2, 3.0))
    at.sh("ip link set eth0 up")


HARMS: dict[str, Callable[[Moment], None]] = {
    "SIGINT": _signal(signal.SIGINT),
    "SIGTERM": _signal(signal.SIGTERM),
    "SIGHUP": _signal(signal.SIGHUP),
    "two signals": _two_signals,
    "SIGKILL": _kill,
    "a process of it killed": _kill_worker,
    "a process of it stopped": _stop_worker,
    "stopped for a while": _stop,
    "starved for a while": _starve,
    "/tmp full": _fill("/tmp"),
    "/dev/shm full": _fill("/dev/shm"),
    "no inodes in /tmp": _no_inodes,
    "/tmp read-only": _read_only,
    "few open files": _few_files,
    "its clock jumps": _clock,
    "packets lost": _lose,
    "its link down for a while": _link_down,
}


# --- one run ---


@dataclass(frozen=True, slots=True)
class Plan:
    """What runs, and what happens to it: `when` is the part of the expected time that has gone by
    then."""

    number: int
    world: str
    harm: str
    victim: str
    when: float
    seed: int


@dataclass(frozen=True, slots=True)
class World:
    """machines, deadline in seconds, and how long it takes where nothing happens."""

    fault: WorldFault
    deadline: float
    takes: float
    rehearse: bool = False


DEADLINE = ("--deadline", "30s", "--arrive", "10s")
TORCH = (*LIGHT, "--only", "world.gloo,world.loader,rdzv.store")
WORLDS = {
    "one machine": World(
        WorldFault(
            "", machines=machines(1, setup=SETUP, clock=0.001), nproc=2, args=(*LIGHT, *DEADLINE)
        ),
        30,
        2.5,
    ),
    "one machine, torch": World(
        WorldFault(
            "", machines=machines(1, setup=SETUP, clock=0.001), nproc=2, args=(*TORCH, *DEADLINE)
        ),
        30,
        9,
    ),
    "three machines": World(
        WorldFault("", machines=machines(3, setup=SETUP, clock=0.001), args=(*LIGHT, *DEADLINE)),
        30,
        5,
    ),
    "two machines, torch": World(
        WorldFault("", machines=machines(2, setup=SETUP, clock=0.001), args=(*TORCH, *DEADLINE)),
        30,
        10,
    ),
    "rehearse": World(
        WorldFault("", machines=machines(1, setup=SETUP, clock=0.001)),
        20 + 25 + 25,
        10,
        rehearse=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a run. `beyond`: seconds past its deadline, negative where it was sooner."""

    codes: tuple[int | None, ...]
    beyond: float
    files: tuple[str, ...]
    problems: tuple[str, ...]


def plans(seed: int, runs: int) -> list[Plan]:
    names, worlds = list(HARMS), list(WORLDS)
    found = []
    for number in range(runs):
        dice = random.Random(f"{seed}/{number}")
        world = worlds[number % len(worlds)]
        victim = dice.choice(WORLDS[world].fault.machines).name
        harm = names[number // len(worlds) % len(names)]
        found.append(Plan(number, world, harm, victim, dice.uniform(0.0, 1.0), seed))
    return found


def begin(lab: Lab, world: World) -> dict[str, Running]:
    if not world.rehearse:
        return {n: lab[n].begin(c.argv, c.env) for n, c in commands(world.fault).items()}
    bin_ = Path(sys.executable).parent
    host = lab["n1"]
    Path(host.scratch, "train.py").write_text(SCRIPT)
    argv = [str(bin_ / "preflight"), "rehearse", "--for", "20s", "--deadline", "25s"]
    argv += ["-o", "json=part.json", "--", str(bin_ / "torchrun"), "--nproc-per-node=2"]
    argv += [f"--master-port={PORT}", "train.py"]
    return {"n1": host.begin(argv, {**ENVIRONMENT, "OMP_NUM_THREADS": "1"})}


def look(plan: Plan) -> Came:
    """One run, and what is wrong with it."""
    world = WORLDS[plan.world]
    dice = random.Random(f"{plan.seed}/{plan.number}/harm")
    try:
        with Lab(*world.fault.machines) as lab:
            begun = begin(lab, world)
            began = time.monotonic()
            time.sleep(plan.when * world.takes)
            at = Moment(dice, lab[plan.victim], begun[plan.victim])
            try:
                HARMS[plan.harm](at)
            except (OSError, RuntimeError):
                pass  # it had ended before
            until = began + world.deadline + ROOM + BEYOND + at.extra + 10
            ended = {n: r.wait(max(0.1, until - time.monotonic())) for n, r in begun.items()}
            left = left_in(lab, LATER if at.killed and world.rehearse else SOON)
            files = _files(lab)
            parts = {host.machine.name: _readable_part(host) for host in lab}
    except (RuntimeError, OSError) as error:
        return Came((), 0.0, (), (f"the lab failed: {error!r:.300}",))
    seen = _seen(ended, {n: p for n, p in parts.items() if p}, left)
    beyond = max(e.seconds for e in ended.values()) - world.deadline - at.extra
    return Came(
        tuple(e.code for e in ended.values()),
        beyond,
        files,
        tuple(_problems(plan, at, seen, beyond, files)),
    )


def _readable_part(host: Host) -> dict[str, object]:
    try:
        return dict(_part(host))
    except (RuntimeError, ValueError):
        return {}


def left_in(lab: Lab, within: float) -> tuple[str, ...]:
    """Processes that are still there: what a kernel takes a moment to end is none."""
    until = time.monotonic() + within
    while True:
        found = tuple(
            f"{host.machine.name}: {text:.160}"
            for host in lab
            for text in host.processes().values()
            if ("preflight" in text or "train.py" in text) and "machine.sh" not in text
        )
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


AND_NAME, AND = "' -o -name '", "' -e '"
NAMES = ("*preflight*", "pymp-*", "torchind*", "nccl-*", "torch_*", "__KMP*")
MEANT = ("part.*json", "train.py", ".lab", r"preflight\.n[0-9]*\.json")
OURS = (
    f"find /tmp /dev/shm -mindepth 1 '(' -name '{AND_NAME.join(NAMES)}' ')' -prune -print; "
    f"ls -A | grep -v -x -e '{AND.join(MEANT)}' || :"
)


def _files(lab: Lab) -> tuple[str, ...]:
    """Files of ours; torchrun's own folder is the command's."""
    return tuple(
        f"{host.machine.name}: {name}" for host in lab for name in host.sh(OURS).splitlines()
    )


def _problems(plan: Plan, at: Moment, seen: Seen, beyond: float, files: Sequence[str]) -> list[str]:
    found = [f"left behind: {text}" for text in seen.left]
    found += [f"file left: {name}" for name in files]
    if beyond > ROOM + BEYOND:
        found.append(f"{beyond:.1f} s past its deadline")
    for name, ended in seen.ended.items():
        # who leads takes the others' exit codes with it; what comes before it listens just ends it
        mine = at.signals | {-(code - 128) for code in at.signals if code > 128}
        if name == plan.victim and at.killed:
            mine = {-9, 137}
        if ended.code not in CODES | mine:
            found.append(f"{name} ended with {ended.code}: {ended.err[-1500:]}")
        if "Traceback (most recent call last)" in ended.err and plan.world != "rehearse":
            found.append(f"{name} shows a traceback: {ended.err[-1500:]}")
    for finding in seen.findings:
        nodes = {s.get(n) for s in finding["subjects"] for n in ("node", "to")} - {None, ""}
        sure = finding["status"] == "fail" and finding["confidence"] != "possible"
        if sure and nodes and plan.victim not in nodes:
            found.append(f"blames {sorted(map(str, nodes))}: {line(finding)}")
    if seen.trouble and seen.parts:
        found.append(f"the parts make no report: {seen.trouble}")
    return found


# --- all of them ---


def table(rows: Sequence[tuple[Plan, Came]]) -> str:
    by_harm: dict[str, list[Came]] = defaultdict(list)
    for plan, came in rows:
        by_harm[plan.harm].append(came)
    lines = [
        "| What happened | runs | exit codes | longest past its deadline | processes left "
        "| files left | innocent blamed | else |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    for harm, found in by_harm.items():
        codes: dict[int | None, int] = defaultdict(int)
        for came in found:
            for code in came.codes:
                codes[code] += 1
        spelt = ", ".join(f"{n} x {c}" for c, n in sorted(codes.items(), key=lambda p: -p[1]))
        kinds = [sum(any(p.startswith(k) for p in c.problems) for c in found) for k in KINDS]
        other = sum(any(not p.startswith(KINDS) for p in c.problems) for c in found)
        past = max(0.0, *(c.beyond for c in found)) if len(found) > 1 else max(0.0, found[0].beyond)
        cells = [harm, len(found), spelt, f"{past:.1f} s", *kinds, other]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


KINDS = ("left behind", "file left", "blames")

HEAD = """\
# Chaos

Made by `make chaos`; don't edit. Machines made of Linux namespaces (tests/lab) run `preflight run`
or `preflight rehearse`, and at a random moment something happens to one of them. Then the run has
to end with an exit code of the contract, at most {beyond:g} s past its deadline (and what a lab
takes to start a program), without a process or a file of preflight's left on any machine, and no
certain or likely FAIL may name machines to which nothing happened. *Else*: another exit code, a
traceback, or a run that was too late. A negative exit code is the signal that ended it; SIGKILL is
meant to, and so is one that came before preflight listened.

Worlds in turn: {worlds}. `python tools/chaos.py --seed {seed} --only NUMBER` repeats one run.

{where}. {minutes} minutes.

**{bad} of {runs} runs had a problem.**

"""


def write(rows: Sequence[tuple[Plan, Came]], seed: int, seconds: float) -> None:
    import preflight

    bad = [(plan, came) for plan, came in rows if came.problems]
    where = (
        f"preflight {preflight.__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} CPUs, Linux {platform.release()}, {LABS} labs at a time, seed {seed}"
    )
    text = HEAD.format(
        beyond=BEYOND,
        worlds=", ".join(WORLDS),
        seed=seed,
        where=where,
        minutes=round(seconds / 60),
        bad=len(bad),
        runs=len(rows),
    )
    text += table(rows) + "\n"
    if bad:
        text += "\n## Runs with a problem\n\n"
        for plan, came in bad:
            first = came.problems[0].partition("\n")[0][:200].replace("|", "\\|")
            text += f"- {plan.number}: {plan.world}, {plan.harm} on {plan.victim}: {first}\n"
    PAGE.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="?", type=int, default=RUNS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    if why := lacking(WorldFault("")):
        print(f"can't be tried here: {why}")
        return 1
    # what nohup and a shell's & ignore, all that is started here would ignore, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # the machines have a /tmp of their own, over which the lab's folder must not lie
    tempfile.tempdir = "/var/tmp"
    if given.only is not None:
        (plan,) = plans(given.seed, given.only + 1)[given.only :]
        came = look(plan)
        print(plan, came.codes, f"{came.beyond:.1f}", *came.problems, sep="\n")
        return int(bool(came.problems))
    planned = plans(given.seed, given.runs)
    began, rows = time.monotonic(), []
    for done, (number, came) in enumerate(each(look, planned, LABS), 1):
        plan = planned[number]
        rows.append((plan, came))
        told = (f"{done}/{given.runs}", number, plan.world, plan.harm, plan.victim)
        print(*told, came.codes, f"{came.beyond:.1f}", *came.problems, sep=" | ", flush=True)
        if not done % WRITTEN_EVERY or done == given.runs:
            in_order = sorted(rows, key=lambda row: row[0].number)
            write(in_order, given.seed, time.monotonic() - began)
    bad = sum(bool(came.problems) for _, came in rows)
    print(f"\n{bad} of {given.runs} runs had a problem")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
