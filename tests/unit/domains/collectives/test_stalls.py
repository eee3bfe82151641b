"""stalls: the cause is named once, the symptoms of the others are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import world
from support.stalled_ranks import (
    CLOSED,
    INIT,
    KNOWN,
    QUIET,
    TIMED_OUT,
    Tried,
    about,
    both,
    died,
    fine,
    gave_up,
    marked,
    nodes,
    silent,
)

from preflight.domains.collectives.stalls import FINDINGS, diagnose
from preflight.domains.torch.steps import Trouble
from preflight.model import (
    Cause,
    Confidence,
    Finding,
    Kind,
    Mark,
    Missing,
    Observation,
    Seen,
    too_little_cpu,
)


def findings(*observations: Observation) -> list[Finding]:
    seen = {f"n1/{rank}": o for rank, o in enumerate(observations)}
    found = list(diagnose(world("world.gloo", seen), KNOWN))
    for finding in found:
        assert finding.saw
        assert finding.code in {*FINDINGS, *(s.code for s in KNOWN)}
    return found


def only(*observations: Observation) -> tuple[str, list[str], Confidence]:
    (finding,) = findings(*observations)
    return finding.code, [str(s) for s in finding.subjects], finding.confidence


def test_nothing_to_say() -> None:
    assert findings() == []
    assert findings(fine(), fine()) == []
    assert findings(silent(""), silent("")) == [], "nobody began: no evidence"


def test_our_own_bug_is_nobodys_fault() -> None:
    ours = died("store", "Traceback …\nTypeError: not ours to judge")
    assert findings(ours, gave_up("store init"), silent("store init")) == []


@pytest.mark.parametrize("why", ["interrupted by SIGINT", "the run's deadline of 90 s was over"])
def test_a_run_that_is_cut_short_is_no_evidence(why: str) -> None:
    cut = Missing(Cause.INTERRUPTED, why, 3.0, marked("store"))
    assert findings(cut, cut, gave_up("store init")) == []


def test_a_rank_that_had_no_cpu_is_no_evidence() -> None:
    late = Missing(Cause.CANNOT_OBSERVE, too_little_cpu(9.0, 10.0), 10.0, marked("store"))
    assert findings(late, gave_up("store init"), gave_up("store init")) == []


def test_a_rank_that_can_not_be_killed() -> None:
    undead = Missing(Cause.UNKILLABLE, "pid 7 can't be killed: state D", 6.0, marked("store"))
    (finding,) = findings(fine(), undead, fine())
    assert finding.saw.endswith("2 ranks got through · pid 7 can't be killed: state D")


def test_a_dead_rank_explains_the_closed_connections() -> None:
    code, who, sure = only(gave_up("store init", CLOSED), died("store init"), silent("store init"))
    assert (code, who, sure) == ("rank-died", ["n1 · rank 1"], Confidence.CERTAIN)


def test_an_error_of_its_own() -> None:
    own = gave_up("store init", "out of cheese")
    assert only(gave_up("store init"), own)[:2] == ("rank-failed", ["n1 · rank 1"])


def test_the_one_that_did_not_come() -> None:
    code, who, sure = only(gave_up("store"), gave_up("store init"), silent(""), silent("store"))
    assert (code, who, sure) == ("rank-silent", ["n1 · rank 2"], Confidence.LIKELY)


def test_the_one_that_stayed_behind_those_who_are_through() -> None:
    (finding,) = findings(fine(), silent("store init"), fine())
    assert finding.code == "rank-silent"
    assert finding.saw == "rank 1 never came back from 'init'; 2 ranks got through"


def test_silent_where_the_others_complain() -> None:
    steps = "store init sum"
    assert only(gave_up(steps), gave_up(steps), silent(steps))[:2] == (
        "rank-silent",
        ["n1 · rank 2"],
    )


def test_silence_while_connecting_is_no_sign() -> None:
    seen = {
        f"n1/{rank}": o
        for rank, o in enumerate(
            (gave_up("init_process_group"),) * 2 + (silent("init_process_group"),)
        )
    }
    (finding,) = diagnose(world("world.gloo", seen), KNOWN)
    assert finding.code == "stuck"
    assert finding.subjects[0].kind is Kind.JOB
    assert finding.alternatives


def test_the_store_says_whose_address_is_missing() -> None:
    heard = "wait timeout after 7500ms, keys: /default_pg/0//cpu//0/3"
    steps = "TCPStore init_process_group"
    complaint = gave_up(steps, heard)
    found = only(complaint, complaint, silent(steps), silent(steps))
    assert found == ("rank-silent", ["n1 · rank 3"], Confidence.LIKELY)
    assert only(complaint, silent(steps), gave_up(steps), gave_up(steps))[0] == "stuck"


def test_who_complains_is_not_late() -> None:
    # the store's server waits for its last client, which is the culprit, and says so
    server = gave_up("TCPStore", "Timed out after 8 seconds waiting for clients. 3/4 joined")
    on = gave_up("TCPStore init_process_group")
    found = only(server, on, silent("TCPStore"), on)
    assert found == ("rank-silent", ["n1 · rank 2"], Confidence.LIKELY)


def test_a_symptom_counts_when_all_are_there() -> None:
    refused = gave_up("store", "connection refused")
    assert only(refused, refused, refused)[:1] == ("unreachable",)


def test_a_symptom_is_one_when_a_rank_is_missing() -> None:
    refused = gave_up("store", "connection refused")
    assert only(silent(""), refused, refused)[:2] == ("rank-silent", ["n1 · rank 0"])


def test_all_wait_at_the_same_place() -> None:
    code, who, sure = only(silent("store init"), silent("store init"))
    assert (code, who, sure) == ("stuck", ["job"], Confidence.POSSIBLE)


@given(st.data())
def test_no_innocent_is_named(data: st.DataObject) -> None:
    """One rank stops before or in a step that all wait for, by silence, death or an error."""
    names = ("TCPStore", "init_process_group", "sum 4 B", "sum 1 MiB")
    n = data.draw(st.integers(3, 8))
    culprit = data.draw(st.integers(0, n - 1))
    waits_at = data.draw(st.integers(1, len(names)))
    came = waits_at - data.draw(st.integers(0, 1))

    def at(count: int) -> tuple[Mark, ...]:
        return tuple(Mark(name, 0.0) for name in names[:count])

    def innocent() -> Observation:
        text = data.draw(st.sampled_from((TIMED_OUT, CLOSED)))
        speaks = data.draw(st.booleans()) or waits_at > 2  # in a collective all come back
        trouble = Trouble(names[waits_at - 1], "RuntimeError", text)
        return Seen(Tried(trouble), 1.0, at(waits_at)) if speaks else silent_at(waits_at)

    def silent_at(count: int) -> Missing:
        return Missing(Cause.TIMED_OUT, "killed", 5.0, at(count))

    guilty: Observation = data.draw(
        st.sampled_from(
            (
                silent_at(came),
                Missing(Cause.CRASHED, "killed by SIGKILL", 1.0, at(came)),
                Seen(Tried(Trouble("x", "RuntimeError", "its own error")), 1.0, at(came)),
            )
        )
    )
    seen = {f"n1/{r}": guilty if r == culprit else innocent() for r in range(n)}
    (finding,) = diagnose(world("world.gloo", seen), KNOWN)
    named = {s.ranks for s in finding.subjects if s.kind is Kind.RANK}
    assert named in ({(culprit,)}, set())
    if not named:
        assert finding.confidence is Confidence.POSSIBLE


# --- several nodes, of two ranks each ---


def test_a_rank_is_named_with_its_node() -> None:
    finding = nodes(both(fine()), (fine(), silent("store")), both(fine()))
    assert about(finding) == ["n2 · rank 3"]
    assert finding.saw.startswith("rank 3 on n2 never came back from 'store'")
    assert (finding.confidence, finding.alternatives) == (Confidence.LIKELY, ())


def test_all_ranks_of_a_node_are_one_finding() -> None:
    finding = nodes(both(fine()), both(fine()), both(silent("store")))
    assert about(finding) == ["n3 · rank 4", "n3 · rank 5"]
    assert finding.saw.startswith("all 2 ranks of n3 never came back from 'store'")
    assert finding.confidence is Confidence.LIKELY
    assert "n3" in finding.alternatives[0], "it may be its network"
    finding = nodes(both(fine()), both(died("store")), both(gave_up("store", CLOSED)))
    assert finding.saw == "all 2 ranks of n2 killed by SIGSEGV in 'store'"
    assert finding.confidence is Confidence.CERTAIN


def test_of_two_nodes_neither_is_the_majority() -> None:
    finding = nodes(both(gave_up(INIT)), both(silent("TCPStore")))
    assert about(finding) == ["n2 · rank 2", "n2 · rank 3"]
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.alternatives
    # who did not even begin is late, whatever the network does
    finding = nodes(both(gave_up(INIT)), (silent(""), gave_up(INIT)))
    assert (about(finding), finding.confidence) == (["n2 · rank 2"], Confidence.LIKELY)


def test_two_nodes_that_are_silent_while_they_connect_may_miss_each_other() -> None:
    on = both(gave_up("TCPStore init_process_group sum"))
    finding = nodes(on, both(silent(INIT)), both(silent(INIT)), on, on, on)
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.saw.startswith("all ranks of n2, n3 did not come to 'sum'")
    assert "can't reach each other" in finding.alternatives[0]


def test_an_agent_that_left_in_the_middle() -> None:
    gone = Missing(Cause.BLOCKED, "it closed the connection", by="rdzv.reach")
    finding = nodes(both(gave_up(INIT, CLOSED)), both(gone), both(gave_up(INIT)))
    assert (finding.code, about(finding)) == ("rank-silent", ["n2 · rank 2", "n2 · rank 3"])
    assert "it closed the connection" in finding.saw
    blocked = {f"n1/{r}": Missing(Cause.BLOCKED, by="rdzv.reach") for r in range(2)}
    assert list(diagnose(world("world.gloo", blocked), KNOWN)) == []


def test_when_all_are_stuck_the_edges_are_an_alternative() -> None:
    finding = nodes(QUIET, QUIET)
    assert (finding.code, about(finding)) == ("stuck", ["job"])
    edges, scale = finding.alternatives[:2]
    assert "net.mesh and net.payload name them" in edges
    assert "with all ranks at once, if net.mesh passed" in scale
    finding = nodes(both(fine(INIT)), both(fine(INIT)), both(gave_up(INIT)))
    assert (finding.code, about(finding)) == ("stuck", ["n3 · rank 4", "n3 · rank 5"])


@given(st.data())
def test_no_innocent_node_is_named_for_sure(data: st.DataObject) -> None:
    """One edge is dropped: both its ends are silent while they connect, all others complain later
    or got through."""
    n = data.draw(st.integers(3, 6))
    guilty = data.draw(st.sets(st.integers(0, n - 1), min_size=2, max_size=2))
    kinds: tuple[Observation, ...] = (fine(INIT), gave_up(INIT + " sum"), silent(INIT))
    others = data.draw(st.sampled_from(kinds))
    seen = [QUIET if i in guilty else both(others) for i in range(n)]
    finding = nodes(*seen)
    named = {s.node for s in finding.subjects if s.node}
    assert named <= {f"n{i + 1}" for i in guilty}
    assert finding.confidence is Confidence.POSSIBLE
