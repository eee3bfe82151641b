"""net.speed: the slow node is told from the slow link, and what merely scatters from both."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import net_speed
from preflight.checks.net_speed import Speed
from preflight.domains.net import pairing, rounds
from preflight.domains.net.nic_counters import Card
from preflight.domains.net.rounds import ABSENT, Trial
from preflight.domains.net.tcp_throughput import Burst, Transfer
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Kind,
    Missing,
    Node,
    NotApplicable,
    Status,
    Topology,
)

conforms(net_speed)

GBIT = 1.25e8


def nodes(count: int) -> Topology:
    return Topology(size=count, nodes=tuple(Node(f"n{i}", (i,)) for i in range(count)))


def burst(gbits: float, starved: float = 0.0, lost: float = 0.0) -> Burst:
    return Burst(gbits * GBIT, starved, 50_000, round(50_000 * lost))


FINE, FINE_TRIP = burst(9.4), 0.00008


def fabric(
    count: int,
    inward: Callable[[int, int], Burst | None] = lambda a, b: FINE,
    trip: Callable[[int, int], float] = lambda a, b: FINE_TRIP,
) -> dict[str, Any]:
    """What all nodes of a world saw: `inward(a, b)` of the edge from a to b."""
    trials: dict[int, list[Trial]] = {i: [] for i in range(count)}
    for number, made in enumerate(pairing.rounds(count, rounds.ROUNDS)):
        for a, b in made:
            time_ = trip(a, b)
            into_a, into_b = inward(b, a), inward(a, b)
            error = "" if into_a else "ETIMEDOUT"
            trials[a].append(Trial(b, number, False, Transfer(into_a, time_, time_, error)))
            error = "" if into_b else "ETIMEDOUT"
            trials[b].append(Trial(a, number, False, Transfer(into_b, None, None, error)))
    return {
        f"n{i}": Speed(pairing.NodeNumber(i, count), "eth0", tuple(of)) for i, of in trials.items()
    }


def slow_out(*bad: int, gbits: float = 0.94) -> Callable[[int, int], Burst]:
    return lambda a, b: burst(gbits) if a in bad else FINE


def slow_in(*bad: int) -> Callable[[int, int], Burst]:
    return lambda a, b: burst(0.94) if b in bad else FINE


def slow_node(*bad: int) -> Callable[[int, int], Burst]:
    return lambda a, b: burst(0.94) if {a, b} & set(bad) else FINE


def loses(bad: int, share: float) -> Callable[[int, int], Burst]:
    return lambda a, b: burst(5, lost=share) if b == bad else burst(5)


FULL = {"rx_out_of_buffer": 812}
CRC = {"rx_crc_errors": 57, "rx_errors": 57}


def cards(card: Card, saw: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """n1 has this card."""
    saw = saw or fabric(3)
    return {**saw, "n1": dataclasses.replace(saw["n1"], cards=(card,))}


def flapped(count: int, nodes: int = 3) -> dict[str, Any]:
    """n1's card lost its link so often, those of the others once."""
    saw = fabric(nodes)
    return {
        name: dataclasses.replace(
            one, cards=(Card("eth0", {}, "full", downs=count if name == "n1" else 1),)
        )
        for name, one in saw.items()
    }


def slow_edges(*bad: tuple[int, int], gbits: float = 0.94) -> Callable[[int, int], Burst]:
    return lambda a, b: burst(gbits) if (a, b) in bad else FINE


def halves(a: int, b: int) -> bool:
    return (a < 2) != (b < 2)


def case(
    name: str,
    count: int,
    saw: Any,
    code: str | None = None,
    status: Status | None = None,
    subject: str | None = None,
    gbits: float | None = None,
) -> Case:
    expect = {} if gbits is None else {"tcp_gbits": gbits}
    return Case(name, saw, code, status, topology=nodes(count), subject=subject, expect=expect)


def every(count: int, made: Burst) -> dict[str, Any]:
    return fabric(count, lambda a, b: made)


NODE, LINK, LOW, BELOW = "node-slow", "link-slow", "speed-low", "below-expected"
FAIL = Status.FAIL
LATENCY, LOST, BLIND = "latency-high", "packets-lost", "not-measured"
WARN = Status.WARN


def slow_and_far(trip: float) -> dict[str, Any]:
    return fabric(3, lambda a, b: burst(0.02), lambda a, b: trip)


def stops(
    *edges: tuple[int, int],
    after: tuple[int, int] = (2_000_000, 2_100_000),
    still: float = 1.1,
    resent: int = 3,
    once: bool = False,
) -> dict[str, Any]:
    """Four nodes; both connections on these edges stop `after` these numbers of bytes."""
    saw = fabric(4)
    for a, b in edges:
        for node, peer, into in ((f"n{b}", a, True), (f"n{a}", b, False)):
            more = []
            for trial in saw[node].trials:
                if trial.peer != peer:
                    more.append(trial)
                    continue
                for again in (False, True):
                    moved = trial.moved
                    if again and once:
                        moved = Transfer(FINE, FINE_TRIP, FINE_TRIP)
                    elif into:
                        came = after[again]
                        moved = dataclasses.replace(
                            moved, inward=burst(0.014), error="ETIMEDOUT", came=came, still=still
                        )
                    else:
                        moved = dataclasses.replace(moved, sent=1500, resent=resent)
                    more.append(dataclasses.replace(trial, again=again, moved=moved))
            saw[node] = dataclasses.replace(saw[node], trials=tuple(more))
    return saw


CASES = (
    *(case(f"{n} nodes, alike", n, fabric(n)) for n in (2, 3, 4, 5, 8, 9, 33)),
    case("one node", 1, {"n0": Missing(Cause.NOT_APPLICABLE)}),
    case("a part alone", 4, {"n0": fabric(4)["n0"]}),
    case("a killed one", 4, fabric(4) | {"n2": Missing(Cause.TIMED_OUT)}),
    case("half as fast as the others", 4, fabric(4, slow_out(2, gbits=4.7))),
    case("9 among 25: one stream's CPU", 4, fabric(4, lambda a, b: burst(9 if a == 1 else 25))),
    case("two nodes, unequal", 2, fabric(2, slow_out(1))),
    case("three that all are slow", 3, every(3, burst(0.2))),
    case(
        "slow for want of a CPU",
        4,
        fabric(4, lambda a, b: burst(1.2, starved=0.8) if b == 1 else FINE),
    ),
    case(
        "one slow edge for want of a CPU",
        4,
        fabric(4, lambda a, b: burst(2, 0.6) if a > 2 else FINE),
    ),
    case("0.9 ms", 4, fabric(4, trip=lambda a, b: 0.0009 if 2 in (a, b) else FINE_TRIP)),
    case("all are far", 4, fabric(4, trip=lambda a, b: 0.03)),
    case("all lose a little", 4, every(4, burst(5, lost=0.01))),
    case("all lose more", 4, every(4, burst(5, lost=0.03)), "packets-lost", WARN, subject="n0->n1"),
    case("two that lose", 2, every(2, burst(5, lost=0.03)), "packets-lost", WARN, subject="n0->n1"),
    case("two with a queue", 2, every(2, burst(5, lost=0.012))),
    case("one loses 1 %", 4, fabric(4, loses(2, 0.01)), "packets-lost", WARN, subject="n2"),
    case("one loses 0.3 %", 4, fabric(4, loses(2, 0.003))),
    case(
        "a bad cable", 3, cards(Card("eth0", CRC, "full")), "nic-errors", WARN, subject="n1 · eth0"
    ),
    case(
        "a bad cable is why packets are lost",
        4,
        cards(Card("eth0", CRC), fabric(4, loses(1, 0.04))),
        "nic-errors",
        WARN,
        subject="n1 · eth0",
    ),
    case("one damaged frame", 3, cards(Card("eth0", {"rx_crc_errors": 1, "rx_errors": 1}, "full"))),
    case("a fast sender fills the buffers of a card", 3, cards(Card("eth0", FULL))),
    case(
        "its link goes down meanwhile",
        3,
        cards(Card("eth0", {"carrier_down_count": 1}, "full", downs=3)),
        "link-flapped",
        WARN,
        subject="n1 · eth0",
    ),
    case(
        "its link went down 40 times since boot",
        3,
        flapped(40),
        "link-flapped",
        WARN,
        subject="n1 · eth0",
    ),
    case("of two nodes nobody can tell", 2, flapped(40, 2)),
    case("a link that was unplugged", 3, flapped(4)),
    case("half duplex", 3, cards(Card("eth0", {}, "half")), "duplex-half", WARN),
    case("a virtual card has no duplex", 3, cards(Card("eth0", {}, "unknown"))),
    case(
        "a member of a bond",
        3,
        cards(Card("ens2", {}, "", linked=False, bond="bond0")),
        "bond-degraded",
        WARN,
        subject="n1 · ens2",
    ),
    case("a port that is down", 3, cards(Card("ens2", {}, "", linked=False))),
    case("a node that sends slowly", 4, fabric(4, slow_out(2)), NODE, WARN, subject="n2"),
    case("that receives slowly", 4, fabric(4, slow_in(3)), NODE, WARN, subject="n3"),
    case("slow both ways, of 3", 3, fabric(3, slow_node(0)), NODE, WARN, subject="n0"),
    case("of 5", 5, fabric(5, slow_node(4)), NODE, subject="n4"),
    case("of 64", 64, fabric(64, slow_node(17)), NODE, subject="n17"),
    case(
        "0.0: nothing at all came",
        4,
        fabric(4, slow_out(2, gbits=0.000001)),
        NODE,
        subject="n2",
    ),
    case("a link", 4, fabric(4, slow_edges((0, 2), (2, 0))), LINK, WARN, subject="n0->n2"),
    case("one way of it", 5, fabric(5, slow_edges((3, 1))), LINK, subject="n3->n1"),
    case("a link of 3", 3, fabric(3, slow_edges((0, 2), (2, 0))), LINK, WARN),
    case("two nodes, 50 Mbit/s", 2, every(2, burst(0.05)), LOW, WARN, subject="n0->n1"),
    case(
        "two nodes, 50 Mbit/s one way",
        2,
        fabric(2, slow_out(1, gbits=0.05)),
        LOW,
        subject="n1->n0",
    ),
    case("all 50 Mbit/s", 6, every(6, burst(0.05)), LOW, WARN),
    case("two racks", 4, fabric(4, lambda a, b: burst(0.9) if halves(a, b) else FINE), LOW, WARN),
    case(
        "far",
        4,
        fabric(4, trip=lambda a, b: 0.01 if 2 in (a, b) else FINE_TRIP),
        LATENCY,
        subject="n2",
    ),
    case(
        "a far link",
        4,
        fabric(4, trip=lambda a, b: 0.01 if (a, b) == (0, 2) else FINE_TRIP),
        LATENCY,
        WARN,
        subject="n0->n2",
    ),
    case(
        "two rooms",
        4,
        fabric(4, trip=lambda a, b: 0.01 if halves(a, b) else FINE_TRIP),
        LATENCY,
    ),
    case(
        "a lossy node",
        4,
        fabric(4, lambda a, b: burst(4.8, lost=0.03) if b == 1 else FINE),
        LOST,
        WARN,
        subject="n1",
    ),
    case(
        "a lossy link",
        4,
        fabric(4, lambda a, b: burst(4.8, lost=0.03) if (a, b) == (3, 1) else FINE),
        LOST,
        WARN,
        subject="n3->n1",
    ),
    case(
        "nothing came through",
        2,
        fabric(2, lambda a, b: None),
        BLIND,
        Status.UNDECIDED,
        subject="n0",
    ),
    case("as fast as expected", 4, fabric(4), gbits=9.4),
    case("for want of a CPU only", 4, every(4, burst(3, starved=0.7)), gbits=9),
    case("all below", 4, every(4, burst(5)), BELOW, FAIL, subject="n0->n1", gbits=8),
    case("two nodes, below", 2, every(2, burst(5)), BELOW, FAIL, subject="n0->n1", gbits=8),
    case("a node below", 4, fabric(4, slow_out(2, gbits=5)), BELOW, FAIL, subject="n2", gbits=8),
    case("a link below", 4, fabric(4, slow_edges((0, 2), gbits=5)), BELOW, FAIL, "n0->n2", 8),
    case(
        "with one node",
        4,
        fabric(4, lambda a, b: None if 1 in (a, b) else FINE),
        BLIND,
        Status.UNDECIDED,
        subject="n1",
    ),
    case("far, and slow for TCP's start", 3, slow_and_far(0.03)),
    case("slow, and not that far", 3, slow_and_far(0.02), "speed-low", WARN, subject="n0->n1"),
    case(
        "connections that stop after 2 MB",
        4,
        stops((3, 1)),
        "transfer-stops",
        Status.FAIL,
        "n3->n1",
    ),
    case("one of two connections stops", 4, stops((3, 1), once=True)),
    case("they stop anywhere", 4, stops((3, 1), after=(100_000, 9_000_000)), "link-slow"),
    case("they pause", 4, stops((3, 1), still=0.3), "link-slow"),
    case("the sender had no CPU", 4, stops((3, 1), resent=0), "link-slow"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(net_speed, case)


def findings(count: int, saw: Any) -> list[Any]:
    return judged(net_speed, case("", count, saw))


def test_a_slow_node_is_all_that_is_named() -> None:
    for count in (3, 4, 5, 8, 9, 64):
        for bad in (slow_out(1), slow_in(1), slow_node(1)):
            found = findings(count, fabric(count, bad))
            assert [(f.code, str(f.subjects[0])) for f in found] == [(NODE, "n1")], count


def test_all_reduces_that_are_slow_for_it_are_folded_under_what_it_names() -> None:
    slow = {"world.gloo:slow", "world.nccl:slow"}
    for bad in (slow_node(1), slow_edges((0, 1), (1, 0))):
        (finding,) = findings(5, fabric(5, bad))
        assert slow < set(finding.explains)
    for found in findings(2, every(2, burst(0.005))):
        assert (found.code, found.confidence) == ("speed-low", Confidence.POSSIBLE)
        assert slow == set(found.explains)


def test_what_is_below_the_floor_is_named_once() -> None:
    for count in (3, 4, 5, 8, 64):
        for bad in (slow_out(1), slow_in(1), slow_node(1)):
            found = judged(net_speed, case("", count, fabric(count, bad), gbits=8))
            assert [(f.code, str(f.subjects[0])) for f in found] == [(BELOW, "n1")], count
            assert (found[0].blame, found[0].status) == (Blame.NODE, FAIL)
            assert "at least 8.0 Gbit/s (" in found[0].expected


def test_where_all_are_below_the_floor_no_node_is_blamed() -> None:
    for count in (2, 3, 8):
        (found,) = judged(net_speed, case("", count, every(count, burst(0.9)), gbits=8))
        assert (found.code, found.blame, found.status) == (BELOW, Blame.NETWORK, FAIL)
        assert found.alternatives


def test_what_is_far_is_held_against_no_floor() -> None:
    far = fabric(4, slow_out(2), trip=lambda a, b: 0.03)
    assert judged(net_speed, case("", 4, far, gbits=8)) == []


def test_a_slow_link_is_all_that_is_named() -> None:
    for count in (3, 4, 5, 8, 9, 64):
        a, b = pairing.rounds(count, rounds.ROUNDS)[1][0]
        found = findings(count, fabric(count, slow_edges((a, b), (b, a))))
        assert [f.code for f in found] == [LINK], count
        assert {(s.kind, s.node, s.to) for s in found[0].subjects} == {
            (Kind.LINK, f"n{a}", f"n{b}"),
            (Kind.LINK, f"n{b}", f"n{a}"),
        }


def test_a_lossy_slow_node_is_one_finding() -> None:
    def into(a: int, b: int) -> Burst:
        return burst(0.9 - 0.2 * a, lost=0.05) if b == 1 else FINE

    (finding,) = findings(4, fabric(4, into))
    assert finding.code == "packets-lost"
    assert "5.0% or more is sent again, with each of 3 partners · 300-900 Mbit/s" in finding.saw


def test_a_shaper_that_drops_what_is_too_much_makes_a_slow_node() -> None:
    (finding,) = findings(4, fabric(4, lambda a, b: burst(0.05, lost=0.3) if b == 1 else FINE))
    assert finding.code == "node-slow"
    assert "30.0% sent again" in finding.saw


def test_what_the_sender_counts_in_the_end_counts() -> None:
    saw = fabric(4)
    lossy = Trial(1, 0, True, Transfer(sent=60_000, resent=9_000))
    for name in ("n0", "n2", "n3"):
        saw[name] = dataclasses.replace(saw[name], trials=(*saw[name].trials, lossy))
    assert [(f.code, str(f.subjects[0])) for f in findings(4, saw)] == [("packets-lost", "n1")]


def test_two_can_not_tell_which_it_is() -> None:
    found = findings(2, every(2, burst(0.05)))
    assert [f.confidence for f in found] == [Confidence.POSSIBLE]
    assert found[0].alternatives == ("n0 itself", "n1 itself")


def test_more_partners_more_certain() -> None:
    assert findings(3, fabric(3, slow_node(1)))[0].confidence is Confidence.LIKELY
    assert findings(4, fabric(4, slow_node(1)))[0].confidence is Confidence.CERTAIN


def test_two_racks_are_named_as_such() -> None:
    found = findings(4, fabric(4, lambda a, b: burst(0.9) if halves(a, b) else FINE))
    assert [f.confidence for f in found] == [Confidence.POSSIBLE]
    assert "all between n0, n1 and n2, n3" in found[0].saw


def test_what_is_said_of_one_direction() -> None:
    assert findings(4, fabric(4, slow_out(2)))[0].saw == (
        "n2 sends at most 940 Mbit/s with 3 partners, the others 9.4 Gbit/s · receives 9.4 Gbit/s"
    )


def test_the_better_of_two_measurements_counts() -> None:
    saw = fabric(4, slow_edges((0, 2)))
    again = Trial(0, 1, True, Transfer(FINE, FINE_TRIP, FINE_TRIP))
    saw["n2"] = dataclasses.replace(saw["n2"], trials=(*saw["n2"].trials, again))
    assert findings(4, saw) == []


def test_numbers_of_a_stranger_are_left_out() -> None:
    bad = [
        Trial(peer, 0, False, Transfer(Burst(rate, starved, 5, 9), trip, trip))
        for peer in (-1, 3, 4, 10**9)
        for rate in (float("nan"), float("inf"), -1.0, 0.0)
        for starved in (float("nan"), -5.0, 7.0)
        for trip in (float("nan"), -1.0)
    ]
    saw = fabric(4)
    saw["n3"] = dataclasses.replace(saw["n3"], trials=(*saw["n3"].trials, *bad))
    assert findings(4, saw) == []


def test_small_buffers_are_named_where_a_node_is_slow() -> None:
    saw = fabric(4, slow_out(2))
    saw["n2"] = dataclasses.replace(saw["n2"], buffers=(4096, 4 << 20))
    saw["n3"] = dataclasses.replace(saw["n3"], buffers=(4096, 4096))
    (finding,) = judged(net_speed, Case("", saw, topology=nodes(4)))
    assert "tcp_rmem of n2 ends at 4096 bytes" in finding.saw
    assert "n3" not in finding.saw
    assert "wmem" not in finding.saw
    fast = {
        name: dataclasses.replace(seen, buffers=(4096, 4096)) for name, seen in fabric(4).items()
    }
    assert findings(4, fast) == []


def test_the_commands_name_the_interface() -> None:
    case = Case("", fabric(4, slow_out(2)), topology=nodes(4))
    finding = next(f for f in judged(net_speed, case) if f.code == "node-slow")
    command = net_speed.FINDINGS["node-slow"].filled(finding.fields).commands[0]
    assert command.run.startswith("ethtool eth0; ethtool -S eth0 | ")


def test_what_is_measured() -> None:
    def text(count: int, saw: Any) -> str:
        return net_speed.measured(world("net.speed", saw, nodes(count))).text

    saw = fabric(4, lambda a, b: burst(9.4 + a * 0.6))
    assert text(4, saw) == "4 nodes in 3 rounds: 6 of 6 pairs · 9.4-11.2 Gbit/s · latency 0.08 ms"
    part = fabric(4, lambda a, b: None if 1 in (a, b) else FINE)
    assert text(4, part).startswith("4 nodes in 3 rounds: 3 of 6 pairs · 9.4 Gbit/s")
    assert text(2, fabric(2, slow_out(1))).startswith("2 nodes in 1 round: 1 of 1 pair · 940 Mbit")
    far = "3 nodes in 3 rounds: 3 of 3 pairs · too far apart for a rate · latency 30 ms"
    assert text(3, slow_and_far(0.03)) == far


# --- observed between threads that stand for nodes ---


class Meeting:
    """What all have said; each node has its Line to it."""

    def __init__(self) -> None:
        self.said: dict[tuple[int, str], dict[int, Any]] = {}
        self.changed = threading.Condition()


@dataclasses.dataclass
class Line:
    meeting: Meeting
    number: int

    def say(self, topic: str, value: Any = None, to: Sequence[int] | None = None) -> None:
        assert to is not None, "nobody may tell everybody"
        with self.meeting.changed:
            for one in to:
                self.meeting.said.setdefault((one, topic), {})[self.number] = value
            self.meeting.changed.notify_all()

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        with self.meeting.changed:
            heard = self.meeting.said.setdefault((self.number, topic), {})
            self.meeting.changed.wait_for(lambda: len(heard) >= count, seconds)
            return dict(heard)


LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


def together(count: int, who: Iterable[int], meeting: Meeting | None = None) -> dict[int, Speed]:
    meeting = meeting or Meeting()
    found: dict[int, Speed] = {}

    def one(number: int) -> None:
        top = Topology(size=count, nodes=(Node(f"n{number}", (number,)),))
        ctx = context(
            topology=top,
            rank=number,
            world_size=count,
            seconds=12.0,
            peers=Line(meeting, number),
            mark=lambda name: None,
        )
        found[number] = net_speed.observe(Host(environ=LOOPBACK), ctx)

    threads = [threading.Thread(target=one, args=(number,)) for number in who]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def test_every_node_meets_its_partners() -> None:
    found = together(4, range(4))
    assert sorted(found) == [0, 1, 2, 3]
    for number, seen in found.items():
        round_trips(seen)
        assert {t.peer for t in seen.trials} == set(range(4)) - {number}
        for trial in seen.trials:
            assert trial.moved.error == ""
            assert trial.moved.inward is not None
            assert trial.moved.inward.rate > 1e6
            assert trial.moved.inward.sent > 0
            assert (trial.moved.latency is not None) == (number > trial.peer)  # who dials
    saw = {f"n{i}": seen for i, seen in found.items()}
    assert net_speed.measured(world("net.speed", saw, nodes(4))).text.startswith(
        "4 nodes in 3 rounds: 6 of 6 pairs · "
    )


def test_with_an_odd_count_one_rests() -> None:
    found = together(3, range(3))
    assert {n: {t.peer for t in s.trials} for n, s in found.items()} == {
        0: {1, 2},
        1: {0, 2},
        2: {0, 1},
    }


def test_who_does_not_come_costs_the_others_two_seconds_and_nothing_else() -> None:
    began = time.monotonic()
    found = together(4, (0, 2, 3))
    assert time.monotonic() - began < 7
    for number, seen in found.items():
        moved = {t.peer: t.moved for t in seen.trials}
        assert moved[1].error == ABSENT
        assert all(m.inward is not None for p, m in moved.items() if p != 1), number


def test_what_a_partner_says_is_not_believed() -> None:
    for told in ("x", [1], ["no address", 80, "n"], ["127.0.0.1", 99999, "n"], [None, None, None]):
        meeting = Meeting()
        meeting.said[0, "here"] = {1: told}
        found = together(2, (0,), meeting)
        assert [t.moved.error for t in found[0].trials] == [ABSENT], told


def test_one_node_has_nothing_to_measure() -> None:
    with pytest.raises(NotApplicable):
        net_speed.observe(Host(environ=LOOPBACK), context(world_size=1))


def test_cannot_tell_without_an_address() -> None:
    host = Host(environ={"GLOO_SOCKET_IFNAME": "nosuch0"})
    with pytest.raises(CannotObserve):
        net_speed.observe(host, context(world_size=2))


def test_the_card_may_say_why() -> None:
    """What a card dropped is said where packets are lost at its node, and not of another's."""
    lossy = Case("", cards(Card("eth0", FULL), fabric(4, loses(1, 0.04))), topology=nodes(4))
    (found,) = judged(net_speed, lossy)
    assert found.code == LOST
    assert found.saw.endswith(" · eth0 of n1: 812 packets dropped for lack of receive buffers")
    other = Case("", cards(Card("eth0", FULL), fabric(4, loses(2, 0.04))), topology=nodes(4))
    (found,) = judged(net_speed, other)
    assert "buffers" not in found.saw
