"""What a host's name or address must look like where torch reads one. Pure: nothing is resolved.

getaddrinfo() takes nearly any text and says "unknown name" much later; and it reads digits alone
as a number: `6841231` is 0.104.99.143, and `010.0.0.1` is 8.0.0.1 (inet_aton(3)).
"""

from __future__ import annotations

import re

NAME_MOST = 253
"""Characters of a host name (RFC 1035, 2.3.4)."""

LOOPBACK_NAMES = (
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
)

# the first that is in the text says what it is
SIGNS = (
    ("\r", "it contains a carriage return: the file that sets it has Windows line endings"),
    ("\n", "it contains a line end"),
    ("://", "it is a URL"),
    ('"', "it contains quotes"),
    ("'", "it contains quotes"),
    ("$", "it was never expanded"),
    ("`", "it was never expanded"),
    ("{", "it was never expanded"),
    (",", "it is a list"),
    ("@", "it contains a user name"),
    ("/", "it is a path or a network"),
)


NO_VALUE = ("none", "null", "nil", "undefined", "nan")
"""What a program writes, in capitals or not, that had no value to write."""


def endpoint_parts(text: str) -> tuple[str, str | None]:
    """Host and port, None where it names none, as torchrun reads --rdzv-endpoint
    (parse_rendezvous_endpoint in torch/distributed/elastic/rendezvous/utils.py)."""
    text = text.strip()[:300]
    if text[:1] == "[" and text[-1:] == "]":
        return text[1:-1], None
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, None
    return (host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host), port


def flaw(text: str) -> str:
    """Why `text` can't be the host in MASTER_ADDR; empty when it can be one."""
    for sign, why in SIGNS:
        if sign in text:
            return why
    if text.split() != [text]:
        return "it contains a space" if text.strip() else "it is blank"
    if "[" in text or "]" in text:
        address = ":" in text
        return "an IPv6 address has no brackets here" if address else "it is a node list"
    if text.count(":") == 1:
        return "it contains a port"
    if ":" in text:
        return _flaw_of_ipv6(text)
    if len(text) > NAME_MOST or not re.fullmatch(r"[\w.-]+", text, re.ASCII):
        return "not a valid host name"
    if text.lower() in NO_VALUE:
        return "what sets it had no value"
    return _flaw_of_number(text)


def _flaw_of_ipv6(text: str) -> str:
    from ipaddress import IPv6Address  # costs 3 ms, and few need it

    address, scope, _ = text.partition("%")
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return "it is no IPv6 address"
    if parsed.is_link_local and not scope:
        return "a link-local address needs its interface (fe80::1%eth0)"
    return ""


def _flaw_of_number(text: str) -> str:
    """What inet_aton() would make of a name that is all numbers."""
    if not re.fullmatch(r"(0[xX][0-9a-fA-F]+|[0-9.]+)", text):
        return ""
    parts = text.split(".")
    if len(parts) == 1:
        octal = re.fullmatch(r"0[0-7]+", text)
        base = 16 if text[:2] in ("0x", "0X") else 8 if octal else 10
        number = int(text, base) if len(text) < 20 else 1 << 32
        if number >= 1 << 32:
            return "not a valid host name"
        dotted = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
        return f"a name of digits alone is read as the address {dotted}"
    if len(parts) == 4 and all(p.isdecimal() and len(p) < 4 and int(p) < 256 for p in parts):
        zeros = [p for p in parts if len(p) > 1 and p.startswith("0")]
        if any(set(p) & {"8", "9"} for p in zeros):
            return "it is no IPv4 address: a number that begins with 0 is read as octal"
        if any(int(p, 8) != int(p) for p in zeros):  # 01 is 1 either way
            return "a number that begins with 0 is read as octal"
        return ""
    short = 1 < len(parts) < 4 and all(re.fullmatch(r"0|[1-9]\d{0,7}", p) for p in parts)
    if short and all(int(p) < 256 for p in parts[:-1]) and int(parts[-1]) < 256 ** (5 - len(parts)):
        return ""  # 127.1 is 127.0.0.1: the last number fills up what is left
    return "it is no IPv4 address"


def loopback(text: str) -> bool:
    """Whether a host is this machine wherever it is read."""
    name = text.strip().lower().rstrip(".")
    return (
        name in LOOPBACK_NAMES
        or re.fullmatch(r"127(\.\d{1,3}){1,3}", name) is not None
        or name == "::1"
        or every_address(name)
    )


def every_address(text: str) -> bool:
    """Whether it stands for all addresses of a machine: who connects there reaches itself."""
    return text.strip() in ("0.0.0.0", "::")
