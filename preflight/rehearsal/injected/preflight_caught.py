"""Exceptions that a process of the rehearsed command has caught, and gone on: a rank that leaves
out a step for one is a call behind the others from then on.

From Python 3.12 on the interpreter tells of each that the user's code catches. Before, what comes
out of a collective, DDP's forward and the DataLoader is known. Nothing here costs anything while
nothing is raised. Loaded from its text beside preflight_responder.py into the user's Python, any
from 3.8 on: the standard library only.
"""

import functools
import os
import sys

TEXT = 300
KEPT = 32
"""Places that are kept."""
MOST, EACH = 100_000, 50
"""Exceptions of libraries after which they are looked at no more, and for how many of them one of
the user's counts: a program that lives by them is not slowed."""
BOOTSTRAP = os.path.join("multiprocessing", "process.py")
"""Its _bootstrap() prints what ends a child, and from Python 3.13 on has forgotten it by the time
that the last things are done."""
TOOLS = (4, 3)
"""Numbers for a tool in sys.monitoring that no debugger, profiler and the like has."""


class Caught:
    """What is known in this process. There is one."""

    found = {}  # where it was raised and caught -> [text, frame, handler, times]
    latest = None
    ended = None  # what has ended the target of a multiprocessing child
    events = 0
    tool = None
    is_rank = is_own = frame_of = None
    own = {}  # file -> whether it is the user's


def begin():
    """A child by fork has caught nothing yet."""
    Caught.found, Caught.latest, Caught.ended, Caught.events = {}, None, None, 0


def follow(c10d, is_own, frame_of):
    """From now on, once there is a process group. `frame_of`: code and line as they are told."""
    Caught.is_rank, Caught.is_own, Caught.frame_of = c10d.is_initialized, is_own, frame_of
    if monitor():
        return
    logger = sys.modules.get("torch.distributed.c10d_logger")
    if hasattr(logger, "_get_msg_dict"):
        logger._get_msg_dict = noting(logger._get_msg_dict)


def monitor():
    """Whether the interpreter can tell."""
    monitoring = getattr(sys, "monitoring", None)
    tool = next((t for t in TOOLS if monitoring and monitoring.get_tool(t) is None), None)
    if tool is None:
        return False
    events = monitoring.events
    monitoring.use_tool_id(tool, "preflight")
    monitoring.register_callback(tool, events.EXCEPTION_HANDLED, handled)
    monitoring.register_callback(tool, events.RERAISE, raised_again)
    monitoring.set_events(tool, events.EXCEPTION_HANDLED | events.RERAISE)
    Caught.tool = tool
    return True


def handled(code, offset, error):
    """Called by the interpreter: also for a finally or a with, which raise it again."""
    try:
        path = code.co_filename
        if code.co_name == "_bootstrap" and path.endswith(BOOTSTRAP):
            Caught.ended = error
        if path not in Caught.own:
            Caught.own[path] = len(Caught.own) < 4096 and Caught.is_own(path)
        Caught.events += EACH if Caught.own[path] else 1
        if Caught.events > MOST:
            sys.monitoring.set_events(Caught.tool, 0)
        elif Caught.own[path] and Caught.is_rank():
            # the first instruction of a handler has no line
            lines = (line for _, end, line in code.co_lines() if end > offset and line)
            note(error, Caught.frame_of(code, next(lines, 0)))
    except Exception:
        pass


def raised_again(code, offset, error):
    if Caught.latest is not None and Caught.latest[0] == id(error):
        Caught.latest[1][3] -= 1
        Caught.latest = None


def noting(original):
    """Around a function of torch that is called where an exception has come out of a collective."""

    @functools.wraps(original)
    def noted(*args, **kwargs):
        note(sys.exc_info()[1])
        return original(*args, **kwargs)

    return noted


def watch_forward(module, unless_compiled):
    """What comes out of DDP's forward, where the interpreter tells nothing."""
    if hasattr(sys, "monitoring"):
        return
    forward = module.DistributedDataParallel.forward

    def noted(*args, **kwargs):
        try:
            return forward(*args, **kwargs)
        except Exception as error:
            note(error)
            raise

    module.DistributedDataParallel.forward = unless_compiled(noted, forward)


def note(error, handler=None):
    """It may be the end of the program as well: then nothing comes after it."""
    try:
        if error is None or not isinstance(error, Exception) or not Caught.is_rank():
            return
        if handler is None and Caught.tool is not None:
            return  # the interpreter tells of it
        frame = place_of(error)
        key = str((type(error).__name__, frame, handler))
        if key not in Caught.found and len(Caught.found) >= KEPT:
            return
        entry = Caught.found.setdefault(key, [describe(error), frame, handler, 0])
        entry[3] += 1
        Caught.latest = (id(error), entry)
    except Exception:
        pass


def describe(error):
    """Of one from a DataLoader's worker its own last line."""
    lines = str(error).strip().splitlines() or [""]
    text = (
        lines[-1] if "Original Traceback" in str(error) else f"{type(error).__name__}: {lines[0]}"
    )
    return text.strip()[:TEXT]


def place_of(error):
    """The innermost place in the user's code."""
    found, trace = None, error.__traceback__
    for _ in range(1000):
        if trace is None:
            break
        code = trace.tb_frame.f_code
        if Caught.is_own(code.co_filename):
            found = Caught.frame_of(code, trace.tb_lineno)
        trace = trace.tb_next
    return found


def told(thread):
    """Those that were caught, and the one that the main thread is handling now: in an except or a
    finally."""
    found = [
        {"text": text, "raised": frame, "handler": handler, "times": times}
        for text, frame, handler, times in list(Caught.found.values())
        if times > 0
    ]
    handling = getattr(sys, "_current_exceptions", dict)().get(thread)
    error = handling[1] if isinstance(handling, tuple) else handling
    if isinstance(error, Exception):
        now = {"text": describe(error), "raised": place_of(error), "handler": None, "times": 1}
        found = [one for one in found if one["raised"] != now["raised"]] + [dict(now, now=True)]
    return found
