"""Names asked of the resolver, in threads: a resolver that hangs costs its own thread, not the
facts that were found beside it. What comes back is data, an error as well as silence.

A thread that hangs is left behind; it ends with its worker, which leaves by os._exit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
    ip_network,
)
from queue import Empty, SimpleQueue

from preflight.frozen import dataclass
from preflight.host import Host

KEPT = 16
"""Addresses kept of one name."""

NAME_MAX = 1025
"""NI_MAXHOST of netdb.h: what is longer is no name."""

NO_ANSWER = "no answer"
NO_RESOLVER = ("EAI_AGAIN", "EAI_FAIL", NO_ANSWER)

IN_WORDS = {
    "EAI_NONAME": "no such host name",
    "EAI_NODATA": "the name has no address",
    "EAI_AGAIN": "temporary failure in name resolution",
    "EAI_FAIL": "name resolution fails",
}

Question = Callable[[], tuple[str, ...]]


def in_words(error: str) -> str:
    """An error of a lookup for a reader: `no such host name (EAI_NONAME)`."""
    return f"{IN_WORDS[error]} ({error})" if error in IN_WORDS else error


@dataclass(frozen=True, slots=True)
class Lookup:
    """A question and its answer: addresses, or for a reverse lookup a name.

    error    "", EAI_NONAME, EAI_AGAIN …, or NO_ANSWER within `seconds`
    """

    name: str
    found: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0.0


Answer = SimpleQueue[Lookup | BaseException]
"""What comes of one question; not a Future, whose module brings logging along."""


@dataclass(slots=True)
class LookupBatch:
    """Questions that are asked beside each other, until the monotonic time `until`. The marks say
    what is asked, and then what is waited for: `wait: KEY 'name'`."""

    until: float
    mark: Callable[[str], None]
    asked: dict[str, tuple[str, Question]] = field(default_factory=dict)
    pending: dict[str, tuple[float, Answer]] = field(default_factory=dict)

    def put(self, key: str, name: str, question: Question) -> None:
        """Ask, and go on."""
        self.mark(f"{key} {name[:80]!r}")
        self.asked[key] = name, question
        self.pending[key] = time.monotonic(), _in_thread(name, question)

    def take(self, key: str) -> Lookup:
        """The answer; NO_ANSWER when there is none in time."""
        name, _ = self.asked[key]
        began, answer = self.pending.pop(key)
        self.mark(f"wait: {key} {name[:80]!r}")
        try:
            came = answer.get(timeout=max(0.0, self.until - time.monotonic()))
        except Empty:
            return Lookup(name[:NAME_MAX], (), NO_ANSWER, round(time.monotonic() - began, 4))
        if isinstance(came, BaseException):
            raise came
        return came

    def again(self, answers: Mapping[str, Lookup]) -> dict[str, Lookup]:
        """The answers after a second try of all that had one; the faster counts. The first try may
        have filled a cache, and what matters is the time that every lookup takes."""
        better = dict(answers)
        for key in [k for k, a in answers.items() if a.error != NO_ANSWER]:
            self.put(key, *self.asked[key])
        for key in tuple(self.pending):
            second = self.take(key)
            if second.error != NO_ANSWER and second.seconds < answers[key].seconds:
                better[key] = second
        return better


def look_up(name: str, question: Question, seconds: float) -> Lookup:
    """One question with a time to answer it."""
    inquiry = LookupBatch(time.monotonic() + seconds, lambda _: None)
    inquiry.put("", name, question)
    return inquiry.take("")


def _in_thread(name: str, question: Question) -> Answer:
    answer: Answer = SimpleQueue()

    def run() -> None:
        try:
            answer.put(_timed(name, question))
        except BaseException as error:  # noqa: BLE001  raised again where the answer is awaited
            answer.put(error)

    threading.Thread(target=run, daemon=True).start()
    return answer


def _timed(name: str, question: Question) -> Lookup:
    import socket

    began = time.monotonic()
    found: tuple[str, ...] = ()
    error = ""
    try:
        found = question()
    except socket.gaierror as failure:
        names = {getattr(socket, n): n for n in dir(socket) if n.startswith("EAI_")}
        error = names.get(failure.errno, f"gai error {failure.errno}")
    except (OSError, ValueError) as failure:
        error = str(failure)[:80] or type(failure).__name__
    return Lookup(name[:NAME_MAX], found[:KEPT], error, round(time.monotonic() - began, 4))


def addresses(host: Host, name: str) -> tuple[str, ...]:
    """A name's addresses in the resolver's order, which is the one in which Gloo tries them."""
    import socket

    if len(name) > NAME_MAX:
        raise socket.gaierror(socket.EAI_NONAME, "longer than any name")
    return tuple(dict.fromkeys(r.ip for r in host.resolve(name)))


def search_domain(host: Host, name: str) -> tuple[str, ...]:
    """The search domain that the resolver has added to a name; nothing where it has added none."""
    full = host.full_name(name).rstrip(".")
    longer = full.lower().startswith(f"{name.lower()}.")
    return (full[len(name) + 1 :],) if longer else ()


def c10d_order(ips: tuple[str, ...]) -> tuple[str, ...]:
    """The order in which c10d tries addresses: IPv6 before IPv4."""
    return tuple(sorted(ips, key=lambda ip: ":" not in ip))


def is_local(host: Host, ip: str) -> bool:
    """Whether a listener could stand at an address: it is this machine's."""
    try:
        return host.can_bind(ip) is None
    except OSError:  # no such family here
        return False


def source_of(host: Host, ip: str) -> str:
    """The local address from which this machine talks to another; empty when there is no route."""
    try:
        return host.source_of(ip)
    except OSError:
        return ""


def why_translated(away: Sequence[str], own: Sequence[str], inside: str) -> str:
    """Why addresses that no interface of this machine has may lead to it after all, as those of a
    service, a load balancer or a NAT do; empty where they can't. `own` are its interfaces'
    addresses with their prefix (`10.0.0.7/24`): an address of an own subnet is a neighbour's.
    `inside` is what container.kind() says."""
    networks = [i for i in map(_network, own) if i is not None]
    ips = [a for a in map(parse_ip, away) if a is not None]
    if any(ip.version == i.version and ip in i.network for ip in ips for i in networks):
        return ""
    if inside:
        return f"inside {'a container' if inside == 'container' else 'Kubernetes'}"
    public = any(ip.is_global for ip in ips) and not any(i.ip.is_global for i in networks)
    if public:
        return "a public address"
    return "an address outside of its networks" if networks and ips else ""


def _network(text: str) -> IPv4Interface | IPv6Interface | None:
    try:
        return ip_interface(text)
    except ValueError:
        return None


def as_c10d(ip: str) -> str:
    """The form in which c10d asks for an address's name: its sockets speak IPv6, so an IPv4 address
    is a mapped one, and /etc/hosts answers that only if it is written there in this form."""
    return ip if ":" in ip else f"::ffff:{ip}"


@lru_cache(64)  # of one node's addresses several questions are asked
def parse_ip(ip: str) -> IPv4Address | IPv6Address | None:
    """The address in a text, without its scope; None when it is none."""
    try:
        return ip_address(ip.partition("%")[0])
    except ValueError:
        return None


def in_network(network: str, ip: str) -> bool:
    """Whether an address is in a network that is written as one of its addresses: 10.0.0.7/24."""
    with contextlib.suppress(ValueError):
        return ip_address(ip) in ip_network(network, strict=False)
    return False


def is_loopback(ip: str) -> bool:
    """Whether an address leads back to the machine that uses it."""
    return ip.startswith("127.") or ip in ("::1", "0.0.0.0", "::")


def link_local(ip: str) -> bool:
    """Whether an address is valid on one link only."""
    return ip.startswith(("169.254.", "fe8", "fe9", "fea", "feb"))


def reads_as_number(name: str) -> bool:
    """Whether the resolver takes a name for another address than four decimal numbers say
    (inet_aton): `6841231` is 0.104.99.143, `05` is 0.0.0.5, `010.0.0.1` is 8.0.0.1. `10.0.0.01` is
    10.0.0.1 either way."""
    parts = name.split(".", maxsplit=4)
    if len(parts) > 4 or not all(_number(p) for p in parts):
        return False
    return len(parts) < 4 or not all(map(_is_plain, parts))


def _is_plain(part: str) -> bool:
    """Whether a number of an address is the same when a 0 before it makes it octal."""
    return part.isdecimal() and (part[0] != "0" or (part[-1] < "8" and not part[:-1].strip("0")))


def _number(part: str) -> bool:
    digits = part.lower().removeprefix("0x")
    base = "0123456789abcdef" if digits != part.lower() else "0123456789"
    return 0 < len(digits) < 16 and all(d in base for d in digits)
