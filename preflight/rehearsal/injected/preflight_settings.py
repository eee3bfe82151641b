"""What the optimizers of a rank are set to, by parameter group: learning rate, weight decay and the
like; how many steps they count in their state, and after how many forward passes of DDP they make a
step. DDP gives all ranks the same gradients; they keep the same model only as long as these are the
same as well.

Read before the steps 1, 2, 3, 5, 9, 17 … of each optimizer; between these only learning rates that
change are kept. Nothing is changed, and an error here is swallowed. Loaded from its text
beside preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import sys
import weakref
import zlib

OPTIMIZERS, GROUPS, LOOKS, CHANGES, SHAPES = 4, 16, 48, 48, 512
"""Of a process, of an optimizer; how often all settings are kept, and changes of a learning rate;
parameters by whose shapes the same optimizer of another rank is known."""
NAMES = (
    *("lr", "weight_decay", "momentum", "dampening", "nesterov", "betas", "eps", "alpha", "rho"),
    *("amsgrad", "maximize", "lambd", "lr_decay", "centered", "etas", "max_lr", "ns_steps"),
)
"""Settings of torch's own optimizers that have to do with what a step changes."""


class Settings:
    """What is known in this process. There is one."""

    model = {}  # what is in preflight_model.py
    optimized = {}  # and in preflight_optimized.py
    phases = {}  # and in preflight_phases.py
    kept = []


def begin():
    """A child by fork has made no step yet."""
    Settings.kept = []


def follow(model, optimized, phases):
    Settings.model, Settings.optimized, Settings.phases = model, optimized, phases


class Kept:
    """Of one optimizer. rates: the learning rates as they were before its latest step; full: the
    first step of which a change was not kept any more."""

    def __init__(self, optimizer):
        self.optimizer, self.steps, self.kind = weakref.ref(optimizer), 0, type(optimizer).__name__
        groups = optimizer.param_groups[:GROUPS]
        shapes = [[tuple(p.shape) for p in group["params"][:SHAPES]] for group in groups]
        self.signature = zlib.crc32(repr(shapes).encode())
        self.rates, self.looks, self.changes, self.full = [], [], [], None
        known = Settings.optimized["Optimized"].known
        self.frame = next((one.frame for one in known if one.optimizer() is optimizer), None)
        self.schedule = None

    def step(self, optimizer):
        groups = optimizer.param_groups[:GROUPS]
        for number, (group, before) in enumerate(zip(groups, self.rates)):
            rate = group.get("lr")
            if rate is not before:  # one that stays is the same object
                self.rates[number] = rate
                if isinstance(rate, float) and isinstance(before, float) and rate != before:
                    self.change(number, rate)
        if not self.steps & (self.steps - 1) and len(self.looks) < LOOKS:
            self.rates = [group.get("lr") for group in groups]
            have = shared()
            passes = Settings.phases["Phases"].forwards
            told = [
                [
                    is_trained(group, have),
                    {**numbers_of(group), **counts_of(optimizer, group, passes)},
                ]
                for group in groups
            ]
            self.looks.append([self.steps, clock(), told])
            self.schedule = scheduled_at(optimizer) or self.schedule
        self.steps += 1

    def change(self, number, rate):
        if self.full is None and len(self.changes) < CHANGES:
            self.changes.append([self.steps, clock(), number, float(rate)])
        elif self.full is None:
            self.full = self.steps


def clock():
    """Steps before this one of the optimizer by which the models are compared."""
    return max(0, Settings.model["Models"].steps - 1)


def shared():
    """Parameters that DDP has wrapped, by id."""
    entries = Settings.model["Models"].entries
    wrapped = [entry.module() for entry in entries if entry.module is not None]
    return {id(p) for ddp in wrapped if ddp is not None for p in ddp.module.parameters()}


def is_trained(group, have):
    """Whether DDP averages gradients of it."""
    return any(p.grad is not None and id(p) in have for p in group["params"])


def numbers_of(group):
    """Setting -> its numbers."""
    torch = sys.modules["torch"]
    found = {}
    for name in NAMES:
        given = group.get(name)
        each = given if isinstance(given, (list, tuple)) else [given]
        if any(isinstance(one, torch.Tensor) for one in each):
            if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
                continue  # to read it would end the capture
            each = [one.item() if isinstance(one, torch.Tensor) else one for one in each]
        if all(isinstance(one, (int, float)) for one in each):
            found[name] = [float(one) for one in each[:4]]
    return found


def counts_of(optimizer, group, passes):
    """What a group's first parameter has in the optimizer's state, and all forward passes."""
    first = group["params"][0] if group["params"] else None
    count = (optimizer.state.get(first) or {}).get("step", 0)
    if getattr(count, "is_cuda", False):
        return {"passes": [float(passes)]}  # to read it would wait for the GPU
    return {"state": [float(count)], "passes": [float(passes)]}


def steps(optimizer):
    """Before each step of any optimizer."""
    for kept in Settings.kept:
        if kept.optimizer() is optimizer:
            kept.step(optimizer)
            return
    if len(Settings.kept) < OPTIMIZERS:
        Settings.kept.append(Kept(optimizer))
        Settings.kept[-1].step(optimizer)


def told():
    """All that is known, for the record."""
    return [
        {
            "kind": one.kind[:80],
            "signature": one.signature,
            "frame": one.frame,
            "schedule": one.schedule,
            "looks": list(one.looks),
            "changes": list(one.changes),
            "full": one.full,
        }
        for one in list(Settings.kept)
    ]


def scheduled_at(optimizer):
    """The user's line that makes the scheduler by which its learning rates change."""
    for one in Settings.optimized["Optimized"].schedulers:
        if one.optimizer() is optimizer and getattr(one.scheduler(), "last_epoch", 0) > 0:
            return one.frame
    return None
