"""The command line; wiring only. Exit codes are those of the contract, whatever happens."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NoReturn

import typer

from preflight import __version__, check, config, screen, verdict
from preflight.config import Config, Flags, Output
from preflight.isolate import Call, Result, Returned, Workers
from preflight.model import Observations, PreflightError, Report, Setting, Status, Verdict
from preflight.render import human
from preflight.runner import Plan, Run
from preflight.start import LIGHT, open_light, open_torch

USAGE, OUTPUT, INTERNAL, NOT_FOUND, NOT_EXECUTABLE = 2, 74, 70, 127, 126

FILE_SECONDS = 10.0
"""How long a report may take to be written or read: its file system may be the dead one."""

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
    """Completion of ids."""
    loaded = check.load()
    return [i for i in (*loaded.checks, *loaded.broken) if i.startswith(incomplete)]


def _option(*names: str, env: str = "", **more: Any) -> Any:
    """An option that is also an environment variable."""
    flag = names[0].lstrip("-").replace("-", "_").upper()
    return typer.Option(*names, envvar=env or f"PREFLIGHT_{flag}", show_envvar=False, **more)


def _run_flags(
    nproc: Annotated[
        int | None, _option("--nproc", min=1, max=4096, help="Ranks on this node.")
    ] = None,
    level: Annotated[str | None, _option("--level", help="quick, standard or deep.")] = None,
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
        print(f"preflight {__version__} from {os.path.dirname(__file__)}")
        raise typer.Exit


@app.command(epilog=EXITS)
@_with_run_flags
def run(ctx: typer.Context, **given: Any) -> None:
    """Observe, judge, print the report, exit by its verdict."""
    with _session() as workers:
        report, code = _observe_and_report(ctx, workers, given)
    raise typer.Exit(_styled_exit(given["exit_style"], report, code))


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
    with _session() as workers:
        _, code = _observe_and_report(ctx, workers, given)
    if code == 0 or (start_undecided and code == verdict.EXIT[Verdict.UNDECIDED]):
        _become(command)
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
        _print(manual.table(catalogue, max(screen.width(sys.stdout), 60)))


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

    loaded, code = manual.find(check.load(), name)
    if output == "json":
        import json

        _print(json.dumps(manual.data(loaded), indent=1, ensure_ascii=False) + "\n")
    elif output == "human":
        _print(manual.explain(loaded, code, min(110, screen.width(sys.stdout))))
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

    with _session() as workers:
        args = {"path": os.path.abspath(report), "limit": as_json.LIMIT}
        found = _file_work(workers, "read_file", args, report)
    if "error" in found:
        raise PreflightError(found["error"])
    read = as_json.parse(found["text"])
    code = 0
    if judge:
        catalogue = check.load()
        flags = Flags(expect=tuple(expect or ()), tolerate=tuple(tolerate or ()), strict=strict)
        path = config.config_path(config_file, os.environ, root=os.geteuid() == 0)
        table = config.read_config(path) if path else {}
        chosen = config.resolve(flags, table, str(path or ""), catalogue, _today())
        read = verdict.judge(read.observations, catalogue, chosen.expect, chosen.policy)
        code = read.exit_code
    look = screen.look(color, ascii_only, quiet, verbose)
    _print(_rendered(Output(config.known_format(output, "-o")), read, look))
    raise typer.Exit(code)


@app.command()
def schema() -> None:
    """The JSON schema of the report."""
    from importlib.resources import files

    _print(files("preflight").joinpath("report-v1.schema.json").read_text(encoding="utf-8"))


# --- one run ---


@contextlib.contextmanager
def _session() -> Iterator[Workers]:
    """Workers, and nothing of them left afterwards."""
    workers = Workers()
    try:
        yield workers
    finally:
        workers.close()


def _observe_and_report(
    ctx: typer.Context, workers: Workers, given: dict[str, Any]
) -> tuple[Report, int]:
    """Everything between the flags and the exit code."""
    for name, words in (("color", ("auto", "always", "never")), ("exit_style", EXIT_STYLES)):
        if given[name] not in words:
            flag = "exit" if name == "exit_style" else name
            nearest = check.nearest(given[name], words)
            raise PreflightError(f"--{flag} is one of {', '.join(words)}{nearest}")
    path = config.config_path(given["config_file"], os.environ, root=os.geteuid() == 0)
    table = config.read_config(path) if path else {}
    flags = _flags(ctx, given)
    if config.wants_torch(flags, table):
        open_torch(workers)  # before the checks themselves are loaded: its import takes longest
    catalogue = check.load()
    chosen = config.resolve(flags, table, str(path or ""), catalogue, _today())
    selected = check.select(
        catalogue, level=chosen.level, only=chosen.only, skip=chosen.skip, enabled=chosen.enabled
    )
    open_light(workers)
    topology = _topology(workers, chosen)
    plan = Plan(
        catalogue=catalogue,
        selected=selected,
        topology=topology,
        deadline=chosen.deadline,
        root=given["root"],
        budgets=chosen.budgets,
        options=chosen.options,
    )
    progress = screen.ProgressLine(quiet=given["quiet"], environ=os.environ)
    started = datetime.datetime.now(datetime.UTC)
    one = Run(
        plan,
        workers,
        lambda i, seen: verdict.passed(i, seen, catalogue, topology, chosen.expect),
        progress,
    )
    outcome = one.observe()
    progress.clear()
    observations = Observations(
        tool={
            "name": "preflight",
            "version": __version__,
            "python": sys.version.split()[0],
        },
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(outcome.seconds, 3),
        settings={"nproc": Setting(topology.met, topology.facts["nproc"].source)}
        | dict(chosen.shown),
        topology=topology,
        checks=outcome.checks,
        interrupted=outcome.interrupted,
        left_behind=workers.left_behind,
    )
    report = verdict.judge(observations, catalogue, chosen.expect, chosen.policy)
    return report, _publish(workers, chosen, report, given)


def _flags(ctx: typer.Context, given: dict[str, Any]) -> Flags:
    """What was given, each with the flag or variable that it came from."""
    sources = {}
    for name in given:
        source = ctx.get_parameter_source(name)
        flag = name.replace("_", "-")
        if source is not None and source.name == "ENVIRONMENT":
            sources[name] = f"env PREFLIGHT_{name.upper()}"
        else:
            sources[name] = f"--{flag}"
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


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def _topology(workers: Workers, chosen: Config) -> Any:
    """Who is in this world. Only where neither a flag nor a launcher nor CUDA_VISIBLE_DEVICES says
    how many ranks there are, NVML is asked: in a worker, and not for long."""
    from preflight import topology

    gpus, source = 0, ""
    if chosen.nproc is None and topology.detect(os.environ) is topology.LOCAL:
        mask = os.environ.get("CUDA_VISIBLE_DEVICES")
        if mask is not None:
            devices = [entry for entry in mask.split(",") if entry.strip()]
            gpus, source = min(len(devices), 64), "env CUDA_VISIBLE_DEVICES"
        else:
            call = workers.call(LIGHT, "preflight._observer:count_gpus", None, seconds=5.0)
            counted = _wait(workers, call, 8.0)
            if isinstance(counted, Returned):
                gpus, source = int(counted.value), "NVML: GPUs of this node"
    return topology.discover(
        os.environ,
        os.uname().nodename,
        nproc=chosen.nproc,
        nproc_source=chosen.nproc_source,
        gpus=gpus,
        gpus_source=source,
    )


def _wait(workers: Workers, call: Call, seconds: float) -> Result | None:
    """What one call comes to; None when it has not ended in time."""
    until = time.monotonic() + seconds
    while call.result is None and time.monotonic() < until:
        next(workers.run(until), None)
    return call.result


def _file_work(workers: Workers, function: str, args: Any, path: str) -> Any:
    """Read or write a report in a worker: the file system may never answer."""
    open_light(workers)
    call = workers.call(LIGHT, f"preflight._observer:{function}", args, seconds=FILE_SECONDS)
    result = _wait(workers, call, FILE_SECONDS + 5.0)
    if isinstance(result, Returned):
        return result.value
    why = f"{path}: no answer from its file system in {FILE_SECONDS:.0f} s"
    return {"error": why} if function == "read_file" else why


def _publish(workers: Workers, chosen: Config, report: Report, given: dict[str, Any]) -> int:
    """Print and write the report; the exit code."""
    problems: list[str] = []
    saved = next((o.file for o in chosen.outputs if o.format == "json" and o.file != "-"), "")
    look = screen.look(given["color"], given["ascii_only"], given["quiet"], given["verbose"])
    for output in sorted(chosen.outputs, key=lambda o: o.file == "-"):
        if output.file == "-":
            shown = human.Look(**{**_fields(look), "saved_as": "" if problems else saved})
            problem = screen.write(_rendered(output, report, shown))
        else:
            plain = human.Look(verbose=look.verbose)
            args = {"path": os.path.abspath(output.file), "text": _rendered(output, report, plain)}
            problem = _file_work(workers, "write_file", args, output.file)
        if problem:
            problems.append(problem)
            screen.say(f"preflight: could not write the report: {problem}")
    if problems and report.exit_code == 0:
        return OUTPUT
    return report.exit_code


def _fields(look: human.Look) -> dict[str, Any]:
    return {name: getattr(look, name) for name in human.Look.__slots__}


def _rendered(output: Output, report: Report, look: human.Look) -> str:
    if output.format == "json":
        from preflight.render import json as as_json

        return as_json.render(report)
    return human.render(report, look)


EXIT_STYLES = ("world", "node", "nagios")


def _styled_exit(style: str, report: Report, code: int) -> int:
    """`--exit nagios` is the one exception from the table: OK, WARNING, CRITICAL, UNKNOWN."""
    if style != "nagios":
        return code
    if report.verdict is Verdict.READY:
        return int(any(row.status is Status.WARN for row in report.rows))
    return 2 if report.verdict is Verdict.NOT_READY else 3


def _become(command: list[str]) -> NoReturn:
    """Replace this process: no parent stays behind, streams and signals are the command's own."""
    sys.stdout.flush()
    sys.stderr.flush()
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


def main() -> NoReturn:
    """Run the app; every way out has its code."""
    try:
        app(prog_name="preflight")
    except PreflightError as error:
        screen.say(f"preflight: {error}")
        code = USAGE
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except Exception:  # noqa: BLE001  our bug: never drains a node, never looks like the cluster's
        _save_crash(traceback.format_exc())
        code = INTERNAL
    else:
        code = 0
    screen.write("")
    sys.exit(code)


def _save_crash(text: str) -> None:
    """Keep the traceback, say where."""
    screen.say(text)
    try:
        handle, path = tempfile.mkstemp(prefix="preflight-crash-", suffix=".log", dir="/tmp")
        with os.fdopen(handle, "w") as file:
            file.write(f"preflight {__version__}, python {sys.version}\n{sys.argv!r:.2000}\n{text}")
        screen.say(f"preflight: this is our fault, not your cluster's; the traceback is in {path}")
    except OSError:
        screen.say("preflight: this is our fault, not your cluster's; please report the above")
