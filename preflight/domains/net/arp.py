"""Which MAC address this machine sends to for an IPv4 address of its subnet: /proc/net/arp.

The kernel asks for it by ARP, or has it from somebody who wrote it down (PERMANENT). IPv6 has a
table of its own, which no file shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from preflight.frozen import dataclass
from preflight.host import Host

TABLE = "/proc/net/arp"
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
COMPLETE, PERMANENT = 2, 4  # ATF_COM, ATF_PERM of linux/if_arp.h
KEPT = 64
"""Entries: as many as a node dials in a large job, and more."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry: frames for `ip` leave by `interface` and go to `mac`."""

    ip: str
    mac: str
    interface: str
    permanent: bool = False


def neighbours(host: Host, ips: Collection[str]) -> Iterator[Neighbour]:
    """The entries of these addresses that have a MAC address, at most KEPT."""
    left = KEPT
    for line in (host.read_or_none(TABLE) or "").splitlines()[1:]:
        words = line.split()
        if len(words) != 6 or words[0] not in ips or not MAC.fullmatch(words[3]) or not left:
            continue
        flags = int(words[2], 16) if re.fullmatch(r"0x[0-9a-f]{1,4}", words[2]) else 0
        if flags & (COMPLETE | PERMANENT) and words[3].strip("0:"):
            left -= 1
            yield Neighbour(words[0], words[3], words[5], bool(flags & PERMANENT))


def mac_address(host: Host, interface: str) -> str:
    """An interface's own, as the kernel writes it; empty where there is none. That of InfiniBand is
    another one."""
    text = (host.read_or_none(f"/sys/class/net/{interface}/address") or "").strip()
    return text if MAC.fullmatch(text) and text.strip("0:") else ""
