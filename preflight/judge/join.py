"""One finding for what several nodes have in common. Pure.

What says the same, word for word, is joined always. What differs in numbers or in a name only (20
nodes with 260, 264, … MiB of memory) is joined from NODES on: with fewer each is worth its own
lines, and on two nodes the difference may be what matters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from preflight.humanize import parties
from preflight.model import Finding, FindingType
from preflight.serde import encode

NODES = 4

VARYING = re.compile(r"(?<![\w.:/%+-])[\w.:/%+-]*\d[\w.:/%+-]*")
"""Words with a digit: numbers, and names and addresses that have one."""
NUMBER = re.compile(r"\d+(\.\d+)?")
OF_SEVERAL = (
    ("exclude this node or accept its speed", "exclude these nodes or accept their speed"),
    ("exclude this node", "exclude these nodes"),
)
"""What a remedy says of one node, and of several."""
NAMING = re.compile(
    r"\b(ranks?|GPUs?|pids?|ports?|links?|lines?|uids?|numbers?|devices?|Xid|nodes?|jobs?|code)"
    r"[ '\"]*$",
    re.IGNORECASE,
)
"""Before a number that is a name: ranks 3 and 19 are not ranks 3-19."""


def joined(findings: Iterable[Finding]) -> list[Finding]:
    """The same findings, in their order; those that are joined stand where the first one stood."""
    alike: dict[str, list[Finding]] = {}
    for finding in findings:
        alike.setdefault(_words(finding), []).append(finding)
    same = [_of_all(group) for group in alike.values()]
    similar: dict[str, list[Finding]] = {}
    for finding in same:
        similar.setdefault(_words(_masked(finding)), []).append(finding)
    found: list[Finding] = []
    for group in similar.values():
        nodes = {subject.node for finding in group for subject in finding.subjects}
        found += [_in_ranges(group)] if len(group) > 1 and len(nodes) >= NODES else group
    return [_of_several(finding) for finding in found]


def _of_several(finding: Finding) -> Finding:
    """A finding whose remedy speaks of all nodes that it is about."""
    advice = finding.advice
    if advice is None or len({subject.node for subject in finding.subjects}) < 2:
        return finding
    text = advice.text
    for one, several in OF_SEVERAL:
        text = text.replace(one, several)
    return finding.with_(advice=replace(advice, text=text)) if text != advice.text else finding


def _words(finding: Finding) -> str:
    return json.dumps(encode(finding.with_(subjects=(), evidence=())), sort_keys=True)


def _masked(finding: Finding) -> Finding:
    """A finding without what may differ between nodes: words with digits, the judge's fields, and
    the remedies that these fill."""

    def mask(text: str) -> str:
        return "\0".join(VARYING.split(text))

    return finding.with_(
        saw=mask(finding.saw),
        expected=mask(finding.expected),
        headline=mask(finding.headline),
        alternatives=tuple(map(mask, finding.alternatives)),
        fields={},
        advice=FindingType(cause="", means=""),
    )


def _of_all(group: Sequence[Finding]) -> Finding:
    """The first of them, about the subjects of all and with the evidence of all."""
    return group[0].with_(
        subjects=tuple(dict.fromkeys(s for f in group for s in f.subjects)),
        evidence=tuple(dict.fromkeys(e for f in group for e in f.evidence)),
    )


def _in_ranges(group: Sequence[Finding]) -> Finding:
    first = group[0]
    advices = [finding.advice for finding in group if finding.advice is not None]
    return _of_all(group).with_(
        saw=_text([f.saw for f in group]),
        expected=_text([f.expected for f in group]),
        headline=_text([f.headline for f in group]),
        alternatives=tuple(
            _text(texts) for texts in zip(*(f.alternatives for f in group), strict=True)
        ),
        advice=_advice(advices) if len(advices) == len(group) else first.advice,
    )


def _advice(advices: Sequence[FindingType]) -> FindingType:
    """Prose with its ranges; a command that is not the same everywhere is no command for all."""
    first = advices[0]
    return replace(
        first,
        cause=_text([advice.cause for advice in advices]),
        means=_text([advice.means for advice in advices]),
        text=_text([advice.text for advice in advices]),
        now=first.now if len({advice.now for advice in advices}) == 1 else "",
        commands=tuple(c for c in first.commands if all(c in a.commands for a in advices)),
    )


def _text(texts: Sequence[str]) -> str:
    """One text for all: numbers that differ as `260-290`, names as `n1, n2, n3, n4 and 16 more`."""
    between, *others = (VARYING.split(text) for text in texts)
    if any(parts != between for parts in others):
        return texts[0]
    columns = zip(*(VARYING.findall(text) for text in texts), strict=True)
    told = [
        _told(list(dict.fromkeys(column)), NAMING.search(before) is not None)
        for before, column in zip(between, columns, strict=False)
    ]
    return "".join(a + b for a, b in zip(between, [*told, ""], strict=True))


def _told(words: list[str], named: bool) -> str:
    """What stands in place of these words; `named`: they say which one, not how much."""
    if len(words) == 1:
        return words[0]
    if not named and all(NUMBER.fullmatch(word) for word in words):
        return f"{min(words, key=float)}-{max(words, key=float)}"
    return parties(words)
