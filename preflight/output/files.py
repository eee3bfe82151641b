"""Report files and the summary of a CI step: written and read by workers."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from preflight import console
from preflight.config import resolve
from preflight.config.resolve import Output
from preflight.engine.agent import session, without_collector
from preflight.engine.plan import SUMMARY
from preflight.engine.setup import wait
from preflight.model import PreflightError, Report
from preflight.output import compressed, tasks, terminal
from preflight.process.pool import Died, Raised, Returned, Stream, Target, Workers
from preflight.process.signals import Interrupt
from preflight.render import formats, human
from preflight.sanitize import shell_word

FILES = "files"
"""The server whose workers touch report files: it shares no fate with that of the checks."""

FILE_SECONDS = 10.0
BYTES_A_SECOND = 2 << 20
"""How long a report may take to be written or read: its file system may be the dead one. A large
one takes longer, unpacked some ten times of what it is on disk."""
UNPACKED = 10

LOG_LIMIT = 32 << 20
"""Bytes of a log that are looked at: its end."""

FILE_LIMIT = 1 << 30
"""Bytes that a worker may say of a file: a report, with what JSON makes of it on the way here."""

PART = "preflight.json"
"""Where a part of a report goes that nobody has asked for, with the node's name in it."""

HTML = "<!doctype"

SUMMARY_LIMIT = 1 << 20
"""Bytes that GitHub Actions take of what a step has to say, as Markdown."""


def publish(
    workers: Workers,
    outputs: Iterable[Output],
    report: Report,
    look: human.Look,
    part: str = "",
    hosted_part: str = "",
) -> tuple[str, ...]:
    """Print and write the report, files first; why an output could not be had, for each. A `part`
    goes into a file of its own: where all write to one folder, the host of the meeting and other
    parts have theirs there. Without one nobody could merge it, so it is written into the working
    directory, if that can be, where nobody has asked for a file. So is the `hosted_part`, which is
    the report of the meeting's host, while a file that was asked for has the name it was given."""
    problems: list[str] = []
    saved = ""
    outputs = list(outputs)
    unasked = Output("json", PART)
    name = part or hosted_part
    nobody_asked = not any(o.format == "json" and o.file != "-" for o in outputs)
    if name and nobody_asked:
        outputs.append(unasked)
    for output in sorted(outputs, key=lambda o: o.file == "-"):
        if output.file == "-":
            every_part = _parts(saved, name, nobody_asked)
            looked = replace(look, saved_as=saved, merged_with=every_part)
            with without_collector():
                problem = terminal.write_parts(formats.parts(output.format, report, looked))
        else:
            plain = human.Look(verbose=look.verbose)
            parts = formats.parts(output.format, report, plain)
            # metrics: a second file beside them would say the same of the same node once more
            metrics = output.format == "prometheus"
            asked = output is not unasked
            stem, extension = _name_and_kind(output.file)
            if (part or not asked) and not metrics and extension:
                output = replace(output, file=f"{stem}.{name}{extension}")
            # the collector is another user, whatever the umask of this one
            mode = 0o644 if metrics else None
            args = {
                "path": resolve.absolute(output.file),
                "mode": mode,
                "below": os.getcwd() if output.below else "",
            }
            handed = _handed_over(output.file)
            with without_collector():
                if handed is not None:
                    problem = _to_descriptor(handed, output.file, parts)
                else:
                    problem = _in_worker(
                        workers, tasks.write_file, args, output.file, str, parts=parts
                    )
            if output.format == "json" and not problem and handed is None:
                saved = saved or output.file
            if not asked:
                problem = ""
        if problem:
            problems.append(problem)
            console.say(f"preflight: could not write the report: {problem}")
    return tuple(problems)


HANDED_OVER = {"/dev/stdout": 1, "/dev/stderr": 2}
DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,7})")


def _handed_over(path: str) -> int | None:
    """The number of a descriptor of this process, where a path names one: in a worker the same path
    leads to one of its own."""
    found = DESCRIPTOR.fullmatch(path)
    return int(found[1]) if found else HANDED_OVER.get(path)


def _for_a_worker(path: str) -> str:
    """A path to be read as a worker finds it: `preflight show <(zcat …)` hands us /dev/fd/63."""
    handed = 0 if path == "/dev/stdin" else _handed_over(path)
    return resolve.absolute(path) if handed is None else f"/proc/{os.getpid()}/fd/{handed}"


def _to_descriptor(number: int, path: str, parts: Iterable[str]) -> str:
    problem = terminal.write_parts(parts) if number == 1 else terminal.write_to(number, parts)
    return f"{path}: {problem}" if problem else ""


def _name_and_kind(path: str) -> tuple[str, str]:
    """`preflight.json.gz` as `preflight` and `.json.gz`."""
    stem, extension = os.path.splitext(path)
    if extension in compressed.NAMES:
        stem, inner = os.path.splitext(stem)
        return stem, inner + extension
    return stem, extension


def _parts(saved: str, part: str, unasked: bool) -> str:
    """The files of all parts, for a shell, where this one has been written as `saved`. The file of
    the meeting's host has no part's name in it where it was asked for."""
    stem, extension = _name_and_kind(saved)
    if not part or not extension:
        return ""
    stem = stem.removesuffix(f".{part}")
    first, last = shell_word(stem), shell_word(extension[1:])
    return f"{first}.*{'.' if unasked else ''}{last}" if first and last else ""


def write_step_summary(workers: Workers, outputs: Iterable[Output], report: Report) -> None:
    """In GitHub Actions the report also goes into the summary of the step, if no `-o` writes there,
    and each finding becomes an annotation, by a line on stderr. That it can't is only said: nobody
    has asked for it."""
    path = os.environ.get(SUMMARY, "")
    if not path:
        return
    from preflight.render import markdown

    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in markdown.workflow_commands(report):
            console.say(line)
    if path in [output.file for output in outputs]:
        return
    texts = [f"\n{markdown.render(report)}", f"\n{markdown.brief(report)}"]
    args = {"path": resolve.absolute(path), "texts": texts, "limit": SUMMARY_LIMIT}
    if problem := _in_worker(workers, tasks.append_file, args, path, str):
        console.say(f"preflight: {SUMMARY}: {problem}")


def read_report(path: str) -> Report:
    """A saved report; PreflightError where it can't be had."""
    from preflight.render import json as as_json

    args = {
        "path": _for_a_worker(path),
        "limit": as_json.LIMIT,
        "more": as_json.LIMIT_A_RANK,
        "most": as_json.LIMIT_MOST,
    }
    parts: deque[str] = deque()
    with session(Interrupt()) as workers:
        size = _in_worker(workers, tasks.file_size, args, path, lambda why: 0)
        found = _in_worker(
            workers,
            tasks.say_file,
            args,
            path,
            lambda why: {"error": why},
            UNPACKED * size,
            takes=parts.append,
        )
    if problem := found.get("error", ""):
        raise PreflightError(problem)
    try:
        if _begins_with(parts, HTML):
            from preflight.render.html import embedded

            parts = deque([embedded.unpacked("".join(parts))])
        with without_collector():
            return as_json.parse_parts(parts)
    except PreflightError as error:
        raise PreflightError(f"{path}: {error}") from None


def _begins_with(parts: Iterable[str], word: str) -> bool:
    """Whether a text in parts begins with this, in small letters, after blanks."""
    begins = ""
    for part in parts:
        begins = (begins + part).lstrip()[: len(word)]
        if len(begins) == len(word):
            break
    return begins.lower() == word


def read_log(path: str) -> str:
    """The end of a log, or of stdin where `path` is `-`; PreflightError where it can't be had."""
    if path == "-":
        return sys.stdin.buffer.read(LOG_LIMIT).decode("utf-8", "replace") if sys.stdin else ""
    args = {"path": _for_a_worker(path), "limit": LOG_LIMIT}
    with session(Interrupt()) as workers:
        found = _in_worker(workers, tasks.read_end, args, path, lambda why: {"error": why})
    if problem := found.get("error", ""):
        raise PreflightError(problem)
    return str(found.get("text", ""))


def not_startable(workers: Workers, program: str) -> OSError | None:
    """Why a command can't be started, as far as that can be known before it is tried."""
    number = _in_worker(workers, tasks.find_program, {"name": program}, program, lambda why: 0)
    return OSError(number, os.strerror(number)) if number else None


def write_json(workers: Workers, path: str, data: Any) -> str:
    """Write JSON data for workers of ours; why it could not be done, or empty."""
    args = {"path": path, "text": json.dumps(data)}
    return str(_in_worker(workers, tasks.write_file, args, path, str))


def write_new(path: str, text: str) -> str:
    """Write a new file; why it could not be done, or empty. One that is there stays as it is."""
    return write_report(path, text, new=True)


def write_report(path: str, text: str, new: bool = False) -> str:
    """Write a file; why it could not be done, or empty. `new`: one that is there stays as it is."""
    if (handed := _handed_over(path)) is not None:
        return _to_descriptor(handed, path, [text])
    args = {"path": resolve.absolute(path), "text": text, "new": new}
    with session(Interrupt()) as workers:
        return str(_in_worker(workers, tasks.write_file, args, path, str))


def _in_worker(
    workers: Workers,
    target: Target,
    args: Any,
    path: str,
    problem: Callable[[str], Any],
    size: int = 0,
    parts: Iterable[str] | None = None,
    takes: Callable[[Any], object] | None = None,
) -> Any:
    """What a function of tasks.py returns; `problem` makes as much of a reason why not. `size`:
    bytes that it has to do with; `parts`: a text that it is to have, made as it takes it;
    `takes`: what has what it says."""
    stream = None if parts is None else _stream(parts)
    if not workers.opened(FILES):
        workers.fork(FILES)
    seconds = FILE_SECONDS + min(size, FILE_LIMIT) / BYTES_A_SECOND
    call = workers.call(
        FILES, target, args, seconds=seconds, limit=FILE_LIMIT, stream=stream, takes=takes
    )
    result = None
    while result is None:
        result = wait(workers, call, seconds + 5.0)
        if time.monotonic() > call.due:  # with each part that it takes it has more time
            break
    if call.broken is not None:
        raise call.broken
    match result:
        case Returned():
            return result.value
        case Raised():
            return problem(f"{path}: {result.message}")
        case Died():
            return problem(f"{path}: {result.stderr.strip().partition(chr(10))[0]}")
    return problem(f"{path}: no answer from its file system in {seconds:.0f} s")


def _stream(parts: Iterable[str]) -> Stream:
    """Of a text in parts. The first one is made at once: for a report it takes a look at all that
    was seen, and what a worker that was forked before still shares would be there twice."""
    rest = iter(parts)
    first = next(rest, "")
    return Stream((part.encode() for part in itertools.chain([first], rest)), BYTES_A_SECOND)
