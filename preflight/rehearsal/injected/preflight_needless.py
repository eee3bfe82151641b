"""What a script pays for again and again without need: a profiler that is left running, all
parameters of a sharded model gathered in each step, no_sync() around a backward alone, which does
not keep DDP from summing its gradients, since that is settled in the forward, workers of a
DataLoader that are started for each epoch, code that torch.compile compiles again, garbage
collections of many objects, in which no thread of Python's does anything, and gradients of large
tables whose rows are nearly all zero, which DDP sums in full.

Only what is called seldom or takes milliseconds itself is looked at; nothing is changed, and an
error here is swallowed. Loaded from its text beside preflight_responder.py into the user's Python,
any from 3.8 on: the standard library only.
"""

import contextlib
import functools
import gc
import sys
import time

LINES, NUMBERS = 16, 4096
"""Lines that gather, and parameters of an optimizer."""
LONG = 0.01
"""Seconds of a collection that is kept."""
COMPILED, REASON = 64, 400
"""Compilations that are looked at, and characters of why one was made."""
TABLE, TABLES, ROWS, EARLY = 1 << 20, 8, 4096, 16
"""Numbers of a parameter whose rows are looked at, how many of those there are, rows that are, and
the step until which."""
SPREAD = 2654435761
"""A prime: its multiples lie everywhere among the rows, however a script numbers these."""


class Needless:
    """What is known in this process. There is one.

    running   profiler -> the step since which it runs, and the user's line that has started it
    profiled  of the one that ran longest: its first step, how many, and that line
    gathered  line -> steps in which it gathered: the first, the latest, how many, how many numbers
    pointers  where the numbers of parameters lie that are sharded; shapes: of these; whole: how
              many numbers they have
    forwards  DDP -> how many there were, and whether the latest one has its gradients summed
    late      blocks of no_sync() with a backward in them of such a forward before it
    right     blocks with a forward
    starts    DataLoader's workers were started: how often after the first time, seconds for that
              and the first batches, when the very first such batch was there, when the latest, and
              the user's line
    garbage   collections that took long, after the first step: how often, seconds for all, for the
              longest; when the first collection of any length was, and line -> seconds of long ones
    collects  when the present one began
    tables    name of a large parameter in DDP -> its shape, bytes, part of its rows with a gradient
              before the step where that was most, and bytes of all gradients of its model
    starting  id of the iterator whose first batch is yet to come, and seconds that it took to make
    """

    model, place, shown = {}, None, None  # of preflight_model.py, and two of the responder
    running, profiled = {}, [0, 0, None]
    gathered, pointers, shapes, whole = {}, frozenset(), frozenset(), 0
    forwards, late, right, line = {}, 0, 0, None
    starts, starting = [0, 0.0, None, 0.0, None], (None, 0.0)
    garbage, garbage_at, collects = [0, 0.0, 0.0, None], {}, 0.0
    tables = {}


def begin():
    """A child by fork has done nothing yet."""
    Needless.running, Needless.profiled = {}, [0, 0, None]
    Needless.gathered, Needless.whole = {}, 0
    Needless.pointers = Needless.shapes = frozenset()
    Needless.forwards, Needless.late, Needless.right, Needless.line = {}, 0, 0, None
    Needless.starts, Needless.starting = [0, 0.0, None, 0.0, None], (None, 0.0)
    Needless.garbage, Needless.garbage_at, Needless.tables = [0, 0.0, 0.0, None], {}, {}


def follow(model, place, shown):
    """`place`: the user's line that is carried out; `shown`: how a file is called."""
    Needless.model, Needless.place, Needless.shown = model, place, shown
    gc.callbacks.append(collected)


def made():
    """Steps so far."""
    return Needless.model["Models"].steps


# --- the profiler ---


def follow_profiler(module):
    """From now on know how long each of torch's profilers records. Those of torch.profiler have one
    of these inside, and a new one for each cycle of a schedule."""
    start, stop = module.profile._start_trace, module.profile.__exit__

    @functools.wraps(start)
    def _start_trace(self, *args, **kwargs):
        try:
            Needless.running[id(self)] = (made(), Needless.place())
        except Exception:
            pass
        return start(self, *args, **kwargs)

    @functools.wraps(stop)
    def __exit__(self, *args, **kwargs):
        try:
            keep_longest()
            Needless.running.pop(id(self), None)
        except Exception:
            pass
        return stop(self, *args, **kwargs)

    module.profile._start_trace, module.profile.__exit__ = _start_trace, __exit__


def keep_longest():
    for since, line in list(Needless.running.values()):
        if made() - since > Needless.profiled[1]:
            Needless.profiled = [since, made() - since, line]


def longest():
    """For each look: a profiler that writes what it has holds Python's lock, so that nothing is
    known then."""
    keep_longest()
    return list(Needless.profiled)


# --- parameters of a sharded model ---


def follow_fsdp(module, unless_compiled):
    """From now on know of each time that FSDP gives the user all parameters of a model."""
    kind = module.FullyShardedDataParallel
    original = kind.summon_full_params

    def noting(*args, **kwargs):
        try:
            model = args[0] if args else kwargs.get("module")
            if getattr(model, "_is_root", False) is True:
                gather(None)
        except Exception:
            pass
        return original(*args, **kwargs)

    kind.summon_full_params = staticmethod(unless_compiled(noting, original))


def follow_shards(module, unless_compiled):
    """The same of DTensors: of parameters, and of what has the shape of one, as its gradient or an
    average. An optimizer may need those whole, as Muon does."""
    kind = module.DTensor
    original = kind.full_tensor

    def noting(self, *args, **kwargs):
        try:
            own = self._local_tensor.data_ptr() in Needless.pointers
            if own or (tuple(self.shape) in Needless.shapes and not in_optimizer()):
                gather(self.numel())
        except Exception:
            pass
        return original(self, *args, **kwargs)

    kind.full_tensor = unless_compiled(noting, original)


def in_optimizer():
    """Whether this is called by the step of an optimizer."""
    optimizer, frame = sys.modules["torch"].optim.Optimizer, sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "step" and isinstance(frame.f_locals.get("self"), optimizer):
            return True
        frame = frame.f_back
    return False


def gather(numbers):
    """At the user's line; `numbers`: None for all of them."""
    step, line = made(), Needless.place()
    key = tuple(line[:2]) if line else None
    if key is None or (key not in Needless.gathered and len(Needless.gathered) >= LINES):
        return
    known = Needless.gathered.setdefault(key, [line, step, -1, 0, 0])
    known[3] += known[2] != step
    known[2] = step
    known[4] += numbers or 0


def steps(optimizer, done):
    """Before a step of which the model is looked at; `done`: steps before it."""
    if done <= EARLY:
        note_tables(sys.modules["torch"])
    if "torch.distributed.tensor" not in sys.modules:
        return
    many = [p for group in optimizer.param_groups for p in group["params"]][:NUMBERS]
    shards = [p for p in many if hasattr(p, "_local_tensor")]
    Needless.pointers = frozenset(p._local_tensor.data_ptr() for p in shards)
    Needless.shapes = frozenset(tuple(p.shape) for p in shards)
    Needless.whole = sum(p.numel() for p in shards)


# --- rows of large tables ---


def note_tables(torch):
    """Of each large matrix in DDP the part of its rows that has a gradient, which is summed."""
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return  # to read it would end the capture
    for entry in [one for one in Needless.model["Models"].entries if one.kind == "ddp"]:
        for name, parameter in zip(entry.names, entry.parameters()):
            grad = parameter.grad
            if parameter.dim() != 2 or parameter.numel() < TABLE or grad is None:
                continue
            if type(grad) is not torch.Tensor or grad.layout is not torch.strided:
                continue
            if len(Needless.tables) < TABLES or name in Needless.tables:
                size = grad.numel() * grad.element_size()
                most = Needless.tables.get(name, (0, 0, 0.0))[2]
                part = max(most, used_rows(torch, grad))
                Needless.tables[name] = (list(grad.shape), size, part, entry.size)


def used_rows(torch, grad):
    """Part of the rows in which a number is not 0, of a few thousand of them."""
    modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", None)
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes() if modes else torch.no_grad():
        count = min(ROWS, grad.shape[0])
        chosen = torch.arange(count, device=grad.device) * SPREAD % grad.shape[0]
        return int(grad.index_select(0, chosen).ne(0).any(1).sum()) / count


# --- no_sync ---


def gradient_of(ddp):
    found = (e for e in Needless.model["Models"].entries if e.module and e.module() is ddp)
    entry = next(found, None)
    return entry.gradient() if entry is not None else None


def follow_no_sync(module, unless_compiled):
    kind = module.DistributedDataParallel
    original = kind.no_sync

    @contextlib.contextmanager
    def no_sync(self):
        with original(self) as result:
            before = entered(self)
            try:
                yield result
            finally:
                left(self, before)

    kind.no_sync = unless_compiled(no_sync, original)


def entered(ddp):
    """What is known of a model before a block; None: an error."""
    try:
        Needless.line = Needless.line or Needless.place()
        return (*Needless.forwards.get(id(ddp), (0, False)), gradient_of(ddp))
    except Exception:
        return None


def left(ddp, before):
    """After the block: was a forward in it, or only a backward."""
    try:
        count, summed, gradient = before
        if Needless.forwards.get(id(ddp), (0, False))[0] != count:
            Needless.right += 1
        elif summed and gradient_of(ddp) != gradient:
            Needless.late += 1
    except Exception:
        pass


def forwarded(ddp):
    """After each forward that may have a backward."""
    count, _ = Needless.forwards.get(id(ddp), (0, False))
    if len(Needless.forwards) < LINES or count:
        Needless.forwards[id(ddp)] = (count + 1, bool(ddp.require_backward_grad_sync))


# --- workers of a DataLoader ---


def follow_workers(kind):
    """From now on know how long an iterator with workers takes until its first batch is there."""
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        began = time.monotonic()
        original(self, *args, **kwargs)
        Needless.starting = (id(self), time.monotonic() - began)

    kind.__init__ = __init__


def came(iterator, began, now):
    """A batch that was waited for; of an iterator with new workers their start belongs to it."""
    made, seconds = Needless.starting
    if made != id(iterator):
        return
    Needless.starting = (None, 0.0)
    starts = Needless.starts
    if starts[2] is None:
        starts[2] = now
    else:
        starts[0] += 1
        starts[1] += seconds + now - began
    starts[3] = now
    starts[4] = starts[4] or Needless.place()


# --- torch.compile ---


def compiled():
    """What Dynamo keeps of its latest compilations: how often each function was compiled, seconds,
    and why the latest time; and how long ago the first of them began."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return []
    by_code, first = {}, None
    for one in utils.get_compilation_metrics()[-COMPILED:]:
        if not one.co_filename or not one.start_time:
            continue  # of a backward pass
        key = (one.co_filename, one.co_firstlineno, one.co_name)
        known = by_code.setdefault(key, [0, 0.0, ""])
        known[0] += 1
        known[1] += one.entire_frame_compile_time_s or 0.0
        known[2] = getattr(one, "recompile_reason", None) or ""
        first = one.start_time if first is None else min(first, one.start_time)
    if not by_code:
        return []
    (path, line, name), most = max(by_code.items(), key=lambda one: one[1][0])
    place = [Needless.shown(path), line, name[:80], True]
    return [most[0], round(most[1], 3), round(time.time() - first, 3), most[2][:REASON], place]


# --- garbage ---


def collected(phase, info):
    """Python calls it at the beginning and at the end of each collection, in one thread. CPU time
    counts, so that a busy machine makes no collection longer. To read it is a call of the kernel:
    not for the many short collections, those of new objects alone."""
    try:
        if info.get("generation") == 0:
            return
        now = time.thread_time()
        if phase == "start":
            Needless.collects = now
            return
        garbage, seconds = Needless.garbage, now - Needless.collects
        if not made():
            return
        if garbage[3] is None:
            garbage[3] = time.monotonic()
        if seconds >= LONG:
            garbage[0] += 1
            garbage[1] += seconds
            garbage[2] = max(garbage[2], seconds)
            line = Needless.place()
            key = tuple(line) if line else None
            if key in Needless.garbage_at or len(Needless.garbage_at) < LINES:
                Needless.garbage_at[key] = Needless.garbage_at.get(key, 0.0) + seconds
    except Exception:
        pass


def garbage():
    """How often, seconds for all, for the longest, since the first; of the line with the most, and
    seconds there."""
    times, seconds, longest, first = Needless.garbage
    if not times:
        return []
    line, most = max(list(Needless.garbage_at.items()), key=lambda one: one[1])
    within = time.monotonic() - first
    return [times, seconds, longest, within, most, list(line) if line else None]


def told():
    """All that is known, for the record."""
    try:
        again = compiled()
    except Exception:
        again = []
    return {
        "profiled": longest(),
        "gathered": [list(one) for one in list(Needless.gathered.values())],
        "whole": Needless.whole,
        "no_sync": [Needless.late, Needless.right, Needless.line],
        "starts": list(Needless.starts),
        "compiled": again,
        "garbage": garbage(),
        "tables": [[name, *known] for name, known in list(Needless.tables.items())],
    }
