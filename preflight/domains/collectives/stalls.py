"""Why ranks that work together did not get through: from what each of them saw, said and marked.

Pure. Shared by the checks whose observation may end in `trouble`: the cause is named once, what the
other ranks suffered from it is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from preflight import humanize
from preflight.domains.collectives import gloo_unreachable
from preflight.domains.torch.steps import Trouble
from preflight.frozen import dataclass
from preflight.humanize import plural
from preflight.inference import late
from preflight.model import (
    Blame,
    Cause,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Mark,
    Missing,
    Seen,
    Subject,
    World,
    place_of,
)


class Tried(Protocol):
    """An observation that may have ended in trouble."""

    @property
    def trouble(self) -> Trouble | None: ...


T = TypeVar("T", bound=Tried)


@dataclass(frozen=True, slots=True)
class Signature:
    """A text of torch, Gloo or NCCL that tells the cause: a regular expression and the finding's
    code. `symptom`: the same text comes when another rank is missing, so it only counts when all
    ranks are there; `job`: it is no single rank's affair; `remote`: it names the address of a peer
    that could not be dialled, which says more than who complains or is silent."""

    pattern: str
    code: str
    expected: str = ""
    blame: Blame | None = None
    symptom: bool = False
    job: bool = False
    remote: bool = False


GLOO_UNREACHABLE = Signature(
    r"remote=\[",
    "gloo-unreachable",
    "an address that the other ranks can reach",
    Blame.UNKNOWN,
    symptom=True,
    remote=True,
)

COMPLAINT = (
    r"(?i)tim(ed|e) ?out|clients joined|connection (was likely )?(closed|reset|refused)|"
    r"closed by peer|broken pipe|failed to (recv|pass)|read error|remote process exited|"
    r"exceeded error retry"
)
"""What a rank says that waits for another one, or has lost it."""

DIALLING = ("TCPStore", "init_process_group")
"""Steps in which an innocent rank is silent too: of two that connect, only one dials."""

UNWRITTEN = re.compile(r"keys: \S*/(\d+)(?![\w/])")
"""The store names the key that was waited for in vain. Gloo's end in the number of the rank that
did not write its address there."""

THROUGH = "through"

MEETING = "rdzv.reach"
"""It blocks the observations of an agent whose connection to the meeting broke."""

FINDINGS = {
    "rank-died": FindingType(
        headline="{seen}",
        who="job author",
        cause="a crash in torch or a library that it uses; with SIGKILL, the kernel's OOM killer",
        means="the other ranks say 'Connection closed by peer' or wait until their timeout",
        text="read the last output of that rank (-v shows it); use the same torch and libraries "
        "on every rank; after SIGKILL request more memory for the job",
        commands=(Command("dmesg -T | tail -n 20", "the node"),),
        blame=Blame.UNKNOWN,
    ),
    "rank-silent": FindingType(
        headline="{seen}",
        who="job author",
        cause="a process that is stopped, swapping, or hanging in a driver or a dead file system; "
        "a node that went down",
        means="the other ranks wait for it silently until they time out",
        text="look at what that rank did: -v shows its stack; exclude its GPU or its node if it "
        "happens again",
        blame=Blame.UNKNOWN,
    ),
    "rank-failed": FindingType(
        headline="{seen}",
        who="job author",
        cause="something specific to this rank: its environment, its device, its memory",
        means="that rank fails with the error above; the other ranks wait until they time out",
        text="look at the step in which it failed, the last mark of that rank: -v shows it",
        blame=Blame.UNKNOWN,
    ),
    "stuck": FindingType(
        headline="the ranks hang: {seen}",
        who="job author, then network administrator",
        cause="packets dropped between the ranks",
        means="'Timed out waiting …ms for recv operation to complete', or no message at all",
        text="set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface that reaches the "
        "other ranks; if small messages pass and large ones hang, compare the MTUs on the path; "
        "otherwise look for a firewall between the ranks",
        blame=Blame.UNKNOWN,
    ),
}
"""What every check that trains together can find."""


SILENT = (Cause.TIMED_OUT, Cause.UNKILLABLE)


def diagnose(world: World[T], signatures: Collection[Signature]) -> Iterator[Found]:
    """What kept the ranks from getting through; nothing when they did, or when we ourselves failed
    in one of them or were interrupted, which is no evidence against anybody.

    In this order: a text that tells the cause, a rank that died, one whose agent is gone, one with
    an error of its own, an address that could not be dialled, a rank that did not come to the step
    at which others wait, one that is silent where others complain, a text that is a symptom
    elsewhere; else it can't be told.
    """
    ended = world.missing(*SILENT, Cause.CRASHED)
    if not ended and all(value.trouble is None for value in world.distinct):
        return  # also where a hundred thousand ranks are blocked
    stall = _Stall(world)
    if stall.no_evidence or not (stall.troubles or stall.silent or stall.died):
        return
    for signature in signatures:
        keys = stall.said(signature.pattern)
        if keys and not signature.symptom:
            yield stall.signed(signature, keys, Confidence.CERTAIN)
            return
    if stall.died:
        yield stall.rank_died()
        return
    if stall.gone:
        yield stall.node_gone()
        return
    symptoms = [COMPLAINT, *(s.pattern for s in signatures if s.symptom)]
    own = [k for k, t in stall.troubles.items() if not any(re.search(p, t.text) for p in symptoms)]
    if own:
        yield stall.rank_failed(own)
        return
    for signature in signatures:
        if signature.remote and (unreached := stall.unreached(signature)) is not None:
            yield unreached
            return
    held_up = stall.late()
    if held_up is not None:
        yield held_up
        return
    for signature in signatures:
        if keys := stall.said(signature.pattern):
            yield stall.signed(signature, keys, Confidence.LIKELY)
            return
    if (nobody_knows := stall.stuck()) is not None:
        yield nobody_knows


class _Stall:
    """A world that did not get through."""

    def __init__(self, world: World[Any]) -> None:
        self.world = world
        self.troubles: dict[str, Trouble] = {
            k: v.trouble for k, v in world.seen.items() if v.trouble is not None
        }
        self.silent = world.missing(*SILENT)
        # an agent that left in the middle; where nothing was begun all are blocked, silently
        self.gone = {
            k: m for k, m in world.missing(Cause.BLOCKED).items() if m.by == MEETING and m.detail
        }
        crashed = world.missing(Cause.CRASHED)
        self.died = {k: m for k, m in crashed.items() if _fate(m)}
        self.no_evidence = len(self.died) < len(crashed) or bool(world.missing(Cause.INTERRUPTED))
        # the others complain of one that would have gone on, had there been a CPU for it
        late = world.missing(Cause.CANNOT_OBSERVE).values()
        self.no_evidence = self.no_evidence or any(m.starved for m in late)
        self.marks = {
            k: (*o.marks, Mark(THROUGH, o.seconds)) if self._through(k, o) else o.marks
            for k, o in world.observations.items()
            if isinstance(o, Seen) or k in self.silent or k in self.died
        }

    def _through(self, key: str, observation: object) -> bool:
        return isinstance(observation, Seen) and key not in self.troubles

    def said(self, pattern: str) -> list[str]:
        return [k for k, t in self.troubles.items() if re.search(pattern, t.text)]

    def who(self, keys: Iterable[str]) -> str:
        return humanize.ranks_of(self.world, keys)

    def quoted(self, key: str) -> str:
        return f"{self.who([key])} in '{self.troubles[key].step}': {self.troubles[key].text}"

    def finding(self, code: str, keys: Iterable[str], saw: str, confidence: Confidence) -> Found:
        return Found(
            code,
            tuple(self.world.subject(k) for k in keys) or (Subject(Kind.JOB),),
            saw=saw,
            confidence=confidence,
        )

    def signed(self, signature: Signature, keys: list[str], confidence: Confidence) -> Found:
        saw = self.quoted(keys[0]) + self._and_more(keys)
        made = self.finding(signature.code, [] if signature.job else keys, saw, confidence)
        return made.with_(blame=signature.blame, expected=signature.expected)

    def _and_more(self, keys: list[str]) -> str:
        """Who says the same."""
        if len(keys) < 2:
            return ""
        if humanize.several(self.world):
            return f" · so {self.who(keys)}"
        return f" · and {plural(len(keys) - 1, 'more rank')}"

    def rank_died(self) -> Found:
        fates: dict[str, list[str]] = {}
        for key, missing in self.died.items():
            fates.setdefault(_fate(missing), []).append(key)
        missing = next(iter(self.died.values()))
        where = f" in '{missing.last_mark}'" if missing.last_mark else ""
        saw = " · ".join(f"{self.who(keys)} {fate}" for fate, keys in list(fates.items())[:4])
        return self.finding("rank-died", self.died, saw + where, Confidence.CERTAIN)

    def node_gone(self) -> Found:
        missing = next(iter(self.gone.values()))
        are = "is" if len(self.gone) == 1 else "are"
        saw = f"{self.who(self.gone)} {are} gone from the meeting: {missing.detail[:200]}"
        made = self.finding("rank-silent", self.gone, saw, Confidence.LIKELY)
        return self._or_the_network(made, list(self.gone))

    def rank_failed(self, keys: list[str]) -> Found:
        text = self.troubles[keys[0]].text
        same = [k for k in keys if self.troubles[k].text == text]
        saw = self.quoted(keys[0]) + (f" · {len(same)} ranks say so" if len(same) > 1 else "")
        return self.finding("rank-failed", keys, saw, Confidence.LIKELY)

    def unreached(self, signature: Signature) -> Found | None:
        """A finding about who has the addresses in the complaints; one node has one address."""
        keys = self.said(signature.pattern) if humanize.several(self.world) else []
        if any(not self.marks[k] for k in self.silent):
            return None  # a rank that never began has no address at which to be reached
        found = gloo_unreachable.unreachable_address(
            self.world, {k: self.troubles[k].text for k in keys}
        )
        if found is None:
            return None
        key = next(k for k in keys if gloo_unreachable.REFUSED.search(self.troubles[k].text))
        made = self.signed(signature, [key], found.confidence)
        return made.with_(
            subjects=found.subjects,
            saw=f"{made.saw}, {found.note}{self._and_more(keys)}",
            blame=found.blame,
            alternatives=found.alternatives,
        )

    def late(self) -> Found | None:
        """The rank that others wait for: it came less far, or it is silent where they complain."""
        by_rank = {place_of(k)[1] or 0: k for k in self.marks}
        found = late({rank: self.marks[k] for rank, k in by_rank.items()})
        if found is None:
            return self._silent_among_complaints()
        # those who speak say what they wait for: rank 0 in its store, for its last client
        keys = [k for k in (by_rank[rank] for rank in found.behind) if k in self.silent]
        if not keys:
            return None
        last = next(iter(found.behind.values()))
        others = plural(len(found.waiting), "rank")
        if found.mark != THROUGH:
            sign = f"the last mark is '{last}'" if last else "no sign at all"
            saw = f"{self.who(keys)} did not come to '{found.mark}': {sign}; {others} waited there"
        elif last:
            saw = f"{self.who(keys)} never came back from '{last}'; {others} got through"
        else:
            saw = f"{self.who(keys)} gave no sign at all; {others} got through"
        made = self.finding("rank-silent", keys, saw + self._undead(keys), Confidence.LIKELY)
        if not (found.clear or len(keys) * 2 < len(self.marks)):
            made = made.with_(confidence=Confidence.POSSIBLE, alternatives=(_ASTRAY, _BUSY))
        # who gave no sign did not even try to talk to anybody
        return self._or_the_network(made, keys, last) if last else made

    def _or_the_network(self, made: Found, keys: list[str], step: str = "") -> Found:
        """The same, if what lies between the nodes can't look like it. A node that is cut off is as
        silent as one that is stuck; of two nodes it may be either's fault. And two that don't reach
        each other are both silent while they connect, and innocent."""
        nodes = list(humanize.on_nodes(keys))
        if humanize.whole_node(self.world, keys):
            other = f"packets from or to {nodes[0]} are dropped: see net.mesh"
            sure = made.confidence
            if humanize.one_of_two(self.world, keys):
                sure = Confidence.POSSIBLE
        elif len(nodes) > 1 and step in DIALLING:
            other = "two of these nodes can't reach each other: see net.mesh"
            sure = Confidence.POSSIBLE
        else:
            return made
        return made.with_(confidence=sure, alternatives=(other, *made.alternatives))

    def _undead(self, keys: Iterable[str]) -> str:
        """What is known of a rank that not even SIGKILL ended."""
        for key in keys:
            if key in self.silent and self.silent[key].cause is Cause.UNKILLABLE:
                return f" · {self.silent[key].detail[-200:]}"
        return ""

    def _silent_among_complaints(self) -> Found | None:
        """All stand at the same step. One that is alive would have timed out like the others."""
        steps = {self.marks[k][-1].name for k in self.marks if self.marks[k]}
        if not self.troubles or not self.silent or len(steps) != 1:
            return None
        step, keys = steps.pop(), list(self.silent)
        if step in DIALLING:
            told = {int(n) for t in self.troubles.values() for n in UNWRITTEN.findall(t.text)}
            keys = [k for k in keys if place_of(k)[1] in told]
        elif len(keys) * 2 >= len(self.marks):
            return None
        if not keys:
            return None
        heard = self.quoted(next(iter(self.troubles)))
        saw = f"{self.who(keys)} never came back from '{step}'; the others gave up, {heard}"
        made = self.finding("rank-silent", keys, saw, Confidence.LIKELY)
        return self._or_the_network(made, keys)

    def stuck(self) -> Found | None:
        behind = [k for k, m in self.marks.items() if m and not self._is_through(k)]
        if not behind:
            return None  # nobody began: no evidence of anything
        step = self.marks[behind[0]][-1].name
        saw = f"{plural(len(behind), 'rank')} of {len(self.marks)} got no further than '{step}'"
        # all of one node, where several others got through
        node = humanize.whole_node(self.world, behind)
        some = node and not humanize.one_of_two(self.world, behind) and all(self.marks.values())
        here = behind if some else []
        if here:
            saw = f"{self.who(here)} got no further than '{step}', all others got through"
        if self.troubles:
            saw += " · " + self.quoted(next(iter(self.troubles)))
        made = self.finding("stuck", here, saw, Confidence.POSSIBLE)
        dropped = (_PAIR, _AT_SCALE) if humanize.several(self.world) else (_DROPPED,)
        return made.with_(alternatives=(*dropped, _HANGS, _BUSY))

    def _is_through(self, key: str) -> bool:
        return self.marks[key][-1].name == THROUGH


_ASTRAY = "the few ranks that went on are the ones astray"
_HANGS = "one of the ranks hangs in this step"
_BUSY = "the machine is too busy for this check's time limit (--timeout)"
_DROPPED = "packets are dropped between the ranks"
_PAIR = "packets are dropped between two of the nodes: net.mesh and net.payload name them"
_AT_SCALE = "it fails only with all ranks at once, if net.mesh passed: a limit of connections"


def _fate(missing: Missing) -> str:
    """How a process ended that gave no answer; empty when it was an exception, that is: ours."""
    last = missing.detail.rpartition("\n")[2]
    return last if last.startswith(("killed by", "ended with")) else ""
