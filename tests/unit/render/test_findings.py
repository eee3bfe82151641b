"""Where a finding's page of the documentation is."""

from __future__ import annotations

import dataclasses

import pytest
from support.scenarios import judged

from preflight.model import Report, Setting
from preflight.render import html, human
from preflight.render.findings import documentation


def at(address: object) -> Report:
    report = judged("port-held")
    settings = {**report.observations.settings, "docs": Setting(address, "config f.toml")}
    seen = dataclasses.replace(report.observations, settings=settings)
    return dataclasses.replace(report, observations=seen)


def test_each_output_names_the_page() -> None:
    report = at("https://docs.example/preflight/")
    first = report.findings[0]
    page = f"https://docs.example/preflight/findings/{first.check}/{first.code}.html"
    assert documentation(report, first) == page
    assert page in human.render(report)
    assert f'<a href="{page}" rel="noreferrer">' in html.render(report)


@pytest.mark.parametrize(
    "address", ["", "javascript:alert(1)", "https://x/ onclick=1", 'https://x"', 3, None]
)
def test_a_saved_report_can_name_no_other_kind_of_link(address: object) -> None:
    report = at(address)
    assert documentation(report, report.findings[0]) == ""
    assert '<a href="#' in html.render(report)
    assert 'rel="noreferrer"' not in html.render(report)
