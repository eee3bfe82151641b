"""Parts of a run that did not meet, as one report: the same whoever gives them in which order."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import scenarios

from preflight.expect import Expect
from preflight.judge import merge as merging
from preflight.judge import verdict
from preflight.judge.merge import RANKS_LIMIT
from preflight.model import (
    UNNUMBERED,
    AsNeeded,
    ByKey,
    Cause,
    Fact,
    LeftBehind,
    Missing,
    Node,
    Observation,
    Observations,
    PreflightError,
    Report,
    Seen,
    Setting,
    Topology,
    place_of,
)
from preflight.render import human
from preflight.render import json as as_json
from preflight.roster import Arrival, Roll
from preflight.serde import encode

SCENARIOS = ("two-nodes", "three-nodes", "nodes-64")
NOT_HERE = Missing(Cause.NOT_ARRIVED)


def merge(parts: Sequence[Observations]) -> Observations:
    return merging.merge(parts, "rdzv.reach")


def part(
    *nodes: Node, checks: Mapping[str, Mapping[str, Observation]] | None = None, **changes: Any
) -> Observations:
    """A part of a job of 8 ranks; every node has seen its name in host.limits."""
    top = {"job": "48121", "size": 8, **changes.pop("topology", {})}
    seen = {"host.limits": {node.name: Seen(f"{node.name} {node.ranks}") for node in nodes}}
    values: dict[str, Any] = {
        "tool": {"name": "preflight", "version": "0.1.0"},
        "started": "2025-11-20T23:05:11Z",
        "seconds": 4.0,
        "settings": {"level": Setting("standard", "default")},
    }
    return Observations(
        topology=Topology(nodes=nodes, **top),
        checks=seen | dict(checks or {}),
        **(values | changes),
    )


def roll(node: Node, pid: int = 0, arrivals: Sequence[Arrival] = ()) -> dict[str, Observation]:
    """What rdzv.reach observes; with arrivals it is the host's."""
    seen = Roll(bool(arrivals), "a", 29500, 8, node.ranks, node.name, pid, arrivals=tuple(arrivals))
    return {node.name: Seen({"roll": encode(seen)})}


def arrival(node: Node, identity: str, pid: int = 0) -> Arrival:
    return Arrival(node.name, node.name.partition("#")[0], identity, pid, node.ranks, 8)


A, B, C = Node("a", (0, 1)), Node("b", (2, 3)), Node("c", (4, 5))


def hosted(*nodes: Node, **changes: Any) -> Observations:
    """The part of the host, on the first of the nodes."""
    came = [arrival(node, f"machine {node.name}", 100 + i) for i, node in enumerate(nodes)]
    more = changes.pop("checks", {})
    return part(*nodes, checks={"rdzv.reach": roll(nodes[0], 100, came), **more}, **changes)


def split(whole: Observations, by_rank: bool = False) -> Iterator[Observations]:
    """A part for each node, or for each rank as when a launcher starts an agent for each."""
    for node in whole.topology.nodes:
        owned = [(rank,) for rank in node.ranks] if by_rank else [node.ranks]
        for ranks in owned:
            alone = Node(node.name, ranks, node.addr, len(node.ranks) if by_rank else node.size)
            checks = {
                check: {
                    key: seen
                    for key, seen in by_key.items()
                    if place_of(key)[0] == node.name and place_of(key)[1] in (None, *ranks)
                }
                for check, by_key in whole.checks.items()
            }
            top = dataclasses.replace(whole.topology, nodes=(alone,))
            yield dataclasses.replace(whole, topology=top, checks=checks)


def judged(seen: Observations) -> Report:
    return verdict.judge(seen, scenarios.catalogue(), Expect())


# --- what must hold for any parts ---


@pytest.mark.parametrize("by_rank", [False, True], ids=["by node", "by rank"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_all_single_parts_give_the_report_of_the_whole(scenario: str, by_rank: bool) -> None:
    whole = scenarios.observations(scenario)
    parts = list(split(whole, by_rank))
    merged = merge(parts)
    assert merge([merged, *parts[1:]]) == merged
    one, other = judged(whole), judged(merged)
    assert (one.verdict, one.rows, one.findings) == (other.verdict, other.rows, other.findings)
    assert human.render(one) == human.render(other)
    if not by_rank:
        assert merged == whole


@pytest.mark.parametrize("scenario", scenarios.NAMES)
def test_one_part_stays_what_it_is(scenario: str) -> None:
    seen = scenarios.observations(scenario)
    assert merge([seen]) == merge([seen, seen]) == seen


nodes = st.integers(1, 6).flatmap(
    lambda count: st.tuples(
        *(
            st.tuples(st.sampled_from("aab"), st.sampled_from(("", "x", "y")), st.integers(0, 3))
            for _ in range(count)
        )
    )
)


@st.composite
def some_parts(draw: st.DrawFn) -> list[Observations]:
    """Parts with names that two machines may share, duplicate ranks, known and unknown machines,
    absences, and a host or none or two."""
    made = []
    for name, identity, first in draw(nodes):
        node = Node(name, (2 * first, 2 * first + 1), size=draw(st.sampled_from((0, 4))))
        pid = draw(st.integers(0, 2))
        came = [arrival(node, identity, pid)] if identity else []
        checks = {"rdzv.reach": roll(node, pid, came)}
        if draw(st.booleans()):
            checks["net.port"] = {"gone/7": NOT_HERE, "b": NOT_HERE}
        seconds, left = draw(st.integers(1, 3)), (LeftBehind(draw(st.integers(1, 2)), "D"),)
        size = {"size": draw(st.sampled_from((4, 8)))}
        made.append(part(node, checks=checks, seconds=seconds, topology=size, left_behind=left))
    return made


@settings(max_examples=150, deadline=None)
@given(parts=some_parts(), data=st.data())
def test_order_and_repetition_change_nothing(
    parts: list[Observations], data: st.DataObject
) -> None:
    merged = merge(parts)
    again = data.draw(st.permutations([*parts, *parts[:2]]))
    assert merge(again) == merged
    assert merge([merged]) == merged


@settings(max_examples=150, deadline=None)
@given(parts=some_parts())
def test_nothing_is_lost_and_nobody_is_two(parts: list[Observations]) -> None:
    merged = merge(parts)
    names = [node.name for node in merged.topology.nodes]
    assert len(names) == len(set(names))
    assert {r for n in merged.topology.nodes for r in n.ranks} == {
        r for p in parts for n in p.topology.nodes for r in n.ranks
    }
    assert {name.partition("#")[0] for name in names} == {
        n.name for p in parts for n in p.topology.nodes
    }
    assert merged.checks["host.limits"].keys() == set(names)
    kept = {seen.value for seen in merged.checks["host.limits"].values() if isinstance(seen, Seen)}
    assert kept <= {f"{n.name} {n.ranks}" for p in parts for n in p.topology.nodes}
    lowest = [min(node.ranks) for node in merged.topology.nodes]
    assert lowest == sorted(lowest)


# --- who is believed ---


def test_parts_of_different_ranks_are_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """To tell which one comes first: of a thousand nodes that is 0.4 GiB."""
    parts = [part(Node("n1", (0, 1))), part(Node("n2", (2, 3)))]
    whole = merge(parts)
    monkeypatch.delattr(merging, "_text")
    assert merge(parts) == whole == merge(parts[::-1])


def test_what_an_agent_saw_itself_replaces_its_absence() -> None:
    checks = {"net.port": {"a": Seen(1), "c": NOT_HERE}, "world.gloo": {"c/4": NOT_HERE}}
    host = hosted(A, B, checks=checks)
    alone = part(C, checks={"net.port": {"c": Seen(2)}})
    merged = merge([alone, host])
    assert merged.checks["net.port"] == {"a": Seen(1), "c": Seen(2)}
    assert merged.checks["world.gloo"] == {"c/4": NOT_HERE}  # it was not there, and nobody says so
    assert [node.name for node in merged.topology.nodes] == ["a", "b", "c"]
    assert judged(merged).observations.topology.met == 6


def test_of_a_rank_that_came_no_absence_is_left() -> None:
    """The host had only a guess of the node that it would come from."""
    host = hosted(A, B, checks={"world.gloo": {"?/4": NOT_HERE, "?/7": NOT_HERE}})
    merged = merge([host, part(C, checks={"world.gloo": {"c/4": Seen(1)}})])
    assert merged.checks["world.gloo"] == {"c/4": Seen(1), "?/7": NOT_HERE}


def test_the_host_is_believed() -> None:
    late = {"started": "2025-11-20T23:06:00Z", "seconds": 30.0}
    host = hosted(A, B, checks={"net.port": {"b": Seen("the host's")}}, **late)
    checks: dict[str, Mapping[str, Observation]] = {
        "net.port": {"b": Seen("its own"), "b/2": Missing(Cause.CRASHED)}
    }
    lost = part(
        B,
        checks=checks | {"rdzv.reach": roll(B, 101)},
        topology={"size": 16},
        settings={"level": Setting("deep", "--level")},
        tool={"name": "preflight", "version": "0.2.0", "torch": "2.13.0"},
        left_behind=(LeftBehind(7, "D"),),
    )
    merged = merge([lost, host])
    assert merged.checks["net.port"] == {"b": Seen("the host's"), "b/2": Missing(Cause.CRASHED)}
    assert merged.topology.size == 8
    assert merged.topology.nodes == (A, B)
    assert merged.settings == host.settings
    assert merged.tool == {"name": "preflight", "version": "0.1.0", "torch": "2.13.0"}
    assert (merged.started, merged.seconds) == ("2025-11-20T23:05:11Z", 30.0)
    assert merged.left_behind == (LeftBehind(7, "D"),)


def test_without_a_host_the_size_is_what_most_say() -> None:
    sizes = [(A, 8), (B, 16), (C, 8)]
    assert merge([part(n, topology={"size": s}) for n, s in sizes]).topology.size == 8
    assert merge([part(n, topology={"size": s}) for n, s in sizes[:2]]).topology.size == 16


# --- machines that are called the same ---


def names_of(*parts: Observations) -> dict[str, tuple[int, ...]]:
    return {node.name: node.ranks for node in merge(parts).topology.nodes}


def test_two_machines_of_one_name_are_two_nodes() -> None:
    first, second = Node("gpu", (0, 1)), Node("gpu", (2, 3))
    checks = {"world.gloo": {"gpu/2": Seen(2)}}
    merged = merge([part(second, checks=checks), part(first)])
    assert [(n.name, n.ranks) for n in merged.topology.nodes] == [
        ("gpu", (0, 1)),
        ("gpu#2", (2, 3)),
    ]
    assert merged.checks["host.limits"] == {
        "gpu": Seen("gpu (0, 1)"),
        "gpu#2": Seen("gpu (2, 3)"),
    }
    assert merged.checks["world.gloo"] == {"gpu#2/2": Seen(2)}


def test_a_part_finds_the_name_that_the_host_gave_it() -> None:
    host = hosted(Node("gpu", (0, 1)), Node("gpu#2", (2, 3)))
    own = part(Node("gpu", (2, 3)), checks={"net.port": {"gpu": Seen(1)}})
    assert names_of(host, own) == {"gpu": (0, 1), "gpu#2": (2, 3)}
    assert merge([host, own]).checks["net.port"] == {"gpu#2": Seen(1)}


def test_agents_that_a_launcher_started_for_each_rank_are_on_one_node() -> None:
    ranks = [part(Node("gpu", (rank,), size=2)) for rank in range(4)]
    assert names_of(*ranks) == {"gpu": (0, 1), "gpu#2": (2, 3)}
    assert merge(ranks).topology.ranks_on("gpu") == 2


def test_two_agents_for_the_same_ranks_are_told_by_their_pids() -> None:
    one, other = (
        part(A, checks={"rdzv.reach": roll(A, 11)}),
        part(A, checks={"rdzv.reach": roll(A, 12)}),
    )
    assert names_of(one, other) == {"a": (0, 1), "a#2": (0, 1)}
    assert names_of(one, dataclasses.replace(one, seconds=5.0)) == {"a": (0, 1)}


def of_torchrun(name: str, here: int, nodes: int) -> Observations:
    """The part of a node without a number, which takes itself for the last."""
    first = (nodes - 1) * here
    node = Node(name, tuple(range(first, first + here)))
    checks = {"env.identity": {f"{name}/{rank}": Seen(rank) for rank in node.ranks}}
    facts = {UNNUMBERED: Fact(str(nodes), "torchrun --nnodes")}
    top = {"facts": facts, "size": here * nodes}
    return part(node, checks={**checks, "rdzv.reach": roll(node)}, topology=top)


def test_nodes_that_torchrun_would_number_get_the_ranks_that_are_free() -> None:
    host = hosted(Node("n3", (0, 1)), topology={"size": 8})
    seen = merge([of_torchrun("n2", 3, 4), host, of_torchrun("n1", 1, 4)])
    found = [(node.name, node.ranks) for node in seen.topology.nodes]
    assert found == [("n3", (0, 1)), ("n1", (2,)), ("n2", (3, 4, 5))]
    assert seen.topology.size == 8  # the fourth as many as the host
    assert list(seen.checks["env.identity"]) == ["n1/2", "n2/3", "n2/4", "n2/5"]
    rolls = {key: value.value["roll"] for key, value in seen.checks["rdzv.reach"].items()}  # type: ignore[union-attr]
    assert rolls["n2"]["ranks"] == [3, 4, 5]


def test_without_a_host_they_are_numbered_by_name() -> None:
    seen = merge([of_torchrun("n2", 2, 2), of_torchrun("n1", 2, 2)])
    assert [(n.name, n.ranks) for n in seen.topology.nodes] == [("n1", (0, 1)), ("n2", (2, 3))]
    assert seen.topology.size == 4


@pytest.mark.parametrize("said", ["", "x", "-1", "9" * 30, "²"])
def test_a_number_of_nodes_that_makes_no_sense_is_not_believed(said: str) -> None:
    strange = of_torchrun("n2", 2, 2)
    facts = {UNNUMBERED: Fact(said, "")}
    strange = dataclasses.replace(
        strange, topology=dataclasses.replace(strange.topology, facts=facts)
    )
    assert merge([hosted(Node("n1", (0, 1))), strange]).topology.size == 4


def test_two_hosts_know_their_machines() -> None:
    """Each of two nodes thought that it was rank 0."""

    def host(identity: str, pid: int) -> Observations:
        return part(A, checks={"rdzv.reach": roll(A, pid, [arrival(A, identity, pid)])})

    assert names_of(host("x", 1), host("y", 1)) == {"a": (0, 1), "a#2": (0, 1)}
    assert names_of(host("x", 1), host("x", 2)) == {"a": (0, 1)}
    rolls = merge([host("x", 1), host("y", 1)]).checks["rdzv.reach"]
    assert {
        key: seen.value["roll"]["arrivals"][0]["node"]
        for key, seen in rolls.items()
        if isinstance(seen, Seen)
    } == {"a": "a", "a#2": "a#2"}


# --- what is refused ---


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "no report was given"),
        ([part(A), part(B, topology={"job": "4\n8"})], r"different jobs: '4\\n8', '48121'"),
        ([part(Node("a", tuple(range(RANKS_LIMIT + 1))))], "more than 100000 ranks"),
        (
            [part(Node("a", tuple(range(60_000)))), part(Node("b", tuple(range(60_000, 120_000))))],
            "more than 100000 ranks",
        ),
    ],
    ids=["none", "jobs", "one is too large", "all are too large"],
)
def test_what_does_not_belong_together_is_refused(parts: list[Observations], why: str) -> None:
    with pytest.raises(PreflightError, match=rf"\A[^\n]*{why}[^\n]*\Z"):
        merge(parts)


def test_a_part_without_a_job_belongs_to_any() -> None:
    for job in ("", "none"):
        assert merge([part(A), part(B, topology={"job": job})]).topology.job == "48121"


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        {"hosts": 1, "arrivals": 3},
        {"hosts": True, "arrivals": [None, {"node": ["a"]}]},
        {"ranks": ["0"], "pid": 1},
        {"ranks": [0], "pid": "1"},
        {"ranks": {}, "pid": -1},
    ],
    ids=str,
)
def test_a_roll_that_makes_no_sense_is_carried_and_not_believed(value: Any) -> None:
    broken = part(B, checks={"rdzv.reach": {"b": Seen(value)}})
    merged = merge([broken, part(A)])
    assert merged.checks["rdzv.reach"] == {"b": Seen(value)}
    assert merged.topology.nodes == (A, B)


def test_parts_are_merged_as_they_were_saved() -> None:
    """A roll goes into a report and back, and so does the number of ranks that a launcher runs."""
    host = hosted(Node("a", (0,), "10.0.0.1", 2), B)
    saved = as_json.render(judged(host))
    read = as_json.parse(saved).observations
    assert read == host
    merged = merge([read, part(Node("a", (1,), size=2))])
    assert merged.topology.nodes == (Node("a", (0, 1), "10.0.0.1", 2), B)
    assert json.loads(as_json.render(judged(merged)))["world"]["met"] == 4


def test_checks_that_are_made_as_needed_are_merged_as_needed() -> None:
    """A hosted part and one with an odd name, each once as it is and once as a reader has it."""

    def as_read(seen: Observations) -> Observations:
        lazy = AsNeeded(seen.checks, lambda check: ByKey(seen.checks[check]))
        return dataclasses.replace(seen, checks=lazy)

    parts = [hosted(A, B), part(B), part(dataclasses.replace(A, ranks=(7,)))]
    whole, lazily = merge(parts), merge([as_read(one) for one in parts])
    assert isinstance(lazily.checks, AsNeeded)
    assert [*lazily.checks] == [*whole.checks]
    assert encode(lazily) == encode(whole)
    assert merge([lazily]).topology == whole.topology
