"""across_ranks: which of several environments is the one that differs."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from support.cases import topology

from preflight.identity.across_ranks import faults_across_ranks
from preflight.identity.consistency import Env
from preflight.model import Confidence, Fact, Found, Kind, Node, Status, Subject, Topology

PLAIN = topology(nodes=tuple(Node(f"n{n + 1}", (n,)) for n in range(4)))
MET = topology(nodes=tuple(Node(f"n{n + 1}", (n,), f"10.0.0.{n + 1}") for n in range(4)))


def subject(rank: int) -> Subject:
    return Subject(Kind.RANK, f"n{rank + 1}", str(rank), ranks=(rank,))


def each(name: str, *values: str) -> list[Env]:
    """A rank per node, each with its own value of a variable."""
    return [
        Env({"RANK": str(r), name: value}, 1, False, f"n{r + 1}", (f"n{r + 1}/{r}",), PLAIN)
        for r, value in enumerate(values)
    ]


def found(envs: list[Env], top: Topology = PLAIN, explained: Collection[int] = ()) -> list[Found]:
    return list(faults_across_ranks(envs, {(subject(r),) for r in explained}, top))


def blamed(faults: list[Found]) -> list[int]:
    return [s.ranks[0] for fault in faults for s in fault.subjects]


def test_one_story_is_silent() -> None:
    assert found([]) == []
    assert found(each("WORLD_SIZE", "4", "4", "4")) == []
    assert found(each("WORLD_SIZE", "4", " 4", "4\r")) == [], "what is around a value is trimmed"


@pytest.mark.parametrize(
    ("name", "values", "who"),
    [
        ("WORLD_SIZE", ("4", "5", "4"), [1]),
        ("WORLD_SIZE", ("4", "5"), [0, 1]),  # nobody knows better
        ("MASTER_PORT", ("29500", "29501"), [1]),  # rank 0 holds the store
        ("MASTER_PORT", ("29500", "29501", "29501"), [0]),
        ("MASTER_PORT", ("29500", "29501", "29502"), [1, 2]),
    ],
)
def test_the_value_of_most_ranks_counts_then_that_of_rank_0(
    name: str, values: tuple[str, ...], who: list[int]
) -> None:
    faults = found(each(name, *values))
    assert {f.code for f in faults} == {"world-differs"}
    assert sorted(blamed(faults)) == who


def test_the_usual_value_is_shown_first_and_no_more_than_a_few() -> None:
    (fault,) = found(each("WORLD_SIZE", "5", "4", "4"))
    assert fault.saw == "WORLD_SIZE='4' on 2 ranks · WORLD_SIZE='5' on 1 rank"
    saw = found(each("WORLD_SIZE", *"23456"))[0].saw
    assert saw.count("WORLD_SIZE=") == 3


def test_a_rank_that_two_have() -> None:
    envs = each("RANK", "0", "1", "1")
    faults = found(envs)
    assert ({f.code for f in faults}, blamed(faults)) == ({"rank-duplicate"}, [1, 2])
    assert faults[0].saw == "RANK='1' in 2 environments"
    assert found(envs, explained=[2]) == [], "its launcher has said what is wrong"


def test_a_master_that_is_a_node_without_rank_0_is_a_fault() -> None:
    (fault,) = found(each("MASTER_ADDR", "n1", "n1", "n4.cluster"))
    assert (fault.code, fault.status, fault.confidence) == (
        "master-differs",
        None,
        Confidence.LIKELY,
    )
    assert blamed([fault]) == [2]


def test_a_master_that_nobody_knows_is_perhaps_the_same_host() -> None:
    (fault,) = found(each("MASTER_ADDR", "n1", "n1", "10.9.0.1"))
    assert (fault.status, fault.confidence) == (Status.WARN, Confidence.POSSIBLE)


def test_whoever_met_has_proved_that_the_names_are_one_host() -> None:
    envs = each("MASTER_ADDR", "n1", "n1", "n4")
    assert found(envs, MET) == []
    elsewhere = topology(nodes=MET.nodes, facts={"master_addr": Fact("head", "--meet")})
    assert blamed(found(envs, elsewhere)) == [2]


def test_localhost_is_right_where_rank_0_is() -> None:
    assert found(each("MASTER_ADDR", "localhost", "n1", "n1")) == []
    assert blamed(found(each("MASTER_ADDR", "n1", "n1", "localhost"))) == [2]


def of_one_node(said: str, ranks: int = 2, **more: str) -> list[Env]:
    values = {"LOCAL_WORLD_SIZE": said, **more}
    return [
        Env({"RANK": str(r), "LOCAL_RANK": str(r), **values}, 1, False, "n1", (f"n1/{r}",), PLAIN)
        for r in range(ranks)
    ]


TOGETHER = topology(2, nodes=(Node("n1", (0, 1), "10.0.0.1"),))


def test_a_node_has_another_number_of_ranks_than_they_say() -> None:
    (first, second) = found(of_one_node("8"), TOGETHER)
    assert (first.code, first.status) == ("local-size-differs", None)
    assert "2 ranks of this job on the node" in first.saw
    assert first.fields["right"] == "2"
    assert blamed([first, second]) == [0, 1]


def test_who_says_it_right_or_does_not_know_all_ranks_is_not_accused() -> None:
    assert found(of_one_node("2"), TOGETHER) == []
    assert found(of_one_node("0"), TOGETHER) == []
    some = topology(4, nodes=(Node("n1", (0, 1), "10.0.0.1"),))
    assert found(of_one_node("4"), some) == []
    # the agent of a node, whose number of ranks is another rule's
    agent = Env({"RANK": "0", "LOCAL_WORLD_SIZE": "8"}, 2, False, "n1", ("n1/0",), PLAIN)
    assert found([agent], TOGETHER) == []
