"""`preflight demo`: saved reports of jobs with one fault each, for whoever has no broken cluster at
hand. tools/demos.py makes them (`make demos`). Reads only what preflight is installed with."""

from __future__ import annotations

import json
import os

from preflight.humanize import nearest
from preflight.model import PreflightError, Report

FOLDER = "demos"
INDEX = "index.json"
"""Name -> what the demo is about, in one line."""
CHECKOUT = os.path.normpath(os.path.join(os.path.dirname(__file__), "../.."))
LIVE = "tools/demos.py"
"""Only in a checkout: the hosts are those of the tests."""


def names() -> dict[str, str]:
    found: dict[str, str] = json.loads(_read(INDEX))
    return found


def completed(incomplete: str) -> list[str]:
    """Completion of a demo's name."""
    return [name for name in names() if name.startswith(incomplete)]


def table() -> str:
    """All demos, a line each, and how to see one."""
    known = names()
    widest = max(map(len, known))
    lines = [f" {name:<{widest}}  {about}" for name, about in known.items()]
    lines += [
        "",
        " preflight demo NAME                      as `preflight run` prints it",
    ]
    lines += [" preflight demo NAME -o html=report.html  as a page"]
    return "".join(f"{line}\n" for line in lines)


def saved(name: str) -> Report:
    """The report of a demo; PreflightError with the nearest name where there is none."""
    import gzip

    from preflight.render import json as as_json

    known = names()
    if name not in known:
        raise PreflightError(
            f"no demo {name!r:.60}{nearest(name, known)}; preflight demo lists them"
        )
    return as_json.parse(gzip.decompress(_read(f"{name}.json.gz")).decode())


def live_script() -> str:
    """What builds the hosts of a live demo; PreflightError where preflight is no checkout."""
    path = os.path.join(CHECKOUT, LIVE)
    # beside an installed preflight may be somebody else's tools/
    if not os.path.isfile(path) or not os.path.isdir(os.path.join(CHECKOUT, "tests/lab")):
        raise PreflightError(
            "demo --live needs preflight's source with its tests, which make hosts out of "
            "namespaces; without it: preflight demo NAME"
        )
    return path


def _read(name: str) -> bytes:
    from importlib.resources import files

    return files("preflight").joinpath(FOLDER, name).read_bytes()
