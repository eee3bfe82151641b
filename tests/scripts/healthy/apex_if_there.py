"""apex where it is installed, torch.amp otherwise; or only if it is asked for."""

import torch

try:
    from apex import amp
except ImportError:
    amp = None


def build(model, optimizer):
    if amp is None:
        return model, optimizer
    return amp.initialize(model, optimizer, opt_level="O1")


def late(args, model, optimizer):
    if args.do_amp:
        from apex import amp as late_amp

        model, optimizer = late_amp.initialize(model, optimizer)
    with torch.amp.autocast("cuda"):
        return model, optimizer
