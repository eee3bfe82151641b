"""Gradients that are reset before any optimizer has used them: of several batches between two steps
only the last one counts then.

A gradient is known by its object and version, not by its numbers. A reset is zero_grad() of an
optimizer or a module; it loses what a backward has left since the reset or step before. It counts
only where another batch of the same pass over a DataLoader comes between that backward and the one
of the step, or where that one is summed over the ranks and the lost one was not (no_sync); and
where no weight was moved meanwhile: a method that makes two backward passes over one batch resets
between them on purpose. Nothing is changed, and an error here is swallowed. Loaded from its
text beside preflight_responder.py into the user's Python, any from 3.8 on: the standard library
only.
"""

import sys
import weakref

OPTIMIZERS, LOOKED = 8, 4
"""Optimizers of a process; parameters of each whose gradients are looked at."""
ALL, EACH = 64, 7
"""Steps of an optimizer that are all looked at; later every 7th is."""
CHECKED = 16
"""Resets at which the weights are read, and the line is noted."""


class Resets:
    """What is known in this process. There is one."""

    windows = []
    model = {}  # what is in preflight_model.py
    place = None


def begin():
    """A child by fork has made no step yet."""
    Resets.windows = []


def follow(model, place):
    Resets.model, Resets.place = model, place


class Window:
    """From one step of an optimizer to the next.

    mark     of its gradients after the latest reset or step; where they are others now, a backward
             was made since
    got      batches of this window; `mixed`: not all of them of one pass over one DataLoader
    lost     resets that lost gradients of a batch before that of the step; `pending`: those that
             did if another batch follows; crossed: there is a gradient from before the latest batch
    used     another optimizer made a step with these gradients
    quiet    what DDP gets in its latest forward asks for no gradient, and the gradients of its
             backward are not summed; `alone`: resets after such a backward, `passes`: forwards
    weights  numbers of its weights at the first of these resets
    inside   it is in a step, or in a window that is passed over; seen: steps that were made
    """

    def __init__(self, optimizer):
        self.optimizer, self.kind = weakref.ref(optimizer), type(optimizer).__name__
        groups = optimizer.param_groups
        all_of_them = [p for group in groups for p in group["params"] if p.requires_grad]
        each = max(1, len(all_of_them) // LOOKED)
        self.parameters = [weakref.ref(p) for p in all_of_them[::each][:LOOKED]]
        self.steps = self.wasted = self.resets = self.batches = self.moved = self.checked = 0
        self.seen = 0
        self.frame, self.inside = None, True
        self.begin()

    def begin(self):
        self.mark = self.gradients()
        self.got = self.lost = self.pending = self.alone = self.passes = 0
        self.quiet = None
        self.crossed = self.used = self.mixed = False
        self.weights = None

    def gradients(self):
        found = []
        for reference in self.parameters:
            parameter = reference()
            grad = parameter.grad if parameter is not None else None
            found.append(None if grad is None else (id(grad), grad._version))
        return found

    def is_fresh(self, mark):
        """Whether a backward was made since `self.mark` was taken."""
        return mark != self.mark and any(one is not None for one in mark)

    def reset(self, before):
        """After a reset of any gradients; `before`: what the mark was right before it."""
        now = self.gradients()
        if now == before:
            return  # not of these
        if self.is_fresh(before) and not self.used:
            if self.crossed:
                self.lost += 1
            else:
                self.pending += 1
            self.alone += self.quiet is True
            if self.weights is None and self.checked < CHECKED:
                self.checked += 1
                self.weights = self.numbers()
                self.frame = Resets.place() or self.frame
        self.mark, self.crossed, self.used = now, False, False

    def batch(self, fresh):
        self.mixed = self.mixed or fresh
        self.got += 1
        self.lost += self.pending
        self.pending = 0
        self.crossed = self.crossed or self.is_fresh(self.gradients())

    def end(self):
        """Before the step. Where weights are others than at the reset they were moved on purpose,
        for the gradients at another place."""
        lost, of = (self.lost, self.got) if not self.mixed else (0, 0)
        if not lost and self.quiet is False:
            lost, of = self.alone, self.passes
        self.steps += not self.mixed or lost > 0
        if not lost or of < 2:
            return
        if self.weights is not None and self.weights != self.numbers():
            self.moved += 1
            return
        self.wasted += 1
        self.resets += lost
        self.batches += of

    def numbers(self):
        torch = sys.modules["torch"]
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return None  # to read one would end the capture
        found = [reference() for reference in self.parameters]
        return Resets.model["compared"](torch, [one for one in found if one is not None])[0]


def follow_resets(kind, unless_compiled):
    """From now on look at each zero_grad() of optimizers, or of modules."""
    original = kind.zero_grad

    def zero_grad(*args, **kwargs):
        before = []
        try:
            before = [(one, one.gradients()) for one in Resets.windows if not one.inside]
        except Exception:
            pass
        result = original(*args, **kwargs)
        try:
            for window, mark in before:
                window.reset(mark)
        except Exception:
            pass
        return result

    kind.zero_grad = unless_compiled(zero_grad, original)


def batch(fresh):
    """A batch of a DataLoader; `fresh`: the first one of a pass."""
    for window in Resets.windows:
        if not window.inside:
            window.batch(fresh)


def forwarded(ddp, asks):
    """After a forward of a model in DDP; `asks` says whether what it got asks for a gradient, which
    is looked at only where it can matter: as long as no gradient was kept from the other ranks,
    nothing comes of one that is shared."""
    quiet = not ddp.require_backward_grad_sync
    if (quiet or any(window.alone for window in Resets.windows)) and asks():
        quiet = None
    for window in Resets.windows:
        if not window.inside:
            window.quiet = quiet
            window.passes += 1


def stepping(optimizer):
    """Before each step of any optimizer. What a closure does within the step is its own."""
    found = None
    for window in Resets.windows:
        if window.optimizer() is optimizer:
            found = window
        elif not window.inside and window.is_fresh(window.gradients()):
            window.used = True
    if found is not None:
        if not found.inside:
            found.end()
            found.inside = True
        return
    alive = [window for window in Resets.windows if window.optimizer() is not None]
    if len(alive) < OPTIMIZERS:
        alive.append(Window(optimizer))
    Resets.windows = alive


def stepped(optimizer):
    """After it."""
    for window in Resets.windows:
        if window.optimizer() is optimizer:
            window.seen += 1
            if window.seen <= ALL or not window.seen % EACH:
                window.begin()
                window.inside = False


def told():
    """All that is known, for the record."""
    return [
        [one.kind[:80], one.frame, one.steps, one.wasted, one.resets, one.batches]
        for one in list(Resets.windows)
        if one.wasted and not one.moved
    ]
