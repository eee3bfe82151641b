"""The command line; wiring only. Exit codes are those of the contract, whatever happens."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer

from preflight import __version__, console, redact, registry
from preflight.cli import baseline, demo, rehearse, reporting, slurm
from preflight.cli.flags import SHARED, flags_of, ids_and_codes, option, with_run_flags
from preflight.cli.printing import printed
from preflight.config import resolve
from preflight.config.resolve import Flags
from preflight.engine import agent
from preflight.engine.agent import Ending, Wish
from preflight.humanize import one_of
from preflight.identity.launcher_options import as_variables
from preflight.judge import verdict
from preflight.model import PreflightError, Report, Verdict
from preflight.output import files, terminal
from preflight.output.exit_codes import INTERNAL, OUTPUT, UNKNOWN, USAGE
from preflight.process.forkserver import reap_orphans
from preflight.process.pool import Workers
from preflight.process.signals import Interrupt
from preflight.sanitize import json_text, one_line

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""With these only writing to a standard stream can fail here: workers write all files."""

EXITS = """Exit codes: 0 READY · 2 usage · 3 NOT READY · 4 UNDECIDED · 5 INCOMPLETE · 74 a report
file could not be written · 70 our own fault · 129/130/143 interrupted."""

COMMAND_FOLLOWS = {"allow_interspersed_args": False}
"""What stands behind the first word that is no flag is the command's."""

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
for name, group in (("baseline", baseline.app), ("slurm", slurm.app)):
    app.add_typer(group, name=name, context_settings={"help_option_names": ["-h", "--help"]})


@app.callback(invoke_without_command=True)
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version and where preflight is installed."),
    ] = False,
) -> None:
    if version:
        printed(f"preflight {__version__} from {os.path.dirname(os.path.dirname(__file__))}\n")
        raise typer.Exit


@app.command(epilog=EXITS, short_help="Run the checks and print a report.")
@with_run_flags
def run(ctx: typer.Context, **given: Any) -> None:
    """Run the checks and print a report; the exit code is the verdict."""
    with agent.session(ctx.obj) as workers:
        ended, problems = _run_and_publish(ctx, workers, given)
    raise typer.Exit(reporting.exit_code(given["exit_style"], ended, problems, ctx.obj))


@app.command(
    context_settings=COMMAND_FOLLOWS,
    epilog=EXITS,
    short_help="Run the checks, then start CMD if READY.",
)
@with_run_flags
def gate(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Command to start.")],
    start_undecided: Annotated[
        bool, option("--start-undecided", help="Start CMD also when the verdict is UNDECIDED.")
    ] = False,
    **given: Any,
) -> None:
    """Run the checks and, if the verdict is READY, start CMD in place of preflight."""
    if not command[0]:
        raise PreflightError("CMD is an empty word")
    inherited = dict(os.environ)
    if not given["slurm"] and not given["hosts"]:
        os.environ.update(as_variables(command, inherited))
    with agent.session(ctx.obj) as workers:
        if (error := files.not_startable(workers, command[0])) is not None:
            raise typer.Exit(reporting.not_started(command[0], error))
        ended, problems = _run_and_publish(ctx, workers, given)
    ctx.obj.release()  # a signal that comes from here on ends us before CMD, or CMD
    wanted = (Verdict.READY, Verdict.UNDECIDED) if start_undecided else (Verdict.READY,)
    if ended.verdict in wanted and not ctx.obj.name:
        _exec_command(command, inherited)
    code = reporting.exit_code(given["exit_style"], ended, problems, ctx.obj)
    said = f" {one_line(command[0])} was not started.   exit {code}"
    console.say(redact.without(said, redact.secrets(os.environ, sys.argv)))
    raise typer.Exit(code)


app.command(
    context_settings=COMMAND_FOLLOWS,
    epilog=EXITS,
    short_help="Run CMD briefly and name the rank and line that hangs.",
)(rehearse.rehearse)
app.command(epilog=EXITS, short_help="Name the rank that hangs in a job that runs.")(
    rehearse.attach
)


@app.command(epilog="Exit codes: 0 · 2 usage.", short_help="Show how preflight detects your job.")
@with_run_flags
def plan(ctx: typer.Context, **given: Any) -> None:
    """Show how preflight detects your job and which checks `run` would make; runs none of them."""
    from preflight.engine import preview
    from preflight.render import preview as as_plan

    flags = flags_of(ctx, given)
    reporting.check_styles(flags, given)
    for name in filter(given.get, ("slurm", "hosts", "connect")):
        raise PreflightError(f"{flags.source(name)}: a plan is of one place; ask for it there")
    wish = Wish(flags, given["config_file"], given["root"])
    with agent.session(ctx.obj) as workers:
        chosen, catalogue = agent.configured(wish)
        planned = preview.planned(workers, chosen, catalogue, lambda: bool(ctx.obj.name))
    planned = redact.without(planned, redact.secrets(os.environ, sys.argv))
    look = terminal.look(given["color"], given["ascii_only"], given["quiet"], given["verbose"])
    asked = next(output.format for output in chosen.outputs if output.file == "-")
    printed(
        json_text(as_plan.document(planned)) if asked == "json" else as_plan.render(planned, look)
    )
    raise typer.Exit(ctx.obj.exit_code)


@app.command("list", short_help="List all checks.")
def list_checks(
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List all checks: id, stage, level, time limit, what they need and touch."""
    from preflight.render import explain as manual

    catalogue = registry.load()
    if json_output:
        everything = [manual.data(loaded) for loaded in catalogue]
        printed(json_text(everything))
    else:
        columns = terminal.width(sys.stdout) if terminal.is_terminal(sys.stdout) else None
        printed(terminal.spelled(manual.table(catalogue, columns)))


@app.command(short_help="Explain a check, a finding or an error message.")
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A check's id, a finding's code, or words to search for: an error message.",
            autocompletion=ids_and_codes,
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="human or json")] = "human",
) -> None:
    """Explain a check or a finding, or find those that fit an error message: offline."""
    from preflight.render import explain as manual

    catalogue = registry.load()
    one_of(output, ("human", "json"), "-o")
    try:
        loaded, code = manual.find(catalogue, name)
    except PreflightError:
        from preflight.render import symptoms

        message = symptoms.known_message(name)
        # an id or a code with a typo is no text to search for
        found = [] if manual.NAME.fullmatch(name) else symptoms.search(catalogue, name)
        if not found and message is None:
            raise
        width = min(110, terminal.width(sys.stdout))
        if output == "json":
            printed(json_text(symptoms.candidates_as_data(found, message)))
        else:
            printed(terminal.spelled(symptoms.candidates(found, message, name, width)))
        return
    if output == "json":
        printed(json_text(manual.data(loaded)))
    else:
        also = manual.owners(catalogue, code)
        text = manual.explain(loaded, code, min(110, terminal.width(sys.stdout)), also)
        printed(terminal.spelled(text))


@app.command(short_help="Find known error messages in a log.")
def diagnose(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="A log of torchrun, NCCL or SLURM; - for stdin.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="human or json")] = "human",
) -> None:
    """Name the findings that the messages in a log may be of, and the command that tests each."""
    from preflight.render import symptoms

    one_of(output, ("human", "json"), "-o")
    text = files.read_log(log)
    seen = symptoms.known_lines(text, registry.load())
    if output == "json":
        printed(json_text(symptoms.as_data(seen)))
        return
    width = min(110, terminal.width(sys.stdout))
    name = "stdin" if log == "-" else log
    printed(terminal.spelled(symptoms.diagnosis(seen, name, len(text.splitlines()), width)))


Outputs = Annotated[
    list[str] | None, typer.Option("--output", "-o", help="Format of the report, as for run.")
]
Expected = Annotated[
    list[str] | None,
    typer.Option("--expect", help="What has to be there, e.g. gpus_per_node=4. Repeatable."),
]
Tolerated = Annotated[
    list[str] | None,
    typer.Option("--tolerate", help="Report this check's failures as warnings. Repeatable."),
]
Strict = Annotated[
    bool | None, typer.Option("--strict/--no-strict", help="Treat warnings as failures.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the findings and the verdict only.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show where each setting came from.")
]
Color = Annotated[str, typer.Option("--color", help="Use colours: auto, always or never.")]
Ascii = Annotated[bool, typer.Option("--ascii", help="Use ASCII characters only.")]
ConfigFile = Annotated[
    str | None, typer.Option("--config", envvar="PREFLIGHT_CONFIG", help="Config file.")
]


@app.command(short_help="Print a saved report again.")
def show(
    ctx: typer.Context,
    report: Annotated[str, typer.Argument(metavar="REPORT", help="A saved JSON report.")],
    judge: Annotated[
        bool, typer.Option("--judge", help="Judge its observations again, with today's config.")
    ] = False,
    output: Outputs = None,
    expect: Expected = None,
    tolerate: Tolerated = None,
    strict: Strict = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: Color = "auto",
    ascii_only: Ascii = False,
    config_file: ConfigFile = None,
) -> None:
    """Print a saved report again; --judge re-runs the judgement and exits by its verdict."""
    given = Flags(output=tuple(output or ()), sources={"output": "-o"})
    outputs = resolve.outputs(given, [], "")
    read = files.read_report(report)
    code = 0
    if judge:
        flags = Flags(expect=tuple(expect or ()), tolerate=tuple(tolerate or ()), strict=strict)
        chosen, catalogue = agent.configured(Wish(flags, config_file))
        observations = read.observations
        del read  # or what it says of a hundred thousand ranks would stay, too
        drawn = agent.draws(outputs, observations, verbose)
        with agent.without_collector():
            read = verdict.judge(observations, catalogue, chosen.expect, chosen.policy, drawn=drawn)
        code = read.exit_code
    look = terminal.look(color, ascii_only, quiet, verbose)
    with agent.session(ctx.obj) as workers:
        problems = files.publish(workers, outputs, read, look)
    raise typer.Exit(code or (OUTPUT if problems else 0))


@app.command(epilog=EXITS, short_help="Merge the partial reports of a job into one.")
def merge(
    ctx: typer.Context,
    reports: Annotated[list[str], typer.Argument(metavar="REPORT...", help="JSON reports.")],
    output: Outputs = None,
    expect: Expected = None,
    tolerate: Tolerated = None,
    strict: Strict = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: Color = "auto",
    ascii_only: Ascii = False,
    config_file: ConfigFile = None,
) -> None:
    """Merge the partial reports of nodes that could not reach each other into one report."""
    from preflight.judge.merge import merge as merged
    from preflight.judge.other_runs import left_over

    flags = Flags(
        expect=tuple(expect or ()),
        tolerate=tuple(tolerate or ()),
        strict=strict,
        output=tuple(output or ()),
    )
    chosen, catalogue = agent.configured(Wish(flags, config_file))
    parts = {path: files.read_report(path).observations for path in reports}
    for path, why in left_over(parts, catalogue.of_meeting).items():
        console.say(f"preflight: {one_line(path)} is of an earlier run and was left out: {why}")
        del parts[path]
    whole = merged([*parts.values()], catalogue.of_meeting)
    drawn = agent.draws(chosen.outputs, whole, verbose)
    with agent.without_collector():
        report = verdict.judge(whole, catalogue, chosen.expect, chosen.policy, drawn=drawn)
    look = terminal.look(color, ascii_only, quiet, verbose)
    with agent.session(ctx.obj) as workers:
        problems = files.publish(workers, chosen.outputs, report, look)
        files.write_step_summary(workers, chosen.outputs, report)
    raise typer.Exit(report.exit_code or (OUTPUT if problems else 0))


@app.command("demo", short_help="Show saved reports of broken jobs, without a cluster.")
def show_demo(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Which one; without it, all are listed.",
            autocompletion=demo.completed,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Inject the fault into hosts made of namespaces, here and now, beside torchrun. "
            "Needs preflight's source.",
        ),
    ] = False,
    output: Outputs = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    color: Color = "auto",
    ascii_only: Ascii = False,
) -> None:
    """Show what preflight says of a job with one fault: without a cluster, without root."""
    outputs = resolve.outputs(Flags(output=tuple(output or ()), sources={"output": "-o"}), [], "")
    if live:
        script = [sys.executable, demo.live_script(), "--live", name or "firewall"]
        _exec_command(script, os.environ)
    if name is None:
        printed(terminal.spelled(demo.table()))
        return
    report = demo.saved(name)
    look = terminal.look(color, ascii_only, quiet, verbose)
    with agent.session(ctx.obj) as workers:
        problems = files.publish(workers, outputs, report, look)
    raise typer.Exit(OUTPUT if problems else 0)


@app.command("agent", hidden=True)
def _agent(ctx: typer.Context) -> None:
    """What `run --slurm` and `run --hosts` start on every node; its orders come over stdin."""
    from preflight.remote import agent as deputy

    raise typer.Exit(deputy.serve(ctx.obj))


@app.command()
def schema() -> None:
    """Print the JSON schema of the report."""
    from importlib.resources import files

    printed(files("preflight").joinpath("report-v1.schema.json").read_text(encoding="utf-8"))


# --- one run ---


def _run_and_publish(
    ctx: typer.Context, workers: Workers, given: dict[str, Any]
) -> tuple[Ending, tuple[str, ...]]:
    """How it ended, the report published, and what could not be written of it."""
    flags = flags_of(ctx, given)
    reporting.check_styles(flags, given)
    progress = reporting.display(given)
    wish = Wish(flags, given["config_file"], given["root"], verbose=given["verbose"])
    if given["slurm"] or given["hosts"] is not None or given["connect"] is not None:
        from preflight.remote import launch as fanout

        launch = fanout.launch_of(flags, given["slurm"], given["hosts"], given["connect"])
        ended = fanout.ending_of(wish, launch, workers, ctx.obj, progress)
    else:
        ended = agent.ending_of(wish, workers, ctx.obj, progress)
    progress.clear()
    return ended, reporting.reported(workers, ended, given)


def _exec_command(command: list[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process: no parent stays behind, streams and signals are the command's own."""
    if os.getpid() == 1:
        reap_orphans()
    # Python ignores these two, and what is ignored stays ignored over exec
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environ)
    except OSError as error:
        raise typer.Exit(reporting.not_started(command[0], error)) from None


# --- the outermost ---


def main(interrupt: Interrupt | None = None) -> NoReturn:
    """Run the app; every way out has its code."""
    sys.argv[1:] = _as_meant(sys.argv[1:])
    _keep_one_command(*sys.argv[1:2])
    interrupt = interrupt or Interrupt()
    try:
        app(prog_name="preflight", obj=interrupt)
    except PreflightError as error:
        console.say(redact.without(f"preflight: {error}", redact.secrets(os.environ, sys.argv)))
        code = _usage_code(interrupt.exit_code or USAGE)  # a signal is not the caller's mistake
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
        typers_own = not isinstance(error.__context__, typer.Exit)
        if typers_own and code == USAGE:
            _name_variables()
            _name_command(*sys.argv[1:2])
            code = _usage_code(USAGE)
        elif typers_own and code == 1:  # the reader of the help went away (`| head`)
            code = 0
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except OSError as error:
        if error.errno in OUTPUT_ERRORS:
            console.say(f"preflight: output: {error.strerror}")
            code = OUTPUT
        elif error.errno in (errno.EMFILE, errno.ENFILE):  # no bug of ours, and no place for a log
            console.say(f"preflight: {error.strerror}: no report within this limit (ulimit -n)")
            code = _usage_code(OUTPUT)
        else:
            code = _keep_traceback()
    except Exception:  # noqa: BLE001  our bug: never drains a node, never looks like the cluster's
        code = _keep_traceback()
    else:
        code = 0
    if (problem := terminal.write("")) and code == 0 and sys.stdout is not None:
        console.say(f"preflight: {problem}")
        code = OUTPUT
    gc.freeze()  # or the interpreter, as it ends, looks through all that the run has made
    sys.exit(code)


def _as_meant(words: list[str]) -> list[str]:
    """`help`, `version` and `-v` as other programs have them."""
    match words:
        case ["help", *of]:
            return [*of, "--help"]
        case ["version" | "-v"]:
            return ["--version"]
    return words


MEANT = {
    "run": ("doctor", "check", "test", "verify", "start", "validate"),
    "attach": ("debug", "hang", "stack", "status", "trace"),
    "plan": ("info", "env", "detect", "config", "settings"),
    "diagnose": ("log", "logs", "parse"),
    "explain": ("why", "describe", "search"),
    "show": ("report", "print", "view"),
}
"""A command -> what people look for it under."""


def _name_command(word: str = "") -> None:
    """Where somebody has asked for a command that is called otherwise here."""
    if found := [command for command, words in MEANT.items() if word in words]:
        console.say(f"preflight: you may look for: preflight {found[0]}")


def _keep_one_command(word: str = "") -> None:
    """typer makes all commands with all their flags before it looks for the one that is requested:
    it is to find that one only. Any other word is left to it, for its error message."""
    for command in app.registered_commands:
        if word == (command.name or getattr(command.callback, "__name__", "")):
            app.registered_commands, app.registered_groups = [command], []
            break


def _usage_code(code: int) -> int:
    """The code of a mistake that is not the cluster's. To Nagios 2 is CRITICAL, 3 UNKNOWN. What the
    flags say can only be read here: they may be the mistake."""
    words = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
    styles = [after for word, after in itertools.pairwise(words) if word == "--exit"]
    styles += [word.partition("=")[2] for word in words if word.startswith("--exit=")]
    style = styles[-1] if styles else os.environ.get("PREFLIGHT_EXIT", "")
    return UNKNOWN if style == "nagios" else code


def _name_variables() -> None:
    """A usage error may be the environment's."""
    names = [p.annotation.__metadata__[0].envvar for p in SHARED]
    given = [name for name in names if os.environ.get(name)]
    if given:
        console.say(f"preflight: flags are also taken from the environment: {', '.join(given)}")


def _keep_traceback() -> int:
    """Keep the traceback of what is being handled, say where."""
    hidden = redact.secrets(os.environ, sys.argv)
    text = redact.without(traceback.format_exc(), hidden)
    console.say(text)
    try:
        import tempfile

        handle, path = tempfile.mkstemp(prefix="preflight-crash-", suffix=".log", dir="/tmp")
        words = redact.without(redact.command_line(sys.argv), hidden)
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"preflight {__version__}, python {sys.version}\n{words!r:.2000}\n{text}")
        console.say(f"preflight: this is our fault, not your cluster's; the traceback is in {path}")
        console.say("preflight: please report it, with that file, where you have preflight from")
        _keep_observations(sys.exc_info()[1])
    except OSError:
        console.say("preflight: this is our fault, not your cluster's; please report the above")
    return _usage_code(INTERNAL)


def _keep_observations(error: BaseException | None) -> None:
    """What was observed, as a report that is undecided: a version without that bug can judge it."""
    if not isinstance(error, agent.NotJudged):
        return
    import tempfile

    from preflight.render import json as as_json

    report = Report(Verdict.UNDECIDED, INTERNAL, (), (), error.observations)
    handle, path = tempfile.mkstemp(prefix="preflight-crash-", suffix=".json", dir="/tmp")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(as_json.render(report))
    console.say(
        f"preflight: what was observed is in {path}; a version without this bug makes the report: "
        f"preflight show --judge {path}"
    )
