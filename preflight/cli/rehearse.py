"""The commands that look at the user's own command: rehearse and attach. Wiring only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from preflight.cli import reporting
from preflight.cli.flags import flags_of, option, with_flags_for_here
from preflight.engine import agent
from preflight.engine.agent import Ending, Wish
from preflight.engine.plan import Progress, Watch
from preflight.model import PreflightError
from preflight.output import files
from preflight.output.progress import ProgressDisplay
from preflight.process.pool import Workers


@with_flags_for_here
def rehearse(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Command to run.")],
    for_: Annotated[
        str | None,
        option("--for", help="How long to watch CMD before it is ended. [default: 120s]"),
    ] = None,
    steps: Annotated[
        int | None,
        option("--steps", min=1, help="End CMD when every rank has done this many steps."),
    ] = None,
    stuck: Annotated[
        str | None,
        option("--stuck", help="Call it hung after this long without progress. [default: 20s]"),
    ] = None,
    stop_when_ok: Annotated[
        bool, option("--stop-when-ok", help="End CMD when every rank has done 5 steps.")
    ] = False,
    **given: Any,
) -> None:
    """Run CMD for up to 2 minutes and, if it hangs, name the rank, collective, file and line.
    Nothing in it is changed: what is set for it in the environment is shown. For a job on several
    nodes, start it on each: srun preflight rehearse -- CMD."""
    from preflight.rehearsal import run
    from preflight.rehearsal.command import NotStarted

    asked = run.terms(command, for_, steps, stuck, stop_when_ok)
    flags = flags_of(ctx, given)
    reporting.check_styles(flags, given)
    wish = Wish(flags, given["config_file"], given["root"])

    def look(workers: Workers, show: Watch) -> Ending:
        if (missing := files.not_startable(workers, command[0])) is not None:
            raise typer.Exit(reporting.not_started(command[0], missing))
        try:
            return run.ending_of(wish, asked, workers, ctx.obj, show, given["quiet"])
        except NotStarted as problem:
            raise typer.Exit(reporting.not_started(command[0], problem.error)) from None

    _reported(ctx, given, look)


@with_flags_for_here
def attach(
    ctx: typer.Context,
    pid: Annotated[
        int | None, typer.Argument(min=2, help="Process id of the launcher or of one of its ranks.")
    ] = None,
    job: Annotated[
        int | None, option("--job", min=1, help="SLURM job: look at its processes on this machine.")
    ] = None,
    for_: Annotated[str | None, option("--for", help="How long to look. [default: 6s]")] = None,
    **given: Any,
) -> None:
    """Look at a job that already runs, or hangs, and name the rank that the others wait for. Asks
    torch's debug server where the script has started it, else py-spy, and NCCL's RAS service where
    the job offers it. Needs permission to read its processes (root, or the same user where ptrace
    is allowed). For a job on several nodes, start it on each, with a --meet of its own."""
    from preflight.attach import running_job

    if (pid is None) == (job is None):
        raise PreflightError("attach wants a PID or --job N")
    flags = flags_of(ctx, given)
    reporting.check_styles(flags, given)
    wish = Wish(flags, given["config_file"], given["root"])
    args = {"pid": pid, "job": job}

    def look(workers: Workers, show: Watch) -> Ending:
        return running_job.ending_of(wish, args, for_, workers, ctx.obj, show)

    _reported(ctx, given, look)


def _reported(
    ctx: typer.Context,
    given: dict[str, Any],
    look_at: Callable[[Workers, Watch], Ending],
) -> NoReturn:
    """The report of what was looked at, and its exit code."""
    displays: list[ProgressDisplay] = []

    def show(progress: Callable[[], Progress]) -> None:
        if not displays:  # its clock begins with the checks, not with the command
            displays.append(reporting.display(given))
        displays[0](progress)

    with agent.session(ctx.obj) as workers:
        ended = look_at(workers, show)
        for display in displays:
            display.clear()
        problems = reporting.reported(workers, ended, given)
    raise typer.Exit(reporting.exit_code(given["exit_style"], ended, problems, ctx.obj))
