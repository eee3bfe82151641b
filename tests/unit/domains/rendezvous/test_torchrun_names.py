"""torchrun's own rule for who opens the rendezvous store, and how it reads an endpoint."""

from __future__ import annotations

import socket

import pytest

from preflight.domains.net.dns import NO_ANSWER, Lookup
from preflight.domains.rendezvous.torchrun_names import endpoint_of, matches_this_machine

NONAME = "EAI_NONAME"


@pytest.mark.parametrize(
    ("endpoint", "mine", "its", "expected"),
    [
        ("localhost", (), (), True),
        ("127.0.0.1", (), (), True),
        ("::1", (), (), True),
        ("h1", ("10.0.0.1",), (), True),
        ("h1.lab", ("10.0.0.1",), ("10.0.0.1",), True),
        ("10.0.0.1", ("10.0.0.1",), ("10.0.0.1",), True),
        ("fd00:0::1", ("fd00::1",), ("fd00::1",), True),
        ("h2", ("10.0.0.1",), ("10.0.0.2",), False),
        ("10.0.0.1", ("127.0.1.1",), ("10.0.0.1",), False),
        ("10.9.0.1", ("10.0.0.1",), ("10.9.0.1",), False),
        ("unknown", ("10.0.0.1",), (), False),
    ],
)
def test_it_is_torchs_rule(
    endpoint: str, mine: tuple[str, ...], its: tuple[str, ...], expected: bool
) -> None:
    found = matches_this_machine(endpoint, "h1", Lookup("h1", mine), Lookup(endpoint, its))
    assert found[0] is expected
    assert bool(found[1]) is expected


def test_torch_stops_where_the_own_name_is_unknown() -> None:
    none = Lookup("", (), NONAME)
    assert matches_this_machine("h2", "h1", none, Lookup("h2", ("10.0.0.2",))) == (
        False,
        "",
        NONAME,
    )
    assert matches_this_machine("h1", "h1", none, none)[0] is True
    silent = Lookup("h1", (), NO_ANSWER)
    assert matches_this_machine("h2", "h1", silent, silent)[0] is None


def test_it_says_what_torch_says_on_this_machine() -> None:
    utils = pytest.importorskip("torch.distributed.elastic.rendezvous.utils")
    own = socket.gethostname()
    for endpoint in (own, "localhost", "127.0.0.1", "no-such-host.invalid", "192.0.2.77"):
        mine, its = (Lookup(n, tuple(found(n))) for n in (own, endpoint))
        ours = matches_this_machine(endpoint, own, mine, its)[0]
        assert ours is utils._matches_machine_hostname(endpoint), endpoint


def found(name: str) -> list[str]:
    try:
        return [str(a[4][0]) for a in socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)]
    except socket.gaierror:
        return []


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("h1:29500", "h1", "29500"),
        (" h1 ", "h1", "29400"),
        ("", "localhost", "29400"),
        ("[fd00::1]", "fd00::1", "29400"),
        ("[fd00::1]:1", "fd00::1", "1"),
        ("fd00::1:1", "fd00::1", "1"),
    ],
)
def test_an_endpoint_is_parsed_as_torch_does(text: str, host: str, port: str) -> None:
    assert endpoint_of(text) == (host, port)
    utils = pytest.importorskip("torch.distributed.elastic.rendezvous.utils")
    assert utils.parse_rendezvous_endpoint(text, 29400) == (host, int(port))
