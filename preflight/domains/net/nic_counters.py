"""What the kernel counts at the cards below an interface: frames that came in damaged, and why.
Counters are compared over our own traffic: what was counted last year is nobody's fault today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.frozen import dataclass
from preflight.host import Host

FOLDER = "/sys/class/net"
CARDS = 8
"""Members of a bond, or what lies below a VLAN or bridge, that are looked at."""

DAMAGED = {
    "rx_crc_errors": "received frames with a wrong CRC",
    "rx_frame_errors": "misaligned frames",
    "rx_length_errors": "frames of a wrong length",
    "tx_carrier_errors": "lost carriers while sending",
    "tx_window_errors": "late collisions",
    "collisions": "collisions",
    "rx_errors": "receive errors",
    "tx_errors": "send errors",
}
"""Counters of /sys/class/net/*/statistics that stand still on a good cable. Not dropped or missed
packets: those are a busy CPU's, or of protocols that nobody listens to."""
LEAST = 3
"""So many errors in a second or two of traffic are no accident."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card below the interface. `errors`: how much its counters grew; `duplex`: as the kernel has
    it; `linked`: it has a link; `bond`: the bond that it is a member of, or empty."""

    name: str
    errors: Mapping[str, int]
    duplex: str = ""
    linked: bool = True
    bond: str = ""

    @property
    def damaged(self) -> str:
        """What was counted, in words, the most telling first; empty where it is nothing."""
        told = [f"{n} {DAMAGED[c]}" for c in DAMAGED if (n := self.errors.get(c, 0)) >= LEAST]
        return ", ".join(told[:2])


def below(host: Host, interface: str) -> tuple[tuple[str, str], ...]:
    """The cards that carry an interface, itself where nothing is below it, each with its bond."""
    found: list[tuple[str, str]] = []
    queue = [(interface, "")]
    while queue and len(found) < CARDS:
        name, bond = queue.pop(0)
        entries = host.listdir(f"{FOLDER}/{name}")
        lower = [e.removeprefix("lower_") for e in entries if e.startswith("lower_")]
        if lower and not bond:
            queue += [(n, name if "bonding" in entries else "") for n in lower[:CARDS]]
        else:
            found.append((name, bond))
    return tuple(found)


def read_errors(host: Host, interface: str) -> dict[str, dict[str, int]]:
    """card -> counter -> its count now."""
    return {
        name: {
            counter: count
            for counter in DAMAGED
            if (count := host.read_int(f"{FOLDER}/{name}/statistics/{counter}")) is not None
        }
        for name, _ in below(host, interface)
    }


def cards_since(
    host: Host, interface: str, before: Mapping[str, Mapping[str, int]]
) -> Iterator[Card]:
    """The cards, with what was counted since."""
    now = read_errors(host, interface)
    for name, bond in below(host, interface):
        then = before.get(name, {})
        grown = {c: n - then[c] for c, n in now.get(name, {}).items() if n > then.get(c, n)}
        duplex = (host.read_or_none(f"{FOLDER}/{name}/duplex") or "").strip()[:10]
        state = (host.read_or_none(f"{FOLDER}/{name}/operstate") or "").strip()
        linked = state not in ("down", "lowerlayerdown", "notpresent")
        yield Card(name, grown, duplex, linked, bond)
