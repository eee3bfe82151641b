"""What the optimizers and learning rate schedulers of a rank hold, beside the models that DDP has
wrapped: parameters with gradients that no optimizer has, those that the model no longer has, those
whose gradients DDP does not average; and how many hooks there are.

Looked at before the same steps as the models are, see preflight_model.py, or before steps 1, 2, 3,
5, 9, 17 … of these. Nothing is changed, and an error here is swallowed. Loaded from its text beside
preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import functools
import itertools
import sys
import weakref

OPTIMIZERS, SCHEDULERS = 64, 8
"""Of a process; with more optimizers nothing is said of what they hold."""
NAMES, ITEMS, CHECKS, TEXT = 64, 64, 48, 120
"""Parameters of a kind that are named, entries of a list or dict that are looked at, looks that
are kept, letters of a name."""
DEPTH = 64
"""Frames in which the name of a module is looked for."""
MODULES = {"_forward_hooks": "forward hook", "_forward_pre_hooks": "forward pre-hook"}
MODULES.update({"_backward_hooks": "backward hook", "_backward_pre_hooks": "backward pre-hook"})
TENSORS = {"_backward_hooks": "gradient hook", "_post_accumulate_grad_hooks": "gradient hook"}
STEPS = {"_optimizer_step_pre_hooks": "step hook", "_optimizer_step_post_hooks": "step hook"}
"""Where torch keeps the hooks of a module, a parameter and an optimizer, and what they are."""


class Optimized:
    """What is known in this process. There is one."""

    model = {}  # what is in preflight_model.py
    frame_of = is_own = None
    known, schedulers, many = [], [], False
    hidden, unheld, ghosts = {}, {}, {}
    loose, hooks, most, steps = None, [], None, 0


def begin():
    """A child by fork has made nothing yet."""
    Optimized.known, Optimized.schedulers, Optimized.many = [], [], False
    Optimized.hidden, Optimized.unheld, Optimized.ghosts = {}, {}, {}
    Optimized.loose, Optimized.hooks, Optimized.most, Optimized.steps = None, [], None, 0


def follow(model, frame_of, is_own):
    """`model`: what is in preflight_model.py; frame_of, is_own: of the responder."""
    Optimized.model, Optimized.frame_of, Optimized.is_own = model, frame_of, is_own


class Known:
    """An optimizer, with the user's line that makes it, and how many steps it has made."""

    def __init__(self, optimizer, frame):
        self.optimizer, self.frame, self.steps = weakref.ref(optimizer), frame, 0

    def parameters(self):
        optimizer = self.optimizer()
        groups = optimizer.param_groups if optimizer is not None else []
        return [parameter for group in groups for parameter in group["params"]]

    def rates(self):
        optimizer = self.optimizer()
        groups = optimizer.param_groups[:8] if optimizer is not None else []
        return [Optimized.model["rate_of"](group) for group in groups]


class Followed:
    """A scheduler, with the user's line that makes it. epochs: its count when its optimizer made
    its last step; others: of those that have the same parameters, by id, the learning rates; idle:
    steps of these since; `varied`: whether their rates changed; drives: it has the very groups of
    an optimizer that steps; instead: the line that makes another one.

    given    numbers that it got since its optimizer made a step, of a ReduceLROnPlateau
    rounds   how often it got any between two steps, and the fewest and the most of them"""

    def __init__(self, scheduler, optimizer, frame):
        self.scheduler, self.optimizer = weakref.ref(scheduler), weakref.ref(optimizer)
        self.frame, self.epochs, self.idle, self.advanced = frame, 0, 0, 0
        self.others, self.varied, self.drives, self.instead = {}, False, False, None
        self.given, self.rounds = 0, [0, 0, 0]

    def stepped(self, optimizer):
        scheduler = self.scheduler()
        if scheduler is not None and scheduler.optimizer is optimizer:
            self.epochs, self.idle, self.advanced = scheduler.last_epoch, 0, 0
            self.others, self.varied = {}, False
            if self.given:
                times, least, most = self.rounds
                least = min(least, self.given) if times else self.given
                self.rounds, self.given = [times + 1, least, max(most, self.given)], 0
        elif id(optimizer) in self.others:
            self.idle += 1

    def look(self):
        scheduler = self.scheduler()
        if scheduler is None:
            return
        own = scheduler.optimizer
        self.advanced = max(0, scheduler.last_epoch - self.epochs)
        groups = {id(group) for group in own.param_groups}
        mine = {id(p) for group in own.param_groups for p in group["params"]}
        for known in Optimized.known:
            other = known.optimizer()
            if other is None or other is own or not known.steps:
                continue
            self.drives = self.drives or any(id(group) in groups for group in other.param_groups)
            if any(id(parameter) in mine for parameter in known.parameters()):
                self.instead, rates = known.frame, known.rates()
                self.varied = self.varied or self.others.setdefault(id(other), rates) != rates


class Loose:
    """Parameters that an optimizer steps and that no DDP has, and looks at their numbers."""

    def __init__(self, found, where, frame):
        self.ids = [id(parameter) for _, parameter in found]
        self.names = [name[-TEXT:] for name, _ in found[:NAMES]]
        self.shapes = [Optimized.model["shape_of"](p) for _, p in found[:NAMES]]
        self.where, self.frame, self.checks = where[:TEXT], frame, []


def follow_optimizers(module, place):
    """From now on know of each optimizer that is made."""
    original = module.Optimizer.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        try:
            note(self, place())
        except Exception:
            pass
        return result

    module.Optimizer.__init__ = __init__


def follow_schedulers(module, place):
    """From now on know of each scheduler that is made. One that has an __init__ of its own may call
    the other's."""
    for kind in (module.LRScheduler, module.ReduceLROnPlateau):
        kind.__init__ = noting_scheduler(kind.__init__, place)
    module.ReduceLROnPlateau.step = counting_numbers(module.ReduceLROnPlateau.step)


def counting_numbers(original):
    """ReduceLROnPlateau.step(), which gets one of each evaluation."""

    @functools.wraps(original)
    def step(self, *args, **kwargs):
        try:
            for followed in Optimized.schedulers:
                followed.given += followed.scheduler() is self
        except Exception:
            pass
        return original(self, *args, **kwargs)

    return step


def noting_scheduler(original, place):
    @functools.wraps(original)
    def __init__(self, optimizer, *args, **kwargs):
        result = original(self, optimizer, *args, **kwargs)
        try:
            if len(Optimized.schedulers) < SCHEDULERS:
                Optimized.schedulers.append(Followed(self, optimizer, place()))
        except Exception:
            pass
        return result

    return __init__


def note(optimizer, frame):
    alive = [known for known in Optimized.known if known.optimizer() is not None]
    found = next((known for known in alive if known.optimizer() is optimizer), None)
    if found is None and len(alive) < OPTIMIZERS:
        found = Known(optimizer, frame)
        alive.append(found)
    Optimized.many = Optimized.many or found is None
    Optimized.known = alive
    return found


def steps(optimizer, done):
    """Before a step of any optimizer; `done`: steps before this look, None where none is due."""
    Optimized.steps += 1
    for known in Optimized.known:
        if known.optimizer() is optimizer:
            break
    else:
        known = None if Optimized.many else note(optimizer, None)
    if known is not None:
        known.steps += 1
    for followed in Optimized.schedulers:
        followed.stepped(optimizer)
    if done is None:
        return
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return  # to read a number would end the capture
    for followed in Optimized.schedulers:
        followed.look()
    models = [entry for entry in Optimized.model["Models"].entries if entry.module is not None]
    wrapped = [ddp for ddp in (entry.module() for entry in models) if ddp is not None]
    if wrapped:
        look_at_hooks(wrapped, optimizer, done)
    many = Optimized.many or len(models) >= Optimized.model["WRAPPED"]
    if wrapped and not many and not done & (done - 1):  # every other one, which costs more
        look(torch, wrapped, done)


# --- parameters ---


def look(torch, wrapped, done):
    """At what the models have and what the optimizers hold."""
    have = {id(p): (name, p) for ddp in wrapped for name, p in ddp.module.named_parameters()}
    held = {id(p) for known in Optimized.known for p in known.parameters()}
    apart, late = unregistered(torch, wrapped, have), added_later(wrapped)
    hidden = {
        name: (parameter, frame)
        for name, parameter, frame, trains in apart.values()
        if trains and parameter.grad is not None and id(parameter) not in held
    }
    unheld = {
        name: (p, None)
        for name, p in have.values()
        if p.requires_grad and p.grad is not None and id(p) not in held
    }
    ghosts, loose, frame = {}, [], None
    for number, known in enumerate(Optimized.known):
        parameters = known.parameters() if known.steps else []
        own = any(id(p) in have for p in parameters)
        for place, p in enumerate(parameters):
            if (id(p) in have and id(p) not in late) or not p.requires_grad:
                continue
            if p.grad is not None:
                name = apart[id(p)][0] if id(p) in apart else "parameter %d" % place
                loose.append((late.get(id(p), name), p))
                frame = frame or known.frame
            elif own:
                name = "optimizer %d, parameter %d" % (number, place)
                ghosts[name] = (p, known.frame)
    Optimized.hidden = lasting(torch, Optimized.hidden, hidden, done)
    Optimized.unheld = lasting(torch, Optimized.unheld, unheld, done)
    Optimized.ghosts = lasting(torch, Optimized.ghosts, ghosts, done)
    look_at_loose(torch, wrapped, loose, frame, done)


def lasting(torch, before, now, done):
    """name -> shape, line, the first and the last step after which it was so at all looks, and had
    the same numbers; some of these. One that is changed by other means than an optimizer is
    trained, and of one that can't be read nobody knows."""
    found, some = {}, dict(itertools.islice(now.items(), NAMES))
    if not some:
        return found
    sums, _ = Optimized.model["compared"](torch, [parameter for parameter, _ in some.values()])
    for (name, (parameter, frame)), number in zip(some.items(), sums.split()):
        same = name in before and before[name][4] == number != "-"
        first = before[name][2] if same else done
        shape = Optimized.model["shape_of"](parameter)
        found[name] = [shape, frame, first, done, number]
    return found


def added_later(wrapped):
    """Parameters that the models have got since DDP wrapped them, of which it does not know: id ->
    name."""
    found = {}
    for ddp in wrapped:
        known, ignored = getattr(ddp, "_module_parameters", None), ddp.parameters_to_ignore
        if known is not None:
            known = {id(p) for p in known}
            for name, p in ddp.module.named_parameters():
                if id(p) not in known and name not in ignored:
                    found[id(p)] = name
    return found


def unregistered(torch, wrapped, have):
    """Parameters in lists and dicts of the modules, of which these do not know: id -> name, itself,
    the user's line that makes the module, whether it is there to be trained."""
    usual, found = set(vars(torch.nn.Module())), {}
    for ddp in wrapped:
        for path, module in ddp.module.named_modules():
            for attribute, value in list(vars(module).items()):
                if attribute in usual or not isinstance(value, (list, tuple, dict)):
                    continue
                name = path + "." + attribute if path else attribute
                for where, parameter, trains in within(torch, value, name, 2):
                    if id(parameter) not in have and id(parameter) not in found:
                        line = made_at(type(module))
                        found[id(parameter)] = (where[-TEXT:], parameter, line, trains)
                        if len(found) >= 4 * NAMES:
                            return found
    return found


def within(torch, value, name, depth):
    """The parameters in a list or dict; of a module in evaluation mode it is said that it is not
    there to be trained."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in itertools.islice(pairs, ITEMS):
        where = "%s[%s]" % (name, key if isinstance(key, int) else repr(key)[:40])
        if isinstance(one, torch.nn.Module):
            for part, parameter in one.named_parameters():
                if parameter.requires_grad:
                    yield where + "." + part, parameter, one.training
        elif isinstance(one, torch.nn.Parameter):
            if one.requires_grad:
                yield where, one, True
        elif depth and isinstance(one, (list, tuple, dict)):
            for found in within(torch, one, where, depth - 1):
                yield found


def made_at(kind):
    code = getattr(getattr(kind, "__init__", None), "__code__", None)
    if code is None or not Optimized.is_own(code.co_filename):
        return None
    return Optimized.frame_of(code, code.co_firstlineno)


def look_at_loose(torch, wrapped, found, frame, done):
    """At the numbers of parameters beside those of DDP."""
    if not found:
        Optimized.loose = None
        return
    if Optimized.loose is None or Optimized.loose.ids != [id(p) for _, p in found]:
        where, names = variable_of(torch, wrapped, {id(p) for _, p in found})
        found = [(names.get(id(p), name), p) for name, p in found]
        Optimized.loose = Loose(found, where, frame)
    if len(Optimized.loose.checks) < CHECKS:
        looked = Optimized.model["compared"](torch, [p for _, p in found[:NAMES]])
        Optimized.loose.checks.append([done, *looked])


def variable_of(torch, wrapped, wanted):
    """What the user's code calls the module that has one of these parameters, and the names that
    it has for its own; of a parameter without a module what it is called itself."""
    frame = sys._getframe(1)
    for _ in range(DEPTH):
        if frame is None:
            break
        if Optimized.is_own(frame.f_code.co_filename):
            scopes = [dict(frame.f_locals), dict(frame.f_globals)]
            own = scopes[0].get("self")
            scopes += [vars(own)] if hasattr(own, "__dict__") else []
            if isinstance(own, torch.nn.Module):
                scopes.append(own._modules)
            for name, value in (pair for scope in scopes for pair in list(scope.items())):
                if id(value) in wanted:
                    return "", {id(value): name}
                if isinstance(value, torch.nn.Module) and value not in wrapped:
                    names = {id(parameter): part for part, parameter in value.named_parameters()}
                    if wanted.intersection(names):
                        return name, names
        frame = frame.f_back
    return "", {}


# --- hooks ---


def look_at_hooks(wrapped, optimizer, done):
    """How many there are, and of whom the most."""
    total, most = 0, (0, "", "", None)
    for name, kinds, one in everything(wrapped, optimizer):
        for attribute, kind in kinds.items():
            hooks = getattr(one, attribute, None)
            if not hooks:
                continue
            total += len(hooks)
            if len(hooks) > most[0]:
                most = len(hooks), kind, name, next(reversed(list(hooks.values())))
    count, kind, name, hook = most
    Optimized.hooks = [*Optimized.hooks[1 - CHECKS :], [done, total]]
    Optimized.most = [count, kind, name[-TEXT:], line_of(hook)]


def everything(wrapped, optimizer):
    for ddp in wrapped:
        for name, module in ddp.named_modules():
            yield name.replace("module.", "", 1) or "the wrapped model", MODULES, module
        for name, parameter in ddp.module.named_parameters():
            yield name, TENSORS, parameter
    yield "the optimizer", STEPS, optimizer


def line_of(hook):
    """Where the user's function begins."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    code = getattr(hook, "__code__", None)
    if code is None or not Optimized.is_own(code.co_filename):
        return None
    return Optimized.frame_of(code, code.co_firstlineno)


def told():
    """All that is known, for the record."""
    loose = Optimized.loose
    return {
        "steps": Optimized.steps,
        **{
            kind: [[name, *known[:4]] for name, known in getattr(Optimized, kind).items()]
            for kind in ("hidden", "unheld", "ghosts")
        },
        "loose": loose
        and {
            "names": loose.names,
            "shapes": loose.shapes,
            "where": loose.where,
            "frame": loose.frame,
            "checks": list(loose.checks),
        },
        "hooks": list(Optimized.hooks),
        "most": Optimized.most,
        "schedulers": [
            [one.frame, one.instead, one.advanced, one.idle]
            for one in Optimized.schedulers
            if one.idle and not one.varied and not one.drives
        ],
        "plateaus": [[one.frame, *one.rounds] for one in Optimized.schedulers if one.rounds[0]],
    }
