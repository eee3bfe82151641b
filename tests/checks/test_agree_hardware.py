"""agree.hardware: what must not differ, what must not be the same, and what may well be either."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab import nvml
from support.cases import Case, assert_case, context, judged, round_trips, topology, world

from preflight.check import conforms
from preflight.checks import agree_hardware
from preflight.domains.system import inventory
from preflight.domains.system.inventory import Hardware
from preflight.host import Address, Host, Interface
from preflight.model import CannotObserve, Cause, Confidence, Finding, Missing, Node, Status

conforms(agree_hardware)

FAIL, WARN = Status.FAIL, Status.WARN
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def nic(name: str, *ips: str, mtu: int = 1500, running: bool = True) -> Interface:
    found = []
    for text in ips:
        ip, _, prefix = text.partition("/")
        family = 6 if ":" in ip else 4
        found.append(Address(ip, int(prefix or (64 if family == 6 else 24)), family))
    return Interface(name, True, running, False, mtu, tuple(found))


def number(index: int, **changes: object) -> Hardware:
    """A GPU node of a cluster."""
    made = Hardware(
        host=f"gpu{index}",
        boot=f"boot-{index}",
        space="net:[4026531840]",
        interfaces=(
            nic("eth0", f"10.0.0.{index}", f"fe80::{index}"),
            nic("ib0"),
            nic("docker0", "172.17.0.1"),
        ),
        speeds={"eth0": 25000},
        used=("eth0",),
        carries="eth0",
        gpus=(H100,) * 8,
        cpus=96,
        memory=1 << 40,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def cluster(count: int = 4, /, **odd: Mapping[str, object]) -> dict[str, Hardware]:
    """Nodes n1 to nN; what is different of some of them by name."""
    return {f"n{i}": number(i, **odd.get(f"n{i}", {})) for i in range(1, count + 1)}


def case(name: str, saw: Mapping[str, object], *rest: object, **more: Any) -> Case:
    ranks = more.pop("ranks", [8] * len(saw))
    came = more.pop("came", {})
    nodes, at = [], 0
    for key, size in zip(saw, ranks, strict=True):
        nodes.append(Node(key, tuple(range(at, at + size)), came.get(key, "")))
        at += size
    launcher = more.pop("launcher", "torchrun")
    top = topology(max(at, 1), nodes=tuple(nodes), launcher=launcher)
    return Case(name, saw, *rest, topology=top, **more)  # type: ignore[arg-type]


def eth0(*ips: str, **more: Any) -> dict[str, object]:
    return {"interfaces": (nic("eth0", *ips, **more), nic("ib0"), nic("docker0", "172.17.0.1"))}


def both(count: int, **same: object) -> dict[str, Hardware]:
    return {key: replace(s, **same) for key, s in cluster(count).items()}  # type: ignore[arg-type]


IN_BRIDGE = eth0("172.17.0.2")
BARE: dict[str, object] = {"gpus": (), "used": ("eth0",)}
NAT = (nic("eth0", "10.0.2.15"), nic("eth1", "192.168.56.9"))
CONTAINERS = {"boot": "boot-1", "host": "gpu1"}


def mac(last: int) -> Mapping[str, str]:
    return {"eth0": f"02:77:00:00:00:{last:02x}"}


MAC = {"macs": mac(2)}

CASES = (
    case("a cluster", cluster()),
    case("two nodes", cluster(2)),
    case("CPU nodes", both(3, gpus=())),
    case("one part alone: an agent that never got in", cluster(1)),
    case("nothing was seen", {}),
    case("can't tell of one", {**cluster(3), "n4": Missing(Cause.TIMED_OUT)}),
    case(
        "other names of interfaces",
        cluster(n2={"interfaces": (nic("ens5", "10.0.0.2"),), "used": ("ens5",)}),
    ),
    case("docker on some", cluster(n3={"interfaces": (nic("eth0", "10.0.0.3"), nic("ib0"))})),
    case(
        "a NAT with one address in each virtual machine",
        {f"n{i}": number(i, interfaces=NAT, used=()) for i in (1, 2, 3)},
    ),
    case(
        "MTUs of different subnets",
        cluster(n2=eth0("10.0.9.2", mtu=9000)),
    ),
    case("jumbo frames everywhere", both(3, **eth0(mtu=9000))),
    case("IPv6 on some", cluster(n1=eth0("10.0.0.1", "2001:db8::1"))),
    case("IPv6 only", {f"n{i}": number(i, **eth0(f"2001:db8::{i}")) for i in (1, 2, 3)}),
    case(
        "one has IPv6 only, but the others have both",
        {
            "n1": number(1, **eth0("2001:db8::1")),
            "n2": number(2, **eth0("10.0.0.2", "2001:db8::2")),
            "n3": number(3, **eth0("10.0.0.3", "2001:db8::3")),
        },
    ),
    case("a process a rank on one machine", {f"n{i}": number(1) for i in (1, 2, 3)}),
    case(
        "containers on the network of one host",
        {f"n{i}": replace(number(1), host=f"c{i}") for i in (1, 2)},
    ),
    case("a sandbox without a boot id", {f"n{i}": number(1, boot="") for i in (1, 2)}),
    case(
        "a name twice, told apart by NCCL_HOSTID",
        cluster(2, n1={"host": "x", "hostid": "a"}, n2={"host": "x", "hostid": "b"}),
    ),
    case(
        "nodes of another size have other numbers of ranks",
        cluster(n4={"gpus": (H100,) * 4, "cpus": 16, "memory": 1 << 37}),
        ranks=[8, 8, 8, 4],
    ),
    case("GPUs that are hidden", cluster(n4={"gpus": (A100,), "off": True})),
    case("an NVML that is silent: gpu.visible speaks", cluster(n4={"gpus": None})),
    case("one GPU node in a CPU job", {**both(3, gpus=()), "n4": number(4)}),
    case(
        "a count that is expected: gpu.visible speaks",
        cluster(n4={"gpus": (H100,) * 7}),
        expect={"gpus_per_node": 8},
    ),
    case(
        "the speed does not matter beside RDMA",
        cluster(n4={"speeds": {"eth0": 1000}, "carries": ""}),
    ),
    case("80 of 96 CPUs", cluster(n4={"cpus": 80})),
    case(
        "one has an interface more",
        cluster(n4={"interfaces": (nic("eth0", "10.0.0.4"), nic("ib0"), nic("ib1"))}),
    ),
    # one of a kind
    case(
        "two machines of one name",
        cluster(2, n2={"host": "gpu1"}),
        "host-duplicate",
        WARN,
        subject="n1",
    ),
    case(
        "two namespaces of one name, without GPUs",
        cluster(2, n1={**BARE, **CONTAINERS}, n2={**BARE, **CONTAINERS, "space": "net:[2]"}),
        "host-duplicate",
        WARN,
    ),
    case(
        "two containers of one name",
        cluster(2, n1=CONTAINERS, n2={**CONTAINERS, "space": "net:[2]"}),
        "host-duplicate",
        FAIL,
        subject="n1",
    ),
    case("NCCL_HOSTID for all", both(3, hostid="node"), "host-duplicate", FAIL),
    case(
        "one address twice",
        cluster(n3=eth0("10.0.0.1")),
        "address-duplicate",
        FAIL,
        subject="n1 · eth0",
    ),
    case(
        "all have a service's address beside their own",
        {f"n{i}": number(i, **eth0(f"10.0.0.{i}", "10.0.0.100/32")) for i in (1, 2, 3)},
    ),
    case(
        "all have a service's address beside their own, and one came by it",
        {f"n{i}": number(i, **eth0(f"10.0.0.{i}", "10.0.0.100/32")) for i in (1, 2, 3)},
        "address-duplicate",
        FAIL,
        came={"n2": "10.0.0.2", "n3": "10.0.0.100"},
    ),
    case(
        "cloud machines with nothing but an address of 32 bits, twice",
        {f"n{i}": number(i, **eth0(f"10.0.0.{min(i, 2)}/32")) for i in (1, 2, 3)},
        "address-duplicate",
        FAIL,
    ),
    case(
        "containers with one address, each behind the NAT of its host",
        cluster(3, n2=IN_BRIDGE, n3=IN_BRIDGE),
        came={"n2": "10.0.9.2", "n3": "10.0.9.3"},
    ),
    case(
        "two with one address, which they came from",
        cluster(3, n2=IN_BRIDGE, n3=IN_BRIDGE),
        "address-duplicate",
        FAIL,
        subject="n2 · eth0",
        came={"n2": "172.17.0.2", "n3": "172.17.0.2"},
    ),
    case(
        "two with one address, and nobody knows how they came",
        cluster(3, n2=IN_BRIDGE, n3=IN_BRIDGE),
        "address-duplicate",
        FAIL,
        subject="n2 · eth0",
    ),
    case("one address on two", cluster(2, n2=eth0("10.0.0.1")), "address-duplicate", FAIL),
    case(
        "one MAC address twice",
        cluster(n2=MAC, n3=MAC),
        "mac-duplicate",
        FAIL,
        subject="n2 · eth0",
    ),
    case(
        "one MAC address in two subnets",
        cluster(n2=MAC, n3=MAC | eth0("10.0.9.3")),
    ),
    case("ipvlan: containers of one host", cluster(n2=MAC, n3=MAC | {"boot": "boot-2"})),
    case("each its own MAC address", {f"n{i}": number(i, macs=mac(i)) for i in (1, 2, 3)}),
    case(
        "IPv6 only beside IPv4 only",
        cluster(n2=eth0("2001:db8::2")),
        "address-families-differ",
        FAIL,
        subject="n2",
    ),
    case(
        "two without a family", cluster(2, n2=eth0("2001:db8::2")), "address-families-differ", FAIL
    ),
    # GPUs
    case("no GPU on one", cluster(n4={"gpus": ()}), "gpu-absent", FAIL, subject="n4"),
    case("no GPU on one, by hand", cluster(n4={"gpus": ()}), "gpu-absent", WARN, launcher="local"),
    case("no GPU on one of two", cluster(2, n2={"gpus": ()}), "gpu-absent", WARN, subject="n2"),
    case("a GPU less", cluster(n3={"gpus": (H100,) * 7}), "gpus-differ", WARN, subject="n3"),
    case("other GPUs", cluster(n3={"gpus": (A100,) * 8}), "gpus-differ", WARN, subject="n3"),
    case(
        "other GPUs on one of two",
        cluster(2, n2={"gpus": (A100,) * 8}),
        "gpus-differ",
        WARN,
        subject="n1",
    ),
    # networks
    case(
        "an MTU", cluster(n4=eth0("10.0.0.4", mtu=1400)), "mtu-differs", WARN, subject="n4 · eth0"
    ),
    case("jumbo frames that one node alone takes", cluster(n4=eth0("10.0.0.4", mtu=9000))),
    case(
        "MTUs of two",
        cluster(2, n2=eth0("10.0.0.2", mtu=9000)),
        "mtu-differs",
        WARN,
        subject="n1 · eth0",
    ),
    case(
        "no ib0",
        cluster(n4={"interfaces": (nic("eth0", "10.0.0.4"),)}),
        "nic-missing",
        WARN,
        subject="n4 · ib0",
    ),
    case(
        "ib0 without a link",
        cluster(n4={"interfaces": (nic("eth0", "10.0.0.4"), nic("ib0", running=False))}),
        "nic-missing",
        WARN,
        subject="n4 · ib0",
    ),
    case(
        "a slow link",
        cluster(n4={"speeds": {"eth0": 1000}}),
        "link-slower",
        WARN,
        subject="n4 · eth0",
    ),
    case(
        "the slower of two",
        cluster(2, n1={"speeds": {"eth0": 1000}}),
        "link-slower",
        WARN,
        subject="n1 · eth0",
    ),
    # size
    case("few CPUs", cluster(n4={"cpus": 8}), "node-smaller", WARN, subject="n4"),
    case("little memory", cluster(2, n2={"memory": 1 << 38}), "node-smaller", WARN, subject="n2"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case(case: Case) -> None:
    assert_case(agree_hardware, case)


def found(saw: Mapping[str, object], **more: Any) -> list[Finding]:
    return judged(agree_hardware, case("", saw, **more))


def test_the_command_has_the_mtu_of_the_others() -> None:
    for nodes, mtu in ((3, "1500"), (2, "MTU")):  # of two nobody knows which is meant
        fields = found(cluster(nodes, n2=eth0("10.0.0.2", mtu=1400)))[0].fields
        assert f"eth0 mtu {mtu}'" in repr(agree_hardware.FINDINGS["mtu-differs"].filled(fields))


def test_two_that_differ_are_both_named() -> None:
    (finding,) = found(cluster(2, n2=eth0("10.0.0.2", mtu=9000)))
    assert finding.confidence is Confidence.POSSIBLE
    assert [s.node for s in finding.subjects] == ["n1", "n2"]
    assert finding.saw == "MTU 1500 on n1 · MTU 9000 on n2"
    assert finding.alternatives == ("n1 is the one that differs", "n2 is the one that differs")
    assert "10.0.0.0/24" in finding.expected


def test_one_mtu_is_said_once_though_there_are_two_families() -> None:
    saw = {
        f"n{i}": number(i, **eth0(f"10.0.0.{i}", f"2001:db8::{i}", mtu=1500 - 100 * (i == 2)))
        for i in (1, 2, 3)
    }
    (finding,) = found(saw)
    assert [str(s) for s in finding.subjects] == ["n2 · eth0"]
    assert finding.confidence is Confidence.CERTAIN


def test_who_owns_an_address_is_said() -> None:
    (finding,) = found(cluster(n3=eth0("10.0.0.1")))
    assert finding.saw == "10.0.0.1 is an address of n1 (eth0), n3 (eth0)"
    assert [s.node for s in finding.subjects] == ["n1", "n3"]


def test_what_a_name_twice_means_depends_on_the_boot_id() -> None:
    (finding,) = found(cluster(2, n1=CONTAINERS, n2={**CONTAINERS, "space": "net:[2]"}))
    assert finding.saw == "host name 'gpu1' on 2 machines: n1, n2 with one boot id"
    (finding,) = found(both(2, hostid="all"))
    assert finding.saw == "NCCL_HOSTID 'all' on 2 machines: n1, n2"


def test_a_report_that_somebody_edited() -> None:
    nonsense = Interface("eth0", True, True, False, -1, (Address("10.0.0.1'; x", 999, 4),))
    findings = found(cluster(n2={"interfaces": (nonsense,), "speeds": {"eth0": -5}, "cpus": -3}))
    assert {s.node for f in findings for s in f.subjects} <= {"n2"}


ODD: tuple[Mapping[str, object], ...] = (
    {"gpus": (A100,) * 8},
    {"gpus": (H100,) * 7},
    {"gpus": ()},
    eth0("10.0.0.99", mtu=1400),
    {"speeds": {"eth0": 100}},
    {"cpus": 4},
    {"interfaces": (nic("eth0", "10.0.0.99"),)},
)


@given(st.data())
def test_a_planted_odd_one(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 12))
    odd = f"n{data.draw(st.integers(1, count))}"
    findings = found(cluster(count, **{odd: data.draw(st.sampled_from(ODD))}))
    assert findings
    assert {s.node for finding in findings for s in finding.subjects} == {odd}


# --- observe ---


def test_observe_this_machine() -> None:
    host = Host()
    seen = agree_hardware.observe(host, context())
    assert seen.host == host.hostname()
    assert not any(i.loopback for i in seen.interfaces)
    assert set(seen.used) <= {i.name for i in seen.interfaces}
    assert seen.carries in ("", *seen.used)
    assert seen.cpus == len(host.affinity())
    assert seen.memory > 1 << 27
    round_trips(seen)
    assert not judged(agree_hardware, case("", {"n1": seen, "n2": seen}))


def test_observe_a_recorded_machine(tmp_path: Path) -> None:
    for path, text in {
        "proc/sys/kernel/hostname": "gpu7\n",
        "proc/sys/kernel/random/boot_id": "aaaa-bbbb\n",
        "proc/self/status": "Cpus_allowed_list:\t0-95\n",
        "proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 1 kB\n",
        "etc/nccl.conf": "NCCL_HOSTID=rack1\n",
        "sys/class/net/eth0/mtu": "9000\n",
        "sys/class/net/eth0/flags": "0x1003\n",
        "sys/class/net/eth0/speed": "100000\n",
        "sys/class/net/eth1/speed": "-1\n",
        "sys/class/net/lo/flags": "0x9\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "proc/self/ns").mkdir()
    (tmp_path / "proc/self/ns/net").symlink_to("net:[42]")
    seen = agree_hardware.observe(Host(str(tmp_path), {"CUDA_VISIBLE_DEVICES": ""}), context())
    assert (seen.host, seen.machine, seen.hostid) == ("gpu7", "aaaa-bbbb net:[42]", "rack1")
    assert [(i.name, i.mtu) for i in seen.interfaces] == [("eth0", 9000), ("eth1", 0)]
    assert seen.speeds == {"eth0": 100000}
    assert (seen.cpus, seen.memory, seen.gpus, seen.off) == (96, 1 << 30, (), True)
    round_trips(seen)


def test_observe_gives_up_without_interfaces(tmp_path: Path) -> None:
    with pytest.raises(CannotObserve):
        agree_hardware.observe(Host(str(tmp_path), {}), context())


def test_observe_the_gpus(tmp_path: Path) -> None:
    nvml.machine(tmp_path, gpus=2)
    for path, text in {
        "proc/self/status": "Cpus_allowed_list:\t0-7\n",
        "sys/class/net/eth0/mtu": "1500\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    seen: Hardware = nvml.observed("agree.hardware", nvml.settings(2), root=tmp_path).value
    assert seen.gpus == (H100, H100)
    seen = nvml.observed("agree.hardware", None, root=tmp_path).value
    assert seen.gpus is None


class Hanging(Host):
    """A machine whose driver does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def gpu_files(self) -> tuple[str, ...]:
        return ("/dev/nvidia0",)

    def nvml(self) -> Any:
        self.released.wait(60)
        raise CannotObserve("too late")


def test_a_driver_that_hangs_does_not_take_the_rest_along() -> None:
    host = Hanging()
    began = time.monotonic()
    seen = agree_hardware.observe(host, context())
    host.released.set()
    assert time.monotonic() - began < inventory.PATIENCE + 5
    assert seen.gpus is None
    assert seen.cpus


def test_the_row() -> None:
    text = agree_hardware.measured(world("agree.hardware", cluster(n4={"gpus": (A100,) * 8})))
    assert text.text.startswith("8 x A100-SXM4-80GB / 8 x H100 80GB HBM3 · 96 CPUs · MTU 1500")
    assert agree_hardware.measured(world("agree.hardware", {})).text == ""
