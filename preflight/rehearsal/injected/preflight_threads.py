"""What the threads of the program use of the CPU beside the main one, and where they are: one that
writes logs or metrics, and that holds the interpreter's lock meanwhile, slows the main thread.

Loaded from its text beside preflight_responder.py into the user's Python, any from 3.8 on: the
standard library only.
"""

import os
import sys

THREADS, NAME = 16, 60
"""Threads that are looked at, and letters of a name."""


def told(main, own_frame):
    """Number of each thread of threading's, as the kernel has it, its name, the seconds of CPU that
    it has used, and the user's line at which it is."""
    known = list(getattr(sys.modules.get("threading"), "_active", {}).items())
    rest = [(ident, one) for ident, one in known if ident != main][:THREADS]
    if not rest:
        return []
    frames = sys._current_frames()
    try:
        found = []
        for ident, one in rest:
            number = getattr(one, "native_id", None)
            if number is not None and ident in frames:
                used = seconds(number)
                if used is not None:
                    found.append([number, str(one.name)[:NAME], used, own_frame(frames[ident])])
        return found
    finally:
        frames.clear()  # or what the program leaves would live on in there


def seconds(number):
    """Of CPU that a thread of this process has used; None where that is not known."""
    try:
        with open("/proc/self/task/%d/stat" % number) as file:
            fields = file.read(1024).rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
