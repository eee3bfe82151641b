"""Faults that the job's author made: identity, port, names, variables."""

from __future__ import annotations

from faults.inject import Fault
from lab.host import HOSTS, Machine

from preflight.identity.launcher_options import as_variables
from preflight.identity.launchers import OPTIONS

PORT = "n1 · MASTER_PORT"
HELD = "n1 · MASTER_PORT · port 29500"
ALL = "n1 · rank 0"
"""The primary subject where one environment has all ranks."""

STORE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **STORE}
TORCHRUN = {**RANK, "TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}


C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=n1:29500")


def at(name: str) -> dict[str, str]:
    """MASTER_ADDR and a port."""
    return {"MASTER_ADDR": name, "MASTER_PORT": "29500"}


PORTS = (
    Fault(
        "MASTER_PORT is held by another user's server",
        "net.port",
        "port-held",
        HELD,
        says="'python",
        env=STORE,
        beside="listen 29500 nobody",
    ),
    Fault(
        "MASTER_PORT is held by the store of a run that did not end",
        "net.port",
        "port-leftover",
        HELD,
        says="'python",
        env=STORE,
        beside="store 29500",
    ),
    Fault(
        "something else listens at the endpoint of a torchrun with c10d",
        "net.port",
        "port-held",
        HELD,
        env=as_variables(["torchrun", *C10D, "train.py"], {}),
        beside="listen 29500 nobody",
        nproc=None,
    ),
    Fault(
        "MASTER_PORT is the near end of somebody's connection",
        "net.port",
        "port-outgoing",
        HELD,
        says="has an outgoing connection from",
        env=STORE,
        beside="outgoing 29500",
    ),
    Fault(
        "MASTER_PORT below 1024, not root",
        "net.port",
        "port-privileged",
        "n1 · MASTER_PORT · port 80",
        env=STORE | {"MASTER_PORT": "80"},
        user=65534,
    ),
    Fault(
        "MASTER_PORT inside the ephemeral range",
        "net.port",
        "port-ephemeral",
        "n1 · MASTER_PORT · port 40000",
        status="warn",
        exit=0,
        env=STORE | {"MASTER_PORT": "40000"},
    ),
    Fault(
        "MASTER_PORT=70000",
        "env.identity",
        "port-invalid",
        ALL,
        env=STORE | {"MASTER_PORT": "70000"},
    ),
    Fault(
        "MASTER_PORT in quotes",
        "env.identity",
        "port-invalid",
        ALL,
        env=STORE | {"MASTER_PORT": '"29500"'},
    ),
    Fault(
        "MASTER_PORT with a carriage return",
        "env.identity",
        "number-whitespace",
        ALL,
        status="warn",
        says="29500\\r",
        exit=0,
        env=STORE | {"MASTER_PORT": "29500\r"},
    ),
)

NAMES = (
    Fault(
        "MASTER_ADDR has no record",
        "net.name",
        "master-unresolved",
        "n1 · MASTER_ADDR",
        says="gpu-017",
        env=at("gpu-017"),
        machine=Machine(resolv="nameserver 127.0.0.1\n"),
        beside="dns 0 gpu-018=10.77.0.18",
    ),
    Fault(
        "MASTER_ADDR with a carriage return",
        "env.identity",
        "address-malformed",
        ALL,
        says="n1\\r",
        env=at("n1\r"),
    ),
    Fault(
        "MASTER_ADDR=n1:29500",
        "env.identity",
        "address-malformed",
        ALL,
        says="n1:29500",
        env=at("n1:29500"),
    ),
    Fault("MASTER_ADDR=http://n1", "env.identity", "address-malformed", ALL, env=at("http://n1")),
    Fault(
        "MASTER_ADDR is a node list",
        "env.identity",
        "address-malformed",
        ALL,
        env=at("gpu-[017-020]"),
    ),
    Fault(
        "MASTER_ADDR is a number",
        "env.identity",
        "address-malformed",
        ALL,
        says="0.104.99.143",
        env=at("6841231"),
    ),
    Fault(
        "MASTER_ADDR=fe80::1 without an interface",
        "env.identity",
        "address-malformed",
        ALL,
        says="%eth0",
        env=at("fe80::1"),
    ),
    Fault(
        "MASTER_ADDR is an address of nobody",
        "net.name",
        "master-elsewhere",
        "n1 · MASTER_ADDR",
        env=at("10.77.0.99"),
    ),
    Fault(
        "MASTER_ADDR has the address of another machine, too",
        "net.name",
        "master-ambiguous",
        "n1 · MASTER_ADDR",
        status="warn",
        exit=0,
        env=at("gpu-017"),
        machine=Machine(hosts=HOSTS + "10.77.0.1 gpu-017\n10.77.0.99 gpu-017\n"),
    ),
    Fault(
        "MASTER_ADDR has another machine's IPv6 address first",
        "net.name",
        "master-ambiguous",
        "n1 · MASTER_ADDR",
        status="warn",
        exit=0,
        env=at("gpu-017"),
        machine=Machine(hosts=HOSTS + "2001:db8::17 gpu-017\n10.77.0.1 gpu-017\n"),
        setup="ip -6 route add 2001:db8::/32 dev eth0",
    ),
    Fault(
        "MASTER_ADDR=localhost, and /etc/hosts has no localhost",
        "net.name",
        "master-unresolved",
        "n1 · MASTER_ADDR",
        says="localhost",
        env=at("localhost"),
        machine=Machine(hosts="", resolv="nameserver 127.0.0.1\n"),
        beside="dns 0 n1=10.77.0.1",
    ),
    Fault(
        "the name server never answers, MASTER_ADDR is a name",
        "net.name",
        "resolver-silent",
        "n1",
        env=at("gpu-017"),
        machine=Machine(resolv="nameserver 127.0.0.1\n"),
        beside="dns never",
        seconds=9,
    ),
    Fault(
        "the name server never answers, MASTER_ADDR is an address",
        "net.name",
        "reverse-slow",
        "n1",
        status="warn",
        exit=0,
        env=at("10.77.0.1"),
        machine=Machine(resolv="nameserver 127.0.0.1\n"),
        beside="dns never",
        seconds=9,
    ),
    Fault(
        "the name server takes 1 s",
        "net.name",
        "resolver-slow",
        "n1",
        status="warn",
        exit=0,
        env=at("gpu-017"),
        machine=Machine(resolv="nameserver 127.0.0.1\n"),
        beside="dns 1 gpu-017=10.77.0.1",
        also=("net.name reverse-slow",),
        seconds=9,
    ),
)

INTERFACES = (
    Fault(
        "GLOO_SOCKET_IFNAME=^lo",
        "env.vars",
        "interface-syntax",
        "n1 · GLOO_SOCKET_IFNAME",
        env={"GLOO_SOCKET_IFNAME": "^lo"},
    ),
    Fault(
        "GLOO_SOCKET_IFNAME=eth7",
        "net.interface",
        "ifname-unmatched",
        "n1 · GLOO_SOCKET_IFNAME",
        says="eth0",
        env={"GLOO_SOCKET_IFNAME": "eth7"},
    ),
    Fault(
        "GLOO_SOCKET_IFNAME names an interface without an address",
        "net.interface",
        "interface-down",
        "n1 · eth1",
        env={"GLOO_SOCKET_IFNAME": "eth1"},
        setup="ip link add eth1 type veth peer name eth2",
    ),
    Fault(
        "NCCL_SOCKET_IFNAME=ib",
        "net.interface",
        "ifname-unmatched",
        "n1 · NCCL_SOCKET_IFNAME",
        env={"NCCL_SOCKET_IFNAME": "ib"},
        status="warn",  # no GPU there: NCCL will not be asked
        exit=0,
    ),
    Fault(
        "NCCL_SOCKET_FAMILY=AF_INET6 without IPv6",
        "net.interface",
        "interface-down",
        "n1 · NCCL_SOCKET_FAMILY",
        env={"NCCL_SOCKET_FAMILY": "AF_INET6"},
        status="warn",
        exit=0,
        setup="echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6",
    ),
)


def variable(text: str, code: str, *, fails: bool = False, **more: object) -> Fault:
    """A setting of env.vars, `NAME=value`."""
    name, _, value = text.partition("=")
    changes = {"status": "fail" if fails else "warn", "exit": 3 if fails else 0} | more
    env = {name: value}
    return Fault(text, "env.vars", code, f"n1 · {name}", env=env, **changes)  # type: ignore[arg-type]


VARIABLES = (
    variable("NCCL_SOKET_IFNAME=eth0", "name-unknown", says="NCCL_SOKET_IFNAME"),
    variable("NCCL_IB_DISABLE=true", "value-misread"),
    variable("NCCL_BUFFSIZE=4M", "value-misread"),
    variable("NCCL_DEBUG=infoo", "value-misread"),
    variable("NCCL_IB_TIMEOUT=1000", "value-range"),
    variable("NCCL_ASYNC_ERROR_HANDLING=1", "name-deprecated"),
    variable("NCCL_CONF_FILE=/nowhere/nccl.conf", "conf-missing"),
    variable("TORCH_DISTRIBUTED_DEBUG=DETAIL", "debug-detail"),
    variable("TORCH_DISTRIBUTED_DEBUG=LOUD", "import-fails", fails=True),
    variable("TORCH_FR_BUFFER_SIZE=abc", "value-hangs", fails=True),
    variable("GLOO_DEVICE_TRANSPORT=RDMA", "value-refused", fails=True),
    Fault(
        "/etc/nccl.conf is written for a shell",
        "env.vars",
        "conf-syntax",
        "n1 · NCCL_DEBUG",
        status="warn",
        exit=0,
        setup="echo 'export NCCL_DEBUG=INFO' > /etc/nccl.conf",
    ),
)

IDENTITY = (
    Fault(
        "RANK=4 of WORLD_SIZE=4",
        "env.identity",
        "out-of-range",
        "n1 · rank 4",
        env=RANK | at("n1") | {"RANK": "4", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"},
        nproc=None,
    ),
    Fault(
        "LOCAL_RANK=2 of LOCAL_WORLD_SIZE=2",
        "env.identity",
        "out-of-range",
        "n1 · rank 1",
        status="warn",
        says="no GPU here that would be chosen by it",
        exit=0,
        env=RANK | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"},
        nproc=None,
    ),
    Fault(
        "RANK without WORLD_SIZE",
        "env.identity",
        "incomplete",
        "n1 · rank 0",
        env={"RANK": "0", **STORE},
        nproc=None,
    ),
    Fault(
        "RANK=$RANK",
        "env.identity",
        "number-malformed",
        "n1 · rank 0",
        env=RANK | {"WORLD_SIZE": "$WORLD_SIZE"},
        nproc=None,
    ),
    Fault(
        "gate, and a torchrun of as many nodes as come",
        *("env.identity", "nodes-unchecked", "n1*"),
        status="warn",
        exit=0,
        env={OPTIONS: "PET_NNODES=--nnodes", "PET_NNODES": "1:2", "PET_NPROC_PER_NODE": "1"}
        | {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "n1:29500"},
        nproc=None,
    ),
    Fault(
        "PET_NPROC_PER_NODE=gpu where there is no GPU",
        *("env.identity", "gpus-absent", "n1*"),
        env={"PET_NNODES": "1", "PET_NPROC_PER_NODE": "gpu"},
        nproc=None,
    ),
    Fault(
        "RANK=0 for every task of srun",
        "env.identity",
        "launcher-disagrees",
        "n1 · rank 0",
        env=RANK
        | {
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "4",
            "SLURM_JOB_ID": "48121",
            "SLURM_PROCID": "3",
            "SLURM_LOCALID": "3",
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_STEP_NUM_NODES": "1",
        },
        nproc=None,
    ),
    Fault(
        "each of 4 tasks starts a torchrun of 4",
        "env.identity",
        "launchers-nested",
        "n1 · rank 0",
        env=TORCHRUN
        | at("n1")
        | {
            "WORLD_SIZE": "16",
            "LOCAL_WORLD_SIZE": "4",
            "GROUP_WORLD_SIZE": "2",
            "SLURM_JOB_ID": "48121",
            "SLURM_PROCID": "0",
            "SLURM_STEP_NUM_TASKS": "4",
            "SLURM_STEP_NUM_NODES": "1",
        },
        nproc=None,
    ),
    Fault(
        "each of two pods starts torchrun with --nnodes=1",
        "env.identity",
        "worlds-split",
        "n1 · rank 0",
        env=TORCHRUN
        | at("n1")
        | {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "PET_NNODES": "2"}
        | {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "PET_NODE_RANK": "0"},
        nproc=None,
    ),
    Fault(
        "srun on two nodes starts torchrun without --nnodes",
        "env.identity",
        "worlds-split",
        "n1 · rank 0",
        env=TORCHRUN
        | at("n1")
        | {
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "4",
            "GROUP_WORLD_SIZE": "1",
            "SLURM_JOB_ID": "48121",
            "SLURM_PROCID": "1",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NUM_NODES": "2",
        },
        nproc=None,
    ),
    Fault(
        "torchrun's variables in another start",
        "env.identity",
        "store-not-served",
        "n1 · rank 0",
        env=RANK | {"TORCHELASTIC_USE_AGENT_STORE": "True"},
        nproc=None,
    ),
    Fault(
        "--nproc in each process of a launcher",
        says="RANK=0",
        exit=2,
        env=RANK | {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"},
    ),
    Fault(
        "several nodes and no MASTER_ADDR",
        says="MASTER_ADDR",
        exit=2,
        env={"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        nproc=None,
    ),
)

FAULTS = (*PORTS, *NAMES, *INTERFACES, *VARIABLES, *IDENTITY)
