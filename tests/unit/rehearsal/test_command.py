"""What is set for the rehearsed command."""

from __future__ import annotations

import errno
import subprocess

import pytest

from preflight.rehearsal.command import NotStarted, Running, variables

SIZE = "TORCH_FR_BUFFER_SIZE"


@pytest.mark.parametrize(
    ("environ", "more"),
    [
        ({}, {"PYTHONPATH": "/w", SIZE: "2000"}),
        ({"PYTHONPATH": "/mine:/other"}, {"PYTHONPATH": "/w:/mine:/other", SIZE: "2000"}),
        ({SIZE: "0"}, {"PYTHONPATH": "/w", SIZE: "2000"}),
        ({SIZE: "500"}, {"PYTHONPATH": "/w"}),
        # who knows the older name only is not told that it is deprecated once more
        ({"TORCH_NCCL_TRACE_BUFFER_SIZE": "500"}, {"PYTHONPATH": "/w"}),
        (
            {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"},
            {"PYTHONPATH": "/w", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
        ),
    ],
)
def test_what_is_set_for_the_command(environ: dict[str, str], more: dict[str, str]) -> None:
    assert variables(environ, "/w", "WATCHED") == {"WATCHED": "/w", **more}


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.ENOENT, NotStarted), (errno.E2BIG, NotStarted), (errno.EMFILE, OSError)],
)
def test_who_may_open_no_more_files_has_not_tried_the_command(
    monkeypatch: pytest.MonkeyPatch, number: int, raised: type[Exception]
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(raised):
        Running(["true"], {})
