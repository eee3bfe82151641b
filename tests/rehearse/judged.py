"""What a report has to say of a row of the catalogue: for the tests and for docs/rehearsals.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rehearse.catalogue import Row, places
from rehearse.running import Told
from support.pace import slower

TOOL_SECONDS = 5.0
"""From the moment that a hang is certain until everything has ended and the report is written, on a
machine with nothing else to do; as many times longer as there are processes for each CPU."""
BUSY = 2.0
"""There is always another rehearsal beside this one, and in CI another test beside both."""


def findings(row: Row, told: Told) -> list[dict[str, Any]]:
    """Those that are judged: failures, or of a fault that only costs time the warnings that it
    should lead to, since others may stand beside them."""
    if not row.warns:
        return told.findings("fail")
    return [f for f in told.findings("warn") if f["code"] in row.code]


def wrong(row: Row, told: Told) -> Iterator[str]:
    """What is not as it should be in the report of a fault: nothing where one finding, of the right
    code and check, accuses the right ranks and names the line."""
    if row.warns and (told.code or told.findings("fail")):
        yield f"exit {told.code}, where a warning was due"
    if not row.warns and told.code != 3:
        yield f"exit {told.code}, not 3"
    found = findings(row, told)
    if len(found) != 1:
        yield f"not one cause but {len(found)}"
        return
    (finding,) = found
    if finding["code"] not in row.code:
        yield f"{finding['code']} is none of {row.code}"
    if row.check and finding["check"] != row.check:
        yield f"{finding['check']}, not {row.check}"
    ranks = {rank for subject in finding["subjects"] for rank in subject["ranks"]}
    if not (ranks == set(row.ranks) if row.exact else ranks <= set(row.ranks)):
        yield f"ranks {sorted(ranks)}, not {row.ranks}"
    if bool(ranks) != bool(row.ranks):
        yield f"ranks {sorted(ranks)}, where {row.ranks or 'none'} were due"
    if row.line:
        said = json.dumps([finding["saw"], finding["remedy"], finding["alternatives"]])
        if not any(re.search(rf"\b{re.escape(place)}\b", said) for place in places(row)):
            yield f"none of {places(row)}"


def late(row: Row, told: Told) -> Iterator[str]:
    """That a failure took longer to be found than it may, or was never planted."""
    if row.warns:
        return
    if told.after is None:
        yield "the fault was not planted"
        return
    allowed = row.stuck + row.extra + TOOL_SECONDS * slower() * max(BUSY, told.load)
    if told.after > allowed:
        yield f"took {told.after:.1f} s, allowed {allowed:.1f}"
