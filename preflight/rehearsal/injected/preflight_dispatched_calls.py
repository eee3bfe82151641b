"""Records the collectives for which torch has no flight recorder, as those of Gloo up to torch 2.7,
and what Gloo sends between two ranks, which its recorder leaves out.

All calls go through torch's dispatcher: Python's, those of DDP's reducer, those of compiled code.
In front of c10d's own kernels stands one that notes the call and passes it on. Nothing is wrapped
that a program imports or compiles. Loaded from its text beside preflight_flight_recorder.py into
the user's Python, any from 3.8 on: the standard library only.
"""

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


class DispatchedCall:
    """One call: `work` until it is known to be done."""

    __slots__ = ("at", "done", "frame", "inputs", "op", "outputs", "p2p", "seq")
    __slots__ += ("timeout", "work")

    def refresh(self):
        """Whether it is done by now. What it holds of the program is let go then."""
        if not self.done and self.work is not None and self.work.is_completed():
            self.done, self.work = True, None
        return self.done


class RecordedGroup:
    """The calls of one process group of which nobody else keeps a record.

    devices  kinds of tensors ("cpu") whose calls are recorded here; none: all
    partly   only what is sent between two ranks is
    """

    def __init__(self, rank, timeout, devices, partly):
        self.rank, self.timeout, self.devices, self.partly = rank, timeout, devices, partly
        self.collectives = self.p2p = 0
        self.calls, self.open = deque(maxlen=RECORDED), deque(maxlen=RECORDED)

    def add(self, call):
        # the oldest first: enough to let go of what is done, in every call
        while self.open and self.open[0].refresh():
            self.open.popleft()
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
ALL = [*NAMES, *P2P]
OWN = {}
"""File -> whether it is the user's."""


def install(names, is_own, unseen_by_dynamo):
    """Put the kernels of these operations in front of c10d's. They stay until the end of the
    process."""
    torch = sys.modules["torch"]
    if not LIBRARY:
        LIBRARY.append(torch.library.Library("c10d", "IMPL"))
        # called while compiled code runs, and by no means to be compiled itself
        unseen_by_dynamo(tensors_in, own_line, is_own, RecordedGroup.add, DispatchedCall.refresh)
    for name in names:
        if name not in INSTALLED and hasattr(torch.ops.c10d, name):
            kernel, begun = kernel_of(name, torch, is_own)
            unseen_by_dynamo(kernel, begun)
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
    place, limit = names.index("process_group"), len(names)
    if "timeout" in names:
        limit = names.index("timeout")

    def begun(args):
        _, group = GROUPS.get(group_of(args[place]).group_name, ("", None))
        tensors = tensors_in(args[:place][-1:])
        if (
            group is None
            or (group.partly and name not in P2P)
            or (group.devices and tensors[0].device.type not in group.devices)
        ):
            return None
        call = DispatchedCall()
        call.done, call.work, call.p2p = False, None, name in P2P
        call.at = time.time_ns()
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
        group.add(call)
        return call

    def kernel(keyset, *args, **kwargs):
        try:
            call = begun(args)
        except Exception:
            call = None
        done = call is not None
        try:
            result = operation.redispatch(keyset.remove(key), *args, **kwargs)
            try:
                work = result[-1] if isinstance(result, tuple) and result else result
                if done and isinstance(work, boxed):
                    call.work, done = work_of(work), False
            except Exception:
                pass
            return result
        finally:
            if done:
                call.done = True

    return kernel, begun


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
        }


TYPES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16"}
TYPES.update({"int8": "Char", "uint8": "Byte", "int16": "Short", "int32": "Int"})
TYPES.update({"int64": "Long", "bool": "Bool"})
TYPES = {"torch." + name: said for name, said in TYPES.items()}
