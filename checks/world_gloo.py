"""Does a Gloo all-reduce return correct results, and at what bandwidth?

Level        standard
Looks at     all-reduces of 4 B to 16 MiB between all ranks on the CPU, over the interface that Gloo
             chooses, in a group that meets on a free port: each element of the sums, the time and
             the bus bandwidth of each size; a size that would need more than half of the remaining
             time, judged by smaller ones, is left out
Fails if     a sum is wrong; a rank dies, fails or does not reach the step where the others wait; an
             address that a rank advertises can't be reached; an all-reduce hangs
Warns if     a size was left out and the smaller ones show less than 12.5 MB/s (100 Mbit/s); never
             for less: an all-reduce is as slow on every rank as its slowest connection
Undecided    torch is not installed
Not covered  NCCL and GPUs (world.nccl); the links between nodes one by one (net.mesh, net.speed)
Seen as      "Timed out waiting 1800000ms for recv operation to complete", "Connection closed by
             peer", "Gloo connectFullMesh failed", "Read error", a first step that never ends, a
             loss that is wrong without any error
"""

from __future__ import annotations

from collections.abc import Iterator

from preflight.check import Check, Context, Level, Requirement, Scope, Stage
from preflight.domains.collectives import allreduce, gloo_unreachable, stalls
from preflight.domains.collectives.allreduce import LeftOut, Reduced
from preflight.domains.collectives.process_group import join, leave
from preflight.domains.torch.steps import Steps, Trouble
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import KIB, MIB
from preflight.model import Found, Measured, World, of_each

CHECK = Check(
    scope=Scope.WORLD,
    stage=Stage.TRAINING,
    budget=20.0,
    needs=("rdzv.store", "net.payload"),
    level=Level.STANDARD,
    requires=frozenset({Requirement.TORCH}),
    torch=True,
    explains=("world.ddp",),
)

# bytes: repeats. From one packet to beyond any socket buffer: where large packets are dropped on
# the way, the small sizes pass
SIZES = {4: 3, 4 * KIB: 3, 64 * KIB: 3, MIB: 3, 16 * MIB: 1}

FINDINGS = {**stalls.FINDINGS, **allreduce.FINDINGS, **gloo_unreachable.FINDINGS}


@dataclass(frozen=True, slots=True)
class Sums:
    """The all-reduces of a rank in rising size, as far as it came, and the size for which there was
    no time."""

    reduced: tuple[Reduced, ...]
    trouble: Trouble | None = None
    left_out: LeftOut | None = None


def observe(host: Host, ctx: Context) -> Sums:
    import torch

    torch.set_num_threads(1)
    steps = Steps(ctx)
    reduced: list[Reduced] = []
    left_out = None
    with steps.until_trouble():
        join(host, ctx, steps, "gloo")
        left_out = allreduce.all_reduce(ctx, steps, SIZES, reduced)
    leave(ctx, steps)
    return Sums(tuple(reduced), steps.trouble, left_out)


def judge(world: World[Sums], expect: Expect) -> Iterator[Found]:
    yield from allreduce.wrong_sums(world, of_each(world.seen, lambda v: v.reduced))
    yield from stalls.diagnose(world, (stalls.GLOO_UNREACHABLE,))
    yield from allreduce.slow_network(world, _left_out(world))


def _left_out(world: World[Sums]) -> dict[str, LeftOut]:
    return world.told(lambda v: v.left_out)


def measured(world: World[Sums]) -> Measured:
    return allreduce.measured_allreduce(of_each(world.seen, lambda v: v.reduced), _left_out(world))
