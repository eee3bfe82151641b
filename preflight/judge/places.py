"""Where the commands of a remedy are to be typed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from preflight.model import FindingType, Subject, Topology
from preflight.nodeset import foldable, folded

FROM_ANYWHERE = re.compile(r"(\S+=\S* )*(preflight|sbatch|ssh)\b")
"""Commands that start a job or reach a node by themselves."""

SAID = re.compile(r"on |.*\bjob script\b|.*\bbeside preflight\b")
THE_NODE = re.compile(r"the node(?=,|$)")
EVERYWHERE = re.compile(r"on (every node|all nodes|both nodes|all ranks)[,:]? ?")

NODES_LENGTH = 40
"""Characters of a set of nodes beside a command; a longer one is counted."""


def placed(advice: FindingType, subjects: Sequence[Subject], top: Topology) -> FindingType:
    """`advice` whose `now` says on which of several nodes: `unset X   on h3, slower`, and whose
    commands for "the node" say it where that is more than one. In a job of one node it says so
    nowhere."""
    return _on_all(_on_which(advice, subjects, top), subjects, top)


def _on_which(advice: FindingType, subjects: Sequence[Subject], top: Topology) -> FindingType:
    command, _, remark = advice.now.partition("   ")
    if not command:
        return advice
    if max(len(top.nodes), top.whole_nodes) < 2:
        remark = EVERYWHERE.sub("", remark, count=1)
    elif not SAID.match(remark) and not FROM_ANYWHERE.match(command):
        where = _where(subjects, top)
        remark = ", ".join(part for part in (f"on {where}" if where else "", remark) if part)
    return replace(advice, now="   ".join(part for part in (command, remark) if part))


def _on_all(advice: FindingType, subjects: Sequence[Subject], top: Topology) -> FindingType:
    """A command that is the same on each of the nodes that a finding is about."""
    if len({subject.node for subject in subjects if subject.node}) < 2:
        return advice
    if not any(THE_NODE.match(c.where) for c in advice.commands):
        return advice
    if not (where := _where(subjects, top)):
        return advice
    commands = tuple(
        replace(c, where=THE_NODE.sub(where, c.where, count=1)) for c in advice.commands
    )
    return replace(advice, commands=commands)


def _where(subjects: Sequence[Subject], top: Topology) -> str:
    """`h3`, `h3 and h4`, `n[1-8]`, `every node`; empty where no node is named that a shell may
    see."""
    names = list(dict.fromkeys(subject.node for subject in subjects if subject.node))
    if not all(map(foldable, names)):
        return ""
    if len(names) > 1 and {node.name for node in top.nodes} <= set(names):
        return "every node"
    if len(names) == 2:
        return " and ".join(names)
    written = folded(names)
    return written if len(written) <= NODES_LENGTH else f"these {len(names)} nodes"
