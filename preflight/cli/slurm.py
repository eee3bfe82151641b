"""`preflight slurm …`: what slurmd calls. Wiring only; exit code 3 where the node is at fault."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from preflight import console, redact
from preflight.cli.printing import printed
from preflight.engine import agent
from preflight.humanize import nearest
from preflight.model import PreflightError
from preflight.process.pool import Workers

FOLDER = "/run/preflight"
"""Where the hooks keep what they have to tell each other; root's, and gone after a boot."""

HOOKS = ("prolog", "task-prolog", "healthcheck", "epilog")

EXITS = "Exit codes: 3 this node is at fault · 0 anything else, a fault of preflight's own as well."
ZERO = "Exit code: 0, whatever it finds."

app = typer.Typer(
    name="slurm",
    help="The hooks of SLURM: prolog, task prolog, health check, epilog.",
    epilog="`preflight slurm snippet HOOK` prints the script that belongs around each.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ConfigFile = Annotated[
    str | None, typer.Option("--config", help="Else /etc/preflight/config.toml, if it is there.")
]
Root = Annotated[str, typer.Option("--root", hidden=True)]
State = Annotated[str, typer.Option("--state", hidden=True)]


@app.command(epilog=EXITS, short_help="Before a job: check this node, drain it if it is broken.")
def prolog(
    ctx: typer.Context, config_file: ConfigFile = None, root: Root = "/", state: State = FOLDER
) -> None:
    """Before a job: check this node, and drain it where its own hardware or system is at fault."""

    def hook(workers: Workers) -> int:
        from preflight.slurm import hooks

        return hooks.prolog(hooks.hook_here("prolog", config_file, root, state), workers)

    _end(ctx, hook)


@app.command(epilog=EXITS, short_help="Between jobs: check this node, drain it or undrain it.")
def healthcheck(
    ctx: typer.Context, config_file: ConfigFile = None, root: Root = "/", state: State = FOLDER
) -> None:
    """Between jobs: check this node and drain it as the prolog does; undrain it when the fault that
    preflight drained it for is gone."""

    def hook(workers: Workers) -> int:
        from preflight.slurm import hooks

        return hooks.healthcheck(hooks.hook_here("healthcheck", config_file, root, state), workers)

    _end(ctx, hook)


@app.command(epilog=ZERO, short_help="After a job: list what it left on this node.")
def epilog(ctx: typer.Context, root: Root = "/", state: State = FOLDER) -> None:
    """After a job: list the processes on GPUs, files in /dev/shm and ports that it left behind."""

    def hook(workers: Workers) -> int:
        from preflight.slurm import hooks

        return hooks.epilog(hooks.hook_here("epilog", None, root, state), workers)

    _end(ctx, hook)


@app.command(
    "task-prolog", epilog=ZERO, short_help="In a job: print the state of its node in one line."
)
def task_prolog(
    ctx: typer.Context,
    report: Annotated[
        str | None, typer.Option("--report", help="A JSON report; else that of the prolog.")
    ] = None,
    state: State = FOLDER,
) -> None:
    """In a job: print the state of its node in one line, from the prolog or a quick run."""

    def hook(workers: Workers) -> int:
        from preflight.slurm import hooks

        return hooks.task_prolog(report, workers, ctx.obj, state)

    _end(ctx, hook)


@app.command(short_help="Print the shell script around a hook.")
def snippet(
    hook: Annotated[
        str,
        typer.Argument(metavar="HOOK", help=f"{', '.join(HOOKS)}.", autocompletion=lambda: HOOKS),
    ],
) -> None:
    """Print the shell script for slurm.conf that calls a hook; a broken preflight can't harm it."""
    from preflight.slurm.wrapper_script import script

    if hook not in HOOKS:
        raise PreflightError(
            f"no hook {hook!r:.40}, there are {', '.join(HOOKS)}{nearest(hook, HOOKS)}"
        )
    python = os.path.abspath(sys.executable)
    printed(script(hook, python, FOLDER, os.environ.get("SLURM_CONF", "")))


def _end(ctx: typer.Context, hook: Callable[[Workers], int]) -> None:
    """Run a hook and exit with its code. A fault of ours, even of an import, or of its config file
    is printed and lets the job run, also where there is no script around this."""
    try:
        with agent.session(ctx.obj) as workers:
            code = hook(workers)
    except PreflightError as error:
        console.say(redact.without(f"preflight: {error}", redact.secrets(os.environ, sys.argv)))
        code = 0
    except Exception:  # noqa: BLE001  our bug drains no node
        console.say(redact.without(traceback.format_exc(), redact.secrets(os.environ, sys.argv)))
        console.say("preflight: this is our fault, not this node's")
        code = 0
    raise typer.Exit(code)
