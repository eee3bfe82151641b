"""The report as one HTML file that needs nothing else: no network, no other file, no script either.

report.html.j2 and diff.html.j2 are filled by Jinja2, which escapes all that it puts in and reads
them from where preflight is installed; drawings.py lays out the pictures; embedded.py packs the
JSON report into the page, so that `preflight show FILE` has it again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from preflight.baseline.diff import Difference
from preflight.model import Report
from preflight.sanitize import legible

if TYPE_CHECKING:
    from jinja2 import Environment

SHOWN = 4096
"""Characters of one foreign text; the embedded report holds all of it."""


def render(report: Report) -> str:
    """The whole report. Needs Jinja2: config.resolve says so where it is not installed."""
    from preflight.render.html import page

    return _filled("report.html.j2", page.of_report(report))


def render_diff(names: tuple[str, str], reports: tuple[Report, Report], found: Difference) -> str:
    """What changed from one report to another; the later one is embedded."""
    from preflight.render.html import page

    return _filled("diff.html.j2", page.of_difference(names, reports, found))


def _filled(template: str, about: Mapping[str, Any]) -> str:
    from jinja2 import PackageLoader
    from markupsafe import Markup

    made = _environment()
    assert isinstance(made.loader, PackageLoader)
    style, script = (made.loader.get_source(made, name)[0] for name in ("style.css", "script.js"))
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # both are our own, and stand in the page as they are
    ours = {"style": Markup(style), "script": Markup(script)}
    return made.get_template(template).render(about, policy=policy, **ours)


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _environment() -> Environment:
    """Everything that a template puts in is escaped, and is made legible before: control characters
    and what turns the direction of writing round are written out."""
    import jinja2

    def shown(value: object) -> object:
        """What is no Markup, which is ours."""
        return legible(value, longest=SHOWN) if type(value) is str else value

    return jinja2.Environment(
        loader=jinja2.PackageLoader("preflight.render", "html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
