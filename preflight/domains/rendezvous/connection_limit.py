"""Whether there is a limit on how many connections MASTER_PORT takes at a time. Pure.

Nodes that are in the meeting try some more connections while their own is open. Nobody listens any
more by then: each is refused, at once. Where none is answered, something counts and drops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from preflight.domains.rendezvous.arrivals import MeetingView
from preflight.domains.rendezvous.attempts import (
    AttemptOutcome,
    Reach,
    describe_attempts,
    main_outcome,
)
from preflight.humanize import duration, plural
from preflight.model import Blame, Confidence, Found, Kind, Status, Subject, World

LIMITED = "connections-limited"
SHOWN = 4
UNANSWERED = ("ETIMEDOUT",)


def limited(world: World[Reach], view: MeetingView | None) -> Found | None:
    """The limit, where there is one. MASTER_ADDR has to be the host's own address: a load balancer
    may drop what comes for a port where nobody listens."""
    if view is None or not view.roll.mine:
        return None
    alive = {a.node for a in view.guests if not a.lost}
    tried = {here.node: r for here, r in world.each() if here.node in alive and r.again}
    dropped = {n: r for n, r in tried.items() if all(p.error in UNANSWERED for p in r.again)}
    if not dropped or len(dropped) < len(tried):
        return None
    outside = [(here.node, reach) for here, reach in dropped_outside(world)]
    absent = len(view.came) < view.roll.size
    # without anybody outside each node had its share of connections
    of_a_node = not outside and not absent
    passed = max(Counter(a.node for a in view.guests).values()) if of_a_node else len(view.guests)
    told = plural(passed, "connection") + (" of a node" if of_a_node else "")
    first, reach = next(iter(dropped.items()))
    took = duration(max(p.seconds for p in reach.again))
    saw = (
        f"{told} passed; while it was open, {len(reach.again)} more from {first} to port "
        f"{view.roll.port} had no answer in {took}"
    )
    if len(dropped) > 1:
        saw += f", as from {plural(len(dropped) - 1, 'other node')}"
    if outside:
        words = (f"{node}: {describe_attempts(one.roll)}" for node, one in outside[:SHOWN])
        saw += " · " + " · ".join(words)
    # else it may as well be that what refuses a connection is dropped on its way back
    fatal = absent or bool(outside)
    links = [Subject(Kind.LINK, node, to=view.node) for node, _ in outside]
    return Found(
        LIMITED,
        (Subject(Kind.NODE, view.node, ranks=view.host.ranks), *links),
        saw=saw,
        expected=f"a connection of each of {plural(view.roll.size, 'rank')} at the same time",
        status=Status.FAIL if fatal else Status.WARN,
        confidence=Confidence.LIKELY,
        blame=Blame.NETWORK,
        alternatives=(
            f"something between the nodes limits them, not {view.node}",
            *((f"{view.node} drops its own refusals (RST), which does no harm",) * (not fatal)),
        ),
        explains=None if fatal else (),
        fields={"passed": told, "port": str(view.roll.port), "node": view.node},
    )


def dropped_outside(world: World[Reach]) -> Iterator[tuple[Subject, Reach]]:
    """Agents that never had an answer from MASTER_PORT: where there is such a limit, that is
    why."""
    for here, reach in world.each():
        outside = not reach.roll.hosts and reach.roll.reached is None
        if outside and main_outcome(reach)[0] is AttemptOutcome.DROPPED:
            yield here, reach
