"""docs/draining.md lists all that can drain a node, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from preflight.model import Blame, Status
from preflight.registry import load

DOCUMENT = Path(__file__).parent.parent / "docs/draining.md"


def test_every_failure_that_can_drain_a_node_has_its_evidence() -> None:
    drains = {
        f"{loaded.id}:{code}"
        for loaded in load()
        if loaded.check.drains
        for code, kind in loaded.module.FINDINGS.items()
        if Status.FAIL in kind.statuses and Blame.NODE in (kind.blames or (loaded.check.blame,))
    }
    rows = re.findall(r"^\| `(\S+)` \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert {code for code, _ in rows} == drains
    assert len(rows) == len(drains)
    assert all(len(evidence) > 20 for _, evidence in rows)
