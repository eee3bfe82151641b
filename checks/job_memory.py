"""Does the memory of the job grow with every step until it runs out?

Level        deep
Looks at     of each rank of a rehearsed command: the memory of the process with its children, what
             it has allocated on the GPU, and /dev/shm, over time and steps; how much of each is
             left
Fails if     after its warm-up (20 s, at most half of the watch, and a third of the steps) one of
             them grows steadily, by 5 % or 64 MiB, and will be full within 200 steps or 5 min
Warns if     it does so within 24 h
Undecided    less than 8 stretches of 15 steps and 10 s in all; not a rehearsal (preflight rehearse
             -- CMD)
Not covered  growth that only starts later: at an evaluation, at the end of an epoch, after hours;
             steps without an optimizer; growth that stops before memory is full, such as a cache of
             the whole data set
Seen as      "exit code -9" or "Signal 9 (SIGKILL)" of one rank after hours, "CUDA out of memory",
             "DataLoader worker is killed by signal: Bus error", "No space left on device"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from preflight.check import Context
from preflight.domains.job.load import REHEARSAL, for_author, load_rank, name_of, rank_subject
from preflight.domains.job.memory_trend import Point, Trend, after_warm_up, growth
from preflight.domains.job.record import Growth
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import MIB, duration, size
from preflight.model import (
    Command,
    Confidence,
    Curve,
    Curves,
    Found,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = replace(REHEARSAL, required=False)

SOON_STEPS, SOON = 200, 300.0
"""Steps or seconds until it is full: then there is no training with it."""
HORIZON = 24 * 3600.0
"""Seconds. A pace that was seen for a minute says little of what is days away; and a job of days
has been restarted from its checkpoint by then, or watched by somebody."""
PART, LEAST = 0.05, 64 * MIB
"""Of what is used, or in all, that must have come during the watch: heaps and caches of the driver
breathe by less."""
MOSTLY = 0.5
"""Part of a process's growth that is in /dev/shm: then it is the same thing twice."""
SAMPLES = 60
"""Of a rank, the latest, that are drawn."""

growing = partial(for_author, status=(Status.WARN, Status.FAIL))
FINDINGS = {
    "memory-growth": growing(
        headline="{seen}",
        cause="tensors kept with their graph (losses.append(loss), total += loss), a list that "
        "keeps outputs, a cache without a limit, a data set of Python objects copied page by page "
        "into DataLoader workers",
        means="the kernel kills a rank: 'exit code -9', 'Signal 9 (SIGKILL)'; the others time out",
        text="keep loss.item() or loss.detach(); numpy arrays instead of lists of Python objects "
        "in a data set; PYTHONTRACEMALLOC=5 and two snapshots show which lines hold it",
        was=("memory-grows",),
    ),
    "gpu-memory-growth": growing(
        headline="{seen}",
        cause="tensors kept with their graph (losses.append(loss), total += loss), outputs of an "
        "evaluation without torch.no_grad(), retain_graph=True",
        means="'torch.OutOfMemoryError: CUDA out of memory' after hours; the other ranks time out",
        text="keep loss.item() or loss.detach(); move outputs to the CPU. "
        "torch.cuda.memory._record_memory_history() shows which lines hold it",
        was=("gpu-memory-grows",),
    ),
    "shm-growth": growing(
        headline="{seen}",
        cause="tensors of DataLoader workers or torch.multiprocessing that are kept, or the "
        "sharing strategy file_system with a process that was killed",
        means="'DataLoader worker is killed by signal: Bus error', 'No space left on device'",
        text="call tensor.clone() on what is kept longer than a step",
        commands=(Command("df -h /dev/shm; ls -l /dev/shm", "the node"),),
        was=("shm-grows",),
    ),
}

STILL_FILLING = "a cache that is still filling, and stays as it is once all data has been read"


def observe(host: Host, ctx: Context) -> Growth:
    seen = load_rank(host, ctx).growth
    if not _settled(seen):
        raise NotApplicable("too few steps and seconds to tell a trend of the memory")
    return seen


def _settled(seen: Growth) -> tuple[Point, ...]:
    return after_warm_up([(at, step, used) for at, step, used, _ in seen.samples])


def _on_gpu(seen: Growth) -> tuple[Point, ...]:
    return after_warm_up([(at, step, used) for at, step, _, used in seen.samples])


@dataclass(frozen=True, slots=True)
class Grower:
    """A rank whose memory grows; `size` is what it has now."""

    subject: Subject
    trend: Trend
    size: int


@dataclass(frozen=True, slots=True)
class Full:
    """Ranks that use up the same memory: how much is left of it, and for how long at their pace."""

    growers: tuple[Grower, ...]
    left: int
    share: float = 1.0
    """Ranks that use it for each one that is known."""

    @property
    def steps(self) -> float:
        return self.left / (self.share * sum(g.trend.per_step for g in self.growers))

    @property
    def seconds(self) -> float:
        return self.left / (self.share * sum(g.trend.per_second for g in self.growers))

    @property
    def soon(self) -> bool:
        return self.steps <= SOON_STEPS or self.seconds <= SOON


def judge(world: World[Growth], expect: Expect) -> Iterator[Found]:
    nodes: dict[str, list[tuple[Subject, Growth]]] = {}
    for here, seen in world.each():
        nodes.setdefault(here.node, []).append((rank_subject(here, seen.rank), seen))
    shm = {node: full for node, ranks in nodes.items() if (full := _shm(ranks))}
    host = {node: full for node, ranks in nodes.items() if (full := _memory(ranks))}
    for node, full in shm.items():
        if node in host and _pace(full) >= MOSTLY * _pace(host[node]):
            del host[node]
    gpu = [full for ranks in nodes.values() for rank in ranks if (full := _gpu(*rank))]
    yield from _finding("memory-growth", list(host.values()), "memory")
    yield from _finding("gpu-memory-growth", gpu, "GPU memory")
    yield from _finding("shm-growth", list(shm.values()), "/dev/shm")


def _pace(full: Full) -> float:
    return sum(grower.trend.per_step for grower in full.growers)


def _grower(subject: Subject, points: Sequence[Point]) -> Grower | None:
    """Whose growth is more than a heap's breath."""
    trend = growth(points)
    if trend is None or trend.grown < min(LEAST, PART * points[-1][2]):
        return None
    return Grower(subject, trend, points[-1][2])


def _memory(ranks: Sequence[tuple[Subject, Growth]]) -> Full | None:
    """What the ranks of a node share. Those that can't be seen are taken to grow as the others."""
    judged = [seen for _, seen in ranks if _settled(seen)]
    growers = [g for who, seen in ranks if (g := _grower(who, _settled(seen)))]
    known = [seen for seen in judged if seen.limit > 0]
    if not growers or not known:
        return None
    share = max(1.0, max(seen.here for seen in known) / len(judged))
    return _within(Full(tuple(growers), max(0, min(s.available for s in known)), share))


def _gpu(who: Subject, seen: Growth) -> Full | None:
    grower = _grower(who, _on_gpu(seen))
    if grower is None or seen.gpu_limit <= 0:
        return None
    return _within(Full((grower,), max(0, seen.gpu_limit - grower.size)))


def _shm(ranks: Sequence[tuple[Subject, Growth]]) -> Full | None:
    """All ranks of a node see the same /dev/shm: one of them tells."""
    for who, seen in ranks:
        node = Subject(Kind.NODE, who.node, ranks=tuple(r for s, _ in ranks for r in s.ranks))
        grower = _grower(node, after_warm_up(seen.shm_samples))
        if grower is not None and seen.shm_free > 0:
            return _within(Full((grower,), seen.shm_free))
    return None


def _within(full: Full) -> Full | None:
    return full if full.soon or full.seconds <= HORIZON else None


def _finding(code: str, found: Sequence[Full], what: str) -> Iterator[Found]:
    """One finding of all nodes and GPUs, with the numbers of that which is full first."""
    if not found:
        return
    ordered = sorted(found, key=lambda full: full.seconds)
    first = ordered[0]
    worst = max(first.growers, key=lambda grower: grower.trend.per_step)
    rest = sum(len(full.growers) for full in ordered) - 1
    others = f" · and that of {rest} more" if rest else ""
    yield Found(
        code,
        tuple(grower.subject for full in ordered for grower in full.growers),
        saw=f"{what} of {name_of(worst.subject)} grows by {_per_step(worst.trend)} per step, "
        f"{size(int(worst.trend.grown))} in {worst.trend.steps} steps{others} · "
        f"{size(first.left)} left: full after about {_rounded(first.steps)} steps, in "
        f"{_roughly(first.seconds)}",
        expected="the same after every step, once it is warm",
        confidence=Confidence.LIKELY,
        alternatives=(STILL_FILLING,),
        status=Status.FAIL if any(full.soon for full in ordered) else None,
    )


def _per_step(trend: Trend) -> str:
    return size(int(trend.per_step)) if trend.per_step >= 1 else "less than 1 B"


def _rounded(number: float) -> str:
    """Two digits: more of them nobody knows."""
    whole = int(number)
    unit = 10 ** max(0, len(str(whole)) - 2)
    return f"{round(whole / unit) * unit:,}"


def _roughly(seconds: float) -> str:
    """Without the seconds of an hour."""
    return f"{round(seconds / 60)} min" if 600 <= seconds < 7200 else duration(seconds)


def measured(world: World[Growth]) -> Measured:
    ranks = [(seen, points) for _, seen in world.each() if (points := _settled(seen))]
    if not ranks:
        return Measured()
    most = max(points[-1][2] for _, points in ranks)
    pace = _fastest([points for _, points in ranks])
    each = " per rank" if len(ranks) > 1 else ""
    text = f"{size(most)}{each}, {_grows(pace)}"
    values = {"bytes": most, "grows_bytes_a_step": int(pace)}
    gpu = [points for seen, _ in ranks if (points := _on_gpu(seen))]
    if gpu:
        used, faster = max(points[-1][2] for points in gpu), _fastest(gpu)
        text += f" · GPU {size(used)}, {_grows(faster)}"
        values |= {"gpu_bytes": used, "gpu_grows_bytes_a_step": int(faster)}
    curves = tuple(
        Curve(key, tuple((float(at), float(used)) for at, _, used, _ in seen.samples[-SAMPLES:]))
        for key, seen in world.seen.items()
    )
    return Measured(text, values, curves=Curves("memory of each rank", "s", "bytes", curves))


def _fastest(found: Sequence[Sequence[Point]]) -> float:
    return max((trend.per_step for points in found if (trend := growth(points))), default=0.0)


def _grows(pace: float) -> str:
    return f"{size(int(pace))} more per step" if pace >= 1 else "steady"
