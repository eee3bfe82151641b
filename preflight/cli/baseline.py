"""`preflight baseline …`: a good report kept as expectations, and two reports compared. Wiring
only."""

from __future__ import annotations

from typing import Annotated

import typer

from preflight import console
from preflight.cli.printing import printed
from preflight.cli.reporting import COLOURS
from preflight.config.resolve import known_format
from preflight.humanize import one_of
from preflight.model import PreflightError
from preflight.output import files, terminal
from preflight.output.exit_codes import OUTPUT
from preflight.sanitize import json_text

FORMATS = ("human", "json", "html")

app = typer.Typer(
    name="baseline",
    help="Turn a good report into expectations; compare two reports.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SavedReport = typer.Argument(help="A saved JSON report.")


@app.command(
    epilog="Exit codes: 0 · 2 usage, or a report that is not READY · 74 not written.",
    short_help="Write the [expect] part of a config file.",
)
def record(
    report: Annotated[str, SavedReport],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="File to write, which must not exist; - is stdout.",
            metavar="FILE",
        ),
    ] = "-",
) -> None:
    """Write the [expect] part of a config file from a report that is READY: what is the same on all
    its nodes, versions and limits as floors."""
    from preflight.baseline import learn
    from preflight.render import expect_toml

    if not output:
        raise PreflightError("-o names no file")
    read = files.read_report(report)
    try:
        found = learn.learnt(read)
    except PreflightError as error:
        raise PreflightError(f"{report}: {error}") from None
    text = expect_toml.render(report, read, found)
    if output == "-":
        printed(text)
    elif problem := files.write_new(output, text):
        console.say(f"preflight: could not write the expectations: {problem}")
        raise typer.Exit(OUTPUT)


@app.command(
    epilog="Exit codes: 0, whatever has changed · 2 usage.",
    short_help="Show what changed between two reports.",
)
def diff(
    before: Annotated[str, SavedReport],
    after: Annotated[str, SavedReport],
    output: Annotated[
        str, typer.Option("--output", "-o", help="human, json or html; to a file: html=FILE")
    ] = "human",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show small changes and all numbers.")
    ] = False,
    color: Annotated[
        str, typer.Option("--color", help="Use colours: auto, always or never.")
    ] = "auto",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Use ASCII characters only.")] = False,
) -> None:
    """Show what changed between two reports of the same cluster: checks, software, variables,
    limits, addresses, and the numbers that are further apart than noise."""
    from preflight.baseline.diff import difference
    from preflight.render import baseline_diff

    form, _, file = output.partition("=")
    one_of(form, FORMATS, "-o")
    known_format(form, "-o")
    one_of(color, COLOURS, "--color")
    reports = files.read_report(before), files.read_report(after)
    found = difference(*reports)
    if form == "json":
        text = json_text(baseline_diff.document(*reports, found))
    elif form == "html":
        from preflight.render import html

        text = html.render_diff((before, after), reports, found)
    else:
        look = terminal.look(color, ascii_only, quiet=False, verbose=verbose)
        text = baseline_diff.render((before, after), reports, found, look)
    if not file:
        printed(text)
    elif problem := files.write_report(file, text):
        console.say(f"preflight: could not write the difference: {problem}")
        raise typer.Exit(OUTPUT)
