"""The flags that `run` and `gate` share, each also an environment variable; and what was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from preflight import check, registry
from preflight.config import resolve
from preflight.config.resolve import Flags
from preflight.expect import KEYS


def ids(incomplete: str) -> list[str]:
    """Completion of ids, also of the last one in a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    loaded = registry.load()
    return [before + comma + i for i in (*loaded.checks, *loaded.broken) if i.startswith(last)]


def ids_and_codes(incomplete: str) -> list[str]:
    """Completion of what `explain` takes: also the codes of findings."""
    codes = {code for loaded in registry.load() for code in loaded.module.FINDINGS}
    return [*ids(incomplete), *sorted(code for code in codes if code.startswith(incomplete))]


def levels(incomplete: str) -> list[str]:
    return [level for level in check.Level if level.startswith(incomplete)]


def formats(incomplete: str) -> list[str]:
    return [name for name in resolve.FORMATS if name.startswith(incomplete)]


def expectations(incomplete: str) -> list[str]:
    """Completion of `--expect`: its keys."""
    return [f"{key}=" for key in KEYS if key.startswith(incomplete)]


def one_of(*words: str) -> Callable[[str], list[str]]:
    """Completion of a flag that takes one of these."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def option(*names: str, env: str = "", **more: Any) -> Any:
    """An option that is also an environment variable."""
    flag = names[0].lstrip("-").replace("-", "_").upper()
    return typer.Option(*names, envvar=env or f"PREFLIGHT_{flag}", show_envvar=True, **more)


def _run_flags(
    nproc: Annotated[
        int | None,
        option(
            "--nproc",
            min=1,
            max=4096,
            help="Number of ranks on this node. [default: from the launcher or the GPUs]",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        option(
            "--nodes",
            min=1,
            max=100_000,
            help="Number of nodes of the job. [default: from the launcher]",
        ),
    ] = None,
    node_rank: Annotated[
        int | None,
        option(
            "--node-rank", min=0, help="Number of this node, from 0. [default: from the launcher]"
        ),
    ] = None,
    meet: Annotated[
        str | None,
        option("--meet", help="HOST:PORT where the nodes meet. [default: MASTER_ADDR:MASTER_PORT]"),
    ] = None,
    level: Annotated[
        str | None,
        option(
            "--level",
            help="Which checks to run: quick, standard or deep. [default: standard]",
            autocompletion=levels,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        option(
            "--only",
            help="Run these checks only: ids, prefixes or globs, e.g. net.*. Repeatable.",
            autocompletion=ids,
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        option("--skip", help="Leave these checks out. Repeatable.", autocompletion=ids),
    ] = None,
    tolerate: Annotated[
        list[str] | None,
        option(
            "--tolerate",
            help="Report this check's failures as warnings. Repeatable.",
            autocompletion=ids,
        ),
    ] = None,
    strict: Annotated[
        bool | None,
        option("--strict/--no-strict", env="PREFLIGHT_STRICT", help="Treat warnings as failures."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        option(
            "--expect",
            help="What has to be there, e.g. gpus_per_node=4. Repeatable.",
            autocompletion=expectations,
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        option(
            "--deadline",
            help="Time limit for the whole run. "
            "[default: 90s, at level quick 15s; longer from 400 ranks]",
        ),
    ] = None,
    arrive: Annotated[
        str | None,
        option(
            "--arrive",
            help="How long to wait for all nodes to join. [default: 30s; longer from 2,000 ranks]",
        ),
    ] = None,
    timeout: Annotated[
        list[str] | None,
        option("--timeout", help="Time limit for one check, e.g. net.mesh=20s. Repeatable."),
    ] = None,
    checkpoint_dir: Annotated[
        str | None,
        option("--checkpoint-dir", help="Folder for checkpoints, which has to be writable."),
    ] = None,
    python: Annotated[
        str | None,
        option(
            "--python", help="Python of the job. [default: the one of preflight, if it has torch]"
        ),
    ] = None,
    slurm: Annotated[
        bool, option("--slurm", help="Run on all nodes of this SLURM job, with srun.")
    ] = False,
    hosts: Annotated[
        str | None,
        option("--hosts", help="Run on these hosts, with ssh, e.g. gpu[01-08] or @group."),
    ] = None,
    connect: Annotated[
        str | None, option("--connect", help="Command used instead of ssh; %h is the host name.")
    ] = None,
    exit_style: Annotated[
        str,
        option(
            "--exit",
            help="Exit code by the whole job (world), by this node (node), or as Nagios has it.",
            autocompletion=one_of("world", "node", "nagios"),
        ),
    ] = "world",
    output: Annotated[
        list[str] | None,
        option(
            "--output",
            "-o",
            help="Format of the report: human, json, junit, prometheus, nagios, markdown, slurm, "
            "html or github, to stdout, or to a file with FORMAT=FILE. Repeatable. "
            "[default: human]",
            autocompletion=formats,
        ),
    ] = None,
    quiet: Annotated[
        bool, option("--quiet", "-q", help="Print the findings and the verdict only.")
    ] = False,
    verbose: Annotated[
        bool,
        option(
            "--verbose", "-v", help="Also show progress marks and where each setting came from."
        ),
    ] = False,
    color: Annotated[
        str,
        option(
            "--color",
            help="Use colours: auto, always or never.",
            autocompletion=one_of("auto", "always", "never"),
        ),
    ] = "auto",
    ascii_only: Annotated[bool, option("--ascii", help="Use ASCII characters only.")] = False,
    config_file: Annotated[
        str | None,
        option("--config", help="Config file. [default: ./preflight.toml, /etc/preflight.toml]"),
    ] = None,
    root: Annotated[str, option("--root", hidden=True)] = "/",
) -> None:
    """The flags that `run` and `gate` share: only its signature is used."""


SHARED = list(inspect.signature(_run_flags, eval_str=True).parameters.values())


ELSEWHERE = ("slurm", "hosts", "connect")
"""Those by which agents are started from one place."""


def with_flags_for_here(command: Callable[..., None]) -> Callable[..., None]:
    """The shared flags for a command that has to be started on every node by somebody else."""
    return with_run_flags(command, [p for p in SHARED if p.name not in ELSEWHERE])


def with_run_flags(
    command: Callable[..., None], flags: Sequence[inspect.Parameter] = SHARED
) -> Callable[..., None]:
    """Give a command the shared flags; it receives them as keyword arguments."""
    own = [
        p
        for p in inspect.signature(command, eval_str=True).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    shared = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in flags]
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return command


def flags_of(ctx: typer.Context, given: dict[str, Any]) -> Flags:
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
        nodes=given["nodes"],
        node_rank=given["node_rank"],
        meet=given["meet"],
        arrive=given["arrive"],
        deadline=given["deadline"],
        strict=given["strict"],
        checkpoint_dir=given["checkpoint_dir"],
        python=given["python"],
        sources=sources,
        **{name: tuple(given[name] or ()) for name in many},
    )
