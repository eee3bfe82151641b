"""What is set for the rehearsed command."""

from __future__ import annotations

import pytest

from preflight.rehearsal.command import variables


@pytest.mark.parametrize(
    ("environ", "more"),
    [
        ({}, {"PYTHONPATH": "/w"}),
        ({"PYTHONPATH": "/mine:/other"}, {"PYTHONPATH": "/w:/mine:/other"}),
        ({"TORCH_FR_BUFFER_SIZE": "0"}, {"PYTHONPATH": "/w", "TORCH_FR_BUFFER_SIZE": "2000"}),
        ({"TORCH_FR_BUFFER_SIZE": "500"}, {"PYTHONPATH": "/w"}),
    ],
)
def test_what_is_set_for_the_command(environ: dict[str, str], more: dict[str, str]) -> None:
    assert variables(environ, "/w", "WATCHED") == {"WATCHED": "/w", **more}
