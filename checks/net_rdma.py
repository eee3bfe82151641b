"""Are the RDMA ports that the job would use up, at full rate, and usable?

Looks at     /sys/class/infiniband: state, physical state, rate, link layer, GIDs, partition keys,
             error counters and lost packets (twice, 0.3 s apart) of every port; /dev/infiniband;
             what /dev/kmsg, where readable, has of mlx5 HCAs; NCCL_IB_HCA, NCCL_IB_GID_INDEX,
             NCCL_IB_PKEY and the like, in nccl.conf too; GPUs, nvidia_peermem; the PCI bridges
             between an HCA and the nearest GPU with their ACS settings, IOMMU groups, whether this
             is a virtual machine, NCCL_NET_GDR_LEVEL
Fails if     the kernel logged in the last hour that the firmware of a mlx5 HCA does not respond; a
             port is down that [checks."net.rdma"] ports or NCCL_IB_HCA names, that is Active on
             most nodes of the job, or that is the only down one of its model here and was up since
             boot; all ports of a node are down, and ranks elsewhere use theirs; InfiniBand has no
             subnet manager; a port is slower than on most nodes; NCCL_IB_HCA matches no port; RoCE
             has no GID, or InfiniBand no partition key, at the index that NCCL uses; nodes are in
             partitions or in subnets without a router, or have kinds of ports, without anything in
             common, or two are limited members of their partition by all ports that NCCL takes; a
             port that NCCL uses together with InfiniBand is Ethernet, and InfiniBand on other nodes
Warns if     some of several HCAs of one model can't be opened; a few ports of one model are down,
             or slower than the others where there are as many as the GPUs ask for, or one whose
             link has not been up since boot; an InfiniBand port has come up with one lane; a port
             has at most half of the rate that the same one of the other of two nodes has; the PCIe
             link of a card has half of what it could have, and those of others like it here more;
             NCCL would use InfiniBand and Ethernet together, a slow port that was named or that
             NCCL_IB_HCA takes by a prefix, or one that is not in `ports`; a GID is link-local or
             RoCE v1; nodes have RoCE with different MTUs, or fewer HCAs than others; no module
             gives HCAs access to GPU memory, or it has, and ACS or a translating IOMMU sends what
             an HCA and a GPU below one PCI switch have for each other through the CPU; error
             counters grow; packets are lost and sent again; the kernel logged that the PCIe slot of
             an HCA that NCCL uses offers too little power; it logged in the last hour a TX timeout
             of a mlx5 HCA's interface, and no recovery after it, while the port is Active; the link
             of one port has gone down or been retrained often since boot, or it has
             counted thousands of errors without ever going down, others like it here have not; HCAs
             of one make have different firmware
Undecided    no state of any port is readable
Not covered  whether data arrives (world.nccl); InfiniBand's MTU, switches and cables; EFA beyond
             its presence; ports that are not exposed to a container (host.limits); NCCL_IB_DISABLE
             (env.vars); NCCL_IB_ADDR_RANGE; TX timeouts of other drivers than mlx5; NUMA distance
             is shown, not judged; ACS settings without root, in virtual machines, or set up for
             address translation services (ATS)
Seen as      "NET/IB : No device found", "Got completion from peer … with status=12", "Got
             completion from peer … with error 12", "Got completion from peer … with error 4, …
             vendor err 81", "ibv_modify_qp failed with error Connection timed out", "Remote RoCE
             device is incompatible with the local IB", "GPU Direct RDMA Disabled",
             "IBV_WC_LOC_LEN_ERR", "TX timeout detected", "NETDEV WATCHDOG … transmit queue 3 timed
             out"; training that is slow on one node
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from preflight.check import Check, Context, Scope, Stage
from preflight.domains import kernel_log, pci
from preflight.domains.gpu import nvlink, nvml
from preflight.domains.kernel_log import errors_by_kind, mlx5_errors, mlx5_power, mlx5_transmit
from preflight.domains.net import gpudirect, hca_selection, rdma
from preflight.domains.net.gpudirect import GpuPath
from preflight.domains.net.hca_selection import NodeRdma
from preflight.domains.net.rdma import ETHERNET, INFINIBAND, RdmaPort
from preflight.domains.params import strtoll
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.domains.system import container
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, parties, plural
from preflight.inference import consensus
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Command,
    Confidence,
    Device,
    FindingType,
    Found,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
    of_each,
)
from preflight.sanitize import quoted

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=3.0,
    drains=True,
    options={"ports": "the RDMA ports that are the job's, as patterns: mlx5_[0-3],mlx5_8:1"},
    blame=Blame.NODE,
    explains=("world.nccl", "world.bandwidth"),
)

LOG_SECONDS = 0.5
RECENT = 3600.0
"""Seconds: an HCA with an older error may have been repaired since without a word in the log."""

SOLDERED = 4
"""Lanes: HCAs with so few are soldered to the board, as in a DGX Spark, whose log has this of each
of them while they run at full rate; NVIDIA calls it benign there."""

BETWEEN = 0.3
"""Seconds between the two looks at the error counters."""

FLAPS = 5
"""Times that a link went down since boot, and times as often as its twins: a cable that is reseated
makes one or two."""
RECOVERED = "link_error_recovery"
ERRORS = ("symbol_error", "port_rcv_errors", "local_link_integrity_errors")
MANY_ERRORS, ERRORS_TIMES = 10_000, 100
"""Errors since boot of one port, and times as many as its twins have: at 400 Gb/s a sound link has
a few hundred in a month. A cable that was pulled leaves a burst of them, too, but the link was down
then."""
NARROW = "1X"
LISTED = 4
LEVEL_KEPT = 40
"""Characters of NCCL_NET_GDR_LEVEL."""

OPERATOR = "data-centre operator"
ADMIN = "cluster administrator"
AUTHOR = "job author"
SLOW = "training over TCP or fewer rails: many times slower, without an error"
SHOW = Command("ibstat {device} {number}", "the node")

FINDINGS = {
    "port-down": FindingType(
        headline="RDMA port {at} is down",
        who=OPERATOR,
        cause="a bad cable or transceiver, a disabled switch port, an interface that was set down",
        means=SLOW,
        text="exclude this node: nothing in the job can fix it. Polling: reseat or swap the "
        "cable; Disabled: enable the port (ip link set … up, ibportstate). If it is meant to be "
        'unused, list the others: ports = "…" in [checks."net.rdma"]',
        commands=(SHOW,),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "hca-dead": FindingType(
        headline="HCA {at} does not respond to its driver",
        who=OPERATOR,
        cause="HCA firmware that has stopped: heat, too little power from the slot, or a bug",
        means="its port may be shown as Active; NCCL hangs at its start, or hours into the job",
        text="exclude this node; power-cycle it; if it comes back, update the firmware of the HCA "
        "or replace it",
        commands=(Command("dmesg -T | grep mlx5_core", "the node, as root"),),
    ),
    "slot-power-low": FindingType(
        headline="the PCIe slot of HCA {at} offers too little power",
        who=OPERATOR,
        cause="a slot or riser that offers less than 75 W, a power limit in the BIOS, or a card "
        "whose auxiliary power cable is missing",
        means="the HCA may keep its transceivers off, run slower or stop under load: a lower bus "
        "bandwidth on this node, or 'Got completion from peer … with status=12'",
        text="check SlotPowerLimit in lspci -vv, reseat the card or put it into a slot with 75 W, "
        "and update the BIOS and the firmware of the HCA; if its bandwidth is that of the others, "
        "the job may start",
        commands=(
            Command("dmesg -T | grep 'the PCIe slot'", "the node, as root"),
            Command(
                "lspci -vv -s $(basename $(readlink /sys/class/infiniband/{device}/device))",
                "the node, as root",
            ),
        ),
        status=Status.WARN,
        explains=(),
    ),
    "tx-timeout": FindingType(
        headline="the driver of HCA {at} does not get its packets sent: {seen}",
        who=OPERATOR,
        cause="interrupts that were lost, a bug of the driver or of the HCA's firmware, or a PCIe "
        "link that fails",
        means="'TX timeout detected' or 'NETDEV WATCHDOG … transmit queue 3 timed out' in the "
        "kernel's log: TCP over this interface, and with it the rendezvous, Gloo and the start of "
        "NCCL, stalls for 15 s or for good, while the port is shown as Active",
        text="look for what the kernel logged just before (soft lockup, AER, firmware); set the "
        "interface down and up, and if it happens again update driver and firmware, or exclude "
        "this node; if it sends by now, the job may start",
        commands=(
            Command("dmesg -T | grep -E 'mlx5_core|NETDEV WATCHDOG'", "the node, as root"),
            Command(
                "devlink health show "
                "pci/$(basename $(readlink /sys/class/infiniband/{device}/device))",
                "the node, as root",
            ),
        ),
        status=Status.WARN,
        explains=(),
    ),
    "device-closed": FindingType(
        headline="the job has no permission to open HCA {at}",
        who=ADMIN,
        cause="a missing /dev/infiniband/uverbs*, or one with other permissions than the rest: a "
        "udev rule, or a driver that was reloaded",
        means="NCCL does not use it: training over fewer rails, without an error",
        text="give every /dev/infiniband/uverbs* the same permissions (0666 in the udev rules of "
        "rdma-core)",
        commands=(Command("ls -l /dev/infiniband; ls /sys/class/infiniband_verbs", "the node"),),
        status=Status.WARN,
    ),
    "port-never-up": FindingType(
        headline="RDMA port {at} is down, and has not been up since boot",
        who=OPERATOR,
        cause="a spare port without a cable, or one whose cable or switch port failed earlier",
        means="nothing if it is a spare port; otherwise training over fewer rails",
        text='list the job\'s ports, so that spare ones are ignored: ports = "…" in '
        '[checks."net.rdma"]; connect it if it is one of them',
        commands=(SHOW,),
        status=Status.WARN,
    ),
    "named-port-down": FindingType(
        headline="NCCL_IB_HCA names an RDMA port that is down: {seen}",
        who=AUTHOR,
        cause="a bad cable or switch port, or an NCCL_IB_HCA written for other machines",
        means=SLOW,
        text="remove the port from NCCL_IB_HCA if it was never meant to be used. Polling: reseat "
        "or swap the cable; Disabled: enable the port",
        commands=(SHOW,),
        status=(Status.WARN, Status.FAIL),
        blame=Blame.UNKNOWN,
        was=("named-down",),
    ),
    "no-subnet-manager": FindingType(
        headline="RDMA port {at} is not active: no subnet manager",
        who=OPERATOR,
        cause="no subnet manager on this fabric, or one that does not reach this port",
        means=SLOW,
        text="start opensm on one node or the subnet manager of the switch; ports then change "
        "from Init to Active at once",
        commands=(Command("sminfo; ibstat {device} {number}", "the node, as root"),),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NETWORK,
    ),
    "port-not-swept": FindingType(
        headline="RDMA port {at} is not active: its subnet manager leaves it out",
        who=OPERATOR,
        cause="a port cabled to another fabric, a GUID that the subnet manager isolates, or one "
        "that it does not reach; a manager runs, as other ports are Active",
        means=SLOW,
        text="look for this port's GUID in the subnet manager's log; retrain the link "
        "(ibportstate … reset), and if it stays in Init check where its cable ends. Do not start a "
        "second manager on the same fabric",
        commands=(
            Command("sminfo; ibstat {device} {number}", "the node, as root"),
            Command("iblinkinfo -C {device} -P {number}", "the node, as root"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NETWORK,
    ),
    "firmware-differs": FindingType(
        headline="HCAs of one make have different firmware: {seen}",
        who=ADMIN,
        cause="a card that was replaced, or a node that missed the last update",
        means="usually nothing; but a bug of one firmware version only affects these HCAs",
        text="install the same firmware on all HCAs of one make",
        commands=(Command("grep . /sys/class/infiniband/*/fw_ver", "the node"),),
        status=Status.WARN,
        explains=(),
    ),
    "rate-low": FindingType(
        headline="RDMA port {at} runs below its speed: {seen}",
        who=OPERATOR,
        cause="a link that came up with fewer lanes or at a lower speed: a bad cable or "
        "transceiver",
        means="every all-reduce waits for this port",
        text="exclude this node, then reseat or swap the cable; compare the port's settings with "
        "those on another node",
        commands=(Command("ibstat {device} {number}; mlxlink -d {device} -m", "the node"),),
        status=(Status.FAIL, Status.WARN),
    ),
    "pcie-downgraded": FindingType(
        headline="the PCIe link of RDMA port {at} is downgraded: {seen}",
        who=OPERATOR,
        cause="a card, riser or retimer with poor contact, or a slot with fewer lanes",
        means="the port says its full rate, and moves half of it or less; every all-reduce waits",
        text="reseat the card; compare slot and BIOS settings with the others",
        commands=(
            Command("grep . /sys/class/infiniband/{device}/device/*_link_*", "the node"),
            Command("lspci -vv | grep -E 'Mellanox|LnkCap|LnkSta'", "the node, as root"),
        ),
        status=Status.WARN,
    ),
    "slow-port-selected": FindingType(
        headline="NCCL_IB_HCA includes a slower RDMA port: {seen}",
        who=AUTHOR,
        cause="an HCA for storage or management that NCCL_IB_HCA includes",
        means="every all-reduce waits for the slowest port",
        now="export NCCL_IB_HCA={fast}",
        text="set NCCL_IB_HCA to the fast ports only",
        status=Status.WARN,
        blame=Blame.JOB,
        was=("slow-taken",),
    ),
    "port-unlisted": FindingType(
        headline="{seen} on {where}, which the job does not expect",
        who=AUTHOR,
        cause="NCCL uses every active port that NCCL_IB_HCA does not exclude",
        means="traffic of the job on the storage network",
        now="export NCCL_IB_HCA={ours}",
        text="set NCCL_IB_HCA to the ports of the job",
        status=Status.WARN,
        blame=Blame.JOB,
        was=("not-ours",),
    ),
    "layers-mixed": FindingType(
        headline="NCCL may mix InfiniBand and RoCE ports on {where}",
        who=AUTHOR,
        cause="active InfiniBand and Ethernet ports, without an NCCL_IB_HCA that selects one kind; "
        "where one name is of both kinds, devices that are numbered in another order there",
        means="'Remote RoCE device is incompatible with the local', or a hang",
        now="export NCCL_IB_HCA={ours}",
        text="set NCCL_IB_HCA to ports of one kind only",
        status=(Status.WARN, Status.FAIL),
        blame=Blame.JOB,
    ),
    "hca-by-prefix": FindingType(
        headline="NCCL_IB_HCA also takes {extra} on {where}, by its prefix",
        who=AUTHOR,
        cause="a name without `=`, which NCCL reads as the beginning of a name",
        means="traffic of the job on a slower port, or on the storage network",
        now="export NCCL_IB_HCA={named}",
        text="put `=` before the list, and name every device of the job in full",
        commands=(Command("ibdev2netdev; ls /sys/class/infiniband", "the node"),),
        status=Status.WARN,
        blame=Blame.JOB,
    ),
    "hca-unmatched": FindingType(
        headline="NCCL_IB_HCA matches no RDMA port on {where}",
        who=AUTHOR,
        cause="an NCCL_IB_HCA written for other machines, or for device names before an update",
        means="'NET/IB : No device found', then " + SLOW,
        now="unset NCCL_IB_HCA",
        text="set it to the devices of this node ({there!s}), or unset NCCL_IB_HCA; prefix `=` "
        "for exact names",
        commands=(Command("ibdev2netdev; ls /sys/class/infiniband", "the node"),),
        blame=Blame.JOB,
    ),
    "gid-unusable": FindingType(
        headline="RDMA port {at} has no usable GID",
        who=ADMIN,
        cause="an NCCL_IB_GID_INDEX meant for other machines, an interface without an IPv4 "
        "address, or a container with its own network",
        means="'ibv_modify_qp failed' or 'Got completion from peer … with status=12' in the first "
        "all-reduce",
        now="unset NCCL_IB_GID_INDEX",
        text="let NCCL (2.21 and later) choose the index; give the interface an IPv4 address; "
        "containers: use the host's network, or an RDMA device plug-in that provides the interface",
        commands=(Command("show_gids {device}", "the node"),),
        status=(Status.WARN, Status.FAIL),
        blame=(Blame.NODE, Blame.JOB),
    ),
    "pkey-unusable": FindingType(
        headline="RDMA port {at} has no usable partition key",
        who=OPERATOR,
        cause="a subnet manager that did not give this port full membership of the partition",
        means="without a key 'ibv_modify_qp failed with error Invalid argument'; between two "
        "limited members 'Got completion from peer … with status=12', or a hang: no packet arrives",
        now="export NCCL_IB_PKEY={index}   on every node",
        text="give the port full membership in partitions.conf (defmember=full; opensm's default "
        "is limited), or set NCCL_IB_PKEY to the index of a key with it (bit 0x8000 set)",
        commands=(
            Command("cat /sys/class/infiniband/{device}/ports/{number}/pkeys/*", "the node"),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NETWORK, Blame.JOB),
    ),
    "partitions-differ": FindingType(
        headline="nodes are in different InfiniBand partitions: {seen}",
        who=OPERATOR,
        cause="a node that the subnet manager has put into another partition, or NCCL_IB_PKEY, "
        "which is an index, where the nodes' tables differ",
        means="'Got completion from peer … with status=12', or a hang: no packet arrives",
        text="give the nodes of a job a partition in common (partitions.conf), at the same index",
        commands=(Command("grep . /sys/class/infiniband/*/ports/*/pkeys/0", "the nodes"),),
        blame=(Blame.NETWORK, Blame.JOB),
    ),
    "subnets-differ": FindingType(
        headline="nodes are in different InfiniBand subnets: {seen}",
        who=OPERATOR,
        cause="a node that is cabled to another fabric, or subnet managers with different "
        "subnet_prefix, and no InfiniBand router between them",
        means="'Got completion from peer … with status=12', or a hang: no packet arrives",
        text="give the job nodes of one fabric; correct the cabling, or subnet_prefix in "
        "opensm.conf",
        commands=(Command("grep . /sys/class/infiniband/*/ports/*/gids/0", "the nodes"),),
        blame=Blame.NETWORK,
    ),
    "layers-differ": FindingType(
        headline="nodes have different kinds of RDMA ports: {seen}",
        who=ADMIN,
        cause="HCAs that came up with another link type (LINK_TYPE_P1), nodes of two clusters, or "
        "an NCCL_IB_HCA that selects another kind on some nodes",
        means="'Remote RoCE device is incompatible with the local', or a hang",
        text="set NCCL_IB_HCA to ports of the same kind on all nodes; set the link type of the "
        "HCAs with mlxconfig, then restart the node",
        commands=(
            Command("ibstat | grep -E '^CA|Link layer'", "the nodes"),
            Command("mlxconfig -d PCI query LINK_TYPE_P1", "the node, as root"),
        ),
        blame=(Blame.NODE, Blame.UNKNOWN),
    ),
    "mtu-differs": FindingType(
        headline="the RDMA MTU differs between nodes: {seen}",
        who=ADMIN,
        cause="an interface that kept its MTU of 1500 when the others were raised",
        means="small all-reduces pass, large ones hang or end with IBV_WC_LOC_LEN_ERR",
        text="set the same MTU on all of them: with an interface MTU of 4200 or more RoCE uses "
        "4096",
        commands=(Command("ibv_devinfo | grep -E 'hca_id|active_mtu'", "the nodes"),),
        status=Status.WARN,
        blame=(Blame.UNKNOWN, Blame.NODE),
    ),
    "gpudirect-missing": FindingType(
        headline="{at} can't use GPUDirect RDMA: nvidia_peermem is not loaded",
        who=ADMIN,
        cause="the module nvidia_peermem not loaded",
        means="'GPU Direct RDMA Disabled for HCA': all data goes through host memory",
        text="load it at boot, after the network driver; or use NVIDIA's open kernel modules with "
        "Linux 5.12 or later (DMA-BUF)",
        commands=(Command("modprobe nvidia-peermem", "the node, as root"),),
        status=Status.WARN,
        explains=("world.bandwidth",),
    ),
    "gpudirect-acs": FindingType(
        headline="GPUDirect RDMA of {at} goes through the CPU: {seen}",
        who=ADMIN,
        cause="ACS, which routes all PCIe traffic between an HCA and a GPU through the CPU; the "
        "kernel turns it on with an IOMMU, also with iommu=pt",
        means="the bandwidth between nodes is about half of the port's, without an error; on some "
        "machines NCCL stops with 'Got completion from peer … with error 4, … vendor err 81'",
        now="export NCCL_NET_GDR_LEVEL=LOC   slow, without GPUDirect RDMA",
        text="disable ACS in the BIOS, or on these bridges after each boot; virtualisation that "
        "needs it: set up address translation services (ATS) instead",
        commands=(Command("setpci -v -s {bridge} ECAP_ACS+6.w=0000", "{node}, as root", "nobody"),),
        status=Status.WARN,
        explains=("world.bandwidth",),
    ),
    "gpudirect-iommu": FindingType(
        headline="GPUDirect RDMA of {at} goes through the CPU: {seen}",
        who=ADMIN,
        cause="an IOMMU that translates the HCAs' PCIe traffic",
        means="the bandwidth between nodes is a fraction of the port's, or NCCL hangs with "
        "GPUDirect RDMA",
        now="export NCCL_NET_GDR_LEVEL=LOC   slow, without GPUDirect RDMA",
        text="boot with iommu=pt, or disable the IOMMU; disable ACS on the bridges above GPUs and "
        "HCAs",
        commands=(
            Command("cat /proc/cmdline /sys/kernel/iommu_groups/*/type | sort -u", "{node}"),
        ),
        status=Status.WARN,
        explains=("world.bandwidth",),
    ),
    "errors-growing": FindingType(
        headline="RDMA port {at} has link errors: {seen}",
        who=OPERATOR,
        cause="a bad cable or transceiver, dust, or a flapping link",
        means="stalls, or 'Got completion from peer … with status=12' after hours",
        text="clean, reseat or swap the cable, then check that the counters stop growing",
        commands=(Command("perfquery -x; ibqueryerrors", "the node, as root"),),
        status=Status.WARN,
    ),
    "retransmissions": FindingType(
        headline="RDMA port {at} loses packets: {seen}",
        who="network administrator",
        cause="RoCE without flow control: PFC or ECN missing on a switch, or another traffic class "
        "on some nodes; a bad cable; on InfiniBand a failing link on the way",
        means="RDMA sends everything after a lost packet again: all-reduces at a fraction of their "
        "speed, or 'Got completion from peer … with status=12'",
        text="compare PFC, ECN and the traffic class (NCCL_IB_TC) of this port with the switch's; "
        "check the counters of dropped packets at the switch port",
        commands=(
            Command(
                "grep . /sys/class/infiniband/{device}/ports/{number}/hw_counters/*_err*",
                "the node, twice",
            ),
            Command("mlnx_qos -i INTERFACE", "the node, as root"),
        ),
        status=Status.WARN,
        blame=Blame.NETWORK,
        explains=("world.bandwidth",),
    ),
    "link-flapped": FindingType(
        headline="the link of RDMA port {at} has failed again and again since boot: {seen}",
        who=OPERATOR,
        cause="a bad cable or transceiver, or somebody who worked on this cable",
        means="an all-reduce stalls each time, or ends with 'Got completion from peer … with "
        "status=12'",
        text="check when it went down; if nobody worked on it, clean, reseat or swap the cable",
        commands=(
            Command("dmesg -T | grep -iE 'link (down|up)|mlx5'", "the node, as root"),
            Command("perfquery -x; ibstat {device} {number}", "the node, as root"),
        ),
        status=Status.WARN,
        explains=(),
    ),
    "errors-counted": FindingType(
        headline="RDMA port {at} has counted far more errors than others like it: {seen}",
        who=OPERATOR,
        cause="a marginal cable or transceiver, or dust: the link holds, and packets are lost",
        means="retransmissions: an all-reduce is slower or stalls, and may end with 'Got "
        "completion from peer … with status=12'",
        text="look at the counters again in an hour; if they grow, clean, reseat or swap the cable",
        commands=(Command("perfquery -x; mlxlink -d {device} -c", "the node, as root"),),
        status=Status.WARN,
        explains=(),
    ),
    "hca-missing": FindingType(
        headline="{at} has fewer RDMA devices than the other nodes: {seen}",
        who=ADMIN,
        cause="an HCA that fell off the bus or did not come up at boot, or a different kind of "
        "node",
        means="two GPUs share one HCA, or NCCL hangs because ranks have different HCAs",
        text="compare lspci with another node; reboot, and if that does not help replace the card",
        commands=(Command("lspci | grep -iE 'infiniband|mellanox'; dmesg | grep mlx", "the node"),),
        status=Status.WARN,
    ),
}


FAST_ETHERNET = 200.0
"""Gbit/s: a card with less may well be the ordinary network's."""
NONE_BESIDE_GPUS = "no RDMA device here, beside the GPUs"


def observe(host: Host, ctx: Context) -> NodeRdma:
    ctx.mark(rdma.TOP)
    if not rdma.devices(host):
        raise NotApplicable(NONE_BESIDE_GPUS if host.gpu_files() else "no RDMA device here")
    before, began = rdma.counters(host), time.monotonic()
    ports = tuple(rdma.ports(host))
    inside = container.kind(host)
    if inside and not any(p.given for p in ports):
        raise NotApplicable("the host's RDMA devices were not given to this container")
    if not any(p.state >= 0 for p in ports):
        raise CannotObserve(f"no state of a port is readable in {rdma.TOP}")
    ctx.mark("GPUs")
    gpus = host.gpu_files()
    nvidias = any("/nvidia" in gpu for gpu in gpus)
    ctx.mark("/sys/bus/pci")
    found = nvml.gpus_on_pci(host) if nvidias else ()
    paths = gpudirect.read_paths(host, [gpu.bus for gpu in found])
    ctx.mark("counters")
    if any(before.values()):
        time.sleep(max(0.0, began + BETWEEN - time.monotonic()))
    apart, after = time.monotonic() - began, rdma.counters(host)
    index = nccl_setting(host, "NCCL_IB_GID_INDEX")
    key, version = (
        nccl_setting(host, "NCCL_IB_PKEY"),
        nccl_setting(host, "NCCL_IB_ROCE_VERSION_NUM"),
    )
    ctx.mark(kernel_log.KMSG)
    transmit = functools.partial(mlx5_transmit, bus_of=rdma.buses(host))
    dead, underpowered, not_sending = errors_by_kind(
        host, LOG_SECONDS, mlx5_errors, mlx5_power, transmit, about=b"mlx5_core"
    )
    return NodeRdma(
        ports=tuple(
            replace(
                p,
                grown=rdma.growth(before.get(p.name, {}), after.get(p.name, {})),
                counted=rdma.nonzero(after.get(p.name, {})),
            )
            for p in ports
        ),
        rule=nccl_setting(host, "NCCL_IB_HCA"),
        off=rdma.disabled_by(host),
        gid_index=strtoll(index)[0] if index and 0 <= strtoll(index)[0] < 1 << 16 else None,
        pkey_index=strtoll(key)[0] if key else None,
        searched=not nccl_setting(host, "NCCL_IB_ADDR_RANGE"),
        roce_version=strtoll(version)[0] if version else 2,
        ipv6=nccl_setting(host, "NCCL_IB_ADDR_FAMILY") == "AF_INET6",
        ours=str(ctx.options.get("ports") or ""),
        gpus=len(gpus),
        gpu_numa=_gpu_numa(host) if nvidias else (),
        peering=_peering(host) if nvidias else None,
        inside=inside,
        apart=round(apart, 3),
        dead=dead,
        underpowered=underpowered,
        not_sending=not_sending,
        paths=paths,
        virtual=pci.virtual_machine(host),
        gdr_level=nccl_setting(host, "NCCL_NET_GDR_LEVEL")[:LEVEL_KEPT],
    )


def _gpu_numa(host: Host) -> tuple[int, ...]:
    paths = (f"/sys/bus/pci/devices/{gpu.bus}/numa_node" for gpu in nvml.gpus_on_pci(host))
    found = (host.read_int(path) for path in paths)
    return tuple(sorted({n for n in found if n is not None and n >= 0}))


def _peering(host: Host) -> bool | None:
    # GeForce cards have no GPUDirect RDMA at all (NVIDIA, GPUDirect RDMA: Tesla and Quadro)
    top = "/proc/driver/nvidia/gpus"
    told = [host.read_or_none(f"{top}/{card}/information") or "" for card in host.listdir(top)[:64]]
    return None if any("GeForce" in text for text in told) else rdma.peer_memory(host)


def judge(world: World[NodeRdma], expect: Expect) -> Iterator[Found]:
    fabrics = {here.node: seen for here, seen in world.each()}
    several = world.topology.several_nodes
    infiniband = {
        p.name for f in world.distinct if f.concerned for p in f.preferred if p.layer == INFINIBAND
    }

    def of_node(here: Subject, seen: NodeRdma) -> Iterator[Found]:
        down = _PortFindings(here)
        for port in seen.ports:
            if port.idle and port.layer in (INFINIBAND, ETHERNET):
                _judge_down(down, fabrics, seen, port, several)
        yield from down.findings()
        yield from _judge_dead(here, seen)
        yield from _judge_power(here, seen)
        yield from _judge_sending(here, seen)
        yield from _judge_closed(here, seen)
        yield from _judge_rate(here, fabrics, seen)
        yield from _judge_pcie(here, seen)
        yield from _judge_errors(here, seen)
        yield from _judge_flaps(here, seen)
        yield from _judge_missing(here, fabrics, seen)
        if seen.concerned:
            yield from _judge_prefix(here, seen)
        if seen.concerned and several:
            yield from _judge_choice(here, seen, any(f.code for f in down.findings()), infiniband)
            yield from _judge_addresses(here, fabrics, seen)
            yield from _judge_paths(here, seen)

    yield from world.found(of_node)
    yield from _judge_firmware(world, fabrics)
    yield from _judge_without(world, fabrics)
    if several:
        yield from _judge_mtu(world, fabrics)
        layers = of_each(fabrics, hca_selection.layers)
        yield from _judge_apart(world, "layers-differ", layers)
        keys = of_each(fabrics, hca_selection.partitions)
        given = any(seen.pkey_index is not None for seen in world.distinct)
        blame = Blame.JOB if given else Blame.NETWORK
        yield from _judge_apart(world, "partitions-differ", keys, blame)
        prefixes = of_each(fabrics, hca_selection.subnets)
        yield from _judge_apart(world, "subnets-differ", prefixes, Blame.NETWORK)


def _judge_prefix(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """Ports that NCCL_IB_HCA takes only because a name of its list begins theirs, where they are of
    another make than what it names in full, and slower: that was hardly meant."""
    rule = seen.parsed
    if rule.exact or rule.negated:
        return
    named = [p for p in seen.taken if rule.means(p.device, p.number)]
    kinds, rate = {p.kind for p in named}, max((p.rate for p in named), default=0.0)
    extra = [
        p
        for p in seen.taken
        if not rule.means(p.device, p.number) and p.kind not in kinds and 0 < p.rate < rate
    ]
    if extra:
        devices = ", ".join(p.device for p in extra[:LISTED])
        yield Found(
            "hca-by-prefix",
            (here,),
            saw=f"NCCL_IB_HCA={quoted(seen.rule)} takes {devices} of {extra[0].rate:g} Gb/s, too",
            expected=f"ports like {named[0].device} of {rate:g} Gb/s alone",
            fields={"extra": devices, "named": "=" + ",".join(sorted({p.device for p in named}))},
        )


def _judge_firmware(world: World[NodeRdma], fabrics: Mapping[str, NodeRdma]) -> Iterator[Found]:
    """HCAs of one make with other firmware than most of them, in this node or in others. Of two
    versions that are as frequent none is the outlier."""
    known = {(p.kind, p.firmware) for seen in world.distinct for p in _with_firmware(seen)}
    if len(known) == len({kind for kind, _ in known}):
        return
    makes: dict[str, dict[tuple[str, str], str]] = {}
    for node, seen in fabrics.items():
        for port in _with_firmware(seen):
            makes.setdefault(port.kind, {})[node, port.device] = port.firmware
    for versions in makes.values():
        counts = Counter(versions.values()).most_common()
        if len(counts) < 2:
            continue
        tie = counts[0][1] == counts[1][1]
        odd = [place for place, version in versions.items() if tie or version != counts[0][0]]
        said = [f"{device} of {node} {versions[node, device]}" for node, device in odd[:LISTED]]
        more = f" and {len(odd) - LISTED} more" if len(odd) > LISTED else ""
        yield Found(
            "firmware-differs",
            tuple(
                Subject(Kind.NIC, node, device, world.topology.ranks_of(node))
                for node, device in odd[:LISTED]
            ),
            saw=", ".join(said)[:300] + more,
            expected="one firmware version on all of them" if tie else f"{counts[0][0]:.40}",
            blame=Blame.UNKNOWN if tie else None,
            confidence=Confidence.POSSIBLE if tie else Confidence.CERTAIN,
        )


def _with_firmware(seen: NodeRdma) -> Iterator[RdmaPort]:
    return (p for p in seen.ports if p.kind and p.firmware and not p.virtual)


class _PortFindings:
    """Ports of one node, gathered by what is wrong with them: eight dead ports are one finding."""

    def __init__(self, here: Subject) -> None:
        self.here = here
        self.found: dict[tuple[Any, ...], list[tuple[RdmaPort, str]]] = {}

    def add(
        self,
        port: RdmaPort,
        code: str,
        saw: str,
        expected: str,
        fast: str = "",
        index: str | None = None,
        **unusual: Any,
    ) -> None:
        """`unusual`: the status, blame or confidence, where it is not this code's usual one."""
        key = code, expected, fast, index, tuple(unusual.items())
        self.found.setdefault(key, []).append((port, saw))

    def findings(self) -> Iterator[Found]:
        for (code, expected, fast, index, unusual), ports in self.found.items():
            parts = [f"{port.name} {saw}" for port, saw in ports[:LISTED]]
            more = len(ports) - len(parts)
            first = ports[0][0]
            yield Found(
                code,
                tuple(_nic_subject(self.here, port) for port, _ in ports),
                saw="; ".join(parts) + (f" and {more} more" if more else ""),
                expected=expected,
                fields={"device": first.device, "number": str(first.number)}
                | ({"fast": f"={fast}"} if fast else {})
                | ({} if index is None else {"index": index}),
                **{"confidence": Confidence.LIKELY, **dict(unusual)},
            )


def _nic_subject(here: Subject, port: RdmaPort) -> Subject:
    return Subject(Kind.NIC, here.node, port.device, ranks=here.ranks, port=port.number)


def _judge_down(
    down: _PortFindings,
    fabrics: Mapping[str, NodeRdma],
    seen: NodeRdma,
    port: RdmaPort,
    several: bool,
) -> None:
    unmanaged = hca_selection.waits_for_manager(port)
    code = "port-down"
    if unmanaged:
        code = "port-not-swept" if _managed(fabrics, port) else "no-subnet-manager"
    peers = hca_selection.expected_active(fabrics, port.name)
    status, sure, says = Status.FAIL, Confidence.LIKELY, port.says
    unusual: dict[str, Any] = {}
    if seen.claims(port):
        why, sure = "it is a port of the job (ports)", Confidence.CERTAIN
    elif seen.gpus and peers:
        why = f"as on {parties(peers, 3)}"
    elif not seen.concerned:
        return
    elif seen.named(port):
        # the list may be another cluster's: that is no reason to take a node away
        why = "NCCL_IB_HCA names it"
        status = Status.FAIL if several else Status.WARN
        code = code if unmanaged else "named-port-down"
    elif several and (users := hca_selection.alone_without(fabrics, seen, port)):
        # the job fails either way; but a node may be built without a fabric, unless there is a link
        unusual = {} if port.was_up or unmanaged else {"blame": Blame.UNKNOWN}
        why = f"as on {parties(users, 3)}, whose ranks use it"
        says += ", as all RDMA ports of this node" * (len(seen.ports) > 1)
    elif unmanaged:
        # somebody has put a cable in; but it may be the storage's, or this job may need none
        why = "the link is there"
        if not several or any(p.active for p in seen.ports):
            status = Status.WARN
    elif few := seen.few_down(port):
        left_out = seen.leaves_out(port)
        if hca_selection.unused_everywhere(fabrics, port.name):
            return
        why = f"as the {sum(p.active for p in seen.alike(port))} others like it here"
        # spare ports that were never cabled are known: what has had a partner is none, nor is what
        # another node has in use
        used = port.was_up or any(
            p.active for p in hca_selection.same_port(fabrics, port.name).values()
        )
        if used:
            status = Status.FAIL if few == 1 and not left_out else Status.WARN
        elif left_out:
            return
        else:
            code, status = "port-never-up", Status.WARN
        says += ", was up since boot" if port.was_up else ", not up since boot"
    else:
        return
    down.add(port, code, says, f"Active: {why}", status=status, confidence=sure, **unusual)


def _managed(fabrics: Mapping[str, NodeRdma], port: RdmaPort) -> bool:
    """Whether a subnet manager runs where ports of this make are: one of them is Active."""
    return any(
        p.active and (p.kind, p.layer) == (port.kind, port.layer)
        for fabric in fabrics.values()
        for p in fabric.ports
    )


def _describe_rate(port: RdmaPort) -> str:
    return f"{port.rate:g} Gb/s" + (f" ({port.width})" if port.width else "")


def _judge_rate(here: Subject, fabrics: Mapping[str, NodeRdma], seen: NodeRdma) -> Iterator[Found]:
    slow = _PortFindings(here)
    taken = seen.taken
    for port in seen.ports:
        if not (port.active and port.rate and (seen.gpus or seen.claims(port))):
            continue
        like = {
            node: other.rate
            for node, other in hca_selection.same_port(fabrics, port.name).items()
            if other.active and other.rate and (other.kind, other.layer) == (port.kind, port.layer)
        }
        agreed = consensus(like)
        if len(like) > 2 and agreed.value and port.rate < agreed.value:
            wanted = f"{agreed.value:g} Gb/s, as on {parties(agreed.holders, 3)}"
            slow.add(port, "rate-low", _describe_rate(port), wanted)
            continue
        if port.layer == INFINIBAND and port.width.startswith(NARROW) and not port.virtual:
            wanted = "4 lanes, or 2 behind a splitter cable"
            sure = {"status": Status.WARN, "confidence": Confidence.CERTAIN}
            slow.add(port, "rate-low", _describe_rate(port), wanted, **sure)
            continue
        best, fast = max(((rate, node) for node, rate in like.items()), default=(0.0, ""))
        if len(like) == 2 and 2 * port.rate <= best and not port.virtual:
            # which of two is right no majority says; but the faster one shows what the card can do
            wanted = f"{best:g} Gb/s, as on {fast}"
            slow.add(port, "rate-low", _describe_rate(port), wanted, status=Status.WARN)
            continue
        twins = hca_selection.faster_twins(seen, port)
        if twins:
            wanted = f"{twins[0].rate:g} Gb/s, as {parties([p.name for p in twins], 3)}"
            status = Status.WARN
            slow.add(port, "rate-low", _describe_rate(port), wanted, status=status)
            continue
        mine = {p.name: p.rate for p in taken if p.rate}
        usual = consensus(mine)
        # half as fast as most of those that were asked for by name
        half = len(mine) > 2 and 2 * port.rate <= (usual.value or 0)
        if half and seen.concerned and seen.named(port):
            wanted = f"{usual.value:g} Gb/s, as {parties(usual.holders, 3)}"
            fast = ",".join(usual.holders)
            slow.add(port, "slow-port-selected", _describe_rate(port), wanted, fast)
    yield from slow.findings()


def _judge_pcie(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """Ports whose card moves less over PCIe than it could, and than all others of its make here."""
    narrow = _PortFindings(here)
    for port in seen.ports:
        mine = port.card or port.device
        twins = [p for p in seen.alike(port) if (p.card or p.device) != mine and p.pcie]
        wide = min((p.pcie for p in twins), default=0.0)
        used = port.active and (seen.gpus or seen.claims(port)) and not port.virtual
        if used and len(twins) > 1 and 0 < 2 * port.pcie <= min(wide, port.pcie_max):
            saw = f"{port.pcie:g} GT/s over all lanes, of the {port.pcie_max:g} its card can"
            wanted = f"{wide:g} GT/s, as the {len(twins)} others like it here"
            narrow.add(port, "pcie-downgraded", saw, wanted)
    yield from narrow.findings()


def _judge_errors(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    growing = _PortFindings(here)
    for port in seen.ports:
        if not (port.active and (seen.gpus or seen.claims(port))):
            continue
        if grown := rdma.link_errors(port.grown):
            saw = f"{rdma.grown_words(grown)} in {seen.apart:.1f} s"
            growing.add(port, "errors-growing", saw, "counters that do not grow")
        elif port.physical == rdma.RECOVERING:
            growing.add(port, "errors-growing", port.says, "physical LinkUp: a link that holds")
        resent = rdma.lost_packets(port.grown)
        if resent and (port in seen.preferred or seen.claims(port)):
            saw = f"{rdma.grown_words(resent)} in {seen.apart:.1f} s"
            growing.add(port, "retransmissions", saw, "counters that do not grow")
    yield from growing.findings()


def _judge_flaps(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """Ports whose link went down or was retrained often, or that have had many errors without it,
    where no other of its make here did: a switch that was restarted takes all of them down."""
    faulty = _PortFindings(here)
    for port in seen.ports:
        twins = [p for p in seen.alike(port) if p is not port and p.downed is not None]
        used = seen.gpus or seen.claims(port)
        if not (port.active and port.kind and len(twins) > 1 and used):
            continue
        counted = {"link_downed": port.downed or 0, RECOVERED: port.counted.get(RECOVERED, 0)}
        usual = {
            "link_downed": max(p.downed or 0 for p in twins),
            **{n: max(p.counted.get(n, 0) for p in twins) for n in (RECOVERED, *ERRORS)},
        }
        flaps = {n: v for n, v in counted.items() if v >= max(FLAPS, FLAPS * usual[n])}
        errors = {
            name: value
            for name in ERRORS
            if (value := port.counted.get(name, 0)) >= max(MANY_ERRORS, ERRORS_TIMES * usual[name])
        }
        said = ", ".join(f"{name} {value}" for name, value in {**flaps, **errors}.items())
        least = usual[next(iter({**flaps, **errors}), RECOVERED)]
        wanted = f"{least} at most, as on the {len(twins)} others like it here"
        if flaps:
            faulty.add(port, "link-flapped", said, wanted)
        elif errors and port.downed == 0:
            sure = Confidence.LIKELY
            faulty.add(port, "errors-counted", said, wanted, confidence=sure)
    yield from faulty.findings()


def _judge_dead(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """HCAs whose firmware does not answer: their ports may be Active all the same."""
    dead = _PortFindings(here)
    for port in seen.ports:
        used = seen.gpus or seen.claims(port)
        for one in seen.dead if used and port.card else ():
            if one.bus.rpartition(".")[0] == port.card and one.age < RECENT:
                times = f"{one.count} times, last " if one.count > 1 else ""
                saw = f"mlx5_core {one.bus}: {one.words} · {times}{duration(one.age)} ago"
                dead.add(port, "hca-dead", saw, "an HCA whose firmware responds")
    yield from dead.findings()


def _judge_power(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """Each function of a card says it for itself, of the same slot."""
    weak = _PortFindings(here)
    of_card = {one.bus.rpartition(".")[0]: one for one in reversed(seen.underpowered)}
    for port in seen.ports:
        used = (seen.concerned and port in seen.preferred) or seen.claims(port)
        one = of_card.get(port.card) if used and port.card and not port.virtual else None
        if one and not 0 < port.lanes_max <= SOLDERED:
            saw = f"mlx5_core {one.bus}: {one.words}"
            weak.add(port, "slot-power-low", saw, "a slot with the power that the card asks for")
    yield from weak.findings()


def _judge_sending(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """Of a HCA that is dead, or a port that is down, other findings say more."""
    recent = [one for one in seen.not_sending if one.age < RECENT]
    dead = {one.bus.rpartition(".")[0] for one in seen.dead if one.age < RECENT}
    stuck = _PortFindings(here)
    for port in seen.ports:
        used = (seen.gpus or seen.claims(port)) and port.active and port.card not in dead
        for one in recent if used and port.card else ():
            card, _, function = one.bus.rpartition(".")
            # one device stands for both functions of a bond (LAG)
            if card == port.card and (port.function in ("", function) or "bond" in port.device):
                saw = f"{one.words} ({one.bus}) {duration(one.age)} ago"
                wanted = "no TX timeout in the kernel's log of the last hour, or a recovery since"
                stuck.add(port, "tx-timeout", saw, wanted)
                break
    yield from stuck.findings()


def _judge_closed(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """Some of several devices may not be opened. In a container that is what it was given."""
    closed = _PortFindings(here)
    opened = [p for p in seen.ports if p.given and p.active]
    for port in seen.ports if opened and not seen.inside else ():
        alike = [p for p in opened if p.kind == port.kind and p.layer == port.layer]
        if port.active and not port.given and alike and (seen.gpus or seen.claims(port)):
            what = f"may not be opened, {plural(len(alike), 'other port')} of its make may"
            closed.add(port, "device-closed", what, "all HCAs of the job can be opened")
    yield from closed.findings()


def _judge_missing(
    here: Subject, fabrics: Mapping[str, NodeRdma], seen: NodeRdma
) -> Iterator[Found]:
    counts = {
        node: len({p.device for p in other.ports if not p.virtual})
        for node, other in fabrics.items()
        if other.gpus == seen.gpus and not other.inside
    }
    agreed = consensus(counts)
    if seen.gpus and agreed.value and counts.get(here.node, agreed.value) < agreed.value:
        yield Found(
            "hca-missing",
            (here,),
            saw=plural(counts[here.node], "RDMA device"),
            expected=f"{agreed.value}, as on {parties(agreed.holders, 3)}",
            confidence=Confidence.LIKELY,
        )


def _judge_without(world: World[NodeRdma], fabrics: Mapping[str, NodeRdma]) -> Iterator[Found]:
    """Nodes with GPUs and no device at all, where most of the nodes with GPUs have some."""
    missing = world.missing(Cause.NOT_APPLICABLE)
    bare = [key for key, why in missing.items() if why.detail == NONE_BESIDE_GPUS]
    counts = {
        node: len({p.device for p in seen.ports})
        for node, seen in fabrics.items()
        if seen.concerned and not seen.inside and any(map(_for_training, seen.ports))
    }
    usual = consensus(counts)
    if bare and len(bare) < len(usual.holders) and usual.value:
        yield Found(
            "hca-missing",
            tuple(world.subject(key) for key in bare),
            saw="no RDMA device",
            expected=f"{usual.value}, as on {parties(usual.holders, 3)}",
            confidence=Confidence.LIKELY,
        )


def _for_training(port: RdmaPort) -> bool:
    """Hardly a card that is there for the node's ordinary network alone."""
    fast = port.layer == INFINIBAND or port.driver == rdma.EFA or port.rate >= FAST_ETHERNET
    return port.active and fast


def _port_names(ports: Iterable[RdmaPort]) -> str:
    return ",".join(port.name for port in ports)


def _judge_choice(
    here: Subject, seen: NodeRdma, told: bool, infiniband_somewhere: Set[str]
) -> Iterator[Found]:
    """What NCCL takes of what there is; and names that are those of an InfiniBand port on some
    node."""
    taken = seen.taken
    able = [p for p in seen.within_reach if p.active and p.driver != rdma.EFA]
    infiniband, ethernet = (
        [p for p in seen.preferred if p.layer == layer] for layer in (INFINIBAND, ETHERNET)
    )
    if seen.rule and not taken and able and not told:
        admitted = [p for p in seen.ports if seen.parsed.admits(p.device, p.number)]
        what = f"only {admitted[0].name}, {admitted[0].says}" if admitted else "no port here"
        yield Found(
            "hca-unmatched",
            (here,),
            saw=f"NCCL_IB_HCA={seen.rule[:80]!r} names {what}",
            expected=f"some of {parties([p.name for p in able])}",
            fields={"there": parties([p.name for p in able])},
        )
    if infiniband and ethernet:
        saw = f"InfiniBand {parties([p.name for p in infiniband])} · Ethernet "
        saw += parties([p.name for p in ethernet])
        # NCCL connects the ports of two nodes in their order, and refuses two of unlike kinds
        if apart := [p for p in ethernet if p.name in infiniband_somewhere]:
            saw += f" · {parties([p.name for p in apart])} InfiniBand on other nodes"
        yield Found(
            "layers-mixed",
            tuple(_nic_subject(here, p) for p in apart or ethernet),
            saw=saw,
            expected="ports of one link layer, the same ones on all nodes",
            status=Status.FAIL if apart else Status.WARN,
            confidence=Confidence.LIKELY,
            fields={"ours": f"={_port_names(infiniband)}"},
        )
    if seen.ours and any(seen.claims(p) for p in seen.ports):
        foreign = [p for p in taken if not seen.claims(p)]
        if foreign:
            yield Found(
                "port-unlisted",
                tuple(_nic_subject(here, p) for p in foreign),
                saw=f"NCCL would use {parties([p.name for p in foreign])} too",
                expected=f"ports {seen.ours[:80]}",
                fields={"ours": "=" + _port_names(p for p in seen.ports if seen.claims(p))},
            )
    if taken and seen.peering is False:
        yield Found(
            "gpudirect-missing",
            (here,),
            saw="neither nvidia_peermem nor what dma-buf needs",
            expected="HCAs with access to GPU memory",
            confidence=Confidence.LIKELY,
        )


def _judge_paths(here: Subject, seen: NodeRdma) -> Iterator[Found]:
    """ACS or an IOMMU between an HCA that NCCL takes and a GPU below the same PCI switch. In a
    virtual machine both are the host's business."""
    level = nvlink.p2p_level_setting("", seen.gdr_level)
    far = nvlink.MULTIPLE if level is None else level
    ports = {port.device: port for port in reversed(seen.preferred)}
    ways = [
        path
        for path in seen.paths
        if path.device in ports and (nvlink.SINGLE if path.near else nvlink.MULTIPLE) <= far
    ]
    if seen.peering is not True or seen.virtual is not False:
        return
    bridges = {bridge: None for path in ways for bridge in path.redirected}
    by_acs = f"ACS redirects at {parties(list(bridges), LISTED)}"
    if translated := [path for path in ways if path.translated]:
        yield Found(
            "gpudirect-iommu",
            tuple(_nic_subject(here, ports[path.device]) for path in translated),
            saw=f"{_pair(translated)} through an IOMMU in mode {translated[0].iommu}"
            + f" · {by_acs}" * bool(bridges),
            expected="mode identity (iommu=pt), or no IOMMU",
            confidence=Confidence.LIKELY,
            fields={"node": here.node},
        )
    elif redirected := [path for path in ways if path.redirected]:
        yield Found(
            "gpudirect-acs",
            tuple(_nic_subject(here, ports[path.device]) for path in redirected),
            saw=f"{by_acs} · {_pair(redirected)}",
            expected="no redirection on bridges between an HCA and a GPU",
            confidence=Confidence.LIKELY,
            fields={"node": here.node, "bridge": next(iter(bridges))},
        )


def _pair(ways: list[GpuPath]) -> str:
    """`mlx5_0 and GPU 0000:18:00.0 below one switch, and 3 more`."""
    more = f", and {len(ways) - 1} more" if len(ways) > 1 else ""
    return f"{ways[0].device} and GPU {ways[0].gpu} below one switch{more}"


def _judge_addresses(
    here: Subject, fabrics: Mapping[str, NodeRdma], seen: NodeRdma
) -> Iterator[Found]:
    bad = _PortFindings(here)
    roce = [p for p in seen.preferred if p.layer == ETHERNET and p.gid_slots and not p.iwarp]
    without = [p for p in roce if seen.gid(p) is None]
    asked = "" if seen.gid_index is None else f"NCCL_IB_GID_INDEX={seen.gid_index}"
    wanted = "a RoCE v2 GID for an IPv4 address"
    blame = Blame.JOB if asked or seen.inside else Blame.NODE
    for port in roce if asked or seen.searched else ():
        gid = seen.gid(port)
        if gid is None:
            filled = ", ".join(str(g.index) for g in port.gids[:8]) or "none"
            # a card that nobody asked for may be there for something else
            hard = len(without) == len(roce) or seen.claims(port) or seen.named(port)
            saw = f"has no GID{asked and ' at ' + asked}, filled: {filled}"
            status = Status.FAIL if hard else Status.WARN
            bad.add(port, "gid-unusable", saw, wanted, status=status, blame=blame)
        elif gid.link_local or (asked and gid.version == 1):
            what = "link-local" if gid.link_local else "of RoCE v1"
            saw = f"has at {gid.index} a GID that is {what}"
            bad.add(port, "gid-unusable", saw, wanted, blame=blame)
    index = seen.pkey_index or 0
    limited = sum(of_each(fabrics, _has_limited_member).values())
    mute = Counter(of_each(fabrics, _limited_partition).values())
    alone = mute[_limited_partition(seen)] > 1 and bool(_limited_partition(seen))
    index_of = _index_of_full_keys(fabrics)
    for port in (p for p in seen.taken if p.layer == INFINIBAND and p.pkey is not None):
        empty = not (port.pkey or 0) & 0x7FFF
        # a limited member may talk to full ones, two limited ones never (IBTA, P_Key matching)
        if empty or (_is_limited_member(port) and limited > 1):
            saw = f"has partition key {port.pkey:#06x} at {index}" + " (limited)" * (not empty)
            if port.full_pkey is not None:
                saw += ", {1:#06x} at {0} (full)".format(*port.full_pkey)
            status = Status.FAIL if empty or alone else Status.WARN
            whose = Blame.NETWORK if seen.pkey_index is None else Blame.JOB
            full = "a key with full membership"
            bad.add(port, "pkey-unusable", saw, full, index=index_of, status=status, blame=whose)
    yield from bad.findings()


def _limited_partition(fabric: NodeRdma) -> int:
    """The partition of which a node is a limited member only, by all ports that NCCL takes; 0 where
    there is none: two of such nodes have no way to each other."""
    ports = [p for p in fabric.taken if p.layer == INFINIBAND]
    keys = {p.pkey for p in ports if _is_limited_member(p)}
    limited = len(keys) == 1 and all(map(_is_limited_member, ports))
    return next(iter(keys)) or 0 if limited else 0


def _index_of_full_keys(fabrics: Mapping[str, NodeRdma]) -> str:
    """The index at which all ports that NCCL takes have a full member's key of one partition."""
    ports = [p for f in fabrics.values() for p in f.taken if p.layer == INFINIBAND]
    keys = {p.full_pkey for p in ports}
    key = next(iter(keys)) if len(keys) == 1 else None
    return str(key[0]) if key is not None else ""


def _has_limited_member(fabric: NodeRdma) -> bool:
    return any(_is_limited_member(port) for port in fabric.taken)


def _is_limited_member(port: RdmaPort) -> bool:
    return port.layer == INFINIBAND and bool(port.pkey) and not (port.pkey or 0) & 0x8000


def _least_mtu(seen: NodeRdma) -> int | None:
    """None where NCCL uses no Ethernet port, or none that says its MTU."""
    ports = [p for p in seen.preferred if p.mtu and p.layer == ETHERNET] if seen.concerned else []
    return min((rdma.roce_mtu(p.mtu) for p in ports), default=None)


def _judge_mtu(world: World[NodeRdma], fabrics: Mapping[str, NodeRdma]) -> Iterator[Found]:
    least = {id(seen): _least_mtu(seen) for seen in world.distinct}
    told = ((node, least[id(fabric)]) for node, fabric in fabrics.items())
    sizes = {node: size for node, size in told if size is not None}
    agreed = consensus(sizes)
    odd = [node for nodes in agreed.odd.values() for node in nodes]
    if len(set(sizes.values())) < 2:
        return
    texts = [f"RDMA MTU {size} on {parties(nodes, 3)}" for size, nodes in agreed.odd.items()]
    yield Found(
        "mtu-differs",
        tuple(world.subject(node) for node in odd),
        saw=" · ".join(sorted(texts)[:LISTED]),
        expected=f"{agreed.value}, as on {parties(agreed.holders, 3)}" if agreed.value else "one",
        blame=Blame.UNKNOWN if agreed.tie else Blame.NODE,
        confidence=Confidence.POSSIBLE if agreed.tie else Confidence.LIKELY,
        alternatives=("NCCL before 2.20 uses the smaller one by itself",),
    )


def _judge_apart(
    world: World[NodeRdma],
    code: str,
    sets: Mapping[str, Set[str]],
    blame: Blame | None = None,
) -> Iterator[Found]:
    """Nodes whose ports have nothing in common with those of others: there is no way between them.
    `sets`: node -> what its ports are of; a node of which that is not known says nothing."""
    known = {node: " ".join(sorted(own)) for node, own in sets.items() if own}
    agreed = consensus(known)
    usual = set((agreed.value or "").split())
    odd = {
        text: nodes
        for text, nodes in agreed.odd.items()
        if not usual & set(text.split()) and any(not sets[nodes[0]] & sets[n] for n in known)
    }
    if len(set(known.values())) < 2 or not odd:
        return
    yield Found(
        code,
        tuple(world.subject(node) for nodes in odd.values() for node in nodes),
        saw=", ".join(f"{text} on {parties(odd[text], 3)}" for text in sorted(odd)[:LISTED]),
        expected=f"{agreed.value}, as on {parties(agreed.holders, 3)}"
        if agreed.value
        else "one in common",
        blame=Blame.UNKNOWN if agreed.tie and blame is None else blame,
        confidence=Confidence.LIKELY,
    )


def measured(world: World[NodeRdma]) -> Measured:
    # of most nodes, which have said the same, there is one
    ports = [p for fabric in world.distinct for p in fabric.ports]
    if not ports:
        return Measured()
    devices = {id(fabric): [*_devices(fabric)] for fabric in world.distinct}
    active = {id(fabric): sum(p.active for p in fabric.ports) for fabric in world.distinct}
    count = sum(len(fabric.ports) for fabric in world.seen.values())
    up = [p for p in ports if p.active]
    able = sum(active[id(fabric)] for fabric in world.seen.values())
    rates = sorted({f"{p.layer} {_describe_rate(p)}" for p in up if p.rate})
    parts = [f"{able} of {plural(count, 'port')} active", *rates[:2]]
    first = next(iter(world.seen.values()))
    if len(world.seen) == 1 and (idle := [p.name for p in ports if p.idle]):
        parts.append(f"not {parties(idle, 3)}")
    if any(p.driver == rdma.EFA for p in ports):
        parts.append("EFA")
    if first.off:
        parts.append(first.off)
    near = {p.numa for p in first.taken}
    if far := [n for n in first.gpu_numa if near - {None} and n not in near]:
        parts.append(f"no HCA near the GPUs of NUMA node {', '.join(map(str, far[:4]))}")
    return Measured(
        " · ".join(parts),
        {"ports": count, "active": able, "gbit_s": min((p.rate for p in up), default=0)},
        parts=tuple(
            Device(Kind.NIC, node, *device)
            for node, fabric in (world.seen.items() if world.drawn else ())
            for device in devices[id(fabric)]
        ),
    )


def _devices(seen: NodeRdma) -> Iterator[tuple[str, str, str, bool]]:
    """Of each port what a Device takes behind its kind and its node."""
    taken = seen.taken
    for p in seen.ports:
        near = "" if p.numa is None else f"NUMA node {p.numa}"
        yield p.name, near, f"{p.layer} {_describe_rate(p)}", p in taken and not p.active
