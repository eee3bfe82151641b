"""What the collectives of a step cost, and what a step would take otherwise: with smaller or fewer
messages, on more ranks. Pure.

The model has one channel that carries one message after the other. Of a backward pass it is known
when each message was begun and when the pass was over, so that

    finish = max over j of (begun[j] + bytes[j:] * per_byte + count[j:] * per_call)

gives what a byte costs: the least per_byte with which the pass would have been over when it was.
What is hidden behind the backward pass costs nothing; what sticks out is the time from the begin of
the last message to the end of the pass. A prediction is the same formula with other messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median, quantiles

from preflight.domains.job.step_parts import Backward, Sent
from preflight.frozen import dataclass

SMALL = 64 << 10
"""Bytes of a message whose time is that of a round trip, as in job.pace."""
LATENCY = 0.01
"""Seconds that a message may take whatever its size: its round trips, and the CPU's turn on a busy
machine. Passes whose messages are alike don't tell how much of a price that is."""
SUMMED = 10e-9
"""Seconds for each byte of 32 bits that a busy CPU may take to make 16 of them, to add those up in
software and to go back. A GPU does that in no time; Gloo's tensors are on the CPU."""
LEAST = 6
"""Backward passes from which a price is taken."""


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds for each byte and each message. low, high: quartiles of the passes, as factors of
    it."""

    byte: float
    call: float = 0.0
    low: float = 1.0
    high: float = 1.0

    def times(self, byte: float, call: float) -> Price:
        return Price(self.byte * byte, self.call * call, self.low, self.high)


def finish(sent: Sequence[Sent], price: Price) -> float:
    """Seconds after the begin of a backward pass at which its last message is through."""
    left, count, end = 0, 0, 0.0
    for one in reversed(sent):
        left, count = left + one.bytes, count + 1
        end = max(end, one.after + left * price.byte + count * price.call)
    return end


def price_of(passes: Sequence[Backward], call: float = 0.0) -> Price | None:
    """What messages cost in these passes; None of too few, and where they take no time. call: what
    each of them costs whatever its size, so that the rest is for its bytes."""
    sending = [one for one in passes if one.sent and sum(s.bytes for s in one.sent) > 0]
    if len(sending) < LEAST:
        return None
    small = all(sent.bytes < SMALL for one in sending for sent in one.sent)
    found = [_least(one, small, call) for one in sending]
    usual = median(found)
    if usual <= 0:
        return Price(0.0, call) if call else None
    low, _, high = quantiles(found, n=4)
    spread = (low / usual, high / usual)
    return Price(0.0, usual, *spread) if small else Price(usual, call, *spread)


def _least(one: Backward, small: bool, call: float) -> float:
    left, least, fixed = 0, float("inf"), 0.0
    for sent in reversed(one.sent):
        left += 1 if small else sent.bytes
        fixed += 0.0 if small else call
        if left:
            least = min(least, max(0.0, one.seconds - sent.after - fixed) / left)
    return least


def exposed(one: Backward) -> float:
    """Seconds of a pass after its last message was begun: nothing is left to compute then."""
    return max(0.0, one.seconds - one.sent[-1].after) if one.sent else 0.0


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A step of one rank, in seconds.

    whole      all of it
    optimizer  in the optimizer
    syncs      backward passes of it in which messages are sent, of `passes` in all
    """

    whole: float
    optimizer: float
    forwards: float
    passes: tuple[Backward, ...]

    @property
    def sending(self) -> list[Backward]:
        return [one for one in self.passes if one.sent]

    @property
    def syncs(self) -> float:
        """Backward passes per step that send something."""
        return self.forwards * len(self.sending) / len(self.passes) if self.passes else 0.0

    @property
    def exposed(self) -> float:
        """Seconds per step in which it only waits for its messages."""
        each = median(map(exposed, self.sending)) if self.sending else 0.0
        return min(self.whole, self.syncs * each)

    @property
    def bytes(self) -> float:
        """Per step."""
        sums = [sum(s.bytes for s in one.sent) for one in self.sending]
        return self.syncs * median(sums) if sums else 0.0

    @property
    def alone(self) -> float:
        """What a step would take without any message."""
        return self.whole - self.exposed

    def with_messages(
        self, price: Price, changed: Callable[[Sequence[Sent]], Sequence[Sent]] = lambda sent: sent
    ) -> float:
        """Seconds of a step at another price, or with other messages."""
        costs = [
            max(0.0, finish(changed(one.sent), price) - one.sent[-1].after) for one in self.sending
        ]
        return self.alone + self.syncs * (median(costs) if costs else 0.0)


def halved(sent: Sequence[Sent]) -> list[Sent]:
    """The same in 16 bits."""
    return [Sent(s.after, s.bytes // 2) if s.single else s for s in sent]


def halved_slowly(step: TrainingStep, price: Price) -> float:
    """Seconds of a step with messages in 16 bits on a CPU that is busy."""
    return step.with_messages(price, halved) + SUMMED * step.bytes


def joined(sent: Sequence[Sent]) -> list[Sent]:
    """All in one message, begun when the last one was."""
    return [Sent(sent[-1].after, sum(s.bytes for s in sent))]


def accumulated(step: TrainingStep, batches: int) -> float:
    """Seconds per batch if `batches` were accumulated, for a step that has one now: only the last
    backward pass sends messages, and the optimizer steps after it."""
    return step.whole - (step.exposed + step.optimizer) * (batches - 1) / batches


def sent_once(step: TrainingStep) -> float:
    """Seconds of a step of several batches if its last backward pass alone sent messages."""
    return step.whole - step.exposed * max(0.0, 1 - 1 / step.syncs) if step.syncs else step.whole


def on_ranks(price: Price, now: int, then: int) -> Price:
    """The same network with other numbers of ranks, by a ring: each rank sends 2 (n-1)/n of all
    bytes, in 2 (n-1) turns."""
    part = ((then - 1) / then) / ((now - 1) / now)
    return price.times(part, (then - 1) / (now - 1))


def efficiency(step: TrainingStep, price: Price, now: int, then: int) -> tuple[float, float, float]:
    """What part of a step is left for work with so many ranks: the usual, the least and the most.
    Between these it lies with each quartile of the price; and with messages that take LATENCY
    whatever their size, of which a ring of more ranks has more."""
    fixed = price_of(step.passes, LATENCY) if price.byte else None
    found = []
    for one in (price, *([fixed] if fixed is not None else [])):
        there = on_ranks(one, now, then)
        for factor in (1.0, one.high, one.low):
            whole = step.with_messages(there.times(factor, factor))
            found.append(step.alone / whole if whole > 0 else 1.0)
    return found[0], min(found), max(found)
