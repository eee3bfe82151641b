"""What launchers' variables say when those of several ranks are laid side by side. Pure.

consistency.py has the rules for one environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from preflight.humanize import plural
from preflight.identity.addresses import endpoint_parts, loopback
from preflight.identity.consistency import BACKEND, ENDPOINT, SHOWN, Env, size_mismatch
from preflight.identity.discover import C10D_PORT, FLAG, nodes_by_flag
from preflight.identity.launchers import OPTIONS
from preflight.model import Confidence, Found, Status, Subject, Topology
from preflight.sanitize import quoted

ENDPOINT_PORT = f"the port of {ENDPOINT}"


def faults_across_ranks(
    envs: list[Env], explained: set[tuple[Subject, ...]], top: Topology
) -> Iterator[Found]:
    """What only several environments show, laid side by side. `explained`: the ranks whose launcher
    has already said what is wrong."""
    by_rank: dict[int, list[Env]] = {}
    for env in envs:
        if (rank := env.number("RANK")) is not None:
            by_rank.setdefault(rank, []).append(env)
    for group in by_rank.values():
        if len(group) > 1 and not any(env.subjects in explained for env in group):
            saw = f"{group[0].say('RANK')} in {len(group)} environments"
            for env in group:
                yield env.fault("rank-duplicate", saw, "a different RANK for each process")
    envs_of = {"WORLD_SIZE": envs, "MASTER_PORT": envs, ENDPOINT_PORT: _of_endpoints(envs)}
    for name, compared in envs_of.items():
        for env, saw in _not_the_usual(compared, name, trust_first=name != "WORLD_SIZE"):
            values = ", ".join(part.removeprefix(f"{name}=") for part in saw.split(" · "))
            label = name.replace(ENDPOINT, env.named(ENDPOINT))
            saw, expected = saw.replace(name, label), f"one {label} for all ranks"
            yield env.fault("world-differs", saw, expected, name=label, values=values)
    yield from _master_addr_faults(envs, top)
    yield from _local_size_faults(envs, top)
    yield from _world_size_faults(envs, top)


def _of_endpoints(envs: list[Env]) -> list[Env]:
    """The port of each endpoint at which a torchrun that is yet to be started would meet, where
    nothing but that says it; without one c10d takes its default."""
    found = []
    for env in envs:
        host, port = endpoint_parts(env.values.get(ENDPOINT, ""))
        port = port or (str(C10D_PORT) if env.values.get(BACKEND) == "c10d" else "")
        if host and port and "MASTER_ADDR" not in env and not env.started_by_torchrun:
            values = {ENDPOINT_PORT: port, OPTIONS: env.values.get(OPTIONS, "")}
            found.append(replace(env, values=values))
    return found


def _world_size_faults(envs: list[Env], top: Topology) -> Iterator[Found]:
    """WORLD_SIZE against LOCAL_WORLD_SIZE of all nodes, once as many nodes came as this run was
    started for. Where each of them has one rank consistency.py needs no other node for it."""
    here: dict[str, int] = {}
    for env in envs:
        here[env.node] = max(here.get(env.node, 0), env.number("LOCAL_WORLD_SIZE") or 0)
    if nodes_by_flag(top) != len(here) or top.met == top.size:
        return
    if not all(here.values()) or all(count == 1 for count in here.values()):
        return
    launched = sum(here.values())
    for env in envs:
        if "LOCAL_RANK" in env and (env.number("WORLD_SIZE") or 0) > launched:
            saw = f"{env.say('WORLD_SIZE')} · {FLAG} {len(here)}, LOCAL_WORLD_SIZE "
            yield size_mismatch(env, f"{saw}{launched} in all", launched, f"{FLAG} {len(here)}")


def _local_size_faults(envs: list[Env], top: Topology) -> Iterator[Found]:
    """LOCAL_WORLD_SIZE of processes that are a rank each, against the ranks that came from their
    node: certain once all ranks are there."""
    if not top.size or top.met != top.size:
        return
    for env in envs:
        said, there = env.number("LOCAL_WORLD_SIZE"), len(top.ranks_of(env.node))
        if said is None or said < 1 or "LOCAL_RANK" not in env or not there or said == there:
            continue
        if env.started_by_torchrun:  # which has counted itself
            continue
        saw = f"{env.say('LOCAL_WORLD_SIZE')} · {plural(there, 'rank')} of this job on the node"
        expected = f"LOCAL_WORLD_SIZE={there}"
        yield env.fault("local-size-differs", saw, expected, right=str(there))


def _master_addr_faults(envs: list[Env], top: Topology) -> Iterator[Found]:
    """A MASTER_ADDR that differs. Two names may well be one host's: whoever met by them has proved
    it, and where they lead is for net.name and rdzv.reach. It is a fault where the name is that of
    a node without rank 0."""
    first = next((n for n in top.nodes if 0 in n.ranks), None)
    # an operator gives localhost to the first pod alone, and it leads all ranks there to rank 0
    there = {first.name} if first is not None else set()
    named = [
        env
        for env in envs
        if not (
            (env.node in there or env.holds_first) and loopback(env.values.get("MASTER_ADDR", ""))
        )
    ]
    # only the host of a meeting knows addresses: of those who came to it
    came = {n.name for n in top.nodes if n.addr}
    fact = top.facts.get("master_addr")
    if fact is not None and fact.source == "--meet":
        came = set()
    for env, saw in _not_the_usual(named, "MASTER_ADDR", trust_first=True):
        value = env.values["MASTER_ADDR"].strip()
        if env.node in came or (first is not None and value in (first.name, first.addr)):
            continue
        others = (n for n in top.nodes if n is not first)
        known = any(
            value == n.addr or _without_domain(value) == _without_domain(n.name) for n in others
        )
        wrong = (
            known or _without_domain(value) == _without_domain(env.node)
        ) and not env.holds_first
        status = None if wrong else Status.WARN
        sure = Confidence.LIKELY if wrong else Confidence.POSSIBLE
        yield env.fault("master-differs", saw, "one MASTER_ADDR for all ranks", status, sure)


def _without_domain(name: str) -> str:
    """A host's name without its domain; an address is itself."""
    dotted = name.replace(".", "").isdecimal()
    return name if dotted or ":" in name else name.partition(".")[0]


def _not_the_usual(envs: list[Env], name: str, *, trust_first: bool) -> Iterator[tuple[Env, str]]:
    """The environments whose value is not that of most ranks. Without a majority it is rank 0's
    that counts where `trust_first`, else all of them are odd."""
    groups: dict[str, list[Env]] = {}
    for env in envs:
        if name in env:
            number = env.number(name)  # `+3` and `03` are 3 to int(), as torch reads them
            said = env.values[name].strip() if number is None else str(number)
            groups.setdefault(said, []).append(env)
    if len(groups) < 2:
        return
    ranks = {value: sum(len(e.keys) for e in group) for value, group in groups.items()}
    order = sorted(ranks, key=lambda value: -ranks[value])
    usual = order[0] if ranks[order[0]] * 2 > sum(ranks.values()) else None
    if usual is None and trust_first:
        usual = next((v for v, group in groups.items() if any(e.holds_first for e in group)), None)
    saw = " · ".join(f"{name}={quoted(v)} on {plural(ranks[v], 'rank')}" for v in order[:SHOWN])
    for value, group in groups.items():
        if value != usual:
            yield from ((env, saw) for env in group)
