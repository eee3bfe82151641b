"""The one sentence that a finding is known by: who, what, why. Pure.

A judge's words make it (`begun`); whom it is about is put in last (`finished`), after findings that
say the same of several nodes have been joined.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from preflight.humanize import parties, rank_list
from preflight.model import Kind, Subject
from preflight.nodeset import folded

WHO, WHERE = "\x00", "\x01"
"""Stand for the subjects and for their nodes until they are known."""

PLAIN = "{at}: {seen}"
"""The sentence of a code that declares none."""

NAMED = 4
"""As many nodes are named one by one; more are counted, and written as a set."""

NODES_LENGTH = 40
"""Characters of a set of nodes within a sentence."""

SEEN = 160
"""Characters of what was seen within a sentence."""

RUNS = 6
"""Runs of ranks or GPUs within a sentence."""

GPU = re.compile(r"GPU (\d{1,4})")

OPEN = re.compile(f"[{WHO}{WHERE}]")
FIRST_VERB = re.compile(rf"^([{WHO}{WHERE}]) ([a-z]+s)\b")
PLURALS = {"is": "are", "has": "have", "was": "were", "does": "do"}


class _Spelled(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key.upper().replace("_", "-")


def begun(template: str, saw: str, fields: Mapping[str, str]) -> str:
    """`template` with the judge's fields in it. `{seen}` is the first part of what was seen;
    `{at}`, the subjects, and `{where}`, their nodes, stay open for finished()."""
    words = dict(fields) | {"seen": _cut(saw.partition(" · ")[0].strip())}
    safe = {name: OPEN.sub(" ", text) for name, text in words.items()}
    return (template or PLAIN).format_map(_Spelled(safe | {"at": WHO, "where": WHERE}))


def _cut(text: str) -> str:
    """Its beginning, up to the end of a word unless that is far: an error of NCCL goes on for
    lines."""
    if len(text) <= SEEN:
        return text
    words = text[:SEEN].rpartition(" ")[0]
    return (words if 3 * len(words) > 2 * SEEN else text[:SEEN]).rstrip(" ,;:(") + " …"


def finished(headline: str, subjects: Sequence[Subject]) -> str:
    """The sentence, with whom it is about."""
    who = whom(subjects)
    nodes = _nodes(list(dict.fromkeys(s.node for s in subjects if s.node)))
    if not who:
        headline = headline.removeprefix(f"{WHO}: ")
    if _several(subjects):
        headline = FIRST_VERB.sub(lambda found: f"{found[1]} {_plural(found[2])}", headline)
    return headline.replace(WHO, who or "the job").replace(WHERE, nodes or "the job's nodes")


def _plural(verb: str) -> str:
    return PLURALS.get(verb, verb.removesuffix("s"))


def _several(subjects: Sequence[Subject]) -> bool:
    """Whether they are more than one of anything that the sentence names."""
    named = {(s.node, s.name, s.port) for s in subjects}
    if any(subject.kind is Kind.RANK for subject in subjects):
        named = {("", str(rank), None) for s in subjects for rank in s.ranks} or named
    return len(named) > 1


def whom(subjects: Sequence[Subject]) -> str:
    """The subjects within a sentence: `h3`, `ranks 0-1 of n1`, `GPUs 0-3 on n1`, `mlx5_0:1 on 22
    nodes (n[1-22])`. Empty where nobody says whom it is about."""
    nodes = list(dict.fromkeys(s.node for s in subjects if s.node))
    kinds = {subject.kind for subject in subjects}
    where = _nodes(nodes)
    if Kind.LINK in kinds:
        links = [s for s in subjects if s.kind is Kind.LINK]
        if len(links) == 1:
            return f"{links[0].node} to {links[0].to}"
        return _nodes(list(dict.fromkeys(name for s in links for name in (s.node, s.to) if name)))
    if Kind.RANK in kinds and kinds <= {Kind.RANK, Kind.JOB}:
        ranks = rank_list((rank for s in subjects for rank in s.ranks), RUNS)
        return " of ".join(part for part in (ranks or _names(subjects), where) if part)
    if kinds and kinds <= {Kind.GPU, Kind.NIC}:
        return " on ".join(part for part in (_names(subjects), where) if part)
    return where or ("the job" if kinds == {Kind.JOB} else "")


def _names(subjects: Sequence[Subject]) -> str:
    """`GPUs 0-3`, `mlx5_0:1`, `eth0, eth1, eth2 and 2 more`."""
    numbers = [GPU.fullmatch(subject.name) for subject in subjects]
    if subjects and all(numbers):
        ranks = rank_list((int(found[1]) for found in numbers if found), RUNS)
        return ranks.replace("rank", "GPU")
    names = (s.name + (f":{s.port}" if s.port is not None else "") for s in subjects if s.name)
    return parties(list(dict.fromkeys(names)), NAMED - 1)


def _nodes(names: Sequence[str]) -> str:
    """`n1`, `n1, n2 and n3`, `22 nodes (n[1-22])`."""
    if len(names) > NAMED:
        written = folded(names)
        told = f" ({written})" if len(written) <= NODES_LENGTH else ""
        return f"{len(names)} nodes{told}"
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return names[0] if names else ""
