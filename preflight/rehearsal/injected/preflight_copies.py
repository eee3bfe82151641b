"""Copies of the model in DDP, such as averaged weights (EMA, SWA) and teachers: a few numbers of
each, before the steps 1, 2, 3, 5, 9, 17 … of the optimizer by which the models are compared, and
when it is used, so that the copies of all ranks can be compared.

A copy is what copy.deepcopy makes of the parameters, as AveragedModel does, or another model into
which load_state_dict has taken the model's own tensors. A use is a load_state_dict of the copy's
own tensors into the model, or a forward of an AveragedModel. Nothing
is changed, and an error here is swallowed. Loaded from its text beside preflight_responder.py into
the user's Python, any from 3.8 on: the standard library only.
"""

import functools
import sys
import weakref

GROUPS, COPIES, PARAMETERS, LOOKS, USES = 32, 4, 4096, 48, 8
"""Calls of deepcopy that are kept, copies of the model among them that are looked at, parameters
of each, and looks and uses of each that are kept."""
TEXT = 120


class Copies:
    """What is known in this process. There is one."""

    groups = []
    loads = []  # of models: line, and their parameters with the address of what each was given
    memo = None  # of the deepcopy that goes on, by what it has copied: id of its dict, and of one
    model = {}  # what is in preflight_model.py
    optimized = {}  # and in preflight_optimized.py
    place = None


def begin():
    """A child by fork may train what its parent has copied."""
    Copies.loads = []
    for group in Copies.groups:
        group.looks, group.uses, group.used = [], [], {}


def follow(model, optimized, place):
    Copies.model, Copies.optimized, Copies.place = model, optimized, place


class Group:
    """What one deepcopy has made: parameters and their copies; frame: the user's line. used: how
    often, by how it is used; replaced: all of it was, by load_state_dict."""

    def __init__(self, frame):
        self.frame, self.pairs, self.names, self.shapes = frame, [], [], []
        self.looks, self.uses, self.used, self.replaced = [], [], {}, False

    def originals(self):
        return [one() for one, _ in self.pairs]

    def copies(self):
        """None of them where one is gone."""
        found = [other() for _, other in self.pairs]
        return found if all(p is not None for p in found) else []

    def look(self, torch):
        return Copies.model["compared"](torch, self.copies())

    def use(self, how):
        """Kept like the steps: the first ones, and then fewer and fewer."""
        number = self.used.get(how, 0)
        self.used[how] = number + 1
        if number & (number - 1) or len(self.uses) >= USES or not self.copies():
            return
        made = Copies.model["Models"].steps
        looked = self.look(sys.modules["torch"])
        self.uses.append([how, number, made, Copies.place(), *looked])


def follow_parameters(kind):
    """From now on know of each copy of a parameter."""
    original = kind.__deepcopy__

    @functools.wraps(original)
    def __deepcopy__(self, memo):
        known = id(self) in memo
        result = original(self, memo)
        if not known:
            try:
                note(self, result, memo)
            except Exception:
                pass
        return result

    kind.__deepcopy__ = __deepcopy__


def note(parameter, copied, memo):
    if Copies.memo is None or Copies.memo[0] != id(memo) or Copies.memo[1] not in memo:
        Copies.groups = [one for one in Copies.groups if one.pairs and is_alive(one)]
        del Copies.groups[: 1 - GROUPS]
        Copies.groups.append(Group(Copies.place() if Copies.place is not None else None))
    Copies.memo = id(memo), id(parameter)
    group = Copies.groups[-1]
    if len(group.pairs) < PARAMETERS:
        group.pairs.append((weakref.ref(parameter), weakref.ref(copied)))


def is_alive(group):
    return group.pairs[0][0]() is not None and group.pairs[0][1]() is not None


def follow_averaged(kind, unless_compiled):
    """From now on know of each forward of an AveragedModel."""
    original = kind.forward

    def forward(self, *args, **kwargs):
        try:
            if Copies.groups:
                first = next(self.module.parameters(), None)
                for group in Copies.groups:
                    if first is not None and group.pairs[0][1]() is first:
                        group.use("forward")
        except Exception:
            pass
        return original(self, *args, **kwargs)

    kind.forward = unless_compiled(functools.wraps(original)(forward), original)


def follow_loads(kind):
    """From now on look whether what is loaded into a model is a copy of it."""
    original = kind.load_state_dict

    @functools.wraps(original)
    def load_state_dict(self, state_dict, *args, **kwargs):
        try:
            note_load(self, state_dict)
        except Exception:
            pass
        return original(self, state_dict, *args, **kwargs)

    kind.load_state_dict = load_state_dict


def note_load(model, state_dict):
    tensor = sys.modules["torch"].Tensor
    given = {name: v.data_ptr() for name, v in state_dict.items() if isinstance(v, tensor)}
    places = set(given.values())
    mine = {id(parameter) for parameter in model.parameters()}
    known = False
    for group in Copies.groups:
        one, other = (reference() for reference in group.pairs[0])
        if id(other) in mine:
            group.replaced = known = True
        elif id(one) in mine and other is not None and other.data_ptr() in places:
            group.use("load")
            known = True
    if not known and Copies.place is not None:
        own = [(weakref.ref(p), given[n]) for n, p in model.named_parameters() if given.get(n)]
        del Copies.loads[: 1 - GROUPS]
        Copies.loads.append((Copies.place(), own[:PARAMETERS]))


def adopt(wrapped):
    """Make groups of the models that were given the tensors of these parameters."""
    loads, Copies.loads = Copies.loads, []
    at = {p.data_ptr(): p for p in wrapped}
    for frame, own in loads:
        group = Group(frame)
        for reference, place in own:
            copied, original = reference(), at.get(place)
            if copied is None or original is None or copied.data_ptr() == place:
                break
            group.pairs.append((weakref.ref(original), reference))
        else:
            Copies.groups += [group] if group.pairs else []
    del Copies.groups[:-GROUPS]


def steps(done):
    """Before a step at which the models are compared, after `done` of them."""
    if not (Copies.groups or Copies.loads) or done is None or done & (done - 1):
        return
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return  # to read it would end the capture
    entries = Copies.model["Models"].entries
    wrapped = [entry.module() for entry in entries if entry.module is not None]
    have = {id(p): n for m in wrapped if m is not None for n, p in m.module.named_parameters()}
    held = {id(p) for known in Copies.optimized["Optimized"].known for p in known.parameters()}
    if Copies.loads:
        adopt([p for m in wrapped if m is not None for p in m.module.parameters()])
    for group in of_models(have, held)[:COPIES]:
        if not group.names:
            copies = group.copies()
            group.names = [have[id(p)][-TEXT:] for p in group.originals()]
            group.shapes = [Copies.model["shape_of"](p) for p in copies]
        if len(group.looks) < LOOKS:
            group.looks.append([done, *group.look(torch)])


def of_models(have, held):
    """Copies of parameters that DDP has wrapped, which are in no DDP themselves and which no
    optimizer steps."""
    found = []
    for group in Copies.groups:
        copies = group.copies()
        theirs = any(id(p) in have or id(p) in held for p in copies)
        if copies and not theirs and all(id(p) in have for p in group.originals()):
            found.append(group)
    return found


def told():
    """All that is known, for the record."""
    return [
        {
            "frame": group.frame,
            "names": group.names,
            "shapes": group.shapes,
            "looks": list(group.looks),
            "uses": list(group.uses),
            "replaced": group.replaced,
        }
        for group in list(Copies.groups)
        if group.looks
    ]
