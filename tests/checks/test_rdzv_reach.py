"""rdzv.reach: who came to the meeting, who did not, and whose fault that is.

The table is support/rendezvous_cases.py; its parts are judged in tests/unit/domains/rendezvous.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.cases import assert_case, context, expectations, judged, round_trips, world
from support.rendezvous_cases import (
    ALL,
    ALL_CASES,
    DROPPED,
    HEALTHY,
    PORT,
    Row,
    alone,
    came,
    here,
    hosting,
    nodes,
    out,
    row,
    rung,
)

from preflight.check import conforms
from preflight.checks import rdzv_reach
from preflight.domains.rendezvous.attempts import Reach
from preflight.host import Host
from preflight.model import (
    CannotObserve,
    Found,
    Kind,
    NotApplicable,
    Subject,
)
from preflight.roster import Roll, Stranger

conforms(rdzv_reach)

CASES = ALL_CASES


@pytest.mark.parametrize("case", HEALTHY, ids=lambda c: c.name)
def test_judge(case: Row) -> None:
    assert_case(rdzv_reach, case)


def test_the_right_column() -> None:
    def text(host: Reach) -> str:
        return rdzv_reach.measured(world("rdzv.reach", here(host), nodes(1))).text

    one_by_one = (came(1, pid=101, ranks=(0,)), came(2, ranks=(1,), at=0.4))
    assert text(hosting(*one_by_one, size=2)) == "2/2 ranks in 400 ms, rank 1 arrived last"
    scanned = hosting(*ALL, strangers=(Stranger("10.9.9.9", "http", 30),))
    assert text(scanned) == "8/8 ranks in 300 ms, n4 arrived last · 30 strangers"
    assert text(out(2, DROPPED)) == "10.0.0.1:29500 no answer in 4.0 s (7 tries)"


def test_what_a_peer_makes_up_costs_nothing() -> None:
    """Numbers and texts of a peer are anybody's."""
    made_up = hosting(*ALL[:2], came(3, 1 << 60, ranks=(1 << 40,)), size=1 << 60, name="x" * 5000)
    findings = list(judged(rdzv_reach, row("", here(made_up), "size-differs")))
    assert findings
    assert all(len(f.saw) < 2000 and len(f.subjects) < 200 for f in findings)
    lies = out(2, rung(error="E" * 5000, ip="\x1b[31m" * 900), name="y" * 5000)
    for finding in judged(rdzv_reach, row("", {"n2": lies}, "handshake-incomplete")):
        assert len(finding.saw) < 8000


def look(roll: Roll | None, environ: dict[str, str] | None = None) -> Reach:
    seen = rdzv_reach.observe(Host(environ=environ or {}), context(roll=roll))
    round_trips(seen)
    return seen


def test_observe_looks_for_absent_hosts() -> None:
    slurm = {"SLURM_STEP_NODELIST": "n[1-2],localhost", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    seen = look(hosting(*ALL[:2], size=6).roll, slurm)
    assert [e.host for e in seen.expected] == ["n1", "n2", "localhost"]
    (sought,) = seen.sought
    assert sought.host == "localhost"
    assert {p.port for p in sought.probes} == {22, 9}
    assert any(p.answered for p in sought.probes)
    (finding,) = judged(rdzv_reach, row("", here(seen), "absent-host-up"))
    assert finding.code == "absent-host-up"


def test_observe_asks_nobody_when_all_came() -> None:
    slurm = {"SLURM_STEP_NODELIST": "n[1-4]", "SLURM_STEP_TASKS_PER_NODE": "2(x4)"}
    seen = look(hosting(*ALL).roll, slurm)
    assert (seen.expected, seen.sought, seen.elsewhere) == ((), (), ())


def test_observe_tries_other_ports_of_a_host_that_lets_nobody_in() -> None:
    seen = look(out(2, rung("ECONNREFUSED", ip="127.0.0.1")).roll, {"KUBERNETES_SERVICE_HOST": "x"})
    assert {p.port for p in seen.elsewhere} == {22, 9, PORT + 1}
    assert all(p.ip == "127.0.0.1" for p in seen.elsewhere)
    assert seen.routes == {"127.0.0.1": ""}
    assert (seen.kubernetes, seen.agent) == (True, False)


def test_observe_knows_an_address_that_nothing_leads_to() -> None:
    seen = look(out(2, rung("EINVAL", ip="240.0.0.1"), ips=("240.0.0.1",)).roll)
    way = judged(rdzv_reach, row("", {"n2": seen}, "no-route", topology=alone(2)))
    assert [f.code for f in way] == ["no-route"]


def test_observe_knows_another_name_that_the_resolver_is_told_to_take(tmp_path: Any) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text("n7 n7.example\nN1 n1.old.example\n")
    refused = out(2, rung("ECONNREFUSED", ip="127.0.0.1"), name="n1").roll
    for environ, line in (
        ({"HOSTALIASES": str(aliases)}, f"HOSTALIASES={str(aliases)[:60]}, line 2"),
        ({"HOSTALIASES": str(tmp_path)}, ""),
        ({}, ""),
    ):
        assert look(refused, environ).hosts_line == line


def test_there_is_nothing_to_say_without_a_meeting() -> None:
    with pytest.raises(NotApplicable):
        look(None)


def test_a_copied_tree_has_no_meeting(tmp_path: Any) -> None:
    with pytest.raises(CannotObserve):
        rdzv_reach.observe(Host(str(tmp_path), {}), context(roll=hosting(*ALL).roll))


def test_a_warning_does_not_hide_that_a_node_was_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its code declares the warning; the judge itself gives no status. Only a failure hides it."""
    case = next(c for c in CASES if c.code == "not-launched")
    seen = world("rdzv.reach", case.saw, case.topology)
    subjects = (Subject(Kind.NODE, "n4"),)
    codes = []
    for code in ("agent-late", "rank-duplicate"):
        made = Found(code, subjects, "planted")
        monkeypatch.setattr(rdzv_reach, "_findings", lambda *_, made=made: iter((made,)))
        codes.append([f.code for f in rdzv_reach.judge(seen, expectations({}))])
    assert codes == [["not-launched", "agent-late"], ["rank-duplicate"]]
