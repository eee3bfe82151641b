"""How often the main thread has got something from elsewhere: a poll that takes a millisecond of
each second is seen at no look, neither in a stack nor as a connection.

The methods of Python's sockets that receive are called through one of ours, which counts. Loaded
from its text beside preflight_responder.py into the user's Python, any from 3.8 on: the standard
library only.
"""

import _socket
import _thread
import functools
import sys

NETWORKS = (_socket.AF_INET, _socket.AF_INET6)
FAMILY = _socket.socket.family.__get__
"""As a number: that of socket.socket makes a name of it, which takes longer than to receive."""


class Answers:
    """Of each thread, by its number: what it has got. There is one."""

    got = {}
    followed = set()


def follow(kind, *names):
    """From now on count what these methods of a class of sockets get."""
    for name in names:
        method = getattr(kind, name, None)
        if method is not None and (kind, name) not in Answers.followed:
            Answers.followed.add((kind, name))
            setattr(kind, name, counting(method))


def counting(method):
    """The method, which counts unless it gets nothing: the end of a connection is no answer."""
    got, thread = Answers.got, _thread.get_ident

    @functools.wraps(method)
    def receiving(self, *args, **kwargs):
        answer = method(self, *args, **kwargs)
        if answer and FAMILY(self) in NETWORKS:
            me = thread()
            got[me] = got.get(me, 0) + 1
        return answer

    return receiving


def told(thread):
    """How often a thread has got something. What is encrypted comes by another way, once the
    program has loaded that."""
    encrypted = getattr(sys.modules.get("ssl"), "SSLSocket", None)
    if encrypted is not None:
        follow(encrypted, "read")
    return Answers.got.get(thread, 0)
