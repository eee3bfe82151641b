"""What is shown on stderr while a run goes on: on a terminal its rows as they fill in, elsewhere a
line for each check that fails and each stage that is done, and a heartbeat."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from preflight.console import say
from preflight.engine.plan import Progress
from preflight.output.terminal import OFF, colours, encodes_glyphs, is_terminal, size
from preflight.render.human import printed
from preflight.render.style import Look
from preflight.sanitize import legible

HEARTBEAT = 10.0
"""Seconds between two lines where there is no terminal."""

QUIET_START = 1.0
"""Seconds in which a run without a terminal says nothing: most quick ones are over by then."""

PICTURE = 0.1
"""Seconds between two pictures on a terminal."""


class ProgressDisplay:
    """Told at every look that the run goes on: see engine.plan.Watch."""

    def __init__(
        self,
        *,
        quiet: bool,
        environ: Mapping[str, str],
        every: float = HEARTBEAT,
        color: str = "auto",
        ascii_only: bool = False,
    ) -> None:
        in_ci = environ.get("CI", "").lower() not in OFF
        rewritable = environ.get("TERM") != "dumb" and not in_ci
        self._live = is_terminal(sys.stderr) and rewritable and not quiet
        self._ascii = ascii_only or not encodes_glyphs(sys.stderr)
        self._colour = colours(color, environ, self._live)
        self._quiet = quiet
        self._every = every
        self._stages = not in_ci
        self._said: set[str] = set()
        self._turn = self._height = 0
        self._due = time.monotonic() + (0.0 if self._live else min(QUIET_START, every))
        self._beat = time.monotonic() + every

    def __call__(self, progress: Callable[[], Progress]) -> None:
        now = time.monotonic()
        if self._quiet or now < self._due:
            return
        if self._live:
            self._due = now + PICTURE
            self._draw(progress())
        else:
            self._due = now + min(QUIET_START, self._every)
            self._log(progress(), now)

    # --- a terminal ---

    def _draw(self, progress: Progress) -> None:
        """The picture in place of the last one, in one piece: nothing flickers."""
        if not progress.leads:
            return  # on one terminal there may be several of us
        from preflight.render.live import live

        columns, rows = size(sys.stderr)
        look = Look(width=columns, ascii=self._ascii, colour=self._colour)
        lines = live(progress, look, rows - 1, self._turn)
        self._turn += 1
        text = "".join(
            f"{line}\x1b[K\n" for line in printed(lines, look).splitlines()
        ).removesuffix("\n")
        self._put(text + "\x1b[J")
        self._height = len(lines)

    def _put(self, text: str) -> None:
        """Write from where the last picture began."""
        up = f"\x1b[{self._height - 1}A" if self._height > 1 else ""
        try:
            sys.stderr.write(f"\r{up}{text}")
            sys.stderr.flush()
        except (OSError, ValueError):
            self._live, self._quiet = False, True

    def clear(self) -> None:
        """Leave nothing of it behind."""
        if self._height and self._live:
            self._put("\x1b[J")
            self._height = 0

    # --- a pipe or a file ---

    def _log(self, progress: Progress, now: float) -> None:
        if not progress.speaks:
            return
        told = self._failures(progress) if progress.leads else []
        told += self._stages_done(progress) if progress.leads and self._stages else []
        for line in told:
            self._say(progress, line)
        if told:
            self._beat = now + self._every
        elif now >= self._beat:
            self._beat = now + self._every
            self._say(progress, heartbeat(progress))

    def _failures(self, progress: Progress) -> list[str]:
        """A line for each check that has failed since the last look: it can be acted on long before
        the report is there."""
        from preflight.render.live import failed

        new = [row for row in progress.rows if row.headline and row.check not in self._said]
        self._said.update(row.check for row in new)
        return [failed(row) for row in new]

    def _stages_done(self, progress: Progress) -> list[str]:
        """A line for each that is done since the last look, in their order."""
        from preflight.render.live import by_stage, stage_done

        stages = by_stage(progress.rows)
        done = [
            name
            for name, rows in stages.items()
            if name not in self._said and all(row.status is not None for row in rows)
        ]
        self._said.update(done)
        return list(filter(None, (stage_done(name, stages[name]) for name in done)))

    def _say(self, progress: Progress, text: str) -> None:
        say(legible(f" preflight: {progress.seconds:.0f} s, {text}", self._ascii))


def heartbeat(progress: Progress) -> str:
    """How far the run is, and what it waits for."""
    waiting = f", waiting for {progress.waiting_for}" if progress.waiting_for else ""
    where = f" in {progress.check}" if progress.check else ""
    return f"{progress.done}/{progress.total} done{waiting}{where}"
