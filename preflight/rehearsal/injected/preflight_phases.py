"""Where the time of a step goes on the host, how large the batches are that a rank gets, and of a
few steps a number for what goes into DDP's forward, which tells whether ranks have the same.

A step is cut where the program passes: in and out of DDP's forward, before and after the optimizer,
before and after the DataLoader. What lies between the end of a forward and the optimizer is called
backward: the loss, backward() with its collectives, clipping. Loaded from its text beside
preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import sys
import time
import zlib
from collections import deque

TENSORS, DEPTH, PENDING = 16, 4, 256
"""Of a batch that are looked at; batches of one step."""
WINDOWS = 48
"""Backward passes of which begin and end are kept, the latest."""
LATEST = 64
"""Parts of steps of which begin and length are kept."""
BETWEEN = 256
"""Times between two steps."""
MARKS, NUMBERS = 48, 64
"""Steps whose inputs are marked, and numbers of each tensor that make such a mark."""


class Phases:
    """What is known in this process. There is one."""

    forward = backward = optimizer = 0.0
    steps = batches = forwards = 0
    ended = began = at = stepped = waited = 0.0
    cpu = [0.0, 0.0, 0]
    between = deque(maxlen=BETWEEN)
    pending, sums = [], [0, 0, 0, 0]
    windows = deque(maxlen=WINDOWS)
    latest = deque(maxlen=LATEST)
    shape = ""
    mark, marks = None, []


def begin():
    """A child by fork has done nothing yet."""
    Phases.forward = Phases.backward = Phases.optimizer = 0.0
    Phases.steps = Phases.batches = Phases.forwards = 0
    Phases.ended = Phases.began = Phases.at = Phases.stepped = Phases.waited = 0.0
    Phases.cpu = [0.0, 0.0, 0]
    Phases.between = deque(maxlen=BETWEEN)
    Phases.windows = deque(maxlen=WINDOWS)
    Phases.latest = deque(maxlen=LATEST)
    Phases.pending, Phases.sums, Phases.shape = [], [0, 0, 0, 0], ""
    Phases.mark, Phases.marks = None, []


def follow_ddp(module, unless_compiled, forwarded, due):
    """From now on take the time of each forward, and call `forwarded` after it with the model and
    its arguments. due: says whether something is looked at after a number of steps."""
    forward = module.DistributedDataParallel.forward
    ours = "preflight_" in getattr(getattr(forward, "__code__", None), "co_filename", "")
    # of two of ours, one around the other, Dynamo would see the inner one
    plain = getattr(forward, "__wrapped__", forward) if ours else forward

    def timed(*args, **kwargs):
        if not sys.modules["torch"].is_grad_enabled():
            return forward(*args, **kwargs)
        began = time.monotonic()
        leave_backward(began)
        begin_forward(began)
        result = forward(*args, **kwargs)
        Phases.ended = now = time.monotonic()
        Phases.at = time.time()  # the clock of torch's flight recorder
        Phases.forward += now - began
        Phases.latest.append(("forward", began, now))
        Phases.forwards += 1
        try:
            forwarded(args[0], [args[1:], kwargs])
            if Phases.mark is None and len(Phases.marks) < MARKS and due(Phases.steps):
                Phases.mark = mark_of([args[1:], kwargs])
        except Exception:
            pass
        return result

    module.DistributedDataParallel.forward = unless_compiled(timed, plain)


def mark_of(given):
    """Equal for equal tensors, as far as they are looked at."""
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return None
    numbers = []
    modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", torch.no_grad)
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes():
        for tensor in list(tensors_in(given, torch.Tensor, DEPTH))[:TENSORS]:
            flat = tensor.detach().reshape(-1)
            each = flat.numel() // NUMBERS | 1  # odd, or it may meet the same corner of all images
            numbers.append(flat[::each][:NUMBERS].tolist())
    return zlib.crc32(repr(numbers).encode()) if numbers else None


def leave_backward(now):
    """Whatever follows a forward and its backward has begun."""
    if Phases.ended:
        Phases.backward += now - Phases.ended
        Phases.windows.append((Phases.at, now - Phases.ended))
        Phases.latest.append(("backward", Phases.ended, now))
        Phases.ended = 0.0


def begin_forward(now):
    """What came between the optimizer and this forward was the program's own, but for its wait for
    data."""
    if Phases.stepped:
        Phases.between.append(round(max(0.0, now - Phases.stepped - Phases.waited), 6))
        Phases.stepped = Phases.waited = 0.0


def before_step():
    Phases.began = now = time.monotonic()
    leave_backward(now)


def after_step():
    """The batches since the last one were for this step."""
    if Phases.began:
        Phases.stepped, Phases.waited = time.monotonic(), 0.0
        Phases.optimizer += Phases.stepped - Phases.began
        Phases.latest.append(("optimizer", Phases.began, Phases.stepped))
        Phases.began = 0.0
        if Phases.mark is not None and Phases.pending:
            Phases.marks.append([Phases.steps, Phases.mark])
        Phases.mark = None
        Phases.steps += 1
        Phases.cpu[1] = time.process_time()
        Phases.cpu[2] += 1
        if Phases.cpu[2] == 1:
            Phases.cpu[0] = Phases.cpu[1]
    for samples, elements, size in Phases.pending:
        Phases.batches += 1
        Phases.sums[0] += samples
        Phases.sums[1] += elements
        Phases.sums[2] += elements * elements
        Phases.sums[3] += size
    Phases.pending = []


def batch(given, fresh, asked, came):
    """Samples, elements and bytes of a batch: of its tensors, the samples of the first one that has
    any. `fresh`: of another pass than the one before, which may have been an evaluation. For it the
    program waited from `asked` to `came`; no clock is read here, since Dynamo may look at this."""
    Phases.waited += came - asked
    Phases.latest.append(("data", asked, came))
    if fresh:
        Phases.pending = []
    tensors = list(tensors_in(given, sys.modules["torch"].Tensor, DEPTH))[:TENSORS]
    if tensors and len(Phases.pending) < PENDING:
        samples = next((t.shape[0] for t in tensors if t.dim()), 0)
        elements = sum(t.numel() for t in tensors)
        size = sum(t.numel() * t.element_size() for t in tensors)
        Phases.pending.append((samples, elements, size))
        Phases.shape = str(list(tensors[0].shape))[:60]


def tensors_in(given, kind, depth):
    if isinstance(given, kind):
        yield given
    elif depth and isinstance(given, dict):
        for one in list(given.values())[:TENSORS]:
            yield from tensors_in(one, kind, depth - 1)
    elif depth and isinstance(given, (list, tuple)):
        for one in given[:TENSORS]:
            yield from tensors_in(one, kind, depth - 1)


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
        "optimizer": round(Phases.optimizer, 6),
        "steps": Phases.steps,
        "forwards": Phases.forwards,
        "cpu": round((Phases.cpu[1] - Phases.cpu[0]) / max(1, Phases.cpu[2] - 1), 6),
        "between": median(Phases.between),
        "windows": [[round(at, 6), round(took, 6)] for at, took in list(Phases.windows)],
        "batches": Phases.batches,
        "sums": list(Phases.sums),
        "shape": Phases.shape,
        "marks": list(Phases.marks),
    }
