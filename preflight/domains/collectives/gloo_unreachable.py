"""Which node Gloo means when it complains of an address that it can't connect to. Pure.

Each rank dials the address that its peer has told it through the store. The complaint comes from
the one that dialled; the fault is with the peer, or between the two, and the peer itself says
nothing for five times its timeout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from preflight.domains.net.dns import is_loopback, parse_ip
from preflight.frozen import dataclass
from preflight.humanize import parties
from preflight.model import Blame, Command, Confidence, FindingType, Kind, Subject, World, place_of

FINDINGS = {
    "gloo-unreachable": FindingType(
        headline="Gloo can't connect the ranks: {seen}",
        who="job author",
        cause="a hostname that resolves to a loopback or container address, which Gloo advertises "
        "to its peers",
        means="'Gloo connectFullMesh failed with … timed out connecting: SO_ERROR: Connection "
        "refused'; the other side prints nothing for five times its timeout",
        text="set GLOO_SOCKET_IFNAME to the interface that reaches the other ranks, or give the "
        "hostname its real address in /etc/hosts",
        commands=(Command("getent hosts $(hostname)", "the node"),),
        blame=(Blame.NETWORK, Blame.UNKNOWN, Blame.JOB),
    ),
}

REFUSED = re.compile(r"SO_ERROR: .{1,80}?, remote=\[([^\]]{1,64})\]")
"""The socket's error and the address that was dialled."""

NAMED = 16
"""Edges that are subjects each for itself."""


@dataclass(frozen=True, slots=True)
class UnreachableAddress:
    """Who is behind an address that could not be reached, and a note for the finding's text."""

    subjects: tuple[Subject, ...]
    note: str
    blame: Blame
    confidence: Confidence
    alternatives: tuple[str, ...] = ()


def unreachable_address(world: World[Any], texts: Mapping[str, str]) -> UnreachableAddress | None:
    """What the complaints of ranks on several nodes say together (key -> text); None when none of
    them has an address."""
    dialled: dict[str, set[str]] = {}
    for key, text in texts.items():
        if found := REFUSED.search(text):
            dialled.setdefault(place_of(key)[0], set()).add(_plain(found[1]))
    if not dialled:
        return None
    looping = [node for node, ips in dialled.items() if any(map(is_loopback, ips))]
    if looping:
        return _loopback(world, looping)
    by_ip = _owners(world)
    edges = sorted({(n, by_ip[ip]) for n, ips in dialled.items() for ip in ips if ip in by_ip})
    if edges:
        return _edges(world, edges)
    ips = sorted({ip for found in dialled.values() for ip in found})
    return UnreachableAddress(
        tuple(world.subject(key) for key in texts),
        f"no node came to the meeting from {parties(ips)}",
        Blame.UNKNOWN,
        Confidence.POSSIBLE,
        (
            "the peer advertises a wrong address (net.interface, net.name)",
            "a firewall or a route between the nodes (net.mesh)",
        ),
    )


def _plain(ip: str) -> str:
    """An address in one form, also an IPv4 address in IPv6 clothes."""
    found = parse_ip(ip)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found or ip)


def _owners(world: World[Any]) -> dict[str, str]:
    """Address -> the one node that came to the meeting from there. Who holds the meeting did not
    come from anywhere: with rank 0 it is at MASTER_ADDR."""
    owners: dict[str, set[str]] = {}
    for node in world.topology.nodes:
        ip = node.addr or (world.topology.master_addr if 0 in node.ranks else "")
        if ip and parse_ip(ip) and not is_loopback(ip):
            owners.setdefault(_plain(ip), set()).add(node.name)
    return {ip: next(iter(names)) for ip, names in owners.items() if len(names) == 1}


def _loopback(world: World[Any], complain: list[str]) -> UnreachableAddress:
    """Nothing listened at the loopback of the node that complains: a rank of another node has told
    it its own. Those who do are silent, since they wait to be dialled."""
    names = list(dict.fromkeys(place_of(key)[0] for key in world.observations))
    silent = [name for name in names if name not in complain]
    # of two that both complain, each has told the other its loopback
    suspects = silent or names
    sure = len(suspects) == 1 or (not silent and len(names) == 2)
    return UnreachableAddress(
        _nodes(world, suspects),
        "a loopback address, advertised by ",
        Blame.JOB,
        Confidence.LIKELY if sure else Confidence.POSSIBLE,
        () if sure else tuple(f"{name} advertises its loopback address" for name in suspects[:4]),
    )


def _any(names: list[str]) -> str:
    return " or ".join(names) if len(names) < 4 else f"another node: {parties(names)}"


def _edges(world: World[Any], edges: list[tuple[str, str]]) -> UnreachableAddress:
    """Addresses that are those of known nodes: the way there fails. A node that several others
    can't reach is named, else both ends."""
    shown = parties([f"{a}->{b}" for a, b in edges])
    to = {b for _, b in edges}
    within = all(a == b for a, b in edges)
    if within or (len(to) == 1 and len(edges) > 1) or len(edges) > NAMED:
        subjects = _nodes(world, sorted(to))
    else:
        subjects = tuple(
            Subject(
                Kind.LINK,
                a,
                to=b,
                ranks=(*world.topology.ranks_of(a), *world.topology.ranks_of(b)),
            )
            for a, b in edges
            if a != b
        )
    note = f"the address of {parties(sorted(to))}" if within else f"that is {shown}"
    return UnreachableAddress(
        subjects, note, Blame.UNKNOWN if within else Blame.NETWORK, Confidence.LIKELY
    )


def _nodes(world: World[Any], names: Iterable[str]) -> tuple[Subject, ...]:
    return tuple(Subject(Kind.NODE, n, ranks=world.topology.ranks_of(n)) for n in names)
