"""Where the time of a step goes on the host, how large the batches are that a rank gets and what it
gives to the forward of DDP or FSDP; of a few steps a number for what goes into DDP's forward, which
tells whether ranks have the same, and how many labels of the batches count.

A step is cut where the program passes: in and out of DDP's forward, out of backward(), before and
after the optimizer, before and after the DataLoader. What lies between the end of a forward and
that of the last backward() is called backward: the loss, backward() with its collectives. On a GPU,
where backward() returns before it is done, it is all until the optimizer. A closure that is passed
to the optimizer calls forward and backward from there: they are no part of its time. Loaded from
its text beside preflight_responder.py into the user's Python, any from 3.8 on: the standard library
only.
"""

import struct
import sys
import time
import zlib
from collections import deque
from collections.abc import Mapping

TENSORS, DEPTH, PENDING = 16, 4, 256
"""Of a batch that are looked at; batches of one step."""
WINDOWS = 48
"""Backward passes of which begin and end are kept, the latest."""
LATEST = 64
"""Parts of steps of which begin and length are kept."""
BETWEEN = 256
"""Times between two steps."""
CLOCKED = 16
"""Steps after each of which CPU time is read; later after every 16th."""
ALL, EACH = 64, 7
"""Steps of which all batches are measured; later those of every 7th."""
MARKS, NUMBERS = 48, 64
"""Steps whose inputs are marked, and numbers of each tensor that make such a mark."""
IGNORED, LABELS = -100, 1 << 22
"""What torch's losses leave out of labels, and how many of these are counted at most."""
FIRST = 512
"""Numbers of each tensor of a batch by which it is known again."""


class Phases:
    """What is known in this process. There is one."""

    forward = backward = after = optimizer = 0.0
    steps = since = batches = forwards = 0
    ended = passed = began = at = stepped = waited = closed = 0.0
    cpu = [0.0, 0.0, 0]
    between = deque(maxlen=BETWEEN)
    pending, sums = [], [0, 0, 0, 0]
    windows = deque(maxlen=WINDOWS)
    latest = deque(maxlen=LATEST)
    shape = None
    mark, marks = None, []
    place = None
    coming, taken, form, line, ranks = [], [0, 0, 0, 0], None, None, 0
    measures, got = True, False  # the batches of the step that comes; whether there is one
    due, is_due = None, True  # whether something is looked at after a number of steps; and now
    threads, labels, contents = 0, {}, {}


def begin():
    """A child by fork has done nothing yet."""
    Phases.forward = Phases.backward = Phases.after = Phases.optimizer = 0.0
    Phases.steps = Phases.since = Phases.batches = Phases.forwards = 0
    Phases.ended = Phases.passed = Phases.began = Phases.at = 0.0
    Phases.stepped = Phases.waited = Phases.closed = 0.0
    Phases.cpu = [0.0, 0.0, 0]
    Phases.between = deque(maxlen=BETWEEN)
    Phases.windows = deque(maxlen=WINDOWS)
    Phases.latest = deque(maxlen=LATEST)
    Phases.pending, Phases.sums, Phases.shape = [], [0, 0, 0, 0], None
    Phases.mark, Phases.marks = None, []
    Phases.coming, Phases.taken = [], [0, 0, 0, 0]
    Phases.form, Phases.line, Phases.ranks = None, None, 0
    Phases.measures, Phases.got, Phases.is_due = True, False, True
    Phases.threads, Phases.labels, Phases.contents = 0, {}, {}


def restart():
    """A model is wrapped that all ranks have: what one of them has trained alone before, such as a
    teacher, tells nothing of their batches."""
    Phases.since, Phases.batches, Phases.sums, Phases.taken = Phases.steps, 0, [0] * 4, [0] * 4
    Phases.pending, Phases.coming, Phases.marks = [], [], []
    Phases.labels, Phases.contents = {}, {}
    Phases.mark, Phases.measures, Phases.got, Phases.is_due = None, True, False, True


def follow(place, due):
    """due: says whether something is looked at after a number of steps."""
    Phases.place, Phases.due = place, due


def follow_ddp(module, unless_compiled, forwards, forwarded):
    """From now on take the time of each forward, and call `forwarded` after it with the model and
    its arguments; `forwards` before it, where something is looked at."""
    forward = module.DistributedDataParallel.forward
    ours = "preflight_" in getattr(getattr(forward, "__code__", None), "co_filename", "")
    # of two of ours, one around the other, Dynamo would see the inner one
    plain = getattr(forward, "__wrapped__", forward) if ours else forward

    def timed(*args, **kwargs):
        if not sys.modules["torch"].is_grad_enabled():
            return forward(*args, **kwargs)
        if Phases.is_due:
            forwards()
        began = time.monotonic()
        leave_backward(began)
        begin_forward(began)
        result = forward(*args, **kwargs)
        Phases.ended = now = time.monotonic()
        Phases.at = time.time()  # the clock of torch's flight recorder
        Phases.forward += now - began
        if Phases.began:  # in a closure
            Phases.closed += now - began
        Phases.latest.append(("forward", began, now))
        Phases.forwards += 1
        try:
            forwarded(args[0], [args[1:], kwargs])
            if Phases.measures:
                take([args[1:], kwargs], args[0].process_group.size())
            if Phases.is_due and Phases.mark is None and len(Phases.marks) < MARKS:
                Phases.mark = mark_of([args[1:], kwargs])
        except Exception:
            pass
        return result

    module.DistributedDataParallel.forward = unless_compiled(timed, plain)


def follow_backward(module, unless_compiled):
    """From now on know when a backward() has ended, the collectives of DDP within it."""
    backward = module.backward

    def passed(*args, **kwargs):
        result = backward(*args, **kwargs)
        Phases.passed = time.monotonic()
        return result

    module.backward = unless_compiled(passed, backward)


def follow_fsdp(module, unless_compiled, forwards):
    """From now on look at what the outermost model in FSDP gets."""
    forward = module.FullyShardedDataParallel.forward

    def noting(*args, **kwargs):
        if Phases.is_due and sys.modules["torch"].is_grad_enabled():
            forwards()
        result = forward(*args, **kwargs)
        try:
            if Phases.measures and args[0]._is_root and sys.modules["torch"].is_grad_enabled():
                take([args[1:], kwargs], args[0].process_group.size())
        except Exception:
            pass
        return result

    module.FullyShardedDataParallel.forward = unless_compiled(noting, forward)


def follow_fully_shard(module, unless_compiled, forwards):
    """The same of fully_shard, whose states know of each forward."""
    enter = module.FSDPState._root_pre_forward

    def noting(self, of, args, kwargs):
        if Phases.is_due and sys.modules["torch"].is_grad_enabled():
            forwards()
        try:
            inner = getattr(self._state_ctx, "iter_forward_root", None) is not None
            if Phases.measures and not inner and sys.modules["torch"].is_grad_enabled():
                take([args, kwargs], ranks_of(self, of))
        except Exception:
            pass
        return enter(self, of, args, kwargs)

    module.FSDPState._root_pre_forward = unless_compiled(noting, enter)


def ranks_of(state, model):
    """Over which its parameters are sharded, or those of its parts where it has none itself."""
    states = [state] + [getattr(one, "_get_fsdp_state", lambda: None)() for one in model.children()]
    for one in states:
        groups = getattr(one, "_fsdp_param_groups", None) or [
            getattr(one, "_fsdp_param_group", None)
        ]
        if groups[0] is not None:
            return groups[0].mesh_info.mesh.size()
    return 0


def take(given, ranks):
    """What a model gets in a forward for the step that comes; `ranks` average its gradients."""
    found = amount_of(given)
    if found is not None and len(Phases.coming) < PENDING:
        samples, elements, _, Phases.form = found
        Phases.coming.append((samples, elements))
        Phases.ranks = min(ranks, Phases.ranks or ranks)
        if Phases.line is None:
            Phases.line = Phases.place()


def amount_of(given):
    """Samples, elements and bytes of its tensors, the samples of the first one that has any, and
    the shape of the first one; None: it has none."""
    tensors = tensors_in(given, sys.modules["torch"].Tensor, DEPTH)[:TENSORS]
    samples = elements = size = 0
    sized = False
    for tensor in tensors:
        if not sized and tensor.dim():
            samples, sized = tensor.shape[0], True
        count = tensor.numel()
        elements += count
        size += count * tensor.element_size()
    return (samples, elements, size, tensors[0].shape) if tensors else None


def mark_of(given):
    """Equal for equal tensors, as far as they are looked at."""
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return None
    numbers = []
    modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", torch.no_grad)
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes():
        for tensor in tensors_in(given, torch.Tensor, DEPTH)[:TENSORS]:
            flat = tensor.detach().reshape(-1)
            each = flat.numel() // NUMBERS | 1  # odd, or it may meet the same corner of all images
            numbers.append(packed(flat[::each][:NUMBERS].tolist()))
    return zlib.crc32(b" ".join(numbers)) if numbers else None


def packed(numbers):
    """As bytes; repr() would take several times as long."""
    try:
        return struct.pack("%dd" % len(numbers), *numbers)
    except struct.error:  # complex ones
        return repr(numbers).encode()


def leave_backward(now):
    """Whatever follows a forward and its backward has begun. After one of a closure it is the
    optimizer's own work."""
    if Phases.ended:
        ended = Phases.passed if has_passed() else now
        Phases.backward += ended - Phases.ended
        if Phases.began:
            Phases.closed += ended - Phases.ended
        else:
            Phases.after += now - ended
        Phases.windows.append((Phases.at, ended - Phases.ended))
        Phases.latest.append(("backward", Phases.ended, ended))
        Phases.ended = 0.0


def has_passed():
    """Whether backward ends where the last backward() has: not on a GPU, but for a closure."""
    known = Phases.began or not sys.modules["torch"].cuda.is_initialized()
    return Phases.passed > Phases.ended > 0 and known


def is_past_backward():
    """Whether the program does something else already, before the optimizer."""
    return not Phases.began and has_passed()


def begin_forward(now):
    """What came between the optimizer and this forward was the program's own, but for its wait for
    data."""
    if Phases.stepped:
        Phases.between.append(max(0.0, now - Phases.stepped - Phases.waited))
        Phases.stepped = Phases.waited = 0.0
    if Phases.began and not Phases.closed:  # what comes before a closure's is no optimizer's work
        Phases.closed = now - Phases.began


def before_step():
    now = time.monotonic()
    leave_backward(now)
    Phases.began, Phases.closed = now, 0.0


def after_step():
    """The batches since the last one were for this step."""
    if Phases.began:
        Phases.stepped, Phases.waited = time.monotonic(), 0.0
        leave_backward(Phases.stepped)
        took = max(0.0, Phases.stepped - Phases.began - Phases.closed)
        Phases.optimizer += took
        Phases.latest.append(("optimizer", Phases.stepped - took, Phases.stepped))
        Phases.began = 0.0
        if Phases.mark is not None and Phases.got:
            Phases.marks.append([Phases.steps - Phases.since, Phases.mark])
        Phases.mark, Phases.got = None, False
        Phases.steps += 1
        done = Phases.steps - Phases.since
        Phases.measures = done < ALL or not done % EACH
        Phases.is_due = Phases.due(done)
        if Phases.steps <= CLOCKED or not Phases.steps % CLOCKED:  # a call of the kernel
            Phases.cpu[1:] = time.process_time(), Phases.steps
            # for operations of this thread: others may have been told another number
            Phases.threads = sys.modules["torch"].get_num_threads()
            if Phases.steps == 1:
                Phases.cpu[0] = Phases.cpu[1]
    if not (Phases.pending or Phases.coming):
        return
    for samples, elements, size in Phases.pending:
        Phases.batches += 1
        Phases.sums[0] += samples
        Phases.sums[1] += elements
        Phases.sums[2] += elements * elements
        Phases.sums[3] += size
    for samples, elements in Phases.coming:
        for number, more in enumerate((1, samples, elements, elements * elements)):
            Phases.taken[number] += more
    Phases.pending, Phases.coming = [], []


def batch(given, fresh, asked, came):
    """Samples, elements and bytes of a batch: of its tensors, the samples of the first one that has
    any. `fresh`: of another pass than the one before, which may have been an evaluation. For it the
    program waited from `asked` to `came`; no clock is read here, since Dynamo may look at this."""
    Phases.got = True
    Phases.waited += came - asked
    Phases.latest.append(("data", asked, came))
    if fresh:
        Phases.pending = []
    found = amount_of(given) if Phases.measures else None
    if found is not None and len(Phases.pending) < PENDING:
        Phases.pending.append(found[:3])
        Phases.shape = found[3]
    if Phases.is_due:
        look_at_batch(given)


def look_at_batch(given):
    """How many labels of the step that comes count in a loss, and how many there are; what tells
    its first batch from another one. Not of tensors on a GPU, which would be waited for."""
    torch, done = sys.modules["torch"], Phases.steps - Phases.since
    modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", torch.no_grad)
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes():
        found = [
            tensor
            for tensor in tensors_in(given, torch.Tensor, DEPTH)[:TENSORS]
            if tensor.device.type == "cpu"
        ]
        for tensor in found:
            many = tensor.numel()
            if tensor.dtype is not torch.int64 or many > LABELS:
                continue
            counts = int((tensor != IGNORED).sum())
            if counts < many and (done in Phases.labels or len(Phases.labels) < MARKS):
                known = Phases.labels.setdefault(done, [0, 0])
                known[0] += counts
                known[1] += many
        if done not in Phases.contents and len(Phases.contents) < MARKS:
            Phases.contents[done] = contents_of(torch, found)


def contents_of(torch, tensors):
    """A number that is equal for equal integers, such as labels, and one for the others; None where
    there are no such."""
    both = [], []
    for tensor in tensors:
        if tensor.layout is torch.strided and tensor.is_contiguous() and tensor.numel():
            numbers = packed(tensor.reshape(-1)[:FIRST].tolist())
            both[tensor.dtype.is_floating_point].append(numbers)
    return [zlib.crc32(b" ".join(one)) if one else None for one in both]


def tensors_in(given, kind, depth):
    """Those of lists and dicts in each other."""
    if isinstance(given, kind):
        return [given]
    if isinstance(given, dict):
        given = list(given.values())
    elif not isinstance(given, (list, tuple)):
        if not isinstance(given, Mapping):  # as what tokenizers make
            return []
        given = list(given.values())
    found = []
    for one in given[:TENSORS] if depth else ():
        found += tensors_in(one, kind, depth - 1)
    return found


def median(values):
    values = list(values)  # at once: the program goes on meanwhile
    values.sort()
    return values[len(values) // 2] if values else 0.0


def told():
    ahead = time.time() - time.monotonic()
    return {
        "latest": [
            [what, round(began + ahead, 6), round(ended - began, 6)]
            for what, began, ended in list(Phases.latest)
        ],
        "forward": round(Phases.forward, 6),
        "backward": round(Phases.backward, 6),
        "after": round(Phases.after, 6),
        "optimizer": round(Phases.optimizer, 6),
        "steps": Phases.steps,
        "forwards": Phases.forwards,
        "cpu": round((Phases.cpu[1] - Phases.cpu[0]) / max(1, Phases.cpu[2] - 1), 6),
        "between": round(median(Phases.between), 6),
        "windows": [[round(at, 6), round(took, 6)] for at, took in list(Phases.windows)],
        "batches": Phases.batches,
        "sums": list(Phases.sums),
        "shape": "" if Phases.shape is None else str(list(Phases.shape))[:60],
        "marks": list(Phases.marks),
        "taken": list(Phases.taken),
        "form": str(list(Phases.form or ()))[:60],
        "line": Phases.line,
        "ranks": Phases.ranks,
        "threads": Phases.threads,
        "labels": [[step, *counts] for step, counts in list(Phases.labels.items())],
        "contents": [
            [step, *both] for step, both in list(Phases.contents.items()) if None not in both
        ],
    }
