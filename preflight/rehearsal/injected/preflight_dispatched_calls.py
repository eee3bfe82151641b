"""Records the collectives for which torch has no flight recorder, as those of Gloo up to torch 2.7,
and what its recorders leave out: what Gloo sends between two ranks, the root of a broadcast.

All calls go through torch's dispatcher: Python's, those of DDP's reducer, those of compiled code.
In front of c10d's own kernels stands one that notes the call and passes it on. That takes ten
microseconds of each call, so that a root is noted where Python hands a call to its process group,
which takes one. Nothing is wrapped that a program imports or compiles. Loaded from its text beside
preflight_flight_recorder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import _thread
import functools
import sys
import time
from collections import deque

RECORDED = 200
"""Calls kept of every process group."""
DEPTH = 64
"""Frames in which the user's line is looked for."""
P2P = {"send": "send %d->%d", "recv_": "recv %d<-%d", "recv_any_source_": "recv %d<-any"}
NAMES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather_coalesced",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor_coalesced",
    "_allgather_base_": "all_gather_into_tensor",
    "gather_": "gather",
    "scatter_": "scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor_coalesced",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier_": "monitored_barrier",
}
"""Operation of c10d -> how the flight recorder calls it."""
ALL_TO_ALL = ("alltoall_", "alltoall_base_")
ROOTED = {"broadcast": 1, "reduce": 1, "gather": 2, "scatter": 2}
"""Methods of a process group in which one rank gives or gets -> where their options are, which have
its number, or that number itself."""


class DispatchedCall:
    """One call: `work` until it is known to be done."""

    __slots__ = ("at", "done", "frame", "inputs", "op", "outputs", "p2p", "root", "seq")
    __slots__ += ("tag", "thread", "timeout", "work")

    def refresh(self):
        """Whether it is done by now. What it holds of the program is let go then."""
        if not self.done and self.work is not None and self.work.is_completed():
            self.done, self.work = True, None
        return self.done


class RecordedGroup:
    """The calls of one process group of which nobody else keeps a record.

    names    operations whose calls are recorded here: ALL, P2P, or none
    devices  kinds of tensors ("cpu") with which they are; none: all
    roots    of the other calls of Python's that have a root: time, operation and root of each
    """

    def __init__(self, rank, timeout, devices, names):
        self.rank, self.timeout, self.devices, self.names = rank, timeout, devices, names
        self.collectives = self.p2p = 0
        self.calls, self.open = deque(maxlen=RECORDED), deque(maxlen=RECORDED)
        self.roots = deque(maxlen=RECORDED)

    def add(self, call):
        # The oldest first, up to one that is not done. That comes last then: it may never be done,
        # and those behind it hold tensors of the program until they are let go.
        try:
            while (oldest := self.open.popleft()).refresh():
                pass
            self.open.append(oldest)
        except IndexError:
            pass
        self.collectives += not call.p2p
        self.p2p += call.p2p
        call.seq = self.p2p if call.p2p else self.collectives
        self.calls.append(call)
        self.open.append(call)

    def counts(self):
        made = self.collectives + self.p2p
        return [made, made - sum(not call.refresh() for call in list(self.open))]


GROUPS = {}
"""Name -> the name under which it is known, and its calls."""
LIBRARY, INSTALLED = [], set()
ALL = {**NAMES, **P2P}
OWN = {}
"""File -> whether it is the user's."""


class Known(_thread._local):
    """Of each thread: whether Python has started it, once that is known."""

    of_python = None


THREAD = Known()


def install(names, is_own, never_compiled):
    """Put the kernels of these operations in front of c10d's. They stay until the end of the
    process."""
    torch = sys.modules["torch"]
    if not LIBRARY:
        LIBRARY.append(torch.library.Library("c10d", "IMPL"))
        # called while compiled code runs, and by no means to be compiled itself
        ours = (tensors_in, own_line, in_thread, RecordedGroup.add, DispatchedCall.refresh)
        never_compiled(is_own, *ours)
    for name in names:
        if name not in INSTALLED and hasattr(torch.ops.c10d, name):
            kernel, begun = kernel_of(name, torch, is_own)
            never_compiled(kernel, begun)
            LIBRARY[0].impl(name, kernel, "BackendSelect", with_keyset=True)
            INSTALLED.add(name)


def kernel_of(name, torch, is_own):
    """In front of a kernel of one operation. The key BackendSelect has none of torch's own for
    these, and is looked at in every mode: under inference_mode, in autograd's threads."""
    operation = getattr(torch.ops.c10d, name).default
    key = torch._C.DispatchKey.BackendSelect
    binding = sys.modules["torch._C._distributed_c10d"]
    group_of, work_of, boxed = binding.ProcessGroup.unbox, binding.Work.unbox, torch.ScriptObject
    names = [argument.name for argument in operation._schema.arguments]
    place = names.index("process_group")
    limit, root, tag = (
        names.index(one) if one in names else len(names) for one in ("timeout", "root_rank", "tag")
    )

    def begun(args):
        _, group = GROUPS.get(group_of(args[place]).group_name, ("", None))
        if group is None:
            return None
        if name not in group.names:
            return None
        tensors = tensors_in(args[:place][-1:])
        if group.devices and tensors[0].device.type not in group.devices:
            return None
        call = DispatchedCall()
        call.done, call.work, call.p2p = False, None, name in P2P
        call.at, call.root = time.time_ns(), args[root] if root < len(args) else None
        call.tag = args[tag] if tag < len(args) else None
        call.op = NAMES.get(name, "")
        if call.p2p:
            other = args[place + 1]
            call.op = P2P[name] % (group.rank, other)[: P2P[name].count("%d")]
        barrier = name in ("barrier", "monitored_barrier_")
        call.inputs = () if barrier else sizes_of(tensors)
        call.outputs = sizes_of(tensors_in(args[0])) if name in ALL_TO_ALL else ()
        given = args[limit] if limit < len(args) else -1
        call.timeout = given / 1e3 if given > 0 else group.timeout
        call.frame = own_line(sys._getframe(2), is_own)
        if THREAD.of_python is None:
            THREAD.of_python = in_thread(sys._getframe(2))
        call.thread = THREAD.of_python
        group.add(call)
        return call

    def kernel(keyset, *args, **kwargs):
        try:
            call = begun(args)
        except Exception:
            call = None
        if call is None:
            return operation.redispatch(keyset.remove(key), *args, **kwargs)
        done = True
        try:
            result = operation.redispatch(keyset.remove(key), *args, **kwargs)
            try:
                work = result[-1] if isinstance(result, tuple) and result else result
                if isinstance(work, boxed):
                    call.work, done = work_of(work), False
            except Exception:
                pass
            return result
        finally:
            if done:
                call.done = True

    return kernel, begun


def follow_roots(binding, never_compiled):
    """From now on note the root of each call that Python hands to a process group."""
    for name, place in ROOTED.items():
        method = getattr(binding.ProcessGroup, name, None)
        if method is not None and name not in INSTALLED:
            noting = noting_root(name, method, place)
            never_compiled(noting)
            setattr(binding.ProcessGroup, name, noting)
            INSTALLED.add(name)


def noting_root(name, method, place):
    """The method of a process group that notes the root of each of its calls."""
    now, groups = time.time, GROUPS

    def noting(self, *args, **kwargs):
        try:
            group = groups.get(self.group_name, NOBODY)[1]
            if group is not None and not recorded_here(group, args[place - 1]):
                group.roots.append((now(), name, root_of(args, kwargs, place)))
        except Exception:
            pass
        return method(self, *args, **kwargs)

    # pybind11 looks for a method of this name in classes that Python derives from its own, and
    # takes this one for such, unless it is called by a function of the same name
    noting.__code__ = noting.__code__.replace(co_name=name)
    return functools.wraps(method)(noting)


NOBODY = ("", None)


def root_of(args, kwargs, place):
    given = args[place] if len(args) > place else kwargs.get("root", kwargs.get("opts"))
    return getattr(given, "rootRank", given)


def recorded_here(group, given):
    """Whether the calls with these tensors are recorded here, roots included."""
    if group.names is not ALL:
        return False
    return not group.devices or tensors_in(given)[0].device.type in group.devices


def sizes_of(tensors):
    return [(tuple(t.shape), t.dtype) for t in tensors[:64]]


def tensors_in(value):
    """Those of lists of lists, in their order."""
    if not isinstance(value, (list, tuple)):
        return [value]
    return [tensor for one in value for tensor in tensors_in(one)]


def own_line(frame, is_own):
    """The innermost place in the user's code."""
    for _ in range(DEPTH):
        if frame is None:
            return None
        path = frame.f_code.co_filename
        if path not in OWN:
            if len(OWN) > 4096:
                OWN.clear()
            OWN[path] = is_own(path)
        if OWN[path]:
            return {"filename": path, "line": frame.f_lineno, "name": frame.f_code.co_name}
        frame = frame.f_back
    return None


def in_thread(frame):
    """Whether it runs in a thread that Python has started. Those of autograd are none."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename.endswith("threading.py")


def entries(group):
    """Its calls as the flight recorder has its entries."""
    for call in list(group.calls):
        yield {
            "profiling_name": "preflight:" + call.op,
            "is_p2p": call.p2p,
            "p2p_seq_id": call.seq,
            "collective_seq_id": call.seq,
            "input_sizes": [sizes for sizes, _ in call.inputs],
            "input_dtypes": [TYPES.get(str(t), str(t)) for _, t in call.inputs],
            "output_sizes": [sizes for sizes, _ in call.outputs],
            "output_dtypes": [TYPES.get(str(t), str(t)) for _, t in call.outputs],
            "frames": [call.frame] if call.frame else [],
            "time_created_ns": call.at,
            "retired": call.refresh(),
            "timeout_ms": call.timeout * 1e3,
            "root": call.root,
            "tag": call.tag,
            "thread": call.thread,
        }


TYPES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16"}
TYPES.update({"int8": "Char", "uint8": "Byte", "int16": "Short", "int32": "Int"})
TYPES.update({"int64": "Long", "bool": "Bool"})
TYPES = {"torch." + name: said for name, said in TYPES.items()}
