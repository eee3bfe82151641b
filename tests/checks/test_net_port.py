"""net.port: what holds MASTER_PORT is named, what doesn't matter is silent."""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import net_port
from preflight.checks.net_port import MasterPort
from preflight.domains.net import meeting_port
from preflight.domains.net.port_owners import ESTABLISHED, LISTEN, Holder
from preflight.domains.rendezvous.torchrun_port import TorchrunPort
from preflight.host import Host
from preflight.model import CannotObserve, Cause, Fact, Missing, Node, Status, Topology

conforms(net_port)

FREE = MasterPort(29500, agent=False, bind=0, holders=(), low=32768, high=60999)
RUN = Holder(LISTEN, "[::]:29500", "ann", True, 77, "python train.py", 260.0)
SERVICE = Holder(LISTEN, "0.0.0.0:29500", "root", False, 9, "nginx", 1e5)
UNSEEN = Holder(LISTEN, "0.0.0.0:29500", "uid 501", False)
OUTGOING = Holder(ESTABLISHED, "10.0.0.7:29500", "ann", True, 88, "python download.py", 9.0)
ACCEPTED = Holder(ESTABLISHED, "10.0.0.7:29500", "ann", True, 77, "python train.py", 260.0)


def but(**changes: object) -> MasterPort:
    return dataclasses.replace(FREE, **changes)  # type: ignore[arg-type]


def held(*holders: Holder, bind: int | None = errno.EADDRINUSE) -> MasterPort:
    return but(bind=bind, holders=holders)


def of_torchrun(
    holder: Holder | None, older: bool | None = True, run: str = "", joins: str | None = None
) -> MasterPort:
    """The port of a torchrun of one node that is to come."""
    bind = errno.EADDRINUSE if holder else 0
    holders = (holder,) if holder else ()
    own = TorchrunPort(29500, older, run)
    return but(bind=bind, holders=holders, torchrun=own, joins=joins)


def says(value: str, source: str, **changes: object) -> Topology:
    return topology(facts={"master_port": Fact(value, source)}, **changes)


ELSEWHERE = topology(8, nodes=(Node("n1", (4, 5, 6, 7)),))
SEVERAL = topology(8, nodes=(Node("n1", (0, 1, 2, 3)), Node("n2", (4, 5, 6, 7))))
OTHER_NODE = but(bind=None)
CHOSEN = says("45093", "a free port")

CASES = (
    Case("free", FREE),
    Case("not known", but(port=0, bind=None)),
    Case("torchrun's agent holds it, inside the range", but(port=45093, agent=True, bind=None)),
    Case(
        "torchrun's variables, and no torchrun",
        but(agent=True, bind=None, unserved=True),
        "agent-store-missing",
        Status.FAIL,
        subject="n1 · MASTER_PORT",
    ),
    Case("a free port of ours", but(port=45093), topology=says("45093", "a free port")),
    Case("not rank 0's node", OTHER_NODE, topology=ELSEWHERE),
    Case("not rank 0's node, inside the range", but(port=40000, bind=None), topology=ELSEWHERE),
    Case("no range to be read", but(low=0, high=0)),
    Case("a reserved port", but(port=40000, kept=True)),
    Case("no network stack at all", but(bind=errno.EAFNOSUPPORT)),
    Case("a tracking table in use", but(tracked=200_000, tracked_most=262_144)),
    Case(
        "a tracking table without room",
        but(tracked=262_100, tracked_most=262_144),
        "conntrack-full",
        Status.WARN,
        subject="n1",
    ),
    Case(
        "a tracking table that was full",
        but(tracked=900, tracked_most=262_144, dropped=3, dropped_ago=120.0),
        "conntrack-full",
        Status.WARN,
        subject="n1",
    ),
    Case(
        "idle connections are forgotten",
        {"n1": but(tracked=9, idle=60), "n2": but(tracked=9, idle=86_400)},
        "conntrack-idle",
        Status.WARN,
        topology=SEVERAL,
        subject="n1",
    ),
    Case(
        "nothing is tracked, or for a day",
        {"n1": but(tracked=0, idle=0), "n2": but(tracked=9, idle=86_400)},
        topology=SEVERAL,
    ),
    Case("on one node they are its own", but(tracked=9, idle=60)),
    Case(
        "a listen queue of 4",
        but(queue=4),
        "listen-queue-short",
        Status.WARN,
        topology=SEVERAL,
        subject="n1",
    ),
    Case("as long as the job has ranks", but(queue=8)),
    Case("of older kernels", but(queue=128), topology=topology(512)),
    Case("shorter than that", but(queue=127), "listen-queue-short", topology=topology(512)),
    Case("not where rank 0 is", but(bind=None, queue=4), topology=ELSEWHERE),
    Case("never looked", Missing(Cause.CANNOT_OBSERVE)),
    Case(
        "a run of my own",
        held(RUN, ACCEPTED),
        "port-leftover",
        Status.FAIL,
        subject="n1 · MASTER_PORT · port 29500",
    ),
    Case(
        "an agent of this run, which came before that of rank 0",
        but(bind=errno.EADDRINUSE, holders=(RUN,), meeting=True),
    ),
    Case("a service", held(SERVICE), "port-held", Status.FAIL),
    Case("my own, but no rank", held(dataclasses.replace(RUN, name="nc")), "port-held"),
    Case("somebody unseen", held(UNSEEN), "port-held", Status.FAIL),
    Case("nothing to be seen", held(), "port-held", Status.FAIL),
    Case("a connection", held(OUTGOING), "port-outgoing", Status.FAIL),
    Case("by a tree's tables alone", held(SERVICE, bind=None), "port-held", Status.FAIL),
    Case("80 as a user", but(port=80, bind=errno.EACCES), "port-privileged", Status.FAIL),
    Case(
        "70000",
        but(port=0, bind=None),
        "port-invalid",
        Status.FAIL,
        topology=says("70000", "not a port"),
        subject="n1 · MASTER_PORT",
    ),
    Case("inside the range", but(port=40000), "port-ephemeral", Status.WARN),
    Case(
        "a port that Ray has chosen",
        but(port=40000),
        topology=dataclasses.replace(topology(), launcher="Ray Train"),
    ),
    Case("its first port", but(port=32768), "port-ephemeral"),
    Case("torchrun's default, free", of_torchrun(None)),
    Case("an older torchrun's default", of_torchrun(RUN, older=True), "port-leftover", Status.FAIL),
    Case(
        "the default of a torchrun of any age",
        of_torchrun(RUN, older=None),
        "port-leftover",
        Status.WARN,
        topology=CHOSEN,
    ),
    Case(
        "which somebody's connection has",
        of_torchrun(OUTGOING, older=None),
        "port-outgoing",
        Status.WARN,
        topology=CHOSEN,
    ),
    Case(
        "an endpoint where something else listens",
        of_torchrun(RUN, run="7"),
        "port-leftover",
        Status.FAIL,
        topology=CHOSEN,
    ),
    Case(
        "an endpoint with the store of a run of the same name",
        of_torchrun(RUN, run="7", joins="7"),
        "port-leftover",
        Status.FAIL,
        topology=CHOSEN,
    ),
    Case(
        "an endpoint with the store of another run",
        of_torchrun(RUN, run="7", joins="8"),
        "store-shared",
        Status.WARN,
        topology=CHOSEN,
    ),
    Case(
        "an endpoint that is held by somebody unseen, for a run that has a name",
        of_torchrun(UNSEEN, run="7"),
        "port-held",
        Status.WARN,
        topology=CHOSEN,
    ),
    Case(
        "or has none",
        of_torchrun(UNSEEN, run="none"),
        "port-held",
        Status.FAIL,
        topology=CHOSEN,
    ),
    Case("100 ports for 4 ranks", but(low=50000, high=50099), "ports-few", Status.WARN),
    Case("all but 64 reserved", but(reserved=28168), "ports-few", Status.WARN),
    Case("two ports for 4 ranks", but(low=50000, high=50001), "ports-few", Status.FAIL),
    Case("all are reserved", but(reserved=28232, used_up=True), "ports-few", Status.FAIL),
    Case("none is free", but(used_up=True), "ports-used-up", Status.FAIL),
    Case(
        "none of a few is free",
        but(low=40000, high=40007, used_up=True),
        "ports-used-up",
        Status.FAIL,
    ),
    Case("NCCL's example is enough for 8", but(low=50000, high=51000), topology=topology(8)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(net_port, case)


def test_the_finding_names_the_process() -> None:
    finding = judged(net_port, Case("", held(RUN)))[0]
    assert finding.saw == (
        "pid 77 'python train.py' of ann listens on [::]:29500 · started 4 min 20 s ago"
    )
    assert finding.fields["pid"] == "77"
    unseen = judged(net_port, Case("", held(UNSEEN)))[0]
    assert "a process of uid 501 that can't be seen from here" in unseen.saw


@pytest.mark.parametrize(
    ("source", "own", "option", "now"),
    [
        ("env MASTER_PORT", None, "MASTER_PORT", "export MASTER_PORT=29600"),
        ("torch's default", None, "MASTER_PORT", "export MASTER_PORT=29600"),
        ("env PET_MASTER_PORT", None, "PET_MASTER_PORT", "export PET_MASTER_PORT=29600"),
        ("torchrun --master_port", None, "--master_port", ""),
        ("a free port", TorchrunPort(29500), "PET_MASTER_PORT", "export PET_MASTER_PORT=29600"),
        ("a free port", TorchrunPort(29500, run="7"), "--rdzv-endpoint", ""),
    ],
)
def test_another_port_is_said_where_this_one_is(
    source: str, own: TorchrunPort | None, option: str, now: str
) -> None:
    """An option that was typed counts before every variable, so that no command can be pasted."""
    seen = dataclasses.replace(held(SERVICE), torchrun=own)
    finding = judged(net_port, Case("", seen, topology=says("29500", source)))[0]
    advice = net_port.FINDINGS[finding.code].filled(finding.fields)
    assert advice.now.partition("   ")[0] == now
    assert f"({option})" in advice.text


def test_a_value_that_is_no_port_is_shown_as_it_is() -> None:
    case = Case("", but(port=0, bind=None), topology=says("'29500'\r", "not a port"))
    assert judged(net_port, case)[0].saw == "MASTER_PORT=\"'29500'\\r\""


def look(port: int, environ: dict[str, str] | None = None) -> MasterPort:
    seen = net_port.observe(Host(environ=environ or {}), context(master_port=port))
    round_trips(seen)
    return seen


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_observe_finds_a_free_port(server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    seen = look(port)
    assert (seen.bind, seen.holders) == (0, ())
    assert seen.low < seen.high


def test_observe_finds_this_process(server: socket.socket) -> None:
    seen = look(server.getsockname()[1])
    assert seen.bind == errno.EADDRINUSE
    assert (seen.holders[0].pid, seen.holders[0].state) == (os.getpid(), LISTEN)
    assert judged(net_port, Case("", seen))[0].status is Status.FAIL


@pytest.mark.parametrize("step", ["", "7"])
def test_observe_knows_the_meeting_of_its_own_run(server: socket.socket, step: str) -> None:
    environ = {"SLURM_STEP_ID": step}
    port = server.getsockname()[1]
    sign = meeting_port.sign(context().topology, environ)
    assert sign is not None
    with sign:
        assert meeting_port.sign(context().topology, environ) is None, "one of them says so"
        seen = look(port, environ)
        assert (seen.bind, seen.meeting) == (errno.EADDRINUSE, True)
        assert {f.code for f in judged(net_port, Case("", seen))} <= {"port-ephemeral"}
        assert words(seen).startswith(f"port {port} held for the meeting")
        assert not look(port, {"SLURM_STEP_ID": "8"}).meeting, "another start of the job"
    assert not look(port, environ).meeting


def words(seen: MasterPort) -> str:
    return net_port.measured(world("net.port", seen)).text


def test_observe_finds_an_outgoing_connection(server: socket.socket) -> None:
    with closing(socket.create_connection(server.getsockname())) as client:
        seen = look(client.getsockname()[1])
    assert seen.bind == errno.EADDRINUSE
    assert seen.holders[0].pid == os.getpid()
    assert judged(net_port, Case("", seen))[0].code == "port-outgoing"


def test_time_wait_hinders_nobody(server: socket.socket) -> None:
    with closing(socket.create_connection(server.getsockname())) as client:
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first stays behind in TIME_WAIT
        client.recv(1)
    port = server.getsockname()[1]
    server.close()
    assert look(port).bind == 0


def test_torchruns_agent_is_left_alone(server: socket.socket) -> None:
    seen = look(server.getsockname()[1], {"TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert (seen.agent, seen.bind, seen.holders) == (True, None, ())
    assert judged(net_port, Case("", seen)) == []
    assert not seen.unserved


def test_a_torchrun_that_is_not_there_is_missed(server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    seen = look(port, {"TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert seen.unserved
    assert [f.code for f in judged(net_port, Case("", seen))] == ["agent-store-missing"]


def test_only_the_node_of_rank_0_touches_the_port(server: socket.socket) -> None:
    ctx = context(topology=ELSEWHERE, master_port=server.getsockname()[1])
    assert net_port.observe(Host(environ={}), ctx).bind is None


def test_observe_reads_the_range_of_a_tree(tmp_path: Path) -> None:
    sysctl = tmp_path / "proc/sys/net/ipv4"
    sysctl.mkdir(parents=True)
    (sysctl / "ip_local_port_range").write_text("29000\t30000\n")
    (sysctl / "ip_local_reserved_ports").write_text("80,29500-29509,29990-31000,x\n")
    net = tmp_path / "proc/net"
    net.mkdir()
    (net / "tcp").write_text("head\n")

    seen = net_port.observe(Host(str(tmp_path), {}), context(master_port=29500))

    assert (seen.low, seen.high, seen.reserved, seen.kept) == (29000, 30000, 21, True)
    assert (seen.bind, seen.holders) == (None, ())


def test_cannot_tell_without_tables(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        net_port.observe(Host(str(tmp_path), {}), context(master_port=29500))


def test_a_port_that_is_none_is_not_tried(tmp_path: Path) -> None:
    for port in (0, -1, 70000):
        assert net_port.observe(Host(str(tmp_path), {}), context(master_port=port)).port == 0


def test_observe_reads_the_connection_tracking_table(tmp_path: Path) -> None:
    folder = tmp_path / "proc/sys/net/netfilter"
    folder.mkdir(parents=True)
    (folder / "nf_conntrack_count").write_text("65536\n")
    (folder / "nf_conntrack_max").write_text("65536\n")
    (folder / "nf_conntrack_tcp_timeout_established").write_text("60\n")
    (tmp_path / "proc/net").mkdir()
    (tmp_path / "proc/net/tcp").write_text("sl local_address rem_address st\n")
    (tmp_path / "proc/uptime").write_text("9000.00 100.00\n")
    (tmp_path / "dev").mkdir()
    full = "nf_conntrack: nf_conntrack: table full{}, dropping packet"
    lines = (
        f"4,1,1000000,-;{full.format('')}",  # hours ago
        f"4,2,8880000000,-;{full.format(' in netns 4026531840')}",
        f"4,3,8940000000,-;{full.format('')}",
        f"12,4,8990000000,-;{full.format('')}",  # a program's own words
    )
    (tmp_path / "dev/kmsg").write_text("".join(f"{line}\n" for line in lines))
    seen = net_port.observe(Host(str(tmp_path), {}), context())
    assert (seen.tracked, seen.tracked_most, seen.idle) == (65536, 65536, 60)
    assert (seen.dropped, seen.dropped_ago) == (2, 60.0)
    round_trips(seen)
