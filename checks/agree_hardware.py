"""Do the nodes have the same hardware, and each its own hostname and addresses?

Level        standard
Looks at     GPU models and counts by NVML, network interfaces with their addresses, MTU and speed,
             which of them NCCL, Gloo and the route to MASTER_ADDR use, and their MAC addresses,
             CPUs and memory, hostname, boot ID, NCCL_HOSTID
Fails if     NCCL considers two machines the same host (equal hostname and boot ID, or NCCL_HOSTID)
             and there are GPUs; two machines use the same IP address, or in one subnet the same
             MAC address; one node has IPv4 only and another IPv6 only; a node has no GPU while most
             others have
Warns if     GPU counts or models differ; a node has a smaller MTU than most in a subnet, or two
             nodes differ in it; an interface that all other nodes have is missing or has no link; a
             link is slower than the others; a node has less than half of the CPUs or memory of the
             others; a hostname or NCCL_HOSTID is used twice
Undecided    a node could not be checked
Not covered  whether large packets pass (net.payload); RDMA ports; names of interfaces, which may
             differ; GPUs where NVML does not answer (gpu.visible); nodes with different numbers of
             ranks, which may differ in size; sandboxes without a boot ID
Seen as      "Duplicate GPU detected", a hang in the first collective between two hosts with the
             same name, "Socket creation failed : Address family not supported by protocol", one
             slow node
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_interface
from statistics import median

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.net import interface_rules as ifname
from preflight.domains.system.inventory import Hardware, take_inventory
from preflight.expect import Expect
from preflight.host import Address, Host, Interface
from preflight.humanize import parties, plural, size
from preflight.inference import consensus
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    World,
)

# what is only a consequence: of nodes that can't talk, of large packets that don't pass, of one
# slow node, of what only NCCL minds
TALK = (
    *("rdzv.reach:lost", "rdzv.reach:nothing-received", "rdzv.reach:mac-shared"),
    *("net.mesh", "net.payload", "net.speed"),
    *("rdzv.store", "world.*"),
)
LARGE = ("net.payload", "net.speed", "world.*")
SLOW = ("net.speed", "world.bandwidth")
NCCL_ONLY = ("world.nccl", "world.bandwidth")

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MEETING,
    budget=8.0,
    level=Level.STANDARD,
    requires=frozenset({Requirement.PEERS}),
    blame=Blame.NODE,
    explains=SLOW,
)

SHOWN = 4
"""Values that a line shows."""
TEXT = 200
"""Characters shown of the names of GPUs."""
HALF, SLOWER = 2.0, 1.5
"""How many times as much the others must have."""

FAIL, WARN = Status.FAIL, Status.WARN
CERTAIN, LIKELY, POSSIBLE = Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE
NAME = "host name"
LOCAL = ("127.", "169.254.", "fe80:")
WHOLE = {4: 32, 6: 128}
"""The length of an address of each IP version, in bits."""

FINDINGS = {
    "host-duplicate": FindingType(
        headline="{seen}",
        cause="a cloned image, `localhost`, or one NCCL_HOSTID exported to all nodes",
        means="NCCL identifies hosts by name and boot ID, or by NCCL_HOSTID: it considers both "
        "the same host, says 'Duplicate GPU detected' or hangs; launchers that count hosts by "
        "name count too few",
        now="export NCCL_HOSTID=$(hostname)-$(hostname -I | tr -d ' ')   on every node",
        text="give every machine its own hostname, and do not set NCCL_HOSTID",
        status=(Status.WARN, Status.FAIL),
        blame=(Blame.NODE, Blame.JOB),
        explains=NCCL_ONLY,
        was=("host-same",),
    ),
    "address-duplicate": FindingType(
        headline="{where} have the same IP address {address}",
        cause="a cloned image with a fixed address, or containers behind the bridges of two hosts",
        means="connections reach either machine, or the caller itself: intermittent hangs",
        text="give every machine its own address; start containers with --network host",
        commands=(Command("arping -D -I {interface} {address}", "another node"),),
        explains=TALK,
        was=("address-same",),
    ),
    "mac-duplicate": FindingType(
        headline="{where} have the same MAC address {mac}",
        cause="a cloned virtual machine, or a MAC address that was set by hand",
        means="a switch sends frames for both to the one that spoke last: connections stall or "
        "hang now and then, on either",
        text="give every interface its own MAC address, in the settings of the hypervisor or of "
        "the network",
        commands=(Command("ip link show {interface}", "each node"),),
        explains=TALK,
    ),
    "address-families-differ": FindingType(
        headline="the nodes have no common IP version: {seen}",
        cause="IPv6 disabled on one node, or a network without IPv4",
        means="'Address family not supported by protocol' or 'Network is unreachable' between them",
        text="use an IP version that all nodes have",
        commands=(Command("ip -br address; sysctl net.ipv6.conf.all.disable_ipv6", "{node}"),),
        blame=(Blame.NODE, Blame.UNKNOWN),
        explains=TALK,
        was=("families-apart",),
    ),
    "gpu-absent": FindingType(
        headline="{at} has no GPU, other nodes have",
        cause="a node from another partition, a pod without a GPU request, a driver that is not "
        "loaded",
        means="'ProcessGroupNCCL is only supported with GPUs, no GPUs found!' on this node",
        text="give the job only nodes with GPUs",
        commands=(Command("nvidia-smi -L; ls /dev/nvidia*", "{node}"),),
        status=(Status.WARN, Status.FAIL),
        explains=NCCL_ONLY,
    ),
    "gpus-differ": FindingType(
        headline="the GPUs differ between nodes: {seen}",
        cause="a GPU that fell off the bus, or different kinds of nodes in one partition",
        means="every step takes as long as on the slowest GPU; the smallest memory limits the "
        "batch size",
        text="look for a missing GPU in the kernel log; request one kind of GPU, e.g. "
        "--gres=gpu:MODEL:N",
        commands=(Command("nvidia-smi -L; dmesg -T | grep -i xid", "{node}"),),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "mtu-differs": FindingType(
        headline="the MTU differs between nodes: {seen}",
        cause="jumbo frames enabled on some nodes only, or a tunnel on some of them",
        means="TCP usually adapts; over RDMA, and where ICMP 'fragmentation needed' is filtered, "
        "small messages pass and large ones hang",
        text="set one MTU on all interfaces and switches of a subnet",
        commands=(
            Command("ip link set {interface} mtu {mtu}", "{node}", "its traffic for a moment"),
        ),
        status=Status.WARN,
        blame=(Blame.NODE, Blame.UNKNOWN),
        explains=LARGE,
    ),
    "nic-missing": FindingType(
        headline="{where}: {seen}, unlike the other nodes",
        cause="a bad cable, a missing driver, or an interface that was never configured",
        means="less bandwidth on this node, or a hang if NCCL pairs interfaces of different nodes",
        text="bring the interface up as on the other nodes",
        commands=(Command("ip -br link; dmesg -T | grep -i link", "{node}"),),
        status=Status.WARN,
    ),
    "link-slower": FindingType(
        headline="{at} has a slower link than on the other nodes: {seen}",
        cause="a bad cable, auto-negotiation, or a different network from the other nodes",
        means="all nodes wait for this one in each collective",
        text="repair the link, or set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the fast "
        "interface",
        commands=(Command("ethtool {interface}", "{node}"),),
        status=Status.WARN,
    ),
    "node-smaller": FindingType(
        headline="{where} has {seen}, fewer than the other nodes",
        who="job author",
        cause="a different kind of machine, or a cgroup that gives the job less there",
        means="the data loaders on this node are slower, or run out of memory first",
        text="request the same number of CPUs and the same memory on every node",
        commands=(Command("nproc; free -g", "{node}"),),
        status=Status.WARN,
    ),
}


def observe(host: Host, ctx: Context) -> Hardware:
    return take_inventory(host, ctx)


def judge(world: World[Hardware], expect: Expect) -> Iterator[Found]:
    yield from _same_host(world)
    yield from _same_address(world)
    yield from _same_mac(world)
    yield from _families(world)
    yield from _gpu_counts(world, expect)
    yield from _interfaces(world)
    yield from _mtus(world)
    yield from _slower_or_smaller(world)


def _grouped(values: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Who has the same: value -> keys; without those that have nothing."""
    found: dict[str, list[str]] = {}
    for key, value in values.items():
        if value:
            found.setdefault(value, []).append(key)
    return {value: tuple(keys) for value, keys in found.items()}


def _same_host(world: World[Hardware]) -> Iterator[Found]:
    """Agents on one machine and network are on one host, whatever it is called."""
    seen = {key: s for key, s in world.seen.items() if s.machine}
    gpus = any(s.gpus != () for s in seen.values())
    hosts = {key: s.host for key, s in seen.items() if not s.hostid}
    for what, named in (("NCCL_HOSTID", {k: s.hostid for k, s in seen.items()}), (NAME, hosts)):
        for name, keys in _grouped(named).items():
            machines = len({seen[key].machine for key in keys})
            boots = len({seen[key].boot for key in keys})
            if machines > 1:
                for_nccl = what != NAME or boots < machines
                yield Found(
                    "host-duplicate",
                    tuple(world.subject(key) for key in keys),
                    saw=f"{what} {name[:60]!r} on {plural(machines, 'machine')}: {parties(keys)}"
                    + " with one boot id" * (what == NAME and boots < machines),
                    expected=f"a {what} for every machine only",
                    blame=Blame.NODE if what == NAME else Blame.JOB,
                    status=FAIL if for_nccl and gpus else WARN,
                )


def _outside_addresses(seen: Hardware) -> Iterator[tuple[Interface, Address]]:
    """The addresses by which other machines reach this one, with their interfaces. What nobody
    uses may well be the same everywhere, as what the NAT of a virtual machine advertises."""
    for nic in seen.outside:
        for address in nic.addresses if nic.name in seen.used else ():
            if not address.ip.startswith(LOCAL):
                yield nic, address


def _of_a_service(nic: Interface, address: Address) -> bool:
    """Whether it stands beside the interface's own address, without a network of its own: all that
    offer a service have it (Docker Swarm, LVS behind a router, anycast)."""
    own = [a for a in nic.addresses if a.family == address.family and not a.ip.startswith(LOCAL)]
    return address.prefix == WHOLE.get(address.family) and any(
        a.prefix != address.prefix for a in own
    )


def _same_address(world: World[Hardware]) -> Iterator[Found]:
    owners: dict[str, dict[str, tuple[str, str]]] = {}
    came = {node.addr for node in world.topology.nodes}
    for key, seen in world.seen.items():
        machine = seen.machine
        for nic, address in _outside_addresses(seen) if machine else ():
            if address.ip in came or not _of_a_service(nic, address):
                owners.setdefault(address.ip, {})[machine] = key, nic.name
    for ip, machines in owners.items():
        if len(machines) > 1 and not _each_behind_nat(world, [key for key, _ in machines.values()]):
            found = tuple(_nic(world, key, name) for key, name in machines.values())
            yield Found(
                "address-duplicate",
                found,
                saw=f"{ip} is an address of {parties([f'{s.node} ({s.name})' for s in found])}",
                expected="a different address for every machine",
                confidence=LIKELY,
                fields={"interface": found[0].name, "address": ip},
            )


def _each_behind_nat(world: World[Hardware], keys: Sequence[str]) -> bool:
    """Whether these have come to the meeting by different addresses that none of them has: then
    each is in a network of its own, and net.mesh says who can't be reached. How the node of rank 0
    comes nobody has seen."""
    came = {n.name: n.addr for n in world.topology.nodes if n.addr and 0 not in n.ranks}
    there = {came[key] for key in keys if key in came}
    rest = [key for key in keys if key not in came]
    own = {a.ip for key in keys for nic in world.seen[key].outside for a in nic.addresses}
    return len(rest) < 2 and len(there) + len(rest) == len(keys) and bool(there) and not there & own


def _same_mac(world: World[Hardware]) -> Iterator[Found]:
    """Of machines that share a subnet: elsewhere nobody sees both. Containers of one host may share
    the MAC address of its interface (ipvlan)."""
    owners: dict[str, dict[str, tuple[str, Interface]]] = {}
    for key, seen in world.seen.items():
        for nic in seen.outside if seen.boot else ():
            if mac := seen.macs.get(nic.name, ""):
                owners.setdefault(mac, {}).setdefault(seen.boot, (key, nic))
    for mac, machines in owners.items():
        places: dict[str, list[tuple[str, Interface]]] = {}
        for key, nic in machines.values() if len(machines) > 1 else ():
            for subnet in _subnets(nic):
                places.setdefault(subnet, []).append((key, nic))
        for subnet, both in places.items():
            ips = {a.ip for _, nic in both for a in nic.addresses}
            if len(both) > 1 and len(ips) > 1:
                found = tuple(_nic(world, key, nic.name) for key, nic in both)
                yield Found(
                    "mac-duplicate",
                    found,
                    saw=f"{mac} in {subnet}: {parties([f'{s.node} ({s.name})' for s in found])}",
                    expected="a different MAC address for every interface of a network",
                    confidence=LIKELY,
                    fields={"interface": found[0].name, "mac": mac},
                )
                break


def _subnets(nic: Interface) -> Iterator[str]:
    for address in nic.addresses:
        if not address.ip.startswith(LOCAL):
            yield from _subnet(address)


def _subnet(address: Address) -> Iterator[str]:
    """`10.0.0.0/24`; nothing in a report that somebody edited."""
    with contextlib.suppress(ValueError):
        yield str(ip_interface(f"{address.ip}/{address.prefix}").network)


def _families(world: World[Hardware]) -> Iterator[Found]:
    """Who has both can talk to everybody."""
    single: dict[str, str] = {}
    for key, seen in world.seen.items():
        all_of = [a for i in seen.outside if i.running for a in i.addresses]
        families = {a.family for a in all_of if not a.ip.startswith(LOCAL)}
        if len(families) == 1:
            single[key] = f"IPv{families.pop()} only"
    yield from _minority(
        world, "address-families-differ", single, "an IP version that all nodes have"
    )


def _nic(world: World[Hardware], key: str, name: str) -> Subject:
    return Subject(Kind.NIC, key, name, ranks=world.topology.ranks_of(key))


def _minority(
    world: World[Hardware],
    code: str,
    values: Mapping[str, str],
    goal: str,
    nics: Mapping[str, Interface] | None = None,
    explains: tuple[str, ...] | None = None,
) -> Iterator[Found]:
    """The odd values by majority; without one all of them, since nobody can tell. The subjects are
    the interfaces where there are such."""
    agreed = consensus(values)
    odd = list(agreed.odd.items())
    usual = f"{agreed.value}, as on {parties(agreed.holders)}"
    for sides in [odd] if agreed.tie else [[side] for side in odd]:
        keys = [key for _, some in sides for key in some]
        both = [f"{parties(some)} is the one that differs" for _, some in sides[:SHOWN]]
        yield Found(
            code,
            tuple(_nic(world, k, nics[k].name) if nics else world.subject(k) for k in keys),
            saw=" · ".join(f"{value} on {parties(some)}" for value, some in sides[:SHOWN]),
            expected=goal if agreed.tie else usual,
            blame=Blame.UNKNOWN if agreed.tie else None,
            confidence=POSSIBLE if agreed.tie else CERTAIN,
            explains=explains,
            alternatives=tuple(both) if agreed.tie else (),
            fields={
                "node": keys[0],
                "interface": nics[keys[0]].name if nics else "",
                "mtu": (agreed.value or "MTU").removeprefix("MTU "),
            },
        )


def _same_size_nodes(world: World[Hardware]) -> Iterator[Mapping[str, Hardware]]:
    """The nodes that should be of one size: those with equally many ranks."""
    ranks = {key: str(world.topology.ranks_on(key)) for key in world.seen}
    for keys in _grouped(ranks).values():
        yield {key: world.seen[key] for key in keys}


def _gpu_counts(world: World[Hardware], expect: Expect) -> Iterator[Found]:
    known = {key: s for key, s in world.seen.items() if s.gpus is not None and not s.off}
    have = {key: s.gpus for key, s in known.items() if s.gpus}
    # what is expected of each node gpu.visible looks at
    counted = expect.number("gpus_per_node") is None
    most = 2 * len(have) > len(known)
    for key in known if counted and have and 2 * len(have) >= len(known) else ():
        if key not in have:
            yield Found(
                "gpu-absent",
                # what was started by hand may well be a try on the CPU,
                (world.subject(key),),
                saw="no GPU",
                expected=f"GPUs, as on {parties(list(have))}",
                confidence=LIKELY if most else POSSIBLE,
                alternatives=() if most else ("the job needs no GPU",),
                fields={"node": key},
                status=FAIL if most and world.topology.launcher != "local" else WARN,
            )
    for nodes in _same_size_nodes(world) if counted else ():
        counts = {key: plural(len(have[key]), "GPU") for key in nodes if key in have}
        yield from _minority(world, "gpus-differ", counts, "as many GPUs on each node", explains=())
    if expect.text("gpu_model") is None:
        models = {key: " and ".join(sorted(set(names)))[:TEXT] for key, names in have.items()}
        yield from _minority(world, "gpus-differ", models, "one kind of GPU")


def _interfaces(world: World[Hardware]) -> Iterator[Found]:
    """Only where most nodes have the very same interfaces, and one has some of these: machines of
    different kinds have different ones."""
    names = {
        key: frozenset(i.name for i in seen.outside if i.running and not ifname.virtual(i.name))
        for key, seen in world.seen.items()
    }
    agreed = consensus(names)
    usual = agreed.value or frozenset()
    for some, keys in agreed.odd.items():
        for key in keys if some < usual else ():
            there = {i.name: i for i in world.seen[key].interfaces}
            gone = sorted(usual - some)
            states = [f"{n} {ifname.state(there[n])}" if n in there else f"no {n}" for n in gone]
            yield Found(
                "nic-missing",
                tuple(_nic(world, key, name) for name in gone),
                saw=", ".join(states[:SHOWN]),
                expected=f"{', '.join(gone[:SHOWN])} with a link, as on {parties(agreed.holders)}",
                confidence=LIKELY,
                fields={"node": key},
            )


def _mtus(world: World[Hardware]) -> Iterator[Found]:
    subnets: dict[str, dict[str, Interface]] = {}
    outside = {key: [*_outside_addresses(seen)] for key, seen in world.seen.items()}
    if len({nic.mtu for ways in outside.values() for nic, _ in ways} - {0}) < 2:
        return  # whatever the subnets are
    for key, ways in outside.items():
        for nic, address in ways:
            for network in _subnet(address):
                subnets.setdefault(network, {}).setdefault(key, nic)
    told: list[Mapping[str, Interface]] = []
    for network, nics in subnets.items():
        if nics not in told:  # IPv4 and IPv6 on the same interfaces
            told.append(nics)
            values = {key: f"MTU {nic.mtu}" for key, nic in nics.items() if nic.mtu}
            goal = f"one MTU in {network}"
            agreed = consensus({key: nic.mtu for key, nic in nics.items() if nic.mtu})
            if agreed.value is not None:
                # what has more than most sends no larger packets than they take: TCP's two ends
                # agree on a size when they connect
                values = {
                    key: text for key, text in values.items() if nics[key].mtu <= agreed.value
                }
            yield from _minority(world, "mtu-differs", values, goal, nics=nics)


def _slower_or_smaller(world: World[Hardware]) -> Iterator[Found]:
    speeds = {k: s.speeds[s.carries] for k, s in world.seen.items() if s.speeds.get(s.carries)}
    for key, usual in _below(speeds, SLOWER):
        nic = _nic(world, key, world.seen[key].carries)
        yield _smaller_than_others(
            "link-slower", nic, f"{speeds[key]} Mbit/s", f"{usual:.0f} Mbit/s"
        )
    for nodes in _same_size_nodes(world):
        cpus = {key: s.cpus for key, s in nodes.items() if s.cpus > 0}
        for key, usual in _below(cpus, HALF):
            few = plural(cpus[key], "CPU")
            yield _smaller_than_others("node-smaller", world.subject(key), few, f"{usual:.0f} CPUs")
        memory = {key: s.memory for key, s in nodes.items() if s.memory > 0}
        for key, usual in _below(memory, HALF):
            little = f"{size(memory[key])} of memory"
            yield _smaller_than_others("node-smaller", world.subject(key), little, size(int(usual)))


def _below(numbers: Mapping[str, int], times: float) -> Iterator[tuple[str, float]]:
    """Who has so many times less than the others, with what these have. Of two it is the smaller:
    it need not be at fault, but the other waits for it."""
    if len(set(numbers.values())) > 1:
        usual = max(numbers.values()) if len(numbers) == 2 else median(numbers.values())
        yield from ((key, usual) for key, n in numbers.items() if n * times < usual)


def _smaller_than_others(code: str, subject: Subject, saw: str, usual: str) -> Found:
    return Found(
        code,
        (subject,),
        saw=saw,
        expected=f"about {usual}, as on other nodes",
        confidence=LIKELY,
        fields={"node": subject.node, "interface": subject.name},
    )


def measured(world: World[Hardware]) -> Measured:
    seen = list(world.seen.values())
    gpus = sorted({f"{len(s.gpus)} x {s.gpus[0].removeprefix('NVIDIA ')}" for s in seen if s.gpus})
    mtus = sorted({i.mtu for s in seen for i in s.interfaces if i.name in s.used})
    speeds = sorted({s.speeds[s.carries] for s in seen if s.carries in s.speeds})
    cpus = sorted({s.cpus for s in seen})
    parts = [" / ".join(gpus[:SHOWN])] if gpus else []
    for text, some in (("{} CPUs", cpus), ("MTU {}", mtus), ("{} Mbit/s", speeds)):
        parts += [text.format(" / ".join(map(str, some[:SHOWN])))] if some else []
    data = {"gpus": gpus[:64], "cpus": cpus[:64], "mtu": mtus[:64], "mbit": speeds[:64]}
    return Measured(" · ".join(parts), data)
