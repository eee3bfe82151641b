"""raised_advice: what is to be done about an exception whose line only shows it."""

from __future__ import annotations

import pytest

from preflight import sanitize
from preflight.domains.job.raised_advice import ADVICE, PARTLY, what_to_fix

MINIZ = (
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
)
NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '/data/index.json'"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (MINIZ, "the file is not whole"),
        ("safetensors.SafetensorError: Error while deserializing header: HeaderTooLarge", "whole"),
        ("RuntimeError: received 0 items of ancdata", "clone what is kept"),
        ("OSError: [Errno 24] Too many open files: '/dev/shm/torch_1'", "clone what is kept"),
        ("FileExistsError: [Errno 17] File exists: 'runs/1'", "exist_ok=True"),
        ("RuntimeError: Attempting to deserialize object on CUDA device 3 but", "map_location"),
        ("RuntimeError: Expected all tensors to be on the same device, but found at least two "
         "devices, cuda:0 and cuda:1!", "torch.cuda.set_device"),
    ],
)  # fmt: skip
def test_what_is_known(text: str, advice: str) -> None:
    for partly in (False, True):
        said = what_to_fix(text, "train.py:4", partly=partly)
        assert said.startswith("train.py:4: ")
        assert advice in said


def test_a_file_that_only_some_ranks_miss_is_anothers() -> None:
    assert "barrier" in what_to_fix(NO_FILE, "train.py:4", partly=True)
    assert what_to_fix(NO_FILE, "train.py:4", partly=False) == "train.py:4"


def test_of_all_others_the_line() -> None:
    assert what_to_fix("ValueError: 7", "train.py:4", partly=True) == "train.py:4"


def test_it_stands_in_a_sentence_without_quotes() -> None:
    for _, advice in (*ADVICE, *PARTLY):
        assert sanitize.PROSE.fullmatch(advice), advice
