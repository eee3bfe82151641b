"""The command line; wiring only. Exit codes are those of the contract, whatever happens."""

from __future__ import annotations

import errno
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from preflight import __version__, agent, check, config, screen, verdict
from preflight.agent import Wish
from preflight.config import Flags, Output
from preflight.interrupt import Interrupt
from preflight.isolate import Workers
from preflight.model import PreflightError, Report, Status, Verdict

USAGE, OUTPUT, INTERNAL, NOT_FOUND, NOT_EXECUTABLE = 2, 74, 70, 127, 126

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""With these only writing to a standard stream can fail here: workers write all files."""

EXITS = """Exit codes: 0 READY · 2 usage · 3 NOT READY · 4 UNDECIDED · 5 INCOMPLETE · 74 a report
file could not be written · 70 our own fault · 130/143 interrupted."""

app = typer.Typer(
    name="preflight",
    help="Why a distributed PyTorch job would hang or crawl here: which host, rank, variable, "
    "port, device or limit, and what to do about it.",
    epilog=EXITS,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _ids(incomplete: str) -> list[str]:
    """Completion of ids, also of the last one in a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    loaded = check.load()
    return [before + comma + i for i in (*loaded.checks, *loaded.broken) if i.startswith(last)]


def _levels(incomplete: str) -> list[str]:
    return [level for level in check.Level if level.startswith(incomplete)]


def _option(*names: str, env: str = "", **more: Any) -> Any:
    """An option that is also an environment variable."""
    flag = names[0].lstrip("-").replace("-", "_").upper()
    return typer.Option(*names, envvar=env or f"PREFLIGHT_{flag}", show_envvar=False, **more)


def _run_flags(
    nproc: Annotated[
        int | None, _option("--nproc", min=1, max=4096, help="Ranks on this node.")
    ] = None,
    level: Annotated[
        str | None, _option("--level", help="quick, standard or deep.", autocompletion=_levels)
    ] = None,
    only: Annotated[
        list[str] | None,
        _option("--only", help="Ids, prefixes or globs: net.*", autocompletion=_ids),
    ] = None,
    skip: Annotated[
        list[str] | None, _option("--skip", help="Leave these out.", autocompletion=_ids)
    ] = None,
    tolerate: Annotated[
        list[str] | None,
        _option("--tolerate", help="A FAIL of it becomes a warning.", autocompletion=_ids),
    ] = None,
    strict: Annotated[
        bool | None,
        _option("--strict/--no-strict", env="PREFLIGHT_STRICT", help="WARN: not ready."),
    ] = None,
    expect: Annotated[
        list[str] | None, _option("--expect", help="key=value, e.g. gpus_per_node=4")
    ] = None,
    deadline: Annotated[str | None, _option("--deadline", help="Of the whole run: 90s.")] = None,
    timeout: Annotated[list[str] | None, _option("--timeout", help="Of one check: ID=20s.")] = None,
    checkpoint_dir: Annotated[
        str | None, _option("--checkpoint-dir", help="Must be writable, too.")
    ] = None,
    exit_style: Annotated[
        str, _option("--exit", help="world, node, or nagios (exits 0/1/2/3).")
    ] = "world",
    output: Annotated[
        list[str] | None, _option("--output", "-o", help="human, json=FILE, … (- is stdout).")
    ] = None,
    quiet: Annotated[bool, _option("--quiet", "-q", help="Verdict and findings only.")] = False,
    verbose: Annotated[bool, _option("--verbose", "-v", help="Marks and provenance.")] = False,
    color: Annotated[str, _option("--color", help="auto, always or never.")] = "auto",
    ascii_only: Annotated[bool, _option("--ascii", help="No other glyphs.")] = False,
    config_file: Annotated[str | None, _option("--config", help="The config file.")] = None,
    root: Annotated[str, _option("--root", hidden=True)] = "/",
) -> None:
    """The flags that `run` and `gate` share: only its signature is used."""


SHARED = list(inspect.signature(_run_flags, eval_str=True).parameters.values())


def _with_run_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared flags; it receives them as keyword arguments."""
    own = [
        p
        for p in inspect.signature(command, eval_str=True).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    shared = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in SHARED]
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return command


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Version and where it runs from.")
    ] = False,
) -> None:
    if version:
        _print(f"preflight {__version__} from {os.path.dirname(__file__)}\n")
        raise typer.Exit


@app.command(epilog=EXITS)
@_with_run_flags
def run(ctx: typer.Context, **given: Any) -> None:
    """Observe, judge, print the report, exit by its verdict."""
    with agent.session(ctx.obj) as workers:
        report, problems = _report(ctx, workers, given)
    raise typer.Exit(_exit_code(given["exit_style"], report, problems, ctx.obj))


@app.command(context_settings={"allow_interspersed_args": False}, epilog=EXITS)
@_with_run_flags
def gate(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="What to start.")],
    start_undecided: Annotated[
        bool, _option("--start-undecided", help="Start CMD on UNDECIDED, too.")
    ] = False,
    **given: Any,
) -> None:
    """Run the checks, then become CMD if READY; otherwise say that it was not started."""
    if not command[0]:
        raise PreflightError("CMD is an empty word")
    with agent.session(ctx.obj) as workers:
        report, problems = _report(ctx, workers, given)
    ctx.obj.release()  # a signal that comes from here on ends us before CMD, or CMD
    wanted = (Verdict.READY, Verdict.UNDECIDED) if start_undecided else (Verdict.READY,)
    if report.verdict in wanted and not ctx.obj.name:
        _become(command)
    code = _exit_code(given["exit_style"], report, problems, ctx.obj)
    screen.say(f" {command[0]} was not started.   exit {code}")
    raise typer.Exit(code)


@app.command("list")
def list_checks(
    json_output: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """The checks that there are: id, stage, needs, budget, what they touch."""
    from preflight.render import manual

    catalogue = check.load()
    if json_output:
        import json

        everything = [manual.data(loaded) for loaded in catalogue]
        _print(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
    else:
        columns = screen.width(sys.stdout) if screen.is_terminal(sys.stdout) else None
        _print(screen.spelled(manual.table(catalogue, columns)))


@app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="ID", help="A check's id or a finding's code.", autocompletion=_ids),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="human or json")] = "human",
) -> None:
    """What a check looks at, when it fails, what to do: offline."""
    from preflight.render import manual

    catalogue = check.load()
    loaded, code = manual.find(catalogue, name)
    if output == "json":
        import json

        _print(json.dumps(manual.data(loaded), indent=1, ensure_ascii=False) + "\n")
    elif output == "human":
        also = manual.owners(catalogue, code)
        text = manual.explain(loaded, code, min(110, screen.width(sys.stdout)), also)
        _print(screen.spelled(text))
    else:
        raise PreflightError(f"explain prints human or json, not {output!r:.40}")


@app.command()
def show(
    report: Annotated[str, typer.Argument(metavar="REPORT", help="A saved JSON report.")],
    judge: Annotated[
        bool, typer.Option("--judge", help="Judge its observations again, by today's config.")
    ] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="human or json")] = "human",
    expect: Annotated[list[str] | None, typer.Option("--expect", help="key=value")] = None,
    tolerate: Annotated[list[str] | None, typer.Option("--tolerate", help="An id.")] = None,
    strict: Annotated[bool | None, typer.Option("--strict/--no-strict")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v")] = False,
    color: Annotated[str, typer.Option("--color")] = "auto",
    ascii_only: Annotated[bool, typer.Option("--ascii")] = False,
    config_file: Annotated[str | None, typer.Option("--config", envvar="PREFLIGHT_CONFIG")] = None,
) -> None:
    """Print a saved report again; --judge re-runs the judgement and exits by its verdict."""
    from preflight.render import json as as_json

    shown = Output(config.known_format(output, "-o"))
    text, problem = agent.read(report, as_json.LIMIT)
    if problem:
        raise PreflightError(problem)
    try:
        read = as_json.parse(text)
    except PreflightError as error:
        raise PreflightError(f"{report}: {error}") from None
    code = 0
    if judge:
        flags = Flags(expect=tuple(expect or ()), tolerate=tuple(tolerate or ()), strict=strict)
        chosen, catalogue = agent.configured(Wish(flags, config_file))
        read = verdict.judge(read.observations, catalogue, chosen.expect, chosen.policy)
        code = read.exit_code
    look = screen.look(color, ascii_only, quiet, verbose)
    _print(agent.rendered(shown, read, look))
    raise typer.Exit(code)


@app.command()
def schema() -> None:
    """The JSON schema of the report."""
    from importlib.resources import files

    _print(files("preflight").joinpath("report-v1.schema.json").read_text(encoding="utf-8"))


# --- one run ---


def _report(
    ctx: typer.Context, workers: Workers, given: dict[str, Any]
) -> tuple[Report, tuple[str, ...]]:
    """The report, published, and what could not be written of it."""
    flags = _flags(ctx, given)
    _one_of(flags, "color", given["color"], ("auto", "always", "never"))
    _one_of(flags, "exit_style", given["exit_style"], EXIT_STYLES)
    progress = screen.ProgressLine(quiet=given["quiet"], environ=os.environ)
    wish = Wish(flags, given["config_file"], given["root"])
    report, chosen = agent.report_of(wish, workers, ctx.obj, progress)
    progress.clear()
    look = screen.look(given["color"], given["ascii_only"], given["quiet"], given["verbose"])
    return report, agent.publish(workers, chosen.outputs, report, look)


def _one_of(flags: Flags, name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        known = ", ".join(words)
        raise PreflightError(
            f"{flags.source(name)} is one of {known}, got {value!r:.40}"
            f"{check.nearest(value, words)}"
        )


def _flags(ctx: typer.Context, given: dict[str, Any]) -> Flags:
    """What was given, each with the flag or variable that it came from."""
    sources = {}
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        from_environment = source is not None and source.name == "ENVIRONMENT"
        switched_off = given.get(name) is False and parameter.secondary_opts
        flag = (parameter.secondary_opts if switched_off else parameter.opts)[0]
        sources[name] = f"env {parameter.envvar}" if from_environment else flag
    many = ("only", "skip", "tolerate", "expect", "timeout", "output")
    return Flags(
        level=given["level"],
        nproc=given["nproc"],
        deadline=given["deadline"],
        strict=given["strict"],
        checkpoint_dir=given["checkpoint_dir"],
        sources=sources,
        **{name: tuple(given[name] or ()) for name in many},
    )


EXIT_STYLES = ("world", "node", "nagios")


def _exit_code(style: str, report: Report, problems: tuple[str, ...], interrupt: Interrupt) -> int:
    """A function of the report; only an output that failed or a late signal can still be added.
    `--exit nagios` is the one exception from the table: OK, WARNING, CRITICAL, UNKNOWN."""
    code = interrupt.exit_code or report.exit_code or (OUTPUT if problems else 0)
    if style != "nagios":
        return code
    if report.verdict is Verdict.NOT_READY:
        return 2
    if report.verdict is Verdict.READY and code in (0, OUTPUT):
        return int(code == OUTPUT or any(row.status is Status.WARN for row in report.rows))
    return 3


def _become(command: list[str]) -> NoReturn:
    """Replace this process: no parent stays behind, streams and signals are the command's own."""
    # Python ignores these two, and what is ignored stays ignored over exec
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        screen.say(f"preflight: {command[0]} can't be started: {error.strerror}")
        missing = isinstance(error, FileNotFoundError)
        raise typer.Exit(NOT_FOUND if missing else NOT_EXECUTABLE) from None


def _print(text: str) -> None:
    if problem := screen.write(text):
        screen.say(f"preflight: {problem}")
        raise typer.Exit(OUTPUT)


# --- the outermost ---


def main(interrupt: Interrupt | None = None) -> NoReturn:
    """Run the app; every way out has its code."""
    try:
        app(prog_name="preflight", obj=interrupt or Interrupt())
    except PreflightError as error:
        screen.say(f"preflight: {error}")
        code = USAGE
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
        typers_own = not isinstance(error.__context__, typer.Exit)
        if typers_own and code == USAGE:
            _name_variables()
        elif typers_own and code == 1:  # the reader of the help went away (`| head`)
            code = 0
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except OSError as error:
        if error.errno in OUTPUT_ERRORS:
            screen.say(f"preflight: output: {error.strerror}")
            code = OUTPUT
        else:
            code = _crashed()
    except Exception:  # noqa: BLE001  our bug: never drains a node, never looks like the cluster's
        code = _crashed()
    else:
        code = 0
    if (problem := screen.write("")) and code == 0 and sys.stdout is not None:
        screen.say(f"preflight: {problem}")
        code = OUTPUT
    sys.exit(code)


def _name_variables() -> None:
    """A usage error may be the environment's."""
    names = [p.annotation.__metadata__[0].envvar for p in SHARED]
    given = [name for name in names if os.environ.get(name)]
    if given:
        screen.say(f"preflight: flags are also taken from the environment: {', '.join(given)}")


def _crashed() -> int:
    """Keep the traceback of what is being handled, say where."""
    text = traceback.format_exc()
    screen.say(text)
    try:
        import tempfile

        handle, path = tempfile.mkstemp(prefix="preflight-crash-", suffix=".log", dir="/tmp")
        with os.fdopen(handle, "w") as file:
            file.write(f"preflight {__version__}, python {sys.version}\n{sys.argv!r:.2000}\n{text}")
        screen.say(f"preflight: this is our fault, not your cluster's; the traceback is in {path}")
    except OSError:
        screen.say("preflight: this is our fault, not your cluster's; please report the above")
    return INTERNAL
