"""The JSON report inside of an HTML file: packed check by check, so that a browser opens one of
them when its values are asked for; and taken out again, bounded."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

from preflight.model import PreflightError, Report
from preflight.render import json as as_json
from preflight.serde import parsed

TYPE = "application/x-preflight"
BLOCK = re.compile(rf'<script type="{TYPE}"[^>]*>([A-Za-z0-9+/=]*)</script>')
NODES_MOST = 1024
NONE = "not a report: an HTML file without one of preflight's in it"


def packed(report: Report) -> Iterator[tuple[str, str]]:
    """(id, base64 of the compressed JSON): the report without its observations under an empty id,
    then the observations of each check."""
    # where there are more, a browser is told of no single one: they would fill its memory
    whole = as_json.document(report, grouped=len(report.observations.topology.nodes) > NODES_MOST)
    observations = whole.pop("observations")
    yield "", _packed(whole)
    for check, by_key in observations.items():
        yield check, _packed({"check": check, "observations": by_key})


def _packed(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


def unpacked(text: str) -> str:
    """The JSON report that is in an HTML file; PreflightError where there is none, or where it is
    longer than a report may be."""
    whole: dict[str, Any] | None = None
    observations: dict[str, Any] = {}
    left = as_json.LIMIT
    for found in BLOCK.finditer(text):
        try:
            opened = zlib.decompressobj()
            made = opened.decompress(base64.b64decode(found[1]), left + 1)
            left -= len(made)
            if left < 0:
                raise PreflightError(f"not a report: longer than {as_json.LIMIT >> 20} MiB")
            data = parsed(made.decode())
        except (ValueError, zlib.error):
            raise PreflightError(NONE) from None
        if not isinstance(data, dict):
            raise PreflightError(NONE)
        if whole is None:
            whole = data
        elif isinstance(data.get("check"), str):
            observations[data["check"]] = data.get("observations")
    if whole is None:
        raise PreflightError(NONE)
    return json.dumps(whole | {"observations": observations})
