"""Saved reports with anything in them: refused in one line, or shown, judged and merged."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.fuzzing import EXAMPLES, in_one_line
from support.hostile import DEEP, changed, damaged, text_of
from support.scenarios import judged

from preflight import registry
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.judge.merge import merge
from preflight.model import PreflightError, Report
from preflight.render import formats, human
from preflight.render import json as as_json

FORMATS = ("human", "json", "junit", "prometheus", "nagios", "markdown", "slurm", "html")


@cache
def saved(name: str) -> Any:
    return json.loads(as_json.render(judged(name)))


@cache
def catalogue() -> registry.Catalogue:
    return registry.load()


def use(report: Report) -> None:
    for name in FORMATS:
        "".join(formats.parts(name, report, human.Look())).encode()


REPORTS = st.sampled_from(["healthy", "folded"]).map(saved)


@given(REPORTS.flatmap(changed).map(text_of) | REPORTS.map(text_of).flatmap(damaged))
@example(b'{"verdict":"ready","observations":' + DEEP.encode() + b"}")
@example(b'{"verdict":"ready","observations":{},"seconds":1e999}')
@EXAMPLES
def test_a_report(text: bytes) -> None:
    try:
        report = as_json.parse(text.decode(errors="surrogateescape"))
    except PreflightError as error:
        in_one_line(error)
        return
    use(report)
    try:
        whole = merge([report.observations, report.observations], "rdzv.reach")
    except PreflightError:
        return
    use(verdict.judge(whole, catalogue(), Expect()))


@st.composite
def observed(draw: st.DrawFn) -> Any:
    """A report in which one observation is anything, of the shape of a real one where it can be."""
    report = json.loads(json.dumps(saved(draw(st.sampled_from(["three-nodes", "rehearsed"])))))
    check = draw(st.sampled_from(sorted(report["observations"])))
    by_key = report["observations"][check]
    key = draw(st.sampled_from(sorted(by_key)))
    by_key[key] = draw(changed(by_key[key]))
    return report


@given(observed())
@EXAMPLES
def test_an_observation_costs_its_own_check_at_most(document: Any) -> None:
    try:
        read = as_json.parse(json.dumps(document))
    except PreflightError:
        return
    use(verdict.judge(read.observations, catalogue(), Expect()))
