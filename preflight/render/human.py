"""The screen: matrix, findings, verdict. Green is short, red is long; ids are never truncated.

`lines()` lays the report out as styled segments, pure and testable; `render()` makes text of them,
plain or with colours.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight.humanize import duration, plural
from preflight.model import (
    FindingType,
    Kind,
    Missing,
    Report,
    Row,
    Setting,
    Status,
    Topology,
    Verdict,
    of_each,
    place_of,
)
from preflight.nodeset import foldable, folded, hostlist, others_than
from preflight.render.findings import findings
from preflight.render.layout import action, pasteable, wrapped
from preflight.render.matrix import left_out, looked_at, matrix, passes, status_here
from preflight.render.style import WIDTH, WORDS, Line, Look, flow
from preflight.sanitize import plain, shell_word

__all__ = ["WIDTH", "Look", "do_now", "lines", "render", "repair"]


PIPED = Look()
"""What nobody has asked for otherwise: a file or a pipe."""

DETAIL_LINES = 40
"""Lines of a traceback that -v shows, the last ones."""


def render(report: Report, look: Look = PIPED) -> str:
    """The report as text that ends with a newline."""
    return printed(lines(report, look), look)


def printed(laid_out: Iterable[Line], look: Look) -> str:
    """Lines as text, with colours where they are asked for."""
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
    if any(row.measured.grid for row in report.rows):
        from preflight.render.heatmap import heatmaps

        yield from heatmaps(report, look)
    yield from _verdict(report, look)


def title(report: Report) -> list[str]:
    """Who says it and of what: version, job, nodes and ranks, level. Foreign as it is."""
    seen = report.observations
    top = seen.topology
    parts = [f"preflight {seen.tool.get('version', '?')}"]
    if top.job and top.job != "none":
        parts.append(f"job {top.job}")
    parts.append(_world(top))
    if rehearsed := seen.settings.get("rehearsed"):
        parts.append(str(rehearsed.value))
    elif level := seen.settings.get("level"):
        limit = seen.settings.get("deadline")
        most = f", at most {_seconds(limit.value)}" if limit else ""
        parts.append(f"level {level.value}{most}")
    return parts


def _header(report: Report, look: Look) -> Iterator[Line]:
    seen = report.observations
    top = seen.topology
    yield from flow([look.say(part) for part in title(report)], look, [], 2)
    nproc = top.facts.get("nproc")
    source = nproc.source if nproc and top.launcher == "local" else top.launcher
    port = top.facts.get("master_port")
    note = f" ({port.source})" if port and "env" not in port.source else ""
    unsaid = "the peers of this job" if len(top.nodes) > 1 else "none given"
    expected = [name.removeprefix("expect.") for name in seen.settings if "expect." in name]
    told = [
        f"identity from {source}",
        f"meeting at {_meeting(top)}{note}",
        "expectations: " + (", ".join(expected) if expected else unsaid),
    ]
    if "rehearsed" in seen.settings and len(top.nodes) < 2:
        added = [name.removeprefix("set.") for name in seen.settings if name.startswith("set.")]
        told = [str(seen.settings["command"].value)]
        told += [f"set for it: {', '.join(added)}"] if added else []
    if config := seen.settings.get("config"):
        told.append(f"config {config.value} ({config.source})")
    yield from flow([look.say(part) for part in told], look, [], 2)


def _world(top: Topology) -> str:
    """`2 nodes x 4 ranks = 8 ranks`; `3 nodes, 10 ranks`; `3 nodes, 6 of 8 ranks`; `1 of 4 nodes,
    2 of 8 ranks (this node only)`."""
    nodes = plural(len(top.nodes), "node")
    each = {len(node.ranks) for node in top.nodes}
    if only := _only_here(top):
        of = top.whole_nodes
        seen = f"1 of {plural(of, 'node')}, " if of > 1 else ""
        return f"{seen}{top.met} of {plural(top.size, 'rank')} ({only})"
    if len(top.nodes) < 2:
        return f"{nodes}, {plural(top.size, 'rank')}"
    if top.met < top.size:
        return f"{nodes}, {top.met} of {top.size} ranks"
    if len(each) > 1 or top.met > top.size:
        return f"{nodes}, {plural(top.size, 'rank')}"
    return f"{nodes} x {plural(each.pop(), 'rank')} = {top.size} ranks"


def _only_here(top: Topology) -> str:
    """What a report is of that says nothing about the rest of its job; empty where it is of all."""
    if len(top.nodes) != 1 or top.met >= top.size:
        return ""
    alone = top.met < top.ranks_on(top.nodes[0].name)
    return "this process only" if alone else "this node only"


def _meeting(top: Topology) -> str:
    """Where it is, with the name of that node where MASTER_ADDR is its address, and the other way
    round."""
    addr = f"[{top.master_addr}]" if ":" in top.master_addr else top.master_addr
    for node in top.nodes if len(top.nodes) > 1 else ():
        if top.master_addr == node.addr:
            return f"{node.name} {addr}:{top.master_port}"
        if top.master_addr in (node.name, node.name.partition(".")[0]) and node.addr:
            at = f"[{node.addr}]" if ":" in node.addr else node.addr
            return f"{node.name} {at}:{top.master_port}"
    return f"{addr}:{top.master_port}"


def _seconds(value: object) -> str:
    return f"{value:g} s" if isinstance(value, (int, float)) else str(value)


# --- provenance and verdict ---


def _provenance(report: Report, look: Look) -> Iterator[Line]:
    """-v: where each number came from, how far each observation got, what was said at its end."""
    seen = report.observations
    given = {name: f"{fact.value} · {fact.source}" for name, fact in seen.topology.facts.items()}
    given |= setting_lines(seen.settings)
    yield [(" where it comes from", "bold")]
    yield from name_and_text(sorted(given.items()), look)
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
        yield from name_and_text(marks, look)
    for name, observation in observed:
        if isinstance(observation, Missing) and "\n" in observation.detail.strip():
            yield [(f" {look.say(name)}", "bold"), (f"   {observation.cause}", "")]
            for line in observation.detail.strip().splitlines()[-DETAIL_LINES:]:
                yield [("   ", ""), (look.say(line.rstrip()), "")]
    yield []


def setting_lines(settings: Mapping[str, Setting]) -> list[tuple[str, str]]:
    """Each setting as its name, and its value with its source."""
    told = []
    for name, setting in settings.items():
        timed = name in ("deadline", "arrive") or name.startswith("timeout.")
        value = _seconds(setting.value) if timed else _value(setting.value)
        told.append((name, f"{value} · {setting.source}"))
    return told


def name_and_text(told: Sequence[tuple[str, str]], look: Look) -> Iterator[Line]:
    """A name on each line, beside it what is to be said of it."""
    widest = min(max((len(look.say(name)) for name, _ in told), default=0), look.width // 3) + 2
    for name, text in told:
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


def first_headline(report: Report) -> list[str]:
    """What the verdict is about: the headline of the finding that the last line acts on, else of
    the first that makes it so; where none does, why a required check was not run."""
    of = {
        Verdict.NOT_READY: (Status.FAIL, Status.WARN),
        Verdict.INCOMPLETE: (Status.MISSING,),
        Verdict.UNDECIDED: (Status.UNDECIDED,),
    }.get(report.verdict, ())
    found = [finding for finding in report.findings if finding.status in of]
    if not found and report.verdict is Verdict.UNDECIDED:
        rows = (row for row in report.rows if row.required and row.id not in report.skipped)
        return [row.reason for row in rows if left_out(report, row) and row.reason][:1]
    # what the last line does something about
    left = [f for f in found if _leaving_out(report) and f.subjects[0].node in report.exclude]
    return [finding.headline for finding in left or found][:1]


def summary(report: Report) -> list[str]:
    """What stands beside the verdict: how many findings, how much was looked at, how long it took.
    Foreign as it is."""
    seen = report.observations
    left = sum(left_out(report, row) for row in report.rows)
    failed = any(row.status is Status.FAIL for row in report.rows)
    strict = " (strict)" if report.verdict is Verdict.NOT_READY and not failed else ""
    found = [
        _count_of(report, Status.FAIL, "finding"),
        _count_of(report, Status.WARN, "warning") + strict,
        _count_of(report, Status.UNDECIDED, "undecided", "undecided"),
    ]
    covered = _covered(report, left)
    parts = [
        *([*covered, *found] if report.verdict is Verdict.INCOMPLETE else [*found, *covered]),
        duration(seen.seconds),
        f"interrupted by {seen.interrupted}: partial" if seen.interrupted else "",
    ]
    return [part for part in parts if part]


def _verdict(report: Report, look: Look) -> Iterator[Line]:
    word, style = WORDS[report.verdict]
    parts = [look.say(part) for part in (*first_headline(report), *summary(report))]
    only = _only_here(report.observations.topology)
    scope = f" ({only})" if only and report.verdict is Verdict.READY else ""
    yield from flow(parts, look, [(f" {word}", style), (f"{scope}   ", "")], 4)
    left = [row for row in report.rows if left_out(report, row)]
    unwanted = [row for row in left if row.id not in report.skipped]
    reasons: dict[str, list[str]] = {}
    for row in unwanted:
        reasons.setdefault(row.reason + _only_on(row), []).append(row.id)
    for reason, ids in reasons.items():
        why = look.say(reason).removeprefix("not started: ")
        yield from _notes("not run", f"{look.say(', '.join(ids))}: {why}", look)
    if report.skipped:
        yield from _notes("skipped", f"{look.say(', '.join(report.skipped))}: by you", look)
    if report.tolerated:
        yield from _notes("tolerated", look.say(", ".join(report.tolerated)), look)
    for process in report.observations.left_behind:
        where = f", in {look.say(process.wchan)}" if process.wchan else ""
        told = f"pid {process.pid}, state {look.say(process.state)}{where}"
        yield from _notes("left behind", told, look)
    if look.saved_as:
        word = look.paste(shell_word(look.saved_as))
        shown = word or look.say(look.saved_as)
        told = f"{shown}   (preflight show {shown})"
        fits = word and len(told) <= look.width - 13
        yield [(f" {'report':<12}", "dim"), (told if fits else shown, "")]
    label, told = "do now", do_now(report)
    if not told:
        label, told = "fix", repair(report)
    for number, part in enumerate(pasteable(look.paste(told), look.width - 13)):
        yield [(f" {label if number == 0 else '':<12}", "bold"), (part, "")]
    if look.merged_with:
        command = f"preflight merge {look.paste(look.merged_with)}"
        for number, part in enumerate(
            action(command, "with the parts of the other nodes beside it", look.width - 13)
        ):
            yield [(f" {'merge' if number == 0 else '':<12}", "dim"), (part, "")]


def _covered(report: Report, left: int) -> list[str]:
    """How much of it was looked at, and passed: by check, and on how many ranks."""
    top = report.observations.topology
    met = f"{top.met}/{top.size} ranks"
    rows = [row for row in report.rows if looked_at(row) or left_out(report, row)]
    passed = sum(passes(report, row) for row in rows)
    if report.verdict is Verdict.INCOMPLETE:
        local = [row for row in rows if row.stage == "machine"]
        fine = [passes(report, r) or status_here(report, r) is Status.WARN for r in local]
        if local and all(fine):
            return [met, f"local checks of the {top.met} passed"]
    nodes = {node.name for node in top.nodes}
    by_subject = {number: row.by_subject for number, row in enumerate(rows)}
    covers = of_each(by_subject, lambda keys: {place_of(key)[0] for key in keys} >= nodes)
    whole = [row for number, row in enumerate(rows) if covers[number]]
    if len(nodes) > 1 and passed == len(rows) == len(whole):
        return [f"{plural(passed, 'check')} on {met}"]
    told = f"{passed} of {plural(len(rows), 'check')} passed"
    told += f", {left} not run" if left else ""
    if len(nodes) > 1 and len(whole) < len(rows):
        told += f", {len(rows) - len(whole)} not on every node"
    return [met, told] if report.verdict is Verdict.INCOMPLETE else [told, met]


def _only_on(row: Row) -> str:
    """On which nodes a check was left out, where others have made it."""
    came = {key: s for key, s in row.by_subject.items() if s is not Status.MISSING}
    skipped = dict.fromkeys(place_of(key)[0] for key, s in came.items() if s is Status.SKIP)
    everywhere = len(skipped) == len({place_of(key)[0] for key in came})
    return "" if everywhere else f" on {folded(skipped)}"


def _notes(label: str, text: str, look: Look) -> Iterator[Line]:
    for number, part in enumerate(wrapped(text, look.width - 13)):
        yield [(f" {label if number == 0 else '':<12}", "dim"), (part, "")]


def _count_of(report: Report, status: Status, one: str, many: str = "") -> str:
    found = [f for f in report.findings if f.status is status]
    if not found:
        return ""
    folded = len({check for f in found for check in f.folded})
    also = f" (explains {folded} more)" if folded else ""
    return (f"{len(found)} {many}" if many else plural(len(found), one)) + also


def _leaving_out(report: Report) -> str:
    """How to start without the nodes that are at fault, or that were never reached, where it is
    known how they are chosen and others are left."""
    seen = report.observations
    top, hosts = seen.topology, seen.settings.get("hosts")
    if hosts is not None and isinstance(hosts.value, (list, tuple)):
        gone = list(report.exclude) + [
            subject.node
            for finding in report.findings
            for subject in finding.subjects
            if finding.status is Status.MISSING and subject.kind is Kind.NODE
        ]
        given = [name for name in hosts.value if isinstance(name, str) and foldable(name)]
        left = others_than(given, gone)
        if not left or left == given:
            return ""
        kept = set(left)
        told = folded(name for name in given if name not in kept)
        return f"preflight run --hosts {shlex.quote(hostlist(left))}   without {told}"
    slurm = top.launcher == "SLURM" and all(foldable(name) for name in report.exclude)
    if report.exclude and slurm and len(top.nodes) > len(report.exclude):
        return f"sbatch --exclude={shlex.quote(hostlist(report.exclude))}   and your job script"
    return ""


def _acted_on(report: Report) -> Iterator[FindingType]:
    """The advice of the findings that the last line is made of, the first one first."""
    seen = report.observations
    cut_short = seen.interrupted and report.verdict is not Verdict.NOT_READY
    if report.verdict is Verdict.READY or cut_short:
        return  # nothing is wrong that we know of
    yield from (finding.advice for finding in report.findings if finding.advice is not None)


def do_now(report: Report) -> str:
    """The one command to act on: leave bad nodes out where there is a scheduler, else what the
    first finding that has one says. Empty where there is none."""
    if without := _leaving_out(report):
        return without
    first = next(_acted_on(report), None)
    return first.now.strip() if first is not None else ""


def repair(report: Report) -> str:
    """The lasting repair of the first finding that has one."""
    for advice in _acted_on(report):
        told = advice.text or (advice.commands[0].run if advice.commands else "")
        if told:
            return told.strip()
    return ""
