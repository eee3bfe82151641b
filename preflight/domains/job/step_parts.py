"""Where the time of a rank's steps goes on the host, and the batches that it gets. Pure."""

from __future__ import annotations

import math
from statistics import median

from preflight.domains.job.draws import Draw
from preflight.domains.job.frame import Frame
from preflight.domains.job.labels import Labels
from preflight.frozen import dataclass
from preflight.strenum import StrEnum


@dataclass(frozen=True, slots=True)
class Sent:
    """A collective of a backward pass: so many seconds after its begin, of so many bytes; whether
    these are numbers of 32 bits."""

    after: float
    bytes: int
    single: bool = False


@dataclass(frozen=True, slots=True)
class Backward:
    """From the end of a forward to the optimizer, or to the next forward, in seconds, and the
    collectives that were begun meanwhile, in their order."""

    seconds: float
    sent: tuple[Sent, ...] = ()


class StepPart(StrEnum):
    """Of a step."""

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True, slots=True)
class Timed:
    """A part of one of the latest steps: when it began, on the wall clock, how many seconds it
    took, and in how many of them, at its end, it only waited for its collectives."""

    part: StepPart
    start: float
    seconds: float
    waits: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchAmount:
    """Of work: sums over batches, and the shape of the first tensor of the latest one. Of what a
    model in DDP or FSDP gets: the user's line that gives it, and how many ranks average its
    gradients."""

    batches: int = 0
    samples: int = 0
    elements: int = 0
    squares: int = 0
    shape: str = ""
    frame: Frame | None = None
    ranks: int = 0

    @property
    def size(self) -> float:
        """Samples of a batch, on average."""
        return self.samples / self.batches if self.batches else 0.0

    @property
    def content(self) -> float:
        """Elements of a sample, on average: grows with the length of sequences."""
        return self.elements / self.samples if self.samples else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean number of elements of a batch, as a part of it."""
        if self.batches < 2 or not self.elements:
            return math.inf
        mean = self.elements / self.batches
        spread = max(0.0, self.squares / self.batches - mean * mean)
        return math.sqrt(spread / self.batches) / mean


@dataclass(frozen=True, slots=True)
class StepParts:
    """forward, backward, optimizer: seconds in all over `steps`; backward is all between the end of
    a forward of DDP and that of backward(), its collectives included, on a GPU until the optimizer.
    after: seconds in all from there to the optimizer. between: median seconds from the
    optimizer to the next forward, but for waiting for data; cpu: seconds of CPU per step, all
    threads of the process together. forwards: how many there were;
    passes: the latest backward passes of which all collectives are known; latest: parts of the
    latest steps. samples, elements, squares, bytes: sums over `batches` of the steps; shape: of the
    latest one's first tensor. marks: steps, each with a number that is equal for equal inputs of
    DDP's forward. inputs: what the forward of DDP or FSDP gets, wherever it comes from. threads:
    with how many torch computes an operation on the CPU; 0 where that is not known. labels, draws:
    of a few steps. contents: of the first batch of each of these, a number that is equal for equal
    integers in it, such as labels, and one for the other numbers."""

    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    steps: int = 0
    batches: int = 0
    samples: int = 0
    elements: int = 0
    squares: int = 0
    bytes: int = 0
    shape: str = ""
    forwards: int = 0
    passes: tuple[Backward, ...] = ()
    between: float = 0.0
    after: float = 0.0
    cpu: float = 0.0
    latest: tuple[Timed, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    inputs: BatchAmount = BatchAmount()
    threads: int = 0
    labels: tuple[Labels, ...] = ()
    draws: tuple[Draw, ...] = ()
    contents: tuple[tuple[int, int, int], ...] = ()

    def usual(self, part: StepPart) -> float:
        """Seconds of this part in a step: of the latest ones, since much happens for the first time
        in the first, or of all where none are known."""
        took = [timed.seconds for timed in self.latest if timed.part is part]
        steps = sum(timed.part is StepPart.OPTIMIZER for timed in self.latest)
        if steps:
            return median(took) if len(took) == steps else sum(took) / steps
        whole = {
            StepPart.FORWARD: self.forward,
            StepPart.BACKWARD: self.backward,
            StepPart.OPTIMIZER: self.optimizer,
        }
        return whole.get(part, 0.0) / self.steps if self.steps else 0.0

    @property
    def other(self) -> float:
        """Seconds of a step that are in none of these parts, nor spent waiting for data."""
        return self.between + (self.after / self.steps if self.steps else 0.0)

    @property
    def data(self) -> BatchAmount:
        """What its DataLoaders gave for its steps."""
        return BatchAmount(self.batches, self.samples, self.elements, self.squares, self.shape)
