"""Warnings of torch that a rank printed, as it keeps them for the record."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from preflight.domains.job.torch_warnings import CODES
from preflight.rehearsal.injected import preflight_warned as warned

HERE = ["train.py", 12, "main", True]
SHAPES = "Using a target size (torch.Size([4])) that is different to the input size ([4, 1])."


@pytest.fixture(autouse=True)
def followed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(warnings, "_showwarnmsg", warnings._showwarnmsg)  # type: ignore[attr-defined]
    monkeypatch.setattr(warnings, "showwarning", lambda *shown: None)
    warned.begin()
    warned.follow(lambda: HERE)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        yield
    warned.begin()


def test_the_first_of_each_kind_is_kept_with_its_line() -> None:
    for text in (SHAPES, SHAPES.replace("4", "8"), "an unrelated warning"):
        warnings.warn(text, stacklevel=1)
    assert warned.told() == [["loss-broadcast", SHAPES, HERE, 2]]


def test_a_warning_of_the_programs_own_that_sounds_alike_is_none_of_torchs() -> None:
    for text in ("100 samples have been fetched", "bf16: but the target dtype is not supported"):
        warnings.warn(text, stacklevel=1)
    assert warned.told() == []


def test_what_the_program_filters_out_is_not_kept() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn(SHAPES, stacklevel=1)
    assert warned.told() == []


def test_long_texts_are_cut() -> None:
    warnings.warn(SHAPES + "x" * 10_000, stacklevel=1)
    assert len(warned.told()[0][1]) == warned.TEXT


def test_the_warning_is_shown_whatever_goes_wrong_here() -> None:
    shown: list[str] = []

    def show(message: Warning | str, *more: object) -> None:
        shown.append(str(message))

    warnings.showwarning = show
    warned.follow(lambda: 1 / 0)
    warnings.warn(SHAPES, stacklevel=1)
    assert shown == [SHAPES]


def test_each_kind_is_one_that_the_check_knows() -> None:
    assert {name for _, name in warned.KNOWN} == set(CODES)
