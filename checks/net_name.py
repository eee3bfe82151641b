"""Do MASTER_ADDR and this node's hostname resolve correctly and quickly?

Looks at     every address of MASTER_ADDR, of this node's hostname and of its full name, in the
             order in which torch tries them, and the time that each lookup takes; which of them are
             this machine's; the reverse lookup of MASTER_ADDR that c10d makes for every connection,
             in the form ::ffff:a.b.c.d that it asks for
Fails if     MASTER_ADDR does not resolve, also where this user may not read the resolver's files,
             or the resolver does not answer; it is written as a number, or as a link-local address
             without an interface; this node runs rank 0 and MASTER_ADDR is another machine's; and
             on several nodes: MASTER_ADDR is the loopback, or the hostname makes Gloo use the
             loopback
Warns if     a lookup takes longer than 0.5 s, or a reverse one longer than 1 s; MASTER_ADDR has
             other machines' addresses too, or an IPv6 address that is tried first and can't be
             reached, or resolves only after a while; the hostname resolves to the loopback on
             several nodes with GPUs, where NCCL may still work
Undecided    a copied file tree is checked: names are resolved on the live machine only
Not covered  whether other nodes resolve the names to the same addresses, and whether anything
             answers there (rdzv.reach)
Seen as      "The client socket has timed out after", "gai error: -2", "Name or service not known",
             "Temporary failure in name resolution", "host not found",
             "The hostname of the client socket cannot be retrieved. err=-3",
             "Unable to resolve hostname to a (local) address. Using the loopback address",
             "Gloo connectFullMesh failed", "remote=[127.0.1.1]"
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from preflight.check import Check, Context, Scope, Stage
from preflight.domains.net.dns import (
    NO_ANSWER,
    NO_RESOLVER,
    Lookup,
    LookupBatch,
    Question,
    addresses,
    as_c10d,
    c10d_order,
    in_words,
    is_local,
    is_loopback,
    link_local,
    look_up,
    parse_ip,
    reads_as_number,
    source_of,
    why_translated,
)
from preflight.domains.net.interface_rules import gloo_names
from preflight.domains.system import container
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration
from preflight.identity.addresses import every_address, flaw, loopback
from preflight.identity.launchers import is_host
from preflight.model import (
    UNNUMBERED,
    Blame,
    CannotObserve,
    Cause,
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
    budget=40.0,
    quick_budget=9.0,
    blame=Blame.JOB,
    explains=("rdzv.*", "world.*"),
)

# a lookup in a healthy network takes milliseconds; torch makes several at each start
SLOW = 0.5
# c10d makes one for each end of each connection, and starts nothing else meanwhile
REVERSE_SLOW = 1.0

# what the worker needs after the last lookup to hand its answer over
RESERVE = 0.7
ADDRESSES_KEPT = 16
SHOWN = 3
REVERSED = 4

RESOLVER_FILES = ("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf")
# what a name server says of a name that is still to come
NOT_YET = ("EAI_NONAME", "EAI_NODATA", "EAI_AGAIN")
LOOK_AGAIN = 0.5
OWN_NAME_LATE = 8.0
"""Seconds for which the node of rank 0 asks again for a name that is its own."""
FIRST = 6.0
"""Seconds for all questions that are asked once: more than one dead name server of two takes."""

OWN_AGAIN = 1.0

# the questions, as the marks name them
MASTER, OWN = "resolve MASTER_ADDR", "resolve this node's hostname"
FULL = "resolve the full name of"

LOOK_UP = Command("getent ahosts {name}", "the node")

FINDINGS = {
    "master-unresolved": FindingType(
        headline="MASTER_ADDR '{name}' does not resolve on {at}",
        who="job author",
        cause="no DNS record or /etc/hosts line for the name on this node or in this container, "
        "or a typo",
        means="the ranks here retry silently and end with 'The client socket has timed out after "
        "… while trying to connect to ({name}, …)'",
        text="set MASTER_ADDR to the IP address of rank 0's node; add the name to DNS or to "
        "/etc/hosts of every node and image",
        commands=(LOOK_UP,),
        status=(Status.FAIL, Status.WARN),
        blame=(Blame.JOB, Blame.NODE),
    ),
    "master-late": FindingType(
        headline="MASTER_ADDR '{name}' resolved on {at} only after {seconds}",
        cause="a pod or node of rank 0 that was still starting, or a name server that did not "
        "know it yet",
        means="the ranks here wait as long: torch retries for its whole timeout",
        text="let Kubernetes publish the name before its pod is ready (publishNotReadyAddresses: "
        "true); if it is only late at startup, the job waits for it as this run did",
        commands=(LOOK_UP,),
        status=Status.WARN,
        blame=Blame.UNKNOWN,
        explains=("rdzv.reach:agent-late",),
    ),
    "names-unreadable": FindingType(
        headline="MASTER_ADDR does not resolve, and {file} can't be read by this user on {at}",
        cause="a file that a provisioning tool or a strict umask has left to root alone",
        means="'Temporary failure in name resolution' (gai error: -3) or 'Name or service not "
        "known' for this user, while all names resolve for root",
        now="chmod a+r {file}   on {node}, as root",
        text="give the file the mode 0644, also in what writes it",
        commands=(Command("ls -l /etc/hosts /etc/resolv.conf /etc/nsswitch.conf", "the node"),),
        blame=Blame.NODE,
    ),
    "resolver-silent": FindingType(
        headline="the name server does not answer {at}: {seen}",
        cause="a name server in /etc/resolv.conf that is down, or a firewall that drops port 53",
        means="'Temporary failure in name resolution' (gai error: -3); each attempt of torch "
        "takes 10 s or more, then 'The client socket has timed out'",
        text="set MASTER_ADDR to the IP address of rank 0's node; repair /etc/resolv.conf, or add "
        "the nodes to /etc/hosts",
        commands=(Command("cat /etc/resolv.conf", "the node"), LOOK_UP),
        status=(Status.FAIL, Status.WARN),
        blame=Blame.NETWORK,
    ),
    "resolver-slow": FindingType(
        headline="{seen} on {at}: name resolution is slow",
        cause="a first name server that is down, so that each lookup waits for it, or a long "
        "search list",
        means="every job start waits that long, several times",
        text="remove the dead server from /etc/resolv.conf, or set 'options timeout:1 attempts:1' "
        "there",
        commands=(Command("cat /etc/resolv.conf", "the node"), LOOK_UP),
        status=Status.WARN,
        blame=Blame.NETWORK,
        explains=("rdzv.store:store-slow",),
    ),
    "reverse-slow": FindingType(
        headline="{seen} on {at}",
        cause="a name server that does not answer reverse lookups, or nothing at all",
        means="init_process_group takes 10 to 20 s longer, even if MASTER_ADDR is an IP address: "
        "'The hostname of the client socket cannot be retrieved. err=-3'",
        text="add the line ::ffff:{ip} {name} to /etc/hosts (as c10d looks it up), or repair "
        "the reverse zone in DNS",
        commands=(Command("getent hosts ::ffff:{ip}", "the node"),),
        status=Status.WARN,
        blame=Blame.NETWORK,
        explains=("rdzv.store:store-slow",),
    ),
    "numeric-name": FindingType(
        headline="MASTER_ADDR '{name}' is read as a number, not as a host name",
        who="job author",
        cause="a host or container name made of digits only, which is read as an IP address",
        means="torch connects to a wrong address: 'errno: 101 - Network is unreachable'",
        now="export MASTER_ADDR={here}   on every node",
        text="give the container a hostname with a letter (--hostname), or use torchrun "
        "--local-addr",
    ),
    "link-local": FindingType(
        headline="MASTER_ADDR '{name}' is a link-local address without its %interface",
        who="job author",
        cause="an fe80:: address copied without its %interface",
        means="every connection fails with 'errno: 22 - Invalid argument'",
        text="use a global IPv6 address, or an IPv4 address",
    ),
    "master-elsewhere": FindingType(
        headline="rank 0 runs on {at}, but MASTER_ADDR '{name}' is a different machine",
        who="job author",
        cause="a host list whose first host does not run rank 0, or the name of a login node",
        means="rank 0 listens here, but all ranks (including rank 0) connect there: 'The client "
        "socket has timed out'",
        now="export MASTER_ADDR={here}   on every node",
        text="set MASTER_ADDR to a name or address of rank 0's node; SLURM: MASTER_ADDR=$(scontrol "
        "show hostnames $SLURM_JOB_NODELIST | head -n1)",
        commands=(Command("ip -brief address", "the node of rank 0"), LOOK_UP),
        status=(Status.FAIL, Status.WARN),
    ),
    "master-ambiguous": FindingType(
        headline="MASTER_ADDR '{name}' resolves to several addresses, and not all belong to {at}",
        cause="a stale record in addition to the right one, or one name for several machines",
        means="ranks that try the wrong address first wait there until the store's timeout",
        now="export MASTER_ADDR={here}   on every node",
        text="remove the wrong address from DNS or /etc/hosts",
        commands=(LOOK_UP,),
        status=Status.WARN,
    ),
    "master-loopback": FindingType(
        headline="MASTER_ADDR '{name}' is {what}: each node would meet only itself",
        who="job author",
        cause="a MASTER_ADDR from a single-node script, or torchrun's default endpoint",
        means="rank 0: 'Timed out … waiting for clients. 1/… clients joined'; ranks of the other "
        "nodes connect to themselves and time out",
        now="export MASTER_ADDR={here}   on every node",
        text="set MASTER_ADDR (torchrun: --rdzv-endpoint) to the node of rank 0; remove the name "
        "from the 127.* lines of /etc/hosts",
        commands=(LOOK_UP,),
    ),
    "ipv6-first": FindingType(
        headline="MASTER_ADDR '{name}' resolves to IPv6 first, which does not work from {at}",
        cause="an IPv6 record for the name, while IPv6 is only partly configured on this node",
        means="torch tries IPv6 first and, if nothing comes back, never IPv4: 'The client socket "
        "has timed out'",
        text="set MASTER_ADDR to the IPv4 address of rank 0's node; remove the IPv6 record of the "
        "name, or give this node an IPv6 address",
        commands=(LOOK_UP,),
        status=Status.WARN,
        blame=Blame.NETWORK,
    ),
    "hostname-loopback": FindingType(
        headline="the hostname of {at} resolves to a loopback address",
        cause="a line '127.0.1.1 {name}' in /etc/hosts, as written by Debian, Ubuntu and "
        "cloud-init",
        means="Gloo advertises 127.0.1.1 to the other nodes: 'connectFullMesh failed … Connection "
        "refused, remote=[127.0.1.1]'; torchrun may advertise an address with which they connect "
        "to themselves",
        text="set GLOO_SOCKET_IFNAME to the interface of the job's network (torchrun: "
        "--local-addr), and give the name the node's real address in /etc/hosts",
        commands=(Command("getent hosts {name}", "the node"),),
        status=(Status.FAIL, Status.WARN),
        explains=("rdzv.torchrun", "world.gloo", "net.mesh", "net.payload"),
        was=("own-loopback",),
    ),
    "hostname-unusable": FindingType(
        headline="the hostname of {at} does not resolve to one of its addresses",
        cause="a host or container name that is not in DNS, or resolves to another machine",
        means="'Unable to resolve hostname to a (local) address. Using the loopback address as "
        "fallback', then 'connectFullMesh failed' on the other nodes",
        text="set GLOO_SOCKET_IFNAME to the interface of the job's network, or give the name the "
        "node's real address in DNS or /etc/hosts",
        commands=(Command("getent hosts {name}", "the node"),),
        explains=("rdzv.torchrun", "world.gloo", "net.mesh", "net.payload"),
        was=("own-unusable",),
    ),
    "hostname-of-another": FindingType(
        headline="{at} has the hostname of another node, {name}, which resolves to that one",
        cause="a cloned machine or image whose hostname was not changed",
        means="Gloo finds no address of its own by that name and takes the loopback: "
        "'connectFullMesh failed' on the other nodes; a torchrun with c10d takes itself for the "
        "host of the store, and advertises the other one",
        text="give each machine its own hostname, and that name its address in DNS or /etc/hosts; "
        "until then set GLOO_SOCKET_IFNAME to the interface of the job's network",
        commands=(Command("hostname; getent hosts {name}; ip -br address", "the node"),),
        status=(Status.FAIL, Status.WARN),
        explains=(
            *("rdzv.torchrun", "world.gloo", "net.mesh", "net.payload"),
            "agree.hardware:host-duplicate",
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Names:
    """full     its full name and then its addresses
    reverse   of MASTER_ADDR's addresses; `name` is the address in the form that was asked for
    local     those of all addresses found that a listener could stand at on this machine
    sources   address of MASTER_ADDR -> the local address to reach it from; empty: no way
    addresses of this machine's interfaces, as `eth0 10.0.0.7/24`
    gloo_by_name  Gloo goes by the hostname: GLOO_SOCKET_IFNAME is not set
    agent     the store is torchrun's agent, which need not be where rank 0 is
    closed    files of the resolver that this user may not read
    late      seconds after which MASTER_ADDR resolved, and how the first lookup failed; 0: at once
    inside    "kubernetes", "container" or "": where addresses may be translated on the way
    is_host   torchrun is told that its store is here, whatever the address of its endpoint
    """

    own: Lookup
    full: Lookup
    master: Lookup | None = None
    reverse: tuple[Lookup, ...] = ()
    local: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    gloo_by_name: bool = True
    agent: bool = False
    inside: str = ""
    gpus: bool = False
    closed: tuple[str, ...] = ()
    late: tuple[float, str] = (0.0, "")
    is_host: bool = False


def observe(host: Host, ctx: Context) -> Names:
    if not host.live:
        raise CannotObserve("names are looked up on the live machine only")
    until = time.monotonic() + max(0.1, min(FIRST, ctx.seconds) - RESERVE)
    own, master = host.hostname(), ctx.master_addr
    inquiry = LookupBatch(until, ctx.mark)
    found: tuple[str, ...] = ()
    late: tuple[float, str] = 0.0, ""
    answers: dict[str, Lookup] = {}
    inquiry.put(OWN, own, lambda: addresses(host, own))
    inquiry.put(FULL, own, lambda: (full := host.fqdn(), *addresses(host, full)))
    if master:
        inquiry.put(MASTER, master, lambda: c10d_order(addresses(host, master)))
        answers[MASTER] = inquiry.take(MASTER)
        began = time.monotonic()
        late = _asked_again(inquiry, answers, ctx)
        inquiry.until += time.monotonic() - began  # what is still to be asked has its own time
        found = answers[MASTER].found
    for ip in found[:REVERSED]:
        inquiry.put(f"reverse {ip}", as_c10d(ip), _reverser(host, ip))
    answers |= {key: inquiry.take(key) for key in tuple(inquiry.pending)}
    if late[0] and answers[OWN].error in NOT_YET:  # it may well be the same name
        answers[OWN] = look_up(own, inquiry.asked[OWN][1], OWN_AGAIN)
    answers = inquiry.again(answers)
    every = dict.fromkeys((*found, *answers[OWN].found))
    return Names(
        own=answers[OWN],
        full=answers[FULL],
        master=answers.get(MASTER),
        reverse=tuple(answers[f"reverse {ip}"] for ip in found[:REVERSED]),
        local=tuple(ip for ip in every if is_local(host, ip)),
        sources={ip: source_of(host, ip) for ip in found},
        addresses=_interfaces(host),
        gloo_by_name=not gloo_names(host.environ.get("GLOO_SOCKET_IFNAME", "")[:80]),
        agent=host.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        is_host=is_host(host.environ.get("PET_RDZV_CONF", "")) is True,
        inside=container.network_kind(host),
        gpus=bool(host.gpu_files()),
        closed=tuple(file for file in RESOLVER_FILES if host.refused(file) == errno.EACCES),
        late=late,
    )


def _asked_again(
    inquiry: LookupBatch, answers: dict[str, Lookup], ctx: Context
) -> tuple[float, str]:
    """Ask again for a MASTER_ADDR that does not resolve yet, while other nodes are waited for:
    the name of a pod comes with the pod, and torch asks again for its whole timeout. Rank 0's own
    node may start before its name is there, too; it asks for less time, since it holds the meeting
    meanwhile, and all others would wait for its answer. What can't be a name, once. How
    many seconds later the name was there, and the first answer; 0 where the first was the last."""
    first = answers[MASTER].error
    top = ctx.topology
    name, question = inquiry.asked[MASTER]
    if first not in NOT_YET or not top.several_nodes or flaw(name):
        return 0.0, ""
    began = time.monotonic()
    most = OWN_NAME_LATE if 0 in top.ranks_of(ctx.node) else ctx.patience
    until = began + min(most, ctx.patience, ctx.seconds - FIRST) - LOOK_AGAIN
    while answers[MASTER].error in NOT_YET and (left := until - time.monotonic()) > 0:
        time.sleep(LOOK_AGAIN)
        ctx.mark(f"MASTER_ADDR {name[:80]!r} does not resolve yet, asking again")
        answers[MASTER] = look_up(name, question, min(left, FIRST))
    return (round(time.monotonic() - began, 1), first) if answers[MASTER].found else (0.0, "")


def _reverser(host: Host, ip: str) -> Question:
    return lambda: (host.name_of(as_c10d(ip)),)


def _interfaces(host: Host) -> tuple[str, ...]:
    try:
        known = host.interfaces
    except CannotObserve:
        return ()
    found = [f"{i.name} {a.ip}/{a.prefix}" for i in known for a in i.addresses]
    return tuple(found[:ADDRESSES_KEPT])


def judge(world: World[Names], expect: Expect) -> Iterator[Found]:
    for key, missing in world.missing(Cause.TIMED_OUT).items():
        # killed while it waited for a lookup, and not at once: the lookup is what hangs
        if missing.last_mark.startswith("wait: ") and missing.seconds > REVERSE_SLOW:
            question = missing.last_mark.removeprefix("wait: ")
            fatal = question.startswith(MASTER)
            yield _silent_resolver(world.subject(key), question, missing.seconds, fatal)
    yield from _merge_alike(_judge_nodes(world))


def _judge_nodes(world: World[Names]) -> Iterator[Found]:
    several = world.topology.several_nodes
    met = world.topology.met
    leading = next((seen for here, seen in world.each() if 0 in here.ranks), None)
    masters = {here.node: o.master.name for here, o in world.each() if o.master is not None}
    unnamed = {node for node, name in masters.items() if loopback(name)}
    for here, seen in world.each():
        yield from _judge_speed(here, seen)
        if seen.master is not None and seen.master.error:
            yield from _judge_unresolved(here, seen, seen.master, world, several)
        elif seen.master is not None and seen.master.found:
            yield from _judge_late(here, seen.master, *seen.late)
            leader = 0 in here.ranks and not _master_on_other_node(here, world)
            leader = leader and UNNUMBERED not in world.topology.facts
            proven = met > world.topology.ranks_on(here.node)
            named = len(masters) > 1 and unnamed <= {here.node}
            yield from _judge_master(
                here, seen, seen.master, several, leader, leading, proven, named
            )
        if several:
            yield from _judge_own(here, seen, world)


def _merge_alike(findings: Iterable[Found]) -> Iterator[Found]:
    """What differs only in names and times is one finding about all these nodes."""
    groups: dict[tuple[object, ...], list[Found]] = {}
    for f in findings:
        key = (f.code, f.status, f.blame, f.confidence, f.explains, f.alternatives)
        groups.setdefault(key, []).append(f)
    for group in groups.values():
        said = list(dict.fromkeys(f.saw for f in group))
        more = f" · and {len(said) - SHOWN} more like it" if len(said) > SHOWN else ""
        subjects = tuple(dict.fromkeys(subject for f in group for subject in f.subjects))
        yield group[0].with_(subjects=subjects, saw="; ".join(said[:SHOWN]) + more)


def _judge_speed(here: Subject, seen: Names) -> Iterator[Found]:
    lookups = [x for x in (seen.master, seen.own if seen.gloo_by_name else None) if x is not None]
    slow = [x for x in lookups if x.error != NO_ANSWER and x.seconds > SLOW]
    if seen.own in lookups and seen.own.error == NO_ANSWER:
        yield _silent_resolver(here, f"{OWN} {seen.own.name[:80]!r}", seen.own.seconds, False)
    elif slow:
        yield Found(
            "resolver-slow",
            (here,),
            saw=f"{slow[0].name[:80]!r} took {duration(slow[0].seconds)} to resolve",
            expected=f"less than {duration(SLOW)}",
            fields={"name": slow[0].name},
        )
    reverse = max(seen.reverse, key=lambda r: r.seconds, default=None)
    if reverse is not None and reverse.seconds > REVERSE_SLOW:
        how = "had no answer after" if reverse.error == NO_ANSWER else "took"
        ip = reverse.name.removeprefix("::ffff:")
        yield Found(
            "reverse-slow",
            (here,),
            saw=f"the reverse lookup of {reverse.name} {how} {duration(reverse.seconds)}",
            expected=f"an answer, be it 'no such name', within {duration(REVERSE_SLOW)}",
            fields={"ip": ip, "name": seen.master.name if seen.master else ip},
        )


def _silent_resolver(
    here: Subject, question: str, seconds: float, fatal: bool, how: str = ""
) -> Found:
    return Found(
        "resolver-silent",
        (here,),
        saw=f"{question}: {how or f'no answer within {duration(seconds)}'}",
        expected="an answer within milliseconds",
        confidence=Confidence.LIKELY,
        explains=None if fatal else (),
        fields={"name": question.rpartition(" ")[2].strip("'\"")},
        status=Status.FAIL if fatal else Status.WARN,
    )


def _judge_late(here: Subject, master: Lookup, seconds: float, first: str) -> Iterator[Found]:
    if seconds > 0:
        yield Found(
            "master-late",
            (here,),
            saw=f"MASTER_ADDR {master.name[:80]!r}: {in_words(first)}, then {master.found[0]} "
            f"after {duration(seconds)}",
            expected="a name that resolves when the ranks start",
            confidence=Confidence.CERTAIN,
            fields={"name": master.name[:80], "seconds": duration(seconds)},
        )


def _judge_unresolved(
    here: Subject, seen: Names, master: Lookup, world: World[Names], several: bool
) -> Iterator[Found]:
    name = master.name[:80]
    if seen.closed:
        files = ", ".join(seen.closed)
        yield Found(
            "names-unreadable",
            (here,),
            saw=f"MASTER_ADDR {name!r}: {in_words(master.error)} · {files}: Permission denied",
            expected="files that every user may read",
            confidence=Confidence.LIKELY,
            fields={"file": seen.closed[0], "node": here.node},
        )
        return
    if master.error in NO_RESOLVER:
        how = ""
        if master.error != NO_ANSWER:
            late = master.seconds > SLOW
            when = f"after {duration(master.seconds)}" if late else "at once"
            how = f"failed {when}: {in_words(master.error)}"
        yield _silent_resolver(here, f"{MASTER} {name!r}", master.seconds, True, how)
        return
    others = [n.master for n in world.seen.values() if n.master and n.master.found]
    # a pod may well come up before the name of the first pod is known; who waits will see it
    starting = seen.inside == "kubernetes" and several and 0 not in here.ranks
    yield Found(
        "master-unresolved",
        (here if others else _master_addr_subject(here),),
        saw=f"MASTER_ADDR {name!r}: {in_words(master.error)}"
        + (f" · another node resolves it to {others[0].found[0]}" if others else ""),
        expected="a name or an address, without brackets, port or spaces, that resolves here",
        blame=Blame.NODE if others else None,
        confidence=Confidence.POSSIBLE if starting else Confidence.CERTAIN,
        explains=() if starting else None,
        alternatives=("the service of the first pod is still starting",) if starting else (),
        fields={"name": name},
        status=Status.WARN if starting else Status.FAIL,
    )


def _master_on_other_node(here: Subject, world: World[Names]) -> bool:
    """Whether another node has rank 0, too, and MASTER_ADDR: then it is the rank that is wrong
    here (rdzv.reach), and not the address."""
    return any(
        n.node != here.node
        and 0 in n.ranks
        and o.master is not None
        and any(ip in o.local for ip in o.master.found)
        for n, o in world.each()
    )


def _judge_master(
    here: Subject,
    seen: Names,
    master: Lookup,
    several: bool,
    leader: bool,
    leading: Names | None,
    proven: bool,
    named: bool,
) -> Iterator[Found]:
    """`leading`: what the node of rank 0 saw, where it is known; `proven`: others met rank 0 at
    MASTER_ADDR; `named`: all others that are known have a name for it that is no loopback's."""
    name, found = master.name[:80], master.found
    away = [ip for ip in found if ip not in seen.local and not is_loopback(ip)]
    leads = f"MASTER_ADDR {name!r} is {', '.join(found[:4])}"

    def finding(code: str, saw: str = "") -> Found:
        right = seen if 0 in here.ranks else leading
        address = next(iter(_reachable_addresses(right)), "") if right is not None else ""
        return Found(
            code,
            (_master_addr_subject(here),),
            saw=saw or f"{leads} · this node has {_describe_addresses(seen)}",
            expected="an address of the node of rank 0 that every node can reach",
            fields={"name": name, "here": address},  # without one there is nothing to paste
        )

    written = name == "localhost" or ":" in name or name.replace(".", "").isdecimal()
    if away and reads_as_number(name):
        yield finding("numeric-name", f"{leads}: the name is read as a number")
    elif all(link_local(ip) and ":" in ip and "%" not in ip for ip in found):
        yield finding("link-local", f"{leads}: without %interface")
    elif several and not away and all(is_loopback(ip) for ip in found):
        # the name of rank 0's own node may lead to the loopback there, and elsewhere to the node;
        # an operator of Kubernetes calls it localhost, others 0.0.0.0, and torch listens at all
        # addresses there: who met has another name for it
        usual = seen.inside == "kubernetes" or every_address(name) or (proven and named)
        known = 0 in here.ranks and usual
        if (written and not known) or 0 not in here.ranks:
            found_as = finding("master-loopback")
            what = "an address to listen at" if every_address(name) else "a loopback address"
            yield found_as.with_(fields={**found_as.fields, "what": what})
    elif leader and not seen.agent and len(away) == len(found):
        own = [address.rpartition(" ")[2] for address in seen.addresses]
        doubt = why_translated(away, own, seen.inside)
        if not doubt and seen.is_host:
            doubt = "--rdzv-conf is_host says that torchrun's store is here"
        if doubt and proven:
            return
        elsewhere = finding("master-elsewhere")
        yield elsewhere.with_(
            status=Status.WARN if doubt else Status.FAIL,
            saw=elsewhere.saw + (f" · {doubt}" if doubt else ""),
            confidence=Confidence.POSSIBLE if doubt else Confidence.CERTAIN,
            alternatives=("the address is translated (NAT) to this node's",) if doubt else (),
        )
    elif leader and not seen.agent and any(seen.sources.get(ip) for ip in away):
        yield finding("master-ambiguous")
    elif away and any("." in ip for ip in found) and _answers_get_lost(seen, away[0]):
        source = seen.sources[away[0]]
        saw = f"{leads} · this node would speak to {away[0]} from {source} only"
        yield finding("ipv6-first", saw).with_(confidence=Confidence.LIKELY)


def _answers_get_lost(seen: Names, ip: str) -> bool:
    """Whether an IPv6 address has a route but is spoken to from a link-local address only: then
    nothing comes back, and c10d falls back to IPv4 on an error alone, not on silence."""
    return ":" in ip and not link_local(ip) and link_local(seen.sources.get(ip, ""))


def _reachable_addresses(seen: Names) -> dict[str, str]:
    """ip -> `eth0 10.0.0.7/24` of the addresses that others may reach."""
    found = {a.rpartition(" ")[2].partition("/")[0]: a for a in seen.addresses}
    return {ip: a for ip, a in found.items() if not is_loopback(ip) and not link_local(ip)}


def _describe_addresses(seen: Names) -> str:
    return ", ".join([*_reachable_addresses(seen).values()][:4]) or "no address but its loopback"


def _gloo_address(seen: Names) -> str:
    """The address that Gloo advertises when no interface is named."""
    return next((ip for ip in seen.own.found if ip in seen.local), "127.0.0.1")


def _connects_by_luck(world: World[Names]) -> bool:
    """In Gloo the node with the greater address dials. So a single node that tells 127.* works by
    luck where all others have smaller addresses (10.*), and fails among 172.* and 192.168.*."""
    ips = [_gloo_address(n) for n in world.seen.values()]
    others = [ip for ip in ips if not is_loopback(ip)]
    everybody = len(ips) == len(world.topology.nodes) and world.topology.met == world.topology.size
    return (
        everybody
        and len(others) == len(ips) - 1
        and all((a := parse_ip(ip)) and a.version == 4 and a.packed[0] < 127 for ip in others)
    )


def _judge_own(here: Subject, seen: Names, world: World[Names]) -> Iterator[Found]:
    """Judge the hostname of one of several nodes. With GPUs it may be that only NCCL is used."""
    own, full = seen.own, seen.full
    looping = seen.gloo_by_name and is_loopback(_gloo_address(seen)) and own.error != NO_ANSWER
    if not looping:
        return  # what torchrun's c10d would make of the full name is rdzv.torchrun's to judge
    handed = any(is_loopback(ip) for ip in full.found[1:])
    by_name = any(is_loopback(ip) for ip in own.found)
    found = ", ".join(own.found[:4])
    does = f"resolves to {found}" if found else f"does not resolve: {in_words(own.error)}"
    saw = f"this node's hostname {own.name[:80]!r} {does}"
    if by_name and handed:
        saw += f" · torchrun would advertise {full.found[0][:80]!r}"
    harmless = seen.gpus or _connects_by_luck(world)
    code = "hostname-loopback" if by_name else "hostname-unusable"
    yield Found(
        "hostname-of-another" if _of_another(seen, world) else code,
        (here,),
        saw=f"{saw} · this node has {_describe_addresses(seen)}",
        expected="an address of this node that the others can reach, or GLOO_SOCKET_IFNAME",
        confidence=Confidence.LIKELY if harmless else Confidence.CERTAIN,
        fields={"name": own.name},
        status=Status.WARN if harmless else Status.FAIL,
    )


def _of_another(seen: Names, world: World[Names]) -> bool:
    """Whether another node has this one's hostname, and it resolves to an address of that one."""
    return any(
        other.own.name == seen.own.name and set(seen.own.found) & _reachable_addresses(other).keys()
        for other in world.seen.values()
        if other is not seen
    )


def _master_addr_subject(here: Subject) -> Subject:
    return Subject(Kind.SOFTWARE, here.node, "MASTER_ADDR", here.ranks)


def measured(world: World[Names]) -> Measured:
    seen = next(iter(world.seen.values()), None)
    if seen is None:
        return Measured()
    lookups = [x for x in (seen.master, seen.own, *seen.reverse) if x is not None]
    slowest = max(x.seconds for x in lookups)
    words = [
        f"{repr(x.name[:40])[1:-1]} is {x.found[0]}"
        for x in (seen.master, seen.own)
        if x is not None and x.found and x.found[0] != x.name
    ]
    return Measured(
        " · ".join((*dict.fromkeys(words), f"lookups {duration(slowest)} at most")),
        {"slowest_seconds": slowest, "own": list(seen.own.found)},
    )
