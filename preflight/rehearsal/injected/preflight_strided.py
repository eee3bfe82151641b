"""Views with gaps that are given to a collective: some columns of a matrix, every second number, an
expanded tensor. Gloo reads and writes as many numbers as such a view has, one after the other from
its first one on, and raises no error: parts of the view keep their values, and what is between
them is overwritten (broadcast, reduce, scatter and all_reduce of torch up to 2.13).

Of a tensor without gaps no more is looked at than that. Loaded from its text beside
preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import functools
import sys

NAMES = {"broadcast": "broadcast", "reduce": "reduce", "scatter": "scatter"}
NAMES["allreduce"] = "all_reduce"
"""Method of a process group -> the function that users know."""
NEWEST = (2, 13)
"""The latest torch of which this is known."""
LINES, DEEP = 16, 8
"""Lines that are kept, and dimensions of a view."""


class Strided:
    """What is known in this process. There is one.

    lines  operation and line -> operation, name of the group, shape, strides, how often, and line
    """

    lines, place = {}, None


def begin():
    """A child by fork has called nothing yet."""
    Strided.lines = {}


def follow(binding, never_compiled, place):
    """From now on look at what Python hands to a process group; `place`: the user's line that is
    carried out."""
    Strided.place = place
    for name in NAMES:
        method = getattr(binding.ProcessGroup, name, None)
        if method is not None:
            noting = noting_gaps(name, method)
            never_compiled(noting)
            setattr(binding.ProcessGroup, name, noting)


def noting_gaps(name, method):
    scatters = name == "scatter"

    def noting(self, *args, **kwargs):
        try:
            given = args[0]
            tensor = given[0] if given.__class__ is list else given
            if scatters or not tensor.is_contiguous():
                note(name, self, args[: 1 + scatters])
        except Exception:
            pass
        return method(self, *args, **kwargs)

    # pybind11 looks for a method of this name in classes that Python derives from its own, and
    # takes this one for such, unless it is called by a function of the same name
    noting.__code__ = noting.__code__.replace(co_name=name)
    return functools.wraps(method)(noting)


def note(name, group, given):
    tensor = next((t for t in tensors_in(given) if has_gaps(t)), None)
    if tensor is None or tensor.device.type != "cpu" or group.size() < 2 or not is_known():
        return
    line = Strided.place()
    key = (name, tuple(line[:2]) if line else None)
    if key in Strided.lines or len(Strided.lines) < LINES:
        told = [NAMES[name], str(group.group_name), list(tensor.shape)[:DEEP]]
        told += [list(tensor.stride())[:DEEP], 0, line]
        Strided.lines.setdefault(key, told)[4] += 1


def is_known():
    """Whether this torch does so."""
    version = str(sys.modules["torch"].__version__).split(".")[:2]
    return tuple(int(number) for number in version) <= NEWEST


def tensors_in(value):
    """Those of lists of lists, in their order."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [tensor for one in value for tensor in tensors_in(one)]


def has_gaps(tensor):
    """Whether its numbers do not fill the memory from the first to the last one, in any order."""
    if tensor.is_contiguous():
        return False
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size == 1:
            continue
        if stride != expected:
            return True
        expected *= size
    return False


def told():
    """All that is known, for the record."""
    return [list(one) for one in list(Strided.lines.values())]
