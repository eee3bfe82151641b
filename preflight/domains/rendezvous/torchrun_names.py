"""Host names between nodes: the addresses that others can use, and how torchrun's rendezvous takes
names (torch/distributed/elastic/rendezvous, 2.4 to 2.13). Pure but for what a Host is asked.
"""

from __future__ import annotations

from preflight.domains.net.dns import (
    NO_RESOLVER,
    Lookup,
    Question,
    addresses,
    is_loopback,
    link_local,
    parse_ip,
)
from preflight.host import Host
from preflight.identity.addresses import endpoint_parts
from preflight.model import CannotObserve

KEPT = 64
"""Addresses of one machine that are kept."""

PORT = "29400"
"""Of an endpoint that names none (c10d_rendezvous_backend.py)."""


def addresses_of(host: Host, name: str) -> Question:
    """The question for a name's addresses."""
    return lambda: addresses(host, name)


def reachable_addresses(host: Host) -> tuple[str, ...]:
    """The addresses of this machine that mean the same on another one."""
    try:
        known = host.interfaces
    except CannotObserve:
        return ()
    found = [
        a.ip for i in known for a in i.addresses if not (is_loopback(a.ip) or link_local(a.ip))
    ]
    return tuple(found[:KEPT])


def endpoint_of(text: str) -> tuple[str, str]:
    """Host and port where c10d's store would be; without an endpoint on this machine."""
    host, port = endpoint_parts(text)
    return host or "localhost", PORT if port is None else port


def matches_this_machine(
    endpoint: str, own: str, mine: Lookup, its: Lookup
) -> tuple[bool | None, str, str]:
    """Whether torchrun takes an endpoint for this machine (_matches_machine_hostname), what it goes
    by, and the error with which it stops. A canonical name is left out: it leads to the addresses
    that are compared anyway."""
    literal = parse_ip(endpoint)
    if endpoint == "localhost" or (literal is not None and literal.is_loopback):
        return True, "the loopback", ""
    if endpoint == own:
        return True, "its hostname", ""
    if mine.error in NO_RESOLVER:
        return None, "", ""
    if mine.error:
        return False, "", mine.error
    for ip in mine.found:
        if ip in its.found or (literal is not None and ip == str(literal)):
            return True, f"{ip}, to which its hostname resolves", ""
    return (None if its.error in NO_RESOLVER else False), "", ""
