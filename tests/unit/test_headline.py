"""headline: a sentence about somebody, in the singular or the plural."""

from __future__ import annotations

import pytest

from preflight.headline import SEEN, begun, finished, whom
from preflight.model import Kind, Subject


def node(name: str) -> Subject:
    return Subject(Kind.NODE, name)


def ranks(of: str, *numbers: int) -> Subject:
    return Subject(Kind.RANK, of, ranks=numbers)


def gpu(of: str, index: int) -> Subject:
    return Subject(Kind.GPU, of, f"GPU {index}")


@pytest.mark.parametrize(
    ("subjects", "told"),
    [
        ((node("h3"),), "h3"),
        ((node("h3"), node("h4")), "h3 and h4"),
        (tuple(node(f"n{i}") for i in range(1, 23)), "22 nodes (n[1-22])"),
        (tuple(node(f"{c * 9}{i}x") for i, c in enumerate("abcdefg")), "7 nodes"),
        ((ranks("n1", 0, 1, 2),), "ranks 0-2 of n1"),
        ((ranks("", 7),), "rank 7"),
        ((gpu("n1", 3),), "GPU 3 on n1"),
        ((gpu("n1", 3), gpu("n1", 4), gpu("n1", 7)), "GPUs 3-4,7 on n1"),
        ((Subject(Kind.NIC, "n1", "mlx5_0", port=1),), "mlx5_0:1 on n1"),
        ((Subject(Kind.LINK, "n1", to="n2"),), "n1 to n2"),
        ((Subject(Kind.JOB, name="MASTER_PORT"),), "the job"),
        ((Subject(Kind.JOB), ranks("n1", 2)), "rank 2 of n1"),
        ((Subject(Kind.SOFTWARE, name="x.y"),), ""),
    ],
)
def test_whom(subjects: tuple[Subject, ...], told: str) -> None:
    assert whom(subjects) == told


def test_a_sentence_is_about_one_or_several() -> None:
    sick = begun("{at} is sick: {seen}", "87 °C · of 90", {})
    assert finished(sick, [gpu("n1", 3)]) == "GPU 3 on n1 is sick: 87 °C"
    assert finished(sick, [gpu("n1", 3), gpu("n1", 4)]) == "GPUs 3-4 on n1 are sick: 87 °C"
    lacks = begun("{where} lacks {what}", "", {"what": "eth0"})
    assert finished(lacks, [node("n1"), node("n2")]) == "n1 and n2 lack eth0"


def test_without_a_template_it_is_whom_and_what_was_seen() -> None:
    assert finished(begun("", "no answer · in 3 s", {}), [node("n1")]) == "n1: no answer"
    assert finished(begun("", "no answer", {}), [Subject(Kind.SOFTWARE)]) == "no answer"


def test_what_others_wrote_fills_nothing() -> None:
    hostile = {"name": "\x00\x01{at}{seen}"}
    made = finished(begun("{name} on {at}", "x", hostile), [node("n1")])
    assert made == "  {at}{seen} on n1"


def test_a_long_text_ends_at_a_word() -> None:
    made = begun("{seen}", "word " * 100, {})
    assert made.endswith("word …")
    assert len(made) <= SEEN + 2
