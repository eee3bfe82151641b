"""`preflight attach` on a job of the catalogue as a user has it. What tells the others apart is
judged in tests/unit/domains/job; `make compat` runs all of them."""

from __future__ import annotations

import pytest
from attach.catalogue import FAULTS
from attach.running import attached, wrong


@pytest.mark.torch
def test_torchrun_that_waits_for_a_node_is_named() -> None:
    row = FAULTS[0]
    told = attached(row)
    assert list(wrong(row, told)) == [], told.screen
