"""`preflight baseline diff`: what changed between two reports, and what is only noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reports import F, P, U, each, each_rank, of_nodes, report, row
from support.scenarios import NAMES, catalogue, document, hostile, judged

from preflight.baseline.diff import Change, Difference, difference
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.model import Measured, Report
from preflight.render import baseline_diff
from preflight.render import json as as_json
from preflight.render.style import Look
from preflight.sanitize import json_text

TWO = "two-nodes"


def changed(name: str, change: Callable[[Any], None]) -> Report:
    """A scenario with something else in it, judged again."""
    made = json.loads(json.dumps(document(name)))  # no node shares a value with another
    change(made)
    made |= {"checks": [], "findings": [], "verdict": "ready", "exit_code": 0}
    return verdict.judge(as_json.parse(json.dumps(made)).observations, catalogue(), Expect())


def since(change: Callable[[Any], None], name: str = TWO) -> Difference:
    return difference(judged(name), changed(name, change))


def told(found: Difference) -> list[tuple[str, str, str, str, tuple[str, ...]]]:
    return [(c.part, c.name, c.before, c.after, c.nodes) for c in found.changes]


def on(check: str, node: str = "") -> Callable[[Any], list[Any]]:
    """What a check saw: everywhere, or on one node."""
    return lambda made: [
        seen["ok"]
        for key, seen in made["observations"][check].items()
        if node in ("", key.partition("/")[0])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_has_changed_from_a_report_to_itself(name: str) -> None:
    found = difference(judged(name), judged(name))
    assert found.nothing, found.changes
    text = baseline_diff.render(("a", "b"), (judged(name), judged(name)), found)
    assert " no change · 0 of " in text


def test_a_version_that_changed_everywhere_is_one_line() -> None:
    def newer(made: Any) -> None:
        for seen in on("host.software")(made):
            seen["build"]["version"] = "2.14.0"

    assert told(since(newer)) == [
        ("software", "torch", "2.13.0+cpu", "2.14.0", ("gpu-b07", "gpu-b08"))
    ]


def test_what_changed_on_one_node_is_said_of_that_one() -> None:
    def change(made: Any) -> None:
        (limits,), (cpus,) = on("host.limits", "gpu-b08")(made), on("host.cpu", "gpu-b08")(made)
        limits["memlock"], cpus["quota"] = 65536, 12.5
        (variables,) = on("env.vars", "gpu-b07")(made)
        variables["variables"] = [{"name": "NCCL_DEBUG", "value": "INFO", "file": "", "line": 0}]
        (choices,) = on("net.interface", "gpu-b07")(made)
        choices["interfaces"][1]["mtu"] = 1500

    assert told(since(change)) == [
        ("variables", "NCCL_DEBUG", "none", "'INFO'", ("gpu-b07",)),
        ("limits", "locked memory", "unlimited", "64 KiB", ("gpu-b08",)),
        ("limits", "CPU quota", "none", "12.5", ("gpu-b08",)),
        (
            *("network", "bond0", "10.20.3.7/24 MTU 9000 up", "10.20.3.7/24 MTU 1500 up"),
            ("gpu-b07",),
        ),
    ]


def test_what_was_not_looked_at_both_times_has_not_changed() -> None:
    def blind(made: Any) -> None:
        made["observations"]["host.limits"]["gpu-b08"] = {"missing": "timed_out", "detail": ""}

    found = since(blind)
    assert [c for c in found.changes if c.part == "limits"] == []
    assert ("checks", "host.limits", "pass", "undecided", ("gpu-b08",)) in told(found)


def test_a_gpu_that_lost_lanes_and_a_port_that_is_slower_are_told() -> None:
    """The checks of GPUs and ports were not made on these nodes: both get them, one with a loss."""

    def with_gpus(lanes: int, width: int, rate: float, errors: int) -> Callable[[Any], None]:
        def change(made: Any) -> None:
            gpus = [
                {"bus": str(i), "lanes": [{"active": True, "remote": "s"}] * (lanes if i else 18)}
                for i in range(2)
            ]
            vitals = [{"width": width if i else 16, "aggregate": errors} for i in range(2)]
            port = {"device": "mlx5_0", "number": 1, "layer": "InfiniBand", "state": 4}
            seen = {
                "gpu.links": {"joined": {"gpus": gpus, "pairs": []}},
                "gpu.health": {"told": {"gpus": vitals}},
                "net.rdma": {"ports": [port | {"rate": rate}]},
            }
            for check, value in seen.items():
                made["observations"][check] = {"gpu-b07": {"ok": value}}

        return change

    before, after = changed(TWO, with_gpus(18, 16, 400, 0)), changed(TWO, with_gpus(17, 8, 200, 3))
    assert [c for c in told(difference(before, after)) if c[0] in ("GPUs", "network")] == [
        ("GPUs", "PCIe lanes", "2 x x16", "1 x x16, 1 x x8", ("gpu-b07",)),
        ("GPUs", "memory errors ever", "0", "6", ("gpu-b07",)),
        ("GPUs", "NVLink lanes per GPU", "2 x 18", "1 x 17, 1 x 18", ("gpu-b07",)),
        (
            *("network", "mlx5_0:1", "400 Gb/s InfiniBand active", "200 Gb/s InfiniBand active"),
            ("gpu-b07",),
        ),
    ]


def test_a_container_bridge_and_a_new_ipv6_address_are_no_change() -> None:
    bridge = {"name": "veth12ab34c", "up": True, "running": True, "loopback": False, "mtu": 1500}

    def change(made: Any) -> None:
        for seen in on("net.interface")(made):
            seen["interfaces"].append({**bridge, "addresses": []})
            address = {"ip": "2001:db8::9", "prefix": 64, "family": 6}
            seen["interfaces"][1]["addresses"].append(address)

    assert since(change).changes == ()


def test_nodes_that_came_and_went() -> None:
    old, new = of_nodes(3), of_nodes(4)[1:]
    found = difference(report(old, row("a.b", each(old))), report(new, row("a.b", each(new))))
    assert (found.came, found.gone) == (("gpu-b04",), ("gpu-b01",))
    assert found.nodes == ("gpu-b02", "gpu-b03")
    assert found.changes == ()
    assert not found.nothing


def test_a_single_node_is_the_same_whatever_it_is_called() -> None:
    old, new = of_nodes(1, name="pod-x"), of_nodes(1, name="pod-y")
    found = difference(report(old, row("a.b", each(old))), report(new, row("a.b", each(new, F))))
    assert (found.came, found.gone) == ((), ())
    assert ("checks", "a.b", "pass", "fail", ("pod-y01",)) in told(found)


def test_statuses_are_told_by_node_the_heaviest_of_its_ranks() -> None:
    nodes = of_nodes(2)
    before = report(
        nodes, row("net.x", each(nodes)), row("world.y", each_rank(nodes), scope="world")
    )
    after = report(
        nodes,
        row("net.x", each(nodes, b02=F)),
        row("world.y", each_rank(nodes, {0: U, 1: F}), scope="world"),
    )
    found = difference(before, after)
    assert told(found) == [
        ("checks", "verdict", "READY", "NOT READY", ()),
        ("checks", "net.x", "pass", "fail", ("gpu-b02",)),
        ("checks", "world.y", "pass", "fail", ("gpu-b01",)),
    ]


def test_a_check_that_was_not_made_then() -> None:
    nodes = of_nodes(2)
    before = report(nodes, row("a.b", each(nodes)))
    after = report(nodes, row("a.b", each(nodes)), row("c.d", each(nodes)))
    assert told(difference(before, after)) == [("checks", "c.d", "not made", "pass", ())]
    assert told(difference(after, before)) == [("checks", "c.d", "pass", "not made", ())]


@pytest.mark.parametrize(
    ("one", "other"),
    [(TWO, "three-nodes"), ("healthy", "no-torch"), ("two-nodes", "nodes-64"), ("quick", "absent")],
)
def test_there_and_back(one: str, other: str) -> None:
    there, back = difference(judged(one), judged(other)), difference(judged(other), judged(one))
    assert (there.came, there.gone) == (back.gone, back.came)
    turned = {(c.part, c.name, c.after, c.before, len(c.nodes)) for c in back.changes}
    assert {(c.part, c.name, c.before, c.after, len(c.nodes)) for c in there.changes} == turned
    assert {n.name for n in there.changed if n.of == 1} == {
        n.name for n in back.changed if n.of == 1
    }


# --- numbers ---


def measured(values: Mapping[str, Any], count: int = 4) -> Report:
    nodes = of_nodes(count)
    return report(nodes, row("net.speed", each(nodes, P), measured=Measured("", values)))


def numbers(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, bool]:
    """What counts as changed -> whether it is worse."""
    found = difference(measured(before), measured(after))
    return {number.name: number.worse for number in found.changed}


@pytest.mark.parametrize(
    ("name", "before", "after", "worse"),
    [
        ("busbw_gbs", 90.0, 31.0, None),
        ("busbw_gbs", 90.0, 30.0, True),
        ("busbw_gbs", 30.0, 90.0, False),
        ("bytes_per_s", 1e9, 1e8, True),
        ("step_s", 0.02, 0.058, None),
        ("step_s", 0.02, 0.06, True),
        ("step_s", 0.06, 0.02, False),
        ("step_s", 0.0001, 0.015, None),
        ("p99_ms", 2.0, 21.0, None),
        ("p99_ms", 2.0, 23.0, True),
        ("import_seconds", 1.0, 9.0, True),
        ("step_s", 0.0, 9.0, None),
        ("step_s", -1.0, 9.0, None),
        ("step_s", True, 9.0, None),
        ("step_s", "1", 9.0, None),
        ("step_s", 1e-300, 1e99, None),
        ("step_s", 1.0, 10**400, None),
        ("offset_s", 0.001, 5.0, None),
        ("last_s", 1.0, 20.0, None),
        ("load", 0.1, 80.0, None),
        ("port", 20, 60000, None),
    ],
)
def test_the_rule_for_a_single_number(
    name: str, before: Any, after: Any, worse: bool | None
) -> None:
    assert numbers({name: before}, {name: after}) == ({} if worse is None else {name: worse})


def edges(count: int, rate: float, **odd: float) -> dict[str, float]:
    names = [n.name for n in of_nodes(count)]
    return {f"{a}->{b}": odd.get(a[-3:] + b[-3:], rate) for a in names for b in names if a != b}


def test_the_median_of_many_links_is_steadier_than_one() -> None:
    before = {"bytes_per_s": edges(4, 1e9)}
    assert numbers(before, {"bytes_per_s": edges(4, 0.7e9)}) == {}
    assert numbers(before, {"bytes_per_s": edges(4, 0.6e9)}) == {"bytes_per_s.median": True}
    three = {"bytes_per_s": dict(list(edges(4, 1e9).items())[:3])}
    less = {"bytes_per_s": dict(list(edges(4, 0.5e9).items())[:3])}
    assert numbers(three, less) == {}, "three of them are three single numbers"


def test_the_link_that_did_not_go_along_is_named() -> None:
    before = {"bytes_per_s": edges(4, 1e9)}
    one = {"bytes_per_s": edges(4, 1e9, b01b03=0.4e9)}
    assert numbers(before, one) == {"bytes_per_s.gpu-b01->gpu-b03": True}
    both = {"bytes_per_s": edges(4, 0.5e9, b01b03=0.1e9)}
    assert numbers(before, both) == {
        "bytes_per_s.median": True,
        "bytes_per_s.gpu-b01->gpu-b03": True,
    }


def test_round_trips_are_named_after_two_nodes() -> None:
    pairs = [f"gpu-b0{a}-gpu-b0{b}" for a in (1, 2, 3) for b in range(a + 1, 5)]
    before = {"latency_s": dict.fromkeys(pairs, 0.0001)}
    after = {"latency_s": {**before["latency_s"], pairs[2]: 0.004}}
    assert numbers(before, after) == {"latency_s.gpu-b01-gpu-b04": True}
    hair = {"latency_s": {**before["latency_s"], pairs[2]: 0.00019}}
    assert numbers(before, hair) == {}


def test_sizes_and_workers_are_no_nodes() -> None:
    before = {"seconds": {"4": 0.1, "4096": 0.1, "65536": 0.1, "1048576": 0.1}}
    after = {"seconds": {"4": 0.1, "4096": 0.16, "65536": 0.16, "1048576": 0.5}}
    assert numbers(before, after) == {"seconds.1048576": True}


# --- hostile reports ---

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a_s", "b_gbs", "gpu-b01", "seconds", "x"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)  # the first one loads what the others have
@given(st.dictionaries(st.text(max_size=6), JSON), st.dictionaries(st.text(max_size=6), JSON))
def test_any_measurement_is_compared_or_left_alone(one: Any, other: Any) -> None:
    before, after = measured(one), measured(other)
    found = difference(before, after)
    json.loads(json_text(baseline_diff.document(before, after, found)))
    for narrow in (False, True):
        assert baseline_diff.render(("a", "b"), (before, after), found, Look(40 if narrow else 98))


def test_a_screen_shows_foreign_text_as_text() -> None:
    wild = hostile("\x1b[31m\nREADY\r\u202e" + "x" * 3000)
    for pair in ((wild, judged(TWO)), (judged(TWO), wild)):
        text = baseline_diff.render(("\x1b]0;x\x07", "b"), pair, difference(*pair))
        assert not set(text) & {"\x1b", "\r", "\u202e", "\x07"}
        assert max(map(len, text.splitlines())) < 1000


def test_a_long_list_is_cut_and_says_so() -> None:
    def many(made: Any) -> None:
        (seen,) = on("env.vars", "gpu-b07")(made)
        seen["variables"] = [
            {"name": f"NCCL_X{i}", "value": "1", "file": "", "line": 0} for i in range(90)
        ]

    pair = judged(TWO), changed(TWO, many)
    found = difference(*pair)
    assert len([c for c in found.changes if c.part == "variables"]) == 90
    assert "   and 60 more: -v\n" in baseline_diff.render(("a", "b"), pair, found)
    assert "NCCL_X89" in baseline_diff.render(("a", "b"), pair, found, Look(verbose=True))


@pytest.mark.parametrize(
    ("was", "now", "shown"),
    [
        ("a", "b", ("a", "b")),
        ("x" * 40 + "1", "x" * 40 + "2", ("…xxxxxxxx1", "…xxxxxxxx2")),
        ("x" * 40, "x" * 41, ("…xxxxxxxx", "…xxxxxxxxx")),
        ("", "y" * 40, ("", "y" * 23 + "…")),
    ],
)
def test_it_is_seen_where_two_values_differ(was: str, now: str, shown: tuple[str, str]) -> None:
    assert baseline_diff.cut_where_they_differ(was, now, 24) == shown


def test_a_change_is_one_of_a_part_that_is_shown() -> None:
    nodes = of_nodes(1)
    found = Difference((), (), (), (Change("software", "torch", "1", "2"),), ())
    pair = report(nodes, row("a.b", each(nodes))), report(nodes, row("a.b", each(nodes)))
    assert "no node is in both" in baseline_diff.render(("a", "b"), pair, found)
