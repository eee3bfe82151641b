"""Is MASTER_PORT free on rank 0's node, and are there enough ports for all ranks?

Looks at     MASTER_PORT; on the node of rank 0 a short test listener, the sockets in /proc/net/tcp
             and tcp6 and the process that holds them; the ephemeral range
             net.ipv4.ip_local_port_range and the ports reserved in it; entries, size and idle
             timeout of the connection tracking table, and what the kernel has logged of it in the
             last hour
Fails if     MASTER_PORT is not a port number; it needs privileges that are missing; a listener or
             an outgoing connection holds it; torchrun's variables say that its agent does, for a
             job of this node alone, and nothing listens there; the ephemeral range has fewer ports
             than ranks, or no free one
Warns if     rank 0's node has a listen queue (net.core.somaxconn) that is shorter than 128 and
             than the job has ranks; MASTER_PORT is inside the ephemeral range, where any outgoing
             connection may take it first; the range is narrow for the ranks of this node; the
             connection tracking table is nearly full, the kernel has dropped packets for it in the
             last hour, or it forgets connections of several nodes that are idle for less than 5
             minutes; a torchrun with c10d would use the store of another run at its
             --rdzv-endpoint, or may not need the port that is taken
Undecided    the port can't be tested and the sockets can't be read
Not covered  firewalls (rdzv.reach, net.mesh); the tracking table of a pod's node; connections in
             TIME_WAIT, which do no harm; under torchrun the port belongs to its agent and is not
             touched; from torch 2.12 on a torchrun of one node with no --master-port takes a free
             one; a port that another agent of this run holds for the meeting, since it came
             before that of rank 0, or was started with the same rank (rdzv.reach)
Seen as      "EADDRINUSE", "Address already in use", "errno: 98", "Permission denied",
             "The server socket has failed to listen on any local network address",
             "port must have value from 0 to 65535", "Cannot assign requested address",
             "Ping failed, invalid value returned from server",
             "nf_conntrack: table full, dropping packet", "but somaxconn is"
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterator
from typing import Any

from preflight.check import Check, Context, Scope, Stage
from preflight.domains.kernel_log import kernel_log, uptime
from preflight.domains.net import meeting_port
from preflight.domains.net.conntrack import tracking_table
from preflight.domains.net.port_owners import ESTABLISHED, LISTEN, Holder, holders, sockets_at
from preflight.domains.rendezvous.torchrun_port import NO_ID, TorchrunPort, run_of, torchrun_port
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration
from preflight.identity.discover import NO_PORT
from preflight.identity.launchers import RAY
from preflight.model import (
    Blame,
    CannotObserve,
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

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=4.0,
    disturbs="MASTER_PORT for a moment",
    drains=True,
    holds_port=True,
    blame=Blame.JOB,
    explains=("rdzv.*", "world.*"),
)

# NCCL's guide calls 50000-51000 enough for a node, which is 125 a rank with 8 GPUs; a rank needs a
# listener for each communicator and backend and a port for each connection that it opens
PORTS_PER_RANK = 32

# net/netfilter/nf_conntrack_core.c; newer kernels say in which network namespace
TABLE_FULL = re.compile(
    r"nf_conntrack: table full(?: in netns \d{1,12})?, dropping packet", re.ASCII
)
LOG_SECONDS, LOG_HOUR = 0.5, 3600.0
# the kernel makes room only among connections that are not established; what is left up to here is
# gone in a moment when all ranks connect
TABLE_NEARLY_FULL = 0.95

# what kernels before 5.4 had, with which jobs of hundreds of ranks ran; torch itself warns of
# any queue that is shorter than the job has ranks (TCPStore.cpp: backlog -1 is somaxconn)
QUEUE_LEAST = 128

# seconds for which all connections of a job may well be idle, as in a checkpoint or an evaluation;
# the kernel's own value is 5 days, kube-proxy's one day
IDLE_LEAST = 300

# what a rank, an agent or a notebook of an earlier run is called
RUNNERS = ("python", "pt_elastic", "pt_main", "torchrun", "accelerate", "deepspeed", "ipython")

WHO_HOLDS = Command("ss -tanp sport = :{port}", "the node of rank 0")

FINDINGS = {
    "port-invalid": FindingType(
        headline="MASTER_PORT is not a valid port number: {seen}",
        who="job author",
        cause="a typo, leftover quotes, or an empty variable",
        means="'port must have value from 0 to 65535', 'invalid literal for int()', or rank 0 "
        "listens on a port that the other ranks do not know",
        now="export MASTER_PORT=29500",
        text="set MASTER_PORT to a number from 1024 to 65535 outside the ephemeral range",
    ),
    "port-privileged": FindingType(
        headline="{at} can't listen on MASTER_PORT {port}: permission denied",
        who="job author",
        cause="a port below 1024 and a user who is not root, or a security policy",
        means="rank 0 stops at once: 'The server socket has failed to bind … errno: 13 - "
        "Permission denied'",
        now="export MASTER_PORT=29500",
        text="choose a port above 1023",
    ),
    "port-held": FindingType(
        headline="MASTER_PORT {port} is taken: {seen}",
        who="job author",
        cause="another job with the same default port, or a service",
        means="rank 0 stops with 'EADDRINUSE … Address already in use'; the other ranks connect "
        "to the wrong server and hang, or say 'Ping failed, invalid value returned from server'",
        now="{take}   on every node",
        text="choose a different port for each job ({option!s}), e.g. 10000 + "
        "SLURM_JOB_ID % 20000; on one node torchrun --standalone finds a free port itself",
        commands=(WHO_HOLDS,),
        status=(Status.FAIL, Status.WARN),
    ),
    "port-leftover": FindingType(
        headline="MASTER_PORT {port} is still held by another run: {seen}",
        who="job author",
        cause="an earlier run that did not end, or another run of yours on the same port",
        means="rank 0 stops with 'EADDRINUSE … Address already in use'; the other ranks join the "
        "old store and hang; a torchrun with c10d waits in the rendezvous of that run",
        now="{take}   on every node",
        text="end the earlier run, or choose a different port for each job ({option!s}), e.g. "
        "10000 + SLURM_JOB_ID % 20000",
        commands=(
            Command("ps -fp {pid}", "the node of rank 0"),
            Command("kill {pid}", "the node of rank 0", disturbs="ends that run"),
        ),
        status=(Status.FAIL, Status.WARN),
    ),
    "store-shared": FindingType(
        headline="torchrun will use the store of another run at port {port}: {seen}",
        who="job author",
        cause="two torchruns with the same --rdzv-endpoint and each its own --rdzv-id",
        means="both work until the other one ends; then this one stops with 'The connection to the "
        "C10d store has failed'",
        text="choose a different port for each job ({option!s}); on one node torchrun --standalone "
        "finds a free port itself",
        commands=(Command("ps -fp {pid}", "the node of rank 0"),),
        status=Status.WARN,
        explains=(),
    ),
    "port-outgoing": FindingType(
        headline="MASTER_PORT {port} is taken by an outgoing connection: {seen}",
        who="job author",
        cause="a MASTER_PORT in the ephemeral range, from which outgoing connections take their "
        "ports",
        means="rank 0 stops with 'EADDRINUSE … Address already in use' although nothing listens "
        "there",
        now="{take}   on every node",
        text="choose a port outside net.ipv4.ip_local_port_range ({option!s})",
        commands=(WHO_HOLDS,),
        status=(Status.FAIL, Status.WARN),
    ),
    "agent-store-missing": FindingType(
        headline="torchrun's variables are set, but no torchrun holds the store at port {port}",
        who="job author",
        cause="TORCHELASTIC_USE_AGENT_STORE left over from a torchrun around this shell, notebook "
        "or job, in the environment of ranks that torchrun did not start",
        means="no rank listens, not even rank 0: 'The client socket has timed out' on all of them",
        now="unset TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_RUN_ID",
        text="start the ranks with torchrun, or clear its TORCHELASTIC_ variables before another "
        "launcher starts them",
        commands=(WHO_HOLDS,),
        explains=("rdzv.reach:agent-store-missing", "rdzv.store", "world.*"),
    ),
    "port-ephemeral": FindingType(
        headline="MASTER_PORT {port} can be taken by any outgoing connection: it is in the "
        "ephemeral range",
        who="job author",
        cause="a port in the range that outgoing connections take their ports from",
        means="sometimes a job stops at start with 'EADDRINUSE … Address already in use'",
        now="{take}   on every node",
        text="choose a port outside the range ({option!s}), or reserve this one: "
        "net.ipv4.ip_local_reserved_ports={port}",
        commands=(
            Command("sysctl net.ipv4.ip_local_port_range", "the node of rank 0"),
            Command("sysctl -w net.ipv4.ip_local_reserved_ports={port}", "the node of rank 0"),
        ),
        status=Status.WARN,
        explains=(),
    ),
    "ports-few": FindingType(
        headline="{at} has too few ephemeral ports for the job: {seen}",
        cause="a net.ipv4.ip_local_port_range narrowed for a firewall, or a "
        "net.ipv4.ip_local_reserved_ports that takes most of it",
        means="NCCL and Gloo fail with 'Cannot assign requested address' or 'Address already in "
        "use' once all ports of the range are in use",
        text="widen net.ipv4.ip_local_port_range to at least {wanted} ports, or reserve fewer of "
        "them",
        commands=(
            Command(
                "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
                "the node",
                disturbs="a firewall that opens the narrow range only",
            ),
        ),
        status=(Status.WARN, Status.FAIL),
        blame=Blame.NODE,
        explains=("net.mesh", "rdzv.store", "world.*"),
    ),
    "ports-used-up": FindingType(
        headline="{at} has no ephemeral port left: {seen}",
        who="whoever runs this node",
        cause="a program that leaks connections or listeners, many short connections, a narrow "
        "net.ipv4.ip_local_port_range",
        means="'Address already in use' or 'Cannot assign requested address' wherever NCCL, Gloo "
        "or torch listens or connects",
        text="end the program that holds the ports, or widen net.ipv4.ip_local_port_range",
        commands=(
            Command("ss -s", "the node"),
            Command("ss -tanp", "the node, as root: whose they are"),
        ),
        blame=Blame.NODE,
        explains=("net.name", "net.mesh", "rdzv.*", "world.*"),
    ),
    "listen-queue-short": FindingType(
        headline="the listen queue of {at} holds {most} connections, for {size} ranks",
        who="cluster administrator",
        cause="net.core.somaxconn lowered by a hardening profile, or by the container's runtime: "
        "torch asks for a queue as long as that",
        means="torch warns 'Starting store with {size} workers but somaxconn is {most}'; with all "
        "ranks at once some wait for a retransmission, 1, 3, 7 s, or get 'Connection reset by "
        "peer' where tcp_abort_on_overflow is 1",
        now="sysctl -w net.core.somaxconn=4096   on {node}, as root",
        text="set net.core.somaxconn to 4096, the kernel's default, in /etc/sysctl.d; docker: "
        "--sysctl net.core.somaxconn=4096",
        commands=(Command("nstat -az TcpExtListenOverflows TcpExtListenDrops", "the node"),),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=(),
    ),
    "conntrack-full": FindingType(
        headline="the connection tracking table of {at} is full: {seen}",
        cause="many connections through a firewall or NAT, or a small nf_conntrack_max",
        means="new connections are dropped without an answer: init_process_group or "
        "ncclCommInitRank hangs in one start and passes in the next",
        text="raise net.netfilter.nf_conntrack_max, or exempt the nodes of a job from tracking "
        "(notrack)",
        commands=(
            Command(
                "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max", "the node"
            ),
            Command("sysctl -w net.netfilter.nf_conntrack_max={wanted}", "the node"),
        ),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=("net.mesh", "rdzv.store", "world.*"),
    ),
    "conntrack-idle": FindingType(
        headline="{at} forgets idle connections: {seen}",
        who="whoever runs this node",
        cause="a short nf_conntrack_tcp_timeout_established, set for a busy NAT or web server",
        means="after a checkpoint or an evaluation that takes longer: 'Connection reset by peer', "
        "or a hang, where a firewall or NAT of this node drops what it does not know",
        text="raise net.netfilter.nf_conntrack_tcp_timeout_established to 86400, or exempt the "
        "nodes of a job from tracking (notrack)",
        commands=(
            Command("sysctl net.netfilter.nf_conntrack_tcp_timeout_established", "the node"),
            Command(
                "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_established=86400", "the node"
            ),
        ),
        status=Status.WARN,
        blame=Blame.NODE,
        explains=(),
    ),
}


@dataclass(frozen=True, slots=True)
class MasterPort:
    """port 0: not known. `bind`: the errno that a listener gets, 0 when it can stand there, None
    when it was not tried. low, high, reserved: the ephemeral range and how much of it is reserved;
    kept: whether MASTER_PORT is a reserved one; meeting: an agent of this very run holds it for the
    meeting, since it came before that of rank 0. tracked of tracked_most: connections in the
    kernel's table, 0 of 0 where there is none; idle: seconds without a packet after which it
    forgets one, 0 where it keeps none; dropped: how often the kernel has logged in the last hour
    that it is full, and dropped_ago: seconds since it last did. queue: net.core.somaxconn, the
    longest queue of connections that a listener here has, None where that can't be read. used_up:
    the kernel has no port left to give. torchrun: `port` is the one of a torchrun that is to come;
    joins: the --rdzv-id of the torchrun with c10d that holds it, if one does. unserved: the ranks
    are all of this node and clients of torchrun's agent, and nothing listens on the port."""

    port: int
    agent: bool
    bind: int | None
    holders: tuple[Holder, ...]
    low: int = 0
    high: int = 0
    reserved: int = 0
    kept: bool = False
    meeting: bool = False
    tracked: int = 0
    tracked_most: int = 0
    idle: int = 0
    dropped: int = 0
    dropped_ago: float = 0.0
    queue: int | None = None
    used_up: bool = False
    torchrun: TorchrunPort | None = None
    joins: str | None = None
    unserved: bool = False


def observe(host: Host, ctx: Context) -> MasterPort:
    port = ctx.master_port if 0 < ctx.master_port < 65536 else 0
    # the exact word that torch looks for: then all ranks are clients of the agent's store
    agent = host.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    own = torchrun_port(host, ctx.node)
    port = own.port if own else port
    low, high = _ephemeral_range(host)
    bind: int | None = None
    unserved = False
    found: tuple[Holder, ...] = ()
    meeting = False
    if port and not agent and 0 in ctx.topology.ranks_of(ctx.node):
        ctx.mark(f"listen on port {port}")
        bind = _bind_errno(host, port) if host.live else None
        if bind != 0:  # else nobody has it, and to read all sockets takes as long as all the rest
            ctx.mark("/proc/net/tcp")
            sockets = sockets_at(host, port)
            if bind is None and sockets is None:
                raise CannotObserve("neither can the port be tried nor are its sockets readable")
            if sockets:
                ctx.mark("whose port it is")
                found = holders(host, sockets)
                meeting = meeting_port.signed(host, ctx.topology)
                name = meeting_port.rank_name(ctx.topology, host.environ)
                meeting = meeting or len(meeting_port.claimants(host, name)) > 1
    elif port and agent and own is None and not ctx.topology.several_nodes:
        ctx.mark("/proc/net/tcp")
        sockets = sockets_at(host, port)
        unserved = sockets is not None and not any(s.state == LISTEN for s in sockets)
    reserved = _reserved_ranges(host)
    ctx.mark("connection tracking")
    table = tracking_table(host)
    dropped = _table_was_full(host) if table.most else []
    return MasterPort(
        port=port,
        agent=agent,
        bind=bind,
        holders=found,
        low=low,
        high=high,
        reserved=sum(max(0, min(b, high) - max(a, low) + 1) for a, b in reserved),
        kept=any(a <= port <= b for a, b in reserved),
        meeting=meeting,
        tracked=table.entries,
        tracked_most=table.most,
        idle=table.idle,
        dropped=len(dropped),
        dropped_ago=round(min(dropped, default=0.0), 1),
        queue=host.read_int("/proc/sys/net/core/somaxconn"),
        used_up=_no_port_left(host) if host.live else False,
        torchrun=own,
        unserved=unserved,
        joins=next((run for h in found if (run := run_of(host, h.pid)) is not None), None),
    )


def _no_port_left(host: Host) -> bool:
    """Whether the kernel can't give a listener any port."""
    error = host.can_bind("127.0.0.1")
    return error is not None and error.errno == errno.EADDRINUSE


def _table_was_full(host: Host) -> list[float]:
    """How many seconds ago the kernel has logged it, of the last hour; nothing where the log can't
    be read."""
    up = uptime(host)
    try:
        log = kernel_log(host, up, time.monotonic() + LOG_SECONDS, b"table full") if up else ()
        return [age for age, text in log if age < LOG_HOUR and TABLE_FULL.search(text[:200])]
    except CannotObserve:
        return []


def _bind_errno(host: Host, port: int) -> int:
    """The errno that a listener of c10d would get: it tries [::] for both families, then IPv4."""
    error: OSError | None = None
    for ip in ("::", "0.0.0.0"):
        try:
            error = host.can_bind(ip, port)
        except OSError as no_family:  # a kernel without IPv6
            error = no_family
        if error is None:
            return 0
    return (error.errno if error else None) or errno.EIO


def _ephemeral_range(host: Host) -> tuple[int, int]:
    text = host.read_or_none("/proc/sys/net/ipv4/ip_local_port_range") or ""
    numbers = [int(n) for n in text.split()[:2] if n.isdecimal() and len(n) < 6]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


def _reserved_ranges(host: Host) -> list[tuple[int, int]]:
    """The ranges of ip_local_reserved_ports: `8080,9000-9010`."""
    found = []
    text = host.read_or_none("/proc/sys/net/ipv4/ip_local_reserved_ports") or ""
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        last = last or first
        if first.isdecimal() and last.isdecimal() and len(part) < 12:
            found.append((int(first), int(last)))
    return found


def judge(world: World[MasterPort], expect: Expect) -> Iterator[Found]:
    fact = world.topology.facts.get("master_port")
    source = fact.source if fact else ""
    chosen_by_us = "free port" in source
    for here, seen in world.each():
        other = str(_other_port(seen))
        name = _said_by(source, seen.torchrun)
        typed = name.startswith("-")  # which counts before every variable
        take = "" if typed else f"export\0{name}={other}"
        fields = {"port": str(seen.port), "other": other, "pid": "", "option": name, "take": take}
        where = Subject(Kind.SOFTWARE, here.node, "MASTER_PORT", here.ranks)
        if source == NO_PORT and fact is not None and 0 in here.ranks:
            yield Found(
                "port-invalid",
                (where,),
                saw=f"MASTER_PORT={fact.value[:60]!r}",
                expected="a number from 1 to 65535",
                fields=fields,
            )
        if seen.unserved:
            yield Found(
                "agent-store-missing",
                (where,),
                saw="TORCHELASTIC_USE_AGENT_STORE=True, so that all ranks are clients of a store "
                f"that torchrun holds · nothing listens on port {seen.port} here",
                expected="a torchrun that holds it, or no variables of one",
                confidence=Confidence.LIKELY,
                fields=fields,
            )
        if seen.port and not seen.agent and (seen.torchrun or not chosen_by_us):
            yield from _judge_port(here, seen, fields, source, world.topology.launcher)
        yield from _judge_range(here, seen)
        yield from _judge_queue(here, seen, world.topology.size)
        yield from _judge_tracking(here, seen)
        if world.topology.several_nodes:
            yield from _judge_idle(here, seen)


def _said_by(source: str, own: TorchrunPort | None) -> str:
    """The variable or the option that says which port it is."""
    if own is not None:
        return "--rdzv-endpoint" if own.run else "PET_MASTER_PORT"
    by, _, name = source.partition(" ")
    return name if by in ("env", "torchrun") else "MASTER_PORT"


def _judge_port(
    here: Subject, seen: MasterPort, fields: dict[str, str], source: str, launcher: str
) -> Iterator[Found]:
    where = Subject(Kind.SOFTWARE, here.node, "MASTER_PORT", here.ranks, port=seen.port)
    listeners = [h for h in seen.holders if h.state == LISTEN]
    if seen.bind == errno.EACCES:
        yield Found(
            "port-privileged",
            (where,),
            saw=f"listening on port {seen.port} is not permitted to this user",
            expected="a port above 1023",
            fields=fields,
        )
        return
    taken = seen.bind == errno.EADDRINUSE or (seen.bind is None and bool(seen.holders))
    # of nodes that have no number yet each tries it, and of one of them it will be
    if taken and not seen.meeting and 0 in here.ranks:
        holder = next(iter([*listeners, *seen.holders]), None)
        code = "port-held"
        if holder is not None and not listeners:
            code = "port-outgoing"
        elif holder is not None and holder.mine and holder.name.startswith(RUNNERS):
            code = "port-leftover"
        if holder is not None and holder.pid:
            fields["pid"] = str(holder.pid)
        found = Found(
            code,
            (where,),
            saw=_describe_holder(holder)
            if holder
            else f"port {seen.port} is in use by a socket that can't be seen from here",
            expected=f"port {seen.port} free on the node of rank 0",
            confidence=Confidence.CERTAIN if seen.bind else Confidence.LIKELY,
            fields=fields,
        )
        if seen.torchrun is not None:
            pid = holder.pid if holder else 0
            found = found.with_(**_of_torchrun(seen.torchrun, seen.joins, pid))
        yield found
        return
    # Ray Train has the kernel choose it for each run
    chosen = launcher == RAY.name
    if 0 in here.ranks and seen.low <= seen.port <= seen.high and not seen.kept and not chosen:
        yield Found(
            "port-ephemeral",
            (where,),
            saw=f"MASTER_PORT {seen.port} is inside {seen.low}-{seen.high}, from which outgoing "
            f"connections take their ports{' · ' + source[:60] if source else ''}",
            expected="a port outside net.ipv4.ip_local_port_range, or a reserved one",
            fields=fields,
        )


def _of_torchrun(own: TorchrunPort, joins: str | None, pid: int) -> dict[str, Any]:
    """What to say otherwise of the port of a torchrun that is to come, where process `pid` holds
    it, 0 where that can't be seen."""
    if own.run and joins not in (None, own.run):
        return {"code": "store-shared", "status": Status.WARN}
    if own.older is None:
        other = "the torch of torchrun is 2.12 or later, and it takes a free port"
    elif own.run not in ("", NO_ID) and not pid and not own.several:
        other = "the holder is a torchrun with another --rdzv-id: its store serves both"
    else:
        return {}
    return {
        "status": Status.WARN,
        "confidence": Confidence.POSSIBLE,
        "alternatives": (other,),
    }


def _judge_range(here: Subject, seen: MasterPort) -> Iterator[Found]:
    ranks = max(1, len(here.ranks))
    ports = seen.high - seen.low + 1 - seen.reserved
    if seen.used_up and (ports > 0 or not seen.high):
        of = f"all {ports} ports of {seen.low}-{seen.high} (net.ipv4.ip_local_port_range) are"
        yield Found(
            "ports-used-up",
            (here,),
            saw=f"{of if seen.high else 'all ports are'} in use",
            expected="a free port for each listener and connection",
        )
    elif seen.high and ports < PORTS_PER_RANK * ranks:
        yield Found(
            "ports-few",
            (here,),
            saw=f"net.ipv4.ip_local_port_range is {seen.low} {seen.high}"
            + ", less those of net.ipv4.ip_local_reserved_ports" * bool(seen.reserved)
            + f": {max(0, ports)} ports",
            expected=f"{PORTS_PER_RANK} for each of {ranks} ranks",
            fields={"wanted": str(PORTS_PER_RANK * ranks)},
            status=Status.FAIL if ports < ranks else Status.WARN,
            explains=FINDINGS["ports-used-up"].explains if ports <= 0 else None,
        )


def _judge_queue(here: Subject, seen: MasterPort, size: int) -> Iterator[Found]:
    if 0 in here.ranks and seen.queue is not None and seen.queue < min(size, QUEUE_LEAST):
        yield Found(
            "listen-queue-short",
            (here,),
            saw=f"net.core.somaxconn is {seen.queue} · {size} ranks connect to the store at once",
            expected=f"at least {min(size, QUEUE_LEAST)}",
            confidence=Confidence.LIKELY,
            fields={"most": str(seen.queue), "size": str(size), "node": here.node},
        )


def _judge_tracking(here: Subject, seen: MasterPort) -> Iterator[Found]:
    full = seen.tracked_most and seen.tracked >= TABLE_NEARLY_FULL * seen.tracked_most
    if not full and not seen.dropped:
        return
    parts = [f"{seen.tracked} of {seen.tracked_most} entries"] if seen.tracked_most else []
    if seen.dropped:
        ago = duration(seen.dropped_ago)
        parts.append(f"the kernel logged 'table full, dropping packet' {ago} ago")
    yield Found(
        "conntrack-full",
        (here,),
        saw=" · ".join(parts),
        expected=f"less than {TABLE_NEARLY_FULL:.0%} of nf_conntrack_max",
        confidence=Confidence.CERTAIN if full else Confidence.LIKELY,
        fields={"wanted": str(max(262144, 2 * seen.tracked_most))},
    )


def _judge_idle(here: Subject, seen: MasterPort) -> Iterator[Found]:
    if 0 < seen.idle < IDLE_LEAST:
        yield Found(
            "conntrack-idle",
            (here,),
            saw=f"nf_conntrack_tcp_timeout_established is {seen.idle} s",
            expected=f"at least {IDLE_LEAST} s",
            confidence=Confidence.POSSIBLE,
            alternatives=("no rule of this node drops what is not tracked",),
        )


def _describe_holder(holder: Holder) -> str:
    does = {
        LISTEN: f"listens on {holder.local}",
        ESTABLISHED: f"has an outgoing connection from {holder.local}",
    }.get(holder.state, f"has {holder.local} in state {holder.state}")
    if not holder.pid:
        return f"a process of {holder.user} that can't be seen from here {does}"
    since = f" · started {duration(holder.age)} ago" if holder.age is not None else ""
    return f"pid {holder.pid} {holder.name!r} of {holder.user} {does}{since}"


def _other_port(seen: MasterPort) -> int:
    """A port to take instead, outside of the ephemeral range where there is room."""
    candidates = (29500, 29600, 29400, 12355, 61234)
    outside = [p for p in candidates if not seen.low <= p <= seen.high and p != seen.port]
    return (outside or [p for p in candidates if p != seen.port])[0]


def measured(world: World[MasterPort]) -> Measured:
    seen = next((v for v in world.seen.values() if v.bind is not None), None)
    seen = seen or next(iter(world.seen.values()), None)
    if seen is None:
        return Measured()
    words = []
    if seen.port:
        state = {0: " free", errno.EADDRINUSE: " in use"}.get(seen.bind or 0, "")
        state = " held for the meeting" if seen.meeting else state
        if seen.bind is None:
            state = " of torchrun's agent" if seen.agent else ""
        state = " without a listener" if seen.unserved else state
        words.append(f"port {seen.port}{state}")
    if seen.high:
        words.append(f"ephemeral {seen.low}-{seen.high}")
    return Measured(" · ".join(words), {"port": seen.port, "ephemeral": [seen.low, seen.high]})
