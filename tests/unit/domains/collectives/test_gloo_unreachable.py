"""gloo_unreachable: the node behind the address is named, not the one that complains."""

from __future__ import annotations

import pytest
from support.cases import world
from support.stalled_ranks import INIT, QUIET, Tried, about, both, fine, gave_up, nodes, silent

from preflight.domains.collectives.gloo_unreachable import unreachable_address
from preflight.model import Blame, Confidence, Observation, Seen

REFUSED = (
    "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection refused, "
    "remote=[{}]:37302$0"
)


def refused(ip: str) -> Seen[Tried]:
    return gave_up(INIT, REFUSED.format(ip))


@pytest.mark.parametrize("ip", ["10.0.0.3", "::ffff:10.0.0.3"])
def test_the_edge_is_named_and_not_who_complains_or_is_silent(ip: str) -> None:
    on = both(fine("TCPStore init_process_group sum"))
    finding = nodes(on, (refused(ip), silent(INIT)), both(silent(INIT)), on, on)
    assert (finding.code, about(finding)) == ("gloo-unreachable", ["n2->n3"])
    assert (finding.confidence, finding.blame) == (Confidence.LIKELY, Blame.NETWORK)
    assert finding.subjects[0].ranks == (2, 3, 4, 5)
    assert finding.saw.startswith("rank 2 on n2 in 'init_process_group': Gloo connectFullMesh")
    assert finding.saw.endswith("that is n2->n3")


def test_a_node_that_several_can_not_reach() -> None:
    there = (refused("10.0.0.1"), silent(INIT))
    finding = nodes(both(silent(INIT)), there, there)
    assert about(finding) == ["n1"], "it holds the meeting: its address is MASTER_ADDR"
    own = nodes(both(fine()), (refused("10.0.0.2"), silent(INIT)), both(fine()))
    assert (about(own), own.blame) == (["n2"], Blame.UNKNOWN)
    assert "the address of n2" in own.saw


def test_an_address_of_nobody() -> None:
    finding = nodes(both(silent(INIT)), both(refused("172.17.0.1")))
    assert about(finding) == ["n2 · rank 2", "n2 · rank 3"]
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.alternatives
    assert "172.17.0.1" in finding.saw


LOOP = (refused("127.0.1.1"), silent(INIT))


@pytest.mark.parametrize(
    ("seen", "named", "sure"),
    [
        ((LOOP, QUIET), ["n2"], Confidence.LIKELY),
        ((LOOP, QUIET, LOOP), ["n2"], Confidence.LIKELY),
        ((LOOP, QUIET, QUIET), ["n2", "n3"], Confidence.POSSIBLE),
        ((LOOP, LOOP), ["n1", "n2"], Confidence.LIKELY),
        ((LOOP, LOOP, LOOP), ["n1", "n2", "n3"], Confidence.POSSIBLE),
    ],
    ids=["two", "of three", "either", "both", "all"],
)
def test_who_tells_the_loopback_does_not_complain(
    seen: tuple[tuple[Observation, Observation], ...], named: list[str], sure: Confidence
) -> None:
    finding = nodes(*seen)
    assert (finding.code, about(finding), finding.confidence) == ("gloo-unreachable", named, sure)
    assert finding.blame is Blame.JOB
    assert bool(finding.alternatives) is (sure is Confidence.POSSIBLE)


def test_a_rank_that_never_began_explains_a_refusal() -> None:
    finding = nodes((refused("10.0.0.2"), silent(INIT)), (silent(""), silent(INIT)))
    assert (finding.code, about(finding)) == ("rank-silent", ["n2 · rank 2"])


def test_complaints_without_an_address_say_nothing_of_a_node() -> None:
    seen = world("world.gloo", {"n1/0": silent(INIT), "n2/1": silent(INIT)})
    assert unreachable_address(seen, {}) is None
    assert unreachable_address(seen, {"n1/0": "Connection closed by peer [10.0.0.2]:4567"}) is None
