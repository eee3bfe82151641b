"""`preflight baseline …`: a good report kept as expectations, and two reports compared. Wiring
only."""

from __future__ import annotations

from typing import Annotated

import typer

from preflight import console
from preflight.cli.printing import printed
from preflight.humanize import nearest
from preflight.model import PreflightError
from preflight.output import files
from preflight.output import terminal as screen
from preflight.output.exit_codes import OUTPUT

FORMATS = ("human", "json")

app = typer.Typer(
    name="baseline",
    help="Keep a good report as expectations; say what changed since.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SavedReport = typer.Argument(help="A saved JSON report.")


@app.command(epilog="Exit codes: 0 · 2 usage, or a report that is not READY · 74 not written.")
def record(
    report: Annotated[str, SavedReport],
    output: Annotated[
        str, typer.Option("--output", "-o", help="A new file; - is stdout.", metavar="FILE")
    ] = "-",
) -> None:
    """The [expect] part of a config file out of a report that is READY: what is the same on all of
    its nodes, versions and limits as floors."""
    from preflight.baseline import learn as baseline
    from preflight.render import expect_toml as toml

    if not output:
        raise PreflightError("-o names no file")
    read = files.saved(report)
    try:
        found = baseline.learnt(read)
    except PreflightError as error:
        raise PreflightError(f"{report}: {error}") from None
    text = toml.render(report, read, found)
    if output == "-":
        printed(text)
    elif problem := files.keep(output, text):
        console.say(f"preflight: could not write the expectations: {problem}")
        raise typer.Exit(OUTPUT)


@app.command(epilog="Exit codes: 0, whatever has changed · 2 usage.")
def diff(
    before: Annotated[str, SavedReport],
    after: Annotated[str, SavedReport],
    output: Annotated[str, typer.Option("--output", "-o", help="human or json")] = "human",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All changes, and all numbers.")
    ] = False,
    color: Annotated[str, typer.Option("--color", help="auto, always or never.")] = "auto",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="No other glyphs.")] = False,
) -> None:
    """What changed from one report to another of the same cluster: checks, software, variables,
    limits, addresses, and the numbers that are further apart than noise."""
    from preflight.baseline.diff import difference
    from preflight.render import baseline_diff as as_diff

    for name, value, words in (
        ("-o", output, FORMATS),
        ("--color", color, ("auto", "always", "never")),
    ):
        if value not in words:
            known = ", ".join(words)
            raise PreflightError(
                f"{name} is one of {known}, got {value!r:.40}{nearest(value, words)}"
            )
    reports = files.saved(before), files.saved(after)
    found = difference(*reports)
    if output == "json":
        printed(as_diff.as_json(*reports, found))
    else:
        look = screen.look(color, ascii_only, quiet=False, verbose=verbose)
        printed(as_diff.render((before, after), reports, found, look))
