"""net.rdma: a port that ought to be up is named, what was never meant to be used is not."""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology, world
from support.hcas import LOCAL, ROCE, V1, V2, V4, gpus, hca, write

from preflight.check import conforms
from preflight.checks import net_rdma
from preflight.checks.net_rdma import NONE_BESIDE_GPUS
from preflight.domains.kernel_log import DeviceError
from preflight.domains.net import rdma
from preflight.domains.net.gpudirect import GpuPath
from preflight.domains.net.hca_selection import NodeRdma
from preflight.domains.net.rdma import DOWN, ETHERNET, INIT, Gid, RdmaPort
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Missing,
    Node,
    NotApplicable,
    Status,
    Topology,
)

conforms(net_rdma)

FAIL, WARN = Status.FAIL, Status.WARN
POLLING, DISABLED, LINK_UP = 2, 3, 5
NODES = ("n1", "n2", "n3", "n4")


def port(number: int = 0, **changes: Any) -> RdmaPort:
    """An active port of NDR InfiniBand."""
    plain = RdmaPort(
        f"mlx5_{number}",
        1,
        rate=400.0,
        width="4X NDR",
        kind="MT4129 A",
        card=f"0000:{number:02x}:00",
        driver="mlx5_core",
        pkey=0xFFFF,
        subnet="fe80:0000:0000:0000",
    )
    return dataclasses.replace(plain, **changes)


def limited(**changes: Any) -> tuple[RdmaPort, ...]:
    """Eight ports that are limited members of the default partition."""
    return tuple(port(n, pkey=0x7FFF, **changes) for n in range(8))


def roce(number: int = 0, *gids: tuple[str, str], **changes: Any) -> RdmaPort:
    table = tuple(Gid(i, a, {V1: 1, V2: 2}[v]) for i, (a, v) in enumerate(gids or ROCE) if a)
    plain = {"layer": ETHERNET, "gids": table, "gid_slots": 16, "mtu": 9000, "pkey": None}
    return port(number, **{**plain, **changes})


def down(number: int = 0, **changes: Any) -> RdmaPort:
    return port(number, **{"state": DOWN, "physical": POLLING, "rate": 10.0, **changes})


def init(number: int = 0, **changes: Any) -> RdmaPort:
    return port(number, state=INIT, physical=LINK_UP, **changes)


def rails(count: int = 8, *others: RdmaPort) -> tuple[RdmaPort, ...]:
    """`count` active ports, some of which are replaced by others of the same name."""
    instead = {p.name: p for p in others}
    plain = [instead.pop(p.name, p) for p in map(port, range(count))]
    return (*plain, *instead.values())


def fabric(*ports: RdmaPort, **changes: Any) -> NodeRdma:
    return dataclasses.replace(NodeRdma(ports or rails(), gpus=8, peering=True), **changes)


def ways(word: int | None = 0x1D, iommu: str = "", **changes: Any) -> NodeRdma:
    """Four HCAs, each below a switch with a GPU, whose bridges have this ACS control word."""
    paths = tuple(
        GpuPath(
            f"mlx5_{n}",
            f"0000:{n}9:00.0",
            ((f"0000:{n}7:00.0", word),),
            ((f"0000:{n}7:01.0", word),),
            iommu,
        )
        for n in range(4)
    )
    return fabric(*rails(4), **{"paths": paths, "virtual": False, **changes})


def pcie(number: int, now: float, most: float = 512.0) -> RdmaPort:
    """A port whose card has this much of a PCIe link: 16 lanes of 32 GT/s are 512."""
    return port(number, pcie=now, pcie_max=most)


def job(nodes: int = 2) -> Topology:
    each = tuple(Node(name, (i,)) for i, name in enumerate(NODES[:nodes]))
    return topology(nodes, nodes=each)


def nodes(*fabrics: NodeRdma) -> dict[str, NodeRdma]:
    return dict(zip(NODES, fabrics, strict=False))


GOOD = fabric()
AZURE = fabric(*rails(8), roce(20, kind="MT4118", rate=100.0, gids=()))
SPARE = down(3, card="0000:02:00")
"""The second port of a card whose first is in use."""


def counts(number: int, downed: int = 0, **counted: int) -> RdmaPort:
    """A port with these counters since boot."""
    return port(number, downed=int(downed), counted=rdma.nonzero(counted))


STORAGE = port(8, kind="MT4125 S", rate=200.0)


def several(
    name: str, first: NodeRdma, *rest: Any, subject: str | None = None, **more: Any
) -> Case:
    """Node n1 and a healthy second one on the same kind of fabric."""
    ethernet = all(p.layer == ETHERNET for p in first.ports)
    saw = nodes(first, fabric(*map(roce, range(8))) if ethernet else GOOD)
    code, status = (*rest, None, None)[:2]
    return Case(name, saw, code, status, topology=job(), subject=subject, **more)


DEAD = DeviceError("0000:3b:00.0", "health compromised - reached miss count", True, 1, 60.0)
ONE_DEAD = fabric(*rails(7), port(7, card="0000:3b:00"), dead=(DEAD,))
WEAK = DeviceError("0000:3b:00.0", "insufficient power on the PCIe slot (27 W)", False, 4, 90_000.0)


def weak(*ports: RdmaPort, **changes: Any) -> NodeRdma:
    """Seven HCAs and one below a slot of 27 W."""
    return fabric(*rails(7), *ports, **{"underpowered": (WEAK,), **changes})


TIMEOUT = DeviceError("0000:9a:00.1", "TX timeout of ibp154s0f1", False, 4, 60.0)


def silent(*ports: RdmaPort, **changes: Any) -> NodeRdma:
    """Seven HCAs, and what the kernel logged of a queue of another one."""
    return fabric(*rails(7), *ports, **{"not_sending": (TIMEOUT,), **changes})


SECOND = port(7, card="0000:9a:00", function="1")
ON_WEAK = port(7, card="0000:3b:00", lanes_max=16)
CASES = (
    Case(
        "a slot of 27 W",
        weak(ON_WEAK),
        "slot-power-low",
        WARN,
        subject="n1 · mlx5_7 · port 1",
    ),
    Case(
        "a slot of 27 W, and its lanes are not known",
        weak(replace(ON_WEAK, lanes_max=0)),
        "slot-power-low",
    ),
    Case("HCAs on the board of a DGX Spark", weak(replace(ON_WEAK, lanes_max=4))),
    Case(
        "an old card in a slot of 27 W, which NCCL leaves alone",
        weak(*rails(8)[7:], roce(20, kind="MT4118", rate=100.0, gids=(), card="0000:3b:00")),
    ),
    Case("a slot of 27 W of another card", weak(port(7))),
    Case("a slot of 27 W, and no GPUs", weak(ON_WEAK, gpus=0)),
    Case(
        "a slot of 27 W, without GPUs, of a port of the job's",
        weak(ON_WEAK, gpus=0, ours="mlx5_7"),
        "slot-power-low",
    ),
    Case("a slot of 27 W of a virtual function", weak(replace(ON_WEAK, virtual=True))),
    Case(
        "an HCA whose firmware died, its port Active",
        ONE_DEAD,
        "hca-dead",
        FAIL,
        subject="n1 · mlx5_7 · port 1",
    ),
    Case(
        "an interface that sends nothing, its port Active",
        silent(port(8, card="0000:9a:00", function="0"), SECOND),
        "tx-timeout",
        WARN,
        subject="n1 · mlx5_7 · port 1",
    ),
    Case(
        "a port of which the function is not known",
        silent(replace(SECOND, function="")),
        "tx-timeout",
    ),
    Case(
        "a bond, which is a device of its first function",
        silent(replace(SECOND, device="mlx5_bond_0", function="0")),
        "tx-timeout",
        WARN,
    ),
    Case("the other function of that card", silent(replace(SECOND, function="0"))),
    Case("a TX timeout of yesterday", silent(SECOND, not_sending=(replace(TIMEOUT, age=9e4),))),
    Case("a TX timeout of no port", silent(port(7))),
    Case("a TX timeout, and no GPUs", silent(SECOND, gpus=0)),
    Case(
        "a TX timeout, without GPUs, of a port of the job's",
        silent(SECOND, gpus=0, ours="mlx5_7"),
        "tx-timeout",
    ),
    Case(
        "a TX timeout of an HCA whose firmware died",
        silent(SECOND, dead=(replace(DEAD, bus="0000:9a:00.0"),)),
        "hca-dead",
        FAIL,
    ),
    Case("that of yesterday", replace(ONE_DEAD, dead=(replace(DEAD, age=9e4),))),
    Case(
        "one of eight has other firmware",
        fabric(
            *(port(n, kind="MT4129", firmware="28.39.1002") for n in range(7)),
            port(7, kind="MT4129", firmware="28.36.1010"),
        ),
        "firmware-differs",
        WARN,
        subject="n1 · mlx5_7",
    ),
    Case(
        "cards of two makes have firmware of their own",
        fabric(
            *(port(n, kind="MT4129", firmware="28.39.1002") for n in range(7)),
            port(7, kind="MT4125", firmware="22.36.1010"),
        ),
    ),
    Case(
        "a node that missed the update",
        nodes(
            *(
                fabric(*(port(n, kind="MT4129", firmware=version) for n in range(2)))
                for version in ("28.39.1002", "28.39.1002", "28.36.1010")
            )
        ),
        "firmware-differs",
        WARN,
        topology=job(3),
        subject="n3 · mlx5_0",
    ),
    Case(
        "one of eight may not be opened",
        fabric(*rails(7), port(7, given=False)),
        "device-closed",
        WARN,
        subject="n1 · mlx5_7 · port 1",
    ),
    Case(
        "a container that was given some",
        fabric(*rails(4), *(port(n, given=False) for n in range(4, 8)), inside="kubernetes"),
    ),
    Case("a card of another make that is root's", fabric(*rails(8), replace(STORAGE, given=False))),
    Case("one of no port", replace(GOOD, dead=(DEAD,))),
    Case("eight rails", GOOD),
    several("eight rails on two nodes", GOOD),
    Case("nobody has a GPU", fabric(*rails(8, down(2)), gpus=0)),
    # --- ports that are down ---
    Case(
        "one of eight has lost its cable",
        fabric(*rails(8, down(2, was_up=True))),
        "port-down",
        FAIL,
        subject="n1 · mlx5_2 · port 1",
    ),
    Case(
        "one of eight, a spare that never had a cable",
        fabric(*rails(8, down(2))),
        "port-never-up",
        WARN,
    ),
    several(
        "a spare on one node of two, where the other has no such port",
        fabric(*rails(9, down(8))),
        "port-never-up",
        WARN,
    ),
    Case(
        "two of eight",
        fabric(*rails(8, down(2, was_up=True), down(3, was_up=True))),
        "port-down",
        WARN,
    ),
    Case("a spare that NCCL_IB_HCA leaves out", fabric(*rails(8, down(2)), rule="^mlx5_2")),
    Case(
        "a port that was up, which NCCL_IB_HCA leaves out",
        fabric(*rails(8, down(2, was_up=True)), rule="^mlx5_2"),
        "port-down",
        WARN,
    ),
    Case(
        "a spare that NCCL_IB_HCA takes by its prefix",
        fabric(*rails(8, down(2)), rule="mlx5"),
        "port-never-up",
        WARN,
    ),
    Case("two spares of eight", fabric(*rails(8, down(2), down(3))), "port-never-up", WARN),
    Case("one of four", fabric(*rails(4, down(2, was_up=True))), "port-down", FAIL),
    Case("one of three may be a spare", fabric(*rails(3, down(2)))),
    Case("half of them are not used here", fabric(*rails(4, down(2), down(3)))),
    Case("one of another make", fabric(*rails(8), down(9, kind="MT4125 S"))),
    Case("the second port of a card in use", fabric(*rails(8, SPARE))),
    Case("virtual functions that nobody has", fabric(*rails(8), down(9, virtual=True))),
    Case("Ethernet that was never set up", fabric(*rails(8), roce(9, state=DOWN, kind="x"))),
    Case("NCCL is kept away", fabric(*rails(8, down(2)), off="NCCL_IB_DISABLE=1")),
    Case(
        "no node has it",
        nodes(fabric(*rails(8, down(2))), fabric(*rails(8, down(2)))),
        topology=job(),
    ),
    Case(
        "two nodes, and one has it",
        nodes(fabric(*rails(8, down(2))), GOOD),
        "port-down",
        FAIL,
        topology=job(),
        subject="n1 · mlx5_2 · port 1",
    ),
    Case(
        "most nodes have it",
        nodes(fabric(port(0), down(1)), *[fabric(port(0), port(1))] * 3),
        "port-down",
        FAIL,
        topology=job(4),
        subject="n1 · mlx5_1 · port 1",
    ),
    Case("ours by the config", fabric(port(0), down(1), ours="mlx5_[0-3]"), "port-down", FAIL),
    Case("ours, without a GPU", fabric(down(1), ours="mlx5_1:1", gpus=0), "port-down", FAIL),
    Case("not ours", fabric(port(0), down(4, kind="y"), ours="mlx5_[0-3]")),
    Case("named", fabric(port(0), down(1), rule="=mlx5_0,mlx5_1"), "named-port-down", WARN),
    Case("a prefix names nobody", fabric(port(0), down(1), rule="mlx5")),
    Case(
        "switched off",
        fabric(*rails(8, down(1, physical=DISABLED, was_up=True))),
        "port-down",
        FAIL,
    ),
    Case(
        "switched off from the first",
        fabric(*rails(8, down(1, physical=DISABLED))),
        "port-never-up",
        WARN,
    ),
    Case(
        "a link, but no more",
        fabric(*rails(8, down(1, physical=LINK_UP, was_up=True))),
        "port-down",
        FAIL,
    ),
    Case("nothing says how it is", fabric(port(0), port(1, state=-1, physical=-1))),
    # --- no subnet manager ---
    Case("one is left out by its manager", fabric(*rails(8, init(2))), "port-not-swept", WARN),
    Case("none has", fabric(*map(init, range(8))), "no-subnet-manager", WARN),
    Case(
        "no node has",
        nodes(*[fabric(*map(init, range(8)))] * 2),
        "no-subnet-manager",
        FAIL,
        topology=job(),
    ),
    several(
        "none of this node, and the other has", fabric(*map(init, range(8))), "port-not-swept", FAIL
    ),
    Case("ours is left out", fabric(port(0), init(1), ours="mlx5_1"), "port-not-swept", FAIL),
    Case(
        "a storage port of another make is Active",
        fabric(init(0), STORAGE),
        "no-subnet-manager",
        WARN,
    ),
    # --- rates ---
    Case(
        "slower than on most nodes",
        nodes(fabric(*rails(8, port(3, rate=100.0, width="4X EDR"))), GOOD, GOOD),
        "rate-low",
        FAIL,
        topology=job(3),
        subject="n1 · mlx5_3 · port 1",
    ),
    Case(
        "two of eight came up with half their speed, beside eight GPUs",
        fabric(*rails(8, port(3, rate=200.0), port(6, rate=200.0))),
        "rate-low",
        WARN,
        subject="n1 · mlx5_3 · port 1",
    ),
    Case(
        "all came up with one lane",
        fabric(*(port(n, rate=100.0, width="1X NDR") for n in range(8))),
        "rate-low",
        WARN,
        subject="n1 · mlx5_0 · port 1",
    ),
    Case("two lanes each behind splitter cables", fabric(port(0, rate=200.0, width="2X NDR"))),
    Case("100 Gb/s over one lane of Ethernet", fabric(roce(0, rate=100.0, width="1X NDR"))),
    Case("two more than the GPUs ask for", fabric(*rails(10, port(3, rate=200.0)))),
    Case("half of them are slower", fabric(*rails(8, *(port(n, rate=200.0) for n in range(4))))),
    Case("another make is slower", fabric(*rails(8, port(3, rate=200.0, kind="MT4125 S")))),
    Case(
        "of two nodes the twins in the box tell which one is slower",
        nodes(fabric(*rails(8, port(3, rate=100.0))), GOOD),
        "rate-low",
        WARN,
        topology=job(),
        subject="n1 · mlx5_3 · port 1",
    ),
    Case(
        "100 Gb/s beside 400 of the same card on two nodes",
        nodes(fabric(port(0, rate=100.0)), fabric(port(0))),
        "rate-low",
        WARN,
        topology=job(),
        subject="n1 · mlx5_0 · port 1",
    ),
    Case(
        "slower cards on one of two nodes",
        nodes(fabric(port(0, rate=100.0, kind="MT4119")), fabric(port(0))),
        topology=job(),
    ),
    Case(
        "two nodes whose cards are all behind splitter cables",
        nodes(fabric(port(0, rate=200.0, width="2X NDR")), fabric(port(0, rate=200.0))),
        topology=job(),
    ),
    Case(
        "slower cards",
        nodes(fabric(*rails(8, port(3, rate=100.0, kind="old"))), GOOD, GOOD),
        topology=job(3),
    ),
    Case(
        "faster than on most nodes",
        nodes(fabric(*rails(8, port(3, rate=800.0))), GOOD, GOOD),
        topology=job(3),
    ),
    Case(
        "storage that was named",
        fabric(*rails(8), STORAGE, rule="=" + ",".join(p.device for p in (*rails(8), STORAGE))),
        "slow-port-selected",
        WARN,
        subject="n1 · mlx5_8 · port 1",
    ),
    several("storage that nobody named", fabric(*rails(8), STORAGE)),
    several("storage that is left out", fabric(*rails(8), STORAGE, rule="^mlx5_8")),
    # --- the choice ---
    several(
        "storage that is not ours",
        fabric(*rails(8), STORAGE, ours="mlx5_[0-7]"),
        "port-unlisted",
        WARN,
        subject="n1 · mlx5_8 · port 1",
    ),
    several("only ours are taken", fabric(*rails(8), STORAGE, ours="mlx5_[0-7]", rule="^mlx5_8")),
    several(
        "a name that is InfiniBand elsewhere",
        fabric(*rails(4), roce(4)),
        "layers-mixed",
        FAIL,
        subject="n1 · mlx5_4 · port 1",
    ),
    Case(
        "two kinds of fast ports, alike on both nodes",
        nodes(fabric(*rails(4), roce(4)), fabric(*rails(4), roce(4))),
        "layers-mixed",
        WARN,
        topology=job(),
    ),
    several("two kinds, and one is chosen", fabric(*rails(4), roce(4), rule="=mlx5_0,mlx5_1")),
    several("an Ethernet card for all else", AZURE),
    several(
        "which was named", dataclasses.replace(AZURE, rule="mlx5,mlx5_20"), "layers-mixed", WARN
    ),
    Case(
        "mlx5_1 begins the name of a storage HCA, too",
        fabric(*rails(2), port(10, kind="MT4119", rate=100.0), rule="mlx5_0,mlx5_1", gpus=1),
        "hca-by-prefix",
        WARN,
        subject="n1",
    ),
    Case(
        "an exact list of names",
        fabric(*rails(2), port(10, kind="MT4119", rate=100.0), rule="=mlx5_0,mlx5_1", gpus=1),
    ),
    Case("mlx5_1 begins the name of another rail", fabric(*rails(12), rule="mlx5_1", gpus=1)),
    Case(
        "a prefix that is no name takes all there are",
        fabric(*rails(2), port(10, kind="MT4119", rate=100.0), rule="mlx5", gpus=1),
    ),
    several("a rule for other machines", fabric(rule="ib"), "hca-unmatched", FAIL, subject="n1"),
    several("a port that is none", fabric(rule="=mlx5_0:2"), "hca-unmatched", FAIL),
    Case("one node needs no HCA", fabric(rule="ib")),
    several(
        "a rule for a port without a cable",
        fabric(*rails(2), down(9, kind="z"), rule="mlx5_9:1,ib"),
        "named-port-down",
        FAIL,
    ),
    several(
        "a prefix that leaves only what is down",
        fabric(*rails(2), *(down(90 + i, kind="z") for i in range(2)), rule="mlx5_9"),
        "hca-unmatched",
    ),
    several(
        "EFA, which the rule is not about", fabric(port(driver="efa", layer="Unknown"), rule="ib")
    ),
    several(
        "a pod that was given one of eight",
        fabric(*(port(i, given=i == 3) for i in range(8)), inside="kubernetes"),
    ),
    several("GPUs behind the host", fabric(peering=False), "gpudirect-missing", WARN),
    several("nothing says whether they are", fabric(peering=None)),
    several("GPUs behind EFA", fabric(port(driver="efa", layer="Unknown"), peering=False)),
    # --- addresses ---
    several("RoCE", fabric(*map(roce, range(8)))),
    several(
        "RoCE without an address", fabric(roce(0, (LOCAL, V1), (LOCAL, V2))), "gid-unusable", WARN
    ),
    several("RoCE without any GID", fabric(roce(gids=())), "gid-unusable", FAIL),
    several("another card without any", fabric(roce(0), roce(1, gids=())), "gid-unusable", WARN),
    several("the GIDs can't be looked at", fabric(roce(gids=(), gid_slots=0))),
    several("iWARP has none", fabric(roce(gids=(), iwarp=True))),
    several("an index that is right", fabric(roce(), gid_index=3)),
    several("an index that is empty", fabric(roce(), gid_index=7), "gid-unusable", FAIL),
    several("an index of RoCE v1", fabric(roce(), gid_index=2), "gid-unusable", WARN),
    several("InfiniBand looks at no index", fabric(gid_index=7)),
    several("NCCL searches in a way of its own", fabric(roce(gids=()), searched=False)),
    several("IPv6", fabric(roce(0, (LOCAL, V1), (V4, V2)), ipv6=True), "gid-unusable", WARN),
    several("no partition key", fabric(port(pkey=0)), "pkey-unusable", FAIL),
    several("nor at that index", fabric(port(pkey=0), pkey_index=1), "pkey-unusable", FAIL),
    several("a limited member among full ones", fabric(*rails(8, port(0, pkey=0x7FFF)))),
    Case(
        "limited members only",
        nodes(fabric(port(pkey=0x7FFF)), fabric(port(pkey=0x7FFF))),
        "pkey-unusable",
        FAIL,
        topology=job(),
    ),
    Case(
        "two limited members, and a full one",
        nodes(*[fabric(*limited())] * 2, GOOD),
        "pkey-unusable",
        FAIL,
        topology=job(3),
    ),
    Case(
        "limited members by some of their ports",
        nodes(*[fabric(*rails(8, port(0, pkey=0x7FFF)))] * 2),
        "pkey-unusable",
        WARN,
        topology=job(),
    ),
    several("one limited member, and full ones", fabric(*limited())),
    Case(
        "limited members of the default partition beside a full one's of their own",
        nodes(*[fabric(*limited(full_pkey=(1, 0x8012)))] * 2),
        "pkey-unusable",
        FAIL,
        topology=job(),
    ),
    several("no key is readable", fabric(port(pkey=None))),
    # --- across nodes ---
    several(
        "all ports down, where the other node uses its own",
        fabric(*map(down, range(8))),
        "port-down",
        FAIL,
        subject="n1 · mlx5_0 · port 1",
    ),
    several("all down, and NCCL is kept from them", fabric(*map(down, range(8)), off="NCCL_NET=s")),
    Case(
        "all down on both",
        nodes(fabric(*map(down, range(8))), fabric(*map(down, range(8)))),
        topology=job(),
    ),
    several("all down on a node without GPUs", fabric(*map(down, range(8)), gpus=0)),
    several(
        "one node in another partition",
        fabric(*(port(n, pkey=0x8012) for n in range(8))),
        "partitions-differ",
        FAIL,
        subject="n1",
    ),
    several(
        "NCCL_IB_PKEY, and the nodes' tables differ",
        fabric(*(port(n, pkey=0x8012) for n in range(8)), pkey_index=0),
        "partitions-differ",
        FAIL,
        subject="n1",
    ),
    Case(
        "one of three in another partition",
        nodes(GOOD, GOOD, fabric(*(port(n, pkey=0x8012) for n in range(8)))),
        "partitions-differ",
        FAIL,
        topology=job(3),
        subject="n3",
    ),
    Case(
        "a partition for each rail",
        nodes(*[fabric(*(port(n, pkey=0x8001 + n) for n in range(8)))] * 2),
        topology=job(),
    ),
    several(
        "a node that is cabled to another fabric",
        fabric(*(port(n, subnet="fec0:0000:0000:0001") for n in range(8))),
        "subnets-differ",
        FAIL,
        subject="n1",
    ),
    Case(
        "a subnet for each rail",
        nodes(*[fabric(*(port(n, subnet=f"fec0:0000:0000:000{n}") for n in range(8)))] * 2),
        topology=job(),
    ),
    several("a subnet in common", fabric(*rails(7), port(7, subnet="fec0:0000:0000:0001"))),
    several("subnets that a router joins", fabric(*(port(n, subnet="") for n in range(8)))),
    several("a partition in common", fabric(*rails(7), port(7, pkey=0x8012))),
    several("a limited member of the same", fabric(*rails(7), port(7, pkey=0x7FFF))),
    several("keys that can't be read", fabric(*(port(n, pkey=None) for n in range(8)))),
    Case(
        "RoCE here, InfiniBand there",
        nodes(fabric(*map(roce, range(8))), GOOD),
        "layers-differ",
        FAIL,
        topology=job(),
    ),
    Case(
        "RoCE on one of three",
        nodes(GOOD, fabric(*map(roce, range(8))), GOOD),
        "layers-differ",
        FAIL,
        topology=job(3),
        subject="n2",
    ),
    several("RoCE for storage alone, and no GPU", fabric(roce(), gpus=0)),
    Case(
        "one of two with another MTU",
        nodes(fabric(roce(mtu=1500)), fabric(roce())),
        "mtu-differs",
        WARN,
        topology=job(),
    ),
    Case(
        "one of three with another MTU",
        nodes(fabric(roce()), fabric(roce()), fabric(roce(mtu=1500))),
        "mtu-differs",
        WARN,
        topology=job(3),
        subject="n3",
    ),
    Case(
        "MTUs that are the same for RDMA",
        nodes(fabric(roce(mtu=4200)), fabric(roce(mtu=9000))),
        topology=job(),
    ),
    Case(
        "one HCA has gone",
        nodes(fabric(*rails(7)), GOOD, GOOD),
        "hca-missing",
        WARN,
        topology=job(3),
        subject="n1",
    ),
    Case(
        "another kind of node",
        nodes(fabric(*rails(4), gpus=4), GOOD, GOOD),
        topology=job(3),
    ),
    Case(
        "a node with GPUs and no HCA at all",
        {**nodes(GOOD, GOOD), "n3": Missing(Cause.NOT_APPLICABLE, NONE_BESIDE_GPUS)},
        "hca-missing",
        WARN,
        topology=job(3),
        subject="n3",
    ),
    Case(
        "a node without GPUs needs none",
        {**nodes(GOOD, GOOD), "n3": Missing(Cause.NOT_APPLICABLE, "no RDMA device here")},
        topology=job(3),
    ),
    Case(
        "one node of two has HCAs: either may be the odd one",
        {"n1": GOOD, "n2": Missing(Cause.NOT_APPLICABLE, NONE_BESIDE_GPUS)},
        topology=job(),
    ),
    Case(
        "cards of the ordinary network, of one make on most nodes",
        {
            **nodes(fabric(roce(rate=25.0)), fabric(roce(rate=25.0))),
            "n3": Missing(Cause.NOT_APPLICABLE, NONE_BESIDE_GPUS),
        },
        topology=job(3),
    ),
    # --- counters ---
    Case(
        "a link that went down 14 times since boot",
        fabric(*(port(n, downed=14 if n == 4 else n % 2) for n in range(8))),
        "link-flapped",
        WARN,
        subject="n1 · mlx5_4 · port 1",
    ),
    Case("all went down with the switch", fabric(*(port(n, downed=9) for n in range(8)))),
    Case("a cable that was reseated", fabric(*(port(n, downed=2 * (n == 4)) for n in range(8)))),
    Case("half of them flap", fabric(*(port(n, downed=14 * (n % 2)) for n in range(8)))),
    Case("of two nobody can tell", fabric(*(port(n, downed=14 * n) for n in range(2)))),
    Case(
        "a storage port beside them",
        fabric(*(port(n, downed=0) for n in range(8)), replace(STORAGE, downed=14)),
    ),
    Case(
        "a link that was retrained 37 times since boot",
        fabric(*(counts(n, link_error_recovery=37 * (n == 4)) for n in range(8))),
        "link-flapped",
        WARN,
        subject="n1 · mlx5_4 · port 1",
    ),
    Case(
        "thousands of symbol errors on a link that never went down",
        fabric(*(counts(n, symbol_error=48212 if n == 4 else n) for n in range(8))),
        "errors-counted",
        WARN,
        subject="n1 · mlx5_4 · port 1",
    ),
    Case(
        "thousands of errors in what it received",
        fabric(*(counts(n, port_rcv_errors=12000 * (n == 4)) for n in range(8))),
        "errors-counted",
        WARN,
    ),
    Case(
        "a cable that was pulled leaves a burst of errors",
        fabric(*(counts(n, n == 4, symbol_error=65535 * (n == 4)) for n in range(8))),
    ),
    Case("months of few errors", fabric(*(counts(n, symbol_error=900 * n) for n in range(8)))),
    Case("all have many", fabric(*(counts(n, symbol_error=20000 + n) for n in range(8)))),
    Case(
        "of two with errors nobody can tell",
        fabric(*(counts(n, symbol_error=48212 * n) for n in range(2))),
    ),
    Case("errors", fabric(port(grown={"symbol_error": 40})), "errors-growing", WARN),
    Case("a link that goes down", fabric(port(grown={"link_downed": 1})), "errors-growing", WARN),
    Case(
        "a card with half of its lanes",
        fabric(*(pcie(n, 256.0 if n == 3 else 512.0) for n in range(8))),
        "pcie-downgraded",
        WARN,
        subject="n1 · mlx5_3 · port 1",
    ),
    Case("all cards in narrow slots", fabric(*(pcie(n, 256.0) for n in range(8)))),
    Case(
        "a card that could have no more",
        fabric(*(pcie(n, 512.0) for n in range(7)), pcie(7, 256.0, 256.0)),
    ),
    Case(
        "nothing is known of one card's link",
        fabric(*(pcie(n, 512.0 * (n != 3)) for n in range(8))),
    ),
    Case("one symbol in a while", fabric(port(grown={"symbol_error": 1}))),
    Case(
        "RoCE that loses packets",
        fabric(*map(roce, range(7)), roce(7, grown={"packet_seq_err": 800, "out_of_sequence": 3})),
        "retransmissions",
        WARN,
        subject="n1 · mlx5_7 · port 1",
    ),
    Case("a few lost packets", fabric(roce(grown={"packet_seq_err": 5, "out_of_sequence": 4}))),
    Case(
        "a storage HCA that NCCL does not take loses packets",
        fabric(*rails(8), roce(9, kind="MT4125", rate=100.0, grown={"packet_seq_err": 800})),
    ),
    Case(
        "an active port whose link is being retrained",
        fabric(*rails(8, port(3, physical=6))),
        "errors-growing",
        WARN,
        subject="n1 · mlx5_3 · port 1",
    ),
    Case("errors of a port that is down", fabric(down(grown={"port_rcv_errors": 99}))),
    Case("ACS between HCAs and GPUs", ways(), "gpudirect-acs", WARN, topology=job()),
    Case(
        "an IOMMU translates for HCAs",
        ways(0, "DMA-FQ"),
        "gpudirect-iommu",
        WARN,
        topology=job(),
        subject="n1 · mlx5_0 · port 1",
    ),
    Case(
        "ACS with an IOMMU that passes through",
        ways(iommu="identity"),
        "gpudirect-acs",
        WARN,
        topology=job(),
    ),
    Case("ACS that redirects nothing", ways(0x11), topology=job()),
    Case("ACS that may not be read", ways(None), topology=job()),
    Case("ACS for address translation services", ways(0x5D, "DMA"), topology=job()),
    Case("ACS in a virtual machine", ways(virtual=True), topology=job()),
    Case("ACS, and nothing tells whether that is one", ways(virtual=None), topology=job()),
    Case("ACS, and no access to GPU memory is known", ways(peering=None), topology=job()),
    Case(
        "ACS, and no access to GPU memory",
        ways(peering=False),
        "gpudirect-missing",
        WARN,
        topology=job(),
    ),
    Case("ACS, and NCCL is kept from GPUDirect", ways(gdr_level="LOC"), topology=job()),
    Case("ACS, and NCCL is kept from RDMA", ways(off="NCCL_IB_DISABLE=1"), topology=job()),
    Case("ACS and a job of one node", ways(), topology=job(1)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(net_rdma, case)


def test_a_spare_beside_one_without_a_manager_drains_nothing() -> None:
    found = judged(net_rdma, Case("", fabric(*rails(16, down(2), init(3)))))
    assert {f.code: f.status for f in found} == {"port-never-up": WARN, "port-not-swept": WARN}


def test_both_ports_of_a_card_in_a_weak_slot_are_one_finding() -> None:
    ports = (ON_WEAK, replace(ON_WEAK, device="mlx5_8"))
    second = replace(WEAK, bus="0000:3b:00.1")
    (finding,) = judged(net_rdma, Case("", weak(*ports, underpowered=(WEAK, second))))
    said = "mlx5_core 0000:3b:00.0: insufficient power on the PCIe slot (27 W)"
    assert finding.saw == f"mlx5_7:1 {said}; mlx5_8:1 {said}"
    assert (finding.blame, finding.confidence) == (Blame.NODE, Confidence.LIKELY)


def test_what_the_kernel_logged_of_an_hca(tmp_path: Path) -> None:
    hca(tmp_path)
    says = "mlx5_core 0000:18:00.0: "
    write(tmp_path / "proc", {"uptime": "9000.00 1"})
    lines = (
        f"4,1,20000000,-;{says}mlx5_pcie_event:299:(pid 7): "
        "Detected insufficient power on the PCIe slot (27W).",
        f"3,2,8990000000,-;{says}poll_health:834:(pid 0): Fatal error 1 detected",
    )
    write(tmp_path / "dev", {"kmsg": "\n".join(lines)})
    seen = net_rdma.observe(Host(str(tmp_path), {}), context())
    assert [(one.words, one.age) for one in seen.underpowered] == [
        ("insufficient power on the PCIe slot (27 W)", 8980.0)
    ]
    assert [(one.words, one.age) for one in seen.dead] == [("Fatal error 1 detected", 10.0)]
    round_trips(seen)


def test_an_interface_that_sends_nothing_is_named(tmp_path: Path) -> None:
    hca(tmp_path)
    write(tmp_path / "sys/devices/pci0000:00/0000:18:00.0/net/eth9", {"mtu": "4200"})
    write(tmp_path / "proc", {"uptime": "9000.00 1"})
    old = "6,1,8990000000,-;NETDEV WATCHDOG: {} (mlx5_core): transmit queue 3 timed out\n"
    write(tmp_path / "dev", {"kmsg": old.format("eth9") + old.format("eth7")})
    seen = net_rdma.observe(Host(str(tmp_path), {}), context())
    assert seen.not_sending == (DeviceError("0000:18:00.0", "TX timeout of eth9", False, 1, 10.0),)
    assert seen.ports[0].function == "0"
    round_trips(seen)
    (finding,) = judged(net_rdma, Case("", replace(seen, ours="mlx5_0")))
    assert finding.saw == "mlx5_0:1 TX timeout of eth9 (0000:18:00.0) 10.0 s ago"
    commands = net_rdma.FINDINGS[finding.code].filled(finding.fields).commands
    assert "/sys/class/infiniband/mlx5_0/device" in commands[1].run


def test_eight_dead_ports_are_one_finding() -> None:
    dead = fabric(*map(down, range(8)), ours="mlx5_*")
    (finding,) = judged(net_rdma, Case("", dead))
    assert len(finding.subjects) == 8
    assert finding.saw.endswith("and 4 more")
    assert finding.saw.startswith("mlx5_0:1 state Down, physical Polling; mlx5_1:1 ")
    assert finding.fields["device"] == "mlx5_0"


@pytest.mark.parametrize(
    ("seen", "blame", "confidence"),
    [
        (fabric(*rails(8, down(2, was_up=True))), Blame.NODE, Confidence.LIKELY),
        (fabric(port(0), down(1), ours="mlx5_1"), Blame.NODE, Confidence.CERTAIN),
        # a script for another cluster takes no node away
        (fabric(port(0), down(1), rule="=mlx5_0,mlx5_1"), Blame.UNKNOWN, Confidence.LIKELY),
        (fabric(port(0), init(1), ours="mlx5_1"), Blame.NETWORK, Confidence.CERTAIN),
    ],
)
def test_whose_fault_a_dead_port_is(seen: NodeRdma, blame: Blame, confidence: Confidence) -> None:
    (finding,) = judged(net_rdma, Case("", seen))
    assert (finding.blame, finding.confidence) == (blame, confidence)


def test_a_container_with_a_network_of_its_own_is_no_fault_of_its_node() -> None:
    for inside, blame in (("", Blame.NODE), ("kubernetes", Blame.JOB)):
        seen = fabric(roce(gids=()), inside=inside)
        case = Case("", nodes(seen, fabric(roce())), topology=job())
        assert [f.blame for f in judged(net_rdma, case)] == [blame]


def test_of_two_mtus_neither_is_to_blame() -> None:
    case = Case("", nodes(fabric(roce(mtu=1500)), fabric(roce())), topology=job())
    (finding,) = judged(net_rdma, case)
    assert (finding.blame, len(finding.subjects)) == (Blame.UNKNOWN, 2)
    assert finding.saw == "RDMA MTU 1024 on n1 · RDMA MTU 4096 on n2"


def test_measured() -> None:
    case = Case("", fabric(*rails(8, down(2)), STORAGE))
    shown = net_rdma.measured(_world(case))
    assert shown.text == (
        "8 of 9 ports active · InfiniBand 200 Gb/s (4X NDR) · InfiniBand 400 Gb/s (4X NDR)"
        " · not mlx5_2:1"
    )
    assert shown.values == {"ports": 9, "active": 8, "gbit_s": 200.0}
    far = fabric(port(numa=0), gpu_numa=(0, 1), off="NCCL_IB_DISABLE=1")
    text = net_rdma.measured(_world(Case("", far))).text
    assert text.endswith("NCCL_IB_DISABLE=1 · no HCA near the GPUs of NUMA node 1")
    assert net_rdma.measured(_world(Case("", {}))).text == ""


def _world(case: Case) -> Any:
    return world("net.rdma", case.saw)


# --- what is read ---


def test_a_machine_without_rdma() -> None:
    with pytest.raises(NotApplicable, match="no RDMA device here"):
        net_rdma.observe(Host("/nonexistent", {}), context())


def test_this_machine() -> None:
    here = Host()
    if here.exists("/sys/class/infiniband"):
        round_trips(net_rdma.observe(here, context()))
    else:
        with pytest.raises(NotApplicable):
            net_rdma.observe(here, context())


def test_observe(tmp_path: Path) -> None:
    for n in range(4):
        hca(tmp_path, f"mlx5_{n}", pci=f"0000:{n}8:00.0", verbs=n, numa=n // 2)
    gpus(tmp_path, 4)
    gpu = tmp_path / "sys/bus/pci/devices/0000:1b:00.0"
    write(gpu, {"class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "1"})
    environ = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_IB_GID_INDEX": "-1", "NCCL_IB_PKEY": "0"}
    began = time.monotonic()
    seen = net_rdma.observe(Host(str(tmp_path), environ), context(options={"ports": "mlx5_[01]"}))
    assert time.monotonic() - began >= net_rdma.BETWEEN
    assert (seen.gpus, seen.gpu_numa, seen.peering, seen.inside) == (4, (1,), True, "")
    assert (seen.ours, seen.rule, seen.gid_index, seen.pkey_index) == (
        "mlx5_[01]",
        "=mlx5_0,mlx5_1",
        None,
        0,
    )
    assert [p.name for p in seen.taken] == ["mlx5_0:1", "mlx5_1:1"]
    round_trips(seen)
    assert not list(net_rdma.judge(_world(Case("", seen)), {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "off"),
    [
        ({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE=1"),
        ({"NCCL_IB_DISABLE": "0"}, ""),
        ({"NCCL_NET": "Socket"}, "NCCL_NET=Socket"),
        ({"NCCL_NET": "AWS Libfabric"}, ""),
    ],
)
def test_what_keeps_nccl_away(tmp_path: Path, environ: dict[str, str], off: str) -> None:
    hca(tmp_path, counters={})
    assert net_rdma.observe(Host(str(tmp_path), environ), context()).off == off


def test_geforce_has_no_gpudirect(tmp_path: Path) -> None:
    hca(tmp_path, counters={})
    gpus(tmp_path, 2, driver="x86_64 Kernel Module")
    assert net_rdma.observe(Host(str(tmp_path), {}), context()).peering is False
    card = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0"
    write(card, {"information": "Model: \t\t NVIDIA GeForce RTX 4090"})
    assert net_rdma.observe(Host(str(tmp_path), {}), context()).peering is None


def test_counters_that_grow_while_it_looks(tmp_path: Path) -> None:
    here = hca(tmp_path)
    gpus(tmp_path)
    later = threading.Timer(0.1, lambda: write(here / "counters", {"symbol_error": "900"}))
    later.start()
    seen = net_rdma.observe(Host(str(tmp_path), {}), context())
    later.join()
    assert seen.ports[0].grown == {"symbol_error": 900}
    (finding,) = judged(net_rdma, Case("", seen))
    assert (finding.code, finding.saw) == (
        "errors-growing",
        f"mlx5_0:1 symbol_error +900 in {seen.apart:.1f} s",
    )


def test_a_container_that_was_given_none(tmp_path: Path) -> None:
    hca(tmp_path, state=1, physical=2, verbs=None)
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    with pytest.raises(NotApplicable, match="not given to this container"):
        net_rdma.observe(Host(str(tmp_path), pod), context())
    assert net_rdma.observe(Host(str(tmp_path), {}), context()).ports[0].state == DOWN


def test_files_that_nobody_may_read(tmp_path: Path) -> None:
    (hca(tmp_path) / "state").unlink()
    with pytest.raises(CannotObserve, match="no state of a port is readable"):
        net_rdma.observe(Host(str(tmp_path), {}), context())


@pytest.mark.parametrize(
    ("layer", "downed", "carriers", "history", "status"),
    [
        ("InfiniBand", 1, None, "was up since boot", FAIL),
        ("InfiniBand", 0, None, "not up since boot", WARN),
        ("Ethernet", None, 2, "was up since boot", FAIL),
        ("Ethernet", 0, 0, "not up since boot", WARN),
        ("Ethernet", None, None, "not up since boot", WARN),
    ],
)
def test_one_cable_of_a_whole_machine(
    tmp_path: Path,
    layer: str,
    downed: int | None,
    carriers: int | None,
    history: str,
    status: Status,
) -> None:
    """From the files to the finding: a cable that is lost, and one that was never there."""
    for n in range(8):
        bad: dict[str, Any] = {"layer": layer}
        if n == 2:
            bad |= {"state": 1, "physical": 2, "rate": "10 Gb/sec (4X SDR)"}
        counters = {} if downed is None else {"link_downed": downed if n == 2 else 0}
        hca(tmp_path, f"mlx5_{n}", pci=f"0000:{n}8:00.0", verbs=n, counters=counters, **bad)
    if carriers is not None:
        card = tmp_path / "sys/devices/pci0000:00/0000:28:00.0"
        (card / "net/eth2/carrier_up_count").write_text(f"{carriers}\n")
    gpus(tmp_path)
    port_folder = tmp_path / "sys/class/infiniband/mlx5_2/ports/1"
    for name, lid in (("lid", "0xffff"), ("sm_lid", "0x0")):
        (port_folder / name).write_text(f"{lid}\n")
    (finding,) = judged(net_rdma, Case("", net_rdma.observe(Host(str(tmp_path), {}), context())))
    code = "port-down" if status is FAIL else "port-never-up"
    assert (finding.code, str(finding.subjects[0])) == (code, "n1 · mlx5_2 · port 1")
    assert finding.saw == f"mlx5_2:1 state Down, physical Polling, {history}"
    assert finding.expected == "Active: as the 7 others like it here"
    assert finding.status is status


def test_the_address_that_a_subnet_manager_gave_tells_of_a_link(tmp_path: Path) -> None:
    """As of a port that was down and Polling, with a base LID of 868 and an SM LID of 334."""
    hca(tmp_path, "mlx5_0", pci="0000:18:00.0", state=1, physical=2, counters={"link_downed": 0})
    folder = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    for lid, manager, was_up in (
        ("0x364", "0x14e", True),
        ("0x0", "0x0", False),
        ("0xffff", "0x0", False),
        ("0x364", "0x0", False),
        ("up", "0x14e", False),
    ):
        (folder / "lid").write_text(f"{lid}\n")
        (folder / "sm_lid").write_text(f"{manager}\n")
        (port,) = rdma.ports(Host(str(tmp_path), {}))
        assert port.was_up is was_up, (lid, manager)


def test_the_index_of_a_full_key_is_advised_where_all_ports_have_one() -> None:
    with_one = fabric(*limited(full_pkey=(1, 0x8012)))
    for other, index in ((with_one, "1"), (fabric(*limited()), "")):
        case = Case("", nodes(with_one, other), topology=job())
        found = [f for f in judged(net_rdma, case) if f.code == "pkey-unusable"]
        assert {f.fields.get("index") for f in found} == {index}
        assert (
            "mlx5_0:1 has partition key 0x7fff at 0 (limited), 0x8012 at 1 (full)" in found[0].saw
        )
