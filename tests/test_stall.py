"""stall: the cause is named once, the symptoms of the others are not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import world

from preflight.knowledge.group import Trouble
from preflight.knowledge.stall import ADVICE, Signature, stalls
from preflight.model import Cause, Confidence, Finding, Kind, Mark, Missing, Observation, Seen

TIMED_OUT = "Timed out waiting 14000ms for recv operation to complete"
CLOSED = "Connection closed by peer [10.1.2.3]:4567. This is typically caused by a remote worker"
KNOWN = (
    Signature("no such port", "port-taken"),
    Signature("refused", "unreachable", symptom=True),
)


@dataclass(frozen=True, slots=True)
class Tried:
    trouble: Trouble | None = None


def marked(steps: str) -> tuple[Mark, ...]:
    return tuple(Mark(name, 0.0) for name in steps.split())


def fine(steps: str = "store init sum") -> Seen[Tried]:
    return Seen(Tried(), 1.0, marked(steps))


def gave_up(steps: str, text: str = TIMED_OUT) -> Seen[Tried]:
    return Seen(Tried(Trouble(steps.split()[-1], "RuntimeError", text)), 1.0, marked(steps))


def silent(steps: str) -> Missing:
    return Missing(Cause.TIMED_OUT, "no answer in 5.0 s, killed", 5.0, marked(steps))


def died(steps: str, detail: str = "Fatal Python error\nkilled by SIGSEGV") -> Missing:
    return Missing(Cause.CRASHED, detail, 1.0, marked(steps))


def findings(*observations: Observation) -> list[Finding]:
    seen = {f"n1/{rank}": o for rank, o in enumerate(observations)}
    found = list(stalls(world("world.gloo", seen), KNOWN))
    for finding in found:
        assert finding.saw
        assert finding.code in {*ADVICE, *(s.code for s in KNOWN)}
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
    (finding,) = stalls(world("world.gloo", seen), KNOWN)
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
    (finding,) = stalls(world("world.gloo", seen), KNOWN)
    named = {s.ranks for s in finding.subjects if s.kind is Kind.RANK}
    assert named in ({(culprit,)}, set())
    if not named:
        assert finding.confidence is Confidence.POSSIBLE
