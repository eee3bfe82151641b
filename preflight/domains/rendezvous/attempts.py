"""The ways to the meeting point, in words, and why an agent did not get in by any of them. Pure.

torch says the same of all of them: 'The client socket has timed out'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from preflight.domains.net import icmp
from preflight.domains.net.dns import NO_RESOLVER, in_words
from preflight.domains.net.reverse_path import Detour, OutgoingWay
from preflight.domains.rendezvous.tcp_probe import Probe
from preflight.frozen import dataclass
from preflight.humanize import duration, plural
from preflight.identity.slurm_hosts import ExpectedHost
from preflight.model import Blame, Command, FindingType, Status
from preflight.roster import Attempt, Roll, StoreStage
from preflight.strenum import StrEnum

# what an ICMP message or a rule of one's own needs; nobody answers ARP for 3 s
AT_ONCE = 2.0

SHOWN = 4


class AttemptOutcome(StrEnum):
    """How a way ended: the code of the finding. The first that an agent met is the one to tell of:
    the further it got, the more it knows."""

    IN = "in"
    OTHER_MEETING = "other-meeting"
    TOKEN = "token"
    NOT_OURS = "not-a-meeting"
    REFUSED = "refused"
    PROHIBITED = "prohibited"
    EXPIRED = "ttl-exceeded"
    DROPPED = "dropped"
    DEAD = "host-dead"
    NO_ROUTE = "no-route"
    UNANSWERED = "resolver-timeout"
    UNKNOWN = "name-unknown"
    UNCLEAR = "handshake-incomplete"


@dataclass(frozen=True, slots=True)
class AbsentHost:
    """What is known of a host that should have come: its addresses (or why the lookup gave none)
    and what became of a few connections to it."""

    host: str
    ips: tuple[str, ...] = ()
    error: str = ""
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True, slots=True)
class Reach:
    """What one agent knows of the meeting.

    addresses   of this machine's interfaces
    expected    on the host when ranks are absent: the hosts of the job, by SLURM's node list
    sought      some of those that did not come
    elsewhere   of an agent that did not get in: other ports of the same addresses
    routes      address -> why this machine's own routing has no way there; empty: it has
    hosts_line  where /etc/hosts of an agent that did not get in has the name, or HOSTALIASES has
                another one for it; empty: nowhere
    searched    the search domain that the resolver of such an agent has added to it; empty: none
    sidecar     who takes connections to any place on the machine of such an agent, or on that of
                rank 0 when somebody did not come
    agent       the store is torchrun's agent, which need not be where rank 0 is
    kubernetes  here an operator gives localhost to the first pod alone
    interface   which of this machine has MASTER_ADDR; empty: none
    filtered    its reverse path filter drops there what comes from the same subnet
    detours     what of that subnet it drops there for a route of its own
    ways        address -> the interfaces that such an agent sends by and has its answers on
    discarded   answers that its reverse path filter dropped while it tried those other ports
    idle        address -> the interface of such an agent that is in its network, and has no link
    near        addresses of the meeting point that are in a network of such an agent's interfaces
    wildcard    names that nobody made lead there as well, where the resolver completes them so
    domain_own  this machine's hostname, completed by that domain, is this machine
    rewritten   address -> the one to which the NAT rules of such an agent's machine send it
    macs        on the host: guests' addresses -> the MAC address that several of them have here
    ecn         its SYNs ask for ECN, and it never tries again without (tcp_ecn_fallback=0)
    numbers     the torchrun that is to come numbers its nodes itself
    again       further connections of an agent that is in to MASTER_PORT, while its own was open
    ttl         net.ipv4.ip_default_ttl of this machine; None: not known
    identical   TORCH_ELASTIC_WORKER_IDENTICAL=1: torchrun multiplies its own ranks there
    twins       other agents on this machine with the same ranks: their process numbers
    """

    roll: Roll
    addresses: tuple[str, ...] = ()
    expected: tuple[ExpectedHost, ...] = ()
    sought: tuple[AbsentHost, ...] = ()
    elsewhere: tuple[Probe, ...] = ()
    routes: Mapping[str, str] = field(default_factory=dict)
    agent: bool = False
    kubernetes: bool = False
    hosts_line: str = ""
    searched: str = ""
    sidecar: str = ""
    interface: str = ""
    ways: Mapping[str, OutgoingWay] = field(default_factory=dict)
    idle: Mapping[str, str] = field(default_factory=dict)
    filtered: bool = False
    discarded: int = 0
    detours: tuple[Detour, ...] = ()
    near: tuple[str, ...] = ()
    wildcard: bool = False
    domain_own: bool = False
    rewritten: Mapping[str, str] = field(default_factory=dict)
    macs: Mapping[str, str] = field(default_factory=dict)
    ecn: bool = False
    numbers: bool = False
    identical: bool = False
    twins: tuple[int, ...] = ()
    again: tuple[Probe, ...] = ()
    ttl: int | None = None

    @property
    def known_by(self) -> str:
        """From where such an agent has its address of the name, as far as that shows."""
        if self.searched and not self.hosts_line:
            return f"the search domain {self.searched[:80]} of /etc/resolv.conf"
        return self.hosts_line


def outcome_of(attempt: Attempt, routes: Mapping[str, str]) -> AttemptOutcome:
    """How one way ended. The kernel has one error for two things: EHOSTUNREACH is ARP's after 3 s,
    and at once a firewall's, a router's or a route's of one's own."""
    match attempt.answer:
        case "ours":
            return AttemptOutcome.IN
        case "other job":
            return AttemptOutcome.OTHER_MEETING
        case "token":
            return AttemptOutcome.TOKEN
        case "silent" | "closed" | "stranger":
            return AttemptOutcome.NOT_OURS
        case other if other:
            return AttemptOutcome.UNCLEAR
    match attempt.error:
        case _ if attempt.icmp in icmp.REJECTS:  # a host without a listener resets
            return AttemptOutcome.PROHIBITED
        case _ if attempt.icmp == icmp.EXPIRED:
            return AttemptOutcome.EXPIRED
        case "ECONNREFUSED" | "ECONNRESET":
            return AttemptOutcome.REFUSED
        case "ETIMEDOUT":
            return AttemptOutcome.DROPPED
        case "EHOSTUNREACH" if attempt.seconds >= AT_ONCE:
            return AttemptOutcome.DEAD
        case "ENETUNREACH" if routes.get(attempt.ip) == "":  # a router says so, or a rule
            return AttemptOutcome.PROHIBITED
        case "EHOSTUNREACH" | "EACCES" | "EPERM":
            return AttemptOutcome.NO_ROUTE if routes.get(attempt.ip) else AttemptOutcome.PROHIBITED
        case "ENETUNREACH" | "ENETDOWN" | "EINVAL" | "EADDRNOTAVAIL" | "EAFNOSUPPORT":
            return AttemptOutcome.NO_ROUTE
    return AttemptOutcome.UNCLEAR


def main_outcome(reach: Reach) -> tuple[AttemptOutcome, Attempt | None]:
    """The way that tells most of why this agent is not in; IN never: it may have been greeted, but
    it did not get a seat."""
    roll = reach.roll
    if not roll.ladder:
        return (lookup_outcome(roll.lookup) if roll.lookup else AttemptOutcome.UNCLEAR), None
    order = tuple(AttemptOutcome)
    ways = [(outcome_of(a, reach.routes), a) for a in roll.ladder]
    way, attempt = min(ways, key=lambda w: order.index(w[0]))
    return (AttemptOutcome.UNCLEAR if way is AttemptOutcome.IN else way), attempt


def lookup_outcome(error: str) -> AttemptOutcome:
    silent = error in NO_RESOLVER or error == "SILENT"
    return AttemptOutcome.UNANSWERED if silent else AttemptOutcome.UNKNOWN


def host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def describe_attempt(attempt: Attempt) -> str:
    """`10.0.0.1:29500 refused after 0.3 ms (12 tries)`."""
    took = duration(attempt.seconds)
    if attempt.answer:
        said = {
            "ours": f"started the handshake, but did not complete it within {took}",
            "other job": "is the meeting of another job",
            "token": "is a meeting, but PREFLIGHT_TOKEN there and here are not the same",
            "silent": f"accepted and said nothing for {took}",
            "closed": f"accepted and closed after {took}",
            "stranger": "is not a meeting",
            "version": "is a meeting of another version of preflight",
        }.get(attempt.answer, f"turned us away: {attempt.answer[:40]}")
        said += f" ({attempt.heard[:60]!r})" if attempt.heard else ""
    else:
        said = {
            "ECONNREFUSED": f"refused after {took}",
            "ECONNRESET": f"reset after {took}",
            "ETIMEDOUT": f"no answer in {took}",
        }.get(attempt.error, f"{attempt.error[:40] or 'not connected'} after {took}")
        if attempt.icmp in ICMP_WORDS:
            said += f", by ICMP '{ICMP_WORDS[attempt.icmp]}' from {attempt.icmp_by[:45]}"
    tries = f" ({plural(attempt.tries, 'try')})" if attempt.tries == 1 else ""
    tries = tries or f" ({attempt.tries} tries)"
    return f"{host_port(attempt.ip, attempt.port)} {said}{tries}"


NOT_TOLD = {
    StoreStage.IMPORT: "torch was not imported in time",
    StoreStage.CONNECTION: "torchrun's store does not answer there",
    StoreStage.ANNOUNCEMENT: "torchrun's store does not name the meeting",
}
"""Why an agent that a launcher's store should have sent to the meeting has tried no way."""

ICMP_WORDS = {
    icmp.PORT: "port unreachable",
    icmp.PROHIBITED: "administratively prohibited",
    icmp.HOST: "host unreachable",
    icmp.NETWORK: "network unreachable",
    icmp.EXPIRED: "time to live exceeded",
}


def describe_attempts(roll: Roll) -> str:
    """All ways that an agent tried, in order."""
    if not roll.ladder:
        tried = "nothing was tried" if roll.ips else "not resolved yet"
        why = in_words(roll.lookup) or NOT_TOLD.get(roll.store, tried)
        return f"{roll.name[:80]!r}: {why[:48]}"
    more = len(roll.ladder) - SHOWN
    words = " · ".join(describe_attempt(a) for a in roll.ladder[:SHOWN])
    return f"{words} · {more} more" if more > 0 else words


def describe_probes(probes: Iterable[Probe]) -> str:
    """What other ports did: `port 22 refused after 0.2 ms, port 9 no answer`."""
    words = []
    for p in probes:
        error = {"": "open", "ECONNREFUSED": "refused", "ETIMEDOUT": "no answer"}
        words.append(f"port {p.port} {error.get(p.error, p.error)} after {duration(p.seconds)}")
    return ", ".join(words[:SHOWN])


EXPLAINS = (
    "rdzv.store",
    "rdzv.torchrun",
    "agree.*",
    "net.mesh",
    "net.payload",
    "net.speed",
    "world.*",
)
"""What can't be found out, or fails, without the meeting."""

LISTENS = Command("ss -ltnp sport = :{port}", "the node of rank 0")
DIALS = Command("nc -vz -w 3 {name} {port}", "the node that does not get in")
TIMED_OUT = "'The client socket has timed out after … while trying to connect to ({name}, {port})'"

FINDINGS = {
    AttemptOutcome.OTHER_MEETING: FindingType(
        headline="{name}:{port} is used by another job: {seen}",
        who="job author",
        cause="two jobs with the default port on one node, or an earlier run that is still waiting",
        means="the ranks join the other job's store: both jobs hang, or one stops with EADDRINUSE",
        now="export MASTER_PORT=29600   on every node",
        text="choose a different port for each job: MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
        commands=(LISTENS,),
        blame=Blame.JOB,
    ),
    AttemptOutcome.TOKEN: FindingType(
        headline="PREFLIGHT_TOKEN is not the same on all nodes",
        who="job author",
        cause="a PREFLIGHT_TOKEN set on some nodes only, or different between nodes",
        means="nothing for the job itself: the token only protects preflight's meeting",
        text="export the same PREFLIGHT_TOKEN on all nodes of the job, or on none",
        blame=Blame.JOB,
    ),
    AttemptOutcome.NOT_OURS: FindingType(
        headline="another program answers at {name}:{port}, not rank 0: {seen}",
        who="job author",
        cause="the store of another job, a web server, a sidecar or a load balancer on that port",
        means="a rank that connects waits there forever, or says 'Ping failed, invalid value "
        "returned from server'",
        now="export MASTER_PORT=29600   on every node",
        text="find out what answers at {name}:{port}, and let the ranks connect to rank 0 directly",
        commands=(LISTENS,),
        blame=Blame.JOB,
    ),
    AttemptOutcome.REFUSED: FindingType(
        headline="{name}:{port}, where rank 0 should listen, refuses connections",
        who="job author, then network administrator",
        cause="a rank 0 that was not started, died at once or runs elsewhere; or a firewall that "
        "rejects",
        means=TIMED_OUT,
        text="check on the node of rank 0 that it runs and listens; if it listens, a firewall "
        "rejects the connections: open MASTER_PORT between the nodes",
        commands=(LISTENS, DIALS),
        status=(Status.FAIL, Status.MISSING),
        blame=Blame.UNKNOWN,
    ),
    AttemptOutcome.PROHIBITED: FindingType(
        headline="{firewall} rejects connections from {outside} to {name}:{port}",
        who="network administrator",
        cause="a firewall rule that rejects (iptables REJECT, firewalld, ufw limit), or one for "
        "outgoing connections",
        means=TIMED_OUT + " or 'No route to host'",
        text="allow all TCP between the nodes of the job, on both of them",
        commands=(Command("nft list ruleset", "both nodes"), DIALS),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    AttemptOutcome.EXPIRED: FindingType(
        headline="packets from {outside} to {name} go over too many routers, the last of them {by}",
        who="network administrator",
        cause="a routing loop: two routers or nodes that send what is for this address to each "
        "other; or a net.ipv4.ip_default_ttl below the number of routers on the way",
        means="'errno: 113 - No route to host', then " + TIMED_OUT + " on this node",
        text="set net.ipv4.ip_default_ttl to 64, its default, where it is lower; else find the "
        "router that sends them back, and correct its route",
        commands=(
            Command("tracepath -n {ip}", "the node that does not get in"),
            Command("sysctl net.ipv4.ip_default_ttl", "the node that does not get in"),
        ),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
    AttemptOutcome.DROPPED: FindingType(
        headline="{name}:{port} does not answer: {silent}",
        who="network administrator",
        cause="a firewall or security group that drops the port, or a host that is down",
        means=TIMED_OUT + ", after waiting silently for the whole timeout",
        text="allow all TCP between the nodes of the job: MASTER_PORT and the ephemeral ports",
        commands=(Command("nft list ruleset", "both nodes"), DIALS),
        blame=Blame.NETWORK,
    ),
    AttemptOutcome.DEAD: FindingType(
        headline="the host of MASTER_ADDR '{name}' is down: it does not respond to ARP",
        cause="a machine that is down, or an old address that is no longer in use",
        means="'The client socket has failed to connect to any network address … errno: 113 - No "
        "route to host'",
        text="start the host, or run rank 0 on another node",
        now="ping -c1 {name}",
        commands=(Command("ip neigh", "the node that does not get in"), DIALS),
    ),
    AttemptOutcome.NO_ROUTE: FindingType(
        headline="{where} has no route to {name}:{port}",
        cause="a missing route, a blackhole route, or an address in another network",
        means="'errno: 101 - Network is unreachable', 'errno: 22 - Invalid argument' or 'errno: "
        "113 - No route to host'",
        text="repair the routes of this node, or set MASTER_ADDR to an address that all nodes can "
        "reach",
        commands=(Command("ip route get {ip}", "the node that does not get in"),),
        blame=(Blame.UNKNOWN, Blame.NODE),
    ),
    AttemptOutcome.UNANSWERED: FindingType(
        headline="the name server does not answer for MASTER_ADDR '{name}'",
        cause="the name server in /etc/resolv.conf is down, or a firewall drops port 53",
        means="'Temporary failure in name resolution' (gai error: -3), then " + TIMED_OUT,
        text="set MASTER_ADDR to the IP address of rank 0's node; repair /etc/resolv.conf, or name "
        "the nodes in /etc/hosts",
        commands=(Command("getent ahosts {name}", "the node that does not get in"),),
        blame=Blame.NETWORK,
        was=("name-unanswered",),
    ),
    AttemptOutcome.UNKNOWN: FindingType(
        headline="MASTER_ADDR '{name}' does not resolve: no such host name",
        who="job author",
        cause="no record for the name on this node or in this container, or a typo",
        means=TIMED_OUT,
        text="set MASTER_ADDR to the IP address of rank 0's node; add the name to DNS or to "
        "/etc/hosts of every node and image",
        commands=(Command("getent ahosts {name}", "the node that does not get in"),),
        blame=(Blame.JOB, Blame.NODE),
    ),
    AttemptOutcome.UNCLEAR: FindingType(
        headline="the handshake with rank 0 at {name}:{port} did not complete: {seen}",
        who="job author",
        cause="a different version of preflight there, a host that was just ending, or too little "
        "time",
        means="whether the job's ranks can meet is unknown",
        text="use the same image on all nodes; start preflight on all of them within --arrive",
        commands=(DIALS,),
        was=("not-let-in",),
        status=(Status.FAIL, Status.UNDECIDED),
    ),
    "address-elsewhere": FindingType(
        headline="{at} resolves MASTER_ADDR '{name}' to {ip}, the other nodes to {right}",
        cause="a stale line in this node's /etc/hosts, or a name server with a different view",
        means=TIMED_OUT + " on this node; the others wait for it",
        now="export MASTER_ADDR={right}   on every node",
        text="correct the name in /etc/hosts or DNS, so that it has the same address on every node",
        commands=(Command("getent ahosts {name}", "the node that does not get in"),),
        blame=Blame.NODE,
        explains=(*EXPLAINS, "agree.names"),
    ),
    "address-silent": FindingType(
        headline="MASTER_ADDR '{name}' also resolves to {ip}, which does not answer",
        who="network administrator",
        cause="an IPv6 address of the name that a firewall drops, or the address of a machine "
        "that no longer exists",
        means="torch tries that address first and, if nothing comes back, no other: " + TIMED_OUT,
        now="export MASTER_ADDR={right}   on every node",
        text="remove {ip} from the DNS record, or let the firewall reject rather than drop "
        "connections to it",
        commands=(Command("getent ahosts {name}", "the node"),),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.NETWORK, Blame.NODE),
    ),
}
"""Way (its value is the code), and two more codes -> FindingType."""
