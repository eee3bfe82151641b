"""The agents of a job as processes on machines of the lab: in time whatever befalls one of them,
with nothing left of them, and each with its own exit code and its own word."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from faults.agents import Act, all_in, cut, killed, once, stopped, terminated
from faults.world import LIGHT, PORT, line, machines
from lab import faults
from lab.host import ENVIRONMENT, Command, Ended, Host, Lab
from lab.probe import possible
from lab.running import Running

pytestmark = pytest.mark.root

BEYOND = 2.0
"""Seconds by which an agent may outlive its deadline."""
ROUNDED = 1.0
"""Seconds: the report says in whole ones when it was begun."""
ENDS_SECONDS = 60.0
AT_A_TIME = 2


@pytest.fixture(autouse=True, scope="module")
def _possible() -> None:
    possible("nft", "ss", "ps")


def preflight(
    number: int,
    *flags: str,
    verb: str = "run",
    count: int = 3,
    tail: Sequence[str] = (),
    **env: str,
) -> Command:
    """The agent of one machine."""
    program = str(Path(sys.executable).with_name("preflight"))
    nodes = ("--nproc", "1", "--nodes", str(count), "--node-rank", str(number))
    where = {"MASTER_ADDR": "n1", "MASTER_PORT": str(PORT)}
    return Command([program, verb, *nodes, *LIGHT, *flags, *tail], {**ENVIRONMENT, **where, **env})


def everywhere(*flags: str, **more: Any) -> dict[str, Command]:
    """The agents of three machines."""
    return {f"n{n + 1}": preflight(n, *flags, **more) for n in range(3)}


def agents(lab: Lab) -> list[str]:
    """What runs there of ours."""
    return [
        f"{host.machine.name}: {text}"
        for host in lab
        if host.process.poll() is None
        for text in host.processes().values()
        if "bin/preflight" in text or "preflight/process/bootstrap.py" in text
    ]


def at_port(host: Host) -> str:
    """Every socket that has to do with MASTER_PORT, in TIME_WAIT too."""
    return host.sh(f"ss -Htan '( sport = :{PORT} or dport = :{PORT} )'")


def document(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.out)
    return found


def says(ended: Ended) -> str:
    """The findings of a report, a line each."""
    return "\n".join(line(f) for f in document(ended)["findings"])


def codes(ended: Mapping[str, Ended]) -> dict[str, int | None]:
    return {name: e.code for name, e in ended.items()}


# --- whatever befalls one of them, all end in time ---


@dataclass(frozen=True, slots=True)
class Ordeal:
    """What is done to the agents when all are in, the deadline that they have, how they end then;
    `stands`: who makes no progress for a while and has to end soon after it."""

    name: str
    act: Act
    codes: Mapping[str, int]
    deadline: float = 20.0
    stands: str = ""
    breaks: Mapping[str, Sequence[faults.Break]] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    ended: Mapping[str, Ended]
    late: Mapping[str, float]
    """Seconds after the deadline, by the agents' own beginning: Python's start takes its time."""
    left: Sequence[str]


def _started(ended: Ended) -> float:
    """To the second."""
    started: str = document(ended)["started"]
    return datetime.fromisoformat(started.replace("Z", "+00:00")).timestamp()


def crashed(name: str) -> Act:
    return lambda lab, begun: lab[name].crash()


def nothing(lab: Lab, begun: Mapping[str, object]) -> None:
    """The machine is broken already."""


# guests wait a moment longer than their deadline for the host's last word
HANGS = (faults.name_unknown("n3"), faults.resolver("silent"))
ORDEALS = (
    Ordeal("the host is killed", killed("n1"), {"n1": -9, "n2": 3, "n3": 3}),
    Ordeal("a guest is killed", killed("n3"), {"n1": 3, "n2": 3, "n3": -9}),
    Ordeal("the machine of a guest crashes", crashed("n3"), {"n1": 3, "n2": 3}),
    Ordeal("the host is stopped", stopped("n1", 7.5), {"n1": 3, "n2": 3, "n3": 3}, 20.0, "n1"),
    Ordeal("a guest is stopped", stopped("n3", 7.5), {"n1": 3, "n2": 3, "n3": 3}, 20.0, "n3"),
    Ordeal("the network of the host is cut", cut("n1", faults.unplugged()), {}, 4.0),
    Ordeal("the network of a guest is cut", cut("n3", faults.unplugged()), {}, 4.0),
    Ordeal("a stopped guest, and no time", stopped("n3", 5.0), {}, 3.0, "n3"),
    Ordeal("a stopped host, and no time", stopped("n1", 5.0), {}, 3.0, "n1"),
    Ordeal("a guest that hangs", nothing, {}, 2.0, breaks={"n3": HANGS}),
    Ordeal("the host gets SIGTERM", terminated("n1"), {"n1": 143, "n2": 143, "n3": 143}),
)


def endured(ordeal: Ordeal) -> Outcome:
    with Lab(*machines(3)) as lab:
        for name, breaks in (ordeal.breaks or {}).items():
            lab[name].break_(*breaks)
        flags = ("--deadline", f"{ordeal.deadline:g}s", "--arrive", "20s", "-o", "json")
        begun = {n: lab[n].begin(c.argv, c.env) for n, c in everywhere(*flags).items()}
        clock = time.time() - time.monotonic()
        act = ordeal.act if ordeal.act is nothing else once(all_in, "n1", ordeal.act)
        acting = Thread(target=act, args=(lab, begun))
        acting.start()
        until = time.monotonic() + ENDS_SECONDS
        while time.monotonic() < until and sum(r.over for r in begun.values()) < len(begun):
            time.sleep(0.02)
        acting.join()
        ended = {name: running.ended() for name, running in begun.items()}
        at = {name: begun[name].began + clock + e.seconds for name, e in ended.items()}
        began = max(_started(e) for e in ended.values() if e.out)
        late = {n: at[n] - began - ordeal.deadline for n in at if n != ordeal.stands}
        return Outcome(ended, late, agents(lab))


@pytest.fixture(scope="module")
def outcomes(_possible: None) -> dict[str, Future[Outcome]]:
    """All at once: most of their time is waiting."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return {o.name: pool.submit(endured, o) for o in ORDEALS}


@pytest.mark.parametrize("ordeal", ORDEALS, ids=lambda o: o.name)
def test_nobody_outlives_its_deadline(
    ordeal: Ordeal, outcomes: Mapping[str, Future[Outcome]]
) -> None:
    outcome = outcomes[ordeal.name].result()
    assert None not in codes(outcome.ended).values()
    assert {n: s for n, s in outcome.late.items() if s > BEYOND + ROUNDED} == {}
    assert outcome.left == []


@pytest.mark.parametrize("ordeal", [o for o in ORDEALS if o.codes], ids=lambda o: o.name)
def test_how_it_ends_for_each(ordeal: Ordeal, outcomes: Mapping[str, Future[Outcome]]) -> None:
    found = codes(outcomes[ordeal.name].result().ended)
    assert {name: found[name] for name in ordeal.codes} == dict(ordeal.codes)


@pytest.mark.parametrize("guest", ["n2", "n3"])
def test_a_guest_that_lost_the_host_names_the_host(
    guest: str, outcomes: Mapping[str, Future[Outcome]]
) -> None:
    (finding,) = document(outcomes["the host is killed"].result().ended[guest])["findings"]
    assert (finding["check"], finding["code"]) == ("rdzv.reach", "lost")
    assert [s["name"] for s in finding["subjects"]] == ["n1"]
    assert f"the meeting at n1 10.77.0.1:{PORT} ended without a message" in finding["saw"]


def test_who_was_stopped_says_so_itself(outcomes: Mapping[str, Future[Outcome]]) -> None:
    for ordeal, name in (("the host is stopped", "n1"), ("a guest is stopped", "n3")):
        ended = outcomes[ordeal].result().ended[name]
        assert f"fail rdzv.reach agent-paused [{name}]" in says(ended), ordeal


def test_only_the_host_tells_of_its_end(outcomes: Mapping[str, Future[Outcome]]) -> None:
    ended = outcomes["the host gets SIGTERM"].result().ended
    assert document(ended["n1"])["interrupted"] == "SIGTERM"
    assert (ended["n2"].out, ended["n3"].out) == ("", "")


# --- one meeting after the other, and others at the door ---


@pytest.fixture(scope="module")
def lab(_possible: None) -> Iterator[Lab]:
    with Lab(*machines(3)) as made:
        yield made


def test_twice_in_a_row_at_once_and_no_trace_of_it(lab: Lab) -> None:
    for _ in range(2):
        ended = lab.run_all(everywhere(), timeout=ENDS_SECONDS)
        assert codes(ended) == {"n1": 0, "n2": 0, "n3": 0}, ended["n1"].out
        assert "READY" in ended["n1"].out
        assert (ended["n2"].out, ended["n3"].out) == ("", ""), "only the host has the report"
        assert [at_port(host) for host in lab] == ["", "", ""]
    assert agents(lab) == []


KNOCKS = """
import itertools, socket, sys, time
kept = []
words = {
    "web": b"GET /healthz HTTP/1.1\\r\\nHost: n1\\r\\n\\r\\n",
    "scan": b"",
    "half-open": None,
    "garbage": bytes(range(256)) * 40,
    "json": b'{"preflight": 1, "version": "0"}\\n',
}
print("ready", flush=True)
for kind in itertools.cycle(words):
    try:
        one = socket.create_connection(("10.77.0.1", int(sys.argv[1])), 1)
        if words[kind] is None:
            kept.append(one)
        else:
            one.sendall(words[kind])
            one.close()
    except OSError:
        pass
    time.sleep(0.01)
"""


def test_strangers_and_a_late_start_do_no_harm() -> None:
    """What connects at the meeting's port from a fourth machine while it waits for the third."""
    with Lab(*machines(4)) as lab:
        lab["n4"].start([sys.executable, "-I", "-S", "-c", KNOCKS, str(PORT)])
        begun = {n: lab[n].begin(c.argv, c.env) for n, c in everywhere("-o", "json").items()}
        begun["n3"].stop()
        time.sleep(2.5)
        begun["n3"].cont()
        ended = {name: running.wait(ENDS_SECONDS) for name, running in begun.items()}
        assert codes(ended) == {"n1": 0, "n2": 0, "n3": 0}, ended["n1"].out
        assert says(ended["n1"]) == ""
        (row,) = (r for r in document(ended["n1"])["checks"] if r["id"] == "rdzv.reach")
        known = {key.partition(" ")[2] for key in row["measured"]["strangers"]}
        assert known >= {"http", "garbage", "half-open"}
        assert agents(lab) == []


OWN_NUMBERS = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""As in a container of one's own: its agent is process 1."""


@pytest.mark.parametrize("inside", [(), OWN_NUMBERS], ids=["on the machine", "in a container each"])
def test_rank_0_comes_after_a_neighbour_that_has_opened_the_meeting(inside: Sequence[str]) -> None:
    """A task a rank, dealt out in turn: who listens on MASTER_PORT is no other run."""
    with Lab(*machines(2)) as lab:
        program = (sys.executable, "-m", "preflight", "run", *LIGHT, "-o", "json")

        def begin(rank: int) -> Running:
            places = {"RANK": rank, "SIZE": 6, "LOCAL_RANK": rank // 2, "LOCAL_SIZE": 3}
            env = {f"OMPI_COMM_WORLD_{name}": str(number) for name, number in places.items()}
            where = {"MASTER_ADDR": "n1", "MASTER_PORT": str(PORT)}
            return lab[f"n{1 + rank % 2}"].begin(
                (*inside, *program), {**ENVIRONMENT, **where, **env}
            )

        begun = {rank: begin(rank) for rank in range(1, 6)}
        until = time.monotonic() + ENDS_SECONDS
        while not lab["n1"].sh(f"ss -Htln 'sport = :{PORT}'"):
            assert time.monotonic() < until, "nobody has taken its place"
            time.sleep(0.05)
        begun[0] = begin(0)
        ended = {rank: run.wait(ENDS_SECONDS) for rank, run in begun.items()}
    assert {e.code for e in ended.values()} == {0}, {r: e.out[-1500:] for r, e in ended.items()}
    (told,) = (e for e in ended.values() if e.out)
    assert set(says(told).splitlines()) <= {"rdzv.reach agent-late"}, says(told)
    report = document(told)
    assert report["world"]["met"] == 6
    assert report["observations"]["net.port"]["n1"]["ok"]["meeting"]


def test_an_agent_of_another_job_is_turned_away_with_a_word(lab: Lab) -> None:
    commands = everywhere("-o", "json", "--arrive", "4s", SLURM_JOB_ID="1001")
    commands["n3"] = preflight(2, "-o", "json", "--arrive", "4s", SLURM_JOB_ID="1002")
    ended = lab.run_all(commands, timeout=ENDS_SECONDS)
    assert codes(ended) == {"n1": 5, "n2": 5, "n3": 3}
    assert "missing rdzv.reach absent [rank 2]" in says(ended["n1"])
    assert "10.77.0.3 was turned away: other job" in says(ended["n1"])
    assert "warn rdzv.reach stranger-job [n1 · MASTER_PORT]" in says(ended["n1"])
    assert "fail rdzv.reach other-meeting" in says(ended["n3"])
    assert ended["n2"].out == ""


# --- exit codes, files and CMD ---


def test_exit_codes_by_node(lab: Lab) -> None:
    commands = everywhere("--exit", "node", "-o", "json=part.json")
    commands["n3"] = preflight(1, "--exit", "node", "-o", "json=part.json")
    ended = lab.run_all(commands, timeout=ENDS_SECONDS)
    assert codes(ended) == {"n1": 0, "n2": 3, "n3": 3}, "two nodes with the node rank 1"
    written = [host.sh("ls") for host in lab]
    assert ["part.json" in names for names in written] == [True, False, False]


def test_a_part_that_nobody_asked_for_is_written_and_the_screen_says_how_to_merge(
    lab: Lab,
) -> None:
    """Of the node that meets nobody."""
    ended = lab.run_all({"n3": preflight(2, "--arrive", "2s")}, timeout=ENDS_SECONDS)["n3"]
    assert ended.code == 3, ended.out
    assert "preflight.n3.json" in lab["n3"].sh("ls")
    assert (
        "\n merge       preflight merge preflight.*.json   # with the parts of the other nodes"
        in ended.out
    )


def test_the_host_leaves_a_part_where_somebody_never_came(lab: Lab) -> None:
    """Or what the screen of the one that did not get in says to merge would not be there."""
    for host in lab:
        host.sh("rm -f preflight.*")
    there = everywhere("--arrive", "2s")
    ended = lab.run_all({name: there[name] for name in ("n1", "n2")}, timeout=ENDS_SECONDS)
    assert "missing rdzv.reach absent [rank 2]" not in ended["n2"].out
    assert [host.sh("find . -name 'preflight.*'") for host in lab] == [
        "./preflight.n1.json\n",
        "",
        "",
    ]
    assert " report      preflight.n1.json " in ended["n1"].out
    assert "\n merge       preflight merge preflight.*.json " in ended["n1"].out


def test_where_all_came_nobody_leaves_a_file(lab: Lab) -> None:
    for host in lab:
        host.sh("rm -f preflight.*")
    assert codes(lab.run_all(everywhere(), timeout=ENDS_SECONDS)) == {"n1": 0, "n2": 0, "n3": 0}
    assert [host.sh("find . -name 'preflight.*'") for host in lab] == ["", "", ""]


STARTED = ("--", "sh", "-c", "echo started; exit 7")


@pytest.mark.parametrize("ready", [True, False])
def test_gate_starts_cmd_on_all_nodes_or_on_none(ready: bool, lab: Lab) -> None:
    lacking = () if ready else ("--expect", "nofile=1000000000")
    commands = everywhere("-q", *lacking, verb="gate", tail=STARTED)
    ended = lab.run_all(commands, timeout=ENDS_SECONDS)
    assert set(codes(ended).values()) == {7 if ready else 3}
    assert {"started" in e.out for e in ended.values()} == {ready}


ADDED_UP = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
with open(f"trained{dist.get_rank()}", "w") as file:
    file.write(f"rank {dist.get_rank()} of {int(total)}\\n")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_the_gate_opens_for_torchruns_that_number_their_nodes_and_add_up_their_ranks() -> None:
    """On n2 is the store, all were given one --node-rank, and n1 starts a rank more."""
    program = str(Path(sys.executable).with_name("torchrun"))
    rendezvous = ("--rdzv-backend=c10d", f"--rdzv-endpoint=n2:{PORT}", "--node-rank=7")
    flags = ("-o", "json=part.json", "--only", "env.*,net.*,rdzv.*,world.gloo")
    with Lab(*machines(2)) as lab:
        commands = {}
        for host, here in (("n1", 2), ("n2", 1)):
            lab[host].sh(f"cat > train.py <<'END'\n{ADDED_UP}\nEND")
            own = ("--nnodes=2", f"--nproc-per-node={here}")
            job = [program, *own, *rendezvous, "train.py"]
            commands[host] = Command(["preflight", "gate", *flags, "--", *job], ENVIRONMENT)
        ended = lab.run_all(commands, timeout=ENDS_SECONDS)
        report = json.loads(lab["n2"].sh("cat part.json"))
        said = "".join(lab[name].sh("cat trained*") for name in ("n1", "n2"))
    assert codes(ended) == {"n1": 0, "n2": 0}, [e.err for e in ended.values()]
    assert sorted(said.split("\n")) == ["", *(f"rank {rank} of 3" for rank in range(3))]
    assert [finding["code"] for finding in report["findings"]] == ["nproc-uneven"]
    rows = {row["id"]: row for row in report["checks"]}
    assert rows["world.gloo"]["by_subject"] == {"n2/0": "pass", "n1/1": "pass", "n1/2": "pass"}
    assert list(rows["env.identity"]["by_subject"]) == ["n2/0", "n1/1", "n1/2"]


# --- below torchrun ---

TRAIN = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert int(total) == dist.get_world_size() == 2
print(f"rank {dist.get_rank()} trained")
dist.destroy_process_group()
"""
MEETING = ("--only", "env.identity,net.port,rdzv.reach,rdzv.store")
STATIC = ("--master-addr", "n1", "--master-port", str(PORT))
C10D = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"n1:{PORT}", "--rdzv-id", "lab")


def torchrun(how: Sequence[str], ranks: int, *rest: str) -> dict[str, Command]:
    """On two machines, with so many ranks on each."""
    program = str(Path(sys.executable).with_name("torchrun"))
    flags = ("--nnodes", "2", "--nproc-per-node", str(ranks))
    own = ("--node-rank",) if how is STATIC else ()
    return {
        f"n{n + 1}": Command(
            [program, *flags, *how, *(f"{flag}={n}" for flag in own), *rest], ENVIRONMENT
        )
        for n in range(2)
    }


def test_a_guest_says_in_one_line_what_is_wrong_and_where_the_report_is() -> None:
    """On the node that is to blame as on the others; the host's screen is on the host."""
    agents_of_all = everywhere("--only", "host.limits", "--exit", "node")
    few = agents_of_all["n3"]
    few = replace(few, argv=["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *few.argv])
    with Lab(*machines(3)) as lab:
        ended = lab.run_all({**agents_of_all, "n3": few}, timeout=ENDS_SECONDS)
    assert codes(ended) == {"n1": 0, "n2": 0, "n3": 3}, ended["n1"].out
    saw = "a process may open 64 files on n3: too few · the report is on n1"
    assert (
        ended["n3"].err == f"preflight: NOT READY: host.limits:nofile-low, this node (n3): {saw}\n"
    )
    assert ended["n2"].err == f"preflight: NOT READY: host.limits:nofile-low: {saw}\n"
    assert ended["n2"].out == ended["n3"].out == ""
    assert " ✗ host.limits:nofile-low" in ended["n1"].out


@pytest.mark.torch
def test_one_agent_a_rank_below_torchrun() -> None:
    with Lab(*machines(2)) as lab:
        run = ("-m", "preflight", "run", *MEETING, "-o", "json=part.json")
        ended = lab.run_all(torchrun(STATIC, 2, *run), timeout=ENDS_SECONDS)
        assert codes(ended) == {"n1": 0, "n2": 0}, ended["n1"].err
        report = json.loads(lab["n1"].sh("cat part.json"))
        assert "part.json" not in lab["n2"].sh("ls")
        assert agents(lab) == []
    rows = {row["id"]: row for row in report["checks"]}
    assert report["verdict"] == "ready"
    assert list(rows["rdzv.reach"]["by_subject"]) == ["n1", "n2"], "one agent speaks for a node"
    assert list(rows["rdzv.store"]["by_subject"]) == ["n1/0", "n1/1", "n2/2", "n2/3"]


@pytest.mark.torch
def test_the_training_finds_the_launchers_store_as_it_was() -> None:
    """And the second run of ours is not led astray by what the first has left there."""
    with Lab(*machines(2)) as lab:
        for host in lab:
            host.sh(f"cat > train.py <<'END'\n{TRAIN}\nEND")
        first = "preflight run --only env.identity"
        gate = f"preflight gate {' '.join(MEETING)} -- {sys.executable} train.py"
        script = ("--no-python", "sh", "-c", f"{first} && {gate}")
        ended = lab.run_all(torchrun(C10D, 1, *script), timeout=ENDS_SECONDS)
        assert codes(ended) == {"n1": 0, "n2": 0}, ended["n1"].err
        said = "".join(e.out for e in ended.values())
        assert sorted(word for word in said.split("\n") if word.endswith("trained")) == [
            f"rank {rank} trained" for rank in range(2)
        ]
        assert agents(lab) == []
