"""The flags that `run` and `gate` share, each also an environment variable; and what was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from preflight import check, registry
from preflight.config.resolve import Flags


def ids(incomplete: str) -> list[str]:
    """Completion of ids, also of the last one in a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    loaded = registry.load()
    return [before + comma + i for i in (*loaded.checks, *loaded.broken) if i.startswith(last)]


def levels(incomplete: str) -> list[str]:
    return [level for level in check.Level if level.startswith(incomplete)]


def option(*names: str, env: str = "", **more: Any) -> Any:
    """An option that is also an environment variable."""
    flag = names[0].lstrip("-").replace("-", "_").upper()
    return typer.Option(*names, envvar=env or f"PREFLIGHT_{flag}", show_envvar=False, **more)


def _run_flags(
    nproc: Annotated[
        int | None, option("--nproc", min=1, max=4096, help="Ranks on this node.")
    ] = None,
    nodes: Annotated[
        int | None,
        option("--nodes", min=1, max=100_000, help="Nodes of the job, where no launcher says it."),
    ] = None,
    node_rank: Annotated[
        int | None, option("--node-rank", min=0, help="This node's number, from 0.")
    ] = None,
    meet: Annotated[
        str | None, option("--meet", help="HOST:PORT of node 0; else MASTER_ADDR:MASTER_PORT.")
    ] = None,
    level: Annotated[
        str | None, option("--level", help="quick, standard or deep.", autocompletion=levels)
    ] = None,
    only: Annotated[
        list[str] | None,
        option("--only", help="Ids, prefixes or globs: net.*", autocompletion=ids),
    ] = None,
    skip: Annotated[
        list[str] | None, option("--skip", help="Leave these out.", autocompletion=ids)
    ] = None,
    tolerate: Annotated[
        list[str] | None,
        option("--tolerate", help="A FAIL of it becomes a warning.", autocompletion=ids),
    ] = None,
    strict: Annotated[
        bool | None,
        option("--strict/--no-strict", env="PREFLIGHT_STRICT", help="WARN: not ready."),
    ] = None,
    expect: Annotated[
        list[str] | None, option("--expect", help="key=value, e.g. gpus_per_node=4")
    ] = None,
    deadline: Annotated[str | None, option("--deadline", help="Of the whole run: 90s.")] = None,
    arrive: Annotated[str | None, option("--arrive", help="For all agents to come: 30s.")] = None,
    timeout: Annotated[list[str] | None, option("--timeout", help="Of one check: ID=20s.")] = None,
    checkpoint_dir: Annotated[
        str | None, option("--checkpoint-dir", help="Must be writable, too.")
    ] = None,
    python: Annotated[
        str | None,
        option("--python", help="The job's Python, where preflight's own has no torch."),
    ] = None,
    slurm: Annotated[
        bool, option("--slurm", help="In a batch script: an agent on every node, by srun.")
    ] = False,
    hosts: Annotated[
        str | None, option("--hosts", help="gpu[01-08], @group: an agent on each, by ssh.")
    ] = None,
    connect: Annotated[
        str | None, option("--connect", help="Not by ssh: 'kubectl exec -i %h --'.")
    ] = None,
    exit_style: Annotated[
        str, option("--exit", help="world, node, or nagios (exits 0/1/2/3).")
    ] = "world",
    output: Annotated[
        list[str] | None,
        option(
            "--output",
            "-o",
            help="human, json, junit, prometheus, nagios, markdown or slurm; =FILE, else stdout.",
        ),
    ] = None,
    quiet: Annotated[bool, option("--quiet", "-q", help="Verdict and findings only.")] = False,
    verbose: Annotated[bool, option("--verbose", "-v", help="Marks and provenance.")] = False,
    color: Annotated[str, option("--color", help="auto, always or never.")] = "auto",
    ascii_only: Annotated[bool, option("--ascii", help="No other glyphs.")] = False,
    config_file: Annotated[str | None, option("--config", help="The config file.")] = None,
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
