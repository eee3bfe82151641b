"""For which keys of a store the main thread waits: torch's own code for that is native, and has no
frame.

The methods of torch's stores that wait are called through one of ours, which keeps what they were
called with. Loaded from its text beside preflight_responder.py into the user's Python, any from 3.8
on: the standard library only.
"""

import _thread
import functools
import time

WAITING = ("get", "wait", "multi_get", "queue_pop")
KEYS, TEXT = 4, 120
"""Of one call that are kept, and letters of each."""


class Waits:
    """Of each thread, by its number: what it waits for. There is one."""

    now = {}
    followed = set()


def follow(binding, never_compiled):
    """From now on keep what is waited for."""
    for name in WAITING:
        method = getattr(binding.Store, name, None)
        if method is not None and name not in Waits.followed:
            Waits.followed.add(name)
            keeping = kept(name, method)
            never_compiled(keeping)
            setattr(binding.Store, name, keeping)


def kept(name, method):
    """The method of a store, which keeps what it is called with until it comes back."""
    now, thread, clock = Waits.now, _thread.get_ident, time.monotonic

    def waiting(self, *args, **kwargs):
        me = thread()
        before, now[me] = now.get(me), (args, kwargs, clock())
        try:
            return method(self, *args, **kwargs)
        finally:
            if before is None:
                del now[me]
            else:
                now[me] = before

    # see noting_root() of preflight_dispatched_calls.py
    waiting.__code__ = waiting.__code__.replace(co_name=name)
    return functools.wraps(method)(waiting)


def told(thread):
    """The keys, and when it gives them up, on the clock of time.monotonic(), where the program
    says that itself; None where the thread waits for none."""
    found = Waits.now.get(thread)
    if found is None:
        return None
    args, kwargs, began = found
    keys = args[0] if args else next(iter(kwargs.values()), ())
    names = [keys] if isinstance(keys, (str, bytes)) else list(keys)[:KEYS]
    limits = [one for one in (*args[1:], *kwargs.values()) if hasattr(one, "total_seconds")]
    ends = round(began + limits[0].total_seconds(), 3) if limits else None
    return {"keys": [str(one)[:TEXT] for one in names], "ends": ends}
