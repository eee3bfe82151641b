"""What the kernel counts at the cards below an interface: frames that came in damaged, and why.
Counters are compared over our own traffic: what was counted last year is nobody's fault today.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from preflight.domains.net.ethtool import driver_counts
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
    "rx_symbol_err_phy": "frames dropped for symbol errors",
    "rx_pcs_symbol_err_phy": "symbols that error correction could not repair",
    "rx_jabbers_phy": "long frames with a wrong CRC",
    "rx_fragments_phy": "short frames with a wrong CRC",
    "rx_oversize_pkts_phy": "frames longer than its MTU, so that the other end has a larger one",
    "rx_out_of_range_len_phy": "frames longer than allowed, so that the other end has a larger MTU",
}
"""Counters of /sys/class/net/*/statistics that stand still on a good cable. Not dropped or missed
packets: those are a busy CPU's, or of protocols that nobody listens to. Those with `phy` are
mlx5's, by the kernel's own description of them (mlx5/counters.rst, en_stats.c)."""
SAME = {
    "rx_crc_errors_phy": "rx_crc_errors",  # mlx5
    "rx_crc_errors.nic": "rx_crc_errors",  # ice
    "port.rx_crc_errors": "rx_crc_errors",  # i40e
    "rx_fcs_err_frames": "rx_crc_errors",  # bnxt
    "rx_align_err_frames": "rx_frame_errors",
}
"""How drivers call what is above: some of them leave out the kernel's own counter."""
NO_BUFFER = "packets dropped for lack of receive buffers"
HELD_UP = {
    "bw_in_allowance_exceeded": "packets beyond the instance's inbound bandwidth",  # ena
    "bw_out_allowance_exceeded": "packets beyond the instance's outbound bandwidth",
    "pps_allowance_exceeded": "packets beyond the instance's packets per second",
    "conntrack_allowance_exceeded": "packets beyond the instance's tracked connections",
    "tx_pause_storm_error_events": "pause storms that stopped its transmission",  # mlx5
    "tx_pause_storm_warning_events": "pause storms",
    "outbound_pci_buffer_overflow": "packets dropped since PCIe took them too slowly",
    "rx_discards_phy": "packets dropped at its port, whose buffer was full",
    "rx_out_of_buffer": NO_BUFFER,
    "rx_dropped.nic": NO_BUFFER,  # ice
    "port.rx_dropped": NO_BUFFER,  # i40e
    "port.rx_discards": NO_BUFFER,
}
"""What drivers count where packets wait or are dropped, though the cable is good. It says why a
transfer is slow or loses packets, and nothing by itself: a fast sender is enough for some."""
DOWNS = "carrier_down_count"
"""How often the link of an interface went down (since Linux 4.16)."""
FLAPS = 10
"""So often, where no other node's card did so a fifth as often, is no switch that was restarted."""
LEAST = 3
"""So many errors in a second or two of traffic are no accident."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card below the interface. `errors`: how much its counters grew; `duplex`: as the kernel has
    it; `linked`: it has a link; `bond`: the bond that it is a member of, or empty; `downs`: how
    often its link went down since the interface exists, as far as the kernel counts that."""

    name: str
    errors: Mapping[str, int]
    duplex: str = ""
    linked: bool = True
    bond: str = ""
    downs: int = 0

    @property
    def damaged(self) -> str:
        """What was counted, in words, the most telling first; empty where it is nothing."""
        return self._words(DAMAGED)

    @property
    def held_up(self) -> str:
        """The same of what it held up or dropped."""
        return self._words(HELD_UP)

    def _words(self, names: Mapping[str, str]) -> str:
        told = [f"{n} {names[c]}" for c in names if (n := self.errors.get(c, 0)) >= LEAST]
        return ", ".join(told[:2])


def flapping(cards: Collection[tuple[str, Card]]) -> Iterator[tuple[str, Card, int]]:
    """Of cards by node those whose link went down far more often than any of the other nodes', and
    the most that theirs did. Of two nodes nobody can tell what is usual."""
    most: dict[str, int] = {}
    for node, card in cards:
        most[node] = max(most.get(node, 0), card.downs)
    if len(most) < 3:
        return
    worst, second = sorted(most, key=lambda node: most[node], reverse=True)[:2]
    for node, card in cards:
        others = most[second if node == worst else worst]
        if card.downs >= max(FLAPS, 5 * others):
            yield node, card, others


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
    return {name: _counts(host, name) for name, _ in below(host, interface)}


def _counts(host: Host, name: str) -> dict[str, int]:
    found = {
        counter: count
        for counter in DAMAGED
        if (count := host.read_int(f"{FOLDER}/{name}/statistics/{counter}")) is not None
    }
    downs = host.read_int(f"{FOLDER}/{name}/{DOWNS}")
    if downs is not None:
        found[DOWNS] = downs
    if host.live:
        told = driver_counts(name, {*SAME, *HELD_UP, *DAMAGED})
        for counter, count in told.items():
            known = SAME.get(counter, counter)
            found[known] = max(count, found.get(known, 0))
    return found


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
        downs = now.get(name, {}).get(DOWNS, 0)
        yield Card(name, grown, duplex, linked, bond, downs)
