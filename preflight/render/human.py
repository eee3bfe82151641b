"""The screen: matrix, findings, verdict. Green is short, red is long; ids are never truncated.

`lines()` lays the report out as styled segments, pure and testable; `render()` makes text of them,
plain or with colours.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight.model import Missing, Report, Status, Verdict
from preflight.render.findings import findings
from preflight.render.look import WIDTH, WORDS, Line, Look, flow
from preflight.render.matrix import left_out, matrix
from preflight.render.text import pasteable, plain, wrapped
from preflight.units import duration, plural

__all__ = ["WIDTH", "Look", "do_now", "lines", "render"]


PIPED = Look()
"""What nobody has asked for otherwise: a file or a pipe."""

DETAIL_LINES = 40
"""Lines of a traceback that -v shows, the last ones."""


def render(report: Report, look: Look = PIPED) -> str:
    """The report as text that ends with a newline."""
    laid_out = list(lines(report, look))
    if look.ascii:
        laid_out = [[(plain(text), style) for text, style in line] for line in laid_out]
    if look.colour:
        return _coloured(laid_out)
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in laid_out)


def _coloured(laid_out: Iterable[Line]) -> str:
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, no_color=False, color_system="standard", highlight=False
    )
    for line in laid_out:
        text = Text.assemble(*((t, s) for t, s in line))
        text.rstrip()
        console.print(text, soft_wrap=True, markup=False)
    return out.getvalue()


def lines(report: Report, look: Look) -> Iterator[Line]:
    """The whole screen."""
    if not look.quiet:
        yield from _header(report, look)
        yield []
        yield from matrix(report, look)
        yield []
    if look.verbose:
        yield from _provenance(report, look)
    yield from findings(report, look)
    yield from _verdict(report, look)


def _header(report: Report, look: Look) -> Iterator[Line]:
    seen = report.observations
    top = seen.topology
    title = [f"preflight {seen.tool.get('version', '?')}"]
    if top.job and top.job != "none":
        title.append(f"job {top.job}")
    title.append(f"{plural(len(top.nodes), 'node')}, {plural(top.size, 'rank')}")
    if level := seen.settings.get("level"):
        limit = seen.settings.get("deadline")
        most = f", at most {_seconds(limit.value)}" if limit else ""
        title.append(f"level {level.value}{most}")
    yield from flow([look.say(part) for part in title], look, [], 2)

    nproc = top.facts.get("nproc")
    source = nproc.source if nproc and top.launcher == "local" else top.launcher
    port = top.facts.get("master_port")
    note = f" ({port.source})" if port and "env" not in port.source else ""
    expected = [name.removeprefix("expect.") for name in seen.settings if "expect." in name]
    told = [
        f"identity from {source}",
        f"meeting at {top.master_addr}:{top.master_port}{note}",
        "expectations: " + (", ".join(expected) if expected else "none given"),
    ]
    yield from flow([look.say(part) for part in told], look, [], 2)


def _seconds(value: object) -> str:
    return f"{value:g} s" if isinstance(value, (int, float)) else str(value)


# --- provenance and verdict ---


def _provenance(report: Report, look: Look) -> Iterator[Line]:
    """-v: where each number came from, how far each observation got, what was said at its end."""
    seen = report.observations
    given = {name: f"{fact.value} · {fact.source}" for name, fact in seen.topology.facts.items()}
    for name, setting in seen.settings.items():
        timed = name == "deadline" or name.startswith("timeout.")
        value = _seconds(setting.value) if timed else _value(setting.value)
        given[name] = f"{value} · {setting.source}"
    yield [(" where it comes from", "bold")]
    yield from _pairs(sorted(given.items()), look)
    observed = [
        (f"{check} {key}", observation)
        for check, by_key in seen.checks.items()
        for key, observation in by_key.items()
    ]
    if marks := [
        (name, " · ".join(f"{m.name} {duration(m.at)}" for m in o.marks))
        for name, o in observed
        if o.marks
    ]:
        yield [(" marks", "bold")]
        yield from _pairs(marks, look)
    for name, observation in observed:
        if isinstance(observation, Missing) and "\n" in observation.detail.strip():
            yield [(f" {look.say(name)}", "bold"), (f"   {observation.cause}", "")]
            for line in observation.detail.strip().splitlines()[-DETAIL_LINES:]:
                yield [("   ", ""), (look.say(line.rstrip()), "")]
    yield []


def _pairs(pairs: Sequence[tuple[str, str]], look: Look) -> Iterator[Line]:
    widest = min(max((len(name) for name, _ in pairs), default=0), look.width // 3) + 2
    for name, text in pairs:
        first: Line = [(f"   {look.say(name):<{widest}}", "dim")]
        yield from flow([look.say(part) for part in text.split(" · ")], look, first, 3 + widest)


def _value(value: object) -> str:
    """A setting's value, the same before it was saved as after it was read."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(part)}" for name, part in value.items() if part)
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _verdict(report: Report, look: Look) -> Iterator[Line]:
    word, style = WORDS[report.verdict]
    seen = report.observations
    left = [r for r in report.rows if r.status is Status.SKIP and left_out(report, r)]
    unwanted = [row for row in left if row.id not in report.skipped]
    passed = sum(row.status is Status.PASS for row in report.rows)
    of = sum(row.status is not Status.SKIP for row in report.rows) + len(left)
    failed = any(row.status is Status.FAIL for row in report.rows)
    strict = " (strict)" if report.verdict is Verdict.NOT_READY and not failed else ""
    parts = [
        _counted(report, Status.FAIL, "finding"),
        _counted(report, Status.WARN, "warning") + strict,
        _counted(report, Status.UNDECIDED, "undecided", "undecided"),
        f"{passed} of {plural(of, 'check')} passed" + (f", {len(left)} not run" if left else ""),
        f"{seen.topology.met}/{seen.topology.size} ranks",
        duration(seen.seconds),
        f"interrupted by {look.say(seen.interrupted)}: partial" if seen.interrupted else "",
    ]
    yield from flow([p for p in parts if p], look, [(f" {word}   ", style)], 4)
    for reason in dict.fromkeys(row.reason for row in unwanted):
        ids = ", ".join(row.id for row in unwanted if row.reason == reason)
        why = look.say(reason).removeprefix("not started: ")
        yield from _noted("not run", f"{look.say(ids)}: {why}", look)
    if report.skipped:
        yield from _noted("skipped", f"{look.say(', '.join(report.skipped))}: by you", look)
    if report.tolerated:
        yield from _noted("tolerated", look.say(", ".join(report.tolerated)), look)
    for process in seen.left_behind:
        where = f", in {look.say(process.wchan)}" if process.wchan else ""
        told = f"pid {process.pid}, state {look.say(process.state)}{where}"
        yield from _noted("left behind", told, look)
    if look.saved_as:
        shown = look.say(shlex.quote(look.saved_as))
        told = f"{shown}   (preflight show {shown})"
        fits = len(told) <= look.width - 13
        yield [(f" {'report':<12}", "dim"), (told if fits else shown, "")]
    if now := do_now(report):
        for number, part in enumerate(pasteable(look.say(now), look.width - 13)):
            yield [(f" {'do now' if number == 0 else '':<12}", "bold"), (part, "")]


def _noted(label: str, text: str, look: Look) -> Iterator[Line]:
    for number, part in enumerate(wrapped(text, look.width - 13)):
        yield [(f" {label if number == 0 else '':<12}", "dim"), (part, "")]


def _counted(report: Report, status: Status, one: str, many: str = "") -> str:
    found = [f for f in report.findings if f.status is status]
    if not found:
        return ""
    folded = len({check for f in found for check in f.folded})
    also = f" (explains {folded} more)" if folded else ""
    return (f"{len(found)} {many}" if many else plural(len(found), one)) + also


def do_now(report: Report) -> str:
    """The one line to act on: leave bad nodes out where there is a scheduler, else what the first
    failure says."""
    job = report.observations.topology.launcher == "SLURM"
    if report.exclude and job and len(report.observations.topology.nodes) > len(report.exclude):
        return f"sbatch --exclude={','.join(report.exclude)} …"
    if report.verdict is Verdict.READY or (
        report.observations.interrupted and report.verdict is not Verdict.NOT_READY
    ):
        return ""  # nothing is wrong that we know of
    for finding in report.findings:
        advice = finding.advice
        if advice is None:
            continue
        first = advice.now or advice.text or (advice.commands[0].run if advice.commands else "")
        if first:
            return first.strip()
    return ""
