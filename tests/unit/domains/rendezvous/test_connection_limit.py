"""A limit of connections at MASTER_PORT is told from a firewall that drops one node's."""

from __future__ import annotations

from support.cases import judged
from support.rendezvous_cases import (
    ALL,
    DROPPED,
    NO_STORE,
    SILENT_AGAIN,
    guest,
    here,
    hosting,
    out,
    row,
)

from preflight.checks import rdzv_reach


def codes(**seen: object) -> list[str]:
    case = row("", here(hosting(*ALL[:3]), **seen))  # type: ignore[arg-type]
    return sorted(found.code for found in judged(rdzv_reach, case))


def test_who_is_dropped_is_no_second_finding() -> None:
    inside = {"n2": guest(2, again=SILENT_AGAIN), "n3": guest(3, again=SILENT_AGAIN)}
    assert codes(**inside, n4=out(4, DROPPED)) == ["connections-limited"]


def test_where_further_connections_are_refused_a_firewall_drops_the_others() -> None:
    inside = {"n2": guest(2, again=(NO_STORE,) * 4), "n3": guest(3, again=(NO_STORE,) * 4)}
    assert codes(**inside, n4=out(4, DROPPED)) == ["dropped-here"]
    assert codes(n2=guest(2), n3=guest(3), n4=out(4, DROPPED)) == ["dropped-here"]
