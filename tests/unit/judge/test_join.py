"""judge.join: what many nodes have in common is one finding, and nothing of it is lost."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from preflight.judge.join import NODES, joined
from preflight.model import Command, Finding, FindingType, Kind, Status, Subject


def finding(node: str, saw: str, **more: Any) -> Finding:
    return Finding(
        "bad", Status.WARN, (Subject(Kind.NODE, node),), saw, check="a.b", headline=saw, **more
    )


def nodes(found: Finding) -> list[str]:
    return [subject.node for subject in found.subjects]


def test_the_same_words_are_joined_on_any_number_of_nodes() -> None:
    (one,) = joined([finding("n1", "/data is read-only"), finding("n2", "/data is read-only")])
    assert nodes(one) == ["n1", "n2"]


def test_numbers_become_a_range() -> None:
    some = [finding(f"n{i}", f"{260 + i} MiB of memory, 1.{i} s") for i in range(1, 6)]
    (one,) = joined(some)
    assert one.saw == one.headline == "261-265 MiB of memory, 1.1-1.5 s"
    assert nodes(one) == ["n1", "n2", "n3", "n4", "n5"]


def test_names_are_listed_and_counted() -> None:
    some = [finding(f"n{i}", f"the hostname 'n{i}' does not resolve") for i in range(1, 9)]
    (one,) = joined(some)
    assert one.saw == "the hostname 'n1, n2, n3, n4 and 4 more' does not resolve"


def test_a_number_that_names_something_is_no_range() -> None:
    """Else those between the first and the last would be accused."""
    some = [finding(f"n{i}", f"rank {3 * i} killed, {i} s") for i in range(1, 6)]
    (one,) = joined(some)
    assert one.saw == "rank 3, 6, 9, 12 and 1 more killed, 1-5 s"


def test_few_nodes_keep_their_own_words() -> None:
    some = [finding(f"n{i}", f"{i} MiB") for i in range(1, NODES)]
    assert joined(some) == some
    of_one = [finding("n1", f"{i} MiB") for i in range(9)]
    assert joined(of_one) == of_one


def test_other_words_stay_apart() -> None:
    some = [finding(f"n{i}", f"{i} MiB free") for i in range(5)]
    other = [finding(f"n{i}", f"{i} MiB used") for i in range(5)]
    assert [f.saw for f in joined([*some, *other])] == ["0-4 MiB free", "0-4 MiB used"]


def test_a_command_that_differs_is_no_command_for_all() -> None:
    def advice(number: int) -> FindingType:
        same, own = Command("df -h"), Command(f"kill {number}")
        text = f"end pid {number}"
        return FindingType(
            cause="", means="", now=f"kill {number}", text=text, commands=(same, own)
        )

    (one,) = joined([finding(f"n{i}", f"pid {i}", advice=advice(i)) for i in range(1, 6)])
    assert one.advice is not None
    assert (one.advice.now, one.advice.text) == ("", "end pid 1, 2, 3, 4 and 1 more")
    assert one.advice.commands == (Command("df -h"),)


words = st.text("ab1 2.#:\0\x01/", max_size=12)


@given(st.lists(st.tuples(st.integers(0, 6), words), max_size=12))
def test_nobody_is_lost_and_nothing_raises(told: list[tuple[int, str]]) -> None:
    some = [finding(f"n{number}", saw) for number, saw in told]
    made = joined(some)
    assert {n for f in some for n in nodes(f)} == {n for f in made for n in nodes(f)}
    assert len(made) <= len(some)


def test_a_remedy_speaks_of_all_nodes_that_it_is_for() -> None:
    def with_fix(node: str, text: str) -> Finding:
        return finding(node, "bad", advice=FindingType(cause="", means="", text=text))

    slow = "exclude this node or accept its speed; reboot"
    (one,) = joined([with_fix(f"n{i}", slow) for i in range(20)])
    assert one.advice is not None
    assert one.advice.text == "exclude these nodes or accept their speed; reboot"
    (two,) = joined([with_fix(n, "exclude this node; reset the GPU") for n in ("n1", "n2")])
    assert two.advice is not None
    assert two.advice.text == "exclude these nodes; reset the GPU"
    alone = with_fix("n1", slow)
    assert joined([alone]) == [alone]
