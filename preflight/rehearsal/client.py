"""Asking the processes of the rehearsed command what they do: all at once, with a deadline.

Their answers are hostile input: bounded and parsed, of a shape that history.py and aggregate.py
check field by field.
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from preflight.domains.job.record import Frame
from preflight.rehearsal import procfs
from preflight.sanitize import one_line
from preflight.serde import parsed

LIMIT = 8 << 20
"""Bytes of one answer."""
WORD = 64 << 10
"""Bytes of a traceback."""
HEADER = b"\r\n\r\n"

Address = str | tuple[str, int]
"""The path of a Unix socket, or a numeric address and a port."""


def ask_responders(
    sockets: Mapping[int, Address], question: str, seconds: float
) -> dict[int, dict[str, Any]]:
    """pid -> what our part inside of it answers (`pulse` or `dump`); those that don't in time are
    not in it."""
    raw = _exchange(sockets, f"{question}\n".encode(), seconds)
    return {pid: told for pid, data in raw.items() if (told := _parse_object(data)) is not None}


def post_handler(sockets: Mapping[int, Address], handler: str, seconds: float) -> dict[int, str]:
    """pid -> what torch's own worker server answers."""
    return _http(sockets, f"POST /handler/{handler}", seconds)


def get_path(sockets: Mapping[int, Address], path: str, seconds: float) -> dict[int, str]:
    """pid -> what it has there."""
    return _http(sockets, f"GET {path}", seconds)


def _http(sockets: Mapping[int, Address], what: str, seconds: float) -> dict[int, str]:
    request = f"{what} HTTP/1.0\r\nHost: rank\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    raw = _exchange(sockets, request.encode(), seconds)
    found = {}
    for pid, data in raw.items():
        head, _, body = data.partition(HEADER)
        if head.startswith(b"HTTP/1") and b" 200" in head[:16]:
            found[pid] = body.decode(errors="replace")
    return found


def _exchange(sockets: Mapping[int, Address], request: bytes, seconds: float) -> dict[int, bytes]:
    until = time.monotonic() + seconds
    got: dict[int, bytes] = {}
    with selectors.DefaultSelector() as selector:
        try:
            for pid, address in sockets.items():
                if (line := _connect(address)) is not None:
                    selector.register(line, selectors.EVENT_WRITE, pid)
            answers: dict[int, bytes] = {}
            while selector.get_map() and (left := until - time.monotonic()) > 0:
                for key, events in selector.select(left):
                    line, pid = cast(socket.socket, key.fileobj), key.data
                    if events & selectors.EVENT_WRITE:
                        try:
                            line.send(request)
                            selector.modify(line, selectors.EVENT_READ, pid)
                        except OSError:
                            selector.unregister(line)
                            line.close()
                        continue
                    data = _receive(line)
                    answers[pid] = answers.get(pid, b"") + data
                    if not data or len(answers[pid]) > LIMIT:
                        selector.unregister(line)
                        line.close()
                        got[pid] = answers[pid]
        finally:
            for key in list(selector.get_map().values()):
                cast(socket.socket, key.fileobj).close()
    return got


def _connect(address: Address) -> socket.socket | None:
    """On its way: a first byte can be sent when it has come there."""
    family = socket.AF_UNIX
    if not isinstance(address, str):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    line = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        code = line.connect_ex(address)
    except OSError:  # the path is too long
        code = errno.EINVAL
    if code in (0, errno.EINPROGRESS):
        return line
    line.close()
    return None


def _receive(line: socket.socket) -> bytes:
    try:
        return bytes(line.recv(1 << 16))
    except OSError:
        return b""


def _parse_object(data: bytes) -> dict[str, Any] | None:
    told = parse_json(data)
    return told if isinstance(told, dict) else None


def parse_json(data: bytes | str) -> object:
    """None of what is not JSON, and of what could not be written as JSON again."""
    try:
        return parsed(data)
    except ValueError:
        return None


PLACE = re.compile(
    r'^  File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9}),? in (?P<in>\S{1,200})'
)
THREAD = re.compile(r"^(?P<current>Current )?[Tt]hread 0x[0-9a-f]{1,16} ", re.MULTILINE)
THREADS = 1024
OURS = "/preflight_responder.py"
LIBRARIES = re.compile(r"/(site|dist)-packages/|/lib/python3\.\d+/|^<|/preflight-[^/]+/\w+\.py$")


def parse_faulthandler(text: str) -> tuple[Frame, ...]:
    """The frames that matter in what faulthandler writes of all threads, the innermost first: those
    of the current thread where it is Python's, else those of the main thread, which comes last.
    Our own thread in there is passed over."""
    heads = list(THREAD.finditer(text))[:THREADS]
    ends = [*(head.start() for head in heads[1:]), len(text)][: len(heads)]
    found = [
        (head["current"] is not None, _parse_frames(text[head.end() : end]))
        for head, end in zip(heads, ends, strict=True)
    ]
    theirs = [(current, f) for current, f in found if f and not f[0].file.endswith(OURS)]
    running = next((frames for current, frames in theirs if current), ())
    return running or (theirs[-1][1] if theirs else ())


def _parse_frames(text: str) -> tuple[Frame, ...]:
    found = (PLACE.match(line) for line in text.splitlines()[:200])
    return tuple(
        Frame(one_line(m["file"]), int(m["line"]), m["in"][:80], not LIBRARIES.search(m["file"]))
        for m in found
        if m is not None
    )


def parse_traceback(trace: object) -> tuple[str, tuple[Frame, ...]]:
    """The error and the frames, the innermost first, of a traceback as Python prints it."""
    text = trace if isinstance(trace, str) else ""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    return one_line(last), _parse_frames(text)[::-1]


def uncaught(folder: str, most: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """pid -> the last word of a process that an exception ended before it came to torch, of the
    first so many files in the folder: sitecustomize.py writes it as a traceback."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(most), entries, strict=False):
            pid, _, kind = entry.name.partition(".")
            if kind != "uncaught" or not pid.isdecimal():
                continue
            text, frames = parse_traceback(procfs.read(entry.path, WORD))
            at = entry.stat(follow_symlinks=False).st_mtime
            yield (
                int(pid),
                {"how": "raised", "at": at, "text": text, "frames": frames_to_json(frames)},
            )


def frames_from_json(told: object, most: int) -> tuple[Frame, ...]:
    """Frames as preflight_responder.py sends them: the innermost, and those of the user's code."""
    found = [frame_from_json(entry) for entry in told[:200]] if isinstance(told, list) else []
    return innermost_and_own([one for one in found if one is not None], most)


def innermost_and_own(stack: Sequence[Frame], most: int) -> tuple[Frame, ...]:
    """What is kept of a stack, the innermost first."""
    kept = (*stack[: most // 2], *(one for one in stack[most // 2 :] if one.own))
    return kept[:most]


def frames_to_json(stack: Iterable[Frame]) -> list[list[object]]:
    """As preflight_responder.py sends them."""
    return [[f.file, f.line, f.function, f.own] for f in stack]


def mapping_or_empty(told: object) -> Mapping[str, Any]:
    """What is none is an empty one."""
    return told if isinstance(told, dict) else {}


def frame_from_json(entry: object) -> Frame | None:
    """One of them; None for what is none."""
    match entry:
        case [str(file), int(line), str(function), bool(own)]:
            return Frame(one_line(file), line, one_line(function)[:80], own)
    return None


def sane_numbers(values: Iterable[object]) -> tuple[int, ...]:
    return tuple(v for v in values if type(v) is int and 0 <= v < 1 << 31)
