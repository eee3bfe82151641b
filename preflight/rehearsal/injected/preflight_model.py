"""What each rank's model looks like: its parameters when DDP wraps it, and from time to time a few
numbers out of each of them, so that ranks can be compared that should have the same.

Of each step it is known as well whether DDP summed the gradients of the backward before it, and of
parameters that were frozen when DDP was built whether they are trained later, and which ones are
others by then.

Right before the steps 1, 2, 3, 4, 5, 7, 9, 13, 17 … of the first optimizer: the same on all ranks,
and fewer the longer it goes on. By then whatever shares parameters after a step has done so.
Nothing is changed, no random number is drawn, and an error here is swallowed. Loaded from its text
beside preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import functools
import itertools
import sys
import weakref

WRAPPED, NAMES, COMPARED, SAMPLES, CHECKS = 8, 4096, 512, 16, 48
"""Models, parameters by name, of which so many are compared, by so many of their numbers, and how
often."""
GRADED = 8
"""Looks at which the gradients are compared as well, of a model that DDP does not wrap."""
TEXT = 120
LEFT = 8
"""Steps of another optimizer, one after the other, after which the clock's is done with: a second
phase of the training has its own."""


class Models:
    """What is known in this process. There is one."""

    entries = []
    clock = None
    steps = 0
    other = None  # the optimizer that made the latest steps beside the clock
    others = 0  # and how many
    place = seconds = restarted = None
    owned_as = None  # of preflight_ties.py
    variable_of = None  # and of preflight_optimized.py
    loads = {}  # of models that a state dict was loaded into without strict, and took nothing of it


class Entry:
    """One model: of DDP's, or that of an optimizer where nothing is wrapped."""

    def __init__(self, kind, named, frame):
        self.kind, self.frame, self.module, self.optimizer = kind, frame, None, None
        self.options, self.checks, self.rates = {}, [], []
        self.buffers, self.held, self.placed = [], [], []
        self.graded, self.touched = [], False
        self.paths = []
        self.names = [name[-TEXT:] for name, _ in named[:NAMES]]
        self.shapes = [shape_of(parameter) for _, parameter in named[:NAMES]]
        self.trained = [bool(parameter.requires_grad) for _, parameter in named[:NAMES]]
        self.device = named[0][1].device.type if named else ""
        self.size = sum(p.numel() * p.element_size() for _, p in named if p.requires_grad)
        self.had = [False] * len(self.names)
        self.given = [False] * len(self.names)
        self.trains = self.evaluates = 0
        self.stepper = None
        frozen = (number for number, trains in enumerate(self.trained) if not trains)
        self.frozen, self.unfrozen = list(frozen) if kind == "ddp" else [], []
        self.wrapped = [weakref.ref(p) for _, p in named[:NAMES]] if kind == "ddp" else []
        self.replaced = []
        first = next((parameter for _, parameter in named if parameter.requires_grad), None)
        self.first = weakref.ref(first) if first is not None else lambda: None
        self.reduces = self.mark = self.stepped = None
        self.unreduced = []
        self.seed = int(sys.modules["torch"].initial_seed())

    def held_buffers(self):
        """Those of a model that DDP has wrapped, as they are now."""
        ddp = self.module() if self.module is not None else None
        named = buffers_of(ddp.module) if ddp is not None else []
        self.buffers = self.buffers or [name[-TEXT:] for name, _ in named]
        return [buffer for _, buffer in named] if len(named) == len(self.buffers) else []

    def gradient(self):
        """Another with each backward, as far as can be told without a look at its numbers."""
        first = self.first()
        grad = first.grad if first is not None else None
        return None if grad is None else (id(grad), grad._version)

    def parameters(self):
        """As they are now; none where the model is gone or has others by now."""
        if self.kind == "ddp":
            ddp = self.module and self.module()
            named = list_of(ddp.module) if ddp is not None else []
        else:
            optimizer = self.optimizer()
            named = listed(optimizer) if optimizer is not None else []
        found = [parameter for _, parameter in named[:NAMES]]
        return found if len(found) == len(self.names) else []


def shape_of(parameter):
    return "%s %s" % (list(parameter.shape), str(parameter.dtype).rpartition(".")[2])


def begin():
    """A child by fork has made nothing yet."""
    Models.entries, Models.clock, Models.steps = [], None, 0
    Models.other, Models.others, Models.loads = None, 0, {}


def follow_ddp(module, place):
    """From now on look at each model that DDP wraps, before DDP compares them: it says of those
    that differ how many parameters they have, not which."""
    Models.place = place
    original = module.DistributedDataParallel.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        entry = None
        try:
            entry = wrapped(original, self, args, kwargs)
        except Exception:
            pass
        original(self, *args, **kwargs)
        if entry is not None:
            entry.module = weakref.ref(self)

    module.DistributedDataParallel.__init__ = __init__


def wrapped(original, ddp, args, kwargs):
    model = kwargs.get("module", args[0] if args else None)
    if len(Models.entries) >= WRAPPED:
        return None
    entry = Entry("ddp", list_of(model), Models.place())
    entry.options = {
        name: bool(kwargs.get(name, usual))
        for name, usual in (("find_unused_parameters", False), ("static_graph", False))
    }
    group = kwargs.get("process_group")
    entry.options["own_group"] = group is not None or kwargs.get("device_mesh") is not None
    if not entry.options["own_group"] and all(one.kind != "ddp" for one in Models.entries):
        # all ranks are here; what one has trained alone before, such as a teacher, is its own
        Models.entries, Models.clock, Models.steps, Models.others = [], None, 0, 0
        if Models.restarted is not None:
            Models.restarted()
    shared = kwargs.get("broadcast_buffers", args[4] if len(args) > 4 else None)
    if shared or shared is None:
        entry.placed = placed_buffers(model)
    Models.entries.append(entry)
    return entry


def follow_loads(module, place):
    """From now on look at each state dict that is loaded without strict: whether the model takes
    anything of it."""
    original = module.Module.load_state_dict

    @functools.wraps(original)
    def load_state_dict(self, state_dict, *args, **kwargs):
        found = original(self, state_dict, *args, **kwargs)
        try:
            note_load(self, state_dict, found, place)
        except Exception:
            pass
        return found

    module.Module.load_state_dict = load_state_dict


def note_load(model, state_dict, found, place):
    """Another one that fits may follow, as with a prefix that is cut off."""
    unknown = list(found.unexpected_keys)
    if not unknown or len(unknown) < len(state_dict):
        Models.loads.pop(id(model), None)
    elif found.missing_keys and len(Models.loads) < WRAPPED:
        keys = str(unknown[0])[-TEXT:], str(found.missing_keys[0])[-TEXT:]
        Models.loads[id(model)] = [place(), len(unknown), *keys]


def forwarded(ddp):
    """After each forward that may have a backward. DDP decides by then whether that one sums the
    gradients; what it has decided stands until there was a backward."""
    for entry in Models.entries:
        if entry.module is not None and entry.module() is ddp:
            mark = entry.gradient()
            if ddp.require_backward_grad_sync:
                entry.reduces = True
            elif not entry.reduces or mark != entry.mark:
                entry.reduces = False
            entry.mark = mark


def compiles():
    """Whether Dynamo has made a graph of anything: a forward in one is not seen here."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return bool(counters.get("frames", {}).get("ok"))


def placed_buffers(model):
    """All its buffers, as DDP goes through them: it shares them by their place."""
    ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
    named = ((name, b) for name, b in model.named_buffers() if name not in ignored)
    return [name[-TEXT:] + " " + shape_of(b) for name, b in itertools.islice(named, NAMES)]


def list_of(model):
    """Its parameters by name, but for those that DDP is told to leave alone."""
    ignored = set(getattr(model, "_ddp_params_and_buffers_to_ignore", ()))
    return [(name, p) for name, p in model.named_parameters() if name not in ignored]


def buffers_of(model):
    """Its buffers of floating point numbers, by name."""
    named = ((name, b) for name, b in model.named_buffers() if b.is_floating_point())
    return list(itertools.islice(named, COMPARED))


def listed(optimizer):
    groups = enumerate(optimizer.param_groups[:64])
    return [
        ("group %d, parameter %d" % (g, number), parameter)
        for g, group in groups
        for number, parameter in enumerate(group["params"])
    ]


def called(named):
    """With the names that their modules have for them."""
    owned = [(name, Models.owned_as(p) if Models.owned_as else "", p) for name, p in named]
    return [("%s (%s)" % (name, own) if own else name, p) for name, own, p in owned]


def paths_of(torch, parameters):
    """What a module that one of the user's variables refers to calls each of them; empty where it
    does not have it."""
    if Models.variable_of is None:
        return []
    _, paths = Models.variable_of(torch, [], {id(p) for p in parameters})
    return [paths.get(id(p), "")[-TEXT:] for p in parameters]


def due(step):
    """Whether ranks are compared after so many steps."""
    return step & (step - 1) == 0 or (step % 3 == 0 and (step // 3) & (step // 3 - 1) == 0)


def steps(optimizer):
    """Before a step of any optimizer; the first one is the clock, until another takes over. Returns
    how many it has made, where this is a step before which ranks are compared."""
    looked = None
    clock = Models.clock() if Models.clock is not None else None
    if clock is not optimizer and (Models.clock is None or takes_over(optimizer)):
        Models.clock, clock = weakref.ref(optimizer), optimizer
    done = Models.steps if clock is optimizer else Models.steps - 1
    is_due, found = due(done), {}
    if clock is optimizer:
        Models.steps += 1
        Models.other, Models.others = None, 0
        if is_due:
            looked = done
            found = look(optimizer, looked)
    for entry in Models.entries:
        if is_due:
            note_given(entry, optimizer, found.get(id(entry)) or entry.parameters())
        if entry.stepper is not None and entry.stepper() is optimizer:
            note_mode(entry)
        if entry.reduces is False:
            note_unreduced(entry, optimizer, done)
        if entry.frozen and due(done + 1):  # the last step before a look
            note_unfrozen(entry, done)
    return looked


def takes_over(optimizer):
    """Whether it has made so many steps since the clock's last one that the clock has stopped: all
    ranks see that in the same step, which they do not of an optimizer that is gone."""
    same = Models.other is not None and Models.other() is optimizer
    Models.other = Models.other if same else weakref.ref(optimizer)
    Models.others = Models.others + 1 if same else 1
    return Models.others >= LEFT


def note_given(entry, optimizer, parameters):
    """Which parameters this optimizer is about to step, and which of them have a gradient."""
    mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for number, parameter in enumerate(parameters):
        if id(parameter) in mine and parameter.requires_grad:
            entry.given[number] = True
            entry.had[number] = entry.had[number] or parameter.grad is not None
            if entry.stepper is None or entry.stepper() is None:
                entry.stepper = weakref.ref(optimizer)


def note_mode(entry):
    """Whether the model is in training mode in this step, and whether it is in Join, where each
    rank makes as many steps as it has batches."""
    ddp = entry.module() if entry.module is not None else None
    if ddp is None:
        return
    known = ddp.__dict__  # an attribute of a module's that is missing there is looked for at length
    if known["_modules"]["module"].training:
        entry.trains, entry.evaluates = entry.trains + 1, 0
    else:
        entry.evaluates += 1
    if getattr(known.get("_join_config"), "enable", False):
        entry.options["join"] = True


def note_unreduced(entry, optimizer, step):
    """The first step after each look that uses gradients which DDP has not summed."""
    if not entry.checks or (entry.unreduced and entry.unreduced[-1] >= entry.checks[-1][0]):
        return
    ddp, first = entry.module(), entry.first()
    # a compiled forward is not seen, but sets this
    unseen = getattr(ddp, "require_forward_param_sync", True)
    steps_it = any(p is first for group in optimizer.param_groups for p in group["params"])
    if steps_it and not unseen and entry.gradient() != entry.mark:
        entry.unreduced.append(step)
        entry.stepped = entry.stepped or Models.place()


def note_unfrozen(entry, step):
    """Of the parameters that were frozen when DDP was built those that this step trains."""
    parameters = entry.parameters()
    now = [parameters[number] for number in entry.frozen] if parameters else []
    trains = [p.requires_grad and p.grad is not None for p in now]
    entry.unfrozen += [[number, step] for number, on in zip(entry.frozen, trains) if on]
    entry.frozen = [n for n, on in zip(entry.frozen, trains) if not on] if now else entry.frozen


def note_replaced(entry, parameters, done):
    """Parameters that are other objects than those that DDP has wrapped."""
    known = {number for number, _ in entry.replaced}
    for number, (now, before) in enumerate(zip(parameters, entry.wrapped)):
        if before() is not now and now.requires_grad and number not in known:
            entry.replaced.append([number, max(0, done - 1)])


def look(optimizer, done):
    """At all models, after `done` steps. Returns the parameters of each, by its id."""
    torch, seen = sys.modules["torch"], {}
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return seen  # to read it would end the capture
    if not Models.entries:
        entry = Entry("optimizer", called(listed(optimizer)), None)
        entry.optimizer = weakref.ref(optimizer)
        entry.paths = paths_of(torch, entry.parameters())
        Models.entries.append(entry)
    for entry in Models.entries:
        parameters = seen[id(entry)] = entry.parameters()
        note_replaced(entry, parameters, done)
        if parameters and len(entry.checks) < CHECKS:
            entry.had = [had or p.grad is not None for had, p in zip(entry.had, parameters)]
            entry.rates = [rate_of(group) for group in optimizer.param_groups[:8]]
            entry.checks.append([done, *compared(torch, parameters)])
            if entry.kind == "optimizer" and len(entry.graded) < GRADED:
                grads = [p.grad for p in parameters]
                if not done:  # backward itself leaves new ones as they are
                    entry.touched = any(g is not None and g._version for g in grads)
                entry.graded.append([done, *compared(torch, grads)])
            if buffers := entry.held_buffers():
                entry.held.append([done, *compared(torch, buffers)])
    return seen


def rate_of(group):
    rate = group.get("lr")
    return float(rate) if isinstance(rate, (int, float)) else None


def compared(torch, parameters):
    """Of each of some parameters, or of their gradients, a sum of a few of its numbers, each with a
    weight of its own, and the size of these numbers; "-" for those that can't be read like this,
    such as shards."""
    each = -(-len(parameters) // COMPARED)
    plain = (torch.nn.Parameter, torch.Tensor)
    views, keys, rows = {}, [], {}
    modes = getattr(torch.utils._python_dispatch, "_disable_current_modes", None)
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes() if modes else torch.no_grad():
        for parameter in parameters[::each]:
            if type(parameter) not in plain or not readable(torch, parameter):
                keys.append(None)
                continue
            size = parameter.numel()
            count = min(SAMPLES, size)
            view = parameter.as_strided((count,), (size // count,))
            if count < SAMPLES:
                view = torch.constant_pad_nd(view, (0, SAMPLES - count))
            key = (parameter.dtype, parameter.device)
            views.setdefault(key, []).append(view)
            keys.append(key)
        weights = torch.arange(1, SAMPLES + 1, dtype=torch.float64, device="cpu")
        for key, found in views.items():
            weighted = torch.cat(found).to("cpu", torch.float64).view(-1, SAMPLES) * weights
            sums, sizes = weighted.sum(1), weighted.abs_().sum(1)
            rows[key] = iter(zip(printed("%.9g ", sums), printed("%.3g ", sizes)))
    told = [next(rows[key]) if key else ("-", "-") for key in keys]
    return " ".join(one for one, _ in told), " ".join(one for _, one in told)


def printed(form, numbers):
    numbers = numbers.tolist()
    return (form * len(numbers) % tuple(numbers)).split()


def readable(torch, parameter):
    """Whether its numbers lie side by side, in any order."""
    if parameter.is_meta or not parameter.is_floating_point() or not parameter.numel():
        return False
    if parameter.layout is not torch.strided or parameter.element_size() < 2:
        return False
    last = torch.channels_last
    return parameter.is_contiguous() or (
        parameter.dim() == 4 and parameter.is_contiguous(memory_format=last)
    )


def hooks_of(entry):
    """What was registered to be called instead of the all-reduce: it may share parameters later."""
    ddp = entry.module() if entry.module is not None else None
    hooks = getattr(ddp, "_comm_hooks", None) or []
    return [str(getattr(hook, "__qualname__", hook))[:TEXT] for hook, _ in hooks[:4]]


def has_gradient(entry):
    """Of a model that failed before its first step, too."""
    now = (p.grad is not None for p in entry.parameters())
    return [had or has for had, has in zip(entry.had, now)] or entry.had


def told():
    """All that is known, for the record."""
    return [
        {
            "kind": entry.kind,
            "frame": entry.frame,
            "device": entry.device,
            "size": entry.size,
            "names": entry.names,
            "paths": entry.paths,
            "shapes": entry.shapes,
            "trained": "".join("01"[flag] for flag in entry.trained),
            "had": "".join("01"[flag] for flag in has_gradient(entry)),
            "given": "".join("01"[flag] for flag in entry.given),
            "modes": [entry.trains, entry.evaluates],
            "called": entry.kind != "ddp" or entry.reduces is not None or compiles(),
            "hooks": hooks_of(entry),
            "options": entry.options,
            "rates": entry.rates,
            "seed": entry.seed,
            "unfrozen": list(entry.unfrozen),
            "replaced": list(entry.replaced),
            "unreduced": list(entry.unreduced),
            "stepped": entry.stepped,
            "checks": list(entry.checks),
            "buffers": entry.buffers,
            "held": list(entry.held),
            "placed": entry.placed,
            "graded": list(entry.graded),
            "touched": entry.touched,
        }
        for entry in list(Models.entries)
    ]
