"""Does every node of the job reach MASTER_ADDR:MASTER_PORT, and which is missing?

Level        standard
Looks at     the meeting of all agents at MASTER_ADDR:MASTER_PORT: who came, when and from where,
             with which ranks and WORLD_SIZE, and who else connected; for an agent that did not get
             in, every address that it tried, with the error and the time, and some other ports of
             the same host; for hosts in SLURM's node list that did not arrive, their address and
             whether they respond
Fails if     an agent can't get in: the name does not resolve or its name server does not respond;
             the port refuses, drops or rejects connections; the host is down, there is no route, or
             the agent's interface in that network has no link, or is passed over by a route of
             another one or of a router, in whichever routing table; the packets go over too many
             routers; a search domain or a NAT rule of the agent's node leads to another machine;
             another program answers; an address that torch tries first does not respond. Also if
             rank 0 does not run on MASTER_ADDR, does not reach itself there (a service without
             hairpin), or that is the loopback, or an address that other nodes have, too; rank 0
             can't listen; a rank exists twice; WORLD_SIZE differs; more torchruns are to start than
             --nnodes says; an agent is lost, cut off, hears nothing, can hardly send or was stopped
             for a while; rank 0's node has too few open files for all agents; MASTER_PORT lets only
             some connections pass at a time
Warns if     an agent arrives 5 s after most others; agents or ranks of another job connect; so many
             connections stay silent that some had to be closed; all came, and a further connection
             of each node to MASTER_PORT has no answer; the nodes of a torchrun start
             different numbers of ranks, or two of its agents are on one node
Undecided    never by itself: ranks that did not arrive, or arrived too late, are MISSING, with the
             verdict INCOMPLETE; so is a node on which srun or ssh could not start an agent
Not covered  other ports than MASTER_PORT (net.mesh); torch's own store (rdzv.store); which ranks an
             absent host should have started, where there is no SLURM node list
Seen as      "The client socket has timed out after", "clients joined", "wait timeout after",
             "EADDRINUSE", "errno: 113 - No route to host", "Connection refused",
             "Ping failed, invalid value returned from server"
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from preflight.check import Check, Context, Level, Requirement, Scope, Stage, status_of
from preflight.domains.net import meeting_port
from preflight.domains.net.arp import neighbours
from preflight.domains.net.dns import (
    LookupBatch,
    addresses,
    c10d_order,
    is_loopback,
    look_up,
    search_domain,
)
from preflight.domains.net.reverse_path import (
    Detour,
    OutgoingWay,
    detours,
    filtered,
    in_own_network,
    link_down,
    outgoing_way,
)
from preflight.domains.net.tcp import asks_for_ecn, reverse_path_drops
from preflight.domains.net.translation import translated
from preflight.domains.rendezvous import (
    absent_ranks,
    arrivals,
    attempts,
    connection_limit,
    disconnected,
    leader_address,
    not_admitted,
    on_the_way,
)
from preflight.domains.rendezvous.arrivals import MeetingView, meeting_views
from preflight.domains.rendezvous.attempts import AbsentHost, Reach
from preflight.domains.rendezvous.tcp_probe import Probe, probe_ports, probe_repeatedly
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import duration, plural, rank_list
from preflight.identity.discover import nodes_by_flag
from preflight.identity.launchers import numbers_nodes
from preflight.identity.slurm_hosts import ExpectedHost, expected_hosts
from preflight.model import (
    Blame,
    CannotObserve,
    Command,
    Doing,
    FindingType,
    Found,
    Lanes,
    Measured,
    NotApplicable,
    Span,
    Status,
    Swimlane,
    World,
)
from preflight.roster import Arrival, Roll
from preflight.sanitize import one_line

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MEETING,
    budget=8.0,
    level=Level.STANDARD,
    requires=frozenset({Requirement.PEERS}),
    disturbs="connects to ports 22 and 9 of hosts that did not come, and again to MASTER_PORT",
    reports_meeting=True,
    explains=attempts.EXPLAINS,
)

# absent ranks are to be told of within a second of the deadline
SECONDS_OF_NAMES = 1.0
SECONDS_OF_PORTS = 0.8

# one that is mostly open and one that is mostly closed: of a host that is up, at least one answers
PORTS = (22, 9)
SOUGHT = 8
TRIED = 4
ADDRESSES_KEPT = 64
HOSTS_LINES = 4096
TWINS_KEPT = 16
TTL = "/proc/sys/net/ipv4/ip_default_ttl"
AGAIN, AGAIN_RANKS = 4, 64
"""Connections that a node of one of the first ranks tries."""

NOBODYS_NAME = "preflight-asks-for-a-wildcard"
"""A host name that no DNS has, unless it has all."""

HERE = "the node of rank 0"
RUNS = Command("pgrep -af 'preflight|torchrun|python'", "{host}")

FINDINGS: Mapping[str, FindingType] = {
    **attempts.FINDINGS,
    **on_the_way.FINDINGS,
    "absent": FindingType(
        headline="{at} never connected to rank 0",
        who="job author",
        cause="fewer ranks started than WORLD_SIZE, or some that can't reach MASTER_PORT",
        means="rank 0: 'Timed out … waiting for clients', e.g. 7/8 clients joined; the others: "
        "'wait timeout after … keys'",
        text="check on {host!s} that {ranks!s} started: their preflight prints why it can't "
        "connect",
        commands=(RUNS,),
        status=Status.MISSING,
        explains=(),
    ),
    "open-files-exhausted": FindingType(
        headline="{host} can't accept more connections: its limit of open files is reached",
        who="whoever runs {host}",
        cause="a hard limit of 1,024 or 4,096 open files, for a job with more agents than that",
        means="rank 0's store: 'Too many open files', and the other ranks: 'The client socket has "
        "timed out'",
        now="ulimit -n $(ulimit -Hn)   on {host}, before the job starts",
        text="raise the hard limit on {host}: LimitNOFILE= of slurmd or of the container runtime, "
        "limits.conf",
        commands=(Command("ulimit -Sn; ulimit -Hn; sysctl fs.file-nr", "{host}"),),
        blame=Blame.NODE,
    ),
    connection_limit.LIMITED: FindingType(
        headline="MASTER_PORT {port} takes only {passed} at a time: further ones are dropped",
        who="cluster administrator",
        cause="a rule of a firewall that counts connections (nft ct count, iptables connlimit)",
        means="the ranks beyond that number, or beyond the first of each node, wait silently: 'The "
        "client socket has timed out', e.g. 2/8 clients joined",
        text="raise that limit above the number of ranks, on {node!s} and on what is between the "
        "nodes, or accept the addresses of the job's nodes before the rule that counts",
        commands=(
            Command(
                "nft list ruleset | grep -n 'ct count'; iptables-save | grep -n connlimit",
                "{node}, as root",
            ),
        ),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NETWORK,
    ),
    "stranger-crowd": FindingType(
        headline="MASTER_PORT {port} is flooded with silent connections from {addr}",
        who="network administrator",
        cause="a port scanner, health checks of a load balancer, or a program that connects and "
        "waits",
        means="nothing for this job's ranks, unless the same connections reach rank 0's store",
        text="find the program on {addr} that connects to port {port}, and stop it",
        commands=(Command("ss -tnp dport = :{port}", "{addr}"),),
        status=Status.WARN,
        blame=Blame.NETWORK,
        explains=(),
    ),
    "absent-host-up": FindingType(
        headline="{ranks} of {host} never connected to rank 0, though {host} is up",
        who="job author, then cluster administrator",
        cause="a launcher that did not start its ranks there, or ranks that already ended",
        means="rank 0: 'Timed out … waiting for clients', e.g. 7/8 clients joined",
        text="check that {ranks!s} started on {host}; SLURM: srun -w {host} --overlap pgrep -af "
        "preflight",
        commands=(RUNS, Command("nc -vz -w 3 $MASTER_ADDR {port}", "{host}")),
        status=Status.MISSING,
        explains=(),
    ),
    "absent-host-silent": FindingType(
        headline="{host} does not answer: {ranks} never connected",
        cause="a machine that is down, or behind a firewall that drops everything",
        means="rank 0: 'Timed out … waiting for clients', e.g. 7/8 clients joined",
        text="exclude {host}, or start it again; SLURM: sinfo -N -n {host}",
        status=Status.MISSING,
        explains=(),
    ),
    "not-launched": FindingType(
        headline="srun could not start preflight on {host}",
        cause="a slurmd that is down, a prolog that failed, or an agent that could not start or "
        "was killed",
        means="the job's own srun fails in the same way: 'Task launch for StepId=… failed on node "
        "…'",
        now="sbatch --exclude={host}   and your job script",
        text="read sinfo -R -n {host} and the log of its slurmd",
        commands=(Command("srun -w {host} --overlap -n1 true", "a node of the job"),),
        status=Status.MISSING,
    ),
    "not-reached": FindingType(
        headline="{host} could not be reached to start preflight there",
        who="whoever runs {host}",
        cause="an ssh that asks for a password or host key, a host that is down, or a Python in "
        "another place there",
        means="a launcher that starts ranks over ssh fails there too",
        now="ssh -o BatchMode=yes {host} true",
        text="set up a key and a known host key for {host}, so that ssh asks nothing",
        status=Status.MISSING,
    ),
    "agent-late": FindingType(
        headline="{seen}",
        who="job author",
        cause="a slow file system under the image or the environment, or a busy machine",
        means="all other ranks wait for {host} at every start",
        text="put the environment on a local disk, or reduce what runs on {host} before the ranks "
        "start",
        status=Status.WARN,
        explains=(),
        was=("came-late",),
    ),
    "agent-too-late": FindingType(
        headline="{seen}",
        who="job author",
        cause="a slow start there: an image that is still being pulled, a prolog, a busy file "
        "system",
        means="rank 0: 'Timed out … waiting for clients', if its timeout is as short as this run's",
        text="wait longer for all nodes (--arrive 120s); start all nodes at the same time, or "
        "raise the timeout of torch's rendezvous",
        status=Status.MISSING,
        was=("came-too-late",),
    ),
    "lost": FindingType(
        headline="preflight on {host} was lost during the run",
        who="whoever runs {host}",
        cause="a process that was killed (out of memory, a time limit), or a connection that broke",
        means="the other ranks hang in their next collective, or 'Connection reset by peer'; SLURM "
        "says 'srun: error: Node failure on …' or 'CANCELLED AT … DUE TO NODE … FAILURE'",
        now="dmesg -T | tail   on {host}",
        text="find out why preflight on {host} ended: killed by the kernel for lack of memory "
        "(dmesg), by the scheduler (sacct -j $SLURM_JOB_ID; kubectl describe pod), or with its "
        "machine, if that was started since; exclude {host} if it happens there again",
        commands=(Command("uptime -s", "{host}"),),
        blame=(Blame.UNKNOWN, Blame.NETWORK),
    ),
    "sending-slow": FindingType(
        headline="what {sender} sends to {receiver} crawls at {rate}: {why}",
        who="network administrator",
        cause="a middlebox that strips the TCP option for window scaling from the handshake, "
        "net.ipv4.tcp_window_scaling=0 at one end, or a shaper or a very slow link",
        means="init_process_group may pass; the first large collective or checkpoint hangs until "
        "its timeout",
        text="set net.ipv4.tcp_window_scaling=1 on both nodes, and let firewalls between them pass "
        "TCP options unchanged; compare the link's speed with that of the other nodes",
        commands=(
            Command("ss -tino dport = :{port}", "{sender}, while it sends"),
            Command("sysctl net.ipv4.tcp_window_scaling", "{sender} and {receiver}"),
        ),
        blame=Blame.NETWORK,
    ),
    "nothing-received": FindingType(
        headline="packets from {leader} to {host} are lost, and what {host} sends arrives",
        who="network administrator",
        cause="a cable or receiver that damages what comes in, a limit or a firewall that drops "
        "it, or another machine with the MAC or IP address of {host!s} (a cloned image)",
        means="the other ranks wait for {host!s} in their next collective, up to its timeout; init "
        "may pass, and some connections work",
        text="look for errors at the card of {host} and at its switch port, and for a second "
        "machine with its addresses; exclude it until then",
        commands=(
            Command("ip -s -s link; ip -br link", "{host}"),
            Command("ip neigh", "{leader}"),
        ),
        blame=(Blame.NODE, Blame.NETWORK),
    ),
    "mac-shared": FindingType(
        headline="{guests} seem to have one MAC address, {mac}: {host} hears nothing",
        who="network administrator",
        cause="virtual machines cloned with their MAC address, or one that was set by hand twice",
        means="a switch sends frames for both to the one that spoke last: connections stall or "
        "hang now and then, on either",
        text="give every interface its own MAC address, in the settings of the hypervisor or of "
        "the network",
        commands=(Command("ip -br link", "{guests}"), Command("ip neigh", "{leader}")),
        blame=Blame.NETWORK,
    ),
    "agent-paused": FindingType(
        headline="preflight on {host} was stopped for a while: it got no CPU time",
        who="whoever runs {host}",
        cause="SIGSTOP (a debugger, scontrol suspend), a frozen virtual machine, or swapping",
        means="all other ranks wait for {host} in their next collective, up to its timeout",
        now="dmesg -T | tail   on {host}",
        text="check what happened on {host} then: journalctl, vmstat 1; exclude it if it happens "
        "there again",
        blame=Blame.NODE,
        status=(Status.FAIL, Status.UNDECIDED),
        was=("stood-still",),
    ),
    "cut-off": FindingType(
        headline="{host} lost its connections to all other nodes",
        who="network administrator",
        cause="a link or switch port that went down, or a firewall that was switched on",
        means="all ranks hang in their next collective: no connection to {host} is closed",
        now="ip -s link   on {host}",
        text="check the link of {host} and its switch port; exclude it if it happens there again",
        blame=Blame.NODE,
    ),
    "rank-duplicate": FindingType(
        headline="{seen}",
        who="job author",
        cause="the same --node-rank on two nodes, RANK exported to all tasks, or RANK and "
        "WORLD_SIZE that count nodes, given to several processes on each",
        means="all ranks time out with 'wait timeout … keys: …/N', where no process has rank N",
        text="start {host} with its own --node-rank, once, or each of its processes with a RANK of "
        "its own; or let one launcher assign them: srun, or torchrun with a c10d rendezvous",
        blame=Blame.JOB,
        was=("rank-twice",),
    ),
    "leader-duplicate": FindingType(
        headline="{seen}",
        who="job author",
        cause="--node-rank 0 (the default) on two nodes, RANK=0 exported to all tasks, or RANK and "
        "WORLD_SIZE that count nodes, given to several processes on each",
        means="two stores, and ranks that wait for each other in both: 'wait timeout … keys'; on "
        "one machine EADDRINUSE",
        text="start {host} with its own --node-rank, once, or each of its processes with a RANK of "
        "its own; or let one launcher assign them: srun, or torchrun with a c10d rendezvous",
        blame=Blame.JOB,
        was=("leader-twice",),
    ),
    "nodes-surplus": FindingType(
        headline="{count} torchruns are to start for --nnodes {nodes}: {counts}",
        who="job author",
        cause="a command that was started twice on a node, or on more nodes than --nnodes says",
        means="torchrun takes the first that come, and leaves the others waiting until "
        "RendezvousTimeoutError; two on one node share its GPUs: 'Duplicate GPU detected'",
        text="start one torchrun on each node, on as many nodes as --nnodes says",
        commands=(Command("pgrep -af torchrun", "{host}"),),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.JOB,
        explains=(),
    ),
    "size-differs": FindingType(
        headline="WORLD_SIZE differs between nodes: {seen}",
        who="job author",
        cause="nodes x processes computed by hand, or --nnodes that differs between nodes",
        means="'4/5 clients joined' on rank 0, or no message for five times the timeout",
        now="export WORLD_SIZE={size}   on every node",
        text="let one launcher compute it, and start every node with the same numbers",
        blame=Blame.JOB,
    ),
    "nproc-uneven": FindingType(
        headline="the nodes start different numbers of ranks: {counts}",
        who="job author",
        cause="nodes with different numbers of GPUs, or one --nproc-per-node that was not changed",
        means="nothing in torchrun, which adds up the ranks of its nodes, unless "
        "TORCH_ELASTIC_WORKER_IDENTICAL=1 has it multiply; a script that multiplies nodes by ranks "
        "per node is wrong, and a GPU that is missing is not used",
        text="set one --nproc-per-node for all nodes if it was not meant; if it was, unset "
        "TORCH_ELASTIC_WORKER_IDENTICAL",
        commands=(Command("nvidia-smi -L", "every node"),),
        status=(Status.WARN, Status.FAIL),
        explains=(),
    ),
    "leader-elsewhere": FindingType(
        headline="MASTER_ADDR is not the node of rank 0: {seen}",
        who="job author",
        cause="a host list whose first host does not run rank 0, or the name of a login node",
        means="rank 0 listens on its own node, but all ranks connect to another one: 'The client "
        "socket has timed out'",
        now="export MASTER_ADDR={right}   on every node",
        text="set MASTER_ADDR to rank 0's node; SLURM: MASTER_ADDR=$(scontrol show hostnames "
        "$SLURM_JOB_NODELIST | head -n1)",
        commands=(Command("ip -brief address", HERE),),
        blame=Blame.JOB,
    ),
    "self-unreachable": FindingType(
        headline="rank 0 on {at} can't reach itself at MASTER_ADDR '{name}'",
        who="cluster administrator",
        cause="a service or NAT address without hairpin: the way back to the machine that asks is "
        "missing",
        means="rank 0 listens, the others join, and rank 0's own client hangs: 'The client socket "
        "has timed out'",
        now="export MASTER_ADDR={here}   on {host}",
        text="use a headless service (clusterIP: None), whose name is the pod's own address, or "
        "switch on hairpin mode in the CNI plugin",
        commands=(Command("ip route get {ip}", HERE),),
        blame=Blame.NETWORK,
    ),
    "localhost": FindingType(
        headline="MASTER_ADDR is a loopback address: each node would meet only itself",
        who="job author",
        cause="a MASTER_ADDR from a single-node script, or torchrun's default endpoint",
        means="rank 0: '1/… clients joined'; ranks of other nodes connect to themselves and time "
        "out",
        text="set MASTER_ADDR to the IP address of rank 0's node; torchrun: --rdzv-endpoint "
        "HOST:PORT",
        blame=Blame.JOB,
    ),
    "address-own": FindingType(
        headline="MASTER_ADDR is a local address on {nodes}: each node meets only itself",
        who="job author",
        cause="the address of a bridge that is alike on all machines (docker0 has 172.17.0.1), or "
        "a script that sets MASTER_ADDR to its own node's address on every node",
        means="each node connects to itself: 'The client socket has timed out', and on rank 0 "
        "'1/… clients joined'",
        now="export MASTER_ADDR={right}   on every node",
        text="set MASTER_ADDR to an address of rank 0's node that other nodes reach; SLURM: "
        "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)",
        commands=(Command("ip -brief address", "every node"),),
        blame=Blame.JOB,
    ),
    "cannot-listen": FindingType(
        headline="rank 0 can't listen on MASTER_PORT {port}: {seen}",
        who="job author",
        cause="another job, or a process left over from an earlier run, that holds the port",
        means="rank 0: 'The server socket has failed to listen on any local network address'",
        now="export MASTER_PORT=29600   on every node",
        text="choose a different port for each job, above 1023: MASTER_PORT=$((10000 + "
        "SLURM_JOB_ID % 20000))",
        commands=(Command("ss -tanp sport = :{port}", HERE),),
        blame=Blame.JOB,
    ),
    "stranger-job": FindingType(
        headline="another job connects to MASTER_PORT {port}, from {addr}",
        who="job author",
        cause="two jobs with the default MASTER_PORT, or an earlier run that still retries",
        means="its ranks join this job's store, or this job's ranks join theirs: both hang",
        now="export MASTER_PORT=29600   on every node",
        text="choose a different port for each job: MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
        commands=(Command("ss -tnp dport = :{port}", "{addr}"),),
        status=Status.WARN,
        blame=Blame.JOB,
        explains=(),
    ),
    "stranger-token": FindingType(
        headline="{seen}",
        who="job author",
        cause="a PREFLIGHT_TOKEN set on some nodes only, or a job of another user",
        means="nothing for this job, unless its own ranks are among them: they are then missing",
        text="set the same PREFLIGHT_TOKEN on all nodes of the job",
        commands=(Command("ss -tnp dport = :{port}", "{addr}"),),
        status=Status.WARN,
        blame=Blame.JOB,
        explains=(),
    ),
}


def observe(host: Host, ctx: Context) -> Reach:
    roll = ctx.roll
    if roll is None:
        raise NotApplicable("there was no meeting")
    if not host.live:
        raise CannotObserve("a meeting is held on the live machine only")
    due: tuple[ExpectedHost, ...] = ()
    sought: tuple[AbsentHost, ...] = ()
    elsewhere: tuple[Probe, ...] = ()
    ways: dict[str, OutgoingWay] = {}
    idle: dict[str, str] = {}
    near: tuple[str, ...] = ()
    rewritten: dict[str, str] = {}
    searched, wildcard, domain_own = "", False, False
    discarded = 0
    outside = not roll.hosts and roll.reached is None
    agent = host.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    routes = {a.ip: _route(host, a.ip) for a in roll.ladder[:TRIED]}
    if roll.hosts and _somebody_is_absent(roll):
        due = expected_hosts(host.environ, len(roll.ranks), roll.size)
        sought = _probe_absent_hosts(host, ctx, absent_ranks.absent_hosts(roll, due)[:SOUGHT])
        if agent:  # this meeting is elsewhere: whether torchrun's own store is there, where it was
            ctx.mark(f"port {roll.port} of {', '.join(roll.ips[:TRIED])}")
            own = ((ip, roll.port) for ip in roll.ips[:TRIED])
            elsewhere = probe_ports(own, SECONDS_OF_PORTS)
    elif outside:
        ips = list(dict.fromkeys(a.ip for a in roll.ladder))[:TRIED]
        ctx.mark(f"other ports of {', '.join(ips)}")
        ports: tuple[int, ...] = (*PORTS, roll.port + 1)
        if agent and not ips:  # torchrun's own store was to say where the meeting is
            ips, ports = list(roll.ips[:TRIED]), (roll.port,)
        before = reverse_path_drops(host)
        elsewhere = probe_ports(((ip, p) for ip in ips for p in ports), SECONDS_OF_PORTS)
        discarded = reverse_path_drops(host) - before
        ways = {ip: way for ip in ips if (way := outgoing_way(host, ip, roll.port))}
        idle = {ip: nic for ip in ips if (nic := link_down(host, ip))}
        near = tuple(ip for ip in ips if in_own_network(host, ip))
        rewritten = {ip: attempts.host_port(*to) for ip in ips if (to := translated(ip, roll.port))}
        searched = _searched(host, roll.name) if roll.ips else ""
        if searched:
            wildcard, domain_own = _kind_of_domain(host, searched, roll.ips)
    interface = _interface_of(host, roll.ips) if roll.mine else ""
    return Reach(
        roll=roll,
        addresses=_own_addresses(host),
        expected=due,
        sought=sought,
        elsewhere=elsewhere,
        routes=routes,
        agent=agent,
        hosts_line=_hosts_line(host, roll.name) if outside or 0 not in roll.ranks else "",
        searched=searched,
        sidecar=_sidecar() if outside or (roll.hosts and _somebody_is_absent(roll)) else "",
        kubernetes="KUBERNETES_SERVICE_HOST" in host.environ,
        interface=interface,
        discarded=max(0, discarded),
        filtered=bool(due or sought or _somebody_is_absent(roll)) and interface in filtered(host),
        ways=ways,
        idle=idle,
        detours=_detours(host, interface) if _somebody_is_absent(roll) else (),
        near=near,
        wildcard=wildcard,
        domain_own=domain_own,
        rewritten=rewritten,
        macs=_shared_macs(host, roll) if roll.hosts else {},
        ecn=outside and asks_for_ecn(host),
        numbers=roll.nodes > 0 and numbers_nodes(host.environ),
        identical=host.environ.get("TORCH_ELASTIC_WORKER_IDENTICAL") == "1",
        twins=_twins(host, roll),
        again=_again(roll) if not agent else (),
        ttl=host.read_int(TTL) if outside else None,
    )


def _twins(host: Host, roll: Roll) -> tuple[int, ...]:
    """Other agents of this machine that were given this one's ranks."""
    known = {*roll.twins, *meeting_port.claimants(host, roll.claim)}
    return tuple(sorted(known - {roll.pid}))[:TWINS_KEPT]


def _again(roll: Roll) -> tuple[Probe, ...]:
    """More connections to MASTER_PORT, of an agent that has one open. Of a large job the first
    nodes try that: the host's connection tracking is not to be filled by it."""
    ip = next((attempt.ip for attempt in roll.ladder if attempt.answer == "ours"), "")
    inside = not roll.hosts and roll.reached is not None and not roll.lost
    if not inside or not ip or min(roll.ranks, default=0) >= AGAIN_RANKS:
        return ()
    found = probe_repeatedly(ip, roll.port, AGAIN, SECONDS_OF_PORTS)
    if all(probe.error == "ETIMEDOUT" for probe in found):
        # packets may be lost
        found += probe_repeatedly(ip, roll.port, AGAIN, SECONDS_OF_PORTS)
    return found


def _detours(host: Host, interface: str) -> tuple[Detour, ...]:
    """What this machine drops on the interface that has MASTER_ADDR."""
    return tuple(one for one in detours(host) if one.comes == interface)


def _hosts_line(host: Host, name: str) -> str:
    """`/etc/hosts line 3`, where that file has the name, or the file of HOSTALIASES, which has
    another name for it, to be looked up in DNS (hostname(7))."""
    lines = (host.read_or_none("/etc/hosts") or "").splitlines()[:HOSTS_LINES]
    for number, line in enumerate(lines, 1):
        if name in line.partition("#")[0].split()[1:]:
            return f"/etc/hosts line {number}"
    aliases = host.environ.get("HOSTALIASES", "")
    if aliases and "." not in name and host.path(aliases).is_file():
        lines = (host.read_or_none(aliases) or "").splitlines()[:HOSTS_LINES]
        for number, line in enumerate(lines, 1):
            if line.lower().split()[:1] == [name.lower()]:
                return f"HOSTALIASES={one_line(aliases, 60)}, line {number}"
    return ""


def _searched(host: Host, name: str) -> str:
    """The search domain that the resolver has added to the name."""
    asked = look_up(name, partial(search_domain, host, name), SECONDS_OF_NAMES)
    return next(iter(asked.found), "")


def _shared_macs(host: Host, roll: Roll) -> dict[str, str]:
    """The guests' addresses for which this machine has a MAC address that it has for another."""
    found = {n.ip: n.mac for n in neighbours(host, {a.addr for a in roll.arrivals if a.addr})}
    count = Counter(found.values())
    return {ip: mac for ip, mac in found.items() if count[mac] > 1}


def _kind_of_domain(host: Host, domain: str, ips: Sequence[str]) -> tuple[bool, bool]:
    """Whether names below it that nobody made have the same address, and whether its name for this
    machine leads here."""
    own = host.hostname().partition(".")[0]
    inquiry = LookupBatch(time.monotonic() + SECONDS_OF_NAMES, lambda _: None)
    for name in (NOBODYS_NAME, own):
        inquiry.put(name, name, partial(addresses, host, f"{name}.{domain}"))
    made_up, mine = (inquiry.take(name).found for name in (NOBODYS_NAME, own))
    here = _own_addresses(host)
    return bool({*made_up} & {*ips}), any(ip in here or is_loopback(ip) for ip in mine)


def _sidecar() -> str:
    """Who listens where a service mesh redirects the connections of this machine to."""
    probes = probe_ports((("127.0.0.1", port) for port in on_the_way.SIDECARS), SECONDS_OF_PORTS)
    found = next((p.port for p in probes if not p.error), None)
    return f"{on_the_way.SIDECARS[found]} (port {found})" if found else ""


def _somebody_is_absent(roll: Roll) -> bool:
    """Or is there with another's rank, which the node list may tell."""
    return sorted(r for a in roll.arrivals for r in a.ranks) != list(range(roll.size))


def _probe_absent_hosts(
    host: Host, ctx: Context, absent: tuple[ExpectedHost, ...]
) -> tuple[AbsentHost, ...]:
    """Where the absent hosts are and whether they answer, all at the same time."""
    inquiry = LookupBatch(time.monotonic() + SECONDS_OF_NAMES, ctx.mark)
    for one in absent:
        inquiry.put(one.host, one.host, partial(addresses, host, one.host))
    found = {one.host: inquiry.take(one.host) for one in absent}
    ctx.mark("ports of the absent hosts")
    first = {name: c10d_order(answer.found)[:1] for name, answer in found.items()}
    probes = probe_ports(
        ((ip, p) for ips in first.values() for ip in ips for p in PORTS), SECONDS_OF_PORTS
    )
    return tuple(
        AbsentHost(
            name,
            answer.found[:TRIED],
            answer.error,
            tuple(p for p in probes if p.ip in first[name]),
        )
        for name, answer in found.items()
    )


def _route(host: Host, ip: str) -> str:
    """Why this machine itself has no way to an address: nothing is sent."""
    try:
        host.source_of(ip)
    except OSError as error:
        if error.errno != errno.EAGAIN:  # no port is left to ask from
            return errno.errorcode.get(error.errno or 0, str(error)[:40])
    return ""


def _own_addresses(host: Host) -> tuple[str, ...]:
    try:
        known = host.interfaces
    except CannotObserve:
        return ()
    found = [a.ip for i in known for a in i.addresses if not is_loopback(a.ip)]
    return tuple(found[:ADDRESSES_KEPT])


def _interface_of(host: Host, ips: Sequence[str]) -> str:
    try:
        known = host.interfaces
    except CannotObserve:
        return ""
    return next((i.name for i in known for a in i.addresses if a.ip in ips), "")


def judge(world: World[Reach], expect: Expect) -> Iterator[Found]:
    view = next(iter(meeting_views(world)), None)
    found = [absent_ranks.excuse_waiting(world, finding) for finding in _findings(world, view)]
    first = (f.subjects[0] for f in found if status_of(FINDINGS, f) is Status.FAIL)
    accused = {subject.node or subject.name for subject in first}
    yield from absent_ranks.not_started(world, view, accused)
    yield from found


def _findings(world: World[Reach], view: MeetingView | None) -> Iterator[Found]:
    looped = list(leader_address.localhost(world, view))
    looped += leader_address.each_its_own(world)
    yield from looped
    if looped:
        return
    yield from leader_address.cannot_listen(world)
    yield from leader_address.cut_from_itself(world)
    misplaced = list(leader_address.leader_elsewhere(world, view))
    yield from misplaced
    yield from leader_address.met_themselves(world, view)
    yield from arrivals.twins(world, view)
    if (limit := connection_limit.limited(world, view)) is not None:
        yield limit
    if view is not None:
        yield from _who_came(world, view, misplaced)
    if not misplaced:
        yield from not_admitted.diagnose(world, view)
    yield from disconnected.lost_agents(world, view)
    yield from not_admitted.silent_addresses(world, view)


def _who_came(world: World[Reach], view: MeetingView, misplaced: list[Found]) -> Iterator[Found]:
    yield from arrivals.duplicate_ranks(view)
    yield from arrivals.surplus_nodes(view)
    yield from arrivals.uneven_nodes(world, view)
    leaders = [v.host for v in meeting_views(world) if 0 in v.host.ranks]
    if len(leaders) > 1:  # each with a meeting of its own
        yield arrivals.duplicate_rank(
            leaders, sorted(set.intersection(*(set(a.ranks) for a in leaders)))
        )
    size, differs = arrivals.job_size(view)
    yield from differs
    yield from arrivals.late_agents(world, view)
    yield from arrivals.unexpected_connections(world, view)
    if (unserved := not_admitted.store_not_served(view)) is not None:
        yield unserved
    elif view.guests or not misplaced:
        others = (r.roll for r in world.seen.values() if r is not view.reach)
        gone = absent_ranks.not_reporting(world)
        nodes = nodes_by_flag(world.topology)
        yield from absent_ranks.absent(view, size, others, gone, nodes)


def measured(world: World[Reach]) -> Measured:
    view = next(iter(meeting_views(world)), None)
    if view is None:
        reach = next(iter(world.seen.values()), None)
        return Measured(attempts.describe_attempts(reach.roll) if reach is not None else "")
    roll = view.roll
    last = max(roll.arrivals, key=lambda a: a.at)
    text = f"{len(view.came)}/{roll.size} ranks in {duration(last.at)}"
    if len(roll.arrivals) > 1:
        text += f", {rank_list(last.ranks) if len(last.ranks) == 1 else last.node} arrived last"
    knocks = sum(s.count for s in roll.strangers)
    text += f" · {plural(knocks, 'stranger')}" if knocks else ""
    values = {
        "met": len(view.came),
        "size": roll.size,
        "last_s": last.at,
        "strangers": {f"{s.addr} {s.kind}": s.count for s in roll.strangers},
    }
    return Measured(text, values, lanes=_lanes(roll.arrivals, last.at) if world.drawn else None)


def _lanes(arrivals: Sequence[Arrival], last: float) -> Lanes | None:
    """When each node came to rank 0's node, and how long it waited there for the last one."""
    if len(arrivals) < 2:
        return None
    lanes = tuple(
        Swimlane(
            a.node,
            (
                Span(0.0, round(a.at, 3), Doing.ABSENT, f"came after {duration(a.at)}"),
                Span(round(a.at, 3), round(last, 3), Doing.WAIT, "waited for the others"),
            ),
        )
        for a in arrivals
    )
    return Lanes("when each node came to the meeting", "s", lanes)
