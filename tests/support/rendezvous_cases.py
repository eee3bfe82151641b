"""Meetings as rdzv.reach sees them, its table by the module of domains/rendezvous that each case is
about, and what every case must show."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from preflight.checks import rdzv_reach
from preflight.domains.net.reverse_path import Detour, OutgoingWay
from preflight.domains.rendezvous.attempts import AbsentHost, Reach
from preflight.domains.rendezvous.tcp_probe import Probe
from preflight.identity.slurm_hosts import ExpectedHost
from preflight.model import (
    Blame,
    Cause,
    Confidence,
    Finding,
    Missing,
    Node,
    Status,
    Topology,
)
from preflight.roster import GAVE_UP, HALFWAY, Arrival, Attempt, Crawl, Roll, StoreStage, Stranger
from support.cases import Case, judged, topology

PORT = 29500
MAC = "52:54:00:ab:cd:02"
QUIET = "no sign of life for 15 s"
UP = (Probe("10.0.0.4", 22, "ECONNREFUSED", 0.0002), Probe("10.0.0.4", 9, "ECONNREFUSED", 0.0002))
SILENT = (Probe("10.0.0.4", 22, "ETIMEDOUT", 0.8), Probe("10.0.0.4", 9, "ETIMEDOUT", 0.8))
MASTER_UP = (Probe("10.0.0.1", 22, "ECONNREFUSED", 0.0002),)
MASTER_DOWN = (Probe("10.0.0.1", 22, "ETIMEDOUT", 0.8),)


def ranks_of(node: int) -> tuple[int, ...]:
    """Two ranks per node, nodes counted from 1."""
    return (2 * node - 2, 2 * node - 1)


def came(node: int, size: int = 8, **changes: Any) -> Arrival:
    """Node 1 is the host of the meeting, and MASTER_ADDR its address."""
    made = Arrival(
        node=f"n{node}",
        host=f"n{node}",
        identity=f"id{node}",
        pid=100 + node,
        ranks=ranks_of(node),
        size=size,
        addr="" if node == 1 else f"10.0.0.{node}",
        claims=f"n1:{PORT}",
        mine=node == 1,
        at=0.1 * (node - 1),
    )
    return dataclasses.replace(made, **changes)


ALL = tuple(map(came, (1, 2, 3, 4)))


def hosting(*arrivals: Arrival, size: int = 8, **changes: Any) -> Reach:
    """What the host of the meeting knows; `changes` of the Reach, or of its Roll."""
    roll = Roll(
        hosts=True,
        name="n1",
        port=PORT,
        size=size,
        ranks=(0, 1),
        host="n1",
        pid=101,
        ips=("10.0.0.1",),
        mine=True,
        reached=0.0,
        waited=30.0,
        patience=30.0,
        arrivals=arrivals,
    )
    return _made(Reach(roll, addresses=("10.0.0.1",)), changes)


def _made(reach: Reach, changes: Mapping[str, Any]) -> Reach:
    own = {f.name for f in dataclasses.fields(Reach)}
    roll = dataclasses.replace(reach.roll, **{k: v for k, v in changes.items() if k not in own})
    return dataclasses.replace(reach, roll=roll, **{k: v for k, v in changes.items() if k in own})


def rung(error: str = "", answer: str = "", ip: str = "10.0.0.1", **changes: Any) -> Attempt:
    made = Attempt(ip, PORT, error, answer, seconds=0.0003, tries=40)
    return dataclasses.replace(made, **changes)


IN = rung(answer="ours", tries=1)
REFUSED = rung("ECONNREFUSED")
MUTE = rung(answer="silent", seconds=3.0, tries=2)
TO_N3 = Detour("10.0.0.3/32", "eth1", "eth0")
ALL_OPEN = tuple(Probe("10.0.0.1", port, "", 0.0001) for port in (22, 9, PORT + 1))
NO_STORE = Probe("10.0.0.1", PORT, "ECONNREFUSED", 0.0002)
SILENT_AGAIN = (Probe("10.0.0.1", PORT, "ETIMEDOUT", 0.8),) * 8
DROPPED = rung("ETIMEDOUT", seconds=4.0, tries=7)
DEAD = rung("EHOSTUNREACH", seconds=3.06, tries=9)
PROHIBITED = rung("EHOSTUNREACH")


def icmp_says(by: str, what: str = "port", error: str = "ECONNREFUSED") -> Attempt:
    """Rejected by an ICMP message of this address."""
    return rung(error, icmp=what, icmp_by=by)


V6_DROPPED = rung("ETIMEDOUT", ip="fd00::1", seconds=4.0, tries=1)


DOCKER: Mapping[str, Any] = {
    "name": "172.17.0.1",
    "ips": ("172.17.0.1",),
    "interface": "docker0",
}


def own(node: int) -> Mapping[str, Any]:
    """Of a node that was given its own name as MASTER_ADDR."""
    return {
        "name": f"n{node}",
        "ips": (f"10.0.0.{node}",),
        "addresses": (f"10.0.0.{node}",),
        "ranks": ranks_of(node),
        "host": f"n{node}",
        "pid": 100 + node,
        "interface": "eth0",
    }


def guest(node: int, *ladder: Attempt, **changes: Any) -> Reach:
    """A guest's own part: it got in."""
    roll = Roll(
        hosts=False,
        name="n1",
        port=PORT,
        size=8,
        ranks=ranks_of(node),
        host=f"n{node}",
        pid=100 + node,
        ips=("10.0.0.1",),
        ladder=ladder or (IN,),
        reached=0.3,
    )
    return _made(Reach(roll, addresses=(f"10.0.0.{node}",)), changes)


def out(node: int, *ladder: Attempt, **changes: Any) -> Reach:
    """The part of an agent that never got in."""
    return guest(node, *ladder, **({"reached": None, "waited": 30.0} | changes))


def asks_store(stage: StoreStage) -> dict[str, Reach]:
    """An agent that torchrun's store, which is there, should have told where they meet."""
    there = (Probe("10.0.0.1", PORT),)
    return {"n2": out(2, ladder=(), agent=True, elsewhere=there, patience=30.0, store=stage)}


def nodes(*numbers: int, size: int = 8, **changes: Any) -> Topology:
    """The nodes that met, two ranks each."""
    made = tuple(Node(f"n{n}", ranks_of(n), f"10.0.0.{n}") for n in numbers)
    return topology(nodes=made, size=size, master_addr="n1", master_port=PORT, **changes)


def alone(node: int) -> Topology:
    """What an agent by itself knows."""
    return nodes(node)


LIST = tuple(ExpectedHost(f"n{n}", ranks_of(n)) for n in (1, 2, 3, 4))


def here(host: Reach, **others: Reach | Missing) -> dict[str, Reach | Missing]:
    """All observations: the host's is n1's."""
    return {"n1": host, **others}


SRUN_SAID = (
    "srun: error: Task launch for StepId=4.0 failed on node n4: Communication connection failure\n"
    "srun started nothing there"
)
SSH_SAID = "ssh: connect to host n4 port 22: Connection refused\nssh ended with exit code 255"


def unheard(program: str, words: str) -> Missing:
    """What the place that starts all agents makes of one that said nothing."""
    return Missing(Cause.NOT_ARRIVED, words, by=program)


def three(*changed: Arrival, **changes: Any) -> Reach:
    """The host's view when node 4 did not come."""
    return hosting(*(changed or ALL[:3]), **changes)


@dataclasses.dataclass(frozen=True)
class Row(Case):
    """about: the nodes that any finding may be about; says: what is in the words of this one."""

    about: tuple[str, ...] = ()
    sure: Confidence | None = None
    blame: Blame | None = None
    says: tuple[str, ...] = ()


def row(name: str, saw: Mapping[str, Reach | Missing], code: str | None = None, **more: Any) -> Row:
    more.setdefault("topology", nodes(*(int(k[1:].partition("#")[0]) for k in saw)))
    if code is not None:
        more.setdefault("status", Status.FAIL)
    return Row(name, saw, code, **more)


BAD = rung("ECONNREFUSED", ip="10.0.0.99")


HEALTHY: tuple[Row, ...] = (
    row(
        "all came by a service's address, rank 0 itself as well",
        here(
            hosting(
                came(1, mine=False),
                *(came(n, mine=False) for n in (2, 3, 4)),
                mine=False,
                ips=("10.96.0.10",),
                itself="ok",
            ),
            n2=guest(2),
            n3=guest(3),
            n4=guest(4),
        ),
        topology=nodes(1, 2, 3, 4),
    ),
    # healthy worlds, however unusual
    row("all came", here(hosting(*ALL), n2=guest(2), n3=guest(3), n4=guest(4))),
    row(
        "one agent a rank on one machine, localhost",
        here(
            hosting(
                *(came(1, 2, pid=101 + r, ranks=(r,)) for r in (0, 1)),
                name="localhost",
                size=2,
                ranks=(0,),
                ips=("127.0.0.1",),
            )
        ),
        topology=nodes(1, size=2),
    ),
    row(
        "an address that is translated: nobody has it, all came",
        here(hosting(came(1, mine=False), *ALL[1:], mine=False)),
    ),
    row(
        "a late start of everybody but the host",
        here(hosting(came(1), *(came(n, at=20.0 + n) for n in (2, 3, 4)))),
    ),
    row(
        "two nodes, and one came 20 s later: who was early can't be told",
        here(hosting(came(1, 4), came(2, 4, at=20.0), size=4)),
        topology=nodes(1, 2, size=4),
    ),
    row(
        "scanners and health checks",
        here(
            hosting(
                *ALL,
                strangers=(
                    Stranger("10.9.9.9", "http", 30),
                    Stranger("10.9.9.8", "garbage"),
                    Stranger("10.9.9.7", "silent"),
                    Stranger("10.9.9.6", "half-open"),
                ),
            )
        ),
    ),
    row(
        "IPv6 refused at once, then IPv4",
        here(hosting(*ALL), n2=guest(2, rung("ECONNREFUSED", ip="fd00::1"), IN)),
    ),
    row(
        "IPv6 without a route, then IPv4",
        here(hosting(*ALL), n2=guest(2, rung("ENETUNREACH", ip="fd00::1"), IN)),
    ),
    row(
        "refused for a while until the host listened",
        here(hosting(*ALL), n2=guest(2, dataclasses.replace(IN, tries=20))),
    ),
    row(
        "under torchrun rank 0 need not be at MASTER_ADDR",
        here(hosting(came(1, mine=False), came(2, mine=True), *ALL[2:], agent=True, mine=False)),
    ),
    row("names given in other forms", here(hosting(*ALL[:3], came(4, claims=f"10.0.0.1:{PORT}")))),
    row("a pause that nobody minded", here(hosting(*ALL, stood=9.0)), None),
    row(
        "agents of one machine, at an address that is translated",
        here(
            hosting(
                *(came(1, 2, pid=101 + r, ranks=(r,), mine=False) for r in (0, 1)),
                size=2,
                ranks=(0,),
                mine=False,
                ips=("10.96.0.7",),
            )
        ),
        topology=nodes(1, size=2),
    ),
)

UP_N4 = AbsentHost("n4", ("10.0.0.4",), "", UP)

ABSENT_RANKS: tuple[Row, ...] = (
    # who did not come
    row(
        "absent, and nothing says from where",
        here(three()),
        "absent",
        status=Status.MISSING,
        subject="rank 6",
        about=("",),
        sure=Confidence.POSSIBLE,
        says=(
            "6 of 8 ranks arrived in 200 ms",
            "ranks 6-7 never connected within 30.0 s",
            "n1, n2, n3",
        ),
    ),
    row(
        "absent host that is up",
        here(three(expected=LIST, sought=(AbsentHost("n4", ("10.0.0.4",), "", UP),))),
        "absent-host-up",
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=(
            "nobody from n4 (ranks 6-7)",
            "from n1: n4 is 10.0.0.4: port 22 refused after 0.2 ms",
        ),
    ),
    row(
        "absent host that is silent",
        here(three(expected=LIST, sought=(AbsentHost("n4", ("10.0.0.4",), "", SILENT),))),
        "absent-host-silent",
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
    ),
    row(
        "absent host, and another one came twice",
        here(hosting(*ALL[:3], came(3, pid=203), expected=LIST, sought=(UP_N4,))),
        "absent-host-up",
        status=Status.MISSING,
        subject="n4",
        about=("n3", "n4"),
        sure=Confidence.POSSIBLE,
        says=("6 of 8 ranks arrived", "nobody from n4 (ranks 6-7) connected"),
    ),
    row(
        "a host of the list that holds a meeting of its own is not absent",
        here(
            three(expected=LIST, sought=(UP_N4,)),
            n4=hosting(dataclasses.replace(came(4), ranks=(0, 1)), host="n4"),
        ),
        "leader-duplicate",
        about=("n1", "n4"),
    ),
    row(
        "absent host without an address",
        here(three(expected=LIST, sought=(AbsentHost("n4", (), "EAI_NONAME"),))),
        "absent",
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
        sure=Confidence.POSSIBLE,
        says=("n4 does not resolve (EAI_NONAME)",),
    ),
    row(
        "absent host whose ranks the list does not tell",
        here(
            three(
                expected=tuple(ExpectedHost(e.host) for e in LIST),
                sought=(AbsentHost("n4", ("10.0.0.4",), "", UP),),
            )
        ),
        "absent-host-up",
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
    ),
    row(
        "the launcher deals otherwise than the list: hosts only",
        here(
            hosting(
                ALL[0],
                came(3, ranks=(2, 3)),
                came(2, ranks=(4, 5)),
                expected=LIST,
                sought=(AbsentHost("n4", ("10.0.0.4",), "", UP),),
            )
        ),
        "absent-host-up",
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
    ),
    row(
        "the list has other names than the machines",
        here(
            three(
                *(dataclasses.replace(a, host=f"ip-{a.node}") for a in ALL[:3]),
                host="ip-n1",
                expected=LIST,
            )
        ),
        "absent",
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
    ),
    row(
        "one rank of a node that came",
        here(hosting(*ALL[:3], came(4, ranks=(6,)), expected=LIST)),
        "absent",
        status=Status.MISSING,
        subject="n4 · rank 7",
        about=("n4",),
        says=("rank 7 never", "of n4, from where others came"),
    ),
    row(
        "one was turned away",
        here(three(strangers=(Stranger("10.0.0.4", "token"),))),
        "absent",
        status=Status.MISSING,
        about=("", "n1"),
        says=("10.0.0.4 was turned away: token",),
    ),
    row(
        "rank 0's node has no file left for them",
        here(three(full="EMFILE", files=1024)),
        "open-files-exhausted",
        about=("n1",),
        says=("6 of 8 ranks", "may have 1024 open files (RLIMIT_NOFILE)", "ranks 6-7 may be"),
    ),
    row(
        "files were short for a while, and all came",
        here(hosting(*ALL, full="EMFILE", files=1024)),
    ),
    row(
        "nobody came from behind a crowd",
        here(three(strangers=(Stranger("10.0.0.2", "crowd", 300),))),
        "absent",
        status=Status.MISSING,
        about=("", "n1"),
        says=("300 silent connections from 10.0.0.2 had to be closed",),
    ),
    row(
        "a Kubernetes service in front of rank 0",
        here(hosting(ALL[0], mine=False, kubernetes=True)),
        "absent",
        status=Status.MISSING,
        about=("",),
        topology=alone(1),
    ),
    row(
        "localhost, one process per rank: the others may be meant to run here",
        here(hosting(came(1, ranks=(0,)), name="localhost", ips=("127.0.0.1",), ranks=(0,))),
        "absent",
        status=Status.MISSING,
        about=("",),
        topology=topology(nodes=(Node("n1", (0,)),), size=8),
    ),
    row(
        "the name of rank 0's node is in its own /etc/hosts as 127.0.1.1",
        here(hosting(ALL[0], ips=("127.0.1.1",))),
        "absent",
        status=Status.MISSING,
        about=("",),
        topology=alone(1),
    ),
    # started from one place, which knows more than the host of the meeting
    row(
        "srun could not launch on one node",
        here(hosting(*ALL[:3], size=6), n2=guest(2), n3=guest(3), n4=unheard("srun", SRUN_SAID)),
        "not-launched",
        topology=nodes(1, 2, 3),
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
        says=("nothing came from n4 · srun: error: Task launch", "Communication connection"),
    ),
    row(
        "ssh is refused by one host: told once, with its ranks",
        here(three(expected=LIST), n2=guest(2), n3=guest(3), n4=unheard("ssh", SSH_SAID)),
        "not-reached",
        topology=nodes(1, 2, 3),
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
        says=("nothing came from n4 · ssh: connect to host n4 port 22: Connection refused",),
    ),
    row(
        "ssh is refused by the host of the meeting: the others miss it, and are not to blame",
        {"n2": out(2, REFUSED), "n3": out(3, REFUSED), "n1": unheard("ssh", SSH_SAID)},
        "not-reached",
        topology=nodes(2, 3),
        status=Status.MISSING,
        subject="n1",
        sure=Confidence.LIKELY,
    ),
    row(
        "nobody was reached",
        {f"n{n}": unheard("ssh", SSH_SAID.replace("n4", f"n{n}")) for n in (1, 2, 3, 4)},
        "not-reached",
        topology=nodes(),
        status=Status.MISSING,
        says=("nothing came from n[1-4] · ssh: connect to host n1 port 22",),
    ),
)

ARRIVALS: tuple[Row, ...] = (
    # who came late, was lost, or came twice
    row(
        "late",
        here(hosting(*ALL[:3], came(4, at=9.0))),
        "agent-late",
        status=Status.WARN,
        subject="n4",
        about=("n4",),
        says=("n4 came 8.8 s after most",),
    ),
    row(
        "late, since it went to the store of a torchrun that is gone",
        here(
            hosting(*ALL[:3], came(4, at=9.0)),
            n4=guest(4, agent=True, store=StoreStage.CONNECTION),
        ),
    ),
    row(
        "late, and others of its node were not",
        here(hosting(*ALL[:3], came(4, ranks=(6,)), came(4, pid=204, ranks=(7,), at=9.0))),
        "agent-late",
        status=Status.WARN,
        subject="n4",
        about=("n4",),
        says=("rank 7 on n4 came 8.8 s after most",),
    ),
    row(
        "two nodes with the same node rank, and nothing says which is right",
        here(hosting(*ALL[:3], came(4, ranks=(2, 3)))),
        "rank-duplicate",
        subject="n2",
        about=("n2", "n4"),
        sure=Confidence.CERTAIN,
        blame=Blame.JOB,
        says=("ranks 2-3", "n2 (pid 102", "n4 (pid 104", "2 nodes think that they are node rank 1"),
    ),
    row(
        "the node list tells which",
        here(hosting(*ALL[:3], came(4, ranks=(2, 3)), expected=LIST)),
        "rank-duplicate",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=("the node list has ranks 2-3 on n2",),
    ),
    row(
        "two leaders: MASTER_ADDR is one's",
        here(hosting(*ALL[:3], came(4, ranks=(0, 1)))),
        "leader-duplicate",
        subject="n4",
        about=("n4",),
        says=("2 nodes think that they are node rank 0", "MASTER_ADDR is an address of n1"),
    ),
    row(
        "two leaders, each with a meeting of its own",
        here(
            hosting(came(1, 4, mine=True), size=4),
            n2=hosting(came(2, 4, ranks=(0, 1), mine=True), size=4, host="n2", pid=102),
        ),
        "leader-duplicate",
        about=("n1", "n2"),
        topology=nodes(1, 2, size=4),
    ),
    row(
        "one rank twice",
        here(hosting(*ALL[:3], came(4, ranks=(3,)), came(4, ranks=(6, 7), pid=9))),
        "rank-duplicate",
        about=("n2", "n4"),
    ),
    row(
        "started twice on one machine",
        here(hosting(*ALL, came(3, pid=999))),
        "rank-duplicate",
        about=("n3",),
        says=("the command was started twice there",),
    ),
    row(
        "another agent of rank 0, which met others before",
        here(hosting(*ALL, twins=(77,))),
        "leader-duplicate",
        subject="n1",
        about=("n1",),
        sure=Confidence.LIKELY,
        says=("claimed by n1 (pid 101) and by n1 (pid 77)", "started twice there"),
    ),
    row(
        "another agent of n2's ranks got in before this one",
        here(hosting(*ALL), **{"n2#2": out(2, REFUSED, twins=(102,), pid=900)}),
        "rank-duplicate",
        about=("n2#2", "n2"),
        topology=nodes(1, 2, 3, 4),
    ),
    row(
        "pods of another job with the same names, on a node that they share",
        here(hosting(*ALL), n2=guest(2, twins=(77,))),
    ),
    row(
        "a torchrun that is started twice on n1, later",
        here(hosting(came(1, 4), came(2, 4), size=4, nodes=2, numbers=True, twins=(77,))),
        "nodes-surplus",
        about=("n1",),
        topology=nodes(1, 2, size=4),
    ),
    # a limit of connections
    row(
        "two nodes got in, and further connections of theirs have no answer",
        here(
            hosting(*ALL[:3]),
            n2=guest(2, again=SILENT_AGAIN),
            n3=guest(3, again=SILENT_AGAIN),
            n4=out(4, DROPPED),
        ),
        "connections-limited",
        about=("n1", "n4"),
        sure=Confidence.LIKELY,
        says=("2 connections passed", "n4: 10.0.0.1:29500 no answer", "as from 1 other node"),
    ),
    row(
        "one of three is absent, and so",
        here(hosting(*ALL[:3]), n2=guest(2, again=SILENT_AGAIN), n3=guest(3, again=SILENT_AGAIN)),
        "connections-limited",
        topology=nodes(1, 2, 3),
    ),
    row(
        "all came, and each has one connection",
        here(
            hosting(*ALL),
            n2=guest(2, again=SILENT_AGAIN),
            n3=guest(3, again=SILENT_AGAIN),
            n4=guest(4, again=SILENT_AGAIN),
        ),
        "connections-limited",
        about=("n1",),
        status=Status.WARN,
        says=("1 connection of a node passed",),
    ),
    row(
        "so with a rank on each node, which may do",
        here(
            hosting(came(1, 2, ranks=(0,)), came(2, 2, ranks=(1,)), size=2),
            n2=guest(2, again=SILENT_AGAIN, ranks=(1,)),
        ),
        "connections-limited",
        status=Status.WARN,
        topology=topology(
            nodes=(Node("n1", (0,), "10.0.0.1"), Node("n2", (1,), "10.0.0.2")),
            size=2,
            master_addr="n1",
            master_port=PORT,
        ),
    ),
    row(
        "of one of two nodes further ones are refused: it is that node's firewall",
        here(
            hosting(*ALL),
            n2=guest(2, again=SILENT_AGAIN),
            n3=guest(3, again=(NO_STORE,) * 4),
        ),
    ),
    row(
        "one of several further connections is refused: packets are lost",
        here(hosting(*ALL), n2=guest(2, again=(*SILENT_AGAIN, NO_STORE))),
    ),
    row(
        "MASTER_ADDR is a load balancer's, which drops where nobody listens",
        here(hosting(*ALL, mine=False, itself="ok"), n2=guest(2, again=SILENT_AGAIN)),
    ),
    row(
        "the node is lost, so no wonder",
        here(
            hosting(ALL[0], dataclasses.replace(ALL[1], lost="it closed"), *ALL[2:]),
            n2=guest(2, again=SILENT_AGAIN),
        ),
        "lost",
    ),
    # WORLD_SIZE
    row(
        "one of four thinks otherwise",
        here(hosting(*ALL[:3], came(4, 6))),
        "size-differs",
        subject="n4",
        about=("n4",),
        sure=Confidence.CERTAIN,
    ),
    row(
        "one of four thinks otherwise, and one is absent",
        here(hosting(*ALL[:2], came(3, 12), size=8)),
        "size-differs",
        subject="n3",
        about=("n3", ""),
        sure=Confidence.LIKELY,
    ),
    row(
        "of two, the one whose number really came is right",
        here(hosting(came(1, 4), came(2, 6), size=4)),
        "size-differs",
        subject="n2",
        about=("n2",),
        sure=Confidence.LIKELY,
        topology=nodes(1, 2, size=4),
    ),
    row(
        "of two, and neither came: both",
        here(hosting(came(1, 8), came(2, 6))),
        "size-differs",
        about=("n1", "n2", ""),
        sure=Confidence.POSSIBLE,
        topology=nodes(1, 2),
    ),
    row(
        "the majority against the number that came: both",
        here(hosting(*ALL[:3], came(4, 6, ranks=(4,)))),
        "size-differs",
        sure=Confidence.POSSIBLE,
    ),
    row(
        "nodes with different numbers of ranks, which torchrun adds up",
        here(hosting(came(1, 5), came(2, 5, ranks=(2, 3, 4)), size=5, nodes=2)),
        "nproc-uneven",
        status=Status.WARN,
        about=("n1", "n2"),
        says=("n1 2, n2 3 · 5 in all",),
        topology=nodes(1, 2, size=5),
    ),
    row(
        "the same, where torchrun was told that all are alike",
        here(
            hosting(came(1, 5), came(2, 5, ranks=(2, 3, 4)), size=5, nodes=2, identical=True),
            n2=guest(2, ranks=(2, 3, 4), identical=True),
        ),
        "nproc-uneven",
        status=Status.FAIL,
        says=("but on n[1-2]: TORCH_ELASTIC_WORKER_IDENTICAL=1",),
        topology=nodes(1, 2, size=5),
    ),
    row(
        "nodes that are alike, and told to be",
        here(hosting(came(1, 4), came(2, 4), size=4, nodes=2, identical=True)),
        topology=nodes(1, 2, size=4),
    ),
    row(
        "as many on each node, which torchrun adds up",
        here(hosting(came(1, 4), came(2, 4), size=4, nodes=2)),
        topology=nodes(1, 2, size=4),
    ),
    row(
        "one of three torchruns does not come",
        here(hosting(came(1, 5), came(2, 5, ranks=(2,)), size=5, nodes=3)),
        "absent",
        status=Status.MISSING,
        says=("2 of 3 nodes arrived",),
        topology=nodes(1, 2, size=5),
    ),
    row(
        "a torchrun more than are to meet, started twice on a node",
        here(
            hosting(
                came(1, 6),
                came(1, 6, ranks=(2, 3), pid=9),
                came(2, 6, ranks=(4, 5)),
                size=6,
                nodes=2,
            )
        ),
        "nodes-surplus",
        about=("n1",),
        sure=Confidence.CERTAIN,
        says=("--nnodes 2",),
        topology=nodes(1, 2, size=6),
    ),
    row(
        "a node more than are to meet",
        here(hosting(came(1, 6), came(2, 6), came(3, 6), size=6, nodes=2)),
        "nodes-surplus",
        about=("n1", "n2", "n3"),
        sure=Confidence.LIKELY,
        topology=nodes(1, 2, 3, size=6),
    ),
    row(
        "both torchruns are on one node, which may be meant",
        here(hosting(came(1, 4), came(1, 4, ranks=(2, 3), pid=9), size=4, nodes=2)),
        "nodes-surplus",
        status=Status.WARN,
        about=("n1",),
        topology=nodes(1, size=4),
    ),
    row(
        "torchrun's nodes that all have its endpoint as their own address",
        here(
            hosting(came(1, 4, mine=True), size=4, nodes=2, numbers=True, **DOCKER),
            n2=hosting(
                came(2, 4, ranks=(0, 1), mine=True),
                **{"size": 4, "nodes": 2, "host": "n2", "pid": 102, "numbers": True, **DOCKER},
            ),
        ),
        "address-own",
        about=("n1", "n2"),
        topology=nodes(1, 2, size=4),
    ),
    row(
        "another job's ranks",
        here(hosting(*ALL, strangers=(Stranger("10.9.9.9", "c10d", 3),))),
        "stranger-job",
        status=Status.WARN,
        about=("n1",),
        says=("3 times", "10.9.9.9"),
    ),
    row(
        "another job's agent",
        here(hosting(*ALL, strangers=(Stranger("10.0.0.2", "other job"),))),
        "stranger-job",
        status=Status.WARN,
        about=("n1",),
        says=("10.0.0.2 (n2)",),
    ),
    row(
        "a crowd that says nothing",
        here(hosting(*ALL, strangers=(Stranger("10.9.9.9", "crowd", 300),))),
        "stranger-crowd",
        status=Status.WARN,
        about=("n1",),
        says=("300 times", "10.9.9.9"),
    ),
    row(
        "a crowd of this job's own agents on a slow machine",
        here(hosting(*ALL, strangers=(Stranger("10.0.0.2", "crowd", 3),))),
    ),
    row(
        "a wrong token",
        here(hosting(*ALL, strangers=(Stranger("10.9.9.9", "token"),))),
        "stranger-token",
        status=Status.WARN,
        about=("n1",),
    ),
)

ATTEMPTS: tuple[Row, ...] = (
    # one agent by itself that did not get in: what it saw
    *(
        row(f"by itself: {name}", {"n2": part}, code, topology=alone(2), subject=subject, sure=sure)
        for name, part, code, subject, sure in (
            (
                "unknown name",
                out(2, lookup="EAI_NONAME", ladder=(), ips=()),
                "name-unknown",
                "n2",
                Confidence.CERTAIN,
            ),
            (
                "no name server",
                out(2, lookup="EAI_AGAIN", ladder=(), ips=()),
                "resolver-timeout",
                "n2",
                Confidence.POSSIBLE,
            ),
            (
                "silent name server",
                out(2, lookup="SILENT", ladder=(), ips=()),
                "resolver-timeout",
                "n2",
                Confidence.CERTAIN,
            ),
            ("refused", out(2, REFUSED), "refused", "n2->n1 · port 29500", Confidence.POSSIBLE),
            (
                "dropped, other ports refuse",
                out(2, DROPPED, elsewhere=MASTER_UP),
                "dropped",
                None,
                Confidence.LIKELY,
            ),
            (
                "nothing answers",
                out(2, DROPPED, elsewhere=MASTER_DOWN),
                "dropped",
                None,
                Confidence.POSSIBLE,
            ),
            (
                "prohibited, other ports answer",
                out(2, PROHIBITED, elsewhere=MASTER_UP),
                "prohibited",
                None,
                Confidence.LIKELY,
            ),
            (
                "prohibited by an own rule",
                out(2, rung("EACCES")),
                "prohibited",
                None,
                Confidence.LIKELY,
            ),
            (
                "an own rule, or a router's words of IPv6",
                out(2, rung("EACCES", ip="fd00::1")),
                "prohibited",
                None,
                Confidence.POSSIBLE,
            ),
            (
                "the host's firewall says so",
                out(2, icmp_says("10.0.0.1"), elsewhere=MASTER_UP),
                "prohibited",
                None,
                Confidence.LIKELY,
            ),
            (
                "a router's firewall says so",
                out(2, icmp_says("10.0.0.254")),
                "prohibited",
                None,
                Confidence.LIKELY,
            ),
            (
                "a Service without an endpoint says so",
                out(2, icmp_says("10.0.0.254"), kubernetes=True),
                "prohibited",
                None,
                Confidence.POSSIBLE,
            ),
            (
                "a router says that the host is not there",
                out(2, icmp_says("10.0.0.254", "host", "EHOSTUNREACH")),
                "prohibited",
                None,
                Confidence.POSSIBLE,
            ),
            (
                "a router gets its packets too often",
                out(2, icmp_says("10.0.0.254", "expired", "EHOSTUNREACH"), ttl=64),
                "ttl-exceeded",
                None,
                Confidence.LIKELY,
            ),
            ("dead", out(2, DEAD), "host-dead", None, Confidence.POSSIBLE),
            ("no route", out(2, rung("ENETUNREACH")), "no-route", None, Confidence.POSSIBLE),
            (
                "blackhole route",
                out(2, rung("EINVAL"), routes={"10.0.0.1": "EINVAL"}),
                "no-route",
                None,
                Confidence.POSSIBLE,
            ),
            (
                "unreachable route",
                out(2, PROHIBITED, routes={"10.0.0.1": "EHOSTUNREACH"}),
                "no-route",
                None,
                Confidence.POSSIBLE,
            ),
            (
                "accepts and is silent",
                out(2, rung(answer="silent", seconds=3.0)),
                "not-a-meeting",
                None,
                Confidence.LIKELY,
            ),
            ("accepts and closes", out(2, rung(answer="closed")), "not-a-meeting", None, None),
            (
                "a web server",
                out(2, rung(answer="stranger", heard="HTTP/1.0 400")),
                "not-a-meeting",
                None,
                None,
            ),
            (
                "the meeting of another job",
                out(2, rung(answer="other job", heard="77")),
                "other-meeting",
                None,
                Confidence.CERTAIN,
            ),
            ("another token", out(2, rung(answer="token")), "token", None, Confidence.CERTAIN),
            (
                "another version",
                out(2, rung(answer="version", heard="0.9")),
                "handshake-incomplete",
                None,
                None,
            ),
            (
                "greeted and no more",
                out(2, rung(answer="ours")),
                "handshake-incomplete",
                None,
                Confidence.POSSIBLE,
            ),
            (
                "IPv6 without a route, IPv4 refused",
                out(2, rung("ENETUNREACH", ip="fd00::1"), REFUSED),
                "refused",
                None,
                None,
            ),
        )
    ),
)

OUT_OF_REACH: dict[str, Any] = {"lost": "it closed the connection", "speaker": 6}
SPOKEN = (
    came(4, ranks=(6,), lost="connection reset"),
    came(4, ranks=(7,), pid=204, lost="connection reset", through=104),
)
"""The two ranks of a node of which one agent spoke for both."""

DISCONNECTED: tuple[Row, ...] = (
    row(
        "lost",
        here(hosting(*ALL[:3], came(4, lost="connection reset", mark="net.mesh: edges"))),
        "lost",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=("n4 (pid 104, 10.0.0.4), ranks 6-7", "connection reset", "'net.mesh: edges'"),
    ),
    row(
        "the agent that spoke for its node was lost",
        here(hosting(*ALL[:3], *SPOKEN), **{"n4": guest(4, ranks=(7,), pid=204, **OUT_OF_REACH)}),
        "lost",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=("n4 (pid 104, 10.0.0.4), rank 6, ", "rank 7 of n4 could be heard through it alone"),
    ),
    row(
        "the agent that spoke for its node was lost, and its neighbour finds the port closed",
        here(hosting(*ALL[:3], *SPOKEN), **{"n4": out(4, REFUSED, ranks=(7,), pid=204)}),
        "lost",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=("n4 (pid 104, 10.0.0.4), rank 6, ", "rank 7 of n4 could be heard through it alone"),
    ),
    row(
        "the same by itself: it says whom it has lost",
        {"n4": guest(4, ranks=(7,), pid=204, **OUT_OF_REACH)},
        "lost",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=(
            "the agent of rank 6, through which rank 7 of n4 could be heard, was lost: it closed",
        ),
    ),
    row(
        "the agent that spoke for its node has lost the host, and its neighbour knows",
        {"n4": guest(4, ranks=(7,), pid=204, lost="connection reset")},
        "lost",
        says=("the meeting at n1 10.0.0.1:29500 ended without a message: n4: connection reset",),
    ),
    row(
        "all ended",
        here(hosting(ALL[0], *(came(n, lost="it closed the connection") for n in (2, 3, 4)))),
        "lost",
        sure=Confidence.POSSIBLE,
        says=("n1 lost all of them",),
    ),
    row(
        "all fell silent at once",
        here(hosting(ALL[0], *(came(n, lost=QUIET) for n in (2, 3, 4)))),
        "cut-off",
        subject="n1",
        about=("n1",),
        sure=Confidence.POSSIBLE,
        says=("all of n[2-4]", "the network of n1 was cut", "all the others were stopped"),
    ),
    row(
        "all fell silent at once, and live",
        here(
            hosting(ALL[0], *(came(n, lost=QUIET) for n in (2, 3, 4))),
            n2=guest(2, lost=QUIET),
            n4=guest(4, lost=QUIET),
        ),
        "cut-off",
        subject="n1",
        about=("n1",),
        sure=Confidence.LIKELY,
        says=("n[2,4] lived, and lost n1",),
    ),
    row(
        "one of several fell silent: the others were heard all the time",
        here(hosting(*ALL[:3], came(4, lost=QUIET)), n4=guest(4, lost=QUIET)),
        "lost",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
    ),
    row(
        "what one sends crawls without window scaling, and the host takes it all the time",
        here(
            hosting(*ALL[:3], came(4, lost="Connection reset by peer")),
            n4=guest(4, lost=QUIET, crawl=Crawl(5.0, 12_000, 90_000, scaled=False)),
        ),
        "sending-slow",
        subject="n4->n1 · port 29500",
        sure=Confidence.LIKELY,
        blame=Blame.NETWORK,
        says=("n1 acknowledged 12 KiB within 5.0 s", "has no TCP window scaling"),
    ),
    row(
        "what one sends crawls, and why can't be told",
        {"n4": guest(4, lost=QUIET, crawl=Crawl(5.0, 12_000, 90_000))},
        "sending-slow",
        sure=Confidence.POSSIBLE,
        blame=Blame.NETWORK,
        says=("packets are lost, or the network is that slow", "it has no CPU"),
    ),
    row(
        "one was lost in the middle of a message",
        here(hosting(*ALL[:3], came(4, lost=f"Connection reset by peer, {HALFWAY}: 900 bytes"))),
        "lost",
        sure=Confidence.POSSIBLE,
        says=("what n4 sends to n1 crawls, and it gave up", "it was killed"),
    ),
    row(
        "one of several fell silent, and a reset reached it: packets were lost between them",
        here(hosting(*ALL[:3], came(4, lost=QUIET)), n4=guest(4, lost="Connection reset by peer")),
        "lost",
        subject="n1->n4",
        about=("n1",),
        blame=Blame.NETWORK,
        sure=Confidence.POSSIBLE,
        says=("it lives, and lost n1: Connection reset by peer", "broke at n1", "broke at n4"),
    ),
    row(
        "one heard nothing, and rank 0's node has one MAC address for it and another",
        here(
            hosting(
                *ALL[:3],
                came(4, lost=f"{GAVE_UP}: {QUIET}"),
                macs={"10.0.0.3": MAC, "10.0.0.4": MAC},
            ),
        ),
        "mac-shared",
        about=("n3", "n4"),
        sure=Confidence.POSSIBLE,
        blame=Blame.NETWORK,
        says=(f"n1 has {MAC} for 10.0.0.3 (n3), 10.0.0.4 (n4)",),
        topology=nodes(1, 2, 3, 4),
    ),
    row(
        "one fell silent, and of three two have one MAC address",
        here(
            hosting(*ALL[:3], came(4, lost=QUIET), macs={"10.0.0.3": MAC, "10.0.0.4": MAC}),
        ),
        "mac-shared",
        about=("n3", "n4"),
        sure=Confidence.POSSIBLE,
        says=("was lost: ",),
        topology=nodes(1, 2, 3, 4),
    ),
    row(
        "one of two fell silent, and a router answers ARP for both",
        here(
            hosting(*ALL[:2], came(3, lost=QUIET), size=6, macs={"10.0.0.2": MAC, "10.0.0.3": MAC}),
        ),
        "lost",
        topology=nodes(1, 2, 3, size=6),
    ),
    row(
        "one heard nothing, and a router answers ARP for all of them",
        here(
            hosting(
                *ALL[:3],
                came(4, lost=f"{GAVE_UP}: {QUIET}"),
                macs={f"10.0.0.{n}": MAC for n in (2, 3, 4)},
            ),
        ),
        "nothing-received",
        topology=nodes(1, 2, 3, 4),
    ),
    row(
        "one of several was heard to the end and heard nothing: what comes to it is lost",
        here(hosting(*ALL[:3], came(4, lost=f"{GAVE_UP}: {QUIET}")), n4=guest(4, lost=QUIET)),
        "nothing-received",
        subject="n4",
        about=("n4",),
        blame=Blame.NODE,
        sure=Confidence.LIKELY,
        says=("n4 (pid 104, 10.0.0.4), ranks 6-7", "the others heard n1 all the time"),
    ),
    row(
        "one of two was heard to the end and heard nothing",
        {"n1": hosting(*ALL[:1], came(2, lost=f"{GAVE_UP}: {QUIET}"), size=4)},
        "nothing-received",
        topology=nodes(1, 2, size=4),
        subject="n1->n2",
        about=("n1",),
        blame=Blame.NETWORK,
        sure=Confidence.POSSIBLE,
        says=("packets are lost at n1", "packets are lost at n2"),
    ),
    row(
        "one of two fell silent: nobody can tell",
        {"n1": hosting(*ALL[:1], came(2, lost=QUIET), size=4)},
        "lost",
        topology=nodes(1, 2, size=4),
        subject="n2",
        sure=Confidence.POSSIBLE,
        says=("n2 is down, or stopped", "the network between them broke"),
    ),
    row(
        "one of two fell silent, and lives",
        {"n1": hosting(*ALL[:1], came(2, lost=QUIET), size=4), "n2": guest(2, lost=QUIET)},
        "lost",
        topology=nodes(1, 2, size=4),
        subject="n1->n2",
        about=("n1",),
        blame=Blame.NETWORK,
        sure=Confidence.POSSIBLE,
        says=("it lives, and says the same", "broke at n1", "broke at n2"),
    ),
    row(
        "the host itself was stopped for a while",
        here(
            hosting(ALL[0], *(came(n, lost=f"it gave up: {QUIET}") for n in (2, 3, 4)), stood=9.0)
        ),
        "agent-paused",
        subject="n1",
        about=("n1",),
        blame=Blame.NODE,
        sure=Confidence.CERTAIN,
        says=("was stopped (no CPU time) for 9.0 s", "n[2-4]"),
    ),
    row(
        "a guest was stopped for a while",
        here(hosting(*ALL[:3], came(4, lost=QUIET)), n4=guest(4, lost="reset", stood=9.0, pid=104)),
        "agent-paused",
        subject="n4",
        about=("n4",),
        sure=Confidence.CERTAIN,
        says=("was stopped (no CPU time) for 9.0 s", f"n1 had lost it: {QUIET}"),
    ),
    row(
        "a guest had no CPU for a while",
        here(
            hosting(*ALL[:3], came(4, lost=QUIET)),
            n4=guest(4, lost="reset", stood=9.0, starved=7.5, pid=104),
        ),
        "agent-paused",
        status=Status.UNDECIDED,
        subject="n4",
        about=("n4",),
        sure=Confidence.CERTAIN,
        says=("waited for a CPU that others used for 9.0 s",),
    ),
    row(
        "by itself: the host was lost",
        {"n2": guest(2, lost=QUIET)},
        "lost",
        subject="n2->n1 · port 29500",
        topology=alone(2),
        sure=Confidence.POSSIBLE,
    ),
    row(
        "by itself: the host ended",
        {"n2": guest(2, lost="Connection reset by peer")},
        "lost",
        subject="n1 · port 29500",
        topology=alone(2),
        sure=Confidence.LIKELY,
        says=("the meeting at n1 10.0.0.1:29500 ended without a message: n2: Connection reset",),
    ),
    row(
        "several lost the host, and it gave no part",
        {f"n{n}": guest(n, lost=QUIET) for n in (2, 3, 4)},
        "lost",
        subject="n1 · port 29500",
        sure=Confidence.LIKELY,
        says=("fell silent: n2: no sign of life",),
    ),
    row(
        "two lost the host, and the third found nobody any more",
        {"n2": guest(2, lost="reset"), "n3": guest(3, lost="reset"), "n4": out(4, REFUSED)},
        "lost",
        subject="n1 · port 29500",
        sure=Confidence.LIKELY,
        says=("ended without a message: n2: reset · n3: reset", "n4 found nothing listening there"),
    ),
    row(
        "the host and its guest lost each other: told once",
        here(hosting(*ALL[:3], came(4, lost="reset")), n4=guest(4, lost="reset")),
        "lost",
        subject="n4",
        about=("n4",),
    ),
    row(
        "the host of the meeting was lost: that is said already",
        {**{f"n{n}": guest(n, lost=QUIET) for n in (2, 3, 4)}, "n1": unheard("srun", SRUN_SAID)},
        "lost",
        topology=nodes(2, 3, 4),
        subject="n1 · port 29500",
    ),
)

LEADER_ADDRESS: tuple[Row, ...] = (
    row(
        "each node was given its own name",
        here(hosting(came(1)), n2=hosting(came(2), **own(2)), n3=hosting(came(3), **own(3))),
        "address-own",
        subject="n2 · MASTER_ADDR",
        about=("n2", "n3"),
        sure=Confidence.CERTAIN,
        says=("'n2' is an address of n2 (eth0)", "rank 0 is elsewhere"),
    ),
    row(
        "an address that Docker gives its bridge on all machines",
        here(
            hosting(came(1), **DOCKER, ranks=(0, 1)),
            n2=hosting(came(2), **DOCKER, ranks=(2, 3)),
        ),
        "address-own",
        subject="n1 · MASTER_ADDR",
        about=("n1", "n2"),
        sure=Confidence.CERTAIN,
        says=("is an address of n[1-2] (docker0)", "each met only itself"),
    ),
    row(
        "one alone, which nobody else came to",
        {"n2": hosting(came(2), **own(2))},
        "address-own",
        topology=alone(2),
        subject="n2 · MASTER_ADDR",
        sure=Confidence.LIKELY,
        says=("rank 0 is elsewhere",),
    ),
    row(
        "another one came: then rank 0 is only not there",
        {"n2": hosting(came(2), came(3), **own(2))},
        "absent",
        status=Status.MISSING,
        topology=nodes(2, 3),
        subject="rank 0",
    ),
    # the leader
    row(
        "rank 0 is not where MASTER_ADDR leads",
        here(
            guest(1),
            n2=hosting(
                came(2, mine=True, addr=""),
                came(1, mine=False, addr="10.0.0.1"),
                *ALL[2:],
                host="n2",
                pid=102,
                ranks=(2, 3),
                ips=("10.0.0.2",),
            ),
        ),
        "leader-elsewhere",
        subject="n1 · MASTER_ADDR",
        about=("n1",),
        sure=Confidence.CERTAIN,
        says=("an address of n2", "rank 0 runs on n1"),
    ),
    row(
        "nobody has MASTER_ADDR: by itself",
        here(hosting(ALL[0], mine=False, ips=("10.0.0.99",))),
        "leader-elsewhere",
        subject="n1 · MASTER_ADDR",
        about=("n1",),
        sure=Confidence.POSSIBLE,
        topology=alone(1),
    ),
    row(
        "nobody has MASTER_ADDR: all parts",
        here(hosting(ALL[0], mine=False, ips=("10.0.0.99",)), n2=out(2, BAD), n3=out(3, BAD)),
        "leader-elsewhere",
        about=("n1",),
        sure=Confidence.LIKELY,
        says=("n2: 10.0.0.99:29500 refused",),
    ),
    row(
        "nobody has MASTER_ADDR, and rank 0 dialled it too",
        here(out(1, BAD, ips=("10.0.0.99",))),
        "leader-elsewhere",
        about=("n1",),
        topology=alone(1),
    ),
    row(
        "a service without hairpin: rank 0 alone can't get there",
        here(
            hosting(
                came(1, mine=False),
                *(came(n, mine=False) for n in (2, 3, 4)),
                mine=False,
                ips=("10.96.0.10",),
                itself="ETIMEDOUT",
                kubernetes=True,
            ),
            n2=guest(2),
            n3=guest(3),
            n4=guest(4),
        ),
        "self-unreachable",
        subject="n1 · MASTER_ADDR",
        about=("n1",),
        sure=Confidence.LIKELY,
        says=("10.96.0.10, port 29500: no answer from n1 itself, and 3 other nodes reached it",),
        topology=nodes(1, 2, 3, 4),
    ),
    row(
        "localhost: rank 0's part",
        here(hosting(ALL[0], name="localhost", ips=("127.0.0.1",))),
        "localhost",
        subject="n1 · MASTER_ADDR",
        about=("n1",),
        sure=Confidence.CERTAIN,
        topology=alone(1),
    ),
    row(
        "localhost: the parts of two nodes, each with a meeting of its own",
        here(
            hosting(ALL[0], name="127.0.0.1", ips=("127.0.0.1",)),
            n2=hosting(
                came(2, mine=True),
                name="127.0.0.1",
                ips=("127.0.0.1",),
                ranks=(2, 3),
                host="n2",
                pid=102,
            ),
        ),
        "localhost",
        about=("n1", "n2"),
    ),
    row(
        "the port is taken",
        here(hosting(failed="EADDRINUSE")),
        "cannot-listen",
        subject="n1 · MASTER_PORT · port 29500",
        about=("n1",),
        says=("EADDRINUSE, the port is in use",),
    ),
    row(
        "the port needs privileges", here(hosting(failed="EACCES")), "cannot-listen", about=("n1",)
    ),
)

NOT_ADMITTED: tuple[Row, ...] = (
    row(
        "too late",
        here(hosting(*ALL[:3], began=1000.0), n4=out(4, REFUSED, began=1038.0)),
        "agent-too-late",
        status=Status.MISSING,
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=("n4 began 38.0 s after n1", "waited for 30.0 s", "the two clocks differ"),
    ),
    row(
        "rank 0's node came when one had given up",
        here(hosting(*ALL[:3], began=1040.0), n4=out(4, REFUSED, began=1000.0, waited=30.0)),
        "agent-too-late",
        status=Status.MISSING,
        subject="n1",
        about=("n1",),
        sure=Confidence.LIKELY,
        says=("n1 began 40.0 s after n4", "waited for 30.0 s"),
    ),
    row(
        "rank 0's node listened after the last try of one, which had no CPU to try again",
        here(
            hosting(*ALL[:3], began=1027.0, stood=2.5),
            n4=out(4, rung("ECONNREFUSED", tries=59, at=29.6), began=1000.0, waited=31.0),
        ),
        "agent-too-late",
        status=Status.MISSING,
        subject="n1",
        about=("n1",),
        sure=Confidence.LIKELY,
        says=("n1 began 27.0 s after n4", "waited for 31.0 s"),
    ),
    row(
        "rank 0's node listened before the last tries",
        here(
            hosting(*ALL[:3], began=1020.0, stood=2.5),
            n4=out(4, rung("ECONNREFUSED", tries=59, at=29.6), began=1000.0, waited=31.0),
        ),
        "refused-here",
        subject="n4",
    ),
    row(
        "one takes the name for an address of its own",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=hosting(
                came(4),
                ips=("172.17.0.1",),
                ranks=(6, 7),
                host="n4",
                pid=104,
                hosts_line="/etc/hosts line 3",
            ),
        ),
        "address-elsewhere",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=("'n1' is 172.17.0.1 here, by /etc/hosts line 3", "the meeting is at 10.0.0.1"),
    ),
    row(
        "in time, and refused",
        here(hosting(*ALL[:3], began=1000.0), n4=out(4, REFUSED, began=1018.0)),
        "refused-here",
        subject="n4",
    ),
    # the parts of several, joined
    row(
        "one is not in, the others are: its own side",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, DROPPED, elsewhere=MASTER_UP)),
        "dropped-here",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("10.0.0.1:29500 no answer in 4.0 s (7 tries)", "2 other nodes got in"),
    ),
    row(
        "one gets no ARP answer from the host, which is there",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, DEAD)),
        "arp-unanswered",
        subject="n4",
        sure=Confidence.LIKELY,
    ),
    row(
        "of two, one gets no ARP answer from the other",
        here(hosting(ALL[0], size=4), n2=out(2, DEAD)),
        "arp-unanswered",
        subject="n2->n1",
        blame=Blame.NETWORK,
    ),
    row(
        "one is not in, one is: whose side can't be told",
        here(hosting(*ALL[:2], size=6), n2=guest(2), n3=out(3, DROPPED)),
        "dropped-here",
        subject="n3",
        about=("n3",),
        sure=Confidence.POSSIBLE,
    ),
    row(
        "one drops what it is answered, by its reverse path filter",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=out(
                4,
                DROPPED,
                elsewhere=tuple(Probe("10.0.0.1", p, "ETIMEDOUT") for p in (22, 9, 29501)),
                ways={"10.0.0.1": OutgoingWay("eth1", "eth0", 1)},
            ),
        ),
        "reverse-path",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("n4 sends to 10.0.0.1 by eth1 with eth0's address", "eth0 has rp_filter=1"),
    ),
    row(
        "rank 0's second NIC of one subnet drops what comes in there",
        here(
            hosting(came(1, 4), size=4, interface="eth1", filtered=True),
            n2=out(2, rung("EHOSTUNREACH", seconds=3.1)),
        ),
        "reverse-path-host",
        subject="n1 · eth1",
        about=("n1",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("eth1 of n1 has rp_filter=1 and MASTER_ADDR",),
        topology=nodes(1, 2, size=4),
    ),
    row(
        "rank 0's node drops what one guest sends, by its route back",
        here(
            hosting(came(1, 4), came(2, 4), size=6, interface="eth0", detours=(TO_N3,)),
            n2=guest(2),
            n3=out(3, DROPPED),
        ),
        "return-route-host",
        subject="n1 · eth0",
        about=("n1",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("n1 sends to 10.0.0.3/32 by eth1", "eth0 with MASTER_ADDR has rp_filter=1"),
        topology=nodes(1, 2, 3, size=6),
    ),
    row(
        "silence where this node's interface in that network has no link",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=out(
                4,
                DROPPED,
                elsewhere=tuple(Probe("10.0.0.1", p, "ETIMEDOUT") for p in (22, 9, 29501)),
                idle={"10.0.0.1": "ib0"},
            ),
        ),
        "link-down",
        subject="n4 · ib0",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("n4 has ib0 in the network of 10.0.0.1, without a link",),
    ),
    row(
        "silence by the route of a VPN that takes in the cluster's network",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=out(
                4,
                rung("EHOSTUNREACH", seconds=3.1),
                elsewhere=tuple(Probe("10.0.0.1", p, "EHOSTUNREACH") for p in (22, 9, 29501)),
                ways={"10.0.0.1": OutgoingWay("tun0", "tun0", 0, beside="eth0")},
            ),
        ),
        "route-diverted",
        subject="n4 · tun0",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("n4 sends to 10.0.0.1 by tun0, and has eth0 in its network",),
    ),
    row(
        "silence by a table of its own of a VPN",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=out(
                4,
                DROPPED,
                ways={"10.0.0.1": OutgoingWay("wg0", "wg0", 0, beside="eth0", table=51820)},
            ),
        ),
        "route-diverted",
        subject="n4 · wg0",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("n4 sends to 10.0.0.1 by wg0 (an ip rule leads to table 51820), and has eth0",),
    ),
    row(
        "silence of the one port for which a rule leads elsewhere",
        {
            "n2": out(
                2,
                DROPPED,
                elsewhere=MASTER_UP,
                ways={"10.0.0.1": OutgoingWay("tun7", "tun7", 0, "eth0", 7, by_port=True)},
            ),
        },
        "route-diverted",
        subject="n2 · tun7",
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("an ip rule leads to table 7, of some ports only",),
    ),
    row(
        "two nodes, and one is not in: either side",
        here(hosting(came(1, 4), size=4), n2=out(2, DROPPED)),
        "dropped",
        subject="n2->n1",
        sure=Confidence.POSSIBLE,
        topology=nodes(1, 2, size=4),
    ),
    row(
        "nobody gets in: the host's side",
        here(hosting(ALL[0]), n2=out(2, DROPPED), n3=out(3, DROPPED), n4=out(4, DROPPED)),
        "dropped",
        subject="n1 · port 29500",
        sure=Confidence.LIKELY,
        blame=Blame.NETWORK,
        says=("n2: ", "n3: ", "n4: "),
    ),
    row(
        "nobody gets in, and the host gave no part",
        {"n2": out(2, REFUSED), "n3": out(3, REFUSED)},
        "refused",
        subject="n1 · port 29500",
        sure=Confidence.LIKELY,
    ),
    row(
        "half get in: something between",
        here(
            hosting(*ALL[:3], size=10),
            n2=guest(2),
            n3=guest(3),
            n4=out(4, DROPPED),
            n5=out(5, DROPPED),
        ),
        "dropped-here",
        subject="n4->n1",
        sure=Confidence.POSSIBLE,
    ),
    row(
        "most don't get in: the host's side, possibly",
        here(hosting(*ALL[:2]), n2=guest(2), n3=out(3, DROPPED), n4=out(4, DROPPED)),
        "dropped-here",
        subject="n1 · port 29500",
        sure=Confidence.POSSIBLE,
    ),
    row(
        "refused while the meeting was held",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, REFUSED)),
        "refused-here",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
    ),
    row(
        "several are refused where others get in",
        here(
            hosting(*ALL[:3], size=10),
            n2=guest(2),
            n3=guest(3),
            n4=out(4, REFUSED),
            n5=out(5, REFUSED),
        ),
        "refused-here",
        sure=Confidence.POSSIBLE,
        blame=Blame.NETWORK,
    ),
    row(
        "a sidecar accepts, and others get in",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, MUTE, sidecar="Envoy (port 15001)")),
        "intercepted",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        says=("a listener here is Envoy (port 15001)",),
    ),
    row(
        "a sidecar of rank 0's machine accepts, and nobody gets in",
        here(
            hosting(ALL[0], sidecar="Envoy (port 15006)"),
            n2=out(2, MUTE, elsewhere=ALL_OPEN),
            n3=out(3, MUTE, elsewhere=ALL_OPEN),
        ),
        "intercepted",
        subject="n1 · port 29500",
        sure=Confidence.LIKELY,
        says=("a listener on n1 is Envoy (port 15006)", "port 9 open"),
    ),
    row(
        "both of two nodes have a sidecar",
        here(
            hosting(ALL[0], sidecar="Envoy (port 15006)"),
            n2=out(2, MUTE, elsewhere=ALL_OPEN, sidecar="Envoy (port 15001)"),
        ),
        "intercepted",
        subject="n2",
        sure=Confidence.LIKELY,
    ),
    row(
        "it accepts and says nothing, and others got in: a proxy, or no time",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, MUTE)),
        "intercepted",
        subject="n4",
        sure=Confidence.POSSIBLE,
        says=("had no time",),
    ),
    row(
        "it accepts and says nothing, while strangers crowd the host",
        here(hosting(*ALL[:3], strangers=(Stranger("10.0.0.99", "crowd", 900),)), n4=out(4, MUTE)),
        "not-a-meeting",
    ),
    row(
        "all ports of the host are open from here",
        {"n2": out(2, MUTE, elsewhere=ALL_OPEN)},
        "intercepted",
        subject="n2",
        sure=Confidence.LIKELY,
        says=("port 9 open",),
    ),
    row(
        "only some of its ports are open: a program that is there",
        {"n2": out(2, MUTE, elsewhere=(*ALL_OPEN[:2], Probe("10.0.0.1", 29501, "ECONNREFUSED")))},
        "not-a-meeting",
    ),
    row(
        "what it sends is lost",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, rung(answer="ours", unacked=239))),
        "data-lost",
        subject="n4->n1 · port 29500",
        sure=Confidence.LIKELY,
        says=("239 bytes unacknowledged",),
    ),
    row(
        "what is sent to it is lost",
        here(hosting(*ALL[:3], strangers=(Stranger("10.0.0.4", "silent", 3),)), n4=out(4, MUTE)),
        "data-lost",
        subject="n1->n4 · port 29500",
        sure=Confidence.LIKELY,
        says=("n1 accepted the connection",),
    ),
    row(
        "variables of a torchrun that is not there",
        {"n2": out(2, ladder=(), agent=True, elsewhere=(NO_STORE,))},
        "agent-store-missing",
        subject="n2",
        sure=Confidence.CERTAIN,
        says=("port 29500 refused",),
    ),
    row(
        "the same on rank 0's node, to which nobody can come",
        here(hosting(*ALL[:1], agent=True, elsewhere=(NO_STORE,))),
        "agent-store-missing",
        subject="n1",
        sure=Confidence.CERTAIN,
        says=("port 29500 refused",),
    ),
    row(
        "torchrun's store is there, and nothing is announced in it",
        asks_store(StoreStage.ANNOUNCEMENT),
        "meeting-unannounced",
        subject="n2",
        status=Status.MISSING,
        says=("the agent of rank 0 has written nothing there",),
    ),
    row(
        "torch was not imported in time to ask torchrun's store",
        asks_store(StoreStage.IMPORT),
        "meeting-unannounced",
        subject="n2",
        status=Status.UNDECIDED,
        sure=Confidence.CERTAIN,
        says=("torch was not imported",),
    ),
    row(
        "what holds torchrun's port is silent",
        asks_store(StoreStage.CONNECTION),
        "handshake-incomplete",
        says=("torchrun's store does not answer there",),
    ),
    row(
        "no time to look the name up",
        {"n2": out(2, ladder=(), ips=())},
        "handshake-incomplete",
        status=Status.UNDECIDED,
        says=("'n1': not resolved yet",),
    ),
    row(
        "its own filter drops the answers, which come in by another interface",
        {
            "n2": out(
                2,
                DROPPED,
                elsewhere=tuple(Probe("10.0.0.1", p, "ETIMEDOUT") for p in (22, 9, 29501)),
                discarded=6,
            )
        },
        "answers-filtered",
        subject="n2",
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("n2 dropped 6 packets for its reverse path filter while it tried 3 ports",),
    ),
    row(
        "a name of /etc/hosts that may be wrong",
        {"n2": out(2, REFUSED, hosts_line="/etc/hosts line 3")},
        "refused",
        says=("n1 is 10.0.0.1 here, by /etc/hosts line 3",),
    ),
    row(
        "a name that a search domain leads elsewhere",
        {"n2": out(2, REFUSED, searched="apps.corp.example")},
        "refused",
        says=("n1 is 10.0.0.1 here, by the search domain apps.corp.example of /etc/resolv.conf",),
    ),
    row(
        "a search domain that answers for any name",
        {"n2": out(2, REFUSED, searched="corp.example", wildcard=True)},
        "search-domain",
        subject="n2",
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("n1.corp.example is 10.0.0.1, as any name below corp.example",),
    ),
    row(
        "silence at an address outside, by a search domain that is not this node's own",
        {"n2": out(2, DROPPED, searched="corp.example")},
        "search-domain",
        subject="n2",
        sure=Confidence.POSSIBLE,
        blame=Blame.NODE,
        says=("nobody answers there, and rank 0 runs on that machine",),
    ),
    row(
        "silence at an address outside, by the search domain of this node's own name",
        {"n2": out(2, DROPPED, searched="corp.example", domain_own=True)},
        "dropped",
    ),
    row(
        "silence of a pod, whose names are all completed by a search domain",
        {"n2": out(2, DROPPED, searched="default.svc.cluster.local", kubernetes=True)},
        "dropped",
    ),
    row(
        "silence of a neighbour whose name a search domain completes",
        {"n2": out(2, DROPPED, searched="corp.example", near=("10.0.0.1",))},
        "dropped",
    ),
    row(
        "a NAT rule of this node, and nobody answers where it leads",
        {"n2": out(2, DROPPED, rewritten={"10.0.0.1": "10.0.0.44:29500"})},
        "address-translated",
        subject="n2",
        sure=Confidence.POSSIBLE,
        blame=Blame.NODE,
        says=("a NAT rule of this node sends it to 10.0.0.44:29500", "the rule is right, and"),
    ),
    row(
        "a NAT rule of this node, and who is there refuses: rank 0 may not have been started",
        {"n2": out(2, REFUSED, rewritten={"10.0.0.1": "10.0.0.44:29500"})},
        "refused",
        says=("a NAT rule of this node sends it to 10.0.0.44:29500", "is stale: it leads to a"),
    ),
    row(
        "a NAT rule of one node leads past rank 0's node",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=out(4, REFUSED, rewritten={"10.0.0.1": "10.0.0.44:29500"}),
        ),
        "address-translated",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("a NAT rule of this node sends it to 10.0.0.44:29500", "2 other nodes got in"),
    ),
    row(
        "a NAT rule that leads to rank 0's node accuses nobody",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=out(4, REFUSED, rewritten={"10.0.0.1": "10.0.0.1:29501"}),
        ),
        "refused-here",
    ),
    row(
        "silence, and SYNs that ask for ECN",
        {"n2": out(2, DROPPED, ecn=True)},
        "dropped",
        says=("a firewall drops SYNs that ask for ECN", "net.ipv4.tcp_ecn_fallback=0"),
    ),
    row(
        "silence of one port alone is not ECN's",
        {"n2": out(2, DROPPED, elsewhere=MASTER_UP, ecn=True)},
        "dropped",
    ),
    row(
        "no route from one node",
        here(
            three(),
            n2=guest(2),
            n3=guest(3),
            n4=out(4, rung("EINVAL"), routes={"10.0.0.1": "EINVAL"}),
        ),
        "no-route",
        subject="n4",
        about=("n4",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("this node's routing: EINVAL",),
    ),
    row(
        "the name leads one node elsewhere",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, BAD)),
        "address-elsewhere",
        subject="n4",
        about=("n4",),
        blame=Blame.NODE,
        says=("10.0.0.99:29500 refused", "the meeting is at 10.0.0.1"),
    ),
    row(
        "one does not resolve the name",
        here(three(), n2=guest(2), n3=guest(3), n4=out(4, lookup="EAI_NONAME", ladder=(), ips=())),
        "name-unknown",
        subject="n4",
        about=("n4",),
    ),
    row(
        "its own firewall rejects it",
        {"n2": out(2, icmp_says("10.0.0.2"), addresses=("10.0.0.2",))},
        "prohibited",
        subject="n2",
        about=("n2",),
        sure=Confidence.LIKELY,
        blame=Blame.NODE,
        says=("refused after 0.3 ms, by ICMP 'port unreachable' from 10.0.0.2",),
    ),
    row(
        "the host's firewall rejects one of two",
        {"n2": out(2, icmp_says("10.0.0.1"))},
        "prohibited",
        about=("", "n2"),
        sure=Confidence.LIKELY,
        says=("a firewall in front of it that rejects in its name",),
    ),
    row(
        "one node's own firewall, and the host's for another",
        here(
            hosting(*ALL[:2]),
            n2=guest(2),
            n3=out(3, icmp_says("10.0.0.3"), addresses=("10.0.0.3",)),
            n4=out(4, icmp_says("10.0.0.1", "prohibited", "EHOSTUNREACH")),
        ),
        "prohibited",
        about=("n1", "n3", "n4"),
    ),
    row(
        "a Service whose pods are not ready",
        {"n2": out(2, icmp_says("10.0.0.254"), kubernetes=True)},
        "prohibited",
        sure=Confidence.POSSIBLE,
        says=("a Service without a ready pod: kube-proxy rejects for it",),
    ),
    row(
        "two routers send its packets to each other",
        here(
            hosting(*ALL[:2]),
            n2=guest(2),
            n3=out(3, icmp_says("10.0.0.254", "expired", "EHOSTUNREACH"), ttl=64),
        ),
        "ttl-exceeded",
        about=("n3", ""),
        sure=Confidence.LIKELY,
        blame=Blame.NETWORK,
        says=("by ICMP 'time to live exceeded' from 10.0.0.254",),
    ),
    row(
        "its packets live for one hop",
        {"n2": out(2, icmp_says("10.0.0.254", "expired", "EHOSTUNREACH"), ttl=1)},
        "ttl-exceeded",
        subject="n2",
        about=("n2",),
        sure=Confidence.CERTAIN,
        blame=Blame.NODE,
        says=("net.ipv4.ip_default_ttl=1 on n2",),
    ),
    row(
        "a table of an ip rule has a router that is gone",
        here(
            hosting(*ALL[:2]),
            n2=guest(2),
            n3=out(
                3,
                DEAD,
                elsewhere=MASTER_DOWN,
                ways={"10.0.0.1": OutgoingWay("eth0", "eth0", 0, table=200, gateway="10.0.0.250")},
            ),
        ),
        "route-diverted",
        subject="n3 · eth0",
        about=("n3", ""),
        sure=Confidence.LIKELY,
        says=("n3 sends to 10.0.0.1 by the router 10.0.0.250 (an ip rule leads to table 200)",),
    ),
    row(
        "one absent, another not in: each its own finding",
        here(hosting(*ALL[:2]), n2=guest(2), n3=out(3, PROHIBITED, elsewhere=MASTER_UP)),
        "prohibited",
        subject="n3",
        about=("n3", ""),
    ),
    # in, but torch would not be
    row(
        "IPv6 first and silent from everywhere",
        here(hosting(*ALL), **{f"n{n}": guest(n, V6_DROPPED, IN) for n in (2, 3, 4)}),
        "address-silent",
        subject="n1 · MASTER_ADDR",
        sure=Confidence.CERTAIN,
        blame=Blame.NETWORK,
        says=("[fd00::1]:29500 no answer in 4.0 s (1 try)", "only then 10.0.0.1:29500 reached"),
    ),
    row(
        "IPv6 silent from one node only",
        here(
            hosting(*ALL),
            n2=guest(2, V6_DROPPED, IN),
            **{f"n{n}": guest(n, rung(answer="ours", ip="fd00::1")) for n in (3, 4)},
        ),
        "address-silent",
        subject="n2",
        about=("n2",),
        sure=Confidence.LIKELY,
    ),
    row(
        "IPv6 silent between two",
        here(hosting(came(1, 4), came(2, 4), size=4), n2=guest(2, V6_DROPPED, IN)),
        "address-silent",
        subject="n2->n1",
        topology=nodes(1, 2, size=4),
    ),
    row(
        "a dead address first: torch goes on after 3 s",
        here(
            hosting(*ALL),
            **{
                f"n{n}": guest(n, rung("EHOSTUNREACH", ip="10.0.0.9", seconds=3.06), IN)
                for n in (2, 3, 4)
            },
        ),
        "address-silent",
        status=Status.WARN,
    ),
    row(
        "another machine answers at the first address",
        here(hosting(*ALL), n2=guest(2, rung(answer="silent", ip="10.0.0.9"), IN)),
        "address-silent",
    ),
    row(
        "by itself: a router says that there is no way",
        {"n2": out(2, rung("ENETUNREACH"), routes={"10.0.0.1": ""}, elsewhere=MASTER_UP)},
        "prohibited",
        topology=alone(2),
    ),
)

ALL_CASES: tuple[Row, ...] = (
    *HEALTHY,
    *ABSENT_RANKS,
    *ARRIVALS,
    *ATTEMPTS,
    *DISCONNECTED,
    *LEADER_ADDRESS,
    *NOT_ADMITTED,
)


def findings_of(case: Row) -> list[Finding]:
    """What the case is about first, then all that was found beside it."""
    return sorted(judged(rdzv_reach, case), key=lambda f: f.code != case.code)


def assert_says_who_and_how_sure(case: Row) -> None:
    finding = findings_of(case)[0]
    for words in case.says:
        assert words in " · ".join((finding.saw, *finding.alternatives))
    if case.sure is not None:
        assert finding.confidence is case.sure, finding.saw
    if case.blame is not None:
        assert finding.blame is case.blame
    if finding.confidence is Confidence.POSSIBLE:
        assert finding.alternatives


def assert_accuses_nobody_else(case: Row) -> None:
    accused = {s.node for f in findings_of(case) for s in f.subjects}
    assert accused <= set(case.about)
