"""What does a step cost, what part of it is communication, and what would be saved?

Level        deep
Looks at     of each rank of a rehearsed command that trains with DDP on the CPU: seconds of a step
             in data loading, forward, backward, collectives and optimizer; when in each backward
             pass which bytes were sent
Fails if     never: a slow step trains, too
Warns if     over several nodes, on every rank 30 % of a step and 20 ms are spent waiting for
             collectives after everything else is done
Undecided    fewer than 8 steps or 6 backward passes; not a rehearsal (preflight rehearse -- CMD)
Not covered  models on a GPU, which computes while the host goes on; FSDP; time between the backward
             pass and the optimizer (clipping) counts as waiting; predictions take the network to be
             one channel that is as fast on more ranks, and all-reduce to be a ring; their range
             holds for the load that the machine had: under another load a step takes longer with
             every change as well. Whether a message of about 10 ms takes so long for its bytes or
             for itself is not known: then neither is what is saved, and the least efficiency is
             that of messages which all take 10 ms for themselves
Seen as      no error at all: adding nodes makes training hardly faster
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from preflight.check import Context
from preflight.domains.job.load import REHEARSAL, for_author, load_rank, nothing_seen, rank_subject
from preflight.domains.job.step_cost import (
    LATENCY,
    Price,
    TrainingStep,
    accumulated,
    efficiency,
    halved,
    halved_slowly,
    joined,
    price_of,
    sent_once,
)
from preflight.domains.job.step_parts import StepPart, StepParts
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, size
from preflight.model import (
    Confidence,
    Curve,
    Curves,
    Found,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)

CHECK = replace(REHEARSAL, required=False)

STEPS = 8
PART, LEAST = 0.3, 0.02
"""Of a step, and seconds of it, that are worth a word."""
SAVED = 0.05
"""Of a step: less than that is lost in what steps differ by themselves."""
RUNS = 0.1
"""Of a step, by which its median differs from run to run on a machine that is not quiet."""
BATCHES = 4
"""Over which no_sync() is said to save, where a step has one batch."""
FORMULA = (
    "finish = max_j(begun[j] + bytes[j:] * per_byte + calls[j:] * per_call); "
    "step = alone + syncs * (finish - begun[-1]); "
    "no_sync = batch - (k-1)/k * (exposed + optimizer), "
    "of a step that has k batches step - (k-1)/k * exposed; "
    "per_byte(N) = per_byte(n) * ((N-1)/N) / ((n-1)/n), per_call(N) = per_call(n) * (N-1)/(n-1)"
)

FINDINGS = {
    "communication-bound": for_author(
        headline="every step waits for its collectives: {seen}",
        cause="a network that is slow for so many gradients, small batches, gradients in 32 bits",
        means="no error at all: more nodes make training hardly faster",
        text="check that the network is as fast as it should be (preflight run --level deep: "
        "net.speed, world.bandwidth); send less, or less often: {advice!s}",
        status=Status.WARN,
    ),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one rank. step: median seconds of a step; loader: part of it in which it waited for data;
    world: ranks of the job; asynchronous: its model is on a GPU."""

    rank: int | None
    parts: StepParts
    step: float = 0.0
    steps: int = 0
    loader: float = 0.0
    world: int = 1
    asynchronous: bool = False

    @property
    def priced(self) -> TrainingStep:
        steps = max(1, self.parts.steps)
        return TrainingStep(
            whole=self.step,
            optimizer=self.parts.optimizer / steps,
            forwards=self.parts.forwards / steps,
            passes=self.parts.passes,
        )


def observe(host: Host, ctx: Context) -> Cost:
    seen = load_rank(host, ctx)
    if not seen.parts.forwards or not seen.parts.steps:
        raise nothing_seen(seen, "no step with a model that DDP wraps and an optimizer of torch's")
    cost = Cost(
        rank=seen.life.rank,
        parts=replace(seen.parts, latest=()),
        step=seen.pace.step,
        steps=seen.pace.steps,
        loader=seen.pace.loader,
        world=seen.life.world,
        asynchronous=any(device != "cpu" for device in seen.backends.models),
    )
    if cost.asynchronous:
        raise NotApplicable("the model is on a GPU: what the host waits for is not what it costs")
    if cost.steps < STEPS or cost.step <= 0:
        raise NotApplicable(f"{cost.steps} steps timed: too few to tell what one costs")
    return cost


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is known of the rank that waits the least for its collectives: it comes last to them, so
    that what it waits is the network's."""

    cost: Cost
    step: TrainingStep
    price: Price
    nodes: int

    @property
    def accumulates(self) -> bool:
        """Whether a step has several batches already."""
        return self.step.forwards >= 1.5

    @property
    def saved(self) -> dict[str, tuple[float, float, float]]:
        """Seconds per step, or per batch for no_sync where a step has one, with one thing changed:
        the usual, the least and the most. The most is what it would take if each message took
        LATENCY whatever its size, and its CPU were busy; both have the quartiles of what was
        seen."""
        step, price = self.step, self.price
        told = {}
        if all(s.single for one in step.sending for s in one.sent) and price.byte:
            fixed = price_of(step.passes, LATENCY) or price
            told["16-bit gradients"] = self._spread(
                step.with_messages(price, halved), halved_slowly(step, fixed)
            )
        if step.syncs >= 0.99 * step.forwards:
            batches = round(step.forwards) if self.accumulates else BATCHES
            took = sent_once(step) if self.accumulates else accumulated(step, batches)
            told[f"no_sync over {batches} batches"] = self._spread(took, took)
        if price.call and any(len(one.sent) > 1 for one in step.sending):
            took = step.with_messages(price, joined)
            told["one message"] = self._spread(took, took)
        return told

    def _spread(self, took: float, most: float) -> tuple[float, float, float]:
        """What is saved lies between the quartiles of what messages took, and a step differs from
        run to run."""
        whole = self.step.whole
        least = whole - (whole - took) * max(1.0, self.price.high) - RUNS * whole
        most = whole - max(0.0, whole - most) * min(1.0, self.price.low) + RUNS * whole
        return took, max(0.0, least), max(took, most)

    @property
    def worth_a_word(self) -> list[str]:
        """`60 ms to 70 ms per batch with no_sync over 4 batches`, of what surely saves enough to be
        seen."""
        return [
            f"{_range(least, most)}{self._per(name)} with {name}"
            for name, (_, least, most) in self.saved.items()
            if most <= (1 - SAVED) * self.step.whole
        ]

    def _per(self, name: str) -> str:
        return " per batch" if name.startswith("no_sync") and not self.accumulates else ""

    @property
    def untold(self) -> list[str]:
        """What may save as much, or nothing: a message takes as little as a round trip may."""
        return [
            name
            for name, (_, least, most) in self.saved.items()
            if least <= (1 - SAVED) * self.step.whole < most
        ]

    @property
    def sizes(self) -> list[int]:
        """Numbers of ranks for which it is said how efficient a step would be; none where all are
        on one node, since there was no network between them."""
        return [self.cost.world * more for more in (1, 2, 4, 8, 16)] if self.nodes > 1 else []


def predicted(world: World[Cost]) -> Predicted | None:
    found = []
    for here, cost in world.each():
        step = cost.priced
        price = price_of(step.passes)
        if price is not None and cost.world > 1 and step.alone > 0:
            found.append((step.exposed, here, cost, step, price))
    if not found:
        return None
    nodes = len({here.node for _, here, *_ in found})
    _, _, cost, step, price = min(found, key=lambda one: one[0])
    return Predicted(cost, step, price, nodes)


def judge(world: World[Cost], expect: Expect) -> Iterator[Found]:
    made = predicted(world)
    if made is None or made.nodes < 2:
        return
    step = made.step
    if step.exposed < LEAST or step.exposed < PART * step.whole:
        return
    subjects: Sequence[Subject] = [rank_subject(here, cost.rank) for here, cost in world.each()]
    advice = ", ".join(made.worth_a_word)
    yield Found(
        "communication-bound",
        tuple(subjects),
        saw=f"{duration(step.exposed)} of {duration(step.whole)} per step, with "
        f"{size(int(step.bytes))} in collectives",
        expected=f"less than {_part(PART)}, the rest hidden behind the backward pass",
        confidence=Confidence.LIKELY,
        fields={"advice": f"a step would take {advice}" if advice else "larger batches"},
    )


def measured(world: World[Cost]) -> Measured:
    costs = [cost for _, cost in world.each()]
    if not costs:
        return Measured()
    each = {"data": median(cost.loader * cost.step for cost in costs)}
    for part in (StepPart.FORWARD, StepPart.BACKWARD, StepPart.OPTIMIZER):
        each[str(part)] = median(cost.parts.usual(part) for cost in costs)
    steps = [cost.priced for cost in costs]
    waits = median(step.exposed for step in steps)
    each["backward"] = max(0.0, each["backward"] - waits)
    each["collectives"] = waits
    whole = median(step.whole for step in steps)
    values: dict[str, Any] = {"step_s": round(whole, 6)}
    values |= {f"{name}_s": round(took, 6) for name, took in each.items()}
    values["bytes"] = int(median(step.bytes for step in steps))
    text = f"{duration(whole)} per step"
    if values["bytes"]:
        text += f" · {_part(waits / whole)} waiting for {size(values['bytes'])} of collectives"
    notes = [" · ".join(f"{name} {duration(took)}" for name, took in each.items() if took)]
    curves = None
    if (made := predicted(world)) is not None:
        values |= _predictions(made)
        if told := made.worth_a_word:
            notes.append(f"a step would take {' · '.join(told)}")
        if untold := made.untold:
            notes.append(f"too short or too unsteady to know what is saved by {', '.join(untold)}")
        if shown := [
            (n, efficiency(made.step, made.price, made.cost.world, n)) for n in made.sizes
        ]:
            notes.append("scaling efficiency to expect: " + " · ".join(map(_efficiency, shown[:4])))
            points = tuple((float(n), round(usual, 4)) for n, (usual, *_) in shown)
            curves = Curves(
                "scaling efficiency to expect", "ranks", "", (Curve("predicted", points),)
            )
    return Measured(text, values, curves=curves, notes=tuple(notes))


def _efficiency(one: tuple[int, tuple[float, float, float]]) -> str:
    """`8 ranks 61 % (55-66 %)`."""
    ranks, (usual, low, high) = one
    first, last = round(100 * low), round(100 * high)
    spread = f" ({first}-{last} %)" if first < last else ""
    return f"{ranks} ranks {_part(usual)}{spread}"


def _part(number: float) -> str:
    return f"{round(100 * number)} %"


def _range(least: float, most: float) -> str:
    """`60 ms to 70 ms`, or `60 ms` where both are the same as it is written."""
    first, last = duration(least), duration(most)
    return f"{first} to {last}" if first != last else first


def _predictions(made: Predicted) -> dict[str, Any]:
    by_ranks = {
        str(n): [round(e, 4) for e in efficiency(made.step, made.price, made.cost.world, n)]
        for n in made.sizes
    }
    return {
        "predicted_step_s": {name: round(took, 6) for name, (took, *_) in made.saved.items()},
        "predicted_range_s": {
            name: [round(least, 6), round(most, 6)] for name, (_, least, most) in made.saved.items()
        },
        "per_byte_s": made.price.byte,
        "per_call_s": made.price.call,
        "price_quartiles": [round(made.price.low, 3), round(made.price.high, 3)],
        "efficiency_by_ranks": by_ranks,
        "formula": FORMULA,
    }
