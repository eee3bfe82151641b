"""The commands that look at the user's own command: rehearse and attach. Wiring only."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from preflight import agent, screen
from preflight.agent import Ending, Wish
from preflight.exits import NOT_EXECUTABLE, NOT_FOUND, OUTPUT
from preflight.flags import flags_of, option, with_flags_for_here
from preflight.isolate import Workers
from preflight.model import PreflightError
from preflight.plan import Progress


@with_flags_for_here
def rehearse(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="What to run.")],
    for_: Annotated[
        str | None, option("--for", help="Watch it for so long, then end it: 120s.")
    ] = None,
    steps: Annotated[
        int | None, option("--steps", min=1, help="Enough when every rank has done so many.")
    ] = None,
    stuck: Annotated[
        str | None, option("--stuck", help="Hung when nothing goes on for so long: 20s.")
    ] = None,
    stop_when_ok: Annotated[
        bool, option("--stop-when-ok", help="Enough when every rank trains: 5 steps.")
    ] = False,
    **given: Any,
) -> None:
    """Run CMD for a moment under watch; if it hangs, say which rank, collective, file and line.
    Nothing in it is changed: what is set for it in the environment is shown. Of a job on several
    nodes start it on each: srun preflight rehearse -- CMD."""
    from preflight import rehearse as rehearsal

    for name in filter(given.get, ("slurm", "hosts", "connect")):
        flag = f"--{name}"
        raise PreflightError(
            f"{flag}: start it on every node instead: srun preflight rehearse -- …"
        )
    asked = rehearsal.terms(command, for_, steps, stuck, stop_when_ok)
    flags = flags_of(ctx, given)
    wish = Wish(flags, given["config_file"], given["root"])

    def look(workers: Workers, show: Callable[[Progress], None]) -> Ending:
        try:
            return rehearsal.ending_of(wish, asked, workers, ctx.obj, show, given["quiet"])
        except OSError as error:
            screen.say(f"preflight: {command[0]} can't be started: {error.strerror}")
            missing = isinstance(error, FileNotFoundError)
            raise typer.Exit(NOT_FOUND if missing else NOT_EXECUTABLE) from None

    _reported(ctx, given, look)


@with_flags_for_here
def attach(
    ctx: typer.Context,
    pid: Annotated[
        int | None, typer.Argument(min=2, help="Of the launcher, or of one of its ranks.")
    ] = None,
    job: Annotated[
        int | None, option("--job", min=1, help="A SLURM job: its processes on this machine.")
    ] = None,
    for_: Annotated[str | None, option("--for", help="Look at it for so long: 6s.")] = None,
    **given: Any,
) -> None:
    """Look at a job that already runs, or hangs, from outside: who waits, and for whom. Needs
    py-spy, and leave to read its processes (root, or the same user where ptrace is allowed). Of a
    job on several nodes start it on each, with a --meet of its own."""
    from preflight import rehearse as rehearsal

    if (pid is None) == (job is None):
        raise PreflightError("attach wants a PID or --job N")
    flags = flags_of(ctx, given)
    wish = Wish(flags, given["config_file"], given["root"])
    args = {"pid": pid, "job": job}

    def look(workers: Workers, show: Callable[[Progress], None]) -> Ending:
        return rehearsal.attached(wish, args, for_, workers, ctx.obj, show)

    _reported(ctx, given, look)


def _reported(
    ctx: typer.Context,
    given: dict[str, Any],
    look_at: Callable[[Workers, Callable[[Progress], None]], Ending],
) -> NoReturn:
    """The report of what was looked at, and its exit code."""
    lines: list[screen.ProgressLine] = []

    def show(progress: Progress) -> None:
        if not lines:  # its clock begins with the checks, not with the command
            lines.append(screen.ProgressLine(quiet=given["quiet"], environ=os.environ))
        lines[0](progress)

    with agent.session(ctx.obj) as workers:
        ended = look_at(workers, show)
        for shown in lines:
            shown.clear()
        problems: tuple[str, ...] = ()
        if ended.report is not None:
            colour, letters = given["color"], given["ascii_only"]
            look = screen.look(colour, letters, given["quiet"], given["verbose"])
            problems = agent.publish(workers, ended.outputs, ended.report, look, ended.part)
            agent.summarise(workers, ended.outputs, ended.report)
    judged = ended.own_code if given["exit_style"] == "node" else ended.exit_code
    raise typer.Exit(ctx.obj.exit_code or judged or (OUTPUT if problems else 0))
