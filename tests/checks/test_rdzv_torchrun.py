"""rdzv.torchrun: who would open c10d's store, and whether the name that it advertises is of use; a
world that may not use torchrun at all hears of it as a warning only."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from support.cases import Case, assert_case, context, judged, round_trips, topology

from preflight.check import conforms
from preflight.checks import rdzv_torchrun
from preflight.checks.rdzv_torchrun import C10D, INSIDE, STATIC, UNKNOWN, Handed, Hosting
from preflight.domains.net.dns import NO_ANSWER, Lookup
from preflight.host import Host
from preflight.identity.discover import discover
from preflight.identity.launcher_options import as_variables
from preflight.model import (
    CannotObserve,
    Cause,
    Confidence,
    Missing,
    Node,
    NotApplicable,
    Status,
    Topology,
)

conforms(rdzv_torchrun)

NONAME = "EAI_NONAME"


def nodes(count: int) -> Topology:
    return topology(count, nodes=tuple(Node(f"n{i + 1}", (i,)) for i in range(count)))


def ip(number: int) -> str:
    return f"10.0.0.{number + 1}"


def first(*found: str, error: str = "", number: int = 0) -> Handed:
    return Handed(number, Lookup(f"h{number + 1}.lab", found, error))


def world(count: int, use: str = UNKNOWN, **odd: Any) -> dict[str, Any]:
    """n1 hosts h1 and advertises h1.lab. `odd`: n2={field: value}, or every={…}."""
    made = {}
    for i in range(count):
        planned = use in (C10D, STATIC)
        one = Hosting(
            use=use,
            endpoint="h1",
            port="29400" if planned else "",
            source="PET_RDZV_ENDPOINT" if planned else "MASTER_ADDR",
            hosts=i == 0,
            why="its hostname" if i == 0 else "",
            name=f"h{i + 1}",
            addresses=(ip(i),),
            handed=first(ip(0)),
            run_id="7" if planned else "",
            nnodes=f"{count}:{count}" if planned else "",
        )
        changes = odd.get("every", {}) | odd.get(f"n{i + 1}", {})
        made[f"n{i + 1}"] = dataclasses.replace(one, **changes)
    return made


def inside(*ids: str) -> dict[str, Any]:
    return {f"n{i + 1}": Hosting(INSIDE, run_id=run_id) for i, run_id in enumerate(ids)}


def case(name: str, seen: dict[str, Any], *rest: Any, **more: Any) -> Case:
    return Case(name, seen, *rest, topology=nodes(len(seen)), **more)


NOT = {"hosts": False, "why": ""}
BY_NAME = {"hosts": True, "why": "its hostname"}
LOOP = {"hosts": True, "why": "the loopback", "endpoint": "localhost"}
LOST = {"handed": first(error=NONAME)}
UNANSWERED = {"handed": first(error="EAI_AGAIN")}
STOPS = {"hosts": False, "stops": NONAME}

CASES = (
    case("two nodes", world(2)),
    case("four nodes, c10d", world(4, C10D)),
    case("a static rendezvous", world(2, STATIC)),
    case("inside torchrun", inside("7", "7", "7")),
    case("n1 knows itself by the loopback", world(3, C10D, n1={"handed": first("127.0.1.1")})),
    case("a look-up without an answer", world(3, C10D, every=NOT, n2={"hosts": None})),
    case("a silent resolver", world(2, C10D, n2={"handed": first(error=NO_ANSWER)})),
    case("nobody heard a name", world(2, C10D, every={"handed": None})),
    case("no c10d, and nodes don't know each other's names", world(3, every=LOST)),
    case("no c10d, and MASTER_ADDR is on a second interface", world(2, every=NOT)),
    case("no c10d, and MASTER_ADDR=localhost", world(2, every=LOOP)),
    case("no c10d, and the own name is unknown", world(3, n3=STOPS)),
    case("some have a plan in variables", world(2, C10D) | {"n2": world(2)["n2"]}),
    case("a single agent's part", world(1, C10D, every=NOT)),
    Case("one is not there", world(2, C10D, every=NOT), topology=nodes(3)),
    case("not looked", dict.fromkeys(("n1", "n2"), Missing(Cause.CANNOT_OBSERVE))),
    case(
        "nobody",
        world(4, C10D, every=NOT),
        "store-host-missing",
        Status.FAIL,
        subject="n1 · PET_RDZV_ENDPOINT",
    ),
    case(
        "an address of a second interface",
        world(3, C10D, every=NOT | {"endpoint": "10.9.0.2"}, n2={"addresses": (ip(1), "10.9.0.2")}),
        "store-host-missing",
        Status.FAIL,
        subject="n2 · PET_RDZV_ENDPOINT",
    ),
    case(
        "two of one name",
        world(3, C10D, n3=BY_NAME),
        "store-host-duplicate",
        Status.FAIL,
        subject="n1",
    ),
    case("localhost", world(2, C10D, every=LOOP), "store-host-duplicate", Status.FAIL),
    case(
        "the own name is unknown",
        world(3, C10D, n3=STOPS),
        "hostname-unknown",
        Status.FAIL,
        subject="n3",
    ),
    case(
        "a full name that is nowhere",
        world(3, C10D, n2=LOST, n3=LOST),
        "advertised-name-unusable",
        Status.FAIL,
        subject="n1",
    ),
    case(
        "a full name that no name server tells the others",
        world(3, C10D, n2=UNANSWERED, n3=UNANSWERED),
        "advertised-name-unusable",
        Status.WARN,
        subject="n1",
    ),
    case(
        "a full name that one lacks",
        world(4, C10D, n3=LOST),
        "advertised-name-unusable",
        Status.FAIL,
        subject="n3",
    ),
    case(
        "a full name that is the loopback elsewhere",
        world(3, C10D, every={"handed": first("127.0.0.1")}),
        "advertised-name-unusable",
        Status.FAIL,
        subject="n1",
    ),
    case(
        "--local-addr=127.0.0.1 on all nodes",
        world(3, C10D, every={"handed": Handed(0, Lookup("127.0.0.1", ("127.0.0.1",), ""))}),
        "advertised-loopback",
        Status.FAIL,
        subject="n1 · PET_LOCAL_ADDR",
    ),
    case(
        "another machine's address",
        world(4, C10D, n4={"handed": first("10.9.9.9")}),
        "advertised-name-unusable",
        Status.FAIL,
        subject="n4",
    ),
    case(
        "a full name, two nodes", world(2, C10D, n2=LOST), "advertised-name-unusable", Status.FAIL
    ),
    case("other ids", world(3, C10D, n2={"run_id": "8"}), "rendezvous-differs", Status.FAIL),
    case("other ids, static", world(2, STATIC, n2={"run_id": "none"}), "rendezvous-differs"),
    case(
        "other ids, inside",
        inside("7", "7", "8"),
        "rendezvous-differs",
        subject="n3 · TORCHELASTIC_RUN_ID",
    ),
    case(
        "other counts",
        world(3, STATIC, n3={"nnodes": "4:4"}),
        "rendezvous-differs",
        Status.FAIL,
        subject="n3 · PET_NNODES",
    ),
    case(
        "another backend on one node",
        world(3, C10D, every={"backend": "c10d"}, n3={"use": STATIC, "backend": "static"}),
        "rendezvous-differs",
        Status.FAIL,
        subject="n3 · PET_RDZV_BACKEND",
    ),
    case(
        "a backend that one node's command line names",
        world(3, C10D, every={"backend": "c10d"}, n3={"backend": ""}),
    ),
    case("other ports", world(3, C10D, n1={"port": "29500"}), "rendezvous-differs"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(rdzv_torchrun, case)


def one(seen: dict[str, Any]) -> Any:
    (finding,) = judged(rdzv_torchrun, case("", seen))
    return finding


def test_of_two_ids_neither_is_the_odd_one() -> None:
    finding = one(world(2, C10D, n2={"run_id": "8"}))
    assert finding.confidence is Confidence.POSSIBLE
    assert {s.node for s in finding.subjects} == {"n1", "n2"}
    assert len(finding.alternatives) == 2


def test_of_three_the_odd_one_is_named() -> None:
    finding = one(world(3, C10D, n2={"run_id": "8"}))
    assert finding.confidence is Confidence.LIKELY
    assert [s.node for s in finding.subjects] == ["n2"]
    assert "'8' on n2" in finding.saw


def test_a_name_unknown_to_the_only_other_node_may_be_its_or_the_others_fault() -> None:
    finding = one(world(2, C10D, n2=LOST))
    assert finding.confidence is Confidence.POSSIBLE
    assert [s.node for s in finding.subjects] == ["n1", "n2"]
    assert len(finding.alternatives) == 2


def test_what_ends_the_rendezvous_explains_what_comes_after_it() -> None:
    assert one(world(2, C10D, every=NOT)).explains == rdzv_torchrun.CHECK.explains
    # agree.names says it of the same name
    assert set(rdzv_torchrun.CHECK.explains) < set(one(world(3, C10D, n3=LOST)).explains)


@pytest.mark.parametrize("number", [-1, 2, 1 << 40])
def test_a_number_out_of_range_accuses_nobody(number: int) -> None:
    handed = {"handed": first(error=NONAME, number=number)}
    assert not judged(rdzv_torchrun, case("", world(2, C10D, every=handed)))


# --- observe ---


class Room:
    """A meeting of observers in threads of one process."""

    def __init__(self) -> None:
        self.heard: dict[str, dict[int, Any]] = {}
        self.changed = threading.Condition()

    def seat(self, rank: int) -> Seat:
        return Seat(self, rank)


class Seat:
    def __init__(self, room: Room, rank: int) -> None:
        self.room, self.rank = room, rank

    def say(self, topic: str, value: Any = None, to: Sequence[int] | None = None) -> None:
        with self.room.changed:
            self.room.heard.setdefault(topic, {})[self.rank] = value
            self.room.changed.notify_all()

    def hear(self, topic: str, count: int, seconds: float) -> Mapping[int, Any]:
        with self.room.changed:
            self.room.changed.wait_for(
                lambda: len(self.room.heard.get(topic, {})) >= count, seconds
            )
            return dict(self.room.heard.get(topic, {}))


HERE = topology(2, nodes=(Node("n1", (0,)),))


def met(*environs: Mapping[str, str]) -> dict[int, Hosting]:
    """What observers with these environments see, all on this machine."""
    room, seen = Room(), dict[int, Hosting]()

    def run(rank: int, environ: Mapping[str, str]) -> None:
        ctx = context(
            topology=HERE,
            peers=room.seat(rank),
            rank=rank,
            world_size=len(environs),
            seconds=8.0,
            master_addr="localhost",
        )
        seen[rank] = rdzv_torchrun.observe(Host(environ=environ), ctx)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(environs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return seen


def test_the_first_name_in_the_alphabet_is_handed_out() -> None:
    plan = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "localhost:29500", "PET_NNODES": "2"}
    seen = met(plan | {"PET_LOCAL_ADDR": "zzz.invalid"}, plan | {"PET_LOCAL_ADDR": "127.0.0.1"})
    for rank in (0, 1):
        handed = seen[rank].handed
        assert handed is not None
        assert (handed.number, handed.seen.name, handed.seen.error) == (1, "127.0.0.1", "")
        assert seen[rank].hosts is True
        assert (seen[rank].port, seen[rank].nnodes, seen[rank].run_id) == ("29500", "2:2", "none")
        round_trips(seen[rank])


def test_without_a_plan_it_is_master_addr_that_counts() -> None:
    seen = met({}, {"MASTER_ADDR": "no-such-host.invalid"})
    assert (seen[0].use, seen[0].endpoint, seen[0].hosts) == (UNKNOWN, "localhost", True)
    assert (seen[1].endpoint, seen[1].hosts) == ("no-such-host.invalid", False)
    assert seen[0].run_id == seen[0].nnodes == ""


def test_what_is_said_is_not_trusted() -> None:
    for said in (None, 7, ["x"], [0, 7], ["0", "h1"], [0, "a b"], {"a": 1}, [0, "x" * 9000]):
        room = Room()
        room.seat(0).say("first", said)
        ctx = context(topology=HERE, peers=room.seat(1), rank=1, world_size=2, seconds=8.0)
        assert rdzv_torchrun.observe(Host(environ={}), ctx).handed is None


def test_a_first_node_that_says_nothing_costs_no_more_than_its_time() -> None:
    ctx = context(topology=HERE, peers=Room().seat(1), rank=1, world_size=2, seconds=8.0)
    began = time.monotonic()
    assert rdzv_torchrun.observe(Host(environ={}), ctx).handed is None
    assert time.monotonic() - began < 7.3


@pytest.mark.parametrize(
    ("environ", "use"),
    [
        ({"TORCHELASTIC_RUN_ID": "7", "RANK": "0", "PET_RDZV_BACKEND": "c10d"}, INSIDE),
        ({"PET_NNODES": "2"}, STATIC),
        ({"PET_RDZV_BACKEND": "static", "PET_RDZV_ID": "7"}, STATIC),
    ],
)
def test_where_no_name_is_compared_none_is_looked_up(environ: Mapping[str, str], use: str) -> None:
    seen = met(environ, environ)[1]
    assert (seen.use, seen.handed, seen.name) == (use, None, "")


def test_of_a_command_that_is_known_the_default_backend_is_known_too() -> None:
    words = ["torchrun", "--nnodes=2", "--node-rank=1", "--rdzv-endpoint=n1:29500", "a.py"]
    environ = as_variables(words, {})
    seen = met(environ, environ)[1]
    assert (seen.use, seen.backend) == (STATIC, "static")
    assert seen.typed["PET_RDZV_BACKEND"] == "--rdzv-backend"
    assert met({"PET_NNODES": "2"}, {"PET_NNODES": "2"})[1].backend == ""


def test_a_process_a_rank_is_no_torchrun() -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "n1"}
    top = discover(environ, "n1")
    with pytest.raises(NotApplicable):
        rdzv_torchrun.observe(Host(environ={}), context(topology=top))


def test_one_agent_a_node_may_be_followed_by_torchrun() -> None:
    top = discover({"MASTER_ADDR": "localhost"}, "n1", nproc=1, nodes=2, node_rank=0)
    top = dataclasses.replace(
        top, nodes=(dataclasses.replace(top.nodes[0], size=1),)
    )  # as it is after the meeting
    ctx = context(topology=top, peers=Room().seat(0), rank=0, world_size=1, seconds=8.0)
    assert rdzv_torchrun.observe(Host(environ={}), ctx).use == UNKNOWN


def test_a_copied_tree_has_no_resolver(tmp_path: Any) -> None:
    with pytest.raises(CannotObserve):
        rdzv_torchrun.observe(Host(str(tmp_path), {}), context(topology=HERE))
