"""identity.addresses: what can't be a host is named before anything is resolved."""

from __future__ import annotations

import pytest

from preflight.identity.addresses import flaw, loopback


@pytest.mark.parametrize(
    "text",
    [
        "node-0",
        "gpu-b07.cluster.local",
        "job_1-master-0",
        "train-node-0-0.train",
        "10.0.0.1",
        "127.0.0.1",
        "::1",
        "2001:db8::7",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "1a2b3c4d5e6f",  # a container's id
        "n1.",
        "127.1",
        "10.0.1",
        "10.77.65535",
    ],
)
def test_hosts(text: str) -> None:
    assert flaw(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node-0\r", "carriage return"),
        ("node-0 ", "space"),
        (" 10.0.5.4", "space"),
        ("node-0\t", "space"),
        ("", "blank"),
        ("   ", "blank"),
        ("node-0\n", "line end"),
        ("http://node-0", "URL"),
        ('"node-0"', "quotes"),
        ("'node-0'", "quotes"),
        ("node-0:29500", "port"),
        ("127.0.0.1:29500", "port"),
        ("[::1]", "brackets"),
        ("[::1]:29500", "brackets"),
        ("gpu-b[07-08]", "node list"),
        ("$(hostname)", "never expanded"),
        ("${MASTER}", "never expanded"),
        ("n1,n2", "list"),
        ("setup@10.0.0.1", "user"),
        ("10.0.0.0/24", "network"),
        ("2001:db8::zz", "no IPv6"),
        ("fe80::1", "interface"),
        ("6841231", "0.104.99.143"),
        ("0x7f000001", "127.0.0.1"),
        ("05", "0.0.0.5"),
        ("99999999999", "not a valid host name"),
        ("010.0.0.1", "octal"),
        ("10.0.0.017", "octal"),
        ("10.0.0.08", "no IPv4"),
        ("10.0.0.256", "no IPv4"),
        ("10.0.65536", "no IPv4"),
        ("10.256.1", "no IPv4"),
        ("10.0.", "no IPv4"),
        ("knöten-0", "not a valid host name"),
        ("a" * 300, "not a valid host name"),
        ("9" * 300, "not a valid host name"),
        ("1." * 120 + "1", "no IPv4"),
    ],
)
def test_no_hosts(text: str, why: str) -> None:
    assert why in flaw(text)


@pytest.mark.parametrize(
    "text", ["localhost", "LOCALHOST", "127.0.0.1", "127.1", "127.0.1.1", "::1", "0.0.0.0"]
)
def test_loopback(text: str) -> None:
    assert loopback(text)


@pytest.mark.parametrize(
    "text", ["node-0", "10.127.0.1", "1270.0.0.1", "localhost-7", "", "fe80::1"]
)
def test_no_loopback(text: str) -> None:
    assert not loopback(text)
