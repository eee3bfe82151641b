"""Marks and times the steps of one rank through an observation, and keeps torch's error."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from preflight.check import Context
from preflight.frozen import dataclass

TEXT = 300
"""Characters kept of what torch says."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The step at which a rank gave up, and what torch said."""

    step: str
    kind: str
    text: str


class Steps:
    """The steps of one rank through an observation: each is marked before it is taken, so that the
    marks tell which rank waits for which. `seconds` holds the steps that were completed."""

    def __init__(self, ctx: Context) -> None:
        self._mark = ctx.mark
        self._now = ""
        self._since = 0.0
        self._until = time.perf_counter() + ctx.seconds
        self.seconds: dict[str, float] = {}
        self.trouble: Trouble | None = None

    def at(self, step: str) -> None:
        """The step before is done, this one begins."""
        self.done()
        self._mark(step)
        self._now, self._since = step, time.perf_counter()

    def left(self) -> float:
        """Seconds until the observation is killed."""
        return self._until - time.perf_counter()

    def done(self) -> None:
        if self._now:
            self.seconds[self._now] = round(time.perf_counter() - self._since, 6)
        self._now = ""

    @contextmanager
    def until_trouble(self) -> Iterator[None]:
        """What torch raises ends the block and is kept with its step; what else is raised is our
        bug and goes on. torch's errors of store, network and backend are all RuntimeErrors."""
        try:
            yield
        except (RuntimeError, ValueError, OSError) as error:
            kind = type(error).__name__
            self.trouble = Trouble(self._now, kind, readable(str(error)) or kind)
            self._now = ""
        self.done()


def readable(text: str) -> str:
    """An error of torch in one line, cut. NCCL's own reason comes first. Socket addresses in
    c10d's texts are dropped, in torch 2.13 they are garbage; its `(host, port)` is right, and so
    are the addresses in Gloo's texts."""
    text = text[: 100 * TEXT].partition("Exception raised from ")[0]
    head, _, reason = text.partition("Last error:")
    if reason.strip():
        text = f"{reason.strip()} ({head.strip()})"
    first, _, trace = text.partition("Original Traceback")  # of a DataLoader's worker
    if trace.strip():
        text = f"{first} {trace.strip().splitlines()[-1]}"
    text = " ".join(re.sub(r"\[(enforce fail at )?/\S+:\d+\]", " ", text).split())
    if "socket has" in text:
        text = re.sub(r"(\[[^\]\s]*\]|\b[\w.-]+):\d{1,5}\b", "…", text)
    return text[:TEXT]
