"""What tells a firewall, a proxy and lost packets from a rank 0 that does not run."""

from __future__ import annotations

import pytest
from support.rendezvous_cases import (
    ALL,
    ALL_OPEN,
    DROPPED,
    MUTE,
    NO_STORE,
    REFUSED,
    hosting,
    out,
    rung,
)

from preflight.domains.net.reverse_path import OutgoingWay
from preflight.domains.rendezvous.arrivals import MeetingView
from preflight.domains.rendezvous.attempts import Reach, main_outcome
from preflight.domains.rendezvous.on_the_way import seen_on_the_way
from preflight.domains.rendezvous.tcp_probe import Probe
from preflight.roster import Stranger


def code(reach: Reach, host: Reach | None = None) -> str:
    came = host.roll.arrivals if host is not None else ()
    view = None if host is None else MeetingView("n1", host, came[0], came[1:])
    way, attempt = main_outcome(reach)
    return seen_on_the_way(way, attempt, reach, view)


def test_what_is_refused_alone_is_no_missing_listener() -> None:
    assert code(out(4, REFUSED), hosting(*ALL[:3])) == "refused-here"


def test_with_nobody_else_it_may_be_one() -> None:
    assert code(out(4, REFUSED), hosting(ALL[0])) == ""
    assert code(out(4, REFUSED)) == ""


@pytest.mark.parametrize("port", [0, 1, 2])
def test_a_host_with_one_closed_port_is_not_intercepted(port: int) -> None:
    probes = list(ALL_OPEN)
    probes[port] = Probe(probes[port].ip, probes[port].port, "ECONNREFUSED")
    assert code(out(2, MUTE, elsewhere=tuple(probes))) == ""
    assert code(out(2, MUTE, elsewhere=ALL_OPEN)) == "intercepted"


def test_who_was_seen_by_the_host_was_not_intercepted() -> None:
    seen = Stranger("10.0.0.4", "silent", 2)
    assert code(out(4, MUTE), hosting(*ALL[:2], strangers=(seen,))) == "data-lost"
    assert code(out(4, MUTE), hosting(*ALL[:2])) == "intercepted"


@pytest.mark.parametrize(("dropped", "found"), [(3, "answers-filtered"), (2, "dropped-here")])
def test_answers_that_a_strict_filter_drops(dropped: int, found: str) -> None:
    """An answer of each port that was tried; fewer may be somebody else's packets."""
    mute = tuple(Probe("10.0.0.1", port, "ETIMEDOUT") for port in (22, 9, 29501))
    seen = out(2, DROPPED, elsewhere=mute, discarded=dropped)
    assert code(seen, hosting(*ALL[:2])) == found
    some = (*mute[1:], Probe("10.0.0.1", 22, "ECONNREFUSED"))
    assert code(out(2, DROPPED, elsewhere=some, discarded=3), hosting(*ALL[:2])) == "dropped-here"


@pytest.mark.parametrize(
    ("way", "found"),
    [
        (OutgoingWay("eth1", "eth0", 1), "reverse-path"),
        (OutgoingWay("eth1", "eth0", 2), "dropped-here"),
        (OutgoingWay("eth1", "eth0", 0), "dropped-here"),
        (OutgoingWay("eth0", "eth0", 1), "dropped-here"),
        (OutgoingWay("tun0", "tun0", 0, beside="eth0"), "route-diverted"),
        (OutgoingWay("eth1", "eth0", 1, beside="eth0"), "reverse-path"),
    ],
)
def test_a_strict_filter_and_a_route_by_another_interface(way: OutgoingWay, found: str) -> None:
    mute = tuple(Probe("10.0.0.1", port, "ETIMEDOUT") for port in (22, 9, 29501))
    ways = {"10.0.0.1": way}
    assert code(out(2, DROPPED, elsewhere=mute, ways=ways), hosting(*ALL[:2])) == found
    # some port answers, so answers do come in
    some = (*mute, Probe("10.0.0.1", 29502, "ECONNREFUSED"))
    assert code(out(2, DROPPED, elsewhere=some, ways=ways), hosting(*ALL[:2])) == "dropped-here"


def test_acknowledged_data_are_not_lost() -> None:
    assert code(out(2, rung(answer="ours"))) == ""
    assert code(out(2, rung(answer="ours", unacked=1))) == "data-lost"


def test_a_store_that_answers_is_served() -> None:
    assert code(out(2, ladder=(), agent=True, elsewhere=(NO_STORE,))) == "agent-store-missing"
    assert code(out(2, ladder=(), agent=True, elsewhere=(Probe("10.0.0.1", 29500),))) == ""
    assert code(out(2, ladder=(), agent=True)) == ""
    assert code(out(2, ladder=(), elsewhere=(NO_STORE,))) == ""
