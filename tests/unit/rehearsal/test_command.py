"""What is set for the rehearsed command."""

from __future__ import annotations

import pytest

from preflight.rehearsal.command import variables

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
