"""Reports of many nodes: what is alike is written once, and read back as it was."""

from __future__ import annotations

import dataclasses
import gc
import json
import random
from collections import deque
from typing import Any

import jsonschema
import pytest
from support.scenarios import catalogue, judged

from preflight.expect import Expect
from preflight.judge import verdict
from preflight.model import (
    Cause,
    Cell,
    Grid,
    Measured,
    Missing,
    Node,
    Observation,
    Observations,
    PreflightError,
    Report,
    Seen,
    Topology,
)
from preflight.packed import Packed, flat, plain
from preflight.render import alike
from preflight.render import json as as_json
from preflight.serde import encode

from .test_json import validator

NODES, RANKS = 200, 2


def value(place: int, rank: int | None) -> Any:
    """What nearly all say, with what is a node's own in it."""
    return {
        "name": f"n{place:03}",
        "said": f"own name 'n{place:03}'",
        "number": place,
        "of a node": None if rank is None else rank % RANKS,
        "exact": 1.0 if place == 7 else 1,
        "times": {str((place + 1) % NODES): 0.5 + place, str((place + 5) % NODES): 0.25},
        "empty": [],
        "a/b~c": {"deep": [True, {"er": "x"}]},
    }


def seen(place: int, rank: int | None = None) -> Observation:
    if place == 11:
        return Missing(Cause.TIMED_OUT, "no answer", 3.0)
    return Seen(value(place, rank), 0.5 if place % 3 else 0.25)


def observations() -> Observations:
    nodes = tuple(
        Node(f"n{p:03}", tuple(range(p * RANKS, (p + 1) * RANKS)), size=RANKS) for p in range(NODES)
    )
    # two claim the ranks of n005, and somebody is not in this world at all
    twin = Node("n005b", nodes[5].ranks)
    by_rank = {f"n{p:03}/{r}": seen(p, r) for p in range(NODES) for r in nodes[p].ranks}
    by_rank |= {f"n005b/{r}": Seen(1) for r in twin.ranks} | {"/999": Missing(Cause.NOT_ARRIVED)}
    base = judged("healthy").observations
    topology = Topology("slurm", "1", NODES * RANKS, (*nodes[:6], twin, *nodes[6:]))
    order = alike.Places(topology.nodes).order
    checks = {
        "site.node": {f"n{p:03}": seen(p) for p in range(NODES)},
        "site.rank": {key: by_rank[key] for key in sorted(by_rank, key=order)},
        "site.few": {"n000": Seen(1), "n001": Seen(2)},
    }
    return dataclasses.replace(base, topology=topology, checks=checks)


def report() -> Report:
    return verdict.judge(observations(), catalogue(), Expect())


def test_it_is_read_back_as_it_was() -> None:
    made = report()
    text = as_json.render(made)
    read = as_json.parse(text)
    assert read.observations == made.observations
    assert read.rows == made.rows
    for check, by_key in made.observations.checks.items():
        assert list(read.observations.checks[check]) == list(by_key)
        again = encode(read.observations.checks[check])
        assert repr(again) == repr(encode(by_key)), "1 stays 1, 1.0 stays 1.0"
    assert as_json.render(read) == text


def test_it_is_read_in_any_order_and_layout() -> None:
    text = as_json.render(report())
    for sort in (False, True):
        again = json.dumps(json.loads(text), indent=2, sort_keys=sort)
        parts = deque(again[at : at + 1000] for at in range(0, len(again), 1000))
        read = as_json.parse_parts(parts)
        assert read.observations == report().observations
        assert sort or as_json.render(read) == text


def test_a_check_is_made_once_for_whoever_has_it() -> None:
    checks = as_json.parse(as_json.render(report())).observations.checks
    one = checks["site.rank"]
    assert list(checks) == list(report().observations.checks)
    assert checks["site.node"] is checks["site.node"], "the last one stays"
    assert checks["site.rank"] is one, "and who has another has the same again"
    assert "site.else" not in checks
    assert checks.get("site.else") is None


def test_rows_that_say_the_same_share_it() -> None:
    read = as_json.parse(as_json.render(report()))
    told = {id(row.by_subject) for row in read.rows}
    assert len(told) == len({repr(row.by_subject) for row in read.rows})


def test_it_fits_the_schema_and_is_small() -> None:
    text = as_json.render(report())
    document = json.loads(text)
    assert [e.message for e in validator().iter_errors(document)] == []
    plain = sum(len(str(o)) for o in observations().checks["site.rank"].values())
    assert len(json.dumps(document["alike"])) < plain / 3
    groups = document["alike"]["site.rank"]
    largest = max(groups, key=lambda group: len(group["ranks"]))
    assert largest["but"]["/ok/said"] == "own name '{node}'"
    assert document["observations"]["site.few"].keys() == {"n000", "n001"}
    assert {"n005/10", "n005b/10", "/999"} <= document["observations"]["site.rank"].keys()
    status = {s["status"] for row in document["checks"] for s in row.get("by_status", ())}
    assert status == {"undecided"}


def test_what_is_read_is_packed() -> None:
    read = as_json.parse(as_json.render(report())).observations.checks
    kinds = {
        c: [type(o.value) for o in by.values() if isinstance(o, Seen)] for c, by in read.items()
    }
    assert kinds["site.node"].count(Packed) > NODES / 2
    assert kinds["site.rank"].count(Packed) > NODES
    packed = [o for o in read["site.rank"].values() if isinstance(o, Seen)]
    forms = {id(o.value.layout.form) for o in packed if isinstance(o.value, Packed)}
    assert len(forms) < 4, "what they have in common is kept once"


SHAPED: tuple[dict[str, Any], ...] = (
    {"/ok/by/#0": ["4", "5"]},
    {"/ok/by/#0": ["2", "5"]},
    {"/ok/by/#0": ["2", "2"], "/ok/by/#1": ["1", "2"]},
    {"/ok/by/#0": ["x", "5"]},
    {"/ok/by/#0": [4, 5]},
    {"/ok/by/=1": [[1], {"a": 2}]},
    {"/ok/by": [1, {}]},
    {"/ok/by/=0": [7, 8], "/ok/a": [[], "x"]},
    {"/ok/#a": ["one", "two"]},
    {"/ok/a": [1, True], "/seconds": [0.1, 0.2]},
    {"/ok/a": [0.0, -0.0]},
    {"/ok": ["x", {"y": 1}]},
)


@pytest.mark.parametrize("columns", SHAPED, ids=lambda c: json.dumps(c)[:50])
def test_what_has_another_shape_then_is_read_as_it_is(columns: dict[str, Any]) -> None:
    """Only where leaves alone differ a value may be packed: all others would be read wrongly."""
    first: dict[str, Any] = {"by": {"1": "a", "2": "b"}, "a": 0, "#a": 1}
    group = {"nodes": "0-1", "as": {"ok": first, "seconds": 1.0, "marks": []}, "but": columns}
    for place, (_, data) in enumerate(alike.unfolded(group, ["n0", "n1"])):
        wanted = json.loads(json.dumps(group["as"]))
        for pointer, values in columns.items():
            *steps, last = pointer.split("/")[1:]
            inner = wanted
            for step in steps:
                inner = inner[step]
            if last in ("#0", "#1") and "1" in first["by"]:
                names = list(first["by"])
                told = {"#0": [values[place], names[1]], "#1": [names[0], values[place]]}[last]
                told = [columns.get(f"/ok/by/#{n}", [told[n]] * 2)[place] for n in (0, 1)]
                steps_of = wanted["ok"]
                steps_of["by"] = dict(zip(map(str, told), first["by"].values(), strict=True))
            elif last in ("=0", "=1"):
                inner[list(inner)[int(last[1])]] = values[place]
            else:
                inner[last] = values[place]
        ok = data["ok"]
        assert repr({**data, "ok": plain(ok)}) == repr(wanted)
        if isinstance(ok, Packed):
            assert ok.flat() == flat(wanted["ok"])


def test_what_is_equal_is_one_object() -> None:
    nodes = tuple(Node(f"n{p:03}", ()) for p in range(NODES))
    same = {node.name: Seen({"a": [1, 2]}) for node in nodes}
    made = dataclasses.replace(
        observations(), checks={"site.same": same}, topology=Topology(nodes=nodes)
    )
    read = as_json.parse(as_json.render(verdict.judge(made, catalogue(), Expect())))
    values = {id(o) for o in read.observations.checks["site.same"].values()}
    assert len(values) == 1


def test_what_another_check_has_said_is_written_once() -> None:
    """UUIDs of GPUs: three checks speak of each, one of them by rank."""
    uuid = {(p, n): f"GPU-{p * 7919 % 1009:08x}-{n}" for p in range(NODES) for n in range(RANKS)}
    nodes = tuple(Node(f"n{p:03}", (p * RANKS, p * RANKS + 1)) for p in range(NODES))
    gpus = {n.name: [{"uuid": uuid[p, g]} for g in range(RANKS)] for p, n in enumerate(nodes)}
    seen = {
        "site.a/b~c": {name: Seen({"gpus": of}) for name, of in gpus.items()},
        "site.other": {name: Seen({"told": {"gpus": of}}) for name, of in gpus.items()},
        "site.rank": {
            f"n{p:03}/{p * RANKS + g}": Seen({"card": uuid[p, g], "own": str(p * g) * 9})
            for p, g in uuid
        },
        # one of them is another one's here: no column that is known
        "site.swapped": {
            name: Seen({"gpus": gpus["n000"] if name == "n007" else of})
            for name, of in gpus.items()
        },
    }
    base = dataclasses.replace(observations(), checks=seen, topology=Topology(nodes=nodes))
    made = verdict.judge(base, catalogue(), Expect())
    text = as_json.render(made)
    groups = json.loads(text)["alike"]
    first = ["/alike/site.a~1b~0c/0/but/~1ok~1gpus~10~1uuid"]
    second = ["/alike/site.a~1b~0c/0/but/~1ok~1gpus~11~1uuid"]
    assert groups["site.other"][0]["but"]["/ok/told/gpus/1/uuid"] == {"same": second}
    assert groups["site.rank"][0]["but"]["/ok/card"] == {"same": first + second}
    assert type(groups["site.swapped"][0]["but"]["/ok/gpus/0/uuid"]) is list
    assert [e.message for e in validator().iter_errors(json.loads(text))] == []
    assert as_json.parse(text).observations == made.observations
    assert as_json.render(as_json.parse(text)) == text


@pytest.mark.parametrize(
    "pointers",
    [
        [],
        ["/alike/site.node/0/but/~1ok~1number"] * 2,
        ["/alike/site.node/9/but/~1ok~1number"],
        ["/alike/site.node/-1/but/~1ok~1number"],
        ["/alike/site.new/0/but/~1ok~1n"],
        ["/alike/site.node/0/but"],
        ["/alike/site.node/0/as/ok"],
        ["/observations/site.node/0/but/x"],
        [7],
        [["/alike/site.node/0/but/~1ok~1number"]],
        "/alike/site.node/0/but/~1ok~1number",
        {"0": 1},
    ],
)
def test_a_column_that_is_nowhere_is_refused(pointers: Any) -> None:
    document = json.loads(as_json.render(report()))
    group = {"nodes": "0-199", "as": {"ok": {"n": 0}}, "but": {"/ok/n": {"same": pointers}}}
    document["alike"]["site.new"] = [group]
    with pytest.raises(PreflightError, match="not a report"):
        as_json.parse(json.dumps(document))


@pytest.mark.slow
def test_nothing_is_left_behind_for_the_collector() -> None:
    """It does not run while a report is made: whatever went in a circle would stay, some 60 kB of
    each node."""
    made = report()
    gc.collect()
    gc.disable()
    try:
        as_json.document(made)
        assert gc.collect() < NODES
    finally:
        gc.enable()


def test_numbers_of_many_are_folded() -> None:
    nodes = [Node(f"n{p:03}", (p,)) for p in range(NODES)]
    places = alike.Places(nodes)
    for data in (
        {"x": {f"n{p:03}/{p}": float(p) for p in range(NODES)}, "y": 1, "z": {"n001": 2}},
        {f"n{p:03}": 3 for p in range(NODES)},
        {f"n{p:03}": {"a": 1} for p in range(NODES)},
        {f"elsewhere{p}": 3 for p in range(NODES)},
        {"alike": [], "and": 1},
    ):
        folded = alike.numbers_folded(data, places)
        back = alike.numbers_unfolded(json.loads(json.dumps(folded)), places)
        assert (back, list(back)) == (data, list(data))


def test_numbers_of_many_are_folded_though_two_claim_the_same_ranks() -> None:
    twin = Node("twin", (3,))
    nodes = [*(Node(f"n{p:03}", (p,)) for p in range(NODES)), twin]
    places = alike.Places(nodes)
    data: dict[str, Any] = {f"{node.name}/{node.ranks[0]}": 1.5 for node in nodes}
    data = {key: data[key] for key in sorted(data, key=places.order)} | {"elsewhere/7": 2}
    folded = alike.numbers_folded(data, places)
    assert folded == {
        "alike": [
            {"ranks": f"0-2,4-{NODES - 1}", "value": 1.5},
            {"alone": {"n003/3": 1.5, "twin/3": 1.5, "elsewhere/7": 2}},
        ]
    }
    back = alike.numbers_unfolded(json.loads(json.dumps(folded)), places)
    assert (back, list(back)) == (data, list(data))


def test_two_that_claim_the_same_ranks_cost_no_column_of_the_others() -> None:
    """What a rank says of its GPU stands in what its node says of all: two checks, one column."""

    def gpu(place: int, number: int) -> str:
        return f"GPU-{place:08x}-{number:04x}"

    nodes = [Node(f"n{p:03}", (2 * p, 2 * p + 1)) for p in range(NODES)]
    nodes.insert(6, Node("n005b", nodes[5].ranks))
    by_node = {n.name: Seen({"gpus": [gpu(p, 0), gpu(p, 1)]}, 0.5) for p, n in enumerate(nodes)}
    by_rank = {
        f"{n.name}/{rank}": Seen({"card": gpu(p, number)}, 0.5)
        for p, n in enumerate(nodes)
        for number, rank in enumerate(n.ranks)
    }
    base = judged("healthy").observations
    topology = Topology("slurm", "1", NODES * 2, tuple(nodes))
    checks: dict[str, dict[str, Observation]] = {"site.node": {**by_node}, "site.rank": {**by_rank}}
    seen = dataclasses.replace(base, topology=topology, checks=checks)
    made = verdict.judge(seen, catalogue(), Expect())
    document = json.loads(as_json.render(made))
    ((_, column),) = document["alike"]["site.rank"][0]["but"].items()
    assert column.keys() == {"same"}
    assert document["observations"]["site.node"].keys() == {"n005", "n005b"}
    assert as_json.parse(as_json.render(made)).observations == seen


def test_where_all_claim_the_same_ranks_they_are_grouped_all_the_same() -> None:
    places = alike.Places([Node(f"n{p:03}", (0, 1)) for p in range(NODES)])
    assert places.number("n007") == ("nodes", 7)
    assert places.number("n007/1") is None


def test_what_is_drawn_of_very_many_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid("parts of 1", ("n001",), ("n002",), (Cell(0, 0, 1.0),), 1.0)
    made = report()
    rows = tuple(dataclasses.replace(r, measured=Measured("x", {}, grid)) for r in made.rows)
    made = dataclasses.replace(made, rows=rows)
    assert "grid" in json.loads(as_json.render(made))["checks"][0]
    monkeypatch.setattr(as_json, "DRAWN_NODES", NODES)
    row = json.loads(as_json.render(made))["checks"][0]
    assert ("grid" in row, row["text"]) == (False, "x")


HOSTILE: tuple[Any, ...] = (
    {"nodes": "0-99999999999", "as": {"ok": 1}},
    {"nodes": "0-3,2", "as": {"ok": 1}},
    {"nodes": "1-0", "as": {"ok": 1}},
    {"nodes": "x", "as": {"ok": 1}},
    {"nodes": "0-201", "as": {"ok": 1}},
    {"ranks": "500", "as": {"ok": 1}},
    {"ranks": "10", "as": {"ok": 1}},
    {"nodes": "0", "ranks": "0", "as": {"ok": 1}},
    {"nodes": 3, "as": {"ok": 1}},
    {"nodes": "0-1"},
    {"nodes": "0-1", "as": [1]},
    {"nodes": "0-1", "as": {"ok": 1}, "but": {"/ok": [1]}},
    {"nodes": "0-1", "as": {"ok": 1}, "but": {"/no": [1, 2]}},
    {"nodes": "0-1", "as": {"ok": [1]}, "but": {"/ok/1": [1, 2]}},
    {"nodes": "0-1", "as": {"ok": [1]}, "but": {"/ok/-1": [1, 2]}},
    {"nodes": "0-1", "as": {"ok": [1]}, "but": {"/ok": [1, 2], "/ok/0": [1, 2]}},
    {"nodes": "0-1", "as": {"ok": {"1": 2}}, "but": {"/ok/#7": ["1", "2"]}},
    {"nodes": "0-1", "as": {"ok": 1}, "but": {"": [1, 2]}},
    {"nodes": "0-1", "as": {"ok": 1}, "but": {"/ok": {"again": []}}},
    {"nodes": "0-1", "as": {"ok": 1}, "but": 3},
    {"nodes": "0-1", "as": {"seconds": 1}},
    "text",
    None,
)


@pytest.mark.parametrize("group", HOSTILE, ids=lambda g: json.dumps(g)[:50])
def test_what_makes_no_sense_is_refused_in_one_line(group: Any) -> None:
    document = json.loads(as_json.render(report()))
    document["alike"]["site.new"] = [group]
    with pytest.raises(PreflightError, match="not a report"):
        as_json.parse(json.dumps(document))


def test_nobody_is_told_twice() -> None:
    document = json.loads(as_json.render(report()))
    document["alike"]["site.node"].append({"nodes": "0", "as": {"ok": 1}})
    with pytest.raises(PreflightError, match="twice"):
        as_json.parse(json.dumps(document))


def test_a_small_text_can_not_ask_for_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "KEYS_MOST", 1000)
    document = json.loads(as_json.render(report()))
    for number in range(10):
        document["alike"][f"site.{number}"] = [{"nodes": "0-200", "as": {"ok": 1}}]
    with pytest.raises(PreflightError, match="too much"):
        as_json.parse(json.dumps(document))


def test_a_broken_group_never_raises_anything_else() -> None:
    """Random cuts through the text."""
    text = as_json.render(report())
    document = json.loads(text)
    dice = random.Random(7)
    for _ in range(60):
        broken = json.loads(json.dumps(document["alike"]))
        group = dice.choice(broken["site.rank"])
        name = dice.choice(list(group))
        group[name] = dice.choice((None, 1, "0", "9-1", [], {}, {"ok": []}, {"/ok/number": ["x"]}))
        try:
            as_json.parse(json.dumps({**document, "alike": broken}))
        except PreflightError:
            continue


def test_the_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(validator().schema)
