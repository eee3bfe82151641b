"""What workers do for the meeting: lookups of MASTER_ADDR, and the launcher's own store."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from preflight.frozen import dataclass
from preflight.host import Host
from preflight.process.worker import Channel
from preflight.serde import decode, parsed

LOOK_AGAIN = 0.5
"""Seconds between two look-ups of a name that there is not yet."""
ANOTHER = "another meeting"
CALL_SECONDS, CALL_AGAIN = 1.0, 0.2
"""For one connection to this agent's own meeting, and between two."""
OWN_MOST = 16
STORE_MOST = 4096
"""Addresses and bytes that are taken from a store that anybody may have written to."""


def scout(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, Any]:
    """What an agent has to know before it goes to the meeting: who it is, what MASTER_ADDR is here,
    and whether that is this machine. A name that there is not may come yet (a pod's), so it is
    looked up until `seconds` are over, where it `may_come`."""
    from preflight.domains.net.dns import (
        NO_ANSWER,
        addresses,
        c10d_order,
        is_local,
        is_loopback,
        look_up,
        source_of,
        why_translated,
    )
    from preflight.domains.net.meeting_port import claimants
    from preflight.domains.system import container

    host = Host()
    until = time.monotonic() + args["seconds"]
    name = args["name"]
    while True:
        channel.mark(f"look-up of {name[:80]!r}")
        left = max(0.1, until - time.monotonic())
        found = look_up(name, lambda: addresses(host, name), left)
        if found.found or not args["may_come"] or time.monotonic() + LOOK_AGAIN >= until:
            break
        time.sleep(LOOK_AGAIN)
    ips = c10d_order(found.found)
    own = [a.ip for i in host.interfaces if i.up for a in i.addresses if not is_loopback(a.ip)]
    networks = [f"{a.ip}/{a.prefix}" for i in host.interfaces for a in i.addresses]
    sources = [source_of(host, ip) for ip in ips]
    mine = any(is_local(host, ip) for ip in ips)
    return {
        "host": host.hostname()[:64],
        "identity": _identity(host),
        "ips": list(ips),
        "error": "SILENT" if found.error == NO_ANSWER else found.error,
        "looked": found.seconds,
        "mine": mine,
        "translated": not mine
        and bool(why_translated(ips, networks, container.network_kind(host))),
        "claimants": list(claimants(host, args["claim"])),
        "own": list(dict.fromkeys(ip for ip in (*sources, *own) if ip))[:OWN_MOST],
    }


def _identity(host: Host) -> str:
    """Two agents with the same one share a machine and its network. Hashed: nobody needs the boot
    id itself."""
    import hashlib

    boot = (host.read_or_none("/proc/sys/kernel/random/boot_id") or "").strip()
    network = host.readlink("/proc/self/ns/net")
    return hashlib.sha256(f"{boot} {network} {host.hostname()}".encode()).hexdigest()[:16]


def call_oneself(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, Any]:
    """Connect to this agent's own meeting by way of MASTER_ADDR, as rank 0's own client of the
    store does where the address is translated on the way; again until `seconds` are over, since a
    service may take a moment to know its pod. The meeting knows its own `word`; `error` is errno's
    name, `stranger`, or ANOTHER of the last try."""
    import errno
    import socket

    from preflight.meeting.connection import line_of

    until = time.monotonic() + args["seconds"]
    error = "ETIMEDOUT"
    while (left := until - time.monotonic()) > 0:
        for ip in args["ips"]:
            channel.mark(f"own meeting at {ip}")
            heard, error = b"", "stranger"
            try:
                with socket.create_connection((ip, args["port"]), min(left, CALL_SECONDS)) as sock:
                    sock.sendall(line_of({"own": args["word"]}))
                    while len(heard) < STORE_MOST and (more := sock.recv(STORE_MOST)):
                        heard += more
                        if b'"refused":"own"' in heard:
                            return {"error": ""}
            except TimeoutError:
                error = "ETIMEDOUT"
            except OSError as failed:
                error = errno.errorcode.get(failed.errno or 0, str(failed)[:40])
            if b'"preflight"' in heard:
                return {"error": ANOTHER}
        time.sleep(CALL_AGAIN)
    return {"error": error}


def announce_meeting(args: Mapping[str, Any], channel: Channel, preloaded: object) -> Any:
    """Write into the store that a launcher keeps at MASTER_ADDR where the meeting is."""
    where = {"ips": args["own"], "port": args["port"]}
    _launchers_store(args, channel).set(args["key"], json.dumps(where))
    return where


def find_meeting(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, Any]:
    """Read there where it is; waits until somebody has written it."""
    return place_told(_launchers_store(args, channel).get(args["key"])[:STORE_MOST])


def place_told(text: bytes) -> dict[str, Any]:
    """What somebody has written there; ValueError for what is no place. The agent connects without
    looking anything up, so a name in place of an address would make it wait."""
    told = decode(_Place, parsed(text))
    if not 0 < told.port < 1 << 16:
        raise ValueError(f"{told.port} is not a port")
    return {"ips": [str(ip_address(ip)) for ip in told.ips[:OWN_MOST]], "port": told.port}


@dataclass(frozen=True, slots=True)
class _Place:
    ips: tuple[str, ...]
    port: int


CONNECTS, CONNECTED = "TCPStore", "key of the meeting"


def _launchers_store(args: Mapping[str, Any], channel: Channel) -> Any:
    """A client of torchrun's own store. Its prefix is ours: the job's keys stay untouched."""
    from datetime import timedelta

    import torch.distributed as dist

    channel.mark(CONNECTS)
    timeout = timedelta(seconds=args["seconds"])
    store = dist.TCPStore(args["addr"], args["port_of_store"], is_master=False, timeout=timeout)
    channel.mark(CONNECTED)
    return store
