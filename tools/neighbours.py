"""Jobs with a task a rank, one of which is killed at a random moment, mostly the one that speaks
for its node. Does each of the others end in time, is nobody but the killed rank blamed, and is
every rank accounted for?

python tools/neighbours.py [--seed N] [--within SECONDS] [TRIES]            by default 200
python tools/neighbours.py [--seed N] [--within SECONDS] --only NUMBER    that one again, in full

Three machines of the lab with three ranks each, to which so few are many. What is killed and when
follows from the seed, the number and --within alone: a rank ends 1.5 s after its start on a quiet
machine, and 6 s on a busy one.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY / "tests")]

from at_once import each  # noqa: E402  it lies beside this file
from chaos import BEYOND, CODES, ROOM, SETUP, SOON, left_in  # noqa: E402
from faults.world import PORT, WorldFault, lacking, line, machines  # noqa: E402
from lab.host import ENVIRONMENT, Host, Lab  # noqa: E402
from lab.running import Ended, Running  # noqa: E402

from preflight.expect import Expect  # noqa: E402
from preflight.judge.merge import merge  # noqa: E402
from preflight.judge.verdict import judge  # noqa: E402
from preflight.registry import load  # noqa: E402
from preflight.render import json as as_json  # noqa: E402

TRIES, LABS = 200, 2
NODES, EACH = 3, 3
SIZE = NODES * EACH
PROGRAM = """
from preflight.meeting import neighbours
neighbours.FROM_RANKS = 2
from preflight.__main__ import main
main()
"""
CHECKS = "env.identity,env.vars,host.limits,rdzv.reach,agree.env,agree.names"
DEADLINE = 40.0
ARGS = ("--only", CHECKS, "--arrive", "15s", "--deadline", f"{DEADLINE:g}s", "-o", "json=part.json")
FIRST, WITHIN = 0.3, 6.0
"""Seconds after the start between which the victim is killed, unless --within says another end."""
SPEAKERS = 0.8
"""Of so many tries the victim speaks for its node."""


@dataclass(frozen=True, slots=True)
class Try:
    number: int
    victim: int
    when: float
    seed: int


@dataclass(frozen=True, slots=True)
class Came:
    """What came of it. `told`: what the report says of the victim."""

    codes: tuple[int | None, ...]
    beyond: float
    told: str
    problems: tuple[str, ...]


def tries(seed: int, count: int, within: float) -> list[Try]:
    found = []
    for number in range(count):
        dice = random.Random(f"{seed}/{number}")
        node = dice.randrange(1, NODES)
        local = 0 if dice.random() < SPEAKERS else dice.randrange(1, EACH)
        found.append(Try(number, node * EACH + local, dice.uniform(FIRST, within), seed))
    return found


def node_of(rank: int) -> str:
    return f"n{rank // EACH + 1}"


def begin(lab: Lab) -> dict[int, Running]:
    """As mpirun starts them."""
    begun = {}
    for rank in range(SIZE):
        env = {
            **ENVIRONMENT,
            "MASTER_ADDR": "n1",
            "MASTER_PORT": str(PORT),
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(SIZE),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % EACH),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(EACH),
        }
        argv = [sys.executable, "-c", PROGRAM, "run", *ARGS]
        begun[rank] = lab[node_of(rank)].begin(argv, env)
    return begun


def look(one: Try) -> Came:
    """One try, and what is wrong with it."""
    try:
        with Lab(*machines(NODES, setup=SETUP)) as lab:
            begun = begin(lab)
            began = time.monotonic()
            time.sleep(one.when)
            begun[one.victim].send(signal.SIGKILL)
            until = began + DEADLINE + ROOM + BEYOND + 10
            ended = {r: run.wait(max(0.1, until - time.monotonic())) for r, run in begun.items()}
            left = left_in(lab, SOON)
            parts = [part for host in lab for part in _parts(host)]
    except (RuntimeError, OSError) as error:
        return Came((), 0.0, "", (f"the lab failed: {error!r:.300}",))
    beyond = max(e.seconds for e in ended.values()) - DEADLINE
    problems = [f"left behind: {text}" for text in left]
    problems += [f"the agents: {text}" for text in _of_agents(one, ended, beyond)]
    told = list(_of_reports(one, parts, problems))
    return Came(tuple(e.code for e in ended.values()), beyond, "; ".join(told), tuple(problems))


def _parts(host: Host) -> Iterator[dict[str, Any]]:
    for name in host.sh("ls part*.json preflight.*.json 2>/dev/null || :").split():
        yield json.loads(host.sh(f"cat {name}"))


def _of_agents(one: Try, ended: Mapping[int, Ended], beyond: float) -> Iterator[str]:
    if beyond > ROOM + BEYOND:
        yield f"{beyond:.1f} s past the deadline"
    for rank, agent in ended.items():
        allowed = CODES | ({-9, 137} if rank == one.victim else set())
        if agent.code not in allowed or "Traceback (most recent call last)" in agent.err:
            yield f"rank {rank} ended with {agent.code}: {agent.err[-1500:]}"


def _of_reports(one: Try, parts: list[dict[str, Any]], problems: list[str]) -> Iterator[str]:
    """What is said of the victim; `problems` gets what is said of anybody else."""
    if not parts:
        problems.append("no report at all")
        return
    whole = judge(
        merge([as_json.parse(json.dumps(p)).observations for p in parts], load().of_meeting),
        load(),
        Expect(),
    )
    merged = as_json.document(whole)
    for what, report in [
        *((f"the part of {p['world']['nodes'][0]['name']}", p) for p in parts),
        ("all together", merged),
    ]:
        for finding in report["findings"]:
            if what == "all together":
                yield f"{finding['check']} {finding['code']}"
            sure = finding["status"] in ("fail", "missing") and finding["confidence"] != "possible"
            if not sure:
                continue
            named = {r for s in finding["subjects"] for r in s["ranks"]}
            nodes = {s["node"] for s in finding["subjects"]} - {""}
            if named - {one.victim} or nodes - {node_of(one.victim)}:
                problems.append(f"blames, {what}: {line(finding)} {sorted(named)}")
    hosts = [
        seen["ok"]["roll"]
        for part in parts
        for seen in part["observations"].get("rdzv.reach", {}).values()
        if "ok" in seen and seen["ok"]["roll"]["hosts"]
    ]
    told = {rank for roll in hosts for arrival in roll["arrivals"] for rank in arrival["ranks"]}
    told |= {r for f in merged["findings"] for s in f["subjects"] for r in s["ranks"]}
    if missing := set(range(SIZE)) - told:
        problems.append(f"nothing is said of the ranks {sorted(missing)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tries", nargs="?", type=int, default=TRIES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=WITHIN)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    if why := lacking(WorldFault("")):
        print(f"can't be tried here: {why}")
        return 1
    tempfile.tempdir = "/var/tmp"
    count = given.tries if given.only is None else given.only + 1
    planned = tries(given.seed, count, given.within)
    if given.only is not None:
        came = look(planned[given.only])
        print(
            planned[given.only],
            came.codes,
            f"{came.beyond:.1f}",
            came.told,
            *came.problems,
            sep="\n",
        )
        return int(bool(came.problems))
    codes, told, bad, latest = Counter[int | None](), Counter[str](), 0, -DEADLINE
    for number, came in each(look, planned, LABS):
        one = planned[number]
        codes.update(came.codes)
        told[came.told] += 1
        bad += bool(came.problems)
        latest = max(latest, came.beyond)
        print(
            number,
            one.victim,
            f"{one.when:.1f}",
            came.codes,
            f"{came.beyond:.1f}",
            came.told,
            *came.problems,
            sep=" | ",
            flush=True,
        )
    print(f"\n{bad} of {len(planned)} tries had a problem")
    print(f"exit codes {dict(codes)}, the latest {latest:.1f} s past its deadline")
    for what, count in told.most_common():
        print(f"{count:5} {what or 'nothing: it had ended'}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
