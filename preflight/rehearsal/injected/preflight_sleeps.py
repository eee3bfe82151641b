"""When a sleep of the main thread ends: in time.sleep() it is in a call of the kernel, which has
the time that was set.

Loaded from its text beside preflight_responder.py into the user's Python, any from 3.8 on: the
standard library only.
"""

import os
import struct
import time

PLACES = {
    "x86_64": {230: (0, 1, 2), 35: (None, None, 0), 270: (None, None, 4), 23: (None, None, 4)},
    "aarch64": {115: (0, 1, 2), 101: (None, None, 0), 72: (None, None, 4)},
}
"""Machine -> clock_nanosleep, nanosleep, pselect6 and select -> where the clock is, the flags, and
the address of the time. Up to Python 3.10 it sleeps in the last two."""
WAITS_FOR_FILES = {"x86_64": (270, 23), "aarch64": (72,)}
"""Those of them that may wait for files as well: their first argument is how many."""
MACHINE = os.uname().machine
IN_MICROSECONDS = 23
TIME = struct.Struct("@ll")
MOST = 64


class Sleeps:
    """Of a time that counts from the begin of the call: process or thread -> the call, and when it
    was seen first. There is one."""

    since = {}


def ends(thread):
    """When the sleep of a thread of this process ends by itself, on the clock of time.monotonic();
    None where it is in none. `thread`: its number, as the kernel has it."""
    return ends_of("self/task/%d" % thread, "self")


def first_to_wake(children):
    """The same of the child that wakes first: the kernel lets a process look into those that it has
    started."""
    found = [ends_of(str(pid), str(pid)) for pid in children]
    return min((one for one in found if one is not None), default=None)


def ends_of(sleeper, process):
    try:
        call = read_call(sleeper)
        words = call.split()
        number = int(words[0])  # "running" is none
        clock, flags, address = PLACES[MACHINE][number]
        given = [int(word, 16) for word in words[1:7]]
        if number in WAITS_FOR_FILES[MACHINE] and given[0]:
            return None
        seconds = read_time(process, given[address], number)
    except (OSError, ValueError, KeyError, IndexError, struct.error):
        return None
    if clock is not None and given[flags] & 1:
        return round(time.monotonic() + seconds - time.clock_gettime(given[clock]), 3)
    now = time.monotonic()
    before, since = Sleeps.since.get(sleeper, (b"", 0.0))
    if call != before or now >= since + seconds:
        if len(Sleeps.since) > MOST:
            Sleeps.since.clear()
        Sleeps.since[sleeper], since = (call, now), now
    return round(since + seconds, 3)


def read_call(sleeper):
    """The call that it is in. Not by open(), which is made for files of text, and for several
    questions to the kernel."""
    file = os.open("/proc/%s/syscall" % sleeper, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, 400)
    finally:
        os.close(file)


def read_time(process, address, number):
    """A time that lies in a process. To read it as a file fails where it is not there any more."""
    memory = os.open("/proc/%s/mem" % process, os.O_RDONLY | os.O_CLOEXEC)
    try:
        whole, part = TIME.unpack(os.pread(memory, TIME.size, address))
    finally:
        os.close(memory)
    return whole + part / (1e6 if number == IN_MICROSECONDS else 1e9)
