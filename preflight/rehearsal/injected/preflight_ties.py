"""Layers that were given one weight, as an embedding and the output layer of a language model, and
that have one each by now.

A tie is seen where a parameter of one module is registered in another one. Whether it still is the
same parameter is looked at before the steps 1, 2, 3, 5, 9, 17 … of the optimizer by which the
models are compared. Nothing is changed, and an error here is swallowed. Loaded from its text beside
preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import sys
import weakref

TIES, KNOWN, TEXT = 16, 1 << 16, 120
"""Ties that are followed, parameters that are known by their module, letters of a name."""


class Ties:
    """What is known in this process. There is one."""

    registered = {}  # id of a parameter -> its module, as a weak reference, and its name there
    found = []
    model = {}  # what is in preflight_model.py
    optimized = {}  # and in preflight_optimized.py
    place = is_own = None


def begin():
    """A child by fork follows the modules of its parent as well: it may train them."""
    for tie in Ties.found:
        tie.since = tie.until = None


def follow(model, optimized, place, is_own):
    Ties.model, Ties.optimized, Ties.place, Ties.is_own = model, optimized, place, is_own


class Tie:
    """Two places that had one parameter. since, until: the first and the latest look at which both
    had one of their own, with gradients and in an optimizer; names: as the model calls them."""

    def __init__(self, ends, frame):
        self.ends, self.frame = ends, frame
        self.since = self.until = None
        self.names = self.shape = ""

    def parameters(self):
        """Those of both places, as they are now; none where one of these is gone."""
        found = []
        for reference, name in self.ends:
            module = reference()
            parameter = module._parameters.get(name) if module is not None else None
            if parameter is None:
                return []
            found.append(parameter)
        return found


def follow_parameters(module, unless_compiled):
    """From now on know of each parameter where it was registered."""
    original = module.Module.register_parameter

    def register_parameter(self, name, param, *more, **named):
        try:
            if param is not None:
                note(self, name, param)
        except Exception:
            pass
        return original(self, name, param, *more, **named)

    module.Module.register_parameter = unless_compiled(register_parameter, original)


def note(module, name, parameter):
    """One that another module has as well is tied. One of two that were, which the program itself
    replaces by one with the same numbers, is untied on purpose."""
    if Ties.found:
        Ties.found = [tie for tie in Ties.found if not is_untied_by(tie, module, name, parameter)]
    known = Ties.registered.get(id(parameter))
    if known is not None and len(Ties.found) < TIES:
        other, called = known
        owner = other()
        if owner is not None and owner is not module and owner._parameters.get(called) is parameter:
            ends = known, (weakref.ref(module), name)
            if all(tie.ends != ends for tie in Ties.found):  # or it is tied once more
                Ties.found.append(Tie(ends, Ties.place()))
            return
    if len(Ties.registered) < KNOWN:
        Ties.registered[id(parameter)] = weakref.ref(module), name


def owned_as(parameter):
    """`LayerNorm.weight`; empty where no module is known to have it."""
    known = Ties.registered.get(id(parameter))
    owner = known[0]() if known is not None else None
    if owner is None or owner._parameters.get(known[1]) is not parameter:
        return ""
    return "%s.%s" % (type(owner).__name__, known[1])


def is_untied_by(tie, module, name, parameter):
    mine = [reference() is module and called == name for reference, called in tie.ends]
    before = tie.parameters()
    if not any(mine) or not before or before[0] is not before[1] or before[0] is parameter:
        return False
    return called_by_own_code() and is_copy(parameter, before[0])


def called_by_own_code():
    """Whether the program itself assigns: `head.weight = …`."""
    frame, steps = sys._getframe(1), 0
    while frame is not None and steps < 16:
        code, steps = frame.f_code, steps + 1
        path = code.co_filename
        if "preflight_" not in path and code.co_name not in ("__setattr__", "register_parameter"):
            return bool(Ties.is_own(path))
        frame = frame.f_back
    return False


def is_copy(one, other):
    torch = sys.modules["torch"]
    if one.shape != other.shape or one.is_meta or other.is_meta or one.device != other.device:
        return False
    sums = Ties.model["compared"](torch, [one, other])[0].split()
    return len(sums) == 2 and sums[0] == sums[1] != "-"


def steps(done):
    """Before a step at which the models are compared, after `done` of them."""
    if not Ties.found or done is None or done & (done - 1):
        return
    held = {id(p) for known in Ties.optimized["Optimized"].known for p in known.parameters()}
    names = None
    for tie in Ties.found:
        both = tie.parameters()
        apart = len(both) == 2 and both[0] is not both[1]
        if not apart or any(p.grad is None or id(p) not in held for p in both):
            tie.since = tie.until = None
            continue
        if names is None:
            names = names_of_modules()
        tie.since, tie.until = (done if tie.since is None else tie.since), done
        tie.shape = Ties.model["shape_of"](both[0])
        tie.names = [name_of(reference(), called, names)[-TEXT:] for reference, called in tie.ends]


def names_of_modules():
    """Module, by id -> its name in the model that DDP has wrapped."""
    entries = Ties.model["Models"].entries
    wrapped = [entry.module() for entry in entries if entry.module is not None]
    models = [ddp.module for ddp in wrapped if ddp is not None]
    return {id(module): name for model in models for name, module in model.named_modules()}


def name_of(module, called, names):
    return "%s.%s" % (names.get(id(module)) or type(module).__name__, called)


def told():
    """All that is known, for the record."""
    return [
        [*tie.names, tie.shape, tie.frame, tie.since, tie.until]
        for tie in list(Ties.found)
        if tie.since is not None
    ]
