"""By how much each rank clips its gradients: the norm and max_norm of clip_grad_norm_ and
clip_grads_with_norm_ before the steps at which the models are compared, and whether FSDP has
sharded what they clip. A norm on a GPU is read right before such a step, where the numbers of the
model are read as well: nothing waits for it in between.

Nothing is changed, and an error here is swallowed. Loaded from its text beside
preflight_responder.py into the user's Python, any from 3.8 on: the standard library only.
"""

import functools
import sys

CLIPS, LOOKS, PARAMETERS = 32, 48, 4096
"""Calls before one step, steps, and parameters of a call that are looked at."""
FLATTENED = "_fsdp_flattened"
"""What FSDP sets at parameters that it has put into a flat one, and at that."""


class Clips:
    """What is known in this process. There is one."""

    model = {}  # what is in preflight_model.py
    place = None
    pending = []  # before the step that comes
    looks, frame = [], None


def begin():
    """A child by fork has clipped nothing yet."""
    Clips.pending, Clips.looks, Clips.frame = [], [], None


def follow(model, place):
    Clips.model, Clips.place = model, place


def follow_clipping(module, unless_compiled):
    """From now on know of each call that scales gradients by a norm. clip_grad_norm_ calls the
    other one, which torch before 2.6 does not have."""
    scales = getattr(module, "_clip_grads_with_norm_", None)
    if scales is not None:
        module._clip_grads_with_norm_ = unless_compiled(noting_scale(scales), scales)
    else:
        clips = module.clip_grad_norm_
        module.clip_grad_norm_ = unless_compiled(noting_norm(clips), clips)


def noting_scale(original):
    @functools.wraps(original)
    def _clip_grads_with_norm_(parameters, max_norm, total_norm, *args, **kwargs):
        if is_due() and not isinstance(parameters, (list, tuple)):
            parameters = listed(parameters)
        result = original(parameters, max_norm, total_norm, *args, **kwargs)
        note(parameters, max_norm, total_norm)
        return result

    return _clip_grads_with_norm_


def noting_norm(original):
    @functools.wraps(original)
    def clip_grad_norm_(parameters, max_norm, *args, **kwargs):
        if is_due() and not isinstance(parameters, (list, tuple)):
            parameters = listed(parameters)
        norm = original(parameters, max_norm, *args, **kwargs)
        note(parameters, max_norm, norm)
        return norm

    return clip_grad_norm_


def is_due():
    """Whether models are compared before the next step."""
    made = Clips.model["Models"].steps
    return Clips.model["due"](made) and len(Clips.pending) < CLIPS


def listed(parameters):
    """What can be gone through once only can be so twice."""
    one = isinstance(parameters, sys.modules["torch"].Tensor)
    return parameters if one else list(parameters)


def note(parameters, max_norm, norm):
    """Of plain norms: that of DTensors is one of all ranks."""
    try:
        torch = sys.modules["torch"]
        if not is_due() or type(norm) is not torch.Tensor:
            return
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters[:PARAMETERS]
        mine = [p for p in given if p.grad is not None]
        flat = any(getattr(p, FLATTENED, False) for p in mine)
        sizes = [p.grad.numel() for p in mine]
        known = flat, len(mine), sum(sizes), max(sizes, default=0)
        Clips.pending.append((known, max_norm, norm))
        Clips.frame = Clips.frame or Clips.place()
    except Exception:
        pass


def steps(done):
    """Before a step at which models are compared, after `done` of them."""
    if done is None or not Clips.pending:
        return
    pending, Clips.pending = Clips.pending, []
    torch = sys.modules["torch"]
    if len(Clips.looks) >= LOOKS or (
        torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    ):  # to read a number would end the capture
        return
    clips = [[*known, float(limit), float(norm)] for known, limit, norm in pending]
    Clips.looks.append([done, clips])


def told():
    """All that is known, for the record."""
    return {"frame": Clips.frame, "looks": list(Clips.looks)}
