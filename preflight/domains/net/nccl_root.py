"""Whether rank 0 could listen at NCCL_COMM_ID, where NCCL's ranks meet if it is set.

bootstrapGetUniqueId and bootstrapNetInit of src/bootstrap.cc; torch needs no such variable.
"""

from __future__ import annotations

from preflight.domains.net.dns import parse_ip
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.host import Host
from preflight.model import CannotObserve

SHOWN = 4
"""Addresses of this machine that are named."""


def comm_id_problem(host: Host) -> str:
    """Why rank 0 could not listen at NCCL_COMM_ID here, empty where it could or it is not set, or
    where it is a name: nothing is resolved."""
    named = nccl_setting(host, "NCCL_COMM_ID")
    if not named:
        return ""
    address, _, port = named.rpartition(":")
    if not address or not port.isdecimal():
        return "it has no port"
    ip = parse_ip(address.strip("[]"))
    if ip is None or ip.is_loopback:
        return ""
    try:
        known = [(i, a) for i in host.interfaces if not i.loopback for a in i.addresses]
    except CannotObserve:
        return ""
    if ip in {parse_ip(a.ip) for _, a in known}:
        return ""
    mine = ", ".join(f"{i.name} {a.ip}" for i, a in known[:SHOWN])
    return f"this node has {mine or 'no address'}"
