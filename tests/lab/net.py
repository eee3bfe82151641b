"""The addresses and cables of a lab's machines; what it says is done by host.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

MANY = 16
"""Above this, machines know each other's MAC addresses beforehand: the kernel has one table for
all its namespaces, and 32 machines that all talk overflow it. Permanent entries don't count."""

LOCALHOST = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"


@dataclass(frozen=True, slots=True)
class Station:
    """A machine as the network sees it: its number (from 1), its host name, the IP versions it
    speaks, how many interfaces it has (ethN is on switch N), their MTU; `address` where eth0 is to
    have another IPv4 address than the one that is its turn."""

    number: int
    hostname: str
    versions: tuple[int, ...]
    nics: int
    mtu: int
    address: str


@dataclass(frozen=True, slots=True)
class Network:
    """The subnets of switch 0; those of switch 1 follow on them, and so on. `named` is under which
    addresses /etc/hosts has the machines, in that order."""

    subnet: IPv4Network
    subnet6: IPv6Network
    named: tuple[int, ...]
    stations: Sequence[Station]

    def address(self, station: Station, nic: int = 0) -> str:
        if station.address and not nic:
            return station.address
        return str(self.subnet[0] + nic * self.subnet.num_addresses + station.number)

    def address6(self, station: Station, nic: int = 0) -> str:
        return str(self.subnet6[0] + nic * self.subnet6.num_addresses + station.number)

    def primary(self, station: Station) -> str:
        """The address of eth0 by which others call it."""
        version = next((v for v in self.named if v in station.versions), station.versions[0])
        return self.address(station) if version == 4 else self.address6(station)

    def gateway(self, nic: int = 0) -> str:
        """The switch itself: the last address."""
        return str(self.subnet[-2] + nic * self.subnet.num_addresses)

    def hosts(self, reverse: bool) -> str:
        """/etc/hosts less localhost. With `reverse` also the lines that answer who ::ffff:a.b.c.d
        is, which torch asks of every connection, by a name of their own: a second address of the
        first name would be asked for when that is looked up."""
        lines = []
        for station in self.stations:
            for version in self.named:
                if version in station.versions:
                    ip = self.address(station) if version == 4 else self.address6(station)
                    lines.append(f"{ip} {station.hostname}\n")
            if reverse and 4 in station.versions:
                lines.append(f"::ffff:{self.address(station)} {station.hostname}.lab\n")
        return "".join(lines)

    def switch(self, pids: Sequence[int]) -> str:
        """For `ip -batch` on the switch: a bridge for each nic, and a cable to each machine."""
        lines = ["link set lo up"]
        for nic in range(max(station.nics for station in self.stations)):
            # snooping without a querier could lose the multicasts that IPv6 needs
            lines.append(f"link add br{nic} type bridge mcast_snooping 0")
            lines.append(f"addr add {self.gateway(nic)}/{self.subnet.prefixlen} dev br{nic}")
            lines.append(f"link set br{nic} up")
        for station, pid in zip(self.stations, pids, strict=True):
            for nic in range(station.nics):
                end, mtu = port(station.number, nic), station.mtu
                lines.append(
                    f"link add {end} mtu {mtu} type veth "
                    f"peer name eth{nic} address {_mac(station, nic)} mtu {mtu} netns {pid}"
                )
                lines.append(f"link set {end} master br{nic} up")
        return "\n".join(lines) + "\n"

    def machine(self, station: Station) -> str:
        """For `ip -batch` on a machine whose cables are plugged in."""
        lines = ["link set lo up"]
        for nic in range(station.nics):
            if 4 in station.versions:
                ip = self.address(station, nic)
                lines.append(f"addr add {ip}/{self.subnet.prefixlen} dev eth{nic}")
            if 6 in station.versions:
                ip = self.address6(station, nic)
                lines.append(f"addr add {ip}/{self.subnet6.prefixlen} dev eth{nic} nodad")
            lines.append(f"link set eth{nic} up")
            if len(self.stations) > MANY:
                lines += self._neighbours(station, nic)
        if 4 in station.versions and not station.address:
            lines.append(f"route add default via {self.gateway()}")
        return "\n".join(lines) + "\n"

    def _neighbours(self, station: Station, nic: int) -> list[str]:
        lines = []
        for other in self.stations:
            for version, ip in ((4, self.address(other, nic)), (6, self.address6(other, nic))):
                if other != station and nic < other.nics and version in other.versions:
                    mac = _mac(other, nic)
                    lines.append(f"neigh replace {ip} lladdr {mac} dev eth{nic} nud permanent")
        return lines


def port(number: int, nic: int = 0) -> str:
    """The name of a machine's cable on the switch."""
    return f"port{number}" + (f".{nic}" if nic else "")


def _mac(station: Station, nic: int) -> str:
    return f"02:77:00:{nic:02x}:{station.number // 256:02x}:{station.number % 256:02x}"
