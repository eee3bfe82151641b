"""What comes back from a launch: a part of each, a word of each, or nothing at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from preflight.engine.plan import Progress
from preflight.expect import Expect
from preflight.judge.verdict import judge
from preflight.model import Missing, Node, Observations, Report, Seen, Setting, Topology, Verdict
from preflight.registry import load
from preflight.remote.collect import Gathering, RemoteNode, empty_run, merge_gathered
from preflight.remote.protocol import pack, progress
from preflight.render import human
from preflight.render import json as as_json
from preflight.roster import Arrival, Attempt, Roll
from preflight.serde import encode

NAMES = ("n1", "n2", "n3")
NOTHING = empty_run({"name": "preflight", "version": "0"}, "2026-01-01T00:00:00Z", Topology(size=6))
CATALOGUE = load()


def gathering(*names: str, program: str = "ssh") -> Gathering:
    places = {name: RemoteNode(name, n) for n, name in enumerate(names or NAMES)}
    return Gathering(program, program == "srun", places)


def ranks(number: int) -> tuple[int, ...]:
    return (2 * number, 2 * number + 1)


def came(number: int) -> Arrival:
    name = NAMES[number]
    return Arrival(name, name, f"id{number}", 100 + number, ranks(number), 6, mine=number == 0)


def part(number: int, *met: int, hosts: bool = False, **roll: Any) -> dict[str, Any]:
    """The report of an agent: the host's with all who met, or that of one who did not get in."""
    name = NAMES[number]
    rolled = Roll(
        hosts=hosts,
        name="n1",
        port=29500,
        size=6,
        ranks=ranks(number),
        host=name,
        pid=100 + number,
        ips=("10.0.0.1",),
        mine=hosts,
        arrivals=tuple(came(n) for n in met),
        **roll,
    )
    nodes = tuple(Node(NAMES[n], ranks(n)) for n in met or (number,))
    seen = replace(
        NOTHING,
        topology=Topology(size=6, nodes=nodes, master_addr="n1", master_port=29500),
        checks={"rdzv.reach": {name: Seen({"roll": encode(rolled)})}},
    )
    return as_json.document(judge(seen, CATALOGUE, Expect()))


def sends(gathered: Gathering, name: str, **content: Any) -> None:
    for line in pack({"place": name, "host": name, "exit": 0, **content}):
        gathered.hear("line", [name, line])


def ends(gathered: Gathering, name: str, code: int | None, words: str = "") -> None:
    gathered.hear("over", [name, code, words])


def report(gathered: Gathering, nproc: int | None = None) -> Report:
    return judge(merge_gathered(gathered, NOTHING, nproc, "rdzv.reach"), CATALOGUE, Expect())


def findings(found: Report) -> list[tuple[str, str, str]]:
    return [(f.code, str(f.status), " ".join(s.node for s in f.subjects)) for f in found.findings]


def test_one_report_and_a_word_of_the_others() -> None:
    gathered = gathering()
    sends(gathered, "n2")
    sends(gathered, "n1", report=part(0, 0, 1, 2, hosts=True))
    assert [p.name for p in gathered.open] == ["n3"]
    sends(gathered, "n3")
    found = report(gathered)
    assert (gathered.open, gathered.said) == ([], 3)
    assert findings(found) == []
    assert found.observations.topology.met == 6


def test_who_says_nothing_is_absent_with_what_was_said_of_it() -> None:
    gathered = gathering()
    sends(gathered, "n1", report=part(0, 0, 1, hosts=True))
    sends(gathered, "n2")
    ends(gathered, "n3", 255, "ssh: connect to host n3 port 22: Connection refused")
    found = report(gathered)
    assert found.verdict is Verdict.INCOMPLETE
    assert findings(found) == [("not-reached", "missing", "n3")]
    (finding,) = found.findings
    assert finding.subjects[0].ranks == ranks(2), "no launcher said it: the launch did"
    assert "n3 port 22: Connection refused · ssh ended with exit code 255" in finding.saw


def test_who_met_but_never_reported_is_the_meetings_to_tell() -> None:
    gathered = gathering()
    sends(gathered, "n1", report=part(0, 0, 1, 2, hosts=True))
    sends(gathered, "n2")
    ends(gathered, "n3", -9)
    assert findings(report(gathered)) == []


def test_nobody_came_at_all() -> None:
    gathered = gathering()
    for name in NAMES:
        ends(gathered, name, 255, f"ssh: Could not resolve hostname {name}")
    found = report(gathered)
    assert (found.verdict, found.exit_code) == (Verdict.INCOMPLETE, 5)
    assert findings(found) == [("not-reached", "missing", "n1 n2 n3")]
    for columns in (40, 80, 98):
        text = human.render(found, human.Look(width=columns))
        assert "INCOMPLETE" in text
        assert "hostname n1" in " ".join(text.split())


def test_parts_that_did_not_meet_are_one_report() -> None:
    refused = (Attempt("10.0.0.1", 29500, "ETIMEDOUT", seconds=4.0),)
    gathered = gathering()
    sends(gathered, "n1", report=part(0, 0, hosts=True))
    for number in (1, 2):
        sends(gathered, NAMES[number], report=part(number, ladder=refused, waited=6.0))
    found = report(gathered)
    assert [n.name for n in found.observations.topology.nodes] == list(NAMES)
    assert found.verdict is Verdict.NOT_READY
    assert {name for _, _, name in findings(found)} == {"n1 n2 n3"}


@pytest.mark.parametrize(
    "content",
    [
        {"report": []},
        {"report": {"verdict": "ready"}},
        {"report": "ready"},
        {"report": {"observations": {"rdzv.reach": {"n3": {"ok": "[" * 999}}}}},
    ],
)
def test_what_is_no_report_is_as_good_as_none(content: Mapping[str, Any]) -> None:
    gathered = gathering()
    sends(gathered, "n1", report=part(0, 0, 1, hosts=True))
    sends(gathered, "n2")
    sends(gathered, "n3", **content)
    found = report(gathered)
    assert findings(found) == [("not-reached", "missing", "n3")]
    assert "what it sent is no report" in found.findings[0].saw


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        ("over", None),
        ("over", ["n9", 0, ""]),
        ("over", ["n1", "0", 7]),
        ("line", ["n1"]),
        ("line", [["n1"], "x"]),
        ("line", ["n1", 'preflight-progress 1 {"done": "x"}']),
        ("begun", "n1"),
        ("what", {}),
    ],
)
def test_any_word_may_come(topic: str, value: Any) -> None:
    gathered = gathering()
    gathered.hear(topic, value)
    assert [p.name for p in gathered.open] == list(NAMES)


def test_an_agent_is_heard_out_once() -> None:
    """Thousands of parcels, each of which takes a second to be opened, keep nobody busy."""
    heard = gathering()
    spoilt = "preflight-parcel 1 0123456789abcdef 1/1 AAAA"
    heard.hear("line", ["n1", spoilt])
    assert heard.parcels.tried == 1
    for line in pack({"place": "n1"}):
        heard.hear("line", ["n1", line])
    assert (heard.parcels.tried, heard.places["n1"].parcel) == (1, None)
    for line in pack({"place": "n2"}):
        heard.hear("line", ["n2", line])
    assert heard.places["n2"].parcel == {"place": "n2"}


def test_how_far_the_first_agent_is() -> None:
    told = Progress(3, 15, 4.0, "net.mesh", 1.0, 20.0, "n2")
    gathered = gathering()
    gathered.hear("line", ["n1", f"0: {progress(encode(told))}"])
    assert gathered.progress == told


# --- srun, which starts all of them at once ---


def test_a_task_says_itself_where_it_runs() -> None:
    """Its number is its place in the list, mostly."""
    gathered = gathering(program="srun")
    for line in pack({"place": "n3", "exit": 0}):
        gathered.hear("line", ["n1", line])
    assert [p.name for p in gathered.open] == ["n1", "n2"]


def test_started_anew_without_a_node() -> None:
    """Then the ranks are numbered without it, and it is missing all the same."""
    gathered = gathering(program="srun")
    sends(gathered, "n2")
    ends(gathered, "n2", None, "srun: error: failed on node n2")
    gathered.hear("begun", ["n1", "n3"])
    assert {p.name for p in gathered.open} == {"n1", "n3"}
    sends(gathered, "n3")
    text = json.dumps(part(0, 0, 1, hosts=True)).replace('"n2"', '"n3"')
    sends(gathered, "n1", report=json.loads(text.replace('"size": 6', '"size": 4')))
    found = report(gathered)
    assert findings(found) == [("not-launched", "missing", "n2")]
    assert "failed on node n2 · srun started nothing there" in found.findings[0].saw
    assert (found.observations.topology.met, found.observations.topology.size) == (4, 6)
    assert human.do_now(found) == "sbatch --exclude=n2   and your job script"


@pytest.mark.parametrize(
    ("hosts", "gone", "line"),
    [
        (["n1", "n2", "n3"], ("n2",), "preflight run --hosts 'n[1,3]'   without n2"),
        (["n1.site", "n2.site"], ("n2",), "preflight run --hosts n1.site   without n2.site"),
        (["n1"], ("n1",), ""),
        (["n1", "n2"], (), ""),
        (["$(reboot)", "n1", "n2"], ("n2",), "preflight run --hosts n1   without n2"),
        ("n[1-2]", ("n2",), ""),
        ([7, None], ("n2",), ""),
    ],
)
def test_the_line_to_act_on_leaves_bad_hosts_out(
    hosts: Any, gone: tuple[str, ...], line: str
) -> None:
    """Whatever a saved report says that the hosts were."""
    gathered = gathering()
    sends(gathered, "n1", report=part(0, 0, 1, 2, hosts=True))
    found = report(gathered)
    settings = {"hosts": Setting(hosts, "--hosts")}
    found = replace(
        found, exclude=gone, observations=replace(found.observations, settings=settings)
    )
    assert human.do_now(found) == line


def test_the_observations_survive_json() -> None:
    gathered = gathering()
    sends(gathered, "n1", report=part(0, 0, 1, hosts=True))
    sends(gathered, "n2")
    found = report(gathered)
    again = as_json.parse(as_json.render(found))
    absent = again.observations.checks["rdzv.reach"]["n3"]
    assert isinstance(absent, Missing)
    assert absent.by == "ssh"
    assert judge(again.observations, CATALOGUE, Expect()).findings == found.findings
    assert isinstance(again.observations, Observations)
